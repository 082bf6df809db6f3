"""Types for users: code that calls galapax passes a type checker in strict mode, and wrong options do not."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from support.paths import ROOT

import galapax as gx
from galapax.algorithms import RESTARTS
from galapax.core.options import Engine, FailurePolicy, RestartName

needs_checker = pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="needs basedpyright")

RIGHT = """
import galapax as gx
from galapax.compat.scipy import differential_evolution, minimize

def cost(v: dict[str, float]) -> float:
    return (v["x"] - 0.3) ** 2

variables = {"x": gx.real(0, 1, step=0.1), "n": gx.integer(0, 3, when={"kind": "a"}), "kind": gx.choice("a", None)}
result = gx.minimize(
    cost, variables, gx.DE(population=20), blackbox=True, on_failure="worst", restarts=None, polish="auto",
    compute=gx.Compute(engine="xla", dtype="float32"), keep=gx.Keep(history="x", snapshots=(1, 10)),
    workers=gx.Workers(2, timeout=30), islands=gx.Islands(2, topology="ring"),
)
print(result.x.shape, result.nfev + 1, result.message.upper(), result.params["x"])
result.plot.convergence()
study = gx.compare(["sphere"], {"mine": gx.DE(), "theirs": "cmaes"}, runs=5)
print(study.message, len(study.results))
problem = gx.Problem(cost, variables, name="mine", optimum=0.0)
kept = gx.minimize(cost, variables, "cmaes", keep=gx.Keep(snapshots=[1, 10]))
fit = minimize(lambda p: p[0], [1.0], bounds=[(0, 1)], method=gx.DE())
print(fit.x.shape, fit.fun + 1, fit.result.stop, differential_evolution(lambda x: x[0], [(0, 1)]))
safe = gx.robust(lambda x, y: x[0] * y["load"], [(0, 1)], {"load": gx.normal(0, 1)}, measure=gx.cvar(0.9))
elites = gx.illuminate(lambda x: x[0], [(0, 1)], measures=[lambda x: x[0]], ranges={"a": (0, 1)}, cells=10)
print(elites.coverage + 1, gx.minima(lambda x: x[0], [(0, 1)]).unseen)
opt = gx.Optimizer(variables, max_evaluations=30)
trial = opt.ask()
trial.report(0.1, 1)
opt.tell(trial, None if trial.should_prune() else 1.0)
opt.tell(opt.ask(3), [1.0, 2.0, 3.0])
"""
WRONG = """
import galapax as gx

gx.Compute(engine="cuda")
gx.Keep(history="y")
gx.Islands(2, topology="star")
gx.minimize(abs, [(0, 1)], on_failure="ignore")
gx.minimize(abs, [(0, 1)], restarts="often")
"""


UNKNOWN_TYPES = ("reportUnknownMemberType", "reportUnknownVariableType")
PARTLY_TYPED = ("jnp.", "figure.savefig", "linprog")  # the stubs of JAX, matplotlib and scipy lack some types


def check(folder, **sources):
    """Return the errors of strict type checking, {(file, line): message}. sources: by name of the file."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    settings = {"include": ["*.py"], "typeCheckingMode": "strict", "reportUnnecessaryComparison": "none"}
    settings["reportMissingTypeStubs"] = "none"  # scipy has its stubs in a package of their own
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert report["summary"]["filesAnalyzed"] == len(sources)
    errors = {}
    for entry in report["generalDiagnostics"]:
        file, start = Path(entry["file"]), entry["range"]["start"]
        at = sources[file.stem].splitlines()[start["line"]][start["character"] :]
        is_of_others = entry.get("rule") in UNKNOWN_TYPES and at.startswith(PARTLY_TYPED)
        if entry["severity"] == "error" and not is_of_others:
            errors[file.stem, start["line"] + 1] = entry["message"]
    return errors


class AnnotatedParameters(ast.NodeTransformer):
    """Code in which the parameters of the user's own functions have types, as strict checking wants them."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg, node.annotation or ast.Name("Any"))

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node


def annotate_parameters(code: str) -> str:
    annotated = ast.unparse(AnnotatedParameters().visit(ast.parse(code)))
    is_missing = ": Any" in annotated and "import Any" not in annotated
    return f"from typing import Any\n{annotated}" if is_missing else annotated


@needs_checker
@pytest.mark.slow
def test_user_code_passes_strict_type_checking(tmp_path):
    assert check(tmp_path, user=RIGHT) == {}


@needs_checker
@pytest.mark.slow
def test_readme_and_examples_pass_strict_type_checking(tmp_path):
    readme = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    codes = {file.stem: file.read_text() for file in (ROOT / "examples").glob("*.py")} | {"readme": "".join(readme)}
    assert check(tmp_path, **{name: annotate_parameters(code) for name, code in codes.items()}) == {}


@needs_checker
@pytest.mark.slow
def test_options_that_do_not_exist_are_type_errors(tmp_path):
    assert [line for _, line in check(tmp_path, user=WRONG)] == [4, 5, 6, 7, 8]


def test_the_literals_are_the_values_that_are_accepted():
    assert set(typing.get_args(RestartName)) == {"auto", *RESTARTS}
    for engine in typing.get_args(Engine):
        assert gx.Compute(engine=engine).engine == engine
    for policy in typing.get_args(FailurePolicy):
        gx.minimize(lambda x: x[0] ** 2, [(0, 1)], "random", generations=1, on_failure=policy, progress=False)
