"""Min-max problems: one vector minimises what another maximises."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from galapax.core.problem import MinMaxProblem, box

FABRIS = "Fabris & Krohling (2012), Expert Systems with Applications 39(12):10324-10333"


def _cde_p1(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum(x**2 - y**2)


def cde_p1(dim: int = 100) -> MinMaxProblem:
    """P1 of Fabris & Krohling (2012), section 6.1, with `dim` variables on each side."""
    return MinMaxProblem(
        _cde_p1,
        x_bounds=box(-1.0, 1.0, dim),
        y_bounds=box(-1.0, 1.0, dim),
        name="cde_p1",
        title="Saddle: squares of x against squares of y",
        source=f"{FABRIS}, P1",
        optimum=0.0,
        solutions=np.zeros((1, 2 * dim)),
    )


RUSTEM = "Rustem & Howe (2002), Algorithms for Worst-Case Design, Princeton University Press, section 5"
JENSEN = "Jensen (2004), Metaheuristics: Computer Decision-Making, 369-384, doi:10.1007/978-1-4757-4137-7_17"
LUNG = "Lung & Dumitrescu (2011), IEEE CEC, 2601-2608, doi:10.1109/CEC.2011.5949942"


def _saddle(x: jax.Array, y: jax.Array) -> jax.Array:
    cross = x[0] * (-y[0] + y[1] + 5) + x[1] * (y[0] - y[1] + 3)
    return 5 * jnp.sum(x**2) - jnp.sum(y**2) + cross


def minmax_saddle() -> MinMaxProblem:
    """Convex in x and concave in y, with its saddle point off the centre."""
    point = np.array([[-29 / 60, -19 / 60, 1 / 12, -1 / 12]])
    title = "Saddle off the centre"
    return _minmax("minmax_saddle", title, RUSTEM, _saddle, (-5, 5, 2), (-5, 5, 2), -101 / 60, point)


def _quartic(x: jax.Array, y: jax.Array) -> jax.Array:
    return 4 * (x[0] - 2) ** 2 - 2 * y[0] ** 2 + x[0] ** 2 * y[0] - y[1] ** 2 + 2 * x[1] ** 2 * y[1]


def minmax_quartic() -> MinMaxProblem:
    """Quartic in x for the best y."""
    point = np.array([[1.695415196279133, 0.0, 0.7186081719435529, 0.0]])
    title = "Quartic against a concave opponent"
    return _minmax("minmax_quartic", title, RUSTEM, _quartic, (-5, 5, 2), (-5, 5, 2), 1.4038830201988257, point)


def _planes(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.minimum(3 - 0.2 * x[0] + 0.3 * y[0], 3 + 0.2 * x[0] - 0.1 * y[0])


def minmax_planes() -> MinMaxProblem:
    """The lower of two planes: min and max cannot be exchanged (3 against 2.5)."""
    title = "Lower of two planes, no saddle point"
    return _minmax("minmax_planes", title, JENSEN, _planes, (0, 10, 1), (0, 10, 1), 3.0, np.zeros((1, 2)))


def _damped_sine(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sin(x[0] - y[0]) / jnp.maximum(jnp.sqrt(x[0] ** 2 + y[0] ** 2), 1e-12)  # 0 at the origin


def minmax_damped_sine() -> MinMaxProblem:
    """A sine of the difference, fading outwards: no saddle point (0.0978 against -0.0978)."""
    title = "Fading sine of the difference, no saddle point"
    point = np.array([[10.0, 2.1256833085981275]])
    return _minmax(
        "minmax_damped_sine", title, JENSEN, _damped_sine, (0, 10, 1), (0, 10, 1), 0.09779430278156873, point
    )


def _damped_cosine(x: jax.Array, y: jax.Array) -> jax.Array:
    far = jnp.sqrt(x[0] ** 2 + y[0] ** 2)
    return jnp.cos(far) / (far + 10)


def minmax_damped_cosine() -> MinMaxProblem:
    """A cosine of the distance, fading outwards: no saddle point (0.0425 against -0.0420)."""
    title = "Fading cosine of the distance, no saddle point"
    point = np.array([[7.044146333751212, 10.0], [7.044146333751212, 0.0]])
    return _minmax(
        "minmax_damped_cosine", title, JENSEN, _damped_cosine, (0, 10, 1), (0, 10, 1), 0.04248811234829378, point
    )


def _multipliers(x: jax.Array, y: jax.Array) -> jax.Array:
    return (x[0] - 2) ** 2 + (x[1] - 1) ** 2 + y[0] * (x[0] ** 2 - x[1]) + y[1] * (x[0] + x[1] - 2)


def minmax_multipliers() -> MinMaxProblem:
    """A constrained problem with its multipliers as y: minimum 1 at (1, 1)."""
    title = "Constrained problem with multipliers as opponent"
    return _minmax("minmax_multipliers", title, LUNG, _multipliers, (-1, 3, 2), (0, 10, 2), 1.0, None)


def _minmax(
    name: str,
    title: str,
    source: str,
    fun: Callable[..., jax.Array],
    x: tuple[float, float, int],
    y: tuple[float, float, int],
    optimum: float,
    solutions: np.ndarray | None,
) -> MinMaxProblem:
    return MinMaxProblem(
        fun,
        x_bounds=box(*x),
        y_bounds=box(*y),
        name=name,
        title=title,
        source=source,
        optimum=optimum,
        solutions=solutions,
    )
