"""A derivative-free trust-region method with quadratic models, one for each constraint.

Conn, Scheinberg & Vicente, Introduction to Derivative-Free Optimization (2009), doi:10.1137/1.9780898718769, has the
family. Here a model is fitted to the points around the best one, whoever evaluated them, and inherits what the model
before knew of the second derivatives. The step minimises the model in a ball within the box; with constraints it is the
minimiser of the objective's model where the constraints' models allow it.

The model that fits the values and changes the second derivatives of its predecessor least, in the Frobenius norm, is
Powell's: Mathematical Programming 100 (2004) 183-215, doi:10.1007/s10107-003-0490-7. With more points than the model
has coefficients, the same equations with a ridge are a weighted regression.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from galapax.local.log import SampleLog

INTERPOLATION_RIDGE = 1e-9  # of interpolation, relative to the largest entry of the kernel
MAX_ACTIVE_SET_STEPS = 4  # times the number of variables
INFEASIBILITY_TOLERANCE = 1e-10  # of a solution of the models, in units of the constraints' scales
SAFETY = 1e-9  # by which inequalities are kept, in the same units, so that rounding does not break them


class Quadratic(NamedTuple):
    """r functions c + g.s + s.H.s / 2 of a displacement s (d,)."""

    constant: np.ndarray  # (r,)
    gradient: np.ndarray  # (r, d)
    hessian: np.ndarray  # (r, d, d)

    def __call__(self, s: np.ndarray) -> np.ndarray:
        """Values (..., r) at displacements (..., d)."""
        if s.ndim == 1:
            return self.constant + (self.gradient + 0.5 * (self.hessian @ s)) @ s
        return self.constant + s @ self.gradient.T + 0.5 * curvatures(s, self.hessian)

    def slope(self, s: np.ndarray) -> np.ndarray:
        """Gradients (r, d) at a displacement (d,)."""
        return self.gradient + self.hessian @ s

    def shift_origin(self, s: np.ndarray) -> Quadratic:
        """The same functions, of displacements from s."""
        return Quadratic(self(s), self.slope(s), self.hessian)


def curvatures(s: np.ndarray, hessians: np.ndarray) -> np.ndarray:
    """s.H.s (n, r) of displacements s (n, d) and r matrices H."""
    return np.stack([np.sum((s @ H) * s, axis=1) for H in hessians], axis=1)


def fit_minimum_change(
    s: np.ndarray, values: np.ndarray, prior: np.ndarray, scale: float, ridge: np.ndarray | None = None
) -> Quadratic:
    """Fit quadratics to values (n, r) at displacements s (n, d), with second derivatives as close to `prior` as can be.

    prior: (r, d, d). scale: typical length of the displacements. ridge: (n,) extra tolerance of each point, 0 for none.
    """
    n, d = s.shape
    u = s / scale
    prior = prior * scale**2
    residual = values - 0.5 * curvatures(u, prior)
    kernel = 0.5 * (u @ u.T) ** 2
    diagonal = np.full(n, INTERPOLATION_RIDGE * max(1.0, float(kernel.max())))
    if ridge is not None:
        diagonal += ridge
    system = np.zeros((n + d + 1, n + d + 1))
    system[:n, :n] = kernel + np.diag(diagonal)
    system[:n, n] = system[n, :n] = 1.0
    system[:n, n + 1 :] = u
    system[n + 1 :, :n] = u.T
    system[n + 1 :, n + 1 :] = -1e-12 * np.eye(d)
    right = np.concatenate([residual, np.zeros((d + 1, values.shape[1]))])
    try:
        solution = np.linalg.solve(system, right)
    except np.linalg.LinAlgError:
        solution = np.linalg.lstsq(system, right, rcond=1e-14)[0]
    change = np.stack([(u.T * weights) @ u for weights in solution[:n].T])
    return Quadratic(solution[n], solution[n + 1 :].T / scale, (prior + change) / scale**2)


def minimize_in_ball(gradient: np.ndarray, hessian: np.ndarray, radius: float) -> np.ndarray:
    """Minimise g.s + s.H.s / 2 over |s| <= radius, H indefinite or not, by its eigenvectors."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    g = vectors.T @ gradient
    size = float(np.linalg.norm(g))
    least = float(eigenvalues[0])
    if least > 0 and np.sum((g / eigenvalues) ** 2) <= radius**2:
        return -vectors @ (g / eigenvalues)
    low, high = max(0.0, -least), max(0.0, -least) + size / radius
    low += 1e-14 * max(1.0, abs(least), high)
    shift = low
    if np.sum((g / (eigenvalues + low)) ** 2) > radius**2:
        for _ in range(60):  # Newton on 1 / |s|, kept between low and high
            denominator = eigenvalues + shift
            norm2 = float(np.sum((g / denominator) ** 2))
            if norm2 > radius**2:
                low = shift
            else:
                high = shift
            norm = np.sqrt(norm2)
            if abs(norm - radius) < 1e-6 * radius:
                break
            slope = float(np.sum(g**2 / denominator**3))
            shift = shift + (norm2 / slope) * (norm - radius) / radius if slope > 0 else 0.5 * (low + high)
            if not low < shift < high:
                shift = 0.5 * (low + high)
        return -vectors @ (g / (eigenvalues + shift))
    s = -g / (eigenvalues + low)  # the hard case: the rest along the direction of least curvature
    rest = max(0.0, radius**2 - float(s @ s))
    s[0] += np.sqrt(rest) if s[0] >= 0 else -np.sqrt(rest)
    return vectors @ s


def minimize_in_box(
    gradient: np.ndarray, hessian: np.ndarray, radius: float, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Minimise g.s + s.H.s / 2 over |s| <= radius and lower <= s <= upper (0 inside), by an active set."""
    d = len(gradient)
    s = np.zeros(d)
    free = ~(((lower >= 0) & (gradient > 0)) | ((upper <= 0) & (gradient < 0)))
    for _ in range(MAX_ACTIVE_SET_STEPS * d):
        if not free.any():
            break
        free_radius = np.sqrt(max(radius**2 - float(s[~free] @ s[~free]), (1e-3 * radius) ** 2))
        pull = gradient[free] + hessian[np.ix_(free, ~free)] @ s[~free]
        target = minimize_in_ball(pull, hessian[np.ix_(free, free)], free_radius)
        outside = (target < lower[free]) | (target > upper[free])
        if not outside.any():
            s[free] = target
            break
        step = target - s[free]
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(step > 0, (upper[free] - s[free]) / step, (lower[free] - s[free]) / step)
        reach = np.where(outside & (step != 0), np.maximum(reach, 0.0), np.inf)
        share = min(1.0, float(reach.min()))
        index = np.flatnonzero(free)
        s[index] += share * step
        hit = index[reach <= share + 1e-12]
        s[hit] = np.where(step[reach <= share + 1e-12] > 0, upper[hit], lower[hit])
        free[hit] = False
    return np.clip(s, lower, upper)


def add_failures(
    model: Quadratic, log: SampleLog, failures: tuple[float, np.ndarray] | None
) -> tuple[Quadratic, int, np.ndarray]:
    """A model of the objective and the constraints, how many of these are inequalities, and their scales (p + q,): the
    half-space in which evaluations may succeed is the first inequality.
    """
    scale = log.constraint_scale()
    if failures is None:
        return model, log.n_ineq, scale
    offset, normal = failures
    constant = np.insert(model.constant, 1, offset)
    gradient = np.insert(model.gradient, 1, normal, axis=0)
    hessian = np.insert(model.hessian, 1, 0.0, axis=0)
    return Quadratic(constant, gradient, hessian), log.n_ineq + 1, np.r_[1.0, scale]


def minimize_with_constraints(
    model: Quadratic, n_ineq: int, scale: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Minimise the first function of a model in a box, where the next n_ineq are <= 0 and the others 0.

    Where that is impossible, the largest violation is made as small as it can be first, in units of `scale` (p + q,).
    """
    from scipy.optimize import minimize  # not when galapax is imported: that takes 0.2 s

    d = len(lower)
    width = max(float(np.max(upper - lower)), 1e-300)
    unit = Quadratic(  # displacements in widths of the region, constraints in their scales
        model.constant / np.r_[1.0, scale],
        model.gradient * width / np.r_[1.0, scale][:, None],
        model.hessian * width**2 / np.r_[1.0, scale][:, None, None],
    )
    unit.constant[1 : 1 + n_ineq] += SAFETY
    span = float(np.abs(unit.gradient[0]).sum() + 0.5 * np.abs(unit.hessian[0]).sum()) or 1.0
    low, high = lower / width, upper / width

    def restore() -> tuple[np.ndarray, float]:
        start = _violation(unit(np.zeros(d)), n_ineq)

        def slack(z: np.ndarray) -> np.ndarray:
            c = unit(z[:-1])[1:]
            return np.r_[z[-1] - c[:n_ineq], z[-1] - c[n_ineq:], z[-1] + c[n_ineq:]]

        def slack_slope(z: np.ndarray) -> np.ndarray:
            g = unit.slope(z[:-1])[1:]
            rows = np.concatenate([-g[:n_ineq], -g[n_ineq:], g[n_ineq:]])
            return np.column_stack([rows, np.ones(len(rows))])

        out = minimize(
            lambda z: (z[-1], np.r_[np.zeros(d), 1.0]), np.r_[np.zeros(d), start], jac=True, method="SLSQP",
            bounds=[*zip(low, high, strict=True), (0.0, max(start, 0.0))],
            constraints={"type": "ineq", "fun": slack, "jac": slack_slope}, options={"maxiter": 50, "ftol": 1e-12},
        )  # fmt: skip
        s = np.clip(out.x[:-1], low, high)
        violation = _violation(unit(s), n_ineq)
        return (s, violation) if violation < start else (np.zeros(d), start)

    def solve(start: np.ndarray, allowed: float) -> np.ndarray:
        def inside(s: np.ndarray) -> np.ndarray:
            c = unit(s)[1:]
            if allowed > 0:
                return np.r_[allowed - c[:n_ineq], allowed - c[n_ineq:], allowed + c[n_ineq:]]
            return -c[:n_ineq]

        def inside_slope(s: np.ndarray) -> np.ndarray:
            g = unit.slope(s)[1:]
            return np.concatenate([-g[:n_ineq], -g[n_ineq:], g[n_ineq:]]) if allowed > 0 else -g[:n_ineq]

        constraints = [{"type": "ineq", "fun": inside, "jac": inside_slope}]
        if allowed <= 0 and n_ineq < len(scale):
            constraints.append(
                {"type": "eq", "fun": lambda s: unit(s)[1 + n_ineq :], "jac": lambda s: unit.slope(s)[1 + n_ineq :]}
            )
        if n_ineq == 0 and allowed <= 0:
            constraints = constraints[1:]
        out = minimize(
            lambda s: (float(unit(s)[0] - unit.constant[0]) / span, unit.slope(s)[0] / span), start, jac=True,
            method="SLSQP", bounds=list(zip(low, high, strict=True)), constraints=constraints,
            options={"maxiter": 60, "ftol": 1e-12},
        )  # fmt: skip
        return np.clip(np.nan_to_num(out.x), low, high)

    with np.errstate(all="ignore"):
        s = solve(np.zeros(d), 0.0)
        if _violation(unit(s), n_ineq) > INFEASIBILITY_TOLERANCE or not unit(s)[0] < unit.constant[0]:
            start, violation = restore()
            if violation > INFEASIBILITY_TOLERANCE:
                s = solve(start, violation * (1 + 1e-6))
                if _violation(unit(s), n_ineq) > violation * 1.01:
                    s = start
            else:
                tried = [start, s]
                for origin in (start, np.where(unit.gradient[0] > 0, low, high), 0.5 * (low + high)):
                    tried.append(solve(origin, 0.0))
                possible = [s for s in tried if _violation(unit(s), n_ineq) <= INFEASIBILITY_TOLERANCE]
                s = min(possible, key=lambda s: float(unit(s)[0]))
    return s * width


def _violation(values: np.ndarray, n_ineq: int) -> float:
    """The largest violation of model values (1 + p + q,)."""
    c = values[1:]
    return float(max(np.max(c[:n_ineq], initial=0.0), np.max(np.abs(c[n_ineq:]), initial=0.0)))


MAX_MODEL_POINTS = 350
NEIGHBOURHOOD = 6.0  # radii around the best point within which points say enough for the next step
POISED = 0.05  # least singular value of the displacements, in radii, above which a model is trusted
STATIONARY = 1e-9  # predicted reduction, as a share of the range of the merit, below which a descent has ended
RELIABLE = 0.1  # difference of true and predicted reduction, as a share of it, up to which a model is believed
EXPAND_RATIO, SHRINK_RATIO = 0.7, 0.1
FAR_RIDGE = 1e-8
COMPANION_RATIO, MAX_SHORTER_STEPS = 0.3, 2  # of the radii of steps that are evaluated together

Moves = Generator[np.ndarray, np.ndarray, None]


class TrustRegion:
    """One descent from an evaluated point to a local minimum.

    `run` yields points (k, d) and receives their rows in the log. n_parallel: evaluations that can be had at a time:
    with a step come shorter ones, and points that make the next model better.
    """

    def __init__(
        self, log: SampleLog, row: int, radius: float = 0.1, final_radius: float = 1e-7, n_parallel: int = 1
    ) -> None:
        self.log, self.row, self.radius, self.final_radius = log, row, radius, final_radius
        self.n_parallel = n_parallel
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
            companions = self.place_companions(model, chosen)
            rows = yield np.concatenate([np.clip(x + step, 0.0, 1.0)[None], companions])
            self.rows += list(rows)
            merits = self.merit(log.values[rows])
            after, least = float(merits[0]), float(merits.min())
            ratio = (before - after) / predicted if np.isfinite(after) else -1.0
            self.agreement.append(ratio)
            if least < before:
                self.row = int(rows[int(np.argmin(merits))])
            if ratio >= EXPAND_RATIO:
                self.radius = min(max(self.radius, 2.0 * length), 0.5 * np.sqrt(d))
            if ratio < SHRINK_RATIO:
                bad_steps += 1
                if log.is_constrained and bad_steps > d:  # the models mislead; tangents may not
                    return
                direction = self.weakest_direction(self.choose_points()) if bad_steps <= 2 * d else None
                if direction is not None and ratio < 0 and np.isfinite(after):
                    self.rows += list((yield self.geometry_point(model.shift_origin(log.x[self.row] - x), direction)))
                    self.choose_center()
                else:
                    self.radius = max(0.5 * min(self.radius, length), 0.1 * self.radius)
            else:
                bad_steps = 0
        self.converged = True

    def place_companions(self, model: Quadratic, chosen: np.ndarray) -> np.ndarray:
        """Points (k, d) to evaluate together with a step: half of them shorter steps, half for the next model."""
        n, x, radius = self.n_parallel - 1, self.log.x[self.row], self.radius
        points = []
        for share in COMPANION_RATIO ** np.arange(1, 1 + min((n + 1) // 2, MAX_SHORTER_STEPS)):
            self.radius = radius * float(share)
            points.append(np.clip(x + self.solve(model), 0.0, 1.0))
        self.radius = radius
        for direction in self.weakest_directions(chosen)[: n - len(points)]:
            points.append(self.geometry_point(model, direction)[0])
        return np.array(points).reshape(-1, self.log.dim)

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
        return minimize_with_constraints(*add_failures(model, self.log, self.log.separate_failures(x)), lower, upper)

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
        directions = self.weakest_directions(chosen, POISED)
        return directions[0] if len(directions) else None

    def weakest_directions(self, chosen: np.ndarray, limit: float = np.inf) -> np.ndarray:
        """Directions (k, d) in which the points around the best one say less than `limit`, the least first."""
        s = (self.log.x[chosen] - self.log.x[self.row]) / self.radius
        near = s[np.linalg.norm(s, axis=1) <= NEIGHBOURHOOD]
        _, singular, vectors = np.linalg.svd(np.concatenate([near, np.zeros((self.log.dim, self.log.dim))]))
        return vectors[singular < limit][::-1]

    def geometry_point(self, model: Quadratic, direction: np.ndarray) -> np.ndarray:
        """A point (1, d) at the radius in this direction, on the side that the model prefers or the box has room."""
        x = self.log.x[self.row]
        points = np.clip(x + self.radius * np.array([direction, -direction]), 0.0, 1.0)
        room = np.linalg.norm(points - x, axis=1)
        if room.min() > 0.5 * self.radius:
            value = self.merit(model(points - x))
            return points[[int(np.argmin(value))]]
        return points[[int(np.argmax(room))]]
