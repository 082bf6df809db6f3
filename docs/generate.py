"""Write what pages quote from saved data: `python docs/generate.py`. A test checks that nothing is out of date.

In a page, `<!-- measured: SUITE: ALGORITHM -->` up to `<!-- end -->` is the table of an algorithm beside the best of
its suite, from benchmarks/data/strengths.csv; `<!-- measured: SUITE -->` is the table of the whole suite.
"""

import csv
import re
from pathlib import Path

DOCS = Path(__file__).parent
DATA = DOCS.parent / "benchmarks/data/strengths.csv"
MARK = re.compile(r"(<!-- measured: ([a-z ]+?)(?:: ([a-z0-9_]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
ALSO = {"lshade": ("lshade", "jso"), "ep": ("ep", "fep"), "random_search": ("random",)}
WHAT = {
    "one objective": "Functions of the BBOB suite in 10 variables, 50 000 evaluations, no restarts: median distance to "
    "the optimum over 15 runs, and in brackets the share of runs within 1e-3.",
    "constraints": "CEC 2006, 50 000 evaluations: median distance to the best known value over 15 runs (inf where the "
    "median run found no feasible point), and in brackets the share of runs within 1e-3.",
    "fronts": "20 000 evaluations: median share of the true front's hypervolume over 15 runs, and in brackets the "
    "share of runs that reach 99 %.",
}


def rows() -> list[dict[str, str]]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def best_of(found: dict[str, dict[str, str]], suite: str) -> str:
    """The algorithm with the best median; where several are equal, the one that succeeds most often."""
    sign = -1 if suite == "fronts" else 1
    return min(found, key=lambda name: (sign * float(found[name]["median"]), -float(found[name]["success"])))


def cell(row: dict[str, str] | None, suite: str) -> str:
    if row is None:
        return ""
    median = f"{100 * float(row['median']):.1f} %" if suite == "fronts" else row["median"]
    return f"{median} ({100 * float(row['success']):.0f} %)"


def table(suite: str, algorithm: str | None) -> str:
    own = [row for row in rows() if row["suite"] == suite]
    problems = list(dict.fromkeys(row["problem"] for row in own))
    names = list(dict.fromkeys(row["algorithm"] for row in own))
    by = {problem: {row["algorithm"]: row for row in own if row["problem"] == problem} for problem in problems}
    lines = [f"{WHAT[suite]} Printed by `python benchmarks/algorithm_strengths.py`.", ""]
    if algorithm is None:
        lines += ["| | " + " | ".join(f"`{name}`" for name in names) + " |", "| --- " * (len(names) + 1) + "|"]
        for problem, found in by.items():
            best = best_of(found, suite)
            cells = [cell(found.get(name), suite) for name in names]
            cells = [f"**{text}**" if name == best else text for name, text in zip(names, cells, strict=True)]
            lines.append(f"| {problem} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"
    shown = ALSO.get(algorithm, (algorithm,))
    lines += ["| | " + " | ".join(f"`{name}`" for name in shown) + " | best here |", "| --- " * (len(shown) + 2) + "|"]
    for problem, found in by.items():
        best = best_of(found, suite)
        own_cells = " | ".join(cell(found.get(name), suite) for name in shown)
        lines.append(f"| {problem} | {own_cells} | `{best}`: {cell(found[best], suite)} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """A page with its tables as the data say."""
    return MARK.sub(lambda found: found[1] + table(found[2], found[3]) + found[4], text)


def main() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if written(text) != text:
            page.write_text(written(text), encoding="utf-8")
            print(page.relative_to(DOCS))


if __name__ == "__main__":
    main()
