"""Atomic file writes: a file or a set of files is complete or absent after a crash, a full disk or a power failure."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from galapax.core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY_PREFIX = ".galapax-"  # of the names of temporaries
STALE_FOLDER_SECONDS = 3600.0  # age of a temporary from which on its process is taken to be dead
PENDING = f"{TEMPORARY_PREFIX}new"  # folder of complete files that wait to be moved into place
RECORD = f"{TEMPORARY_PREFIX}record"  # in it: which files are removed, and the checksum of what the change replaces
MAX_RECORD_BYTES = 2**16  # ours have a few hundred
Accept = Callable[[Path, list[str]], bool]  # whether files may be moved into a folder, and those names be removed


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


def replace_files(folder: Path, stage: Path, prepare: Callable[[], Iterable[str]], last: str, accept: Accept) -> None:
    """Move the files in `stage` into `folder`, all or none.

    The whole change is one move of `stage`; the rest only tidies up, and whoever comes next can do it as well. Until
    `last` (one of the files) is moved, readers look for a file in PENDING first: see `lookup_folders`.

    prepare: called while no other process changes the folder; returns the names of files that are to be removed, and
        may write into `stage` or raise.
    accept: see `read_pending`.
    """
    with folder_lock(folder):
        finish(folder, last, accept)
        removals = list(prepare())
        record = {"replaces": _checksum(folder / last), "remove": removals}
        (stage / RECORD).write_text(json.dumps(record), encoding="utf-8")
        for file in stage.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        sync_folder(stage)
        os.rename(stage, folder / PENDING)
        sync_folder(folder)
        finish(folder, last, accept)


def finish(folder: Path, last: str, accept: Accept) -> None:
    """Move into their place the files that a process, this one or one that was killed, has put into PENDING."""
    pending = folder / PENDING
    refuse_pending(folder, last, accept)
    if pending.is_symlink() or not pending.is_dir():
        return
    for name in read_pending(folder, last, accept) or ():
        (folder / name).unlink(missing_ok=True)
    files = [file for file in pending.iterdir() if file.name != RECORD]
    for file in sorted(files, key=lambda file: file.name == last):
        os.replace(file, folder / file.name)
    sync_folder(folder)
    (pending / RECORD).unlink(missing_ok=True)
    pending.rmdir()


def refuse_pending(folder: Path, last: str, accept: Accept) -> None:
    """Raise an InputError where PENDING is no change of ours to this folder: nothing in it is moved or removed."""
    pending = folder / PENDING
    if pending.is_symlink() or not pending.is_dir():
        return
    if all(file.name == RECORD for file in pending.iterdir()):  # all that counted has been moved
        return
    if read_pending(folder, last, accept) is None:
        raise InputError(
            f"{pending} holds files that no save of galapax into {folder} has left; nothing was changed. Save into "
            "another folder, or move it away first."
        )


def read_pending(folder: Path, last: str, accept: Accept) -> list[str] | None:
    """Read which files the change that waits in PENDING removes; None where none waits that was made for this folder.

    It was made for this folder if it replaces what the folder holds, and `accept` agrees, which is called with the
    folder and the names to remove. Files may be moved by another process meanwhile.
    """
    pending = folder / PENDING
    if pending.is_symlink() or not (pending / last).is_file():
        return None
    try:
        record = json.loads(_read_record(pending / RECORD))
        replaces, removals = record["replaces"], record["remove"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(removals, list) or not all(isinstance(name, str) for name in removals):
        return None
    return removals if replaces == _checksum(folder / last) and accept(folder, removals) else None


def _read_record(file: Path) -> bytes:
    """Read the record of a change; a ValueError where it is a link, a pipe or too long to be one of ours."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > MAX_RECORD_BYTES:
        raise ValueError(f"{file} is no record of a save")
    return file.read_bytes()


def lookup_folders(folder: Path, last: str, accept: Accept) -> list[Path]:
    """List the folders in which a reader looks for a file, in order."""
    return [folder] if read_pending(folder, last, accept) is None else [folder / PENDING, folder]


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
