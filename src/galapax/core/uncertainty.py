"""Uncertain quantities: distributions and scenarios, and drawing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Normal:
    """Independent normal numbers, see `normal`."""

    mean: np.ndarray  # (k,)
    std: np.ndarray  # (k,)

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Return the values (n, k) below which these shares (n, k) of the probability lie."""
        from scipy.special import ndtri

        return self.mean + self.std * np.asarray(ndtri(shares))


@dataclass(frozen=True, eq=False)
class Uniform:
    """Independent numbers, uniform between bounds, see `uniform`."""

    lower: np.ndarray  # (k,)
    upper: np.ndarray  # (k,)

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Return the values (n, k) below which these shares (n, k) of the probability lie."""
        return self.lower + (self.upper - self.lower) * shares


Distribution = Normal | Uniform


@dataclass(frozen=True, eq=False)
class Scenarios:
    """All values that uncertain quantities can have, and their weights, see `scenarios`."""

    points: np.ndarray  # (s, k)
    weights: np.ndarray  # (s,), which add up to 1


def normal(mean: ArrayLike, std: ArrayLike) -> Normal:
    """An uncertain number that is normally distributed, or several independent ones, for `gx.robust`.

    mean, std: numbers, or arrays (k,).
    """
    centre, spread = _as_pair(mean, std, "normal(mean, std)")
    if not (spread > 0).all():
        raise InputError(f"the std of gx.normal must be above 0, got {abbreviate(std)}; a quantity that is known is no "
                         "uncertain one.")  # fmt: skip
    return Normal(centre, spread)


def uniform(lower: ArrayLike, upper: ArrayLike) -> Uniform:
    """An uncertain number that lies anywhere between two bounds, or several independent ones, for `gx.robust`.

    lower, upper: numbers, or arrays (k,).
    """
    low, high = _as_pair(lower, upper, "uniform(lower, upper)")
    if not (low < high).all():
        raise InputError(f"gx.uniform needs lower < upper, got {abbreviate(lower)} and {abbreviate(upper)}.")
    return Uniform(low, high)


def scenarios(points: ArrayLike, weights: ArrayLike | None = None) -> Scenarios:
    """All values that uncertain quantities can have, for `gx.robust`: a finite set, or samples of what was measured.

    points: (s, k), one scenario per row; (s,) for a single quantity. weights: (s,), how likely each is, in any unit; by
        default all alike.
    """
    rows = _as_numbers(points, "scenarios")
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or not rows.size:
        raise InputError(f"scenarios must be an array (s, k), one scenario per row; got shape {rows.shape}.")
    shares = np.ones(len(rows)) if weights is None else _as_numbers(weights, "weights")
    if shares.shape != (len(rows),) or (shares < 0).any() or not shares.sum() > 0:
        raise InputError(
            f"weights must be {len(rows)} numbers, one for each scenario, at least 0 and not all 0; got "
            f"{abbreviate(weights)}."
        )
    return Scenarios(rows, shares / shares.sum())


@dataclass(frozen=True, eq=False)
class Uncertain:
    """The uncertain quantities of a problem: what a function gets as its second argument.

    names: of the distributions, if it gets them in a dict; each is then a number or an array, as it was declared.
    """

    parts: tuple[Distribution, ...]
    fixed: Scenarios | None = None  # in place of distributions
    names: tuple[str, ...] | None = None

    @property
    def sizes(self) -> list[int]:
        return [len(part.mean if isinstance(part, Normal) else part.lower) for part in self.parts]

    @property
    def is_box(self) -> bool:
        """Whether all are uniform, so that their range is a box."""
        return bool(self.parts) and all(isinstance(part, Uniform) for part in self.parts)

    def draw(self, count: int, rng: np.random.Generator, stratified: bool = False) -> Scenarios:
        """Draw scenarios; those that are fixed are all of them.

        stratified: one in each of `count` equally likely ranges of every number (Latin hypercube sampling), which makes
        means more precise; else independent ones, whose means have a confidence interval.
        """
        if self.fixed is not None:
            return self.fixed
        shares = rng.random((count, sum(self.sizes)))
        if stratified:
            ranks = np.argsort(rng.random(shares.shape), axis=0)
            shares = (ranks + shares) / count
        shares = np.clip(shares, 1e-12, 1 - 1e-12)
        columns = np.split(shares, np.cumsum(self.sizes)[:-1], axis=1)
        points = np.concatenate([p.quantiles(c) for p, c in zip(self.parts, columns, strict=True)], axis=1)
        return Scenarios(points, np.full(count, 1 / count))

    def arguments(self, y: np.ndarray) -> object:
        """Return what the function gets for a scenario y (k,): y itself, or a dict by name."""
        if self.names is None:
            return y
        ends = np.cumsum(self.sizes)
        values = [y[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]
        return {name: v[0] if len(v) == 1 else v for name, v in zip(self.names, values, strict=True)}


def as_uncertain(value: object) -> Uncertain:
    """Return uncertain quantities from a distribution, a list or a dict of them, scenarios, or an array of samples."""
    if isinstance(value, Scenarios):
        return Uncertain((), value)
    if isinstance(value, Normal | Uniform):
        return Uncertain((value,))
    is_mapping = isinstance(value, Mapping)
    parts = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(parts, Sequence) and len(parts) and all(isinstance(part, Normal | Uniform) for part in parts):
        names = tuple(map(str, value)) if isinstance(value, Mapping) else None
        return Uncertain(tuple(parts), None, names)
    if not is_mapping and isinstance(value, np.ndarray | Sequence) and not isinstance(value, str):
        return Uncertain((), scenarios(value))
    raise InputError(
        "uncertain must be gx.normal(mean, std), gx.uniform(lower, upper), a list or a dict of these, "
        f"gx.scenarios(points, weights), or an array of samples, one per row; got {abbreviate(value)}."
    )


def _as_numbers(value: ArrayLike, name: str) -> np.ndarray:
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} must be finite numbers, got {abbreviate(value)}.")
    return numbers


def _as_pair(first: ArrayLike, second: ArrayLike, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays (k,) of one length."""
    one, other = (np.atleast_1d(_as_numbers(value, f"the arguments of gx.{what}")) for value in (first, second))
    if one.ndim > 1 or other.ndim > 1 or (len(one) != len(other) and 1 not in (len(one), len(other))):
        raise InputError(f"gx.{what} takes numbers, or arrays of one length; got shapes {one.shape} and {other.shape}.")
    a, b = np.broadcast_arrays(one, other)
    return a.copy(), b.copy()
