"""Why a run ends: one word and one sentence for each reason, the same everywhere; and Ctrl-C, which loses nothing."""

import importlib
import os
import re
import signal

import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import params

import galapax as gx
from galapax.api.experiments import message
from galapax.core.stop import UNLIMITED, Rules, Stop, interrupts
from galapax.execution import solve as solving

BOX = [(1.5, 4.0), (-7.0, -2.0)]
SMALL = {"population": 8, "generations": 12, "polish": False}
LONG = {"generations": 5000, "tolerance": 0}  # more than a GPU makes between two looks


def bowl(x):
    return jnp.sum((x - 2.0) ** 2)


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stop", Stop)
def test_every_reason_has_its_words(stop):
    sentence = stop.sentence(17, Rules(17, -np.inf, UNLIMITED), seconds=2.5)
    assert sentence.endswith((".", "so far.")) and "{" not in sentence
    assert message(stop, 2, 5, "setting", "settings").startswith(f"Stopped by {stop.by}: 2 of 5 settings")
    assert stop == Stop(str(stop))  # files have the word


@pytest.mark.slow
def test_a_result_says_which_rule_ended_it():
    run = {"algorithm": "de", **SMALL}
    assert gx.minimize(bowl, BOX, **run).stop is Stop.BUDGET
    assert gx.minimize(bowl, BOX, **run, target=1e9).stop is Stop.TARGET
    assert gx.minimize(lambda x: 0.0 * x[0], BOX, patience=3, **run).stop is Stop.STALL
    assert gx.minimize(bowl, BOX, **run | LONG, callback=lambda state: True).stop is Stop.CALLBACK


def test_the_word_is_saved(tmp_path):
    res = gx.minimize(bowl, BOX, "de", **SMALL | LONG, callback=lambda state: True)
    assert gx.load(res.save(tmp_path)).stop is Stop.CALLBACK


def test_ctrl_c_while_the_result_is_put_together_keeps_it(monkeypatch):
    assemble = solving.result_of

    def interrupted(*arguments):
        ctrl_c()
        return assemble(*arguments)

    monkeypatch.setattr(solving, "result_of", interrupted)
    res = gx.minimize(bowl, BOX, "de", **SMALL)
    assert res.nit == 12 and res.stop is Stop.INTERRUPT and "Ctrl-C was pressed while" in res.message


@pytest.mark.slow
def test_ctrl_c_between_cells_ends_a_comparison_with_what_there_is(monkeypatch):
    """It comes when a cell is done and the next has not begun."""
    done = []
    finished = solving.result_of

    def after(*arguments):
        result = finished(*arguments)
        done.append(result)
        if len(done) == 2:
            ctrl_c()
        return result

    monkeypatch.setattr(solving, "result_of", after)
    study = gx.compare([gx.Problem(bowl, BOX)], ["random", "de", "ga"], runs=2, max_evaluations=500)
    assert len(study) == 2 and study.stop is Stop.INTERRUPT and "Stopped by Ctrl-C: 2 of 3" in study.message


@pytest.mark.slow
def test_ctrl_c_during_the_check_of_a_worst_case_keeps_the_answer(monkeypatch):
    module = importlib.import_module("galapax.api.minimax")  # the name is the function's
    check = module.find_worst_cases

    def interrupted(*arguments):
        ctrl_c()
        return check(*arguments)

    monkeypatch.setattr(module, "find_worst_cases", interrupted)
    res = gx.minimax(lambda x, y: x[0] ** 2 - y[0] ** 2, [(-1.0, 2.0)], [(-1.0, 2.0)], **SMALL)
    assert res.stop is Stop.INTERRUPT and np.isfinite(res.worst_case) and res.x.shape == (1,)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_a_second_ctrl_c_raises():
    with interrupts() as noted:
        ctrl_c()
        assert noted.seen
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()


def test_the_handler_of_the_user_is_back_afterwards():
    before = signal.getsignal(signal.SIGINT)
    gx.minimize(bowl, BOX, "de", **SMALL)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_a_comparison_s_rows_say_who_reached_the_target():
    study = gx.compare(
        [gx.problems.get("rastrigin", dim=5)], ["de", "random"], runs=6, max_evaluations=2000, within=1.0
    )
    rows = study.rows()
    for i, labels in enumerate(study.labels):
        own = [row["success"] for row in rows if row["algorithm"] == labels["algorithm"]]
        assert np.mean(own) == study.success(i)["success"]
    assert not all(row["success"] for row in rows)
    np.testing.assert_array_equal(study.values("success").ravel(), [row["success"] for row in rows])


BUDGETS = [("de", 1, 60, 8), ("de", 1, 2000, 100), ("nsga2", 2, 60, 8), (None, 1, 5, 5), (None, 1, 6, 6)]


@pytest.mark.parametrize(
    ("algorithm", "objectives", "budget", "population"), params(BUDGETS, quick={"de-1-60-8", "None-1-5-5"})
)
def test_a_population_left_to_us_fits_a_small_budget(algorithm, objectives, budget, population):
    one = lambda x: ((x - 0.3) ** 2).sum()  # noqa: E731
    fun = (lambda x: (x[0] ** 2, (x[0] - 1) ** 2)) if objectives == 2 else one
    result = gx.minimize(fun, [(-1, 2)] * 2, algorithm, max_evaluations=budget, polish="auto" if budget < 7 else False)
    assert len(result.population) == population and result.nfev == budget // population * population


def test_a_population_that_was_chosen_stays_as_it_is():
    for choice in ({"algorithm": gx.DE()}, {"algorithm": "de", "population": 100}):
        with pytest.raises(gx.InputError, match="one generation evaluates the population of 100"):
            gx.minimize(lambda x: (x**2).sum(), [(-1, 2)] * 2, **choice, max_evaluations=60)


def test_a_run_that_begins_at_the_best_point_is_not_said_to_have_a_constant_objective():
    result = gx.minimize(lambda x: float(x @ x), [(-1, 2)] * 2, x0=[0, 0], blackbox=True, max_evaluations=25)
    assert result.fun == 0 and "Every evaluation" not in result.message


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"runs": 2}, marks=pytest.mark.slow),
        {"blackbox": True},
        pytest.param({"maximize": True}, marks=pytest.mark.slow),
    ],
)
def test_the_message_names_a_constant_objective(options):
    result = gx.minimize(
        lambda x: 3.0 + 0 * x[0], [(-1, 2)] * 2, gx.DE(population=8), generations=3, polish=False, **options
    )
    assert not result.success and result.message.endswith(
        "Every evaluation returned 3: check that the objective depends on x."
    )
    if result.runs is not None:
        assert not result.runs.success.any()
    varied = gx.minimize(lambda x: x[0], [(-1, 2)] * 2, gx.DE(population=8), generations=3, polish=False, **options)
    assert "Every evaluation" not in varied.message


def test_time_that_went_into_compiling_is_named():
    """A limit that compiling alone has used up."""
    options = {
        "max_seconds": 1e-3,
        "tolerance": 0,
        "generations": 10**6,
        "polish": False,
    }  # more than the first chunk of any device
    result = gx.minimize(lambda x: jnp.cos(x).sum(), [(-1, 2)] * 3, gx.FEP(population=31), **options)
    assert result.stop == "time" and re.search(r"reached after generation \d+\. Compiling alone took", result.message)
