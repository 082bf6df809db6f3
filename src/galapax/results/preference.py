"""Interactive choice of a point on a front by pairwise comparisons: which of these two do you prefer?

Bayesian inference over a large sample of weight vectors. Each weight vector is a hypothesis about the decision maker's
preference: of two points it prefers the one whose worst weighted objective, in units of the front's range, is less
(augmented Tchebycheff scalarisation, so that every point of a front is optimal for some weights, on concave ones too).
An answer makes the hypotheses that disagree with it less likely; the next question is the pair on which the remaining
belief is split most evenly. No hypothesis is ruled out altogether, so that one mistaken answer costs questions and not
the result.

The report page asks by the same rule, see view/report/preference.js: what is computed here is computed there, to the
same questions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np

from galapax.core.errors import InputError

N_WEIGHTS = 2000  # weight vectors in the sample
MAX_QUESTIONS = 10
CONFIDENCE_TO_STOP = 0.9  # the favourite's probability that ends the questions
ANSWER_ERROR_RATE = 0.1  # probability that an answer contradicts the decision maker's weights
MAX_FRONT_POINTS = 500  # points of a front that may become the favourite
MAX_COMPARED_POINTS = 24  # the likeliest favourites, of which questions are made
PROBABILITY_DIGITS = 9  # to which probabilities are compared, so that rounding decides nothing

Ask = Callable[[str], str]


class PreferenceSearch:
    """Chooses the next question about a front of values (k, m), to be minimised, and learns from the answers."""

    def __init__(self, values: np.ndarray) -> None:
        low, span = values.min(axis=0), np.ptp(values, axis=0)
        unit = (values - low) / np.where(span > 0, span, 1)
        weights = sample_weights(values.shape[1])
        batches = np.array_split(weights, max(1, N_WEIGHTS * unit.size // 2**24))
        best = np.concatenate([np.argmin(_tchebycheff(batch, unit), axis=1) for batch in batches])
        votes = np.bincount(best, minlength=len(unit))
        self._rows = np.argsort(-votes, kind="stable")[:MAX_FRONT_POINTS]  # optimal for the most weight vectors
        self._loss = np.concatenate([_tchebycheff(batch, unit[self._rows]) for batch in batches])  # (weights, rows)
        self._best = np.argmin(self._loss, axis=1)
        self._belief = np.full(N_WEIGHTS, 1 / N_WEIGHTS)
        self._questions: set[tuple[int, int]] = set()

    def favourite_probabilities(self) -> np.ndarray:
        """How likely each of the candidate rows is to be the favourite."""
        return np.bincount(self._best, self._belief, self._loss.shape[1])

    @property
    def favourite(self) -> int:
        return int(self._rows[np.argmax(self.favourite_probabilities().round(PROBABILITY_DIGITS))])

    def next_question(self) -> tuple[int, int] | None:
        """Return two rows to be compared; None once the favourite is clear or no question would help."""
        probabilities = self.favourite_probabilities().round(PROBABILITY_DIGITS)
        if probabilities.max() >= CONFIDENCE_TO_STOP or len(self._questions) >= MAX_QUESTIONS:
            return None
        rows = np.argsort(-probabilities, kind="stable")[:MAX_COMPARED_POINTS]
        rows = rows[probabilities[rows] > 0]
        prefers = self._loss[:, rows][:, :, None] < self._loss[:, rows][:, None, :]  # (weights, a, b)
        for_a = np.tensordot(self._belief, prefers, axes=1)
        evenness = np.minimum(for_a, for_a.T).round(PROBABILITY_DIGITS)
        for a, b in self._questions:
            is_pair = np.isin(self._rows[rows], (a, b))
            evenness[np.ix_(is_pair, is_pair)] = 0
        if evenness.max() <= 0.01:
            return None
        i, j = np.unravel_index(int(np.argmax(evenness)), evenness.shape)
        return int(self._rows[rows[i]]), int(self._rows[rows[j]])

    def record_answer(self, rows: tuple[int, int], preferred: int | None) -> None:
        """Update the belief: of two rows one is preferred; None for neither."""
        a, b = rows
        self._questions.add((a, b))
        if preferred is None:
            return
        one, other = (int(np.flatnonzero(self._rows == row)[0]) for row in (preferred, b if preferred == a else a))
        agrees = self._loss[:, one] < self._loss[:, other]
        belief = self._belief * np.where(agrees, 1 - ANSWER_ERROR_RATE, ANSWER_ERROR_RATE)
        self._belief = belief / belief.sum()


def sample_weights(m: int) -> np.ndarray:
    """Spread weights (N_WEIGHTS, m) evenly over the unit simplex.

    The low-discrepancy sequence of Roberts (2018), whose steps are powers of the root of x^(m+1) = x + 1, mapped to the
    simplex by logarithms.
    """
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (m + 1))
    steps = root ** -np.arange(1.0, m + 1)
    points = (0.5 + np.arange(1.0, N_WEIGHTS + 1)[:, None] * steps) % 1
    weights = -np.log(points)
    return weights / weights.sum(axis=1, keepdims=True)


def _tchebycheff(weights: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Augmented Tchebycheff loss of k points under each of p weight vectors, (p, k)."""
    weighted = weights[:, None] * unit
    # the small sum makes a point lose to one that dominates it and is as bad in the worst
    return weighted.max(axis=2) + 1e-3 * weighted.sum(axis=2)


def choose_by_asking(values: np.ndarray, signs: np.ndarray, names: Sequence[str], ask: Ask) -> int:
    """Return the row of a front (k, m) that the answers lead to. names: of the objectives, with units.

    ask: called with the text of a question; returns "a", "b", "=" for no preference, or "q" to stop.
    """
    if len(values) == 1:
        return 0
    search, number, note = PreferenceSearch(signs * values), 1, ""
    while (rows := search.next_question()) is not None:
        answer = ask(note + format_question(values, names, rows, number)).strip().lower()
        if answer in ("q", "quit"):
            break
        if answer not in ("a", "b", "="):
            note = f"{answer!r} is none of the answers.\n"
            continue
        search.record_answer(rows, {"a": rows[0], "b": rows[1], "=": None}[answer])
        number, note = number + 1, ""
    return search.favourite


def format_question(values: np.ndarray, names: Sequence[str], rows: tuple[int, int], number: int) -> str:
    """Write two points of a front side by side, and what can be answered."""
    cells = [["", "A", "B"], *([name, *(f"{values[r, k]:.5g}" for r in rows)] for k, name in enumerate(names))]
    widths = [max(len(row[c]) for row in cells) for c in range(3)]
    table = "\n".join(f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}" for row in cells)
    return f"Question {number}, of {MAX_QUESTIONS} at most: which do you prefer?\n{table}\na, b, = or q to stop: "


def ask_in_terminal(text: str) -> str:
    """Ask the user at the terminal; the end of the input stops the questions."""
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
