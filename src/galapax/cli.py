"""The command line: parse, call the library, print."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from galapax import algorithms, cache, problems
from galapax.algorithm import Algorithm
from galapax.errors import EvaluationError, InputError
from galapax.minimize import minimize
from galapax.operators import mutation
from galapax.problem import MinMaxProblem, Problem
from galapax.storage import plain_result
from galapax.view import terminal

app = typer.Typer(
    help="Evolutionary optimisation that lives on the accelerator.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


@app.command()
def solve(
    problem: Annotated[str, typer.Argument(help="A built-in problem (see `galapax list`), or FILE.py.")],
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", "-a", help="Its name; by default a fitting one.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="NAME=VALUE", help="A hyper-parameter, e.g. weight=0.7.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Number of variables, for built-in problems of any size.")] = None,
    generations: Annotated[int | None, typer.Option("--generations", "-g", help="At most so many (1000).")] = None,
    population: Annotated[int | None, typer.Option("--population", "-n", help="Number of individuals.")] = None,
    runs: Annotated[int, typer.Option("--runs", "-r", help="Independent runs, computed together.")] = 1,
    seed: Annotated[int, typer.Option(help="Repeats a run exactly.")] = 0,
    first_run: Annotated[int, typer.Option(help="Number of the first run: run 17 of an ensemble alone is 17.")] = 0,
    target: Annotated[float | None, typer.Option(help="Stop a run once it is at least this good.")] = None,
    max_evaluations: Annotated[int | None, typer.Option(help="Evaluations that one run may spend.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    stall: Annotated[int | None, typer.Option(help="Stop after so many generations without a better value.")] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="Look for the largest value.")] = False,
    vectorized: Annotated[bool, typer.Option("--vectorized", help="The functions take a whole population.")] = False,
    blackbox: Annotated[bool, typer.Option("--blackbox", help="The functions are plain Python or NumPy.")] = False,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    on_failure: Annotated[str | None, typer.Option(help="NaN, inf, exceptions: worst or raise.")] = None,
    history: Annotated[bool, typer.Option("--history/--no-history", help="Keep values by generation.")] = True,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the run to this folder.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, for scripts.")] = False,
    use_cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep compiled programs on disk (GALAPAX_CACHE=FOLDER or off).")
    ] = True,
) -> None:
    """Minimise a problem and show the answer.

    FILE.py holds a `problem` (a galapax Problem), or `fun` and `bounds` (and `ineq`, `eq` for constraints).
    """
    if use_cache:
        cache.enable()
    with clear_errors():
        result = minimize(
            find_problem(problem, dim),
            algorithm=find_algorithm(algorithm, setting or []),
            generations=generations,
            population=population,
            runs=runs,
            seed=seed,
            first_run=first_run,
            target=target,
            max_evaluations=max_evaluations,
            max_seconds=max_seconds,
            stall=stall,
            maximize=maximize,
            vectorized=vectorized,
            blackbox=blackbox,
            dtype=dtype,
            on_failure=on_failure,
            history=history,
            progress=not (quiet or as_json),
        )
        if as_json:
            print(json.dumps(plain_result(result), indent=1))
        elif not quiet:
            console.print(terminal.result_table(result))
        if out is not None:
            folder = result.save(out)
            if not (quiet or as_json):
                console.print(f"Saved to {folder}: {', '.join(sorted(f.name for f in folder.iterdir()))}")


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="algorithms, problems or all.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for scripts.")] = False,
) -> None:
    """Show the algorithms and the built-in problems, with their key facts."""
    with clear_errors():
        if what not in ("all", "algorithms", "problems"):
            raise InputError(f"list shows algorithms, problems or all; got {what!r}.")
        facts = {
            name: table
            for name, table in (("algorithms", terminal.algorithm_facts), ("problems", terminal.problem_facts))
            if what in ("all", name)
        }
        for name, table in facts.items():
            if as_json:
                print(json.dumps({name: table()}, indent=1))
            else:
                console.print(terminal.fact_table(name, table()))


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="fep: fast evolutionary programming on graphics hardware.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer generations and trials, under a minute.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save tables, figures and a page here.")] = None,
) -> None:
    """Run a published system again and print its tables, ours beside the printed ones."""
    from galapax.papers import fep

    with clear_errors():
        if paper != "fep":
            raise InputError(f"the papers that can be reproduced are: fep; got {paper!r}.")
        cache.enable()
        print(fep.reproduce(quick, out, lambda line: print(line, file=sys.stderr)))


def find_problem(name: str, dim: int | None) -> Problem:
    """A built-in problem by name, or the problem in a Python file."""
    if name.endswith(".py") or "/" in name:
        if dim is not None:
            raise InputError("--dim is for built-in problems; a file says itself how many variables it has.")
        return load_file(Path(name))
    found = problems.get(name) if dim is None else problems.get(name, dim=dim)
    if isinstance(found, MinMaxProblem):
        raise InputError(f"{name} is a min-max problem, of x and y; solve takes problems of x alone.")
    return found


def load_file(path: Path) -> Problem:
    """Run a Python file and take the problem it defines."""
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as `python FILE.py` does, so that it finds its neighbours
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path} could not be run: {type(error).__name__}: {error}") from error
    names = vars(module)
    if isinstance(names.get("problem"), Problem):
        return names["problem"]
    if "fun" in names and "bounds" in names:
        return Problem(names["fun"], names["bounds"], ineq=names.get("ineq"), eq=names.get("eq"), name=path.stem)
    raise InputError(f"{path} defines neither `problem` (a galapax Problem) nor `fun` and `bounds`; add one of them.")


def find_algorithm(name: str | None, settings: list[str]) -> Algorithm | None:
    """The algorithm by name, with `--set` values in the types of its hyper-parameters."""
    if name is None and not settings:
        return None
    algorithm = algorithms.resolve(name)
    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or key not in fields:
            raise InputError(f"--set takes NAME=VALUE with NAME one of {', '.join(fields)}; got {text!r}.")
        values[key] = _parse(key, value, fields[key])
    return dataclasses.replace(algorithm, **values)  # type: ignore[type-var]


def _parse(name: str, text: str, like: Any) -> Any:
    if callable(like):
        choices = {f.__name__: f for f in (mutation.rand_1, mutation.best_1)}
        if text not in choices:
            raise InputError(f"--set {name} takes {' or '.join(choices)}; got {text!r}.")
        return choices[text]
    try:
        return type(like)(text)
    except ValueError:
        raise InputError(f"--set {name} takes a {type(like).__name__}; got {text!r}.") from None


class clear_errors:
    """One sentence and exit code 2 for what the user can mend; anything else is a defect and shows its traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, InputError | EvaluationError | OSError):
            Console(stderr=True).print(f"[bold red]galapax:[/] {error}", highlight=False, soft_wrap=True)
            raise typer.Exit(2)
