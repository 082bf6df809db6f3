"""The command line: parse, call the library, print. The commands that compute are here, those that show in `look`."""

from __future__ import annotations

from typing import Any

import typer

from galapax import algorithms
from galapax.cli import find, look, options, show
from galapax.compare import compare as run_compare
from galapax.core.errors import InputError
from galapax.core.problem import MinMaxProblem
from galapax.minimax import minimax
from galapax.minimize import minimize
from galapax.numerics import disk_cache, processes
from galapax.sweep import sweep as run_sweep

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
def solve(
    context: typer.Context,
    problem: options.ProblemName,
    algorithm: options.AlgorithmName = None,
    setting: options.Settings = None,
    dim: options.Dim = None,
    generations: options.Generations = None,
    population: options.Population = None,
    runs: options.Runs = None,
    seed: options.Seed = 0,
    first_run: options.FirstRun = None,
    target: options.Target = None,
    within: options.Within = None,
    max_evaluations: options.MaxEvaluations = None,
    max_seconds: options.MaxSeconds = None,
    threads: options.Threads = None,
    spread: options.Spread = False,
    stall: options.Stall = None,
    tolerance: options.Tolerance = None,
    restarts: options.Restarts = "auto",
    polish: options.Polish = None,
    maximize: options.Maximize = False,
    vectorized: options.Vectorized = False,
    blackbox: options.Blackbox = False,
    dtype: options.Dtype = None,
    engine: options.Engine = "auto",
    on_failure: options.OnFailure = None,
    workers: options.Workers = None,
    timeout: options.Timeout = None,
    retries: options.Retries = 0,
    workers_timeout: options.WorkersTimeout = "auto",
    islands: options.Islands = None,
    migrate_every: options.MigrateEvery = None,
    migrants: options.Migrants = None,
    topology: options.Topology = None,
    coordinator: options.Coordinator = None,
    process_id: options.ProcessId = None,
    num_processes: options.NumProcesses = None,
    history: options.History = True,
    history_x: options.HistoryX = False,
    snapshots: options.Snapshots = None,
    initial: options.Initial = None,
    archive: options.Archive = None,
    choose: options.Choose = None,
    gagpu_config: options.GagpuConfig = None,
    checkpoint: options.CheckpointFile = None,
    checkpoint_every: options.CheckpointEvery = None,
    resume: options.Resume = False,
    out: options.Out = None,
    force: options.Force = False,
    live: options.LivePage = False,
    port: options.Port = None,
    host: options.Host = None,
    open_page: options.OpenPage = True,
    wait: options.Wait = True,
    paused: options.Paused = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
    use_cache: options.UseCache = True,
) -> None:
    """Minimise a problem and show the answer.

    FILE.py defines a `problem` (a galapax Problem), or `fun` and `bounds` (and `ineq`, `eq` for constraints).
    """
    if use_cache:
        disk_cache.enable()
    else:
        disk_cache.disable()
    with show.clear_errors():
        processes.connect(coordinator, process_id, num_processes)
        if processes.process_index():  # the first one shows and writes
            quiet, as_json, out, live = True, False, None, False
        page = show.find_page(live, port, host, open_page, paused, quiet)
        show.check_folder(out, force, "result.json")
        settings = setting or []
        kept = find.find_checkpoint(checkpoint, checkpoint_every, resume, context.params)
        config = None
        if gagpu_config is not None:
            given = (("--algorithm", algorithm), ("--set", setting), ("--population", population))
            config = find.from_gagpu(gagpu_config, problem, dim, given)
            dim = config.dim
            generations = config.generations if generations is None else generations
            runs = config.runs if runs is None else runs
        wanted = find.find_problem(problem, dim, minmax=True)
        target = find.find_target(wanted, target, within, maximize)
        runs = 1 if runs is None else runs
        progress = not (quiet or as_json)
        if isinstance(wanted, MinMaxProblem):
            not_taken = (
                ("--target", target, None),
                ("--max-evaluations", max_evaluations, None),
                ("--stall", stall, None),
                ("--tolerance", tolerance, None),
                ("--restarts", restarts, "auto"),
                ("--maximize", maximize, False),
                ("--vectorized", vectorized, False),
                ("--blackbox", blackbox, False),
                ("--workers", workers, None),
                ("--islands", islands, None),
                ("--timeout", timeout, None),
                ("--retries", retries, 0),
                ("--workers-timeout", workers_timeout, "auto"),
                ("--history-x", history_x, False),
                ("--snapshots", snapshots, None),
                ("--initial", initial, None),
                ("--archive", archive, None),
                ("--engine", engine, "auto"),
                ("--choose", choose, None),
                ("--gagpu-config", gagpu_config, None),
                ("--spread", spread, False),
            )
            find.refuse_given(not_taken, f"does not apply to min-max problems such as {problem}: remove it.")
            result = minimax(
                wanted,
                algorithm=find.find_game_algorithm(wanted, algorithm, settings, population),
                population=population,
                generations=generations,
                polish="auto" if polish is None else polish,
                runs=runs,
                seed=seed,
                first_run=first_run,
                max_seconds=max_seconds,
                threads=threads,
                dtype="float64" if dtype is None else dtype,
                on_failure=on_failure,
                progress=progress,
                history=history,
                live=page,
                checkpoint=kept,
                resume=resume,
            )
            choice = None
        else:
            default = find.default_for(wanted, blackbox or workers is not None, vectorized, dtype)
            chosen = find.find_algorithm(algorithm, settings, default, population)
            if config is not None:
                chosen = config.algorithm_for(wanted, problem)
            choice = find.find_choice(choose, wanted, blackbox or workers is not None, vectorized, dtype, population)
            asked: dict[str, Any] = {} if polish is None else {"polish": polish}
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
                threads=threads,
                spread=spread,
                stall=stall,
                tolerance=tolerance,
                restarts=find.find_restarts(restarts, algorithm, chosen),
                **asked,
                maximize=maximize,
                vectorized=vectorized,
                blackbox=blackbox,
                dtype=dtype,
                engine=engine,
                on_failure=on_failure,
                workers=workers,
                timeout=timeout,
                retries=retries,
                workers_timeout=find.parse_workers_timeout(workers_timeout),
                islands=find.find_islands(islands, migrate_every, migrants, topology),
                history="x" if history and (history_x or runs == 1 or config is not None) else history,
                snapshots=find.parse_snapshots(snapshots, generations, max_evaluations is None and max_seconds is None),
                initial=find.read_points(initial, wanted.dim),
                archive=archive,
                progress=progress,
                live=page,
                checkpoint=kept,
                resume=resume,
            )
        trouble = show.choose(result, choice)
        if context.command.name == "solve":  # `resume` comes here, too
            result["command"] = show.command_line(context)
        show.show(result, out, quiet, as_json)
        show.tell_page(page, result, out)
        show.say_resume(result, checkpoint, quiet or as_json)
        if trouble is not None:
            raise trouble
        show.keep_page(page, wait, quiet)
        raise typer.Exit(show.exit_code(result))


@app.command(name="resume", epilog=options.EXIT_CODES)
def resume_run(
    context: typer.Context,
    file: options.ResumedFile,
    problem: options.ResumedProblem = None,
    max_seconds: options.MaxSeconds = None,
    threads: options.Threads = None,
    out: options.Out = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Continue a run of `galapax solve --checkpoint FILE` as if it had never stopped."""
    with show.clear_errors():
        given = find.of_checkpoint(file, problem)
    given |= {"max_seconds": max_seconds, "quiet": quiet, "as_json": as_json, "checkpoint": file, "resume": True}
    given |= {"threads": threads} | ({} if out is None else {"out": out, "force": force})
    context.invoke(solve, context=context, **given)


@app.command(epilog=options.EXIT_CODES)
def sweep(
    problem: options.ProblemName,
    setting: options.SweptSettings,
    algorithm: options.SweptAlgorithm = "ga",
    dim: options.Dim = None,
    generations: options.Generations = None,
    max_evaluations: options.MaxEvaluations = None,
    runs: options.RunsOfEach = 30,
    seed: options.Seed = 0,
    target: options.Target = None,
    max_seconds: options.MaxSeconds = None,
    threads: options.Threads = None,
    maximize: options.Maximize = False,
    blackbox: options.Blackbox = False,
    dtype: options.Dtype = None,
    engine: options.Engine = "auto",
    out: options.Out = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Run every combination of the given hyper-parameters many times, in one computation.

    For example: galapax sweep ackley -a ga --set fr=1,1.5,2 --set sigma=0.1,0.5,1 --runs 1000
    """
    disk_cache.enable()
    with show.clear_errors():
        show.check_folder(out, force, "study.json")
        template = algorithms.get(algorithm)
        study = run_sweep(
            find.find_problem(problem, dim),
            None,
            template,
            **find.parse_settings(template, setting, several=True),
            generations=generations,
            max_evaluations=max_evaluations,
            runs=runs,
            seed=seed,
            target=target,
            max_seconds=max_seconds,
            threads=threads,
            maximize=maximize,
            blackbox=blackbox,
            dtype=dtype,
            engine=engine,
            progress=not (quiet or as_json),
        )
        show.show(study, out, quiet, as_json)
        raise typer.Exit(show.exit_code(study))


@app.command(epilog=options.EXIT_CODES)
def compare(
    algorithm: options.AlgorithmNames = None,
    problem: options.ProblemNames = None,
    suite: options.Suite = None,
    dim: options.SuiteDim = None,
    instance: options.Instance = None,
    runs: options.RunsOfEach = 30,
    max_evaluations: options.Budget = 20_000,
    within: options.WithinDistance = None,
    target: options.NoTarget = None,
    paired: options.Paired = False,
    seed: options.Seed = 0,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    out: options.Out = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Run several algorithms on several problems with the same number of evaluations, and test which differ.

    For example: galapax compare -p ackley,rastrigin,g06 -a de,fep,ga --runs 30 --within 1e-3
    Or the BBOB suite, with its usual target 1e-8: galapax compare --suite bbob --dim 10
    """
    disk_cache.enable()
    with show.clear_errors():
        show.check_folder(out, force, "study.json")
        chosen = find.find_problems(problem, suite, dim, instance)
        if target is not None:
            raise InputError("--target is a value to reach, and problems differ in it: give a distance by --within.")
        if suite is not None and within is None:
            within = find.SUITE_TARGET
        study = run_compare(
            chosen,
            find.named_algorithms(algorithm, suite),
            max_evaluations=max_evaluations,
            runs=runs,
            target=within,
            paired=paired,
            seed=seed,
            dtype=dtype,
            threads=threads,
            progress=not (quiet or as_json),
        )
        show.show(study, out, quiet, as_json)
        raise typer.Exit(show.exit_code(study))


app.command()(look.view)
app.command("list")(look.list_)
app.command()(look.selftest)
app.command()(look.reproduce)
