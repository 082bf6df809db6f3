"""Replaces the saved run in a folder: all numbers atomically, then the pictures."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from galapax.core.errors import InputError
from galapax.storage import atomic, manifest

Drawings = Mapping[str, Callable[[Path], object]]  # {file name: writes that file}, of what others draw into a folder


def replace_run(folder: Path, write_numbers: Callable[[Path], None], pictures: Drawings) -> Path:
    """Replace the run in `folder` by the files that `write_numbers` writes, then draw the pictures.

    Until all numbers are written nothing in `folder` changes. Files that galapax did not write are refused if they are
    in the way, and left alone if not.
    """
    manifest_text = b""
    with _explaining_os_errors(folder), atomic.staging_folder(folder) as stage:
        write_numbers(stage)

        def prepare() -> list[str]:
            new_names = [file.name for file in stage.iterdir()]
            manifest.refuse_unowned(folder, [*new_names, *pictures, manifest.NAME])
            manifest.write_missing(folder)
            for name in manifest.rename_modified(folder):
                _warn(f"A file in {folder} has been changed since galapax wrote it; it is kept as {name}.")
            nonlocal manifest_text
            manifest_text = manifest.write(stage, {})
            return [name for name in manifest.owned_files(folder) if name not in (*new_names, manifest.NAME)]

        atomic.replace_files(folder, stage, prepare, manifest.NAME, manifest.accept_pending)
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
                saved = manifest.Saved(folder)
                if saved.text != manifest_text:
                    raise InputError("another run was saved there in the meantime")
                manifest.refuse_unowned(folder, pictures)
                manifest.write(stage, saved.files or {})
                return []

            atomic.replace_files(folder, stage, prepare, manifest.NAME, manifest.accept_pending)
    except (OSError, InputError) as error:
        _warn(f"The pictures of the run in {folder} could not be saved ({_describe(error)}); the run itself was saved.")


@contextlib.contextmanager
def _explaining_os_errors(folder: Path) -> Iterator[None]:
    """Re-raise an OSError with the folder, and whether the previous run is intact."""
    try:
        yield
    except OSError as error:
        previous = ", and so is the run that was saved there before" if manifest.owned_files(folder) else ""
        raise OSError(
            f"The run could not be saved to {folder}: {error.strerror or error}. The result itself is intact{previous}."
        ) from error


def _describe(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error).strip()
    return f"{type(error).__name__}: {' '.join(text.split())[:200]}"


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=4)
