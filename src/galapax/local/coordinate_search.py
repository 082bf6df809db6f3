"""Global search of one variable after the other, for objectives that are sums of functions of single variables.

Whether an objective is such a sum shows in four values: f(a) + f(b) = f(a_S, b_T) + f(b_S, a_T) for every split of the
variables into S and T. Splits by the bits of the variables' numbers part every pair once, so 2 log2(d) evaluations
decide. Each variable then has a Gaussian process with a quadratic trend; Jones, Schonlau & Welch (1998), Journal of
Global Optimization 13:455-492, doi:10.1023/A:1008306431147, have the expected improvement.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from galapax.local.log import SampleLog

ADDITIVITY_TOLERANCE = 1e-10  # of the sums of four values, relative to the largest of them
MIN_EXCHANGE = 1e-4  # difference of the two points in every variable, share of the box
FIRST_POINTS = 6  # of a variable before there is a model of it
LENGTH_SCALES = np.geomspace(0.01, 0.5, 10)  # that a model chooses from by its likelihood, shares of the box
NUGGET = 1e-8
CLIPPED_QUANTILE = 0.8  # of the values, above which a model need not tell them apart
MIN_DISTANCE = 2e-3  # of a model's points and candidates, share of the box; nearer ones are for parabolas
CANDIDATES_PER_GAP = 12
FIRST_REFINEMENT = 32  # points of a variable at which its minimum is refined
REFINEMENT_PERIOD = 20  # points from then on to the next time
MAX_REFINEMENTS = 8  # parabolas in a row
REFINED = 1e-16  # predicted gain of a parabola, relative to the range of the values, that ends a refinement

Moves = Generator[np.ndarray, np.ndarray, None]


def is_additive(log: SampleLog) -> Generator[np.ndarray, np.ndarray, bool]:
    """Whether the objective is a sum over the variables, by exchanging variables of the best point and another."""
    first = log.best()
    apart = np.where(np.isnan(log.objective), 0.0, np.min(np.abs(log.x - log.x[first]), axis=1))
    second = int(np.argmax(apart))
    if apart[second] < MIN_EXCHANGE:
        return False
    index = np.arange(log.dim)
    for bit in range((log.dim - 1).bit_length()):
        is_exchanged = (index >> bit) & 1 == 1
        a, b = log.x[first], log.x[second]
        rows = yield np.array([np.where(is_exchanged, b, a), np.where(is_exchanged, a, b)])
        values = log.objective[[first, second, *rows]]
        if not abs(values[0] + values[1] - values[2] - values[3]) <= ADDITIVITY_TOLERANCE * np.abs(values).max():
            return False
    return True


class CoordinateModel:
    """What is known of the function of one variable."""

    def __init__(self, start: float) -> None:
        self.t, self.y = [start], [0.0]
        self.failures: set[float] = set()  # those of t whose evaluation failed; they have the worst of the other values
        self.next_refinement, self.refinements = FIRST_REFINEMENT, 0

    @property
    def best(self) -> float:
        return self.t[int(np.argmin(self.y))]

    def add(self, t: float, change: float) -> None:
        """Add a point and how the objective changed there from the best one; NaN where the evaluation failed."""
        if np.isnan(change):
            self.failures.add(t)
        self.t.append(t)
        self.y.append(max(self.y) if np.isnan(change) else min(self.y) + change)

    def propose(self) -> float:
        """Where to evaluate next."""
        if len(self.t) >= self.next_refinement and self.refinements < MAX_REFINEMENTS:
            t = self.refine_minimum()
            if t is not None:
                self.refinements += 1
                return t
            self.refinements = MAX_REFINEMENTS
        if self.refinements >= MAX_REFINEMENTS:
            self.next_refinement, self.refinements = len(self.t) + REFINEMENT_PERIOD, 0
        if len(self.t) <= FIRST_POINTS:
            return self.split_largest_gap()
        return self.maximize_improvement()

    def split_largest_gap(self) -> float:
        """The middle of the largest gap, or a side of the box that is as far from the next point."""
        ends = np.sort(np.r_[-min(self.t), self.t, 2.0 - max(self.t)])  # the first and the last point mirrored
        gap = int(np.argmax(np.diff(ends)))
        return float(np.clip(0.5 * (ends[gap] + ends[gap + 1]), 0.0, 1.0))

    def refine_minimum(self) -> float | None:
        """The minimiser of a parabola through the best point and its neighbours, None where it promises nothing.

        Of a neighbour that failed, the middle between: the minimum may lie where evaluations begin to fail.
        """
        order = np.argsort(self.t)
        t, y = np.array(self.t)[order], np.array(self.y)[order]
        k = int(np.argmin(y))
        if not 0 < k < len(t) - 1:
            return None
        left, right = t[k] - t[k - 1], t[k + 1] - t[k]
        if t[k - 1] in self.failures or t[k + 1] in self.failures:
            return float(0.5 * (t[k] + (t[k + 1] if t[k + 1] in self.failures else t[k - 1])))
        down, up = (y[k] - y[k - 1]) / left, (y[k + 1] - y[k]) / right
        curvature = (up - down) / (left + right)
        if not curvature > 0:
            return None
        slope = (down * right + up * left) / (left + right)
        step = -0.5 * slope / curvature
        gain = 0.25 * slope**2 / curvature
        if gain <= REFINED * np.ptp(y):
            return None
        step = float(np.clip(step, -0.9 * left, 0.9 * right))
        least = 0.02 * max(left, right) if max(left, right) > 20 * min(left, right) else 0.0
        if abs(step) < least:  # bring the far neighbour nearer
            step = least if right > left else -least
        return float(t[k] + step)

    def maximize_improvement(self) -> float:
        """The point of the greatest expected improvement under a Gaussian process."""
        order = np.argsort(self.y, kind="stable")
        t, y = np.array(self.t)[order], np.array(self.y)[order]
        chosen: list[int] = []
        for k in range(len(t)):
            if all(abs(t[k] - t[j]) > MIN_DISTANCE for j in chosen):
                chosen.append(k)
        t, y = t[chosen], y[chosen]
        y = np.minimum(y, np.quantile(y, CLIPPED_QUANTILE))
        scale = float(np.std(y)) or 1.0
        y = (y - y.mean()) / scale
        basis = np.column_stack([np.ones_like(t), t - 0.5, (t - 0.5) ** 2])
        models = [fit_process(t, y, basis, length) for length in LENGTH_SCALES]
        _, length, factor, weights, trend = max(models, key=lambda model: model[0])
        ends = np.unique(np.r_[0.0, t, 1.0])
        share = (np.arange(CANDIDATES_PER_GAP) + 0.5) / CANDIDATES_PER_GAP
        z = np.r_[0.0, 1.0, (ends[:-1, None] + np.diff(ends)[:, None] * share).ravel()]
        z = z[np.abs(z[:, None] - np.array(self.t)[None, :]).min(axis=1) >= MIN_DISTANCE]
        if not len(z):  # points lie everywhere
            return self.split_largest_gap()
        cross = matern(z[:, None] - t[None, :], length)
        mean = np.column_stack([np.ones_like(z), z - 0.5, (z - 0.5) ** 2]) @ trend + cross @ weights
        residual = y - basis @ trend
        amplitude = max(float(residual @ weights) / len(t), 1e-12)
        variance = amplitude * np.maximum(1.0 - np.sum(cross * cho_solve(factor, cross.T).T, axis=1), 1e-12)
        deviation = np.sqrt(variance)
        u = (y.min() - mean) / deviation
        return float(z[int(np.argmax(np.log(deviation) + log_improvement(u)))])


def log_improvement(u: np.ndarray) -> np.ndarray:
    """Logarithm of u Phi(u) + phi(u), the expected improvement of a standard normal number by more than -u."""
    tail = -0.5 * u**2 - np.log(np.maximum(u**2, 1.0)) - 0.5 * np.log(2 * np.pi)
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log(u * ndtr(u) + np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi))
    return np.where(u > -10.0, near, tail)


def matern(distance: np.ndarray, length: float) -> np.ndarray:
    """The Matern kernel with smoothness 5/2."""
    r = np.sqrt(5.0) * np.abs(distance) / length
    return (1.0 + r + r**2 / 3.0) * np.exp(-r)


def fit_process(
    t: np.ndarray, y: np.ndarray, basis: np.ndarray, length: float
) -> tuple[float, float, tuple[np.ndarray, bool], np.ndarray, np.ndarray]:
    """Log likelihood, length scale, Cholesky factor, weights of the kernel and of the trend."""
    factor = cho_factor(matern(t[:, None] - t[None, :], length) + NUGGET * np.eye(len(t)), lower=True)
    solved = cho_solve(factor, basis)
    trend = np.linalg.lstsq(basis.T @ solved, solved.T @ y, rcond=None)[0]
    residual = y - basis @ trend
    weights = cho_solve(factor, residual)
    amplitude = max(float(residual @ weights) / len(t), 1e-300)
    likelihood = -0.5 * len(t) * np.log(amplitude) - float(np.sum(np.log(np.diag(factor[0]))))
    return likelihood, length, factor, weights, trend


class CoordinateSearch:
    """A search around an evaluated point.

    `run` yields points (d + 1, d), the first one with the best of all variables.
    """

    def __init__(self, log: SampleLog, row: int) -> None:
        self.log, self.row = log, row
        self.variables = [CoordinateModel(float(t)) for t in log.x[row]]

    def run(self) -> Moves:
        """Go on until the point with the best of all variables fails."""
        log, d = self.log, self.log.dim
        while True:
            context = np.array([variable.best for variable in self.variables])
            proposals = np.array([variable.propose() for variable in self.variables])
            points = np.repeat(context[None], d + 1, axis=0)
            points[np.arange(1, d + 1), np.arange(d)] = proposals
            is_new = not np.array_equal(context, log.x[self.row])
            rows = yield points if is_new else points[1:]
            if is_new:
                self.row, rows = int(rows[0]), rows[1:]
            value = log.objective[self.row]
            if np.isnan(value):
                return
            for variable, row, t in zip(self.variables, rows, proposals, strict=True):
                variable.add(float(t), float(log.objective[row] - value))
