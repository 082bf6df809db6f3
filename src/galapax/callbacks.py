"""Callbacks for `minimize` and its like: at a chosen pace, and as loggers for MLflow, TensorBoard, W&B and `logging`.

    gx.minimize(f, bounds, callback=gx.callbacks.MLflow())
    gx.minimize(f, bounds, callback=gx.callbacks.Every(report, seconds=10))

The libraries are imported when their logger is created.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from galapax.core.checks import check_integer, check_number
from galapax.core.errors import InputError
from galapax.execution.observers import Progress

__all__ = ["Every", "Logging", "MLflow", "TensorBoard", "WandB"]


def __dir__() -> list[str]:
    """The names that tab completion offers."""
    return __all__


class Every:
    """Calls a callback every so many generations, or seconds.

    generations: exactly so many, however fast they are: a small number makes fast runs slower.
    seconds: the first time after a chunk of generations has ended that late.
    """

    def __init__(
        self, callback: Callable[[Progress], Any], *, generations: int | None = None, seconds: float | None = None
    ) -> None:
        if (generations is None) == (seconds is None):
            raise InputError("Every takes generations= or seconds=, one of them.")
        if not callable(callback):
            raise InputError(f"Every takes a callback, a function of one Progress; got {callback!r}.")
        self.callback = callback
        self.generations_between_calls = None if generations is None else check_integer(generations, "generations", 1)
        self.seconds = None if seconds is None else check_number(seconds, "seconds")
        self._last_call = -math.inf

    def __call__(self, progress: Progress) -> Any:
        if self.generations_between_calls is not None:
            is_due = progress.generation % self.generations_between_calls == 0
        else:
            assert self.seconds is not None
            is_due = time.monotonic() - self._last_call >= self.seconds
        if not is_due:
            return None
        self._last_call = time.monotonic()
        return self.callback(progress)


def measure_progress(progress: Progress, params: bool) -> dict[str, float]:
    """The finite numbers of a Progress by name. params: with the best point's, as "x/name"."""
    metrics: dict[str, Any] = {
        "fun": progress.fun,
        "nfev": progress.nfev,
        "seconds": progress.seconds,
        "runs_done": progress.runs_done,
        "hypervolume": progress.hypervolume,
        "feasible_share": progress.feasible_share,
    }
    if progress.feasible_share is not None:
        metrics["violation"] = progress.violation
    if params and progress.params is not None:
        metrics |= {f"x/{name}": v for name, v in progress.params.items() if not isinstance(v, str)}
    return {name: float(v) for name, v in metrics.items() if v is not None and np.isfinite(v)}


class MLflow:
    """Logs the progress of a run as metrics of the active MLflow run, by generation.

    MLflow starts a run if none is active, and ends it with the program. prefix: put before the names of the metrics.
    params: also log the best point so far; labels of choices become tags.
    """

    def __init__(self, *, prefix: str = "", params: bool = True) -> None:
        try:
            import mlflow
        except ImportError:
            raise ImportError('callbacks.MLflow needs MLflow: pip install "mlflow-skinny".') from None
        self._mlflow = mlflow
        self.prefix = prefix
        self.params = params

    def __call__(self, progress: Progress) -> None:
        metrics = measure_progress(progress, self.params)
        self._mlflow.log_metrics({self.prefix + name: v for name, v in metrics.items()}, step=progress.generation)
        labels = {f"{self.prefix}x/{name}": label for name, label in _labels(progress, self.params).items()}
        if labels:
            self._mlflow.set_tags(labels)


class TensorBoard:
    """Writes the progress of a run for TensorBoard, by generation.

    folder: of the event files; each run in one of its own shows them side by side. params: also write the best point so
    far.
    """

    def __init__(self, folder: str | os.PathLike[str] = "runs/tensorboard", *, params: bool = True) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise ImportError('callbacks.TensorBoard needs TensorBoard: pip install "tensorboard".') from None
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(os.fspath(folder))
        self.params = params

    def __call__(self, progress: Progress) -> None:
        values = [
            self._summary.Value(tag=name, simple_value=v) for name, v in measure_progress(progress, self.params).items()
        ]
        event = self._event(wall_time=time.time(), step=progress.generation, summary=self._summary(value=values))
        self._writer.add_event(event)
        self._writer.flush()


class WandB:
    """Logs the progress of a run to the current Weights & Biases run, by generation; starts one if there is none.

    params: also log the best point so far. settings: arguments of `wandb.init`, such as project="springs".
    """

    def __init__(self, *, params: bool = True, **settings: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise ImportError('callbacks.WandB needs Weights & Biases: pip install "wandb".') from None
        if wandb.run is not None and settings:
            raise InputError(
                "WandB takes settings for a run that it starts, and one is active: finish it, or leave them."
            )
        self.run = wandb.run or wandb.init(**settings)
        self.params = params

    def __call__(self, progress: Progress) -> None:
        labels = {f"x/{name}": label for name, label in _labels(progress, self.params).items()}
        self.run.log(measure_progress(progress, self.params) | labels, step=progress.generation)


class Logging:
    """Writes one line to a logger of Python's `logging`.

    logger: the logger, or its name. level: of the records.
    """

    def __init__(self, logger: str | logging.Logger = "galapax", level: int = logging.INFO) -> None:
        self.logger = logger if isinstance(logger, logging.Logger) else logging.getLogger(logger)
        self.level = level

    def __call__(self, progress: Progress) -> None:
        state = f", hypervolume {progress.hypervolume:.8g}" if progress.hypervolume is not None else ""
        if progress.violation > 0:
            state += f", violation {progress.violation:.3g}"
        self.logger.log(
            self.level,
            "generation %d: best %.8g%s, %d evaluations, %.1f s",
            progress.generation,
            progress.fun,
            state,
            progress.nfev,
            progress.seconds,
        )


def _labels(progress: Progress, params: bool) -> dict[str, str]:
    """The best point's labels of choices, by name."""
    named = (progress.params if params else None) or {}
    return {name: v for name, v in named.items() if isinstance(v, str)}
