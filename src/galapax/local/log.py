"""The points evaluated so far with their values, which every member of the portfolio reads."""

from __future__ import annotations

import numpy as np

ORDINARY_EXPONENT = 160  # of two; values that begin beyond it, or below its reciprocal, are divided by their size
MAX_VALUE = 1e120  # of what is remembered then, so that squares of differences do not overflow
FAILURE_REACH = 4.0  # distances to the nearest failed point, within which points tell where evaluations fail
FAILURE_RIDGE, MAX_MARGIN_STEPS = 1e-3, 20  # of the half-space between failed and sound points
INSIDE = 0.01  # of the margin, by which a sound point lies within the half-space, at least
SAME_POINT = 1e-9  # share of the box within which two points are one
CONVEXITY_TOLERANCE = 1e-6  # errors of slopes by differences, as a share of the range of the values


class SampleLog:
    """Points of the unit box in the order of their evaluation, with one objective and any number of constraints.

    A failed evaluation has objective NaN.
    """

    def __init__(self, dim: int, eq_tolerance: float = 0.0) -> None:
        self.dim, self.n = dim, 0
        self.eq_tolerance: float | np.ndarray = eq_tolerance  # one, or one for each equality
        self._x = np.empty((64, dim))
        self._values: np.ndarray | None = None
        self.n_ineq = self.n_eq = 0
        self._units: np.ndarray | None = None  # (1 + p + q,) powers of two by which values are divided
        self.tangents: list[tuple[int, np.ndarray]] = []  # points with their slopes (1 + p + q, d)

    def append(self, x: np.ndarray, objective: np.ndarray, ineq: np.ndarray, eq: np.ndarray) -> None:
        """Add k points (k, d) with their objective (k,), inequalities (k, p) and equalities (k, q)."""
        rows = np.concatenate([objective[:, None], ineq, eq], axis=1).astype(float)
        rows[~np.isfinite(rows).all(axis=1)] = np.nan
        if self._values is None:
            self.n_ineq, self.n_eq = ineq.shape[1], eq.shape[1]
            self._values = np.empty((len(self._x), rows.shape[1]))
        while self.n + len(x) > len(self._x):
            self._x = np.concatenate([self._x, np.empty_like(self._x)])
            self._values = np.concatenate([self._values, np.empty_like(self._values)])
        if self._units is None and np.isfinite(rows).any():
            self._units = choose_units(rows[np.isfinite(rows).all(axis=1)])
        self._x[self.n : self.n + len(x)] = x
        units = 1.0 if self._units is None else self._units
        self._values[self.n : self.n + len(x)] = np.clip(rows / units, -MAX_VALUE, MAX_VALUE)
        self.n += len(x)

    def find(self, x: np.ndarray) -> int | None:
        """The first row of a point (d,), if it was evaluated."""
        rows = np.flatnonzero((np.abs(self.x - x) <= SAME_POINT).all(axis=1))
        return int(rows[0]) if len(rows) else None

    @property
    def n_sound(self) -> int:
        """How many points have a value."""
        return int(np.isfinite(self.objective).sum()) if self.n else 0

    @property
    def failed(self) -> np.ndarray:
        """Which points failed (n,)."""
        return np.isnan(self.objective)

    def is_near_failure(self, x: np.ndarray) -> bool:
        """Whether the nearest evaluated point failed."""
        return self.n > 0 and bool(self.failed[int(np.argmin(np.sum((self.x - x) ** 2, axis=1)))])

    def separate_failures(self, x: np.ndarray) -> tuple[float, np.ndarray] | None:
        """A half-space c + g.s <= 0 of displacements s from a sound point, in which evaluations may succeed; None if no
        point failed.

        It separates failed from sound points around x with the largest margin, by squared hinge losses (Cortes & Vapnik
        1995, doi:10.1007/BF00994018), both kinds with the same weight.
        """
        failed = self.failed
        if not failed.any():
            return None
        s = self.x - x
        distance = np.linalg.norm(s, axis=1)
        unit = max(float(distance[failed].min()), SAME_POINT)
        near = distance <= FAILURE_REACH * unit
        label = np.where(failed[near], 1.0, -1.0)
        weight = np.where(label > 0, 1.0 / np.sum(label > 0), 1.0 / np.maximum(np.sum(label < 0), 1))
        features = np.concatenate([np.ones((len(label), 1)), s[near] / unit], axis=1)
        ridge = FAILURE_RIDGE * np.diag(np.r_[0.0, np.ones(self.dim)])
        w, inside_margin = np.zeros(1 + self.dim), np.ones(len(label), bool)
        for _ in range(MAX_MARGIN_STEPS):
            rows = features[inside_margin] * weight[inside_margin, None]
            w = np.linalg.lstsq(rows.T @ features[inside_margin] + ridge, rows.T @ label[inside_margin], rcond=None)[0]
            previous, inside_margin = inside_margin, label * (features @ w) < 1.0
            if np.array_equal(previous, inside_margin) or not inside_margin.any():
                break
        return min(float(w[0]), -INSIDE), w[1:] / unit

    @property
    def x(self) -> np.ndarray:
        return self._x[: self.n]

    @property
    def values(self) -> np.ndarray:
        """All numbers of all points (n, 1 + p + q): the objective first, then inequalities, then equalities."""
        assert self._values is not None
        return self._values[: self.n]

    @property
    def objective(self) -> np.ndarray:
        return self.values[:, 0]

    def range_of_objective(self) -> float:
        return float(np.nanmax(self.objective) - np.nanmin(self.objective))

    @property
    def is_constrained(self) -> bool:
        return self.n_ineq + self.n_eq > 0

    def constraint_scale(self) -> np.ndarray:
        """A typical size of each constraint (p + q,), from the first points that have values: later ones are near 0."""
        sample = self.values[np.flatnonzero(np.isfinite(self.values[:, 0]))[: self.dim + 1], 1:]
        if not len(sample):
            return np.ones(self.n_ineq + self.n_eq)
        scale = np.maximum(np.median(np.abs(sample), axis=0), np.ptp(sample, axis=0))
        return np.where(scale > 0, scale, 1.0)

    def violation(self, values: np.ndarray | None = None) -> np.ndarray:
        """The largest violation of a constraint (n,), in units of the constraint's scale; NaN where a point failed."""
        values = self.values if values is None else values
        if not self.is_constrained:
            return np.where(np.isfinite(values[:, 0]), 0.0, np.nan)
        units = np.ones(self.n_eq) if self._units is None else self._units[1 + self.n_ineq :]
        excess = np.concatenate(
            [values[:, 1 : 1 + self.n_ineq], np.abs(values[:, 1 + self.n_ineq :]) - self.eq_tolerance / units], axis=1
        )
        return np.max(np.maximum(excess, 0.0) / self.constraint_scale(), axis=1)

    def order(self) -> np.ndarray:
        """Rows from the best point to the worst: feasible ones by objective, others by violation, failed ones last."""
        violation = self.violation()
        failed = np.isnan(violation)
        return np.lexsort((np.where(failed, 0.0, self.objective), np.where(failed, np.inf, violation)))

    def best(self) -> int:
        return int(self.order()[0])

    def looks_convex(self) -> bool:
        """Whether no point lies below a tangent plane of the objective or of a constraint; equalities must be linear.

        Where that holds, an end of a descent that others reach too is the minimum of all that was seen.
        """
        values = self.values
        sound = ~np.isnan(values[:, 0])
        if not self.tangents or not sound.all():
            return False
        tolerance = CONVEXITY_TOLERANCE * np.ptp(values, axis=0)
        for row, slopes in self.tangents:
            excess = values - values[row] - (self.x - self.x[row]) @ slopes.T
            if (excess < -tolerance).any() or (excess > tolerance)[:, 1 + self.n_ineq :].any():
                return False
        return True


def choose_units(rows: np.ndarray) -> np.ndarray:
    """Powers of two (m,) near the sizes of values (n, m) whose squares would overflow or vanish, 1 for others."""
    exponents = np.frexp(np.max(np.abs(rows), axis=0))[1]
    return np.where(np.abs(exponents) > ORDINARY_EXPONENT, np.ldexp(1.0, exponents - 1), 1.0)
