"""A saved run is loaded as it was; a damaged one is named."""

import csv
import dataclasses
import json
import shutil
from datetime import UTC, datetime

import jax.numpy as jnp
import numpy as np
import pytest
from support.bowl import BOX, N, bowl, solve

import galapax as gx
from galapax.results.result import find_start


@pytest.fixture(scope="module")
def single():
    return solve()


@pytest.fixture(scope="module")
def saved_single(single, tmp_path_factory):
    return single.save(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def saved(saved_single, tmp_path):
    """A folder with the saved run `single`, to be damaged."""
    return shutil.copytree(saved_single, tmp_path / "saved")


@pytest.fixture(scope="module")
def ensemble():
    """Six runs, of which three reach the target."""
    middle = float(np.median(solve(runs=6, generations=12).runs.fun))
    return solve(runs=6, target=middle, generations=12)


@pytest.fixture(scope="module")
def constrained():
    return solve(ineq=lambda x: jnp.stack([3.0 - x[0], x[1]]), eq=lambda x: x[0] + x[1])


def assert_same_content(loaded, res):
    for name in ("message", "success", "feasible", "nit", "nfev", "n_failed", "seed", "timings", "settings"):
        assert loaded[name] == res[name], name
    for name in ("x", "fun", "violation", "ineq", "eq", "population", "population_fitness"):
        np.testing.assert_array_equal(loaded[name], res[name]) if res[name] is not None else loaded[name] is None
    if res.history is None:
        assert loaded.history is None
    else:
        for part in dataclasses.fields(gx.History):
            expected = getattr(res.history, part.name)
            found = getattr(loaded.history, part.name)
            assert found is None if expected is None else np.array_equal(found, expected)
    if res.runs is None:
        assert loaded.runs is None
    else:
        for part in dataclasses.fields(gx.Runs):
            if part.name != "history":
                np.testing.assert_array_equal(getattr(loaded.runs, part.name), getattr(res.runs, part.name))


@pytest.mark.parametrize("which", ["single", "ensemble", "constrained"])
def test_a_saved_run_is_loaded_as_it_was(which, request, tmp_path):
    res = request.getfixturevalue(which)
    folder = res.save(tmp_path / "new" / which)
    assert folder == tmp_path / "new" / which and (folder / "result.json").is_file()
    loaded = gx.load(folder)
    assert isinstance(loaded, gx.Result)
    assert_same_content(loaded, res)
    assert repr(loaded) == repr(res)
    with pytest.raises(gx.InputError, match=r"runs=range\(0, 1\)"):
        loaded.run(0)


@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"runs": 3}, marks=pytest.mark.slow), pytest.param({"maximize": True}, marks=pytest.mark.slow)],
    ids=str,
)
def test_a_run_without_any_finite_value_is_loaded_as_it_was(settings, tmp_path):
    res = solve(lambda x: x[0] * jnp.nan, on_failure="worst", generations=3, **settings)
    loaded = gx.load(res.save(tmp_path))
    assert np.isnan(loaded.fun) and loaded.violation == np.inf
    assert_same_content(loaded, res)


def test_a_run_without_history_is_loaded_as_it_was(tmp_path):
    res = solve(keep=gx.Keep(history=False))
    assert_same_content(gx.load(res.save(tmp_path)), res)


def test_saving_into_the_same_folder_leaves_nothing_of_the_earlier_run(ensemble, single, tmp_path):
    ensemble.save(tmp_path)
    assert_same_content(gx.load(single.save(tmp_path)), single)
    without = solve(keep=gx.Keep(history=False))
    assert_same_content(gx.load(without.save(tmp_path)), without)


def test_saved_files_are_what_other_tools_read(constrained, ensemble, tmp_path):
    constrained.save(tmp_path)
    data = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert data["format"] == 1 and data["x"] == constrained.x.tolist()
    header, *rows = (tmp_path / "history.csv").read_text(encoding="utf-8").splitlines()
    assert header == "generation,nfev,best,mean,worst,violation,feasible_share" and len(rows) == 20
    header, *rows = (tmp_path / "population.csv").read_text(encoding="utf-8").splitlines()
    assert header == "x1,x2,fun" and len(rows) == N
    ensemble.save(tmp_path)
    header, *rows = (tmp_path / "runs.csv").read_text(encoding="utf-8").splitlines()
    assert header == "run,fun,violation,nit,nfev,n_failed,success,x1,x2" and len(rows) == 6


def test_names_with_commas_stay_one_column(tmp_path):
    problem = gx.Problem(bowl, BOX, variables=("width, mm", 'the "depth"'))
    solve(problem, None).save(tmp_path)
    with (tmp_path / "population.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["width, mm", 'the "depth"', "fun"] and {len(row) for row in rows} == {3}


def test_a_loaded_run_can_be_saved_again(single, tmp_path):
    loaded = gx.load(single.save(tmp_path / "first"))
    assert_same_content(gx.load(loaded.save(tmp_path / "second")), single)


def test_jax_numbers_as_hyper_parameters_can_be_saved(tmp_path):
    res = solve(algorithm=gx.DE(population=N, weight=jnp.asarray(0.5)))
    assert gx.load(res.save(tmp_path)).settings["hyperparameters"]["weight"] == 0.5


DAMAGES = {
    "empty": "",
    "cut off": '{"format": 1, "x": [1.0, 2.0',
    "not JSON": "hello",
    "a list": "[1, 2]",
    "a number": "3",
    "no format": '{"x": [1.0, 2.0]}',
    "format of another type": '{"format": "one"}',
    "no content": '{"format": 1}',
    "x of another type": '{"format": 1, "x": "here"}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_named(damage, saved):
    (saved / "result.json").write_text(DAMAGES[damage], encoding="utf-8")
    with pytest.raises(gx.InputError, match=r"saved.* damaged"):
        gx.load(saved)


def test_bytes_that_are_no_text_are_damage(saved):
    (saved / "result.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(gx.InputError, match=r"saved.* damaged"):
        gx.load(saved)


@pytest.mark.parametrize("content", [None, b"", b"no archive"], ids=repr)
def test_missing_or_damaged_arrays_are_damage(content, saved):
    file = saved / "arrays.npz"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(gx.InputError, match=r"saved.*arrays\.npz is damaged"):
        gx.load(saved)


def test_a_future_format_is_refused(saved):
    file = saved / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "format": 99}), encoding="utf-8")
    with pytest.raises(gx.InputError, match=r"format 99, written by a newer galapax; this one reads up to \d"):
        gx.load(saved)


def test_a_folder_without_a_run_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(gx.InputError, match="contains no saved run"):
            gx.load(folder)


def test_a_folder_that_cannot_be_written_is_an_error_that_leaves_the_result(single, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way", encoding="utf-8")
    for folder in (file, file / "below"):
        with pytest.raises(OSError, match=r"could not be saved to .*file.*The result itself is intact"):
            single.save(folder)
        with pytest.raises(NotADirectoryError, match="file is a file, and a run needs a folder") as caught:
            single.save(folder)
        assert caught.value.__cause__ is None and len(caught.traceback) <= 4
    assert file.read_text(encoding="utf-8") == "in the way"
    assert gx.load(single.save(tmp_path / "elsewhere")).fun == single.fun


def test_a_saved_run_says_when_it_began_and_equal_runs_stay_equal(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    result, again = (
        gx.minimize(lambda x: (x**2).sum(), [(-1, 1)] * 2, "de", generations=5, polish="auto") for _ in range(2)
    )
    folder = result.save(tmp_path / "run")
    text = json.loads((folder / "result.json").read_text())["started"]
    assert text.endswith("Z") and before <= datetime.fromisoformat(text) <= datetime.now(UTC)
    assert f'<td class="setting">{text.replace("T", " ").replace("Z", " UTC")}</td>' in (
        folder / "report.html"
    ).read_text(encoding="utf-8")
    loaded = gx.load(folder)
    assert find_start(loaded) == text and set(result) == set(again) and "started" not in {*result, *loaded}
    frame = result.to_dataframe("history")
    assert frame["generation"][frame["refinement"]].tolist() == result.refinements != []


def test_tab_completion_offers_entries_and_methods_and_no_internals():
    result = gx.minimize(lambda x: (x**2).sum(), [(-1, 1)] * 2, "de", generations=3)
    names = {name for name in dir(result) if not name.startswith("_")}
    assert {"x", "fun", "plot", "save", "importances", "params"} <= names
    assert not names & {"sign", "signs", "items", "pop", "setdefault"}
    assert dir(gx.callbacks) == gx.callbacks.__all__
