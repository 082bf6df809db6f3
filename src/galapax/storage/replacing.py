"""A run takes the place of the one that its folder held: numbers first, all at once; pictures afterwards."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from galapax.core.errors import InputError
from galapax.storage import atomic, manifest

Drawings = Mapping[str, Callable[[Path], object]]  # {file name: writes that file}, of what others draw into a folder


def replace_run(folder: Path, numbers: Callable[[Path], None], pictures: Drawings) -> Path:
    """Let `numbers` write the files of a run and put them into `folder`; then draw the pictures, as far as that works.

    Until all numbers are written nothing in `folder` changes. Files that galapax did not write are refused if they are
    in the way, and left alone if not.
    """
    written = b""
    with _told(folder), atomic.staged(folder) as stage:
        numbers(stage)

        def prepare() -> list[str]:
            new = [file.name for file in stage.iterdir()]
            manifest.refuse_foreign(folder, [*new, *pictures, manifest.NAME])
            manifest.write_missing(folder)
            for name in manifest.set_aside_changed(folder):
                _warn(f"A file in {folder} has been changed since galapax wrote it; it is kept as {name}.")
            nonlocal written
            written = manifest.write(stage, {})
            return [name for name in manifest.owned(folder) if name not in (*new, manifest.NAME)]

        atomic.replace_files(folder, stage, prepare, manifest.NAME, manifest.accept_pending)
    if pictures:
        _add_pictures(folder, pictures, written)
    return folder


def _add_pictures(folder: Path, pictures: Drawings, written: bytes) -> None:
    """Draw pictures into the folder of a run, whose manifest is `written`. The run is saved already: what fails here
    is warned of and costs nothing else.
    """
    try:
        with atomic.staged(folder) as stage:
            for name, draw in pictures.items():
                try:
                    draw(stage / name)
                except Exception as error:
                    with contextlib.suppress(OSError):
                        (stage / name).unlink(missing_ok=True)
                    _warn(f"{name} could not be drawn ({_why(error)}); the run in {folder} is saved without it.")

            def prepare() -> list[str]:
                saved = manifest.Saved(folder)
                if saved.text != written:
                    raise InputError("another run was saved there in the meantime")
                manifest.refuse_foreign(folder, pictures)
                manifest.write(stage, saved.files or {})
                return []

            atomic.replace_files(folder, stage, prepare, manifest.NAME, manifest.accept_pending)
    except (OSError, InputError) as error:
        _warn(f"The pictures of the run in {folder} could not be saved ({_why(error)}); the run itself was saved.")


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    """A full disk or a missing right is told in a sentence, with what became of the run that was there."""
    try:
        yield
    except OSError as error:
        before = ", and so is the run that was saved there before" if manifest.owned(folder) else ""
        raise OSError(
            f"The run could not be saved to {folder}: {error.strerror or error}. The result itself is intact{before}."
        ) from error


def _why(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error).strip()
    return f"{type(error).__name__}: {' '.join(text.split())[:200]}"


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=4)
