"""Islands: several populations per run that exchange individuals from time to time.

Whitley, Rana & Heckendorn (1999), Journal of Computing and Information Technology 7:33-47, on why it helps and when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from galapax.core.checks import check_integer
from galapax.core.errors import InputError
from galapax.core.stability import experimental

Topology = Literal["ring", "torus", "complete", "random"]


@experimental
@dataclass(frozen=True)
class Islands:
    """A run as several populations, each on an island of its own.

    count: islands per run, each with the algorithm's whole population.
    migrate_every: generations between two migrations.
    migrants: individuals that every island receives at a migration; they take the place of that many candidates and are
        evaluated with the others, so a migration costs no extra evaluations.
    topology: where they come from. "ring": the island before. "torus": the four neighbours on a grid in turn.
        "complete": every other island in turn. "random": islands drawn anew each time.
    send: "best" sends the best survivors (of several objectives, points of the first front), "random" any of them.
    replace: "worst" gives a migrant the place of the candidate whose parent is worst, "random" any place.
    """

    count: int = 4
    migrate_every: int = 20
    migrants: int = 2
    topology: Topology = "ring"
    send: Literal["best", "random"] = "best"
    replace: Literal["worst", "random"] = "worst"

    def check(self, population: int) -> None:
        """Check the fields, for islands with populations of this size."""
        check_integer(self.count, "islands: count", 1)
        check_integer(self.migrate_every, "islands: migrate_every", 1)
        most = max(1, population // 2)
        if check_integer(self.migrants, "islands: migrants", 1) > most:
            raise InputError(
                f"islands: migrants must be at most half a population, {most} of {population}; got {self.migrants}."
            )
        choices = {"topology": get_args(Topology), "send": ("best", "random"), "replace": ("worst", "random")}
        for name, options in choices.items():
            if getattr(self, name) not in options:
                names = ", ".join(f'"{option}"' for option in options[:-1]) + f' or "{options[-1]}"'
                raise InputError(f"islands: {name} must be {names}; got {getattr(self, name)!r}.")

    def routes(self, turn: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where migrants come from: their island, and their index among those that it sends, (count, migrants).

        turn: the number of the migration, from 1.
        """
        island, slot = np.arange(self.count)[:, None], np.arange(self.migrants)[None, :]
        n_others = max(1, self.count - 1)
        if self.topology == "ring":
            source = np.broadcast_to((island - 1) % self.count, (self.count, self.migrants))
        elif self.topology == "torus":
            rows = max(r for r in range(1, math.isqrt(self.count) + 1) if self.count % r == 0)
            columns = self.count // rows
            row, column = island // columns, island % columns
            around = [(0, -1), (0, 1)] if rows == 1 else [(0, -1), (-1, 0), (0, 1), (1, 0)]
            moves = np.array(around)[(slot + (turn - 1) * self.migrants) % len(around)]
            source = (row + moves[..., 0]) % rows * columns + (column + moves[..., 1]) % columns
        elif self.topology == "complete":
            source = (island + 1 + ((turn - 1) * self.migrants + slot) % n_others) % self.count
        else:
            draws = np.random.default_rng([seed, turn])
            source = (island + 1 + draws.integers(n_others, size=(self.count, self.migrants))) % self.count
        before = source[:, :, None] == source[:, None, :]
        return source, (np.tril(np.ones((self.migrants, self.migrants), int), -1) * before).sum(axis=2)


def parse_islands(islands: object) -> Islands | None:
    """Convert the argument `islands`, an Islands or their number."""
    if islands is None or isinstance(islands, Islands):
        return islands
    if isinstance(islands, bool) or not isinstance(islands, int | np.integer):
        raise InputError(f"islands must be a galapax.Islands, or how many islands there are; got {islands!r}.")
    return Islands(int(islands))
