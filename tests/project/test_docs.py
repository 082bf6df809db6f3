"""The documentation holds together: links and anchors lead somewhere, every page is on the site, tables are current."""

import importlib.util
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name

import pytest
from support.paths import ROOT

import galapax as gx

PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHARED = {
    "crfmnes": "cmaes",
    "jso": "lshade",
    "fep": "ep",
    "random": "random_search",
}  # algorithms on the page of another


def find_documented() -> list[str]:
    """The paths of all objects that the API reference documents."""
    pages = (page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/reference").glob("*.md")))
    return [path for page in pages for path in re.findall(r"^::: (\S+)$", page, re.MULTILINE)]


def loaded(file: Path):
    """A script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(page: Path) -> str:
    """A page without its code."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual hosts and the site name them."""
    heads = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M), re.M
    )
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_an_item_begins_as_a_list(page):
    """A number and a full stop at the beginning of an indented line would be shown as a list of its own."""
    assert not re.findall(r"^ +\d+[.)] .*", text_of(page), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_begin_after_an_empty_line_or_a_heading(page):
    """Otherwise the site shows them as lines of the paragraph before, though GitHub does not."""
    blocks = re.sub(r"^```.*?^```", "```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for before, line in pairwise(blocks.splitlines()):
        start = re.match(r"(- |\d+\. |\|)", line)
        if start and before.strip() and not before.startswith(("#", "|", "  ", "<!--")):
            assert start[0] != "|" and re.match(r"(- |\d+\. )", before), f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page):
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def test_every_page_is_on_the_site_and_every_entry_is_a_page():
    listed = set(re.findall(r": ([\w/.-]+\.(?:md|ipynb))$", SITE, re.MULTILINE))
    there = {str(p.relative_to(ROOT / "docs")) for kind in ("md", "ipynb") for p in (ROOT / "docs").rglob(f"*.{kind}")}
    assert listed == there - {"releasing.md"}  # for maintainers alone


@pytest.mark.parametrize("name", gx.algorithms.ALGORITHMS)
def test_every_algorithm_has_a_page_with_equation_picture_advice_and_measurements(name):
    page = ROOT / f"docs/explain/{SHARED.get(name, name)}.md"
    text = page.read_text(encoding="utf-8")
    assert "```math\n" in text and "## When to use it" in text and "## Source" in text and f"`{name}`" in text
    picture = re.search(r"!\[[^\]]{10,}\]\((pictures/\w+\.png)\)", text)
    assert picture is not None and (page.parent / picture[1]).stat().st_size < 150_000
    assert re.search(r"<!-- measured: .*?-->\n.*?\| --- .*?<!-- end -->", text, re.DOTALL), "run docs/generate.py"
    assert f"({page.name})" in (page.parent / "index.md").read_text(encoding="utf-8")


def test_tables_are_what_the_saved_data_say():
    generate = loaded(ROOT / "docs/generate.py")
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert generate.written(text) == text, f"{page.name} is out of date: run python docs/generate.py"


def test_the_reference_has_every_public_name():
    packages = {"algorithms", "problems", "gagpu", "__version__"}
    assert {f"galapax.{name}" for name in gx.__all__ if name not in packages} <= set(find_documented())


@pytest.mark.parametrize("path", find_documented())
def test_the_reference_names_what_is_there(path):
    if path.startswith("galapax.compat."):
        pytest.importorskip(path.split(".")[2])  # the package that it plugs into
    assert callable(resolve_name(path)) or resolve_name(path).__doc__


def test_examples_of_extensions_are_short():
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert examples and max(len(example.splitlines()) for example in examples) <= 40


def test_docstrings_become_lists_of_their_entries():
    pytest.importorskip("griffe")
    site = loaded(ROOT / "docs/site/docstrings.py")
    assert site.single("c: second. d: third. (Note. e: none.)", {"c", "d"}) == "c: second.\nd: third. (Note. e: none.)"
    listed = site.listed
    assert listed("What.\n\na, b: first\n    goes on\nc: second. d: third\nThe end.") == (
        "What.\n\n\n- `a`, `b`: first\n  goes on\n- `c`: second. d: third\n\nThe end."
    )


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="the docs extra is not installed")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "reference/run/index.html").read_text(encoding="utf-8")
    assert "max_evaluations" in page and "<li>" in page
    assert "<math" in (tmp_path / "explain/de/index.html").read_text(encoding="utf-8")
    for file in tmp_path.rglob("*.html"):  # nothing is loaded from another host
        assert not re.search(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', file.read_text(encoding="utf-8")), (
            file
        )
