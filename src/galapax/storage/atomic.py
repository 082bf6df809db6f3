"""Atomic file writes: a file or a set of files is complete or absent after a crash, a full disk or a power failure.

The manifest of a saved run, manifest.json, has the length and the SHA-256 of each file. It says which files belong to
the run, so that none but those are ever replaced or removed, and whether they are still as they were written.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from galapax.core.errors import InputError
from galapax.version import __version__

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY_PREFIX = ".galapax-"  # of the names of temporaries
STALE_FOLDER_SECONDS = 3600.0  # age of a temporary from which on its process is taken to be dead
MANIFEST = "manifest.json"
PENDING = f"{TEMPORARY_PREFIX}new"  # folder of complete files that wait to be moved into place
RECORD = f"{TEMPORARY_PREFIX}record"  # in it: which files are removed, and the checksum of what the change replaces
MAX_RECORD_BYTES = 2**16  # ours have a few hundred


def write_bytes(path: Path, *chunks: bytes) -> None:
    """Write a file atomically: it holds all the chunks, or after a failure what it held before.

    A link of that name is replaced, never followed.
    """
    path = Path(path)
    remove_stale(path.parent)
    temporary = path.parent / temporary_name()
    # EXCL: nobody can have put a link in the way; 0o666, which the process's umask narrows as for any other file
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as out:
            for chunk in chunks:
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(path)  # a full disk does not say which file it was
        raise
    sync_folder(path.parent)


def write_by(path: Path, save: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically with what `save` writes into a binary stream."""
    buffer = io.BytesIO()
    save(buffer)
    write_bytes(path, buffer.getvalue())


def temporary_name() -> str:
    """Return a unique name for a temporary file."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}.part"


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk (fsync), where the system can do that."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and some network drives do not sync them
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_temporary(name: str) -> bool:
    """Whether a file or folder is a temporary of ours, in use or left by a process that was killed."""
    return name.startswith(TEMPORARY_PREFIX) and name.endswith(".part")


def remove_stale(folder: Path) -> None:
    """Remove temporaries of killed processes from a folder once they are older than STALE_FOLDER_SECONDS."""
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*.part"):
        with contextlib.suppress(OSError):  # another process may be doing the same
            if time.time() - leftover.lstat().st_mtime > STALE_FOLDER_SECONDS:
                shutil.rmtree(leftover) if leftover.is_dir() and not leftover.is_symlink() else leftover.unlink()


@contextlib.contextmanager
def staging_folder(folder: Path) -> Iterator[Path]:
    """Create a temporary folder inside `folder` in which to write files for `replace_files`.

    Whatever is still in it afterwards is removed. It is inside, not beside: `folder` may be a mounted disk, the folder
    that a shell stands in, or in a place where nothing else may be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remove_stale(folder)
    stage = folder / temporary_name()
    stage.mkdir()
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def replace_files(folder: Path, stage: Path, prepare: Callable[[], Iterable[str]]) -> None:
    """Move the files in `stage` into `folder`, all or none.

    The whole change is one move of `stage`; the rest only tidies up, and whoever comes next can do it as well. Until
    the manifest is moved, readers look for a file in PENDING first: see `lookup_folders`.

    prepare: called while no other process changes the folder; returns the names of files that are to be removed, and
        may write into `stage` or raise.
    """
    with folder_lock(folder):
        move_pending(folder)
        removals = list(prepare())
        record = {"replaces": _checksum(folder / MANIFEST), "remove": removals}
        (stage / RECORD).write_text(json.dumps(record), encoding="utf-8")
        for file in stage.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        sync_folder(stage)
        os.rename(stage, folder / PENDING)
        sync_folder(folder)
        move_pending(folder)


def move_pending(folder: Path) -> None:
    """Move into their place the files that a process, this one or one that was killed, has put into PENDING."""
    pending = folder / PENDING
    refuse_pending(folder)
    if pending.is_symlink() or not pending.is_dir():
        return
    for name in read_pending(folder) or ():
        (folder / name).unlink(missing_ok=True)
    files = [file for file in pending.iterdir() if file.name != RECORD]
    for file in sorted(files, key=lambda file: file.name == MANIFEST):
        os.replace(file, folder / file.name)
    sync_folder(folder)
    (pending / RECORD).unlink(missing_ok=True)
    pending.rmdir()


def refuse_pending(folder: Path) -> None:
    """Raise an InputError where PENDING is no change of ours to this folder: nothing in it is moved or removed."""
    pending = folder / PENDING
    if pending.is_symlink() or not pending.is_dir():
        return
    if all(file.name == RECORD for file in pending.iterdir()):  # all that counted has been moved
        return
    if read_pending(folder) is None:
        raise InputError(
            f"{pending} holds files that no save of galapax into {folder} has left; nothing was changed. Save into "
            "another folder, or move it away first."
        )


def read_pending(folder: Path) -> list[str] | None:
    """Read which files the change that waits in PENDING removes; None where none waits that was made for this folder.

    It was made for this folder if it replaces what the folder holds, and `accept_pending` agrees. Files may be moved by
    another process meanwhile.
    """
    pending = folder / PENDING
    if pending.is_symlink() or not (pending / MANIFEST).is_file():
        return None
    try:
        record = json.loads(_read_record(pending / RECORD))
        replaces, removals = record["replaces"], record["remove"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(removals, list) or not all(isinstance(name, str) for name in removals):
        return None
    return removals if replaces == _checksum(folder / MANIFEST) and accept_pending(folder, removals) else None


def _read_record(file: Path) -> bytes:
    """Read the record of a change; a ValueError where it is a link, a pipe or too long to be one of ours."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_RECORD_BYTES:
        raise ValueError(f"{file} is no record of a save")
    return file.read_bytes()


def lookup_folders(folder: Path) -> list[Path]:
    """List the folders in which a reader looks for a file, in order."""
    return [folder] if read_pending(folder) is None else [folder / PENDING, folder]


def _checksum(file: Path) -> str | None:
    """The SHA-256 of a file; None where there is none."""
    if not file.is_file():
        return None
    with contextlib.suppress(FileNotFoundError), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return None


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, where the system has one; it is released when the process dies."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network drives lock no folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


# --- the manifest of a saved run --------------------------------------------------------------------------------------


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
        "elites.png",
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
        "ranks.png",
        "report.html",
    ),
}
ALL_FILE_NAMES = frozenset(name for names in FILES_OF_KIND.values() for name in names)
MAX_MANIFEST_BYTES = 2**20  # ours have a few thousand


class SavedFiles:
    """The files of a saved run or study, as the last save that came to its end left them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.folders = lookup_folders(folder)
            self.text = self._read(MANIFEST, MAX_MANIFEST_BYTES)
        except OSError as error:
            raise InputError(f"{folder / MANIFEST} cannot be read: {error.strerror or error}.") from None
        except ValueError:
            raise _damaged_manifest_error(folder / MANIFEST) from None
        if self.text is None:
            raise InputError(f"{folder} contains no saved run: it has no {MANIFEST}.")
        self.files = _parse(self.text, folder / MANIFEST)
        kinds = [kind for kind in FILES_OF_KIND if kind in self.files]
        if len(kinds) != 1:
            raise _damaged_manifest_error(folder / MANIFEST)
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
            return SavedFiles(self.folder).text != self.text
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


def write_manifest(stage: Path, other_files: dict[str, tuple[int, str]]) -> bytes:
    """Write the manifest of the files in a folder, and of `other_files` elsewhere; return its text."""
    text = _compose(
        other_files | {file.name: _fingerprint(file) for file in sorted(stage.iterdir()) if file.name != MANIFEST}
    )
    (stage / MANIFEST).write_bytes(text)
    return text


def accept_pending(folder: Path, removals: list[str]) -> bool:
    """Whether the files in PENDING may be moved into a folder and those names be removed from it: a manifest lists all
    of them, and nothing that galapax did not write is in their way or among the names.
    """
    pending = folder / PENDING
    try:
        listed = {MANIFEST, RECORD, *(_read_manifest(pending) or ())}
        files = _read_manifest(folder)
        replaceable = set() if files is None else {MANIFEST, *files}
        names = [file.name for file in pending.iterdir()]
    except (InputError, OSError):
        return False
    blocked = [name for name in names if _is_taken(folder / name) and not _is_plain(folder / name, replaceable)]
    unlisted = [name for name in names if not _is_plain(pending / name, listed)]
    # looked at last: what another process has moved into the folder meanwhile is in nobody's way
    return {*removals} <= replaceable - {MANIFEST} and not any(
        _is_taken(pending / name) for name in (*blocked, *unlisted)
    )


def owned_files(folder: Path) -> dict[str, tuple[int, str] | None]:
    """List the files that galapax wrote into a folder, with their fingerprints, and the manifest itself."""
    try:
        return {MANIFEST: None, **SavedFiles(folder).files}
    except (InputError, OSError, ValueError):
        return {}


def unowned_files(folder: Path, names: Iterable[str]) -> list[str]:
    """List those of the names that exist in a folder and were not written by galapax."""
    owned = owned_files(folder)
    return [name for name in names if _is_taken(folder / name) and not _is_plain(folder / name, owned)]


def refuse_unowned(folder: Path, names: Iterable[str]) -> None:
    refuse_pending(folder)
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
    file = folder / MANIFEST
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
