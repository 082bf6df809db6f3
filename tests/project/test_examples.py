"""The examples and the code in README and docs run, and say what they claim.

Quickly with fewer runs where they make a thousand, pages without the polish and with a hundred generations where they
name no number, and compiled quickly rather than well; `make test-slow` runs them as they stand.
"""

import ast
import re
from pathlib import Path

import jax
import pytest
from support.cases import params
from support.paths import ROOT

import galapax as gx

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python\n" in page.read_text(encoding="utf-8")
]
SAYS = {
    "spring.py": "fun: 0.0126652327",
    "ten_lines.py": "fun: 0",
    "ensemble.py": "runs reached 1e-6",
    "ask_tell.py": "x: [ 0.3 -1.2]",
    "blackbox.py": "did not converge",
    "pressure_vessel.py": "fun: 5885.3327",
    "robust_absorber.py": "worst amplitude 6.40",
    "blend.py": "cheapest: cost 26.",
    "portfolio_cvar.py": "0.03485",
    "spring_tolerances.py": "mean weight 0.0151",
    "inventory.py": "mean cost per week 65",
    "stable_states.py": "16 stable states",
    "circles.py": "26 circles, proved in fractions: sum of radii 2.635",
}


FEWER = ("runs=1000", "runs=40")


def both_ways(files: list[Path]) -> list:
    """The examples and the README smaller than they are, and each file as it stands."""
    smaller = [file for file in files if file.suffix == ".py" or file.name == "README.md"]
    return [pytest.param(file, True, id=file.name) for file in smaller] + [
        pytest.param(file, False, id=f"{file.name} as it stands") for file in files
    ]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


class Shorter(ast.NodeTransformer):
    """Calls that leave it open search for a hundred generations, and without the polish."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        verb = ast.unparse(node.func)
        if verb in ("gx.minimize", "gx.minimax"):
            limits = {"polish": False} | ({"generations": 100} if verb == "gx.minimize" else {})
            names = {keyword.arg for keyword in node.keywords}
            node.keywords += [ast.keyword(k, ast.Constant(v)) for k, v in limits.items() if k not in names]
        return node


def execute(code: str, file: Path, names: dict[str, object], smaller: bool) -> None:
    tree = ast.parse(code.replace(*FEWER) if smaller else code, str(file))
    if smaller and file in PAGES:
        tree = ast.fix_missing_locations(Shorter().visit(tree))
    exec(compile(tree, str(file), "exec"), names)


@pytest.fixture(autouse=True)
def _leave_the_cache_as_it_was():
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize(("example", "smaller"), params(both_ways(EXAMPLES), quick={"blackbox.py"}))
def test_example_runs_and_says_what_it_should(example, smaller, capsys):
    execute(example.read_text(encoding="utf-8"), example, {"__name__": "__main__", "__file__": str(example)}, smaller)
    assert SAYS[example.name] in capsys.readouterr().out


@pytest.mark.parametrize(("page", "smaller"), params(both_ways(PAGES), quick={"README.md"}))
def test_code_on_a_page_runs_from_top_to_bottom(page, smaller, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda url: True)  # on a desktop the live page would open one
    code = blocks(page)
    assert code, f"{page.name} shows no code"
    names: dict[str, object] = {"__name__": "__main__"}  # as in a script, for what is guarded by it
    for block in code:
        execute(block, page, names, smaller)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_on_a_page_uses_names_that_exist(page):
    """Whatever the page computes, and however long: no name of galapax in it is misspelt or gone."""
    for block in blocks(page):
        for node in ast.walk(ast.parse(block, page.name)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gx":
                assert hasattr(gx, node.attr), f"{page.name} uses gx.{node.attr}"
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "galapax":
                exec(ast.unparse(node), {})  # fails by itself; a submodule need not have been imported before
