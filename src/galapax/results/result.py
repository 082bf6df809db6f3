"""The result of a run or an ensemble: plain data in NumPy, and why it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from galapax.core.algorithm import Forecast
from galapax.core.checks import HTMLRepr, abbreviate, check_integer, pluralize
from galapax.core.errors import InputError, warn
from galapax.core.hints import RESULT_ATTRIBUTES, attribute_error, find_answers
from galapax.core.problem import Population, ProblemDescription, objective_signs
from galapax.core.stop import Stop
from galapax.metrics.coverage import covers_as_uniform
from galapax.metrics.importance import total_effects
from galapax.metrics.statistics import expected_running_time, wilson_interval
from galapax.results.front import Ask, ask_in_terminal, choose_by_asking

if TYPE_CHECKING:
    from pandas import DataFrame

    from galapax.view.accessor import Plot
from galapax.results.front import ASK_USER, Front, choose, knee

MaybeNone = Any  # None in some results only: users need not test for it where they know what they asked for


@dataclass(frozen=True, repr=False)
class History(HTMLRepr):
    """One row per generation. For a single run each array is (G,), for R runs (R, G); for m objectives (..., m).

    best: the best value so far; of a run that has found no feasible point yet, the least infeasible one's value. Of
        several objectives the least of each among the survivors (or in the archive).
    mean, worst: over the surviving individuals.
    violation, feasible_share: with constraints, the best one's violation and the share of feasible individuals.
    x: with history="x", the best individual itself, one axis more.
    hypervolume: of several objectives with a reference point, that of the feasible survivors (or of the archive);
        of four and more an unbiased estimate, and hypervolume_error its standard error.
    Of a random objective best is the mean of the generation's values, and in a last row the estimate at x.
    A run of an ensemble that stopped early repeats its last row. Where runs were polished, that is one row more, after
    the last generation.
    """

    generation: np.ndarray  # (G,), from 1
    nfev: np.ndarray  # (G,) evaluations of one run up to then; (R, G) where the runs differ in them
    best: np.ndarray
    mean: np.ndarray
    worst: np.ndarray
    violation: np.ndarray | None = None
    feasible_share: np.ndarray | None = None
    x: np.ndarray | None = None
    hypervolume: np.ndarray | None = None
    hypervolume_error: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.generation)

    def of_run(self, row: int) -> History:
        """The history of one run of an ensemble."""
        return self._map_arrays(lambda array: array[row])

    def as_ensemble(self) -> History:
        """The history of a single run as that of an ensemble of one."""
        return self._map_arrays(lambda array: array[None])

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame with one row per generation; of an ensemble, one per run (from 0) and generation."""
        from galapax.storage.export import to_dataframe

        return to_dataframe(self)

    @property
    def runs(self) -> int | None:
        """The number of runs of an ensemble; None for a single run."""
        ensemble = self.best.ndim == 3 or (self.best.ndim == 2 and self.best.shape[1] == len(self))
        return len(self.best) if ensemble else None

    def __repr__(self) -> str:
        runs = "" if self.runs is None else f", {self.runs} runs"
        names = ", ".join(f.name for f in fields(self) if getattr(self, f.name) is not None)
        return f"History({pluralize(len(self), 'generation')}{runs}: {names})"

    def _map_arrays(self, function: Callable[[np.ndarray], np.ndarray]) -> History:
        shared = ("generation",) if self.nfev.ndim == 2 else ("generation", "nfev")
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in shared}
        return replace(self, **{name: function(array) for name, array in arrays.items() if array is not None})


class DeferredHistory:
    """Descriptor of a history that may be computed on first access: that of many runs takes long to fetch."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, runs: Runs | None, owner: type[Runs] | None = None) -> History | None:
        if runs is None:
            raise AttributeError(self.name)  # a dataclass asks for a default: there is none
        value = vars(runs)[self.name]
        if callable(value):
            value = vars(runs)[self.name] = value()
        return value

    def __set__(self, runs: Runs, value: History | Callable[[], History] | None) -> None:
        vars(runs)[self.name] = value


@dataclass(frozen=True, repr=False)
class Runs(HTMLRepr):
    """The runs of an ensemble, one entry each."""

    number: np.ndarray  # (R,) run numbers, as `minimize(..., runs=range(17, 20))` counts them
    x: np.ndarray  # (R, d)
    fun: np.ndarray  # (R,); of m objectives (R, m), at the knee of each run's front
    violation: np.ndarray  # (R,)
    nit: np.ndarray  # (R,)
    nfev: np.ndarray  # (R,)
    n_failed: np.ndarray  # (R,)
    success: np.ndarray  # (R,) bool
    history: DeferredHistory = DeferredHistory()
    fronts: list[Front] | None = None  # of several objectives; without the values of the constraints
    hypervolume: np.ndarray | None = None  # (R,), of several objectives with a reference point
    fun_interval: np.ndarray | None = None  # (R, 2), of a random objective
    confidence: np.ndarray | None = None  # (R,), of runs that restart, see Result

    def __len__(self) -> int:
        return len(self.fun)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"history": self.history}

    @property
    def feasible(self) -> np.ndarray:
        return self.violation <= 0

    def quantiles(self, q: ArrayLike = (0.0, 0.25, 0.5, 0.75, 1.0)) -> np.ndarray:
        """Quantiles of the final values over the runs; of several objectives, of the hypervolume.

        Runs that failed, whose value is not finite, are left out; all are NaN if there is no other.
        """
        return finite_quantiles(self.final_values(), q)

    def final_values(self) -> np.ndarray:
        """The final value of each run (R,), or of several objectives its front's hypervolume."""
        values = self.fun if self.fronts is None else self.hypervolume
        if values is None:
            raise InputError(
                "runs with several objectives are compared by hypervolume: give the Problem a reference_point."
            )
        return np.asarray(values, np.float64)

    def success_rate(self, confidence: float = 0.95) -> tuple[float, float, float]:
        """The share of successful runs, and its Wilson interval."""
        hits = int(self.success.sum())
        return hits / len(self), *wilson_interval(hits, len(self), confidence)

    def ert(self) -> float:
        """Expected running time: evaluations of all runs per successful run."""
        return expected_running_time(self.nfev, self.success)

    def to_dataframe(self) -> DataFrame:
        """A pandas DataFrame with one row per run."""
        from galapax.storage.export import to_dataframe

        return to_dataframe(self)

    def __repr__(self) -> str:
        summary = f"success {int(self.success.sum())} of {len(self)}"
        if self.fronts is None or self.hypervolume is not None:
            low, median, high = self.quantiles((0.0, 0.5, 1.0))
            name = "fun" if self.fronts is None else "hypervolume"
            summary = f"{name} between {low:.6g} and {high:.6g}, median {median:.6g}; {summary}"
        return f"Runs({len(self)} runs: {summary}; {self.nfev.sum():,} evaluations)"


class Robust(NamedTuple):
    """The answer of `gx.robust` in fresh scenarios.

    measure, value, interval: what was minimised, its value at x and the 95 % confidence interval (2,); exact where the
        scenarios were given, and open above for the worst case. n_samples: fresh scenarios.
    outcomes: the percentiles of fun at x, from 0 to 100 (101,). probability, probability_interval: that the constraints
        hold, if some depend on uncertain quantities.
    """

    measure: str
    value: float
    interval: np.ndarray
    n_samples: int
    outcomes: np.ndarray
    probability: float | None = None
    probability_interval: np.ndarray | None = None

    def __repr__(self) -> str:
        text = f"{self.measure} {self.value:.6g}"
        if np.isfinite(self.interval).all() and self.interval[0] < self.interval[1]:
            text += f", 95 % interval {self.interval[0]:.6g} to {self.interval[1]:.6g}, {self.n_samples} fresh samples"
        if self.probability is not None and self.probability_interval is not None:
            low, high = self.probability_interval
            text += f"; constraints hold with probability {self.probability:.4g} ({low:.4g} to {high:.4g})"
        return text


INTERNAL_NAMES = ("sign", "signs")  # of a Result, for the views: tab completion leaves them out
MIN_IMPORTANCE_POINTS = 20
MIN_EXPLAINED_VARIANCE = 0.5  # by trees that importances are taken from; below it a warning says so
MAX_REPR_VARIABLES = 12  # longer solutions are abbreviated


class Result(dict[str, Any], HTMLRepr):
    """The outcome of `minimize`, used by attribute or as a mapping, like scipy's OptimizeResult.

    x, fun: the best solution (of all runs) and its value.
    robust: of `gx.robust`, a Robust, or one for each measure.
    fun_interval: of a random objective, the 95 % confidence interval (2,) of its mean at x, whose estimate fun is; NaN
        where the run was stopped before x could be evaluated again.
    feasible, violation: whether it satisfies the constraints, and its total violation.
    success: True if the answer is feasible and reached the target or, without a target, the search converged.
    confidence: of a run that restarts, how sure its searches make it that no better value is left to be found; None of
        others, and without a feasible point. From 0.95 on a run without a target ends, from 0.8 on it is a success.
    stop, message: which rule ended the run, as a word and as a sentence.
    nit, nfev, n_failed: generations, evaluated points and failed evaluations (nit of the best run, the others of all).
    params: x by the names of its variables.
    evaluations: for a black box, every call that was made, see Evaluations; nfev also counts points that memoize knew.
    failures: for a black box, the first few failed points, each with `x`, `error` and, of an exception, `traceback`.
    n_cached: with memoize, the number of points whose values were known.
    ineq, eq: constraint values at x. population, population_fitness: the survivors (of the best run).
    plot: figures of all this, see `view.accessor.Plot`.
    snapshots: {generation: Population} as requested; with several runs, the runs are the first axis.
    history: see History (of the best run). runs: see Runs; None for a single run, which the entries above describe.
    seed: repeats the run.
    timings: seconds for "compile", "run" (the generations, of which "device" was spent waiting for the device) and
    "host" (everything else); "held" by a live page, if any.
    settings: what was requested. derived: {name: number} at x, if the problem defines any.
    restarted: the generations with which a further search began, of a run that restarted.
    polish: what the polish did, in words, if it was requested; the population is as the evolution left it.

    With several objectives X (k, d), F (k, m), G, H and CV are the feasible non-dominated individuals of all runs,
    their objectives, constraints (or None) and violation; derived has k numbers by name; x and fun (m,) are the knee
    of the front, and population_fitness is (n, m). hypervolume: with a reference point, that of the best run; of four
    and more objectives an estimate, and hypervolume_error its standard error (with a history). forecast: of `EHVI`,
    what its models expect of the points to evaluate next (forecast.x) and of the front between its points, each with a
    95 % interval, see Forecast; None before there are models.
    """

    problem: ProblemDescription
    x: np.ndarray
    fun: Any  # a float; of several objectives (m,)
    success: bool
    message: str
    stop: Stop
    nit: int
    nfev: int
    n_failed: int
    seed: int
    feasible: bool
    violation: float
    ineq: np.ndarray | MaybeNone
    eq: np.ndarray | MaybeNone
    population: np.ndarray
    population_fitness: np.ndarray
    snapshots: dict[int, Population]
    history: History | MaybeNone
    runs: Runs | MaybeNone
    timings: dict[str, float]
    settings: dict[str, Any]
    X: np.ndarray
    F: np.ndarray
    G: np.ndarray | MaybeNone
    H: np.ndarray | MaybeNone
    CV: np.ndarray
    derived: dict[str, Any]  # a float; of a front (k,)
    confidence: float | MaybeNone
    forecast: Forecast | MaybeNone

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if find_answers(name, RESULT_ATTRIBUTES):
                raise attribute_error(self, "a", name, RESULT_ATTRIBUTES) from None
            public = [each for each in vars(Result) if not each.startswith("_") and each not in self]
            raise AttributeError(f"a Result has no {name!r}; it has {', '.join([*self, *public])}.") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self:
            raise AttributeError(f"a Result has no {name!r}.")
        del self[name]

    def __dir__(self) -> list[str]:
        methods = [name for name in vars(Result) if not name.startswith("_") and name not in INTERNAL_NAMES]
        return [name for name in object.__dir__(self) if name.startswith("__")] + [*methods, *self]

    def __reduce__(self) -> tuple[type[Result], tuple[dict[str, Any]]]:
        # problems hold functions, often lambdas, which pickle refuses
        entries = {k: v.without_functions() if k == "problem" else v for k, v in self.items()}
        return (Result, (entries,))

    def run(self, number: int) -> Result:
        """Repeat run `number` of this ensemble, to the last bit, with all its details."""
        replay = find_replay(self)
        if replay is None:
            raise InputError(
                "This result was loaded or copied without its objective: call minimize with "
                f"runs=range({number}, {number + 1}) and the same seed instead."
            )
        numbers = self.runs.number if self.runs is not None else np.array([self.settings["first_run"]])
        if number not in numbers:
            raise InputError(f"run must be one of {numbers[0]} to {numbers[-1]}, got {number!r}.")
        return replay(int(number))

    def choose(
        self,
        how: str | ArrayLike = "knee",
        *,
        weights: ArrayLike | None = None,
        reference: ArrayLike | None = None,
        aspiration: ArrayLike | None = None,
        ask: Ask = ask_in_terminal,
    ) -> int:
        """The row of a point on the front: its "knee", the one closest to the "ideal", or the best by weights (m,).

        Objectives are scaled to their range on the front first. `res.X[res.choose([0.7, 0.3])]` is a solution, and
        `weights=[0.7, 0.3]` is the same.
        reference: (m,) the point closest to this one. aspiration: (m,) the point that reaches these levels best, or
        exceeds them most evenly; with weights, by these.
        "ask": the point that a few answers lead to, about which of two points is liked better. They are asked in the
        terminal; or ask, called with the text of each question, answers "a", "b", "=" (no preference) or "q" (stop).
        """
        if "F" not in self:
            raise InputError("there is no front to choose from: the problem has one objective, and the answer is x.")
        if weights is not None:
            if not (isinstance(how, str) and how == "knee"):
                raise InputError(f"how={abbreviate(how)} and weights both say how to choose: leave one out.")
            how = weights
        if isinstance(how, str) and how == ASK_USER and len(self.F):
            names = self.problem.objective_names(self.F.shape[1])
            return choose_by_asking(self.F, self.signs, [self.problem.with_unit(name) for name in names], ask)
        return choose(self.F, self.signs, how, reference=reference, aspiration=aspiration)

    @property
    def params(self) -> dict[str, Any]:
        """The solution x by name: floats, and of declared variables ints, bools and labels; no inactive variables."""
        return self.problem.params(self.x)

    @property
    def knee(self) -> int | None:
        """The row of the front's knee, whose solution is x; None where there is no front, or nothing on it."""
        return knee(self.F, self.signs) if "F" in self and len(self.F) else None

    @property
    def signs(self) -> np.ndarray:
        """-1 where an objective is maximised, else 1, (m,): times these, the least values are the best."""
        return np.broadcast_to(objective_signs(self.settings["maximize"]), np.size(self.fun))

    @property
    def sign(self) -> float:
        """The sign of the first objective, often the only one."""
        return float(self.signs[0])

    @property
    def plot(self) -> Plot:
        """Figures: plot.convergence(), plot.front(), plot.maps(), plot.parallel(), plot.landscape(); plot() chooses.

        See `view.accessor.Plot`, which this is.
        """
        from galapax.view.accessor import Plot

        return Plot(self)

    def importances(self, objective: int = 0) -> dict[str, float]:
        """How much each variable matters over the whole box, by name, the most important first; of a black box.

        The number is the share of the objective's variance in which the variable takes part, alone or with others, in
        regression trees that are fitted to the evaluations: see `galapax.metrics.importance`. These add up to more than
        1 where variables interact. Where the search has hardly been, effects are underestimated; random search
        (`algorithm="random"`) has been everywhere. A warning says where the evaluations cover too little of the box, or
        explain too little. objective: which, of several.
        """
        x, values = self._evaluated(objective)
        problem, space = self.problem, self.problem.space
        names, box = problem.variable_names(), problem.bounds
        if space is not None:
            names = [name for name, v in zip(names, space.variables, strict=True) if not v.is_fixed]
            box = space.genes
        genes = x if space is None else np.asarray(space.encode(x))
        is_real = np.zeros(genes.shape[1], bool)
        discrete, unordered = (is_real, is_real) if box.grid is None else (box.grid.discrete, box.grid.unordered)
        lower, upper = np.asarray(box.lower, np.float64), np.asarray(box.upper, np.float64)
        effects, explained = total_effects(genes, values, lower, upper, unordered)
        n_uniform = min(MIN_IMPORTANCE_POINTS, len(x) // 2)  # half: uniform points differ in how well they cover a box
        if not covers_as_uniform(genes, lower, upper, discrete, n_uniform):
            warn(
                f"the importances are uncertain: these {len(x)} evaluations cover the box no better than {n_uniform} "
                'uniform points would, as most are close together; evaluate with algorithm="random" to be sure.'
            )
        elif explained < MIN_EXPLAINED_VARIANCE:
            warn(
                f"the importances are uncertain: trees fitted to these {len(x)} evaluations explain "
                f"{max(0.0, explained):.0%} of the variance over the box."
            )
        return {names[i]: float(effects[i]) for i in np.argsort(-effects, kind="stable")}

    def _evaluated(self, objective: int) -> tuple[np.ndarray, np.ndarray]:
        """The evaluated points (n, d) that have values, and the values (n,) of an objective."""
        if "evaluations" not in self:
            raise InputError(
                "importances are computed from the evaluations of a black box (blackbox=True, or an Optimizer), and "
                "this run's objective was compiled: plot.landscape() shows it over two variables."
            )
        evaluations = self["evaluations"]
        values = evaluations.fun.reshape(len(evaluations), -1)
        if check_integer(objective, "objective", 0, "the objectives are counted from 0") >= values.shape[1]:
            raise InputError(f"objective must be below {values.shape[1]}, the number of objectives; got {objective!r}.")
        sound = ~evaluations.failed & np.isfinite(values[:, objective])
        if sound.sum() < MIN_IMPORTANCE_POINTS:
            raise InputError(
                f"importances need at least {MIN_IMPORTANCE_POINTS} evaluations with a value; this result has "
                f"{int(sound.sum())}."
            )
        return evaluations.x[sound], values[sound, objective]

    def to_dataframe(self, table: str | None = None) -> DataFrame:
        """A pandas DataFrame, with the names of the problem's variables and objectives as columns.

        table: "front", "runs", "history", "population" or, of a black box, "evaluations": one row per point of the
        front, run, generation, individual or call. By default the front of several objectives, else the runs, or of a
        single run its population. The history of a run that was refined by the gradient marks the rows of that in a
        column "refinement".
        """
        from galapax.storage.export import to_dataframe

        return to_dataframe(self, table)

    def save(self, folder: str | Path) -> Path:
        """Write this result to a folder: result.json, history.csv, population.csv, of a black box evaluations.csv,
        convergence.png, report.html, and manifest.json, which lists them.

        A run or study saved there before is replaced, all at once and not before the new one is written. Files that
        galapax did not write are left alone; if one is in the way, nothing is saved and an error names it.
        """
        from galapax.view.accessor import save

        return save(self, folder)

    def _format_entry(self, name: str) -> str:
        """Format an entry for `repr`; x of declared variables by name."""
        problem = self.get("problem")
        if name != "x" or problem is None or problem.space is None:
            return _format_value(self[name])
        active = problem.params(self.x)
        texts = {name: problem.show(i, self.x[i]) for i, name in enumerate(problem.variable_names()) if name in active}
        items = [f"{name}={text}" for name, text in list(texts.items())[:MAX_REPR_VARIABLES]]
        n_hidden = len(texts) - len(items)
        return ", ".join(items + [f"{n_hidden} more"] * (n_hidden > 0))

    def __repr__(self) -> str:
        names = ("message", "success", "confidence", "fun", "fun_interval", "worst_case", "x", "y", "feasible", "nit",
                 "nfev", "n_failed", "seed")  # fmt: skip
        labels = {"fun_interval": "interval"}
        present = [name for name in names if self.get(name) is not None]
        lines = [f"{labels.get(name, name):>10}: {self._format_entry(name)}" for name in present]
        reports = self.get("robust", ())
        for report in (reports,) if isinstance(reports, Robust) else reports:
            lines.append(f"{'robust':>10}: {report!r}")
        for failed in self.get("failures", ())[:2]:
            lines.append(f"{'failed':>10}: {failed.error}, at x = {_format_value(failed.x)}")
        if has_cells(self):
            lines.append(f"{'map':>10}: {describe_coverage(self)}; x is the best elite, fun its value and measures")
        elif "F" in self:
            contents = f"{len(self.F)} points in X and F; x and fun are its knee" if len(self.F) else "empty"
            lines.append(f"{'front':>10}: {contents}")
        runs: Runs | None = self.get("runs")
        if runs is not None and runs.fronts is not None:
            lines.append(f"{'runs':>10}: {len(runs)}")
        elif runs is not None:
            low, median, high = runs.quantiles((0.0, 0.5, 1.0))
            lines.append(f"{'runs':>10}: {len(runs)}, fun between {low:.6g} and {high:.6g}, median {median:.6g}")
        return "\n".join(lines)


def has_cells(result: Result) -> bool:
    """Whether a result is that of `illuminate`."""
    return "cells" in result.get("settings", {}).get("hyperparameters", {})


def describe_coverage(result: Result) -> str:
    """Say how much of the map of `illuminate` is filled."""
    values = np.asarray(result.population_fitness, np.float64)
    n_filled = int(np.isfinite(values).all(axis=1).sum())
    return f"{n_filled:,} of {len(values):,} cells have an elite ({100 * n_filled / len(values):.1f} %)"


def finite_quantiles(values: np.ndarray, q: ArrayLike) -> np.ndarray:
    """Quantiles of the values that are finite; NaN if none is."""
    finite = values[np.isfinite(values)]
    return np.quantile(finite, np.asarray(q)) if finite.size else np.full(np.shape(q), np.nan)


def constraint_names(result: Result) -> list[str]:
    """A name for each constraint, the inequalities first: the problem's own, or "ineq 1" and so on."""
    if result.problem.constraint_names is not None:
        return list(result.problem.constraint_names)
    groups = (("ineq", result.ineq), ("eq", result.eq))
    return [f"{kind} {i + 1}" for kind, values in groups if values is not None for i in range(len(values))]


def all_runs(result: Result) -> Runs:
    """The runs of a result; a single run as an ensemble of one."""
    if result.runs is not None:
        return result.runs
    history = result.history
    if history is not None:
        history = history.as_ensemble()
    columns = {
        name: np.array([result[name]]) for name in ("x", "fun", "violation", "nit", "nfev", "n_failed", "success")
    }
    confidence = None if result.get("confidence") is None else np.array([result.confidence])
    fronts = hypervolume = None
    if "F" in result:
        fronts = [Front(*(result[name] for name in ("X", "F", "G", "H", "CV")))]
        hypervolume = None if result.get("hypervolume") is None else np.array([result.hypervolume])
    number = np.array([result.settings["first_run"]])
    return Runs(
        number=number, **columns, history=history, fronts=fronts, hypervolume=hypervolume, confidence=confidence
    )


def _format_value(value: object) -> str:
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=6, threshold=10, edgeitems=4)
    return f"{value:.10g}" if isinstance(value, float) else str(value)


# What the library keeps with a Result beside its entries: not saved, not copied, and nobody's business but ours.


def attach_replay(result: Result, replay: Callable[[int], Result], opponents: np.ndarray | None = None) -> None:
    """Attach the function that repeats one run, and the opponents (R, ...) of a min-max problem, if any."""
    vars(result).update(_replay=replay, _opponents=opponents)


def find_replay(result: Result) -> Callable[[int], Result] | None:
    """The function that repeats run `number`; None for a result that was loaded or copied."""
    return vars(result).get("_replay")


def find_opponents(result: Result) -> np.ndarray | None:
    """Of a min-max problem, the final y against which each run was evaluated, (R, dy, k)."""
    return vars(result).get("_opponents")


def record_start(result: Result, moment: str) -> None:
    """Record when a run began, ISO 8601 in UTC; saved, but not an entry, so that equal runs stay equal."""
    vars(result)["_started"] = moment


def find_start(result: Result) -> str | None:
    """When a run began; None where nobody recorded it."""
    return vars(result).get("_started")


def record_late_interrupt(result: Result) -> None:
    """Record that Ctrl-C was pressed after the runs had ended."""
    message = f"{result.message} Ctrl-C was pressed while the result was being assembled."
    result.update(stop=Stop.INTERRUPT, message=message)
