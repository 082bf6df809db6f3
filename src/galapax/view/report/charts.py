"""Curves by generation as a figure's data: thinned, with their bands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from galapax.results.result import History
from galapax.view import data, maps
from galapax.view.report.parts import numbers

STEPS = 1200  # points of a curve at most


def bands_note(values: np.ndarray) -> str:
    return f"Median, middle half and whole range over {len(values):,} runs." if len(values) > 1 else ""


def thinned(history: History, several: bool) -> History:
    """Some of the generations: half of them evenly spaced, half closer at first, where most happens."""
    rows = steps(len(history), STEPS)
    axis = 1 if several else 0
    parts: dict[str, Any] = {
        name: None if (part := getattr(history, name)) is None else np.take(part, rows, axis)
        for name in ("best", "mean", "worst", "violation", "feasible_share", "hypervolume", "hypervolume_error")
    }
    nfev = np.take(history.nfev, rows, -1)  # (R, G) where the runs differ in it
    return replace(history, generation=history.generation[rows], nfev=nfev, x=None, **parts)


def steps(count: int, most: int) -> np.ndarray:
    if count <= most:
        return np.arange(count)
    early = np.geomspace(1, count, most // 2).astype(int) - 1
    return np.union1d(maps.thinned(count, most // 2), early)


def banded(values: np.ndarray, name: str) -> list[dict[str, Any]]:
    """One curve of values by run and generation (R, G): that of the only run, or the median with its bands."""
    if len(values) == 1:
        return [{"name": name, "c": 0, "x": 0, "y": numbers(values[0])}]
    low, lower, middle, upper, high = (numbers(row) for row in data.bands(values))
    bands = [{"name": "middle half", "low": lower, "high": upper, "opacity": 0.35}]
    bands.append({"name": "all runs", "low": low, "high": high, "opacity": 0.14})
    return [{"name": name, "c": 0, "x": 0, "y": middle, "bands": bands}]


def curves(history: History, series: list[dict[str, Any]], name: str, log: bool, file: str) -> dict[str, Any]:
    return {
        "kind": "lines", "file": file, "series": series, "xs": [history.generation.tolist()],
        "x": {"name": "generation", "log": False}, "y": {"name": name, "log": log},
        "also": {"name": "evaluations", "values": np.median(np.atleast_2d(history.nfev), axis=0).tolist()},
        "alt": f"{name} by generation, from 1 to {int(history.generation[-1])}",
    }  # fmt: skip
