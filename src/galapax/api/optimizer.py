"""Ask and tell: the same algorithms for people whose objective lives elsewhere. NumPy in, NumPy out."""

from __future__ import annotations

import dataclasses
import math
import warnings
from copy import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from galapax import algorithms
from galapax.algorithms.model_search import ModelSearch, is_for_models
from galapax.core.algorithm import Algorithm, Budget, count_repairs
from galapax.core.checks import abbreviate, as_float_array, check_bool, check_integer, pluralize
from galapax.core.errors import InputError
from galapax.core.evaluation import Evaluation, Population, Record, Shape
from galapax.core.options import Compute
from galapax.core.problem import FALLBACK_EQ_TOLERANCE, EqTolerance, Problem, as_bounds, check_tolerance
from galapax.core.restarts import MIN_AGREEING_SEARCHES, NextSearch, Restarts, SearchSummary, count_agreeing_searches
from galapax.core.space import Space, as_space, is_variables
from galapax.core.stop import RUNNING, UNLIMITED, Rules, Stop, stop_from_code
from galapax.execution.arguments import DEFAULT_TOLERANCE, parse_initial_points
from galapax.execution.memory import check_population
from galapax.execution.restart_schedule import RestartState
from galapax.execution.search import Carry, Finished, Search
from galapax.numerics import compile_cache, random
from galapax.objective.compatibility import is_differentiable
from galapax.objective.failures import summarise
from galapax.objective.traced import trace
from galapax.results.front import build_front, knee
from galapax.results.result import Result


class Optimizer:
    """One run of an algorithm, a generation at a time.

    >>> opt = Optimizer([(-5, 5)] * 2, "de", seed=1)
    >>> for _ in range(50):
    ...     x = opt.ask()                        # (n, d)
    ...     opt.tell(x, (x**2).sum(axis=1))      # (n,)
    >>> bool(opt.best.fun < 1e-6)
    True

    bounds: one (lower, upper) pair per variable, variables in a dict or a list (gx.integer and so on), or a Problem.
        With declared variables, x holds their numbers (for text, the index of the choice), and `params(x)` returns the
        values by name. From a Problem it takes the variables, the tolerance on equalities and, for algorithms that move
        candidates onto them (EpsilonDE), the formulas of the constraints; the evaluation is still up to you.
    generations, max_evaluations: your budget, for algorithms that plan with it (LSHADE, and restarts).
    restarts: what follows a search that has converged or makes no more progress, as in `minimize`: another one, with
        "plain", "ipop", "bipop" or "portfolio"; "auto", the default, is "portfolio" if you name no algorithm and it is
        CMA-ES, else None: the search goes on where it is. Searches can differ in how many points `ask` returns. `best`
        is the best of all, and its `stop` becomes TOLERANCE once five searches found it; you decide when to end.
    x0: points to start from, as in `minimize`.
    Several workers may take a few points each with `ask(k)`, and tell them in any order.
    It makes the same random draws as `minimize` with the same seed and run number. If the problem has constraints, also
    pass the values of ineq and eq to `tell`. With several objectives `tell` takes (n, m), and `best` has the front.
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
        maximize: bool = False,
        x0: Any = None,
        eq_tolerance: EqTolerance | None = None,
        dtype: Any = "float64",
        restarts: str | Restarts | None = "auto",
    ) -> None:
        if isinstance(bounds, str | Algorithm):
            raise InputError("Optimizer takes the bounds first, then the algorithm: Optimizer(bounds, algorithm).")
        problem = bounds if isinstance(bounds, Problem) else None
        self._space: Space | None = None if problem is None else problem.space
        if is_variables(bounds):
            self._space = as_space(bounds)
        mixed = self._space.dim if self._space is not None and self._space.discrete.any() else 0
        solver = algorithms.resolve_algorithm(algorithm, problem is not None and problem.constrained, mixed=mixed)
        is_left_open = (algorithm, population, generations) == (None, None, None) and restarts == "auto"
        dim = self._space.dim if self._space is not None else as_bounds(getattr(bounds, "bounds", bounds)).dim
        is_plain = np.ndim(x0) <= 1 and not mixed and str(dtype) == "float64"
        if is_left_open and is_plain and max_evaluations is not None and is_for_models(max_evaluations, dim):
            solver = ModelSearch()
        if population is not None:
            solver = dataclasses.replace(solver, population=population)  # type: ignore[type-var]
        solver.validate()
        dtype = str(Compute(dtype=dtype).dtype or "float64")
        if check_integer(run, "run", 0) >= 2**32:
            raise InputError(f"run must be below 2**32, got {run}.")
        if eq_tolerance is None and problem is not None:
            eq_tolerance = problem.eq_tolerance
        eq_tolerance = FALLBACK_EQ_TOLERANCE if eq_tolerance is None else check_tolerance(eq_tolerance)
        if isinstance(solver, ModelSearch) and solver.eq_tolerance is None:
            solver = dataclasses.replace(solver, eq_tolerance=eq_tolerance)
        limits = {"generations": generations, "max_evaluations": max_evaluations}
        known = (None if limit is None else check_integer(limit, name, 1) for name, limit in limits.items())
        self.algorithm = solver
        self._restarts = algorithms.parse_restarts(restarts, None if algorithm is not None else solver)
        self._budget = Budget(*known)
        self.bounds = (
            as_bounds(bounds if problem is None else problem.bounds) if self._space is None else self._space.bounds
        )
        check_population(solver.population, self.bounds.dim)
        self.maximize = check_bool(maximize, "maximize")
        self.generation = 0  # told so far
        self.nfev = 0
        self.n_failed = 0
        self.seed = random.resolve_seed(seed)
        self._eq_tolerance = eq_tolerance
        self._dtype = dtype
        self._shape: Shape | None = None
        self._keys = random.run_keys(self.seed, int(run), 1)
        self._restart_state = RestartState(0, 0, self._keys[0])  # the searches that are over
        self._number = 0  # generations of the present one
        self._spent = 0  # evaluations of it
        self._before: Result | None = None  # the best of those that are over
        self._leg = self._next() if self._restarts is not None else NextSearch(solver, "first")
        with self._precision():
            self._traced = None if problem is None else self._repairing(problem.in_genes())
            self._search = self._new(Shape())
            described = problem or Problem(_elsewhere, bounds)
            size = self._search.algorithm.population
            points = parse_initial_points(x0, described, size, 1)
            self._initial = None if points is None else points.reshape(-1, points.shape[-1]).astype(dtype)
            carry = compile_cache.call(Search.begin, (), self._search, self._keys, self._initial)
            self._asked: Carry = compile_cache.call(Search.ask, (), self._search, carry, np.int32(1))
        self._wait()

    def _repairing(self, problem: Problem) -> Any:
        """The problem's functions, where the algorithm can move candidates onto its constraints with them."""
        if problem.eq is None or not count_repairs(self.algorithm) or not is_differentiable(problem):
            return None
        return trace(problem, self._dtype)

    def _new(self, shape: Shape) -> Search:
        """The present search, for evaluations of this shape."""
        algorithm, budget = self._leg.algorithm, self._budget
        if self._restarts is not None:
            most = min(self._leg.evaluations, self._left)
            budget = Budget(None, None if math.isinf(most) else int(most))
        first = not self._restart_state.past
        if first and self._shape is not None and algorithm.population is None:  # as many as were asked for already
            algorithm = dataclasses.replace(algorithm, population=self._asked.state.candidates.shape[1])
        bound = algorithm.bind((self.bounds if self._space is None else self._space.genes).dim, shape, budget)
        traced = self._traced
        return Search(
            algorithm=jax.tree.map(lambda leaf: np.asarray(leaf, self._dtype), bound),
            bounds=(self.bounds if self._space is None else self._space.genes).round_inwards(self._dtype),
            rules=Rules(UNLIMITED, -math.inf, UNLIMITED, tolerance=DEFAULT_TOLERANCE[self._dtype]).as_arrays(
                self._dtype
            ),
            consts=None if traced is None else traced.consts,
            shape=shape,
            objective=None if traced is None else traced.formulas,
            repairs=0 if traced is None else count_repairs(self.algorithm),
            per_run_stopping=False,
            all_discrete=self._space is not None and bool(self._space.discrete.all()),
        )

    @property
    def _count(self) -> int:
        """How many candidates wait for their values."""
        if self._search.algorithm.traits.fixed_evaluations:
            return int(self._asked.state.candidates.shape[1])
        with self._precision():
            counts = compile_cache.call(Search.counts, (), self._search, self._asked, np.int32(self._number + 1))
        return int(counts[0])

    def ask(self, k: int | None = None) -> np.ndarray:
        """The points (n, d) of this generation that wait for their values; the same ones until they are told.

        k: the next k of them that were not handed out yet, for workers that take a few each: fewer when there are no
        more, and none, shape (0, d), when all are out and the generation waits for their values.
        """
        waiting = np.flatnonzero(~self._told) if k is None else np.flatnonzero(~self._told & ~self._out)
        if k is not None:
            waiting = waiting[: check_integer(k, "k", 1)]
            self._out[waiting] = True
        return self._points[waiting]

    def tell(self, x: Any, values: Any, *, ineq: Any = None, eq: Any = None) -> None:
        """Give the values of points that were asked for, all of a generation or any part, in any order: (n,), or (n, m)
        for m objectives. NaN or inf means failed. The generation is made when the last of its points is told.
        """
        places = self._places(x)
        given = {"values": values, "ineq": ineq, "eq": eq}
        raw = {name: self._rows(name, rows, len(places)) for name, rows in given.items()}
        if raw["values"] is None:
            raise InputError("values is missing: give one value per point.")
        shape = Shape(*(0 if r is None else r.shape[1] for r in raw.values()))
        if self._shape is None:
            self._check(shape)
            self._shape = shape
        elif shape != self._shape:
            raise InputError(
                f"these points came with {sum(shape)} numbers per point {tuple(shape)}, earlier ones with "
                f"{sum(self._shape)} {tuple(self._shape)}: of objectives, inequalities and equalities."
            )
        for name, rows in raw.items():
            if rows is not None:
                empty = np.full((len(self._told), rows.shape[1]), np.nan)
                self._values.setdefault(name, empty)[places] = rows
        self._told[places] = True
        if self._told.all():
            self._make_generation()

    def _wait(self) -> None:
        """For the values of the points that are asked for now."""
        self._points = self._decoded(np.array(self._asked.state.candidates[0])[: self._count])
        self._told = np.zeros(len(self._points), bool)
        self._out = np.zeros(len(self._points), bool)
        self._values: dict[str, np.ndarray] = {}

    def _places(self, x: Any) -> np.ndarray:
        """Where the points x (k, d) stand among those that wait."""
        asked = self._points
        try:
            told = as_float_array(x)
        except ValueError:
            told = np.zeros(0)
        if told.ndim == 2 and told.shape[1] == asked.shape[1] and len(told):
            if not self._told.any() and np.array_equal(told.astype(asked.dtype), asked):
                return np.arange(len(asked))
            waiting: dict[bytes, list[int]] = {}  # the same point may wait twice
            for i in np.flatnonzero(~self._told)[::-1]:
                waiting.setdefault(asked[i].tobytes(), []).append(int(i))
            found = [waiting.get(point.tobytes()) for point in told.astype(asked.dtype)]
            places = [own.pop() for own in found if own]
            if len(places) == len(told):
                return np.array(places)
        raise InputError(
            f"tell takes the unchanged points of the last ask, each once; {int((~self._told).sum())} of shape "
            f"({asked.shape[1]},) wait, and others came, {abbreviate(x)}. Call ask() and evaluate those."
        )

    def _make_generation(self) -> None:
        """Tell the search all values of this generation, and ask for the next."""
        fun = -self._values["values"] if self.maximize else self._values["values"]
        named = {"fun": fun, "ineq": self._values.get("ineq"), "eq": self._values.get("eq")}
        beyond = ((0, self._asked.state.candidates.shape[1] - len(self._told)), (0, 0))  # not to be evaluated
        rows = {
            name: None if r is None else np.pad(r, beyond, constant_values=np.nan).astype(self._dtype)
            for name, r in named.items()
        }
        with self._precision():
            if self.generation == 0:  # the same candidates again, now with room for this many objectives
                assert self._shape is not None
                self._search = self._new(self._shape)
                carry = compile_cache.call(Search.begin, (), self._search, self._keys, self._initial)
                self._asked = compile_cache.call(
                    _start, (self._eq_tolerance,), self._search, carry, self._asked.state.candidates, rows
                )
            self.generation, self._number = self.generation + 1, self._number + 1
            self._asked, failed, made, rests = compile_cache.call(
                _tell, (self._eq_tolerance,), self._search, self._keys, self._asked, np.int32(self._number), rows
            )
        self.nfev += int(made)
        self.n_failed += int(failed)
        self._spent += int(made)
        if self._restarts is not None:
            self._look(int(rests[0]))
        self._wait()

    @property
    def _left(self) -> float:
        """Evaluations that the budget still allows."""
        return math.inf if self._budget.evaluations is None else max(0, self._budget.evaluations - self.nfev)

    def _next(self) -> NextSearch:
        """The search that follows those that are over."""
        assert self._restarts is not None
        past, rng = self._restart_state.past, self._restart_state.policy_rng()
        leg = self._restarts.next(self.algorithm, past, self._left, rng.random)
        return NextSearch(self.algorithm, "repeat") if isinstance(leg, Stop) else leg

    def _look(self, rests: int) -> None:
        """Begin another search, if the present one is over."""
        over = self._spent + self._count > self._leg.evaluations
        if over:
            stop = Stop.BUDGET
        elif self._number % self._search.round == 0 and rests != RUNNING:
            stop = stop_from_code(rests)
        else:
            return
        box, (now, genes) = self._search.bounds, self._found()
        violation, value = self._worth(now)
        size, x = self._asked.state.candidates.shape[1], (genes - box.lower) / box.span
        self._before = self.best
        self._restart_state.past.append(SearchSummary(self._leg.kind, size, self._spent, value, violation, x, stop))
        self._leg = self._next()
        assert self._shape is not None
        self._number = self._spent = 0
        self._keys = self._restart_state.next_key()[None]
        with self._precision():
            self._search = self._new(self._shape)
            carry = compile_cache.call(Search.begin, (), self._search, self._keys, None)
            self._asked = compile_cache.call(Search.ask, (), self._search, carry, np.int32(1))

    def _check(self, shape: Shape) -> None:
        """Refuse values that the algorithm is not for, and say what it cannot do with them."""
        name = type(self.algorithm).__name__
        if shape.objectives > 1 and not self.algorithm.traits.multi_objective:
            raise InputError(
                f"values has {shape.objectives} columns, and {name} minimises one objective: choose an algorithm for "
                'several objectives, such as "nsga2".'
            )
        if shape.objectives > 1 and self._restarts is not None:
            raise InputError(f"restarts apply to one objective, and values has {shape.objectives} columns: remove it.")
        if shape.objectives == 1 and self.algorithm.traits.multi_objective:
            raise InputError(
                f"values has one number per point, and {name} is for several objectives: give one column for each, "
                'or choose an algorithm for one objective, such as "de".'
            )
        if shape.eq and count_repairs(self.algorithm) and self._traced is None:
            warnings.warn(
                f"{name} moves some candidates onto the equalities, which Optimizer cannot do without their formulas, "
                "so it would search differently from minimize: give it the Problem instead of bounds, if JAX can "
                "differentiate its constraints, or disable this step with repaired=0.",
                stacklevel=3,
            )

    @property
    def population(self) -> Population:
        """The survivors: x (n, d), objectives (n, m) and violation (n,), in NumPy."""
        parents = self._parents()
        parents = parents._replace(x=self._decoded(np.asarray(parents.x)))  # type: ignore[arg-type]
        return parents._replace(objectives=-parents.objectives) if self.maximize else parents

    def _parents(self) -> Population:
        """The survivors, as genes."""
        return jax.tree.map(lambda a: np.asarray(a)[0], self._asked.state.parents)

    def _decoded(self, genes: np.ndarray) -> np.ndarray:
        return genes if self._space is None else self._space.decode(genes)

    def params(self, x: Any) -> list[dict[str, Any]]:
        """Points x (n, d) by the names of their variables: of declared ones ints, bools and labels."""
        rows = np.atleast_2d(np.asarray(x, np.float64))
        if self._space is None:
            return [{f"x{i + 1}": float(v) for i, v in enumerate(row)} for row in rows]
        return [self._space.values(row) for row in rows]

    @property
    def best(self) -> Result:
        """The best point told so far. `success` is True once searches that began anew have agreed on it.

        With several objectives X, F and CV are the survivors' front and x, fun its knee, as in the result of
        `minimize`; without G and H, as the values of constraints are not kept.
        """
        if self.generation == 0:
            raise InputError("no values have been told yet, so there is no best point: call ask, evaluate, then tell.")
        before = self._before
        if before is None or self._number > 0:
            now, _ = self._found()
            if before is None or self._worth(now) < self._worth(before):
                before = now
        result = copy(before)
        past = self._restart_state.past
        if past:
            told = pluralize(self.generation, "generation")
            result.message = f"Told {told} of {pluralize(len(past) + 1, 'search', 'searches')}."
        result.update(nit=self.generation, nfev=self.nfev, n_failed=self.n_failed)
        result.stop = Stop.TOLERANCE if count_agreeing_searches(past) >= MIN_AGREEING_SEARCHES else Stop.BUDGET
        result.success = result.stop is Stop.TOLERANCE and result.feasible
        return result

    def _worth(self, result: Result) -> tuple[float, float]:
        """Less is better."""
        value = -result.fun if self.maximize else result.fun
        return result.violation, math.inf if math.isnan(value) else value

    def _found(self) -> tuple[Result, np.ndarray]:
        """The best point of the present search, and its genes."""
        sign = -1.0 if self.maximize else 1.0
        with self._precision():
            left = jax.device_get(compile_cache.call(_finish, (), self._search, self._asked))
        parents, x = self.population, self._decoded(np.asarray(left.x[0], np.float64))
        row = int(np.flatnonzero((self._parents().x == left.x[0]).all(axis=1))[0])
        sound = bool(np.isfinite(parents.fitness[row]))
        violation = math.inf if not sound else 0.0 if parents.violation is None else float(parents.violation[row])
        result = Result(
            x=x,
            fun=float(parents.fitness[row]) if sound else math.nan,
            success=False,
            message=f"Told {pluralize(self.generation, 'generation')}." if sound else "No point has a finite value.",
            stop=Stop.BUDGET,
            nit=self.generation,
            nfev=self.nfev,
            n_failed=self.n_failed,
            seed=self.seed,
            feasible=sound and violation <= 0,
            violation=violation,
            settings={"maximize": self.maximize},
        )
        if left.found is not None:
            individuals = jax.tree.map(lambda a: a[0][left.belongs[0]], left.found)
            individuals = individuals._replace(x=self._decoded(individuals.x))
            front = build_front(individuals, sign, None)
            result.update(front.as_dict())
            result.fun = np.full(parents.objectives.shape[1], np.nan)
            if len(front):
                at = knee(front.F, sign)
                result.x, result.fun = front.X[at], front.F[at]
            elif result.violation < math.inf:
                result.message += " No feasible point has been told."
        return result, np.asarray(left.x[0], np.float64)

    def _precision(self) -> Any:
        return jax.enable_x64(self._dtype == "float64")

    def _rows(self, name: str, values: Any, n: int) -> Any:
        if values is None:
            return None
        try:
            rows = as_float_array(values)
        except ValueError:
            raise InputError(f"{name} must be numbers, one row per point; got {type(values).__name__}.") from None
        if rows.ndim not in (1, 2) or len(rows) != n or rows.size == 0:
            raise InputError(f"{name} must have one row for each of the {n} points; got shape {rows.shape}.")
        return rows.reshape(n, -1)


def _elsewhere(x: Any) -> Any:
    raise NotImplementedError("what is evaluated is told.")


def _evaluation(eq_tolerance: float, rows: Any) -> Evaluation:
    one = summarise(rows["fun"], rows["ineq"], rows["eq"], eq_tolerance)
    return jax.tree.map(lambda a: jnp.asarray(a)[None], one)


def _start(eq_tolerance: float, search: Search, carry: Carry, candidates: Array, rows: Any) -> Carry:
    """The first state, with candidates as they were asked for, and what the algorithm takes from their values."""
    asked = carry._replace(state=carry.state._replace(candidates=candidates))
    return search.start(asked, _evaluation(eq_tolerance, rows))


def _tell(
    eq_tolerance: float, search: Search, keys: Array, asked: Carry, number: Array, rows: Any
) -> tuple[Carry, Array, Array, Array]:
    """What is asked next; how many failed, evaluations counted, and what the search says of itself."""
    own = jax.vmap(random.fold_in, in_axes=(0, None))(keys, number)
    carry, row = search.tell(asked, own, number, _evaluation(eq_tolerance, rows))
    record = Record.unpack(row, search.columns, axis=0)
    return search.ask(carry, number + 1), record.failed[0], record.evaluations[0], search.termination_codes(carry.state)


def _finish(search: Search, asked: Carry) -> Finished:
    return search.finish(asked, jnp.zeros(1, jnp.int32), 1)
