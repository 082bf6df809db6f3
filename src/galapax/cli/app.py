"""The command line: parse, call the library, print."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import re
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from galapax import algorithms, problems
from galapax.algorithms.cde import CDE
from galapax.compare import compare as run_compare
from galapax.core.algorithm import Algorithm
from galapax.core.errors import EvaluationError, InputError
from galapax.core.problem import MinMaxProblem, Problem
from galapax.minimax import minimax
from galapax.minimize import minimize
from galapax.numerics import cache
from galapax.operators import mutation
from galapax.results.result import Result
from galapax.results.study import Study
from galapax.running.observers import LOOPBACK, Live
from galapax.running.task import DEFAULT_GENERATIONS
from galapax.storage import gagpu
from galapax.storage.export import to_csv, to_one_json
from galapax.storage.folders import front_table, load, plain_result, to_json
from galapax.sweep import sweep as run_sweep
from galapax.view import terminal
from galapax.view.live import is_served

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
    runs: Annotated[int | None, typer.Option("--runs", "-r", help="Independent runs, computed together (1).")] = None,
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
    history_x: Annotated[
        bool, typer.Option("--history-x", help="Keep the best x of every generation, too (single runs always do).")
    ] = False,
    snapshots: Annotated[
        str | None, typer.Option(help="Keep whole populations, for maps: after generations 1,10,100, or every:10.")
    ] = None,
    initial: Annotated[
        Path | None, typer.Option(help="A CSV file of points to start from, one a row, such as population.csv.")
    ] = None,
    archive: Annotated[
        int | None, typer.Option(help="Several objectives: keep so many of the non-dominated points seen.")
    ] = None,
    choose: Annotated[
        str | None,
        typer.Option(help="Several objectives: also show the point that ideal, or weights (0.7,0.3), choose."),
    ] = None,
    gagpu_config: Annotated[
        Path | None, typer.Option(help="Take algorithm, size, generations and runs from GAGPU's config.h.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the run to this folder.")] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show the run on a page in the browser while it goes on.")
    ] = False,
    port: Annotated[int | None, typer.Option(help="Of the live page; by default a free one.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Where the live page listens (127.0.0.1); elsewhere it needs the token printed.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the live page in a browser.")] = True,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Keep the live page up after the run.")] = True,
    paused: Annotated[bool, typer.Option("--paused", help="Start paused, for the live page to go on.")] = False,
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
        page = find_page(live, port, host, open_page, paused, quiet)
        chosen: Algorithm | None
        if gagpu_config is not None:
            config = gagpu.read_config(gagpu_config)
            for name, given in (("--algorithm", algorithm), ("--set", setting), ("--population", population)):
                if given:
                    raise InputError(f"{name} and --gagpu-config both choose the algorithm: leave one out.")
            chosen = gagpu.algorithm_of(config)
            generations = config["NO_GEN"] if generations is None else generations
            runs = config["NO_TESTS"] if runs is None else runs
            dim, history_x = _gagpu_dim(problem, dim, config["NO_VAR"]), True
        else:
            chosen = find_algorithm(algorithm, setting or [])
        wanted = find_problem(problem, dim, minmax=True)
        if isinstance(wanted, MinMaxProblem):
            for option, value in (
                ("--max-evaluations", max_evaluations),
                ("--stall", stall),
                ("--target", target),
                ("--snapshots", snapshots),
            ):
                if value is not None:
                    raise InputError(
                        f"{option} is not for min-max problems; they have --generations and --max-seconds."
                    )
            if chosen is not None and not isinstance(chosen, CDE):
                raise InputError(f"{problem} is a min-max problem, which cde solves; leave --algorithm out.")
            result = minimax(
                wanted,
                algorithm=chosen,
                population=population,
                generations=4000 if generations is None else generations,
                runs=1 if runs is None else runs,
                seed=seed,
                max_seconds=max_seconds,
                dtype=dtype or "float64",
                progress=not (quiet or as_json),
                live=page,
            )
            show_result(result, out, quiet, as_json)
            keep_page(page, wait, quiet)
            return
        if gagpu_config is not None and wanted.dim != config["NO_VAR"]:
            raise InputError(
                f"NO_VAR in {gagpu_config} is {config['NO_VAR']} and {problem} has {wanted.dim} variables."
            )
        runs = 1 if runs is None else runs
        result = minimize(
            wanted,
            algorithm=chosen,
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
            history="x" if history and (history_x or runs == 1) else history,
            snapshots=parse_snapshots(snapshots, generations, max_evaluations is None and max_seconds is None),
            initial=None if initial is None else read_points(initial, wanted.dim),
            archive=archive,
            progress=not (quiet or as_json),
            live=page,
        )
        trouble = None
        if choose is not None:
            try:
                result.choose(parse_choice(choose))
                result["chosen"] = parse_choice(choose)
            except InputError as error:  # what was computed is shown and saved all the same
                trouble = error
        show_result(result, out, quiet, as_json)
        if trouble is not None:
            raise trouble
        keep_page(page, wait, quiet)


@app.command()
def sweep(
    problem: Annotated[str, typer.Argument(help="A built-in problem (see `galapax list`), or FILE.py.")],
    setting: Annotated[
        list[str],
        typer.Option("--set", "-s", metavar="NAME=V1,V2,...", help="A hyper-parameter and its values; several times."),
    ],
    algorithm: Annotated[str, typer.Option("--algorithm", "-a", help="Its name.")] = "ga",
    dim: Annotated[int | None, typer.Option(help="Number of variables, for built-in problems of any size.")] = None,
    generations: Annotated[int | None, typer.Option("--generations", "-g", help="At most so many (1000).")] = None,
    max_evaluations: Annotated[int | None, typer.Option(help="Evaluations that one run may spend.")] = None,
    runs: Annotated[int, typer.Option("--runs", "-r", help="Runs of each setting.")] = 30,
    seed: Annotated[int, typer.Option(help="Repeats the sweep exactly.")] = 0,
    target: Annotated[float | None, typer.Option(help="Stop a run once it is at least this good.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    maximize: Annotated[bool, typer.Option("--maximize", help="Look for the largest value.")] = False,
    blackbox: Annotated[bool, typer.Option("--blackbox", help="The functions are plain Python or NumPy.")] = False,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save tables, pictures and data here.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, for scripts.")] = False,
) -> None:
    """Run every combination of some hyper-parameters many times, as one computation.

    For example: galapax sweep ackley -a ga --set fr=1,1.5,2 --set sigma=0.1,0.5,1 --runs 1000
    """
    cache.enable()
    with clear_errors():
        template = algorithms.get(algorithm)
        study = run_sweep(
            find_problem(problem, dim),
            None,
            template,
            **parse_settings(template, setting, several=True),
            generations=generations,
            max_evaluations=max_evaluations,
            runs=runs,
            seed=seed,
            target=target,
            max_seconds=max_seconds,
            maximize=maximize,
            blackbox=blackbox,
            dtype=dtype,
            progress=not (quiet or as_json),
        )
        show_study(study, out, quiet, as_json)


@app.command()
def compare(
    problem: Annotated[list[str], typer.Option("--problems", "-p", help="Problems, separated by commas.")],
    algorithm: Annotated[
        list[str],
        typer.Option(
            "--algorithms",
            "-a",
            help="Algorithms, separated by commas; with hyper-parameters: de:weight=0.7:population=50.",
        ),
    ],
    runs: Annotated[int, typer.Option("--runs", "-r", help="Runs of each algorithm on each problem.")] = 30,
    max_evaluations: Annotated[int, typer.Option(help="Evaluations that one run may spend.")] = 20_000,
    target: Annotated[float | None, typer.Option(help="A run this close to the best known value succeeds.")] = None,
    paired: Annotated[bool, typer.Option("--paired", help="Compare runs seed by seed (Wilcoxon).")] = False,
    seed: Annotated[int, typer.Option(help="Repeats the comparison exactly.")] = 0,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save tables, pictures and data here.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, for scripts.")] = False,
) -> None:
    """Run several algorithms on several problems with the same evaluations, and say which differ.

    For example: galapax compare -p ackley,rastrigin,g06 -a de,fep,ga --runs 30 --target 1e-3
    """
    cache.enable()
    with clear_errors():
        named = [n for text in algorithm for n in text.split(",") if n]
        solvers = [find_algorithm(n.split(":")[0], n.split(":")[1:]) for n in named]
        study = run_compare(
            [find_problem(n, None) for text in problem for n in text.split(",") if n],
            [s for s in solvers if s is not None],
            max_evaluations=max_evaluations,
            runs=runs,
            target=target,
            paired=paired,
            seed=seed,
            dtype=dtype,
            progress=not (quiet or as_json),
        )
        show_study(study, out, quiet, as_json)


@app.command()
def view(
    folder: Annotated[Path, typer.Argument(help="A saved run, sweep or comparison.")],
    open_page: Annotated[bool, typer.Option("--open", help="Open its report in the browser.")] = False,
    png: Annotated[
        bool, typer.Option("--png", help="Draw all its pictures, by default to the folder pictures.")
    ] = False,
    gif: Annotated[
        bool, typer.Option("--gif", help="Draw its convergence maps as a moving picture, maps.gif.")
    ] = False,
    form: Annotated[
        str, typer.Option(help="Of the moving maps: genome (four variables in a pixel) or variables (one a column).")
    ] = "genome",
    export: Annotated[
        str | None, typer.Option(help="csv: tables; json: all in one file; gagpu: History.txt and TestHist.txt.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write; by default the folder itself.")
    ] = None,
) -> None:
    """Show a saved run again, open its report, draw its pictures, or export it to files of other programs."""
    with clear_errors():
        if export not in (None, "csv", "json", "gagpu"):
            raise InputError(f"--export takes csv, json or gagpu; got {export!r}.")
        saved = load(folder)
        if isinstance(saved, Study) and (gif or export == "gagpu"):
            what = "moving maps show one run" if gif else "GAGPU's files describe the runs of one setting"
            raise InputError(f"{folder} holds a {saved.kind}; {what}.")
        files: list[Path] = []
        if open_page:
            open_report(folder)
        if png:
            drawn, missing = draw_pictures(saved, out or folder / "pictures")
            files += drawn
            for name, why in missing.items():
                console.print(f"No {name}.png: {why}", soft_wrap=True, highlight=False, style="dim")
        if gif and isinstance(saved, Result):
            target = out or folder
            files.append(saved.plot.gif(target if target.suffix == ".gif" else target / "maps.gif", form=form))
        if export == "csv":
            tables = to_csv(folder, out)
            console.print(
                f"Tables in {tables[0].parent}: {', '.join(t.name for t in tables)}", soft_wrap=True, highlight=False
            )
        elif export == "json":
            files.append(to_one_json(folder, out))
        elif export == "gagpu" and isinstance(saved, Result):
            files += gagpu.export(saved, out or folder)
        for parent in dict.fromkeys(file.parent for file in files):
            names = [file.name for file in files if file.parent == parent]
            shown = f"{len(names)} files, {names[0]} to {names[-1]}" if len(names) > 8 else ", ".join(names)
            console.print(f"Wrote to {parent}: {shown}", soft_wrap=True, highlight=False)
        if not (open_page or png or gif or export):
            console.print(terminal.study_tables(saved) if isinstance(saved, Study) else terminal.result_table(saved))


def open_report(folder: Path) -> None:
    """Open the page of a saved run, and say where it is."""
    page = folder / "report.html"
    if not page.is_file():
        raise InputError(f'{folder} has no report.html: pip install "galapax[view]" and save the run again.')
    opened = webbrowser.open(page.resolve().as_uri())
    where = f"The report is {page.resolve()}"
    console.print(where if opened else f"{where}; no browser was found to open it.", soft_wrap=True, highlight=False)


def draw_pictures(saved: Result | Study, folder: Path) -> tuple[list[Path], dict[str, str]]:
    """All pictures of a run or a study as PNG files, and for those that there are not the reason."""
    if isinstance(saved, Result):
        return saved.plot.save(folder)
    from galapax.view import plots

    folder.mkdir(parents=True, exist_ok=True)
    figures = {"convergence": plots.study_convergence}
    if saved.kind == "comparison":
        figures["ecdf"] = plots.running_times
    for name, draw in figures.items():
        draw(saved).savefig(folder / f"{name}.png", dpi=130)
    return [folder / f"{name}.png" for name in figures], {}


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


PAPERS = ("fep", "gagpu", "cde", "moea")


@app.command()
def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            help="fep (evolutionary programming), gagpu (three-parent GA), cde (co-evolution), moea, or all."
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything, under a minute.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save tables, figures and a page here.")] = None,
) -> None:
    """Run a published system again and print its tables, ours beside the printed ones."""
    from galapax.papers.common import reproduce as run_paper

    with clear_errors():
        if paper not in (*PAPERS, "all"):
            raise InputError(f"the papers that can be reproduced are: {', '.join(PAPERS)} or all; got {paper!r}.")
        cache.enable()
        for name in PAPERS if paper == "all" else (paper,):
            module = importlib.import_module(f"galapax.papers.{name}")
            folder = out / name if out is not None and paper == "all" else out
            print(run_paper(module.PAPER, quick, folder, lambda line: print(line, file=sys.stderr)))


def find_problem(name: str, dim: int | None, minmax: bool = False) -> Any:
    """A built-in problem by name, or the problem in a Python file; min-max problems only where they are wanted."""
    if name.endswith(".py") or "/" in name:
        if dim is not None:
            raise InputError("--dim is for built-in problems; a file says itself how many variables it has.")
        return load_file(Path(name))
    found = problems.get(name) if dim is None else problems.get(name, dim=dim)
    if isinstance(found, MinMaxProblem) and not minmax:
        raise InputError(f"{name} is a min-max problem, of x and y; galapax solve takes it, with cde.")
    return found


def load_file(path: Path) -> Problem | MinMaxProblem:
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
    if isinstance(names.get("problem"), Problem | MinMaxProblem):
        return names["problem"]
    if "fun" in names and "bounds" in names:
        return Problem(names["fun"], names["bounds"], ineq=names.get("ineq"), eq=names.get("eq"), name=path.stem)
    raise InputError(f"{path} defines neither `problem` (a galapax Problem) nor `fun` and `bounds`; add one of them.")


def find_algorithm(name: str | None, settings: list[str]) -> Algorithm | None:
    """The algorithm by name, with `--set` values in the types of its hyper-parameters."""
    if name is None and not settings:
        return None
    algorithm = algorithms.resolve(name)
    return dataclasses.replace(algorithm, **parse_settings(algorithm, settings))  # type: ignore[type-var]


def parse_settings(algorithm: Algorithm, settings: list[str], several: bool = False) -> dict[str, Any]:
    """{name: value} from NAME=VALUE; with `several`, NAME=V1,V2 gives a list."""
    fields = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or key not in fields:
            raise InputError(f"--set takes NAME=VALUE with NAME one of {', '.join(fields)}; got {text!r}.")
        if key in values:
            raise InputError(
                f"--set names {key} twice; give each name once{', its values separated by commas' * several}."
            )
        parts = value.split(",") if several else [value]
        parsed = [_parse(key, part, fields[key]) for part in parts]
        values[key] = parsed if several and len(parsed) > 1 else parsed[0]
    return values


def _parse(name: str, text: str, like: Any) -> Any:
    choices: dict[str, Any] = {}
    if callable(like):
        choices = {f.__name__: f for f in (mutation.rand_1, mutation.best_1)}
    elif isinstance(like, bool):
        choices = {"true": True, "false": False}
    if choices:
        if text.lower() not in choices:
            raise InputError(f"--set {name} takes {' or '.join(choices)}; got {text!r}.")
        return choices[text.lower()]
    kind = float if like is None else type(like)  # None stands for a number that the algorithm works out by itself
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"--set {name} takes a {kind.__name__}; got {text!r}.") from None


def parse_choice(text: str) -> Any:
    """`knee` or `ideal`, or weights."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        return text


def parse_snapshots(text: str | None, generations: int | None, known: bool) -> Sequence[int]:
    """Generations from "1,10,100", or from "every:10": the first and then every tenth."""
    if text is None:
        return ()
    kind, colon, step = text.partition(":")
    try:
        if not colon:
            return [int(part) for part in text.split(",")]
        if kind != "every" or int(step) < 1:
            raise ValueError
    except ValueError:
        raise InputError(f"--snapshots takes generations such as 1,10,100, or every:10; got {text!r}.") from None
    if generations is None and not known:
        raise InputError("--snapshots every:K needs --generations, as it is not known how many there will be.")
    last = DEFAULT_GENERATIONS if generations is None else generations
    return sorted({1, *range(int(step), last + 1, int(step))})


def read_points(file: Path, dim: int) -> np.ndarray:
    """Points from a CSV file, one a row; a heading is skipped, and so are columns after the first `dim`."""
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        rows = [[cell for cell in re.split(r"[,;\s]+", line.strip()) if cell] for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} could not be read: {error}.") from None
    try:
        if rows and not _is_number(rows[0][0]):
            rows = rows[1:]
        return np.array([[float(cell) for cell in row[:dim]] for row in rows])
    except ValueError:
        raise InputError(f"{file} must hold points of {dim} numbers, one a row.") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _gagpu_dim(problem: str, dim: int | None, wanted: int) -> int | None:
    """The dimension to ask for: NO_VAR, for built-in problems of any size."""
    if dim is not None or problem.endswith(".py") or "/" in problem:
        return dim
    fixed = problems.get(problem)
    return None if isinstance(fixed, Problem) and fixed.dim == wanted else wanted


def show_result(result: Result, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Print a result, and save it."""
    if as_json:
        plain = plain_result(result)
        if "F" in result:
            names, table = front_table(result)
            plain["front"] = to_json(dict(zip(names, table.T, strict=True)))
        print(json.dumps(plain, indent=1))
    elif not quiet:
        console.print(terminal.result_table(result))
    if out is not None:
        folder = result.save(out)
        if not (quiet or as_json):
            console.print(f"Saved to {folder}: {', '.join(sorted(f.name for f in folder.iterdir()))}")


def find_page(
    live: bool, port: int | None, host: str | None, open_page: bool, paused: bool, quiet: bool
) -> Live | None:
    """The live page that is asked for."""
    if not live:
        if port is not None or host is not None or paused:
            raise InputError("--port, --host and --paused are for the live page: add --live.")
        return None
    errors = Console(stderr=True)

    def say(sentence: str) -> None:
        if not quiet:
            errors.print(sentence, highlight=False, soft_wrap=True)

    def warn(sentence: str) -> None:
        errors.print(f"[bold yellow]galapax:[/] {escape(sentence)}", highlight=False, soft_wrap=True)

    return Live(0 if port is None else port, host or LOOPBACK, open_page, paused, say=say, warn=warn)


def keep_page(page: Live | None, wait: bool, quiet: bool) -> None:
    """Keep the live page up until Ctrl-C."""
    if page is None or not wait or not is_served(page):
        return
    if not quiet:
        Console(stderr=True).print("The live page stays up until Ctrl-C.", highlight=False)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def show_study(study: Study, out: Path | None, quiet: bool, as_json: bool) -> None:
    """Print a study, and save it."""
    if as_json:
        print(json.dumps(to_json({"message": study.message, "cells": study.summary()}), indent=1))
    elif not quiet:
        console.print(terminal.study_tables(study))
    if out is not None:
        folder = study.save(out)
        if not (quiet or as_json):
            console.print(f"Saved to {folder}: {', '.join(sorted(f.name for f in folder.iterdir()))}")


class clear_errors:
    """One sentence and exit code 2 for what the user can mend; anything else is a defect and shows its traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, InputError | EvaluationError | OSError):
            Console(stderr=True).print(f"[bold red]galapax:[/] {error}", highlight=False, soft_wrap=True)
            raise typer.Exit(2)
