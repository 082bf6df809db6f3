"""What to evaluate next, where an evaluation is expensive: a portfolio of local methods that share what they learn.

A run begins with one descent from the middle of the box, or from a point of the caller if that one is better. Then
several searches take turns: descents from elsewhere, a CMA-ES with a surrogate around the best point, and a search of
one variable after the other if a few values say that the objective is a sum over the variables. Each gets evaluations
by what it achieved: the one that holds the best value goes on most of the time, the others often enough to catch up.
Under constraints descents are those of the trust region, which models each constraint; without any they are those of
SQP. With integers or choices they combine models with moves to neighbours, and every point lies on the grid.

The search is a function of its seed and of the values that it was told, so a saved list of evaluations is its state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from galapax.local.coordinate_search import CoordinateSearch, is_additive
from galapax.local.log import SampleLog
from galapax.local.mixed_descent import Grid, MixedDescent
from galapax.local.sqp_by_differences import FIRST_RADIUS, POLISH_RADIUS, SQPByDifferences
from galapax.local.surrogate_cmaes import SurrogateCMAES
from galapax.local.trust_region import TrustRegion

ADDITIVITY_TEST = 6  # evaluations a variable, after which it is tested whether the objective is a sum over variables
LEADER_WEIGHT = 3.0  # evaluations of the search with the best value for each one of another
ADDITIVE_WEIGHT = 20.0  # the same where the search with the best value goes variable by variable
FIRST_SIGMA = 0.2  # of the surrogate-assisted search, share of the box
MODEL_FINAL_RADIUS = 1e-5  # of the trust region, before differences take over
OFFSET = 0.05  # share of the box by which a first point differs from the middle, so that runs differ
MARGIN = 0.1  # share of the box at each side in which no descent begins
MAX_START_DRAWS = 10  # of a point to descend from, until the nearest evaluated one did not fail
SAME_END, SAME_END_VALUE = 1e-4, 1e-10  # two descents ended alike: shares of the box and of the range of all values
AGREEING_DESCENTS = 5  # that end at the best point before the search counts as done
AGREEING_CONVEX_DESCENTS = 2  # the same where no evaluated point contradicts that the problem is convex
FAR = 0.2  # share of the box between their starts, at least

FIRST_DESCENT_SHARE = 10  # evaluations a variable that the first descent on a grid has to itself
KICKED_SHARE = 0.25  # of the variables that are drawn anew where a descent on a grid begins near the best point
MAX_REUSED_VALUES = 100  # asked for in a row that are known already, before one of them is asked for again

METHODS = (
    "starting points",
    "quadratic models",
    "SQP by differences",
    "CMA-ES with a surrogate",
    "coordinate search",
    "models and neighbours",
)
START, MODELS, SQP, SURROGATE, COORDINATES, NEIGHBOURS = range(len(METHODS))

Answer = TypeVar("Answer")
Moves = Generator[np.ndarray, np.ndarray, None]
NamedMoves = Generator[tuple[int, np.ndarray], np.ndarray, None]  # with the place in METHODS of what asks


class DescentEnd(NamedTuple):
    """Where a descent converged."""

    start: np.ndarray  # (d,)
    point: np.ndarray  # (d,)
    violation: float
    objective: float


@dataclass
class Member:
    """A search with the points that it waits for."""

    name: str
    moves: NamedMoves
    method: int = field(init=False)  # that asks for the points
    points: np.ndarray = field(init=False)  # (k, d)
    rows: np.ndarray = field(init=False)  # (k,) in the log, -1 where a point was not told yet
    handed_out: int = 0  # of the points
    evaluations: int = 0
    best: tuple[float, float] = (np.inf, np.inf)  # violation, objective
    is_over: bool = False

    def __post_init__(self) -> None:
        self.wait(lambda: next(self.moves))

    def wait(self, resume: Callable[[], tuple[int, np.ndarray]]) -> None:
        """Wait for the values of the points that a resumed search yields."""
        self.handed_out = 0
        try:
            self.method, points = resume()
            self.points = np.atleast_2d(points)
        except StopIteration:
            self.is_over, self.points = True, np.empty((0, 0))
        self.rows = np.full(len(self.points), -1)

    def tell(self, place: int, row: int, merit: tuple[float, float]) -> None:
        """Note where the value of a point is; with the last one go on."""
        self.rows[place] = row
        self.evaluations += 1
        self.best = min(self.best, merit)
        if (self.rows >= 0).all():
            rows = self.rows.copy()
            self.wait(lambda: self.moves.send(rows))


class FewEvaluations:
    """Ask for points of the unit box and tell their values.

    dim: number of variables. seed: of all random choices. eq_tolerance: within which an equality holds. start: the
    first point (d,), the middle of the box by default. grid: of discrete variables. n_parallel: points that are asked
    for at a time.
    """

    def __init__(
        self,
        dim: int,
        seed: int = 0,
        eq_tolerance: float = 0.0,
        start: np.ndarray | None = None,
        grid: Grid | None = None,
        n_parallel: int = 1,
    ) -> None:
        self.grid, self.n_parallel = grid, n_parallel
        self.log = SampleLog(dim, eq_tolerance)
        self.random = np.random.default_rng(seed)
        middle = 0.5 + OFFSET * self.random.uniform(-1.0, 1.0, dim)
        self.start = middle if start is None else np.asarray(start, float)
        if grid is not None:
            self.start = grid.snap(self.start)
        self.members: list[Member] = []
        self.minima: list[DescentEnd] = []
        self.descents = 0
        self.next_additivity_test: float = ADDITIVITY_TEST * dim
        self.evaluations = np.zeros(len(METHODS), int)  # of each method
        self._outstanding: list[tuple[Member, int]] = []

    def ask(self, n: int = 1) -> np.ndarray:
        """The next n points (n, d), to be told all at once."""
        if self._outstanding:
            raise RuntimeError("the points of the last ask were not told yet.")
        if not self.members:
            self.members.append(Member("descent", self.descend(None if self.log.n_sound else self.start)))
        n_reused = MAX_REUSED_VALUES if self.is_exhausted else 0
        while len(self._outstanding) < n:
            free = [member for member in self.members if member.handed_out < len(member.points)]
            if not free:
                self.members.append(self.open_member())
                continue
            member = min(free, key=self.priority)
            if self.grid is not None and n_reused < MAX_REUSED_VALUES and self.reuse_value(member):
                n_reused += 1
                continue
            while member.handed_out < len(member.points) and len(self._outstanding) < n:
                self._outstanding.append((member, member.handed_out))
                member.handed_out += 1
        return self.outstanding_points

    def reuse_value(self, member: Member) -> bool:
        """Tell a member the value of its next point, if that was evaluated before."""
        row = self.log.find(member.points[member.handed_out]) if self.log.n else None
        if row is None:
            return False
        violation, value = float(self.log.violation()[row]), float(self.log.objective[row])
        member.handed_out += 1
        member.tell(member.handed_out - 1, row, (violation, value) if np.isfinite(violation) else (np.inf, np.inf))
        member.evaluations -= 1
        return True

    def tell(
        self,
        objective: np.ndarray,
        ineq: np.ndarray | None = None,
        eq: np.ndarray | None = None,
        points: np.ndarray | None = None,
    ) -> None:
        """Values (n,) of the points of the last ask, in their order, and of constraints (n, p) and (n, q); NaN failed.

        points: where these were evaluated (n, d), if not exactly where they were asked for.
        """
        n = len(self._outstanding)
        if points is None:
            points = self.outstanding_points
        empty = np.empty((n, 0))
        first = self.log.n
        self.log.append(points, np.asarray(objective), empty if ineq is None else ineq, empty if eq is None else eq)
        violation = np.nan_to_num(self.log.violation()[first:], nan=np.inf)
        value = np.nan_to_num(self.log.objective[first:], nan=np.inf)
        outstanding, self._outstanding = self._outstanding, []
        for i, (member, place) in enumerate(outstanding):
            self.evaluations[member.method] += 1
            member.tell(place, first + i, (float(violation[i]), float(value[i])))
        if self.needs_surrogate:
            self.members.append(self.open_member())
        may_be_additive = self.log.dim > 1 and not self.log.is_constrained and self.grid is None
        if self.log.n >= self.next_additivity_test and may_be_additive:
            self.next_additivity_test *= 2
            if not self.log.looks_convex():  # otherwise descents are enough
                self.members.append(Member("coordinates", self.search_coordinates()))
                self.next_additivity_test = np.inf

    def learn(self, points: np.ndarray, objective: np.ndarray, ineq: np.ndarray, eq: np.ndarray) -> None:
        """Take up values of points (n, d) that were not asked for."""
        self.log.append(points, objective, ineq, eq)

    @property
    def is_first_descent_over(self) -> bool:
        """Whether other searches may begin; on a grid a first descent that takes long has company after a while."""
        return self.descents >= 1 or (self.grid is not None and self.log.n >= FIRST_DESCENT_SHARE * self.log.dim)

    @property
    def needs_surrogate(self) -> bool:
        """Whether it is time for the search with a surrogate, and there is none yet."""
        return self.is_first_descent_over and all(member.name != "surrogate" for member in self.members)

    @property
    def is_exhausted(self) -> bool:
        """Whether every point of a grid without real variables was evaluated."""
        if self.grid is None or self.log.n < self.grid.size:
            return False
        return len(np.unique(np.round(self.log.x, 9), axis=0)) >= self.grid.size

    @property
    def is_asked(self) -> bool:
        """Whether points wait to be told."""
        return bool(self._outstanding)

    @property
    def outstanding_points(self) -> np.ndarray:
        """The points (n, d) of the last ask, until they are told."""
        return np.array([member.points[place] for member, place in self._outstanding])

    @property
    def is_done(self) -> bool:
        """Whether so many descents ended at the best point that more of them promise nothing.

        Two from far apart are enough where every evaluated point agrees with a convex problem.
        """
        if len(self.minima) < AGREEING_CONVEX_DESCENTS:
            return self.is_exhausted
        starts, points, violations, values = (np.array(column) for column in zip(*self.minima, strict=True))
        best = int(np.lexsort((values, violations))[0])
        spread = self.log.range_of_objective()
        is_alike = (violations <= violations[best]) & (values - values[best] <= SAME_END_VALUE * spread)
        is_alike &= np.max(np.abs(points - points[best]), axis=1) <= SAME_END
        if not is_alike.all():
            return False
        is_far_apart = bool(np.max(np.ptp(starts, axis=0)) >= FAR)
        return len(values) >= AGREEING_DESCENTS or (is_far_apart and self.log.looks_convex())

    def priority(self, member: Member) -> float:
        """Evaluations so far, counted less for the member with the best value; the least comes next.

        A search by variables counts as one that leads from the beginning, as it knows more of the problem.
        """
        leads = member.best <= min(other.best for other in self.members)
        if leads and self.n_parallel > 1:  # however many others fill the places that it leaves
            return member.evaluations / (LEADER_WEIGHT * max(1, len(self.members) - 1))
        if member.name == "coordinates":
            return member.evaluations / (ADDITIVE_WEIGHT if leads else LEADER_WEIGHT)
        return member.evaluations / (LEADER_WEIGHT if leads else 1.0)

    def open_member(self) -> Member:
        """A further member: the search with a surrogate if there is none yet, else more descents."""
        if self.needs_surrogate:
            return Member("surrogate", self.evolve())
        return Member("descent", self.descend(self.choose_start()))

    def descend(self, start: np.ndarray | None) -> NamedMoves:
        """One descent after another, the first one from `start`, or from the best point that is known."""
        while True:
            if start is None:
                row = self.log.best()
                start = self.log.x[row].copy()
            else:
                row = int((yield START, start[None])[0])
                if start is self.start and not np.allclose(self.log.x[row], start):  # x0 took its place
                    row = self.better_row(row, int((yield START, start[None])[0]))
                    start = self.log.x[row].copy()
            if np.isnan(self.log.objective[row]):  # there is nothing to descend from
                start = self.choose_start()
                continue
            if self.grid is not None:
                descent = MixedDescent(self.log, row, self.grid, self.random, self.n_parallel)
                yield from attribute(NEIGHBOURS, descent.run())
                self.descents += 1
                start = self.choose_start()
                continue
            if self.log.is_constrained:
                models = TrustRegion(self.log, row, final_radius=MODEL_FINAL_RADIUS, n_parallel=self.n_parallel)
                yield from attribute(MODELS, models.run())
                row = models.row
            radius = POLISH_RADIUS if self.log.is_constrained else FIRST_RADIUS
            search = SQPByDifferences(self.log, row, radius, self.n_parallel)
            yield from attribute(SQP, search.run())
            self.descents += 1
            if search.converged:
                row = search.row
                violation, value = float(self.log.violation()[row]), float(self.log.objective[row])
                self.minima.append(DescentEnd(start, self.log.x[row].copy(), violation, value))
            start = self.choose_start()

    def better_row(self, a: int, b: int) -> int:
        """The one of two rows of the log with less violation, then with the lower value; a failed one is worse."""
        rows = [a, b]
        violation, value = self.log.violation()[rows], self.log.objective[rows]
        return rows[int(np.lexsort((value, violation))[0])]  # NaN comes last

    def search_coordinates(self) -> NamedMoves:
        """A search of one variable after the other around the best point, if the objective is a sum over variables."""
        if (yield from attribute(COORDINATES, is_additive(self.log))):
            yield from attribute(COORDINATES, CoordinateSearch(self.log, self.log.best()).run())

    def evolve(self) -> NamedMoves:
        """CMA-ES with a surrogate around the best point, then with twice the population."""
        population = None
        while True:
            mean = self.log.x[self.log.best()].copy()
            search = SurrogateCMAES(self.log, mean, FIRST_SIGMA, self.random, population, self.n_parallel)
            yield from attribute(SURROGATE, search.run() if self.grid is None else snap_moves(search.run(), self.grid))
            population = 2 * search.population

    def choose_start(self) -> np.ndarray:
        """A random point to descend from; on a grid every other one is the best with some variables drawn anew."""
        if self.grid is not None and self.descents % 2:
            start = self.log.x[self.log.best()].copy()
            kicked = self.random.permutation(self.log.dim)[: max(2, int(KICKED_SHARE * self.log.dim))]
            start[kicked] = self.random.uniform(size=len(kicked))
            return self.grid.snap(start)
        if self.grid is not None:
            return self.grid.snap(self.random.uniform(size=self.log.dim))
        for _ in range(MAX_START_DRAWS):
            start = self.random.uniform(MARGIN, 1.0 - MARGIN, self.log.dim)
            if not self.log.is_near_failure(start):
                break
        return start


def snap_moves(moves: Moves, grid: Grid) -> Moves:
    """The moves with their points on the grid."""
    try:
        points = next(moves)
        while True:
            points = moves.send((yield grid.snap(points)))
    except StopIteration:
        return


def attribute(
    method: int, moves: Generator[np.ndarray, np.ndarray, Answer]
) -> Generator[tuple[int, np.ndarray], np.ndarray, Answer]:
    """The moves of one method, with its place in METHODS, and what they return."""
    try:
        points = next(moves)
        while True:
            points = moves.send((yield method, points))
    except StopIteration as end:
        answer: Answer = end.value
        return answer
