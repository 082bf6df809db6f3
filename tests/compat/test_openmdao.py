"""galapax as a driver of OpenMDAO, against the real package."""

import tomllib
from importlib import import_module
from pathlib import Path

import jax
import numpy as np
import pytest

import galapax as gx

om = pytest.importorskip("openmdao.api")

from galapax.compat.openmdao import GalapaxDriver, WorkerModel  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def _double_precision(_default_precision):
    """As OpenMDAO sets it when it is imported."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """OpenMDAO writes reports where it runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENMDAO_REPORTS", "0")


class Bowl(om.ExplicitComponent):
    """Two inputs; `fails` raises where x > 1, as a solver that does not converge."""

    def initialize(self):
        self.options.declare("error", default=None)

    def setup(self):
        self.add_input("x", 0.5, units="m")
        self.add_input("y", np.array([0.5, 0.5]))
        self.add_output("f", 0.0)
        self.add_output("g", np.zeros(2))

    def compute(self, inputs, outputs):
        x, y = inputs["x"], inputs["y"]
        if self.options["error"] is not None and x.item() > 1:
            raise self.options["error"]
        outputs["f"] = (x - 1.5) ** 2 + np.sum((y - [0.5, -1.0]) ** 2)
        outputs["g"] = [x.item() + y[0], y[1]]


def problem_of(component):
    problem = om.Problem()
    problem.model.add_subsystem("model", component, promotes=["*"])
    return problem


def bowl(error=None, **options):
    problem = problem_of(Bowl(error=error))
    problem.driver = GalapaxDriver(disp=False, **options)
    problem.model.add_design_var("x", lower=-2.0, upper=2.0)
    problem.model.add_design_var("y", lower=-2.0, upper=2.0, ref=10.0)
    problem.model.add_objective("f")
    return problem


def build_bowl():
    problem = bowl(max_evaluations=60)
    problem.setup()
    return problem


def test_the_model_is_left_at_the_best_design():
    problem = bowl(max_evaluations=400, seed=1)
    problem.setup()
    outcome = problem.run_driver()
    assert outcome.success
    np.testing.assert_allclose([*problem.get_val("x"), *problem.get_val("y")], [1.5, 0.5, -1.0], atol=1e-3)
    assert problem.get_val("f").item() == pytest.approx(problem.driver.galapax_result.fun)


def test_inequalities_on_both_sides_and_equalities_are_met():
    problem = bowl(max_evaluations=3000, seed=1)
    problem.model.add_constraint("g", indices=[0], lower=0.4, upper=1.0, ref=2.0)
    problem.model.add_constraint("y", indices=[1], equals=-0.5)
    problem.setup()
    assert problem.run_driver().success
    x, y = problem.get_val("x").item(), problem.get_val("y")
    np.testing.assert_allclose([x, *y], [1.0, 0.0, -0.5], atol=2e-2)
    assert 0.4 <= x + y[0] <= 1.0 + 1e-9


def test_a_design_without_a_feasible_point_is_no_success():
    problem = bowl(max_evaluations=200)
    problem.model.add_constraint("g", indices=[0], lower=10.0)
    problem.setup()
    outcome = problem.run_driver()
    assert not outcome.success and outcome.exit_status == "FAIL"


def test_a_negative_scaler_maximises_and_units_are_those_of_the_design_variable():
    problem = problem_of(Bowl())
    problem.driver = GalapaxDriver(disp=False, max_evaluations=300, seed=1)
    problem.model.add_design_var("x", lower=-200.0, upper=100.0, units="cm")
    problem.model.add_objective("f", scaler=-1.0)
    problem.setup()
    problem.run_driver()
    assert problem.get_val("x", units="m").item() == pytest.approx(-2.0, abs=1e-3)


def test_discrete_design_variables_are_integers():
    class Gears(om.ExplicitComponent):
        def setup(self):
            self.add_discrete_input("teeth", 20)
            self.add_discrete_input("pair", np.array([1, 1]))
            self.add_input("width", 1.0)
            self.add_output("f", 0.0)

        def compute(self, inputs, outputs, discrete_inputs, discrete_outputs):
            teeth, pair = discrete_inputs["teeth"], discrete_inputs["pair"]
            assert isinstance(teeth, int) and pair.dtype.kind == "i"
            outputs["f"] = (teeth - 31) ** 2 + np.sum((pair - [3, 8]) ** 2) + (inputs["width"] - 0.25) ** 2

    problem = problem_of(Gears())
    problem.driver = GalapaxDriver(disp=False, max_evaluations=2000, seed=1)
    problem.model.add_design_var("teeth", lower=12, upper=60)
    problem.model.add_design_var("pair", lower=1, upper=9)
    problem.model.add_design_var("width", lower=0.1, upper=2.0)
    problem.model.add_objective("f")
    problem.setup()
    problem.run_driver()
    assert problem.get_val("teeth") == 31 and problem.get_val("pair").tolist() == [3, 8]
    assert problem.get_val("width").item() == pytest.approx(0.25, abs=1e-2)


def test_two_objectives_give_a_front_by_name():
    problem = problem_of(om.ExecComp(["f = x**2 + y**2", "g = (x - 1)**2 + y**2"]))
    problem.driver = GalapaxDriver(disp=False, max_evaluations=800, seed=1)
    problem.driver.run_settings["population"] = 20
    for name in "xy":
        problem.model.add_design_var(name, lower=-2.0, upper=2.0)
    for name in "fg":
        problem.model.add_objective(name)
    problem.setup()
    problem.run_driver()
    front, x = problem.driver.pareto["F"], problem.driver.pareto["X"]["x"][:, 0]
    assert len(x) == 20 and set(front) == {"f", "g"}
    np.testing.assert_allclose(np.sqrt(front["f"]) + np.sqrt(front["g"]), 1.0, atol=0.1)
    assert problem.get_val("f").item() in front["f"]


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_model_that_does_not_converge_is_a_failed_evaluation(seed):
    """The best design is where the model begins to fail."""
    problem = bowl(error=om.AnalysisError("no convergence"), max_evaluations=200, seed=seed)
    problem.setup()
    assert problem.run_driver().success
    assert problem.driver.galapax_result.n_failed > 0 and problem.get_val("x").item() == pytest.approx(1.0, abs=1e-3)


def test_an_exception_of_the_model_ends_the_run():
    problem = bowl(error=ZeroDivisionError("a mistake in the model"), max_evaluations=2000, seed=1)
    problem.setup()
    with pytest.raises(ZeroDivisionError, match="a mistake in the model"):
        problem.run_driver()
    assert problem.driver.iter_count < 200


def test_every_run_is_recorded():
    problem = bowl(max_evaluations=40)
    problem.driver.add_recorder(om.SqliteRecorder("cases.sql"))
    problem.setup()
    problem.run_driver()
    file = problem.get_outputs_dir() / "cases.sql" if hasattr(problem, "get_outputs_dir") else "cases.sql"
    cases = om.CaseReader(file).list_cases("driver", out_stream=None)
    assert len(cases) == problem.driver.galapax_result.nfev + 2  # the model as it was, and at the best design


def test_a_worker_builds_its_model_once_and_evaluates_as_the_driver_does():
    builds = []
    problem = build_bowl()
    problem.run_driver()
    model = WorkerModel(lambda: builds.append(1) or build_bowl())
    for x in (np.zeros(3), np.ones(3)):
        assert model(x).fun == problem.driver.evaluate(x).fun
    assert len(builds) == 1
    with pytest.raises(gx.InputError, match="with a GalapaxDriver; got Driver"):
        WorkerModel(om.Problem)(np.zeros(3))


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "tolerance"), [("de", 0.0), (None, 1e-4)], ids=["population", "models"])
def test_workers_find_the_same_design(algorithm, tolerance):
    """With a population after the same points; models ask for as many points at a time as there are workers."""
    pytest.importorskip("pebble")
    alone = build_bowl()
    apart = bowl(max_evaluations=60, workers=2, build_problem=build_bowl)
    apart.setup()
    for problem in (alone, apart):
        problem.driver.run_settings["algorithm"] = algorithm
        problem.run_driver()
    x, other = (problem.driver.galapax_result.x for problem in (alone, apart))
    np.testing.assert_allclose(x, other, rtol=0, atol=tolerance)


def test_what_the_driver_needs_is_said():
    problem = bowl(workers=2)
    problem.setup()
    with pytest.raises(gx.InputError, match="give GalapaxDriver a build_problem"):
        problem.run_driver()
    problem = problem_of(Bowl())
    problem.driver = GalapaxDriver()
    problem.model.add_design_var("x", lower=0.0)
    problem.model.add_objective("f")
    problem.setup()
    with pytest.raises(gx.InputError, match="'x' has no upper bound"):
        problem.run_driver()


def test_openmdao_finds_the_driver_by_its_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["entry-points"]["openmdao_driver"]["galapaxdriver"].split(":")
    assert getattr(import_module(module), name) is GalapaxDriver
