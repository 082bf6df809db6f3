"""Results with many answers: the minima of `gx.minima`, and the grid of solutions of `gx.illuminate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from galapax.core.checks import HTMLRepr
from galapax.core.errors import InputError
from galapax.results.result import Result, describe_coverage, has_cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


MAX_SHOWN_MINIMA = 12
MAX_SHOWN_VARIABLES = 6


@dataclass(frozen=True, repr=False)
class Minima(HTMLRepr):
    """Distinct minima, one entry each, the best first (of maximised values, the largest first).

    x: of declared variables their numbers. fun, violation: their values, and how far they violate the constraints.
    share: of uniform samples, those from which the steepest straight way without a hill leads to the minimum: about the
        share of the box that its basin has.
    found: how many searches ended there. verified: whether no point of a small pattern around it is better.
    """

    variables: list[str]
    x: np.ndarray  # (k, d)
    fun: np.ndarray  # (k,)
    violation: np.ndarray  # (k,)
    share: np.ndarray  # (k,)
    found: np.ndarray  # (k,) int
    verified: np.ndarray  # (k,) bool

    def __len__(self) -> int:
        return len(self.fun)

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of the table by name."""
        numbers = {name: getattr(self, name) for name in ("fun", "violation", "share", "found", "verified")}
        return numbers | dict(zip(self.variables, self.x.T, strict=True))

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame with one row per minimum."""
        from galapax.storage.export import to_dataframe

        return to_dataframe(self)

    def as_json(self) -> dict[str, object]:
        """Return the table as lists."""
        return {name: getattr(value, "tolist", lambda v=value: v)() for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, table: dict[str, list[object]]) -> Minima:
        """Build the table from what `as_json` returned; a ValueError, KeyError or TypeError says what is wrong."""
        x = np.array(table["x"], np.float64)
        kinds = {"fun": np.float64, "violation": np.float64, "share": np.float64, "found": np.int64, "verified": bool}
        columns = {name: np.array(table[name], kind) for name, kind in kinds.items()}
        if x.ndim != 2 or any(column.shape != (len(x),) for column in columns.values()):
            raise ValueError("the columns of its minima differ in length")
        return cls([str(name) for name in table["variables"]], x, **columns)

    def __repr__(self) -> str:
        names = self.variables[:MAX_SHOWN_VARIABLES]
        lines = ["  ".join([f"{'fun':>14}", f"{'share':>7}", f"{'found':>5}", *(f"{name:>12}" for name in names)])]
        for i in range(min(len(self), MAX_SHOWN_MINIMA)):
            x = (f"{value:12.6g}" for value in self.x[i, : len(names)])
            note = "" if self.verified[i] else "  not verified"
            lines.append("  ".join([f"{self.fun[i]:14.8g}", f"{self.share[i]:7.2%}", f"{self.found[i]:5d}", *x]) + note)
        if len(self) > MAX_SHOWN_MINIMA:
            lines.append(f"and {len(self) - MAX_SHOWN_MINIMA} more")
        return "\n".join(lines)


# --- the grid of `gx.illuminate`: the best solution of each kind ------------------------------------------------------


class Illumination:
    """The elites of a run of `illuminate`: k solutions, each the best in its cell.

    x: (k, d). fun: (k,). measures: (k, m). index: (k, m), the cell of each along each measure. names: of the measures.
    cells, ranges: of the grid. result: the run as a Result, with its history, settings, timings and seed.

    A saved run is opened again by `gx.Illumination(gx.load(folder))`.
    """

    def __init__(self, result: Result) -> None:
        settings: dict[str, Any] = result.settings["hyperparameters"]
        if not has_cells(result):
            raise InputError("an Illumination is made of a result of gx.illuminate; this result has no cells.")
        self.result = result
        self.cells: tuple[int, ...] = tuple(settings["cells"])
        self.ranges = np.asarray(settings["ranges"], np.float64)
        self.names = tuple(result.problem.objective_names(1 + len(self.cells))[1:])
        values = np.asarray(result.population_fitness, np.float64)
        self._is_filled = is_filled = np.isfinite(values).all(axis=1)
        self.x: np.ndarray = np.asarray(result.population)[is_filled]
        self.fun, self.measures = values[is_filled, 0], values[is_filled, 1:]
        self.index = np.stack(np.unravel_index(np.flatnonzero(is_filled), self.cells), axis=1)

    @property
    def maximizes(self) -> bool:
        return bool(self.result.settings["maximize"][0])

    @property
    def coverage(self) -> float:
        """The share of cells that have an elite."""
        return len(self.fun) / int(np.prod(self.cells))

    @cached_property
    def best(self) -> int:
        """The row of the best elite."""
        if not len(self.fun):
            raise InputError("no cell has an elite, so there is no best one; see result.message.")
        return int(np.argmax(self.fun) if self.maximizes else np.argmin(self.fun))

    def qd_score(self, worst: float | None = None) -> float:
        """Sum by how much the elites are better than `worst`, by default the worst of them."""
        if not len(self.fun):
            return 0.0
        gains = self.fun if self.maximizes else -self.fun
        level = float(np.min(gains)) if worst is None else (worst if self.maximizes else -worst)
        return float(np.sum(gains - level))

    @cached_property
    def values(self) -> np.ndarray:
        """The value of each cell's elite, an array with an axis for each measure; NaN where there is none."""
        values = np.full(self.cells, np.nan)
        values[tuple(self.index.T)] = self.fun
        return values

    def nearest(self, *measures: float) -> int:
        """The row of the elite whose measures are closest to these, in units of the ranges."""
        if len(measures) != len(self.cells):
            raise InputError(f"nearest takes {len(self.cells)} measures, {', '.join(self.names)}; got {len(measures)}.")
        span = self.ranges[:, 1] - self.ranges[:, 0]
        return int(np.argmin(np.sum(((self.measures - np.asarray(measures)) / span) ** 2, axis=1)))

    def run(self, number: int) -> Illumination:
        """Run `number` of several runs."""
        return Illumination(self.result.run(number))

    def to_dataframe(self) -> DataFrame:
        """One row for each elite: variables, value, measures."""
        return self.result.to_dataframe("population")[self._is_filled].reset_index(drop=True)

    def save(self, folder: str | Path, **options: Any) -> Path:
        """Write the run to a folder, as `Result.save` does."""
        return self.result.save(folder, **options)

    def plot(self, ax: Axes | None = None) -> Figure:
        """Draw the value of each cell over one or two measures."""
        from galapax.view.plots import elites  # needs matplotlib

        return elites(self, ax)

    def __len__(self) -> int:
        return len(self.fun)

    def describe_map(self) -> list[str]:
        """Say in sentences how much of the map is filled, and which elite is the best."""
        sentences = [describe_coverage(self.result)]
        if len(self):
            measures = zip(self.names, self.measures[self.best], strict=True)
            facts = ", ".join(f"{name} {value:.6g}" for name, value in measures)
            sentences.append(f"best elite: {self.fun[self.best]:.10g}, at {facts}")
        return sentences

    def __repr__(self) -> str:
        lines = self.describe_map()
        lines.append(f"evaluations: {self.result.nfev:,}, generations: {self.result.nit:,}")
        return "\n".join(lines)
