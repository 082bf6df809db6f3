"""What tells one instance of a BBOB function from another: where its optimum lies, how it is rotated, where it peaks.

Hansen, Finck, Ros & Auger (2009), Real-parameter black-box optimization benchmarking 2009: noiseless functions
definitions, INRIA RR-6829. Every number comes from one small generator, so that the instances are the same everywhere:
Park & Miller's minimal standard (1988) with the shuffle of Bays & Durham (1976). All of it is made once, in float64.
"""

from __future__ import annotations

import numpy as np

MODULUS = 2**31 - 1  # of Park & Miller's generator
BIN = 2**26 + 1  # a number divided by it is its place in a shuffle table of 32
SECOND = 1_000_000  # added to the seed for the second rotation
SHARED_SEEDS = {4: 3, 18: 17}  # functions that differ from another in their formula alone


def seed_of(function: int, instance: int) -> int:
    return SHARED_SEEDS.get(function, function) + 10_000 * instance


def uniform(count: int, seed: int) -> np.ndarray:
    """(count,) numbers between 0 and 1."""
    state = max(abs(seed), 1)
    table = [0] * 32
    for i in reversed(range(40)):  # eight steps to warm up, then the table
        state = 16807 * state % MODULUS
        if i < 32:
            table[i] = state
    numbers, out = table[0], np.empty(count)
    for i in range(count):
        state = 16807 * state % MODULUS
        place = numbers // BIN
        numbers, table[place] = table[place], state
        out[i] = numbers
    return np.maximum(out / MODULUS, 1e-99)


def gauss(count: int, seed: int) -> np.ndarray:
    """(count,) standard normal numbers, by Box & Muller from the first and the second half of twice as many."""
    radius, angle = uniform(2 * count, seed).reshape(2, count)
    out = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    return np.where(out == 0.0, 1e-99, out)


def optimal_value(function: int, instance: int) -> float:
    """f_opt: Cauchy distributed, two decimals, at most 1000 in size."""
    seed = seed_of(function, instance)
    ratio = 100.0 * gauss(1, seed)[0] / gauss(1, seed + 1)[0]
    return float(np.clip(np.round(100.0 * ratio) / 100.0, -1000.0, 1000.0))


def optimum(seed: int, dim: int) -> np.ndarray:
    """x_opt (dim,), in [-4, 4] with four decimals and never 0."""
    x = 8.0 * np.floor(1e4 * uniform(dim, seed)) / 1e4 - 4.0
    return np.where(x == 0.0, -1e-5, x)


def rotation(seed: int, dim: int) -> np.ndarray:
    """R (dim, dim): normal numbers column by column, each column made orthogonal to those before it."""
    columns = gauss(dim * dim, seed).reshape(dim, dim)
    for i in range(dim):
        for j in range(i):
            columns[i] -= columns[i] @ columns[j] * columns[j]
        columns[i] /= np.sqrt(columns[i] @ columns[i])
    return columns.T.copy()


def both_rotations(seed: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The two rotations of an instance; which of them the report calls R and which Q depends on the function."""
    return rotation(seed + SECOND, dim), rotation(seed, dim)


def slope(dim: int) -> np.ndarray:
    """(dim,) from 0 to 1 in equal steps: (i - 1) / (D - 1) in the report."""
    return np.linspace(0.0, 1.0, dim)


def conditioning(alpha: float, dim: int) -> np.ndarray:
    """(dim,) the diagonal of Lambda^alpha in the report."""
    return alpha ** (0.5 * slope(dim))


# --- what the formulas read: x_opt first, then whatever else the function has -----------------------------------------


def shifted(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    return (optimum(seed, dim),)


def shifted_oddly(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f4: the first, third, ... coordinate of x_opt is positive."""
    x = optimum(seed, dim)
    x[::2] = np.abs(x[::2])
    return (x,)


def corner(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f5: x_opt is a corner of the box; the slope along each coordinate."""
    signs = np.sign(optimum(seed, dim))
    return 5.0 * signs, signs, 10.0 ** slope(dim)


def shrunk(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f8: three quarters of the usual x_opt."""
    return (0.75 * optimum(seed, dim),)


def rotated(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f10, f11, f14: x_opt and R."""
    return optimum(seed, dim), rotation(seed + SECOND, dim)


def rotated_cigar(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f12: as `rotated`, with an x_opt from R's seed."""
    return optimum(seed + SECOND, dim), rotation(seed + SECOND, dim)


def rotated_valley(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f9, f19: x_opt is where R x, scaled, is (0.5, ..., 0.5); R."""
    r, scale = rotation(seed, dim), max(1.0, np.sqrt(dim) / 8.0)
    return r.T @ np.full(dim, 0.5 / scale), r


def stretched(alpha: float, seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f6, f13, f23: x_opt and Q Lambda R."""
    q, r = both_rotations(seed, dim)
    return optimum(seed, dim), q * conditioning(alpha, dim) @ r


def steps(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f7: x_opt, Lambda R, and Q."""
    q, r = both_rotations(seed, dim)
    return optimum(seed, dim), conditioning(10.0, dim)[:, None] * r, q


def twice_rotated(alpha: float, seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f15, f16: x_opt, R, and R Lambda Q."""
    r, q = both_rotations(seed, dim)
    return optimum(seed, dim), r, r * conditioning(alpha, dim) @ q


def rotated_stretched(alpha: float, seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f17, f18: x_opt, R, and Lambda Q."""
    r, q = both_rotations(seed, dim)
    return optimum(seed, dim), r, conditioning(alpha, dim)[:, None] * q


def schwefel(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f20: x_opt, and the signs of its coordinates.

    4.2096874633 is the report's number and pycma's; COCO's code ends in 37, which changes values by 1e-10 of theirs,
    near the optimum by 1e-8.
    """
    signs = np.where(uniform(dim, seed) < 0.5, -1.0, 1.0)
    return 0.5 * 4.2096874633 * signs, signs


def lunacek(seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f24: x_opt, the signs of its coordinates, and Q Lambda R."""
    signs, (q, r) = np.sign(gauss(dim, seed)), both_rotations(seed, dim)
    return 1.25 * signs, signs, q * conditioning(100.0, dim) @ r


def peaks(count: int, reach: float, first: float, seed: int, dim: int) -> tuple[np.ndarray, ...]:
    """f21, f22: x_opt, R, the widths of its peak; then of all other peaks the distance from y = R (x - x_opt), as
    coefficients of y^2 and y and what is added, and the heights.

    reach: places are uniform in [-reach, reach]^dim, that of the optimum in 0.8 of it.
    first: squared axis ratio of the optimum's peak; the others' go up to 1e6 in random order, as do the axes.
    """
    r = rotation(seed, dim)
    places = reach * (2.0 * uniform(count * dim, seed).reshape(count, dim) - 1.0)
    places[0] *= 0.8
    away = (places - places[0]) @ r.T
    alphas = 1e6 ** slope(count - 1)[np.argsort(uniform(count - 1, seed))]
    widths = np.empty((count, dim))
    for i, alpha in enumerate([first, *alphas]):
        order = np.argsort(uniform(dim, seed + 1000 * i))
        widths[i] = conditioning(alpha, dim)[order] / alpha**0.25 / (2.0 * dim)
    terms = np.concatenate([widths, -2.0 * widths * away], axis=1)
    offset = np.sum(widths * away**2, axis=1)
    return places[0], r, widths[0], terms[1:], offset[1:], np.linspace(1.1, 9.1, count - 1)
