"""Quadratic models of several functions at once, and their minimisers in a box.

The model that fits the values and changes the second derivatives of its predecessor least, in the Frobenius norm, is
Powell's: Mathematical Programming 100 (2004) 183-215, doi:10.1007/s10107-003-0490-7. With more points than the model
has coefficients, the same equations with a ridge are a weighted regression.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

RIDGE = 1e-9  # of interpolation, relative to the largest entry of the kernel
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

    def moved(self, s: np.ndarray) -> Quadratic:
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
    diagonal = np.full(n, RIDGE * max(1.0, float(kernel.max())))
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
        left = np.sqrt(max(radius**2 - float(s[~free] @ s[~free]), (1e-3 * radius) ** 2))
        pull = gradient[free] + hessian[np.ix_(free, ~free)] @ s[~free]
        target = minimize_in_ball(pull, hessian[np.ix_(free, free)], left)
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


def minimize_with_constraints(
    model: Quadratic, n_ineq: int, lower: np.ndarray, upper: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Minimise the first function of a model in a box, where the next n_ineq are <= 0 and the others 0.

    Where that is impossible, the largest violation is made as small as it can be first, in units of `scale` (p + q,).
    """
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
