"""Differential evolution at equal work: galapax beside pygmo, scipy, pymoo, evosax, EvoX and plain NumPy.

    python benchmarks/peers.py [--quick] [--only NAME ...] [--json FILE]

Everybody runs DE/rand/1/bin with F = 0.7 and CR = 0.7. A run of g generations evaluates g populations, the initial
one included, and a library that counts more or fewer is reported as failed. Each cell is measured in a process of its
own, after one whole run that pays for imports and compilation. What is not installed is left out and named.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import harness

WEIGHT, CROSSOVER_RATE = 0.7, 0.7
POPULATIONS = (50, 1000, 10_000)
REPEATS = 3
ENSEMBLE, SAMPLE = 1000, 20  # runs in the second table, and how many of them a library without batches does

Row = dict[str, Any]  # a measured cell
Run = Callable[[int], tuple[Any, int]]  # seed -> best value of each run (runs,), number of evaluations


# --- the two problems, for any array library -------------------------------------------------------------------------


def rastrigin(xp: Any, x: Any) -> Any:
    """10 d + sum(x^2 - 10 cos(2 pi x)) of each row of x (..., d)."""
    return 10 * x.shape[-1] + (x**2 - 10 * xp.cos(2 * xp.pi * x)).sum(-1)


def goldstein_price(xp: Any, x: Any) -> Any:
    """Goldstein & Price (1971) of each row of x (..., 2); the minimum is 3, at (0, -1)."""
    return goldstein_price_of(x[..., 0], x[..., 1])


def goldstein_price_of(a: Any, b: Any) -> Any:
    first = 1 + (a + b + 1) ** 2 * (19 - 14 * a + 3 * a**2 - 14 * b + 6 * a * b + 3 * b**2)
    second = 30 + (2 * a - 3 * b) ** 2 * (18 - 32 * a + 12 * a**2 + 48 * b - 36 * a * b + 27 * b**2)
    return first * second


@dataclass(frozen=True)
class Task:
    """A function of rows and its box, the same interval in every variable."""

    fun: Callable[[Any, Any], Any]
    dim: int
    lower: float
    upper: float


TASKS = {
    "rastrigin": Task(rastrigin, 32, -5.12, 5.12),
    "goldstein_price": Task(goldstein_price, 2, -2.0, 2.0),
}


@dataclass(frozen=True)
class Job:
    """One cell of a table: what one process measures. `runs` are the runs of one timed call."""

    peer: str
    task: str
    population: int
    generations: int
    dtype: str
    runs: int = 1
    cores: int = 1

    @property
    def evaluations(self) -> int:
        return self.runs * self.population * self.generations


# --- the peers: each takes a job, prepares what it can, and returns one whole run as a function of the seed -----------


def with_galapax(job: Job) -> Run:
    import galapax as gx

    problem = gx.problems.get(job.task, dim=32) if job.task == "rastrigin" else gx.problems.get(job.task)
    settings: dict[str, Any] = {
        "algorithm": gx.DE(population=job.population, weight=WEIGHT, crossover_rate=CROSSOVER_RATE),
        "generations": job.generations,
        "tolerance": 0,
        "runs": job.runs,
        "progress": False,
        "compute": gx.Compute(dtype=job.dtype),
    }

    def run(seed: int) -> tuple[Any, int]:
        result: Any = gx.minimize(problem, seed=seed, polish=False, **settings)
        return (result.fun if job.runs == 1 else result.runs.fun), result.nfev

    return run


def with_pygmo(job: Job) -> Run:
    """pagmo's C++ DE; Rastrigin is its own C++ function, Goldstein-Price a Python function of floats."""
    import pygmo as pg

    problem = pg.problem(pg.rastrigin(32) if job.task == "rastrigin" else PygmoGoldsteinPrice())

    def run(seed: int) -> tuple[Any, int]:
        # Variant 7 is rand/1/bin; zero tolerances let nothing but the number of generations end the run.
        settings = {"F": WEIGHT, "CR": CROSSOVER_RATE, "variant": 7, "ftol": 0.0, "xtol": 0.0, "seed": seed}
        parents = pg.population(problem, job.population, seed=seed)
        evolved = pg.algorithm(pg.de(gen=job.generations - 1, **settings)).evolve(parents)
        return evolved.champion_f, evolved.problem.get_fevals()

    return one_by_one(job, run)


class PygmoGoldsteinPrice:
    """Goldstein-Price in the shape pygmo asks of a problem written in Python."""

    def fitness(self, x: Any) -> list[float]:
        return [goldstein_price_of(*x.tolist())]  # Python floats: NumPy scalars would be slower

    def get_bounds(self) -> tuple[list[float], list[float]]:
        return [-2.0, -2.0], [2.0, 2.0]


def with_scipy(job: Job) -> Run:
    import numpy as np
    from scipy.optimize import differential_evolution

    task = TASKS[job.task]

    def run(seed: int) -> tuple[Any, int]:
        evaluated = 0

        def objective(x: Any) -> Any:
            nonlocal evaluated
            evaluated += x.shape[1]
            return task.fun(np, x.T)

        result = differential_evolution(
            objective,
            [(task.lower, task.upper)] * task.dim,
            init=np.random.default_rng(seed).uniform(task.lower, task.upper, (job.population, task.dim)),
            strategy="rand1bin",
            mutation=WEIGHT,
            recombination=CROSSOVER_RATE,
            maxiter=job.generations - 1,
            tol=0,
            polish=False,
            vectorized=True,
            updating="deferred",
            rng=seed,
        )
        return result.fun, evaluated

    return one_by_one(job, run)


def with_pymoo(job: Job) -> Run:
    import numpy as np
    from pymoo.algorithms.soo.nonconvex.de import DE
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    task = TASKS[job.task]

    class Rows(Problem):
        def __init__(self) -> None:
            super().__init__(n_var=task.dim, n_obj=1, xl=task.lower, xu=task.upper)

        def _evaluate(self, x: Any, out: dict, *args: Any, **kwargs: Any) -> None:
            out["F"] = task.fun(np, x)

    def run(seed: int) -> tuple[Any, int]:
        # `prob_mut` is a polynomial mutation that pymoo adds to DE; 0 leaves the published algorithm.
        settings = {"F": WEIGHT, "CR": CROSSOVER_RATE, "prob_mut": 0.0}
        algorithm = DE(pop_size=job.population, variant="DE/rand/1/bin", **settings)
        result = minimize(Rows(), algorithm, ("n_gen", job.generations), seed=seed, copy_algorithm=False)
        return result.F, result.algorithm.evaluator.n_eval

    return one_by_one(job, run)


def with_evosax(job: Job) -> Run:
    """The whole run is one compiled scan, runs are a `vmap`; evosax knows no box, so trials are clipped here."""
    import jax
    import jax.numpy as jnp
    from evosax.algorithms import DifferentialEvolution

    task = TASKS[job.task]
    strategy = DifferentialEvolution(population_size=job.population, solution=jnp.zeros(task.dim))
    settings = {"crossover_rate": CROSSOVER_RATE, "differential_weight": WEIGHT}
    params = strategy.default_params.replace(elitism=False, **settings)  # with elitism it would be DE/best/1/bin

    def generation(state: Any, key: Any) -> tuple[Any, None]:
        key_ask, key_tell = jax.random.split(key)
        x, state = strategy.ask(key_ask, state, params)
        x = jnp.clip(x, task.lower, task.upper)
        return strategy.tell(key_tell, x, task.fun(jnp, x), state, params)[0], None

    def once(key: Any) -> tuple[Any, Any]:
        key_x, key_init, key_run = jax.random.split(key, 3)
        x = jax.random.uniform(key_x, (job.population, task.dim), minval=task.lower, maxval=task.upper)
        state = strategy.init(key_init, x, task.fun(jnp, x), params)
        state, _ = jax.lax.scan(generation, state, jax.random.split(key_run, job.generations - 1))
        return state.best_fitness, state.generation_counter

    compiled = jax.jit(jax.vmap(once) if job.runs > 1 else once)

    def run(seed: int) -> tuple[Any, int]:
        key = jax.random.key(seed)
        best, steps = jax.block_until_ready(compiled(jax.random.split(key, job.runs) if job.runs > 1 else key))
        return best, job.population * int((steps + 1).sum())

    return run


def with_evox_eager(job: Job) -> Run:
    return with_evox(job, compiled=False)


def with_evox_compiled(job: Job) -> Run:
    return with_evox(job, compiled=True)


def with_evox(job: Job, *, compiled: bool) -> Run:
    """EvoX steps in a Python loop, with and without `torch.compile`; runs are a `vmap` of the step."""
    import torch
    from evox.algorithms import DE
    from evox.core import Problem, compile, use_state, vmap
    from evox.workflows import StdWorkflow

    task = TASKS[job.task]
    torch.set_num_threads(job.cores)

    class Rows(Problem):
        def evaluate(self, x: Any) -> Any:
            return task.fun(torch, x)

    limits = [torch.full((task.dim,), limit) for limit in (task.lower, task.upper)]
    settings = {"differential_weight": WEIGHT, "cross_probability": CROSSOVER_RATE}
    workflow = StdWorkflow(DE(job.population, *limits, **settings), Rows())
    step, init_step = workflow.step, workflow.init_step
    if job.runs > 1:
        step, init_step = (vmap(use_state(method), randomness="different") for method in (step, init_step))
    if compiled:
        step = compile(step)

    def initial(*runs: int) -> Any:
        shape = (*runs, job.population, task.dim)
        return task.lower + (task.upper - task.lower) * torch.rand(shape)

    def run_one(seed: int) -> tuple[Any, int]:
        torch.manual_seed(seed)
        workflow.algorithm.pop = initial()
        init_step()
        for _ in range(job.generations - 1):
            step()
        return workflow.algorithm.fit.min(), job.evaluations  # compiled steps count nothing: each is one population

    def run_many(seed: int) -> tuple[Any, int]:
        torch.manual_seed(seed)
        tensors = {**dict(workflow.named_parameters()), **dict(workflow.named_buffers())}
        state = {name: tensor.expand(job.runs, *tensor.shape) for name, tensor in tensors.items()}
        state = init_step({**state, "algorithm.pop": initial(job.runs)})
        for _ in range(job.generations - 1):
            state = step(state)
        return state["algorithm.fit"].min(dim=-1).values, job.evaluations

    return run_many if job.runs > 1 else run_one


def with_numpy(job: Job) -> Run:
    """The same algorithm written in NumPy, one run after another."""
    single = replace(job, runs=1)
    return one_by_one(job, lambda seed: numpy_de(single, seed))


def with_numpy_stacked(job: Job) -> Run:
    """The same, with the individuals of all runs stacked in one array."""
    return lambda seed: numpy_de(job, seed)


def numpy_de(job: Job, seed: int) -> tuple[Any, int]:
    """DE/rand/1/bin on rows (runs * n, d), trials clipped to the box; returns the best of each run (runs,)."""
    import numpy as np

    task = TASKS[job.task]
    rng: Any = np.random.default_rng(seed)
    rows = np.arange(job.runs * job.population)
    shape = (rows.size, task.dim)
    parents = rng.random(shape, dtype=job.dtype) * (task.upper - task.lower) + task.lower
    fitness, evaluated = task.fun(np, parents), rows.size
    for _ in range(job.generations - 1):
        base, plus, minus = numpy_partners(rng, rows, job.population)
        mutants = parents[base] + WEIGHT * (parents[plus] - parents[minus])
        crossed = rng.random(shape, dtype="float32") < CROSSOVER_RATE
        crossed[rows, rng.integers(0, task.dim, rows.size)] = True
        trials = np.clip(np.where(crossed, mutants, parents), task.lower, task.upper)
        trial_fitness = task.fun(np, trials)
        evaluated += rows.size
        better = trial_fitness <= fitness
        parents[better] = trials[better]
        fitness[better] = trial_fitness[better]
    return fitness.reshape(job.runs, job.population).min(axis=1), evaluated


def numpy_partners(rng: Any, rows: Any, n: int) -> list[Any]:
    """Three partners of each row in its own run of n rows, distinct and none of them the row itself.

    Drawn as distances 1..n-1 around the ring of a run's rows: each further one from a range that is shorter by one
    and shifted past those already taken, so that nothing is rejected and all triples are equally likely.
    """
    import numpy as np

    first, second, third = (rng.integers(1, n - taken, rows.size) for taken in range(3))
    second += second >= first
    for taken in (np.minimum(first, second), np.maximum(first, second)):
        third += third >= taken
    target = rows % n
    return [rows - target + (target + distance) % n for distance in (first, second, third)]


def one_by_one(job: Job, run: Run) -> Run:
    """`job.runs` single runs, one after another."""

    def run_all(seed: int) -> tuple[Any, int]:
        outcomes = [run(seed * job.runs + i) for i in range(job.runs)]
        return [best for best, _ in outcomes], sum(evaluated for _, evaluated in outcomes)

    return run_all


@dataclass(frozen=True)
class Peer:
    """A library, or a way of using one.

    build: makes the function that is timed. module: what must be installed, and gives the version.
    batched: many runs are one call; stacked: it has nothing else to show, so it is in the second table only.
    slow: pairs of a population and the few generations it gets there.
    """

    build: Callable[[Job], Run]
    module: str
    dtypes: tuple[str, ...] = ("float64",)
    batched: bool = False
    stacked: bool = False
    slow: tuple[tuple[int, int], ...] = ()
    note: str = ""


PEERS = {
    "galapax": Peer(with_galapax, "galapax", ("float32", "float64"), batched=True),
    "pygmo": Peer(
        with_pygmo,
        "pygmo",
        note="C++; Rastrigin is its own C++ function, Goldstein-Price a Python function; "
        "genes outside the box are redrawn",
    ),
    "scipy": Peer(
        with_scipy,
        "scipy",
        slow=((10_000, 20),),
        note="vectorised objective, deferred updating; genes outside the box are redrawn; "
        "it shuffles all n indices to draw partners for one individual, O(n^2)",
    ),
    "pymoo": Peer(
        with_pymoo,
        "pymoo",
        slow=((1000, 100), (10_000, 5)),
        note="vectorised objective, its extra mutation switched off; genes outside the box are redrawn; "
        "it compares all trials with all parents for duplicates, O(n^2)",
    ),
    "evosax": Peer(
        with_evosax,
        "evosax",
        ("float32",),
        batched=True,
        slow=((10_000, 10),),
        note="the whole run compiled as one scan; it has no box: clipped here; "
        "it draws partners with O(n) work for one individual, O(n^2)",
    ),
    "EvoX eager": Peer(
        with_evox_eager,
        "evox",
        ("float32",),
        batched=True,
        note="a Python loop over steps; partners may coincide with each other and with the target; clipped",
    ),
    "EvoX compiled": Peer(
        with_evox_compiled, "evox", ("float32",), batched=True, note="the same, each step through torch.compile"
    ),
    "NumPy": Peer(
        with_numpy,
        "numpy",
        ("float32", "float64"),
        note="written here, vectorised over the population, one run at a time; clipped to the box",
    ),
    "NumPy stacked": Peer(
        with_numpy_stacked,
        "numpy",
        ("float32", "float64"),
        batched=True,
        stacked=True,
        note="the same with the individuals of all runs in one array",
    ),
}


# --- measuring, in a process of its own ------------------------------------------------------------------------------


def measure(job: Job, spawned: float) -> Row:
    """Time a cold run of the job and then warm ones. `spawned` is when this process was started.

    cpu, wall: seconds of the fastest warm run. best: the median best value.
    first: seconds from `spawned` to the end of the cold run. compile: what that run took longer than a warm one.
    others: cores that other processes kept busy during the warm runs.
    """
    harness.bind_to_cores(job.cores)
    run = PEERS[job.peer].build(job)
    before = time.time()
    timed(job, run, 0)
    first = time.time()
    others = others_seconds()
    repeats = [timed(job, run, seed) for seed in range(1, REPEATS + 1)]
    others = (others_seconds() - others) / (time.time() - first)
    wall = min(repeat["wall"] for repeat in repeats)
    return {
        **asdict(job),
        "cpu": min(repeat["cpu"] for repeat in repeats),
        "wall": wall,
        "best": statistics.median(value for repeat in repeats for value in repeat["best"]),
        "first": first - spawned,
        "compile": max(first - before - wall, 0.0),
        "others": max(others, 0.0),
        "version": version(PEERS[job.peer].module),
    }


def timed(job: Job, run: Run, seed: int) -> Row:
    """CPU and wall seconds of one call of `run`, and the best value of each of its runs."""
    import numpy as np

    wall, cpu = time.perf_counter(), time.process_time()
    best, evaluated = run(seed)
    best = np.ravel(np.asarray(best)).tolist()
    seconds = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    if evaluated != job.evaluations or len(best) != job.runs:
        wanted = f"{job.evaluations} in {job.runs} were asked for"
        raise RuntimeError(f"{job.peer} made {evaluated} evaluations in {len(best)} runs; {wanted}.")
    return {**seconds, "best": best}


def others_seconds() -> float:
    """CPU seconds of all other processes since the machine started; meaningless where the system does not tell."""
    try:
        user, nice, system, _idle, _wait, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK") - time.process_time()


def version(module: str) -> str:
    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        return getattr(importlib.import_module(module), "__version__", "unknown")


# A first result is to be a cold one, also when this is run twice.
NO_CACHES = {"JAX_ENABLE_COMPILATION_CACHE": "false", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


def in_process(job: Job) -> Row:
    """Measure a job in a fresh process and return its numbers, or the job with the error that ended it."""
    environment = {**os.environ, **harness.limit_threads(job.cores), "JAX_PLATFORMS": "cpu", **NO_CACHES}
    order = json.dumps({"job": asdict(job), "spawned": time.time()})
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", order]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {**asdict(job), "error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


# --- which cells, and the tables -------------------------------------------------------------------------------------


def single_jobs(names: Sequence[str], quick: bool) -> Iterator[Job]:
    """The first table: one run on Rastrigin, one core."""
    for n in POPULATIONS:
        for name in names:
            if PEERS[name].stacked:
                continue
            generations = min(50 if quick else 500, dict(PEERS[name].slow).get(n, 500))
            for dtype in PEERS[name].dtypes:
                yield Job(name, "rastrigin", n, generations, dtype)


def ensemble_jobs(names: Sequence[str], quick: bool, cores: int) -> Iterator[Job]:
    """The second table: many runs on Goldstein-Price, on one core and, where one call spreads over them, on all."""
    generations = 20 if quick else 100
    for name in names:
        for dtype in PEERS[name].dtypes:
            runs = ENSEMBLE if PEERS[name].batched else SAMPLE
            job = Job(name, "goldstein_price", 64, generations, dtype, runs=runs)
            yield job
            if PEERS[name].batched and PEERS[name].module != "numpy" and cores > 1:
                yield replace(job, cores=cores)


def run_all(jobs: Iterable[Job]) -> list[Row]:
    """Measure one job after another, telling of each on the error stream."""
    rows = []
    for job in jobs:
        began = time.time()
        rows.append(in_process(job))
        place = f"{job.peer}, {job.task}, {job.dtype}, n = {job.population}, cores = {job.cores}"
        print(f"measured {place} in {time.time() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def milliseconds(row: Row) -> float:
    """CPU time of one generation."""
    return 1e3 * row["cpu"] / row["generations"]


def ensemble_seconds(row: Row) -> float:
    """Wall time of the whole ensemble, scaled up where only some of its runs were made."""
    return row["wall"] * ENSEMBLE / row["runs"]


def ratio(row: Row, rows: Sequence[Row], cost: Callable[[Row], float]) -> str:
    """How many times galapax's cost a row has, in the same cell and precision; `-` without galapax."""
    same = ("task", "population", "dtype", "cores")
    ours = [r for r in rows if r["peer"] == "galapax" and all(r[key] == row[key] for key in same)]
    return f"{cost(row) / cost(ours[0]):.2f}" if ours else "-"


COLD = ("first result s", "compile s")


def single_table(rows: Sequence[Row]) -> str:
    head = ("n", "precision", "library", "generations", "ms/generation", "x galapax", "best", *COLD)
    lines = [
        (
            str(row["population"]),
            row["dtype"],
            row["peer"],
            str(row["generations"]),
            f"{milliseconds(row):.3f}",
            ratio(row, rows, milliseconds),
            f"{row['best']:.1f}",
            f"{row['first']:.1f}",
            f"{row['compile']:.1f}",
        )
        for row in sorted(rows, key=lambda row: (row["population"], row["dtype"], milliseconds(row)))
    ]
    return aligned(head, lines)


def ensemble_table(rows: Sequence[Row]) -> str:
    head = ("precision", "cores", "library", "runs", "wall s", "CPU s", "x galapax", "median best", *COLD, "others")
    lines = [
        (
            row["dtype"],
            str(row["cores"]),
            row["peer"],
            str(row["runs"]) if row["runs"] == ENSEMBLE else f"{row['runs']} x {ENSEMBLE // row['runs']}",
            f"{ensemble_seconds(row):.3f}",
            f"{row['cpu'] * ENSEMBLE / row['runs']:.3f}",
            ratio(row, rows, ensemble_seconds),
            f"{row['best']:.4f}",
            f"{row['first']:.1f}",
            f"{row['compile']:.1f}",
            f"{row['others']:.1f}",
        )
        for row in sorted(rows, key=lambda row: (row["dtype"], row["cores"], ensemble_seconds(row)))
    ]
    return aligned(head, lines)


def aligned(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in a terminal too."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (head, rule, *lines)
    )


def verdicts(rows: Sequence[Row], cost: Callable[[Row], float]) -> Iterator[str]:
    """Per cell and precision: who is fastest, and by what factor galapax wins or loses."""
    for cell in dict.fromkeys((row["population"], row["dtype"], row["cores"]) for row in rows):
        rivals = [row for row in rows if (row["population"], row["dtype"], row["cores"]) == cell]
        ours = next((row for row in rivals if row["peer"] == "galapax"), None)
        best = min((row for row in rivals if row["peer"] != "galapax"), key=cost, default=None)
        place = f"n = {cell[0]}, {cell[1]}, {cell[2]} core{'s' if cell[2] > 1 else ''}"
        if ours and best:
            factor = cost(best) / cost(ours)
            outcome = f"wins by {factor:.2f}x against" if factor >= 1 else f"loses by {1 / factor:.2f}x to"
            yield f"{place}: galapax {outcome} the fastest peer, {best['peer']}."
        elif best:
            yield f"{place}: the fastest peer is {best['peer']}; galapax was not measured."


SINGLE_CAPTION = f"""\
DE/rand/1/bin, F = {WEIGHT}, CR = {CROSSOVER_RATE}, Rastrigin in 32 variables, one core.
  ms/generation   CPU time after compilation, best of {REPEATS}; few generations flatter, as the first only evaluates
  x galapax       the same over galapax's in the same precision; above 1, galapax is faster
  best            median over {REPEATS} seeds, to be compared at equal generations
  first result s  wall time of a cold process, imports included, to the end of its first run
  compile s       what that first run took longer than a warm one
"""

ENSEMBLE_CAPTION = f"""\
{ENSEMBLE} runs of the same on Goldstein-Price (minimum 3), 64 individuals.
  runs            {SAMPLE} x {ENSEMBLE // SAMPLE}: {SAMPLE} runs, one after another, were timed and scaled up
  wall s, CPU s   time of all {ENSEMBLE} after compilation, best of {REPEATS}
  x galapax       the wall time over galapax's in the same precision on as many cores
  others          cores that other processes kept busy meanwhile: where it is not small, the wall time is too long
"""


def report(singles: Sequence[Row], ensembles: Sequence[Row], absent: Sequence[str]) -> str:
    """Both tables with everything a reader needs to judge them."""
    failed = [row for row in (*singles, *ensembles) if "error" in row]
    singles, ensembles = ([row for row in rows if "error" not in row] for rows in (singles, ensembles))
    measured = [*singles, *ensembles]
    versions = sorted({f"{PEERS[row['peer']].module} {row['version']}" for row in measured})
    used = [name for name in PEERS if any(row["peer"] == name for row in measured)]
    sections = [
        f"CPU: {harness.name_cpu()}; Python {platform.python_version()}; {', '.join(versions)}\n",
        SINGLE_CAPTION,
        single_table(singles) + "\n",
        ENSEMBLE_CAPTION,
        ensemble_table(ensembles) + "\n",
        *[f"{name}: {PEERS[name].note}." for name in used if PEERS[name].note],
        *[f"Left out, not installed: {name}." for name in absent],
        *[f"Failed: {row['peer']}, {row['task']}, n = {row['population']}: {row['error']}" for row in failed],
        "\nOne run, CPU time per generation:",
        *verdicts(singles, milliseconds),
        f"\n{ENSEMBLE} runs, wall time:",
        *verdicts(ensembles, ensemble_seconds),
    ]
    return "\n".join(sections)


def main() -> None:
    parser = harness.make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer generations")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=list(PEERS), default=list(PEERS), help="%(choices)s"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        order = json.loads(options.measure)
        print(json.dumps(measure(Job(**order["job"]), order["spawned"])))
        return
    names = [name for name in options.only if importlib.util.find_spec(PEERS[name].module)]
    cores = len(harness.list_cores())
    singles = run_all(single_jobs(names, options.quick))
    ensembles = run_all(ensemble_jobs(names, options.quick, cores))
    print(report(singles, ensembles, [name for name in options.only if name not in names]))
    if options.json:
        options.json.write_text(
            json.dumps({"cpu": harness.name_cpu(), "single": singles, "ensemble": ensembles}, indent=1)
        )


if __name__ == "__main__":
    main()
