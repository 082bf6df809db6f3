"""`illuminate`: what enters an archive, what it finds, and what users get wrong."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import galapax as gx
from galapax.algorithms.map_elites import MeasureGrid, find_entrants, insert
from galapax.core.problem import Population

BOX = [(-1.0, 1.0)] * 3
GRID = {"measures": lambda x: x[:2], "ranges": [(-1, 1)] * 2, "cells": (6, 5)}


def bowl(x):
    return jnp.sum((x - 0.2) ** 2)


def brute_force_archive(grid, batches):
    """The best value of each cell, one candidate after the other."""
    best = np.full(grid.size, np.inf)
    for values, measures, violation in batches:
        for value, place, excess in zip(values, measures, violation, strict=True):
            if not np.isfinite(value) or np.isnan(place).any() or excess > 0:
                continue
            index = [
                min(count - 1, max(0, int(np.floor((m - low) / (high - low) * count))))
                for m, (low, high), count in zip(place, grid.ranges, grid.cells, strict=True)
            ]
            cell = int(np.ravel_multi_index(index, grid.cells))
            best[cell] = min(best[cell], value)
    return best


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_each_cell_holds_the_best_feasible_candidate_that_fell_into_it(seed):
    draws, grid = np.random.default_rng(seed), MeasureGrid((3, 4), ((0.0, 1.0), (-2.0, 2.0)))
    archive = Population(jnp.zeros((12, 1)), jnp.full((12, 3), jnp.inf), jnp.full(12, jnp.inf))
    batches = []
    for _ in range(3):
        values = draws.integers(0, 6, 20).astype(float)  # with ties
        values[draws.random(20) < 0.1] = np.inf
        measures = np.stack([draws.uniform(-0.2, 1.2, 20), draws.uniform(-2.5, 2.5, 20)], axis=1)
        measures[draws.random(20) < 0.1] = np.nan
        batches.append((values, measures, np.where(draws.random(20) < 0.2, 1.0, 0.0)))
        objectives = jnp.asarray(np.column_stack([values, measures]))
        new = Population(jnp.asarray(values[:, None]), objectives, jnp.asarray(batches[-1][2]))
        archive = insert(archive, new, *find_entrants(grid, new, archive.fitness))
    np.testing.assert_allclose(archive.fitness, brute_force_archive(grid, batches))
    filled = np.isfinite(np.asarray(archive.fitness))
    np.testing.assert_allclose(np.asarray(archive.x)[filled, 0], np.asarray(archive.fitness)[filled])


@pytest.mark.parametrize("algorithm", ["map_elites", "cma_mae"])
def test_every_cell_is_found_with_nearly_its_best_value(algorithm):
    found = gx.illuminate(bowl, BOX, algorithm=algorithm, generations=60, **GRID)
    assert found.coverage == 1
    edges = [np.linspace(-1, 1, count + 1) for count in found.cells]
    nearest = [np.clip(0.2, edge[:-1], edge[1:]) for edge in edges]
    best = (nearest[0][:, None] - 0.2) ** 2 + (nearest[1][None] - 0.2) ** 2  # of each cell; x[2] is free
    assert np.all(found.values >= best - 1e-6)
    assert np.median(found.values - best) < 0.02
    np.testing.assert_allclose(found.measures, found.x[:, :2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.fun, [bowl(x) for x in found.x], rtol=1e-4, atol=1e-5)


def test_a_seed_repeats_a_run_and_a_saved_one_is_the_same(tmp_path):
    one, other = (gx.illuminate(bowl, BOX, algorithm="map_elites", generations=5, **GRID) for _ in range(2))
    np.testing.assert_array_equal(one.x, other.x)
    loaded = gx.Illumination(gx.load(one.save(tmp_path / "run")))
    np.testing.assert_allclose(loaded.values, one.values)
    table = one.to_dataframe()
    assert len(table) == len(one)
    assert list(table.columns) == ["x1", "x2", "x3", "fun", "measure1", "measure2"]
    assert "cells with an elite" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert one.plot().axes


def test_variables_of_every_kind_and_constraints():
    def size(p):
        return p["n"] + p["a"]

    found = gx.illuminate(
        lambda p: p["n"] * p["a"], {"n": gx.integer(1, 9), "a": gx.real(0, 1), "kind": gx.choice(["u", "v"])},
        measures=[size], ranges={"size": (1, 10)}, cells=9, maximize=True, ineq=lambda p: p["n"] - 6, generations=40,
    )  # fmt: skip
    assert found.names == ("size",)
    assert len(found) == 7  # sizes beyond 7 are infeasible
    assert found.fun[found.best] == pytest.approx(6, rel=0.02)
    assert np.all(found.x[:, 0] <= 6)


def test_a_black_box_returns_value_and_measures_at_once():
    def simulate(x):
        return [float(x[0] ** 2), float(x[0]), float(x[1])]

    found = gx.illuminate(simulate, BOX[:2], measures=["a", "b"], ranges=[(-1, 1)] * 2, cells=4,
                          algorithm=gx.MAPElites(population=50), blackbox=True, max_evaluations=500)  # fmt: skip
    assert found.result.nfev == 500
    assert found.coverage > 0.8
    assert found.measures[found.nearest(0.0, 0.5)] == pytest.approx([0, 0.5], abs=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measures": 3}, "measures must be a function, a list or a dict of functions"),
        ({"ranges": (0, 1)}, r"ranges must be a pair \(low, high\) for each measure"),
        ({"ranges": [(1, 0), (0, 1)]}, "each range must be a pair"),
        ({"cells": (3, 3, 3)}, "cells must be one number, or one for each of 2 measures"),
        ({"cells": 10**5}, "is too large"),
        (
            {"measures": lambda x: x[0]},
            "measures returned 1 value beside the one of fun, and ranges has 2: give a pair",
        ),
        ({"measures": lambda x: x[:1], "blackbox": True}, "measures returned 1 value beside the one of fun"),
        (
            {"measures": lambda x: jnp.repeat(x, 2)},
            r"measures returned \d+ values beside the one of fun, and ranges has 2",
        ),
        ({"algorithm": "cmame"}, "did you mean cma_mae"),
        ({"measures": ["a", "b"], "ranges": {"a": (0, 1)}}, "ranges must have an entry for each measure, a, b"),
    ],
)
def test_mistakes_are_explained(options, message):
    with pytest.raises(gx.InputError, match=message):
        gx.illuminate(bowl, BOX, **GRID | options)


@pytest.mark.parametrize("algorithm", ["map_elites", "cma_mae"])
def test_few_evaluations_make_generations_smaller(algorithm):
    for limit, least in ((1000, 5), (100, 2), (10, 1)):
        found = gx.illuminate(
            bowl, BOX, **GRID | {"algorithm": algorithm, "max_evaluations": limit, "generations": None}
        )
        assert found.result.nfev <= limit and found.result.nit >= least
    with pytest.raises(gx.InputError, match="max_evaluations must be at least 1"):
        gx.illuminate(bowl, BOX, **GRID | {"algorithm": algorithm, "max_evaluations": 0})


def test_other_results_are_no_illumination():
    with pytest.raises(gx.InputError, match="this result has no cells"):
        gx.Illumination(gx.minimize(bowl, BOX, "de", generations=2, polish=False))
