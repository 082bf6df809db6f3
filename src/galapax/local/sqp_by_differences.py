"""Sequential quadratic programming with first derivatives by differences and BFGS for the second ones.

Nocedal & Wright, Numerical Optimization (2006), chapter 18, doi:10.1007/978-0-387-40065-5; damped updates after Powell
(1978), doi:10.1007/BFb0067703.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from galapax.local.log import EvaluationLog
from galapax.local.quadratic import Quadratic, minimize_in_box, minimize_with_constraints

import os
SUFFICIENT_DECREASE = float(os.environ.get('SD',1e-4))
MAX_BACKTRACKS = 8
import os
FIRST=float(os.environ.get('FIRST',1e6)); RESCALE=int(os.environ.get('RESCALE',0))
FIRST_DIFFERENCE, LARGEST_DIFFERENCE = 1e-9, 1e-3  # shares of the box

Moves = Generator[np.ndarray, np.ndarray, None]


class SQPByDifferences:
    """One descent from an evaluated point to a local minimum. `run` yields points and receives their rows in the log."""

    def __init__(self, log: EvaluationLog, row: int, hessian: np.ndarray | None = None, radius: float = float(os.environ.get('RADIUS',0.4))) -> None:
        self.log, self.row, self.hessian, self.radius = log, row, hessian, radius
        self.difference = FIRST_DIFFERENCE
        self.penalty = 0.0
        self.converged = False
        self.iterations = 0
        self.noise = float(os.environ.get('NOISE',1e-15))
        self.H = None

    def run(self) -> Moves:
        log, d = self.log, self.log.dim
        scaled = self.hessian is not None
        H = np.eye(d) if self.hessian is None else make_positive(self.hessian)
        slopes = yield from self.differentiate()
        while True:
            x, values = log.x[self.row].copy(), log.values[self.row].copy()
            if not scaled:  # the first step is as long as the radius at most
                size = float(np.linalg.norm(slopes[0]))
                H = np.eye(d) * max(size / (FIRST * self.radius), 1e-300)
                scaled = not RESCALE
            step, multipliers = self.solve(values, slopes, H, x)
            length = float(np.linalg.norm(step))
            slope = self.merit_slope(values, slopes, step, H)
            if length < 1e-11 or not slope < 0:
                if (yield from self.refine_differences()):
                    slopes = yield from self.differentiate()
                    continue
                return
            start, share = self.merit(values), 1.0
            accepted = False
            for _ in range(MAX_BACKTRACKS):
                rows = yield np.clip(x + share * step, 0.0, 1.0)[None]
                now = self.merit(log.values[rows[0]])
                if now <= start + SUFFICIENT_DECREASE * share * slope:
                    accepted = True
                    break
                fitted = -0.5 * slope * share**2 / (now - start - share * slope) if np.isfinite(now) else 0.1 * share
                share = float(np.clip(fitted, 0.1 * share, 0.5 * share))
            if not accepted:
                if (yield from self.refine_differences()):
                    slopes = yield from self.differentiate()
                    H, scaled = np.eye(d), False
                    continue
                return
            self.iterations += 1
            if os.environ.get('ADAPT'):
                if share == 1.0 and length > 0.9 * self.radius: self.radius = min(2 * self.radius, 0.5*np.sqrt(d))
                elif share < 1.0: self.radius = max(float(os.environ['ADAPT']) * share * length, 1e-12)
            gain = start - now
            self.row = int(rows[0])
            before = slopes
            self.H = H
            slopes = yield from self.differentiate()
            s = log.x[self.row] - x
            y = (slopes - before).T @ np.r_[1.0, multipliers]
            if not scaled:
                curvature = float(s @ y)
                ratio = {1: (y @ y) / curvature, 2: curvature / (s @ s), 3: curvature / (s @ s) / 100}[RESCALE]
                H = np.eye(d) * (float(ratio) if curvature > 0 else 1.0)
                scaled = True
            H = update_bfgs(H, s, y)
            if gain <= 1e-13 * max(1.0, abs(start)) and length < 1e-6:
                self.converged = True
                return

    def differentiate(self) -> Generator[np.ndarray, np.ndarray, np.ndarray]:
        """First derivatives (1 + p + q, d) at the best point, towards the inside of the box; 0 where a point failed."""
        x, values = self.log.x[self.row].copy(), self.log.values[self.row].copy()
        size = self.choose_differences(values)
        h = np.where(x + size <= 1.0, size, -size)
        points = x + np.diag(h)
        h = np.diag(points) - x
        rows = yield points
        slopes = ((self.log.values[rows] - values) / h[:, None]).T
        return np.nan_to_num(slopes)

    def choose_differences(self, values: np.ndarray) -> np.ndarray:
        """Lengths (d,) that balance rounding with the curvature, as far as that is known."""
        if self.H is None:
            return np.full(self.log.dim, self.difference)
        best = 2.0 * np.sqrt(self.noise * np.abs(values[0]) / np.maximum(np.diag(self.H), 1e-300))
        return np.clip(best, 1e-10, 1e-5)

    def refine_differences(self) -> Generator[np.ndarray, np.ndarray, bool]:
        """Take longer differences, where shorter ones led nowhere; False at the longest."""
        if self.iterations > 0 or self.difference >= LARGEST_DIFFERENCE:
            return False
        self.difference = min(self.difference * 1000.0, LARGEST_DIFFERENCE)
        return True
        yield

    def solve(self, values: np.ndarray, slopes: np.ndarray, H: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The step, and multipliers of the constraints (p + q,)."""
        log = self.log
        lower, upper = -x, 1.0 - x
        if not log.is_constrained:
            return minimize_in_box(slopes[0], H, self.radius, lower, upper), np.zeros(0)
        curvature = np.zeros((len(slopes), log.dim, log.dim))
        curvature[0] = H
        lower, upper = np.maximum(lower, -self.radius), np.minimum(upper, self.radius)
        step = minimize_with_constraints(Quadratic(values, slopes, curvature), log.n_ineq, lower, upper, log.constraint_scale())
        return step, self.multipliers(values, slopes, H, step, x)

    def multipliers(self, values: np.ndarray, slopes: np.ndarray, H: np.ndarray, step: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Least-squares multipliers of the constraints that the step makes active."""
        from scipy.optimize import nnls

        log = self.log
        linear = values[1:] + slopes[1:] @ step
        scale = log.constraint_scale()
        active = np.abs(linear) <= 1e-6 * scale
        out = np.zeros(len(linear))
        free = (x + step > 1e-12) & (x + step < 1 - 1e-12)
        if active.any() and free.any():
            pull = -(slopes[0] + H @ step)[free]
            index = np.flatnonzero(active)
            columns = slopes[1:][index][:, free].T
            is_eq = index >= log.n_ineq
            both = np.concatenate([columns, -columns[:, is_eq]], axis=1)
            size = np.linalg.norm(both, axis=0)
            size[size == 0] = 1.0
            weights = nnls(both / size, pull)[0] / size
            out[index] = weights[: len(index)]
            out[index[is_eq]] -= weights[len(index) :]
        self.penalty = max(self.penalty, 2.0 * float(np.sum(np.abs(out) * scale)))
        return out

    def merit(self, values: np.ndarray) -> float:
        violation = float(self.log.violation(values[None])[0])
        return np.inf if np.isnan(violation) else float(values[0] + self.penalty * violation)

    def merit_slope(self, values: np.ndarray, slopes: np.ndarray, step: np.ndarray, H: np.ndarray) -> float:
        """Bound of the merit's derivative along the step."""
        change = float(slopes[0] @ step)
        if not self.log.is_constrained:
            return change
        old = float(self.log.violation(values[None])[0])
        new = float(self.log.violation((values + slopes @ step)[None])[0])
        if old - new > 1e-12 and change + 0.5 * step @ H @ step > self.penalty * (old - new):
            self.penalty = 2.0 * float(change + 0.5 * step @ H @ step) / (old - new)
        return change - self.penalty * (old - new)


def make_positive(hessian: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the same eigenvectors, and the sizes of the eigenvalues, none of them tiny."""
    eigenvalues, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    sizes = np.abs(eigenvalues)
    sizes = np.maximum(sizes, float(os.environ.get("FLOOR","1e-4")) * max(float(sizes.max()), 1e-300))
    return (vectors * sizes) @ vectors.T


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
