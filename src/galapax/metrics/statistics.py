"""Statistics of repeated runs: summaries, running times, tests of one algorithm against another; and measures of risk.

Values are minimised, and one rule covers runs that found nothing: NaN and +inf both mean that, and both lose to every
number and tie with each other. `histories` are the best values so far, (R, G) for R runs of G generations. With
constraints, first set those of infeasible points to NaN: `np.where(history.violation > 0, np.nan, history.best)`.

A measure of risk is one number for the values of a solution in many scenarios, with its confidence interval.
Conditional value at risk after Rockafellar & Uryasev (2000), Journal of Risk 2(3):21-41, doi:10.21314/JOR.2000.038.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from galapax.core.checks import abbreviate, as_float_array, check_finite, check_integer, check_number
from galapax.core.errors import InputError

# --- one sample of values ---------------------------------------------------------------------------------------------


def describe(values: ArrayLike) -> dict[str, float]:
    """Best, median, interquartile range (iqr), mean, std (ddof=1) and worst of the runs' final values, their count and
    how many are missing.

    Missing are the runs that found nothing (NaN or +inf). They rank as worst: `worst` is NaN when one is missing,
    `median` when half or more are, `iqr` when a quarter or more are, `best` when all are. `mean` and `std` leave them
    out, so read them beside `missing`. `std` and `iqr` of one value are NaN: one run shows no spread, not 0.
    """
    sample = _sample(values, "values")
    finite = sample[sample < np.inf]
    ordered = _quantiles(sample, np.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    best, lower, median, upper, worst = (math.nan if value == math.inf else float(value) for value in ordered)
    iqr = upper - lower if len(sample) > 1 else math.nan
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float(np.mean(finite)) if len(finite) else math.nan
        std = float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan
    moments = {"best": best, "median": median, "iqr": iqr, "mean": mean, "std": std, "worst": worst}
    return {**moments, "count": len(sample), "missing": len(sample) - len(finite)}


def ecdf(values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values in order, and the share of the sample that is no larger than each.

    What is missing (NaN or +inf: say, a target that was never hit) is a part of the sample but no step of the curve,
    which then ends below 1.
    """
    sample = _sample(values, "values")
    x, counts = np.unique(sample[sample < np.inf], return_counts=True)
    return x, np.cumsum(counts) / len(sample)


# --- histories and running times --------------------------------------------------------------------------------------


def quantile_curves(histories: ArrayLike, q: ArrayLike = (0.0, 0.25, 0.5, 0.75, 1.0)) -> np.ndarray:
    """Quantiles over the runs after each generation, (len(q), G), interpolated as np.quantile does.

    A quantile that a run without a finding takes part in is +inf.
    """
    best = _histories(histories)
    levels = _vector(q, "q")
    if not np.all((levels >= 0) & (levels <= 1)):
        raise InputError(f"q must contain fractions between 0 and 1, got {abbreviate(q)}; write 0.5 for the median.")
    return _quantiles(best, levels)


def hits(histories: ArrayLike, nfev: ArrayLike, target: float) -> np.ndarray:
    """The evaluations after which each run first had a value of at most `target`, (R,); inf for a run that never had.

    nfev: (G,) evaluations of one run up to each generation's end, or (R, G) where runs differ in them.
    """
    best = _histories(histories)
    reached = best <= _finite(target, "target")
    spent = _each_nfev(nfev, best)[np.arange(len(best)), reached.argmax(axis=1)]
    return np.where(reached.any(axis=1), spent, np.inf)


def by_evaluations(histories: ArrayLike, nfev: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Histories (R, G) at numbers of evaluations that all runs share: those (K,), and what each run had by then (R, K),
    inf before its first generation. nfev: as `hits` takes it; where it is shared already, nothing changes.
    """
    best = _histories(histories)
    if np.ndim(nfev) == 1:
        return _nfev(nfev, best.shape[1]), best
    spent = _each_nfev(nfev, best)
    steps = np.unique(np.linspace(spent.min(), spent.max(), best.shape[1]).round())
    at = np.stack([np.searchsorted(row_values, steps, side="right") - 1 for row_values in spent])
    return steps, np.where(at >= 0, np.take_along_axis(best, np.maximum(at, 0), axis=1), np.inf)


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of Wilson (1927) for a share of successes: honest at 0 %, at 100 % and for few trials."""
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = (centre - half) / scale if successes else 0.0  # exactly 0 and 1 at the ends, where rounding is visible
    return low, (centre + half) / scale if successes < trials else 1.0


def expected_running_time(evaluations: np.ndarray, success: np.ndarray) -> float:
    """Evaluations spent by all runs, per success (Hansen et al. 2009); inf when no run succeeded."""
    hits = int(np.sum(success))
    return float(np.sum(evaluations)) / hits if hits else math.inf


def ert_to(histories: ArrayLike, nfev: ArrayLike, target: float, spent: ArrayLike | None = None) -> float:
    """The expected running time to `target`: evaluations until each run hit it, or all of them, per hit.

    spent: (R,) all evaluations of each run, as in `Runs.nfev`. Needed when runs gave up at different times, since
    histories only repeat their last row; without it a run that missed counts `nfev[-1]`.
    """
    at = hits(histories, nfev, target)
    total = _each_nfev(nfev, _histories(histories))[:, -1] if spent is None else _vector(spent, "spent")
    if total.shape != at.shape or not np.all((total >= 0) & (total < np.inf)):
        raise InputError(f"spent must hold the evaluations of each of the {len(at)} runs, got {abbreviate(spent)}.")
    success = np.isfinite(at)
    return expected_running_time(np.where(success, at, total), success)


def ert_interval(
    evaluations: ArrayLike, success: ArrayLike, confidence: float = 0.95, samples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """A percentile bootstrap interval of the expected running time over the runs.

    Efron & Tibshirani (1993), An Introduction to the Bootstrap, ch. 13. A resample without a success counts as inf, so
    the upper limit is inf where those reach its percentile. Both limits are where no run succeeded: the runs then
    show no finite time, not that there is none. For few runs the interval is too short, as with any such bootstrap.
    """
    cost, hit = _vector(evaluations, "evaluations"), _vector(success, "success")
    if cost.shape != hit.shape:
        raise InputError(
            f"evaluations and success need one entry per run, got {len(cost)} and {len(hit)}; give both for all runs."
        )
    if not np.all((cost >= 0) & (cost < np.inf)):
        raise InputError(
            f"evaluations must be finite and not negative, got {abbreviate(evaluations)}; "
            "for an unsuccessful run give the evaluations it used, and False in success."
        )
    if not np.all((hit == 0) | (hit == 1)):
        raise InputError(f"success must hold True or False for each run, got {abbreviate(success)}.")
    level = check_number(confidence, "confidence")
    if not 0 < level < 1:
        raise InputError(f"confidence must lie between 0 and 1, got {level:g}; write 0.95 for 95 %.")
    generator = np.random.default_rng(check_integer(seed, "seed", 0))
    resampled = generator.integers(len(cost), size=(check_integer(samples, "samples", 1), len(cost)))
    totals, counts = cost[resampled].sum(axis=1), hit[resampled].sum(axis=1)
    times = np.divide(totals, counts, out=np.full(len(totals), np.inf), where=counts > 0)
    low, high = _quantiles(times, np.array([(1 - level) / 2, (1 + level) / 2]))
    return float(low), float(high)


def log_targets(reference: float, start: float, count: int = 51, precision: float = 1e-8) -> np.ndarray:
    """Targets from `start` down to just above `reference`, evenly spaced in the logarithm of the distance to it.

    reference: the best known value, or the best found where none is known (then the run that found it hits them all).
    start: a value that runs begin with, say the median of their first generation; it is the first and easiest target.
    precision: the last target's distance, as a share of the first one's. COCO stops at an absolute 1e-8, which fits
    its own functions; the share makes the choice independent of the objective's scale and offset. Targets that
    float64 cannot tell from the reference are moved away from it. For runs in float32 whose values are large beside
    their spread choose a coarser precision, such as 1e-4.
    """
    goal, first = _finite(reference, "reference"), _finite(start, "start")
    count = check_integer(count, "count", 2, "the first and the last target")
    share = check_number(precision, "precision")
    if not 0 < share < 1:
        raise InputError(f"precision must lie between 0 and 1 (a share of start - reference), got {share:g}.")
    distance = first - goal
    if not 0 < distance < math.inf:
        raise InputError(
            f"start must be greater than reference, at a finite distance; got start={first:g} and reference={goal:g}."
        )
    last = min(distance, max(share * distance, float(np.spacing(abs(goal)))))
    targets = goal + np.geomspace(distance, last, count)
    targets[0] = first  # which rounding can miss by a little, and then no run would begin on it
    return targets


def ecdf_over_targets(histories: ArrayLike, nfev: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """The share of (run, target) pairs that were reached within each of `nfev` evaluations, (G,).

    The run-time distribution of COCO: Hansen et al. (2021), Optimization Methods and Software 36(1):114-144,
    doi:10.1080/10556788.2020.1808977.
    """
    best = np.minimum.accumulate(_histories(histories), axis=1)
    _nfev(nfev, best.shape[1])
    ordered = np.sort(_vector(targets, "targets"))
    if not np.all(np.isfinite(ordered)):
        raise InputError(f"targets must be finite numbers, got {abbreviate(targets)}; log_targets can choose them.")
    reached = len(ordered) - np.searchsorted(ordered, best, side="left")
    return reached.mean(axis=0) / len(ordered)


# --- one algorithm against another ------------------------------------------------------------------------------------


def mann_whitney(a: ArrayLike, b: ArrayLike) -> float:
    """The two-sided p-value of Mann & Whitney (1947), Ann. Math. Stat. 18:50-60, for independent runs; 1 if all tie."""
    from scipy import stats

    first, second = _sample(a, "a"), _sample(b, "b")
    ranks = stats.rankdata(np.concatenate([first, second]))  # finite, whatever was missing
    if np.ptp(ranks) == 0:
        return 1.0  # some versions of SciPy say NaN
    return float(stats.mannwhitneyu(ranks[: len(first)], ranks[len(first) :], alternative="two-sided").pvalue)


def wilcoxon(a: ArrayLike, b: ArrayLike) -> float:
    """The two-sided p-value of the signed-rank test of Wilcoxon (1945), Biometrics Bulletin 1:80-83, for paired runs.

    `a[i]` and `b[i]` share a seed or a problem. Pairs that tie are left out, as in the paper; if all do, p is 1. A pair
    of which only one run found something differs by more than any other.
    """
    from scipy import stats

    difference = _differences(a, b)
    difference = difference[difference != 0]
    if not len(difference):
        return 1.0
    signed = np.sign(difference) * stats.rankdata(np.abs(difference))  # finite, and the same test
    return float(stats.wilcoxon(signed).pvalue)


def vargha_delaney(a: ArrayLike, b: ArrayLike) -> float:
    """The chance that a run of `a` is better than one of `b`, ties counted half; 0.5 for equals, 1 if `a` always wins.

    A12 of Vargha & Delaney (2000), J. Educ. Behav. Stat. 25(2):101-132, doi:10.3102/10769986025002101. Differs from the
    paper: better is smaller. They call 0.56, 0.64 and 0.71 a small, a medium and a large effect.
    """
    from scipy import stats

    first, second = _sample(a, "a"), _sample(b, "b")
    n, m = len(first), len(second)
    ranks = stats.rankdata(np.concatenate([first, second]))
    return float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))


def holm(p_values: ArrayLike) -> np.ndarray:
    """p-values adjusted for their number, in the order given: Holm (1979), Scand. J. Stat. 6(2):65-70."""
    p = _vector(p_values, "p_values")
    if not np.all((p >= 0) & (p <= 1)):
        raise InputError(f"p_values must lie between 0 and 1, got {abbreviate(p_values)}.")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


class Friedman(NamedTuple):
    p: float  # the chance of ranks this far apart among equal algorithms
    average_ranks: np.ndarray  # (k,) over the problems; 1 is best


def friedman(table: ArrayLike) -> Friedman:
    """Whether k algorithms differ over n problems, from an (n, k) table of scores, and their average ranks.

    Friedman (1937), JASA 32:675-701, with ties ranked at their mean; p is 1 if all tie. Its chi-square is rough below
    about ten problems and five algorithms, and on the safe side there (Demšar 2006, JMLR 7:1-30, sec. 3.2.2).

    For two algorithms the test becomes the sign test, which is then used in its exact form. Demšar recommends the
    signed-rank test for two, as it is more powerful: call `wilcoxon` where scores of different problems share a scale,
    so that their differences can be ranked against each other. Values of different objectives rarely do.
    """
    from scipy import stats

    scores = _reals(table, "table")
    if scores.ndim != 2 or scores.shape[0] < 1 or scores.shape[1] < 2:
        raise InputError(
            f"table must be (problems, algorithms) with at least two algorithms, got shape {scores.shape}; "
            "give one row of scores per problem."
        )
    ranks = stats.rankdata(_worst_for_nan(scores), axis=1)
    if ranks.shape[1] == 2:
        wins, losses = (int(np.sum(ranks[:, i] < ranks[:, 1 - i])) for i in (0, 1))
        p = float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
    else:
        p = float(stats.friedmanchisquare(*ranks.T).pvalue) if np.any(ranks != ranks[0, 0]) else 1.0
    return Friedman(p, ranks.mean(axis=0))


def critical_difference(n_problems: int, n_algorithms: int, level: float = 0.05) -> float:
    """Return by how much average ranks must differ for two algorithms to differ significantly, by Nemenyi's test.

    Nemenyi (1963), as in Demšar (2006), JMLR 7:1-30, section 3.2.2: q sqrt(k (k + 1) / 6N), with the studentised range
    q / sqrt(2). It accounts for all pairs. Ranks, and so this test, depend on which other algorithms are compared.
    """
    from scipy import stats

    quantile = float(stats.studentized_range.ppf(1 - level, n_algorithms, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(n_algorithms * (n_algorithms + 1) / (6 * n_problems))


class Comparison(NamedTuple):
    first: str
    second: str
    p: float
    adjusted: float  # for all pairs that were compared, by `holm`
    effect: float  # the chance that `first` is better than `second`, ties counted half


def pairwise(samples: Mapping[str, ArrayLike], paired: bool = False) -> list[Comparison]:
    """Every pair of the named samples, tested and corrected for the number of pairs.

    Independent samples are compared by `mann_whitney` and `vargha_delaney`. With `paired`, the i-th entries share a
    seed: the test is `wilcoxon`, and the effect the share of seeds at which `first` is better, ties counted half.
    """
    if not isinstance(samples, Mapping) or len(samples) < 2:
        raise InputError(
            f"samples must contain at least two named samples, as in {{'DE': [...]}}, got {abbreviate(samples)}."
        )
    tested = {name: _sample(values, f"samples[{name!r}]") for name, values in samples.items()}
    if paired and len({len(sample) for sample in tested.values()}) > 1:
        lengths = ", ".join(f"{name}: {len(sample)}" for name, sample in tested.items())
        raise InputError(f"Paired samples need one value per seed each, got {lengths}; use the same seeds for all.")
    pairs = list(combinations(tested, 2))
    test, effect = (wilcoxon, _share_better) if paired else (mann_whitney, vargha_delaney)
    p_values = [test(tested[one], tested[other]) for one, other in pairs]
    return [
        Comparison(one, other, p, float(adjusted), effect(tested[one], tested[other]))
        for (one, other), p, adjusted in zip(pairs, p_values, holm(p_values), strict=True)
    ]


def _share_better(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean((a < b) + 0.5 * (a == b)))


def _differences(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    first, second = _sample(a, "a"), _sample(b, "b")
    if first.shape != second.shape:
        raise InputError(
            f"Paired samples a and b need the same length, got {len(first)} and {len(second)}; "
            "use the same seeds for both, or mann_whitney."
        )
    out = np.zeros_like(first)
    with np.errstate(over="ignore"):
        return np.subtract(first, second, out=out, where=first != second)  # inf - inf is a tie, not NaN


# --- helpers ----------------------------------------------------------------------------------------------------------


def _quantiles(values: np.ndarray, q: np.ndarray) -> np.ndarray:
    """np.quantile along axis 0, except that it returns NaN next to +inf, and here what takes part of +inf is +inf."""
    ordered = np.sort(values, axis=0)
    position = np.round(q * (len(ordered) - 1), 12)  # 0.55 * 100 is not 55, and the next value may be +inf
    below = np.floor(position).astype(int)
    low, high = ordered[below], ordered[np.ceil(position).astype(int)]
    column = (position - below).reshape(-1, *[1] * (values.ndim - 1))
    with np.errstate(invalid="ignore"):
        between = np.where(high == np.inf, np.inf, (1 - column) * low + column * high)
    return np.where(low == high, low, between)


def _worst_for_nan(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), np.inf, values)


def _reals(values: ArrayLike, name: str) -> np.ndarray:
    try:
        return as_float_array(values)
    except ValueError:
        raise InputError(f"{name} must hold real numbers in a regular shape, got {abbreviate(values)}.") from None


def _vector(values: ArrayLike, name: str) -> np.ndarray:
    array = _reals(values, name)
    if array.ndim != 1 or not len(array):
        raise InputError(f"{name} must be a list of at least one number, got shape {array.shape}.")
    return array


def _sample(values: ArrayLike, name: str) -> np.ndarray:
    return _worst_for_nan(_vector(values, name))


def _histories(histories: ArrayLike) -> np.ndarray:
    array = _reals(histories, "histories")
    if array.ndim != 2 or not array.size:
        raise InputError(
            f"histories must be (runs, generations), got shape {array.shape}; wrap a single run in a list."
        )
    return _worst_for_nan(array)


def _each_nfev(nfev: ArrayLike, best: np.ndarray) -> np.ndarray:
    """Those of each run (R, G)."""
    if np.ndim(nfev) == 2:
        if np.shape(nfev) != best.shape:
            raise InputError(f"nfev must have the shape of histories, {best.shape}, got {np.shape(nfev)}.")
        return np.stack([_nfev(row_nfev, best.shape[1]) for row_nfev in np.asarray(nfev)])
    return np.broadcast_to(_nfev(nfev, best.shape[1]), best.shape)


def _nfev(nfev: ArrayLike, generations: int) -> np.ndarray:
    spent = _vector(nfev, "nfev")
    if len(spent) != generations:
        raise InputError(f"nfev must have one entry per generation of histories, {generations}, got {len(spent)}.")
    if not (np.all(np.isfinite(spent)) and spent[0] >= 0 and np.all(np.diff(spent) >= 0)):
        raise InputError(
            f"nfev must count evaluations up to each generation and never decrease, got {abbreviate(nfev)}."
        )
    return spent


def _finite(value: float, name: str) -> float:
    out = check_number(value, name)
    if math.isinf(out):
        raise InputError(f"{name} must be finite, got {out}.")
    return out


# --- measures of risk -------------------------------------------------------------------------------------------------


NORMAL_QUANTILE = 1.959963984540054  # of 97.5 %


@dataclass(frozen=True)
class Measure:
    """How the values of the scenarios become one number, which is minimised.

    kind: "mean", "mean_std", "cvar", "chance" or "worst". level: k of mean_std, the probability of cvar and chance.
    """

    kind: str
    level: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.kind in ("mean", "worst") else f"{self.kind}({self.level:g})"

    def __call__(self, values: Array, weights: Array) -> Array:
        """Return the measure of values (s,) with these weights (s,), which add up to 1."""
        if self.kind == "worst":
            return jnp.max(jnp.where(weights > 0, values, -jnp.inf))
        mean = jnp.sum(weights * values)
        if self.kind == "mean":
            return mean
        if self.kind == "mean_std":
            variance = jnp.sum(weights * (values - mean) ** 2)
            return mean + self.level * jnp.sqrt(jnp.maximum(variance, jnp.finfo(values.dtype).tiny))
        order = jnp.argsort(-values)
        descending, shares = values[order], weights[order]
        before = jnp.cumsum(shares) - shares  # probability of what is worse
        tail = 1 - self.level
        if self.kind == "cvar":
            return jnp.sum(jnp.clip(tail - before, 0, shares) * descending) / tail
        # the least value that is exceeded with a probability of at most `tail`
        last = jnp.sum(before <= tail + 1e-9) - 1
        return descending[jnp.maximum(last, 0)]

    def estimate(self, values: np.ndarray) -> tuple[float, tuple[float, float]]:
        """Return the measure of independent samples (n,) and its 95 % interval; of the worst one only from below.

        By the variance of the influence function; for chance from ranks, which follow a binomial distribution.
        """
        n, ordered = len(values), np.sort(values)
        mean, std = float(values.mean()), float(values.std())
        if self.kind == "worst":
            return float(ordered[-1]), (float(ordered[-1]), math.inf)
        if self.kind == "chance":
            from scipy.stats import binom

            low, high = (int(rank) for rank in binom.ppf((0.025, 0.975), n, self.level))
            rank = min(n - 1, math.ceil(self.level * n - 1e-9) - 1)
            upper = float(ordered[high]) if high < n else math.inf
            return float(ordered[max(rank, 0)]), (float(ordered[max(low - 1, 0)]), upper)
        if self.kind == "mean":
            value, influence = mean, values - mean
        elif self.kind == "mean_std":
            value = mean + self.level * std
            influence = values - mean + self.level * ((values - mean) ** 2 - std**2) / (2 * max(std, 1e-300))
        else:
            quantile = float(ordered[min(n - 1, math.floor(self.level * n))])
            beyond = np.maximum(values - quantile, 0) / (1 - self.level)
            value = quantile + float(beyond.mean())
            influence = quantile + beyond - value
        half = NORMAL_QUANTILE * float(influence.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        return value, (value - half, value + half)


def mean_std(k: float) -> Measure:
    """Mean plus k standard deviations, for `gx.robust`: a design whose value varies little, too."""
    return Measure("mean_std", check_finite(k, "k"))


def cvar(level: float) -> Measure:
    """Conditional value at risk, for `gx.robust`: the mean of the worst share 1 - level of the outcomes.

    level: a probability, such as 0.9 for the worst tenth; 0 is the mean.
    """
    return Measure("cvar", _check_level(level, "cvar"))


def chance(level: float) -> Measure:
    """The value that is not exceeded with this probability, for `gx.robust`.

    As `ineq_measure`, constraints hold together with this probability; as measure it is also called value at risk.
    level: a probability, such as 0.95.
    """
    return Measure("chance", _check_level(level, "chance"))


def _check_level(level: float, name: str) -> float:
    number = check_finite(level, "level")
    if not 0 <= number < 1:
        raise InputError(f"gx.{name} takes a probability, at least 0 and below 1, such as 0.95; got {level!r}.")
    return number


def as_measure(value: object, name: str = "measure") -> Measure:
    """Return a measure from its name or itself."""
    if isinstance(value, Measure):
        return value
    if isinstance(value, str) and value in ("mean", "worst"):
        return Measure(value)
    raise InputError(
        f'{name} must be "mean", "worst", gx.mean_std(k), gx.cvar(level) or gx.chance(level); got {abbreviate(value)}.'
    )
