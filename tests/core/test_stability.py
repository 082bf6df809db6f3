"""What may change is marked, in the code and on the page; what will go says what to use instead."""

import ast
import re
import warnings
from pathlib import Path

import pytest

import galapax as gx
from galapax.core.errors import EXPERIMENTAL_NOTE, deprecated, experimental, is_experimental, warn_deprecated

ROOT = Path(__file__).parents[2]
PACKAGE = Path(gx.__file__).parent


def find_experimental_classes() -> set[str]:
    """The names of all definitions decorated with `experimental`, without importing any."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in PACKAGE.rglob("*.py"))
    definitions = (
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)
    )
    return {node.name for node in definitions if "experimental" in map(ast.unparse, node.decorator_list)}


def test_the_page_lists_exactly_what_the_code_marks():
    page = (ROOT / "docs/stability.md").read_text(encoding="utf-8")
    section = page.partition("## Experimental")[2].partition("\n## ")[0]
    assert set(re.findall(r"\| `(\w+)` \|$", section, re.MULTILINE)) == find_experimental_classes()


def test_an_experimental_class_says_so_and_works_as_before():
    assert is_experimental(gx.Islands) and not is_experimental(gx.Problem)
    assert gx.Islands.__doc__.startswith("A run as several populations")
    assert gx.Islands.__doc__.endswith(EXPERIMENTAL_NOTE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gx.Islands(count=3).count == 3


def test_a_subclass_of_an_experimental_class_is_not_experimental_by_itself():
    @experimental
    class Base:
        """A base."""

    class Child(Base):
        """A child."""

    assert is_experimental(Base) and not is_experimental(Child)


def test_a_deprecated_function_works_and_names_its_replacement_at_the_callers_line():
    @deprecated("add", since="1.2", instead="plus")
    def add(a, b):
        """Add two numbers."""
        return a + b

    with pytest.warns(DeprecationWarning, match=r"add is deprecated since galapax 1\.2 .* use plus") as seen:
        assert add(1, b=2) == 3
    assert seen[0].filename == __file__
    assert add.__name__ == "add" and add.__doc__.endswith("Deprecated since 1.2: use plus.")


def test_python_shows_a_deprecation_once_for_each_line_that_must_change():
    def public(old=None):
        if old is not None:
            warn_deprecated("old=", since="1.2", instead="new=")

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            public(old=1)
        public(old=2)
        public()
    assert len(seen) == 2
