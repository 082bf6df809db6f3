"""What a black box remembers, as plain arrays, so that it can be kept in a file and calls need not be made again."""

from __future__ import annotations

from typing import Any

import numpy as np

from galapax.evaluation.worker import Answer, Failure


def kept(answers: dict[bytes, Answer]) -> dict[str, Any]:
    """Answers by their point, the alike together: many small arrays would take long to write."""
    groups: dict[tuple[tuple[str, int], ...], list[bytes]] = {}
    failed: list[tuple[bytes, Failure]] = []
    for point, answer in answers.items():
        if isinstance(answer, Failure):
            failed.append((point, answer._replace(cause=None)))
        else:
            groups.setdefault(tuple((name, own.size) for name, own in answer.items()), []).append(point)
    return {
        "values": [
            (_rows(points), {name: np.array([_of(answers, point, name) for point in points]) for name, _ in names})
            for names, points in groups.items()
        ],
        "failures": [(np.frombuffer(point), failure) for point, failure in failed],
    }


def recalled(data: dict[str, Any]) -> dict[bytes, Answer]:
    """From what `kept` made of them."""
    out: dict[bytes, Answer] = {}
    for points, values in data["values"]:
        for i, point in enumerate(points):
            out[point.tobytes()] = {name: own[i] for name, own in values.items()}
    return out | {point.tobytes(): failure for point, failure in data["failures"]}


def _rows(points: list[bytes]) -> np.ndarray:
    return np.array([np.frombuffer(point) for point in points])


def _of(answers: dict[bytes, Answer], point: bytes, name: str) -> np.ndarray:
    answer = answers[point]
    assert isinstance(answer, dict)
    return answer[name]
