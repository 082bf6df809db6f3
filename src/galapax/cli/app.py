"""The command line: parse, call the library, print; the commands that compute and those that inspect."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import typer
from typer.core import TyperGroup

from galapax import algorithms
from galapax.api.experiments import compare as run_compare
from galapax.api.experiments import sweep as run_sweep
from galapax.api.illuminate import illuminate as find_map
from galapax.api.minima import minima as find_minima
from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.cli import output, parsing
from galapax.cli import shell_options as options
from galapax.cli.selftest import checks as run_checks
from galapax.core.errors import InputError
from galapax.core.problem import MinMaxProblem
from galapax.execution.observers import Live
from galapax.numerics import devices, disk_cache
from galapax.papers import PAPERS
from galapax.results.result import Result
from galapax.results.study import Study
from galapax.storage import gagpu
from galapax.storage.export import write_csv_files, write_json_file
from galapax.storage.result_folder import load
from galapax.version import __version__
from galapax.view import terminal


def view(
    folder: options.SavedFolder,
    open_page: options.OpenReport = False,
    png: options.Png = False,
    gif: options.Gif = False,
    form: options.Form = "genome",
    export: options.Export = None,
    out: options.WriteTo = None,
    live: options.Replayed = False,
    port: options.Port = None,
    host: options.Host = None,
) -> None:
    """Show a saved run, open its report, replay it in the browser, draw its figures, or export it to files."""
    with output.report_errors():
        if export not in (None, "csv", "json", "gagpu"):
            raise InputError(f"--export takes csv, json or gagpu; got {export!r}.")
        saved = load(folder)
        if isinstance(saved, Study) and (gif or export == "gagpu"):
            what = "moving maps show one run" if gif else "GAGPU's files describe the runs of one setting"
            raise InputError(f"{folder} holds a {saved.kind}; {what}.")
        files = []
        if open_page:
            output.open_report(folder)
        if png:
            drawn, missing = saved.plot.save(out or folder / "pictures")
            files += drawn
            for name, why in missing.items():
                output.print_line(f"No {name}.png: {why}", style="dim")
        if gif and isinstance(saved, Result):
            target = out or folder
            files.append(saved.plot.gif(target if target.suffix == ".gif" else target / "maps.gif", form=form))
        if export == "csv":
            tables = write_csv_files(saved, out or folder)
            output.print_line(f"Tables saved in {tables[0].parent}: {', '.join(t.name for t in tables)}")
        elif export == "json":
            target = out or folder
            files.append(target if target.suffix == ".json" else target / "export.json")
            write_json_file(saved, files[-1])
        elif export == "gagpu" and isinstance(saved, Result):
            files += gagpu.export(saved, out or folder)
        output.print_written_files(files)
        page = output.parse_live(
            options.Arguments(live=live, port=port, host=host, open_page=True, paused=False, quiet=False)
        )
        if page is not None:
            if isinstance(saved, Study):
                raise InputError(f"{folder} holds a {saved.kind}; --live replays a single result.")
            output.replay_on_page(page, saved, folder)
            return
        if not (open_page or png or gif or export):
            output.console.print(output.build_tables(saved))


def list_(what: options.Listed = "all", as_json: options.AsJson = False) -> None:
    """Show the algorithms and the built-in problems, with their key facts."""
    with output.report_errors():
        if what not in ("all", "algorithms", "problems"):
            raise InputError(f"list takes algorithms, problems or all; got {what!r}.")
        facts = {
            name: table
            for name, table in (("algorithms", terminal.algorithm_facts), ("problems", terminal.problem_facts))
            if what in ("all", name)
        }
        for name, table in facts.items():
            if as_json:
                print(json.dumps({name: table()}, indent=1))
            else:
                output.console.print(terminal.fact_table(name, table()))


def selftest(as_json: options.AsJson = False, quiet: options.Quiet = False) -> None:
    """Check galapax on this machine: known optima, operators, CPU against device, resume after a kill, speed."""
    with output.report_errors():
        disk_cache.enable()
        checks, began = [], time.perf_counter()
        for check in run_checks():
            checks.append(check)
            if not (as_json or quiet):
                mark = "[green]✓[/]" if check.passed else "[red]✗[/]"
                output.console.print(f"{mark} {check.what}: {check.found}", highlight=False)
        failed = sum(not check.passed for check in checks)
        if as_json:
            print(
                json.dumps({"device": devices.device_name(), "checks": [check._asdict() for check in checks]}, indent=1)
            )
        elif not quiet:
            verdict = "all checks passed" if not failed else f"{failed} of {len(checks)} failed"
            where = f"{devices.device_name()}, jax {jax.__version__}, galapax {__version__}"
            output.console.print(f"{verdict} ({where}, {time.perf_counter() - began:.0f} s)", highlight=False)
        raise typer.Exit(1 if failed else 0)


def reproduce(paper: options.PaperName, quick: options.Quick = False, out: options.PaperOut = None) -> None:
    """Reproduce published results and print our tables next to the published ones."""
    with output.report_errors():
        if paper not in (*PAPERS, "all"):
            raise InputError(f"reproduce takes {', '.join(PAPERS)} or all; got {paper!r}.")
        output.check_folder(out, force=True)
        disk_cache.enable()
        reproduction = importlib.import_module("galapax.papers.reproduction")  # by name: papers build on the rest
        for name in PAPERS if paper == "all" else (paper,):
            folder = out / name if out is not None and paper == "all" else out
            loaded = reproduction.load_paper(name)
            print(reproduction.reproduce(loaded, quick, folder, lambda line: print(line, file=sys.stderr)))


class Commands(TyperGroup):
    """The commands, whose help shows no type for flags: they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _hide_types_of_flags(command.get_params(ctx))
        return command


def _hide_types_of_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


app = typer.Typer(
    cls=Commands,
    help="Evolutionary optimisation, compiled with JAX for GPUs and CPUs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def main(version: options.Version = False) -> None:
    """Evolutionary optimisation, compiled with JAX for GPUs and CPUs."""


@app.command(epilog=options.EXIT_CODES)
@options.accept_options(options.run_options(), **options.SOLVE)
def solve(context: typer.Context, problem: options.ProblemName, arguments: options.Arguments) -> None:
    """Minimise a problem and show the answer.

    FILE.py defines a `problem` (a galapax Problem), or `fun` and `bounds` (and `ineq`, `eq` for constraints).
    """
    run_solve(context, problem, arguments)


def run_solve(context: typer.Context, problem: str, arguments: options.Arguments) -> None:
    """Do what `solve` and `resume` ask for."""
    if arguments.use_cache:
        disk_cache.enable()
    else:
        disk_cache.disable()
    with output.report_errors(problem):
        devices.connect(arguments.coordinator, arguments.process_id, arguments.num_processes)
        if devices.process_index():  # the first one shows and writes
            arguments.quiet, arguments.as_json, arguments.out, arguments.live = True, False, None, False
        quiet, as_json, out = arguments.quiet, arguments.as_json, arguments.out
        page = output.parse_live(arguments)
        output.check_folder(out, arguments.force, "result.json")
        watchers = {
            "progress": not (quiet or as_json),
            "live": page,
            "checkpoint": parsing.parse_checkpoint(problem, arguments),
            "resume": arguments.resume,
        }
        config = parsing.apply_gagpu_config(arguments, problem)
        loaded = parsing.load_problem(problem, arguments.dim, minmax=True)
        arguments.maximize = parsing.parse_directions(arguments)
        arguments.target = parsing.parse_target(loaded, arguments.target, arguments.within, arguments.maximize)
        choice = None
        if isinstance(loaded, MinMaxProblem):
            parsing.refuse_min_max(arguments, problem)
            algorithm = parsing.parse_game_algorithm(loaded, arguments)
            runs = parsing.parse_runs(arguments)
            result = minimax(
                loaded,
                algorithm=algorithm,
                **options.collect_options(arguments, runs=runs, history=arguments.history),
                **watchers,
            )
        else:
            algorithm = parsing.parse_algorithm_options(arguments, loaded)
            if config is not None:
                algorithm = config.algorithm_for(loaded, problem)
            choice = parsing.check_choice(arguments, loaded)
            with_x = arguments.history and (arguments.history_x or arguments.runs in (None, 1) or config is not None)
            parsed = {
                "runs": parsing.parse_runs(arguments),
                "islands": parsing.parse_islands(arguments),
                "history": "x" if with_x else arguments.history,
                "snapshots": parsing.parse_snapshots(arguments),
                "x0": parsing.read_points(arguments.x0, loaded.dim),
                "workers_timeout": parsing.parse_workers_timeout(arguments.workers_timeout),
            }
            call = options.collect_options(arguments, **parsed)
            call["restarts"] = parsing.parse_restarts(arguments, algorithm)
            result = minimize(loaded, algorithm=algorithm, **call, **watchers)
        choice_error = output.mark_chosen(result, choice)
        if context.command.name == "solve":  # `resume` comes here, too
            result["command"] = output.command_line(context)
        output.print_result(result, out, quiet, as_json)
        output.finish_page(page, result, out)
        output.print_resume_hint(result, arguments.checkpoint, quiet or as_json)
        if choice_error is not None:
            raise choice_error
        output.wait_on_page(page, arguments.wait, quiet)
        raise typer.Exit(output.exit_code(result))


@app.command(name="resume", epilog=options.EXIT_CODES)
@options.accept_options(
    ("max_seconds", "threads"), out=options.Out, force=options.Force, quiet=options.Quiet, as_json=options.AsJson
)
def resume_run(
    context: typer.Context,
    file: options.ResumedFile,
    arguments: options.Arguments,
    problem: options.ResumedProblem = None,
) -> None:
    """Continue a run of `galapax solve --checkpoint FILE` as if it had never stopped."""
    with output.report_errors():
        saved = parsing.read_checkpoint_options(file, problem)
    defaults = dict.fromkeys((*options.run_options(), *options.SOLVE)) | options.DEFAULTS | saved
    now = vars(arguments) | {"checkpoint": file, "resume": True}
    if arguments.out is None:
        del now["out"], now["force"]
    run_solve(context, str(saved["problem"]), options.Arguments(**defaults | now))


SWEEP = ("generations", "max_evaluations", "target", "max_seconds", "seed", "maximize", "blackbox", "workers",
         "dtype", "threads", "engine")  # fmt: skip


@app.command(epilog=options.EXIT_CODES)
@options.accept_options(SWEEP, directions=options.Directions, within=options.Within, runs=options.RunsOfEach,
               dim=options.Dim, out=options.Out, force=options.Force, quiet=options.Quiet,
               as_json=options.AsJson)  # fmt: skip
def sweep(
    problem: options.ProblemName,
    setting: options.SweptSettings,
    arguments: options.Arguments,
    algorithm: options.SweptAlgorithm = "ga",
) -> None:
    """Run every combination of the given hyper-parameters many times, in one computation.

    For example: galapax sweep ackley -a ga --set fr=1,1.5,2 --set sigma=0.1,0.5,1 --runs 1000
    """
    disk_cache.enable()
    quiet, as_json = arguments.quiet, arguments.as_json
    with output.report_errors(problem):
        output.check_folder(arguments.out, arguments.force, "study.json")
        template = algorithms.get(algorithm)
        loaded = parsing.load_problem(problem, arguments.dim)
        arguments.maximize = parsing.parse_directions(arguments)
        arguments.target = parsing.parse_target(loaded, arguments.target, arguments.within, arguments.maximize)
        study = run_sweep(
            loaded,
            None,
            template,
            **parsing.parse_settings(template, setting, several=True),
            **options.collect_options(arguments),
            progress=not (quiet or as_json),
        )
        output.print_result(study, arguments.out, quiet, as_json)
        raise typer.Exit(output.exit_code(study))


@app.command(epilog=options.EXIT_CODES)
@options.accept_options(("seed", "dtype", "threads"), algorithm=options.AlgorithmNames, problem=options.ProblemNames,
               suite=options.Suite, dim=options.SuiteDim, instance=options.Instance, runs=options.RunsOfEach,
               max_evaluations=options.Budget, within=options.WithinDistance, target=options.NoTarget,
               paired=options.Paired, checkpoint=options.SOLVE["checkpoint"], checkpoint_every=options.CheckpointEvery,
               resume=options.Resume, out=options.Out, force=options.Force, quiet=options.Quiet,
               as_json=options.AsJson)  # fmt: skip
def compare(arguments: options.Arguments) -> None:
    """Run several algorithms on several problems with the same number of evaluations; test for significant differences.

    For example: galapax compare -p ackley,rastrigin,g06 -a de,fep,ga --runs 30 --within 1e-3
    Or the BBOB suite, with its usual target 1e-8: galapax compare --suite bbob --dim 10
    """
    disk_cache.enable()
    quiet, as_json, suite = arguments.quiet, arguments.as_json, arguments.suite
    with output.report_errors():
        output.check_folder(arguments.out, arguments.force, "study.json")
        problems = parsing.load_problems(arguments.problem, suite, arguments.dim, arguments.instance)
        if arguments.target is not None:
            raise InputError("compare takes no --target, because optimal values differ: use --within DISTANCE.")
        within = parsing.SUITE_TARGET if suite is not None and arguments.within is None else arguments.within
        study = run_compare(
            problems,
            parsing.parse_algorithms(arguments.algorithm, suite),
            within=within,
            paired=arguments.paired,
            checkpoint=parsing.parse_checkpoint("", arguments, command=""),
            resume=arguments.resume,
            **options.collect_options(arguments),
            progress=not (quiet or as_json),
        )
        output.print_result(study, arguments.out, quiet, as_json)
        if arguments.checkpoint is not None and study.stop.early and not (quiet or as_json):
            output.print_line(REPEAT_HINT)
        raise typer.Exit(output.exit_code(study))


REPEAT_HINT = "To continue: repeat the command with --resume."
WATCHED = {name: options.SOLVE[name] for name in ("checkpoint", "checkpoint_every", "resume", "out", "force", "quiet",
                                                  "as_json", "use_cache", "first_run", "live", "port", "host",
                                                  "open_page", "wait", "paused")}  # fmt: skip
EVALUATED = ("max_evaluations", "max_seconds", "runs", "seed", "maximize", "blackbox", "workers", "timeout", "retries",
             "workers_timeout", "dtype")  # fmt: skip


@app.command(epilog=options.EXIT_CODES)
@options.accept_options((*EVALUATED, "polish"), dim=options.Dim, within=options.WorseBy, global_only=options.GlobalOnly,
               unseen=options.Unseen, **WATCHED)  # fmt: skip
def minima(context: typer.Context, problem: options.ProblemName, arguments: options.Arguments) -> None:
    """Find all minima of a problem, or the best ones, and say how many may be missing.

    For example: galapax minima branin --global-only
    """
    with prepare_many(problem, arguments) as watchers:
        choice = {name: getattr(arguments, name) for name in ("global_only", "within", "unseen")}
        choice = {name: value for name, value in choice.items() if value is not None}
        loaded = parsing.load_problem(problem, arguments.dim)
        result = find_minima(loaded, **choice, **collect_evaluated(arguments), **watchers)
        end_many(context, result, arguments, watchers["live"])


@app.command(epilog=options.EXIT_CODES)
@options.accept_options((*EVALUATED, "generations", "threads", "engine"), cells=options.Cells, **WATCHED)
def illuminate(
    context: typer.Context,
    problem: options.MeasuresFile,
    arguments: options.Arguments,
    algorithm: options.MapAlgorithm = "map_elites",
) -> None:
    """Find the best solution for each combination of measures, and save a map of them.

    FILE.py defines `fun`, `bounds`, `measures` and `ranges`, as gx.illuminate takes them (and `ineq`, `eq`, `cells`).
    """
    with prepare_many(problem, arguments) as watchers:
        call = parsing.load_illumination(Path(problem)) | collect_evaluated(arguments) | watchers
        if arguments.cells is not None:
            call["cells"] = parsing.parse_cells(arguments.cells)
        result = find_map(**call, algorithm=algorithm).result
        end_many(context, result, arguments, watchers["live"])


@contextlib.contextmanager
def prepare_many(problem: str, arguments: options.Arguments) -> Iterator[dict[str, Any]]:
    """Prepare what `minima` and `illuminate` share, and yield what watches the run."""
    (disk_cache.enable if arguments.use_cache else disk_cache.disable)()
    with output.report_errors(problem):
        output.check_folder(arguments.out, arguments.force, "result.json")
        yield {
            "progress": not (arguments.quiet or arguments.as_json),
            "checkpoint": parsing.parse_checkpoint(problem, arguments, command=""),
            "resume": arguments.resume,
            "live": output.parse_live(arguments),
        }


def collect_evaluated(arguments: options.Arguments) -> dict[str, Any]:
    """The options of a run that `minima` and `illuminate` share."""
    limit = parsing.parse_workers_timeout(arguments.workers_timeout)
    return options.collect_options(arguments, runs=parsing.parse_runs(arguments), workers_timeout=limit)


def end_many(context: typer.Context, result: Result, arguments: options.Arguments, page: Live | None) -> None:
    """Print and save a result, and leave with its exit code."""
    result["command"] = output.command_line(context)
    output.finish_page(page, result, arguments.out)
    output.print_result(result, arguments.out, arguments.quiet, arguments.as_json)
    if arguments.checkpoint is not None and result.stop.early and not (arguments.quiet or arguments.as_json):
        output.print_line(REPEAT_HINT)
    output.wait_on_page(page, arguments.wait, arguments.quiet)
    raise typer.Exit(output.exit_code(result))


app.command()(view)
app.command("list")(list_)
app.command()(selftest)
app.command()(reproduce)
