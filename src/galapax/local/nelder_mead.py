"""The simplex method of Nelder and Mead, for functions that no quadratic fits.

Nelder & Mead (1965), doi:10.1093/comjnl/7.4.308, with the coefficients of Gao & Han (2012),
doi:10.1007/s10589-010-9329-3, which depend on the number of variables. Vertices are clipped to the box.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from galapax.local.log import EvaluationLog

FINAL_SIZE = 1e-9  # of the simplex, share of the box, at which a search ends

Moves = Generator[np.ndarray, np.ndarray, None]


class NelderMead:
    """One search from an evaluated point; `run` yields points of the unit box and receives their rows.

    size: edges of the first simplex, share of the box.
    """

    def __init__(self, log: EvaluationLog, row: int, size: float = 0.1) -> None:
        self.log, self.rows, self.size = log, np.array([row]), size
        self.converged = False

    @property
    def row(self) -> int:
        """The best vertex."""
        return int(self.rows[0])

    def sort(self) -> None:
        """Put the best vertex first: feasible ones by objective, others by violation, failed ones last."""
        violation, objective = self.log.violation()[self.rows], self.log.objective[self.rows]
        failed = np.isnan(violation)
        order = np.lexsort((np.where(failed, 0.0, objective), np.where(failed, np.inf, violation)))
        self.rows = self.rows[order]

    def is_better(self, row: int, other: int) -> bool:
        violation, objective = self.log.violation()[[row, other]], self.log.objective[[row, other]]
        if np.isnan(violation).any():
            return bool(np.isnan(violation[1]) and not np.isnan(violation[0]))
        return (violation[0], objective[0]) < (violation[1], objective[1])

    def run(self) -> Moves:
        log, d = self.log, self.log.dim
        expansion, contraction, shrinkage = 1.0 + 2.0 / d, 0.75 - 0.5 / d, 1.0 - 1.0 / max(d, 2)
        x = log.x[self.row]
        edges = np.where(x + self.size <= 1.0, self.size, -self.size)
        self.rows = np.append(self.rows, (yield np.clip(x + np.diag(edges), 0.0, 1.0)))
        while True:
            self.sort()
            vertices = log.x[self.rows]
            if np.max(np.abs(vertices[1:] - vertices[0])) < FINAL_SIZE:
                self.converged = True
                return
            middle = vertices[:-1].mean(axis=0)
            away = middle - vertices[-1]
            reflected = int((yield np.clip(middle + away, 0.0, 1.0)[None])[0])
            if self.is_better(reflected, self.row):
                expanded = int((yield np.clip(middle + expansion * away, 0.0, 1.0)[None])[0])
                self.rows[-1] = expanded if self.is_better(expanded, reflected) else reflected
                continue
            if self.is_better(reflected, int(self.rows[-2])):
                self.rows[-1] = reflected
                continue
            side = contraction if self.is_better(reflected, int(self.rows[-1])) else -contraction
            contracted = int((yield np.clip(middle + side * away, 0.0, 1.0)[None])[0])
            if self.is_better(contracted, reflected if side > 0 else int(self.rows[-1])):
                self.rows[-1] = contracted
                continue
            self.rows[1:] = yield vertices[0] + shrinkage * (vertices[1:] - vertices[0])
