"""Evolutionary optimisation that lives on the accelerator."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import galapax.starting  # noqa: F401  (first: Ctrl-C while the rest is loading)
from galapax import algorithms, problems
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.algorithms.cmaes import CMAES
from galapax.algorithms.de import DE
from galapax.algorithms.ep import EP, FEP
from galapax.algorithms.epsilon_de import EpsilonDE
from galapax.algorithms.ga import ThreeParentGA
from galapax.algorithms.lshade import JSO, LSHADE
from galapax.algorithms.lsrtde import LSRTDE
from galapax.algorithms.moead import MOEAD
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.nsga3 import NSGA3
from galapax.algorithms.pso import PSO
from galapax.algorithms.random_search import RandomSearch
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.algorithms.sms_emoa import SMSEMOA
from galapax.api.compare import compare
from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.api.optimizer import Optimizer
from galapax.api.sweep import sweep
from galapax.api.trials import Trial
from galapax.core.errors import EvaluationError, InputError
from galapax.core.evaluation import Values
from galapax.core.island_model import Islands
from galapax.core.mixture import mixture
from galapax.core.options import Compute, Keep, Workers
from galapax.core.problem import Bounds, MinMaxProblem, Problem, box
from galapax.core.variables import boolean, choice, integer, real
from galapax.execution.observers import Checkpoint, Live, Progress
from galapax.metrics import indicators
from galapax.numerics import disk_cache as cache
from galapax.operators.differential import best_1, rand_1
from galapax.results.evaluations import Evaluations
from galapax.results.result import History, Result, Runs
from galapax.results.study import Study
from galapax.version import __version__, warn_of_untested_jax

if TYPE_CHECKING:
    from galapax.storage import gagpu
    from galapax.storage.folders import load

__all__ = [
    "CMAES",
    "DE",
    "EP",
    "FEP",
    "JSO",
    "LSHADE",
    "LSRTDE",
    "MOEAD",
    "NPGA",
    "NSGA2",
    "NSGA3",
    "PSO",
    "SMSEMOA",
    "Bounds",
    "Checkpoint",
    "CoevolutionaryDE",
    "Compute",
    "EpsilonDE",
    "EvaluationError",
    "Evaluations",
    "History",
    "InputError",
    "Islands",
    "Keep",
    "Live",
    "MinMaxProblem",
    "Optimizer",
    "Problem",
    "Progress",
    "RandomSearch",
    "Result",
    "Runs",
    "SharingMOEA",
    "Study",
    "ThreeParentGA",
    "Trial",
    "Values",
    "Workers",
    "__version__",
    "algorithms",
    "best_1",
    "boolean",
    "box",
    "cache",
    "choice",
    "compare",
    "gagpu",
    "indicators",
    "integer",
    "load",
    "minimax",
    "minimize",
    "mixture",
    "problems",
    "rand_1",
    "real",
    "sweep",
]


warn_of_untested_jax()

# what other libraries call it
_ELSEWHERE = {
    "differential_evolution": "galapax.compat.scipy.differential_evolution, or gx.minimize(f, bounds, 'de')",
    "create_study": "gx.minimize, or gx.Optimizer for ask and tell",
    "optimize": "gx.minimize",
    "fmin": "gx.minimize",
    "maximize": "gx.minimize(f, bounds, maximize=True)",
    "solve": "gx.minimize",
    "Real": "gx.real",
    "Integer": "gx.integer",
    "Categorical": "gx.choice",
    "Choice": "gx.choice",
    "categorical": "gx.choice",
    "Binary": "gx.boolean",
    "flag": "gx.boolean",
    "GA": "gx.ThreeParentGA",
    "CDE": "gx.CoevolutionaryDE",
    "NSGAII": "gx.NSGA2",
    "NSGAIII": "gx.NSGA3",
    "CMA": "gx.CMAES",
}


def __getattr__(name: str) -> Any:
    """Files of saved runs are read by few programs, and by none before its first run."""
    if name == "load":
        return import_module("galapax.storage.folders").load
    if name == "gagpu":
        return import_module("galapax.storage.gagpu")
    word = _ELSEWHERE.get(name)
    raise AttributeError(f"module 'galapax' has no attribute {name!r}" + (f": use {word}" if word else ""))


def __dir__() -> list[str]:
    """Public names only: the rooms of the house are found by importing them."""
    return __all__
