"""The command line: parse, call the library, print. Commands that compute are here; see also inspect_commands.py."""

from __future__ import annotations

import typer

from galapax import algorithms
from galapax.api.compare import compare as run_compare
from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.api.sweep import sweep as run_sweep
from galapax.cli import error_report, inspect_commands, output, parsing
from galapax.cli import shell_options as options
from galapax.core.errors import InputError
from galapax.core.problem import MinMaxProblem
from galapax.numerics import disk_cache, processes

app = typer.Typer(
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
    with error_report.report_errors(problem):
        processes.connect(arguments.coordinator, arguments.process_id, arguments.num_processes)
        if processes.process_index():  # the first one shows and writes
            arguments.quiet, arguments.as_json, arguments.out, arguments.live = True, False, None, False
        quiet, as_json, out = arguments.quiet, arguments.as_json, arguments.out
        page = output.parse_live(
            arguments.live, arguments.port, arguments.host, arguments.open_page, arguments.paused, quiet
        )
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
    with error_report.report_errors():
        saved = parsing.read_checkpoint_options(file, problem)
    defaults = dict.fromkeys((*options.run_options(), *options.SOLVE)) | options.DEFAULTS | saved
    now = vars(arguments) | {"checkpoint": file, "resume": True}
    if arguments.out is None:
        del now["out"], now["force"]
    run_solve(context, str(saved["problem"]), options.Arguments(**defaults | now))


SWEEP = ("generations", "max_evaluations", "target", "max_seconds", "seed", "maximize", "blackbox", "dtype", "threads",
         "engine")  # fmt: skip


@app.command(epilog=options.EXIT_CODES)
@options.accept_options(SWEEP, directions=options.Directions, runs=options.RunsOfEach, dim=options.Dim, out=options.Out,
               force=options.Force, quiet=options.Quiet, as_json=options.AsJson)  # fmt: skip
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
    with error_report.report_errors(problem):
        output.check_folder(arguments.out, arguments.force, "study.json")
        template = algorithms.get(algorithm)
        arguments.maximize = parsing.parse_directions(arguments)
        study = run_sweep(
            parsing.load_problem(problem, arguments.dim),
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
               paired=options.Paired, out=options.Out, force=options.Force, quiet=options.Quiet,
               as_json=options.AsJson)  # fmt: skip
def compare(arguments: options.Arguments) -> None:
    """Run several algorithms on several problems with the same number of evaluations; test for significant differences.

    For example: galapax compare -p ackley,rastrigin,g06 -a de,fep,ga --runs 30 --within 1e-3
    Or the BBOB suite, with its usual target 1e-8: galapax compare --suite bbob --dim 10
    """
    disk_cache.enable()
    quiet, as_json, suite = arguments.quiet, arguments.as_json, arguments.suite
    with error_report.report_errors():
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
            **options.collect_options(arguments),
            progress=not (quiet or as_json),
        )
        output.print_result(study, arguments.out, quiet, as_json)
        raise typer.Exit(output.exit_code(study))


app.command()(inspect_commands.view)
app.command("list")(inspect_commands.list_)
app.command()(inspect_commands.selftest)
app.command()(inspect_commands.reproduce)
