"""`result.plot`: the figures of a result, from notebooks and scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from galapax.core.errors import InputError
from galapax.results.result import Result
from galapax.view import data

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Plot:
    """The figures of a result. Each is a matplotlib Figure, which a notebook shows by itself.

    `result.plot()` draws the most telling one: the front of several objectives, else the convergence.
    """

    def __init__(self, result: Result) -> None:
        self._result = result

    def __call__(self) -> Figure:
        return self.front() if "F" in self._result else self.convergence()

    def convergence(self) -> Figure:
        """The best value by generation; for several runs the median, the middle half and the whole range."""
        plots = _plots()
        if data.history_of(self._result) is None:
            raise InputError("this result has no history: run it again with history=True.")
        return plots.convergence(self._result)

    def front(self) -> Figure:
        """The non-dominated solutions of several objectives, with knee, extremes and the true front where known."""
        return _plots().front(self._result)

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
        scale: "box", or "population" to see little differences. run: of an ensemble; by default the best.
        """
        return _films().filmstrip(self._result, generations, form=form, scale=scale, run=run)

    def parallel(self, generation: int | None = None) -> Figure:
        """A line over all variables for each solution of the front, or each individual of the (last) population."""
        return _plots().parallel(self._result, generation)

    def landscape(
        self,
        variables: Sequence[int | str] = (0, 1),
        *,
        window: Any = None,
        objective: int = 0,
        points: int | None = None,
    ) -> Figure:
        """The objective over two variables, numbers or names, with the populations on it.

        window: a (lower, upper) pair for each of the two, to zoom in.
        """
        return _plots().landscape(self._result, variables, window=window, objective=objective, points=points)

    def gif(self, file: str | Path, generations: Iterable[int] | None = None, **options: Any) -> Path:
        """The maps as an animated file, a frame for each population kept; options as for `maps`, and `seconds`."""
        return _films().animate(self._result, file, generations, **options)

    def save(self, folder: str | Path) -> tuple[list[Path], dict[str, str]]:
        """Write every figure that this result has to a folder as PNG, and each map by itself to the folder maps in it.

        Returns the files, and for each figure that there is not the reason.
        """
        result = self._result
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Callable[[], Figure]] = {
            "convergence": self.convergence,
            "maps": self.maps,
            "maps-variables": lambda: self.maps(form="variables"),
            "parallel": self.parallel,
            "landscape": self.landscape,
        }
        if "F" in result:
            figures["front"] = self.front
        written, missing = [], {}
        for name, draw in figures.items():
            file = path / f"{name}.png"
            file.unlink(missing_ok=True)  # an earlier run's picture would stand for this one's
            try:
                draw().savefig(file, dpi=150)
                written.append(file)
            except InputError as error:
                missing[name] = str(error)
        for file in (path / "maps").glob("*-map-*.png"):
            file.unlink()
        if result.get("snapshots"):
            written += _films().save_maps(result, path / "maps")
        else:
            missing.pop("maps-variables")  # for the same reason as "maps"
        return written, missing

    def __repr__(self) -> str:
        return "result.plot has convergence(), front(), maps(), parallel(), landscape(), gif(file) and save(folder)"


def lacking() -> str | None:
    """The package that pictures need and that is not installed, if there is one."""
    try:
        import matplotlib  # noqa: F401
        import PIL  # noqa: F401
    except ModuleNotFoundError as error:
        return error.name
    return None


def _plots() -> Any:
    missing = lacking()
    if missing is not None:
        raise InputError(f'pictures need the package {missing}: pip install "galapax[view]".')
    from galapax.view import plots

    return plots


def _films() -> Any:
    _plots()
    from galapax.view import films

    return films
