"""Steps, fixed and conditional variables, and labels of every kind."""

import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.core.space import as_space

FLOAT64 = gx.Compute(dtype="float64")


def test_a_step_gives_the_declared_values_and_no_others():
    space = as_space([gx.real(0.1, 0.95, step=0.2), gx.integer(1, 10, step=4)])
    genes = np.random.default_rng(0).uniform(space.genes.lower, space.genes.upper, (9000, 2))
    x = space.decode(genes)
    np.testing.assert_allclose(np.unique(x[:, 0]), [0.1, 0.3, 0.5, 0.7, 0.9], rtol=1e-12)
    assert np.unique(x[:, 1]).tolist() == [1, 5, 9]
    np.testing.assert_array_equal(space.decode(space.encode(x)), x)
    assert space.combinations == 15 and space.variables[0].upper == 0.9
    counts = np.array([(x[:, 1] == value).sum() for value in (1, 5, 9)])
    assert np.abs(counts / len(x) - 1 / 3).max() < 0.02  # each value has the same share
    np.testing.assert_allclose(np.asarray(space.decode(jnp.asarray(genes, jnp.float32))), x, rtol=1e-6)


def test_values_on_a_grid_are_written_without_rounding_noise():
    variable = gx.real(0, 1, step=0.1)
    assert variable.value(0.1 * 3) == 0.3 and variable.show(0.1 * 3) == "0.3"
    assert variable.all_values() == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


@pytest.mark.parametrize("blackbox", [False, True])
def test_the_best_step_is_found(blackbox):
    variables = {"x": gx.real(-1, 1, step=0.25), "n": gx.integer(0, 30, step=10)}
    result = gx.minimize(
        lambda v: (v["x"] - 0.3) ** 2 + abs(v["n"] - 12), variables, generations=30, blackbox=blackbox, progress=False
    )
    assert result.params == {"x": 0.25, "n": 10}


@pytest.mark.parametrize("algorithm", [None, "cmaes", "de"])
def test_a_fixed_variable_keeps_its_value_and_is_not_searched(algorithm):
    """Equal limits freeze a variable; the search is that of the others, bit for bit."""
    options = {"algorithm": algorithm, "max_evaluations": 400, "compute": FLOAT64, "progress": False}
    frozen = gx.minimize(lambda x: jnp.sum((x - 0.3) ** 2), [(-1, 1), (2, 2), (-1, 1)], **options)
    free = gx.minimize(lambda x: jnp.sum((x - 0.3) ** 2) + 1.7**2, [(-1, 1), (-1, 1)], **options)
    assert frozen.x[1] == 2 and frozen.x.shape == (3,)
    np.testing.assert_allclose(frozen.x[[0, 2]], free.x, rtol=1e-9, atol=1e-9)
    assert frozen.settings["algorithm"] == free.settings["algorithm"] and frozen.nfev == free.nfev


def test_fixed_variables_of_every_kind_are_in_the_answer_and_in_saved_runs(tmp_path):
    variables = {"a": gx.real(0, 1), "b": gx.integer(4, 4), "c": gx.choice("only"), "d": gx.real(3, 3, unit="mm")}
    problem = gx.Problem(lambda v: v["a"] * v["b"] + v["d"], variables, derived={"twice": lambda v: 2 * v["d"]})
    keep = gx.Keep(history="x", snapshots=[2])
    result = gx.minimize(problem, "de", generations=5, runs=2, keep=keep, progress=False)
    assert {"b": 4, "c": "only", "d": 3.0}.items() <= result.params.items()
    assert result.runs.history.x.shape[-1] == result.population.shape[-1] == 4
    again = gx.load(result.save(tmp_path / "run"))
    assert again.params == result.params and again.problem.space == result.problem.space


def test_a_fixed_variable_needs_no_value_in_a_starting_point():
    variables = {"a": gx.real(0, 1), "b": gx.integer(4, 4)}
    result = gx.minimize(lambda v: (v["a"] - 0.5) ** 2, variables, "de", x0={"a": 0.5}, generations=1, progress=False)
    assert result.fun == 0


LABELS = (None, True, 1, (2, 3), "text", 2.5)


def test_labels_may_be_none_booleans_and_tuples(tmp_path):
    seen = set()

    def loss(v):
        seen.add((type(v["label"]), v["label"]))
        return 0.0 if v["label"] == (2, 3) else 1.0

    problem = {"label": gx.choice(*LABELS)}
    result = gx.minimize(loss, problem, "de", population=20, generations=3, blackbox=True, progress=False)
    assert seen == {(type(label), label) for label in LABELS}  # True is not 1
    assert result.params == {"label": (2, 3)}
    again = gx.load(result.save(tmp_path / "run"))
    assert again.params == result.params and again.problem.space == result.problem.space
    with pytest.raises(gx.InputError, match="True twice"):
        gx.choice(True, False, True)


def test_a_traced_function_that_compares_a_tuple_is_refused():
    with pytest.raises(gx.InputError, match="compares size with"):
        gx.minimize(lambda v: jnp.where(v["size"] == (1, 2), 0.0, 1.0), {"size": gx.choice((1, 2), (3, 4))})


KERNELS = {
    "kernel": gx.choice("linear", "rbf", "poly"),
    "gamma": gx.real(1e-3, 1, log=True, when={"kernel": ["rbf", "poly"]}),
    "degree": gx.integer(2, 5, when={"kernel": "poly"}),
    "cost": gx.real(0.1, 10),
}


def svm_loss(v):
    assert set(v) == {"kernel", "cost"} | ({"gamma"} if v["kernel"] != "linear" else set()) | (
        {"degree"} if v["kernel"] == "poly" else set()
    )
    penalty = {"linear": 1.0, "rbf": 0.2, "poly": 0.5}[v["kernel"]]
    return penalty + (np.log10(v.get("gamma", 0.1)) + 1) ** 2 + (v.get("degree", 3) - 3) ** 2 + (v["cost"] - 1) ** 2


def test_a_black_box_gets_the_variables_that_exist():
    result = gx.minimize(svm_loss, KERNELS, max_evaluations=1500, blackbox=True, progress=False)
    assert set(result.params) == {"kernel", "gamma", "cost"} and result.params["kernel"] == "rbf"
    assert result.params["gamma"] == pytest.approx(0.1, rel=0.05) and result.n_failed == 0
    assert "degree" not in repr(result)


def test_inactive_genes_change_neither_x_nor_what_is_remembered():
    space = as_space(KERNELS)
    genes = np.random.default_rng(1).uniform(space.genes.lower, space.genes.upper, (2000, 4))
    x, active = space.decode(genes), space.is_active(space.decode(genes))
    kernel = x[:, 0]
    np.testing.assert_array_equal(active[:, 1], kernel != 0)
    np.testing.assert_array_equal(active[:, 2], kernel == 2)
    assert (x[~active[:, 1], 1] == 1e-3).all() and (x[~active[:, 2], 2] == 2).all()
    linear = space.round_codes(genes[kernel == 0])
    assert len(np.unique(linear[:, :3], axis=0)) == 1  # one solution but for its cost
    np.testing.assert_allclose(np.asarray(space.decode(jnp.asarray(genes, jnp.float32))), x, rtol=1e-5)


def test_conditions_follow_each_other():
    space = as_space(
        {
            "deep": gx.boolean(),
            "layers": gx.integer(1, 3, when={"deep": True}),
            "third": gx.real(0, 1, when={"layers": 3}),
        }
    )
    assert space.values([0, 3, 0.5]) == {"deep": False}  # no layers, so no third one
    assert space.values([1, 3, 0.5]) == {"deep": True, "layers": 3, "third": 0.5}
    assert space.parse_points({"deep": False}).tolist() == [[0, 1, 0]]


def test_traced_functions_get_the_lower_limit_of_what_does_not_exist():
    def loss(v):
        return jnp.where(v["kernel"] == 0, v["gamma"], 1.0)

    result = gx.minimize(loss, KERNELS, generations=20, progress=False)
    assert result.fun == pytest.approx(1e-3) and "gamma" not in result.params


def test_conditional_variables_are_saved(tmp_path):
    result = gx.minimize(svm_loss, KERNELS, "de", generations=3, blackbox=True, progress=False)
    again = gx.load(result.save(tmp_path / "run"))
    assert again.problem.space == result.problem.space and again.params == result.params


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"a": gx.real(0, 1, when={"b": 1}), "b": gx.integer(0, 1)}, "names 'b', and no variable of that name"),
        ({"b": gx.real(0, 1), "a": gx.real(0, 1, when={"b": 1})}, "needs a choice, an integer or a boolean"),
        ({"b": gx.choice("x", "y"), "a": gx.real(0, 1, when={"b": "z"})}, "'z' is none of the choices"),
        ({"a": ["x", "y"]}, r"has \['x', 'y'\] for variable 'a'; give gx.choice\(\*\['x', 'y'\]\) for one of these"),
        ({"b": gx.integer(0, 3), "a": gx.real(0, 1, when={"b": 7})}, r"does not take: \[7\]"),
        ({"a": gx.real(1, 1), "b": gx.choice("x")}, "every variable is fixed"),
    ],
)
def test_conditions_that_cannot_hold_are_refused(variables, message):
    with pytest.raises(gx.InputError, match=message):
        gx.minimize(lambda v: 0.0, variables)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: gx.real(0, 1, step=2), "at most the range of the variable, 1; got 2"),
        (lambda: gx.real(0, 1, step=0), "greater than 0"),
        (lambda: gx.real(1, 10, step=1, log=True), "log=True or step, not both"),
        (lambda: gx.integer(0, 10, step=0.5), "whole number"),
        (lambda: gx.real(0, 1, when="kernel"), "when must be a dict"),
        (lambda: gx.real(None, 3), "both limits must be finite"),
        (lambda: gx.integer(0, float("inf")), "give the widest range that makes sense"),
    ],
)
def test_declarations_that_cannot_work_say_what_to_do(declare, message):
    with pytest.raises(gx.InputError, match=message):
        declare()
