"""Words of other libraries, by the word for them here, and the answers to keywords that a verb does not have.

Each table maps an answer to the words, separated by spaces, that it answers; `find_answers` looks a word up. The words
are those of scipy, pymoo, pygmo, DEAP, Optuna, Nevergrad, pycma, scikit-optimize and MATLAB, and symbols of papers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from galapax.core.errors import UnknownArgument, unknown_name_error

_LIMITS = "generations, max_evaluations, max_seconds, target, patience or tolerance, several at once if you like"
_RATES = "write algorithm=gx.ThreeParentGA() or another with the rates that it has; galapax list shows them"
_SAVE = "leave it out and save the result: result.save('runs/first')"

# arguments of minimize and the other verbs
KEYWORDS = {
    "write generations": "maxiter max_iter niter n_gen ngen gen n_iter iterations epochs gens max_generations maxgen "
    "num_generations n_generations MaxGenerations",
    "write max_evaluations": "maxfun maxfev maxfevals max_nfev n_evals n_eval n_trials budget n_calls num_trials "
    "max_evals nfev max_fun MaxFunctionEvaluations max_fevals",
    "write max_seconds": "maxtime max_time time_limit timelimit time MaxTime max_runtime",
    f"write {_LIMITS}": "termination stop stopping stopping_criteria",
    f"give its entries as arguments: {_LIMITS}; or use galapax.compat.scipy.minimize": "options",
    "write population, the number of individuals (scipy multiplies its popsize by the number of variables)": "popsize",
    "write population": "pop_size pop npop n_pop NP lambda_ mu population_size PopulationSize num_particles",
    "write algorithm=gx.DE(weight=0.5)": "F mutation differential_weight",
    "write algorithm=gx.DE(crossover_rate=0.9)": "CR recombination",
    _RATES: "cxpb mutpb crossover crossover_rate mutation_rate selection",
    "write algorithm=gx.CMAES(sigma0=0.2), a share of the box": "sigma0 sigma",
    "write algorithm=gx.DE(mutation=rand_1) for rand1bin, or best_1 for best1bin; both are in "
    "galapax.operators.variation": "strategy variant",
    "write target": "stop_fitness ftarget f_target target_value fitness_threshold",
    "write tolerance, a share of the box within which a population counts as converged": "tol atol rtol",
    "write tolerance, a share of the box": "xtol tolx x_tol xatol",
    "write patience, generations without a better value, or tolerance, a share of the box": "ftol tolfun f_tol fatol",
    "leave it out: it is an option of a local method": "gtol maxls maxcor eps adaptive rhobeg initial_simplex "
    "finite_diff_rel_step",
    "write patience": "stall no_improvement early_stopping stagnation",
    'write algorithm, such as algorithm="de", or use galapax.compat.scipy.minimize': "method",
    'write algorithm, such as algorithm="de"': "solver optimizer",
    'write algorithm, such as algorithm="cmaes"': "sampler",
    "leave it out: a generation is always evaluated together (scipy's 'deferred'), and workers=gx.Workers(8, "
    "asynchronous=True) does without generations": "updating",
    "leave it out: a progress line appears by itself on a terminal; progress=True or False decides it": "disp verbose "
    "display show_progress_bar verbosity",
    "write workers, -1 for all cores; functions of jax.numpy need none": "n_jobs parallel num_workers n_processes "
    "processes n_threads",
    "leave it out: JAX chooses the device, a GPU if it has one; JAX_PLATFORMS=cpu keeps it from that": "device gpu",
    "write runs": "repeats repetitions n_runs num_runs n_restarts",
    "write seed, an integer, such as int(rng.integers(2**32)), or None for a random seed": "rng random_state "
    "random_seed generator",
    "write maximize=True, or leave it out; of several objectives a list, as in maximize=[False, True]": "direction "
    "directions weights sense senses minimization",
    "write maximize=True": "maximise maximization",
    "leave it out: values are minimised unless maximize=True": "minimise minimize",
    "write x0, points to start from": "init sampling initial_population initial_point start",
    "write initial=gx.Evaluated(X, F), points with their values": "y0 known known_values evaluated warm_start "
    "initial_values prior_evaluations previous",
    "write bounds, one (lower, upper) pair per variable": "lb ub lower upper xl xu limits space search_space "
    "dimensions parametrization",
    "leave it out: bounds has one (lower, upper) pair per variable, such as [(-5, 5)] * 10": "dim n_var ndim nvars "
    "dimension",
    "write fun, or give the function first, without a name": "objective func function fn f",
    "write gx.Problem(fun, bounds, name=...) in place of fun and bounds": "name",
    "give the names in gx.Problem(fun, bounds, objectives=[...]) in place of fun and bounds": "objectives n_obj",
    "give the units in gx.Problem(fun, bounds, units={...}) in place of fun and bounds": "units",
    "give it in gx.Problem(fun, bounds, reference_point=[...]) in place of fun and bounds": "reference_point ref_point "
    "hypervolume_reference",
    "give it in gx.Problem(fun, bounds, derived={...}) in place of fun and bounds": "derived",
    "give the names in bounds: {'width': gx.real(0, 1), ...}": "names variables param_names varnames",
    "write gx.real(1e-3, 10, log=True) in bounds, for each variable that is to have a logarithmic scale": "log",
    _SAVE: "out save outdir",
    "leave it out and save the result, result.save('runs/first'); checkpoint='run.ckpt' with resume=True goes on after "
    "a kill": "storage study_name load_if_exists",
    "leave it out: gradients are computed with JAX, where the polish needs them": "jac hess hessp gradient grad",
    "leave it out: history is kept; keep=gx.Keep(history='x') keeps the best x of each generation too": "save_history",
    "write keep=gx.Keep(history='x')": "return_all",
    "write runs=range(17, 20) for the runs 17, 18 and 19": "first_run",
    "write workers=executor": "executor pool backend",
    "write workers=gx.Workers(8, timeout=30) for one evaluation, or max_seconds for the whole run": "timeout",
    "write workers=gx.Workers(8, retries=1)": "retries",
    "write workers=gx.Workers(memoize=True)": "cache memoize",
    "write workers=gx.Workers(8, asynchronous=True)": "asynchronous",
    "write workers=gx.Workers(8, workers_timeout=300)": "workers_timeout",
    "write keep=gx.Keep(history=...)": "history",
    "write keep=gx.Keep(snapshots=[1, 10, 100])": "snapshots",
    "write keep=gx.Keep(archive=300)": "archive archive_size",
    'write compute=gx.Compute(dtype="float32")': "dtype precision",
    'write compute=gx.Compute(engine="fused")': "engine",
    "write compute=gx.Compute(threads=4)": "threads",
    'write compute=gx.Compute(devices="all")': "spread devices",
    "use galapax.compat.scipy.minimize, or close over them: lambda x: fun(x, *args)": "args",
    "write ineq and eq, or use galapax.compat.scipy.minimize, which takes scipy's constraints": "constraints "
    "nonlinear_constraint",
    "write ineq, met when ineq(x) <= 0": "g n_ieq_constr constraints_func",
    "write eq, met when eq(x) = 0": "h n_eq_constr",
    "write eq_tolerance": "constraint_tolerance ConstraintTolerance ctol cv_eps",
    "write gx.integer(0, 10) in bounds, or use galapax.compat.scipy.minimize": "integrality intcon vtype",
    "write callback, a function of a Progress; returning True stops the run": "callbacks callback_fn output_function",
    "write callback=gx.callbacks.Every(function, generations=10), or seconds=": "every",
    "write on_failure, as in on_failure='worst'": "catch error_score",
    "leave it out: where nothing is feasible, the result is the least infeasible point": "return_least_infeasible",
    "leave it out: a run never changes its algorithm": "copy_algorithm copy_termination",
    "leave it out: NSGA2 and its like breed as many offspring as there are parents": "n_offsprings",
    "leave it out: NSGA2, NSGA3 and SMSEMOA keep no copies": "eliminate_duplicates",
    "write algorithm=gx.NSGA3(directions=...)": "ref_dirs",
    "give it in gx.Problem(fun, bounds, front=lambda n: points) in place of fun and bounds": "pf pareto_front",
    "write vectorized": "vectorised elementwise vectorize",
    "use gx.Optimizer, whose trials have report(value, step) and should_prune()": "pruner prune pruning",
}

# arguments of minimize that compare does not have
COMPARE_KEYWORDS = {
    "write within, a distance from the best known value": "target",
    "write max_evaluations, which are the same for all algorithms": "generations",
    "put gx.Problem(fun, bounds) into the list of problems": "fun bounds ineq eq maximize blackbox vectorized",
    "set it in the algorithms, as in gx.DE(population=40)": "population",
    "write max_evaluations: algorithms are compared at equal evaluations, not at equal times": "max_seconds",
    "leave it out: progress=True shows how far the comparison is": "live callback",
    "leave it out: problems that JAX compiles need no workers, and black boxes are called in this process": "workers",
}

# hyper-parameters of algorithms, as papers and other libraries write them
HYPERPARAMETERS = {
    "weight": "F f mutation_factor differential_weight mutation",
    "crossover_rate": "CR cr recombination crossover_probability cxpb prob",
    "population": "NP popsize pop_size n_particles swarm_size lambda_ pop",
    "sigma0": "spread sigma",
    "crossover_index": "eta_c eta",
    "mutation_index": "eta_m eta",
    "mutation_rate": "prob mutpb",
    "inertia": "w omega",
    "acceleration": "c c1 c2 cognitive social",
}

# attributes of an Optimizer, as other libraries call them
OPTIMIZER_ATTRIBUTES = {
    "trial.params, or params(x) for arrays": "named",
    "best, a Result that draws, saves and becomes a table": "result study optimum recommend provide_recommendation",
    "best.save(folder)": "save",
    "best.stop": "stop is_done has_next done converged",
    "best.fun": "best_value fun best_fitness",
    "best.params": "best_params",
    "best.history": "history",
    "evaluations": "trials Xi yi X_ y_",
    "ask": "suggest next_point",
    "tell": "observe register report add add_trial",
    "gx.minimize, which calls the function itself": "minimize optimize run",
}

# attributes of a Trial, a Result and a Study, as other libraries call them
TRIAL_ATTRIBUTES = {
    "params['name']: the variables are declared in the bounds of the Optimizer": "suggest_float suggest_int "
    "suggest_categorical suggest_uniform suggest_loguniform suggest_discrete_uniform args kwargs named",
    "optimizer.tell(trial, value)": "value values tell state",
    "optimizer.tell(trial, {'fun': value, 'ineq': g})": "set_constraint",
}
RESULT_ATTRIBUTES = {
    "params": "named best_params best_trial",
    "x": "X xopt xbest x_best best_x best_solution solution champion_x xfavorite best",
    "fun": "F best_value fval fopt fbest f_best champion_f best_fitness best_score minimum",
    "ineq": "G",
    "eq": "H",
    "violation, or CV of a front": "CV maxcv constr_violation",
    "evaluations, which a black box has": "trials evaluations",
    "evaluations.fun": "func_vals",
    "evaluations.x": "x_iters",
    "to_dataframe()": "trials_dataframe dataframe df",
    "nit": "n_iter n_gen iterations generations niter",
    "nfev": "n_eval n_evals evals n_evaluations num_evaluations",
    "stop, or message for a sentence": "status termination reason",
    "success": "converged is_converged",
    "population": "pop opt",
    "population_fitness": "population_energies pop_fitness",
    "history": "log logbook convergence hist",
    "timings": "exec_time runtime duration time",
    "X and F, the front": "best_trials pareto_front pareto front pareto_set",
    "plot()": "show draw figure",
    "save(folder), which writes report.html": "report to_html write_report save_report to_csv export",
    'algorithm="ehvi" (or gx.EHVI()), whose result has one': "forecast",
    "importances()": "importance feature_importances_ param_importances get_param_importances",
}
STUDY_ATTRIBUTES = {
    "summary(), a row for each cell, or cell(...), the Result of one": "best best_trial best_trials best_params "
    "best_value best_params_ best_score_ best_estimator_ optimum x fun",
    "results": "result runs history",
    "to_dataframe(), a row for each run of each cell": "trials trials_dataframe cv_results_ dataframe df data",
    "save(folder), with tables as CSV, Markdown and LaTeX": "to_csv to_latex export",
    "ranks()": "friedman average_ranks",
    "plot.critical_difference()": "critical_difference nemenyi",
    "tests(problem)": "p_values pvalues wilcoxon",
    "plot()": "show draw figure",
}

# names that people look for in the package
PACKAGE_NAMES = {
    "galapax.compat.scipy.differential_evolution, or gx.minimize(f, bounds, 'de')": "differential_evolution",
    "gx.minimize, or gx.Optimizer for ask and tell": "create_study ask_and_tell",
    "gx.minimize": "optimize fmin solve fmin2 gp_minimize dual_annealing shgo basinhopping direct brute",
    "gx.minimize of the sum of squares": "least_squares curve_fit leastsq",
    "None, or an exception, in optimizer.tell(trial, None)": "TrialPruned Pruned",
    "gx.minimize(f, bounds, maximize=True)": "maximize maximise",
    "gx.real": "Real Float Uniform suggest_float",
    "gx.integer": "Integer Int suggest_int",
    "gx.choice": "Categorical Choice categorical suggest_categorical",
    "gx.boolean": "Binary flag Bool",
    "gx.Evaluation": "Values",
    "gx.RealCodedGA, or gx.ThreeParentGA for GAGPU's": "GA",
    "gx.CoevolutionaryDE": "CDE",
    "gx.NSGA2": "NSGAII",
    "gx.NSGA3": "NSGAIII",
    "gx.CMAES": "CMA",
    "gx.problems.get('ackley')": "get_problem get",
    "galapax.compat.from_pymoo": "from_pymoo",
    "galapax.compat.from_pygmo": "from_pygmo",
    "galapax.metrics.statistics": "statistics",
    "galapax.operators.variation": "rand_1 best_1",
    "galapax.storage.gagpu": "gagpu",
    "gx.algorithms.ALGORITHMS": "ALGORITHMS",
    "gx.problems.PROBLEMS": "PROBLEMS",
    "gx.box(0, 1, dim=n), and order = jnp.argsort(x) in the objective": "permutation Permutation",
    "restarts='bipop' in gx.minimize": "Restarts",
}

# algorithms by other names; see `spell_plainly`
ALGORITHM_NAMES = {
    "cmaes": "cma cmaesrestart covariancematrixadaptation",
    "de": "differentialevolution derand1bin devo",
    "ga": "threeparentga gagpu",
    "real_coded_ga": "genetic geneticalgorithm rcga sbxga",
    "cde": "coevolutionaryde",
    "ep": "evolutionaryprogramming",
    "fep": "fastevolutionaryprogramming",
    "jso": "ilshade",
    "nsga2": "nsgaii",
    "nsga3": "nsgaiii unsga3",
    "moead": "moeadde",
    "sms_emoa": "sms smsemoea",
    "pso": "particleswarm particleswarmoptimization particleswarmoptimisation",
    "random": "randomsampler randomsearch rs",
}

# algorithms that are not here
MISSING_ALGORITHMS = {
    "leave algorithm out: the default uses quadratic models where evaluations are few": "neldermead nm simplex fmin",
    "leave algorithm out: the best point is refined with its gradient by itself (polish)": "bfgs lbfgs lbfgsb slsqp "
    "sqp trustconstr cg newtoncg tnc powell cobyla cobyqa adam",
    "leave algorithm out: the default is for problems with many local minima": "dualannealing annealing sa shgo direct "
    "basinhopping brute",
    "leave algorithm out: the default uses models of the objective where evaluations are few (blackbox=True, "
    "max_evaluations=)": "bayes bayesian bayesianoptimization bo ego gp kriging tpe tpesampler",
}


def find_answers(word: str, table: Mapping[str, str]) -> list[str]:
    """Find the answers of a table to a word."""
    return [answer for answer, words in table.items() if word in words.split()]


def attribute_error(owner: object, article: str, name: str, table: Mapping[str, str]) -> AttributeError:
    """Build the error for an attribute that an object does not have. article: "a" or "an"."""
    hint = "".join(f": write {answer}" for answer in find_answers(name, table))
    return AttributeError(f"{article} {type(owner).__name__} has no {name!r}{hint}.", name=name, obj=owner)


def spell_plainly(name: str) -> str:
    """Spell the name of an algorithm in small letters and digits alone: NSGA-II is nsgaii."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


MAX_LISTED_ARGUMENTS = 12  # arguments that a sentence names


def unknown_keyword_error(name: str, parameters: Iterable[str], verb: str, value: object = None) -> UnknownArgument:
    """Build the error for a keyword that a verb does not have."""
    answers = find_answers(name, KEYWORDS) + (find_answers(name, COMPARE_KEYWORDS) if verb == "compare" else [])
    for answer in answers:
        is_same = re.fullmatch(r"write \w+", answer) and isinstance(value, int | float)
        return UnknownArgument(f"{verb} has no {name!r}: {answer}{f'={value}' if is_same else ''}.")
    names = list(parameters)
    listed = f"help(gx.{verb}) lists all {len(names)}." if len(names) > MAX_LISTED_ARGUMENTS else None
    return UnknownArgument(str(unknown_name_error(f"argument of {verb}", name, names, listed)))
