"""The examples and the code in README and docs run, and say what they claim."""

import re
import runpy
from pathlib import Path

import jax
import pytest

pytestmark = pytest.mark.usefixtures("well_compiled")

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SAYS = {
    "spring.py": "fun: 0.0126652327",
    "ten_lines.py": "fun: 0",
    "ensemble.py": "runs reached 1e-6",
    "ask_tell.py": "success: True",
    "blackbox.py": "did not converge",
    "pressure_vessel.py": "fun: 5885.3327",
    "robust_absorber.py": "worst amplitude 6.40",
    "blend.py": "cheapest: cost 26.",
}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _leave_the_cache_as_it_was():
    before = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_example_runs_and_says_what_it_should(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert SAYS[example.name] in capsys.readouterr().out


FIRST = ("README.md", "guide.md", "constraints.md")  # the others take half a minute each
TRIED = [pytest.param(p, marks=[] if p.name in FIRST else pytest.mark.slow, id=p.name) for p in PAGES]


@pytest.mark.parametrize("page", TRIED)
def test_code_on_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda url: True)  # on a desktop the live page would open one
    code = blocks(page)
    assert code, f"{page.name} shows no code"
    names: dict[str, object] = {}
    for block in code:
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_files_that_a_page_links_to_exist(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
