"""Measures of risk: one number for the values that a solution has in many scenarios, and its confidence interval.

Conditional value at risk after Rockafellar & Uryasev (2000), Journal of Risk 2(3):21-41, doi:10.21314/JOR.2000.038.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax.core.checks import abbreviate, check_finite
from galapax.core.errors import InputError

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
