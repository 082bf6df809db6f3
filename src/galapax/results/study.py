"""Many sets of runs side by side: what `sweep` and `compare` return."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from galapax.core.checks import HTMLRepr, pluralize
from galapax.core.errors import InputError
from galapax.core.hints import STUDY_ATTRIBUTES, attribute_error
from galapax.core.stop import Stop
from galapax.metrics import indicators, statistics
from galapax.metrics.statistics import Comparison, Friedman
from galapax.results.result import Result, all_runs

if TYPE_CHECKING:
    from pandas import DataFrame

    from galapax.view.accessor import StudyPlot

SIGNIFICANCE_LEVEL = 0.05

Labels = dict[str, Any]  # a cell's value on each axis: numbers, or the names of problem and algorithm
Row = dict[str, Any]  # a row of a table, by column


@dataclass(frozen=True)
class Study(HTMLRepr):
    """Results by name: one cell for each setting of a sweep, or for each problem and algorithm of a comparison.

    kind: "sweep" or "comparison". axes: {name: values in order}; a cell is identified by one value of each.
    labels, results: the cells, in order; fewer than the axes span when the study was stopped early, as `message` says.
    targets: for each cell the value at which a run counts as a success, or None.
    paired: whether run r of every algorithm is compared with run r of the others.
    """

    kind: str
    axes: dict[str, list[Any]]
    labels: list[Labels]
    results: list[Result]
    targets: list[float | None]
    message: str
    paired: bool = False
    stop: Stop = Stop.BUDGET  # what ended it: Stop.BUDGET when all of it was run

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[tuple[Labels, Result]]:
        return iter(zip(self.labels, self.results, strict=True))

    def cell(self, **labels: Any) -> Result:
        """The result of one cell, named by a value of each axis: study.cell(fr=1.0, sigma=0.5)."""
        if set(labels) != set(self.axes):
            raise InputError(
                f"a cell is identified by {' and '.join(self.axes)}; got {', '.join(labels) or 'nothing'}."
            )
        for name, value in labels.items():
            self._check_label(name, value)
        for cell_labels, result in self:
            if cell_labels == labels:
                return result
        raise InputError(f"the study stopped before this cell was computed: {self.message}")

    def _check_label(self, axis: str, value: object) -> None:
        """Refuse a value that an axis does not have."""
        if value not in self.axes[axis]:
            raise InputError(f"{axis} is one of {', '.join(map(str, self.axes[axis]))}; got {value!r}.")

    @property
    def value(self) -> str:
        """The field of Runs by which runs are compared: "fun", or with several objectives "hypervolume"."""
        return value_name(self.results[0])

    def values(self, name: str | None = None) -> np.ndarray:
        """The final value of every run, with the axes first and the runs last: shape (values of axis 1, ..., runs).

        name: a field of Runs, such as "fun" (or with several objectives "hypervolume"), which is the default, "nfev",
        "violation". Cells and runs that were not made are NaN.
        """
        name = self.value if name is None else name
        names = ("number", self.value, "violation", "nit", "nfev", "n_failed", "success", "feasible")
        if name not in names:
            raise InputError(f"values can be {', '.join(names)}; got {name!r}.")
        runs = [all_runs(result) for result in self.results]
        out = np.full((*(len(v) for v in self.axes.values()), max(len(r) for r in runs)), np.nan)
        for i, (labels, cell_runs) in enumerate(zip(self.labels, runs, strict=True)):
            index = tuple(values.index(labels[axis]) for axis, values in self.axes.items())
            out[index][: len(cell_runs)] = self.reached(i)[1] if name == "success" else getattr(cell_runs, name)
        return out

    def rows(self) -> list[Row]:
        """One row for each run of each cell: the tidy form that tables and plots of other tools start from."""
        names = (self.value, "violation", "nit", "nfev", "n_failed")
        out = []
        for i, (labels, result) in enumerate(self):
            runs = all_runs(result)
            columns = {"run": runs.number.tolist()} | {name: getattr(runs, name).tolist() for name in names}
            columns["success"] = self.reached(i)[1].tolist()
            if self.kind == "sweep":  # the problems of a comparison differ in their variables
                for variable, values in zip(result.problem.variable_names(), runs.x.T.tolist(), strict=True):
                    is_taken = variable in columns or variable in labels
                    columns[f"x: {variable}" if is_taken else variable] = values
            out += [{**labels, **dict(zip(columns, row, strict=True))} for row in zip(*columns.values(), strict=True)]
        return out

    def summary(self) -> list[Row]:
        """One row for each cell: best, median, interquartile range, mean, standard deviation and worst of its runs.

        With a target also the success rate, its Wilson interval, and the expected running time with its bootstrap
        interval. With several objectives these are hypervolumes, and the columns are named so.
        """
        prefix = "" if self.value == "fun" else f"{self.value}_"
        out = []
        for i, (labels, result) in enumerate(self):
            sign = comparison_sign(result)
            stats = statistics.describe(scores(result))
            values = {k: sign * stats[k] + 0.0 for k in ("best", "median", "mean", "worst")}  # + 0.0: no -0.0
            row = {
                **labels,
                **{prefix + k: values[k] for k in ("best", "median")},
                prefix + "iqr": stats["iqr"],
                prefix + "mean": values["mean"],
                prefix + "std": stats["std"],
            }
            row |= {prefix + "worst": values["worst"], "runs": stats["count"]}
            if result.problem.constrained:
                row["feasible"] = 1 - stats["missing"] / stats["count"]
            row["evaluations"] = int(all_runs(result).nfev.max())
            if self.targets[i] is not None:
                row |= self.success(i)
            if self.kind == "comparison":
                row["seconds"] = result.timings["run"]
            out.append(row)
        return out

    def success(self, index: int) -> dict[str, float]:
        """How often and how fast the runs of a cell reached its target."""
        result, target = self.results[index], self.targets[index]
        if target is None:
            raise InputError("no target was set: pass target= to compare or sweep.")
        runs = all_runs(result)
        evaluations, reached = self.reached(index)
        hits = int(reached.sum())
        low, high = statistics.wilson_interval(hits, len(runs))
        ert_low, ert_high = statistics.ert_interval(evaluations, reached)
        return {
            "success": hits / len(runs),
            "success_low": low,
            "success_high": high,
            "ert": statistics.expected_running_time(evaluations, reached),
            "ert_low": ert_low,
            "ert_high": ert_high,
        }

    def reached(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Evaluations that each run of a cell spent until its target, or in all, and whether it succeeded; both (R,).

        A run succeeds if it reached its target, or where there is none, if it converged.
        """
        result, target = self.results[index], self.targets[index]
        if target is None:
            runs = all_runs(result)
            return runs.nfev.astype(np.float64), runs.success
        precision = np.dtype(result.settings["dtype"]).type  # in which the runs themselves compared
        return evaluations_to_target(result, comparison_sign(result) * float(precision(target)))

    def along(self, axis: str, **fixed: Any) -> dict[str, Result]:
        """The results along one axis, the others fixed, by label."""
        return {str(labels[axis]): result for labels, result in self if all(labels[k] == v for k, v in fixed.items())}

    def tests(self, problem: str) -> list[Comparison]:
        """All pairs of algorithms on one problem: Mann-Whitney (Wilcoxon's signed ranks if paired), with Holm's
        correction, and the effect size of Vargha and Delaney.
        """
        if self.kind != "comparison":
            raise InputError("tests are of the algorithms that gx.compare ran on a problem, and this study is a sweep.")
        self._check_label("problem", problem)
        samples = {name: scores(result) for name, result in self.along("algorithm", problem=problem).items()}
        if self.paired:  # where a study was stopped, the runs that all of them made
            n_common = min(map(len, samples.values()))
            samples = {name: sample[:n_common] for name, sample in samples.items()}
        return statistics.pairwise(samples, paired=self.paired)

    def ranks(self) -> Friedman:
        """Friedman's test over the problems, by the median of the runs, and the average ranks of the algorithms."""
        table = np.full((len(self.axes["problem"]), len(self.axes["algorithm"])), np.nan)
        for labels, result in self:
            index = (self.axes["problem"].index(labels["problem"]), self.axes["algorithm"].index(labels["algorithm"]))
            table[index] = statistics.describe(scores(result))["median"]
        return statistics.friedman(table)

    def to_dataframe(self, table: str = "runs") -> DataFrame:
        """A pandas DataFrame. table: "runs", one row per run of each cell, or "summary", one row per cell."""
        from galapax.storage.export import to_dataframe

        return to_dataframe(self, table)

    @property
    def plot(self) -> StudyPlot:
        """Figures: plot.convergence(), plot.running_times(), plot.final(), plot.heatmap(); plot() chooses.

        See `view.accessor.StudyPlot`, which this is.
        """
        from galapax.view.accessor import StudyPlot

        return StudyPlot(self)

    def save(self, folder: str | Path) -> Path:
        """Write the study to a folder: tables as CSV, Markdown and LaTeX, pictures, a page, and the data for `load`.

        A run or study saved there before is replaced, all at once and not before the new one is written. Files that
        galapax did not write are left alone; if one is in the way, nothing is saved and an error names it.
        """
        from galapax.view.accessor import save_study

        return save_study(self, folder)

    @property
    def extent(self) -> str:
        """How many cells there are along each axis, in words."""
        plural = "s" if self.kind == "comparison" else ""  # a hyper-parameter keeps its name
        return " × ".join(f"{len(v)} {name}{plural * (len(v) != 1)}" for name, v in self.axes.items())

    def __getattr__(self, name: str) -> NoReturn:
        raise attribute_error(self, "a", name, STUDY_ATTRIBUTES)

    def __repr__(self) -> str:
        runs = len(all_runs(self.results[0])) if self.results else 0
        return f"Study({self.kind}: {self.extent}, {pluralize(runs, 'run')} each. {self.message})"


def value_name(result: Result) -> str:
    """The field of Runs by which runs are compared: their value, or of several objectives their front's hypervolume."""
    return "hypervolume" if np.ndim(result.fun) else "fun"


def measure_hypervolumes(result: Result) -> Result:
    """Set the exact hypervolume of every run's front in the result, and return it.

    Runs compute it for two and three objectives and estimate it for more; this replaces the estimates.
    """
    runs, reference_point = all_runs(result), result.problem.reference_point
    if runs.fronts is None or reference_point is None or (runs.hypervolume is not None and len(reference_point) <= 3):
        return result
    corner = result.signs * np.asarray(reference_point)
    volumes = np.array([indicators.volume(result.signs * front.F, corner) for front in runs.fronts])
    result["hypervolume"] = float(volumes.max())
    result.pop("hypervolume_error", None)  # that of an estimate
    if result.runs is not None:
        result["runs"] = replace(runs, hypervolume=volumes)
    return result


def scores(result: Result) -> np.ndarray:
    """The final value of every run, to be minimised; NaN for a run that found nothing feasible."""
    runs = all_runs(result)
    values = getattr(runs, value_name(result))
    if values is None:
        raise InputError("the hypervolume was not measured: give the Problem a reference_point.")
    return np.where(runs.feasible & np.isfinite(values), comparison_sign(result) * values, np.nan)


def has_curves(result: Result) -> bool:
    """Whether there are values by generation; of several objectives without a reference point there are none."""
    history = all_runs(result).history
    return history is not None and (value_name(result) == "fun" or history.hypervolume is not None)


def curves(result: Result) -> np.ndarray:
    """The best value by generation of every run, (R, G), to be minimised; +inf while it has found nothing feasible."""
    history = all_runs(result).history
    if history is None:
        raise InputError("no history was kept, so there are no values by generation: use keep=gx.Keep(history=True).")
    values = history.best if value_name(result) == "fun" else history.hypervolume
    if values is None:
        raise InputError(
            "no hypervolume was measured by generation, so there are no curves of this result: give the Problem a "
            "reference_point."
        )
    best = comparison_sign(result) * np.asarray(values, np.float64)
    if history.violation is not None:
        best = np.where(history.violation > 0, np.inf, best)
    return np.where(np.isnan(best), np.inf, best)


def evaluations_to_target(result: Result, target: float) -> tuple[np.ndarray, np.ndarray]:
    """The evaluations that each run spent until its target, or in all, and whether it was reached; both (R,)."""
    runs = all_runs(result)
    if runs.history is None or not has_curves(result):
        reached = scores(result) <= target
        return runs.nfev.astype(np.float64), reached
    first = statistics.hits(curves(result), runs.history.nfev, target)
    return np.minimum(first, runs.nfev), np.isfinite(first)


def comparison_sign(result: Result) -> float:
    """-1 where a larger value is the better: a maximised one, and a hypervolume."""
    return -1.0 if value_name(result) == "hypervolume" else result.sign


def reference_value(results: list[Result]) -> float:
    """The value that distances are measured from: the problem's best known one, or the best that any run found."""
    best_found = min(float(np.nanmin(scores(r), initial=math.inf)) for r in results)
    optimum = best_known(results[0])
    return best_found if optimum is None else min(optimum, best_found)


def best_known(result: Result) -> float | None:
    """The problem's best known value, to be minimised."""
    problem = result.problem
    optimum = problem.optimum if value_name(result) == "fun" else problem.hypervolume
    return None if optimum is None or (result.signs < 0).any() else comparison_sign(result) * float(optimum)


def curve_rows(study: Study) -> list[Row]:
    """The best value by generation over the runs of each cell: mean and quantiles; inf while some run has none."""
    out = []
    for labels, result in study:
        history = all_runs(result).history
        if history is None or not has_curves(result):
            continue
        best = curves(result)
        sign = comparison_sign(result)
        table = sign * np.vstack([best.mean(axis=0), statistics.quantile_curves(best)]) + 0.0  # no -0.0
        names = ("mean", "best", "lower_quartile", "median", "upper_quartile", "worst")
        spent = np.median(np.atleast_2d(history.nfev), axis=0).astype(int)  # runs may differ in it
        for g, nfev, column in zip(history.generation.tolist(), spent.tolist(), table.T.tolist(), strict=True):
            out.append({**labels, "generation": g, "nfev": nfev, **dict(zip(names, column, strict=True))})
    return out
