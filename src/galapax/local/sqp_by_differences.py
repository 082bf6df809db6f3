"""Sequential quadratic programming with first derivatives by differences and BFGS for the second ones.

Nocedal & Wright, Numerical Optimization (2006), chapter 18, doi:10.1007/978-0-387-40065-5; damped updates and the
penalty after Powell (1978), doi:10.1007/BFb0067703.

Each constraint has a quadratic model: its second derivatives are changed as little as can be to agree with new slopes
and with the ends of steps that were not accepted. The objective's are what the Lagrangian's leave.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from scipy.optimize import nnls

from galapax.local.log import SampleLog
from galapax.local.trust_region import Quadratic, add_failures, minimize_in_box, minimize_with_constraints

SUFFICIENT_MERIT_DECREASE = 1e-4
MAX_BACKTRACKS = 8
SHARE_RATIO, MAX_SHARES = 0.25, 4  # of steps that are tried at once, each so much shorter than the one before
MAX_TURNS = 3  # of a step whose end failed
MIN_TURN = 0.1  # share of such a step by which its end must move to be evaluated
MAX_CORRECTIONS = 4  # of a step that breaks constraints
CORRECTION_RATE = 0.7  # of the violation that a correction may leave, for another one to follow
FIRST_RADIUS = 0.4  # share of the box that a step may cross
POLISH_RADIUS = 0.1  # the same of a search that begins near a minimum
EXPANSION, MAX_RADIUS = 4.0, 1.0  # of the radius by the last step, under constraints
CHANGE_PER_RADIUS = 3.0  # slopes of constraints in units of their scales and of the box; steeper ones narrow the region
MIN_REGION_WIDTH = 1e-3  # of the region in such a variable, share of the radius
MIN_SHORTENING, MIN_CONSTRAINED_SHORTENING = 0.1, 0.25  # of a step that did not decrease the merit
MISLEADING_TRIALS = 3  # of a line search, from which on the second derivatives are taken for wrong
MISLEADING_EVALUATIONS = 40  # of a descent, and d (d + 1), before that
MISLEADING_GAIN = 1e-8  # of such a step, share of the range of all values; smaller ones are near the end of a descent
SECOND_DIFFERENCE_FACTOR = 600.0  # times the length at which rounding is as large as the stiffest second derivative
MIN_SECOND_DIFFERENCE = 1e-7  # share of the box
LEAST_CURVATURE = 1e-10  # as a share of the largest
SOFTNESS = 1e-6  # first second derivatives, as a share of those that would keep the first step within the radius
ROUNDING = 1e-15  # relative error of the function, where nothing says that it is larger
MIN_DIFFERENCE, FIRST_DIFFERENCE, MAX_DIFFERENCE = 1e-10, 1e-9, 1e-3  # shares of the box

Moves = Generator[np.ndarray, np.ndarray, None]


class SQPByDifferences:
    """One descent from an evaluated point to a local minimum.

    `run` yields points (k, d) and receives their rows in the log. n_parallel: evaluations that can be had at a time.
    Where there are several, a line search tries several lengths at once, or takes the differences at the end of a
    step before its value is known (Byrd, Schnabel & Shultz 1988).
    """

    def __init__(self, log: SampleLog, row: int, radius: float = FIRST_RADIUS, n_parallel: int = 1) -> None:
        self.log, self.row, self.radius, self.n_parallel = log, row, radius, n_parallel
        self.hessian: np.ndarray | None = None  # of the Lagrangian, once two derivatives are known
        n_constraints = log.values.shape[1] - 1
        self.constraint_hessians = np.zeros((n_constraints, log.dim, log.dim))
        self.last_multipliers = np.zeros(n_constraints)  # those that the Hessian of the Lagrangian was updated with
        self.difference = FIRST_DIFFERENCE  # as long as the second derivatives are not known
        self.noise = ROUNDING
        self.trials = 1  # of the last line search
        self.early_differences: dict[int, int] = {}  # rows of points next to the best one, by variable
        self.evaluations = 0  # for first derivatives and accepted steps
        self.next_second_differences: float = np.inf
        if not log.is_constrained:
            self.next_second_differences = max(log.dim * (log.dim + 1), MISLEADING_EVALUATIONS)
        self.penalty = 0.0
        self.converged = False

    def run(self) -> Moves:
        log = self.log
        slopes = yield from self.differentiate()
        while True:
            x, values = log.x[self.row].copy(), log.values[self.row].copy()
            step, multipliers = self.solve(values, slopes, x)
            length = float(np.linalg.norm(step))
            slope = self.merit_slope(values, slopes, step)
            start = self.merit(values)
            accepted = False
            if length > 1e-11 and slope < 0:
                accepted = yield from self.search_line(x, step, start, slope, slopes)
            if not accepted and self.constraint_hessians.any():  # they may mislead
                self.constraint_hessians[:] = 0.0
                continue
            if length <= 1e-11 and slopes[0].any():  # no direction promises anything
                self.converged = True
                return
            if not accepted:
                if not self.lengthen_differences():
                    self.converged = self.hessian is not None
                    return
                slopes = yield from self.differentiate()
                continue
            if log.is_constrained:
                reach = min(EXPANSION * float(np.max(np.abs(log.x[self.row] - x) / self.widths(slopes))), MAX_RADIUS)
                self.radius = max(self.radius, reach) if self.trials == 1 else reach
            before, slopes_of = slopes, np.r_[1.0, multipliers]
            H = self.curvature(slopes)
            slopes = yield from self.differentiate()
            moved = log.x[self.row] - x
            self.hessian = update_bfgs(H, moved, (slopes - before).T @ slopes_of)
            self.constraint_hessians = update_symmetric(self.constraint_hessians, moved, (slopes - before)[1:])
            self.last_multipliers = multipliers
            self.evaluations += log.dim + 1
            gain = start - self.merit(log.values[self.row])
            is_misled = self.trials >= MISLEADING_TRIALS and gain > MISLEADING_GAIN * log.range_of_objective()
            if is_misled and self.evaluations >= self.next_second_differences:
                yield from self.differentiate_twice()
            if gain <= 1e-13 * max(1.0, abs(start)) and length < 1e-6:
                self.converged = True
                return

    def curvature(self, slopes: np.ndarray) -> np.ndarray:
        """Second derivatives of the Lagrangian; at first so small that only the radius limits the step."""
        if self.hessian is not None:
            return self.hessian
        size = float(np.linalg.norm(slopes[0]))
        return np.eye(self.log.dim) * max(SOFTNESS * size / self.radius, 1e-300)

    def search_line(
        self, x: np.ndarray, step: np.ndarray, start: float, slope: float, slopes: np.ndarray
    ) -> Generator[np.ndarray, np.ndarray, bool]:
        """Go along a step from x until the merit decreases enough; False where it does not.

        Where the whole step breaks a constraint, it is corrected by what the constraints are at its end.
        """
        share, least = 1.0, MIN_CONSTRAINED_SHORTENING if self.log.is_constrained else MIN_SHORTENING
        for trial in range(MAX_BACKTRACKS):
            shares = share * self.spread_shares(trial)
            ends = np.clip(x + self.shorten_step(x, step, shares, slopes), 0.0, 1.0)
            early = self.place_early_differences(ends[0], start) if trial == 0 and self.trials == 1 else ends[:0]
            self.trials = trial + 1
            rows = yield np.concatenate([ends, early])
            merits = np.array([self.merit(self.log.values[row]) for row in rows[: len(ends)]])
            accepted = np.flatnonzero(merits <= start + SUFFICIENT_MERIT_DECREASE * shares * slope)
            if len(accepted):
                best = int(accepted[np.argmin(merits[accepted])])
                self.row = int(rows[best])
                if best == 0:
                    self.early_differences = dict(enumerate(rows[len(ends) :].tolist()))
                return True
            share, now = shares[-1], merits[-1]
            for end, row in zip(ends, rows, strict=False):
                self.learn_curvature(end - x, self.log.values[row], slopes)
            if trial == 0:
                row = int(rows[0])
                if np.isnan(self.log.objective[row]) and shares.size == 1:
                    row, step = yield from self.turn_from_failures(x, row, step, slopes)
                    now, slope = (
                        self.merit(self.log.values[row]),
                        self.merit_slope(self.log.values[self.row], slopes, step),
                    )
                    if now <= start + SUFFICIENT_MERIT_DECREASE * slope:
                        self.row = row
                        return True
                if (yield from self.correct_step(x, step, self.log.values[row], start, slope, slopes)):
                    return True
            minimum = -0.5 * slope * share**2 / (now - start - share * slope)  # of a parabola; 0 after a failure
            share = float(np.clip(minimum, least * share, 0.5 * share))
        return False

    def spread_shares(self, trial: int) -> np.ndarray:
        """Shares of a step (k,) that are tried at once: several where the last line search needed more than one."""
        if self.n_parallel == 1 or (trial == 0 and self.trials == 1):
            return np.ones(1)
        return SHARE_RATIO ** np.arange(min(self.n_parallel, MAX_SHARES))

    def place_early_differences(self, end: np.ndarray, value: float) -> np.ndarray:
        """Points (k, d) next to the end of a step for the first variables, as many as can be evaluated with it."""
        n = min(self.n_parallel - 1, self.log.dim)
        size = self.choose_differences(np.array([value]))
        return (end + np.diag(np.where(end + size <= 1.0, size, -size)))[:n]

    def turn_from_failures(
        self, x: np.ndarray, row: int, step: np.ndarray, slopes: np.ndarray
    ) -> Generator[np.ndarray, np.ndarray, tuple[int, np.ndarray]]:
        """Turn a step whose end failed, as long as each failure tells more of where evaluations succeed; the last end's
        row and the step to it.
        """
        for _ in range(MAX_TURNS):
            turned = self.solve_model(self.log.values[self.row], slopes, x)
            if np.max(np.abs(turned - step)) <= MIN_TURN * np.max(np.abs(step)):  # only a shorter one tells more
                break
            step = turned
            row = int((yield np.clip(x + step, 0.0, 1.0)[None])[0])
            if not np.isnan(self.log.objective[row]):
                break
        return row, step

    def correct_step(
        self, x: np.ndarray, step: np.ndarray, values: np.ndarray, start: float, slope: float, slopes: np.ndarray
    ) -> Generator[np.ndarray, np.ndarray, bool]:
        """Correct a whole step that breaks constraints by what they are at its end, and again as long as this helps."""
        violation = float(self.log.violation(values[None])[0])
        goal = start + SUFFICIENT_MERIT_DECREASE * slope
        for _ in range(MAX_CORRECTIONS):
            if not self.merit(values) - self.penalty * violation <= goal:
                return False
            step = self.solve_model(self.log.values[self.row], slopes, x)
            rows = yield np.clip(x + step, 0.0, 1.0)[None]
            values = self.log.values[rows[0]]
            self.learn_curvature(step, values, slopes)
            if self.merit(values) <= goal:
                self.row = int(rows[0])
                return True
            previous, violation = violation, float(self.log.violation(values[None])[0])
            if not violation <= CORRECTION_RATE * previous:
                return False
        return False

    def differentiate(self) -> Generator[np.ndarray, np.ndarray, np.ndarray]:
        """First derivatives (1 + p + q, d) at the best point, towards the inside of the box; 0 where a point failed."""
        x, values = self.log.x[self.row].copy(), self.log.values[self.row].copy()
        size = self.choose_differences(values)
        points = x + np.diag(np.where(x + size <= 1.0, size, -size))
        early, self.early_differences = self.early_differences, {}
        missing = [i for i in range(self.log.dim) if i not in early]
        rows = np.array([early.get(i, -1) for i in range(self.log.dim)])
        if missing:
            rows[missing] = yield points[missing]
        failed = np.flatnonzero(np.isnan(self.log.objective[rows]))
        opposite = 2 * x - self.log.x[rows[failed], :]
        is_inside = (opposite >= 0.0).all(axis=1) & (opposite <= 1.0).all(axis=1)
        if is_inside.any():
            rows[failed[is_inside]] = yield opposite[is_inside]
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = (self.log.values[rows] - values).T / (np.diag(self.log.x[rows]) - x)
        if np.isfinite(slopes).all():
            self.log.tangents.append((self.row, slopes))
        return np.nan_to_num(slopes, posinf=0.0, neginf=0.0)

    def differentiate_twice(self) -> Moves:
        """Take second derivatives at the best point by differences of four values, where those of BFGS mislead.

        This costs as much as the descent did before, or less. Directions of negative curvature get the opposite of it.
        """
        log, d = self.log, self.log.dim
        assert self.hessian is not None
        self.next_second_differences = self.evaluations + d * (d + 1)
        x, value = log.x[self.row].copy(), log.objective[self.row]
        stiffest = max(float(np.diag(self.hessian).max()), 1e-300)
        size = SECOND_DIFFERENCE_FACTOR * np.sqrt(ROUNDING * abs(value) / stiffest)
        size = float(np.clip(size, MIN_SECOND_DIFFERENCE, MAX_DIFFERENCE))
        h = np.where(x + 2 * size <= 1.0, size, -size)
        i, j = np.triu_indices(d)
        points = np.repeat(x[None], len(i), axis=0)
        np.add.at(points, (np.arange(len(i)), i), h[i])
        np.add.at(points, (np.arange(len(i)), j), h[j])
        rows = yield np.concatenate([x + np.diag(h), points])
        single, double = log.objective[rows[:d]], log.objective[rows[d:]]
        H = np.zeros((d, d))
        H[i, j] = H[j, i] = (double - single[i] - single[j] + value) / (h[i] * h[j])
        if np.isfinite(H).all() and H.any():
            eigenvalues, vectors = np.linalg.eigh(H)
            sizes = np.maximum(np.abs(eigenvalues), LEAST_CURVATURE * np.abs(eigenvalues).max())
            self.hessian = (vectors * sizes) @ vectors.T

    def choose_differences(self, values: np.ndarray) -> np.ndarray:
        """Lengths (d,) that balance rounding errors with the second derivatives, as far as these are known."""
        if self.hessian is None:
            return np.full(self.log.dim, self.difference)
        balanced = 2.0 * np.sqrt(self.noise * np.abs(values[0]) / np.maximum(np.diag(self.hessian), 1e-300))
        return np.clip(balanced, MIN_DIFFERENCE, max(self.difference, 1e-5))

    def lengthen_differences(self) -> bool:
        """Take longer differences, where the first ones led nowhere; False at the longest."""
        if self.hessian is not None or self.difference >= MAX_DIFFERENCE:
            return False
        self.difference = min(self.difference * 1000.0, MAX_DIFFERENCE)
        self.noise *= 1e6
        return True

    def solve(self, values: np.ndarray, slopes: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The step, and multipliers of the constraints (p + q,)."""
        step = self.solve_model(values, slopes, x)
        return step, self.multipliers(values, slopes, step, x) if self.log.is_constrained else np.zeros(0)

    def solve_model(self, values: np.ndarray, slopes: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The step (d,) that minimises a quadratic within linear constraints."""
        log, H = self.log, self.curvature(slopes)
        lower, upper = -x, 1.0 - x
        failures = log.separate_failures(x)
        if not log.is_constrained and failures is None:
            return minimize_in_box(slopes[0], H, self.radius, lower, upper)
        reach = self.radius * self.widths(slopes)
        lower, upper = np.maximum(lower, -reach), np.minimum(upper, reach)
        return minimize_with_constraints(*add_failures(self.model(values, slopes), log, failures), lower, upper)

    def widths(self, slopes: np.ndarray) -> np.ndarray:
        """Shares of the radius (d,) by which each variable may move: less where this would change a constraint a lot.

        Otherwise one variable with a narrow feasible range would hold back all others.
        """
        if not self.log.is_constrained:
            return np.ones(self.log.dim)
        sensitivity = np.max(np.abs(slopes[1:]) / self.log.constraint_scale()[:, None], axis=0)
        return np.clip(CHANGE_PER_RADIUS / np.maximum(sensitivity, CHANGE_PER_RADIUS), MIN_REGION_WIDTH, 1.0)

    def model(self, values: np.ndarray, slopes: np.ndarray) -> Quadratic:
        """The model of the objective and the constraints; its Lagrangian has the second derivatives of BFGS."""
        of_objective = self.curvature(slopes) - np.tensordot(self.last_multipliers, self.constraint_hessians, 1)
        return Quadratic(values, slopes, np.concatenate([of_objective[None], self.constraint_hessians]))

    def learn_curvature(self, step: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        """Make the models of the constraints agree with their values (1 + p + q,) after a step."""
        length2 = float(step @ step)
        if np.isfinite(values).all() and length2 > 0:
            error = values - self.model(self.log.values[self.row], slopes)(step)
            self.constraint_hessians += (2.0 * error[1:] / length2**2)[:, None, None] * np.outer(step, step)

    def shorten_step(self, x: np.ndarray, step: np.ndarray, shares: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Steps (k, d) that are so much shorter; under constraints each minimises the model in a smaller region."""
        if not self.log.is_constrained:
            return shares[:, None] * step
        radius, length = self.radius, float(np.max(np.abs(step) / self.widths(slopes)))
        steps = []
        for share in shares:
            self.radius = float(share) * length
            steps.append(step if share == 1.0 else self.solve_model(self.log.values[self.row], slopes, x))
        self.radius = radius
        return np.array(steps)

    def multipliers(self, values: np.ndarray, slopes: np.ndarray, step: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Least-squares multipliers of the constraints that the step makes active."""
        log = self.log
        model = self.model(values, slopes)
        expected, slopes = model(step)[1:], model.slope(step)
        scale = log.constraint_scale()
        active = np.abs(expected) <= 1e-6 * scale
        out = np.zeros(len(expected))
        free = (x + step > 1e-12) & (x + step < 1 - 1e-12)
        if active.any() and free.any():
            pull = -slopes[0][free]
            index = np.flatnonzero(active)
            columns = slopes[1:][index][:, free].T
            is_eq = index >= log.n_ineq
            both = np.concatenate([columns, -columns[:, is_eq]], axis=1)
            size = np.linalg.norm(both, axis=0)
            size[size == 0] = 1.0
            weights = nnls(both / size, pull)[0] / size
            out[index] = weights[: len(index)]
            out[index[is_eq]] -= weights[len(index) :]
        needed = 2.0 * float(np.sum(np.abs(out) * scale))
        self.penalty = max(needed, 0.5 * (self.penalty + needed))  # Powell's rule: far from the end it may be too large
        return out

    def merit(self, values: np.ndarray) -> float:
        violation = float(self.log.violation(values[None])[0])
        return np.inf if np.isnan(violation) else float(values[0] + self.penalty * violation)

    def merit_slope(self, values: np.ndarray, slopes: np.ndarray, step: np.ndarray) -> float:
        """Bound of the merit's derivative along the step."""
        change = float(slopes[0] @ step)
        if not self.log.is_constrained:
            return change
        old = float(self.log.violation(values[None])[0])
        end = self.model(values, slopes)(step)
        new = float(self.log.violation(end[None])[0])
        loss = float(end[0] - values[0])
        if old - new > 1e-12 and loss > self.penalty * (old - new):
            self.penalty = 2.0 * loss / (old - new)
        return change - self.penalty * (old - new)


def update_bfgs(H: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Powell's damped update, which stays positive definite."""
    Hs = H @ s
    sHs = float(s @ Hs)
    if not sHs > 0:
        return H
    sy = float(s @ y)
    if sy < 0.2 * sHs:
        theta = 0.8 * sHs / (sHs - sy)
        y = theta * y + (1 - theta) * Hs
        sy = float(s @ y)
    return H - np.outer(Hs, Hs) / sHs + np.outer(y, y) / sy


def update_symmetric(H: np.ndarray, s: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Matrices (k, d, d) changed as little as can be so that H s = y (k, d): Powell's symmetric Broyden update."""
    length2 = float(s @ s)
    if not length2 > 0:
        return H
    residual = (y - H @ s) / length2
    crossed = residual[:, :, None] * s
    return H + crossed + np.swapaxes(crossed, 1, 2) - ((residual @ s) / length2)[:, None, None] * np.outer(s, s)
