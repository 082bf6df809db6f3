"""Evolutionary optimisation in Python, compiled with JAX for GPUs and CPUs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import galapax._startup  # noqa: F401  (first: Ctrl-C while the rest is loading)
from galapax import algorithms, callbacks, problems
from galapax.algorithms.cde import CoevolutionaryDE
from galapax.algorithms.cma_mae import CMAMAE
from galapax.algorithms.cmaes import CMAES
from galapax.algorithms.crfmnes import CRFMNES
from galapax.algorithms.de import DE
from galapax.algorithms.ehvi import EHVI, EI
from galapax.algorithms.ep import EP, FEP
from galapax.algorithms.epsilon_de import EpsilonDE
from galapax.algorithms.ga import ThreeParentGA
from galapax.algorithms.lshade import JSO, LSHADE
from galapax.algorithms.lsrtde import LSRTDE
from galapax.algorithms.map_elites import MAPElites
from galapax.algorithms.model_search import ModelSearch
from galapax.algorithms.moead import MOEAD
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.nsga3 import NSGA3
from galapax.algorithms.pso import PSO
from galapax.algorithms.random_search import RandomSearch
from galapax.algorithms.real_coded_ga import RealCodedGA
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.algorithms.sms_emoa import SMSEMOA
from galapax.api.experiments import compare, sweep
from galapax.api.illuminate import illuminate
from galapax.api.minima import MinimaOptimizer, minima
from galapax.api.minimax import minimax
from galapax.api.minimize import minimize
from galapax.api.optimizer import Optimizer
from galapax.api.robust import normal, robust, scenarios, uniform
from galapax.api.trials import Trial
from galapax.core.errors import EvaluationError, InputError
from galapax.core.hints import PACKAGE_NAMES, find_answers
from galapax.core.mixture import mixture
from galapax.core.options import Compute, Islands, Keep, Workers
from galapax.core.problem import Bounds, Evaluation, MinMaxProblem, Problem, box
from galapax.core.variables import boolean, choice, integer, real
from galapax.execution.observers import Checkpoint, Live, Progress
from galapax.metrics import indicators
from galapax.metrics.statistics import chance, cvar, mean_std
from galapax.numerics import disk_cache as cache
from galapax.results.evaluations import Evaluated, Evaluations
from galapax.results.many_answers import Illumination, Minima
from galapax.results.result import History, Result, Robust, Runs
from galapax.results.study import Study
from galapax.version import __version__, warn_of_untested_jax

if TYPE_CHECKING:
    from galapax.storage.result_folder import load

__all__ = [
    "CMAES",
    "CMAMAE",
    "CRFMNES",
    "DE",
    "EHVI",
    "EI",
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
    "Evaluated",
    "Evaluation",
    "EvaluationError",
    "Evaluations",
    "History",
    "Illumination",
    "InputError",
    "Islands",
    "Keep",
    "Live",
    "MAPElites",
    "MinMaxProblem",
    "Minima",
    "MinimaOptimizer",
    "ModelSearch",
    "Optimizer",
    "Problem",
    "Progress",
    "RandomSearch",
    "RealCodedGA",
    "Result",
    "Robust",
    "Runs",
    "SharingMOEA",
    "Study",
    "ThreeParentGA",
    "Trial",
    "Workers",
    "__version__",
    "algorithms",
    "boolean",
    "box",
    "cache",
    "callbacks",
    "chance",
    "choice",
    "compare",
    "cvar",
    "illuminate",
    "indicators",
    "integer",
    "load",
    "mean_std",
    "minima",
    "minimax",
    "minimize",
    "mixture",
    "normal",
    "problems",
    "real",
    "robust",
    "scenarios",
    "sweep",
    "uniform",
]


warn_of_untested_jax()


def __getattr__(name: str) -> Any:
    """Import on demand what few programs need, and answer the names that other libraries use."""
    if name == "load":
        return import_module("galapax.storage.result_folder").load
    answers = find_answers(name, PACKAGE_NAMES)
    raise AttributeError(f"module 'galapax' has no attribute {name!r}" + "".join(f": use {word}" for word in answers))


def __dir__() -> list[str]:
    """List the public names only, without the packages."""
    return __all__
