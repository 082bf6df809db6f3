"""Checkpoints: one file from which runs go on, bit for bit, as if they had never stopped."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from galapax.core.checks import abbreviate
from galapax.core.errors import InputError
from galapax.engines.journal import Done, Standing
from galapax.numerics import processes
from galapax.running.observers import Checkpoint
from galapax.storage import atomic
from galapax.storage.capsule import Damaged, pack, unpack
from galapax.version import __version__

HIDDEN = {"box", "functions", "hyper-parameters", "initial", "reference point"}  # of which there are only checksums
SHARE = 0.02  # of the time may go into writing
KEPT = ".1"  # ends the name of the file before the last


class Keeper:
    """A Journal in a file. A call of the library may solve several tasks, one after the other: each is a section."""

    def __init__(self, settings: Checkpoint, file: Path | None) -> None:
        """file: the checkpoint to go on from."""
        self.path, self.settings, self.about = Path(settings.path), settings, settings.about
        self.sections: list[dict[str, Any]] = []
        self.known: list[dict[str, Any]] = []
        if file is not None:
            kept = read(file)
            self.known, self.about = kept["sections"], kept["about"] | self.about
        self.sound = _sound(self.path)  # what is there now is worth keeping as the one before
        self.begun = 0  # batches of this section
        self.written = time.perf_counter()
        self.cost, self.made, self.changed = 0.0, 0, False
        self.failed = False  # the last attempt to write
        self.memory: Any = None  # of the present task's black box
        self._writer: threading.Thread | None = None

    # --- sections ---

    def open(self, task: dict[str, str], title: str) -> None:
        """A task begins. task: its fingerprint."""
        self.begun = 0
        own: dict[str, Any] = {"task": task, "title": title, "done": [], "standing": None, "at": 0}
        at = len(self.sections)
        if at < len(self.known):
            _check_same(self.known[at]["task"], task)
            own |= {name: self.known[at][name] for name in ("standing", "at")}
            own["done"] = list(self.known[at]["done"])
        self.sections.append(own)
        self.memory = None if own["standing"] is None else own["standing"].box
        if at == 0:
            try:
                self._write(self._data())
            except OSError as error:  # found out now, not after an hour
                raise InputError(f"the checkpoint {str(self.path)!r} cannot be written: {error}.") from None
        self.written = time.perf_counter()

    def close(self) -> None:
        """The task is over, or cannot go on."""
        if self.changed:
            self._flush(wait=True)
        self._join()

    # --- what `drive` asks, see engines/journal.py ---

    def enter(self) -> Done | Standing | None:
        own, self.begun, self.made = self.sections[-1], self.begun + 1, 0
        if own["at"] == self.begun:  # of the last batch that was begun, be it over: it may be given more generations
            standing: Standing | None = own["standing"]
            return standing
        done: Done | None = own["done"][self.begun - 1] if self.begun <= len(own["done"]) else None
        return done

    def sizes(self) -> tuple[int, int] | None:
        own = self.sections[-1]
        if own["at"] == self.begun + 1:
            standing: Standing = own["standing"]
            return (standing.runs, standing.width) if standing.runs else None
        if self.begun >= len(own["done"]):
            return None
        outcome = own["done"][self.begun].outcome
        return len(outcome.x), outcome.sizes[0][0]

    def again(self) -> None:
        own = self.sections[-1]
        if own["at"] == self.begun:  # with other slices than those that were noted
            own |= {"standing": None, "at": 0}
        self.begun -= 1

    def due(self, made: int) -> bool:
        waited = time.perf_counter() - self.written
        every = self.settings.generations
        if every is not None:
            return made - self.made >= every
        return waited >= max(self.settings.seconds, self.cost / SHARE)

    def note(self, standing: Standing) -> None:
        self.sections[-1] |= {"standing": standing, "at": self.begun}
        self.changed = True
        if self.due(standing.made):
            self.made = standing.made
            self._flush(wait=False)

    def leave(self, done: Done) -> None:
        own = self.sections[-1]
        own["done"][self.begun - 1 :] = [done]
        self.changed = True

    # --- the file ---

    def _data(self) -> dict[str, Any]:
        sections = [{**own, "done": list(own["done"])} for own in self.sections]
        return {"galapax": __version__, "about": self.about, "sections": sections}

    def _flush(self, wait: bool) -> None:
        """Write what is known, in a thread of its own unless to wait; not while another does."""
        if not wait and self._writer is not None and self._writer.is_alive():
            return
        self._join()
        self.written, self.changed = time.perf_counter(), False
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

    def _attempt(self, data: dict[str, Any]) -> None:
        start = time.perf_counter()
        try:
            self._write(data)
            self.failed = False
        except OSError as error:
            self.changed = True
            if not self.failed:
                warnings.warn(
                    f"The checkpoint {str(self.path)!r} could not be written ({error}): the run continues, and "
                    "what was "
                    "written before is still there.",
                    stacklevel=2,
                )
            self.failed = True
        self.cost = time.perf_counter() - start

    def _write(self, data: dict[str, Any]) -> None:
        if processes.process_index():  # the first one writes
            return
        chunks = pack(data)
        before = self.path.with_name(self.path.name + KEPT)
        if self.sound:
            with contextlib.suppress(FileNotFoundError):
                _link(self.path, before)
        atomic.write_bytes(self.path, *chunks)
        self.sound = True


def keeper(settings: Checkpoint | None, resume: Any) -> Keeper | None:
    """From `checkpoint=` and `resume=`: None where nothing is to be kept."""
    try:
        return _keeper(settings, resume)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: of a name that is none
        name = settings.path if settings is not None and resume in (None, False, True) else resume
        raise InputError(f"the checkpoint {abbreviate(str(name))} cannot be used: {error}.") from None


def _keeper(settings: Checkpoint | None, resume: Any) -> Keeper | None:
    if resume is True and settings is None:
        raise InputError(
            "resume=True continues from the file given as checkpoint=: add checkpoint=, or pass the file as resume=."
        )
    file = None
    if resume not in (None, False, True):
        file = Path(os.fspath(resume))
        if not file.exists() and not file.with_name(file.name + KEPT).exists():
            raise InputError(f"there is no checkpoint {str(file)!r} to resume from.")
        settings = Checkpoint(file) if settings is None else settings
    if settings is None:
        return None
    path = Path(settings.path)
    if path.exists() and not path.is_file():
        raise InputError(
            f"checkpoint must be a file; {str(path)!r} is {'a folder' if path.is_dir() else 'something else'}."
        )
    there = path.exists() or path.with_name(path.name + KEPT).exists()
    if resume is True and there:
        file = path
    if there and file is None and not processes.process_index():  # the first process may have written it by now
        raise InputError(
            f"{str(path)!r} already exists: continue from it (resume=True, --resume), or delete it to start again."
        )
    if not path.parent.is_dir():
        raise InputError(f"the folder {str(path.parent)!r} of the checkpoint does not exist: create it first.")
    return Keeper(settings, file)


def read(file: Path) -> dict[str, Any]:
    """What a checkpoint holds; of a damaged one, what the file before it does, with a warning."""
    before, problem = file.with_name(file.name + KEPT), ""
    for path in (file, before):
        try:
            data = unpack(_content(path))
            _check_parts(data)
        except FileNotFoundError:
            problem = problem or f"{str(file)!r} is missing"
            continue
        except Damaged as error:
            problem = problem or f"{str(file)!r} cannot be used: {error}"
            continue
        if path is before:
            warnings.warn(f"{problem}; continuing from {str(before)!r}, which is older.", stacklevel=2)
        return data
    raise InputError(f"{problem}.")


def _content(path: Path) -> bytes:
    """The bytes of a file. What is none, such as a pipe, is not waited for."""
    if path.exists() and not path.is_file():
        raise Damaged("it is not a file")
    return path.read_bytes()


def _check_parts(data: Any) -> None:
    """Refuse a file that is whole, but holds something else."""
    sections = data.get("sections") if isinstance(data, dict) else None
    if not isinstance(sections, list) or not isinstance(data.get("about"), dict):
        raise Damaged("it contains no run")
    for own in sections:
        parts = isinstance(own, dict) and isinstance(own.get("task"), dict) and isinstance(own.get("done"), list)
        if not parts or not all(isinstance(done, Done) for done in own["done"]):
            raise Damaged("it contains no run")
        if not isinstance(own.get("standing"), Standing | None) or not isinstance(own.get("at"), int):
            raise Damaged("it contains no run")


def _check_same(kept: dict[str, str], task: dict[str, str]) -> None:
    """Refuse to go on with something else."""
    other = [name for name in task if kept.get(name) != task[name]]
    if not other:
        return
    told = [name if name in HIDDEN else f"{name} ({kept.get(name)} there, {task[name]} here)" for name in other]
    raise InputError(
        f"the checkpoint belongs to another run, with another {', another '.join(told)}. A run continues "
        "with the settings "
        "it started with."
    )


def _sound(path: Path) -> bool:
    """Whether a file is worth keeping as the one before: one that is damaged is not."""
    try:
        unpack(_content(path))
    except (Damaged, OSError):
        return False
    return True


def _link(path: Path, other: Path) -> None:
    """Let the file be there by the other name, too: it is never gone in between."""
    part = path.with_name(atomic.temporary_name())
    try:
        os.link(path, part)
    except OSError:  # a file system without links
        os.replace(path, other)
        return
    os.replace(part, other)
