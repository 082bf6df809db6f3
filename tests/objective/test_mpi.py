"""Points evaluated by the processes of an MPI job."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import galapax as gx

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

JOB = """
import time
import numpy as np
import galapax as gx

def moody(x):
    time.sleep(0.002)
    if x[0] > 0.8:
        raise RuntimeError("no mesh")
    return float(((x - 0.3) ** 2).sum())

if __name__ == "__main__":
    from mpi4py.futures import MPIPoolExecutor

    options = {"population": 12, "generations": 5, "seed": 3}
    with MPIPoolExecutor() as pool:
        result = gx.minimize(moody, [(-1.0, 1.0)] * 2, "de", workers=pool, **options)
        front = gx.minimize(lambda x: [x[0], 1 - x[0]], [(0.0, 1.0)], "nsga2", workers=pool, **options)
    here = gx.minimize(moody, [(-1.0, 1.0)] * 2, "de", blackbox=True, **options)
    assert np.array_equal(result.x, here.x) and result.n_failed == here.n_failed > 0
    assert "no mesh" in result.failures[0].error
    print("same", len(front.F) > 0)
"""


SILENT_JOB = """
import time
import galapax as gx

def hangs_later(x):
    if x[0] > 0.8:
        time.sleep(600.0)
    return float(((x - 0.3) ** 2).sum())

if __name__ == "__main__":
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor

    options = {"population": 12, "generations": 50, "seed": 3}
    result = gx.minimize(hangs_later, [(-1.0, 1.0)] * 2, "de", **options,
                         workers=gx.Workers(MPIPoolExecutor(), workers_timeout=5))
    print(result.stop, result.nfev > 0, "no worker has answered for 5 s" in result.message, flush=True)
    MPI.COMM_WORLD.Abort(0)  # else mpi4py waits for its workers
"""


def run_job(tmp_path, job):
    """What an MPI job of three processes prints."""
    script = tmp_path / "optimise.py"
    script.write_text(job)
    found = {"PYTHONPATH": str(Path(gx.__file__).parents[1]), "JAX_PLATFORMS": "cpu"}
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    crowded = {"OMPI_MCA_rmaps_base_oversubscribe": "1"}  # more processes than cores
    command = ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", str(script)]
    environment = os.environ | found | allowed | crowded
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="there is no mpiexec here")
def test_an_mpi_job_makes_the_run_that_this_process_makes(tmp_path):
    ended = run_job(tmp_path, JOB)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "same True\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpiexec") is None, reason="there is no mpiexec here")
def test_an_mpi_job_whose_workers_do_not_answer_ends(tmp_path):
    ended = run_job(tmp_path, SILENT_JOB)
    assert "workers True True" in ended.stdout, ended.stderr
