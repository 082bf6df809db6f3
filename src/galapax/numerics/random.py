"""Counter-based random numbers: a draw depends on its key and position alone.

A key is a uint32 array (2,). The key of (seed, run) comes from Threefry-2x32, 13 rounds (Salmon, Moraes, Dror & Shaw
2011, SC'11, doi:10.1145/2063384.2063405); `fold_in` derives from it the key of a generation, and so on. The words of a
draw are three multiply-xorshift rounds over key and position. All is 32-bit integer arithmetic, so the bits are the
same on every device, and plain array code that XLA fuses into whatever uses it: that is why `jax.random` is not used
(its generator took more time on a CPU than the rest of a generation, and kernels of its own on a GPU).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from enum import IntEnum
from functools import partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from galapax.core.errors import InputError
from galapax.numerics import devices
from galapax.numerics.trigonometry import horner

_U32 = np.uint32
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
ERFINV_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                 -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
ERFINV_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
               0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
# sin(pi r) / r and cos(pi r) in powers of r^2 for r in [0, 1/4], fitted at Chebyshev nodes, relative error 4e-9
SINE_COEFFICIENTS = (-0.5893668625312104, 2.549796991096748, -5.167708662234951, 3.1415926489365766)
COSINE_COEFFICIENTS = (
    0.2314160538443768,
    -1.3350561237814162,
    4.058707765386778,
    -4.934802170217705,
    0.9999999999785565,
)


INTRINSIC_PREFIX = "galapax: "


def as_intrinsic(function: Callable[..., Array], name: str | None = None) -> Callable[..., Array]:
    """Mark a function as an intrinsic of the fused compiler, which has C code for it; elsewhere nothing changes.

    name: under which the compiler knows it, the function's own unless given. No function of a user can have that name.
    """

    def body(*arguments: Array) -> Array:
        return function(*arguments)

    body.__name__ = body.__qualname__ = INTRINSIC_PREFIX + (name or function.__name__)
    jitted = jax.jit(body)

    @wraps(function)
    def call(*arguments: Array) -> Array:
        return jitted(*arguments) if devices.tracing_for_fused() else function(*arguments)

    return call


class Stream(IntEnum):
    """Numbers folded into a generation's key for draws besides those of `Algorithm.step`, which uses small ones."""

    GRID = 2**31 - 1  # rounding candidates to integers and choices
    CYCLE = 2**31  # Algorithm.cycle
    EMIGRATION = 2**31 + 1  # who leaves an island
    IMMIGRATION = 2**31 + 2  # whose place a migrant takes
    RESAMPLE = 2**31 + 3  # points drawn in the place of failed ones
    NOISE = 2**31 + 4  # keys of a random objective
    SCENARIOS = 2**31 + 6  # uncertain quantities
    ESTIMATE = 2**31 + 5  # the same, of evaluations after the search


class Domain(IntEnum):
    """Second counter words of the Threefry blocks that derive keys on the host: what the first word counts."""

    RUN = 0
    SEARCH = 1
    ISLAND = 2


def root_key(seed: int) -> np.ndarray:
    """Return the root key of a seed, any whole number from 0 to 2**64 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= int(seed) < 2**64:
        shown, hint = repr(seed), ""
        if isinstance(seed, np.random.Generator):
            hint = ": draw a number from it, seed=int(rng.integers(2**32))"
        elif isinstance(seed, np.random.RandomState):
            hint = ": draw a number from it, seed=int(rng.randint(2**31))"
        elif isinstance(seed, jax.Array):
            shown, hint = "a JAX array", ": write the number that the key was made of, as in seed=7"
        raise InputError(f"seed must be a whole number from 0 to 2**64 - 1, got {shown}{hint}.")
    return np.array([int(seed) >> 32, int(seed) & 0xFFFFFFFF], _U32)


def resolve_seed(seed: int | None) -> int:
    """Return the seed, or if it is None a random one."""
    return secrets.randbits(32) if seed is None else seed


def fold_in(key: Array, number: ArrayLike) -> Array:
    """Derive the child of `key` with that number, as `jax.random.fold_in` does.

    Each word walks along a Weyl sequence and is mixed, as in SplitMix (Steele, Lea & Flood 2014): a few operations that
    XLA fuses into whatever draws with the child. A key is either folded by number or split, not both.
    """
    number = int(number) if isinstance(number, Stream) else number
    step = jnp.asarray(number, jnp.uint32) + _U32(1)
    return jnp.stack(
        [mix_word(key[..., 0] + step * _U32(0x9E3779B9)), mix_word(key[..., 1] + step * _U32(0x85EBCA6B))], axis=-1
    )


def split(key: Array, count: int = 2) -> tuple[Array, ...]:
    """Derive `count` children of `key`."""
    return tuple(fold_in(key, i) for i in range(count))


def bits(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw uint32 words of that shape."""
    if math.prod(shape) > 2**32:
        raise InputError(f"one draw gives at most 2**32 random words; shape {shape} needs more.")
    x = _positions(shape) * _U32(0x9E3779B9) + key[0]
    return random_word(x, jnp.broadcast_to(key[1], shape) if devices.tracing_for_fused() else key[1])


@partial(as_intrinsic, name="drawn_word")
def random_word(x: Array, second: Array) -> Array:
    x = (x ^ (x >> 16)) * _U32(0x21F0AAAD) + second  # between two rounds: another second word, another permutation
    x = (x ^ (x >> 15)) * _U32(0x735A2D97)
    x = (x ^ (x >> 15)) * _U32(0x846CA68B)
    return x ^ (x >> 16)


def uniform(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Draw uniform numbers in [0, 1), with 24 random bits in float32 and 53 in float64."""
    if jnp.dtype(dtype) == jnp.float64:
        high, low = (bits(child, shape) for child in split(key))
        return ((high >> 5).astype(dtype) * 2.0**26 + (low >> 6).astype(dtype)) * 2.0**-53
    return (bits(key, shape) >> 8).astype(dtype) * jnp.asarray(2.0**-24, dtype)


def bernoulli(key: Array, rate: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Draw booleans that are true with probability `rate`, to 24 bits: never at 0, always at 1."""
    threshold = jnp.round(jnp.asarray(rate, jnp.float32) * 2.0**24).astype(jnp.uint32)
    return (bits(key, shape) >> 8) < threshold


def integers(key: Array, shape: tuple[int, ...], limit: int) -> Array:
    """Draw whole numbers in [0, limit), as int32; the bias is below limit / 2**32."""
    return scale_to(bits(key, shape), limit)


def scale_to(words: Array, limit: int | Array) -> Array:
    """Map uint32 words evenly onto [0, limit): the high half of the product words * limit, as int32.

    limit: a number, or an array of whole numbers that only the device knows, one for each word or for all.
    """
    factor = _U32(limit) if isinstance(limit, int) else limit.astype(jnp.uint32)
    if devices.tracing_for_fused():
        factor = jnp.broadcast_to(factor, words.shape)
    elif isinstance(limit, int) and limit < 2**16:
        high, low = words >> 16, words & 0xFFFF
        return ((high * factor + ((low * factor) >> 16)) >> 16).astype(jnp.int32)
    return high_product(words, factor).astype(jnp.int32)


@as_intrinsic
def high_product(words: Array, limit: Array) -> Array:
    """32 x 32 -> upper 32 bits by halves, since 64-bit integers are switched off in a float32 run."""
    high, low = words >> 16, words & 0xFFFF
    limit_high, limit_low = limit >> _U32(16), limit & _U32(0xFFFF)
    middle = high * limit_low + ((low * limit_low) >> 16)
    carry = (middle & 0xFFFF) + low * limit_high
    return high * limit_high + (middle >> 16) + (carry >> 16)


def normal(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Draw standard normal numbers, by the inverse distribution function to seven digits; the tails reach 6.2.

    Giles (2010), Approximating the erfinv function, table 5 (single precision). XLA's own takes a third longer.
    """
    return normal_number(bits(key, shape)).astype(dtype)


@as_intrinsic
def normal_number(words: Array) -> Array:
    p, negative = _tail_probability(words)
    w = -jnp.log(p * (2 - p))
    z = jnp.where(w < 5, horner(ERFINV_CENTRE, w - 2.5), horner(ERFINV_TAIL, jnp.sqrt(w) - 3)) * (1 - p)
    return jnp.where(negative, -z, z) * math.sqrt(2)


def cauchy(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Draw standard Cauchy numbers, 1 / tan(pi p / 2) for the tail probability p, with sine and cosine as
    polynomials.
    """
    return cauchy_number(bits(key, shape)).astype(dtype)


@as_intrinsic
def cauchy_number(words: Array) -> Array:
    p, negative = _tail_probability(words)
    t = _cotangent(p * 0.5)
    return jnp.where(negative, -t, t)


def positive_cauchy(key: Array, centre: Array, scale: float) -> Array:
    """Draw for each centre (at least 0) a Cauchy number around it, of that half-width, conditioned on being positive.

    By inversion of the upper tail, which is what drawing again until a number is positive gives, without a loop.
    """
    positive = 0.5 + jnp.arctan(centre / scale) / math.pi  # how likely a number is
    # 24 bits, since 32 would round up to 1; half a unit keeps it off 0
    u = ((bits(key, centre.shape) >> 8).astype(centre.dtype) + 0.5) * 2.0**-24
    tail = u * positive
    below = tail > 0.5
    t = _cotangent(jnp.where(below, 1 - tail, tail))
    return jnp.maximum(centre + scale * jnp.where(below, -t, t), 1e-6)  # rounding could reach 0


def _cotangent(half: Array) -> Array:
    """1 / tan(pi x) for x in (0, 1/2]."""
    far = half < 0.25  # beyond the quartile, where the tangent is taken upside down
    r = jnp.where(far, half, 0.5 - half)
    sine, cosine = r * horner(SINE_COEFFICIENTS, r * r), horner(COSINE_COEFFICIENTS, r * r)
    return jnp.where(far, cosine, sine) / jnp.where(far, sine, cosine)


@partial(as_intrinsic, name="mixed")
def mix_word(x: Array) -> Array:
    """Mix the bits of 32-bit words: a bijection in which every input bit moves every output bit."""
    x = (x ^ (x >> 16)) * _U32(0x21F0AAAD)
    x = (x ^ (x >> 15)) * _U32(0x735A2D97)
    return x ^ (x >> 15)


def _tail_probability(words: Array) -> tuple[Array, Array]:
    """Split a word into a two-sided tail probability in (0, 1), fine where it is small, and a sign."""
    magnitude = (words & 0x7FFFFFFF).astype(jnp.int32).astype(jnp.float32)
    return (magnitude + 0.5) * 2.0**-31, (words >> 31).astype(bool)


def _threefry(key: np.ndarray, x0: np.ndarray, x1: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute one Threefry-2x32 block."""
    schedule = (key[..., 0], key[..., 1], key[..., 0] ^ key[..., 1] ^ _U32(0x1BD11BDA))
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for i in range(13):
        x0 = x0 + x1
        r = _ROTATIONS[i % 8]
        x1 = ((x1 << _U32(r)) | (x1 >> _U32(32 - r))) ^ x0
        if i % 4 == 3:
            block = i // 4 + 1
            x0 = x0 + schedule[block % 3]
            x1 = x1 + schedule[(block + 1) % 3] + _U32(block)
    return x0, x1


def _positions(shape: tuple[int, ...]) -> Array:
    """Count 0, 1, 2, ... in row-major order, written so that it fuses instead of being stored."""
    position = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in reversed(range(len(shape))):
        position = position + lax.broadcasted_iota(jnp.uint32, shape, axis) * _U32(stride % 2**32)
        stride *= shape[axis]
    return position


def search_key(key: np.ndarray, number: int) -> np.ndarray:
    """Return the key (2,) of a run's search with that number, from 1; its first search has the run's key."""
    return np.stack(_threefry(key[None], np.array([number], _U32), np.full(1, Domain.SEARCH, _U32)), axis=-1)[0]


def island_keys(keys: np.ndarray, number: int) -> np.ndarray:
    """Return the keys (R, 2) of the islands with that number, from 0, of runs with these keys."""
    return np.stack(_threefry(keys, np.full(len(keys), number, _U32), np.full(len(keys), Domain.ISLAND, _U32)), axis=-1)


def run_keys(seed: int, first: int, count: int) -> np.ndarray:
    """Return the keys (count, 2) of runs first, first + 1, ..., so that run r is the same alone and in an ensemble.

    In NumPy, which spares compiling a program for them.
    """
    numbers = np.arange(first, first + count).astype(_U32)
    return np.stack(_threefry(root_key(seed)[None], numbers, np.full(count, Domain.RUN, _U32)), axis=-1)
