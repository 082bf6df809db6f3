"""Files that are there whole or not at all, whatever happens to the process, the disk or the power in between."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from pathlib import Path

OURS = ".galapax-"  # how the names of temporaries begin
STALE = 3600.0  # seconds after which a temporary is taken for that of a process which is no more


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
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    sync_folder(path.parent)


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


def remove_stale(folder: Path) -> None:
    """Remove what our processes that were killed left in a folder, once it is too old to be in use."""
    for old in folder.glob(f"{OURS}*.part"):
        with contextlib.suppress(OSError):  # another process may be doing the same
            if time.time() - old.lstat().st_mtime > STALE:
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
