/* matrices d x d become their lower factors, what is above the diagonal stays; NaN where not positive definite */
#ifdef __CUDACC__
#define CHOLESKY(T, N, ROOT) \
FN void cholesky_##N(T *all, int count, int d) { \
    for (int m = RUN_BLOCK * WARPS + WARP; m < count; m += RUN_BLOCKS * WARPS) { \
        T *a = all + m * d * d, pivot = 0; \
        for (int k = 0; k < d; k++) { \
            for (int first = k; first < d; first += 32) { \
                int i = first + LANE; \
                T s = i < d ? a[i * d + k] : 0; \
                if (i < d) for (int j = 0; j < k; j++) s -= a[i * d + j] * a[k * d + j]; \
                if (first == k) pivot = ROOT(__shfl_sync(0xffffffffu, s, 0)); \
                if (i < d) a[i * d + k] = i == k ? pivot : s / pivot; } \
            __syncwarp(); } \
        if (!(pivot > 0)) for (int i = LANE; i < d * d; i += 32) a[i] = ROOT((T)-1); } }
#else
#define CHOLESKY(T, N, ROOT) \
FN void cholesky_##N(T *all, int count, int d) { \
    for (T *a = all; a < all + count * d * d; a += d * d) { \
        T pivot = 0; \
        for (int k = 0; k < d; k++) \
            for (int i = k; i < d; i++) { \
                T s = a[i * d + k]; \
                for (int j = 0; j < k; j++) s -= a[i * d + j] * a[k * d + j]; \
                if (i == k) pivot = ROOT(s); \
                a[i * d + k] = i == k ? pivot : s / pivot; } \
        if (!(pivot > 0)) for (int i = 0; i < d * d; i++) a[i] = ROOT((T)-1); } }
#endif
CHOLESKY(float, f32, sqrtf)
CHOLESKY(double, f64, sqrt)
