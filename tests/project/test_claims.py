"""What README and docs name exists: modules, arguments, commands and options of the shell, files, extras, counts."""

import importlib.util
import inspect
import os
import re
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest
from support.paths import ROOT

import galapax as gx
from galapax import algorithms
from galapax.algorithms import cmaes, ehvi, model_search
from galapax.core.stop import Stop

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"(?<![\w/.\"-])(?:gx|galapax)((?:\.[A-Za-z_]\w*)+)")
ARGUMENTS = r"\(((?:[^()`]|\((?:[^()`]|\([^()`]*\))*\))*)\)"  # with calls and pairs among them
CALL = re.compile(rf"\bgx\.(\w+){ARGUMENTS}|(?<![\w.])(minimize|minimax|sweep|compare){ARGUMENTS}")
COMMAND = re.compile(r"^(?:srun )?galapax (?=[a-z-])([^\n|`#]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*|-[a-z](?![\w-]))")
FILE = re.compile(r"(?<![\w/.-])((?:benchmarks|docs|examples|src|tests)/[\w./-]*\w)")
PARENT = {  # names on these pages that come from other packages
    "galapax.compat.optuna": "optuna",
    "galapax.compat.openmdao": "openmdao",
    "galapax.compat.optimagic": "optimagic",
    "galapax.compat.sklearn": "sklearn",
}
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])
SCRIPTS = "\n".join(file.read_text(encoding="utf-8") for file in sorted((ROOT / "benchmarks").glob("*.py")))
SOURCES = "\n".join(
    file.read_text(encoding="utf-8")
    for folder in ("src", "tests", "tests_as_shipped")
    for file in sorted((ROOT / folder).rglob("*.py"))
)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def join_lines(page: Path) -> str:
    """The text of a page, with code spans that a line break divides on one line."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    for span in re.findall(r"`[^`]+`", prose):
        if span.count("\n") == 1:
            text = text.replace(span, span.replace("\n", " "))
    return text


def find_code(page: Path) -> list[str]:
    """The code spans and the code blocks of a page."""
    text = join_lines(page)
    return [*FENCE.findall(text), *SPAN.findall(FENCE.sub("", text))]


def list_commands() -> dict[str, set[str]]:
    """The commands of the shell, each with its options."""
    typer = pytest.importorskip("typer")
    from galapax.cli.app import app

    group = typer.main.get_command(app)
    common = {flag for parameter in group.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return {
        name: common | {flag for p in command.params for flag in (*p.opts, *p.secondary_opts) if flag.startswith("-")}
        for name, command in group.commands.items()
    }


def find_signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(gx, name))


@every_page
def test_names_in_code_exist(page):
    for code in find_code(page):
        for match in NAME.finditer(code):
            name = f"galapax{match[1]}"
            package = next((other for prefix, other in PARENT.items() if name.startswith(prefix)), None)
            if (package and importlib.util.find_spec(package) is None) or name == "galapax.NAME":
                continue
            try:
                resolve_name(name)
            except (ImportError, AttributeError) as error:
                pytest.fail(f"{page.name} names {match[0]}: {error}")


@every_page
def test_arguments_of_calls_exist(page):
    for code in find_code(page):
        for match in CALL.finditer(code):
            name, arguments = match[1] or match[3], match[2] or match[4] or ""
            if "InputError:" in code or (not match[1] and "import" in code):  # an error, or another library's function
                continue
            if not callable(getattr(gx, name)):
                continue
            known = find_signature(name).parameters
            if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()) and name != "minimize":
                continue
            while "(" in arguments:
                arguments = re.sub(r"\([^()]*\)", "", arguments)
            for argument in re.findall(r"(?<![\w.\"'])([a-z_]\w*)=(?!=)", arguments):
                assert argument in known, f"{page.name}: {name} has no argument {argument}"


@every_page
def test_commands_of_the_shell_have_the_options_that_pages_show(page):
    commands = list_commands()
    for code in find_code(page):
        for match in COMMAND.finditer(code.replace("\\\n", " ")):
            words = match[1].split()
            if words[0].startswith("--"):
                assert words[0] in ("--install-completion", "--version", "--help"), f"{page.name}: galapax {words[0]}"
                continue
            for command in words[0].split("|"):
                assert command in commands, f"{page.name}: there is no command {command}"
            for option in OPTION.findall(match[1]):
                assert option in commands[words[0]], f"{page.name}: galapax {words[0]} has no {option}"


@every_page
def test_options_that_stand_alone_belong_to_a_command_or_a_script(page):
    known = set().union(*list_commands().values())
    for span in SPAN.findall(FENCE.sub("", join_lines(page))):
        if re.match(r"--[a-z]", span):
            for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span):
                assert option in known or f'"{option}"' in SCRIPTS, f"{page.name}: no command or script has {option}"


@every_page
def test_files_that_pages_name_exist(page):
    for code in find_code(page):
        for name in FILE.findall(code):
            if "*" not in name and not (ROOT / name).exists():
                assert (ROOT / name).suffix not in (".py", ".md", ".csv", ".json") and not code.startswith(name), (
                    f"{page.name} names {name}"
                )


@every_page
def test_environment_variables_extras_and_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    text = join_lines(page)
    for variable in set(re.findall(r"\bGALAPAX_[A-Z_]+\b", text)):
        assert f'"{variable}' in SOURCES, f"{page.name}: nothing reads {variable}"
    for extras in re.findall(r"galapax\[([\w, -]+)\]", text):
        assert set(re.split(r", *", extras)) <= EXTRAS, f"{page.name}: galapax[{extras}]"
    for code in find_code(page):
        for target in re.findall(r"(?:^|\n)make ([a-z-]+)", code):
            assert target in targets, f"{page.name}: make {target}"


def test_the_readme_counts_the_problems():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"(\d+) built-in problems", text) == [str(len(gx.problems.PROBLEMS))]


def test_the_guide_says_what_the_shell_leaves_out():
    commands = list_commands()
    left_out = {"callback", "memoize", "asynchronous"}
    page = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    for name in left_out:
        assert f"`{name}`" in page
        assert f"--{name}" not in commands["solve"]


def test_the_guide_lists_every_termination_reason():
    page = join_lines(ROOT / "docs/guide.md")
    listed = re.search(r"`stop` says it in one word: ([\w\s,]+)\.", page)[1]
    reasons = set(re.split(r",\s+|\s+or\s+", listed))
    assert reasons == {str(reason) for reason in Stop} - {"known"}  # of one search, never of a run


@pytest.mark.parametrize(
    ("page", "claim"),
    [
        ("guide", f"`max_evaluations` of at most {model_search.MAX_MODEL_EVALUATIONS_PER_VARIABLE} per variable, or at "
                  f"most {model_search.MAX_MODEL_EVALUATIONS} |"),
        ("guide", f"`max_evaluations` of at most {ehvi.MAX_FRONT_MODEL_EVALUATIONS_PER_VARIABLE} per variable |"),
        ("several-objectives", f"`max_evaluations` of at most {ehvi.MAX_FRONT_MODEL_EVALUATIONS_PER_VARIABLE} per "
                               f"variable and {ehvi.MAX_CAPACITY} in all"),
        ("algorithms", f"With {cmaes.MIN_DIAGONAL_DIM} and more variables, and from {algorithms.MIN_CRFMNES_DIM} on "
                       f"with at most {algorithms.MAX_CRFMNES_EVALUATIONS_PER_VARIABLE} evaluations per variable"),
        ("algorithms", f"`max_evaluations` of at most {cmaes.MAX_SURROGATE_EVALUATIONS_PER_VARIABLE} per variable"),
        ("expensive", f"up to {cmaes.MAX_SURROGATE_EVALUATIONS_PER_VARIABLE} evaluations per variable"),
        ("guide", f"constraints, integers or choices it has {gx.EpsilonDE.traits.default_generations} generations"),
    ],
)  # fmt: skip
def test_pages_give_the_limits_by_which_the_default_is_chosen(page, claim):
    assert claim in " ".join(join_lines(ROOT / f"docs/{page}.md").split())


def test_the_statistics_page_names_every_function():
    from galapax.metrics import statistics

    page = (ROOT / "docs/experiments.md").read_text(encoding="utf-8")
    table = page[page.index("## Statistics") : page.index("## GAGPU's files")]
    named = set(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))
    for row in named:
        for function in re.findall(r"`(\w+)`", row):
            assert callable(getattr(statistics, function)), function


def test_no_page_names_a_folder_of_this_machine():
    for page in PAGES:
        assert str(Path(os.sep, "work")) + os.sep not in page.read_text(encoding="utf-8"), page.name


def test_the_page_on_citing_has_the_version():
    page = (ROOT / "docs/cite.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\b\d+\.\d+\.\d+\b", page)) == {gx.__version__}


def test_modules_that_pages_and_comments_name_exist():
    texts = {file: file.read_text(encoding="utf-8") for file in sorted((ROOT / "src").rglob("*.py"))}
    texts |= {page: "\n".join(SPAN.findall(FENCE.sub("", join_lines(page)))) for page in PAGES}
    folders = ("src", "benchmarks", "docs", "examples", "tests", "tests_as_shipped")
    modules = {file.name for folder in folders for file in (ROOT / folder).rglob("*.py")}
    modules |= {"optimise.py", "fit.py"}  # a user's, in examples
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file, text in texts.items()
        for name in re.findall(r"(?<![\w.])\w+\.py\b", text)
        if name.islower() and name not in modules
    }
    assert not missing
