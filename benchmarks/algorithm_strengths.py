"""What each algorithm can do, for the pages in docs/explain: every algorithm on a few problems with equal evaluations.

    python benchmarks/algorithm_strengths.py    # writes benchmarks/data/strengths.csv and prints it
    python docs/generate.py                     # writes the tables of the pages from that file

One objective: functions of the BBOB suite in 10 variables, whose optimum is not in the middle of the box, 50 000
evaluations. Constraints: problems of CEC 2006, 50 000 evaluations. Fronts: 20 000 evaluations, the share of the true
front's hypervolume. Medians of 15 runs; success is a distance of 1e-3 to the best known value, or 99 % of the
hypervolume.
"""

import csv
from pathlib import Path

import harness
import numpy as np

import galapax as gx
from galapax.results.result import all_runs
from galapax.results.study import scores

FILE = Path(__file__).parent / "data/strengths.csv"
RUNS, CLOSE, VOLUME = 15, 1e-3, 0.99
EVALUATIONS = (50_000, 50_000, 20_000)
BBOB = {
    1: "sphere",
    8: "Rosenbrock",
    10: "ellipsoid, rotated",
    3: "Rastrigin",
    15: "Rastrigin, rotated",
    21: "101 peaks",
}
ONE = ("cmaes", "de", "lshade", "jso", "lsrtde", "epsilon_de", "pso", "ep", "fep", "ga", "real_coded_ga", "random")
CONSTRAINED = ("epsilon_de", "cde", "lshade", "lsrtde", "cmaes", "de", "pso", "ga", "real_coded_ga")
FRONTS = ("nsga2", "nsga3", "moead", "sms_emoa", "sharing_moea", "npga")


def one_objective(runs, evaluations):
    for number, name in BBOB.items():
        problem = gx.problems.bbob(function=number, dim=10, instance=1)
        yield name, gx.compare([problem], list(ONE), runs=runs, max_evaluations=evaluations)


def constrained(runs, evaluations):
    for name in ("g06", "g07", "g10"):
        yield name, gx.compare([name], list(CONSTRAINED), runs=runs, max_evaluations=evaluations)


def fronts(runs, evaluations):
    for name in ("zdt1", "zdt4", "dtlz2"):
        yield name, gx.compare([name], list(FRONTS), runs=runs, max_evaluations=evaluations)


SUITES = {"one objective": one_objective, "constraints": constrained, "fronts": fronts}


def row(suite, problem, labels, result):
    """What one algorithm came to on one problem."""
    found = scores(result)
    if suite == "fronts":
        share = -found / result.problem.hypervolume
        return [suite, problem, labels["algorithm"], f"{np.median(share):.4f}", f"{np.mean(share >= VOLUME):.3f}"]
    gap = np.where(np.isnan(found), np.inf, found - result.problem.optimum)
    assert len(gap) == len(all_runs(result))
    return [suite, problem, labels["algorithm"], f"{max(np.median(gap), 0.0):.3g}", f"{np.mean(gap <= CLOSE):.3f}"]


def main():
    parser = harness.make_parser(__doc__, runs=RUNS)
    parser.add_argument("--evaluations", type=int, nargs=3, default=EVALUATIONS, help="of the three suites")
    parser.add_argument("--save", type=Path, default=FILE, help="the file to write (%(default)s)")
    options = parser.parse_args()
    print(harness.describe_machine("galapax"))
    rows = []
    for (suite, make_studies), evaluations in zip(SUITES.items(), options.evaluations, strict=True):
        for problem, study in make_studies(options.runs, evaluations):
            for labels, result in study:
                rows.append(row(suite, problem, labels, result))
                print(*rows[-1], sep="\t", flush=True)
    with options.save.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([["suite", "problem", "algorithm", "median", "success"], *rows])


if __name__ == "__main__":
    main()
