"""What several test modules share, and what keeps the suite quick and small.

Nearly all of the suite's time goes into compiling, and most of its programs run for milliseconds. So XLA is asked to
compile quickly rather than well, programs are kept on disk for as long as the session lasts, and files are given to
workers whole, the dearest first. Set GALAPAX_TESTS_XLA=full for programs as a user gets them: `make test-slow` and
`make test-gpu` do.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import jax
import pytest

import galapax as gx
from galapax.engines import programs, slices
from galapax.numerics import devices
from galapax.running import memory

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

FULL = os.environ.get("GALAPAX_TESTS_XLA") == "full"
if not FULL:
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for the processes that tests start
    jax.config.update("jax_disable_most_optimizations", True)
    # XLA ends a process whose flags it does not know, so these are given where they were tried. One part for a compiler
    # instead of many takes a sixth less work in all, and workers keep the cores busy anyway.
    if jax.__version_info__[:2] == (0, 10) and "fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
        quickly = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quickly}".strip()

if os.environ.get("GALAPAX_TESTS_PRETEND") == "accelerator":  # its defaults and programs, on a CPU
    devices.platform = lambda: "accelerator"

# the files that take longest begin, so that two workers end together
LONGEST = ["contract", "minimize", "several", "minimax", "engines_agree", "plots", "coevolution", "examples", "live",
           "checkpoint", "workers", "blackbox"]  # fmt: skip

# more of the same at greater cost: they run with the slow tests. Parts of "file::test[parameters]".
DEAR = (
    "constraints::test_float32_finds_a_feasible_point", "constraints::test_runs_of_an_ensemble_repair",
    "convergence::test_an_optimum_in_a_corner_is_reached[float32-True]",
    "convergence::test_an_optimum_in_a_corner_is_reached[float64-False]",
    "convergence::test_de_beats_random_search_with_nearly_every_seed[g06]",
    "convergence::test_de_beats_random_search_with_nearly_every_seed[rastrigin]",
    "convergence::test_de_reaches_the_optimum[rastrigin]", "convergence::test_de_reaches_the_optimum[sphere]",
    "convergence::test_one_function_is_minimised_in_either_precision",
    "dominance::test_counts_and_ranks_agree_with_the_definition[2 objectives, random]",
    "dominance::test_counts_and_ranks_agree_with_the_definition[3 objectives, feasible",
    "lshade::test_an_ensemble_is_its_single_runs_while_the_population_shrinks[lsrtde]",
    "lshade::test_an_ensemble_is_its_single_runs_while_the_population_shrinks[jso]",
    "lshade::test_nothing_that_is_said_of_rows_not_in_use_matters[NaN",
    "lshade::test_nfev_and_history_count_what_was_in_use[lsrtde]",
    "nsga2::test_npga_moves_towards_the_front", "nsga2::test_the_sharing_moea_reaches_the_front",
    "nsga2::test_no_survivor_on_the_front_is_dominated_by_a_parent_that_went[SharingMOEA]",
    "polish::test_an_ill_conditioned_ellipsoid", "polish::test_rosenbrock_in_many_variables",
    "polish::test_near_answers_of_constrained_problems_come_to_nine_digits[g05]",
    "polish::test_near_answers_of_constrained_problems_come_to_nine_digits[g10]",
    "polish::test_it_is_never_worse_and_stays_in_the_box[floor]",
    "polish::test_it_is_never_worse_and_stays_in_the_box[largest]",
    "polish::test_it_is_never_worse_and_stays_in_the_box[rastrigin]",
    "random::test_no_bit_goes_with_a_bit_of_the_next_word[siblings]",
    "replay::test_a_run_of_an_ensemble_is_made_again_to_the_bit[nsga2",
    "cluster::test_a_point_that_kills_every_worker", "cluster::test_a_cluster_makes_the_run",
    "workers::test_processes_that_we_make_may_die_or_hang[standard library]",
    "workers::test_constraints_hold_asynchronously", "workers::test_a_script_without_a_guard",
    "checkpoint::test_sigterm", "storage::test_a_full_disk_costs_the_new_run_and_not_the_old[700]",
    "storage::test_a_full_disk_costs_the_new_run_and_not_the_old[60000]",
    "exchange::test_it_spends_a_tenth", "exchange::test_several_runs_come", "exchange::test_a_run_is_made_again",
    "constraints::test_it_is_the_default", "coevolution::test_chunks_of_known_length",
    "checkpoint::test_every_algorithm_goes_on_as_if_it_had_never_stopped[f", "checkpoint::test_a_full_disk",
    "checkpoint::test_every_algorithm_goes_on_as_if_it_had_never_stopped[p",
    "dominance::test_any_nine_points", "optimizer::test_with_a_problem_candidates_are_moved",
    "programs::test_a_game_with_other_numbers", "minimax::test_the_worst_case_is_that_of_a_grid",
    "many_objectives::test_a_spherical_front", "restarts::test_a_black_box_restarts",
    "several::test_compiled_runs_of_an_ensemble_reach", "workers::test_a_pool_that_was_given_and_broke",
    "lshade::test_the_archive_fills", "lshade::test_a_rate_that_only_worked", "nsga2::test_niches_are_counted",
    "nsga2::test_the_forms_for_a_cpu_and_for_a_gpu_make_the_same_run[NSGA2-blending",
    "nsga2::test_the_forms_for_a_cpu_and_for_a_gpu_make_the_same_run[SharingMOEA",
    "blackbox::test_resample_puts_other_points_in_place_of_failed_ones_and_counts_them[min-max",
    "blackbox::test_worst_counts_failures_and_never_chooses_them[min-max",
    "polish::test_constraints_bind_in_the_end", "constraints::test_a_search_at_rest",
    "constraints::test_while_relaxed",
    "engines_agree::test_a_black_box_is_searched_at_the_same_points[nsga3-several, equalities]",
    "engines_agree::test_a_black_box_is_searched_at_the_same_points[lshade-equalities]",
    "several::test_the_same_seed_gives_the_same_run_and_compiles_nothing_again[nsga3]",
    "several::test_every_front_is_sound[blending", "many_objectives::test_constraints_come_first[MOEAD",
    "many_objectives::test_given_directions_are_followed", "replay::test_a_sweep_s_runs",
    "gagpu::test_compare_does_what", "minimax::test_the_saddle_off_the_centre", "exchange::test_never_worse",
    "workers::test_constraints_and_several_objectives_come",
    "programs::test_a_closed_over_array_is_freed[array_in_a_game",
    "fronts::test_float32_is_what_the_runs", "nsga2::test_no_survivor_on_the_front_is_dominated",
    "compare::test_every_pair_is_run_and_named", "minimax::test_an_infinite_value",
)  # fmt: skip

# tracing makes millions of objects that live; looking through them all again and again for garbage took a tenth of it
gc.collect()
gc.freeze()
gc.set_threshold(100_000, 20, 50)

MEMORY = 1.0 * 2**30  # a process that holds more forgets its programs when a module ends


def pytest_configure(config):
    """One folder of compiled programs for the workers of a session and the processes that tests start."""
    if hasattr(config, "workerinput"):  # a worker: the folder is in its environment, and JAX has read it
        return
    folder = tempfile.mkdtemp(prefix="galapax-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    kept = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in kept.items():
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)


def pytest_collection_modifyitems(items):
    def rank(item):
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=rank)  # stable
    for item in items:
        if any(f"{item.path.stem.removeprefix('test_')}::{item.name}".startswith(dear) for dear in DEAR):
            item.add_marker(pytest.mark.slow)


def resident():
    """Bytes of memory that this process holds; 0 where that cannot be told."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def with_test_modules():
    """The environment of a process that finds the tests' own modules."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def forget_programs():
    """Drop every compiled program, JAX's and galapax's own."""
    programs.clear()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(autouse=True, scope="module")
def _no_polish(request):
    """Nearly all tests are about the evolution, and the polish is a program more for each of them to compile."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.stem not in ("test_polish", "test_examples", "test_exchange"):
            patch.setitem(gx.minimize.__wrapped__.__kwdefaults__, "polish", False)
            patch.setitem(gx.minimax.__wrapped__.__kwdefaults__, "polish", False)
        yield


@pytest.fixture
def well_compiled():
    """For a test whose programs run longer than they are compiled."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def ctrl_c_raises():
    """Ctrl-C as in a terminal: a shell that starts pytest in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="module")
def _little_memory():
    yield
    if resident() > MEMORY:
        forget_programs()


@pytest.fixture
def in_batches(monkeypatch):
    """in_batches(3): from now on memory holds three runs at once, a slice each."""

    def limit(runs):
        monkeypatch.setattr(slices, "MOST", 1)
        monkeypatch.setattr(memory, "runs_that_fit", lambda *about: runs)

    return limit


class Clock:
    """Time that passes when somebody looks, a hundredth of a second each time, and when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 0.01
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """What time.perf_counter reads during the test, however busy the machine is."""
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


@pytest.fixture(scope="module")
def browser():
    """A real Chromium, driven by playwright; without one the test is skipped, or fails if the environment asks so."""

    def missing(what):
        if os.environ.get("GALAPAX_BROWSER_TESTS") == "required":
            pytest.fail(f"GALAPAX_BROWSER_TESTS=required, but there is no {what}.")
        pytest.skip(f"needs {what}")

    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("playwright")
    if CHROMIUM is None:
        missing("Chromium")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield made
        made.close()
