"""Files that are there whole or not at all, whatever happens to the process, the disk or the power in between."""

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
from typing import IO, Any

from galapax.core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

OURS = ".galapax-"  # how the names of temporaries begin
STALE = 3600.0  # seconds after which a temporary is taken for that of a process which is no more
PENDING = f"{OURS}new"  # a folder of files that are valid already and wait for being moved to where they belong
RECORD = f"{OURS}record"  # in it: which files are removed, and the checksum of what the change replaces
MAX_RECORD_BYTES = 2**16  # ours have a few hundred
Accept = Callable[[Path, list[str]], bool]  # whether files may be moved into a folder, and those names be removed


def write_bytes(path: Path, *chunks: bytes) -> None:
    """Write a file in one move: afterwards it holds all the chunks, or after a failure what it held before.

    A link of that name is replaced, never followed.
    """
    path = Path(path)
    remove_stale(path.parent)
    part = path.parent / temporary_name()
    # EXCL: nobody can have put a link in the way; 0o666, which the process's umask narrows as for any other file
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as out:
            for chunk in chunks:
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename in (None, str(part)):
            error.filename = str(path)  # a full disk does not say which file it was
        raise
    sync_folder(path.parent)


def write_by(path: Path, save: Callable[[IO[bytes]], Any]) -> None:
    """Write a file in one move, with what `save` writes into a file of bytes."""
    whole = io.BytesIO()
    save(whole)
    write_bytes(path, whole.getvalue())


def temporary_name() -> str:
    """A name that nothing else has, short enough for any file system."""
    return f"{OURS}{secrets.token_hex(8)}.part"


def sync_folder(folder: Path) -> None:
    """See to it that names made or moved in a folder outlive a loss of power, where the system can do that."""
    with contextlib.suppress(OSError):  # Windows opens no folders, and some network drives do not sync them
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_temporary(name: str) -> bool:
    """Whether a file or folder is a temporary of ours, in use or left by a process that was killed."""
    return name.startswith(OURS) and name.endswith(".part")


def remove_stale(folder: Path) -> None:
    """Remove what our processes that were killed left in a folder, once it is too old to be in use."""
    for old in folder.glob(f"{OURS}*.part"):
        with contextlib.suppress(OSError):  # another process may be doing the same
            if time.time() - old.lstat().st_mtime > STALE:
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder of its own inside `folder`, made if need be, in which to write files for `replace_files`.

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
    """Put the files in `stage` into `folder`, all or none.

    The whole change is one move of `stage`; the rest only tidies up, and whoever comes next can do it as well. Until
    `last` (one of the files) is moved, readers look for a file in PENDING first: see `places`.

    prepare: called while no other process changes the folder; returns the names of files that are to be removed, and
        may write into `stage` or raise.
    accept: see `read_pending`.
    """
    with locked(folder):
        finish(folder, last, accept)
        removals = list(prepare())
        record = {"replaces": _checksum(folder / last), "remove": removals}
        (stage / RECORD).write_text(json.dumps(record), encoding="utf-8")
        for file in stage.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
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


def places(folder: Path, last: str, accept: Accept) -> list[Path]:
    """Where a reader looks for the files of a folder, the first place that has it."""
    return [folder] if read_pending(folder, last, accept) is None else [folder / PENDING, folder]


def _checksum(file: Path) -> str | None:
    """The SHA-256 of a file; None where there is none."""
    if not file.is_file():
        return None
    with contextlib.suppress(FileNotFoundError), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
    return None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time, where the system can do that; a process that is killed lets go."""
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
