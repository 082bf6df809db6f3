"""Files of a saved run: CSV, NPZ and JSON, written so that a broken one is noticed, read so that it is named."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from galapax.core.errors import InputError

FORMAT = 1

# All that a folder may hold, the drawings too: what an earlier run left there must not stand for this one's.
FILES = (
    "result.json",
    "history.csv",
    "population.csv",
    "front.csv",
    "runs.csv",
    "fronts.csv",
    "histories.npz",
    "snapshots.npz",
    "convergence.png",
    "front.png",
    "report.html",
)
STUDY_FILES = (
    "study.json",
    "data.npz",
    "runs.csv",
    "curves.csv",
    "summary.csv",
    "summary.md",
    "summary.tex",
    "convergence.png",
    "ecdf.png",
    "report.html",
)


@contextmanager
def emptied(path: Path) -> Iterator[None]:
    """A folder without what an earlier run left in it; a full disk or a missing right is told in a sentence."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in (*FILES, *STUDY_FILES):
            (path / name).unlink(missing_ok=True)
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"The run could not be saved to {path}: {why}. The result itself is intact.") from error


@contextmanager
def whole(file: Path) -> Iterator[None]:
    """Name the file when what is in it is not what should be."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, BadZipFile) as error:
        raise InputError(
            f"{file} is damaged ({type(error).__name__}: {error}); the run has to be made again."
        ) from None


def write_json(file: Path, data: dict[str, Any]) -> None:
    part = file.with_name(file.name + ".part")
    part.write_text(json.dumps(to_json(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(file)


def read_json(file: Path) -> dict[str, Any]:
    data = json.loads(file.read_text(encoding="utf-8"))
    version = int(data.pop("format"))
    if version > FORMAT:
        raise InputError(f"{file} has format {version}, written by a newer galapax; this one reads up to {FORMAT}.")
    return data


def to_json(value: Any) -> Any:
    """JSON's own types; numbers that JSON lacks (NaN, inf) become null."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return to_json(value.tolist())
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, np.generic):
        return to_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_npz(file: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(file, allow_pickle=False, **arrays)


def write_csv(file: Path, names: list[str], table: np.ndarray) -> None:
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerow(names)
        np.savetxt(out, table, delimiter=",", fmt="%.17g")


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    """A table with the names of all its rows' columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(file: Path, columns: int | None = None, may_be_empty: bool = False) -> tuple[np.ndarray, list[str]]:
    """The numbers of a table, and the names of its columns."""
    with whole(file), file.open(encoding="utf-8", newline="") as lines:
        names, *rows = list(csv.reader(lines))
        table = np.array([[float(cell) for cell in row] for row in rows], np.float64)
        if may_be_empty and not rows:
            table = np.zeros((0, len(names)))
        if table.ndim != 2 or table.shape[1] != len(names) or (columns is not None and table.shape[1] != columns):
            raise ValueError("rows or columns are missing")
        return table, names
