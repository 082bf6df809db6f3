"""The options of the commands, each written once: its name, its type and what help says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# what is run
ProblemName = Annotated[str, typer.Argument(help="A built-in problem (see `galapax list`), or FILE.py.")]
ProblemNames = Annotated[list[str] | None, typer.Option("--problems", "-p", help="Problems, separated by commas.")]
Suite = Annotated[str | None, typer.Option(help="All problems of a suite instead: bbob, its 24 functions.")]
SuiteDim = Annotated[int | None, typer.Option("--dim", help="Number of variables of a suite's problems (10).")]
Instance = Annotated[int | None, typer.Option(help="Which instance of a suite's problems (1).")]
AlgorithmName = Annotated[
    str | None, typer.Option("--algorithm", "-a", help="Its name; by default one that fits the problem.")
]
SweptAlgorithm = Annotated[str, typer.Option("--algorithm", "-a", help="Its name.")]
AlgorithmNames = Annotated[
    list[str],
    typer.Option(
        "--algorithms",
        "-a",
        help="Algorithms, separated by commas; with hyper-parameters: de:weight=0.7:population=50.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="A hyper-parameter of the algorithm, named or default, e.g. weight=0.7; several times.",
    ),
]
SweptSettings = Annotated[
    list[str],
    typer.Option("--set", "-s", metavar="NAME=V1,V2,...", help="A hyper-parameter and its values; several times."),
]
Dim = Annotated[int | None, typer.Option(help="Number of variables, for built-in problems of any size.")]
Population = Annotated[int | None, typer.Option("--population", "-n", help="Number of individuals.")]
GagpuConfig = Annotated[
    Path | None, typer.Option(help="Take algorithm, size, generations and runs from GAGPU's config.h.")
]

# how long, how often, from where
Generations = Annotated[int | None, typer.Option("--generations", "-g", help="At most so many (1000).")]
Runs = Annotated[int | None, typer.Option("--runs", "-r", help="Independent runs, computed together (1).")]
RunsOfEach = Annotated[int, typer.Option("--runs", "-r", help="Runs of each setting, or of each pair.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same numbers.")]
FirstRun = Annotated[int | None, typer.Option(help="Number of the first run: 17 makes run 17 of an ensemble.")]
Target = Annotated[float | None, typer.Option(help="Stop a run once it is at least this good.")]
Distance = Annotated[float | None, typer.Option("--target", help="A run this close to the best known value succeeds.")]
MaxEvaluations = Annotated[int | None, typer.Option(help="Evaluations that one run may spend.")]
Budget = Annotated[int, typer.Option("--max-evaluations", help="Evaluations that one run may spend.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Stop after so many seconds.")]
Polish = Annotated[
    bool | None, typer.Option("--polish/--no-polish", help="Refine the best by its gradient (where there is one).")
]
Stall = Annotated[int | None, typer.Option(help="Stop after so many generations without a better value.")]
Tolerance = Annotated[
    float | None,
    typer.Option(help="Stop a run whose population lies within this share of the box; 0 never does."),
]
Restarts = Annotated[
    str,
    typer.Option(
        help="What a run does that has converged: none, plain, ipop, bipop or portfolio; auto leaves it to the default."
    ),
]
Initial = Annotated[
    Path | None, typer.Option(help="A CSV file of points to start from, one a row, such as population.csv.")
]

# what the functions are, and how they are called
Maximize = Annotated[bool, typer.Option("--maximize", help="Look for the largest value.")]
Vectorized = Annotated[bool, typer.Option("--vectorized", help="The functions take a whole population.")]
Blackbox = Annotated[bool, typer.Option("--blackbox", help="The functions are plain Python or NumPy.")]
Dtype = Annotated[str | None, typer.Option(help="float32 or float64.")]
Engine = Annotated[str, typer.Option(help="auto, xla, or fused: one GPU kernel for the whole run.")]
OnFailure = Annotated[str | None, typer.Option(help="NaN, inf, exceptions: worst, raise or resample.")]
Workers = Annotated[
    int | None, typer.Option(help="Call the functions, as plain Python, in so many processes; -1 for one on each core.")
]
Timeout = Annotated[float | None, typer.Option(help="Seconds for one evaluation by a worker.")]
Retries = Annotated[int, typer.Option(help="How often an evaluation that failed is tried again.")]
Paired = Annotated[bool, typer.Option("--paired", help="Compare runs seed by seed (Wilcoxon).")]

# what is kept and shown
History = Annotated[bool, typer.Option("--history/--no-history", help="Keep values by generation.")]
HistoryX = Annotated[
    bool, typer.Option("--history-x", help="Keep the best x of every generation, too (single runs always do).")
]
Snapshots = Annotated[
    str | None, typer.Option(help="Keep whole populations, for maps: after generations 1,10,100, or every:10.")
]
Archive = Annotated[
    int | None, typer.Option(max=10**9, help="Several objectives: keep so many of the non-dominated points seen.")
]
Choose = Annotated[
    str | None,
    typer.Option(help="Several objectives: also show the point that knee, ideal, or weights (0.7,0.3) choose."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save to this folder: a new or an empty one.")]
Force = Annotated[bool, typer.Option("--force", help="Let --out take a folder that is not empty, and replace its run.")]
CheckpointFile = Annotated[
    Path | None, typer.Option("--checkpoint", help="Keep the run in this file; galapax resume FILE goes on from it.")
]
CheckpointEvery = Annotated[float | None, typer.Option(help="Seconds between two writings of the checkpoint (60).")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")]
ResumedFile = Annotated[Path, typer.Argument(help="The checkpoint.")]
ResumedProblem = Annotated[
    Path | None, typer.Argument(help="The Python file that the problem is in, if it is in one; it is run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
UseCache = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep compiled programs on disk (GALAPAX_CACHE=FOLDER or off).")
]

# the live page
LivePage = Annotated[bool, typer.Option("--live", help="Show the run on a page in the browser while it goes on.")]
Port = Annotated[int | None, typer.Option(help="Of the live page; by default a free one.")]
Host = Annotated[
    str | None, typer.Option(help="Where the live page listens (127.0.0.1); elsewhere it needs the token printed.")
]
OpenPage = Annotated[bool, typer.Option("--open/--no-open", help="Open the live page in a browser.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Keep the live page up after the run.")]
Paused = Annotated[bool, typer.Option("--paused", help="Start paused, for the live page to go on.")]

# saved runs, lists, papers
SavedFolder = Annotated[Path, typer.Argument(help="A saved run, sweep or comparison.")]
OpenReport = Annotated[bool, typer.Option("--open", help="Open its report in the browser.")]
Png = Annotated[bool, typer.Option("--png", help="Draw all its pictures, by default to the folder pictures.")]
Gif = Annotated[bool, typer.Option("--gif", help="Draw its convergence maps as a moving picture, maps.gif.")]
Form = Annotated[
    str, typer.Option(help="Of the moving maps: genome (four variables in a pixel) or variables (one a column).")
]
Export = Annotated[
    str | None, typer.Option(help="csv: tables; json: all in one file; gagpu: History.txt and TestHist.txt.")
]
WriteTo = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write; by default the folder itself.")]
Listed = Annotated[str, typer.Argument(help="algorithms, problems or all.")]
PaperName = Annotated[
    str,
    typer.Argument(help="fep (evolutionary programming), gagpu (three-parent GA), cde (co-evolution), moea, or all."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Less of everything, under a minute.")]
PaperOut = Annotated[Path | None, typer.Option("--out", "-o", help="Save tables, figures and a page here.")]

EXIT_CODES = (
    "Exit codes: 0, ended as asked with a feasible answer; 1, no feasible point, a target that was missed, or an "
    "evaluation that failed under --on-failure raise; 2, something to mend, which the message names; 130, Ctrl-C, with "
    "the result so far shown and saved."
)
