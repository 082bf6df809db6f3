"""Ask and tell: the same algorithms for people whose objective lives elsewhere. NumPy in, NumPy out."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn, overload

import jax
import numpy as np

from galapax import algorithms
from galapax.algorithms.ehvi import EHVI, is_for_front_models
from galapax.algorithms.model_search import ModelSearch, is_for_models
from galapax.api.trials import (
    MedianRule,
    Trial,
    add_front,
    build_history,
    check_algorithm,
    describe_settings,
    evaluated_elsewhere,
    find_trials,
    judge_answers,
    judge_known_answers,
    match_points,
    offer_more,
    parse_points,
    parse_values,
    place_known,
    record_generation,
    shape_of,
    stack_answers,
    start_search,
    tell_generation,
    widths_of,
)
from galapax.core.algorithm import (
    Algorithm,
    Budget,
    HasSurrogate,
    TakesKnownValues,
    count_repairs,
    forecast_objectives,
    orient_forecast,
    with_python_integers,
)
from galapax.core.checks import check_integer, pluralize
from galapax.core.errors import InputError
from galapax.core.hints import OPTIMIZER_ATTRIBUTES, attribute_error
from galapax.core.options import Compute, Options, suggest_arguments
from galapax.core.problem import (
    BLACK_BOX_EQ_TOLERANCE,
    OUTPUT_NAMES,
    EqTolerance,
    Population,
    Problem,
    Shape,
    check_direction_count,
    check_maximize,
    check_tolerance,
    count_directions,
    derive_eq_tolerance,
    objective_signs,
    orient,
)
from galapax.core.restarts import (
    STOP_CONFIDENCE,
    NextSearch,
    Restarts,
    estimate_confidence,
    summarize_search,
)
from galapax.core.stop import RUNNING, UNLIMITED, Rules, Stop, stop_from_code
from galapax.execution.arguments import (
    DEFAULT_TOLERANCE,
    KnownPoints,
    check_population,
    choose_surrogate,
    parse_initial_points,
    shrink_population_to_budget,
)
from galapax.execution.schedules import RestartState
from galapax.execution.search import Carry, Search, finish
from galapax.numerics import compile_cache, random
from galapax.objective.blackbox import MAX_SHOWN_FAILURES
from galapax.objective.evaluation_log import NO_RUN, EvaluationLog, Failed
from galapax.objective.function_identity import is_differentiable
from galapax.objective.pool import Answer, CallOutcome, Failure
from galapax.objective.traced import Traced, trace
from galapax.results.evaluations import Evaluations, tabulate_evaluations
from galapax.results.result import Result


@suggest_arguments
class Optimizer:
    """One run of an algorithm for an objective that is evaluated elsewhere: ask for points, tell their values.

    >>> opt = Optimizer({"x": (-5, 5), "y": (-5, 5)}, seed=1)
    >>> for _ in range(300):
    ...     trial = opt.ask()
    ...     opt.tell(trial, trial.params["x"] ** 2 + trial.params["y"] ** 2)
    >>> bool(opt.best.fun < 1e-6)
    True

    `ask()` gives one trial, `ask(k)` a list of at most k, and `ask_generation()` all points of the present generation
    as an array (n, d), for functions of many points at once. `tell` takes any of them, one or many, in any order;
    several workers may ask and tell as they like. It also takes points that were never asked for and whose values are
    known: they cost nothing, and the search goes on from the best of them. `best` is the result so far, from the first
    value on: it draws, saves and becomes a table like that of `minimize`.

    bounds: one (lower, upper) pair per variable, variables in a dict or a list (gx.integer and so on), or a Problem.
        With declared variables, x holds their numbers (for text, the index of the choice), and params the values by
        name. From a Problem it takes the variables, the tolerance on equalities and, for algorithms that move
        candidates onto them (EpsilonDE), the formulas of the constraints; the evaluation is still up to you.
    generations, max_evaluations: your budget, for algorithms that plan with it (LSHADE, and restarts). The generation
        that would exceed max_evaluations is cut, so that they are used to the last one. You decide when to end: more
        points may be asked for, and the message of `best` says when a limit is spent.
    restarts: what follows a search that has converged or makes no more progress, as in `minimize`: another one, with
        "plain", "ipop", "bipop" or "portfolio"; "auto", the default, is "portfolio" if you name no algorithm and it is
        CMA-ES, else None: the search goes on where it is. Searches can differ in how many points a generation has.
        `best` is the best of all; its `stop` becomes TOLERANCE at a `confidence` of 0.95; you decide when to end.
    x0: points to start from, as in `minimize`.
    It makes the same random draws as `minimize` with the same seed and run number. Without an algorithm the first
    values decide between those for one objective and for several, with constraints and without.
    """

    def __init__(
        self,
        bounds: Any,
        algorithm: str | Algorithm[Any] | None = None,
        *,
        seed: int | None = 0,
        run: int = 0,
        population: int | None = None,
        generations: int | None = None,
        max_evaluations: int | None = None,
        maximize: bool | Sequence[bool] | np.ndarray = False,
        x0: Any = None,
        eq_tolerance: EqTolerance | None = None,
        dtype: Any = "float64",
        restarts: str | Restarts | None = "auto",
    ) -> None:
        if isinstance(bounds, str | Algorithm):
            raise InputError("Optimizer takes the bounds first, then the algorithm: Optimizer(bounds, algorithm).")
        problem = bounds if isinstance(bounds, Problem) else None
        self.problem = problem or Problem(evaluated_elsewhere, bounds, name="ask and tell")
        self._space = self.problem.space
        self._began = time.perf_counter()
        self._is_default = algorithm is None
        self.maximize = check_maximize(maximize)
        n_objectives = count_directions(self.maximize) or 1
        mixed = self._space.dim if self._space is not None and self._space.discrete.any() else 0
        is_constrained = problem is not None and problem.constrained
        solver = algorithms.resolve_algorithm(algorithm, is_constrained, n_objectives, mixed)
        is_left_open = (algorithm, population, generations) == (None, None, None) and restarts == "auto"
        is_open_to_models = is_left_open and np.ndim(x0) <= 1 and str(dtype) == "float64"
        self._few_evaluations = max_evaluations if is_open_to_models else None  # where models may choose the points
        if n_objectives == 1 and is_for_models(self._few_evaluations, self.problem.dim):
            solver = ModelSearch()
        elif is_for_front_models(self._few_evaluations, self.problem.dim, n_objectives):
            solver = EHVI()
        solver = choose_surrogate(solver, max_evaluations if generations is None else None, self.problem.dim)
        if population is not None:
            solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
        solver = with_python_integers(solver)
        solver.validate()
        dtype = str(Compute(dtype=dtype).dtype or "float64")
        self._run = check_integer(run, "run", 0)
        if self._run >= 2**32:
            raise InputError(f"run must be below 2**32, got {run}.")
        if eq_tolerance is None and problem is not None:
            eq_tolerance = problem.eq_tolerance
        eq_tolerance = check_tolerance(eq_tolerance)
        if isinstance(solver, ModelSearch) and solver.eq_tolerance is None:
            solver = dataclasses.replace(solver, eq_tolerance=eq_tolerance)
        limits = {"generations": generations, "max_evaluations": max_evaluations}
        numbers = (None if limit is None else check_integer(limit, name, 1) for name, limit in limits.items())
        self._population, self._restarts_option = population, restarts
        self.algorithm = solver
        self._restarts = algorithms.parse_restarts(restarts, None if algorithm is not None else solver)
        self._budget = Budget(*numbers)
        self.bounds = self.problem.bounds
        if population is None and not isinstance(algorithm, Algorithm):
            solver = self.algorithm = shrink_population_to_budget(solver, self.bounds.dim, Shape(), self._budget)
        check_population(solver.population, self.bounds.dim)
        self.generation = 0  # complete so far
        self.n_failed = 0
        self.seed = random.resolve_seed(seed)
        self._log = EvaluationLog()
        self._best_row: int | None = None
        self._best_merit = (math.inf, math.inf)  # violation and value, to be minimised
        self._n_trials = 0
        self._n_known = 0  # values of points that were not asked for
        self._n_repairs = 0  # evaluations that repairs would have taken
        self._known: list[tuple[np.ndarray, Answer]] = []  # genes and values of known points, to be taken up
        self._n_begun = 0  # of them with which the first search began
        self._known_values: KnownPoints | None = None  # with which the first search began
        self._history: list[dict[str, np.ndarray]] = []  # of each generation, with the best so far
        self._eq_tolerance = eq_tolerance  # None until the first values were told
        self._dtype = dtype
        self._shape: Shape | None = None
        self._keys = random.run_keys(self.seed, self._run, 1)
        self._restart_state = RestartState(0, 0, self._keys[0])  # the searches that are over
        self._number = 0  # generations of the present one
        self._points = np.zeros((0, 0))  # of this generation, (n, d)
        self._answers: list[Answer | None] = []  # what was told of them
        self._out: dict[int, Trial] = {}  # those that were handed out, by place
        self._finished: dict[int, bytes] = {}  # the points of trials that have their value, by number
        self._median_rule = MedianRule(self.maximize)
        self._present = self._choose_search() if self._restarts is not None else NextSearch(solver, "first")
        with self._precision():
            self._traced = None if problem is None else self._trace_for_repairs(problem.in_genes())
            self._search = self._build_search(Shape())
            points = parse_initial_points(x0, self.problem, self._search.algorithm.population, 1)
            self._initial = None if points is None else points.reshape(-1, points.shape[-1]).astype(dtype)
            self._ask_first_generation()
        self._show_candidates()

    def _ask_first_generation(self) -> None:
        """Ask for the first generation of the present search."""
        carry = compile_cache.call(Search.begin, (), self._search, self._keys, self._initial, self._known_values)
        self._asked: Carry = compile_cache.call(Search.ask, (), self._search, carry, np.int32(1))

    def _trace_for_repairs(self, problem: Problem) -> Traced | None:
        """Trace the problem's functions, where the algorithm can move candidates onto its constraints with them."""
        if problem.eq is None or not count_repairs(self.algorithm) or not is_differentiable(problem):
            return None
        return trace(problem, self._dtype)

    def _build_search(self, shape: Shape) -> Search:
        """Build the present search, for evaluations of this shape."""
        algorithm, budget = self._present.algorithm, self._budget
        if self._restarts is not None:
            limit = self._evaluation_limit
            budget = Budget(None, None if math.isinf(limit) else int(limit))
        first = not self._restart_state.past
        if first and self._shape is not None and algorithm.population is None:  # as many as were asked for already
            algorithm = dataclasses.replace(algorithm, population=self._asked.state.candidates.shape[1])
        bounds = self.bounds if self._space is None else self._space.genes
        bound = algorithm.bind(bounds.dim, shape, budget)
        traced, rules = self._traced, Rules(UNLIMITED, -math.inf, UNLIMITED, tolerance=DEFAULT_TOLERANCE[self._dtype])
        if self._restarts is not None and self._restarts.ends_near_known and not shape.constrained:
            rules = rules._replace(known=self._restart_state.known_point(bounds)[None])
        return Search(
            algorithm=jax.tree.map(lambda leaf: np.asarray(leaf, self._dtype), bound),
            bounds=bounds.round_inwards(self._dtype),
            rules=rules.as_arrays(self._dtype),
            consts=None if traced is None else traced.consts,
            shape=shape,
            objective=None if traced is None else traced.formulas,
            repairs=0 if traced is None else count_repairs(self.algorithm),
            per_run_stopping=False,
            all_discrete=self._space is not None and bool(self._space.discrete.all()),
        )

    @property
    def _count(self) -> int:
        """How many candidates wait for their values: a part of a generation where the budget allows no more."""
        n, affordable = self._count_candidates(), self._evaluations_left - self._search.repair_cost
        return n if affordable < 1 else int(min(n, affordable))

    def _count_candidates(self) -> int:
        """Count the candidates that the search asks for in this generation."""
        if self._search.algorithm.traits.fixed_evaluations:
            return int(self._asked.state.candidates.shape[1])
        with self._precision():
            counts = compile_cache.call(Search.counts, (), self._search, self._asked, np.int32(self._number + 1))
        return int(counts[0])

    @overload
    def ask(self, k: None = None) -> Trial: ...
    @overload
    def ask(self, k: int) -> list[Trial]: ...
    def ask(self, k: int | None = None) -> Trial | list[Trial]:
        """Return a Trial, or with k a list of at most k trials.

        Without k there is always one: if all points of the generation are out, it repeats the one that has been out
        longest, as its worker may be lost. With k there are fewer when no more points wait, and none when all are out.
        Where models choose the points, they choose as many at a time as the first call asks for.
        """
        if k is not None and not self._n_trials:
            self._fit_batch(check_integer(k, "k", 1))
        waiting = [place for place in range(len(self._points)) if self._answers[place] is None]
        fresh = [place for place in waiting if place not in self._out]
        if k is None:
            return self._trial(fresh[0] if fresh else min(waiting, key=lambda place: self._out[place].number))
        n_more = check_integer(k, "k", 1) - len(fresh)
        if n_more > 0:
            fresh += self._show_more(n_more)
        return [self._trial(place) for place in fresh[:k]]

    def _fit_batch(self, k: int) -> None:
        """Let the models, if they are the default here, choose k points at a time."""
        if self._is_default and isinstance(self.algorithm, ModelSearch | EHVI) and not self.generation:
            self.algorithm = dataclasses.replace(self.algorithm, population=int(min(k, max(self._evaluations_left, 1))))
            self._present = self._present._replace(algorithm=self.algorithm)
            with self._precision():
                self._search = self._build_search(self._shape or Shape())
                self._ask_first_generation()
            self._show_candidates()

    def ask_generation(self) -> np.ndarray:
        """Return the points (n, d) of this generation that wait for their values; the same ones until they are told."""
        return self._points[[answer is None for answer in self._answers]]

    def _trial(self, place: int) -> Trial:
        """Hand out a point."""
        x = self._points[place].copy()
        params = self.problem.params(x.astype(np.float64))
        trial = self._out[place] = Trial(self._n_trials, x, params, median_rule=self._median_rule)
        self._n_trials += 1
        return trial

    def tell(self, points: Any, values: Any, *, ineq: Any = None, eq: Any = None) -> None:
        """Give the values of points, one or many, in any order.

        points: a Trial, a dict of named values or a point (d,); or a list of these, or an array (n, d). A trial is told
            once. Points that were not asked for are taken for known ones; they lie inside the bounds, and on the grid
            of integers and steps.
        values: of one point a number, or one for each objective; of many (n,) or (n, m). NaN, inf, None or an exception
            means failed. A dict {"fun": ..., "ineq": ..., "eq": ...} or gx.Evaluation has the constraints, too.
        ineq, eq: constraints, as `minimize` understands them: a number or several for each point.
        The generation is complete when the last of its points is told.
        """
        trials = find_trials(points, self._finished)
        x, is_one = parse_points(points, self.problem, self._out.values())
        answers = parse_values(values, ineq, eq, len(x), is_one)
        shape = next((shape_of(answer) for answer in answers if isinstance(answer, dict)), None)
        if shape is not None and self._shape is None:
            self._take_shape(shape)
        if self._eq_tolerance is None:
            self._settle_eq_tolerance(answers)
        merits = judge_answers(answers, self._shape or Shape(), self.maximize, self._eq_tolerance)
        for row, trial in trials.items():
            self._finished[trial.number] = trial.x.tobytes()
            answers[row] = self._median_rule.learn(trial, answers[row])
        waiting = [place for place, answer in enumerate(self._answers) if answer is None]
        places = match_points(x, self._points, waiting, self.bounds.span)
        for row, (place, answer, merit) in enumerate(zip(places, answers, merits, strict=True)):
            point = x[row] if place is None else self._points[place].astype(np.float64)
            self._log_value(point, answer, merit, is_known=place is None)
            if place is not None:
                self._answers[place] = answer
        is_untouched = not self._out and all(place is None for place in places)
        if self._known and self.generation == 0 and is_untouched and not any(self._answers):
            self._start_from_known()
        while all(answer is not None for answer in self._answers):
            self._make_generation()

    @property
    def nfev(self) -> int:
        """Values told so far, known ones left out; where candidates are repaired, with the evaluations of that."""
        return len(self._log) - self._n_known + self._n_repairs

    def _log_value(self, point: np.ndarray, answer: Answer, merit: tuple[float, float], is_known: bool) -> None:
        """Add a value to the log."""
        run, generation = (NO_RUN, 0) if is_known else (self._run, self.generation + 1)
        row = self._log.append(point, CallOutcome(answer, process=0), run, generation)
        if merit < self._best_merit or self._best_row is None:
            self._best_row, self._best_merit = row, merit
        if is_known:
            self._n_known += 1
            self._known.append((self._genes(point[None])[0], answer))
        elif isinstance(answer, Failure):
            self.n_failed += 1

    def _take_shape(self, shape: Shape) -> None:
        """Learn how many numbers a point gives, and choose another default algorithm if they ask for one."""
        if self._is_default and not self.generation:
            solver = self._default(shape)
            if type(solver) is not type(self.algorithm):
                self._change_algorithm(solver)
            elif shape.eq and self._traced is None and count_repairs(self.algorithm):
                self._change_algorithm(dataclasses.replace(self.algorithm, repaired=0))  # type: ignore[type-var]
        check_direction_count(self.maximize, shape.objectives, self.problem.name)
        check_algorithm(self.algorithm, shape, self._restarts is not None, self._traced is not None)
        self._shape = shape

    def _default(self, shape: Shape) -> Algorithm:
        """Choose the algorithm for values of this shape."""
        if isinstance(self.algorithm, ModelSearch) and shape.objectives == 1:
            return self.algorithm
        if is_for_front_models(self._few_evaluations, self.problem.dim, shape.objectives):
            return EHVI()
        mixed = self._space.dim if self._space is not None and self._space.discrete.any() else 0
        solver = algorithms.resolve_algorithm(None, shape.constrained, shape.objectives, mixed, self._population)
        if shape.eq and self._traced is None and count_repairs(solver):
            solver = dataclasses.replace(solver, repaired=0)  # type: ignore[type-var]
        if self._population is not None:
            return dataclasses.replace(solver, population=self._population)  # type: ignore[type-var]
        return shrink_population_to_budget(solver, self.bounds.dim, shape, self._budget)

    def _change_algorithm(self, solver: Algorithm) -> None:
        """Begin with another algorithm, whose first candidates are those that were asked for already."""
        self.algorithm = solver
        self._restarts = algorithms.parse_restarts(self._restarts_option, solver)
        self._present = self._choose_search() if self._restarts is not None else NextSearch(solver, "first")
        self._search = self._build_search(Shape())
        size = self._search.algorithm.population
        self._initial, self._known_values = self._genes(self._points)[:size].astype(self._dtype), None
        answers, out = self._answers, self._out
        with self._precision():
            self._ask_first_generation()
        self._show_candidates()
        n = min(size, len(answers), len(self._points))
        self._answers[:n] = answers[:n]
        self._out = {place: trial for place, trial in out.items() if place < n}

    def _genes(self, x: np.ndarray) -> np.ndarray:
        return x if self._space is None else self._space.encode(x)

    def _judge_known(self) -> KnownPoints:
        """Return the known points that wait to be taken up, as the search sees them."""
        genes, answers = (list(column) for column in zip(*self._known, strict=True))
        known = judge_known_answers(genes, answers, self._shape or Shape(), self.maximize, self._eq_tolerance)
        return known.astype(self._dtype)

    def _start_from_known(self) -> None:
        """Begin with the known points, before any candidate was handed out: see `TakesKnownValues`."""
        known, self._n_begun = self._judge_known(), len(self._known)
        with self._precision():
            if isinstance(self._search.algorithm, TakesKnownValues):
                self._search, self._known_values = self._build_search(self._shape or Shape()), known
            else:
                self._initial = known.choose_first(self._asked.state.candidates.shape[1])
            self._ask_first_generation()
        self._show_candidates()

    def _take_known(self) -> None:
        """Take up the known points that wait: in the place of candidates that were not handed out, or in a model."""
        if not self._known:
            return
        known, entries = self._judge_known(), self._known
        with self._precision():
            self._asked, rows = place_known(self._search, self._asked, known, len(self._points), not self.generation)
        for place, row in rows.items():
            self._answers[place] = entries[row][1]
        if self.generation:
            self._known = []
        self._points = self._decode(np.array(self._asked.state.candidates[0])[: len(self._points)])

    def _show_candidates(self) -> None:
        """Make the candidates of the search the points that wait for their values."""
        self._points = self._decode(np.array(self._asked.state.candidates[0])[: self._count])
        self._answers = [None] * len(self._points)
        self._out = {}
        self._take_known()

    def _show_more(self, n: int) -> list[int]:
        """Let n more candidates wait for their values, where the search can use them; return their places."""
        before = len(self._points)
        if not isinstance(self._search.algorithm, HasSurrogate) or before == self._asked.state.candidates.shape[1]:
            return []
        with self._precision():
            self._asked = compile_cache.call(offer_more, (), self._search, self._asked, np.int32(before + n))
        count = max(before, self._count)
        genes = np.array(self._asked.state.candidates[0])[before:count]
        self._points = np.concatenate([self._points, self._decode(genes)])
        self._answers += [None] * (count - before)
        return list(range(before, count))

    def _make_generation(self) -> None:
        """Tell the search all values of this generation, and ask for the next."""
        n_candidates = self._count_candidates()
        if self._shape is None:  # all have failed
            self._take_shape(Shape(2 if self.algorithm.traits.multi_objective else 1))
        beyond = ((0, self._asked.state.candidates.shape[1] - len(self._points)), (0, 0))  # not to be evaluated
        stacked = stack_answers(self._answers, self._shape or Shape())
        stacked["fun"] = orient(stacked["fun"], self.maximize)
        rows = {
            name: np.pad(stacked[name], beyond, constant_values=np.nan).astype(self._dtype) if name in stacked else None
            for name in OUTPUT_NAMES
        }
        with self._precision():
            if self.generation == 0:  # the same candidates again, now with room for this many objectives
                assert self._shape is not None
                self._known = self._known[self._n_begun :]
                self._search = self._build_search(self._shape)
                carry = compile_cache.call(
                    Search.begin, (), self._search, self._keys, self._initial, self._known_values
                )
                self._asked = compile_cache.call(
                    start_search, (self._eq_tolerance,), self._search, carry, self._asked.state.candidates, rows
                )
            self.generation, self._number = self.generation + 1, self._number + 1
            self._asked, row, n_evaluations, stop_codes = compile_cache.call(
                tell_generation,
                (self._eq_tolerance,),
                self._search,
                self._keys,
                self._asked,
                np.int32(self._number),
                rows,
            )
        entry = record_generation(self._history, np.asarray(row), self._search.columns, self.nfev)
        self._history.append(entry)
        self._log.complete_generation(widths_of(self._shape or Shape()), (self._run,))
        self._n_repairs += int(n_evaluations) - n_candidates
        if self._restarts is not None:
            self._restart_if_over(int(stop_codes[0]))
        self._show_candidates()

    @property
    def _settings(self) -> dict[str, object]:
        """What was asked for, as plain values."""
        arguments = {"seed": self.seed, "maximize": self.maximize, "population": self._population, "blackbox": True}
        arguments |= {"max_evaluations": self._budget.evaluations, "generations": self._budget.generations}
        options = Options.parse({**arguments, "compute": Compute(dtype=self._dtype)})
        restarts = None if self._restarts is None else self._restarts.name
        return describe_settings(options, self.problem, self.algorithm, self._search.algorithm, restarts)

    @property
    def _budget_left(self) -> float:
        """Evaluations that the finished searches have left of the budget; whoever asks for more has no limit."""
        budget, spent = self._budget.evaluations, self._restart_state.evaluations
        return math.inf if budget is None or spent >= budget else budget - spent

    @property
    def _evaluation_limit(self) -> float:
        """Evaluations that the present search may make."""
        return min(self._present.evaluations, self._budget_left)

    @property
    def _evaluations_left(self) -> float:
        """Evaluations that the present search may still make."""
        return self._evaluation_limit - (self.nfev - self._restart_state.evaluations)

    def _choose_search(self) -> NextSearch:
        """Choose the search that follows those that are over."""
        assert self._restarts is not None
        past, rng = self._restart_state.past, self._restart_state.policy_rng()
        following = self._restarts.next(self.algorithm, past, self._budget_left, rng.random)
        return NextSearch(self.algorithm, "repeat") if isinstance(following, Stop) else following

    def _restart_if_over(self, stop_code: int) -> None:
        """Begin another search, if the present one is over."""
        if self._number % self._search.round == 0 and stop_code != RUNNING:
            stop = stop_from_code(stop_code)
        elif self._evaluations_left <= self._search.repair_cost:
            stop = Stop.BUDGET
        else:
            return
        with self._precision():
            cells = np.zeros(1, np.int32)
            finished = jax.device_get(compile_cache.call(finish, (1,), self._search, self._asked, cells))
        box, genes = self._search.bounds, np.asarray(finished.x[0], np.float64)
        violation, value = self._survivor_merit(finished.x[0])
        size, x = self._asked.state.candidates.shape[1], (genes - box.lower) / box.span
        values = np.asarray(self._parents().fitness, np.float64)
        mean = np.sum(values, where=np.isfinite(values)) / max(1, np.isfinite(values).sum())
        spent, eps = self.nfev - self._restart_state.evaluations, float(np.finfo(self._dtype).eps)
        past, present = self._restart_state.past, self._present
        past.append(summarize_search(past, present, size, spent, x, value, violation, float(mean), stop, eps))
        self._present, self._known_values = self._choose_search(), None
        assert self._shape is not None
        self._number = 0
        self._keys = self._restart_state.next_key()[None]
        with self._precision():
            self._search = self._build_search(self._shape)
            start, box = self._present.start, self._search.bounds
            initial = None if start is None else (box.lower + box.span * start).astype(self._dtype)[None]
            carry = compile_cache.call(Search.begin, (), self._search, self._keys, initial)
            self._asked = compile_cache.call(Search.ask, (), self._search, carry, np.int32(1))

    def _survivor_merit(self, genes: np.ndarray) -> tuple[float, float]:
        """Return violation and value of a survivor of the present search, to be minimised."""
        parents = self._parents()
        row = int(np.flatnonzero((parents.x == genes).all(axis=1))[0])
        violation = 0.0 if parents.violation is None else float(parents.violation[row])
        value = float(parents.fitness[row])
        return (violation, value) if math.isfinite(value) else (math.inf, math.inf)

    @property
    def population(self) -> Population:
        """The survivors: x (n, d), objectives (n, m) and violation (n,), in NumPy."""
        parents = self._parents()
        parents = parents._replace(x=self._decode(np.asarray(parents.x)))  # type: ignore[arg-type]
        return parents._replace(objectives=orient(parents.objectives, self.maximize))

    def _parents(self) -> Population:
        """Return the survivors, as genes."""
        return jax.tree.map(lambda a: np.asarray(a)[0], self._asked.state.parents)

    def _decode(self, genes: np.ndarray) -> np.ndarray:
        return genes if self._space is None else self._space.decode(genes)

    def params(self, x: Any) -> list[dict[str, Any]]:
        """Points x (n, d) by the names of their variables: of declared ones ints, bools and labels."""
        return [self.problem.params(row) for row in np.atleast_2d(np.asarray(x, np.float64))]

    @property
    def evaluations(self) -> Evaluations:
        """Every value that was told, known ones included (their generation is 0)."""
        table = self._log.table(widths_of(self._shape or Shape()))
        problem = self.problem.with_(eq_tolerance=self._eq_tolerance)
        return tabulate_evaluations(problem, table, table.points)

    @property
    def best(self) -> Result:
        """The result so far, from the first value on. `success` is True once searches that began anew have agreed on x.

        With several objectives X, F, G, H and CV are the front of the survivors and of the values told since, and x,
        fun its knee, as in the result of `minimize`.
        """
        if self._best_row is None:
            raise InputError("there is no best point before the first value: call ask, evaluate, then tell.")
        evaluations, past = self.evaluations, self._restart_state.past
        violation, value = self._best_merit
        sound, row = math.isfinite(value), self._best_row
        progress = pluralize(self.generation, "generation") if self.generation else pluralize(self.nfev, "value")
        message = f"{progress} so far."
        if past:
            message = f"{progress} so far, of {pluralize(len(past) + 1, 'search', 'searches')}."
        message += self._describe_spent_limits()
        confidence = estimate_confidence(past)
        stop = Stop.TOLERANCE if confidence >= STOP_CONFIDENCE else Stop.BUDGET
        feasible = sound and violation <= 0
        population = self._told_population(evaluations) if not self.generation else self.population
        result = Result(
            problem=self.problem.with_(eq_tolerance=self._eq_tolerance),
            x=evaluations.x[row],
            fun=float(np.atleast_1d(evaluations.fun[row])[0]) if sound else math.nan,
            success=stop is Stop.TOLERANCE and feasible,
            message=message if sound else "No point has a finite value.",
            stop=stop,
            nit=self.generation,
            nfev=self.nfev,
            n_failed=self.n_failed,
            seed=self.seed,
            confidence=confidence if past and feasible else None,
            feasible=feasible,
            violation=violation if sound else math.inf,
            ineq=None if evaluations.ineq is None else evaluations.ineq[row],
            eq=None if evaluations.eq is None else evaluations.eq[row],
            population=np.asarray(population.x, np.float64),
            population_fitness=np.asarray(population.fitness, np.float64),
            snapshots={},
            history=build_history(self._history, self.maximize),
            runs=None,
            evaluations=evaluations,
            failures=tuple(Failed(x.copy(), f.error, f.traceback) for x, f in self._log.failures(MAX_SHOWN_FAILURES)),
            timings={"compile": 0.0, "run": time.perf_counter() - self._began, "device": 0.0, "host": 0.0},
            settings=self._settings,
        )
        if self._shape is not None and self._shape.objectives > 1:
            result["population_fitness"] = np.asarray(population.objectives, np.float64)
            expected = forecast_objectives(self._search.algorithm, self._asked.state) if self.generation else None
            if expected is not None:
                of_run, signs = jax.tree.map(lambda a: np.asarray(a)[0], expected), objective_signs(self.maximize)
                result["forecast"] = orient_forecast(of_run, signs, self._decode)
            add_front(result, self._front_rows(evaluations), self._eq_tolerance)
        return result

    def _describe_spent_limits(self) -> str:
        """Return a sentence for each limit that is spent."""
        limits = (
            (self.nfev, self._budget.evaluations, "evaluation"),
            (self.generation, self._budget.generations, "generation"),
        )
        return "".join(
            f" The limit of {pluralize(limit, name)} is spent."
            for count, limit, name in limits
            if limit is not None and count >= limit
        )

    def _settle_eq_tolerance(self, answers: list[Answer]) -> None:
        """Derive the tolerance of equalities from the first values that are told, unless one was given."""
        equalities = [answer["eq"] for answer in answers if isinstance(answer, dict) and "eq" in answer]
        if equalities:
            self._eq_tolerance = derive_eq_tolerance(np.stack(equalities), BLACK_BOX_EQ_TOLERANCE)

    def _told_population(self, evaluations: Evaluations) -> Population:
        """Return all points told so far as a population."""
        fun = evaluations.fun.reshape(len(evaluations), -1)
        return Population(evaluations.x, fun, evaluations.violation)  # type: ignore[arg-type]

    def _front_rows(self, evaluations: Evaluations) -> list[int]:
        """Return the rows of the survivors and of the values told since the last generation."""
        rows = set(np.flatnonzero(np.isin(evaluations.generation, (0, self.generation + 1))).tolist())
        survivors = np.asarray(self.population.x, np.float64) if self.generation else ()
        return sorted(rows | {row for x in survivors if (row := self._log.find(x.tobytes())) is not None})

    def __getattr__(self, name: str) -> NoReturn:
        raise attribute_error(self, "an", name, OPTIMIZER_ATTRIBUTES)

    def __repr__(self) -> str:
        name = algorithms.algorithm_name(self.algorithm)
        n_pending = pluralize(sum(answer is None for answer in self._answers), "pending point")
        state = f"{pluralize(self.nfev, 'value')}, {pluralize(self.generation, 'generation')}, {n_pending}"
        if self._best_row is not None and math.isfinite(self._best_merit[1]):
            value = objective_signs(self.maximize)[0] * self._best_merit[1]
            state += f", best {value:.6g}" if self._shape is None or self._shape.objectives == 1 else ""
        return f"Optimizer({pluralize(self.bounds.dim, 'variable')}, {name!r}: {state})"

    def _precision(self) -> AbstractContextManager[object]:
        return jax.enable_x64(self._dtype == "float64")
