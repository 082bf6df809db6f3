"""What an algorithm is: hyper-parameters in a frozen dataclass, the run in a state, a few pure functions.

`state.candidates` waits for its evaluation; `step` takes that evaluation, selects, and breeds the next candidates. An
engine needs no more, whether it evaluates on the device, in a process pool or by hand.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
from jax import Array

from galapax.core.errors import UnknownArgument
from galapax.core.evaluation import Evaluation, Population, Shape
from galapax.core.problem import Bounds
from galapax.core.stop import CODES, RUNNING, Stop


class State(Protocol):
    """What every algorithm's state shows to engines; the rest is its own affair. A NamedTuple."""

    @property
    def candidates(self) -> Array: ...  # (n, d), waiting for their evaluation

    @property
    def parents(self) -> Population: ...  # the survivors; with one objective the best individual so far is among them


class Budget(NamedTuple):
    """What a run may spend; None where nothing limits it."""

    generations: int | None = None
    evaluations: int | None = None


# names that hyper-parameters have in papers and other libraries
ELSEWHERE = {
    "F": ("weight",),
    "f": ("weight",),
    "mutation_factor": ("weight",),
    "differential_weight": ("weight",),
    "CR": ("crossover_rate",),
    "cr": ("crossover_rate",),
    "recombination": ("crossover_rate",),
    "crossover_probability": ("crossover_rate",),
    "NP": ("population",),
    "popsize": ("population",),
    "pop_size": ("population",),
    "n_particles": ("population",),
    "swarm_size": ("population",),
    "lambda_": ("population",),
    "sigma0": ("spread",),
    "sigma": ("spread",),
    "eta_c": ("crossover_index",),
    "eta_m": ("mutation_index",),
    "eta": ("crossover_index", "mutation_index"),
    "prob": ("crossover_rate", "mutation_rate"),
}


def shown(algorithm: Any) -> str:
    """An algorithm as it is written, DE(population=100, mutation=rand_1, ...)."""
    values = [(field.name, getattr(algorithm, field.name)) for field in dataclasses.fields(algorithm) if field.repr]
    parts = [f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in values]
    return f"{type(algorithm).__name__}({', '.join(parts)})"


class Algorithm:
    """The contract: a frozen dataclass of hyper-parameters with `population`, `check`, `init` and `step`.

    The rest has defaults for algorithms that do not need it. `several_objectives` says which problems it is for.
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """A dataclass keeps the repr that its class has; its own would show where functions lie in memory."""
        super().__init_subclass__(**given)
        cls.__repr__ = cls.__dict__.get("__repr__", shown)  # type: ignore[method-assign]

    def __new__(cls, *given: Any, **settings: Any) -> Self:
        """Refuse hyper-parameters that it does not have, with the name that they have here."""
        known = [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else list(settings)
        for name in settings:
            if name not in known:
                here = [word for word in ELSEWHERE.get(name, ()) if word in known]
                hint = f"write {' or '.join(here)}" if here else f"it has {', '.join(known)}"
                raise UnknownArgument(f"{cls.__name__} has no hyper-parameter {name!r}: {hint}.")
        return super().__new__(cls)

    several_objectives: ClassVar[bool] = False
    compiles_quickly: ClassVar[bool] = False  # on a CPU its program is as fast if less time goes into compiling it
    steady: ClassVar[bool] = True  # every generation takes as many evaluations
    snaps: ClassVar[bool] = True  # candidates are put onto the grid of integers and choices, if the problem has some
    looks: ClassVar[int] = 50  # after every so many generations `rests` is asked, if it has no period

    generations: ClassVar[int] = 1000  # that a run makes if nothing limits it
    rounds: ClassVar[int] = 10  # generations that few evaluations should last for: they make the population smaller

    @property
    def population(self) -> int:
        """How many candidates a generation has; a field of the dataclass."""
        raise NotImplementedError

    @property
    def period(self) -> int:
        """After every so many generations `cycle` is called; 0 for never."""
        return 0

    @property
    def repairs(self) -> int:
        """So many candidates a generation are moved onto the constraints that they violate before they are evaluated,
        where the problem has equalities and JAX can differentiate.
        """
        return 0

    def check(self) -> None:
        """Refuse hyper-parameters that cannot work, with an InputError."""

    def bind(self, dim: int, shape: Shape, budget: Budget) -> Self:
        """This algorithm for a problem: hyper-parameters left open take values that depend on its size."""
        return self

    def doubled(self, first: int, times: int) -> Self:
        """The same with a population of `first`, doubled so many times."""
        return dataclasses.replace(self, population=first * 2**times)  # type: ignore[type-var]

    def closer(self, factor: float) -> Self:
        """The same with first candidates so many times as far apart, where it can choose that."""
        return self

    def init(self, key: Array, bounds: Bounds, shape: Shape = Shape()) -> Any:
        """The first candidates and empty parents."""
        raise NotImplementedError

    def seeded(self, state: Any, points: Array) -> Any:
        """The first state with points (k, d) in the place of the first candidates."""
        k = points.shape[0]

        def put(x: Array) -> Array:
            return jnp.concatenate([points, x[k:]])

        return state._replace(candidates=put(state.candidates), parents=state.parents._replace(x=put(state.parents.x)))

    def joined(self, state: Any, rows: Array, points: Array) -> Any:
        """The state with points (k, d) from elsewhere in the place of the candidates with these numbers (k,)."""
        return state._replace(candidates=state.candidates.at[rows].set(points))

    def start(self, state: Any, evaluation: Evaluation, shape: Shape) -> Any:
        """Once, with the evaluation of the first candidates, before the first step: what holds for the whole run.

        The candidates stay as they are.
        """
        return state

    def step(self, key: Array, state: Any, evaluation: Evaluation) -> Any:
        """Select among parents and evaluated candidates, then breed the next candidates."""
        raise NotImplementedError

    def cycle(self, key: Array, state: Any, shape: Shape) -> Any:
        """What follows every `period` steps."""
        return state

    def evaluations(self, state: Any, number: Any) -> Any:
        """How many evaluations generation `number` takes, from its state before the step; repairs come on top.

        Where that is less than the population, the candidates beyond are not evaluated: they lose to any other.
        """
        return self.population

    @property
    def each(self) -> int:
        """How many evaluations one candidate takes."""
        return 1

    def rests(self, state: Any, bounds: Bounds, tolerance: Array) -> Array:
        """Whether the search is done by itself: RUNNING, or the code of Stop.TOLERANCE where it has converged, of
        Stop.ELSEWHERE where it has converged and the best individual so far is another point, and of Stop.STALL where
        it cannot get on.

        Converged means that the survivors lie within `tolerance` of the box in every variable, or within its square
        root where their values are the same to rounding.
        """
        if self.several_objectives:
            return jnp.asarray(RUNNING)
        population = state.parents
        known = jnp.isfinite(population.fitness)
        x = (population.x - bounds.lower) / bounds.span
        width = jnp.max(
            jnp.max(jnp.where(known[:, None], x, -jnp.inf), axis=0)
            - jnp.min(jnp.where(known[:, None], x, jnp.inf), axis=0)
        )
        least = jnp.min(population.fitness)
        most = jnp.max(jnp.where(known, population.fitness, -jnp.inf))
        level = most - least <= 4 * jnp.finfo(x.dtype).eps * jnp.abs(least)
        converged = (width <= tolerance) | (level & (width <= jnp.sqrt(tolerance)))
        return jnp.where(converged & jnp.any(known), CODES[Stop.TOLERANCE], RUNNING)

    def work(self, dim: int) -> int:
        """How many numbers a generation of one run handles at once, about: it decides how many runs a slice has."""
        return self.population * dim

    def answer(self, state: Any) -> Population:
        """The individuals among which the run's answer is: the survivors, or an archive."""
        return state.parents

    def judges(self, state: Any) -> Array | None:
        """What the individuals are judged by besides the problem, if anything."""
        return None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Shared:
    """Arrays among hyper-parameters or in a state that all runs of a batch share; any other has one value a run."""

    value: Any


def is_shared(leaf: Any) -> bool:
    """Whether all runs of a batch share it: the box, and what is marked so."""
    return isinstance(leaf, Bounds | Shared)


def static(default: Any) -> Any:
    """A hyper-parameter that shapes the program (a size, a function) rather than being data in it."""
    return dataclasses.field(default=default, metadata={"static": True})
