"""The disk cache: what one process compiled, the next one loads.

XLA executables, texts of fused kernels, cubins and C libraries are files of one folder, told apart by a key and a kind.
The cache is on unless `disable()` is called or the environment variable GALAPAX_CACHE says "off"; that variable, or
`enable`, names another folder. JAX's own cache is left as the user has set it.

The files hold machine code and pickles, so that whoever can write one can run code here. A file is loaded only if the
user of this process owns it and nobody else may write to it or to its folder. All of that is asked of the opened file,
not of its path, which may be another file's a moment later. A checksum tells whether it is whole, and the file of
another key. Whatever is wrong with a file, it counts as absent. Windows has no such owners and permissions: there the
folder is one that Windows itself keeps for the user.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import secrets
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jax
import jaxlib

from galapax.version import __version__

Kind = Literal["program", "kernel", "cubin", "library"]
KINDS: tuple[Kind, ...] = ("program", "kernel", "cubin", "library")
MARK = b"galapax cache 1\n"
DIGEST_BYTES = 32
FOLDER = "programs"  # in the folder that a user names, which may hold other files
DEFAULT_LIMIT_MIB = 1024.0  # of files; the least recently used go first
SWEEPS = 8  # the cache is looked through once in a process, and each time that it wrote this share of the limit
STALE_SECONDS = 3600.0  # after which a temporary file is that of a process which is no more

_DEFAULT = Path()  # stands for `default_folder()`, as the environment may change
_chosen: Path | None = _DEFAULT
_written: dict[Path, int] = {}  # bytes that this process wrote since it last looked through a folder


# --- the switch -------------------------------------------------------------------------------------------------------


def default_folder() -> Path | None:
    """Return the folder that the environment names; None when GALAPAX_CACHE says "off"."""
    wanted = os.environ.get("GALAPAX_CACHE", "")
    if wanted.lower() in ("off", "0", "no"):
        return None
    if wanted:
        return Path(wanted)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "galapax" / "compiled"


def folder() -> Path | None:
    """Return the folder of the cache; None where it is switched off."""
    return default_folder() if _chosen is _DEFAULT else _chosen


def disable() -> None:
    """Neither load nor save anything compiled from now on, whatever GALAPAX_CACHE says."""
    global _chosen
    _chosen = None


def enable(folder: str | Path | None = None) -> Path | None:
    """Keep what is compiled in a folder from now on; return it, or None where it is off or cannot be used."""
    path = Path(folder) if folder is not None else default_folder()
    if path is None:
        return None
    path = path.resolve()  # a program may change its folder later
    try:
        with _open_folder(path, create=True):
            pass
    except (OSError, Refused):
        return None
    if not os.access(path / FOLDER, os.W_OK):
        return None
    global _chosen
    _chosen = path
    return path


# --- keys -------------------------------------------------------------------------------------------------------------


def key_of(*parts: object) -> str:
    """Return the key of an artifact: of all that it depends on, as values whose `repr` says all, and of what all depend
    on.
    """
    return hashlib.sha256(repr((environment(), parts)).encode()).hexdigest()


def environment() -> tuple[str, ...]:
    """Return what everything compiled here depends on: galapax, JAX, the system, and the abilities of the processor."""
    return (__version__, code_version(), jax.__version__, jaxlib.__version__, platform.platform(), processor())


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return a text that changes when any file of the package does."""
    root = Path(__file__).parents[1]
    sources = [*root.rglob("*.py"), *root.glob("fused/c/*.c")]
    facts = sorted((str(f.relative_to(root)), f.stat().st_size, f.stat().st_mtime_ns) for f in sources)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@lru_cache(maxsize=1)
def processor() -> str:
    """Return the kind of processor, as compiled code uses all it can do."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return platform.processor()


# --- loading and saving -----------------------------------------------------------------------------------------------


class Refused(Exception):
    """Why a file or folder is not used."""


def load(key: str, kind: Kind) -> bytes | None:
    """Load the content that was saved under a key; None where there is none that may be used."""
    path = folder()
    if path is None:
        return None
    try:
        with _open_folder(path) as handle:
            return _read(path, handle, key, kind)
    except (OSError, Refused):
        return None


def save(key: str, kind: Kind, content: bytes) -> None:
    """Keep content for other processes, whole or not at all; a full disk costs only their time."""
    path = folder()
    if path is None:
        return
    try:
        with _open_folder(path, create=True) as handle:
            _write(path, handle, _file_name(key, kind), MARK + _digest(key, kind, content) + content)
            _remove_least_recently_used(path, handle, len(content))
    except (OSError, Refused):
        return


def load_value(key: str, kind: Kind) -> Any:
    """Load the value that `save_value` saved under a key; None where there is none."""
    content = load(key, kind)
    try:
        return None if content is None else pickle.loads(content)
    except Exception:  # of classes that have changed
        return None


def save_value(key: str, kind: Kind, value: object) -> None:
    """Keep a value of plain types for other processes."""
    if folder() is not None:
        save(key, kind, pickle.dumps(value))


def _file_name(key: str, kind: Kind) -> str:
    return f"{key}.{kind}"


def _digest(key: str, kind: Kind, content: bytes) -> bytes:
    """Compute the checksum of a file, which depends on its name, too."""
    digest = hashlib.sha256(f"{_file_name(key, kind)}\n".encode())
    digest.update(content)
    return digest.digest()


@contextlib.contextmanager
def _open_folder(path: Path, create: bool = False) -> Iterator[int | None]:
    """Return the opened folder of the cache, in which nobody else can write; None where the system opens no folders."""
    inner = path / FOLDER
    if create:
        inner.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.open not in os.supports_dir_fd:  # Windows
        yield None
        return
    handle = os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _refuse_foreign(os.fstat(handle))
        yield handle
    finally:
        os.close(handle)


def _open_file(path: Path, folder: int | None, name: str, flags: int) -> int:
    """Open a file of the cache, but no link. folder: as `_open_folder` gives it."""
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if folder is None:
        if (path / FOLDER / name).is_symlink():
            raise Refused("it is a link")
        return os.open(path / FOLDER / name, flags, 0o600)
    return os.open(name, flags, 0o600, dir_fd=folder)


def _read(path: Path, folder: int | None, key: str, kind: Kind) -> bytes:
    # NONBLOCK: a pipe is not waited for
    handle = _open_file(path, folder, _file_name(key, kind), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Refused("it is no file")
        _refuse_foreign(status)
        with os.fdopen(handle, "rb", closefd=False) as file:
            head, content = file.read(len(MARK) + DIGEST_BYTES), file.read()
        if head != MARK + _digest(key, kind, content):
            raise Refused("it is damaged")
        with contextlib.suppress(OSError):  # a folder that may only be read
            os.utime(handle if os.utime in os.supports_fd else path / FOLDER / _file_name(key, kind))
        return content
    finally:
        os.close(handle)


def _refuse_foreign(status: os.stat_result) -> None:
    """Refuse what somebody else owns or can write to."""
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise Refused("somebody else can write to it")


def _write(path: Path, folder: int | None, name: str, content: bytes) -> None:
    """Write a file in one move."""
    temporary = f"{secrets.token_hex(8)}.part"
    handle = _open_file(path, folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if folder is None:
            os.replace(path / FOLDER / temporary, path / FOLDER / name)
        else:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(path, folder, temporary)
        raise


def _remove(path: Path, folder: int | None, name: str) -> None:
    os.unlink(path / FOLDER / name) if folder is None else os.unlink(name, dir_fd=folder)


def _remove_least_recently_used(path: Path, folder: int | None, n_bytes: int) -> None:
    """Remove the files that were not used for longest, as far as all together are larger than the limit.

    n_bytes: that were written now; most calls return at once.
    """
    limit = size_limit()
    written = _written.get(path)
    if written is not None and written + n_bytes < limit / SWEEPS:
        _written[path] = written + n_bytes
        return
    _written[path] = 0
    files = []
    with os.scandir(path / FOLDER if folder is None else folder) as entries:
        for entry in entries:
            suffix = entry.name.rpartition(".")[2]
            with contextlib.suppress(OSError):  # another process may be doing the same
                status = entry.stat(follow_symlinks=False)
                if suffix in KINDS:
                    files.append((status.st_mtime, status.st_size, entry.name))
                elif suffix == "part" and time.time() - status.st_mtime > STALE_SECONDS:
                    _remove(path, folder, entry.name)
    total = 0
    for _, size, name in sorted(files, reverse=True):
        total += size
        if total > limit:
            with contextlib.suppress(OSError):
                _remove(path, folder, name)


def size_limit() -> float:
    """Bytes that the files may have together, which GALAPAX_CACHE_MIB says."""
    try:
        return float(os.environ.get("GALAPAX_CACHE_MIB", DEFAULT_LIMIT_MIB)) * 2**20
    except ValueError:
        return DEFAULT_LIMIT_MIB * 2**20
