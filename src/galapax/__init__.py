"""Evolutionary optimisation that lives on the accelerator."""

from galapax import indicators, problems
from galapax.algorithms import ALGORITHMS
from galapax.algorithms.coevolution import CDE
from galapax.algorithms.de import DE
from galapax.algorithms.ep import EP, FEP
from galapax.algorithms.epsilon_de import EpsilonDE
from galapax.algorithms.ga import GA
from galapax.algorithms.npga import NPGA
from galapax.algorithms.nsga2 import NSGA2
from galapax.algorithms.random_search import RandomSearch
from galapax.algorithms.sharing_moea import SharingMOEA
from galapax.compare import compare
from galapax.engines.loop import Progress
from galapax.errors import EvaluationError, InputError
from galapax.minimax import minimax
from galapax.minimize import minimize
from galapax.mixture import mixture
from galapax.operators.mutation import best_1, rand_1
from galapax.optimizer import Optimizer
from galapax.problem import Bounds, MinMaxProblem, Problem, box
from galapax.problems import PROBLEMS
from galapax.result import History, Result, Runs
from galapax.storage import load
from galapax.study import Study
from galapax.sweep import sweep
from galapax.version import __version__
from galapax.view.live import Live

__all__ = [
    "ALGORITHMS",
    "CDE",
    "DE",
    "EP",
    "FEP",
    "GA",
    "NPGA",
    "NSGA2",
    "PROBLEMS",
    "Bounds",
    "EpsilonDE",
    "EvaluationError",
    "History",
    "InputError",
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
    "__version__",
    "best_1",
    "box",
    "compare",
    "indicators",
    "load",
    "minimax",
    "minimize",
    "mixture",
    "problems",
    "rand_1",
    "sweep",
]
