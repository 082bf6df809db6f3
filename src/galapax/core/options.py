"""Every option of a run, declared once: its type, default, help, check, and where else it appears.

`minimize` and the other verbs parse their arguments into an `Options`. `Result.settings`, the fingerprint of a
checkpoint and the commands of the shell are derived from it, so that none of them can forget an option.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args

import numpy as np
from numpy.typing import DTypeLike

from galapax.core.checks import (
    abbreviate,
    as_integer_if_whole,
    check_bool,
    check_finite,
    check_integer,
    check_positive,
    check_size,
    items,
)
from galapax.core.errors import EvaluationError, InputError, experimental, shows_all_frames
from galapax.core.hints import unknown_keyword_error
from galapax.core.problem import Maximize, check_maximize
from galapax.core.restarts import Restarts

Engine = Literal["auto", "xla", "fused", "native"]
FailurePolicy = Literal["worst", "raise", "resample"]
Precision = Literal["float32", "float64"]
RestartName = Literal["auto", "plain", "ipop", "bipop", "portfolio"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
FAILURE_POLICIES: tuple[FailurePolicy, ...] = get_args(FailurePolicy)
MAX_RUN_NUMBER = 2**32  # run numbers are folded into the key as 32-bit words

Check = Callable[[object, str], object]  # (value, name) -> the value as it is stored; raises InputError


@dataclass(frozen=True)
class Spec:
    """Metadata of an option besides its type and default.

    help: one sentence, for the shell and the reference. check: validates and converts a value; not called for None if
    that is the default. shell: the type of the value on the command line; None if it is no option there. name: its name
    there, if different. flags: further spellings there, such as "-n". panel: its heading in `--help`. identifies:
    whether a checkpoint can only be resumed with the same value.
    """

    help: str
    check: Check | None = None
    shell: Any = None
    name: str = ""
    flags: tuple[str, ...] = ()
    panel: str = ""
    identifies: bool = False


def option(default: Any, help: str, check: Check | None = None, **spec: Any) -> Any:
    """Declare an option as a field of a frozen dataclass."""
    return field(default=default, metadata={"spec": Spec(help, check, **spec)})


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_count(least: int) -> Check:
    return lambda value, name: check_integer(value, name, least)


def _check_limit(value: object, name: str) -> int:
    """Check a limit, which may be written as 1e5."""
    return check_integer(as_integer_if_whole(value), name, 1)


def _check_fraction(value: object, name: str) -> float:
    fraction = check_finite(value, name)
    if not 0 <= fraction < 1:
        raise InputError(f"{name} is a fraction of the box, at least 0 and below 1; got {fraction:g}. 0 disables it.")
    return fraction


def _check_runs(value: object, name: str) -> int | range:
    if isinstance(value, range):
        if value.step != 1 or value.start < 0 or not len(value):
            raise InputError(f"{name} as a range names consecutive runs, such as range(17, 20); got {value!r}.")
    else:
        value = check_integer(value, name, 1)
    if (value.stop if isinstance(value, range) else value) > MAX_RUN_NUMBER:
        raise InputError(f"run numbers go up to 2**32; {name}={value} exceeds that.")
    return value


def _check_polish(value: object, name: str) -> bool | str:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str) and value == "auto":
        return value
    raise InputError(f'{name} must be "auto", True or False, got {abbreviate(value)}.')


def _check_history(value: object, name: str) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value == "x"):
        return value
    raise InputError(f'{name} must be True, False or "x" (with the best x of each generation), got {value!r}.')


def _check_snapshots(value: object, name: str) -> tuple[int, ...]:
    generations = items(value, f"{name} must be a list of generations, such as [1, 10, 100]")
    return tuple(sorted({check_integer(generation, name, 1) for generation in generations}))


def _check_dtype(value: Any, name: str) -> str:
    try:
        dtype = repr(value) if isinstance(value, np.generic) else np.dtype(value).name  # refuse numbers
    except (TypeError, ValueError, SyntaxError):  # NumPy parses strings such as "01"
        dtype = repr(value)
    if dtype not in ("float32", "float64"):
        raise InputError(f'{name} must be "float32" or "float64", got {value!r}.')
    return dtype


def _check_choice(*choices: str) -> Check:
    def check(value: object, name: str) -> str:
        if isinstance(value, str) and value in choices:
            return value
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {abbreviate(value)}.")

    return check


def _check_failure_policy(value: object, name: str) -> str:
    if isinstance(value, str) and value in FAILURE_POLICIES:
        return value
    raise InputError(f'{name} must be "worst", "raise" or "resample", got {value!r}.')


def _check_devices(value: object, name: str) -> str:
    if isinstance(value, str) and value == "all":
        return value
    raise InputError(f'{name} must be "all" (all devices evaluate one population) or None (one does), got {value!r}.')


def _check_bool(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return value
    raise InputError(f"{name} must be True or False, got {abbreviate(value)}.")


def _check_workers_timeout(value: object, name: str) -> float | str | None:
    if value is None or (isinstance(value, str) and value == "auto"):
        return value
    try:
        seconds = check_positive(value, name)
    except InputError:
        raise InputError(
            f"{name} must be a positive number of seconds, 'auto' or None, got {abbreviate(value)}."
        ) from None
    return None if math.isinf(seconds) else seconds


def _check_pool(value: object, name: str) -> Any:
    if isinstance(value, bool) or not (isinstance(value, int) or callable(value) or hasattr(value, "submit")):
        raise InputError(
            f"{name} must be a number of processes, a concurrent.futures executor (with a submit method) or a function "
            f"that returns one; got {abbreviate(value)}."
        )
    if isinstance(value, int) and value != -1:
        check_integer(value, name, 1, "-1 for all cores")
    return value


# --- groups of options that few calls need ----------------------------------------------------------------------------


class Checked:
    """Base of frozen dataclasses of options: checks the values at construction."""

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if value is entry.default:  # the common case, quickly
                continue
            spec = entry.metadata["spec"]
            if spec.check is not None:
                object.__setattr__(self, entry.name, spec.check(value, spec.name or entry.name))


@dataclass(frozen=True)
class Workers(Checked):
    """Where black boxes are called, and how failed calls are handled.

    pool: a number of processes, -1 for one per core; a concurrent.futures executor (a pool, Dask's
        client.get_executor(), mpi4py.futures), or a function that creates one; None calls the functions in this
        process.
    timeout: seconds for one evaluation. retries: how many times to retry one that failed.
    memoize: never call a black box twice with the same point; `result.n_cached` counts the points that were known. By
        default where there are at most 100 000 points: integers, choices and booleans alone.
    asynchronous: with DE, create the next candidate as soon as one is evaluated, so that no worker waits for the
        slowest. Such a run cannot be repeated.
    workers_timeout: seconds without a living worker after which the run ends with its result so far; "auto" is 300
        where the executor can tell, None waits for ever.
    """

    pool: Any = option(None, "Call the functions, as plain Python, in this many processes; -1 for one per core.",
                       _check_pool, shell=int, name="workers", panel="Evaluation")  # fmt: skip
    timeout: float | None = option(None, "Time limit for one evaluation by a worker, in seconds.", check_positive,
                                   shell=float, panel="Evaluation")  # fmt: skip
    retries: int = option(0, "How many times to retry a failed evaluation.", _check_count(0), shell=int,
                          panel="Evaluation")  # fmt: skip
    memoize: bool | None = option(None, "Never call a black box twice with the same point.", _check_bool)
    asynchronous: bool = option(False, "Create each candidate as soon as one is evaluated.", _check_bool)
    workers_timeout: float | str | None = option(
        "auto", "Seconds without a living worker after which the run ends; auto, or none for never.",
        _check_workers_timeout, shell=str, panel="Evaluation",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.timeout is not None and self.pool is None:
            raise InputError(
                "timeout needs worker processes, because only those can be stopped: also give their number, as in "
                "gx.Workers(4, timeout=30); to limit the whole run write max_seconds."
            )
        if isinstance(self.workers_timeout, float) and self.pool is None:
            raise InputError("workers_timeout is how long to wait for workers: also give their number, or an executor.")
        if self.asynchronous and self.pool is None:
            raise InputError("asynchronous=True needs workers: also give their number, or an executor.")

    @property
    def processes(self) -> int | None:
        """Number of processes to start; None with an executor, or without workers."""
        return self.pool if isinstance(self.pool, int) else None

    @property
    def executor(self) -> Any:
        """The user's executor, or the function that creates one; else None."""
        return None if isinstance(self.pool, int) else self.pool


@dataclass(frozen=True)
class Keep(Checked):
    """Further contents of a Result: history, snapshots of the population, an archive.

    history: the values of every generation; "x" also keeps the best x of each generation.
    snapshots: generations whose whole population is kept, in `result.snapshots`.
    archive: with several objectives, the number of non-dominated points to keep; the front is then taken from these
        instead of the last population. No point of a run's front is dominated by one that the run evaluated.

    The evaluations of a black box are in `result.evaluations` without being asked for.
    """

    history: bool | Literal["x"] = option(True, "Keep the values of every generation.", _check_history, identifies=True)
    snapshots: Sequence[int] = option((), "Keep whole populations for convergence maps: generations 1,10,100 or "
                                      "every:10.", _check_snapshots, shell=str, panel="Keep",
                                      identifies=True)  # fmt: skip
    archive: int | None = option(None, "Several objectives: archive size, the number of non-dominated points kept.",
                                 lambda value, name: check_size(value, name, 1), shell=int, panel="Keep")  # fmt: skip


@dataclass(frozen=True)
class Compute(Checked):
    """What computes a run, and in which precision.

    engine: "xla" compiles the run with XLA; "fused" makes one GPU kernel of objective and algorithm (docs/fused.md), or
        says why it cannot; "native" makes one for this machine's CPU with its C compiler, the fastest way to many small
        runs there; "auto" takes the kernel where there is an NVIDIA GPU and it pays, and else XLA. `result.engine` says
        which it was, and why.
    dtype: "float32" or "float64"; by default float64 on a CPU and for constraints, float32 on an accelerator.
    threads: number of threads that compute the runs of an ensemble on a CPU; by default one per core that the process
        may use (or GALAPAX_THREADS). The result is identical to the bit for any number.
    devices: "all" lets all GPUs (or other devices) of the machine evaluate one population together, an equal part each,
        for objectives that take long or populations of a million. Rounding may differ from a run on one device.
    """

    engine: Engine = option("auto", "auto, xla, fused (one GPU kernel for the run) or native (one for the CPU).",
                         _check_choice(*ENGINES), shell=str, panel="Compute")  # fmt: skip
    dtype: Precision | DTypeLike | None = option(None, "float32 or float64.", _check_dtype, shell=str, panel="Compute")
    threads: int | None = option(None, "Threads that compute the runs on a CPU, by default one per core.",
                                 _check_count(1), shell=int, panel="Compute")  # fmt: skip
    devices: Literal["all"] | None = option(None, "all: distribute each population over all devices.",
                                 _check_devices, shell=str, panel="Compute")  # fmt: skip


Topology = Literal["ring", "torus", "complete", "random"]


@experimental
@dataclass(frozen=True)
class Islands:
    """A run as several populations, each on an island of its own, which exchange individuals from time to time.

    Whitley, Rana & Heckendorn (1999), Journal of Computing and Information Technology 7:33-47, on when it helps.

    count: islands per run, each with the algorithm's whole population.
    migrate_every: generations between two migrations.
    migrants: individuals that every island receives at a migration; they take the place of that many candidates and are
        evaluated with the others, so a migration costs no extra evaluations.
    topology: where they come from. "ring": the island before. "torus": the four neighbours on a grid in turn.
        "complete": every other island in turn. "random": islands drawn anew each time.
    send: "best" sends the best survivors (of several objectives, points of the first front), "random" any of them.
    replace: "worst" gives a migrant the place of the candidate whose parent is worst, "random" any place.
    """

    count: int = 4
    migrate_every: int = 20
    migrants: int = 2
    topology: Topology = "ring"
    send: Literal["best", "random"] = "best"
    replace: Literal["worst", "random"] = "worst"

    def check(self, population: int) -> None:
        """Check the fields, for islands with populations of this size."""
        check_integer(self.count, "islands: count", 1)
        check_integer(self.migrate_every, "islands: migrate_every", 1)
        most = max(1, population // 2)
        if check_integer(self.migrants, "islands: migrants", 1) > most:
            raise InputError(
                f"islands: migrants must be at most half a population, {most} of {population}; got {self.migrants}."
            )
        choices = {"topology": get_args(Topology), "send": ("best", "random"), "replace": ("worst", "random")}
        for name, options in choices.items():
            if getattr(self, name) not in options:
                names = ", ".join(f'"{option}"' for option in options[:-1]) + f' or "{options[-1]}"'
                raise InputError(f"islands: {name} must be {names}; got {getattr(self, name)!r}.")

    def routes(self, turn: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return where migrants come from: their island, and their index among those that it sends, (count, migrants).

        turn: the number of the migration, from 1.
        """
        island, slot = np.arange(self.count)[:, None], np.arange(self.migrants)[None, :]
        n_others = max(1, self.count - 1)
        if self.topology == "ring":
            source = np.broadcast_to((island - 1) % self.count, (self.count, self.migrants))
        elif self.topology == "torus":
            rows = max(r for r in range(1, math.isqrt(self.count) + 1) if self.count % r == 0)
            columns = self.count // rows
            row, column = island // columns, island % columns
            around = [(0, -1), (0, 1)] if rows == 1 else [(0, -1), (-1, 0), (0, 1), (1, 0)]
            moves = np.array(around)[(slot + (turn - 1) * self.migrants) % len(around)]
            source = (row + moves[..., 0]) % rows * columns + (column + moves[..., 1]) % columns
        elif self.topology == "complete":
            source = (island + 1 + ((turn - 1) * self.migrants + slot) % n_others) % self.count
        else:
            draws = np.random.default_rng([seed, turn])
            source = (island + 1 + draws.integers(n_others, size=(self.count, self.migrants))) % self.count
        before = source[:, :, None] == source[:, None, :]
        return source, (np.tril(np.ones((self.migrants, self.migrants), int), -1) * before).sum(axis=2)


def parse_islands(islands: object) -> Islands | None:
    """Convert the argument `islands`, an Islands or their number."""
    if islands is None or isinstance(islands, Islands):
        return islands
    if isinstance(islands, bool) or not isinstance(islands, int | np.integer):
        raise InputError(f"islands must be a galapax.Islands, or how many islands there are; got {islands!r}.")
    return Islands(int(islands))


def _check_group(kind: type[Checked], example: str) -> Check:
    def check(value: object, name: str) -> Checked:
        if isinstance(value, kind):
            return value
        raise InputError(f"{name} must be a gx.{kind.__name__}, such as {example}; got {abbreviate(value)}.")

    return check


def _check_workers(value: object, name: str) -> Workers:
    return value if isinstance(value, Workers) else Workers(value)


def _check_islands(value: object, name: str) -> Islands | None:
    return parse_islands(value)


# --- all options ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(Checked):
    """The options of a run, each checked by itself; `Task` checks combinations."""

    population: int | None = option(None, "Number of individuals.", None, shell=int, flags=("-n",), panel="Search")
    generations: int | None = option(None, "Maximum number of generations (1000; the default algorithm is limited by "
                                     "evaluations).", _check_limit, shell=int, flags=("-g",),
                                     panel="Limits")  # fmt: skip
    max_evaluations: int | None = option(None, "Maximum number of evaluations per run.", _check_limit, shell=int,
                                         panel="Limits")  # fmt: skip
    max_seconds: float | None = option(
        None, "Stop after this many seconds.", check_positive, shell=float, panel="Limits"
    )
    target: float | None = option(None, "Stop a run once its best value is at least this good.", None, shell=float,
                                  panel="Limits")  # fmt: skip
    patience: int | None = option(None, "Stop after this many generations without improvement.", _check_count(1),
                                  shell=int, panel="Limits")  # fmt: skip
    tolerance: float | None = option(None, "Stop a run once its population spans less than this fraction of the box; 0 "
                                     "disables the rule.", _check_fraction, shell=float, panel="Limits")  # fmt: skip
    restarts: RestartName | Restarts | None = option(
        "auto", "What to do after convergence: none, plain, ipop, bipop or portfolio; auto uses the default.", None,
        shell=str, panel="Search",
    )  # fmt: skip
    polish: bool | Literal["auto"] = option("auto", "Refine the best point with its gradient, if it has one.",
                                _check_polish, shell=bool, panel="Search", identifies=True)  # fmt: skip
    islands: Islands | None = option(None, "Populations per run that exchange individuals.", _check_islands, shell=int,
                                     panel="Search")  # fmt: skip
    x0: Any = option(None, "A CSV file of starting points, one per row, such as population.csv.", None, shell="path",
                     panel="Search")  # fmt: skip
    initial: Any = option(None, "A saved run, or an evaluations.csv: points with values, which cost no evaluations.",
                          None, shell="path", panel="Search")  # fmt: skip
    runs: int | range = option(1, "Independent runs, computed together. Default: 1.", _check_runs, shell=int,
                               flags=("-r",), panel="Search")  # fmt: skip
    seed: int | None = option(0, "Random seed; the same seed gives the same run.", None, shell=int, panel="Search",
                              identifies=True)  # fmt: skip
    maximize: Maximize = option(False, "Maximise instead of minimising.", check_maximize, shell=bool,
                                panel="Evaluation", identifies=True)  # fmt: skip
    noisy: bool | None = option(None, "The objective is random: report its mean at x, with an interval.", _check_bool,
                                shell=bool, panel="Evaluation", identifies=True)  # fmt: skip
    vectorized: bool = option(False, "The functions take the whole population as one array.", check_bool, shell=bool,
                              panel="Evaluation")  # fmt: skip
    blackbox: bool = option(False, "The functions are plain Python or NumPy, not JAX.", check_bool, shell=bool,
                            panel="Evaluation")  # fmt: skip
    on_failure: FailurePolicy | None = option(None, "How to treat NaN, inf and exceptions: worst, raise or resample.",
                                    _check_failure_policy, shell=str, panel="Evaluation",
                                    identifies=True)  # fmt: skip
    workers: Workers = option(None, "How black boxes are called.", _check_workers)
    keep: Keep = option(None, "Further contents of the result.",
                        _check_group(Keep, 'gx.Keep(history="x")'))  # fmt: skip
    compute: Compute = option(None, "What computes the run.", _check_group(Compute, 'gx.Compute(dtype="float32")'))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in GROUPS.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, kind())

    @classmethod
    def parse(cls, arguments: Mapping[str, Any]) -> Options:
        """Build the options from those arguments of a verb that are options."""
        return cls(**{name: arguments[name] for name in cls.__dataclass_fields__ if name in arguments})

    @property
    def n_runs(self) -> int:
        return len(self.runs) if isinstance(self.runs, range) else self.runs

    @property
    def first_run(self) -> int:
        """The number of the first run."""
        return self.runs.start if isinstance(self.runs, range) else 0


GROUPS: dict[str, type[Checked]] = {"workers": Workers, "keep": Keep, "compute": Compute}


class Leaf(NamedTuple):
    """One option that is not a group: where it is declared, and its metadata."""

    name: str  # unique among all leaves
    group: str  # the group that holds it; "" for none
    field: str  # its name in the group
    default: Any
    spec: Spec


def iterate_leaves() -> Iterator[Leaf]:
    """Iterate over every option, with those of groups one by one."""
    for entry in dataclasses.fields(Options):
        if entry.name not in GROUPS:
            yield Leaf(entry.name, "", entry.name, entry.default, entry.metadata["spec"])
    for group, kind in GROUPS.items():
        for entry in dataclasses.fields(kind):  # type: ignore[arg-type]
            spec = entry.metadata["spec"]
            yield Leaf(spec.name or entry.name, group, entry.name, entry.default, spec)


LEAVES = {leaf.name: leaf for leaf in iterate_leaves()}


def read(options: Options, name: str) -> Any:
    """Return the value of an option by name, also of one in a group."""
    leaf = LEAVES[name]
    return getattr(getattr(options, leaf.group) if leaf.group else options, leaf.field)


def group_arguments(values: Mapping[str, object]) -> dict[str, object]:
    """Convert {name of a leaf: value} to the arguments of a verb; values in a group become the group."""
    arguments: dict[str, object] = {}
    group_fields: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        leaf = LEAVES[name]
        if not leaf.group:
            arguments[name] = value
        elif value != leaf.default:
            group_fields.setdefault(leaf.group, {})[leaf.field] = value
    return arguments | {group: GROUPS[group](**fields) for group, fields in group_fields.items()}


def threads_from_environment() -> int | None:
    """Return the number of threads of GALAPAX_THREADS; None if it is not set."""
    text = os.environ.get("GALAPAX_THREADS", "")
    if text and not (text.isdigit() and int(text)):
        raise InputError(f"GALAPAX_THREADS must be a number of threads, at least 1; it is {text!r}.")
    return int(text) if text else None


# --- the verbs that take options --------------------------------------------------------------------------------------

P = ParamSpec("P")
R = TypeVar("R")
ClassT = TypeVar("ClassT")


def suggest_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a verb so that unknown keywords are answered, and scipy's `minimize(f, x0, bounds=B)` is understood."""
    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def verb(*positional: Any, **named: Any) -> R:
        if len(positional) == 2 and "bounds" in named and "x0" in parameters:
            *positional, named["x0"] = positional  # type: ignore[assignment]
        for name in named:
            if name not in parameters:
                raise unknown_keyword_error(name, parameters, function.__name__, named[name])
        try:
            return function(*positional, **named)
        except (InputError, EvaluationError) as error:
            if shows_all_frames():
                raise
            raise error.with_traceback(None)  # noqa: B904  # the sentence says it all; our own frames would bury it

    return verb


def suggest_arguments(kind: type[ClassT]) -> type[ClassT]:
    """Make the constructor of a class answer words of other libraries."""
    init = kind.__init__
    parameters = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def checked_init(self: ClassT, *positional: Any, **named: Any) -> None:
        for name in named:
            if name not in parameters:
                raise unknown_keyword_error(name, parameters, kind.__name__, named[name])
        init(self, *positional, **named)

    setattr(kind, "__init__", checked_init)  # noqa: B010  # mypy takes an assignment for a mistake
    return kind
