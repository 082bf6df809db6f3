"""The x whose worst case is least: known answers, NumPy grids, and a worst case that does not believe the search."""

import json
from contextlib import contextmanager
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import galapax as gx
from galapax import minimax as _  # noqa: F401 (the function; its module is fetched below)
from galapax import random
from galapax.algorithm import Shape, Shared
from galapax.cli import app
from galapax.engines.loop import INTERLUDE
from galapax.evaluate import trace_game
from galapax.minimax import Arena
from galapax.problem import Bounds
from galapax.problems import get
