"""When to order, and how much: a warehouse simulated for a year under random demand.

Run it with `python examples/inventory.py`. Each call simulates one year with its own random numbers, so that the same
policy costs something else each time; `fun` and its interval are of the mean.
"""

import jax
import jax.numpy as jnp

import galapax as gx

WEEKS, LEAD_DEMAND = 52, 20.0
HOLDING, SHORTAGE, ORDER = 1.0, 20.0, 100.0  # cost of a unit for a week, of a unit that is missing, and of an order


def yearly_cost(policy, key):
    """Cost per week: below `level` order up to `level` + `lot`; it arrives a week later."""
    level, lot = policy["level"], policy["lot"]

    def week(stock, key):
        demand = LEAD_DEMAND + 6 * jax.random.normal(key)
        left = jnp.maximum(stock - demand, 0)
        missing = jnp.maximum(demand - stock, 0)
        orders = left < level
        cost = HOLDING * left + SHORTAGE * missing + ORDER * orders
        return jnp.where(orders, level + lot, left), cost

    _, costs = jax.lax.scan(week, level + lot, jax.random.split(key, WEEKS))
    return jnp.mean(costs)


if __name__ == "__main__":
    result = gx.minimize(yearly_cost, {"level": gx.real(0, 100), "lot": gx.real(0, 200)}, max_evaluations=2000)
    low, high = result.fun_interval
    print(f"order below {result.params['level']:.1f}, up to {result.params['level'] + result.params['lot']:.1f}")
    print(f"mean cost per week {result.fun:.2f} ({low:.2f} to {high:.2f})")
