"""Objectives that worker processes can import: what a simulator does on a good day and on a bad one."""

import os
import time

import numpy as np

LOWER, UPPER = -2.0, 3.0  # of each variable; the optimum, 1, is not in the middle


def bowl(x):
    return float(((x - 1.0) ** 2).sum())


def late_at_random(x):
    """Answers in another order than asked."""
    time.sleep(0.02 * float(np.abs(np.sin(1e3 * x.sum()))))
    return bowl(x)


def dies(x):
    if x[0] > 2.0:
        os._exit(3)
    return bowl(x)


def exits_regularly(x):
    """As STOP does in Fortran."""
    if x[0] > 2.0:
        os._exit(0)
    return bowl(x)


def exit_if_exists(file):
    """An initializer: processes that start once the file is there end at once."""
    if os.path.exists(file):
        os._exit(1)


class Sabotage:
    """Leaves a file and ends its process, at points beyond 2."""

    def __init__(self, file):
        self.file = str(file)

    def __call__(self, x):
        if x[0] > 2.0:
            open(self.file, "w").close()
            os._exit(1)
        return bowl(x)


def dies_or_hangs(x):
    if x[2] < 0.5:
        time.sleep(600.0)
    return dies(x)


def raises(x):
    if x[0] > 2.0:
        raise ValueError("no convergence")
    return bowl(x)


def platform(x):
    """Which JAX a worker has, as an error."""
    import jax

    raise RuntimeError(f"{os.environ.get('JAX_PLATFORMS')} {jax.default_backend()}")


def simulate(x):
    """Objective and constraints of one run of a simulator."""
    return {"fun": bowl(x), "ineq": [x[0] - 0.5, x[1] - 2.5], "eq": x[2] - 0.25}


class Counted:
    """Leaves a file a call, so that calls in other processes are counted, too."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, x):
        with open(os.path.join(self.folder, f"{os.getpid()}-{time.monotonic_ns()}"), "w") as file:
            file.write(repr(x.tolist()))
        return bowl(x)

    @property
    def calls(self):
        return len(os.listdir(self.folder))


class Loaded:
    """Leaves a file each time that it is unpickled."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __setstate__(self, state):
        self.__dict__ = state
        with open(os.path.join(self.folder, f"{os.getpid()}-{time.monotonic_ns()}"), "w"):
            pass

    def __call__(self, x):
        return bowl(x)
