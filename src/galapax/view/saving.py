"""Save a result or a study with its figures and report: storage writes the numbers, the views draw the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import result_folder
from galapax.view import summary_tables
from galapax.view.accessor import missing_package

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T", Result, Study)


def save(result: Result, folder: str | Path) -> Path:
    """Write a result to a folder, see `storage.result_folder.save`; with matplotlib, its pictures and its page too."""
    return result_folder.save(result, folder, _result_drawings(result) if can_draw() else {})


def save_study(study: Study, folder: str | Path) -> Path:
    """Write a study to a folder, see `storage.result_folder.save`, with its tables as Markdown and LaTeX; with
    matplotlib, its pictures and its page too.
    """
    drawings: dict[str, Callable[[Path], object]] = {
        "summary.md": partial(_write, summary_tables.markdown, study),
        "summary.tex": partial(_write, summary_tables.latex, study),
    }
    return result_folder.save(study, folder, drawings | (_study_drawings(study) if can_draw() else {}))


def _result_drawings(result: Result) -> dict[str, Callable[[Path], object]]:
    from galapax.view import plots, report

    drawings = {"convergence.png": partial(_draw, plots.convergence, result, 150)}
    if result.knee is not None:
        drawings["front.png"] = partial(_draw, plots.front, result, 150)
    return {**drawings, "report.html": partial(_write, report.render_result, result)}


def _study_drawings(study: Study) -> dict[str, Callable[[Path], object]]:
    from galapax.view import plots, report

    drawings = {"convergence.png": partial(_draw, plots.study_convergence, study, 130)}
    if study.kind == "comparison":
        drawings["ecdf.png"] = partial(_draw, plots.running_times, study, 130)
    return {**drawings, "report.html": partial(_write, report.render_study, study)}


def _draw(make_figure: Callable[[T], Figure], source: T, dpi: int, file: Path) -> None:
    make_figure(source).savefig(file, dpi=dpi)


def _write(render: Callable[[T], str], source: T, file: Path) -> None:
    file.write_bytes(render(source).encode("utf-8", "replace"))  # labels may hold halves of a character


def can_draw() -> bool:
    """Whether the `view` extra is installed; without it the numbers are saved all the same."""
    return missing_package() is None
