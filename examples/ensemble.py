"""A thousand runs at once: how often does DE find the minimum, and at what cost? `python examples/ensemble.py`."""

import numpy as np

import galapax as gx

problem = gx.problems.get("ackley", dim=10)
result = gx.minimize(problem, gx.DE(population=40), generations=600, runs=1000, target=1e-6)

rate, low, high = result.runs.success_rate()
print(f"{rate:.1%} of {len(result.runs)} runs reached 1e-6 (95 % interval {low:.1%} to {high:.1%})")
print(f"generations needed: median {np.median(result.runs.nit):.0f}, at most {result.runs.nit.max()}")
print(f"evaluations per success: {result.runs.ert():.0f}")

slowest = int(result.runs.number[result.runs.nit.argmax()])
again = result.run(slowest)  # one run of the thousand, alone, with its whole history
print(f"run {slowest} again: {again.nit} generations, {again.fun:.2e}")
