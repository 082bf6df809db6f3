"""Maps of populations small enough to say what every pixel is."""

import numpy as np
import pytest
from PIL import Image

import galapax as gx
from galapax.core.problem import Population
from galapax.view import animation, maps

UNIT = gx.box(0, 1, 4)


def shares(x):
    """Bytes that values from 0 to 1 become."""
    return np.round(255 * np.asarray(x)).astype(int).tolist()


def test_four_variables_are_the_colours_of_a_pixel_and_individuals_fill_a_tile_row_by_row():
    x = np.array([[0, 0.2, 0.4, 1], [1, 0, 0, 0.6], [0.2, 0.2, 0.2, 0.2], [0.8, 0.6, 0.4, 0]])
    tile = maps.genome_map(x, UNIT)
    assert tile.shape == (2, 2, 4) and tile.dtype == np.uint8
    assert tile[0, 0].tolist() == [0, 51, 102, 255]
    assert tile[0, 1].tolist() == [255, 0, 0, 153]
    assert tile[1, 0].tolist() == [51, 51, 51, 51]
    assert tile[1, 1].tolist() == [204, 153, 102, 0]


def test_each_variable_is_scaled_over_its_own_bounds():
    bounds = gx.Bounds(np.array([-10.0, 0.0]), np.array([10.0, 0.5]))
    assert maps.levels(np.array([[-10, 0.5], [6, 0.1]]), bounds).tolist() == [[0, 255], [204, 51]]
    outside = maps.levels(np.array([[-11, 0.6]]), bounds)  # where an algorithm may leave the box
    assert outside.tolist() == [[0, 255]]


def test_32_variables_make_four_by_two_tiles_the_first_at_the_upper_left_and_the_fifth_next_to_it():
    n, d = 4, 32
    x = np.broadcast_to(np.arange(d) / 255, (n, d))  # variable i is byte i in every individual
    whole = maps.genome_map(x, gx.box(0, 1, d))
    assert whole.shape == (2 * 2, 4 * 2, 4)
    for tile in range(8):
        row, column = divmod(tile, 4)
        part = whole[2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert (part == np.arange(4 * tile, 4 * tile + 4)).all()
    tall = maps.genome_map(x, gx.box(0, 1, d), columns=1)
    assert tall.shape == (16, 2, 4) and tall[2, 0].tolist() == [4, 5, 6, 7]


def test_odd_sizes_are_filled_up():
    x = np.full((5, 6), 0.2)  # five individuals in 2 x 3 pixels, six variables in two tiles
    whole = maps.genome_map(x, gx.box(0, 1, 6))
    assert whole.shape == (2, 2 * 3, 4)
    assert whole[0, 0].tolist() == [51, 51, 51, 51]
    assert whole[0, 3].tolist() == [51, 51, 0, 255]  # variables 5 and 6; no blue, and seen
    assert whole[1, 2].tolist() == [0, 0, 0, 0] and whole[1, 5].tolist() == [0, 0, 0, 0]  # no sixth individual


@pytest.mark.parametrize(
    ("n", "shape"), [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (7, (3, 3)), (8, (2, 4)), (400, (20, 20)), (800, (25, 32))]
)
def test_rasters_are_as_square_as_they_can_be(n, shape):
    assert maps.raster(n) == shape


def test_rasters_hold_everybody_and_waste_less_than_a_row():
    for n in range(1, 500):
        rows, columns = maps.raster(n)
        assert rows * columns >= n and rows * columns - n < columns and columns <= 3 * rows


def test_over_the_population_the_lowest_and_the_highest_of_all_variables_are_the_ends():
    x = np.array([[0.2, 0.3], [0.4, 0.7]])
    assert maps.levels(x, scale="population").tolist() == [shares([0, 0.2]), shares([0.4, 1])]
    wide = gx.Bounds(np.zeros(2), np.array([1.0, 100.0]))  # in places within the box, as units differ
    assert maps.levels(x * [1, 100], wide, "population").tolist() == [shares([0, 0.2]), shares([0.4, 1])]


def test_a_population_of_equals_is_even():
    x = np.full((4, 4), 0.3)
    assert (maps.genome_map(x, UNIT, scale="population") == 128).all()
    assert (maps.genome_map(x, UNIT) == round(0.3 * 255)).all()
    assert (maps.fitness_map(np.full(4, 7.0))[..., 0] == 0).all()


def test_over_a_background_no_pixel_vanishes():
    x = np.array([[0, 0, 0, 0], [0, 0, 0, 1.0], [1, 0, 0, 1.0]])
    seen = maps.genome_map(x, UNIT, background=(255, 255, 255))
    assert seen.shape == (1, 3, 3)
    assert seen[0].tolist() == [[191, 191, 191], [0, 0, 0], [255, 0, 0]]
    five = maps.genome_map(np.zeros((5, 4)), UNIT, background=(10, 20, 30))
    assert five[1, 2].tolist() == [10, 20, 30]  # no individual, so only background


def test_fitness_is_grey_from_the_lowest_to_the_highest():
    grey = maps.fitness_map(np.array([1.0, 2.0, 3.0, 6.0]))
    assert grey.shape == (2, 2, 2)
    assert grey[..., 0].tolist() == [[0, 51], [102, 255]] and (grey[..., 1] == 255).all()
    assert maps.fitness_map(np.array([1.0, 2.0]), low=0.0, high=4.0)[0, :, 0].tolist() == shares([0.25, 0.5])
    assert maps.fitness_map(np.array([1.0, 2.0]), maximize=True)[0, :, 0].tolist() == [255, 0]


def test_fitness_of_failed_individuals_is_white_and_a_gap_is_transparent():
    grey = maps.fitness_map(np.array([np.nan, np.inf, -np.inf, 1.0, 2.0]))
    assert grey.shape == (2, 3, 2)
    assert grey[..., 0].ravel()[:5].tolist() == [255, 255, 255, 0, 255]
    assert grey[1, 2].tolist() == [0, 0]
    assert (maps.fitness_map(np.full(2, np.inf))[..., 0] == 255).all()


def test_logarithmic_grey_tells_small_distances_apart():
    values = np.array([0.0, 1e-4, 1e-2, 1.0])
    even = maps.fitness_map(values, log=True)[..., 0].ravel().astype(int)
    assert even[0] == 0 and even[3] == 255 and np.diff(even).min() > 80
    assert even[1] == round(255 * np.log(101) / np.log(1e6 + 1))


def test_variable_map_has_a_row_for_each_individual_best_on_top():
    x = np.array([[0.2, 0.4], [0.6, 0.8], [1.0, 0.0]])
    fitness = np.array([3.0, np.nan, 1.0])
    assert maps.variable_map(x, gx.box(0, 1, 2)).tolist() == [[51, 102], [153, 204], [255, 0]]
    assert maps.variable_map(x, gx.box(0, 1, 2), fitness).tolist() == [[255, 0], [51, 102], [153, 204]]


def test_colours_are_viridis():
    ends = maps.apply_colormap(np.array([[0, 255]], np.uint8))
    assert ends.tolist() == [[[68, 1, 84], [253, 231, 37]]]


def test_pictures_enlarge_every_pixel_alike(tmp_path):
    x = np.array([[0, 0.2, 0.4, 1], [1, 0, 0, 0.6], [0.2, 0.2, 0.2, 0.2]])
    maps.to_image(maps.genome_map(x, UNIT), side=10).save(tmp_path / "map.png")
    read = np.asarray(Image.open(tmp_path / "map.png"))
    assert read.shape == (4, 12, 4)
    assert (read[:, 4:8] == [255, 0, 0, 153]).all()


def test_thinning_keeps_the_ends_and_nobody_twice():
    assert maps.thin_indices(5, 10).tolist() == [0, 1, 2, 3, 4]
    some = maps.thin_indices(1_000_000, 1000)
    assert len(set(some.tolist())) == 1000 and some[0] == 0 and some[-1] == 999_999
    assert np.diff(some).max() - np.diff(some).min() <= 1


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(gx.InputError, match="needs bounds"):
        maps.levels(np.zeros((2, 2)))
    with pytest.raises(gx.InputError, match='"box" or "population"'):
        maps.levels(np.zeros((2, 2)), scale="log")
    with pytest.raises(gx.InputError, match=r"shape \(3,\)"):
        maps.genome_map(np.zeros(3), UNIT)
    with pytest.raises(gx.InputError, match="at least one value"):
        maps.fitness_map(np.zeros(0))


@pytest.fixture(scope="module")
def ensemble():
    problem = gx.problems.get("sphere", dim=6)
    return gx.minimize(
        problem, gx.DE(population=12), runs=3, generations=30, seed=4, keep=gx.Keep(snapshots=[1, 10, 30]), polish=False
    )


def test_snapshots_of_an_ensemble_are_those_of_the_best_run_or_of_a_chosen_one(ensemble):
    best = int(np.argmin(ensemble.runs.fun))
    kept = maps.stored_populations(ensemble)
    assert list(kept) == [1, 10, 30] and kept[10].x.shape == (12, 6)
    assert np.array_equal(kept[10].x, ensemble.snapshots[10].x[best])
    other = maps.stored_populations(ensemble, [30], run=2)
    assert list(other) == [30] and np.array_equal(other[30].x, ensemble.snapshots[30].x[2])
    with pytest.raises(gx.InputError, match="run must be one of 0 to 2, got 3"):
        maps.stored_populations(ensemble, run=3)
    with pytest.raises(gx.InputError, match=r"among those stored \(1, 10, 30\); got \[7\]"):
        maps.stored_populations(ensemble, [7, 10])


def test_infeasible_individuals_have_no_fitness():
    kept = Population(np.zeros((2, 1)), np.array([[1.0], [2.0]]), np.array([0.5, 0.0]))
    assert np.isnan(maps.feasible_fitness(kept)).tolist() == [True, False]


def test_maps_are_written_one_by_one(ensemble, tmp_path):
    files = animation.save_maps(ensemble, tmp_path, [1, 30])
    assert sorted(f.name for f in files) == [
        f"{kind}-map-{g:06d}.png" for kind in ("fitness", "genome", "variable") for g in (1, 30)
    ]
    kept = maps.stored_populations(ensemble)[30]
    expected = maps.genome_map(kept.x, ensemble.problem.bounds, background=(255, 255, 255))
    read = np.asarray(Image.open(tmp_path / "genome-map-000030.png"))
    zoom = read.shape[0] // expected.shape[0]
    assert np.array_equal(read[::zoom, ::zoom], expected)


@pytest.mark.slow
def test_a_million_individuals_are_thinned():
    x = np.random.default_rng(0).random((1_000_000, 5))
    result = gx.minimize(gx.problems.get("sphere", dim=5), gx.DE(population=8), generations=2, polish=False)
    result["snapshots"] = {2: Population(x, x.sum(axis=1, keepdims=True), None)}
    figure = animation.filmstrip(result)
    shown = figure.axes[0].images[0].get_array()
    assert shown.shape[0] * shown.shape[1] <= 2**16 + 1000
    assert "32,768 of 1,000,000 shown" in figure.get_supxlabel()
    rows = animation.filmstrip(result, form="variables").axes[0].images[0].get_array()
    assert rows.shape == (400, 5, 3)
