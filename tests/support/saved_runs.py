"""Runs to save, made by hand and at once; whether two are the same; and changed folders whose manifest fits them."""

import dataclasses
import itertools
import json

import numpy as np
from typer.testing import CliRunner

import galapax as gx
from galapax.cli.app import app
from galapax.core.problem import Population
from galapax.core.space import as_space
from galapax.core.stop import Stop
from galapax.results.front import Front
from galapax.storage import atomic
from galapax.storage.result_format import result_to_json

SETTINGS = {"problem": "made", "algorithm": "de", "hyperparameters": {}, "archive": None, "generations": 6,
            "target": None, "patience": None, "tolerance": 0.0, "max_seconds": None, "restarts": None, "polish": False,
            "seed": 0, "maximize": False, "vectorized": False, "blackbox": False, "dtype": "float64",
            "device": "cpu", "versions": {"galapax": "0"}}  # fmt: skip


def assert_same_study(loaded, study):
    """Check that a study was loaded with all that it had: its cells, their runs and their histories."""
    for name in ("kind", "axes", "labels", "targets", "message", "paired"):
        assert getattr(loaded, name) == getattr(study, name)
    for (_, one), (_, other) in zip(loaded, study, strict=True):
        for name in ("x", "fun", "violation", "population", "population_fitness"):
            np.testing.assert_array_equal(one[name], other[name])
        assert (one.ineq is None) == (other.ineq is None) and np.array_equal(one.ineq, other.ineq)
        for field in dataclasses.fields(gx.Runs):
            if field.name != "history":
                np.testing.assert_array_equal(getattr(one.runs, field.name), getattr(other.runs, field.name))
        for ours, theirs in ((one.history, other.history), (one.runs.history, other.runs.history)):
            for field in dataclasses.fields(gx.History):
                np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))


def call_shell(*arguments):
    """Run a command of the shell in this process; return its exit code and what it printed, as one line."""
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return outcome.exit_code, " ".join(outcome.output.split())


def read_files(folder):
    """Return the content of every file of a folder, by name."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def random_run(seed=0, runs=1, m=1, snapshots=False, generations=6, n=5, with_x=True, **about):
    """A run as `minimize` returns it, of random numbers: constrained, with all that a folder can hold."""
    rng = np.random.default_rng(seed)
    d = 3
    about = {"name": "made", "objectives": [f"cost {k}" for k in range(m)] if m > 1 else None} | about
    problem = gx.Problem(lambda x: x[0], gx.box(-1, 2, d), ineq=lambda x: x[:2], **about)
    wide = () if m == 1 else (m,)

    def history(*first):
        best = np.sort(rng.random((*first, generations, *wide)), axis=len(first))[..., ::-1] if m == 1 else None
        best = rng.random((*first, generations, *wide)) if best is None else best
        return gx.History(
            generation=np.arange(1, generations + 1), nfev=n * np.arange(1, generations + 1), best=best,
            mean=best + 1, worst=best + 2, violation=rng.random((*first, generations)),
            feasible_share=rng.random((*first, generations)),
            x=rng.random((*first, generations, d)) if with_x else None,
        )  # fmt: skip

    def front(k):
        return Front(rng.random((k, d)), rng.random((k, m)), -rng.random((k, 2)), None, np.zeros(k))

    every = None
    if runs > 1:
        every = gx.Runs(
            number=np.arange(runs), x=rng.random((runs, d)), fun=rng.random((runs, *wide)), violation=np.zeros(runs),
            nit=np.full(runs, generations), nfev=np.full(runs, n * generations), n_failed=np.zeros(runs, int),
            success=np.ones(runs, bool), history=history(runs),
            fronts=[front(4) for _ in range(runs)] if m > 1 else None,
        )  # fmt: skip
    best = every.x[0] if every else rng.random(d)
    result = gx.Result(
        problem=problem, x=best, fun=float(rng.random()) if m == 1 else rng.random(m), success=True,
        message="Done.", stop=Stop.BUDGET, nit=generations, nfev=n * generations * runs, n_failed=0, seed=0,
        feasible=True, violation=0.0, ineq=-rng.random(2), eq=None, population=rng.random((n, d)),
        population_fitness=rng.random((n, *wide)), history=every.history.of_run(0) if every else history(),
        runs=every, snapshots={},
        timings={"compile": 0.0, "run": 1.0, "device": 1.0, "host": 0.0},
        settings=SETTINGS | {"runs": runs, "first_run": 0},
    )  # fmt: skip
    if m > 1:
        own = front(4)
        result.update(X=own.X, F=own.F, G=own.G, H=None, CV=own.CV)
    if snapshots:
        several = (runs,) if runs > 1 else ()
        result["snapshots"] = {
            g: Population(rng.random((*several, n, d)), rng.random((*several, n, *(wide or (1,)))), None)
            for g in (1, 3)
        }
    return result


def with_labels(run, *labels):
    """A run whose second variable is a choice among these labels, each of them somewhere in every table."""
    space = as_space({"a": (-1, 2), run.problem.variable_names()[1]: gx.choice(*labels), "c": (-1, 2)})
    objectives = run.problem.objectives
    run["problem"] = gx.Problem(lambda x: 0.0, space.bounds, space=space, ineq=lambda x: x, objectives=objectives)
    arrays = [run.x, run.population, run.get("X")]
    arrays += [part.x for part in (run.history, run.runs, run.runs and run.runs.history) if part is not None]
    arrays += [front.X for front in (run.runs and run.runs.fronts) or ()]
    arrays += [population.x for population in run.snapshots.values()]
    count = itertools.count()
    for array in arrays:
        if array is not None:
            places = array[..., 1]
            array[..., 1] = np.reshape([next(count) % len(labels) for _ in range(places.size)], places.shape)
    return run


def random_study(seed=0):
    """A sweep of two settings, of four runs each."""
    cells = [random_run(seed + i, runs=4) for i in range(2)]
    return gx.Study("sweep", {"weight": [0.5, 0.9]}, [{"weight": 0.5}, {"weight": 0.9}], cells, [None, 0.1], "Done.")


def is_same(one, other):
    """Whether two results, studies or parts of them hold the same."""
    if type(one) is not type(other) and not isinstance(one, list | tuple):
        return False
    if isinstance(one, gx.Result):
        parts = ("population", "population_fitness", "history", "runs", "X", "F", "G", "H", "CV")
        alike = [is_same(one.get(name), other.get(name)) for name in parts]
        alike.append(is_same(one.get("snapshots", {}), other.get("snapshots", {})))
        return result_to_json(one) == result_to_json(other) and all(alike)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one) if field.name != "CV"]
        skipped = {"G", "H"} if isinstance(one, Front) else set()  # fronts of single runs are kept without constraints
        return all(is_same(getattr(one, name), getattr(other, name)) for name in names if name not in skipped)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and not isinstance(one, str):
        return len(one) == len(other) and all(is_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other, equal_nan=True)
    return one == other


def sign(folder):
    """Write a manifest that fits the changed files of a saved run, as whoever sends such a folder can."""
    names = json.loads((folder / atomic.MANIFEST).read_text())["files"]
    rows = {name: dict(zip(("bytes", "sha256"), atomic._fingerprint(folder / name), strict=True)) for name in names}
    data = {"format": 1, "files": rows, "checksum": atomic._checksum_rows(rows)}
    (folder / atomic.MANIFEST).write_text(json.dumps(data))
    return folder
