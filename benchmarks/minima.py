"""All global optima of the CEC 2013 niching suite by `gx.minima`, with the suite's budgets and its way of counting.

    python benchmarks/minima.py [--functions 1 2 3] [--runs 2] [--seed 100] [--processes 4]
    python benchmarks/minima.py --variants  # on which the constants of the search were chosen
    python benchmarks/minima.py --plain --runs 5  # `gx.minima(f)` as a newcomer calls it, with gradients

Prints for every function the peak ratio (the share of the global optima found, the mean over runs and the accuracies
1e-1 to 1e-5) and the static F1 score (the harmonic mean of that and of the share of the reported points that are
optima), with the standard error of the peak ratio and the seconds of a run. Only values are used unless --gradients is
given: then a gradient counts as 4 evaluations, and the other methods had none. The suite's rule is 50 runs (`make
minima`). Published means of 50 runs, from the suite's repository (GECCO 2016 to 2019): HillVallEA19 0.8916 and 0.9335,
HillVallEA 0.8851 and 0.9297, RS-CMSA-ES 0.8557 and 0.9106, SDE-Ga 0.8329 and 0.8835, NEA2+ 0.8071 and 0.8548.

The variants are compositions with other optima and rotations, and of 4, 8 and 15 variables, which the suite has not.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np

import galapax as gx
from galapax.problems.cec2013_niching import (
    ACCURACIES,
    CF3,
    CF4,
    NICHING_FUNCTIONS,
    Composition,
    NichingFunction,
    compose,
    count_optima,
    normalise,
)

RUNS_TOGETHER = 13  # of a function, in one process


def vary(composition: Composition, dim: int, seed: int) -> NichingFunction:
    """A composition with optima and rotations of its own."""
    random, n = np.random.default_rng(seed), len(composition.parts)
    optima = random.uniform(-4, 4, (n, dim))
    rotations = np.linalg.qr(random.normal(size=(n, dim, dim)))[0]
    heights = normalise(composition, rotations)
    fun = partial(compose, composition, optima, rotations, heights)
    name = "CF3" if composition is CF3 else "CF4"
    return NichingFunction(f"{name} variant, {dim}-D", fun, [(-5, 5)] * dim, 0.0, lambda: optima, n, 0.01, 400_000)


VARIANTS = {
    1: vary(CF3, 4, 1),
    2: vary(CF4, 4, 2),
    3: vary(CF3, 8, 3),
    4: vary(CF4, 8, 4),
    5: vary(CF4, 15, 5),
}


def score(function: NichingFunction, table: gx.Minima) -> tuple[float, float]:
    """The peak ratio and the static F1 score of reported minima, means over the accuracies."""
    ratios, scores = [], []
    for accuracy in ACCURACIES:
        count = count_optima(function, table.x, table.fun, accuracy)
        ratios.append(count / function.n_optima)
        scores.append(2 * count / (len(table) + function.n_optima))  # precision count / len, recall count / n_optima
    return float(np.mean(ratios)), float(np.mean(scores))


def measure(is_variant: bool, number: int, runs: range, seed: int, gradients: bool) -> tuple[np.ndarray, float]:
    """Scores (runs, 2) of runs of a function, and their seconds."""
    began, function = time.perf_counter(), (VARIANTS if is_variant else NICHING_FUNCTIONS)[number]
    problem = gx.Problem(function.fun, function.bounds) if is_variant else gx.problems.niching(number)
    limit, polish = function.max_evaluations, "auto" if gradients else False
    compute = gx.Compute(dtype="float64")  # on a GPU, too: single precision loses the optima of Weierstrass' function
    result = gx.minima(
        problem,
        global_only=True,
        unseen=0.0,
        max_evaluations=limit,
        polish=polish,
        seed=seed,
        runs=runs,
        compute=compute,
    )
    singles = [result.run(k) for k in runs]
    assert all(single.nfev <= limit for single in singles)
    return np.array([score(function, single.minima) for single in singles]), time.perf_counter() - began


def show_plain_calls(numbers: list[int], seeds: range) -> None:
    """Print what the plain call tells about a function, means over the seeds."""
    print(f"{'function':32} {'global':>9} {'in table':>9} {'evaluations':>11} {'unseen':>7} {'success':>8}", flush=True)
    for number in numbers:
        function, rows = NICHING_FUNCTIONS[number], []
        for seed in seeds:
            result = gx.minima(gx.problems.niching(number), seed=seed)
            count = count_optima(number, result.minima.x, result.minima.fun, ACCURACIES[-1])
            rows.append((count, len(result.minima), result.nfev, result.unseen, result.success))
        count, n_minima, nfev, unseen, success = np.mean(rows, axis=0)
        print(
            f"{f'F{number} {function.title}':32} {count:5.1f}/{function.n_optima:<3d} {n_minima:9.1f} {nfev:11,.0f} "
            f"{unseen:7.3f} {success:8.0%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, nargs="+")
    parser.add_argument("--variants", action="store_true", help="other functions, to choose constants on")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--plain", action="store_true", help="the plain call, F4 to F10 unless --functions is given")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.plain:
        seeds = range(arguments.seed, arguments.seed + arguments.runs)
        show_plain_calls(arguments.functions or list(range(4, 11)), seeds)
        return
    functions = VARIANTS if arguments.variants else NICHING_FUNCTIONS
    numbers = arguments.functions or list(functions)
    starts = range(0, arguments.runs, RUNS_TOGETHER)
    batches = [range(start, min(start + RUNS_TOGETHER, arguments.runs)) for start in starts]
    calls = list(itertools.product([arguments.variants], numbers, batches, [arguments.seed], [arguments.gradients]))
    began, means = time.perf_counter(), []
    print(f"{'function':32} {'optima':>6} {'peak ratio':>10} {'+-':>6} {'F1':>6} {'seconds':>8}", flush=True)
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        # the last functions take longest
        futures = {call: pool.submit(measure, *call) for call in reversed(calls)}
        outcomes: Iterator = (futures[call].result() for call in calls)
        for number in numbers:
            parts = list(itertools.islice(outcomes, len(batches)))
            rows = np.concatenate([scores for scores, _ in parts])
            seconds = sum(seconds for _, seconds in parts) / len(rows)
            ratio, f1 = rows.mean(axis=0)
            error = rows[:, 0].std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
            means.append((ratio, f1))
            name = f"F{number} {functions[number].title}"
            count = functions[number].n_optima
            print(f"{name:32} {count:6d} {ratio:10.3f} {error:6.3f} {f1:6.3f} {seconds:8.1f}", flush=True)
    ratio, f1 = np.mean(means, axis=0)
    print(f"{'mean':32} {'':6} {ratio:10.4f} {'':6} {f1:6.4f}")
    print(f"{time.perf_counter() - began:.0f} s for {len(numbers)} functions x {arguments.runs} runs")


if __name__ == "__main__":
    main()
