"""C intrinsics: random numbers, and a few float32 functions that are faster than the C library's.

What numerics/random.py defines step by step is one function here, with the device's approximate logarithm, square
root and reciprocal where their error is below that of the result: normal numbers have seven digits either way.
"""

from __future__ import annotations

import math

from galapax.fused.c_expressions import c_literal
from galapax.numerics import random


def _horner(coefficients: tuple[float, ...], x: str) -> str:
    """Write a polynomial by Horner's rule, highest power first."""
    text = c_literal(coefficients[0], "float32")
    for coefficient in coefficients[1:]:
        text = f"fmaf({text}, {x}, {c_literal(coefficient, 'float32')})"
    return text


def _times_root_two(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Scale by the square root of 2, by which normal numbers differ from the inverse error function."""
    return tuple(coefficient * math.sqrt(2) for coefficient in coefficients)


_RANDOM_C = r"""
#ifdef __CUDACC__
/* of numbers that are not tiny */
FN float log2_quick(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN float sqrt_quick(float x) { float y; asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
FN float over_quick(float a, float b) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b)); return a * y; }
FN float less_quick(float a, float b) { return fminf(a, b); }
FN u32 high_product(u32 a, u32 b) { return __umulhi(a, b); }
static __device__ __noinline__ float sin_far(float x) { return sinf(x); }
static __device__ __noinline__ float cos_far(float x) { return cosf(x); }
#else
FN float log2_quick(float x) { return log2f(x); }
FN float sqrt_quick(float x) { return sqrtf(x); }
FN float over_quick(float a, float b) { return a / b; }
FN float less_quick(float a, float b) { return a < b ? a : b; }
/* without a wide product, of which a processor makes fewer at once */
FN u32 high_product(u32 a, u32 b) {
    return b <= 65536u ? ((a >> 16) * b + ((a & 0xffffu) * b >> 16)) >> 16 : (u32)((u64)a * b >> 32); }
#define sin_far sinf
#define cos_far cosf
#endif
FN u32 drawn_word(u32 x, u32 second) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu + second;
    x = (x ^ (x >> 15)) * 0x735A2D97u;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16); }
FN u32 mixed(u32 x) {
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = (x ^ (x >> 15)) * 0x735A2D97u;
    return x ^ (x >> 15); }
FN float signed_as(float x, u32 word) { return from_bits_f32(bits_f32(x) ^ (word & 0x80000000u)); }
FN float tail_of(u32 word) { return fmaf((float)(int)(word & 0x7fffffffu), 4.65661287e-10f, 2.32830644e-10f); }
FN float normal_number(u32 word) {
    float p = tail_of(word), c = fmaf(-0.693147181f, log2_quick(p * (2 - p)), -2.5f);
    float z = CENTRE;
    if (c >= 2.5f) { c = sqrt_quick(c + 2.5f) - 3; z = TAIL; }
    return signed_as(z * (1 - p), word); }
FN float cauchy_number(u32 word) {
    float half = fmaf((float)(int)(word & 0x7fffffffu), 2.32830644e-10f, 1.16415322e-10f);
    int far = half < 0.25f;
    float r = far ? half : 0.5f - half, q = r * r, sine = r * (SINE), cosine = COSINE;
    return signed_as(over_quick(far ? cosine : sine, far ? sine : cosine), word); }
"""
# sin(r) / r in powers of r^2 for r in [-pi/2, pi/2], fitted at Chebyshev nodes, relative error 4e-9; pi in two parts,
# of which a multiple of the first is exact
_TRIGONOMETRY_C = r"""
#ifdef VECTORS
/* without a branch, for which the C library has a version for several numbers at once */
FN float sin_f32(float x) { return sinf(x); }
FN float cos_f32(float x) { return cosf(x); }
#else
FN float wave(float r) { float q = r * r; return fmaf(r * q, WAVE, r); }
FN float turned(float r, float n) { return signed_as(wave(r), bits_f32(n) << 31); }
FN float sin_f32(float x) {
    float n = fmaf(x, 0.318309886f, 12582912.0f), k = n - 12582912.0f;
    float y = turned(fmaf(k, 8.74227766e-08f, fmaf(k, -3.14159274f, x)), n);
    if (!(fabsf(x) < 8192)) y = sin_far(x);
    return y; }
FN float cos_f32(float x) {
    float n = fmaf(x, 0.318309886f, -0.5f) + 12582912.0f, k = n - 12582912.0f + 0.5f;
    float y = -turned(fmaf(k, 8.74227766e-08f, fmaf(k, -3.14159274f, x)), n);
    if (!(fabsf(x) < 8192)) y = cos_far(x);
    return y; }
#endif
"""
# exp(r) = 1 + r + r^2 * (...) for r in [-ln(2)/2, ln(2)/2], fitted likewise, relative error 2e-8; ln(2) in two parts.
# Below -87 it is -1, and just below infinity, from 88.4 on, it has five digits.
_EXPM1_C = r"""
FN float expm1_f32(float x) {
    x = max_f32(x, -87.0f);
    float n = less_quick(fmaf(x, 1.44269504f, 12582912.0f), 12582912.0f + 127), k = n - 12582912.0f;
    float r = fmaf(k, -1.42860677e-06f, fmaf(k, -0.693145752f, x));
    float power = from_bits_f32((bits_f32(n) << 23) + 0x3f800000u);
    return fmaf(fmaf(r * r, POWERS, r), power, power - 1); }
"""
_EXPM1_COEFFICIENTS = (0.00139262504, 0.00836323295, 0.0416665524, 0.166665763, 0.5)
_SINE_COEFFICIENTS = (2.60893148e-06, -0.000198111122, 0.00833308816, -0.166666605)

RNG_INTRINSICS_C = (
    (_RANDOM_C + _TRIGONOMETRY_C + _EXPM1_C)
    .replace("CENTRE", _horner(_times_root_two(random.ERFINV_CENTRE), "c"))
    .replace("TAIL", _horner(_times_root_two(random.ERFINV_TAIL), "c"))
    .replace("POWERS", _horner(_EXPM1_COEFFICIENTS, "r"))
    .replace("COSINE", _horner(random.COSINE_COEFFICIENTS, "q"))
    .replace("SINE", _horner(random.SINE_COEFFICIENTS, "q"))
    .replace("WAVE", _horner(_SINE_COEFFICIENTS, "q"))
)
