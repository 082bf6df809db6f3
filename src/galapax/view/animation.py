"""Convergence maps of several generations: side by side, one file each, or as an animation."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import FuncNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image

from galapax.core.checks import escape_mathtext
from galapax.core.errors import InputError
from galapax.core.problem import Population
from galapax.results.result import Result
from galapax.storage import atomic
from galapax.view import figure_data, maps, plots
from galapax.view.plots import labels

MAX_STRIP_MAPS = 6  # maps side by side, unless generations are chosen
INFEASIBLE_COLOUR = (250, 215, 150)  # the colour of an individual that has no fitness
CHANNELS = ("red", "green", "blue", "opacity")  # of a pixel of the genome map, one variable each


class MapScale:
    """The common scale of the maps of several generations, so that they can be compared.

    The grey of the fitness maps runs from the best known value, or the best of these populations, to the worst of them,
    in even steps of the logarithm where they differ by more than two magnitudes. Infeasible individuals are orange.
    """

    def __init__(
        self, result: Result, populations: dict[int, Population], form: str, scale: str, max_pixels: int
    ) -> None:
        if form not in ("genome", "variables"):
            raise InputError(f'form must be "genome" or "variables", got {form!r}.')
        self.result, self.form, self.scale = result, form, scale
        self.maximize = result.sign < 0
        first = next(iter(populations.values()))
        self.n, self.d = np.shape(first.x)
        self.rows = maps.thin_indices(self.n, max_pixels // -(-self.d // 4) if form == "genome" else 400)
        all_fitness = np.concatenate([f[np.isfinite(f)] for f in map(maps.feasible_fitness, populations.values())])
        self.infeasible = any(np.isnan(maps.feasible_fitness(population)).any() for population in populations.values())
        self.low, self.high = (float(all_fitness.min()), float(all_fitness.max())) if all_fitness.size else (0.0, 0.0)
        optimum = None if "F" in result else figure_data.known_value(result)
        if optimum is not None:
            self.low = min(self.low, optimum)
        medians = [
            np.median(f[np.isfinite(f)])
            for f in map(maps.feasible_fitness, populations.values())
            if np.isfinite(f).any()
        ]
        best = self.high if self.maximize else self.low
        gaps = [result.sign * (end - best) for end in medians]
        self.log = bool(gaps) and self.high - self.low > 100 * min(gaps)

    def genes(self, population: Population) -> np.ndarray:
        bounds, x = self.result.problem.bounds, np.asarray(population.x)
        if self.form == "genome":
            return maps.genome_map(x[self.rows], bounds, scale=self.scale, background=(255, 255, 255))
        choose_generations = maps.sort_best_first(self.result.sign * maps.feasible_fitness(population))[self.rows]
        return maps.apply_colormap(maps.variable_map(x[choose_generations], bounds, scale=self.scale), plots.COLORMAP)

    def fitness(self, population: Population) -> np.ndarray:
        values = maps.feasible_fitness(population)[self.rows]
        grey = maps.fitness_map(values, low=self.low, high=self.high, log=self.log, maximize=self.maximize)
        pixels = np.concatenate([grey[..., :1].repeat(3, axis=-1), grey[..., 1:]], axis=-1).reshape(-1, 4)
        pixels[: len(values)][np.isnan(values), :3] = INFEASIBLE_COLOUR
        return pixels.reshape(*grey.shape[:2], 4)

    def norm(self) -> Normalize:
        """The scale of the fitness map, for its colour bar."""
        low, span = self.low, (self.high - self.low) or 1.0
        if not self.log:
            return Normalize(low, low + span)

        def forward(values: np.ndarray) -> np.ndarray:
            share = np.clip((np.asarray(values) - low) / span, 0, 1)
            share = 1 - share if self.maximize else share
            grey = np.log1p(1e6 * share) / np.log1p(1e6)
            return 1 - grey if self.maximize else grey

        def inverse(places: np.ndarray) -> np.ndarray:
            grey = 1 - np.asarray(places) if self.maximize else np.asarray(places)
            share = np.expm1(grey * np.log1p(1e6)) / 1e6
            return low + span * (1 - share if self.maximize else share)

        return FuncNorm((forward, inverse), low, low + span)

    def show_genes(self, axes: Axes, population: Population) -> AxesImage:
        pixels = self.genes(population)
        image = axes.imshow(pixels, interpolation="nearest", aspect="equal" if self.form == "genome" else "auto")
        if self.form == "genome":
            axes.set(xticks=[], yticks=[])
        else:
            names = self.result.problem.variable_names()
            tick_columns = maps.thin_indices(self.d, 5 if max(map(len, names)) < 4 else 3 if self.d > 4 else 4)
            axes.set_xticks(
                tick_columns,
                [escape_mathtext(names[i]) for i in tick_columns] if self.d > 4 else labels(self.result.problem),
            )
            if max(map(len, names)) > 4 and self.d <= 12:
                axes.set_xticks(range(self.d), labels(self.result.problem), rotation=90, fontsize=8)
            axes.set_yticks([])
        return image

    def show_fitness(self, axes: Axes, population: Population) -> AxesImage:
        axes.set(xticks=[], yticks=[])
        return axes.imshow(self.fitness(population), interpolation="nearest")

    def caption(self) -> str:
        """Describe in a line what a map shows."""
        share_note = "" if len(self.rows) == self.n else f" ({len(self.rows):,} of {self.n:,} shown)"
        range_name = "their box" if self.scale == "box" else "the population"
        if self.form == "variables":
            return f"One row per individual, best at the top{share_note}; variables scaled over {range_name}."
        tiles = -(-self.d // 4)
        down, across = maps.raster(tiles)
        height, width = maps.raster(len(self.rows))
        layout = f"{across} × {down} tiles" if tiles > 1 else "One tile"
        variables = "four variables" if self.d > 3 else f"{self.d} variable{'s' * (self.d > 1)}"
        channels = " and ".join(filter(None, (", ".join(CHANNELS[: min(self.d, 4) - 1]), CHANNELS[min(self.d, 4) - 1])))
        return (
            f"{layout} of {width} × {height} individuals{share_note}; a tile shows {variables} as {channels}, "
            f"scaled over {range_name}."
        )

    def fitness_name(self) -> str:
        name = figure_data.objective_names(self.result)[0]
        return f"{name} (orange: infeasible)" if self.infeasible else name


def filmstrip(
    result: Result,
    generations: Iterable[int] | None = None,
    *,
    form: str = "genome",
    scale: str = "box",
    run: int | None = None,
) -> Figure:
    """Draw the maps of some generations side by side: genomes above, fitness below.

    generations: some of those that `snapshots` kept; by default up to six, closer at first, where most happens.
    form: "genome", the paper's map with four variables in a pixel, or "variables", one row an individual and one column
    a variable. scale: "box" or "population", see `maps.levels`. run: the number of a run; by default the best one's.
    Large populations are thinned, which the caption says.
    """
    populations = maps.stored_populations(result, generations, run)
    if generations is None:
        populations = choose_generations(populations)
    scale_of_maps = MapScale(result, populations, form, scale, max_pixels=2**16)
    height, width = scale_of_maps.genes(next(iter(populations.values()))).shape[:2]
    map_width = 2.5
    map_height = min(map_width * height / width, 3.2) if form == "genome" else 3.0
    fitness_height = 1.7
    size = (max(7.0, map_width * len(populations) + 1.3), map_height + fitness_height + 1.6)
    figure = plots.NotebookFigure(figsize=size, layout="constrained")
    grid = figure.subplots(2, len(populations), squeeze=False, height_ratios=(map_height, fitness_height))
    for column, (generation, population) in enumerate(populations.items()):
        scale_of_maps.show_genes(grid[0, column], population)
        scale_of_maps.show_fitness(grid[1, column], population)
        grid[0, column].set_title(f"generation {generation:,}", fontsize=11)
    grid[0, 0].set_ylabel("variables" if form == "genome" else "individuals")
    grid[1, 0].set_ylabel("fitness")
    if form == "variables":
        colour_bar = figure.colorbar(ScalarMappable(Normalize(0, 1), plots.COLORMAP), ax=grid[0], aspect=25, pad=0.01)
        end_labels = ["lowest", "highest"] if scale == "box" else ["least", "most"]
        colour_bar.set_ticks([0, 1], labels=end_labels)
    colormap = "gray_r" if scale_of_maps.maximize else "gray"
    bar = figure.colorbar(ScalarMappable(scale_of_maps.norm(), colormap), ax=grid[1], aspect=15, pad=0.01)
    if scale_of_maps.log:
        ticks = np.array([0, 1e-4, 1e-2, 1])
        ticks = 1 - ticks if scale_of_maps.maximize else ticks
        bar.set_ticks(list(scale_of_maps.low + (scale_of_maps.high - scale_of_maps.low) * ticks))
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    bar.set_label(escape_mathtext(scale_of_maps.fitness_name()), fontsize=9)
    set_figure_title(figure, result, scale_of_maps.caption(), run=run)
    return figure


def choose_generations(populations: dict[int, Population]) -> dict[int, Population]:
    """Choose up to six of these populations, denser among the early ones, where most happens."""
    stored = np.array(list(populations))
    if len(stored) <= MAX_STRIP_MAPS:
        return populations
    targets = np.geomspace(stored[0], stored[-1], MAX_STRIP_MAPS)
    return {int(g): populations[int(g)] for g in sorted({stored[np.argmin(np.abs(stored - mark))] for mark in targets})}


def save_maps(
    result: Result,
    folder: str | Path,
    generations: Iterable[int] | None = None,
    *,
    scale: str = "box",
    run: int | None = None,
) -> list[Path]:
    """Write three PNG files a generation: its genome map, its fitness map and its variable map, with nothing else.

    generations, scale, run: see `filmstrip`. Each map's pixels are enlarged by a whole number.
    """
    populations = maps.stored_populations(result, generations, run)
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    genome, rows = (MapScale(result, populations, form, scale, maps.MAX_MAP_PIXELS) for form in ("genome", "variables"))
    files = []
    for g, population in populations.items():
        for name, pixels in (
            ("genome-map", genome.genes(population)),
            ("fitness-map", genome.fitness(population)),
            ("variable-map", rows.genes(population)),
        ):
            file = path / f"{name}-{g:06d}.png"
            atomic.write_by(file, partial(maps.to_image(pixels).save, format="PNG"))
            files.append(file)
    return files


def set_figure_title(figure: Figure, result: Result, note: str = "", run: int | None = None) -> None:
    """Set problem and algorithm as the title of a figure of several panels, and a note under them."""
    text = figure_data.result_title(result)
    if result.runs is not None:
        number = result.runs.number[maps.best_run_row(result)] if run is None else run
        text += f", run {number}"
    figure.suptitle(plots.wrap_title(text, figure), x=0.01, ha="left", fontsize=13)
    if note:
        figure.supxlabel(plots.wrap_title(note, figure, letters=14), x=0.01, ha="left", fontsize=9, color="#505050")


def animate(
    result: Result,
    file: str | Path,
    generations: Iterable[int] | None = None,
    *,
    form: str = "genome",
    scale: str = "box",
    run: int | None = None,
    seconds: float = 10.0,
) -> Path:
    """Write the maps of a run as an animated GIF, a frame for each population that was kept; see `filmstrip`.

    Below the maps, where a history was kept, the best value by generation with a mark that moves along. seconds: how
    long it takes in all, if that leaves each frame between 1/25 and 1/2 second; the last frame stays for two more.
    """
    populations = maps.stored_populations(result, generations, run)
    scale_of_maps = MapScale(result, populations, form, scale, max_pixels=2**15)
    first = next(iter(populations.values()))
    figure = Figure(figsize=(7.6, 4.9 if result.history is None else 6.4), dpi=90, layout="constrained")
    open_axes = FigureCanvasAgg(figure)
    rows = 1 if result.history is None else 2
    grid = figure.add_gridspec(rows, 2, width_ratios=(1.6, 1), height_ratios=(1.7, 1)[:rows])
    axes = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    gene_image, fitness_image = scale_of_maps.show_genes(axes[0], first), scale_of_maps.show_fitness(axes[1], first)
    label = axes[0].set_title("", fontsize=13, weight="bold")
    axes[1].set_title("fitness, darker is better" + ", orange infeasible" * scale_of_maps.infeasible, fontsize=11)
    if result.history is not None:
        history_axes = figure.add_subplot(grid[1, :])
        plots.draw_convergence(history_axes, result, objective=0 if "F" in result else None)
        mark = history_axes.axvline(1, color="black", lw=1.2)
    set_figure_title(figure, result, scale_of_maps.caption(), run=run)
    frames: list[Image.Image] = []
    for generation, population in populations.items():
        gene_image.set_data(scale_of_maps.genes(population))
        fitness_image.set_data(scale_of_maps.fitness(population))
        label.set_text(f"generation {generation:,}")
        if result.history is not None:
            mark.set_xdata([generation, generation])
        open_axes.draw()
        if not frames:
            figure.set_layout_engine("none")  # the panels stay where they are from now on
        image = Image.fromarray(np.asarray(open_axes.buffer_rgba())).convert("RGB")
        frames.append(image.quantize(256, dither=Image.Dither.NONE))
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    frame_ms = int(np.clip(1000 * seconds / len(frames), 40, 500))
    durations = [frame_ms] * (len(frames) - 1) + [frame_ms + 2000]
    options: dict[str, object] = {"save_all": True, "append_images": frames[1:], "duration": durations, "loop": 0}
    atomic.write_by(path, lambda file: frames[0].save(file, format="GIF", **options))
    return path
