"""A slow case is marked where it is written: by its decorator or at its parameter, and by nothing else."""

import ast

import pytest
from support.cases import params, product
from support.paths import DATA, ROOT, TESTS

FOLDERS = [TESTS, ROOT / "tests_as_shipped"]


def names_of(cases):
    return [case.id for case in cases]


def slow_names(cases):
    return [case.id for case in cases if any(mark.name == "slow" for mark in case.marks)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_hook_adds_marks(folder):
    for file in folder.rglob("*.py"):
        attributes = {
            node.attr for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Attribute)
        }
        assert not attributes & {"add_marker", "own_markers"}, f"{file} adds marks to tests of other files"


def test_no_list_of_tests_lies_beside_them():
    others = {file for file in TESTS.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")}
    assert {file for file in others if DATA not in file.parents} == set()


def test_cases_are_slow_by_name():
    assert slow_names(params(["de", "ga", 1.5, None], slow={"ga", "1.5"})) == ["ga", "1.5"]
    assert slow_names(params(["de", "ga", True], quick={"ga"})) == ["de", "True"]
    assert slow_names(params([2, 3], slow={"two"}, ids=["two", "three"])) == ["two"]


def test_a_product_has_every_combination_and_keeps_marks():
    kinds = params(["de", "ga"], slow={"ga"})
    cases = params(product([pytest.param(0.0, id="zero"), 1], kinds), slow={"zero-de"})
    assert names_of(cases) == ["zero-de", "zero-ga", "1-de", "1-ga"]
    assert slow_names(cases) == ["zero-de", "zero-ga", "1-ga"]
    assert [case.values for case in cases] == [(0.0, "de"), (0.0, "ga"), (1, "de"), (1, "ga")]


def test_a_name_that_no_case_has_is_an_error():
    with pytest.raises(ValueError, match=r"No case is called \['gd'\]"):
        params(["de", "ga"], slow={"gd"})
    with pytest.raises(TypeError, match="either the slow cases or the quick ones"):
        params(["de", "ga"])
    with pytest.raises(TypeError, match="an id"):
        params([{}], slow={"ga"})
