"""Known values as a search takes them up: as genes, judged like evaluations of its own."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from galapax.core.direction import orient
from galapax.core.errors import InputError
from galapax.core.options import Options
from galapax.core.problem import (
    BLACK_BOX_EQ_TOLERANCE,
    CandidateEvaluation,
    Problem,
    ProblemDescription,
    derive_eq_tolerance,
    returned_by_fun,
)
from galapax.objective.evaluation_log import summarise
from galapax.operators.ranking import ranks_and_crowding
from galapax.results.known_values import parse_known_values


class KnownPoints(NamedTuple):
    """Evaluated points, with values to be minimised."""

    x: Any  # (k, d) genes, in NumPy
    evaluation: CandidateEvaluation  # in NumPy

    def astype(self, dtype: str) -> KnownPoints:
        """Return the points in the precision of a run."""
        objectives, violation, failed, ineq, eq = self.evaluation[:5]
        columns = [None if values is None else np.asarray(values, dtype) for values in (violation, ineq, eq)]
        evaluation = CandidateEvaluation(np.asarray(objectives, dtype), columns[0], failed, *columns[1:])  # type: ignore[arg-type]
        return KnownPoints(self.x.astype(dtype), evaluation)

    def choose_first(self, size: int) -> np.ndarray:
        """Return the genes of the best points, at most `size`: with several objectives the front, then the next."""
        sound = np.flatnonzero(~np.asarray(self.evaluation.failed))
        sound = np.sort(sound[np.unique(self.x[sound], axis=0, return_index=True)[1]])  # each point once
        violation = None if self.evaluation.violation is None else jnp.asarray(self.evaluation.violation[sound])
        rank, crowding = ranks_and_crowding(jnp.asarray(self.evaluation.objectives[sound]), violation)
        order = np.lexsort((-np.asarray(crowding), np.asarray(rank)))
        return self.x[sound[order[:size]]]


def take_known_values(problem: Problem, options: Options) -> tuple[Problem, Options]:
    """Parse the known values of a call; return the problem with what they tell of it, and the options with them."""
    if options.initial is None:
        return problem, options
    if not options.blackbox:
        raise InputError(
            "initial is for functions that are called: a compiled one evaluates known points again in no time, so give "
            "them as x0; if fun is plain Python, also give blackbox=True."
        )
    if options.x0 is not None:
        raise InputError("with initial a search begins at the best known points: leave x0 out.")
    known = parse_known_values(options.initial, problem)
    returned = [name for name in ("ineq", "eq") if getattr(known, name) is not None and getattr(problem, name) is None]
    problem = problem.with_(**dict.fromkeys(returned, returned_by_fun))
    if known.eq is not None and problem.eq_tolerance is None and np.isfinite(known.eq).any():
        problem = problem.with_(eq_tolerance=derive_eq_tolerance(known.eq, BLACK_BOX_EQ_TOLERANCE))
    return problem, dataclasses.replace(options, initial=known)


def judge_known_values(options: Options, problem: ProblemDescription) -> KnownPoints | None:
    """Return the known values of a call as its search sees them."""
    known, space = options.initial, problem.space
    if known is None:
        return None
    genes = known.x if space is None else space.round_codes(space.encode(known.x))
    return KnownPoints(
        genes, summarise(orient(known.fun, options.maximize), known.ineq, known.eq, problem.eq_tolerance, np)
    )
