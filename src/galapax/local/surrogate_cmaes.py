"""CMA-ES that evaluates only as many offspring as it takes to trust a quadratic model's ranking of the others.

Hansen (2019), "A global surrogate assisted CMA-ES", GECCO, 664-672, doi:10.1145/3321707.3321842; CMA-ES as in Hansen
(2016), arXiv:1604.00772. Differs from the papers: the model is fitted in the coordinates of the distribution, and
offspring are reflected into the box.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from galapax.local.log import SampleLog
from galapax.local.trust_region import minimize_in_ball
from galapax.operators.surrogate import AGREEMENT, BEST_WEIGHT

MIN_COMPARED = 15  # latest points that are compared, at least
MAX_STALL_SHARE = 1e-12

Moves = Generator[np.ndarray, np.ndarray, None]


class SurrogateCMAES:
    """One search from a mean and a step size; `run` yields points of the unit box and receives their rows.

    n_parallel: offspring that are evaluated at a time, at least.
    """

    def __init__(
        self,
        log: SampleLog,
        mean: np.ndarray,
        sigma: float,
        rng: np.random.Generator,
        population: int | None = None,
        n_parallel: int = 1,
    ) -> None:
        self.log, self.mean, self.sigma, self.rng, self.n_parallel = log, mean.copy(), sigma, rng, n_parallel
        self.population = population or 4 + int(3 * math.log(log.dim))
        self.rows: list[int] = []
        self.agreement = 0.0
        self.converged = False

    def ranks(self, rows: list[int] | np.ndarray) -> np.ndarray:
        """The objective of evaluated points, worse than any other where a point is infeasible or failed."""
        log = self.log
        objective, violation = log.objective[rows], log.violation()[rows]
        feasible = violation <= 0
        if feasible.all():
            return objective
        worst = float(np.max(objective[feasible])) if feasible.any() else 0.0
        spread = float(np.ptp(objective[feasible])) if feasible.any() else 1.0
        failed = np.isnan(violation)
        limit = float(np.max(violation[~failed])) if (~failed).any() else 0.0
        beyond = worst + (spread + 1.0) * (1.0 + np.where(failed, limit + 1.0, violation))
        return np.where(feasible, objective, beyond)

    def run(self) -> Moves:
        d, lam, rng = self.log.dim, self.population, self.rng
        mu = lam // 2
        weights = math.log((lam + 1) / 2) - np.log(np.arange(1, mu + 1))
        weights /= weights.sum()
        mueff = 1.0 / float(np.sum(weights**2))
        cc = (4 + mueff / d) / (d + 4 + 2 * mueff / d)
        cs = (mueff + 2) / (d + mueff + 5)
        c1 = 2 / ((d + 1.3) ** 2 + mueff)
        cmu = min(1 - c1, 2 * (mueff - 2 + 1 / mueff) / ((d + 2) ** 2 + mueff))
        damps = 1 + 2 * max(0.0, math.sqrt((mueff - 1) / (d + 1)) - 1) + cs
        chi = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))
        C, pc, ps = np.eye(d), np.zeros(d), np.zeros(d)
        generation = 0
        best_history: list[float] = []
        while True:
            generation += 1
            eigenvalues, B = np.linalg.eigh(C)
            D = np.sqrt(np.maximum(eigenvalues, 1e-20))
            if self.sigma * float(D.max()) < 1e-9 or D.max() / D.min() > 1e7:
                self.converged = True
                return
            x = self.mean + self.sigma * (rng.standard_normal((lam, d)) * D) @ B.T
            whiten = (B / D).T / self.sigma
            model = self.fit(whiten)
            if model is not None and generation % 2:
                best = self.minimize_model(model)
                length = float(np.linalg.norm(best))
                best *= min(1.0, (math.sqrt(d) + 2) / max(length, 1e-300))
                x[0] = self.mean + self.sigma * B @ (D * best)
            x = reflect(x)
            values = yield from self.evaluate(x, whiten)
            order = np.argsort(values, kind="stable")
            best_history.append(float(values[order[0]]))
            old = self.mean
            y = (x[order[:mu]] - old) / self.sigma
            step = weights @ y
            self.mean = old + self.sigma * step
            ps = (1 - cs) * ps + math.sqrt(cs * (2 - cs) * mueff) * B @ ((B.T @ step) / D)
            size = float(np.linalg.norm(ps))
            h = size / math.sqrt(1 - (1 - cs) ** (2 * generation)) / chi < 1.4 + 2 / (d + 1)
            pc = (1 - cc) * pc + h * math.sqrt(cc * (2 - cc) * mueff) * step
            C = (1 - c1 - cmu) * C + c1 * (np.outer(pc, pc) + (not h) * cc * (2 - cc) * C) + cmu * (y.T * weights) @ y
            self.sigma *= math.exp(min(1.0, (cs / damps) * (size / chi - 1)))
            self.sigma = min(self.sigma, 1.0 / float(D.max()))
            recent = best_history[-(10 + math.ceil(30 * d / lam)) :]
            if len(recent) == 10 + math.ceil(30 * d / lam) and np.ptp(recent) <= MAX_STALL_SHARE * max(
                1.0, abs(recent[-1])
            ):
                self.converged = True
                return

    def evaluate(self, x: np.ndarray, whiten: np.ndarray) -> Generator[np.ndarray, np.ndarray, np.ndarray]:
        """Values (n,) of the offspring: evaluated ones, and of the others what the model says."""
        n = len(x)
        row_of = np.full(n, -1)
        model = self.fit(whiten)
        count = 1
        while True:
            waiting = np.flatnonzero(row_of < 0)
            if model is None:
                batch = waiting
            else:
                predicted = self.predict(model, x[waiting], whiten)
                batch = waiting[np.argsort(predicted, kind="stable")[: max(count, self.n_parallel)]]
            rows = yield x[batch]
            row_of[batch] = rows
            self.rows += list(rows)
            waiting = np.flatnonzero(row_of < 0)
            if not len(waiting):
                return self.ranks(row_of)
            model = self.fit(whiten)
            if model is None:
                continue
            evaluated = n - len(waiting)
            compared = np.array(self.rows[-max(MIN_COMPARED, min(int(1.2 * evaluated), int(0.75 * n))) :])
            truth = self.ranks(compared)
            self.agreement = kendall_tau(self.predict(model, self.log.x[compared], whiten), truth)
            if self.agreement >= AGREEMENT:
                values = self.predict(model, x, whiten)
                evaluated_rows = row_of >= 0
                true = self.ranks(row_of[evaluated_rows])
                values += np.min(true) - np.min(values[evaluated_rows])
                values[~evaluated_rows] = np.maximum(values[~evaluated_rows], np.min(true))
                values[evaluated_rows] = true
                return values
            count = math.ceil(max(1, evaluated) / 2)

    def fit(self, whiten: np.ndarray) -> np.ndarray | None:
        """Coefficients of a weighted regression on the latest points, as rich as their number allows."""
        d = self.log.dim
        full = (d + 1) * (d + 2) // 2
        rows = np.array(self.rows[-2 * full :], int)
        if len(rows) < d + 3:
            return None
        values = self.ranks(rows)
        order = np.argsort(values, kind="stable")
        n = len(rows)
        kind = 2 if n >= 1.1 * full else 1 if n >= 1.1 * (2 * d + 1) else 0
        columns = self.features((self.log.x[rows[order]] - self.mean) @ whiten.T, kind)
        weights = np.linspace(BEST_WEIGHT, 1.0, n)
        scaled = columns * weights[:, None]
        normal = scaled.T @ columns
        normal += 1e-9 * np.trace(normal) / len(normal) * np.eye(len(normal))
        shift = values[order[0]]
        coefficients = np.linalg.solve(normal, scaled.T @ (values[order] - shift))
        coefficients[0] += shift
        return coefficients

    def features(self, u: np.ndarray, kind: int) -> np.ndarray:
        """Columns of a linear, a separable quadratic or a full quadratic model of points (n, d)."""
        n, d = u.shape
        out = [np.ones((n, 1)), u]
        if kind >= 1:
            out.append(u * u)
        if kind == 2:
            i, j = np.triu_indices(d, 1)
            out.append(u[:, i] * u[:, j])
        return np.concatenate(out, axis=1)

    def predict(self, coefficients: np.ndarray, x: np.ndarray, whiten: np.ndarray) -> np.ndarray:
        d, size = self.log.dim, len(coefficients)
        kind = 0 if size == d + 1 else 1 if size == 2 * d + 1 else 2
        return self.features((x - self.mean) @ whiten.T, kind) @ coefficients

    def minimize_model(self, coefficients: np.ndarray) -> np.ndarray:
        """The minimiser of the model, in the coordinates of the distribution."""
        d = self.log.dim
        hessian = np.zeros((d, d))
        if len(coefficients) > d + 1:
            hessian[np.diag_indices(d)] = 2 * coefficients[d + 1 : 2 * d + 1]
        if len(coefficients) > 2 * d + 1:
            i, j = np.triu_indices(d, 1)
            hessian[i, j] = hessian[j, i] = coefficients[2 * d + 1 :]
        return minimize_in_ball(coefficients[1 : d + 1], hessian, math.sqrt(d) + 2)


def kendall_tau(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's rank correlation (tau-b) of two lists of numbers; 0 where one of them is constant."""
    upper = np.triu_indices(len(a), 1)
    orders = [np.sign(values[:, None] - values[None, :])[upper] for values in (a, b)]
    size = np.sqrt(np.sum(orders[0] ** 2) * np.sum(orders[1] ** 2))
    return float(np.sum(orders[0] * orders[1]) / size) if size > 0 else 0.0


def reflect(x: np.ndarray) -> np.ndarray:
    """Points (n, d) reflected at the sides of the unit box until they are inside."""
    x = np.mod(x, 2.0)
    return np.where(x > 1.0, 2.0 - x, x)
