"""The file format of checkpoints: plain data and arrays in one file. Reading it executes nothing.

The file begins with a line that names the format, then a checksum of all that follows: the length of a JSON text, the
text, and the bytes of the arrays that it refers to by number. Tuples, dataclasses and enums are written by name, and
only those in REGISTERED_TYPES are decoded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import threading
import time
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.core.problem import Population, Shape
from galapax.core.stop import Stop
from galapax.execution.observers import Checkpoint
from galapax.execution.search import LastSamples
from galapax.execution.state import BatchCheckpoint, Estimate, Outcome, Polish, Survivors, Track
from galapax.numerics import devices
from galapax.objective.evaluation_log import Failed
from galapax.objective.pool import Failure
from galapax.storage import atomic
from galapax.version import __version__

MAGIC = b"galapax checkpoint 1\n"
CHECKSUM_BYTES = 32
REGISTERED_TYPES: dict[str, type] = {
    c.__name__: c
    for c in (
        Failed,
        Estimate,
        Failure,
        LastSamples,
        Outcome,
        Polish,
        Population,
        Shape,
        BatchCheckpoint,
        Stop,
        Survivors,
        Track,
    )
}
ARRAY_DTYPES = {np.dtype(kind).str for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]}
MAX_NESTING = 60  # levels of lists in lists


class CorruptFileError(Exception):
    """Raised with the reason why a checkpoint cannot be read."""


def pack(data: object) -> list[bytes]:
    """Serialise data to the chunks of a file."""
    arrays: list[np.ndarray] = []
    text = json.dumps(
        {"data": _encode(data, arrays), "arrays": [[a.dtype.str, list(a.shape)] for a in arrays]}
    ).encode()
    chunks = [len(text).to_bytes(8, "little"), text, *(np.ascontiguousarray(a).tobytes() for a in arrays)]
    checksum = hashlib.sha256()
    for chunk in chunks:
        checksum.update(chunk)
    return [MAGIC, checksum.digest(), *chunks]


def unpack(raw: bytes) -> Any:
    """Deserialise the bytes of a file; raise CorruptFileError with the reason if that is not possible."""
    prefix = MAGIC[: MAGIC.rindex(b" ") + 1]
    if not raw.startswith(prefix):
        raise CorruptFileError("it is not a checkpoint of galapax")
    if not raw.startswith(MAGIC):
        raise CorruptFileError("its format belongs to another version of galapax")
    start = len(MAGIC) + CHECKSUM_BYTES
    # not kept: a memoryview in the frames of an exception crashes the garbage collector of Python 3.12.1
    if hashlib.sha256(memoryview(raw)[start:]).digest() != raw[len(MAGIC) : start]:
        raise CorruptFileError("it is damaged: its checksum does not match")
    try:
        offset = start + 8
        length = int.from_bytes(raw[start:offset], "little")
        header = json.loads(raw[offset : offset + length])
        arrays, offset = [], offset + length
        for dtype, shape in header["arrays"]:
            if dtype not in ARRAY_DTYPES or not all(isinstance(n, int) and n >= 0 for n in shape):
                raise CorruptFileError(f"it contains an array of unknown type, {dtype!r}")
            count = math.prod(shape)
            if offset + count * np.dtype(dtype).itemsize > len(raw):
                raise CorruptFileError("it is damaged: an array is truncated")
            arrays.append(np.frombuffer(raw, dtype, count, offset).reshape(shape).copy())
            offset += arrays[-1].nbytes
        return _decode(header["data"], arrays)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise CorruptFileError(f"it holds something unexpected ({type(error).__name__})") from None


def _encode(value: object, arrays: list[np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return value
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "parts": value.value}
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "dtype"):
        arrays.append(np.asarray(value))
        return {"is": "array", "parts": len(arrays) - 1}
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        fields = value._asdict()
    elif isinstance(value, dict):
        return {"is": "dict", "parts": [[_encode(k, arrays), _encode(v, arrays)] for k, v in value.items()]}
    elif isinstance(value, bytes):
        return {"is": "bytes", "parts": value.hex()}
    elif isinstance(value, list | tuple):
        items = [_encode(v, arrays) for v in value]
        return items if isinstance(value, list) else {"is": "tuple", "parts": items}
    else:
        raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")
    return {
        "is": type(value).__name__,
        "parts": {name: _encode(field, arrays) for name, field in fields.items()},
    }


def _decode(value: Any, arrays: list[np.ndarray], depth: int = 0) -> Any:
    if depth > MAX_NESTING:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_decode(item, arrays, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    type_name, content = value["is"], value["parts"]
    if type_name == "array":
        return arrays[content]
    if type_name == "bytes":
        return bytes.fromhex(content)
    if type_name == "tuple":
        return tuple(_decode(item, arrays, depth + 1) for item in content)
    if type_name == "dict":
        return {_decode(k, arrays, depth + 1): _decode(v, arrays, depth + 1) for k, v in content}
    registered_type = REGISTERED_TYPES[type_name]
    if issubclass(registered_type, Enum):
        return registered_type(content)
    return registered_type(**{name: _decode(item, arrays, depth + 1) for name, item in content.items()})


CHECKSUM_ONLY_KEYS = {
    "box",
    "functions",
    "hyper-parameters",
    "initial",
    "reference point",
}  # saved as checksums, not shown
MAX_WRITE_SHARE = 0.02  # of the wall-clock time
PREVIOUS_SUFFIX = ".1"  # of the file that held the checkpoint before the last write


class CheckpointFile:
    """The checkpoint of a call, a CheckpointWriter (see execution/state.py) with one section for each task."""

    def __init__(self, settings: Checkpoint, file: Path | None) -> None:
        """file: the checkpoint to resume from."""
        self.path, self.settings, self.about = Path(settings.path), settings, settings.about
        self.sections: list[dict[str, Any]] = []
        self.loaded_sections: list[dict[str, Any]] = []
        if file is not None:
            data = read(file)
            self.loaded_sections, self.about = data["sections"], data["about"] | self.about
        self.is_readable = _is_readable(self.path)  # whether the present file may become the previous one
        self.n_begun = 0  # batches of this section
        self.last_write_time = time.perf_counter()
        self.write_seconds, self.saved_generation, self.has_changes = 0.0, 0, False
        self.has_failed = False  # the last attempt to write
        self.memory: dict[str, object] | None = None  # of the present task's black box
        self._writer: threading.Thread | None = None

    # --- sections ---

    def open(self, task: dict[str, str], title: str) -> None:
        """Begin the section of a task. task: its fingerprint."""
        self.n_begun = 0
        section: dict[str, Any] = {"task": task, "title": title, "done": [], "batch": None, "batch_number": 0}
        index = len(self.sections)
        if index < len(self.loaded_sections):
            _check_same_task(self.loaded_sections[index]["task"], task)
            section |= {name: self.loaded_sections[index][name] for name in ("batch", "batch_number")}
            section["done"] = list(self.loaded_sections[index]["done"])
        self.sections.append(section)
        self.memory = None if section["batch"] is None else section["batch"].box
        if index == 0:
            try:
                self._write(self._data())
            except OSError as error:  # found out now, not after an hour
                raise InputError(f"the checkpoint {str(self.path)!r} cannot be written: {error}.") from None
        self.last_write_time = time.perf_counter()

    def close(self) -> None:
        """Write what has changed and wait for the writer thread."""
        if self.has_changes:
            self._flush(wait=True)
        self._join()

    # --- what `run_batch` calls, see execution/state.py ---

    def begin_batch(self) -> Outcome | BatchCheckpoint | None:
        section, self.n_begun, self.saved_generation = self.sections[-1], self.n_begun + 1, 0
        # the last batch that was begun, be it over: it may be given more generations
        if section["batch_number"] == self.n_begun:
            batch: BatchCheckpoint | None = section["batch"]
            return batch
        done: Outcome | None = section["done"][self.n_begun - 1] if self.n_begun <= len(section["done"]) else None
        return done

    def sizes(self) -> tuple[int, int] | None:
        section = self.sections[-1]
        if section["batch_number"] == self.n_begun + 1:
            batch: BatchCheckpoint = section["batch"]
            return (batch.runs, batch.width) if batch.runs else None
        if self.n_begun >= len(section["done"]):
            return None
        outcome = section["done"][self.n_begun]
        return len(outcome.x), outcome.sizes[0][0]

    def restart_batch(self) -> None:
        section = self.sections[-1]
        if section["batch_number"] == self.n_begun:  # with other slices than those that were noted
            section |= {"batch": None, "batch_number": 0}
        self.n_begun -= 1

    def due(self, generation: int) -> bool:
        waited = time.perf_counter() - self.last_write_time
        interval = self.settings.generations
        if interval is not None:
            return generation - self.saved_generation >= interval
        return waited >= max(self.settings.seconds, self.write_seconds / MAX_WRITE_SHARE)

    def save(self, batch: BatchCheckpoint) -> None:
        self.sections[-1] |= {"batch": batch, "batch_number": self.n_begun}
        self.has_changes = True
        if self.due(batch.generation):
            self.saved_generation = batch.generation
            self._flush(wait=False)

    def finish_batch(self, done: Outcome) -> None:
        section = self.sections[-1]
        section["done"][self.n_begun - 1 :] = [done]
        self.has_changes = True

    # --- the file ---

    def _data(self) -> dict[str, object]:
        sections = [{**section, "done": list(section["done"])} for section in self.sections]
        return {"galapax": __version__, "about": self.about, "sections": sections}

    def _flush(self, wait: bool) -> None:
        """Write the checkpoint, in a background thread unless `wait`; skipped while a write is in progress."""
        if not wait and self._writer is not None and self._writer.is_alive():
            return
        self._join()
        self.last_write_time, self.has_changes = time.perf_counter(), False
        data = self._data()
        if wait:
            self._attempt(data)
        else:
            self._writer = threading.Thread(target=self._attempt, args=(data,), name="galapax-checkpoint")
            self._writer.start()

    def _join(self) -> None:
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _attempt(self, data: dict[str, object]) -> None:
        start = time.perf_counter()
        try:
            self._write(data)
            self.has_failed = False
        except OSError as error:
            self.has_changes = True
            if not self.has_failed:
                warnings.warn(
                    f"The checkpoint {str(self.path)!r} could not be written ({error}): the run continues, and "
                    "what was "
                    "written before is still there.",
                    stacklevel=2,
                )
            self.has_failed = True
        self.write_seconds = time.perf_counter() - start

    def _write(self, data: dict[str, object]) -> None:
        if devices.process_index():  # the first one writes
            return
        chunks = pack(data)
        previous = self.path.with_name(self.path.name + PREVIOUS_SUFFIX)
        if self.is_readable:
            with contextlib.suppress(FileNotFoundError):
                _link(self.path, previous)
        atomic.write_bytes(self.path, *chunks)
        self.is_readable = True


def open_checkpoint_file(settings: Checkpoint | None, resume: object) -> CheckpointFile | None:
    """Open the file for `checkpoint=` and `resume=`; None where no checkpoint is written."""
    try:
        return _open_settings(settings, resume)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: of a name that is none
        name = settings.path if settings is not None and resume in (None, False, True) else resume
        raise InputError(f"the checkpoint {abbreviate(str(name))} cannot be used: {error}.") from None


def _open_settings(settings: Checkpoint | None, resume: Any) -> CheckpointFile | None:
    if resume is True and settings is None:
        raise InputError(
            "resume=True continues from the file given as checkpoint=: add checkpoint=, or pass the file as resume=."
        )
    file = None
    if resume not in (None, False, True):
        file = Path(os.fspath(resume))
        if not file.exists() and not file.with_name(file.name + PREVIOUS_SUFFIX).exists():
            raise InputError(f"there is no checkpoint {str(file)!r} to resume from.")
        settings = Checkpoint(file) if settings is None else settings
    if settings is None:
        return None
    path = Path(settings.path)
    if path.exists() and not path.is_file():
        raise InputError(
            f"checkpoint must be a file; {str(path)!r} is {'a folder' if path.is_dir() else 'something else'}."
        )
    exists = path.exists() or path.with_name(path.name + PREVIOUS_SUFFIX).exists()
    if resume is True and exists:
        file = path
    if exists and file is None and not devices.process_index():  # the first process may have written it by now
        raise InputError(
            f"{str(path)!r} already exists: continue from it (resume=True, --resume), or delete it to start again."
        )
    if not path.parent.is_dir():
        raise InputError(f"the folder {str(path.parent)!r} of the checkpoint does not exist: create it first.")
    return CheckpointFile(settings, file)


def read(file: Path) -> dict[str, Any]:
    """Read a checkpoint; if it is damaged or missing, read the previous one and warn."""
    previous, reason = file.with_name(file.name + PREVIOUS_SUFFIX), ""
    for path in (file, previous):
        try:
            data = unpack(_read_regular_file(path))
            _check_sections(data)
        except FileNotFoundError:
            reason = reason or f"{str(file)!r} is missing"
            continue
        except CorruptFileError as error:
            reason = reason or f"{str(file)!r} cannot be used: {error}"
            continue
        if path is previous:
            warnings.warn(f"{reason}; continuing from {str(previous)!r}, which is older.", stacklevel=2)
        return data
    raise InputError(f"{reason}.")


def _read_regular_file(path: Path) -> bytes:
    """Read the bytes of a regular file; a pipe or a folder is refused."""
    if path.exists() and not path.is_file():
        raise CorruptFileError("it is not a file")
    return path.read_bytes()


def _check_sections(data: Any) -> None:
    """Raise CorruptFileError for an intact file whose content is no checkpoint."""
    sections = data.get("sections") if isinstance(data, dict) else None
    if not isinstance(sections, list) or not isinstance(data.get("about"), dict):
        raise CorruptFileError("it contains no run")
    for section in sections:
        is_section = (
            isinstance(section, dict)
            and isinstance(section.get("task"), dict)
            and isinstance(section.get("done"), list)
        )
        if not is_section or not all(isinstance(done, Outcome) for done in section["done"]):
            raise CorruptFileError("it contains no run")
        has_batch = isinstance(section.get("batch"), BatchCheckpoint | None)
        if not has_batch or not isinstance(section.get("batch_number"), int):
            raise CorruptFileError("it contains no run")


def _check_same_task(saved_task: dict[str, str], task: dict[str, str]) -> None:
    """Raise an InputError if the checkpoint belongs to a task with other settings."""
    differing = [name for name in task if saved_task.get(name) != task[name]]
    if not differing:
        return
    differences = [
        name if name in CHECKSUM_ONLY_KEYS else f"{name} ({saved_task.get(name)} there, {task[name]} here)"
        for name in differing
    ]
    raise InputError(
        f"the checkpoint was written by a different run: {', '.join(differences)} "
        f"differ{'s' * (len(differences) == 1)}. A run continues with the settings it started with."
    )


def _is_readable(path: Path) -> bool:
    """Whether a file is an intact checkpoint."""
    try:
        unpack(_read_regular_file(path))
    except (CorruptFileError, OSError):
        return False
    return True


def _link(path: Path, other: Path) -> None:
    """Hard-link a file under another name, atomically; move it where the file system has no links."""
    temporary = path.with_name(atomic.temporary_name())
    try:
        os.link(path, temporary)
    except OSError:  # a file system without links
        os.replace(path, other)
        return
    os.replace(temporary, other)
