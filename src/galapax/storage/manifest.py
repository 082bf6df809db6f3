"""The manifest of a saved run: manifest.json has the length and the SHA-256 of each file.

It says which files belong to the run, so that none but those are ever replaced or removed, and whether they are still
as they were written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from galapax.core.errors import InputError
from galapax.storage import atomic
from galapax.version import __version__

NAME = "manifest.json"
MANIFEST_FORMAT = 1

# The files that galapax writes, by the file that identifies a run or a study.
FILES_OF_KIND = {
    "result.json": (
        "result.json",
        "arrays.npz",
        "history.csv",
        "population.csv",
        "front.csv",
        "runs.csv",
        "fronts.csv",
        "evaluations.csv",
        "convergence.png",
        "front.png",
        "report.html",
    ),
    "study.json": (
        "study.json",
        "arrays.npz",
        "runs.csv",
        "curves.csv",
        "summary.csv",
        "summary.md",
        "summary.tex",
        "convergence.png",
        "ecdf.png",
        "report.html",
    ),
}
ALL_FILE_NAMES = frozenset(name for names in FILES_OF_KIND.values() for name in names)
MAX_MANIFEST_BYTES = 2**20  # ours have a few thousand


class Saved:
    """The files of a saved run or study, as the last save that came to its end left them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.folders = atomic.lookup_folders(folder, NAME, accept_pending)
            self.text = self._read(NAME, MAX_MANIFEST_BYTES)
        except OSError as error:
            raise InputError(f"{folder / NAME} cannot be read: {error.strerror or error}.") from None
        except ValueError:
            raise _damaged_manifest_error(folder / NAME) from None
        if self.text is None:
            raise InputError(f"{folder} contains no saved run: it has no {NAME}.")
        self.files = _parse(self.text, folder / NAME)
        kinds = [kind for kind in FILES_OF_KIND if kind in self.files]
        if len(kinds) != 1:
            raise _damaged_manifest_error(folder / NAME)
        self.main_file = kinds[0]

    def read(self, name: str) -> bytes:
        """The bytes of a file, if they are those that were written; else a ValueError that says what is wrong."""
        size, digest = self.files.get(name, (None, ""))
        content = None if size is None else self._read(name, size)
        if size is None or content is None:
            raise ValueError("it is missing")
        if len(content) < size:
            raise ValueError(f"it is truncated: {len(content)} of {size} bytes are present")
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("its content has changed: the checksum in manifest.json differs")
        return content

    def is_replaced(self) -> bool:
        """Whether another save has finished since this object was created."""
        try:
            return Saved(self.folder).text != self.text
        except (InputError, OSError):
            return False

    def _read(self, name: str, size: int) -> bytes | None:
        """The bytes of a file, None where there is none; a ValueError if it has more than `size`, before reading it."""
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):  # moved in this moment
                if (folder / name).is_file():  # a pipe would be read for ever
                    with (folder / name).open("rb") as content:
                        length = os.fstat(content.fileno()).st_size
                        if length > size:
                            raise ValueError(f"it has {length} bytes instead of {size}")
                        return content.read()
        return None


def write(stage: Path, other_files: dict[str, tuple[int, str]]) -> bytes:
    """Write the manifest of the files in a folder, and of `other_files` elsewhere; return its text."""
    text = _compose(
        other_files | {file.name: _fingerprint(file) for file in sorted(stage.iterdir()) if file.name != NAME}
    )
    (stage / NAME).write_bytes(text)
    return text


def accept_pending(folder: Path, removals: list[str]) -> bool:
    """Whether the files in PENDING may be moved into a folder and those names be removed from it: a manifest lists all
    of them, and nothing that galapax did not write is in their way or among the names.
    """
    pending = folder / atomic.PENDING
    try:
        listed = {NAME, atomic.RECORD, *(_read_manifest(pending) or ())}
        files = _read_manifest(folder)
        replaceable = set() if files is None else {NAME, *files}
        names = [file.name for file in pending.iterdir()]
    except (InputError, OSError):
        return False
    blocked = [name for name in names if _is_taken(folder / name) and not _is_plain(folder / name, replaceable)]
    unlisted = [name for name in names if not _is_plain(pending / name, listed)]
    # looked at last: what another process has moved into the folder meanwhile is in nobody's way
    return {*removals} <= replaceable - {NAME} and not any(_is_taken(pending / name) for name in (*blocked, *unlisted))


def owned_files(folder: Path) -> dict[str, tuple[int, str] | None]:
    """List the files that galapax wrote into a folder, with their fingerprints, and the manifest itself."""
    try:
        return {NAME: None, **Saved(folder).files}
    except (InputError, OSError, ValueError):
        return {}


def unowned_files(folder: Path, names: Iterable[str]) -> list[str]:
    """List those of the names that exist in a folder and were not written by galapax."""
    owned = owned_files(folder)
    return [name for name in names if _is_taken(folder / name) and not _is_plain(folder / name, owned)]


def refuse_unowned(folder: Path, names: Iterable[str]) -> None:
    atomic.refuse_pending(folder, NAME, accept_pending)
    unowned = unowned_files(folder, names)
    if unowned:
        pronoun = "it" if len(unowned) == 1 else "them"
        raise InputError(
            f"{folder} holds {', '.join(unowned)}, which galapax did not write; nothing was changed. Save into "
            f"another folder, or move {pronoun} away first."
        )


def rename_modified(folder: Path) -> list[str]:
    """Rename files that were modified since galapax wrote them, and return their new names.

    They may be damaged, or hold what somebody added; a new run can take their names either way.
    """
    new_names = []
    for name, fingerprint in owned_files(folder).items():
        file = folder / name
        if (
            fingerprint is None
            or not file.is_file()
            or file.is_symlink()
            or (current := _fingerprint(file)) == fingerprint
        ):
            continue
        new_name = f"{file.stem}.changed-{current[1][:8]}{file.suffix}"
        os.replace(file, folder / new_name)
        new_names.append(new_name)
    return new_names


def _is_taken(file: Path) -> bool:
    return file.exists() or file.is_symlink()


def _is_plain(file: Path, names: Container[str]) -> bool:
    """Whether it is a file, not a link to one, and has one of the names."""
    return file.name in names and file.is_file() and not file.is_symlink()


def _fingerprint(file: Path) -> tuple[int, str]:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return content.tell(), digest


def _checksum_rows(rows: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _compose(files: dict[str, tuple[int, str]]) -> bytes:
    """The text of a manifest."""
    rows = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in files.items()}
    about = {"format": MANIFEST_FORMAT, "program": f"galapax {__version__}"}
    data = {**about, "files": rows, "checksum": _checksum_rows(rows)}
    return json.dumps(data, indent=1).encode() + b"\n"


def _read_manifest(folder: Path) -> dict[str, tuple[int, str]] | None:
    """The files that the manifest in a folder lists, whatever waits in PENDING; None where it has none."""
    file = folder / NAME
    if not file.is_file():
        return None
    if file.stat().st_size > MAX_MANIFEST_BYTES:
        raise _damaged_manifest_error(file)
    return _parse(file.read_bytes(), file)


def _parse(text: bytes, file: Path) -> dict[str, tuple[int, str]]:
    try:
        data = json.loads(text)
        version = data["format"]
        if isinstance(version, int) and version > MANIFEST_FORMAT:
            raise InputError(
                f"{file} has format {version}, written by a newer galapax; this one reads up to {MANIFEST_FORMAT}."
            )
        rows = data["files"]
        # names that we never write are refused, whoever wrote them here: what a manifest names may be removed
        is_whole = version == MANIFEST_FORMAT and data["checksum"] == _checksum_rows(rows)
        if not is_whole or not ALL_FILE_NAMES.issuperset(rows):
            raise ValueError
        return {str(name): (int(row["bytes"]), str(row["sha256"])) for name, row in rows.items()}
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise _damaged_manifest_error(file) from None


def _damaged_manifest_error(file: Path) -> InputError:
    return InputError(
        f"{file} is damaged (it is not a manifest that galapax wrote), so it cannot be told which files are whole; "
        "repeat the run."
    )
