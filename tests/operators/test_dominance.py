"""Domination, fronts, crowding and niches against plain NumPy, on random sets and on those that break such code."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import params, product
from support.paths import DATA

from galapax.numerics import devices, random
from galapax.numerics.devices import on_cpu
from galapax.operators import pairwise, ranking
from galapax.operators.selection import binary_tournament, take_from_union

N = 41
INF, NAN = np.inf, np.nan

counts = jax.jit(ranking.dominance_counts)
first_front = jax.jit(ranking.first_front)
RANKS = {
    "chosen for this device": jax.jit(ranking.ranks),
    "pushing": jax.jit(ranking.ranks_by_pushing),
    "chains": jax.jit(ranking.ranks_by_chains),
    "chains in blocks of 8": jax.jit(partial(ranking.ranks_by_chains, block=8)),
    "chains in blocks of 2": jax.jit(partial(ranking.ranks_by_chains, block=2)),
}
CROWDING = {
    "chosen for this device": jax.jit(ranking.crowding_distance),
    "sorting": jax.jit(ranking.crowding_by_sorting),
    "pairs": jax.jit(ranking.crowding_by_pairs),
}
peeling = jax.jit(ranking.ranks_by_peeling, static_argnums=1)
sweep = jax.jit(ranking.ranks_by_sweep)
both = jax.jit(ranking.ranks_and_crowding)


def table(objectives, violation=None):
    """Whether row i dominates row j, (n, n), straight from the definition."""
    v = np.zeros(len(objectives)) if violation is None else np.maximum(violation, 0)
    failed = ~np.isfinite(objectives).all(axis=1) | ~np.isfinite(v)
    one, other = objectives[:, None], objectives[None]
    better = np.all(one <= other, axis=2) & np.any(one < other, axis=2)
    sound = np.where(v[:, None] == v, better, v[:, None] < v)
    return np.where(failed[:, None] | failed, failed & ~failed[:, None], sound)


def peeled(dominates):
    """Front numbers by taking away the non-dominated again and again."""
    rank, left, number = np.full(len(dominates), -1), np.ones(len(dominates), bool), 0
    while left.any():
        front = left & ~(dominates & left[:, None]).any(axis=0)
        rank[front], number = number, number + 1
        left &= ~front
    return rank


def crowded(objectives, rank):
    failed = ~np.isfinite(objectives).all(axis=1, keepdims=True)
    values, out = np.where(failed, 0, objectives).astype(float), np.zeros(len(rank))
    for front in np.unique(rank):
        members = np.flatnonzero(rank == front)
        for k, column in enumerate(values.T):
            order = sorted(members, key=lambda i: (column[i], i if k == 0 else -i))
            out[order[0]] = out[order[-1]] = INF
            span = column[order[-1]] - column[order[0]]
            for before, here, after in zip(order, order[1:], order[2:], strict=False):
                out[here] += (column[after] - column[before]) / span if span > 0 else 0
    return out


def point_sets(m):
    """Named sets of N points: objectives and violation."""
    rng = np.random.default_rng(m)
    cloud = rng.random((N, m))
    simplex = rng.dirichlet(np.ones(m), N) if m > 1 else np.ones((N, 1))
    lattice = rng.integers(0, 3, (N, m)).astype(float)
    line = np.repeat(np.linspace(0, 1, N)[:, None], m, axis=1)
    tie = cloud.copy()
    tie[:, 0] = 0.5
    failed = cloud.copy()
    failed[::3], failed[1::7, 0], failed[2::9, -1] = INF, NAN, -INF
    some = np.where(rng.random(N) < 0.5, 0, rng.integers(1, 4, N)).astype(float)
    lost = np.where(rng.random(N) < 0.2, INF, some)
    return {
        "random": (cloud, None),
        "one front": (simplex, None),
        "one chain": (line[rng.permutation(N)], None),
        "a lattice with many equals": (lattice, None),
        "all equal": (np.ones((N, m)), None),
        "one objective tied": (tie, None),
        "collinear, falling": (np.concatenate([line[:, :1], 1 - line[:, 1:]], axis=1), None),
        "some failed": (failed, None),
        "all failed": (np.full((N, m), INF), None),
        "large and small": (cloud * 10.0 ** rng.integers(-30, 30, (N, 1)), None),
        "signed zeros": (np.where(cloud > 0.5, 0.0, -0.0), None),
        "feasible and not": (cloud, some),
        "lattice, feasible and not": (lattice, some),
        "none feasible": (cloud, some + 1),
        "failed and infeasible": (failed, lost),
        "different violations": (cloud, rng.random(N)),
        "negative violation is none": (cloud, -rng.random(N)),
    }


SETS = [(m, name) for m in (1, 2, 3, 10) for name in point_sets(m)]
NAMED_SETS = [
    # one objective takes the way of two,
    # ten that of three, and every number has programs of its own to compile
    pytest.param(m, name, id=f"{m} objectives, {name}", marks=pytest.mark.slow if m in (1, 10) else ())
    for m, name in SETS
]
EVERY_SET = pytest.mark.parametrize(("m", "name"), NAMED_SETS)


def in_float32(m, name):
    objectives, violation = point_sets(m)[name]
    return objectives.astype(np.float32), None if violation is None else violation.astype(np.float32)


def all_or_nothing(objectives, violation):
    """With +inf for all objectives of a point whose violation is not finite, as an evaluation has it."""
    return objectives if violation is None else np.where(np.isfinite(violation)[:, None], objectives, np.float32(INF))


@pytest.mark.parametrize(
    ("m", "name"),
    params(
        NAMED_SETS,
        quick={
            "2 objectives, collinear, falling",
            "2 objectives, some failed",
            "2 objectives, all failed",
            "2 objectives, large and small",
            "2 objectives, signed zeros",
            "2 objectives, different violations",
            "2 objectives, negative violation is none",
            "3 objectives, a lattice with many equals",
            "3 objectives, all equal",
            "3 objectives, one objective tied",
            "3 objectives, collinear, falling",
            "3 objectives, some failed",
            "3 objectives, all failed",
            "3 objectives, large and small",
            "3 objectives, signed zeros",
        },
    ),
)
def test_counts_and_ranks_agree_with_the_definition(m, name):
    objectives, violation = in_float32(m, name)
    dominates = table(objectives, violation)
    rank = peeled(dominates)
    assert np.array_equal(counts(objectives, violation), dominates.sum(axis=0))
    for path, ranks in RANKS.items():
        assert np.array_equal(ranks(objectives, violation), rank), path
    if m <= 2:
        assert np.array_equal(sweep(objectives, violation)[0], rank)
    assert np.array_equal(both(objectives, violation)[0], rank)


@pytest.mark.parametrize(
    ("m", "name"),
    params(
        NAMED_SETS,
        slow={"2 objectives, random", "2 objectives, one front", "3 objectives, random"},
    ),
)
def test_crowding_agrees_with_the_definition(m, name):
    objectives, violation = in_float32(m, name)
    objectives = all_or_nothing(objectives, violation)
    rank = peeled(table(objectives, violation)).astype(np.int32)
    expected = crowded(objectives, rank)
    for path, crowding in CROWDING.items():
        np.testing.assert_allclose(crowding(objectives, rank), expected, rtol=1e-4, atol=1e-6, err_msg=path)
    np.testing.assert_allclose(both(objectives, violation)[1], expected, rtol=1e-4, atol=1e-6)


PEER = json.loads((DATA / "pymoo_ranks.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", PEER, ids=[case["name"] for case in PEER])
def test_ranks_and_crowding_are_those_of_another_implementation(case):
    """The table was made once by the version of pymoo that it names."""
    objectives = np.array(case["objectives"], np.float32)
    n = len(objectives)
    failed = np.full((24 - n, objectives.shape[1]), NAN, np.float32)  # they come last, and one shape compiles once
    rank, crowding = (np.asarray(a)[:n] for a in both(np.concatenate([objectives, failed]), None))
    assert rank.tolist() == case["ranks"]
    theirs = np.array([INF if c is None else c for c in case["crowding"]]) * objectives.shape[1]  # they take the mean
    for front in np.unique(rank):
        members = rank == front
        columns = objectives[members].T
        # among equals the order is anybody's choice; a front's only point is an end of it, infinite, to Deb and 0 there
        if members.sum() > 1 and all(len(set(column)) == len(column) for column in columns):
            np.testing.assert_allclose(crowding[members], theirs[members], rtol=1e-4)


def test_the_table_of_the_other_implementation_has_crowding_to_compare():
    free = sum(
        all(len(set(column)) == len(column) for column in zip(*case["objectives"], strict=True))
        and any(c is not None for c in case["crowding"])
        for case in PEER
    )
    assert free >= 4


@EVERY_SET
def test_the_first_front_is_feasible_and_sound(m, name):
    objectives, violation = in_float32(m, name)
    sound = np.isfinite(objectives).all(axis=1)
    if violation is not None:
        sound &= violation <= 0
    expected = sound & ~table(objectives, violation).any(axis=0)
    assert np.array_equal(first_front(objectives, violation), expected)


@pytest.mark.parametrize("m", [2, 3])
def test_infeasible_points_come_after_all_feasible_ones_by_violation_and_failed_ones_last(m):
    objectives, violation = in_float32(m, "failed and infeasible")
    failed = ~np.isfinite(objectives).all(axis=1) | np.isinf(violation)
    rank = np.asarray(RANKS["chosen for this device"](objectives, violation))
    feasible = ~failed & (violation <= 0)
    infeasible = ~failed & ~feasible
    assert rank[feasible].max() < rank[infeasible].min()
    assert rank[~failed].max() < rank[failed].min() == rank[failed].max()
    for level in np.unique(violation[infeasible])[:-1]:
        assert rank[infeasible & (violation == level)].max() < rank[infeasible & (violation > level)].min()


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("m", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_few_points_are_enough(n, m):
    objectives = np.arange(n * m, dtype=np.float32).reshape(n, m)
    for path, ranks in RANKS.items():
        assert np.array_equal(ranks(objectives), np.arange(n)), path
    for path, crowding in CROWDING.items():
        assert np.all(np.isinf(crowding(objectives, np.arange(n, dtype=np.int32)))), path
    assert np.array_equal(first_front(objectives), np.arange(n) == 0)


values = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 2.0, 1e30, -5.0, INF, -INF, NAN])


NINE = {
    "rows": st.lists(st.tuples(values, values), min_size=9, max_size=9),
    "violation": st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0, INF, NAN]), min_size=9, max_size=9),
}


def nine_points_are_ranked_as_defined(rows, violation):
    # failed points behind them, which change no rank: the programs are those for N points, compiled already
    objectives = np.array(rows + [(NAN, NAN)] * (N - 9), np.float32)
    violation = np.array(violation + [0.0] * (N - 9), np.float32)
    for v in (None, violation):
        rank = peeled(table(objectives, v))
        for path, ranks in RANKS.items():
            assert np.array_equal(ranks(objectives, v), rank), path
        found, crowding = sweep(objectives, v)
        assert np.array_equal(found, rank)
        expected = crowded(all_or_nothing(objectives, v), rank)
        np.testing.assert_allclose(crowding, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True)
@given(**NINE)
def test_any_nine_points_are_ranked_as_defined(rows, violation):
    nine_points_are_ranked_as_defined(rows, violation)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, derandomize=True)
@given(**NINE)
def test_very_many_sets_of_nine_points_are_ranked_as_defined(rows, violation):
    nine_points_are_ranked_as_defined(rows, violation)


LARGE = [pytest.param(path, marks=pytest.mark.slow if "blocks" in path else ()) for path in RANKS]


@pytest.mark.parametrize("path", params(LARGE, quick={"chosen for this device", "pushing"}))
def test_a_rank_is_one_more_than_the_highest_among_its_dominators(path):
    objectives = np.random.default_rng(0).random((1500, 2)).astype(np.float32)
    le = (objectives[:, None] <= objectives[None]).all(axis=2) & (objectives[:, None] != objectives[None]).any(axis=2)
    rank = np.asarray(RANKS[path](objectives))
    assert np.array_equal(rank, np.where(le, rank[:, None] + 1, 0).max(axis=0))


@pytest.mark.parametrize(
    ("m", "constrained"),
    [
        (2, False),
        pytest.param(3, True, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
        pytest.param(3, False, marks=pytest.mark.slow),
    ],
)
def test_a_batch_of_runs_is_each_run_alone(m, constrained):
    rng = np.random.default_rng(1)
    objectives = rng.integers(0, 6, (5, N, m)).astype(np.float32)
    violation = rng.integers(0, 3, (5, N)).astype(np.float32) if constrained else None
    alone = [both(objectives[r], violation[r] if constrained else None) for r in range(5)]
    rank, crowding = jax.jit(jax.vmap(ranking.ranks_and_crowding))(objectives, violation)
    chains = jax.jit(jax.vmap(ranking.ranks_by_chains))(objectives, violation)
    for r in range(5):
        assert np.array_equal(rank[r], alone[r][0]) and np.array_equal(chains[r], alone[r][0])
        np.testing.assert_allclose(crowding[r], alone[r][1], rtol=1e-5)


def test_float64_is_ranked_in_float64():
    objectives = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-12], [1.0 - 1e-12, 1.0]])
    with jax.enable_x64(True):
        for ranks in (ranking.ranks, ranking.ranks_by_chains, ranking.ranks_by_pushing):
            assert np.array_equal(jax.jit(ranks)(jnp.asarray(objectives)), [1, 2, 0])


# ---------------------------------------------------------------------------------------------------------------------
# Tiles


def pair_terms(row, other):
    closer = jnp.abs(row[0] - other[0]) + jnp.abs(row[1] - other[1])
    return closer, (row[0] <= other[0]).astype(jnp.int32), closer


REDUCTIONS = (pairwise.MIN, pairwise.SUM, pairwise.MAX)


@pytest.mark.parametrize(
    ("tile", "longest"),
    params(product([1, 7, 40, N, 2 * N], [5, 10_000]), quick={"7-10000", "41-10000", "82-5", "82-10000"}),
)
def test_tiles_and_turns_give_what_the_whole_gives(tile, longest, monkeypatch):
    monkeypatch.setattr(pairwise, "MAX_REDUCTION_LENGTH", longest)
    rng = np.random.default_rng(2)
    rows, others = (tuple(jnp.asarray(c) for c in rng.random((2, n)).astype(np.float32)) for n in (N, 29))
    r, o = (np.stack(c) for c in (rows, others))
    distance = np.abs(r[:, :, None] - o[:, None, :]).sum(axis=0)
    expected = distance.min(axis=1), (r[0][:, None] <= o[0]).sum(axis=1), distance.max(axis=1)
    tiles = jax.jit(partial(pairwise.reduce_by_tiles, pair_terms, REDUCTIONS, tile=tile))(rows, others)
    turns = jax.jit(partial(pairwise.reduce_by_loop, pair_terms, REDUCTIONS))(rows, others)
    for one, other, true in zip(tiles, turns, expected, strict=True):
        np.testing.assert_allclose(one, true, rtol=1e-6)
        np.testing.assert_allclose(other, true, rtol=1e-6)


def test_memory_does_not_grow_with_the_square():
    n = 2**15
    shape = jax.ShapeDtypeStruct((n, 2), np.float32)
    for function in (ranking.dominance_counts, ranking.ranks, lambda f: ranking.niche_counts(f, 0.1)):
        used = jax.jit(function).lower(shape).compile().memory_analysis()
        # a table of pairs of bytes alone would be n * n; a GPU holds partial sums of the pairs of one tile
        assert used.temp_size_in_bytes < (200 * n if on_cpu() else n * n // 8)


@pytest.mark.slow
def test_the_largest_population_runs():
    objectives = np.random.default_rng(0).random((2**17, 2)).astype(np.float32)
    rank = np.asarray(sweep(objectives)[0])
    assert np.array_equal(rank == 0, first_front(objectives))
    found = np.asarray(counts(objectives))
    assert np.array_equal(found == 0, rank == 0)


# ---------------------------------------------------------------------------------------------------------------------
# Niches

mean_distance = jax.jit(ranking.mean_distance)
niche_counts = jax.jit(ranking.niche_counts)


def test_niche_counts_by_hand():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [0.0, 8.0]], np.float32)
    # distances from the first: 5, 0, 8; from the second: 5, 5, 5; from the last: 8, 5, 8; sh(d) = 1 - d / 10
    assert np.allclose(niche_counts(points, 10.0), [1 + 0.5 + 1 + 0.2, 1 + 0.5 + 0.5 + 0.5, 2.7, 1 + 0.2 + 0.5 + 0.2])
    assert np.allclose(niche_counts(points, 5.0), [2, 1, 2, 1])  # at the radius sharing ends
    assert np.allclose(niche_counts(points, 0.0), [2, 1, 2, 1])  # equal points share at any radius


def test_niche_counts_among_others_take_only_those_counted():
    points = np.array([[0.0, 0.0], [1.0, 0.0]], np.float32)
    others = np.array([[0.0, 1.0], [INF, NAN], [1.0, 0.0]], np.float32)
    counted = np.array([True, False, True])
    assert np.allclose(niche_counts(points, 2.0, others, counted), [0.5 + 0.5, 1 - np.sqrt(2) / 2 + 1])
    assert np.array_equal(niche_counts(points, 2.0, others, np.zeros(3, bool)), [0, 0])


def test_mean_distance_is_over_pairs_of_different_points():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 8.0], [INF, 1.0]], np.float32)
    counted = np.array([True, True, True, False])
    assert np.isclose(mean_distance(points, counted), (5 + 8 + 5) / 3)
    assert np.isclose(mean_distance(points[:2]), 5)
    assert mean_distance(points[:1]) == 0
    assert mean_distance(points, np.zeros(4, bool)) == 0


def test_scaled_points_fill_the_unit_box_and_ignore_the_rest():
    points = np.array([[10.0, -1.0], [30.0, 1.0], [20.0, 0.0], [1e9, INF]], np.float32)
    fill = jax.jit(ranking.scale_to_range)
    scaled = np.asarray(fill(points, np.array([True, True, True, False])))
    assert np.allclose(scaled[:3], [[0, 0], [1, 1], [0.5, 0.5]]) and np.isfinite(scaled).all()
    flat = np.asarray(fill(np.full((3, 2), 7.0, np.float32), np.ones(3, bool)))
    assert np.isfinite(flat).all() and np.all(flat == flat[0])


def test_a_set_that_holds_every_point_dominates_what_is_dominated():
    objectives = np.random.default_rng(0).random((30, 2)).astype(np.float32)
    rows = np.stack([np.arange(30), np.arange(30)[::-1]]).astype(np.int32)
    draw = jax.jit(ranking.dominated_by_sample, static_argnums=4)
    key = random.run_keys(0, 0, 1)[0]
    beaten = table(objectives).any(axis=0)
    assert np.array_equal(draw(key, objectives, None, rows, 1000), beaten[rows])  # 1000 draws of 30 hold all of them
    few = np.asarray(draw(key, objectives, None, rows, 3))
    assert np.all(few <= beaten[rows]) and few.sum() < beaten[rows].sum()


# ---------------------------------------------------------------------------------------------------------------------
# Selection by front and crowding


@pytest.fixture(params=["this device", "the other"])
def either_form(request, monkeypatch):
    if request.param == "the other":
        monkeypatch.setattr(devices, "on_cpu", lambda: jax.default_backend() != "cpu")


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("count", [1, 7, 20, N])
def test_the_best_rows_are_the_first_by_rank_then_by_spread(count):
    rng = np.random.default_rng(count)
    rank = rng.integers(0, 4, N).astype(np.int32)
    spread = np.where(rng.random(N) < 0.3, INF, rng.integers(0, 3, N)).astype(np.float32)
    rows = np.asarray(jax.jit(partial(ranking.select_best_rows, count=count))(rank, spread))
    order = np.lexsort((np.arange(N), -spread, rank))
    assert len(set(rows.tolist())) == count
    assert sorted(zip(rank[rows], -spread[rows], strict=True)) == sorted(zip(rank, -spread, strict=True))[:count]
    assert set(rows[rank[rows] < rank[order[count - 1]]]) == set(order[:count][rank[order[:count]] < rank[rows].max()])


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 65, 257])
def test_ranks_by_chains_with_and_without_a_loop_over_the_blocks(n, monkeypatch):
    objectives = np.random.default_rng(n).integers(0, 12, (n, 2)).astype(np.float32)
    unrolled = ranking.ranks_by_chains(objectives, None, block=64)
    monkeypatch.setattr(ranking, "MAX_UNROLLED_BLOCKS", 0)
    assert np.array_equal(unrolled, ranking.ranks_by_chains(objectives, None, block=64))
    monkeypatch.setattr(ranking, "MAX_UNROLLED_BLOCKS", 99)
    assert np.array_equal(unrolled, ranking.ranks_by_chains(objectives, None, block=64))
    assert np.array_equal(unrolled, ranking.ranks_by_sweep(objectives)[0])


@pytest.mark.parametrize("kind", ["random", "ties", "one front", "one chain", "failed", "all equal", "all failed"])
def test_two_objectives_peeled_are_ranked_as_by_the_sweep(kind):
    rng = np.random.default_rng(7)
    objectives = rng.random((150, 2)).astype(np.float32)
    if kind == "ties":
        objectives = np.round(objectives * 5)
    elif kind == "one front":
        objectives[:, 1] = 1 - objectives[:, 0]
    elif kind == "one chain":
        objectives[:, 1] = objectives[:, 0]
    elif kind == "failed":
        objectives = np.where(rng.random((150, 2)) < 0.2, np.nan, np.round(objectives * 9)).astype(np.float32)
    elif kind.startswith("all"):
        objectives[:] = np.inf if kind == "all failed" else 0.5
    ranks = np.asarray(sweep(objectives)[0])
    assert np.array_equal(peeling(objectives), ranks)
    for enough in (1, 60, 149):  # those get their ranks, the others one that comes after them
        found = np.asarray(peeling(objectives, enough))
        last = np.max(found)
        assert np.array_equal(found[found < last], ranks[found < last])
        assert np.all(ranks[found == last] >= last)
        assert np.sum(found < last) >= enough or np.array_equal(found, ranks)


@pytest.mark.parametrize("drawn", [1, 5, ranking.MAX_SAMPLED_COMPARISONS + 3])
def test_comparison_sets_have_the_size_asked_for_in_either_form(drawn, monkeypatch):
    # one point in 300 dominates row 1: it is drawn with chance 1 - (299 / 300) ** drawn
    objectives = np.concatenate([np.zeros((1, 2)), np.ones((1, 2)), np.full((298, 2), 2.0)]).astype(np.float32)
    rows = np.ones((1, 20_000), np.int32)
    chance = 1 - (299 / 300) ** drawn
    for cpu in (True, False):
        monkeypatch.setattr(devices, "on_cpu", lambda cpu=cpu: cpu)
        draw = jax.jit(partial(ranking.dominated_by_sample, violation=None, sample_size=drawn))
        hit = np.mean(draw(random.run_keys(0, 0, 1)[0], objectives, rows=rows))
        assert abs(hit - chance) < 5 * np.sqrt(chance * (1 - chance) / 20_000)


def test_a_tournament_goes_to_the_lower_rank_then_to_the_greater_spread():
    rank, spread = np.array([0, 0, 1], np.int32), np.array([1.0, INF, INF], np.float32)
    winners = np.asarray(
        jax.jit(binary_tournament, static_argnums=3)(random.run_keys(0, 0, 1)[0], rank, spread, 90_000)
    )
    share = np.bincount(winners, minlength=3) / len(winners)
    assert np.allclose(share, [3 / 9, 5 / 9, 1 / 9], atol=0.008)  # of the nine pairs the second wins all but four


def test_rows_of_two_populations_come_as_if_they_were_one():
    a, b = {"x": jnp.arange(6.0).reshape(3, 2)}, {"x": jnp.arange(6.0, 12.0).reshape(3, 2)}
    rows = jnp.array([5, 0, 3, 3, 2])
    assert np.array_equal(jax.jit(take_from_union)(rows, a, b)["x"], np.arange(12.0).reshape(6, 2)[rows])
