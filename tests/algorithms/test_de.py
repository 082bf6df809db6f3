"""Differential evolution against a second implementation in NumPy, one individual at a time, on the same words."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params, product

from galapax import DE, InputError, Optimizer, Problem, minimize
from galapax.core.options import Compute
from galapax.core.problem import Bounds, Shape
from galapax.numerics import compile_cache as kept
from galapax.numerics import random
from galapax.objective.evaluation_log import summarise
from galapax.operators.variation import best_1, rand_1
from galapax.problems import get

SEED, N, GENERATIONS = 5, 14, 60
LOWER, UPPER = np.array([2.0, -9.0, 0.5, -3.0]), np.array([11.0, -1.0, 7.5, 30.0])
OPTIMUM = np.array([3.0, -2.5, 6.0, -1.0])  # neither in the centre of the box nor the same for every variable


def valley(x):
    y = x - OPTIMUM
    return (y[0] - y[1] ** 2) ** 2 + 3.0 * y[1] ** 2 + (y[2] + 0.5 * y[3]) ** 2 + 0.1 * y[3] ** 2


def fails_on_one_side(x):
    return jnp.where(x[0] + x[3] > 20.0, jnp.nan, valley(x))


def half_space_and_sphere(x):
    """The first keeps the optimum out, the second is met by a few percent of the box."""
    return jnp.stack([3.5 - x[0], (x[1] + 4.0) ** 2 + (x[2] - 3.0) ** 2 - 4.0])


def plane(x):
    return x[2] + x[3] - 6.0


CASES = {
    "no constraints": Problem(valley, Bounds(LOWER, UPPER)),
    "fails on one side": Problem(fails_on_one_side, Bounds(LOWER, UPPER)),
    "inequalities": Problem(valley, Bounds(LOWER, UPPER), ineq=half_space_and_sphere),
    "equality": Problem(valley, Bounds(LOWER, UPPER), eq=plane, eq_tolerance=0.05),
    "everything": Problem(
        fails_on_one_side, Bounds(LOWER, UPPER), ineq=half_space_and_sphere, eq=plane, eq_tolerance=0.5
    ),
}


bits = jax.jit(random.bits, static_argnums=1)
uniform = jax.jit(random.uniform, static_argnums=(1, 2))


@cache
def facts(case):
    """Objective, inequalities and equality of rows, compiled; None for what a problem does not have."""
    problem = CASES[case]
    return [jax.jit(jax.vmap(f)) if f else lambda rows: None for f in (problem.fun, problem.ineq, problem.eq)]


class Reference:
    """DE as Storn & Price (1997) tell it: lists and loops, and of the library nothing but keys and random words.

    from_best: start from the best individual, DE/best/1, in place of a random one.
    """

    def __init__(self, case, run_key, weight, crossover_rate, from_best):
        self.case, self.problem, self.key, self.from_best = case, CASES[case], run_key, from_best
        self.weight, self.crossover_rate = weight, crossover_rate
        share = self.uniforms(random.fold_in(run_key, 0), (N, self.problem.dim), "float64")
        self.trials = [LOWER + (UPPER - LOWER) * row for row in share]
        self.targets = [x.copy() for x in self.trials]
        self.values = [(np.inf, np.inf)] * N  # (violation, objective)
        self.generation = self.failed = self.repaired = 0

    @staticmethod
    def words(key, shape):
        return np.asarray(bits(key, shape)).tolist()

    @staticmethod
    def uniforms(key, shape, dtype):
        return np.asarray(uniform(key, shape, dtype), np.float64)

    def evaluate(self, value, ineq, eq):
        violation = 0.0
        if ineq is not None:
            violation += sum(max(float(g), 0.0) for g in ineq)
        if eq is not None:
            violation += max(abs(float(eq)) - self.problem.eq_tolerance, 0.0)
        if not np.isfinite(value):
            self.failed += 1
            return np.inf, np.inf
        return violation, float(value)

    def step(self):
        """Let the trials replace their targets, then breed the next trials."""
        told = [function(np.array(self.trials)) for function in facts(self.case)]
        told = [[None] * N if column is None else np.asarray(column) for column in told]
        for i, (trial, *parts) in enumerate(zip(self.trials, *told, strict=True)):
            values = self.evaluate(*parts)
            if values <= self.values[i]:  # violation first, then the objective
                self.targets[i], self.values[i] = trial, values
        self.generation += 1
        key_mutate, key_cross, key_repair = random.split(random.fold_in(self.key, self.generation), 3)
        key_gene, key_forced = random.split(key_cross)
        d = self.problem.dim
        picks = self.words(key_mutate, (2 if self.from_best else 3, N))
        genes, forced = self.words(key_gene, (N, d)), self.words(key_forced, (N,))
        shares = self.uniforms(key_repair, (N, d), "float32")
        threshold = round(self.crossover_rate * 2**24)
        self.trials = []
        for i in range(N):
            left = [j for j in range(N) if j != i]
            chosen = [left.pop(row[i] * len(left) >> 32) for row in picks]
            if self.from_best:
                chosen.insert(0, self.values.index(min(self.values)))
            base, plus, minus = (self.targets[j] for j in chosen)
            trial = self.targets[i].copy()
            for g in range(d):
                if genes[i][g] >> 8 < threshold or g == forced[i] * d >> 32:
                    trial[g] = base[g] + self.weight * (plus[g] - minus[g])
                    if not LOWER[g] <= trial[g] <= UPPER[g]:
                        wall = LOWER[g] if trial[g] < LOWER[g] else UPPER[g]
                        self.repaired += 1
                        trial[g] = wall + shares[i, g] * (self.targets[i][g] - wall)
            self.trials.append(trial)


def close(a, b):
    """Equal but for the order in which a compiler adds."""
    return np.allclose(a, b, rtol=1e-9, atol=1e-9)


STRATEGIES = {
    "rand_1": DE(population=N, mutation=rand_1, weight=0.6, crossover_rate=0.8),
    "best_1": DE(population=N, mutation=best_1, weight=0.7, crossover_rate=0.4),
}
EVERY_STRATEGY = pytest.mark.parametrize("strategy", STRATEGIES)


@cache
def reference(case, strategy, run=0):
    """A whole run: the reference at its end, and (trials, targets, values) after each generation."""
    algorithm = STRATEGIES[strategy]
    key = random.run_keys(SEED, run, 1)[0]
    with jax.enable_x64(True):
        known = Reference(case, key, algorithm.weight, algorithm.crossover_rate, strategy == "best_1")
        told = [(known.trials, list(known.targets), list(known.values))]
        for _ in range(GENERATIONS):
            known.step()
            told.append((known.trials, list(known.targets), list(known.values)))
    assert known.repaired > 0 and (known.failed > 0 or CASES[case].fun is valley)  # or it would show nothing
    return known, told


@pytest.mark.parametrize(("case", "strategy"), params(product(CASES, STRATEGIES), quick={"fails on one side-rand_1"}))
def test_each_generation_equals_the_reference(case, strategy):
    problem, algorithm = CASES[case], STRATEGIES[strategy]
    shape = Shape(1, 2 if problem.ineq else 0, 1 if problem.eq else 0)

    @jax.jit
    def step(key, state):
        def of_all(function):
            return None if function is None else jax.vmap(function)(state.candidates).reshape(N, -1)

        values = (of_all(function) for function in (problem.fun, problem.ineq, problem.eq))
        return algorithm.step(key, state, summarise(*values, problem.eq_tolerance))

    known, told = reference(case, strategy)
    with jax.enable_x64(True):
        state = jax.jit(partial(algorithm.init, shape=shape))(random.fold_in(known.key, 0), problem.bounds)
        assert close(state.candidates, told[0][0])
        for generation in range(1, GENERATIONS + 1):
            state = step(random.fold_in(known.key, generation), state)
            trials, targets, values = told[generation]
            violation, fitness = np.array(values).T
            assert close(state.parents.x, targets), f"survivors of generation {generation}"
            assert close(state.parents.fitness, fitness)
            assert state.parents.violation is None or close(state.parents.violation, violation)
            assert close(state.candidates, trials), f"trials of generation {generation}"


@pytest.mark.parametrize(("case", "strategy"), params(product(CASES, STRATEGIES), quick={"no constraints-best_1"}))
def test_minimize_makes_the_run_of_the_reference(case, strategy):
    algorithm = STRATEGIES[strategy]
    result = minimize(
        CASES[case],
        algorithm=algorithm,
        generations=GENERATIONS,
        seed=SEED,
        compute=Compute(dtype="float64"),
        polish=False,
    )
    known, told = reference(case, strategy)
    violation, best = np.array([min(values) for _, _, values in told[1:]]).T
    assert close(result.population, known.targets)
    assert close(result.history.best, best)
    assert close(result.x, known.targets[known.values.index(min(known.values))])
    assert close(result.fun, best[-1]) and close(result.violation, violation[-1])
    assert result.n_failed == known.failed and result.nfev == N * GENERATIONS


@pytest.mark.slow
def test_each_run_of_an_ensemble_is_a_run_of_the_reference():
    algorithm = STRATEGIES["rand_1"]
    runs = minimize(
        CASES["inequalities"], algorithm=algorithm, generations=GENERATIONS, seed=SEED, runs=3, polish=False
    ).runs
    for run in range(3):
        known, _ = reference("inequalities", "rand_1", run)
        assert close((runs.violation[run], runs.fun[run]), min(known.values))


def test_asking_and_telling_makes_the_run_of_the_reference():
    problem = CASES["no constraints"]
    optimizer = Optimizer(problem.bounds, STRATEGIES["best_1"], seed=SEED)
    _, told = reference("no constraints", "best_1")
    for generation in range(30):
        asked = optimizer.ask_generation()
        assert close(asked, told[generation][0])
        with jax.enable_x64(True):
            values = np.asarray(facts("no constraints")[0](asked))
        optimizer.tell(asked, values)
    assert close(optimizer.population.x, told[30][1])


def test_a_failed_trial_never_replaces_anything_evaluated():
    result = minimize(
        CASES["fails on one side"], algorithm=STRATEGIES["rand_1"], generations=200, seed=SEED, polish=False
    )
    assert result.n_failed > 0
    assert np.isfinite(result.population_fitness).all()
    assert np.all(result.population[:, 0] + result.population[:, 3] <= 20.0)


def test_a_run_that_starts_among_failures_finds_its_way_out():
    def rare(x):
        return jnp.where(jnp.sum((x - 0.7) ** 2) < 0.02, jnp.sum((x - 0.8) ** 2), jnp.nan)

    result = minimize(
        rare,
        [(0.0, 1.0)] * 2,
        DE(population=50),
        generations=300,
        seed=1,
        on_failure="worst",
        compute=Compute(dtype="float64"),
        polish=False,
    )
    nearest = (np.sqrt(2) * 0.1 - np.sqrt(0.02)) ** 2  # the point of the disc next to (0.8, 0.8), which is on its rim
    assert np.isfinite(result.population_fitness).all()
    assert result.fun < nearest + 1e-6


@EVERY_STRATEGY
def test_the_population_never_gets_worse(strategy):
    history = minimize(
        CASES["no constraints"],
        algorithm=STRATEGIES[strategy],
        generations=300,
        seed=2,
        compute=Compute(dtype="float64"),
        polish=False,
    ).history
    for column in (history.best, history.mean, history.worst):
        assert np.all(np.diff(column) <= 0)


def test_ties_let_the_population_drift_across_a_plateau():
    optimizer = Optimizer([(0.0, 1.0)] * 3, DE(population=20))
    for _ in range(3):
        trials = optimizer.ask_generation()
        optimizer.tell(trials, np.zeros(20))
        assert np.array_equal(optimizer.population.x, trials)


def test_crossover_rate_zero_changes_one_gene_and_weight_zero_copies_genes():
    optimizer = Optimizer([(0.0, 1.0)] * 6, DE(population=30, weight=0.0, crossover_rate=0.0))
    before = optimizer.ask_generation()
    optimizer.tell(before, np.zeros(30))
    after = optimizer.ask_generation()
    assert np.all(np.count_nonzero(after != before, axis=1) == 1)
    for row, column in np.argwhere(after != before):
        assert after[row, column] in before[:, column]


def test_weight_and_crossover_rate_are_data_and_compile_nothing_new(caplog):
    def run(weight, crossover_rate):
        algorithm = DE(population=20, weight=weight, crossover_rate=crossover_rate)
        return minimize(get("sphere", dim=3), algorithm=algorithm, generations=30, seed=1, polish=False).fun

    values = [run(0.5, 0.9)]
    programs = kept.count_compiled()
    with jax.log_compiles():
        values += [run(0.4, 0.9), run(0.5, 0.2), run(1.7, 1.0), run(0, 0)]
    assert kept.count_compiled() == programs
    assert "ompil" not in caplog.text
    assert len(set(values)) == 5  # and they do make a difference


def test_population_and_mutation_shape_the_program():
    minimize(get("sphere", dim=3), algorithm=DE(population=20), generations=30, seed=1, polish=False)
    programs = kept.count_compiled()
    minimize(get("sphere", dim=3), algorithm=DE(population=21), generations=30, seed=1, polish=False)
    assert kept.count_compiled() > programs


def test_a_sweep_over_the_weight_is_one_vmap():
    key, bounds = random.run_keys(0, 0, 1)[0], Bounds(LOWER, UPPER)

    @jax.jit
    def bred(weight):
        algorithm = DE(population=N, weight=weight)
        state = algorithm.init(random.fold_in(key, 0), bounds)
        values = summarise(jax.vmap(valley)(state.candidates)[:, None], None, None, 0.0)
        return algorithm.step(random.fold_in(key, 1), state, values).candidates

    weights = [0.3, 0.5, 0.9]
    with jax.enable_x64(True):
        assert close(jax.vmap(bred)(np.array(weights)), [bred(weight) for weight in weights])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"population": 3}, "population must be at least 4 .*three other individuals"),
        ({"population": 10.0}, "population must be a whole number"),
        ({"weight": -0.1}, "weight must lie between 0 and 2"),
        ({"weight": float("nan")}, "weight must be a number, got NaN"),
        ({"crossover_rate": 1.1}, "crossover_rate must lie between 0 and 1"),
        ({"crossover_rate": "0.9x"}, "crossover_rate must be a number"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        minimize(get("sphere", dim=2), algorithm=dataclasses.replace(DE(), **settings), generations=1, polish=False)


@pytest.mark.parametrize("strategy", params(STRATEGIES, slow={"best_1"}))
def test_the_smallest_population_works(strategy):
    algorithm = dataclasses.replace(STRATEGIES[strategy], population=4)
    assert np.isfinite(minimize(get("sphere", dim=2), algorithm=algorithm, generations=20, polish=False).fun)
