"""A generation of the rivals of co-evolution in NumPy, one row at a time."""

import numpy as np

from galapax.numerics import random


def breed(algorithm, key, y, low, high):
    """Trials of DE/rand/1/bin with bounced genes for the rows of y, one gene at a time, on the library's words."""
    key_mutate, key_cross, key_repair = random.split(key, 3)
    key_gene, key_forced = random.split(key_cross)
    n, d = y.shape
    words = [np.asarray(random.bits(k, s)).tolist() for k, s in ((key_mutate, (3, n)), (key_gene, (n, d)))]
    forced, shares = (
        np.asarray(random.bits(key_forced, (n,))).tolist(),
        np.asarray(random.uniform(key_repair, (n, d), "float32"), np.float64),
    )
    trials = y.copy()
    for i in range(n):
        left = [j for j in range(n) if j != i]
        base, plus, minus = (y[left.pop(row[i] * len(left) >> 32)] for row in words[0])
        for g in range(d):
            if words[1][i][g] >> 8 < round(algorithm.crossover_rate * 2**24) or g == forced[i] * d >> 32:
                gene = base[g] + algorithm.weight * (plus[g] - minus[g])
                wall = low[g] if gene < low[g] else high[g]
                trials[i, g] = gene if low[g] <= gene <= high[g] else wall + shares[i, g] * (y[i, g] - wall)
    return trials


def evolve(algorithm, key, y, low, high, value):
    """y after its generations of a cycle, each row kept unless its trial's value is at least as large; and values."""
    y, own = y.copy(), [value(row) for row in y]
    for generation in range(algorithm.y_generations):
        for i, trial in enumerate(breed(algorithm, random.fold_in(key, generation), y, low, high)):
            new = value(trial)
            if new >= own[i]:
                y[i], own[i] = trial, new
    return y, np.array(own)
