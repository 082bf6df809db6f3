"""A concrete mix: cheap against low in carbon dioxide, strong and workable enough, and fractions that add up to 1.

Run it with `galapax solve examples/blend.py --generations 300 --out runs/concrete`, or as a program:
`python examples/blend.py`. Prices, emissions and the formulas of strength and flow are invented, though of a plausible
size: put your own laboratory's in their place.
"""

import jax.numpy as jnp
import numpy as np

import galapax as gx

# of cement, fly ash, slag, water, plasticiser, sand and gravel
PRICE = np.array([110.0, 60.0, 150.0, 1.0, 2500.0, 14.0, 12.0])  # per tonne of it
CARBON = np.array([900.0, 25.0, 130.0, 0.5, 1900.0, 6.0, 5.0])  # kg per tonne of it


def cost_and_carbon(mix):
    """Both of a tonne of concrete; `mix` holds all seven mass fractions."""
    return jnp.stack([jnp.sum(PRICE * mix), jnp.sum(CARBON * mix)])


def strength(mix):
    """MPa after 28 days, by the ratio of water to what binds."""
    cement, ash, slag, water, *_ = mix
    return 120 / 8 ** (water / (cement + 0.3 * ash + 0.8 * slag))


def limits(mix):
    """Each entry must be at most 0."""
    cement, ash, slag, water, plasticiser, sand, gravel = mix
    binder = cement + ash + slag
    flow = water * (1 + 25 * plasticiser / binder)  # plasticiser stands in for water
    return jnp.stack(
        [
            40 - strength(mix),
            0.066 + 0.04 * sand - flow,
            ash - 0.25 * binder,
            slag - 0.6 * binder,
            plasticiser - 0.01 * binder,
            0.35 * (sand + gravel) - sand,
            sand - 0.5 * (sand + gravel),
        ]
    )


problem = gx.mixture(
    cost_and_carbon,
    [(0.04, 0.25), (0.0, 0.08), (0.0, 0.12), (0.055, 0.1), (0.0, 0.003), (0.2, 0.45), (0.3, 0.6)],
    balance="gravel",  # what the others leave
    ineq=limits,
    derived={"strength": strength},
    name="concrete",
    title="Concrete: cost against carbon dioxide",
    variables=["cement", "fly ash", "slag", "water", "plasticiser", "sand", "gravel"],
    objectives=["cost", "carbon dioxide"],
    constraint_names=[
        "strength >= 40 MPa",
        "flow",
        "fly ash <= 25 % of binder",
        "slag <= 60 % of binder",
        "plasticiser <= 1 % of binder",
        "sand >= 35 % of aggregate",
        "sand <= 50 % of aggregate",
    ],
    units={"cost": "per t", "carbon dioxide": "kg/t", "strength": "MPa"},
    reference_point=(35.0, 150.0),
)

if __name__ == "__main__":
    result = gx.minimize(problem, "nsga2", generations=300)
    print(f"{len(result.F)} mixes on the front, {result.message}")
    ends = {"cheapest": result.F[:, 0].argmin(), "cleanest": result.F[:, 1].argmin(), "knee": result.choose("knee")}
    for name, row in ends.items():
        mix = np.append(result.X[row], result.derived["gravel"][row])
        parts = ", ".join(
            f"{part} {share:.1%}" for part, share in zip([*problem.variable_names(), "gravel"], mix, strict=True)
        )
        print(f"{name}: cost {result.F[row, 0]:.1f} per t, {result.F[row, 1]:.0f} kg CO2 per t: {parts}")
