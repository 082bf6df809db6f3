"""A derivative-free trust-region method with quadratic models, one for each constraint.

Conn, Scheinberg & Vicente, Introduction to Derivative-Free Optimization (2009), doi:10.1137/1.9780898718769, has the
family. Here a model is fitted to the points around the best one, whoever evaluated them, and inherits what the model
before knew of the second derivatives. The step minimises the model in a ball within the box; with constraints it is the
minimiser of the objective's model where the constraints' models allow it.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from galapax.local.log import SampleLog
from galapax.local.quadratic import Quadratic, fit_minimum_change, minimize_in_box, minimize_with_constraints

MAX_MODEL_POINTS = 350
NEIGHBOURHOOD = 6.0  # radii around the best point within which points say enough for the next step
POISED = 0.05  # least singular value of the displacements, in radii, above which a model is trusted
STATIONARY = 1e-9  # predicted reduction, as a share of the range of the merit, below which a descent has ended
RELIABLE = 0.1  # difference of true and predicted reduction, as a share of it, up to which a model is believed
EXPAND_RATIO, SHRINK_RATIO = 0.7, 0.1
FAR_RIDGE = 1e-8

Moves = Generator[np.ndarray, np.ndarray, None]


class TrustRegion:
    """One descent from an evaluated point to a local minimum.

    `run` yields points (k, d) and receives their rows in the log.
    """

    def __init__(self, log: SampleLog, row: int, radius: float = 0.1, final_radius: float = 1e-7) -> None:
        self.log, self.row, self.radius, self.final_radius = log, row, radius, final_radius
        self.agreement: list[float] = []  # true over predicted reduction of each step
        self.converged = False
        self.penalty = 0.0
        self.hessian: np.ndarray | None = None
        self.rows: list[int] = []

    def merit(self, values: np.ndarray) -> np.ndarray:
        """What is minimised, of values (n, 1 + p + q): the objective and the largest violation."""
        violation = self.log.violation(values)
        return np.where(np.isnan(violation), np.inf, np.nan_to_num(values[:, 0]) + self.penalty * violation)

    def is_reliable(self) -> bool:
        """Whether the model foretold what the last step achieved."""
        return bool(self.agreement) and abs(self.agreement[-1] - 1.0) <= RELIABLE

    def range_of_merit(self) -> float:
        """Difference of the best and the median point of the descent."""
        merit = self.merit(self.log.values[self.rows])
        return float(np.median(merit[np.isfinite(merit)]) - merit.min())

    def choose_center(self) -> None:
        rows = np.array(self.rows)
        self.row = int(rows[np.argmin(self.merit(self.log.values[rows]))])

    def run(self) -> Moves:
        log, d = self.log, self.log.dim
        x = log.x[self.row]
        side = np.where(x + self.radius <= 1.0, 1.0, -1.0)
        self.rows = [self.row, *(yield np.clip(x + np.diag(side * self.radius), 0.0, 1.0))]
        self.set_penalty()
        self.choose_center()
        bad_steps = 0
        while self.radius > self.final_radius:
            x = log.x[self.row]
            chosen = self.choose_points()
            model = self.fit(chosen)
            step = self.solve(model)
            predicted = self.predicted_reduction(model, step)
            length = float(np.linalg.norm(step))
            if not predicted > 0 or length < 0.05 * self.radius:
                direction = self.weakest_direction(chosen)
                if direction is not None:
                    self.rows += list((yield self.geometry_point(model, direction)))
                    self.choose_center()
                elif self.is_reliable() and predicted <= STATIONARY * self.range_of_merit():
                    break
                else:
                    self.radius *= 0.25
                continue
            before = float(self.merit(log.values[self.row][None])[0])
            rows = yield np.clip(x + step, 0.0, 1.0)[None]
            self.rows += list(rows)
            after = float(self.merit(log.values[rows])[0])
            ratio = (before - after) / predicted if np.isfinite(after) else -1.0
            self.agreement.append(ratio)
            if after < before:
                self.row = int(rows[0])
            if ratio >= EXPAND_RATIO:
                self.radius = min(max(self.radius, 2.0 * length), 0.5 * np.sqrt(d))
            if ratio < SHRINK_RATIO:
                bad_steps += 1
                direction = self.weakest_direction(self.choose_points()) if bad_steps <= 2 * d else None
                if direction is not None and ratio < 0 and np.isfinite(after):
                    self.rows += list((yield self.geometry_point(model.moved(log.x[self.row] - x), direction)))
                    self.choose_center()
                else:
                    self.radius = max(0.5 * min(self.radius, length), 0.1 * self.radius)
            else:
                bad_steps = 0
        self.converged = True

    def choose_points(self) -> np.ndarray:
        """Rows of the points for a model around the best one, the nearest first: far ones are fitted loosely."""
        log, d = self.log, self.log.dim
        distance = np.linalg.norm(log.x - log.x[self.row], axis=1)
        distance[np.isnan(log.objective)] = np.inf
        order = np.argsort(distance, kind="stable")
        most = min((d + 1) * (d + 2) // 2 + d, MAX_MODEL_POINTS)
        return order[: min(most, int(np.isfinite(distance).sum()))]

    def fit(self, chosen: np.ndarray) -> Quadratic:
        log = self.log
        s = log.x[chosen] - log.x[self.row]
        if self.hessian is None:
            self.hessian = np.zeros((log.values.shape[1], log.dim, log.dim))
        far = np.linalg.norm(s, axis=1) / self.radius
        model = fit_minimum_change(s, log.values[chosen], self.hessian, self.radius, FAR_RIDGE * far**6)
        self.hessian = model.hessian
        return Quadratic(log.values[self.row], model.gradient, model.hessian)

    def solve(self, model: Quadratic) -> np.ndarray:
        x = self.log.x[self.row]
        lower, upper = -x, 1.0 - x
        if not self.log.is_constrained:
            return minimize_in_box(model.gradient[0], model.hessian[0], self.radius, lower, upper)
        lower, upper = np.maximum(lower, -self.radius), np.minimum(upper, self.radius)
        return minimize_with_constraints(model, self.log.n_ineq, lower, upper, self.log.constraint_scale())

    def set_penalty(self) -> None:
        """Begin with a penalty that weighs violations like differences of the objective."""
        if self.log.is_constrained:
            values = self.log.values[self.rows]
            values = values[np.isfinite(values).all(axis=1)]
            self.penalty = float(np.std(values[:, 0])) if len(values) else 1.0

    def predicted_reduction(self, model: Quadratic, step: np.ndarray) -> float:
        """Reduction of the merit that the model promises; the penalty grows where feasibility would not be worth it."""
        old, new = model.constant[None], model(step)[None]
        if not self.log.is_constrained:
            return float(old[0, 0] - new[0, 0])
        gain = float(self.log.violation(old)[0] - self.log.violation(new)[0])
        loss = float(new[0, 0] - old[0, 0])
        if gain > 1e-12 and self.penalty * gain < 2.0 * loss:
            self.penalty = 4.0 * loss / gain
        return self.penalty * gain - loss

    def weakest_direction(self, chosen: np.ndarray) -> np.ndarray | None:
        """The direction in which the points around the best one say least, None where they say enough."""
        s = (self.log.x[chosen] - self.log.x[self.row]) / self.radius
        near = s[np.linalg.norm(s, axis=1) <= NEIGHBOURHOOD]
        _, singular, vectors = np.linalg.svd(np.concatenate([near, np.zeros((self.log.dim, self.log.dim))]))
        return vectors[-1] if singular[self.log.dim - 1] < POISED else None

    def geometry_point(self, model: Quadratic, direction: np.ndarray) -> np.ndarray:
        """A point (1, d) at the radius in this direction, on the side that the model prefers or the box has room."""
        x = self.log.x[self.row]
        points = np.clip(x + self.radius * np.array([direction, -direction]), 0.0, 1.0)
        room = np.linalg.norm(points - x, axis=1)
        if room.min() > 0.5 * self.radius:
            value = self.merit(model(points - x))
            return points[[int(np.argmin(value))]]
        return points[[int(np.argmax(room))]]
