"""Choosing from a front by answering: which of these two do you like better?

Every weight vector of a large sample stands for somebody with a taste: of two points they like the one whose worst
weighted objective, in units of the front's range, is less (Tchebycheff, so that every point of a front is somebody's
favourite, on bulging fronts too). An answer makes those less likely who would have answered otherwise; a next question
is the one on which the others differ most. Nobody is ruled out altogether, so that one answer given by mistake costs
questions and not the result.

The report page asks by the same rule, see view/report/asking.js: what is computed here is computed there, to the same
questions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from galapax.core.errors import InputError

PEOPLE = 2000  # weight vectors
QUESTIONS = 10  # at most
SURE = 0.9  # the share of belief that ends the questions
WRONG = 0.1  # how likely an answer is that a taste does not give
KEPT = 500  # points of a front that may be somebody's favourite
CANDIDATES = 24  # favourites that questions are made of
DIGITS = 9  # to which shares of people are compared, so that rounding decides nothing

Ask = Callable[[str], str]


class Walk:
    """The questions about a front of values (k, m), to be minimised, and what follows from their answers."""

    def __init__(self, values: np.ndarray) -> None:
        low, span = values.min(axis=0), np.ptp(values, axis=0)
        unit = (values - low) / np.where(span > 0, span, 1)
        weights = tastes(values.shape[1])
        pieces = np.array_split(weights, max(1, PEOPLE * unit.size // 2**24))
        best = np.concatenate([np.argmin(_losses(part, unit), axis=1) for part in pieces])
        votes = np.bincount(best, minlength=len(unit))
        self._rows = np.argsort(-votes, kind="stable")[:KEPT]  # those that most people like best
        self._loss = np.concatenate([_losses(part, unit[self._rows]) for part in pieces])  # (people, kept)
        self._best = np.argmin(self._loss, axis=1)
        self._belief = np.full(PEOPLE, 1 / PEOPLE)
        self._asked: set[tuple[int, int]] = set()

    def share(self) -> np.ndarray:
        """How likely each of the rows that are kept is to be the favourite."""
        return np.bincount(self._best, self._belief, self._loss.shape[1])

    @property
    def favourite(self) -> int:
        return int(self._rows[np.argmax(self.share().round(DIGITS))])

    def question(self) -> tuple[int, int] | None:
        """Two rows to be compared; None when the answers have settled it, or nothing is left to ask."""
        share = self.share().round(DIGITS)
        if share.max() >= SURE or len(self._asked) >= QUESTIONS:
            return None
        rows = np.argsort(-share, kind="stable")[:CANDIDATES]
        rows = rows[share[rows] > 0]
        prefers = self._loss[:, rows][:, :, None] < self._loss[:, rows][:, None, :]  # (people, a, b)
        for_a = np.tensordot(self._belief, prefers, axes=1)
        evenness = np.minimum(for_a, for_a.T).round(DIGITS)
        for a, b in self._asked:
            here = np.isin(self._rows[rows], (a, b))
            evenness[np.ix_(here, here)] = 0
        if evenness.max() <= 0.01:
            return None
        i, j = np.unravel_index(int(np.argmax(evenness)), evenness.shape)
        return int(self._rows[rows[i]]), int(self._rows[rows[j]])

    def answer(self, rows: tuple[int, int], liked: int | None) -> None:
        """Take in that of two rows one is liked better; None for neither."""
        a, b = rows
        self._asked.add((a, b))
        if liked is None:
            return
        one, other = (int(np.flatnonzero(self._rows == row)[0]) for row in (liked, b if liked == a else a))
        agrees = self._loss[:, one] < self._loss[:, other]
        belief = self._belief * np.where(agrees, 1 - WRONG, WRONG)
        self._belief = belief / belief.sum()


def tastes(m: int) -> np.ndarray:
    """Weights (PEOPLE, m) spread evenly over all that add up to 1: a sequence of Roberts (2018) whose steps are powers
    of the root of x^(m+1) = x + 1, made into weights by logarithms.
    """
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (m + 1))
    steps = root ** -np.arange(1.0, m + 1)
    spread = (0.5 + np.arange(1.0, PEOPLE + 1)[:, None] * steps) % 1
    weights = -np.log(spread)
    return weights / weights.sum(axis=1, keepdims=True)


def _losses(weights: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """How little each of p people likes each of k points, (p, k)."""
    weighted = weights[:, None] * unit
    # the small sum makes a point lose to one that dominates it and is as bad in the worst
    return weighted.max(axis=2) + 1e-3 * weighted.sum(axis=2)


def chosen_by_asking(values: np.ndarray, sign: float, names: Sequence[str], ask: Ask) -> int:
    """The row of a front (k, m) that answers lead to. names: of the objectives, with units.

    ask: called with the text of a question; returns "a", "b", "=" for no preference, or "q" to stop.
    """
    if len(values) == 1:
        return 0
    walk, number, note = Walk(sign * values), 1, ""
    while (rows := walk.question()) is not None:
        given = ask(note + question_text(values, names, rows, number)).strip().lower()
        if given in ("q", "quit"):
            break
        if given not in ("a", "b", "="):
            note = f"{given!r} is none of the answers.\n"
            continue
        walk.answer(rows, {"a": rows[0], "b": rows[1], "=": None}[given])
        number, note = number + 1, ""
    return walk.favourite


def question_text(values: np.ndarray, names: Sequence[str], rows: tuple[int, int], number: int) -> str:
    """Two points of a front side by side, and what can be answered."""
    cells = [["", "A", "B"], *([name, *(f"{values[r, k]:.5g}" for r in rows)] for k, name in enumerate(names))]
    widths = [max(len(row[c]) for row in cells) for c in range(3)]
    table = "\n".join(f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in cells)
    return f"Question {number}, of {QUESTIONS} at most: which do you like better?\n{table}\na, b, = or q to stop: "


def in_terminal(text: str) -> str:
    """Ask whoever sits at the terminal; the end of the input stops the questions."""
    print(text, end="", file=sys.stderr, flush=True)  # the answer of a program may be read from the other stream
    try:
        return input()
    except EOFError:
        print(file=sys.stderr)
        return "q"
    except OSError:  # a notebook or a test without input
        raise InputError(
            'choose("ask") asks in the terminal, and there is none: give ask=, a function of the question\'s text that '
            'returns "a", "b", "=" or "q".'
        ) from None
