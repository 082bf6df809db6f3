"""What people bring from other libraries: accepted, or answered with the word it has here."""

import copy
import dataclasses
import importlib.util
import inspect
import re
import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint

import galapax as gx
from galapax.algorithms.moead import boundary_intersection
from galapax.compat import scipy as compat
from galapax.compat.scipy_problem import convert_problem
from galapax.core import hints
from galapax.operators.variation import rand_1

BOX = [(-2.0, 2.0)] * 2
QUICK = {"generations": 3, "population": 8, "polish": False}


def sphere(x):
    return jnp.sum(x**2)


WORDS = sorted(word for words in hints.KEYWORDS.values() for word in words.split())


@pytest.mark.parametrize("name", WORDS)
def test_every_foreign_word_is_answered_with_ours(name):
    with pytest.raises(gx.InputError, match=f"minimize has no '{name}': (write|leave|give|use) ") as told:
        gx.minimize(sphere, BOX, **{name: None})
    assert len(str(told.value)) < 200
    assert name not in inspect.signature(gx.minimize).parameters


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tolfun": 1e-3}, r"minimize has no 'tolfun': write patience"),
        ({"repeats": 30}, r"minimize has no 'repeats': write runs=30\.$"),
        ({"minimize": True}, r"leave it out: values are minimised"),
        ({"device": "gpu"}, r"JAX chooses the device"),
        ({"zzz": 1}, r"no argument of minimize called 'zzz'; help\(gx\.minimize\) lists all \d+\.$"),
    ],
)
def test_words_of_others_are_not_guessed_at(given, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(sphere, BOX, **given)


@pytest.mark.parametrize("name", [word for words in hints.COMPARE_KEYWORDS.values() for word in words.split()])
def test_an_argument_of_minimize_that_compare_lacks_is_answered(name):
    assert name in inspect.signature(gx.minimize).parameters and name not in inspect.signature(gx.compare).parameters
    with pytest.raises(gx.InputError, match=f"compare has no '{name}': (write|put|set|leave it out:) "):
        gx.compare(["branin"], ["de"], **{name: 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((sphere, "de", BOX), r"got 'de' \(the algorithm comes after the bounds\)"),
        ((sphere, BOX, [1.0, 1.0]), r"a starting point by its name: x0="),
        ((sphere, {"a": [1, 2, 3]}), r"give gx\.choice\(\*\[1, 2, 3\]\)"),
        ((sphere, {"a": range(1, 5)}), r"give gx\.integer\(1, 4\)"),
        ((sphere, {"a": range(0, 50, 5)}), r"give gx\.integer\(0, 45, step=5\)"),
        ((sphere, {"a": "relu"}), r"gx\.choice\(\.\.\.\) or gx\.boolean"),
    ],
)
def test_what_stands_in_the_wrong_place_is_recognised(arguments, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(*arguments)


def test_a_generator_in_place_of_the_seed_is_answered():
    with pytest.raises(gx.InputError, match=r"seed must be a whole number .* seed=int\(rng\.integers"):
        gx.minimize(sphere, BOX, seed=np.random.default_rng(1))


def test_a_starting_point_in_place_of_the_bounds_is_named():
    with pytest.raises(gx.InputError, match=r"got the numbers 1 and 1, .*for a starting point write x0"):
        gx.minimize(sphere, [1.0, 1.0])


def test_names_of_other_libraries_say_ours():
    with pytest.raises(AttributeError, match=r"use gx\.minimize.*maximize=True"):
        _ = gx.maximize
    with pytest.raises(AttributeError, match=r"use gx\.choice"):
        _ = gx.Categorical
    with pytest.raises(AttributeError, match=r"jnp\.argsort"):
        _ = gx.permutation
    with pytest.raises(AttributeError, match=r"use galapax\.operators\.variation"):
        _ = gx.best_1


@pytest.mark.parametrize("name", gx.algorithms.ALGORITHMS)
def test_an_algorithm_is_shown_as_it_is_written(name):
    shown = repr(gx.algorithms.ALGORITHMS[name]())
    assert shown.startswith(f"{gx.algorithms.ALGORITHMS[name].__name__}(population=") and " at 0x" not in shown
    functions = {"boundary_intersection": boundary_intersection, "rand_1": rand_1}
    assert eval(shown, vars(gx) | functions) == gx.algorithms.ALGORITHMS[name]()


def test_answers_repeat_the_number_and_misspelt_words_are_guessed():
    with pytest.raises(gx.InputError, match=r"minimize has no 'maxiter': write generations=300\."):
        gx.minimize(sphere, BOX, maxiter=300)
    with pytest.raises(gx.InputError, match="no argument of minimize called 'genrations'; did you mean generations"):
        gx.minimize(sphere, BOX, genrations=3)
    with pytest.raises(gx.InputError, match="sweep has no 'popsize': write population"):
        gx.sweep(sphere, BOX, "de", weight=[0.4, 0.6], popsize=3)
    with pytest.raises(gx.InputError, match="max_seconds"):
        gx.minimize(sphere, BOX, blackbox=True, workers=gx.Workers(timeout=60))
    with pytest.raises(gx.InputError, match=r"minimize has no 'every': write callback=gx\.callbacks\.Every\("):
        gx.minimize(sphere, BOX, every=5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gx.DE(F=0.5), "DE has no hyper-parameter 'F': write weight"),
        (lambda: gx.DE(CR=0.5), "DE has no hyper-parameter 'CR': write crossover_rate"),
        (lambda: gx.CMAES(spread=0.5), "write sigma0"),
        (lambda: gx.NSGA2(eta=20), "write crossover_index or mutation_index"),
        (lambda: gx.DE(weigth=0.5), r"DE has no hyper-parameter 'weigth': did you mean weight\?"),
        (lambda: gx.algorithms.get("de", weigth=0.5), r"DE has no hyper-parameter 'weigth': did you mean weight\?"),
        (lambda: gx.PSO(speed=1), "PSO has no hyper-parameter 'speed': it has population"),
    ],
)
def test_hyper_parameters_by_other_names_are_answered(make, message):
    with pytest.raises(gx.InputError, match=message):
        make()


def test_scipys_calls_are_the_same_run():
    ours = gx.minimize(sphere, BOX, "de", x0=[1.0, 1.5], **QUICK)
    for theirs in (
        gx.minimize(sphere, [1.0, 1.5], bounds=BOX, algorithm="de", **QUICK),
        gx.minimize(sphere, BOX, "de", x0=np.array([1.0, 1.5]), **QUICK),
        gx.minimize(sphere, Bounds([-2, -2], [2, 2]), "de", x0=[1.0, 1.5], **QUICK),
    ):
        np.testing.assert_array_equal(theirs.population, ours.population)
    with pytest.raises(gx.InputError, match="points with their values"):
        gx.minimize(sphere, BOX, initial=[1, 1], blackbox=True)


def test_further_arguments_go_to_the_function():
    fun, _, ineq, eq = convert_problem(lambda x, a: a * x[0], BOX, args=(3.0,))
    assert fun(np.array([2.0, 5.0])) == 6.0 and ineq is None and eq is None


def values(constraints, x, bounds=BOX):
    """Inequalities and equalities that constraints of scipy's become, at x."""
    _, _, ineq, eq = convert_problem(sphere, bounds, constraints=constraints)
    return [None if part is None else np.asarray(part(np.array(x))).tolist() for part in (ineq, eq)]


def test_scipys_constraints_become_ours():
    x = [1.0, 3.0]
    assert values(NonlinearConstraint(lambda x: x[0] + x[1], 1, 5), x) == [[-3.0, -1.0], None]
    assert values(NonlinearConstraint(lambda x: x, [1, -np.inf], [1, 2]), x) == [[1.0], [0.0]]
    assert values(LinearConstraint([[1, 1], [1, -1]], [0, -np.inf], [np.inf, 4]), x) == [[-4.0, -6.0], None]
    assert values(Bounds([0, 0], [2, 2]), x) == [[-1.0, -3.0, -1.0, 1.0], None]
    assert values({"type": "ineq", "fun": lambda x: x[0] - 3}, x) == [2.0, None]  # scipy's are met at 0 and above
    assert values([{"type": "eq", "fun": lambda x, a: x[0] - a, "args": (3,)}], x) == [None, -2.0]
    with pytest.raises(gx.InputError, match=r"for functions write ineq \(met when g\(x\) <= 0\) and eq"):
        values([lambda x: x[0]], x)
    with pytest.raises(gx.InputError, match="give them in a list"):
        values(LinearConstraint([[1, 1]], 0, 1), x, {"a": (0, 1), "b": (0, 1)})


@pytest.mark.slow
def test_constraints_are_met_in_a_run_whichever_way_they_came():
    limits = [NonlinearConstraint(lambda x: x[0] + x[1], 1, np.inf)]
    few = {"maxiter": 40, "popsize": 20}
    theirs = compat.minimize(sphere, bounds=BOX, method="de", constraints=limits, options=few, blackbox=False)
    ours = gx.minimize(
        sphere, BOX, "de", ineq=[lambda x: 1 - (x[0] + x[1])], generations=40, population=20, polish=False
    )
    assert theirs.maxcv == 0 and ours.feasible
    assert theirs.fun == pytest.approx(0.5, abs=1e-2) and ours.fun == pytest.approx(0.5, abs=1e-2)


def test_scipys_minimize_is_a_global_search():
    def bumpy(x, shift):
        return float(np.sum((x - shift) ** 2) + 3 * np.sum(1 - np.cos(4 * (x - shift))))

    seen = []
    found = compat.minimize(bumpy, [1.9, -1.9], (0.3,), bounds=BOX, options={"maxfev": 2000, "seed": 1},
                            callback=lambda intermediate_result: seen.append(intermediate_result.nfev))  # fmt: skip
    assert found.fun < 1e-8 and found.nfev <= 2000 and seen and found.status == int(not found.success)
    whole = compat.minimize(lambda x: (x[0] - 0.4) ** 2, bounds=[(-3, 3)], integrality=[1], method="DE")
    assert whole.x.tolist() == [0.0]

    def stop(state):
        raise StopIteration

    assert compat.minimize(bumpy, args=(0.3,), bounds=BOX, callback=stop).nit == 1
    with pytest.raises(gx.InputError, match="a global search needs bounds"):
        compat.minimize(bumpy, [0.0, 0.0])
    with pytest.raises(gx.InputError, match=r"BFGS is a local method: call scipy\.optimize\.minimize"):
        compat.minimize(bumpy, [0.0, 0.0], bounds=BOX, method="BFGS")


def test_a_built_in_problem_is_known_by_its_name_everywhere():
    named = ("branin", gx.problems.get("branin"))
    by_name, by_object = (gx.minimize(problem, algorithm="de", **QUICK) for problem in named)
    np.testing.assert_array_equal(by_name.population, by_object.population)
    assert by_name.problem.name == "branin" and gx.minimize("branin", "de", **QUICK).fun == by_name.fun
    swept = gx.sweep("branin", algorithm="de", weight=[0.5, 0.8], runs=2, **QUICK)
    assert [result.problem.name for result in swept.results] == ["branin"] * 2
    assert gx.minimax("minmax_saddle", generations=3, population=8, polish=False).problem.name == "minmax_saddle"
    with pytest.raises(gx.InputError, match="no problem called 'brannin'; did you mean branin"):
        gx.minimize("brannin")
    with pytest.raises(gx.InputError, match=r"min-max problem: use gx\.minimax"):
        gx.minimize("minmax_saddle")


def test_a_missing_package_is_an_import_error_that_names_the_extra(monkeypatch):
    result = gx.minimize(sphere, BOX, "de", **QUICK)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r'pip install "galapax\[notebook\]"'):
        result.to_dataframe()


def test_seed_none_is_drawn_recorded_and_repeats():
    first, second = (gx.minimize(sphere, BOX, "de", seed=None, **QUICK) for _ in range(2))
    assert first.seed != second.seed
    again = gx.minimize(sphere, BOX, "de", seed=first.seed, **QUICK)
    np.testing.assert_array_equal(again.population, first.population)
    assert gx.Optimizer(BOX, "de", seed=None).seed >= 0


def test_names_of_other_libraries_are_answered():
    with pytest.raises(AttributeError, match=r"galapax\.compat\.scipy\.differential_evolution"):
        gx.differential_evolution  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        gx.nothing  # noqa: B018
    for answer, words in hints.PACKAGE_NAMES.items():
        for name in re.findall(r"gx\.(\w+)", answer):
            assert hasattr(gx, name)
        for module, name in re.findall(r"(galapax(?:\.\w+)+)\.(\w+)", answer):
            assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")
        assert not [word for word in words.split() if hasattr(gx, word)]


def test_every_word_has_one_answer():
    for table in (hints.KEYWORDS, hints.PACKAGE_NAMES, hints.ALGORITHM_NAMES | hints.MISSING_ALGORITHMS):
        words = [word for words in table.values() for word in words.split()]
        assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("name", "registered"),
    [("NSGA-II", "nsga2"), ("differential_evolution", "de"), ("CMA-ES", "cmaes"), ("L-SHADE", "lshade"),
     ("SMS-EMOA", "sms_emoa"), ("MOEA/D", "moead"), ("Particle Swarm", "pso"), ("DE", "de")],
)  # fmt: skip
def test_algorithms_are_known_by_the_names_of_papers_and_other_libraries(name, registered):
    assert type(gx.algorithms.get(name)) is gx.algorithms.ALGORITHMS[registered]


@pytest.mark.parametrize(
    ("name", "registered"),
    [("model_search", "model_search"), ("ModelSearch", "model_search"), ("ehvi", "ehvi"), ("EHVI", "ehvi")],
)
def test_searches_by_models_are_found_by_the_name_that_settings_have_and_by_their_class(name, registered):
    assert type(gx.algorithms.get(name)) is gx.algorithms.MODEL_ALGORITHMS[registered]
    assert gx.algorithms.algorithm_name(gx.algorithms.get(name)) == registered


def test_an_algorithm_of_a_result_can_be_asked_for_by_name():
    first = gx.minimize(lambda x: float(x @ x), [(-1, 2)] * 2, blackbox=True, max_evaluations=30)
    name = first.settings["algorithm"]
    again = gx.minimize(lambda x: float(x @ x), [(-1, 2)] * 2, name, blackbox=True, max_evaluations=30)
    assert name == again.settings["algorithm"] == "model_search" and again.fun == first.fun


def test_an_alias_is_that_of_an_algorithm_and_no_algorithms_own_name():
    assert hints.ALGORITHM_NAMES.keys() <= gx.algorithms.ALGORITHMS.keys()
    words = {word for words in (hints.ALGORITHM_NAMES | hints.MISSING_ALGORITHMS).values() for word in words.split()}
    assert not words & set(gx.algorithms.ALGORITHMS) and all(word == hints.spell_plainly(word) for word in words)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("Nelder-Mead", "quadratic models"), ("L-BFGS-B", "polish"), ("TPE", "models of the objective")],
)
def test_algorithms_that_are_not_here_are_answered(name, answer):
    with pytest.raises(gx.InputError, match=f"no algorithm called '{name}'; leave algorithm out: .*{answer}"):
        gx.minimize(sphere, BOX, name)


def test_an_optimizer_answers_what_others_call_its_attributes():
    optimizer = gx.Optimizer(BOX, "de")
    with pytest.raises(AttributeError, match=r"an Optimizer has no 'save': write best\.save\(folder\)"):
        _ = optimizer.save
    with pytest.raises(AttributeError, match="an Optimizer has no 'colour'"):
        _ = optimizer.colour
    for answer in hints.OPTIMIZER_ATTRIBUTES:
        assert answer.startswith(("gx.", "trial.")) or hasattr(gx.Optimizer, re.split(r"[.,]", answer)[0]), answer


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (hints.TRIAL_ATTRIBUTES, {*dir(gx.Trial), "params"}),
        (hints.RESULT_ATTRIBUTES, {*dir(gx.Result), *gx.Result.__annotations__, "evaluations"}),
        (hints.STUDY_ATTRIBUTES, {*dir(gx.Study), "results"}),
    ],
    ids=["Trial", "Result", "Study"],
)
def test_answers_to_attributes_name_what_there_is(table, names):
    for answer in table:
        assert re.split(r"[^\w]", answer)[0] in names | {"optimizer", "algorithm"}, answer


def test_attributes_of_other_libraries_are_answered():
    result = gx.minimize(sphere, BOX, "random", generations=2, population=10, polish=False)
    study = gx.compare(["branin"], ["random", "de"], runs=2, max_evaluations=200)
    trial = gx.Optimizer(BOX, "de").ask()
    for owner, name, answer in [
        (result, "best_params", "write params"),
        (result, "F", "write fun"),
        (result, "trials", "write evaluations, which a black box has"),
        (study, "best", r"write summary\(\), a row for each cell"),
        (trial, "suggest_float", r"write params\['name'\]"),
    ]:
        with pytest.raises(AttributeError, match=f"a {type(owner).__name__} has no '{name}': {answer}"):
            getattr(owner, name)
    for owner in (study, trial):
        with pytest.raises(AttributeError, match="has no 'colour'"):
            _ = owner.colour
        assert copy.deepcopy(owner) is not owner


def test_what_scipy_users_pass_by_mistake_is_answered():
    for bounds in ([1.0, 2.0], [1.0, 2.0, 3.0]):
        with pytest.raises(gx.InputError, match="a starting point is x0="):
            gx.minimize(sphere, bounds)
    for ineq in ({"type": "ineq", "fun": sphere}, [{"type": "ineq", "fun": sphere}]):
        with pytest.raises(gx.InputError, match=r"galapax\.compat\.scipy\.minimize takes scipy's constraints"):
            gx.minimize(sphere, BOX, ineq=ineq)
    with pytest.raises(gx.InputError, match=r"seed=int\(rng\.randint"):
        gx.minimize(sphere, BOX, seed=np.random.RandomState(1), **QUICK)
    with pytest.raises(gx.InputError, match=r"lambda x: fun\(\*x\)"):
        gx.minimize(lambda a, b: a + b, BOX)
    with pytest.raises(gx.InputError, match=r"KeyError.*It has v\['width'\]"):
        gx.minimize(lambda v: v["height"], {"width": (0, 1)})
    assert gx.problems.get("Goldstein-Price") is gx.problems.get("goldstein_price")


def test_hyper_parameters_of_the_table_exist():
    fields = {field.name for kind in gx.algorithms.ALGORITHMS.values() for field in dataclasses.fields(kind)}
    assert hints.HYPERPARAMETERS.keys() <= fields


@pytest.mark.parametrize("blackbox", [False, True])
def test_residuals_are_no_objectives(blackbox):
    def residuals(x):
        return np.arange(40) - x[0]

    with pytest.raises(gx.InputError, match=r"'residuals' returns 40 numbers.* the sum of their squares"):
        gx.minimize(residuals, BOX, blackbox=blackbox, **QUICK)


@pytest.mark.slow
def test_the_message_asks_whether_a_sum_was_forgotten():
    box = [(-1, 1)] * 3
    with pytest.warns(UserWarning, match="returns 3 numbers, as many as there are variables.*Did you forget jnp.sum"):
        gx.minimize(lambda x: x**2, box, **QUICK)
    with pytest.warns(UserWarning, match="Did you forget jnp.sum"):
        gx.minimize(lambda x: np.asarray(x) ** 2, box, blackbox=True, **QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gx.minimize(gx.Problem(lambda x: x**2, box, objectives=["a", "b", "c"]), **QUICK)
    with pytest.raises(gx.InputError, match=r"returns 3 numbers.*jnp\.sum"):
        gx.minimize(lambda x: x**2, box, "de")


def test_budgets_may_be_written_with_an_exponent():
    """1e3 is a whole number to everybody but Python."""
    settings = {"algorithm": "random", "population": 10, "polish": False}
    res = gx.minimize(lambda x: x[0] ** 2, [(-1, 2)], generations=3e0, **settings)
    assert res.nit == 3 and res.nfev == 30
    res = gx.minimize(lambda x: x[0] ** 2, [(-1, 2)], max_evaluations=1e2, **settings)
    assert res.nfev == 100 and "(100)" in res.message
