"""Parse options into arguments of the library: problem, algorithm, settings, points, snapshots, choice."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from galapax import algorithms, problems
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.api.minimax import ACCEPTED_OPTIONS, default_coevolution
from galapax.cli.shell_options import SOLVE, SUITE_ALGORITHMS, Arguments, run_options
from galapax.core.algorithm import Algorithm
from galapax.core.checks import check_integer, check_positive
from galapax.core.errors import InputError, unknown_name_error
from galapax.core.options import Islands, Options, group_arguments
from galapax.core.problem import MinMaxProblem, Problem, objective_signs
from galapax.execution.arguments import count_named_objectives
from galapax.execution.observers import Checkpoint
from galapax.execution.task import MIN_DEFAULT_GENERATIONS, default_algorithm, resolve_options
from galapax.objective.function_identity import count_objectives
from galapax.operators import variation
from galapax.results.front import ASK_USER, CHOICE_RULES
from galapax.results.front import choose as choose_point
from galapax.storage import checkpoint, gagpu

# options of `solve` that `resume` does not repeat: where a run is computed, watched and shown
NOT_RESUMED_OPTIONS = {
    "problem", "max_seconds", "threads", "coordinator", "process_id", "num_processes", "checkpoint", "resume", "live",
    "port", "host", "open_page", "wait", "paused", "quiet", "as_json", "use_cache",
}  # fmt: skip
NAMED_OPERATORS = {f.__name__: f for f in (variation.rand_1, variation.best_1)}  # that a hyper-parameter can be
VALUE_DESCRIPTIONS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Callable: " or ".join(NAMED_OPERATORS),
}
DIRECTIONS = {"min": False, "max": True, "minimize": False, "maximize": True}  # whether it maximises
BOOLEANS = {"true": True, "false": False}
SUITE_TARGET = 1e-8  # distance to the best value at which a run on a suite's problem succeeds, unless it is given
MAX_DIM = 10**7  # beyond it the box alone would fill the memory, before anything could be refused


# --- the problem ------------------------------------------------------------------------------------------------------


def load_problem(name: str, dim: int | None, minmax: bool = False) -> Any:
    """Load a built-in problem by name, or the problem in a Python file. minmax: accept min-max problems."""
    if is_file(name):
        if dim is not None:
            raise InputError("--dim applies to built-in problems only; a file defines its own number of variables.")
        problem = load_file(Path(name))
    else:
        if dim is not None and dim > MAX_DIM:
            raise InputError(f"--dim must be at most {MAX_DIM}; got {dim}.")
        problem = problems.get(name) if dim is None else problems.get(name, dim=dim)
    if isinstance(problem, MinMaxProblem) and not minmax:
        raise InputError(f"{name} is a min-max problem; use galapax solve with the algorithm cde.")
    return problem


def load_problems(names: list[str] | None, suite: str | None, dim: int | None, instance: int | None) -> list[Problem]:
    """Load the problems that `compare` names, separated by commas, or those of a suite."""
    if suite is None:
        if names is None:
            raise InputError("compare needs problems: --problems ackley,g06, or --suite bbob.")
        refuse_non_defaults((("--instance", instance, None),), "applies only with --suite.")
        return [load_problem(name, dim) for text in names for name in text.split(",") if name]
    if names is not None:
        raise InputError("give --problems or --suite, not both.")
    if suite not in problems.SUITES:
        raise unknown_name_error("suite", suite, problems.SUITES)
    return problems.SUITES[suite](10 if dim is None else dim, 1 if instance is None else instance)


def parse_directions(arguments: Arguments) -> Any:
    """Return `maximize` from --maximize, or from --directions as in min,max."""
    if arguments.directions is None:
        return arguments.maximize
    if arguments.maximize:
        raise InputError("--maximize is for all objectives and --directions for each: give one of them.")
    words = arguments.directions.lower().split(",")
    if unknown := [word for word in words if word not in DIRECTIONS]:
        raise InputError(
            f"--directions takes min or max for each objective, separated by commas, as in min,max; got {unknown[0]!r}."
        )
    return tuple(DIRECTIONS[word] for word in words)


def parse_target(problem: Any, target: float | None, within: float | None, maximize: bool | None) -> float | None:
    """Return the value to reach: --target, or --within a distance of the best known one."""
    if within is None:
        return target
    if target is not None:
        raise InputError("--target and --within both say when a run has succeeded: give one of them.")
    if problem.optimum is None or maximize:
        raise InputError(
            f"--within is a distance from the best known value, and {problem.name} has none: use --target."
        )
    return float(problem.optimum) + check_positive(within, "--within")


def is_file(name: str) -> bool:
    """Return whether a problem is named by its file."""
    return name.endswith(".py") or "/" in name


def load_file(path: Path) -> Problem | MinMaxProblem:
    """Run a Python file and take the problem it defines."""
    names = run_file(path)
    if isinstance(names.get("problem"), Problem | MinMaxProblem):
        return names["problem"]
    if "fun" in names and "bounds" in names:
        return Problem(names["fun"], names["bounds"], ineq=names.get("ineq"), eq=names.get("eq"), name=path.stem)
    raise InputError(f"{path} defines neither `problem` (a galapax Problem) nor `fun` and `bounds`; add one of them.")


def load_illumination(path: Path) -> dict[str, Any]:
    """Run a Python file and take what it defines as arguments of `illuminate`."""
    required, optional = ("fun", "bounds", "measures", "ranges"), ("cells", "ineq", "eq")
    if not is_file(str(path)):
        raise InputError(
            "illuminate takes FILE.py, which defines `fun`, `bounds`, `measures` and `ranges`: the built-in problems "
            f"have no measures; got {path}."
        )
    names = run_file(path)
    if missing := [name for name in required if name not in names]:
        raise InputError(
            f"illuminate takes a file with `fun`, `bounds`, `measures` and `ranges`; {path} does not define "
            f"{', '.join(missing)}."
        )
    return {name: names[name] for name in required + optional if name in names}


def run_file(path: Path) -> dict[str, Any]:
    """Run a Python file and return what it defines."""
    if not path.is_file():
        raise InputError(f"File not found: {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as `python FILE.py` does, so that it finds its neighbours
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise InputError(f"{path} could not be run: {type(error).__name__}: {reason}") from error
    return vars(module)


# --- the algorithm ----------------------------------------------------------------------------------------------------


def parse_algorithm_options(arguments: Arguments, problem: Problem) -> Algorithm | str | None:
    """Return the name of the algorithm, or with `--set` the algorithm with those values; None for the default."""
    if not arguments.setting:
        name: str | None = arguments.algorithm
        return name
    return _with_settings(arguments, lambda: default_algorithm(problem, _resolve_options(arguments, problem)))


def _with_settings(arguments: Arguments, default: Callable[[], Algorithm]) -> Algorithm:
    """Return the algorithm with the values of `--set`. default: builds it where none is named."""
    algorithm = default() if arguments.algorithm is None else algorithms.resolve_algorithm(arguments.algorithm)
    values = parse_settings(algorithm, arguments.setting or [])
    if "population" in values and arguments.population is not None:
        raise InputError("give --population or --set population=, not both.")
    return dataclasses.replace(algorithm, **values)  # type: ignore[type-var]


def _resolve_options(arguments: Arguments, problem: Problem) -> Options:
    """Resolve the options that decide which algorithm fits a problem."""
    names = ("blackbox", "vectorized", "dtype", "workers", "maximize")
    values = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return resolve_options(problem, Options.parse(group_arguments(values)))


def parse_restarts(arguments: Arguments, algorithm: Algorithm | str | None) -> str | None:
    """Parse --restarts. The default algorithm restarts by default, with the values of `--set` too."""
    if arguments.restarts in (None, "auto"):
        is_default = arguments.algorithm is None and isinstance(algorithm, algorithms.CMAES)
        return "portfolio" if is_default else "auto"
    return None if arguments.restarts == "none" else str(arguments.restarts)


def parse_cells(text: str) -> int | tuple[int, ...]:
    """Parse --cells: a number, or one for each measure."""
    if re.fullmatch(r"\d+(,\d+)*", text.strip()) is None:
        raise InputError(f"--cells takes a number of cells, or one for each measure, as in 40,30; got {text!r}.")
    numbers = tuple(int(word) for word in text.split(","))
    return numbers if len(numbers) > 1 else numbers[0]


def parse_runs(arguments: Arguments) -> int | range | None:
    """Parse --runs and --first-run."""
    if arguments.first_run is None:
        n_runs: int | None = arguments.runs
        return n_runs
    first, n_runs = check_integer(arguments.first_run, "--first-run", 0), arguments.runs
    return range(first, first + (1 if n_runs is None else check_integer(n_runs, "--runs", 1)))


def parse_workers_timeout(text: str | None) -> float | str | None:
    """Parse --workers-timeout; `minimize` refuses anything but a number."""
    if text == "none":
        return math.inf
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def parse_algorithms(names: list[str] | None, suite: str | None) -> list[Algorithm]:
    """Parse the algorithms that `compare` names, separated by commas; a suite has a default."""
    if names is None and suite is None:
        raise InputError("compare needs algorithms: --algorithms de,ga.")
    texts = [SUITE_ALGORITHMS] if names is None else names
    return [parse_algorithm(name) for text in texts for name in text.split(",") if name]


def parse_algorithm(text: str) -> Algorithm:
    """Parse an algorithm from NAME or NAME:SETTING=VALUE:..., as `compare` takes it."""
    name, *settings = text.split(":")
    algorithm = algorithms.get(name)
    return dataclasses.replace(algorithm, **parse_settings(algorithm, settings))  # type: ignore[type-var]


def parse_game_algorithm(problem: MinMaxProblem, arguments: Arguments) -> Any:
    """Return the co-evolution that solves a min-max problem, with the values of `--set`."""
    if arguments.algorithm is not None and not isinstance(
        algorithms.resolve_algorithm(arguments.algorithm), CoevolutionaryDE
    ):
        raise InputError(f"{problem.name} is a min-max problem, which only cde solves; remove --algorithm.")
    if arguments.algorithm is None and not arguments.setting:
        return None
    return _with_settings(arguments, lambda: default_coevolution(problem))


def refuse_min_max(arguments: Arguments, problem: str) -> None:
    """Refuse options of a run that do not apply to min-max problems."""
    names = [name for name in run_options() if name not in ACCEPTED_OPTIONS] + ["history_x", "choose", "gagpu_config"]
    names.insert(0, "directions")
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value is not False:
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{flag} does not apply to min-max problems such as {problem}: remove it.")


def parse_checkpoint(problem: str, arguments: Arguments, command: str = "solve") -> Checkpoint | None:
    """Parse `--checkpoint`; the options of `solve` are stored in the file, for `galapax resume`."""
    if arguments.checkpoint is None:
        if arguments.checkpoint_every is not None or arguments.resume:
            raise InputError(f"{'--resume' if arguments.resume else '--checkpoint-every'} needs --checkpoint FILE.")
        return None
    seconds = Checkpoint.seconds if arguments.checkpoint_every is None else arguments.checkpoint_every
    if command != "solve":
        return Checkpoint(arguments.checkpoint, seconds)
    options = {name: value for name, value in vars(arguments).items() if name not in NOT_RESUMED_OPTIONS}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
    return Checkpoint(arguments.checkpoint, seconds, about={"solve": plain | {"problem": problem}})


def read_checkpoint_options(file: Path, problem: Path | None) -> dict[str, object]:
    """Read the options of a run from its checkpoint.

    problem: the Python file of the problem, which only the user may name, so that a checkpoint cannot run code.
    """
    if not file.exists() and not file.with_name(file.name + checkpoint.PREVIOUS_SUFFIX).exists():
        raise InputError(f"there is no checkpoint {str(file)!r}.")
    saved = checkpoint.read(file)["about"].get("solve")
    if not isinstance(saved, dict) or not isinstance(saved.get("problem"), str):
        raise InputError(
            f"{str(file)!r} was not written by galapax solve: resume it from Python with resume={str(file)!r}, or "
            "repeat the command that wrote it, with --resume."
        )
    names = {*run_options(), *SOLVE, "problem"} - (NOT_RESUMED_OPTIONS - {"problem"})
    values = {name: value for name, value in saved.items() if name in names}
    for name in ("out", "x0", "initial", "gagpu_config"):
        values[name] = Path(values[name]) if values.get(name) is not None else None
    if is_file(values["problem"]):
        if problem is None:
            raise InputError(
                f"the problem is in the Python file {values['problem']!r}, which resuming would run: name it, as in "
                f"galapax resume {file} {values['problem']}."
            )
        values["problem"] = str(problem)
    elif problem is not None:
        raise InputError(f"this run solves the built-in problem {values['problem']}: remove {str(problem)!r}.")
    return values


def parse_settings(algorithm: Algorithm, settings: Iterable[str], several: bool = False) -> dict[str, object]:
    """{name: value} from NAME=VALUE; with `several`, NAME=V1,V2 gives a list."""
    types_by_name = {
        name: kind
        for name, kind in hyperparameters(algorithm).items()
        if kind is not Callable or getattr(algorithm, name) is not None  # operators of the user's have no names here
    }
    values: dict[str, object] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or key not in types_by_name:
            raise InputError(
                f"--set takes NAME=VALUE with NAME one of {', '.join(types_by_name)}, the hyper-parameters of "
                f"{algorithms.algorithm_name(algorithm)}; got {text!r}."
            )
        if key in values:
            raise InputError(
                f"--set names {key} twice; give each name once{', its values separated by commas' * several}."
            )
        items = value.split(",") if several else [value]
        parsed = [_parse_value(key, item, types_by_name[key]) for item in items]
        values[key] = parsed if several and len(parsed) > 1 else parsed[0]
    return values


def hyperparameters(algorithm: Algorithm) -> dict[str, object]:
    """{name: kind} of the hyper-parameters that text can give: numbers, switches, functions. The rest is internal."""
    hints = get_type_hints(type(algorithm))
    types_by_name = {f.name: _value_type(hints[f.name]) for f in dataclasses.fields(algorithm)}  # type: ignore[arg-type]
    return {name: value_type for name, value_type in types_by_name.items() if value_type in VALUE_DESCRIPTIONS}


def _value_type(hint: object) -> Any:
    """Return the type of a value: of `float | None`, float, since None stands for a number the algorithm derives."""
    if get_origin(hint) in (Union, types.UnionType):
        alternatives = [alternative for alternative in get_args(hint) if alternative is not types.NoneType]
        return _value_type(alternatives[0]) if len(alternatives) == 1 else None
    return get_origin(hint) or hint


def _parse_value(name: str, text: str, value_type: object) -> Any:
    try:
        if value_type in (int, float):
            return value_type(text)
        return (BOOLEANS if value_type is bool else NAMED_OPERATORS)[text.lower()]
    except (ValueError, KeyError):
        raise InputError(f"--set {name} takes {VALUE_DESCRIPTIONS[value_type]}; got {text!r}.") from None


# --- GAGPU's configuration --------------------------------------------------------------------------------------------


class GagpuSettings(NamedTuple):
    """The settings in a GAGPU configuration that no option overrides."""

    file: Path
    algorithm: Algorithm
    variables: int

    def algorithm_for(self, problem: Problem, name: str) -> Algorithm:
        """Return its algorithm for a problem, which must have as many variables as the configuration says."""
        if problem.dim != self.variables:
            raise InputError(f"NO_VAR in {self.file} is {self.variables} and {name} has {problem.dim} variables.")
        return self.algorithm


def apply_gagpu_config(arguments: Arguments, problem: str) -> GagpuSettings | None:
    """Read GAGPU's config.h, if it is given, and take from it what no option says otherwise."""
    file = arguments.gagpu_config
    if file is None:
        return None
    config = gagpu.read_config(file)
    chosen = {"--algorithm": arguments.algorithm, "--set": arguments.setting, "--population": arguments.population}
    for flag, value in chosen.items():
        if value:
            raise InputError(f"{flag} and --gagpu-config both choose the algorithm: give only one.")
    variables, dim = config["NO_VAR"], arguments.dim
    if dim is None and not is_file(problem):
        fixed = problems.get(problem)
        if isinstance(fixed, Problem) and fixed.dim != variables:
            dim = variables
    arguments.dim = dim
    arguments.generations = config["NO_GEN"] if arguments.generations is None else arguments.generations
    arguments.runs = config["NO_TESTS"] if arguments.runs is None else arguments.runs
    return GagpuSettings(file, gagpu.build_algorithm(config), variables)


# --- options that hold more than one value ----------------------------------------------------------------------------


def refuse_non_defaults(options: Iterable[tuple[str, object, object]], why: str) -> None:
    """Refuse the first of (option, value, default) whose value is not its default."""
    for option, value, default in options:
        if value != default:
            raise InputError(f"{option} {why}")


def check_choice(arguments: Arguments, problem: Problem) -> Any:
    """Parse --choose and check it against the problem's number of objectives, as far as that is known."""
    text = arguments.choose
    if text is None:
        return None
    choice = parse_choice(text)
    count = None
    options = _resolve_options(arguments, problem)
    if not options.blackbox:
        size = arguments.population or default_algorithm(problem, options).population
        count = count_objectives(problem, str(options.compute.dtype), size if options.vectorized else 0)
    else:
        count = count_named_objectives(problem, options)
    if count == 1:
        raise InputError(f"--choose needs several objectives, and {problem.name} has one: remove it.")
    if choice == ASK_USER:
        return choice
    rule = choice if isinstance(choice, dict) else {"how": choice}
    values = next(iter(rule.values()))
    try:
        n_objectives = count or (2 if isinstance(values, str) else len(values))
        choose_point(np.ones((1, n_objectives)), objective_signs(False), **rule)
    except InputError:
        expected = f"{count} weights" if count else "one weight per objective"
        raise InputError(
            f"--choose takes {', '.join(CHOICE_RULES)} or {expected} of at least 0, not all 0, separated by commas; or "
            f"near: or reach: before as many values of the objectives; or ask; got {text!r}."
        ) from None
    return choice


def parse_choice(text: str) -> Any:
    """Parse `knee`, `ideal`, `ask` or weights; near:1,2 is {"reference": values}, reach:1,2 {"aspiration": values}."""
    word, colon, levels = text.partition(":")
    rule = {"near": "reference", "reach": "aspiration"}.get(word) if colon else None
    try:
        values = [float(number) for number in (levels if rule else text).split(",")]
    except ValueError:
        return text
    return {rule: values} if rule else values


def parse_snapshots(arguments: Arguments) -> Sequence[int]:
    """Parse generations from "1,10,100", or from "every:10": the first and then every tenth."""
    text, generations = arguments.snapshots, arguments.generations
    if text is None:
        return ()
    word, colon, step = text.partition(":")
    try:
        if not colon:
            return [int(number) for number in text.split(",")]
        if word != "every" or int(step) < 1:
            raise ValueError
    except ValueError:
        raise InputError(f"--snapshots takes generations such as 1,10,100, or every:10; got {text!r}.") from None
    if generations is None and (arguments.max_evaluations is not None or arguments.max_seconds is not None):
        raise InputError(
            "--snapshots every:K needs --generations, because the number of generations is not known otherwise."
        )
    last = MIN_DEFAULT_GENERATIONS if generations is None else generations
    return sorted({1, *range(int(step), last + 1, int(step))})


def read_points(file: Path | None, dim: int) -> np.ndarray | None:
    """Read points from a CSV file, one a row; a heading is skipped, and so are columns after the first `dim`."""
    if file is None:
        return None
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(f"{file} could not be read: {error}.") from None
    rows = [[cell for cell in re.split(r"[,;\s]+", line.strip()) if cell] for line in lines]
    if rows and not (rows[0] and _is_number(rows[0][0])):
        rows = rows[1:]
    try:
        points = np.array([[float(cell) for cell in row[:dim]] for row in rows])
    except ValueError:
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] != dim:
        raise InputError(f"{file} must contain one point per row, {dim} numbers each.")
    return points


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse_islands(arguments: Arguments) -> Islands | None:
    """Parse the options of islands."""
    names = ("migrate_every", "migrants", "topology")
    values: dict[str, Any] = {n: getattr(arguments, n) for n in names if getattr(arguments, n) is not None}
    if arguments.islands is None:
        if values:
            raise InputError("--migrate-every, --migrants and --topology are for islands: add --islands.")
        return None
    return Islands(arguments.islands, **values)
