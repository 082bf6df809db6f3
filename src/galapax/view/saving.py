"""Saving a result or a study with its pictures: storage writes the numbers, the views draw the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import folders
from galapax.view import tables
from galapax.view.accessor import lacking


def save(result: Result, folder: str | Path) -> Path:
    """Write a result to a folder, see `storage.folders.save`; with matplotlib, its pictures and its page too."""
    return folders.save(result, folder, _pictures(result) if can_draw() else {})


def save_study(study: Study, folder: str | Path) -> Path:
    """Write a study to a folder, see `storage.folders.save_study`, with its tables as Markdown and LaTeX; with
    matplotlib, its pictures and its page too.
    """
    drawings: dict[str, Callable[[Path], object]] = {
        "summary.md": partial(_write, tables.markdown, study),
        "summary.tex": partial(_write, tables.latex, study),
    }
    return folders.save_study(study, folder, drawings | (_study_pictures(study) if can_draw() else {}))


def _pictures(result: Result) -> dict[str, Callable[[Path], object]]:
    from galapax.view import plots, report

    drawings = {"convergence.png": partial(_draw, plots.convergence, result, 150)}
    if result.knee is not None:
        drawings["front.png"] = partial(_draw, plots.front, result, 150)
    return {**drawings, "report.html": partial(_write, report.page, result)}


def _study_pictures(study: Study) -> dict[str, Callable[[Path], object]]:
    from galapax.view import plots, report

    drawings = {"convergence.png": partial(_draw, plots.study_convergence, study, 130)}
    if study.kind == "comparison":
        drawings["ecdf.png"] = partial(_draw, plots.running_times, study, 130)
    return {**drawings, "report.html": partial(_write, report.study_page, study)}


def _draw(figure_of: Callable[[Any], Any], what: Any, dpi: int, file: Path) -> None:
    figure_of(what).savefig(file, dpi=dpi)


def _write(text_of: Callable[[Any], str], what: Any, file: Path) -> None:
    file.write_bytes(text_of(what).encode("utf-8", "replace"))  # labels may hold halves of a character


def can_draw() -> bool:
    """Whether the `view` extra is installed; without it the numbers are saved all the same."""
    return lacking() is None
