"""A descent for integers, choices and real numbers together: models where numbers have an order, moves to neighbours.

Quadratic models of all points near the best one, as in `trust_region`, are minimised over the grid of the discrete
variables. Where a model finds nothing better, the neighbours are tried that it likes best: one variable changed at a
time, as in the poll step of a mesh adaptive direct search (Audet & Dennis 2006, doi:10.1137/040603371), with the real
variables moved along as the model says. Real variables alone are refined by SQP.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from galapax.local.log import SAME_POINT, SampleLog
from galapax.local.sqp_by_differences import POLISH_RADIUS, SQPByDifferences
from galapax.local.trust_region import MAX_MODEL_POINTS, Quadratic, fit_minimum_change

MODEL_RADIUS = 0.5  # share of the box around the best point in which a model is minimised
MAX_FAILED_STEPS = 3  # of models in a row, before neighbours are tried
REAL_STEPS = 2.0 ** -np.arange(1, 12)  # shares of the radius by which a real variable is moved on a model
DISTANCE_RIDGE = 1e-6
MIN_GAIN = 0.01  # share of the violation by which the SQP steps must lessen it, to go on from there
MIN_POLISH_GAIN = 1e-6  # the same of the objective, where the point is feasible
MAX_PASSES = 60  # improvements of one minimisation of a model
N_STARTS = 4  # random beginnings of a minimisation of a model, besides the best point

Moves = Generator[np.ndarray, np.ndarray, None]


class Grid(NamedTuple):
    """The discrete variables of the unit box: level k of n is at (k + 1/2) / n."""

    levels: np.ndarray  # (d,) int, 0 for a real variable
    unordered: np.ndarray  # (d,) bool

    @property
    def reals(self) -> np.ndarray:
        return np.flatnonzero(self.levels == 0)

    @property
    def size(self) -> float:
        """The number of points; inf with a real variable."""
        return float(np.prod(self.levels.astype(float))) if (self.levels > 0).all() else np.inf

    def snap(self, x: np.ndarray) -> np.ndarray:
        """The nearest points (n, d) of the grid."""
        n = np.maximum(self.levels, 1)
        snapped = (np.clip(np.floor(x * n), 0, n - 1) + 0.5) / n
        return np.where(self.levels > 0, snapped, np.clip(x, 0.0, 1.0))

    def values(self, variable: int) -> np.ndarray:
        n = int(self.levels[variable])
        return (np.arange(n) + 0.5) / n


class SingleMoves(NamedTuple):
    """Moves of one variable at a time near a point, on a model."""

    center: np.ndarray  # (d,)
    reals: np.ndarray  # (r,) the real variables
    variables: np.ndarray  # (n,)
    values: np.ndarray  # (n,) NaN for those of a real variable, which depend on where it is

    def apply(self, x: np.ndarray, radius: float, model: Quadratic) -> np.ndarray:
        """Points (n, d) that differ from x in one variable; a real one goes to its minimum on the model, too."""
        values, reals = self.values.copy(), self.reals
        slope = model.gradient[0, reals] + model.hessian[0, reals] @ (x - self.center)
        curvature = model.hessian[0, reals, reals]
        bent = curvature > 0
        newton = x[reals] - np.where(bent, slope, 0.0) / np.where(bent, curvature, 1.0)
        steps = radius * np.concatenate([REAL_STEPS, -REAL_STEPS])
        of_reals = np.concatenate([newton[:, None], x[reals][:, None] + steps], axis=1)
        low, high = np.maximum(0.0, self.center[reals] - radius), np.minimum(1.0, self.center[reals] + radius)
        values[np.isnan(values)] = np.clip(of_reals, low[:, None], high[:, None]).ravel()
        points = np.repeat(x[None], len(values), axis=0)
        points[np.arange(len(values)), self.variables] = values
        return points


class MixedDescent:
    """One descent from an evaluated point to one that no neighbour betters.

    `run` yields points (k, d) and receives their rows in the log. n_parallel: evaluations that can be had at a time.
    """

    def __init__(self, log: SampleLog, row: int, grid: Grid, random: np.random.Generator, n_parallel: int = 1) -> None:
        self.log, self.row, self.grid, self.random, self.n_parallel = log, row, grid, random, n_parallel
        self.radius = MODEL_RADIUS
        self.hessian: np.ndarray | None = None
        self.converged = False

    def rank(self, row: int) -> tuple[float, float]:
        violation = float(self.log.violation(self.log.values[row][None])[0])
        return (violation, float(self.log.objective[row])) if np.isfinite(violation) else (np.inf, np.inf)

    def take(self, rows: np.ndarray) -> bool:
        """Go on from the best of these rows, if it is better."""
        best = min((int(row) for row in rows), key=self.rank)
        if self.rank(best) < self.rank(self.row):
            self.row = best
            return True
        return False

    def run(self) -> Moves:
        yield from self.sweep()
        while True:
            improved = yield from self.follow_models()
            if len(self.grid.reals) and not improved:
                improved = yield from self.polish_reals()
            if not improved:
                improved = yield from self.try_neighbours()
            if not improved:
                self.converged = True
                return

    def sweep(self) -> Moves:
        """Move one variable after the other, by parabolas through three of its values."""
        for variable in self.random.permutation(self.log.dim):
            x, n = self.log.x[self.row], int(self.grid.levels[variable])
            if n == 0:
                steps = [0.15, -0.15]
            elif self.grid.unordered[variable]:
                steps = []
            else:
                steps = [max(1, round(n / 4)) / n, -max(1, round(n / 4)) / n]
            tried, points = [(x[variable], self.row)], []
            for step in steps if n != 2 else [0.5 if x[variable] < 0.5 else -0.5]:
                if not 0.0 <= x[variable] + step <= 1.0:
                    step = 2.0 * step if 0.0 <= x[variable] - 2.0 * step <= 1.0 else step
                    step = -step if not 0.0 <= x[variable] + step <= 1.0 else step
                if not 0.0 <= x[variable] + step <= 1.0:
                    continue
                point = x.copy()
                point[variable] += step
                if self.is_new(point := self.grid.snap(point)):
                    points.append(point)
            if points:
                rows = yield np.array(unique_points(points))
                tried += [(float(self.log.x[row, variable]), int(row)) for row in rows]
            minimum = self.fit_parabola(tried)
            if minimum is not None:
                point = x.copy()
                point[variable] = minimum
                if self.is_new(point := self.grid.snap(point)):
                    rows = yield point[None]
                    tried.append((point[variable], int(rows[0])))
            self.take(np.array([row for _, row in tried]))

    def fit_parabola(self, tried: list[tuple[float, int]]) -> float | None:
        """The minimum of a parabola through the objective at three places."""
        if len(tried) != 3 or self.log.is_constrained:
            return None
        places = np.array([place for place, _ in tried])
        values = self.log.objective[[row for _, row in tried]]
        if not np.isfinite(values).all():
            return None
        a, b, _ = np.polyfit(places, values, 2)
        return float(np.clip(-b / (2 * a), 0.0, 1.0)) if a > 0 else None

    def is_new(self, x: np.ndarray) -> bool:
        return self.log.find(x) is None

    def fit(self) -> Quadratic:
        """The model of the points around the best one."""
        log, d = self.log, self.log.dim
        s = log.x - log.x[self.row]
        distance = np.linalg.norm(s, axis=1)
        distance[np.isnan(log.objective)] = np.inf
        has_same_choices = (np.abs(s[:, self.grid.unordered]) <= SAME_POINT).all(axis=1)
        if np.sum(has_same_choices & np.isfinite(distance)) >= d + 2:  # a quadratic does not know what others mean
            distance[~has_same_choices] = np.inf
        count = min((d + 1) * (d + 2) // 2 + d, MAX_MODEL_POINTS, int(np.isfinite(distance).sum()))
        chosen = np.argsort(distance, kind="stable")[:count]
        scale = max(float(np.median(distance[chosen])), 1e-6)
        if self.hessian is None:
            self.hessian = np.zeros((log.values.shape[1], d, d))
        ridge = DISTANCE_RIDGE * (distance[chosen] / scale) ** 4
        model = fit_minimum_change(s[chosen], log.values[chosen], self.hessian, scale, ridge)
        self.hessian = model.hessian
        return Quadratic(log.values[self.row], model.gradient, model.hessian)

    def merit(self, model: Quadratic, x: np.ndarray) -> np.ndarray:
        """What the model says of points (n, d): the objective, and violations that weigh more than any objective."""
        values = model(x - self.log.x[self.row])
        if not self.log.is_constrained:
            return values[:, 0]
        finite = self.log.objective[np.isfinite(self.log.objective)]
        weight = 10.0 * float(np.subtract(*np.quantile(finite, (0.75, 0.25)))) + 1e-300
        return values[:, 0] + weight * self.log.violation(values)

    def minimize_model(self, model: Quadratic, start: np.ndarray) -> tuple[float, np.ndarray]:
        """The best point of a local search on the model from one of the grid: one or two variables at a time."""
        x, value = start, float(self.merit(model, start[None])[0])
        moves = self.list_moves()
        for _ in range(MAX_PASSES):
            for of_pairs in (False, True):  # of which there are many
                points = self.pairs(x) if of_pairs else moves.apply(x, self.radius, model)
                values = self.merit(model, points) if len(points) else np.array([np.inf])
                best = int(np.argmin(values))
                improves = values[best] < value - 1e-12 * abs(value)
                if improves:
                    x, value = points[best], float(values[best])
                    break
            if not improves:
                break
        return value, x

    def list_moves(self) -> SingleMoves:
        """The moves of one variable that stay within the radius of the best point."""
        center, variables, values = self.log.x[self.row], [], []
        for i in range(self.log.dim):
            if self.grid.levels[i]:
                reachable = self.grid.values(i)
                if not self.grid.unordered[i]:
                    reach = max(self.radius, 1.01 / self.grid.levels[i])
                    reachable = reachable[np.abs(reachable - center[i]) <= reach]
            else:
                reachable = np.full(1 + 2 * len(REAL_STEPS), np.nan)
            variables.append(np.full(len(reachable), i))
            values.append(reachable)
        return SingleMoves(center, self.grid.reals, np.concatenate(variables), np.concatenate(values))

    def pairs(self, x: np.ndarray) -> np.ndarray:
        """Points (n, d) with two ordered variables of x moved by one level each."""
        points = x + self.pair_steps
        return points[((points > 0) & (points < 1) | (self.pair_steps == 0)).all(axis=1)]

    @cached_property
    def pair_steps(self) -> np.ndarray:
        """Steps (n, d) of two ordered variables by one level each."""
        movable = np.flatnonzero((self.grid.levels > 1) & ~self.grid.unordered)
        a, b = (index.ravel() for index in np.triu_indices(len(movable), 1))
        steps = np.zeros((4, len(a), self.log.dim))
        for step, signs in zip(steps, ((1, 1), (1, -1), (-1, 1), (-1, -1)), strict=True):
            for index, sign in ((movable[a], signs[0]), (movable[b], signs[1])):
                step[np.arange(len(a)), index] = sign / self.grid.levels[index]
        return steps.reshape(-1, self.log.dim)

    def follow_models(self) -> Generator[np.ndarray, np.ndarray, bool]:
        """Evaluate minimisers of models until some in a row were no better."""
        has_improved, n_failed = False, 0
        self.radius = max(self.radius, 0.5 / max(1, int(self.grid.levels.max(initial=1))))
        while n_failed < MAX_FAILED_STEPS:
            model = self.fit()
            center = self.log.x[self.row]
            starts = [center]
            for _ in range(N_STARTS):
                near = center + self.radius * self.random.uniform(-1, 1, self.log.dim)
                starts.append(self.grid.snap(np.clip(near, 0.0, 1.0)))
            minimisers = sorted((self.minimize_model(model, start) for start in starts), key=lambda pair: pair[0])
            points = unique_points([x for value, x in minimisers if self.is_new(x)])[: self.n_parallel]
            if not points:
                self.radius *= 0.5
                n_failed += 1
                continue
            rows = yield np.array(points)
            if self.take(rows):
                has_improved, n_failed = True, 0
                self.radius = min(2.0 * self.radius, 1.0)
            else:
                n_failed += 1
                self.radius = max(0.5 * self.radius, 1e-8)
        return has_improved

    def polish_reals(self) -> Generator[np.ndarray, np.ndarray, bool]:
        """Refine the real variables by SQP, with the others fixed."""
        log, reals, x = self.log, self.grid.reals, self.log.x[self.row].copy()
        before = self.rank(self.row)
        sub, rows_of = SampleLog(len(reals)), [self.row]
        sub.eq_tolerance = log.eq_tolerance
        append_values(sub, x[None, reals], log.values[[self.row]], log.n_ineq)
        search = SQPByDifferences(sub, 0, POLISH_RADIUS)
        moves = search.run()
        try:
            points = next(moves)
            while True:
                full = np.repeat(x[None], len(points), axis=0)
                full[:, reals] = points
                rows = yield full
                rows_of += list(rows)
                append_values(sub, points, log.values[rows], log.n_ineq)
                points = moves.send(np.arange(sub.n - len(points), sub.n))
        except StopIteration:
            pass
        self.take(np.array(rows_of))
        after = self.rank(self.row)
        if before[0] > 0:
            return after[0] < (1.0 - MIN_GAIN) * before[0]
        return after[1] < before[1] - MIN_POLISH_GAIN * max(MIN_POLISH_GAIN, abs(before[1]))

    def try_neighbours(self) -> Generator[np.ndarray, np.ndarray, bool]:
        """Evaluate the neighbours of the best point, those first that the model likes; stop at the first better one."""
        model, x = self.fit(), self.log.x[self.row].copy()
        candidates = []
        for i in np.flatnonzero(self.grid.levels > 0).tolist():
            values = self.grid.values(i)
            if not self.grid.unordered[i]:
                values = values[np.abs(values - x[i]) <= 1.01 / self.grid.levels[i]]
            for value in values[np.abs(values - x[i]) > SAME_POINT]:
                point = x.copy()
                point[i] = value
                candidates.append(self.adapt_reals(model, point))
        candidates.sort(key=lambda point: float(self.merit(model, point[None])[0]))
        points = unique_points([point for point in candidates if self.is_new(point)])
        for first in range(0, len(points), self.n_parallel):
            rows = yield np.array(points[first : first + self.n_parallel])
            if self.take(rows):
                return True
        return False

    def adapt_reals(self, model: Quadratic, x: np.ndarray) -> np.ndarray:
        """The point with its real variables where the model of the objective has its minimum, not far away."""
        reals = self.grid.reals
        if not len(reals) or self.log.is_constrained:
            return x
        s = x - self.log.x[self.row]
        slope = (model.gradient[0] + model.hessian[0] @ s)[reals]
        block = model.hessian[0][np.ix_(reals, reals)]
        eigenvalues, vectors = np.linalg.eigh(block)
        if eigenvalues[0] <= 0:
            return x
        step = -vectors @ ((vectors.T @ slope) / eigenvalues)
        moved = x.copy()
        moved[reals] = np.clip(x[reals] + np.clip(step, -0.2, 0.2), 0.0, 1.0)
        return moved


def unique_points(points: list[np.ndarray]) -> list[np.ndarray]:
    """The points (d,) in their order, each once."""
    unique: list[np.ndarray] = []
    for x in points:
        if not any(np.max(np.abs(x - other)) <= SAME_POINT for other in unique):
            unique.append(x)
    return unique


def append_values(log: SampleLog, x: np.ndarray, values: np.ndarray, n_ineq: int) -> None:
    """Add points with all their numbers (n, 1 + p + q) to a log."""
    log.append(x, values[:, 0], values[:, 1 : 1 + n_ineq], values[:, 1 + n_ineq :])
