"""The history of runs, chunk by chunk. That of very many runs stays on an accelerator until somebody asks for it: most
users of a hundred thousand runs never do, and fetching it takes several times as long as the runs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax

from galapax.engines import programs
from galapax.numerics import devices

MAX_BYTES_FETCHED_AT_ONCE = 2**24  # bytes of a chunk that are not fetched at once
MAX_MEMORY_SHARE = 1 / 16  # of the memory that is free, which all such chunks of a batch may take


class DeviceChunk(NamedTuple):
    """A chunk that is still on the device."""

    pieces: list[Any]  # rows (g, columns, R), one piece after another
    length: int  # so many rows of them count

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(piece.nbytes for piece in self.pieces)

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate(jax.device_get(self.pieces))[: self.length]


Chunk = np.ndarray | DeviceChunk  # rows (g, columns, R)


def keep_on_device(latest: list[list[Any]], earlier: list[list[Chunk]]) -> bool:
    """Whether the last chunks of slices, as pieces on the device, are to stay there. earlier: those before."""
    if (
        devices.on_cpu()
        or (size := sum(piece.nbytes for batch_pieces in latest for piece in batch_pieces)) <= MAX_BYTES_FETCHED_AT_ONCE
    ):
        return False
    before = sum(chunk.size for batch_pieces in earlier for chunk in batch_pieces if isinstance(chunk, DeviceChunk))
    return before + size < MAX_MEMORY_SHARE * devices.free_memory()


def truncate(pieces: list[np.ndarray], length: int) -> np.ndarray:
    """A chunk that was fetched, of which so many rows count."""
    rows = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    # no view of a larger array, which would keep all of it
    return rows if len(rows) == length else rows[:length].copy()


def concatenate_chunks(chunks: list[Chunk]) -> np.ndarray | None:
    """All rows, fetched."""
    rows = [chunk.rows if isinstance(chunk, DeviceChunk) else chunk for chunk in chunks]
    return np.concatenate(rows) if len(rows) > 1 else rows[0] if rows else None


class LazyHistory:
    """A history (R, G, columns) that was left on the device."""

    def __init__(self, chunks: list[Chunk], generations: np.ndarray) -> None:
        self._chunks, self._generations = chunks, generations

    @cached_property
    def whole(self) -> np.ndarray:
        rows = concatenate_chunks(self._chunks)
        assert rows is not None
        self._chunks = [rows]
        return _runs_first(rows, self._generations)

    def of_run(self, run: int) -> np.ndarray:
        """That of one run, (1, G, columns)."""
        number = np.int32(run)
        pieces = []
        for chunk in self._chunks:
            if isinstance(chunk, DeviceChunk):
                run_pieces = [programs.call(_slice_run, (), piece, number) for piece in chunk.pieces]
                pieces.append(np.concatenate(jax.device_get(run_pieces))[: chunk.length])
            else:
                pieces.append(chunk[:, :, run : run + 1])
        rows = np.concatenate(pieces)[: int(self._generations.max())]
        return _runs_first(rows, self._generations[run : run + 1], len(rows))


def _slice_run(rows: Array, run: Array) -> Array:
    return lax.dynamic_slice_in_dim(rows, run, 1, axis=2)


def of_run(history: np.ndarray | LazyHistory, run: int) -> np.ndarray:
    """That of one run, (1, G, columns)."""
    return history.of_run(run) if isinstance(history, LazyHistory) else history[run : run + 1]


def to_host(history: np.ndarray | LazyHistory | None) -> np.ndarray | None:
    return history.whole if isinstance(history, LazyHistory) else history


def build_history(chunks: list[Chunk], generations: np.ndarray) -> np.ndarray | LazyHistory:
    """The history (R, G, columns) of runs that made so many generations; a finished run's last row is repeated."""
    if any(isinstance(chunk, DeviceChunk) for chunk in chunks):
        return LazyHistory(chunks, generations)
    rows = concatenate_chunks(chunks)
    assert rows is not None
    return _runs_first(rows, generations)


def _runs_first(rows: np.ndarray, generations: np.ndarray, n_generations: int | None = None) -> np.ndarray:
    """Rows (g, columns, R) as (R, G, columns). most: G, if not what the longest of these runs made."""
    history = rows.transpose(2, 0, 1)[:, : int(generations.max()) if n_generations is None else n_generations]
    if int(generations.min()) == history.shape[1]:
        return history
    last = np.minimum(np.arange(history.shape[1])[None, :], generations[:, None] - 1)
    return np.take_along_axis(history, last[:, :, None], axis=1)
