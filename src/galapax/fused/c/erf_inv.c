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
