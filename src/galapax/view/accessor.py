"""`result.plot`: the figures of a result, from notebooks and scripts; and saving a result with figures and report.

Storage writes the numbers, the views draw the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from galapax.core.errors import InputError, MissingPackage
from galapax.results.many_answers import Illumination
from galapax.results.result import Result, has_cells
from galapax.results.study import Study
from galapax.storage import atomic, result_folder
from galapax.view import figure_data, summary_tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from galapax.view.plots import AxesLike


class Plot:
    """The figures of a result. Each is a matplotlib Figure, which a notebook shows by itself.

    `result.plot()` draws the most telling one: the front of several objectives, else the convergence.
    """

    def __init__(self, result: Result) -> None:
        self._result = result

    def __call__(self, ax: Axes | None = None) -> Figure:
        if "minima" in self._result:
            return self.landscape(ax=ax) if self._result.problem.dim > 1 else self.parallel(ax=ax)
        if has_cells(self._result):
            return self.elites(ax)
        if "F" in self._result:
            return self.front(ax)
        is_first_generation = self._result.history is None and self._result.nit == 0  # of an Optimizer
        return self.parallel(ax=ax) if is_first_generation else self.convergence(ax)

    def convergence(self, ax: AxesLike | None = None) -> Figure:
        """The best value by generation; for several runs the median, the middle half and the whole range.

        ax: matplotlib axes to draw into, here and below; by default a new figure.
        """
        plots = _import_drawing()
        if figure_data.ensemble_history(self._result) is None:
            if self._result.nit == 0:
                raise InputError("no generation is complete yet: plot.parallel() draws the points that have values.")
            raise InputError("this result has no history: run it again with keep=gx.Keep(history=True).")
        return plots.convergence(self._result, ax)

    def front(self, ax: Axes | None = None) -> Figure:
        """The non-dominated solutions of several objectives, with knee, extremes and the true front where known."""
        return _import_drawing().front(self._result, ax)

    def elites(self, ax: Axes | None = None) -> Figure:
        """Of `gx.illuminate`: the value of each cell's elite over one or two measures."""
        return Illumination(self._result).plot(ax)

    def outcomes(self, ax: Axes | None = None) -> Figure:
        """Of `gx.robust`: how likely which value of fun is at x, in fresh samples, with the measure."""
        if not figure_data.robust_reports(self._result):
            raise InputError(
                "only a result of gx.robust has outcomes, and of the worst case over a box there are none."
            )
        return _import_drawing().outcomes(self._result, ax)

    def attainment(self, shares: Sequence[float] = (0.25, 0.5, 0.75), ax: Axes | None = None) -> Figure:
        """Of several runs with two objectives: the surfaces that these shares of the runs attain."""
        return _import_drawing().attainment(self._result, shares, ax)

    def importances(self, objective: int = 0, ax: Axes | None = None) -> Figure:
        """Of a black box: how much each variable matters, see `Result.importances`."""
        return _import_drawing().importances(self._result, objective, ax)

    def maps(
        self,
        generations: Iterable[int] | None = None,
        *,
        form: str = "genome",
        scale: str = "box",
        run: int | None = None,
    ) -> Figure:
        """Convergence maps of the generations that `snapshots` kept, side by side; see `galapax.view.maps`.

        form: "genome", four variables in the colour of a pixel, or "variables", one row per individual.
        scale: "box", or "population" to see small differences. run: of an ensemble; by default the best.
        The maps fill a figure of their own.
        """
        return _import_drawing("animation").filmstrip(self._result, generations, form=form, scale=scale, run=run)

    def parallel(self, generation: int | None = None, ax: Axes | None = None) -> Figure:
        """A line over all variables for each solution of the front, or each individual of the (last) population."""
        return _import_drawing().parallel(self._result, generation, ax)

    def landscape(
        self,
        variables: Sequence[int | str] = (0, 1),
        *,
        window: Sequence[tuple[float, float]] | None = None,
        objective: int = 0,
        points: int | None = None,
        ax: Axes | None = None,
    ) -> Figure:
        """The objective over two variables, numbers or names, with the populations on it.

        window: a (lower, upper) pair for each of the two, to zoom in. points: of the grid along each variable.
        """
        return _import_drawing("landscapes").landscape(
            self._result, variables, window=window, objective=objective, points=points, ax=ax
        )

    def gif(self, file: str | Path, generations: Iterable[int] | None = None, **options: object) -> Path:
        """The maps as an animated file, a frame for each population kept; options as for `maps`, and `seconds`."""
        return _import_drawing("animation").animate(self._result, file, generations, **options)

    def save(self, folder: str | Path) -> tuple[list[Path], dict[str, str]]:
        """Write every figure that this result has to a folder as PNG, and each map by itself to the folder maps in it.

        Returns the files, and for each figure that there is not the reason.
        """
        result, path = self._result, Path(folder)
        figures: dict[str, Callable[[], Figure]] = {
            "convergence": self.convergence,
            "maps": self.maps,
            "maps-variables": lambda: self.maps(form="variables"),
            "parallel": self.parallel,
            "landscape": self.landscape,
        }
        if has_cells(result):
            figures["elites"] = self.elites
        elif "F" in result:
            figures["front"] = self.front
        if figure_data.robust_reports(result):
            figures["outcomes"] = self.outcomes
        if "evaluations" in result:
            figures["importances"] = self.importances
        if result.runs is not None and result.runs.fronts is not None and len(result.signs) == 2:
            figures["attainment"] = self.attainment
        files, reasons = _save_figures(path, figures)
        for file in (path / "maps").glob("*-map-*.png"):
            file.unlink()
        if result.get("snapshots"):
            files += _import_drawing("animation").save_maps(result, path / "maps")
        else:
            reasons.pop("maps-variables")  # for the same reason as "maps"
        return files, reasons

    def __repr__(self) -> str:
        names = ("convergence", "front", "attainment", "importances", "elites", "outcomes", "maps", "parallel",
                 "landscape")  # fmt: skip
        return f"result.plot has {', '.join(f'{name}()' for name in names)}, gif(file) and save(folder)"


class StudyPlot:
    """The figures of a study. Each is a matplotlib Figure, which a notebook shows by itself.

    `study.plot()` draws the most telling one: a heat map of two hyper-parameters, else the convergence.
    """

    def __init__(self, study: Study) -> None:
        self._study = study

    def __call__(self, ax: Axes | None = None) -> Figure:
        is_grid = self._study.kind == "sweep" and len(self._study.axes) == 2
        return self.heatmap(ax) if is_grid else self.convergence(ax)

    def convergence(self, ax: AxesLike | None = None) -> Figure:
        """The distance to the best value: a panel for each problem of a comparison, a curve for each setting.

        ax: matplotlib axes to draw into, one for each panel, here and below; by default a new figure.
        """
        return _import_drawing().study_convergence(self._study, ax)

    def running_times(self, ax: Axes | None = None) -> Figure:
        """The share of targets reached by evaluations, over all problems and runs."""
        return _import_drawing().running_times(self._study, ax)

    def final(self, ax: AxesLike | None = None) -> Figure:
        """The share of runs that ended at least as close to the best value, a panel for each problem."""
        return _import_drawing().final_values(self._study, ax)

    def heatmap(self, ax: Axes | None = None) -> Figure:
        """The median of the runs over the first two hyper-parameters of a sweep."""
        return _import_drawing().heatmap(self._study, ax)

    def save(self, folder: str | Path) -> tuple[list[Path], dict[str, str]]:
        """Write every figure that this study has to a folder as PNG; return the files, and reasons for missing ones."""
        figures: dict[str, Callable[[], Figure]] = {
            "convergence": self.convergence,
            "ecdf": self.running_times,
            "final": self.final,
        }
        if self._study.kind == "sweep" and len(self._study.axes) > 1:
            figures["heatmap"] = self.heatmap
        if figure_data.has_ranks(self._study):
            figures["ranks"] = self.critical_difference
        if len(self._study.results[0].signs) == 2:
            figures["attainment"] = self.attainment
        return _save_figures(Path(folder), figures)

    def critical_difference(self, ax: Axes | None = None) -> Figure:
        """The average ranks of a comparison, with a bar over algorithms that do not differ significantly (Nemenyi)."""
        return _import_drawing().critical_difference(self._study, ax)

    def attainment(self, share: float = 0.5, ax: AxesLike | None = None) -> Figure:
        """Of two objectives: the surface that this share of the runs attains, a panel for each problem."""
        return _import_drawing().study_attainment(self._study, share, ax)

    def __repr__(self) -> str:
        names = ("convergence", "running_times", "final", "heatmap", "critical_difference", "attainment")
        return f"study.plot has {', '.join(f'{name}()' for name in names)} and save(folder)"


def _save_figures(folder: Path, figures: Mapping[str, Callable[[], Figure]]) -> tuple[list[Path], dict[str, str]]:
    """Write figures to a folder as PNG; return the files, and for each that cannot be drawn the reason."""
    folder.mkdir(parents=True, exist_ok=True)
    files, reasons = [], {}
    for name, draw in figures.items():
        file = folder / f"{name}.png"
        try:
            atomic.write_by(file, partial(draw().savefig, format="png", dpi=150))
            files.append(file)
        except (InputError, MissingPackage) as error:
            file.unlink(missing_ok=True)  # an earlier run's picture would stand for this one's
            reasons[name] = str(error)
    return files, reasons


def missing_package() -> str | None:
    """The package that figures need and that is not installed, if there is one."""
    try:
        import matplotlib  # noqa: F401
        import PIL  # noqa: F401
    except ModuleNotFoundError as error:
        return error.name
    return None


def _import_drawing(name: str = "plots") -> ModuleType:
    """Import a module of this package that draws with matplotlib."""
    missing = missing_package()
    if missing is not None:
        raise MissingPackage(f'pictures need the package {missing}: pip install "galapax[view]".')
    return import_module(f"galapax.view.{name}")


Saveable = TypeVar("Saveable", Result, Study)


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
    if has_cells(result):
        drawings["elites.png"] = partial(_draw, lambda result: Illumination(result).plot(), result, 150)
    elif result.knee is not None:
        drawings["front.png"] = partial(_draw, plots.front, result, 150)
    return {**drawings, "report.html": partial(_write, report.render_result, result)}


def _study_drawings(study: Study) -> dict[str, Callable[[Path], object]]:
    from galapax.view import plots, report

    drawings = {"convergence.png": partial(_draw, plots.study_convergence, study, 130)}
    if study.kind == "comparison":
        drawings["ecdf.png"] = partial(_draw, plots.running_times, study, 130)
        if figure_data.has_ranks(study):
            drawings["ranks.png"] = partial(_draw, plots.critical_difference, study, 130)
    return {**drawings, "report.html": partial(_write, report.render_study, study)}


def _draw(make_figure: Callable[[Saveable], Figure], source: Saveable, dpi: int, file: Path) -> None:
    make_figure(source).savefig(file, dpi=dpi)


def _write(render: Callable[[Saveable], str], source: Saveable, file: Path) -> None:
    file.write_bytes(render(source).encode("utf-8", "replace"))  # labels may hold halves of a character


def can_draw() -> bool:
    """Whether the `view` extra is installed; without it the numbers are saved all the same."""
    return missing_package() is None
