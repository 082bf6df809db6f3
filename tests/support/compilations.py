"""Counting what XLA compiles."""

from contextlib import contextmanager

import jax
import pytest

from galapax.numerics import devices

ON_CPU = pytest.mark.skipif(not devices.on_cpu(), reason="a GPU's chunk length is part of its program")

_compiled = []


@jax.monitoring.register_event_duration_secs_listener
def _note(event, seconds, **about):
    if event.endswith("backend_compile_duration"):
        _compiled.append(about.get("fun_name", event))


@contextmanager
def compilations():
    """A list that holds, after the block, the programs which XLA compiled inside it."""
    before, found = len(_compiled), []
    yield found
    found += _compiled[before:]
