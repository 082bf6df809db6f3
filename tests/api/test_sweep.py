"""A sweep is many calls of `minimize` in one computation: the same cell by cell, compiled once, shown as a table."""

import csv
import dataclasses
import importlib
import json
import math
import shutil
import signal
from functools import cache
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from support.compilations import ON_CPU, compilations
from support.saved_runs import assert_same_study

import galapax as gx
from galapax.core.stop import Stop
from galapax.execution import compiled
from galapax.numerics import devices
from galapax.operators.variation import best_1, rand_1
from galapax.results.study import curve_rows
from galapax.view import accessor, summary_tables

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
LOWER, UPPER = np.array(BOX).T
OPTIMUM = np.array([2.0, -2.5, 8.0])
N, R, GENERATIONS, SEED = 8, 4, 12, 3
FR, SIGMA = [0.6, 1.0, 1.4], [0.2, 0.8]
ROUNDING = 1e-9  # relative: batched reductions may round differently


def bowl(x):
    return (x[0] - 2.0) ** 2 + (x[1] + 2.5) ** 2 + (x[2] - 8.0) ** 2


def bowl_in_numpy(x):
    return np.sum((x - OPTIMUM) ** 2, axis=-1)


def to_the_right(x):
    return 3.0 - x[..., 0]


ASKED = {"runs": R, "generations": GENERATIONS, "seed": SEED, "compute": gx.Compute(dtype="float64")}
STOPPING = {"target": 0.3, "generations": 30}  # some runs get there, each at its own generation


@cache
def grid():
    return gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, **ASKED)


@cache
def grid_to_a_target():
    return gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, **(ASKED | STOPPING))


@cache
def alone(algorithm, **settings):
    return gx.minimize(bowl, BOX, algorithm, polish=False, **(ASKED | settings))


def assert_same(cell, single):
    """The same result up to rounding, in everything but the time it took."""
    for name in ("nit", "nfev", "n_failed", "success", "message", "feasible", "seed", "settings"):
        assert cell[name] == single[name], name
    for name in ("x", "fun", "violation", "population", "population_fitness"):
        np.testing.assert_allclose(cell[name], single[name], rtol=ROUNDING, err_msg=name)
    pairs = [(cell.history, single.history)]
    if single.runs is not None:
        for field in dataclasses.fields(gx.Runs):
            if field.name != "history":
                own, other = getattr(cell.runs, field.name), getattr(single.runs, field.name)
                if other is None:  # what only several objectives have
                    assert own is None, field.name
                    continue
                np.testing.assert_allclose(own, other, rtol=ROUNDING, err_msg=field.name)
        pairs.append((cell.runs.history, single.runs.history))
    for own, other in pairs:
        for field in dataclasses.fields(gx.History):
            if getattr(other, field.name) is None:
                assert getattr(own, field.name) is None
            else:
                a, b = getattr(own, field.name), getattr(other, field.name)
                np.testing.assert_allclose(a, b, rtol=ROUNDING, err_msg=field.name)


# --- every cell is a call of minimize ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_cell_is_minimize_with_its_settings():
    assert len(grid()) == 6 and grid().message == "All 6 settings completed."
    for labels, cell in grid():
        assert_same(cell, alone(gx.ThreeParentGA(population=N, **labels)))
    assert len(set(grid().values().ravel().tolist())) == 24  # and no two runs are alike


@pytest.mark.slow
def test_runs_stop_at_a_target_each_at_its_own_generation():
    lengths = [cell.runs.nit for _, cell in grid_to_a_target()]
    assert len(np.unique(lengths)) > 3 and np.max(lengths) == 30
    for labels, cell in grid_to_a_target():
        assert_same(cell, alone(gx.ThreeParentGA(population=N, **labels), **STOPPING))


@pytest.mark.slow
@pytest.mark.parametrize(("whole", "rules"), [(grid, {}), (grid_to_a_target, STOPPING)], ids=["all", "to a target"])
def test_batches_that_cut_through_cells_change_nothing(whole, rules, in_batches):
    at_once = whole()
    in_batches(5)  # 24 runs: five batches, the last one overlapping
    told = []
    split = gx.sweep(
        bowl, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, callback=told.append, **(ASKED | rules)
    )  # fmt: skip
    assert split.labels == at_once.labels
    for (_, cell), (_, same) in zip(split, at_once, strict=True):
        assert_same(cell, same)
    assert told[-1].runs == told[-1].runs_done == 24
    assert told[-1].nfev == sum(cell.nfev for _, cell in at_once)


@pytest.mark.slow
def test_a_swept_population_is_a_computation_for_each_size():
    study = gx.sweep(bowl, BOX, gx.ThreeParentGA, fr=FR, population=[6, N], sigma=SIGMA, **ASKED)
    assert study.axes == {"fr": FR, "population": [6, N], "sigma": SIGMA}
    assert study.labels == [{"fr": f, "population": n, "sigma": s} for f in FR for n in (6, N) for s in SIGMA]
    for labels, cell in study:
        assert_same(cell, alone(gx.ThreeParentGA(**labels)))
        assert cell.population.shape == (labels["population"], 3)
    assert study.values("nfev").tolist() == [[[[n * GENERATIONS] * R] * 2 for n in (6, N)]] * 3


@pytest.mark.slow
def test_a_swept_function_is_a_computation_for_each():
    study = gx.sweep(bowl, BOX, gx.DE(population=N), mutation=[rand_1, best_1], **ASKED)
    assert study.axes == {"mutation": ["rand_1", "best_1"]}
    for function in (rand_1, best_1):
        assert_same(study.cell(mutation=function.__name__), alone(gx.DE(population=N, mutation=function)))


def test_a_black_box_is_swept_in_one_go():
    seen = []

    def recording(x):
        seen.append(x.shape)
        return bowl_in_numpy(x)

    study = gx.sweep(
        recording, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA[:1], blackbox=True, vectorized=True, **ASKED
    )  # fmt: skip
    assert seen == [(len(FR) * R * N, 3)] * GENERATIONS
    close = ROUNDING if devices.on_cpu() else 1e-5  # the last digit of a GPU kernel's normal numbers
    for fr in FR:
        ours, compiled = study.cell(fr=fr, sigma=SIGMA[0]), grid().cell(fr=fr, sigma=SIGMA[0])
        np.testing.assert_allclose(ours.runs.fun, compiled.runs.fun, rtol=close)
        np.testing.assert_allclose(ours.population, compiled.population, rtol=close)
        np.testing.assert_allclose(ours.runs.history.mean, compiled.runs.history.mean, rtol=close)


def test_maximize_keeps_the_signs():
    study = gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, maximize=True, target=90.0, **ASKED)
    assert 0 < np.mean(study.values() >= 90.0) < 1
    for (_, cell), row in zip(study, study.summary(), strict=True):
        values = cell.runs.fun
        np.testing.assert_allclose(values, bowl_in_numpy(cell.runs.x), rtol=ROUNDING)
        assert np.all(np.diff(cell.runs.history.best, axis=1) >= 0) and cell.fun == values.max()
        assert row["best"] == values.max() and row["worst"] == values.min() and row["median"] == np.median(values)
        assert row["success"] == np.mean(values >= 90.0)
    medians = np.median(study.values(), axis=-1).ravel()
    (table,) = summary_tables.build_tables(study)
    assert [row[0].bold for row in table.rows] == [i == medians.argmax() for i in range(6)]


CONSTRAINED = {"ineq": to_the_right, "runs": 2, "generations": 5, "seed": SEED}


def test_each_cell_reports_constraints_at_its_best_point():
    study = gx.sweep(
        bowl, BOX, gx.ThreeParentGA(population=N), sigma=np.linspace(0, 1, 9), keep=gx.Keep(history="x"), **CONSTRAINED
    )
    for _, cell in study:
        assert cell.ineq.tolist() == [to_the_right(cell.x)] and cell.feasible == (cell.ineq[0] <= 0)
        history = cell.runs.history
        np.testing.assert_allclose(bowl_in_numpy(history.x), history.best, rtol=ROUNDING)
        np.testing.assert_allclose(np.maximum(to_the_right(history.x), 0), history.violation, rtol=ROUNDING)
    assert [row["feasible"] for row in study.summary()] == [np.mean(cell.runs.violation == 0) for _, cell in study]


@pytest.mark.slow
def test_each_cell_reports_the_constraints_of_a_black_box():
    study = gx.sweep(bowl_in_numpy, BOX, gx.ThreeParentGA(population=3), sigma=SIGMA, blackbox=True, **CONSTRAINED)
    for _, cell in study:
        assert cell.ineq is not None and cell.ineq.tolist() == [to_the_right(cell.x)]


def test_snapshots_are_of_the_cell_that_they_belong_to(monkeypatch, in_batches):
    in_batches(5)  # one cell a batch
    monkeypatch.setattr(compiled, "CHUNK_SECONDS", 0.0)  # one generation at a time
    asked = ASKED | STOPPING | {"runs": 5, "target": 5.0, "keep": gx.Keep(snapshots=(10,))}
    study = gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), fr=[1.0, 0.0], sigma=[0.5, 0.0], **asked)
    lengths = [cell.runs.nit.max() for _, cell in study]
    assert min(lengths) < 10 < max(lengths)  # some cells end before it
    for _, cell in study:
        for kept in cell.snapshots.values():
            assert kept.x.shape == (5, N, 3)
            ended = cell.runs.nit <= 10  # those stay as they were
            np.testing.assert_allclose(kept.fitness.min(axis=1)[ended], cell.runs.fun[ended], rtol=ROUNDING)


def test_a_failure_is_reported_for_the_cell_that_had_it():
    calls = 0

    def failing_at_second(x):
        nonlocal calls
        calls += 1
        if calls == 2:  # an exception of the very first call ends the study
            raise RuntimeError("only now")
        return float(bowl_in_numpy(x))

    study = gx.sweep(failing_at_second, BOX, gx.ThreeParentGA(population=3), sigma=SIGMA, blackbox=True, **CONSTRAINED)
    assert [cell.n_failed for _, cell in study] == [1, 0]
    assert ["only now" in cell.message for _, cell in study] == [True, False]


@pytest.mark.parametrize("run", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_run_of_a_cell_is_replayed(run):
    for fr, sigma in ((0.6, 0.8), (1.4, 0.2)):
        cell = grid().cell(fr=fr, sigma=sigma)
        replayed = cell.run(run)
        assert_same(replayed, alone(gx.ThreeParentGA(population=N, fr=fr, sigma=sigma), runs=range(run, run + 1)))
        np.testing.assert_allclose(replayed.history.mean, cell.runs.history.mean[run], rtol=ROUNDING)
        assert replayed.settings["hyperparameters"] == {
            "population": N, "fr": fr, "sigma": sigma, "bounds_at_start_only": False
        }  # fmt: skip


def test_starting_points_hold_for_every_cell():
    points = np.random.default_rng(0).uniform(LOWER, UPPER, (R, N, 3))  # each run's whole first population
    study = gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, x0=points, **ASKED)
    for _, cell in study:
        np.testing.assert_allclose(cell.runs.history.mean[:, 0], bowl_in_numpy(points).mean(axis=1), rtol=ROUNDING)
        assert cell.run(2).history.best[0] == pytest.approx(bowl_in_numpy(points[2]).min())


# --- one computation --------------------------------------------------------------------------------------------------


def test_a_grid_is_one_program_and_other_values_compile_nothing():
    def unlike_any_other(x):
        return bowl(x) + 0.1234 * x[0]

    with compilations() as compiled:
        gx.sweep(unlike_any_other, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, **ASKED)
    assert sum("_chunk" in name for name in compiled) == 1
    with compilations() as compiled:
        gx.sweep(unlike_any_other, BOX, gx.ThreeParentGA(population=N), fr=[0.7, 0.9], sigma=[0.1, 0.3, 0.5], **ASKED)
    assert compiled == []


# --- names ------------------------------------------------------------------------------------------------------------


def test_values_have_the_axes_first_in_the_order_given_and_the_runs_last():
    study = gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), sigma=tuple(SIGMA), fr=np.array(FR), **ASKED)
    assert list(study.axes.items()) == [("sigma", SIGMA), ("fr", FR)]
    assert study.values().shape == (2, 3, R)
    for i, sigma in enumerate(SIGMA):
        for j, fr in enumerate(FR):
            np.testing.assert_array_equal(study.values()[i, j], study.cell(fr=fr, sigma=sigma).runs.fun)
    np.testing.assert_array_equal(study.values().transpose(1, 0, 2), grid().values())
    assert np.all(study.values("nit") == GENERATIONS) and study.values("violation").max() == 0
    assert repr(study) == "Study(sweep: 2 sigma × 3 fr, 4 runs each. All 6 settings completed.)"


def test_an_instance_with_lists_in_it_is_swept():
    study = gx.sweep(gx.Problem(bowl, BOX), gx.ThreeParentGA(population=N, fr=FR, sigma=jnp.array(SIGMA)), **ASKED)
    assert list(study.axes) == ["fr", "sigma"]
    np.testing.assert_allclose(study.values(), grid().values(), rtol=1e-4)  # 0.2 in float32 is not 0.2
    twice = gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N, fr=FR), sigma=SIGMA, **ASKED)
    assert list(twice.axes) == ["sigma", "fr"]  # what was named in the call comes first
    np.testing.assert_array_equal(twice.values().transpose(1, 0, 2), grid().values())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "a cell is identified by fr and sigma; got nothing"),
        ({"fr": 1.0}, "a cell is identified by fr and sigma; got fr"),
        ({"fr": 1.0, "sigma": 0.2, "population": N}, "identified by fr and sigma"),
        ({"fr": 1.0, "sgima": 0.2}, "got fr, sgima"),
        ({"fr": 1.1, "sigma": 0.2}, "fr is one of 0.6, 1.0, 1.4; got 1.1"),
    ],
    ids=["nothing", "one axis", "too many", "misspelt", "another value"],
)
def test_a_cell_that_is_not_there_is_refused(labels, message):
    with pytest.raises(gx.InputError, match=message):
        grid().cell(**labels)


@pytest.mark.parametrize("name", ["x", "history", "nonsense"])
def test_values_that_are_not_there_are_refused(name):
    with pytest.raises(gx.InputError, match=name):
        grid().values(name)


def test_rows_have_every_run_of_every_cell():
    rows = grid().rows()
    assert len(rows) == 24
    assert list(rows[0]) == ["fr", "sigma", "run", "fun", "violation", "nit", "nfev", "n_failed", "success",
                             "x1", "x2", "x3"]  # fmt: skip
    for row in rows:
        runs = grid().cell(fr=row["fr"], sigma=row["sigma"]).runs
        assert row["fun"] == runs.fun[row["run"]]
        assert [row["x1"], row["x2"], row["x3"]] == runs.x[row["run"]].tolist()
    assert [row["run"] for row in rows] == [0, 1, 2, 3] * 6


def test_rows_keep_axes_and_variables_of_the_same_name_apart():
    problem = gx.Problem(bowl, BOX, variables=["sigma", "fun", "z"])
    rows = gx.sweep(problem, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, **ASKED).rows()
    assert [row["sigma"] for row in rows] == [labels["sigma"] for labels, _ in grid() for _ in range(R)]
    assert [row["fun"] for row in rows] == grid().values().ravel().tolist()


def test_the_summary_is_that_of_the_runs():
    for (labels, cell), row in zip(grid(), grid().summary(), strict=True):
        fun = cell.runs.fun
        assert row == {
            **labels, "best": fun.min(), "median": np.median(fun),
            "iqr": pytest.approx(np.subtract(*np.quantile(fun, [0.75, 0.25]))), "mean": pytest.approx(fun.mean()),
            "std": pytest.approx(fun.std(ddof=1)), "worst": fun.max(), "runs": R, "evaluations": N * GENERATIONS,
        }  # fmt: skip


def test_success_is_counted_from_the_target():
    study = grid_to_a_target()
    assert study.targets == [0.3] * 6
    for (_, cell), row in zip(study, study.summary(), strict=True):
        hits = cell.runs.fun <= 0.3
        assert np.array_equal(hits, cell.runs.success) and row["success"] == hits.mean()
        assert row["success_low"] <= row["success"] <= row["success_high"]
        assert row["ert"] == (cell.runs.nfev.sum() / hits.sum() if hits.any() else math.inf)
        assert row["ert_low"] <= row["ert"] <= row["ert_high"]
        assert row["evaluations"] == cell.runs.nfev.max()
    assert 0 < np.mean(study.values() <= 0.3) < 1
    with pytest.raises(gx.InputError, match="no target was set"):
        grid().success(0)


def test_the_table_has_the_best_median_in_bold():
    (table,) = summary_tables.build_tables(grid())
    assert table.header == ["fr", "sigma", "best", "median", "mean", "worst"] and len(table.rows) == 6
    medians = np.median(grid().values(), axis=-1).ravel()
    for i, row in enumerate(table.rows):
        assert {cell.bold for cell in row} == {i == medians.argmin()}
        assert row[3].text == f"{medians[i]:.3g}"
    (table,) = summary_tables.build_tables(grid_to_a_target())
    assert table.header[-2:] == ["success", "ert"] and "95 %" in table.note
    for row, found in zip(table.rows, grid_to_a_target().summary(), strict=True):
        low, high = 100 * found["success_low"], 100 * found["success_high"]
        assert row[-2].text == f"{found['success']:.1%} ({low:.0f}–{high:.0f})"
        assert row[-1].text == f"{found['ert']:,.0f}"


def test_the_table_tells_close_settings_apart():
    study = dataclasses.replace(
        grid(),
        axes={"fr": [1.0001, 1.0002]},
        labels=[{"fr": 1.0001}, {"fr": 1.0002}],
        results=grid().results[:2],
        targets=[None] * 2,
    )
    (table,) = summary_tables.build_tables(study)
    assert table.rows[0][0].text != table.rows[1][0].text


def test_curves_are_those_of_the_runs():
    rows = curve_rows(grid())
    assert len(rows) == 6 * GENERATIONS
    best = grid().cell(fr=1.0, sigma=0.8).runs.history.best
    own = [row for row in rows if row["fr"] == 1.0 and row["sigma"] == 0.8]
    for row, column in zip(own, best.T, strict=True):
        assert row["nfev"] == N * row["generation"]
        assert row["mean"] == pytest.approx(column.mean()) and row["median"] == pytest.approx(np.median(column))
        assert row["best"] == column.min() and row["worst"] == column.max()
        assert row["lower_quartile"] == pytest.approx(np.quantile(column, 0.25))
        assert row["upper_quartile"] == pytest.approx(np.quantile(column, 0.75))


# --- stopped early ----------------------------------------------------------------------------------------------------


@ON_CPU  # where a batch has several chunks
def test_a_callback_stops_the_sweep_between_cells(monkeypatch, tmp_path, in_batches):
    at_once = grid()
    in_batches(5)
    study = gx.sweep(
        bowl,
        BOX,
        gx.ThreeParentGA(population=N),
        fr=FR,
        sigma=SIGMA,
        callback=lambda state: state.runs_done >= 10,
        **ASKED,
    )
    # two batches of five are done, the third, of the runs 10 to 14, is stopped: cells 0 to 2 and three runs of the 4th
    assert study.message == "Stopped by the callback: 4 of 6 settings were started; the last one may be incomplete."
    assert [len(cell.runs) for _, cell in study] == [4, 4, 4, 3]
    values = study.values("nit")
    assert values.shape == (3, 2, R) and np.isnan(values).sum() == 9
    assert np.all(values.reshape(6, R)[:2] == GENERATIONS) and np.all(values[1, 1, :3] < GENERATIONS)
    np.testing.assert_allclose(study.values()[0], at_once.values()[0], rtol=ROUNDING)
    with pytest.raises(gx.InputError, match="stopped before this cell was computed: Stopped by the callback"):
        study.cell(fr=1.4, sigma=0.2)
    last = study.cell(fr=1.0, sigma=0.8)
    assert last.run(1).nit == last.runs.nit[1] and last.run(1).fun == pytest.approx(last.runs.fun[1])
    monkeypatch.setattr(accessor, "can_draw", lambda: False)  # as without matplotlib
    loaded = gx.load(study.save(tmp_path))
    assert loaded.message == study.message
    np.testing.assert_array_equal(loaded.values(), study.values())


def test_max_seconds_ends_the_sweep_whatever_is_left(clock):
    def slow(x):
        clock.wait(0.01)
        return float(bowl_in_numpy(x))

    study = gx.sweep(slow, BOX, gx.RandomSearch, population=[2, 3], max_seconds=0.3, blackbox=True)
    assert study.message.startswith("Stopped by the time limit: 1 of 2 settings")
    assert len(study) == 1 and study.results[0].message.startswith("Stopped: time limit")


@pytest.mark.parametrize(
    ("stopping", "limits", "message"),
    [
        ({}, [10.0, 6.0], "Stopped by the time limit: 2 of 3 settings"),  # at 0 and 4 s, and at 11 there is none left
        ({6: Stop.CALLBACK}, [10.0], "Stopped by the callback: 1 of 3 settings"),
        ({N: Stop.INTERRUPT}, [10.0, 6.0], "Stopped by Ctrl-C: 2 of 3 settings"),
    ],
    ids=["time", "callback", "Ctrl-C"],
)
def test_groups_share_the_seconds_and_what_stops_one_stops_the_rest(stopping, limits, message, monkeypatch):
    module = importlib.import_module("galapax.api.experiments")
    clock, given = iter([0.0, 0.0, 4.0, 11.0]), []

    def solve(task, observers, partial_result):
        given.append(task.options.max_seconds)
        return [alone(gx.ThreeParentGA(population=N, fr=0.6, sigma=0.2))], stopping.get(task.population)

    monkeypatch.setattr(module, "solve", solve)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    study = gx.sweep(bowl, BOX, gx.ThreeParentGA, population=[6, N, 9], max_seconds=10.0)
    assert given == limits and study.message.startswith(message)


def test_ctrl_c_counts_the_points_that_were_evaluated():
    calls = 0

    def interrupted(x):
        nonlocal calls
        calls += 1
        if calls == 4 * 3 + 2:  # in the second generation of two cells with two runs of three points
            signal.raise_signal(signal.SIGINT)
        return float(bowl_in_numpy(x))

    study = gx.sweep(interrupted, BOX, gx.ThreeParentGA(population=3), sigma=SIGMA, blackbox=True, **CONSTRAINED)
    assert study.message.startswith("Stopped by Ctrl-C")
    assert sum(cell.nfev for _, cell in study) in (calls - 1, calls)


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"fr": [1.0], "sgima": [0.1]},
            r"'sgima', which is neither a hyper-parameter of ThreeParentGA \(population, fr, sigma, .*\)",
        ),
        ({"fr": [1.0], "genrations": 5}, "'genrations', which is neither .* nor an option of minimize"),
        ({"fr": [1.0], "label": "a"}, "'label', which is neither"),
        ({"fr": []}, "fr is an empty list"),
        ({"fr": np.zeros(0)}, "fr is an empty list"),
        ({"fr": [1.0, 2.0, 1]}, "fr contains 1 twice"),
        ({"population": [5, 6, 5]}, "population contains 5 twice"),
        ({}, "nothing to sweep: give at least one hyper-parameter of ThreeParentGA"),
        ({"fr": 1.5, "generations": 5}, "nothing to sweep"),
        ({"fr": np.ones((2, 2))}, r"fr must be a list of values, got an array of shape \(2, 2\)"),
        ({"fr": [1.0, "a"]}, "fr must be a number, got 'a'"),
        ({"fr": [[1.0, 2.0], [3.0, 4.0]]}, "fr must be a number"),
        ({"sigma": [0.5, -0.5]}, "sigma must be at least 0, got -0.5"),
        ({"population": [2, 8]}, "population must be at least 3"),
        ({"population": [[8], [9]]}, "population must be a whole number"),
        ({"fr": [1.0, 2.0], "seed": [1, 2]}, "seed must be a whole number"),
        ({"fr": [1.0, 2.0], "generations": [5, 6]}, "generations must be a whole number"),
        ({"fr": [1.0, 2.0], "runs": 0}, "runs must be at least 1"),
        ({"fr": [1.0, 2.0], "max_evaluations": 5, "population": 8}, "population of 8"),
    ],
)
def test_what_cannot_be_swept_is_refused(settings, message):
    with pytest.raises(gx.InputError, match=message):
        gx.sweep(bowl, BOX, gx.ThreeParentGA, **settings)


def test_algorithms_that_are_none_are_refused():
    with pytest.raises(gx.InputError, match="no algorithm called 'gaa'"):
        gx.sweep(bowl, BOX, "gaa", fr=[1.0, 2.0])
    with pytest.raises(gx.InputError, match="has its own bounds"):
        gx.sweep(gx.Problem(bowl, BOX), BOX, "ga", fr=[1.0, 2.0])


def test_a_class_that_is_no_algorithm_is_refused():
    with pytest.raises(gx.InputError, match="algorithm must be"):
        gx.sweep(bowl, BOX, dict, fr=[1.0, 2.0])


def test_an_infinite_target_is_refused_or_summarised():
    try:
        study = gx.sweep(
            bowl, BOX, gx.ThreeParentGA(population=N), fr=FR, sigma=SIGMA, **(ASKED | {"target": math.inf})
        )
    except gx.InputError:
        return
    assert [row["success"] for row in study.summary()] == [1.0] * 6


def test_success_in_float32_is_what_the_runs_say():
    """Made by hand, as sweep(lambda x: 0.1 + 0 * x[0], ..., target=0.1, dtype="float32") gives it."""
    reached = np.full((R, GENERATIONS), 0.1, np.float32)
    runs = grid_to_a_target().results[0].runs
    history = dataclasses.replace(runs.history, best=reached, generation=np.arange(1, 13), nfev=N * np.arange(1, 13))
    runs = dataclasses.replace(runs, fun=reached[:, -1], success=np.ones(R, bool), history=history)
    settings = grid_to_a_target().results[0].settings | {"dtype": "float32"}
    one = gx.Result(grid_to_a_target().results[0] | {"runs": runs, "settings": settings})
    study = dataclasses.replace(grid_to_a_target(), results=[one], labels=[{"fr": 0.6, "sigma": 0.2}], targets=[0.1])
    assert study.summary()[0]["success"] == 1.0


def test_a_sweep_that_memory_cannot_hold_is_refused(monkeypatch):
    asked = {"fr": FR, "sigma": SIGMA, **ASKED}
    monkeypatch.setattr(devices, "free_memory", lambda: 500)
    with pytest.raises(
        gx.InputError, match=r"one run with a population of 8 needs at least .* use a smaller population"
    ):
        gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), **asked)
    monkeypatch.undo()
    needed = 24 * GENERATIONS * (3 + 3 + 3) * 8  # three counts, best, mean and worst, and x; in float64
    monkeypatch.setattr(devices, "free_memory", lambda: 2**30)
    monkeypatch.setattr(devices, "host_memory", lambda: needed - 1)
    with pytest.raises(
        gx.InputError, match=r"the history of 24 runs over 12 generations .* use keep=gx\.Keep\(history=False\)"
    ):
        gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), keep=gx.Keep(history="x"), **asked)
    monkeypatch.setattr(devices, "host_memory", lambda: needed)
    gx.sweep(bowl, BOX, gx.ThreeParentGA(population=N), **asked)


def test_a_population_that_memory_cannot_hold_is_refused_before_anything_is_run(monkeypatch):
    module = importlib.import_module("galapax.api.experiments")
    solve, begun = module.solve, []
    monkeypatch.setattr(module, "solve", lambda task, *rest: begun.append(task.population) or solve(task, *rest))
    monkeypatch.setattr(devices, "free_memory", lambda: 10**6)
    with pytest.raises(gx.InputError, match="population of 100000"):
        gx.sweep(bowl, BOX, gx.ThreeParentGA, population=[N, 100_000], **ASKED)
    assert N not in begun


# --- saved and loaded -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return grid_to_a_target().save(tmp_path_factory.mktemp("sweep") / "saved")


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def test_a_saved_sweep_is_loaded_as_it_was(folder):
    study, loaded = grid_to_a_target(), gx.load(folder)
    assert_same_study(loaded, study)
    for (_, one), (_, other) in zip(loaded, study, strict=True):
        assert one.settings == other.settings and one.message == other.message
    assert loaded.summary() == study.summary() and loaded.rows() == study.rows()
    assert loaded.cell(fr=1.0, sigma=0.8).fun == study.cell(fr=1.0, sigma=0.8).fun
    with pytest.raises(gx.InputError, match="loaded or copied"):
        loaded.cell(fr=1.0, sigma=0.8).run(0)


def test_saved_tables_are_those_of_the_study(folder):
    study = grid_to_a_target()
    for file, rows in (("runs.csv", study.rows()), ("summary.csv", study.summary()), ("curves.csv", None)):
        with (folder / file).open(encoding="utf-8", newline="") as lines:
            found = list(csv.DictReader(lines))
        rows = curve_rows(study) if rows is None else rows
        assert found == [{k: str(v) for k, v in row.items()} for row in rows]
    assert (folder / "summary.md").read_text(encoding="utf-8") == summary_tables.markdown(study)
    assert (folder / "summary.tex").read_text(encoding="utf-8") == summary_tables.latex(study)
    assert (folder / "convergence.png").read_bytes()[:4] == b"\x89PNG"
    assert (folder / "report.html").read_text(encoding="utf-8").count("<figure data-chart") == 3


def test_a_sweep_without_history_is_loaded_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(accessor, "can_draw", lambda: False)  # as without matplotlib
    study = dataclasses.replace(
        grid_to_a_target(), results=[copied_without_history(cell) for _, cell in grid_to_a_target()]
    )
    loaded = gx.load(study.save(tmp_path))
    assert loaded.results[0].history is None and loaded.results[0].runs.history is None
    assert loaded.summary() == study.summary() == grid_to_a_target().summary()


def copied_without_history(result):
    return gx.Result(result | {"runs": dataclasses.replace(result.runs, history=None), "history": None})


def change(folder, **changes):
    file = folder / "study.json"
    data = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps({k: v for k, v in data.items() if v is not None}), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "study.json").write_text("{", encoding="utf-8"), "study.json is damaged"),
        (lambda f: (f / "study.json").write_bytes(b"\xff\xfe"), "study.json is damaged"),
        (lambda f: change(f, cells=None), "study.json is damaged"),
        (lambda f: change(f, cells=[{}]), "study.json is damaged"),
        (lambda f: change(f, axes=None), "study.json is damaged"),
        (lambda f: change(f, format=None), "study.json is damaged"),
        (lambda f: change(f, format=2), "format 2, written by a newer galapax; this one reads up to 1"),
        (lambda f: (f / "arrays.npz").unlink(), "arrays.npz is damaged"),
        (lambda f: (f / "arrays.npz").write_bytes(b"not an archive"), "arrays.npz is damaged"),
        (lambda f: np.savez(f / "arrays.npz", a=np.zeros(3)), "arrays.npz is damaged"),
    ],
    ids=["cut text", "no text", "no cells", "an empty cell", "no axes", "no format", "a future format", "no data",
         "other data", "other arrays"],
)  # fmt: skip
def test_a_damaged_or_newer_study_is_named(damage, message, copy):
    damage(copy)
    with pytest.raises(gx.InputError, match=message):
        gx.load(copy)


@pytest.mark.parametrize("left", [0.0, 0.5, 0.99], ids=["nothing", "half", "almost all"])
def test_a_cut_archive_is_named(left, copy):
    data = (copy / "arrays.npz").read_bytes()
    (copy / "arrays.npz").write_bytes(data[: int(left * len(data))])
    with pytest.raises(gx.InputError, match=r"arrays.npz is damaged"):
        gx.load(copy)


@pytest.mark.parametrize("name", ["labels", "targets"])
def test_a_study_with_too_few_labels_or_targets_is_damaged(name, copy):
    change(copy, **{name: json.loads((copy / "study.json").read_text(encoding="utf-8"))[name][:-1]})
    with pytest.raises(gx.InputError, match=r"study.json is damaged"):
        gx.load(copy)


def test_saving_a_single_run_over_a_sweep_leaves_nothing_of_it(copy, monkeypatch):
    monkeypatch.setattr(accessor, "can_draw", lambda: False)  # as without matplotlib
    alone(gx.ThreeParentGA(population=N, fr=0.6, sigma=0.2)).save(copy)
    assert isinstance(gx.load(copy), gx.Result)
    assert not {"study.json", "curves.csv", "summary.csv", "summary.md", "summary.tex", "report.html"} & {
        f.name for f in copy.iterdir()
    }
