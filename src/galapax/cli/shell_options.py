"""The options of the commands. Those of a run come from core/options.py; those of the shell alone are declared here."""

from __future__ import annotations

import functools
import inspect
import platform
from collections.abc import Callable, Iterable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import jax
import typer

from galapax.algorithms import ALGORITHMS, ILLUMINATION_ALGORITHMS, MODEL_ALGORITHMS
from galapax.core.options import LEAVES, Leaf, group_arguments
from galapax.numerics import random
from galapax.problems import PROBLEMS, SUITES
from galapax.version import __version__

SHELL_TYPES = {"path": Path}
SUITE_ALGORITHMS = "cmaes,lshade,epsilon_de,de"  # what is compared on a suite, unless it is given
TRI_STATE = ("polish",)  # booleans that are also "auto"

# what is run
ProblemName = Annotated[
    str,
    typer.Argument(
        help="A built-in problem (see `galapax list problems`), or FILE.py.",
        autocompletion=lambda incomplete: complete_name(incomplete, [*PROBLEMS, *list_python_files(incomplete)]),
    ),
]
MeasuresFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py",
        help="Defines the function and its measures.",
        autocompletion=lambda incomplete: list_python_files(incomplete),
    ),
]
ProblemNames = Annotated[
    list[str] | None,
    typer.Option(
        "--problems",
        "-p",
        help="Problems, separated by commas.",
        autocompletion=lambda incomplete: complete_last_name(incomplete, PROBLEMS),
    ),
]
Suite = Annotated[
    str | None,
    typer.Option(
        help="All problems of a suite instead: bbob (24 functions).",
        autocompletion=lambda incomplete: complete_name(incomplete, SUITES),
    ),
]
SuiteDim = Annotated[
    int | None, typer.Option("--dim", help="Number of variables of the problems. Default with --suite: 10.")
]
Instance = Annotated[int | None, typer.Option(help="Instance number of a suite's problems. Default: 1.")]
AlgorithmName = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        "-a",
        help="Algorithm name; by default chosen to fit the problem.",
        autocompletion=lambda incomplete: complete_name(incomplete, [*ALGORITHMS, *MODEL_ALGORITHMS]),
    ),
]
SweptAlgorithm = Annotated[
    str,
    typer.Option(
        "--algorithm",
        "-a",
        help="Algorithm name.",
        rich_help_panel="Search",
        autocompletion=lambda incomplete: complete_name(incomplete, [*ALGORITHMS, *MODEL_ALGORITHMS]),
    ),
]
AlgorithmNames = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithms",
        "-a",
        help="Algorithms, separated by commas; hyper-parameters after a colon: de:weight=0.7:population=50. "
        f"Default with --suite: {SUITE_ALGORITHMS}.",
        autocompletion=lambda incomplete: complete_last_name(incomplete, [*ALGORITHMS, *MODEL_ALGORITHMS]),
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="A hyper-parameter of the algorithm, e.g. weight=0.7; may be repeated.",
    ),
]
SweptSettings = Annotated[
    list[str],
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=V1,V2,...",
        help="A hyper-parameter and its values; may be repeated.",
        rich_help_panel="Search",
    ),
]
Dim = Annotated[int | None, typer.Option(help="Number of variables, for built-in problems of variable size.")]
GagpuConfig = Annotated[
    Path | None, typer.Option(help="Take algorithm, size, generations and runs from GAGPU's config.h.")
]

Directions = Annotated[str | None, typer.Option(help="Several objectives: the direction of each, such as min,max.")]

# how long, how often, from where
RunsOfEach = Annotated[int, typer.Option("--runs", "-r", help="Runs of each setting, or of each pair.")]
FirstRun = Annotated[int | None, typer.Option(help="Number of the first run; 17 repeats run 17 of an ensemble.")]
Within = Annotated[
    float | None, typer.Option(help="Stop a run once it is within this distance of the problem's best known value.")
]
WithinDistance = Annotated[
    float | None, typer.Option("--within", help="A run succeeds within this distance of the best known value.")
]
WorseBy = Annotated[
    float | None, typer.Option("--within", help="Only minima that are at most so much worse than the best one.")
]
GlobalOnly = Annotated[bool, typer.Option("--global-only", help="Only the minima that are equal to the best one.")]
Unseen = Annotated[
    float | None,
    typer.Option(help="Share of the starts that may lead to unknown minima at the end; 0 uses all evaluations (0.01)."),
]
MapAlgorithm = Annotated[
    str,
    typer.Option(
        "--algorithm",
        "-a",
        help="map_elites or cma_mae.",
        rich_help_panel="Search",
        autocompletion=lambda incomplete: complete_name(incomplete, ILLUMINATION_ALGORITHMS),
    ),
]
Cells = Annotated[
    str | None, typer.Option(help="Cells along each measure, as in 40,30 or 100.", rich_help_panel="Search")
]
NoTarget = Annotated[float | None, typer.Option("--target", hidden=True)]  # answered


def say_version(is_requested: bool) -> None:
    if is_requested:
        print(f"galapax {__version__}, jax {jax.__version__}, Python {platform.python_version()}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=say_version)
]
Budget = Annotated[int, typer.Option("--max-evaluations", help="Maximum number of evaluations per run.")]

# what the functions are, and how they are called
MigrateEvery = Annotated[int | None, typer.Option(help="Generations between migrations of islands.")]
Migrants = Annotated[int | None, typer.Option(help="Individuals that an island receives at a migration.")]
Topology = Annotated[str | None, typer.Option(help="Migration topology: ring, torus, complete or random.")]
Coordinator = Annotated[
    str | None,
    typer.Option(
        help="Share the runs or islands with other processes that run the same command: host:port of process 0, or "
        "auto under SLURM and MPI launchers."
    ),
]
ProcessId = Annotated[int | None, typer.Option(help="Number of this process, from 0.")]
NumProcesses = Annotated[int | None, typer.Option(help="How many processes there are.")]
Paired = Annotated[bool, typer.Option("--paired", help="Paired comparison, seed by seed (Wilcoxon).")]

# what is kept and shown
History = Annotated[bool, typer.Option("--history/--no-history", help="Keep the values of every generation.")]
HistoryX = Annotated[
    bool, typer.Option("--history-x", help="Also keep the best x of every generation (single runs always do).")
]
Choose = Annotated[
    str | None,
    typer.Option(
        help="Several objectives: also show the point chosen by knee, ideal, weights (0.7,0.3), near:1,2 (values of "
        "the objectives), reach:1,2 or your answers to a few questions (ask)."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save to this folder, which must be new or empty.")]
Force = Annotated[
    bool, typer.Option("--force", help="Allow --out to name a non-empty folder and replace the run in it.")
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Write checkpoints to this file; --resume continues from it, as galapax resume FILE does for solve.",
    ),
]
CheckpointEvery = Annotated[float | None, typer.Option(help="Seconds between checkpoints. Default: 60.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint, if it exists.")]
ResumedFile = Annotated[Path, typer.Argument(help="The checkpoint.")]
ResumedProblem = Annotated[
    Path | None, typer.Argument(help="The Python file that defines the problem, if any; it will be executed.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
UseCache = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep compiled programs on disk (GALAPAX_CACHE=FOLDER or off).")
]

# the live page
LivePage = Annotated[bool, typer.Option("--live", help="Show the run on a live page in the browser.")]
Replayed = Annotated[bool, typer.Option("--live", help="Replay the run on the live page in the browser.")]
Port = Annotated[int | None, typer.Option(help="Port of the live page; by default any free port.")]
Host = Annotated[
    str | None,
    typer.Option(help="Address of the live page; any but the default, 127.0.0.1, needs the printed token."),
]
OpenPage = Annotated[bool, typer.Option("--open/--no-open", help="Open the live page in a browser.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Keep the live page open after the run.")]
Paused = Annotated[bool, typer.Option("--paused", help="Start paused; continue from the live page.")]

# saved runs, lists, papers
SavedFolder = Annotated[Path, typer.Argument(help="A saved run, sweep or comparison.")]
OpenReport = Annotated[bool, typer.Option("--open", help="Open its report in the browser.")]
Png = Annotated[bool, typer.Option("--png", help="Draw all its figures, by default into the folder pictures.")]
Gif = Annotated[bool, typer.Option("--gif", help="Draw its convergence maps as an animation, maps.gif.")]
Form = Annotated[
    str, typer.Option(help="Form of the animation: genome (four variables per pixel) or variables (one per column).")
]
Export = Annotated[
    str | None, typer.Option(help="csv: tables; json: everything in one file; gagpu: History.txt and TestHist.txt.")
]
WriteTo = Annotated[Path | None, typer.Option("--out", "-o", help="Output folder; by default the folder of the run.")]
Listed = Annotated[str, typer.Argument(help="algorithms, problems or all.")]
PaperName = Annotated[
    str,
    typer.Argument(help="fep (evolutionary programming), gagpu (three-parent GA), cde (co-evolution), moea, or all."),
]
Quick = Annotated[bool, typer.Option("--quick", help="A reduced version that takes under a minute.")]
PaperOut = Annotated[Path | None, typer.Option("--out", "-o", help="Save tables, figures and a page to this folder.")]

EXIT_CODES = (
    "Exit codes: 0 success (a feasible answer); 1 no feasible point, a missed target, or an exception that ends the "
    "run; 2 an error in the command or its input; 130 Ctrl-C (the result so far is shown and saved)."
)

# what `solve` takes besides the options of a run
SOLVE = {
    "algorithm": AlgorithmName,
    "setting": Settings,
    "directions": Directions,
    "dim": Dim,
    "first_run": FirstRun,
    "within": Within,
    "migrate_every": MigrateEvery,
    "migrants": Migrants,
    "topology": Topology,
    "coordinator": Coordinator,
    "process_id": ProcessId,
    "num_processes": NumProcesses,
    "history": History,
    "history_x": HistoryX,
    "choose": Choose,
    "gagpu_config": GagpuConfig,
    "checkpoint": CheckpointFile,
    "checkpoint_every": CheckpointEvery,
    "resume": Resume,
    "out": Out,
    "force": Force,
    "live": LivePage,
    "port": Port,
    "host": Host,
    "open_page": OpenPage,
    "wait": Wait,
    "paused": Paused,
    "quiet": Quiet,
    "as_json": AsJson,
    "use_cache": UseCache,
}
# of options of the shell alone, where they are neither False nor None
DEFAULTS = {"history": True, "open_page": True, "wait": True, "use_cache": True}
STUDY_DEFAULTS = {"runs": 30, "max_evaluations": 20_000}

PANEL_ORDER = ("Search", "Limits", "Evaluation", "Keep", "Output", "Checkpoint", "Live page", "Compute",
               "Several processes", "Statistics")  # fmt: skip
RARE = ("dim", "first_run", "gagpu_config", "migrate_every", "migrants", "topology")  # at the end of their panel
# under which heading `--help` lists the options of the shell alone
PANELS = {
    "Statistics": ("paired",),
    "Search": (
        "problem",
        "suite",
        "instance",
        "runs",
        "algorithm",
        "setting",
        "dim",
        "first_run",
        "gagpu_config",
        "migrate_every",
        "migrants",
        "topology",
        "global_only",
        "cells",
    ),
    "Evaluation": ("directions",),
    "Limits": ("max_evaluations", "within", "target", "unseen"),
    "Keep": ("history", "history_x"),
    "Output": ("choose", "out", "force", "quiet", "as_json"),
    "Checkpoint": ("checkpoint", "checkpoint_every", "resume"),
    "Live page": ("live", "port", "host", "open_page", "wait", "paused"),
    "Compute": ("use_cache",),
    "Several processes": ("coordinator", "process_id", "num_processes"),
}

Arguments = SimpleNamespace  # of a command: one attribute for each option, None or False where it was not given


# --- completion -------------------------------------------------------------------------------------------------------


def complete_name(incomplete: str, names: Iterable[str]) -> list[str]:
    """Complete a name that has been begun."""
    return sorted(name for name in names if name.startswith(incomplete))


def complete_last_name(incomplete: str, names: Iterable[str]) -> list[str]:
    """Complete the last of several names that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in complete_name(last, names)]


def list_python_files(incomplete: str) -> list[str]:
    """List the Python files and the folders that a path which has been begun may name."""
    folder = Path(incomplete).parent if not incomplete.endswith("/") else Path(incomplete)
    try:
        entries = [*folder.iterdir()]
    except OSError:
        return []
    prefix = "" if folder == Path() and not incomplete.startswith("./") else f"{folder}/".replace("//", "/")
    files = [f"{prefix}{entry.name}" for entry in entries if entry.suffix == ".py"]
    return files + [f"{prefix}{entry.name}/" for entry in entries if entry.is_dir() and not entry.name.startswith(".")]


# --- declaration ------------------------------------------------------------------------------------------------------


def run_options() -> tuple[str, ...]:
    """The options of a run that the shell has."""
    return tuple(name for name, leaf in LEAVES.items() if leaf.spec.shell is not None)


def accept_options(names: tuple[str, ...], **further: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare the options of a command: options of a run by name, and further ones with their types.

    The command receives all of them in one argument, `arguments`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True).parameters
        declared = [parameter for name, parameter in signature.items() if name != "arguments"]
        options = [_parameter(name, annotation) for name, annotation in further.items()]
        options += [_shell_parameter(LEAVES[name]) for name in names]
        options.sort(
            key=lambda option: (
                PANEL_ORDER.index(option.annotation.__metadata__[0].rich_help_panel),
                option.name in RARE,
            )
        )

        @functools.wraps(command)
        def run(**values: object) -> None:
            fixed = {parameter.name: values.pop(parameter.name) for parameter in declared}
            command(**fixed, arguments=Arguments(**values))

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in declared] + options
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        del run.__wrapped__  # its signature is not that of the command
        return run

    return decorate


def collect_options(arguments: Arguments, **changes: object) -> dict[str, Any]:
    """Collect the options of a run that were set, as arguments of a verb. changes: parsed values by name."""
    values = {name: getattr(arguments, name, None) for name in run_options()} | changes
    return group_arguments({name: value for name, value in values.items() if value is not None})


def _shell_parameter(leaf: Leaf) -> inspect.Parameter:
    """An option of a run as a parameter that Typer reads. None means that it was not given."""
    spec, word = leaf.spec, leaf.name.replace("_", "-")
    flag = f"--{word}/--no-{word}" if leaf.name in TRI_STATE else f"--{word}"
    info = typer.Option(flag, *spec.flags, help=spec.help, rich_help_panel=spec.panel or None)
    if leaf.name == "seed":
        return _parameter(leaf.name, Annotated[int | None, typer.Option(flag, help=f"{spec.help} random: draw one.",
                          parser=parse_seed, metavar="<int>", rich_help_panel=spec.panel)])  # fmt: skip
    return _parameter(leaf.name, Annotated[SHELL_TYPES.get(spec.shell, spec.shell) | None, info])


def parse_seed(text: str) -> int:
    """Parse --seed: a whole number, or a random one. The number that was drawn is part of the command in the result."""
    if text == "random":
        return random.resolve_seed(None)
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor random.") from None


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    info = copy(annotation.__metadata__[0])  # several commands share it
    info.rich_help_panel = next((panel for panel, names in PANELS.items() if name in names), info.rich_help_panel)
    annotation = Annotated[annotation.__origin__, info]
    default: bool | int | None = DEFAULTS.get(name, False if annotation.__origin__ is bool else None)
    if annotation.__origin__ is int:
        default = STUDY_DEFAULTS[name]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
