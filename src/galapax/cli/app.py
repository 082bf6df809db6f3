"""The command line: parse, call the library, print. The commands that compute are here, those that show in `look`."""

from __future__ import annotations

import typer

from galapax import algorithms
from galapax.api.compare import compare as run_compare
from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.api.sweep import sweep as run_sweep
from galapax.cli import find, look, options, show
from galapax.core.errors import InputError
from galapax.core.problem import MinMaxProblem
from galapax.numerics import disk_cache, processes

app = typer.Typer(
    help="Evolutionary optimisation that lives on the accelerator.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def main(version: options.Version = False) -> None:
    """Evolutionary optimisation that lives on the accelerator."""


@app.command(epilog=options.EXIT_CODES)
@options.takes(options.run_options(), **options.SOLVE)
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
    with show.clear_errors():
        processes.connect(arguments.coordinator, arguments.process_id, arguments.num_processes)
        if processes.process_index():  # the first one shows and writes
            arguments.quiet, arguments.as_json, arguments.out, arguments.live = True, False, None, False
        quiet, as_json, out = arguments.quiet, arguments.as_json, arguments.out
        page = show.find_page(
            arguments.live, arguments.port, arguments.host, arguments.open_page, arguments.paused, quiet
        )
        show.check_folder(out, arguments.force, "result.json")
        watchers = {
            "progress": not (quiet or as_json),
            "live": page,
            "checkpoint": find.find_checkpoint(problem, arguments),
            "resume": arguments.resume,
        }
        config = find.apply_gagpu_config(arguments, problem)
        wanted = find.find_problem(problem, arguments.dim, minmax=True)
        arguments.target = find.find_target(wanted, arguments.target, arguments.within, arguments.maximize)
        choice = None
        if isinstance(wanted, MinMaxProblem):
            find.refuse_min_max(arguments, problem)
            algorithm = find.find_game_algorithm(wanted, arguments)
            runs = find.find_runs(arguments)
            result = minimax(
                wanted,
                algorithm=algorithm,
                **options.given_options(arguments, runs=runs, history=arguments.history),
                **watchers,
            )
        else:
            algorithm = find.find_algorithm(arguments, wanted)
            if config is not None:
                algorithm = config.algorithm_for(wanted, problem)
            choice = find.find_choice(arguments, wanted)
            with_x = arguments.history and (arguments.history_x or arguments.runs in (None, 1) or config is not None)
            parsed = {
                "runs": find.find_runs(arguments),
                "islands": find.find_islands(arguments),
                "history": "x" if with_x else arguments.history,
                "snapshots": find.parse_snapshots(arguments),
                "x0": find.read_points(arguments.x0, wanted.dim),
                "workers_timeout": find.parse_workers_timeout(arguments.workers_timeout),
            }
            call = options.given_options(arguments, **parsed)
            call["restarts"] = find.find_restarts(arguments, algorithm)
            result = minimize(wanted, algorithm=algorithm, **call, **watchers)
        trouble = show.choose(result, choice)
        if context.command.name == "solve":  # `resume` comes here, too
            result["command"] = show.command_line(context)
        show.show(result, out, quiet, as_json)
        show.tell_page(page, result, out)
        show.say_resume(result, arguments.checkpoint, quiet or as_json)
        if trouble is not None:
            raise trouble
        show.keep_page(page, arguments.wait, quiet)
        raise typer.Exit(show.exit_code(result))


@app.command(name="resume", epilog=options.EXIT_CODES)
@options.takes(
    ("max_seconds", "threads"), out=options.Out, force=options.Force, quiet=options.Quiet, as_json=options.AsJson
)
def resume_run(
    context: typer.Context,
    file: options.ResumedFile,
    arguments: options.Arguments,
    problem: options.ResumedProblem = None,
) -> None:
    """Continue a run of `galapax solve --checkpoint FILE` as if it had never stopped."""
    with show.clear_errors():
        saved = find.read_checkpoint_options(file, problem)
    every = dict.fromkeys((*options.run_options(), *options.SOLVE)) | options.DEFAULTS | saved
    now = vars(arguments) | {"checkpoint": file, "resume": True}
    if arguments.out is None:
        del now["out"], now["force"]
    run_solve(context, str(saved["problem"]), options.Arguments(**every | now))


SWEEP = ("generations", "max_evaluations", "target", "max_seconds", "seed", "maximize", "blackbox", "dtype", "threads",
         "engine")  # fmt: skip


@app.command(epilog=options.EXIT_CODES)
@options.takes(SWEEP, runs=options.RunsOfEach, dim=options.Dim, out=options.Out, force=options.Force,
               quiet=options.Quiet, as_json=options.AsJson)  # fmt: skip
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
    with show.clear_errors():
        show.check_folder(arguments.out, arguments.force, "study.json")
        template = algorithms.get(algorithm)
        study = run_sweep(
            find.find_problem(problem, arguments.dim),
            None,
            template,
            **find.parse_settings(template, setting, several=True),
            **options.given_options(arguments),
            progress=not (quiet or as_json),
        )
        show.show(study, arguments.out, quiet, as_json)
        raise typer.Exit(show.exit_code(study))


@app.command(epilog=options.EXIT_CODES)
@options.takes(("seed", "dtype", "threads"), algorithm=options.AlgorithmNames, problem=options.ProblemNames,
               suite=options.Suite, dim=options.SuiteDim, instance=options.Instance, runs=options.RunsOfEach,
               max_evaluations=options.Budget, within=options.WithinDistance, target=options.NoTarget,
               paired=options.Paired, out=options.Out, force=options.Force, quiet=options.Quiet,
               as_json=options.AsJson)  # fmt: skip
def compare(arguments: options.Arguments) -> None:
    """Run several algorithms on several problems with the same number of evaluations, and test which differ.

    For example: galapax compare -p ackley,rastrigin,g06 -a de,fep,ga --runs 30 --within 1e-3
    Or the BBOB suite, with its usual target 1e-8: galapax compare --suite bbob --dim 10
    """
    disk_cache.enable()
    quiet, as_json, suite = arguments.quiet, arguments.as_json, arguments.suite
    with show.clear_errors():
        show.check_folder(arguments.out, arguments.force, "study.json")
        chosen = find.find_problems(arguments.problem, suite, arguments.dim, arguments.instance)
        if arguments.target is not None:
            raise InputError("--target is a value to reach, and problems differ in it: give a distance by --within.")
        within = find.SUITE_TARGET if suite is not None and arguments.within is None else arguments.within
        study = run_compare(
            chosen,
            find.named_algorithms(arguments.algorithm, suite),
            within=within,
            paired=arguments.paired,
            **options.given_options(arguments),
            progress=not (quiet or as_json),
        )
        show.show(study, arguments.out, quiet, as_json)
        raise typer.Exit(show.exit_code(study))


app.command()(look.view)
app.command("list")(look.list_)
app.command()(look.selftest)
app.command()(look.reproduce)
