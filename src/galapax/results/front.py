"""The non-dominated front of a run with several objectives, rules that choose a point on it, and a dialogue that does.

The dialogue asks which of two points is preferred. It is Bayesian inference over a large sample of weight vectors. Each
weight vector is a hypothesis about the decision maker's preference: of two points it prefers the one whose worst
weighted objective, in units of the front's range, is less (augmented Tchebycheff scalarisation, so that every point of
a front is optimal for some weights, on concave ones too). An answer makes the hypotheses that disagree with it less
likely; the next question is the pair on which the remaining belief is split most evenly. No hypothesis is ruled out
altogether, so that one mistaken answer costs questions and not the result.

The report page asks by the same rule, see view/report/preference.js: what is computed here is computed there, to the
same questions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from galapax.core.checks import abbreviate, as_float_array, pluralize
from galapax.core.errors import InputError
from galapax.core.problem import CandidateEvaluation, Population
from galapax.metrics import indicators


@dataclass(frozen=True)
class Front:
    """k solutions with m objectives, none of them dominated, failed or infeasible; ordered by the first objective."""

    X: np.ndarray  # (k, d)
    F: np.ndarray  # (k, m), as the user means them: maximised objectives keep their sign
    G: np.ndarray | None  # (k, p) values of the inequalities
    H: np.ndarray | None  # (k, q) values of the equalities
    CV: np.ndarray  # (k,) violation in float64: 0, unless a run in float32 took a point for feasible that is not quite

    def __repr__(self) -> str:
        return f"Front({pluralize(len(self), 'point')}, {pluralize(self.F.shape[1], 'objective')}: X, F, G, H, CV)"

    def __len__(self) -> int:
        return len(self.X)

    def as_dict(self) -> dict[str, np.ndarray | None]:
        """Return the arrays by name, as a Result has them."""
        return {name: getattr(self, name) for name in ("X", "F", "G", "H", "CV")}


def build_front(
    individuals: Population,
    signs: np.ndarray,
    evaluate_constraints: Callable[[np.ndarray], CandidateEvaluation | None] | None,
) -> Front:
    """Make a Front of individuals none of which is dominated; of equal solutions one is kept.

    signs: see `objective_signs`. evaluate_constraints: returns the constraints at points, if wanted.
    """
    x, objectives = np.asarray(individuals.x, np.float64), np.asarray(individuals.objectives, np.float64)
    _, first_rows = np.unique(x, axis=0, return_index=True)
    rows = first_rows[np.lexsort((*objectives[first_rows].T[::-1],))]
    x, objectives = x[rows], objectives[rows]
    evaluation = evaluate_constraints(x) if evaluate_constraints is not None else None
    if evaluation is None or evaluation.violation is None:
        return Front(x, signs * objectives, None, None, np.zeros(len(x)))
    ineq, eq = (
        None if values is None else np.asarray(values, np.float64) for values in (evaluation.ineq, evaluation.eq)
    )
    return Front(x, signs * objectives, ineq, eq, np.asarray(evaluation.violation, np.float64))


def merge_fronts(fronts: Sequence[Population]) -> Population:
    """Return the individuals of all these fronts that are not dominated by another."""
    columns = [np.concatenate(leaves) for leaves in zip(*((f.x, f.objectives) for f in fronts), strict=True)]
    x, objectives = columns
    is_non_dominated = indicators.non_dominated(objectives) if len(fronts) > 1 else np.ones(len(x), bool)
    return Population(x[is_non_dominated], objectives[is_non_dominated], None)


CHOICE_RULES = ("knee", "ideal")
ASK_USER = "ask"


def knee(values: np.ndarray, signs: np.ndarray) -> int:
    """The row of the front's knee, the point that represents a front wherever one is needed."""
    return choose(values, signs, "knee")


def choose(
    values: np.ndarray,
    signs: np.ndarray,
    how: str | ArrayLike = "knee",
    *,
    reference: ArrayLike | None = None,
    aspiration: ArrayLike | None = None,
) -> int:
    """Choose a row of the front with these values (k, m).

    how: "knee", "ideal" (closest to it), or weights of the objectives (m,). reference: a point (m,) to be close to.
    aspiration: levels (m,) to be reached, by the achievement function, with `how` as its weights if given.
    signs: of the objectives, see `objective_signs`.
    """
    if not len(values):
        raise InputError("the front is empty, so there is no point to choose; the message says what was found.")
    if reference is not None and aspiration is not None:
        raise InputError("choose takes a reference or an aspiration, not both: the first is to be near, the other to "
                         "be reached.")  # fmt: skip
    points, rules = signs * values, " or ".join(map(repr, CHOICE_RULES))
    if reference is not None:
        if not _is_word(how, "knee"):  # the default
            raise InputError("choose takes a reference alone, without weights or a word.")
        return indicators.closest_to(points, signs * _levels(reference, "reference", values.shape[1]))
    if aspiration is not None:
        weights = None if _is_word(how, "knee") else how
        if isinstance(weights, str):
            raise InputError(f"choose takes an aspiration with weights or alone, and not with {how!r}.")
        return indicators.achieving(points, signs * _levels(aspiration, "aspiration", values.shape[1]), weights)
    if isinstance(how, str):
        if how not in CHOICE_RULES:
            raise InputError(f"choose takes {rules}, {ASK_USER!r} or one weight per objective; got {how!r}.")
        return {"knee": indicators.knee, "ideal": indicators.closest_to_ideal}[how](points)
    try:
        return indicators.weighted(points, how)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"choose takes {rules}, {ASK_USER!r} or one weight per objective; got {abbreviate(how)}."
        ) from None


def _is_word(how: object, word: str) -> bool:
    return isinstance(how, str) and how == word  # an array compares element by element


def _levels(values: ArrayLike, name: str, m: int) -> np.ndarray:
    """Check and convert one finite number per objective."""
    try:
        levels = as_float_array(values)
    except ValueError:
        levels = np.zeros(0)
    if levels.shape != (m,) or not np.isfinite(levels).all():
        raise InputError(f"{name} must be {m} finite numbers, one per objective; got {abbreviate(values)}.")
    return levels


def trade_offs(values: np.ndarray, signs: np.ndarray, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Gains and costs of a step from rows of a front (k, m) to a neighbour: (r, m) rows, and (r, m, m) changes.

    The neighbour j of a row is the nearest point that is better in objective j, distances in units of the front's
    range; -1 where there is none. changes[i, j] are its values less those of the row, as the user means them; NaN
    where there is none.
    """
    points, span = signs * values, np.ptp(values, axis=0)
    unit, m = points / np.where(span > 0, span, 1), values.shape[1]
    neighbours, changes = np.full((len(rows), m), -1), np.full((len(rows), m, m), np.nan)
    for i, row in enumerate(rows):
        distances = np.linalg.norm(unit - unit[row], axis=1)
        for j in range(m):
            better = points[:, j] < points[row, j]
            if better.any():
                neighbours[i, j] = int(np.argmin(np.where(better, distances, np.inf)))
                changes[i, j] = values[neighbours[i, j]] - values[row]
    return neighbours, changes


# --- which of these two do you prefer? --------------------------------------------------------------------------------


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
