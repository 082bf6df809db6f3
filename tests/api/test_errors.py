"""Every bad input is refused before anything is compiled, with the argument's name, what was needed and what came."""

import math
import re
import warnings
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import galapax as gx
from galapax import algorithms
from galapax.core.problem import as_bounds

BOX = [(1.5, 4.0), (-7.0, -2.0), (-0.5, 9.5)]
N = 8
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)

_compiled = []


def named(value):
    """A value as a test's name: the same in every process, so without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


@jax.monitoring.register_event_duration_secs_listener
def _note(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        _compiled.append(about.get("fun_name", event))


@contextmanager
def refused(match, compiles=False):
    """An InputError with that message, and (unless it `compiles`) no program compiled before it."""
    before = len(_compiled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no half-hearted conversion on the way
        with pytest.raises(gx.InputError, match=match):
            yield
    assert compiles or _compiled[before:] == []


def bowl(x):
    return jnp.sum(x**2)


def solve(fun=bowl, bounds=BOX, **given):
    return gx.minimize(fun, bounds, **{"population": N, "generations": 3, "polish": False, **given})


# --- the objective ----------------------------------------------------------------------------------------------------


def without_return(x):
    x.sum()


def branching(x):
    if x[0] > 2.0:
        return x[0]
    return x[1]


def raising(x):
    raise LookupError("no such table")


NOT_TRACEABLE = r"{} cannot be traced by JAX \(.+\)\. .*jax\.numpy.*blackbox=True"
FUNCTIONS = {
    "a number": (3, r"{} must be a function of one solution x of shape \(d,\); got 3 of type int"),
    "bytes": (b"sphere", r"{} must be a function of one solution .*got b'sphere' of type bytes"),
    "no argument": (lambda: 1.0, r"{} must take one argument, one solution x of shape \(d,\); it is defined as \(\)"),
    "two arguments": (lambda x, y: x[0], r"{} must take one argument, one solution .*defined as \(x, y\)"),
    "keyword argument": (lambda *, x: x[0], r"{} must take one argument, one solution .*defined as \(\*, x\)"),
    "matrix": (lambda x: jnp.outer(x, x), r"{} of one solution must return a scalar.*it returned shape \(3, 3\)"),
    "nothing": (without_return, r"{} returned nothing; it must return a number"),
    "empty": (lambda x: x[:0], r"{} returned an empty array; it must return at least one number"),
    "text": (lambda x: "high", r"{} must return numbers; it returned a value of type str\.$"),
    "an object": (lambda x: object(), r"{} must return numbers; it returned a value of type object\.$"),
    "complex": (lambda x: x[0] + 1j, r"{} must return real numbers, got complex"),
    "bool": (lambda x: x[0] > 0, r"{} must return real numbers, got bool"),
    "if": (branching, NOT_TRACEABLE),
    "numpy.sin": (lambda x: np.sin(x).sum(), NOT_TRACEABLE),
    "math.sin": (lambda x: math.sin(x[0]), NOT_TRACEABLE),
    "float": (lambda x: float(x[0]), NOT_TRACEABLE),
    "scipy": (lambda x: scipy.special.gamma(x[0]), NOT_TRACEABLE),
    "boolean mask": (lambda x: x[x > 0].sum(), NOT_TRACEABLE),
    "raises": (raising, r"{} raised LookupError when called with x of shape \(3,\): no such table"),
    "wrong shape inside": (lambda x: x @ jnp.ones(7), r"{} raised TypeError when called with x of shape \(3,\): "),
}


@pytest.mark.parametrize("argument", ["fun", "ineq", "eq"])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_that_cannot_work_is_refused(argument, case):
    function, message = FUNCTIONS[case]
    with refused(match=message.format(argument)):
        solve(**{"fun": bowl, argument: function})


BLACK_BOXES = {
    "a number": (3, r"{} must be a function of one solution .*got 3 of type int"),
    "no argument": (lambda: 1.0, r"{} must take one argument, one solution .*it is defined as \(\)"),
    "two arguments": (lambda x, y: x[0], r"{} must take one argument, one solution .*defined as \(x, y\)"),
    "matrix": (lambda x: np.outer(x, x), r"{} of one solution must return a number or a vector; got shape \(3, 3\)"),
    "nothing": (without_return, r"{} .*return.* a number.*None"),
    "empty": (lambda x: x[:0], r"{} of one solution must return a number or a vector; got shape \(0,\)"),
    "text": (lambda x: "high", r"{} must return a number.*returned 'high'"),
    "an object": (lambda x: {"cost": 1.0}, r"{} must return a number.*returned \{{'cost': 1.0\}}"),
    "complex": (lambda x: x[0] + 1j, r"{} must return .*complex"),
}


@pytest.mark.parametrize("argument", ["fun", "ineq", "eq"])
@pytest.mark.parametrize("case", BLACK_BOXES)
def test_a_black_box_that_cannot_work_is_refused(argument, case):
    function, message = BLACK_BOXES[case]
    with refused(match=message.format(argument), compiles=True):
        solve(**{"fun": lambda x: x[0], argument: function}, blackbox=True)


@pytest.mark.slow
def test_a_black_box_that_changes_how_many_numbers_it_returns_has_failed_there():
    result = solve(lambda x: x[0], ineq=lambda x: [x[0]] * (1 + (x[2] > 5.0)), blackbox=True)
    assert 0 < result.n_failed < result.nfev and all(failure.x[2] > 5.0 for failure in result.failures)
    assert "ineq returned 2 numbers for one solution and 1 for others" in result.message


VECTORIZED = {
    "scalar": (lambda x: x.sum(), r"\(\)"),
    "one per variable": (lambda x: x.sum(axis=0), r"\(3,\)"),
    "one too few": (lambda x: x[1:].sum(axis=1), r"\((3|7),\)"),
    "three axes": (lambda x: x[:, :, None], r"\((4|8), 3, 1\)"),
}


@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
@pytest.mark.parametrize("argument", ["fun", "ineq"])
@pytest.mark.parametrize("case", VECTORIZED)
def test_a_vectorized_function_must_return_one_value_for_each_solution(argument, case, blackbox):
    function, shape = VECTORIZED[case]
    message = rf"{argument} with vectorized=True is given x of shape .*must return (n|8) values.*returned shape {shape}"
    with refused(match=message, compiles=blackbox):
        solve(**{"fun": lambda x: x[:, 0], argument: function}, vectorized=True, blackbox=blackbox)


def test_a_vectorized_function_takes_all_solutions():
    with refused(match=r"fun must take one argument, all solutions x of shape \(n, d\); it is defined as \(x, y\)"):
        solve(lambda x, y: x, vectorized=True)


NAN_EVERYWHERE = r"{} returned NaN or inf at all 512 points tried in the box, for example at x = \[ ?2\.75 .*on_failure"


def test_nan_wherever_it_is_tried_is_refused():
    with refused(match=NAN_EVERYWHERE.format("fun"), compiles=True):
        solve(lambda x: jnp.sqrt(-x[0]))
    with refused(match=NAN_EVERYWHERE.format("ineq"), compiles=True):
        solve(ineq=lambda x: jnp.stack([x[0], jnp.log(-x[0])]))
    with refused(match=NAN_EVERYWHERE.format("eq"), compiles=True):
        solve(eq=lambda x: x[0] / 0.0)


def test_nan_everywhere_is_blamed_on_the_function_that_gives_it():
    with refused(match=NAN_EVERYWHERE.format("fun"), compiles=True):
        solve(lambda x: jnp.sqrt(-x[0]), ineq=lambda x: jnp.where(x[0] > 2.75, jnp.nan, -1.0))
    with refused(match=NAN_EVERYWHERE.format("eq"), compiles=True):
        solve(ineq=lambda x: -jnp.inf * jnp.ones(2), eq=lambda x: jnp.sqrt(-x[0]))


@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
def test_several_objectives_are_refused_by_an_algorithm_for_one(blackbox):
    with refused(match=r"fun of '.*' returns 3 numbers.*DE minimises one.*single number.*nsga2", compiles=blackbox):
        solve(lambda x: x, algorithm="de", blackbox=blackbox)


def test_a_problem_with_several_objectives_is_named():
    with refused(match=r"zdt1.*2 .*DE minimises one"):
        gx.minimize(gx.problems.get("zdt1"), "de")


# --- bounds -----------------------------------------------------------------------------------------------------------

BOUNDS = {
    "missing": (None, r"bounds is missing: give one \(lower, upper\) pair per variable"),
    "empty": ([], r"bounds must be one \(lower, upper\) pair per variable.*shape \(0,\)"),
    "empty pairs": ([()], r"bounds must be one \(lower, upper\) pair per variable.*shape \(1, 0\)"),
    "a number": (5.0, r"bounds must be one \(lower, upper\) pair per variable.*shape \(\)"),
    "one pair": ((0, 1), r"bounds is a single pair \(0, 1\).*give one pair per variable.*\[\(0, 1\)\] \* 10"),
    "triples": ([(0, 1, 2)], r"bounds must be one \(lower, upper\) pair per variable.*shape \(1, 3\)"),
    "two rows": (([-5] * 3, [5] * 3), r"shape \(2, 3\) \(two rows.*list\(zip\(lower, upper\)\)"),
    "two rows of two": (([-5, -5], [5, 5]), r"every variable is fixed.*list\(zip\(lower, upper\)\)"),
    "three axes": (np.zeros((2, 2, 2)), r"bounds must be one \(lower, upper\) pair.*shape \(2, 2, 2\)"),
    "ragged": ([(0, 1), (1,)], r"bounds must be numbers, one \(lower, upper\) pair per variable; got \[\(0, 1\)"),
    "reversed": ([(0, 1), (3, 2)], r"bounds of variable 1 are reversed: lower 3 > upper 2"),
    "equal": ([(1, 1), (2, 2)], "every variable is fixed, so there is nothing to search"),
    "infinite": ([(0, np.inf)], r"bounds of variable 0 are \(0.0, inf\).*must be finite"),
    "minus infinite": ([(-np.inf, 0)], r"bounds of variable 0 are \(-inf, 0.0\).*must be finite"),
    "NaN": ([(0, 1), (np.nan, 1)], "bounds of variable 1 need a finite lower and upper limit; None or NaN"),
    "one limit None": ([(None, 1)], r"bounds.*variable 0.*(None|nan)"),
    "one pair None": ([(0, 1), None], r"bounds must be numbers.*got \[\(0, 1\), None\]"),
    "text": ("abc", r"bounds must be numbers.*got 'abc'"),
    "texts": ([("a", "b")], r"bounds must be numbers.*got \[\('a', 'b'\)\]"),
    "complex": ([(0, 1j)], r"bounds must be numbers.*got \[\(0, 1j\)\]"),
    "complex array": (np.array([[0, 1 + 2j]]), r"bounds must be .*numbers.*got array"),
    "beyond float": ([(0, 10**400)], r"bounds.*(finite|numbers)"),
    "a dict": ({0: (1, 2)}, r"bounds must be numbers.*got \{0: \(1, 2\)\}"),
    "an iterator": (zip([0], [1], strict=True), r"bounds must be numbers.*got <zip"),
    "too wide": ([(-1e308, 1e308)], r"bounds are too wide or too narrow for float\d\d"),
    "Bounds of two lengths": (
        gx.Bounds(np.zeros(2), np.ones(3)),
        r"bounds need a lower and an upper.*\(2,\) and \(3,\)",
    ),
    "Bounds of numbers": (gx.Bounds(0.0, 1.0), r"bounds need a lower and an upper limit per variable.*\(\) and \(\)"),
    "scipy's infinite": (scipy.optimize.Bounds([0, -np.inf], [1, 1]), r"bounds of variable 1 are \(-inf, 1.0\)"),
    "scipy's reversed": (scipy.optimize.Bounds([2, 0], [1, 1]), r"bounds of variable 0 are reversed"),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_bounds_that_are_no_box_are_refused(case):
    bounds, message = BOUNDS[case]
    with refused(match=message):
        solve(bounds=bounds)


def test_bounds_that_float32_cannot_tell_apart_are_refused():
    narrow = [(1.0, 1.0 + 1e-10)]
    with refused(match="bounds are too wide or too narrow for float32.*float64"):
        solve(lambda x: x[0], narrow, compute=gx.Compute(dtype="float32"))
    with refused(match="bounds are too wide or too narrow for float32.*float64"):
        gx.Optimizer(narrow, "de", dtype="float32")


def test_a_box_needs_a_whole_number_of_variables():
    for dim in (0, -1, 2.0, True, None, "3"):
        with refused(match=r"dim must be a whole number of at least 1, got "):
            gx.box(0.0, 1.0, dim)


finite = st.floats(-1e100, 1e100, allow_nan=False)
pairs = st.tuples(finite, finite).filter(lambda pair: pair[0] < pair[1])
valid = st.lists(pairs, min_size=1, max_size=6)


@FUZZ
@given(valid)
def test_valid_bounds_are_the_same_in_every_form(rows):
    table = np.array(rows)
    forms = [rows, tuple(rows), [list(row) for row in rows], table, as_bounds(rows)]
    forms += [kind(table[:, 0], table[:, 1]) for kind in (gx.Bounds, scipy.optimize.Bounds)]
    for form in forms:
        box = as_bounds(form)
        assert isinstance(box, gx.Bounds) and box.dim == len(rows)
        assert box.lower.dtype == box.upper.dtype == np.float64
        assert np.array_equal(box.lower, table[:, 0]) and np.array_equal(box.upper, table[:, 1])


@FUZZ
@given(valid)
def test_bounds_are_a_copy(rows):
    table = np.array(rows)
    box = as_bounds(table)
    table[:] = np.nan
    assert np.array_equal(np.column_stack([box.lower, box.upper]), np.array(rows))


spoilers = st.one_of(
    st.sampled_from(
        [np.nan, np.inf, -np.inf, None, "x", b"x", 1j, [], (), {}, object(), 10**400, -(10**400), [1.0, 2.0]]
    ),
    st.complex_numbers(),
    st.text(alphabet="abc", min_size=1),
    st.lists(finite, min_size=2, max_size=3),
)


@FUZZ
@given(valid, st.data())
def test_one_wrong_limit_spoils_the_bounds(rows, data):
    broken = [list(row) for row in rows]
    row, side = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 1))
    broken[row][side] = data.draw(spoilers)
    with refused(match="bounds"):
        as_bounds(broken)


@FUZZ
@given(valid, st.data())
def test_one_pair_without_room_spoils_the_bounds(rows, data):
    row = data.draw(st.integers(0, len(rows) - 1))
    broken = list(rows)
    broken[row] = data.draw(st.sampled_from([broken[row][::-1], (broken[row][0],) * 2]))
    with refused(match=rf"bounds of variable {row} are (reversed|equal)|every variable is fixed"):
        as_bounds(broken)


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=5))
anything = st.recursive(
    st.one_of(scalars, st.binary(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@FUZZ
@given(anything)
def test_any_bounds_become_a_box_or_an_input_error(given_bounds):
    try:
        box = as_bounds(given_bounds)
    except gx.InputError:
        return
    assert box.lower.ndim == 1 and box.lower.shape == box.upper.shape and box.dim >= 1
    assert np.all(np.isfinite(box.lower) & np.isfinite(box.upper) & (box.lower < box.upper))


# --- numbers, names and other arguments -------------------------------------------------------------------------------

ARGUMENTS = [
    ({"generations": 0}, r"generations must be at least 1; got 0"),
    ({"generations": -5}, r"generations must be at least 1; got -5"),
    ({"generations": 10.5}, r"generations must be a whole number, got 10.5 of type float"),
    ({"generations": True}, r"generations must be a whole number, got True of type bool"),
    ({"generations": "10"}, r"generations must be a whole number, got '10' of type str"),
    ({"population": 3}, r"population must be at least 4 \(DE needs three other individuals.*\); got 3"),
    ({"population": 8.0}, r"population must be a whole number, got 8.0 of type float"),
    ({"population": True}, r"population must be a whole number, got True of type bool"),
    ({"algorithm": "random", "population": 0}, r"population must be at least 1 \(.*\); got 0"),
    ({"runs": 0}, r"runs must be at least 1; got 0"),
    ({"runs": -1}, r"runs must be at least 1; got -1"),
    ({"runs": 2.5}, r"runs must be a whole number, got 2.5 of type float"),
    ({"runs": 2**33}, r"run numbers go up to 2\*\*32; runs=8589934592 exceeds that"),
    ({"seed": -1}, r"seed must be a whole number from 0 to 2\*\*64 - 1, got -1"),
    ({"seed": 1.0}, r"seed must be a whole number from 0 to 2\*\*64 - 1, got 1.0"),
    ({"seed": 2**64}, r"seed must be a whole number from 0 to 2\*\*64 - 1, got 18446744073709551616"),
    ({"seed": True}, r"seed must be a whole number .*, got True"),
    ({"seed": "1"}, r"seed must be a whole number .*, got '1'"),
    ({"runs": range(-1, 3)}, r"runs as a range names consecutive runs, such as range\(17, 20\); got range\(-1, 3\)"),
    ({"runs": range(0, 9, 2)}, r"runs as a range names consecutive runs"),
    ({"runs": range(3, 3)}, r"runs as a range names consecutive runs"),
    ({"runs": range(2**32, 2**32 + 1)}, r"run numbers go up to 2\*\*32; runs=range\(4294967296.*exceeds that"),
    ({"target": np.nan}, r"target must be a number, got NaN"),
    ({"target": "low"}, r"target must be a number, got 'low' of type str"),
    ({"target": [1.0, 2.0]}, r"target must be a number, got \[1.0, 2.0\] of type list"),
    ({"target": 1j}, r"target must be a number, got 1j of type complex"),
    ({"target": 10**400}, r"target must be a number"),
    (
        {"max_evaluations": N - 1},
        r"max_evaluations must be at least 8 \(.*population of 8; a smaller population needs fewer\); got 7",
    ),
    ({"max_evaluations": 99.5}, r"max_evaluations must be a whole number, got 99.5 of type float"),
    ({"max_evaluations": np.inf}, r"max_evaluations must be a whole number, got inf of type float"),
    ({"x0": [9.0] * 3}, r"x0 must lie inside the bounds: variable 0 is 9, and its bounds are"),
    ({"x0": [[2.0, -3.0, 1.0], [9.0] * 3]}, r"\(1 of 2 points do not\): variable 0 of point 1 is 9"),
    ({"x0": [0.0] * 5}, r"x0 must be one point of 3 numbers, or points of shape .*; got shape \(5,\)"),
    ({"max_seconds": 0}, r"max_seconds must be greater than 0, got 0"),
    ({"max_seconds": -2.5}, r"max_seconds must be greater than 0, got -2.5"),
    ({"max_seconds": np.nan}, r"max_seconds must be a number, got NaN"),
    ({"max_seconds": "long"}, r"max_seconds must be a number, got 'long' of type str"),
    ({"patience": 0}, r"patience must be at least 1; got 0"),
    ({"patience": 2.0}, r"patience must be a whole number, got 2.0 of type float"),
    ({"compute": lambda: gx.Compute(dtype="float16")}, r"dtype must be \"float32\" or \"float64\", got 'float16'"),
    ({"compute": lambda: gx.Compute(dtype="int32")}, r"dtype must be \"float32\" or \"float64\", got 'int32'"),
    (
        {"compute": lambda: gx.Compute(dtype=np.int32)},
        r"dtype must be \"float32\" or \"float64\", got <class 'numpy.int32'>",
    ),
    (
        {"compute": lambda: gx.Compute(dtype="double precision")},
        r"dtype must be \"float32\" or \"float64\", got 'double precision'",
    ),
    ({"compute": lambda: gx.Compute(dtype=64)}, r"dtype must be \"float32\" or \"float64\", got 64"),
    ({"on_failure": "ignore"}, r"on_failure must be \"worst\", \"raise\" or \"resample\", got 'ignore'"),
    ({"on_failure": True}, r"on_failure must be \"worst\", \"raise\" or \"resample\", got True"),
    ({"callback": 3}, r"callback must be a function of one Progress, got 3"),
    ({"callback": "print"}, r"callback must be a function of one Progress, got 'print'"),
    ({"algorithm": "dee"}, r"no algorithm called 'dee'; did you mean de or cde\?"),
    ({"algorithm": "randum"}, r"no algorithm called 'randum'; did you mean random\?"),
    ({"algorithm": "xyzzy"}, r"no algorithm called 'xyzzy'; known: .*de.*random"),
    ({"algorithm": ""}, r"no algorithm called ''; known: "),
    ({"algorithm": gx.DE}, r"algorithm is the class DE; give an instance: DE\(\)"),
    ({"algorithm": 3}, r"algorithm must be a name \(.*de.*\) or an instance such as gx.DE\(\); got int"),
    ({"algorithm": {"name": "de"}}, r"algorithm must be a name \(.*\) or an instance.*; got dict"),
    ({"algorithm": gx.DE(weight=-0.1)}, r"weight must lie between 0 and 2, got -0.1"),
    ({"algorithm": gx.DE(weight=2.5)}, r"weight must lie between 0 and 2, got 2.5"),
    ({"algorithm": gx.DE(weight=np.nan)}, r"weight must be a number, got NaN"),
    ({"algorithm": gx.DE(weight=None)}, r"weight must be a number, got None of type NoneType"),
    ({"algorithm": gx.DE(crossover_rate=1.1)}, r"crossover_rate must lie between 0 and 1, got 1.1"),
    ({"algorithm": gx.DE(crossover_rate=-1)}, r"crossover_rate must lie between 0 and 1, got -1"),
    ({"algorithm": gx.DE(crossover_rate="high")}, r"crossover_rate must be a number, got 'high' of type str"),
    ({"algorithm": gx.DE(mutation="rand_1")}, r"mutation must be a function.*got 'rand_1'"),
]


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS, ids=[named(a)[:60] for a, _ in ARGUMENTS])
def test_a_wrong_argument_is_named(arguments, message):
    with refused(match=message):
        made = {name: value() if name == "compute" else value for name, value in arguments.items()}
        solve(**{"algorithm": "de", **made})


ODDITIES = st.one_of(
    st.booleans(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.integers(max_value=-1),
    st.sampled_from([np.float64(3.0), np.array([1, 2]), np.array(3), np.array("a"), object(), len, int, jnp.float32]),
)


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("generations", marks=pytest.mark.slow),
        pytest.param("population", marks=pytest.mark.slow),
        "runs",
        "seed",
        "max_evaluations",
        "patience",
    ],
)
@settings(FUZZ, max_examples=60)
@given(odd=ODDITIES)
def test_what_is_no_whole_number_is_an_input_error(argument, odd):
    # budgets may be written as 1e3
    assume(argument not in ("generations", "max_evaluations") or not (isinstance(odd, float) and odd.is_integer()))
    with refused(match=argument):
        solve(**{argument: odd})


@pytest.mark.parametrize("argument", ["dtype", "on_failure", "callback", "algorithm"])
@settings(FUZZ, max_examples=60)
@given(odd=ODDITIES.filter(lambda value: not callable(value)))
def test_what_is_no_name_is_an_input_error(argument, odd):
    # hypothesis also tries the strings that it finds in our own code; and NumPy calls float64 by many names
    real = ("float32", "float64", "f", "d", "f4", "f8", "single", "double", "float")
    assume(
        not isinstance(odd, str) or odd.lower().strip("<=") not in (*gx.algorithms.ALGORITHMS, "worst", "raise", *real)
    )
    with refused(match=argument):
        solve(**{argument: odd})


def test_an_unknown_hyper_parameter_is_named():
    with pytest.raises(TypeError, match="F"):
        gx.DE(F=0.5)
    with refused(match=r"DE has no hyper-parameter 'F': write weight"):
        algorithms.get("de", F=0.5)


PROBLEM_NAMES = {
    "rastrign": r"no problem called 'rastrign'; did you mean rastrigin",
    "Spheres": r"no problem called 'Spheres'; did you mean sphere",
    "zdt": r"no problem called 'zdt'; did you mean .*zdt",
    "nothing like it": r"no problem called 'nothing like it'; galapax list problems shows all",
    5: r"problem.*5",
    None: r"problem.*None",
}


@pytest.mark.parametrize("name", PROBLEM_NAMES, ids=repr)
def test_an_unknown_problem_suggests_the_nearest(name):
    with refused(match=PROBLEM_NAMES[name]):
        gx.problems.get(name)
    assert gx.problems.get("Goldstein-Price") is gx.problems.get("goldstein_price")


def test_a_misspelt_parameter_of_a_problem_is_named():
    with refused(match=r"sphere has no parameter 'size': it takes only dim"):
        gx.problems.get("sphere", size=3)
    with refused(match=r"branin has no parameter 'dim': it takes no parameters \(its size is fixed\)"):
        gx.problems.get("branin", dim=3)
    with refused(match=r"dim of sphere must be a whole number, got 2.5"):
        gx.problems.get("sphere", dim=2.5)


def test_an_error_is_a_value_error_too():
    assert issubclass(gx.InputError, ValueError) and issubclass(gx.EvaluationError, RuntimeError)


# --- problems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [{"bounds": BOX}, {"ineq": bowl}, {"eq": bowl}], ids=named)
def test_a_problem_carries_its_own_bounds_and_constraints(extra):
    with refused(match=r"a Problem has its own bounds, ineq and eq"):
        gx.minimize(gx.problems.get("sphere"), **extra)


def test_a_min_max_problem_is_refused():
    with refused(match=r"cde_p1 is a min-max problem"):
        gx.minimize(gx.problems.get("cde_p1"), polish=False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fun": None}, r"fun must be a function of one solution .*got None of type NoneType"),
        ({"ineq": 3}, r"ineq must be a function of one solution .*got 3 of type int"),
        ({"eq": [bowl]}, r"eq must be a function of one solution .*of type list"),
        ({"bounds": [(1, 0)]}, r"bounds of variable 0 are reversed"),
        ({"variables": ("a",)}, r"variables has 1 names for 3 variables"),
        ({"variables": 3}, r"variables must .*got 3"),
        ({"eq_tolerance": -1e-4}, r"eq_tolerance must be at least 0.*got -0.0001"),
        ({"eq_tolerance": np.nan}, r"eq_tolerance must be .*got NaN"),
        ({"eq_tolerance": "small"}, r"eq_tolerance must be .*got 'small'"),
    ],
    ids=named,
)
def test_a_problem_that_cannot_be_is_refused(fields, message):
    with refused(match=message):
        gx.Problem(**{"fun": bowl, "bounds": BOX, **fields})


@pytest.mark.parametrize("blackbox", [False, True], ids=["compiled", "black box"])
def test_names_of_constraints_and_objectives_must_be_as_many_as_there_are(blackbox):
    named = gx.Problem(lambda x: x[0], BOX, ineq=lambda x: x[:2], constraint_names=("one",), name="pipe")
    with refused(match=r"constraint_names of problem 'pipe' has 1 names for 2", compiles=blackbox):
        gx.minimize(named, generations=2, population=N, blackbox=blackbox, polish=False)
    named = gx.Problem(lambda x: x[0], BOX, objectives=("cost", "mass"), name="pipe")
    with refused(match=r"objectives of problem 'pipe' has 2 names for 1", compiles=blackbox):
        gx.minimize(named, generations=2, population=N, blackbox=blackbox, polish=False)


# --- ask and tell -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bounds": None}, r"bounds is missing"),
        ({"bounds": [(1, 0)]}, r"bounds of variable 0 are reversed"),
        ({"algorithm": "dee"}, r"no algorithm called 'dee'; did you mean de or cde\?"),
        ({"algorithm": gx.DE}, r"algorithm is the class DE"),
        ({"population": 3}, r"population must be at least 4"),
        ({"seed": -1}, r"seed must be a whole number .*, got -1"),
        ({"run": -1}, r"run must be at least 0; got -1"),
        ({"run": 2**32}, r"run .*2\*\*32"),
        ({"run": "first"}, r"run must be a whole number, got 'first'"),
        ({"dtype": "float16"}, r"dtype must be \"float32\" or \"float64\", got 'float16'"),
        ({"eq_tolerance": -1.0}, r"eq_tolerance must be at least 0.*got -1"),
        ({"eq_tolerance": "small"}, r"eq_tolerance must be .*got 'small'"),
    ],
    ids=named,
)
def test_an_optimizer_that_cannot_be_is_refused(arguments, message):
    with refused(match=message):
        gx.Optimizer(**{"algorithm": "de", "bounds": BOX, **arguments})


@pytest.fixture
def opt():
    return gx.Optimizer(BOX, "de", population=N)


def test_best_needs_a_tell_first(opt):
    with refused(match=r"there is no best point before the first value: call ask, evaluate, then tell"):
        opt.best  # noqa: B018


NO_POINTS = {
    "transposed": lambda x: x.T,
    "missing": lambda x: None,
    "text": lambda x: np.full(x.shape, "a"),
    "ragged": lambda x: [list(row) for row in x[:-1]] + [[1.0]],
}


@pytest.mark.parametrize("change", NO_POINTS)
def test_what_is_told_must_be_points(opt, change):
    x = opt.ask_generation()
    with refused(match=r"tell takes a trial, a dict of named values, a point of 3 numbers, or a list of these; got "):
        opt.tell(NO_POINTS[change](x), x.sum(axis=1))
    with refused(match=r"points must lie inside the bounds, and 8 of 8 points do not"):
        opt.tell(x + 100.0, x.sum(axis=1))


def test_points_that_are_told_again_are_known_points(opt):
    x = opt.ask_generation()
    opt.tell(x, x.sum(axis=1))
    opt.tell(x, x.sum(axis=1))
    assert opt.generation == 1 and opt.nfev == 8


VALUES = {
    "missing": (None, r"values is missing: give one value per point"),
    "a number": (1.0, r"values must have one row for each of the 8 points; got shape \(\)"),
    "too few": (np.zeros(7), r"values must have one row for each of the 8 points; got shape \(7,\)"),
    "three axes": (np.zeros((8, 1, 1)), r"values must have one row for each of the 8 points; got shape \(8, 1, 1\)"),
    "no column": (np.zeros((8, 0)), r"values must have .*\(8, 0\)"),
    "texts": (["a"] * 8, r"values must be numbers, one row per point; got \['a', "),
    "ragged": ([[1.0]] * 7 + [[1.0, 2.0]], r"values must be numbers, one row per point; got \[\[1.0\], "),
    "complex": (np.ones(8) * 1j, r"values must be .*numbers.*"),
    "two columns": (np.zeros((8, 2)), r"values has 2 columns,? and DE minimises one"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values_that_do_not_fit_the_points_are_refused(opt, case):
    values, message = VALUES[case]
    asked = opt.ask_generation()
    with refused(match=message):
        opt.tell(asked, values)


@pytest.mark.parametrize("name", ["ineq", "eq"])
def test_constraint_values_that_do_not_fit_the_points_are_refused(opt, name):
    x = opt.ask_generation()
    with refused(match=rf"{name} must have one row for each of the 8 points; got shape \(3,\)"):
        opt.tell(x, x.sum(axis=1), **{name: np.zeros(3)})
    with refused(match=rf"{name} must be numbers, one row per point; got \['a', "):
        opt.tell(x, x.sum(axis=1), **{name: ["a"] * 8})


def test_the_number_of_objectives_and_constraints_may_not_change(opt):
    x = opt.ask_generation()
    opt.tell(x, x.sum(axis=1), ineq=x[:, :2])
    x = opt.ask_generation()
    for values, constraints in ((x[:, :2], x[:, :2]), (x[:, 0], x[:, 0]), (x[:, 0], None)):
        with refused(match=r"a point was told .*, and the first one had "):
            opt.tell(x, values, ineq=constraints)
    opt.tell(x, x.sum(axis=1), ineq=x[:, :2])
    assert opt.generation == 2


# --- where and how it is called ---------------------------------------------------------------------------------------


def test_minimize_inside_jit_is_refused_in_a_sentence():
    with pytest.raises(gx.InputError, match=r"inside jax.jit .* call it from plain Python"):
        jax.jit(lambda x: solve().fun * x)(1.0)


def test_compilation_switched_off_is_refused_in_a_sentence():
    with jax.disable_jit(), pytest.raises(gx.InputError, match="jax_disable_jit is on"):
        solve()


@pytest.mark.parametrize("snapshots", [10, None, "every:10", [0], [1.5]])
def test_snapshots_that_are_no_list_of_generations_are_refused(snapshots):
    with refused("snapshots"):
        solve(keep=gx.Keep(snapshots=snapshots))


@pytest.mark.parametrize("callback", [lambda: None, lambda a, b: None, 3])
def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_compiled(callback):
    with refused("callback must"):
        solve(callback=callback)


@pytest.mark.parametrize("name", gx.algorithms.ALGORITHMS)
@pytest.mark.parametrize(("dtype", "width"), [("float64", 1e-310), ("float32", 1e-40)])
def test_a_box_too_narrow_for_the_precision_is_refused(name, dtype, width):
    kind = gx.algorithms.ALGORITHMS[name]
    fun = (lambda x: jnp.stack([x[0], 1 - x[0]])) if kind.traits.multi_objective else bowl
    with refused("too narrow"):
        gx.minimize(
            fun,
            [(0.0, width), (0.0, 1.0)],
            kind(population=N),
            generations=3,
            compute=gx.Compute(dtype=dtype),
            polish=False,
        )


@pytest.mark.parametrize(
    ("fun", "match"),
    [
        (lambda x: x[0] + x[2], r"fun reads x\[2\], and there are 2 variables, x\[0\] to x\[1\]"),
        (lambda x: x[-3] ** 2, r"reads x\[-3\]"),
        (lambda x: jnp.sum(x[jnp.array([0, 5])]), r"reads x\[5\]"),
        (lambda x: jnp.sum(x[np.array([1, 0, 2])]), r"reads x\[2\]"),
    ],
    ids=["beyond", "before", "array", "numpy"],
)
def test_a_variable_that_is_not_there_is_not_read_in_silence(fun, match):
    """JAX would give the last one."""
    with pytest.raises(gx.InputError, match=match):
        gx.minimize(fun, [(-1.0, 1.0)] * 2)


def test_indices_within_the_box_are_as_they_were():
    def fun(x):
        table = jnp.array([3, 4, 5])[jnp.round(x[0]).astype(int)]  # an index that only the run knows
        return x[-1] ** 2 + x[jnp.array([0, -1])].sum() + x[jnp.argmax(x)] + jnp.sum(x[:5]) + table

    assert np.isfinite(
        gx.minimize(fun, [(0.0, 1.0)] * 2, algorithm="de", generations=2, population=6, polish=False).fun
    )


def test_an_object_that_describes_a_problem_is_answered_with_its_method():
    class Beam:
        def evaluate(self, x):
            return x[0]

    with pytest.raises(gx.InputError, match=r"of type Beam; give its method, \.evaluate\.$"):
        gx.minimize(Beam(), [(0, 1)])


def test_an_algorithm_of_another_library_is_answered():
    class Theirs:
        __module__ = "pymoo.algorithms.moo.nsga2"

    with pytest.raises(gx.InputError, match="Theirs is an algorithm of pymoo: give one of galapax, such as 'nsga2'"):
        gx.minimize(gx.problems.get("zdt1"), Theirs())
