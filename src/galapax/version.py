"""The version, and the versions of JAX it is tested with. Both are literals: building the package imports nothing."""

import multiprocessing
import warnings

import jax

__version__ = "0.1.0"
TESTED_JAX = ("0.10", "0.11")  # minor versions, oldest first


def warn_of_untested_jax(jax_version: str = jax.__version__) -> None:
    """Warn if this version of JAX is newer than all that are tested. Workers leave it to the process that has them."""
    if multiprocessing.parent_process() is None and _parse(jax_version) > _parse(TESTED_JAX[-1]):
        warnings.warn(
            f"galapax {__version__} is tested with JAX {' and '.join(TESTED_JAX)}, and this is JAX {jax_version}. Most "
            "things should work; if something does not, update galapax, or "
            f'pip install "jax=={TESTED_JAX[-1]}.*".',
            stacklevel=3,  # the line that imports galapax
        )


def _parse(version: str) -> tuple[int, ...]:
    """Return the major and minor number."""
    return tuple(int(number) for number in version.split(".")[:2])
