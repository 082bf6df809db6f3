"""Reads and writes the CSV, NPZ and JSON files of a saved run; errors name the damaged file."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from galapax.core.checks import abbreviate, escape_csv, unique_headings
from galapax.core.errors import InputError
from galapax.storage.manifest import Saved

FORMAT = 1

# what reading damaged bytes raises
READ_ERRORS = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
          MemoryError, SyntaxError, BadZipFile, zlib.error, csv.Error, struct.error)  # fmt: skip


@contextmanager
def naming_file_errors(file: Path) -> Iterator[None]:
    """Turn errors of reading damaged content into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except READ_ERRORS as error:
        raise damaged_file_error(file, error) from None


def damaged_file_error(file: Path, error: BaseException) -> InputError:
    """Build the error for a file whose content is damaged."""
    # our own say what is wrong; of others the kind says more than the text, which may be empty or about its own insides
    is_own_message = type(error) is ValueError and str(error).startswith(("it ", "its ", "rows ", "there "))
    reason = str(error) if is_own_message else f"{type(error).__name__}: {str(error)[:200]}"
    return InputError(f"{file} is damaged ({reason}); repeat the run.")


def write_json(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(to_json(data), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_json(saved: Saved, name: str) -> dict[str, Any]:
    """Read a JSON file, if this version knows its format."""
    file = saved.folder / name
    with naming_file_errors(file):
        try:
            text = saved.read(name)
        except ValueError:
            _refuse_newer_file(file)  # a later version may have written it, and keep its books elsewhere
            raise
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("it contains no JSON object")
        version = data.pop("format")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"it has the format {version!r}")
        refuse_newer(file, version)
        if data.pop("manifest", False) and saved.files is None:
            raise ValueError("it was written with a manifest.json, which is missing")
        return data


def _refuse_newer_file(file: Path) -> None:
    try:
        version = json.loads(file.read_bytes())["format"]
    except READ_ERRORS:
        return
    if isinstance(version, int):
        refuse_newer(file, version)


def refuse_newer(file: Path, version: int) -> None:
    if version > FORMAT:
        raise InputError(
            f"{file} has format {abbreviate(version)}, written by a newer galapax; this one reads up to {FORMAT}."
        )


def to_json(value: Any) -> Any:
    """Convert a value to JSON types; NaN and infinities become null."""
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
    """Write arrays of numbers or text. Before NumPy 2.2 `allow_pickle` would be saved as an array of that name."""
    if any(np.asarray(array).dtype.hasobject for array in arrays.values()):
        raise TypeError(f"{file.name} can hold arrays of numbers or text alone.")
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no name of ours is allow_pickle


def read_npz(saved: Saved, name: str) -> dict[str, np.ndarray]:
    """The arrays of an archive by name, all of them numbers.

    Not by `np.load`, which believes what an archive says of its size: a file of 2 MB can unpack to 2 GB. Galapax
    compresses nothing, so that arrays never need more memory than the file has bytes.
    """
    with naming_file_errors(saved.folder / name):
        content = saved.read(name)
        with ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if any(member.compress_type != ZIP_STORED for member in members):
                raise ValueError("it is compressed, as no archive that galapax writes is")
            if sum(max(member.file_size, member.compress_size) for member in members) > len(content):
                raise ValueError("it declares more bytes than it has")
            return {member.filename.removesuffix(".npy"): _parse_array(archive, member) for member in members}


def _parse_array(archive: ZipFile, member: ZipInfo) -> np.ndarray:
    """The array of a member, if it has exactly the bytes that its header declares."""
    content = archive.read(member)
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, is_fortran_order, dtype = read_header(stream)
    if dtype.kind not in "biuf":
        raise ValueError(f"its array {abbreviate(member.filename)} contains no numbers")
    start = stream.tell()
    if math.prod(shape) * dtype.itemsize != len(content) - start:
        raise ValueError(f"its array {abbreviate(member.filename)} has other bytes than its shape needs")
    # no memoryview of our own: one in the frames of an exception crashes the garbage collector of Python 3.12.1
    return np.frombuffer(content, dtype, offset=start).reshape(shape, order="F" if is_fortran_order else "C").copy()


Labels = dict[int, tuple[Any, ...]]  # by the place of a column: the texts and numbers that its numbers stand for


NON_FINITE_CELLS = ("nan", "inf", "-inf")  # the cells of numbers that stand for no label


def write_csv(file: Path, names: list[str], table: np.ndarray, labels: Labels | None = None) -> None:
    file.write_text(csv_text(names, table, labels), encoding="utf-8", newline="")


def csv_text(names: list[str], table: np.ndarray, labels: Labels | None = None) -> str:
    """Format a table as CSV, with labels in the columns whose numbers encode them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(unique_headings(names))
    if not labels:
        np.savetxt(out, table, delimiter=",", fmt="%.17g")
        return out.getvalue()
    cells = {i: label_cells(column) for i, column in labels.items()}
    for row in table.tolist():
        writer.writerow(cells[i][int(v)] if i in cells and math.isfinite(v) else f"{v:.17g}" for i, v in enumerate(row))
    return out.getvalue()


def label_columns(problem: Any, first_variable: int | None) -> Labels:
    """Which columns of a table hold choices among texts. first: the column of the first variable; None: it has none."""
    if problem.space is None or first_variable is None:
        return {}
    variables = enumerate(problem.space.variables)
    return {first_variable + i: v.labels for i, v in variables if v.kind == "choice" and not v.numeric}


def label_cells(labels: tuple[Any, ...]) -> list[str]:
    """The cell of a table for each label, all different, none of them that of a number which is missing."""
    numbers = {*NON_FINITE_CELLS, *(repr(label) for label in labels if not isinstance(label, str))}
    cells = [escape_csv(label) if isinstance(label, str) else repr(label) for label in labels]
    return [
        f"'{cell}" if isinstance(label, str) and cell in numbers else cell
        for label, cell in zip(labels, cells, strict=True)
    ]


def _cell_codes(labels: tuple[Any, ...]) -> dict[str, float]:
    """Map the cells of labels to their codes, also cells as earlier versions wrote them (not always distinct)."""
    codes = {str(cell): float(i) for i, label in enumerate(labels) for cell in (label, escape_csv(label))}
    for cell in NON_FINITE_CELLS:
        codes.pop(cell, None)
    return codes | {cell: float(i) for i, cell in enumerate(label_cells(labels))}


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as CSV, with the union of their columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(unique_headings(names))
        writer.writerows([escape_csv(row[name]) if name in row else "" for name in names] for row in rows)


def read_csv(
    saved: Saved,
    name: str,
    columns: int | None = None,
    may_be_empty: bool = False,
    labels: Callable[[list[str]], Labels] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """The numbers of a table, and the names of its columns. labels: says which of the columns hold labels."""
    with naming_file_errors(saved.folder / name):
        text = saved.read(name).decode("utf-8")
        if not text:
            raise ValueError("it is empty")
        if not text.endswith("\n"):
            raise ValueError("it is truncated: its last line is incomplete")
        names, *rows = list(csv.reader(io.StringIO(text, newline="")))
        codes = {i: _cell_codes(column) for i, column in labels(names).items()} if labels else {}
        cells = (
            [[codes[i].get(c, c) if i in codes else c for i, c in enumerate(row)] for row in rows] if codes else rows
        )
        table = np.array([[float(cell) for cell in row] for row in cells], np.float64)
        if may_be_empty and not rows:
            table = np.zeros((0, len(names)))
        if table.ndim != 2 or table.shape[1] != len(names) or (columns is not None and table.shape[1] != columns):
            raise ValueError("rows or columns are missing")
        return table, names


def parse_counts(column: np.ndarray) -> np.ndarray:
    """Convert a column of whole numbers to integers."""
    if not (np.abs(column) < 2.0**62).all() or (column != np.floor(column)).any():
        raise ValueError("its counts are not whole numbers")
    return column.astype(int)
