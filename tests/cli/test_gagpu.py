"""GAGPU's files, read and written; and the commands that came with them: sweep, compare, view."""

import json
import math
import re
from functools import cache

import numpy as np
import pytest
from typer.testing import CliRunner

import galapax as gx
from galapax.cli import app as cli
from galapax.storage import gagpu

# the layout of the public code, at a smaller size
CONFIG = """\
/* Settings of the genetic algorithm.
   Rebuild GAGPU.run after a change. */
#ifndef CONFIG_H
#define CONFIG_H

#define DEBUG 0              // Set to 1 to turn on debugging messages
#define NO_GEN 10            // No. of generations; was: #define NO_GEN 500
#define TPB 4                // Threads per block
#define BPG (NO_VAR+1)       /* blocks */
#define NO_KIDS (TPB*BPG)    // Each thread holds a single child
#define NO_VAR 2             // No. of variables
#define FR 1.1f              // Over-convergence
#define SIG 0.75F            // Mutation
#define NO_TESTS 3

#endif
"""
READ = {"NO_GEN": 10, "NO_KIDS": 12, "NO_VAR": 2, "FR": 1.1, "SIG": 0.75, "NO_TESTS": 3}
SEED = 6


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch):
    monkeypatch.setenv("GALAPAX_CACHE", "off")


@pytest.fixture
def write(tmp_path):
    """A config.h with some names defined otherwise (None: not at all), or with other text altogether."""

    def written(text=CONFIG, **changes):
        for name, value in changes.items():
            line = "" if value is None else f"#define {name} {value}"
            text, found = re.subn(rf"^#define {name} .*$", lambda match, line=line: line, text, flags=re.MULTILINE)
            assert found == 1
        file = tmp_path / "config.h"
        file.write_text(text, encoding="utf-8")
        return file

    return written


# --- config.h ---------------------------------------------------------------------------------------------------------


def test_the_public_layout_is_read(write):
    settings = gagpu.read_config(write())
    assert settings == READ
    assert {name: type(value) for name, value in settings.items()} == gagpu.REQUIRED_SETTINGS
    assert gagpu.read_config(str(write())) == READ


def test_the_algorithm_is_the_one_that_the_file_asks_for(write):
    algorithm = gagpu.build_algorithm(gagpu.read_config(write()))
    assert algorithm == gx.ThreeParentGA(population=12, fr=1.1, sigma=0.75, bounds_at_start_only=True)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("FR", "1", 1.0),
        ("FR", "1.f", 1.0),
        ("FR", "1e-1F", 0.1),
        ("FR", "+2.0L", 2.0),
        ("FR", "-(0.5 + 1)", -1.5),
        ("SIG", "SIGMA_OF_NO_ONE", None),
        ("NO_KIDS", "TPB*BPG*2", 24),
        ("NO_KIDS", "(TPB * BPG) / 2", 6),
        ("NO_KIDS", "1024UL", 1024),
        ("NO_KIDS", "(TPB \\\n * 8)", 32),
        ("NO_GEN", "1e3", 1000),
        ("NO_GEN", "100 /* a hundred */ // generations", 100),
        ("NO_GEN", "0xFF", 255),
    ],
)
def test_values_are_read_as_c_reads_them(name, text, value, write):
    if value is None:
        with pytest.raises(gx.InputError, match=text):
            gagpu.read_config(write(**{name: text}))
    else:
        assert gagpu.read_config(write(**{name: text}))[name] == value


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        pytest.param({"NO_GEN": "0x1F"}, "NO_GEN", 31, id="hexadecimal"),  # the F is taken for a suffix: 1
        pytest.param({"TPB": "2+2"}, "NO_KIDS", 2 + 2 * 3, id="sums"),  # C puts the text in, without brackets: 8
        pytest.param({"NO_KIDS": "(100/3)"}, "NO_KIDS", 33, id="whole division"),  # refused as 33.3333
    ],
)
def test_corners_of_c_are_read_as_c_reads_them(changes, name, value, write):
    assert gagpu.read_config(write(**changes))[name] == value


def test_spaces_and_windows_line_ends_do_not_matter(tmp_path):
    file = tmp_path / "config.h"
    file.write_bytes(CONFIG.replace("#define ", "  #  define\t").replace("\n", "\r\n").encode("latin-1"))
    assert gagpu.read_config(file) == READ


def test_text_in_another_encoding_is_read(tmp_path):
    file = tmp_path / "config.h"
    file.write_bytes(CONFIG.replace("blocks", "Bl\xf6cke").encode("latin-1"))
    assert gagpu.read_config(file) == READ


@pytest.mark.parametrize("name", gagpu.REQUIRED_SETTINGS)
def test_a_missing_name_is_an_error(name, write):
    with pytest.raises(gx.InputError, match=rf"does not #define {name}; a GAGPU configuration has NO_GEN, NO_KIDS"):
        gagpu.read_config(write(**{name: None}))


def test_a_name_in_a_comment_is_missing(write):
    text = CONFIG.replace("#define NO_TESTS 3", "// #define NO_TESTS 3").replace("#define SIG", "/*\n#define SIG */ //")
    with pytest.raises(gx.InputError, match="does not #define SIG, NO_TESTS"):
        gagpu.read_config(write(text))
    with pytest.raises(gx.InputError, match="does not #define NO_GEN, NO_KIDS, NO_VAR, FR, SIG, NO_TESTS"):
        gagpu.read_config(write(""))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(gx.InputError, match=r"config.h could not be read: No such file"):
        gagpu.read_config(tmp_path / "config.h")
    with pytest.raises(gx.InputError, match="could not be read"):
        gagpu.read_config(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"FR": "fast"}, "uses fast, which it does not define"),
        ({"FR": '"1.0"'}, "FR in .* must be a number, got '\"1.0\"'"),
        ({"FR": "1.0 2.0"}, "FR in .* must be a number"),
        ({"FR": "(1.0"}, "FR in .* must be a number"),
        ({"FR": "1.0;"}, "FR in .* must be a number"),
        ({"NO_GEN": "10.5"}, "NO_GEN in .* must be a whole number, got 10.5"),
        ({"NO_KIDS": "TPB*BLOCKS"}, "uses BLOCKS, which it does not define"),
        ({"NO_KIDS": "TPB/0"}, "NO_KIDS in .* divides by zero"),
        ({"NO_KIDS": "NO_KIDS"}, "uses NO_KIDS, which it does not define"),
        ({"TPB": "(BPG+1)", "BPG": "(TPB+1)"}, "uses (TPB|BPG), which it does not define"),
        ({"NO_KIDS": "1 if 1 else 2"}, "must be a number"),
        ({"NO_KIDS": "2**30"}, "must be a number"),
        ({"NO_KIDS": "1<<9"}, "must be a number"),
        ({"NO_KIDS": "~5"}, "must be a number"),
        ({"NO_KIDS": "5j"}, "(must be|as) a number"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value.values()),
)
def test_values_that_are_no_numbers_are_refused(changes, message, write):
    with pytest.raises(gx.InputError, match=message):
        gagpu.read_config(write(**changes))


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch {}')",
        "open('{}', 'w')",
        "(lambda: open('{}', 'w'))()",
        "[open('{}', 'w') for _ in 'a'][0]",
        "().__class__.__base__.__subclasses__()",
        "eval(\"open('{}', 'w')\")",
        "f\"{{open('{}', 'w')}}\"",
        "(x := 5)",
        "'a' * 10**9",
    ],
    ids=["import", "call", "lambda", "comprehension", "attributes", "eval", "f-string", "walrus", "text"],
)
def test_code_in_a_value_is_refused_and_not_run(code, write, tmp_path):
    made = tmp_path / "made"
    with pytest.raises(gx.InputError, match="must be a number"):
        gagpu.read_config(write(NO_KIDS=code.format(made)))
    assert not made.exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [("NO_GEN", "1e999"), ("NO_GEN", "1e999-1e999"), ("FR", "1e999"), ("FR", "9" * 400),
     ("NO_KIDS", "1+" * 20_000 + "1"), ("NO_KIDS", "-" * 20_000 + "1"), ("FR", "True")],
    ids=["inf", "NaN", "infinite factor", "400 digits", "a long sum", "many signs", "Python's True"],
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused(name, text, write):
    with pytest.raises(gx.InputError, match=rf"({name} in .* must be|uses {text[:9]}).* a number"):
        gagpu.read_config(write(**{name: text}))


# --- History.txt and TestHist.txt -------------------------------------------------------------------------------------


@cache
def run():
    """What the file asks for, by the library."""
    return gx.minimize(
        gx.problems.get("gagpu_ackley"),
        gx.ThreeParentGA(population=12, fr=1.1, sigma=0.75, bounds_at_start_only=True),
        generations=10,
        runs=3,
        seed=SEED,
        keep=gx.Keep(history="x"),
        polish=False,
    )


def assert_exported(folder, result):
    """The two files hold the history to the six digits of C's %g."""
    history = np.loadtxt(folder / "History.txt", delimiter="\t", ndmin=2)
    assert history.shape == (10, 1 + 2 + 1)
    assert history[:, 0].tolist() == list(range(10))
    np.testing.assert_allclose(history[:, 1:3], result.history.x, rtol=5e-6)
    np.testing.assert_allclose(history[:, 3], result.history.best, rtol=5e-6)
    tests = np.loadtxt(folder / "TestHist.txt", delimiter="\t", ndmin=2)
    every = result.history.best[None] if result.runs is None else result.runs.history.best
    assert tests.shape == every.shape
    np.testing.assert_allclose(tests, every, rtol=5e-6)


@pytest.mark.parametrize("several", [pytest.param(True, marks=pytest.mark.slow), False], ids=["three runs", "one run"])
def test_the_exported_files_hold_the_history(several, tmp_path):
    result = run() if several else gx.Result(run() | {"runs": None})
    files = gagpu.export(result, tmp_path / "below" / "here")
    assert [file.name for file in files] == ["History.txt", "TestHist.txt"] and all(file.is_file() for file in files)
    assert_exported(tmp_path / "below" / "here", result)
    first = files[0].read_text(encoding="utf-8").splitlines()[0]
    x, best = result.history.x[0], result.history.best[0]
    assert first == "\t".join(["0", *(f"{v:g}" for v in x), f"{best:g}"])


def test_the_best_run_is_the_one_in_history_txt(tmp_path):
    result = run()
    gagpu.export(result, tmp_path)
    best = int(np.argmin(result.runs.fun))
    last = np.loadtxt(tmp_path / "History.txt", delimiter="\t")[-1]
    np.testing.assert_allclose(last[1:3], result.runs.x[best], rtol=5e-6)
    assert last[3] == np.loadtxt(tmp_path / "TestHist.txt", delimiter="\t")[:, -1].min()


@pytest.mark.parametrize(("history", "message"), [(True, 'again with history="x"'), (False, "has no history")])
def test_a_run_without_x_or_history_is_refused(history, message, tmp_path):
    result = gx.Result(run())
    if history:
        result["history"] = gx.History(
            *(getattr(result.history, n) for n in ("generation", "nfev", "best", "mean", "worst"))
        )
    else:
        result["history"] = None
    with pytest.raises(gx.InputError, match=message):
        gagpu.export(result, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- the command line -------------------------------------------------------------------------------------------------


def call(*arguments):
    outcome = CliRunner().invoke(cli.app, [str(a) for a in arguments])
    return outcome.exit_code, outcome.output


def refused(message, *arguments):
    code, text = call(*arguments)
    text = " ".join(text.split())
    assert code == 2 and re.search(message, text) and "Traceback" not in text, text


def test_a_config_is_solved_and_exported(write, tmp_path):
    out = tmp_path / "run"
    code, text = call(
        "solve", "gagpu_ackley", "--gagpu-config", write(), "--seed", SEED, "--out", out, "--no-polish", "--json"
    )
    assert code == 0
    told, expected = json.loads(text), run()
    assert told["fun"] == expected.fun and told["x"] == expected.x.tolist()
    assert told["settings"]["runs"] == 3 and told["settings"]["generations"] == 10
    assert told["settings"]["hyperparameters"] == {
        "population": 12, "fr": 1.1, "sigma": 0.75, "bounds_at_start_only": True
    }  # fmt: skip
    code, text = call("view", out, "--export", "gagpu")
    assert code == 0 and "Wrote" in text and "TestHist.txt" in text
    assert_exported(out, expected)
    code, text = call("view", out, "--export", "gagpu", "--out", tmp_path / "elsewhere")
    assert code == 0
    assert_exported(tmp_path / "elsewhere", expected)
    code, text = call("view", out)
    assert code == 0 and "over 3 runs" in text
    refused("--export takes csv, json or gagpu; got 'xml'", "view", out, "--export", "xml")


def test_options_win_over_the_config(write):
    code, text = call("solve", "gagpu_ackley", "--gagpu-config", write(NO_TESTS=9), "-g", 4, "-r", 3, "--json")
    settings = json.loads(text)["settings"]
    assert code == 0 and settings["generations"] == 4 and settings["runs"] == 3


@pytest.mark.parametrize("option", ["-r 1", "-g 0"])
def test_options_at_their_default_win_over_the_config_too(option, write):
    code, text = call("solve", "gagpu_ackley", "--gagpu-config", write(), *option.split(), "--json")
    if option == "-r 1":
        assert code == 0 and json.loads(text)["settings"]["runs"] == 1
    else:
        assert code == 2 and "generations must be at least 1" in text


@pytest.mark.parametrize(
    ("option", "value"), [("--algorithm", "de"), ("--algorithm", "ga"), ("--set", "fr=2"), ("--population", "5")]
)
def test_options_that_choose_the_algorithm_again_are_refused(option, value, write):
    message = f"{option} and --gagpu-config both choose the algorithm"
    refused(message, "solve", "gagpu_ackley", "--gagpu-config", write(), option, value)


def test_no_var_must_be_the_number_of_variables(write, tmp_path):
    refused("NO_VAR in .* is 2 and gagpu_ackley has 5 variables", "solve", "gagpu_ackley", "--dim", 5,
            "--gagpu-config", write())  # fmt: skip
    refused("gagpu_goldstein_price .*size is fixed", "solve", "gagpu_goldstein_price",
            "--gagpu-config", write(NO_VAR=3))  # fmt: skip
    mine = tmp_path / "mine.py"
    mine.write_text("bounds = [(-1, 2)] * 3\ndef fun(x):\n    return (x**2).sum()\n", encoding="utf-8")
    refused("NO_VAR in .* is 2 and .*mine.py has 3 variables", "solve", mine, "--gagpu-config", write())


def test_no_var_resizes_a_problem_of_any_size(write, monkeypatch):
    def asked(problem, **settings):
        raise gx.InputError(f"{problem.dim} variables, {settings['runs']} runs, history {settings['keep'].history}")

    monkeypatch.setattr(cli, "minimize", asked)
    refused("4 variables, 1 runs, history x", "solve", "gagpu_ackley", "--gagpu-config", write(NO_VAR=4, NO_TESTS=1))


def test_errors_in_the_config_are_named(write, tmp_path):
    refused("does not #define NO_GEN", "solve", "gagpu_ackley", "--gagpu-config", write(NO_GEN=None))
    refused("population must be at least 3", "solve", "gagpu_ackley", "--gagpu-config", write(NO_KIDS=2))
    refused("could not be read", "solve", "gagpu_ackley", "--gagpu-config", tmp_path / "nowhere.h")
    refused("did you mean gagpu_ackley", "solve", "gagpu_akley", "--gagpu-config", write())
    refused("contains no saved run", "view", tmp_path / "nowhere", "--export", "gagpu")


SWEEP = ("sweep", "gagpu_ackley", "-a", "ga", "--set", "fr=1,1.5", "--set", "sigma=0.5,1", "--set", "population=12")
SIZE = ("-g", 10, "-r", 3, "--seed", SEED)


@pytest.mark.slow
def test_sweep_does_what_the_library_does(tmp_path):
    out = tmp_path / "sweep"
    code, text = call(*SWEEP, *SIZE, "--target", 0.5, "--json", "--out", out)
    assert code == 0
    told = json.loads(text)
    expected = gx.sweep(
        gx.problems.get("gagpu_ackley"), gx.ThreeParentGA(population=12), fr=[1.0, 1.5], sigma=[0.5, 1.0],
        runs=3, generations=10,
        seed=SEED, target=0.5,
    )  # fmt: skip
    assert told["message"] == expected.message == "All 4 settings completed."
    finite = [{k: None if v in (math.inf, None) else v for k, v in row.items()} for row in expected.summary()]
    assert [{name: cell[name] for name in row} for cell, row in zip(told["cells"], finite, strict=True)] == finite
    saved = gx.load(out)
    assert saved.axes == expected.axes
    np.testing.assert_array_equal(saved.values(), expected.values())
    code, text = call("view", out)
    assert code == 0 and "gagpu_ackley · ga" in text and "success" in text and "All 4 settings completed." in text
    refused("holds a sweep; GAGPU's files describe", "view", out, "--export", "gagpu")
    code, text = call(*SWEEP, *SIZE, "--target", 0.5)  # and as a table
    assert code == 0 and "the best median is marked *" in " ".join(text.split()) and " *" in text
    assert call(*SWEEP, *SIZE, "--target", 0.5, "-q") == (0, "")


COMPARE = ("compare", "-p", "branin", "-a", "random:population=5,random:population=7", "--seed", SEED)


@pytest.mark.slow
def test_compare_does_what_the_library_does(tmp_path):
    out = tmp_path / "comparison"
    size = ("-r", 3, "--max-evaluations", 40)
    code, text = call(*COMPARE, *size, "--within", 20.0, "--json", "--out", out)
    assert code == 0
    told = json.loads(text)
    expected = gx.compare(
        ["branin"], [gx.RandomSearch(population=5), gx.RandomSearch(population=7)], runs=3,
        max_evaluations=40, seed=SEED, within=20.0,
    )  # fmt: skip
    assert told["message"] == "All 2 pairs of problem and algorithm completed."
    for row, own in zip(told["cells"], expected.summary(), strict=True):
        for name in own.keys() - {"seconds"}:
            assert row[name] == (None if own[name] == math.inf else own[name]), name
    assert [row["algorithm"] for row in told["cells"]] == ["random (population=5)", "random (population=7)"]
    np.testing.assert_array_equal(gx.load(out).values(), expected.values())
    code, text = call("view", out)
    text = " ".join(text.split())
    assert code == 0 and "Final values" in text and "Running times" in text and "branin" in text
    refused("holds a comparison; GAGPU's files describe", "view", out, "--export", "gagpu")
    code, text = call(*COMPARE, *size, "--paired")
    assert code == 0 and "Wilcoxon signed ranks" in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "sphere"), "Missing option '--set'"),
        (("sweep", "sphere", "-s", "fr=1"), "nothing to sweep"),
        (("sweep", "sphere", "-s", "fr=1,fast"), "--set fr takes a number; got 'fast'"),
        (("sweep", "sphere", "-s", "fr=1,,2"), "--set fr takes a number; got ''"),
        (("sweep", "sphere", "-s", "weight=1,2"), "NAME one of population, fr, sigma"),
        (("sweep", "sphere", "-s", "fr=1,1"), "fr contains 1.0 twice"),
        (("sweep", "sphere", "-a", "gaa", "-s", "fr=1,2"), "no algorithm called 'gaa'"),
        (("sweep", "sphere", "-a", "de", "-s", "mutation=rand_1,none"), "takes rand_1 or best_1; got 'none'"),
        (("sweep", "sphere", "-s", "bounds_at_start_only=true,perhaps"), "takes true or false; got 'perhaps'"),
        (("sweep", "sphere", "-s", "fr=1,2", "-r", "0"), "runs must be at least 1"),
        (("compare", "-p", "sphere"), "compare needs algorithms: --algorithms de,ga"),
        (("compare", "-p", "shpere", "-a", "de"), "no problem called 'shpere'"),
        (("compare", "-p", "sphere,sphere", "-a", "de"), "'sphere' is given twice"),
        (("compare", "-p", "sphere", "-a", "de,ed"), "no algorithm called 'ed'"),
        (("compare", "-p", "sphere", "-a", "de,de"), "de is given twice"),
        (("compare", "-p", "sphere", "-a", "de:wieght=1"), "NAME one of population, mutation, weight"),
        (("compare", "-p", "sphere", "-a", "de", "-r", "1"), "runs must be at least 2"),
        (("compare", "-p", "zdt1", "-a", "de"), "minimises one"),
        (("compare", "-p", ",", "-a", "de"), "at least one problem"),
        (("compare", "-p", "sphere", "-a", ","), "at least one algorithm"),
        (("compare", "-p", "sphere", "-a", "de", "--max-evaluations", "50"), "population of 100"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_one_sentence(arguments, message):
    refused(message, *arguments)


def test_a_name_that_is_set_twice_is_refused(monkeypatch):
    def begun(*args, **settings):
        raise gx.InputError(f"swept {settings['fr']}")

    monkeypatch.setattr(cli, "run_sweep", begun)
    refused("fr .*twice", "sweep", "gagpu_ackley", "-s", "fr=3,4", "-s", "fr=1,2")
