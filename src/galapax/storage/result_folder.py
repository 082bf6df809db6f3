"""A saved run or study: a folder of plain files that is written as a whole and can be loaded again.

result.json (or study.json) and arrays.npz hold everything that `load` reads. The tables beside them are CSV files for
people and other programs, and are never read back; pictures, a report and manifest.json complete the folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import atomic
from galapax.storage.atomic import SavedFiles
from galapax.storage.export import csv_files
from galapax.storage.result_format import (
    FORMAT,
    JSON,
    Arrays,
    add_arrays,
    result_from_json,
    result_to_arrays,
    result_to_json,
    study_from_json,
    study_to_json,
)

ARRAYS = "arrays.npz"
MAX_LOAD_ATTEMPTS = 10  # while other processes save into the same folder


# --- save -------------------------------------------------------------------------------------------------------------

Drawings = Mapping[str, Callable[[Path], object]]  # {file name: writes that file}, of what others draw into a folder


def save(source: Result | Study, folder: str | Path, pictures: Drawings | None = None) -> Path:
    """Write a result or a study to a folder, in place of what an earlier run left there.

    Written are result.json or study.json, arrays.npz, the tables of `export.csv_files`, and manifest.json, which lists
    them all. The earlier run is replaced all at once, when the new files are complete.
    pictures: further files and what writes each, given its path: figures, a page, tables in other formats.
    """

    file = next((path for path in (Path(folder), *Path(folder).parents) if path.exists() and not path.is_dir()), None)
    if file is not None:
        raise NotADirectoryError(
            f"The run could not be saved to {folder}: {file} is a file, and a run needs a folder; give another name. "
            "The result itself is intact."
        )

    def write_numbers(stage: Path) -> None:
        for name, text in csv_files(source).items():
            (stage / name).write_text(text, encoding="utf-8", newline="")
        if isinstance(source, Study):
            cells = [result_to_arrays(result) for result in source.results]
            arrays = {f"{i}.{name}": array for i, cell in enumerate(cells) for name, array in cell.items()}
            _write_json(stage / "study.json", study_to_json(source))
        else:
            arrays = result_to_arrays(source)
            _write_json(stage / "result.json", result_to_json(source))
        _write_npz(stage / ARRAYS, arrays)

    return _replace_run(Path(folder), write_numbers, pictures or {})


def _write_json(file: Path, data: JSON) -> None:
    file.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _write_npz(file: Path, arrays: Arrays) -> None:
    """Write arrays of numbers. Before NumPy 2.2 `allow_pickle` would be saved as an array of that name."""
    if any(np.asarray(array).dtype.hasobject for array in arrays.values()):
        raise TypeError(f"{file.name} can hold arrays of numbers alone.")
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no name of ours is allow_pickle


def _replace_run(folder: Path, write_numbers: Callable[[Path], None], pictures: Drawings) -> Path:
    """Replace the run in `folder` by the files that `write_numbers` writes, then draw the pictures.

    Until all numbers are written nothing in `folder` changes. Files that galapax did not write are refused if they are
    in the way, and left alone if not.
    """
    manifest_text = b""
    with _explain_os_errors(folder), atomic.staging_folder(folder) as stage:
        write_numbers(stage)

        def prepare() -> list[str]:
            new_names = [file.name for file in stage.iterdir()]
            atomic.refuse_unowned(folder, [*new_names, *pictures, atomic.MANIFEST])
            for name in atomic.rename_modified(folder):
                _warn(f"A file in {folder} has been changed since galapax wrote it; it is kept as {name}.")
            nonlocal manifest_text
            manifest_text = atomic.write_manifest(stage, {})
            return [name for name in atomic.owned_files(folder) if name not in (*new_names, atomic.MANIFEST)]

        atomic.replace_files(folder, stage, prepare)
    if pictures:
        _add_pictures(folder, pictures, manifest_text)
    return folder


def _add_pictures(folder: Path, pictures: Drawings, manifest_text: bytes) -> None:
    """Draw pictures into the folder of a saved run; an error becomes a warning, since the run itself is saved.

    manifest_text: of the run, to notice another save in between.
    """
    try:
        with atomic.staging_folder(folder) as stage:
            for name, draw in pictures.items():
                try:
                    draw(stage / name)
                except Exception as error:
                    with contextlib.suppress(OSError):
                        (stage / name).unlink(missing_ok=True)
                    _warn(f"{name} could not be drawn ({_describe(error)}); the run in {folder} is saved without it.")

            def prepare() -> list[str]:
                saved = atomic.SavedFiles(folder)
                if saved.text != manifest_text:
                    raise InputError("another run was saved there in the meantime")
                atomic.refuse_unowned(folder, pictures)
                atomic.write_manifest(stage, saved.files)
                return []

            atomic.replace_files(folder, stage, prepare)
    except (OSError, InputError) as error:
        _warn(f"The pictures of the run in {folder} could not be saved ({_describe(error)}); the run itself was saved.")


@contextlib.contextmanager
def _explain_os_errors(folder: Path) -> Iterator[None]:
    """Re-raise an OSError with the folder, and whether the previous run is intact."""
    try:
        yield
    except OSError as error:
        previous = ", and so is the run that was saved there before" if atomic.owned_files(folder) else ""
        raise OSError(
            f"The run could not be saved to {folder}: {error.strerror or error}. The result itself is intact{previous}."
        ) from error


def _describe(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error).strip()
    return f"{type(error).__name__}: {' '.join(text.split())[:200]}"


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=4)


# --- load -------------------------------------------------------------------------------------------------------------


def load(folder: str | Path) -> Result | Study:
    """Read a saved run or study. Its problem's functions are not in the files: it can be looked at, not replayed."""
    for attempt in count(1):
        saved = SavedFiles(Path(folder))
        try:
            return _load_study(saved) if saved.main_file == "study.json" else _load_result(saved)
        except InputError:
            if attempt == MAX_LOAD_ATTEMPTS or not saved.is_replaced():  # by a save that came in between
                raise
    raise AssertionError


def _load_result(saved: SavedFiles) -> Result:
    data = _read_json(saved)
    with _name_file_in_errors(saved.folder / saved.main_file):
        result = result_from_json(data)
    arrays = _read_npz(saved)
    with _name_file_in_errors(saved.folder / ARRAYS):
        add_arrays(result, arrays)
    return result


def _load_study(saved: SavedFiles) -> Study:
    data = _read_json(saved)
    with _name_file_in_errors(saved.folder / saved.main_file):
        study = study_from_json(data)
    cells: list[Arrays] = [{} for _ in study.results]
    arrays = _read_npz(saved)
    with _name_file_in_errors(saved.folder / ARRAYS):
        for name, array in arrays.items():
            cell, _, field = name.partition(".")
            cells[int(cell)][field] = array
        for result, cell_arrays in zip(study.results, cells, strict=True):
            add_arrays(result, cell_arrays)
    return study


def _read_json(saved: SavedFiles) -> JSON:
    """Read result.json or study.json, if this version knows its format."""
    file = saved.folder / saved.main_file
    with _name_file_in_errors(file):
        try:
            text = saved.read(saved.main_file)
        except ValueError:
            _refuse_newer_file(file)  # a later version may have written it, and keep its books elsewhere
            raise
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("it contains no JSON object")
        version = data.pop("format")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ValueError(f"it has the format {version!r}")
        _refuse_newer(file, version)
        return data


def _refuse_newer_file(file: Path) -> None:
    try:
        version = json.loads(file.read_bytes())["format"]
    except READ_ERRORS:
        return
    if isinstance(version, int):
        _refuse_newer(file, version)


def _refuse_newer(file: Path, version: int) -> None:
    if version > FORMAT:
        raise InputError(
            f"{file} has format {abbreviate(version)}, written by a newer galapax; this one reads up to {FORMAT}."
        )


def _read_npz(saved: SavedFiles) -> Arrays:
    """Read the arrays of a saved run by name, all of them numbers.

    Not by `np.load`, which believes what an archive says of its size: a file of 2 MB can unpack to 2 GB. Galapax
    compresses nothing, so that arrays never need more memory than the file has bytes.
    """
    with _name_file_in_errors(saved.folder / ARRAYS):
        content = saved.read(ARRAYS)
        with ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if any(member.compress_type != ZIP_STORED for member in members):
                raise ValueError("it is compressed, as no archive that galapax writes is")
            if sum(max(member.file_size, member.compress_size) for member in members) > len(content):
                raise ValueError("it declares more bytes than it has")
            return {member.filename.removesuffix(".npy"): _parse_array(archive, member) for member in members}


def _parse_array(archive: ZipFile, member: ZipInfo) -> np.ndarray:
    """Read the array of a member, if it has exactly the bytes that its header declares."""
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


# what reading damaged bytes raises
READ_ERRORS = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
          MemoryError, SyntaxError, BadZipFile, zlib.error, struct.error)  # fmt: skip


@contextlib.contextmanager
def _name_file_in_errors(file: Path) -> Iterator[None]:
    """Turn errors of reading damaged content into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except READ_ERRORS as error:
        raise _damaged_file_error(file, error) from None


def _damaged_file_error(file: Path, error: BaseException) -> InputError:
    """Build the error for a file whose content is damaged."""
    # our own say what is wrong; of others the kind says more than the text, which may be empty or about its own insides
    is_own_message = type(error) is ValueError and str(error).startswith(("it ", "its ", "rows ", "there "))
    reason = str(error) if is_own_message else f"{type(error).__name__}: {str(error)[:200]}"
    return InputError(f"{file} is damaged ({reason}); repeat the run.")
