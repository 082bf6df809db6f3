"""Convergence maps: a population as an image, an array of bytes in NumPy. animation.py arranges several.

Fok, Wong & Wong (2007), IEEE Intelligent Systems 22(2):69-78, show a population in two ways, and so do
`genome_map` and `fitness_map`:

- The genome-convergence map. Variables go in fours into the red, green, blue and alpha of a pixel. The pixels of the
  same four variables of all individuals make a tile, w x h = population, and the tiles stand side by side, variables 1
  to 4 at the upper left, 5 to 8 next to it: *fragmentation and tiling*. 32 variables make 4 x 2 tiles. Noise turns into
  plain tiles as the population converges, and edges between tiles show that variables converged to different values.
- The fitness-convergence map. One grey pixel an individual, in the raster of a tile, from the lowest value, black, to
  the highest, white.

Four values in a pixel are hard to read: `variable_map` has a row for each individual and a column for each variable.

Where the paper is silent, we chose: a raster is as square as the number of its pixels allows (`raster`), filled row by
row, and pixels that no individual fills are transparent; a colour that no variable fills is 0, an alpha 255; how alpha
shows on a screen is told at `genome_map`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from galapax.core.errors import InputError
from galapax.core.problem import Bounds, Population
from galapax.results.result import Result, all_runs

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_OPACITY = 0.25  # of a pixel whose fourth variable is at its lowest, when drawn over a background
MAX_MAP_PIXELS = 2**20  # of a map in a picture; larger populations are thinned


def raster(n: int) -> tuple[int, int]:
    """Rows and columns of n pixels: without a gap where n has factors at most 1 to 3, else the next square or so."""
    rows = math.isqrt(n)
    while n % rows:
        rows -= 1
    if n <= 3 * rows * rows:
        return rows, n // rows
    columns = math.isqrt(n - 1) + 1
    return -(-n // columns), columns


def thin_indices(n: int, max_count: int) -> np.ndarray:
    """Choose at most `max_count` of the indices 0 to n - 1, evenly, including the first and the last."""
    return np.linspace(0, n - 1, max(1, min(n, max_count))).round().astype(int)


def levels(x: np.ndarray, bounds: Bounds | None = None, scale: str = "box") -> np.ndarray:
    """Each variable of a population (n, d) as a byte from 0, its lowest value, to 255, its highest: (n, d).

    scale: "box", each variable over its bounds, so that maps of different generations can be compared; or "population",
    from the lowest to the highest value that any variable has in this population, as the paper does, so that little
    differences show. There, with bounds, a value is its place within its box, as variables may differ in their units. A
    population whose values are all equal is 128 throughout.
    """
    if scale not in ("box", "population"):
        raise InputError(f'scale must be "box" or "population", got {scale!r}.')
    x = np.asarray(x, np.float64)
    if x.ndim != 2 or not x.size:
        raise InputError(f"a map needs a population (n, d), one row per individual; got an array of shape {x.shape}.")
    if bounds is not None:
        span = np.asarray(bounds.upper - bounds.lower, np.float64)
        x = (x - np.asarray(bounds.lower, np.float64)) / np.where(span > 0, span, 1)  # 0 of fixed variables
    elif scale == "box":
        raise InputError('a map scaled to the box needs bounds; pass them, or use scale="population".')
    low, high = (0.0, 1.0) if scale == "box" else (x.min(), x.max())
    if high == low:
        return np.full(x.shape, 128, np.uint8)
    return _to_bytes((x - low) / (high - low))


def genome_map(
    x: np.ndarray,
    bounds: Bounds | None = None,
    *,
    scale: str = "box",
    columns: int | None = None,
    background: tuple[int, int, int] | None = None,
) -> np.ndarray:
    """The genome-convergence map of a population (n, d), see above: red, green, blue and alpha, (height, width, 4).

    bounds, scale: see `levels`. columns: tiles in a row; by default as `raster` lays them out.
    background: draw the map over this colour, which gives (height, width, 3). In a file with alpha, an individual whose
    fourth variable is at its lowest would be invisible. So, over a background, alpha 0 to 255 counts as an opacity from
    1/4 to 1: the fourth variable makes a pixel paler, never empty.
    """
    values = levels(x, bounds, scale)
    n, d = values.shape
    tiles = -(-d // 4)
    pixels = np.zeros((n, 4 * tiles), np.uint8)
    pixels[:, 3::4] = 255
    pixels[:, :d] = values
    pixels = pixels.reshape(n, tiles, 4)
    if background is not None:
        opacity = MIN_OPACITY + (1 - MIN_OPACITY) * pixels[:, :, 3:] / 255
        pixels = _to_bytes((opacity * pixels[:, :, :3] + (1 - opacity) * np.array(background)) / 255)
    empty = np.zeros(4, np.uint8) if background is None else np.array(background, np.uint8)
    if columns is None:
        down, across = raster(tiles)
    else:
        down, across = -(-tiles // columns), columns
    height, width = raster(n)
    out = np.tile(empty, (down * across, height * width, 1))
    out[:tiles, :n] = pixels.transpose(1, 0, 2)
    out = out.reshape(down, across, height, width, -1).transpose(0, 2, 1, 3, 4)
    return out.reshape(down * height, across * width, -1)


def fitness_map(
    fitness: np.ndarray,
    *,
    low: float | None = None,
    high: float | None = None,
    log: bool = False,
    maximize: bool = False,
) -> np.ndarray:
    """The fitness-convergence map of n values, one pixel each: grey and alpha, (height, width, 2).

    low, high: the ends of the scale, black and white; by default the lowest and the highest of these values. The test
    functions of the paper have the minimum 0, which is its `low`; others have another one, see `Problem.optimum`.
    log: even steps on the logarithm of 1 + 10^6 (value - low) / (high - low), for values of many magnitudes.
    maximize: the highest is the best, and black. Values that are not finite, of failed individuals, are white, as bad
    as can be. Values all equal and no limits given: black.
    """
    values = np.asarray(fitness, np.float64).ravel()
    if not values.size:
        raise InputError("a fitness map needs at least one value.")
    finite = values[np.isfinite(values)]
    low = (finite.min() if finite.size else 0.0) if low is None else low
    high = (finite.max() if finite.size else 0.0) if high is None else high
    if maximize:
        values, low, high = -values, -high, -low
    with np.errstate(invalid="ignore"):
        share = np.clip((values - low) / (high - low if high > low else 1.0), 0, 1)
    if log:
        share = np.log1p(1e6 * share) / np.log1p(1e6)
    height, width = raster(values.size)
    out = np.zeros((height * width, 2), np.uint8)
    out[: values.size, 0] = _to_bytes(np.where(np.isfinite(values), share, 1.0))
    out[: values.size, 1] = 255
    return out.reshape(height, width, 2)


def variable_map(
    x: np.ndarray, bounds: Bounds | None = None, fitness: np.ndarray | None = None, *, scale: str = "box"
) -> np.ndarray:
    """A row for each individual, a column for each variable: bytes (n, d) for a colour scale, see `apply_colormap`.

    fitness: sorts the rows, the lowest on top and what is not finite last. bounds, scale: see `levels`.
    """
    values = levels(x, bounds, scale)
    return values if fitness is None else values[sort_best_first(fitness)]


def sort_best_first(fitness: np.ndarray) -> np.ndarray:
    """Argsort individuals from the lowest value to the highest; what is not finite comes last."""
    values = np.asarray(fitness, np.float64)
    return np.argsort(np.where(np.isfinite(values), values, np.inf), kind="stable")


def apply_colormap(values: np.ndarray, colormap: str = "viridis") -> np.ndarray:
    """Map bytes to red, green and blue by a matplotlib colormap; viridis and cividis are perceptually even."""
    from matplotlib import colormaps

    return _to_bytes(colormaps[colormap](np.asarray(values, np.uint8))[..., :3])


def to_image(pixels: np.ndarray, side: int = 400) -> Image:
    """Convert a map to a Pillow image, pixels enlarged by a whole number until the longer side has at least `side`.

    One value a pixel is drawn in viridis; two are grey and alpha, three red, green and blue, four those with alpha.
    """
    from PIL.Image import fromarray

    if pixels.ndim == 2:
        pixels = apply_colormap(pixels)
    zoom = max(1, -(-side // max(pixels.shape[:2])))
    return fromarray(np.ascontiguousarray(pixels.repeat(zoom, axis=0).repeat(zoom, axis=1)))


def stored_populations(
    result: Result, generations: Iterable[int] | None = None, run: int | None = None
) -> dict[int, Population]:
    """The snapshots (n, d) of one run, by generation: by default all, of the best run."""
    snapshots: dict[int, Population] = result.get("snapshots") or {}
    if not snapshots:
        raise InputError(
            "maps need stored populations, and this result has none: run it again with "
            "keep=gx.Keep(snapshots=[1, 10, 100]) (on the command line --snapshots 1,10,100 or --snapshots every:10)."
        )
    chosen = sorted(snapshots) if generations is None else sorted({int(g) for g in generations})
    missing = [g for g in chosen if g not in snapshots]
    if missing or not chosen:
        stored = ", ".join(map(str, sorted(snapshots)))
        raise InputError(f"generations must be among those stored ({stored}); got {missing or 'none'}.")
    numbers = all_runs(result).number.tolist()
    if run is not None and run not in numbers:
        raise InputError(f"run must be one of {numbers[0]} to {numbers[-1]}, got {run!r}.")
    if result.runs is None:
        return {g: snapshots[g] for g in chosen}
    row = best_run_row(result) if run is None else numbers.index(run)
    return {g: _run_of_population(snapshots[g], row) for g in chosen}


def _run_of_population(population: Population, row: int) -> Population:
    return Population(
        population.x[row],
        population.objectives[row],
        None if population.violation is None else population.violation[row],
    )


def best_run_row(result: Result) -> int:
    """The row of the run that found the result's x."""
    return int(np.argmax((all_runs(result).x == result.x).all(axis=1)))


def feasible_fitness(population: Population) -> np.ndarray:
    """The first objective (n,); NaN for an infeasible individual, whose value means nothing."""
    values = np.asarray(population.objectives, np.float64)[:, 0]
    return values if population.violation is None else np.where(np.asarray(population.violation) > 0, np.nan, values)


def _to_bytes(share: np.ndarray) -> np.ndarray:
    return np.clip(np.round(255 * share), 0, 255).astype(np.uint8)
