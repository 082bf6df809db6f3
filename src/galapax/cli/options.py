"""The options of the commands, each written once: its name, its type and what help says of it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated

import jax
import typer

from galapax.version import __version__

# what is run
ProblemName = Annotated[str, typer.Argument(help="A built-in problem (see `galapax list`), or FILE.py.")]
ProblemNames = Annotated[list[str] | None, typer.Option("--problems", "-p", help="Problems, separated by commas.")]
Suite = Annotated[str | None, typer.Option(help="All problems of a suite instead: bbob, its 24 functions.")]
SuiteDim = Annotated[
    int | None, typer.Option("--dim", help="Number of variables of the problems; 10 for those of a suite.")
]
Instance = Annotated[int | None, typer.Option(help="Which instance of a suite's problems (1).")]
AlgorithmName = Annotated[
    str | None, typer.Option("--algorithm", "-a", help="Algorithm name; by default chosen to fit the problem.")
]
SweptAlgorithm = Annotated[str, typer.Option("--algorithm", "-a", help="Its name.")]
AlgorithmNames = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithms",
        "-a",
        help="Algorithms, separated by commas; hyper-parameters after a colon: de:weight=0.7:population=50. "
        "A suite has cmaes,lshade,epsilon_de,de unless you name others.",
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
    typer.Option("--set", "-s", metavar="NAME=V1,V2,...", help="A hyper-parameter and its values; may be repeated."),
]
Dim = Annotated[int | None, typer.Option(help="Number of variables, for built-in problems of variable size.")]
Population = Annotated[int | None, typer.Option("--population", "-n", help="Number of individuals.")]
GagpuConfig = Annotated[
    Path | None, typer.Option(help="Take algorithm, size, generations and runs from GAGPU's config.h.")
]

# how long, how often, from where
Generations = Annotated[
    int | None,
    typer.Option(
        "--generations",
        "-g",
        help="Maximum number of generations (1000; the default algorithm is limited by evaluations).",
    ),
]
Runs = Annotated[int | None, typer.Option("--runs", "-r", help="Independent runs, computed together (1).")]
RunsOfEach = Annotated[int, typer.Option("--runs", "-r", help="Runs of each setting, or of each pair.")]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same run.")]
FirstRun = Annotated[int | None, typer.Option(help="Number of the first run: 17 repeats run 17 of an ensemble.")]
Target = Annotated[float | None, typer.Option(help="Stop a run once its best value is at least this good.")]
Within = Annotated[
    float | None, typer.Option(help="Stop a run once it is within this distance of the problem's best known value.")
]
WithinDistance = Annotated[
    float | None, typer.Option("--within", help="A run succeeds within this distance of the best known value.")
]
NoTarget = Annotated[float | None, typer.Option("--target", hidden=True)]  # answered


def say_version(wanted: bool) -> None:
    if wanted:
        print(f"galapax {__version__}, jax {jax.__version__}, Python {platform.python_version()}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=say_version)
]
MaxEvaluations = Annotated[int | None, typer.Option(help="Maximum number of evaluations per run.")]
Budget = Annotated[int, typer.Option("--max-evaluations", help="Maximum number of evaluations per run.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Stop after this many seconds.")]
Threads = Annotated[
    int | None, typer.Option(help="Threads that compute the runs on a CPU, by default one per core.", min=1)
]
Spread = Annotated[bool, typer.Option("--spread", help="Let all devices evaluate one population together.")]
Polish = Annotated[
    bool | None, typer.Option("--polish/--no-polish", help="Refine the best point with its gradient, if it has one.")
]
Stall = Annotated[int | None, typer.Option(help="Stop after this many generations without improvement.")]
Tolerance = Annotated[
    float | None,
    typer.Option(help="Stop a run once its population spans less than this fraction of the box; 0 disables the rule."),
]
Restarts = Annotated[
    str,
    typer.Option(help="What to do after convergence: none, plain, ipop, bipop or portfolio; auto uses the default."),
]
Initial = Annotated[
    Path | None, typer.Option(help="A CSV file of starting points, one per row, such as population.csv.")
]

# what the functions are, and how they are called
Maximize = Annotated[bool, typer.Option("--maximize", help="Maximize instead of minimizing.")]
Vectorized = Annotated[bool, typer.Option("--vectorized", help="The functions take the whole population as one array.")]
Blackbox = Annotated[bool, typer.Option("--blackbox", help="The functions are plain Python or NumPy, not JAX.")]
Dtype = Annotated[str | None, typer.Option(help="float32 or float64.")]
Engine = Annotated[str, typer.Option(help="auto, xla, fused: one GPU kernel for the run, or fast: that if it pays.")]
OnFailure = Annotated[str | None, typer.Option(help="How to treat NaN, inf and exceptions: worst, raise or resample.")]
Workers = Annotated[
    int | None, typer.Option(help="Call the functions, as plain Python, in this many processes; -1 for one per core.")
]
Islands = Annotated[int | None, typer.Option(help="Populations per run that exchange individuals.")]
MigrateEvery = Annotated[int | None, typer.Option(help="Generations between migrations of islands.")]
Migrants = Annotated[int | None, typer.Option(help="Individuals that an island receives at a migration.")]
Topology = Annotated[str | None, typer.Option(help="Where they come from: ring, torus, complete or random.")]
Coordinator = Annotated[
    str | None,
    typer.Option(
        help="Share the runs or islands with other processes that run the same command: host:port of process 0, or "
        "auto under SLURM and MPI launchers."
    ),
]
ProcessId = Annotated[int | None, typer.Option(help="Number of this process, from 0.")]
NumProcesses = Annotated[int | None, typer.Option(help="How many processes there are.")]
Timeout = Annotated[float | None, typer.Option(help="Time limit for one evaluation by a worker, in seconds.")]
Retries = Annotated[int, typer.Option(help="How many times to retry a failed evaluation.")]
WorkersTimeout = Annotated[
    str, typer.Option(help="Seconds without a living worker after which the run ends; auto, or none for never.")
]
Paired = Annotated[bool, typer.Option("--paired", help="Paired comparison, seed by seed (Wilcoxon).")]

# what is kept and shown
History = Annotated[bool, typer.Option("--history/--no-history", help="Keep the values of every generation.")]
HistoryX = Annotated[
    bool, typer.Option("--history-x", help="Also keep the best x of every generation (single runs always do).")
]
Snapshots = Annotated[
    str | None, typer.Option(help="Keep whole populations for convergence maps: generations 1,10,100 or every:10.")
]
Archive = Annotated[
    int | None,
    typer.Option(max=10**9, help="Several objectives: archive size, the number of non-dominated points kept."),
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
    typer.Option("--checkpoint", help="Write checkpoints to this file; galapax resume FILE continues from it."),
]
CheckpointEvery = Annotated[float | None, typer.Option(help="Seconds between checkpoints (60).")]
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
    str | None, typer.Option(help="Address the live page listens on (127.0.0.1); any other needs the printed token.")
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
    "Exit codes: 0, ended as asked with a feasible answer; 1, no feasible point, a target that was missed, or an "
    "evaluation that failed under --on-failure raise; 2, an error in the command or its input, named "
    "by the message; 130, Ctrl-C, with "
    "the result so far shown and saved."
)
