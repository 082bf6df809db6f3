"""All minima of a function in the unit box: hill-valley clustering of samples, and a search for every niche.

Clustering as in Maree, Alderliesten, Thierens & Bosman (2018), GECCO, 785-792, doi:10.1145/3205455.3205477; the test
for a hill between two points after Ursem (1999), IEEE CEC, 1633-1640; CMA-ES as in Hansen (2016), arXiv:1604.00772;
hops between minima after Wales & Doye (1997), J. Phys. Chem. A 101(28):5111-5116, doi:10.1021/jp970984n.
Differs from the papers: all tests of a pass and all searches of a round are evaluated together; a search ends as soon
as no hill lies between its best point and a better known one, or, where only the best minima are asked for, as soon as
its values show that it ends at a worse one. Where the next sample comes from is decided by what it cost so far to find
a minimum that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from galapax.local.surrogate_cmaes import reflect


class Descents(NamedTuple):
    """Points from which to descend by the gradient, each with at most `limit` evaluations."""

    x: np.ndarray  # (k, d)
    limit: int


class DescentEnds(NamedTuple):
    """Where descents ended, what they took, and whether the gradient agreed with the function."""

    x: np.ndarray  # (k, d)
    scores: np.ndarray  # (k,)
    evaluations: np.ndarray  # (k,)
    is_smooth: np.ndarray  # (k,) bool


Moves = Generator[np.ndarray | Descents, Any, None]  # scores (n,) of points (n, d), DescentEnds of Descents
Answers = Generator[np.ndarray | Descents, Any, np.ndarray]

FIRST_SAMPLE = 32  # points a variable
SELECTED_SHARE = 0.5  # the better part of a sample, which is clustered
MAX_WAY_POINTS = 10  # between two points
CHECK_EVERY = 5  # generations between two looks for a hill on the way to a better known point
CHECK_POINTS = 3  # on that way
ADD_POINTS = 5  # on the way from a new minimum to the nearest known ones
ROUND_SHARE = 0.35  # of the evaluations left that the searches of one round may take, about
FIRST_COST = 150  # evaluations a variable that a search takes, before any has ended
MIN_SEARCHES = 8  # of a round, where there are as many niches
MIN_SCALE = 0.1  # of the first step, where two searches begin next to each other, share of the scale of the sample
WIDE_SEARCHES = 8  # of a round of wide ones
FIRST_WIDE_SEARCHES = 2  # of the first such round, where the others descend
WIDE_SIGMA = 0.2  # share of the box
WIDE_GENERATIONS = 25  # of these searches that the evaluations left must pay at least
WIDE_GROWTH = 2 ** (1 / 3)  # of their population from round to round
MAX_SEARCH_GENERATIONS = 2000
DESCENT_LIMIT = 200  # evaluations a variable of a descent, but for
MIN_DESCENT_LIMIT = 1000  # at least
CHECKED_SAMPLES = 4  # a variable of a uniform sample from which descents begin besides those of the niches
MIN_SMOOTH_SHARE = 0.5  # of the descents of a round that end at a minimum; with less, later rounds have none
SAME_PLACE = 1e-6  # two minima that are nearer to each other are one
SHRUNK = 0.1  # share of a search's largest width below which it converges
FORECAST = 20.0  # a search may still gain so many times what its best is better than its median, or than its best
FORECAST_GENERATIONS = 5  # so many generations ago
HOPS = 4  # from each minimum in a round
FUNNELS = 8  # from which a round hops that looks for better minima
STEP_NOISE = 0.1  # of a hop by the difference of two minima, share of its scale
ACCURACY = 1e-10  # of the scores, share of the range between the quartiles of the first sample,
MIN_SPREAD = 1e-4  # which counts as at least this share of the best score
EQUAL = 1e-6  # two minima whose scores differ by less of that count as equally good
LARGE = 1e299  # scores from here on are no values, but those of infeasible points
BASIN_SAMPLES = 50  # a variable whose basin is looked for at the end,
BASIN_CANDIDATES = 3  # among those of the nearest known points
PATTERN_STEP = 1e-4  # share of the box
MIN_SIGMA = 1e-10  # of a first step
MIN_WIDTH = 1e-15  # of a distribution
MAX_AXIS_RATIO = 1e7

UNIFORM, HOPS_BETWEEN_BEST, HOPS_IN_FUNNELS, WIDE = range(4)  # where the points of a round come from
EFFORT = np.array([1.0, 1.0, 2.0, 1.0])  # evaluations of each kind, in proportion, while none finds anything


@dataclass
class Minimum:
    """A minimum: its place and score, how many samples led to it, and how many searches ended there."""

    x: np.ndarray  # (d,)
    score: float
    samples: int = 0  # of the uniform ones from whose niches searches began
    basin: int = 0  # of uniform ones, those from which the steepest way leads to it
    found: int = 1
    is_verified: bool = False  # no point of a small pattern around it is better


def estimate_unseen(minima: list[Minimum]) -> float:
    """Estimate, of the samples in niches of these minima and of others like them, the share in those of the others.

    As many as there are minima with one sample, as by Good and Turing, and one more, since none is no proof.
    Good (1953), Biometrika 40(3/4):237-264, doi:10.1093/biomet/40.3-4.237.
    """
    samples = [minimum.samples for minimum in minima]
    return min(1.0, (samples.count(1) + 1) / max(sum(samples), 1))


def count_samples(dim: int) -> int:
    """The usual number of samples of a CMA-ES."""
    return 4 + int(3 * math.log(dim))


class VisitedPoints:
    """Minima, and where searches were given up, with the distance of each to the nearest better one."""

    def __init__(self, dim: int) -> None:
        self.x = np.empty((0, dim))
        self.score, self.isolation = np.empty(0), np.empty(0)
        self.n_hops = np.empty(0, int)  # rounds in which points were sought around it
        self.minimum: list[Minimum | None] = []  # to which it belongs

    def add(self, x: np.ndarray, score: float, minimum: Minimum | None = None) -> None:
        distance = np.linalg.norm(self.x - x, axis=1)
        isolation = float(np.min(distance[self.score <= score], initial=math.sqrt(len(x))))
        self.isolation = np.where(self.score > score, np.minimum(self.isolation, distance), self.isolation)
        self.x, self.score = np.concatenate([self.x, x[None]]), np.append(self.score, score)
        self.isolation, self.n_hops = np.append(self.isolation, isolation), np.append(self.n_hops, 0)
        self.minimum.append(minimum)


class CMAESBatch:
    """CMA-ES searches with equally many samples, one generation of all at a time.

    `ask` and `tell` take the rows of those that still run.
    """

    def __init__(self, means: np.ndarray, sigmas: np.ndarray, population: int, random: np.random.Generator) -> None:
        k, d = means.shape
        self.random, self.population, self.age = random, population, 0
        self.mean, self.sigma = means.copy(), np.maximum(sigmas, MIN_SIGMA)
        self.matrix, self.path, self.step_path = np.tile(np.eye(d), (k, 1, 1)), np.zeros((k, d)), np.zeros((k, d))
        self.best_x, self.best = means.copy(), np.full(k, np.inf)
        self.spread = np.full(k, np.inf)  # of the better half of the last generation
        self.largest_width = np.zeros(k)
        self.bests: list[np.ndarray] = []  # of every generation
        raw = math.log((population + 1) / 2) - np.log(np.arange(1, population // 2 + 1))
        self.weights = raw / raw.sum()
        self.mueff = mueff = 1.0 / float(np.sum(self.weights**2))
        self.c_c = (4 + mueff / d) / (d + 4 + 2 * mueff / d)
        self.c_s = (mueff + 2) / (d + mueff + 5)
        self.c_1 = 2 / ((d + 1.3) ** 2 + mueff)
        self.c_mu = min(1 - self.c_1, 2 * (mueff - 2 + 1 / mueff) / ((d + 2) ** 2 + mueff))
        self.damping = 1 + 2 * max(0.0, math.sqrt((mueff - 1) / (d + 1)) - 1) + self.c_s
        self.usual_length = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d))

    def ask(self, rows: np.ndarray) -> np.ndarray:
        """The samples of these searches (k * n, d)."""
        d = self.mean.shape[1]
        eigenvalues, self.basis = np.linalg.eigh(self.matrix[rows])
        self.axes = np.sqrt(np.maximum(eigenvalues, 1e-300))
        normals = self.random.standard_normal((len(rows), self.population, d)) * self.axes[:, None]
        self.x = reflect(self.mean[rows, None] + self.sigma[rows, None, None] * (normals @ self.basis.swapaxes(1, 2)))
        return self.x.reshape(-1, d)

    def tell(self, rows: np.ndarray, x: np.ndarray, scores: np.ndarray) -> None:
        """Go on with the scores (k * n,) of the samples, which were evaluated at x."""
        d, mu = self.mean.shape[1], len(self.weights)
        scores, x = scores.reshape(len(rows), -1), x.reshape(len(rows), -1, d)
        order = np.argsort(scores, axis=1, kind="stable")
        ranked, places = np.take_along_axis(scores, order, axis=1), np.arange(len(rows))
        is_better = ranked[:, 0] < self.best[rows]
        self.best[rows] = np.where(is_better, ranked[:, 0], self.best[rows])
        self.best_x[rows] = np.where(is_better[:, None], x[places, order[:, 0]], self.best_x[rows])
        with np.errstate(invalid="ignore"):
            self.spread[rows] = ranked[:, mu] - ranked[:, 0]
        sigma, mean = self.sigma[rows, None], self.mean[rows]
        moves = (np.take_along_axis(self.x, order[:, :mu, None], axis=1) - mean[:, None]) / sigma[..., None]
        step = np.einsum("m,kmd->kd", self.weights, moves)
        self.mean[rows] = mean + sigma * step
        normal = np.einsum("kde,ke->kd", self.basis, np.einsum("ked,ke->kd", self.basis, step) / self.axes)
        c_s, c_c, c_1, c_mu, self.age = self.c_s, self.c_c, self.c_1, self.c_mu, self.age + 1
        step_path = (1 - c_s) * self.step_path[rows] + math.sqrt(c_s * (2 - c_s) * self.mueff) * normal
        length = np.linalg.norm(step_path, axis=1) / self.usual_length
        is_steady = length / math.sqrt(1 - (1 - c_s) ** (2 * self.age)) < 1.4 + 2 / (d + 1)
        path = (1 - c_c) * self.path[rows] + is_steady[:, None] * math.sqrt(c_c * (2 - c_c) * self.mueff) * step
        decay = 1 - c_1 - c_mu + np.where(is_steady, 0.0, c_1 * c_c * (2 - c_c))
        learnt = c_mu * np.einsum("m,kmd,kme->kde", self.weights, moves, moves)
        self.matrix[rows] = decay[:, None, None] * self.matrix[rows] + c_1 * path[:, :, None] * path[:, None] + learnt
        self.path[rows], self.step_path[rows] = path, step_path
        growth = np.exp(np.minimum(1.0, (c_s / self.damping) * (length - 1)))
        self.sigma[rows] = np.minimum(self.sigma[rows] * growth, 1.0)
        self.largest_width[rows] = np.maximum(self.largest_width[rows], self.width(rows))
        self.bests.append(self.best.copy())

    def width(self, rows: np.ndarray) -> np.ndarray:
        """The largest standard deviation of a variable (k,)."""
        return self.sigma[rows] * np.sqrt(np.diagonal(self.matrix[rows], axis1=1, axis2=2).max(axis=1))

    def has_converged(self, rows: np.ndarray, accuracy: float) -> np.ndarray:
        """Whether the best scores do not change any more, (k,); the rows are those that were told last."""
        window = 10 + math.ceil(30 * self.mean.shape[1] / self.population)
        over = (self.width(rows) < MIN_WIDTH) | (self.axes.max(axis=1) > MAX_AXIS_RATIO * self.axes.min(axis=1))
        if len(self.bests) > window:
            with np.errstate(invalid="ignore"):
                gain = self.bests[-1 - window][rows] - self.best[rows]
            over |= (gain <= accuracy) & ((self.spread[rows] <= accuracy) | (gain <= 0)) | np.isinf(self.best[rows])
        return over


class Round(NamedTuple):
    """What is known after a round: evaluations so far, minima of interest, and the scores of these."""

    evaluations: int
    n_minima: int
    best: float
    mean: float
    worst: float


@dataclass
class NicheSearch:
    """Yields points (n, d) of the unit box and receives their scores (n,), the less the better, inf where failed.

    max_evaluations: never exceeded. within: minima that are worse than the best one by more are of no interest, or than
    what counts as equal. unseen: the estimate of the share of the box whose minima are unknown at which it ends. snap:
    moves points of the box to where they are evaluated. descends: it may yield Descents, too, and receives DescentEnds.
    """

    dim: int
    seed: int | tuple[int, ...]
    max_evaluations: int
    within: float = math.inf
    unseen: float = 0.0
    snap: Callable[[np.ndarray], np.ndarray] = lambda x: x
    descends: bool = False
    minima: list[Minimum] = field(default_factory=list)
    evaluations: int = 0
    n_basin: int = 0  # uniform samples whose basin was looked for
    rounds: list[Round] = field(default_factory=list)
    accuracy: float = 0.0  # of the scores; known after the first sample with feasible points
    has_spread: bool = False  # whether it follows from the spread of a sample
    is_done: bool = False
    is_verifying: bool = False
    n_best: int = 0  # minima of interest
    best: float = math.inf  # score of the best minimum
    best_sample: Minimum = field(default_factory=lambda: Minimum(np.empty(0), math.inf))  # evaluated so far

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.min_within = self.within
        self.known = VisitedPoints(self.dim)
        self.population = count_samples(self.dim)
        self.uniform = [np.empty((0, self.dim))], [np.empty(0)]  # samples and their scores
        self.costs: list[float] = []  # evaluations of searches
        # known points from which searches go on, as they may have been given up early
        self.revisited = np.empty(0, int)

    @property
    def n_rounds(self) -> int:
        return len(self.rounds)

    @property
    def evaluations_left(self) -> int:
        """Evaluations that are left, but for those that verify the minima and measure their basins."""
        if self.is_verifying:
            return self.max_evaluations - self.evaluations
        pattern = min(2 * self.dim * self.n_best, self.max_evaluations // 10)
        basins = min(BASIN_SAMPLES * self.dim * BASIN_CANDIDATES * ADD_POINTS, self.max_evaluations // 20)
        return self.max_evaluations - self.evaluations - pattern - basins

    def best_minima(self) -> list[Minimum]:
        """The minima of interest: feasible ones, once there are any."""
        limit = self.best + self.within
        if self.best < LARGE:
            limit = min(limit, LARGE)
        return [minimum for minimum in self.minima if minimum.score <= limit]

    def run(self) -> Moves:
        """Rounds of a sample, its clustering, and searches in the niches that are new; then the minima are verified."""
        rounds, fruitless = [0] * 4, np.zeros(4)  # of each kind, and their evaluations since they found something
        while self.evaluations_left > 0 and not self.is_done:
            kind = int(np.argmin(fruitless / EFFORT)) if self.minima else UNIFORM
            if self.descends and self.minima and not rounds[WIDE]:  # descents see no funnel
                kind = WIDE
            before, n_before, best = self.evaluations, self.n_best, self.best
            yield from self.sample_and_search(kind, rounds[kind])
            rounds[kind] += 1
            known = [minimum.score for minimum in self.best_minima()] or [self.best_sample.score]
            values = min(known), sum(known) / len(known), max(known)
            self.rounds.append(Round(self.evaluations, self.n_best, *values))
            n_new = max(self.n_best - n_before, int(self.best < best - self.accuracy))
            fruitless[kind] = (fruitless[kind] + self.evaluations - before) / (1 + n_new)
            self.is_done = min(rounds) > 0 and n_new == 0 and estimate_unseen(self.best_minima()) <= self.unseen
        yield from self.verify()

    def sample_and_search(self, kind: int, number: int) -> Moves:
        """Evaluate the points of a round, cluster the better ones, and search in the niches that are new."""
        x, scale, n_searches, population = self.draw(kind, number)
        x, scores = yield from self.evaluate(x)
        if kind == UNIFORM:
            self.uniform[0].append(x)
            self.uniform[1].append(scores)
            self.set_accuracy()
        share = 1.0 if kind in (HOPS_BETWEEN_BEST, HOPS_IN_FUNNELS) else SELECTED_SHARE
        order = np.argsort(scores, kind="stable")[: math.ceil(share * len(x))]
        order = order[np.isfinite(scores[order])]
        x, scores, scale = x[order], scores[order], scale[order]
        niche = yield from self.cluster(x, scores, max(2 * float(np.median(scale)), MIN_WIDTH) if len(x) else 1.0)
        yield from self.search(x, scores, scale, niche, n_searches, population, kind)

    def set_accuracy(self) -> None:
        """Choose what counts as equal from the feasible scores of the first uniform sample that has some."""
        if self.has_spread:
            return
        scores = np.concatenate(self.uniform[1])
        scores = scores[np.abs(scores) < LARGE]
        spread = float(np.subtract(*np.quantile(scores, (0.75, 0.25)))) if len(scores) else 0.0
        self.has_spread = spread > 0
        best = min(self.best, self.best_sample.score)
        spread = max(spread, MIN_SPREAD * abs(best) if best < LARGE else 0.0)
        self.accuracy = ACCURACY * spread
        self.within = max(self.min_within, EQUAL * spread)

    def verify(self) -> Moves:
        """Look whether a pattern of points around each minimum of interest has a better one."""
        self.is_verifying = True
        minima = sorted(self.best_minima(), key=lambda minimum: minimum.score)
        x, scores = np.array([minimum.x for minimum in minima]), np.array([minimum.score for minimum in minima])
        is_verified = yield from self.compare_with_pattern(x.reshape(-1, self.dim), scores)
        for minimum, is_minimum in zip(minima, is_verified, strict=True):
            minimum.is_verified = bool(is_minimum)
        yield from self.measure_basins()

    def measure_basins(self) -> Moves:
        """Count for each minimum the uniform samples from which the steepest way without a hill leads to it."""
        x, scores = (np.concatenate(parts) for parts in self.uniform)
        finite, known = np.flatnonzero(np.isfinite(scores)), self.known
        ways = min(BASIN_CANDIDATES, len(known.x))
        cost = max(1, ways * ADD_POINTS)
        affordable = min(max(self.evaluations_left, 0) // cost, self.evaluations // (10 * cost))
        rows = self.random.choice(finite, min(len(finite), BASIN_SAMPLES * self.dim, affordable), replace=False)
        x, scores = x[rows], scores[rows]
        if not len(x) or not ways:
            return
        distance = np.linalg.norm(x[:, None] - known.x, axis=2)
        distance[scores[:, None] < known.score] = np.inf
        nearest = np.argsort(distance, axis=1)[:, :ways]
        length = np.take_along_axis(distance, nearest, axis=1)  # (n, ways)
        shares = np.arange(1, ADD_POINTS + 1)[:, None] / (ADD_POINTS + 1)
        points = x[:, None, None] + shares * (known.x[nearest] - x[:, None])[:, :, None]  # (n, ways, points, d)
        _, values = yield from self.evaluate(points.reshape(-1, self.dim))
        values = values.reshape(*nearest.shape, ADD_POINTS)
        with np.errstate(invalid="ignore"):
            slope = (scores[:, None] - values[:, :, 0]) / np.maximum(length, MIN_WIDTH)
        slope = np.where(np.isfinite(length) & np.all(values <= scores[:, None, None], axis=2), slope, -np.inf)
        for row in nearest[np.arange(len(x)), np.argmax(slope, axis=1)]:  # the nearest one where each way has a hill
            minimum = known.minimum[row]
            if minimum is not None:
                minimum.basin += 1
        self.n_basin = len(x)

    def compare_with_pattern(self, x: np.ndarray, scores: np.ndarray) -> Answers:
        """Whether no point of a small pattern around each point is better (k,), of the first ones if few are left."""
        steps = PATTERN_STEP * np.concatenate([np.eye(self.dim), -np.eye(self.dim)])
        k = min(len(x), max(self.evaluations_left, 0) // len(steps))
        _, around = yield from self.evaluate(reflect(x[:k, None] + steps).reshape(-1, self.dim))
        is_best = np.zeros(len(x), bool)
        is_best[:k] = np.min(around.reshape(k, len(steps)), axis=1, initial=np.inf) >= scores[:k] - self.accuracy
        return is_best

    def draw(self, kind: int, number: int) -> tuple[np.ndarray, np.ndarray, int, int]:
        """The points of a round (n, d), the scale of each, how many searches at most, and their population."""
        if kind in (HOPS_BETWEEN_BEST, HOPS_IN_FUNNELS):
            x, scale = self.hop_between_best() if kind == HOPS_BETWEEN_BEST else self.hop_in_funnels()
            return x, scale, self.max_evaluations, self.population
        n = FIRST_SAMPLE * self.dim
        if kind == UNIFORM:
            n = min(n << number, self.evaluations_left // 4 + 1)
            scale = np.full(n, 0.5 * n ** (-1 / self.dim))
            return self.random.uniform(size=(n, self.dim)), scale, self.max_evaluations, self.population
        largest = max(self.population, self.evaluations_left // (WIDE_SEARCHES * WIDE_GENERATIONS))
        population = int(min(2 * self.population * WIDE_GROWTH ** min(number, 100), largest))
        x = self.random.uniform(size=(min(n, self.evaluations_left // 4 + 1), self.dim))
        n_searches = FIRST_WIDE_SEARCHES if self.descends and not number else WIDE_SEARCHES
        return x, np.full(len(x), 0.5), n_searches, population

    def hop_between_best(self) -> tuple[np.ndarray, np.ndarray]:
        """Points as far from the minima of interest as these are from one another, with their scale."""
        x = np.array([minimum.x for minimum in self.best_minima()])
        start = np.repeat(np.arange(len(x)), max(HOPS, -(-FIRST_SAMPLE * self.dim // len(x))))
        lengths, steps = self.measure_neighbours(x, start)
        # half by the difference of two minima elsewhere, as those on a lattice differ
        steps = steps[self.random.permutation(len(steps))]
        return self.hop(x[start], lengths, lengths[:, 0], steps)

    def hop_in_funnels(self) -> tuple[np.ndarray, np.ndarray]:
        """Points around the best known ones that have no better one nearby, but are no minima of interest."""
        known, best = self.known, self.best
        with np.errstate(divide="ignore"):
            depth = known.isolation**2 / np.maximum(known.score - best, 1e-300)
        priority = np.where(known.score > best + self.within, depth, 0.0) / (1 + known.n_hops)
        bottoms = np.argsort(-priority)[:FUNNELS]
        bottoms = bottoms[priority[bottoms] > 0]
        if not len(bottoms):  # all are of interest
            bottoms = np.argsort(known.n_hops, kind="stable")[:FUNNELS]
        self.revisited = bottoms[known.n_hops[bottoms] == 0]
        known.n_hops[bottoms] += 1
        start = np.repeat(bottoms, FIRST_SAMPLE * self.dim // FUNNELS)
        lengths, steps = self.measure_neighbours(known.x, start)
        # of minima nearby few are known, so that the next one may be much nearer
        shorter = lengths * 10.0 ** -self.random.uniform(size=(len(start), 1))
        return self.hop(known.x[start], shorter, shorter[:, 0], steps)

    def measure_neighbours(self, x: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The distances (n, k) of each x[start] to its nearest neighbours among x, and the difference (n, d) of two of
        these, or its own to one of them.
        """
        if len(x) == 1:
            return np.full((len(start), 1), WIDE_SIGMA), np.zeros((len(start), self.dim))
        distance = np.linalg.norm(x[start][:, None] - x[None], axis=2)
        distance[np.arange(len(start)), start] = np.inf
        k = min(2 * self.dim, len(x) - 1)
        nearest = np.argsort(distance, axis=1)[:, :k]
        first, second = (nearest[np.arange(len(start)), self.random.integers(0, k, len(start))] for _ in range(2))
        second = np.where(first == second, start, second)
        return np.take_along_axis(distance, nearest, axis=1), x[second] - x[first]

    def hop(
        self, x: np.ndarray, lengths: np.ndarray, scale: np.ndarray, steps: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """From each x (n, d) as far as one of the `lengths` (n, k) in any direction, or every second one by its step;
        with the scale of each.
        """
        n, d = x.shape
        length = lengths[np.arange(n), self.random.integers(0, lengths.shape[1], n)]
        moves = self.random.standard_normal((n, d))
        moves *= (length * np.exp(self.random.normal(0.0, 0.3, n)) / np.linalg.norm(moves, axis=1))[:, None]
        is_step = (np.arange(n) % 2 == 1) & np.any(steps != 0, axis=1)
        near = STEP_NOISE * scale[:, None] / math.sqrt(d) * self.random.standard_normal((n, d))
        return reflect(x + np.where(is_step[:, None], steps + near, moves)), scale / 4

    def evaluate(self, x: np.ndarray) -> Generator[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """As many of the points as can be evaluated, where they were, and their scores."""
        x = self.snap(x[: max(self.evaluations_left, 0)])
        scores = (yield x) if len(x) else np.zeros(0)
        self.evaluations += len(x)
        if len(x):
            self.note_sample(x[scores.argmin()], float(scores.min()))
        return x, scores

    def note_sample(self, x: np.ndarray, score: float) -> None:
        """Keep a point (d,) if it is the best one that was evaluated so far."""
        if score < self.best_sample.score:
            self.best_sample = Minimum(x.copy(), score, found=0)

    def cluster(self, x: np.ndarray, scores: np.ndarray, length: float) -> Answers:
        """The row of the best point of each point's niche (k,), or -1 - i if that is the known point i.

        The points are sorted by their scores. In each pass every point without a niche is compared with its next
        nearest better one. length: typical distance of two points.
        """
        n_known, k = len(self.known.x), len(x)
        points, all_scores = np.concatenate([self.known.x, x]), np.concatenate([self.known.score, scores])
        parent = np.arange(n_known + k)
        neighbours = np.full((k, self.dim + 1), -1)
        for i in range(k):
            better = np.flatnonzero(all_scores[: n_known + i] <= scores[i])
            squares = np.sum((points[better] - x[i]) ** 2, axis=1)
            count = min(self.dim + 1, len(better))
            nearest = np.argpartition(squares, count - 1)[:count] if count else better
            neighbours[i, :count] = better[nearest[np.argsort(squares[nearest])]]

        def root(i: int) -> int:
            while parent[i] != i:
                parent[i] = i = parent[parent[i]]
            return i

        tried: list[set[int]] = [{n_known + i} for i in range(k)]  # niches of each point, known not to be its own
        for column in neighbours.T:
            rows = [i for i in range(k) if parent[n_known + i] == n_known + i and column[i] >= 0]
            rows = [i for i in rows if root(column[i]) not in tried[i]]
            if not rows:
                continue
            at, ends = np.array(rows), column[rows]
            counts = np.minimum(MAX_WAY_POINTS, 1 + np.linalg.norm(x[at] - points[ends], axis=1) / length).astype(int)
            same = yield from self.share_valley(x[at], scores[at], points[ends], all_scores[ends], counts)
            for i, end, is_same in zip(rows, ends, same, strict=True):
                if is_same:
                    parent[n_known + i] = end
                else:
                    tried[i].add(root(end))
        roots = np.array([root(n_known + i) for i in range(k)], int)
        return np.where(roots >= n_known, roots - n_known, -1 - roots)

    def share_valley(
        self, a: np.ndarray, a_scores: np.ndarray, b: np.ndarray, b_scores: np.ndarray, counts: np.ndarray
    ) -> Answers:
        """Whether no point on the way between a (k, d) and b is worse than both, (k,), looking at `counts` points.

        The first points of all ways are evaluated together, then the next ones of those without a hill so far.
        """
        worst, same = np.maximum(a_scores, b_scores), np.ones(len(a), bool)
        for place in range(int(np.max(counts, initial=0))):
            rows = np.flatnonzero(same & (counts > place))
            share = ((place + 1) / (counts[rows] + 1))[:, None]
            x, scores = yield from self.evaluate(a[rows] + share * (b[rows] - a[rows]))
            same[rows[len(x) :]] = False
            same[rows[: len(x)]] = scores <= worst[rows[: len(x)]]
        return same

    def search(
        self,
        x: np.ndarray,
        scores: np.ndarray,
        scale: np.ndarray,
        niche: np.ndarray,
        n_searches: int,
        population: int,
        kind: int,
    ) -> Moves:
        """Search in the niches that are new, as far as evaluations allow."""
        if kind == UNIFORM:
            for row in -1 - niche[niche < 0]:
                self.count_samples(row, 1)
        starts = np.flatnonzero(niche == np.arange(len(niche)))
        if self.descends and kind == WIDE:  # in known niches, too, which are those of small holes
            starts = np.arange(len(x))
        cost = np.mean(self.costs[-100:]) if self.costs else FIRST_COST * self.dim
        n_searches = min(n_searches, max(MIN_SEARCHES, int(ROUND_SHARE * self.evaluations_left / cost)))
        if len(starts) > n_searches:  # the best half, and others at random
            first, rest = starts[: n_searches // 2], starts[n_searches // 2 :]
            starts = np.concatenate([first, self.random.choice(rest, n_searches - len(first), replace=False)])
        revisited = self.revisited if kind == HOPS_IN_FUNNELS else self.revisited[:0]
        sizes = np.array([np.sum(niche == start) if kind == UNIFORM else 0 for start in starts], int)
        if self.descends and kind == UNIFORM:  # from some other points, too: niches may have been taken for one
            others = np.setdiff1d(np.arange(len(x)), starts)
            count = min(len(others), CHECKED_SAMPLES * self.dim)
            starts = np.concatenate([starts, self.random.choice(others, count, replace=False)])
            sizes = np.append(sizes, np.zeros(count, int))
        if self.descends and kind != WIDE:
            is_over = yield from self.descend(x[starts], sizes)
            starts, sizes = starts[~is_over], sizes[~is_over]
        if not len(starts) + len(revisited):
            return
        sigmas = np.full(len(starts), WIDE_SIGMA)
        if kind != WIDE and len(starts):
            distance = np.linalg.norm(x[starts][:, None] - x[starts][None], axis=2) + np.diag(
                np.full(len(starts), np.inf)
            )
            apart = np.clip(distance.min(axis=1) / 2, MIN_SCALE * scale[starts], scale[starts])
            sigmas = np.minimum(sigmas, apart / math.sqrt(self.dim))
        if len(revisited):
            near, _ = self.measure_neighbours(self.known.x, revisited)
            sizes = np.append(sizes, np.zeros(len(revisited), int))
            sigmas = np.append(sigmas, MIN_SCALE * near[:, 0] / math.sqrt(self.dim))
        means = np.concatenate([x[starts], self.known.x[revisited]])
        batch = CMAESBatch(means, sigmas, population, self.random)
        batch.best[:] = np.concatenate([scores[starts], self.known.score[revisited]])
        yield from self.advance(batch, sizes)

    def advance(self, batch: CMAESBatch, sizes: np.ndarray) -> Moves:
        """Go on with searches until each has converged, met a better one or got hopeless, or evaluations run out.

        sizes: (k,) samples that led to each search.
        """
        active = np.arange(len(sizes))
        while len(active) and batch.age < MAX_SEARCH_GENERATIONS:
            points, values = yield from self.evaluate(batch.ask(active))
            if len(values) < len(active) * batch.population:
                break
            batch.tell(active, points, values)
            converged, hopeless = batch.has_converged(active, self.accuracy), np.zeros(len(active), bool)
            if math.isfinite(self.within) and batch.age > FORECAST_GENERATIONS:
                with np.errstate(invalid="ignore"):
                    gain = batch.bests[-1 - FORECAST_GENERATIONS][active] - batch.best[active]
                    gain = FORECAST * np.maximum(batch.spread[active], gain)
                    hopeless = batch.best[active] - gain > self.best + self.within
                hopeless &= batch.width(active) < SHRUNK * batch.largest_width[active]
            merged = np.zeros(len(active), bool)
            if batch.age % CHECK_EVERY == 0:
                merged = yield from self.find_merged(batch, active, sizes)
            for row in active[hopeless & ~merged]:
                self.known.add(batch.best_x[row], float(batch.best[row]))
            for row in active[converged & ~hopeless & ~merged]:
                yield from self.add(batch.best_x[row], float(batch.best[row]), int(sizes[row]))
            is_over = converged | hopeless | merged
            self.costs += [float(batch.age * batch.population)] * int(is_over.sum())
            active = active[~is_over]
        if not self.minima and len(active):
            row = active[np.argmin(batch.best[active])]
            yield from self.add(batch.best_x[row], float(batch.best[row]), int(sizes[row]))

    def descend(self, x: np.ndarray, sizes: np.ndarray) -> Answers:
        """Descend from each point by the gradient; return whether it ended at a minimum, (k,)."""
        k, before = len(x), self.evaluations
        limit = min(max(MIN_DESCENT_LIMIT, DESCENT_LIMIT * self.dim), self.evaluations_left // max(k, 1))
        if not k or limit < MIN_DESCENT_LIMIT // 10:
            return np.zeros(k, bool)
        ends: DescentEnds = yield Descents(x, limit)
        self.evaluations += int(ends.evaluations.sum())
        is_minimum = yield from self.compare_with_pattern(ends.x, ends.scores)  # and no kink where it got stuck
        is_minimum &= ends.is_smooth
        for row in np.flatnonzero(is_minimum):
            yield from self.add(ends.x[row], float(ends.scores[row]), int(sizes[row]))
        self.descends = bool(is_minimum.mean() >= MIN_SMOOTH_SHARE)
        self.costs += [(self.evaluations - before) / k] * int(is_minimum.sum())
        return is_minimum

    def find_merged(self, batch: CMAESBatch, active: np.ndarray, sizes: np.ndarray) -> Answers:
        """Whether no hill lies between the best point of each search and the nearest better known one or search."""
        n_known = len(self.known.x)
        points = np.concatenate([self.known.x, batch.best_x[active]])
        scores = np.concatenate([self.known.score, batch.best[active]])
        ends = np.full(len(active), -1)
        # among the many ends of descents, a search that is still wide is near a better one wherever it is
        reach = batch.width(active) * math.sqrt(self.dim) if self.descends else np.zeros(len(active))
        for i, row in enumerate(active):
            better = np.flatnonzero(scores <= batch.best[row])
            better = better[(better < n_known + i) | (scores[better] < batch.best[row])]
            squares = np.sum((points[better] - batch.best_x[row]) ** 2, axis=1)
            if len(better) and squares.min() >= reach[i] ** 2:
                ends[i] = better[np.argmin(squares)]
        rows = np.flatnonzero(ends >= 0)
        a, b = n_known + rows, ends[rows]
        counts = np.full(len(rows), CHECK_POINTS)
        merged = np.zeros(len(active), bool)
        merged[rows] = yield from self.share_valley(points[a], scores[a], points[b], scores[b], counts)
        for index in np.flatnonzero(merged):
            if ends[index] < n_known:
                self.count_samples(ends[index], int(sizes[active[index]]), searches=1)
            else:
                sizes[active[ends[index] - n_known]] += sizes[active[index]]
        return merged

    def count_samples(self, row: int, samples: int, searches: int = 0) -> None:
        """Add to what is known of the minimum to which a visited point belongs, if it does."""
        minimum = self.known.minimum[row]
        if minimum is not None:
            minimum.samples += samples
            minimum.found += searches

    def add(self, x: np.ndarray, score: float, samples: int) -> Moves:
        """Add a minimum, unless no hill lies between it and one of the two nearest ones."""
        if not math.isfinite(score):
            return
        if score < LARGE:
            self.set_accuracy()
        distances = np.linalg.norm(np.array([minimum.x for minimum in self.minima]).reshape(-1, self.dim) - x, axis=1)
        for i in np.argsort(distances)[:2]:
            minimum = self.minima[i]
            is_same = distances[i] < SAME_PLACE
            if not is_same:
                both = np.array([score]), minimum.x[None], np.array([minimum.score])
                is_same = (yield from self.share_valley(x[None], *both, np.array([ADD_POINTS])))[0]
            if is_same:
                minimum.found += 1
                minimum.samples += samples
                if score < minimum.score:
                    minimum.x, minimum.score = x.copy(), score
                    self.known.add(x, score, minimum)
                break
        else:
            self.minima.append(Minimum(x.copy(), score, samples))
            self.known.add(x, score, self.minima[-1])
        self.best = min(self.best, score)
        self.n_best = len(self.best_minima())
