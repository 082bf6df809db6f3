"""The operators one by one: what they promise exactly, and what only by chance (SIGNIFICANCE, with fixed seeds)."""

from itertools import permutations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from galapax.core.errors import InputError
from galapax.core.problem import Bounds, Population, as_bounds
from galapax.numerics import random
from galapax.numerics.jaxpr import apply_flattened
from galapax.operators.sampling import bounce_back, sample_uniform
from galapax.operators.selection import best_index, no_worse, tree_where
from galapax.operators.variation import best_1, binomial_crossover, breed, draw_partners, rand_1

SIGNIFICANCE = 1e-4
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])

draw_partners = jax.jit(draw_partners, static_argnums=(1, 2))
draw_partners_each = jax.jit(jax.vmap(draw_partners, in_axes=(0, None, None)), static_argnums=(1, 2))
crossed = jax.jit(binomial_crossover)
bounced = jax.jit(bounce_back)
sampled = jax.jit(sample_uniform, static_argnums=2)
mutated = {"rand_1": jax.jit(rand_1), "best_1": jax.jit(best_1)}


def keys(count, seed=3):
    return random.run_keys(seed, 0, count)


def key(seed=3):
    return keys(1, seed)[0]


def is_chance(found, expected):
    """Whether counts differ from the expected ones as much as chance makes them."""
    found, expected = np.ravel(found), np.ravel(expected)
    p = stats.chi2.sf(((found - expected) ** 2 / expected).sum(), found.size - 1)
    return SIGNIFICANCE / 2 < p < 1 - SIGNIFICANCE / 2


def evenly(counts):
    return is_chance(counts, np.full(np.shape(counts), np.mean(counts)))


# ---------------------------------------------------------------------------------------------------------------------
# Partners


@pytest.mark.parametrize(
    ("n", "count"),
    [(2, 1), (3, 2), (6, 5), *product((4, 5, 50, 70_000), (1, 2, 3))],
)
def test_partners_are_distinct_and_never_the_target(n, count):
    for one in keys(20 if n < 100 else 2):
        picks = np.asarray(draw_partners(one, n, count))
        assert picks.shape == (count, n) and picks.dtype == np.int32
        assert picks.min() >= 0 and picks.max() < n
        everyone = np.sort(np.concatenate([np.arange(n)[None], picks]), axis=0)
        assert np.all(np.diff(everyone, axis=0) > 0)


@pytest.mark.parametrize(("n", "count"), [(4, 1), (4, 2), (4, 3), (5, 2), (5, 3), (6, 3)])
def test_every_ordered_choice_of_partners_is_equally_likely(n, count):
    picks = np.asarray(draw_partners_each(keys(40_000), n, count))
    for target in range(n):
        choices = list(permutations([i for i in range(n) if i != target], count))
        codes = picks[:, :, target] @ n ** np.arange(count)
        found = [np.count_nonzero(codes == np.dot(choice, n ** np.arange(count))) for choice in choices]
        assert sum(found) == 40_000 and evenly(found)


def test_partners_of_two_targets_are_drawn_independently():
    picks = np.asarray(draw_partners_each(keys(60_000), 5, 3))
    for a, b in ((0, 1), (1, 4)):
        for i, j in product(range(3), range(3)):
            table = np.histogram2d(picks[:, i, a], picks[:, j, b], bins=[np.arange(6)] * 2)[0]
            table = np.delete(np.delete(table, a, axis=0), b, axis=1)
            assert evenly(table)


@pytest.mark.parametrize("n", [50, 70_000])
def test_partners_in_a_large_population_come_from_everywhere(n):
    drawn = draw_partners_each(keys(2000 if n == 50 else 4), n, 3)
    picks = np.concatenate(np.asarray(drawn), axis=1)
    ahead = (picks - np.arange(picks.shape[1]) % n) % n  # how far after the target, 1 .. n - 1
    for row in ahead:
        assert row.min() >= 1
        classes = (row - 1) * 49 // (n - 1)
        sizes = np.bincount(np.arange(n - 1) * 49 // (n - 1), minlength=49)
        assert is_chance(np.bincount(classes, minlength=49), sizes / (n - 1) * classes.size)


def test_partners_need_memory_in_proportion_to_the_population():
    for n in (10**5, 10**6):
        compiled = draw_partners.lower(key(), n, 3).compile()
        memory = compiled.memory_analysis()
        assert memory.temp_size_in_bytes + memory.output_size_in_bytes <= 16 * 4 * n  # a few words for each pick
    picks = np.asarray(draw_partners(key(), 10**6, 3))
    assert picks.min() >= 0 and picks.max() < 10**6 and not np.any(picks == np.arange(10**6))


# ---------------------------------------------------------------------------------------------------------------------
# Mutation


def population(x, fitness=None, violation=None):
    fitness = np.zeros(len(x)) if fitness is None else np.asarray(fitness)
    violation = None if violation is None else jnp.asarray(violation, x.dtype)
    return Population(jnp.asarray(x), jnp.asarray(fitness, x.dtype)[:, None], violation)


def test_rand_1_is_a_member_plus_the_weighted_difference_of_two_others():
    n = 12
    for one in keys(20):
        mutants = np.asarray(mutated["rand_1"](one, population(np.eye(n, dtype=np.float32)), 0.25))
        assert np.all(np.sort(mutants, axis=1)[:, [0, -2, -1]] == [-0.25, 0.25, 1.0])
        assert np.all(np.count_nonzero(mutants, axis=1) == 3)  # base, plus and minus are three members
        assert np.all(np.diag(mutants) == 0)  # and none is the target


def test_best_1_is_the_best_member_plus_the_weighted_difference_of_two_others():
    n, best = 12, 4
    fitness = np.where(np.arange(n) == best, -1.0, np.arange(n))
    for one in keys(20):
        mutants = np.asarray(mutated["best_1"](one, population(np.eye(n, dtype=np.float32), fitness), 0.25))
        rest = mutants - np.eye(n)[best]
        assert np.all(np.sort(rest, axis=1)[:, [0, 1, -2, -1]] == [-0.25, 0.0, 0.0, 0.25])
        assert np.all(np.diag(rest) == 0)


def test_best_1_starts_from_the_feasible_member_when_the_best_value_is_infeasible():
    x = np.arange(8.0, dtype=np.float32)[:, None]
    parents = population(x, fitness=np.arange(8.0), violation=[1, 1, 0, 1, 0, 1, 1, 1])
    assert np.all(mutated["best_1"](key(), parents, 0.0) == 2.0)


@DTYPES
@pytest.mark.parametrize("name", ["rand_1", "best_1"])
def test_mutants_follow_the_formula(name, dtype):
    rng = np.random.default_rng(0)
    x, fitness = rng.normal(3.0, 2.0, (40, 6)).astype(dtype), rng.normal(size=40)
    with jax.enable_x64(dtype == "float64"):
        mutants = np.asarray(mutated[name](key(), population(x, fitness), 0.7))
    assert mutants.dtype == dtype
    picks = np.asarray(draw_partners(key(), 40, 3 if name == "rand_1" else 2))
    base = x[picks[0]] if name == "rand_1" else x[fitness.argmin()]
    expected = base + 0.7 * (x[picks[-2]].astype(np.float64) - x[picks[-1]])
    assert np.allclose(mutants, expected, rtol=0, atol=32 * np.finfo(dtype).eps)


# ---------------------------------------------------------------------------------------------------------------------
# Crossover


def taken(rate, n, d, seed=3):
    """Which genes come from the donor, (n, d)."""
    return np.asarray(crossed(key(seed), jnp.zeros((n, d)), jnp.ones((n, d)), rate)).astype(bool)


@pytest.mark.parametrize("d", [1, 2, 6, 30])
def test_crossover_at_rate_zero_still_takes_exactly_one_gene(d):
    assert np.all(taken(0.0, 5000, d).sum(axis=1) == 1)


@pytest.mark.parametrize("d", [1, 2, 6, 30])
def test_crossover_at_rate_one_takes_every_gene(d):
    assert taken(1.0, 5000, d).all()


@pytest.mark.parametrize("d", [2, 7, 100])
def test_the_forced_gene_is_at_any_place_equally_often(d):
    assert evenly(taken(0.0, 200_000, d).sum(axis=0))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("d", [2, 5, 10])
def test_crossover_takes_one_gene_and_each_other_at_its_rate(rate, d):
    n = 200_000
    genes = taken(rate, n, d)
    chance = stats.binom.pmf(np.arange(d), d - 1, rate) * n
    assert is_chance(np.bincount(genes.sum(axis=1) - 1, minlength=d)[chance > 5], chance[chance > 5])
    share = 1 / d + (1 - 1 / d) * rate
    for column in genes.T:
        assert stats.binomtest(int(column.sum()), n, share).pvalue > SIGNIFICANCE / d


def test_every_pattern_of_genes_comes_as_often_as_it_should():
    d, rate, count = 3, 0.4, 60_000
    cross = jax.jit(jax.vmap(binomial_crossover, in_axes=(0, None, None, None)))
    both = cross(keys(count), np.zeros((2, d)), np.ones((2, d)), rate)
    codes = np.asarray(both).astype(int) @ [4, 2, 1]  # of the two rows, (count, 2)
    genes = np.array(list(product((0, 1), repeat=d)))
    taken_by_chance = rate**genes * (1 - rate) ** (1 - genes)
    chance = np.zeros(2**d)
    for forced in range(d):
        chance += genes[:, forced] / d * np.delete(taken_by_chance, forced, axis=1).prod(axis=1)
    table = np.histogram2d(codes[:, 0], codes[:, 1], bins=[np.arange(2**d + 1)] * 2)[0]
    assert table[0].sum() == table[:, 0].sum() == 0
    assert is_chance(table[1:, 1:], count * np.outer(chance, chance)[1:, 1:])


def test_crossover_changes_nothing_but_the_source_of_a_gene():
    rng = np.random.default_rng(0)
    target, donor = rng.normal(size=(2, 300, 8)).astype(np.float32)
    child = np.asarray(crossed(key(), target, donor, 0.5))
    assert np.all((child == target) | (child == donor))
    assert np.array_equal(child == donor, taken(0.5, 300, 8))


def test_genes_are_taken_independently_but_for_the_forced_one():
    n, d, rate = 2**17, 8, 0.5
    genes = taken(rate, n, d)
    both = 2 / d * rate + (1 - 2 / d) * rate**2  # one of the two is forced, or neither
    share = 1 / d + (1 - 1 / d) * rate
    for i, j in ((0, 1), (3, 7)):
        table = np.histogram2d(genes[:, i], genes[:, j], bins=2)[0]
        assert is_chance(table, n * np.array([[1 - 2 * share + both, share - both], [share - both, both]]))
    rows = genes.sum(axis=1)
    assert abs(np.corrcoef(rows[:-1], rows[1:])[0, 1]) * np.sqrt(n) < stats.norm.isf(SIGNIFICANCE / 2)


# ---------------------------------------------------------------------------------------------------------------------
# Repair and sampling


def normal(value):
    """XLA takes subnormal numbers for 0, so none is among the inputs."""
    return np.where(np.abs(value) < np.finfo(value.dtype).tiny, value.dtype.type(0), value)


@st.composite
def boxes(draw, dtype, dim):
    """Boxes off centre, narrow as a few units in the last place and as wide as numbers go."""
    info = np.finfo(dtype)
    lower, upper = [], []
    for _ in range(dim):
        scale = 10.0 ** draw(st.integers(info.minexp // 4 * 3 // 10, info.maxexp * 3 // 10 - 1))
        low = normal(np.asarray(draw(st.floats(-1, 1)) * scale, dtype))
        width = scale * 10.0 ** draw(st.integers(-info.precision, 0)) * draw(st.floats(0.1, 1))
        high = np.asarray(low + np.asarray(width, dtype), dtype)
        high = high if high > low else np.nextafter(low, np.asarray(np.inf, dtype))
        lower.append(low)
        upper.append(high)
    bounds = Bounds(normal(np.array(lower)), normal(np.array(upper)))
    assume(np.all(np.isfinite(bounds.span) & (bounds.span >= info.tiny)))
    return bounds


@st.composite
def points(draw, bounds, n):
    """Rows about the box: inside, on a wall, just outside, far outside, infinite."""
    dtype, infinite = bounds.lower.dtype, np.asarray(np.inf, bounds.lower.dtype)
    tiny = np.finfo(dtype).tiny
    place = st.sampled_from(["inside", "lower", "upper", "below", "above", "far below", "far above", "-inf", "inf"])
    out = np.empty((n, bounds.dim), dtype)
    for i, j in product(range(n), range(bounds.dim)):
        low, high = bounds.lower[j], bounds.upper[j]
        with np.errstate(over="ignore"):
            out[i, j] = {
                "inside": np.clip(low + np.asarray(draw(st.floats(0, 1)), dtype) * (high - low), low, high),
                "lower": low,
                "upper": high,
                "below": np.nextafter(low, -infinite) if abs(low) > tiny else -2 * tiny,
                "above": np.nextafter(high, infinite) if abs(high) > tiny else 2 * tiny,
                "far below": low - np.asarray(3.0, dtype) * (high - low),
                "far above": high + np.asarray(3.0, dtype) * (high - low),
                "-inf": -infinite,
                "inf": infinite,
            }[draw(place)]
    return normal(out)


@pytest.mark.slow
@DTYPES
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_bounce_back_ends_between_the_wall_and_the_old_gene_and_moves_nothing_inside(data, dtype):
    bounds = data.draw(boxes(dtype, dim=2))
    x = data.draw(points(bounds, n=4))
    inside = np.clip(data.draw(points(bounds, n=4)), bounds.lower, bounds.upper)
    with jax.enable_x64(dtype == "float64"):
        repaired = np.asarray(bounced(key(data.draw(st.integers(0, 99))), x, inside, bounds))
    assert repaired.dtype == dtype
    below, above = x < bounds.lower, x > bounds.upper
    assert np.all((repaired >= bounds.lower) & (repaired <= bounds.upper))
    assert np.array_equal(repaired[~below & ~above], x[~below & ~above])
    assert np.all(repaired[below] <= inside[below])
    assert np.all(repaired[above] >= inside[above])


@DTYPES
def test_bounce_back_is_uniform_between_the_wall_and_the_old_gene(dtype):
    n = 100_000
    rng = np.random.default_rng(0)
    bounds = Bounds(np.array([2.0, -7.0], dtype), np.array([5.0, -3.0], dtype))
    inside = rng.uniform(bounds.lower, bounds.upper, (n, 2)).astype(dtype)
    for x, wall in ((inside - 10, bounds.lower), (inside + 10, bounds.upper)):
        with jax.enable_x64(dtype == "float64"):
            repaired = np.asarray(bounced(key(), x, inside, bounds)).astype(np.float64)
        share = (repaired - wall) / (inside.astype(np.float64) - wall)
        for column in share.T:
            assert stats.kstest(column, "uniform").pvalue > SIGNIFICANCE
        assert abs(np.corrcoef(share.T)[0, 1]) * np.sqrt(n) < stats.norm.isf(SIGNIFICANCE / 2)


def test_bounce_back_does_not_pile_up_on_the_walls_as_clipping_does():
    rng = np.random.default_rng(0)
    bounds = Bounds(np.array([2.0], np.float32), np.array([5.0], np.float32))
    inside = rng.uniform(2, 5, (100_000, 1)).astype(np.float32)
    x = inside + rng.normal(0, 2, inside.shape).astype(np.float32)
    repaired, clipped = np.asarray(bounced(key(), x, inside, bounds)), np.clip(x, 2, 5)

    def share_on_a_wall(points):
        return np.mean((points == 2) | (points == 5))

    assert share_on_a_wall(clipped) > 0.3
    assert share_on_a_wall(repaired) < 1e-4
    assert len(np.unique(repaired)) > 0.9 * len(np.unique(x))


@DTYPES
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_samples_stay_in_the_box(data, dtype):
    bounds = data.draw(boxes(dtype, dim=2))
    with jax.enable_x64(dtype == "float64"):
        x = np.asarray(sampled(key(data.draw(st.integers(0, 99))), bounds, 500))
    assert x.dtype == dtype
    assert np.all((x >= bounds.lower) & (x <= bounds.upper))


@DTYPES
def test_the_highest_draw_stays_in_the_box(dtype, monkeypatch):
    # the sum of a wall and a rounded span could step over the other wall
    highest = 1 - np.finfo(dtype).epsneg
    monkeypatch.setattr(random, "uniform", lambda key, shape, kind: jnp.full(shape, highest, kind))
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-6, 6, (2, 20_000))
    ends = np.sort((rng.choice([-1, 1], size.shape) * size).astype(dtype), axis=0)
    with jax.enable_x64(dtype == "float64"):
        bounds = Bounds(jnp.asarray(ends[0]), jnp.asarray(ends[1]))
        x = np.asarray(sample_uniform(key(), bounds, 1))[0]
    assert np.all((x >= ends[0]) & (x <= ends[1]))


@DTYPES
def test_samples_are_uniform_in_each_variable_and_unrelated_between_them(dtype):
    n = 100_000
    bounds = Bounds(np.array([2.0, -7.0, 1e3, -1e-3], dtype), np.array([5.0, -3.0, 1e4, 2e-3], dtype))
    with jax.enable_x64(dtype == "float64"):
        x = np.asarray(sampled(key(), bounds, n)).astype(np.float64)
    share = (x - bounds.lower) / bounds.span
    for column in share.T:
        assert stats.kstest(column, "uniform").pvalue > SIGNIFICANCE
    z = np.corrcoef(share.T)[np.triu_indices(4, 1)] * np.sqrt(n)
    assert np.abs(z).max() < stats.norm.isf(SIGNIFICANCE / 12)


# ---------------------------------------------------------------------------------------------------------------------
# Selection


def one_objective(rows, constrained):
    """A population of (violation, fitness) rows."""
    violation, fitness = np.array(rows, np.float32).T
    return population(np.arange(len(rows), dtype=np.float32)[:, None], fitness, violation if constrained else None)


VALUES = [-2.0, -0.0, 0.0, 1.0, 3.5, 1e30]
FAILED = (np.inf, np.inf)  # how an evaluation that failed and one that never was are marked
ROWS = st.one_of(st.tuples(st.sampled_from([0.0, 0.0, 1e-30, 2.0, 1e30]), st.sampled_from(VALUES)), st.just(FAILED))
CONSTRAINED = pytest.mark.parametrize("constrained", [False, True])


def rank(row, constrained):
    return row if constrained else row[1:]


@CONSTRAINED
@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows=st.lists(ROWS, min_size=5, max_size=5))
def test_no_worse_is_a_total_preorder(rows, constrained):
    everyone = one_objective([a for a in rows for _ in rows], constrained), one_objective(rows * 5, constrained)
    table = np.asarray(no_worse(*everyone)).reshape(5, 5)
    assert table.diagonal().all()
    assert np.all(table | table.T)
    assert np.all(table[:, :, None] & table[None, :, :] <= table[:, None, :])
    assert np.array_equal(table, [[rank(a, constrained) <= rank(b, constrained) for b in rows] for a in rows])


@CONSTRAINED
@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows=st.lists(ROWS, min_size=6, max_size=6))
def test_the_best_index_is_the_first_that_no_other_beats(rows, constrained):
    best = int(best_index(one_objective(rows, constrained)))
    assert best == min(range(6), key=lambda i: rank(rows[i], constrained))


def test_feasible_beats_infeasible_then_less_violation_then_the_objective():
    better_first = [(0.0, 1.0), (0.0, 1e30), (0.5, -1e30), (0.5, 0.0), (2.0, -5.0), FAILED]
    for i, j in product(range(6), range(6)):
        a, b = one_objective([better_first[i]], True), one_objective([better_first[j]], True)
        assert bool(no_worse(a, b)[0]) == (i <= j)
    assert int(best_index(one_objective(better_first[::-1], True))) == 5


@CONSTRAINED
def test_a_tie_lets_the_newcomer_in(constrained):
    for row in ((0.0, 1.0), (2.0, 1.0), FAILED):
        assert no_worse(one_objective([row], constrained), one_objective([row], constrained)).all()


@CONSTRAINED
def test_anything_evaluated_beats_what_was_not(constrained):
    evaluated, unknown = one_objective([(1e30, 1e30)], constrained), one_objective([FAILED], constrained)
    assert no_worse(evaluated, unknown).all() and not no_worse(unknown, evaluated).any()


def test_the_best_of_failures_only_is_the_first():
    for constrained in (False, True):
        assert int(best_index(one_objective([FAILED] * 4, constrained))) == 0


@CONSTRAINED
def test_choose_keeps_each_individual_whole(constrained):
    a = one_objective([(i, 10.0 + i) for i in range(5)], constrained)
    b = one_objective([(20.0 + i, 30.0 + i) for i in range(5)], constrained)._replace(x=jnp.full((5, 1), 9.0))
    first = np.array([True, False, False, True, False])
    kept = tree_where(jnp.asarray(first), a, b)
    for part, (p, q) in zip(kept, zip(a, b, strict=True), strict=True):
        if p is None:
            assert part is None
        else:
            assert np.array_equal(part, [p[i] if first[i] else q[i] for i in range(5)])


def test_rows_as_one_give_what_rows_do():
    def function(x, y, low):
        return jnp.log1p(x * y) + low, jnp.where(x < y, low, x)

    rng = np.random.default_rng(5)
    x, y, low = (rng.random(shape).astype(np.float32) for shape in ((4, 7, 5), (4, 7, 1), (5,)))
    plain = function(x, y, low)
    rows = jax.jit(jax.vmap(lambda x, y: apply_flattened(function, x, y, low)))(x, y)
    for own, expected in zip(rows, plain, strict=True):
        assert own.shape == expected.shape
        np.testing.assert_allclose(own, expected, rtol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# operators of the user's
# ---------------------------------------------------------------------------------------------------------------------


PARENTS, UNIT_BOX = np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(4, 2), as_bounds([(0.0, 1.0)] * 2)


def breed_with(crossover=None, mutation=None, crossover_rate=1.0, mutation_rate=0.25):
    own, x = {"crossover": crossover, "mutation": mutation}, jnp.asarray(PARENTS)
    return np.asarray(breed(key(), x, UNIT_BOX, crossover_rate, 20.0, mutation_rate, 20.0, **own))


def keep(key, x, bounds, rate):
    return x


def test_a_crossover_of_the_users_breeds_both_halves_and_is_clipped_to_the_box():
    def swap_and_leave(key, a, b, bounds):
        return b, a + 5.0

    np.testing.assert_array_equal(breed_with(swap_and_leave, keep), [*PARENTS[2:], [1, 1], [1, 1]])
    np.testing.assert_array_equal(breed_with(swap_and_leave, keep, crossover_rate=0.0), PARENTS)


def test_a_mutation_of_the_users_gets_the_rate_and_is_clipped_to_the_box():
    def move(key, x, bounds, rate):
        return x - rate * bounds.span

    for rate, step in ((0.25, 0.25), (None, 0.5)):  # None for one gene of the two
        children = breed_with(lambda key, a, b, bounds: (a, b), move, mutation_rate=rate)
        np.testing.assert_allclose(children, np.maximum(PARENTS - np.float32(step), 0))


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ((lambda key, a, b, bounds: a, keep), r"crossover must return two arrays of children, \(first, second\)"),
        (
            (lambda key, a, b, bounds: (a, b[:1]), keep),
            r"crossover must return children of shape \(2, 2\); got \(1",
        ),
        ((None, lambda key, x, bounds, rate: x[0]), r"mutation must return children of shape \(4, 2\); got \(2,\)"),
    ],
)
def test_operators_of_the_users_that_return_something_else_are_refused(operators, message):
    with pytest.raises(InputError, match=message):
        breed_with(*operators)
