"""The members of the default search that look around a minimum, or for minima: linked lines, and many descents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import galapax as gx
from galapax.algorithms.linked_lines import LinkedLines, difference_points, estimate_hessian, find_lines
from galapax.algorithms.multistart import Multistart
from galapax.core.stop import Stop

SHUFFLED = np.array([3, 0, 5, 1, 4, 2])


def chain(x):
    """Each variable shifts the best value of the next one; with two minima for each, of which one is deeper."""
    z = x[SHUFFLED] + 0.5 * jnp.concatenate([jnp.zeros(1), x[SHUFFLED][:-1]])
    return jnp.sum((z**2 - 4) ** 2 + 2 * z)


def minimum_of_chain(signs):
    """The minimum in which z has these signs."""
    z = np.where(np.asarray(signs) > 0, 1.9343, -2.0597)  # where 4 z (z^2 - 4) + 2 = 0
    x = np.zeros(len(z))
    for i in range(len(z)):
        x[SHUFFLED[i]] = z[i] - (0.5 * x[SHUFFLED[i - 1]] if i else 0)
    return x


def follow_once(fun, start, **options):
    box = [(-8.0, 8.0)] * len(start)
    return gx.minimize(fun, box, LinkedLines(), x0=start, restarts=None, polish=False, **options)


@pytest.mark.parametrize("constant", [0.0, -300.0])
def test_linked_lines_lead_to_the_best_minimum_of_a_chain(constant):
    """From the one in which four of six variables are wrong, whatever their order; along the axes none is better."""
    start = minimum_of_chain([1, -1, 1, 1, 1, -1])
    least = float(chain(minimum_of_chain([-1] * 6)))
    result = follow_once(lambda x: chain(x) + constant, start, seed=2)
    assert result.stop is Stop.TOLERANCE and result.nfev == LinkedLines.total_evaluations(6)
    assert result.fun - constant < least + 1.0  # the next best minimum is 7.9 above
    axes = (start + np.linspace(-8, 8, 400)[:, None, None] * np.eye(6)).reshape(-1, 6)
    on_axes = jax.vmap(chain)(axes[np.abs(axes).max(axis=1) <= 8])
    assert float(on_axes.min()) > float(chain(start)) - 1e-3


def test_linked_lines_find_nothing_at_the_best_minimum():
    result = follow_once(chain, minimum_of_chain([-1] * 6))
    assert result.stop is Stop.STALL and result.fun == pytest.approx(float(chain(minimum_of_chain([-1] * 6))), abs=1e-3)


def test_linked_lines_end_after_the_differences_where_there_is_no_minimum():
    result = follow_once(lambda x: jnp.sum(x) - x[0] ** 2, np.zeros(4))
    assert result.stop is Stop.STALL and result.nfev == 15


def test_along_a_linked_line_one_term_of_the_quadratic_changes():
    triangular = np.tril(np.random.default_rng(1).normal(size=(5, 5)) * 0.2, -1)
    triangular = np.diag(np.diag(triangular, -1), -1) + np.eye(5)  # a chain
    order = np.array([2, 4, 0, 3, 1])
    mixed = np.zeros((5, 5))
    mixed[:, order] = triangular
    lines = np.asarray(find_lines(jnp.asarray(mixed.T @ mixed)))
    effects = np.abs(lines @ mixed.T) > 1e-5  # of each line on each term
    assert 5 in [int((half.sum(axis=1) == 1).sum()) for half in (effects[:5], effects[5:])]


def test_the_hessian_is_that_of_the_values():
    matrix = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, -0.5], [0.0, -0.5, 1.0]])
    points = np.asarray(difference_points(jnp.full(3, 0.4, np.float32)), float)
    values = jnp.asarray(0.5 * np.einsum("ni,ij,nj->n", points, matrix, points))
    np.testing.assert_allclose(estimate_hessian(values, np.dtype(np.float32)), matrix, atol=0.02)


PEAKS = np.random.default_rng(4).uniform(-4, 4, (6, 5))
HEIGHTS = np.array([10.0, 8.0, 7.0, 6.0, 5.0, 4.0])


def peaks(x):
    """Six wide peaks, upside down."""
    return -jnp.max(HEIGHTS * jnp.exp(-jnp.sum((x - PEAKS) ** 2, axis=1) / 20))


def count_minima(fun, dim, **options):
    return gx.minimize(
        fun, [(-5.0, 5.0)] * dim, Multistart(), restarts=None, polish=False, max_evaluations=20_000, **options
    )


def test_descents_from_many_places_find_the_highest_peak():
    result = count_minima(peaks, 5, runs=8, seed=1)
    assert result.runs.success.all()  # most of the minima are known: not rugged
    assert (result.runs.fun < -10 + 1e-4).sum() >= 7 and np.median(result.runs.nfev) < 6000


def test_descents_on_a_rugged_function_end_soon_and_without_success():
    def rugged(x):
        return jnp.sum(x**2) + 10 * jnp.sum(jnp.cos(7 * x)) * jnp.cos(5 * jnp.sum(x))

    result = count_minima(rugged, 6, seed=1)
    assert result.stop is Stop.STALL and result.nfev < 6000


def test_descents_stay_in_the_box_and_end_at_its_corner():
    result = count_minima(lambda x: jnp.sum(x) + 0.1 * jnp.sum(x**2), 3)
    assert result.x.tolist() == [-5.0] * 3 and result.stop is Stop.TOLERANCE


def test_failed_evaluations_end_a_descent():
    result = count_minima(lambda x: jnp.where(x[0] > 0, jnp.nan, jnp.sum((x + 1) ** 2)), 3)
    assert result.fun < 1e-6
