"""The table of distinct minima that `gx.minima` returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from galapax.core.checks import HTMLRepr

if TYPE_CHECKING:
    from pandas import DataFrame

MAX_SHOWN_MINIMA = 12
MAX_SHOWN_VARIABLES = 6


@dataclass(frozen=True, repr=False)
class Minima(HTMLRepr):
    """Distinct minima, one entry each, the best first (of maximised values, the largest first).

    x: of declared variables their numbers. fun, violation: their values, and how far they violate the constraints.
    share: of the uniform samples that were clustered, those in the niche of the minimum, about its share of the box.
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
