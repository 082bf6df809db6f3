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

FN float expm1_f32(float x) {
    x = max_f32(x, -87.0f);
    float n = less_quick(fmaf(x, 1.44269504f, 12582912.0f), 12582912.0f + 127), k = n - 12582912.0f;
    float r = fmaf(k, -1.42860677e-06f, fmaf(k, -0.693145752f, x));
    float power = from_bits_f32((bits_f32(n) << 23) + 0x3f800000u);
    return fmaf(fmaf(r * r, POWERS, r), power, power - 1); }

/* erf_inv on a CPU: Newton's method on erf, which takes no table */
#ifndef __CUDACC__
FN double ninv_f64(double y) {
    if (!(y > -1 && y < 1)) return y == 1 ? INF64 : y == -1 ? -INF64 : NAN64;
    double w = log((1 - y) * (1 + y)), a = 2 / (3.14159265358979323846 * 0.147) + w / 2;
    double x = sqrt(sqrt(a * a - w / 0.147) - a) * (y < 0 ? -1 : 1);
    for (int i = 0; i < 4; i++) x -= (erf(x) - y) / (1.12837916709551257390 * exp(-x * x));
    return x;
}
FN float ninv_f32(float y) { return (float)ninv_f64(y); }
#endif
FN float erf_inv_f32(float x) { return ninv_f32(x); }
FN double erf_inv_f64(double x) { return ninv_f64(x); }
