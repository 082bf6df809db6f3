"""What every generated text begins with: helpers, and the few macros in which a GPU and the host differ."""

from __future__ import annotations

HEAD = r"""
#ifdef __CUDACC__
#define FN static __device__ __forceinline__
typedef unsigned int u32;
typedef unsigned long long u64;
/* TEAM blocks of BLOCK threads make a run: one block, a cluster of them, or a grid that is resident as a whole */
#define BLOCK_BARRIER __syncthreads();
#define THREADS (TEAM * BLOCK)
#define MEMBER ((int)(blockIdx.x % TEAM))
#define THREAD (MEMBER * BLOCK + (int)threadIdx.x)
#if TEAM == 1
#define BARRIER __syncthreads();
#elif TEAM <= 16
#define BARRIER asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#else
__shared__ u32 team_phase;
__shared__ u32 *team_counter;
FN void team_barrier() {
    __syncthreads();
    if (threadIdx.x == 0) {
        team_phase += TEAM;
        __threadfence();
        atomicAdd(team_counter, 1u);
        u32 seen;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(team_counter) : "memory");
        } while (seen < team_phase);
        __threadfence();
    }
    __syncthreads();
}
#define BARRIER team_barrier();
#endif
#define GROUP(g) (g)
#define LOOP(i, n) for (int i = THREAD; i < (n); i += THREADS)
#define BLOCK_LOOP(i, n) for (int i = threadIdx.x; i < (n); i += BLOCK)
#define LANE ((int)threadIdx.x & 31)
#define WARP ((int)threadIdx.x >> 5)
#define WARPS ((BLOCK + 31) / 32)
#define FIRST if (THREAD == 0)
#define INF32 __int_as_float(0x7f800000)
#define NAN32 __int_as_float(0x7fc00000)
#define INF64 __longlong_as_double(0x7ff0000000000000LL)
#define NAN64 __longlong_as_double(0x7ff8000000000000LL)
FN u32 bits_f32(float x) { return __float_as_uint(x); }
FN float from_bits_f32(u32 x) { return __uint_as_float(x); }
FN u64 bits_f64(double x) { return (u64)__double_as_longlong(x); }
FN double from_bits_f64(u64 x) { return __longlong_as_double((long long)x); }
FN float ninv_f32(float x) { return erfinvf(x); }
FN double ninv_f64(double x) { return erfinv(x); }
FN int clz_u32(u32 x) { return __clz((int)x); }
FN int popcount_u32(u32 x) { return __popc(x); }
#define ATOMIC_ADD(p, v) atomicAdd(p, v)
#else
#include <math.h>
#include <string.h>
#define FN static inline
typedef unsigned int u32;
typedef unsigned long long u64;
#define BARRIER
#define BLOCK_BARRIER
#define LOOP(i, n) for (int i = 0; i < (n); i++)
#define BLOCK_LOOP LOOP
#define THREAD 0
#define GROUP(g) 1
#define FIRST
#define INF32 __builtin_inff()
#define NAN32 __builtin_nanf("")
#define INF64 __builtin_inf()
#define NAN64 __builtin_nan("")
FN u32 bits_f32(float x) { u32 y; memcpy(&y, &x, 4); return y; }
FN float from_bits_f32(u32 x) { float y; memcpy(&y, &x, 4); return y; }
FN u64 bits_f64(double x) { u64 y; memcpy(&y, &x, 8); return y; }
FN double from_bits_f64(u64 x) { double y; memcpy(&y, &x, 8); return y; }
FN u32 clz_u32(u32 x) { return x ? (u32)__builtin_clz(x) : 32; }
FN u32 popcount_u32(u32 x) { return (u32)__builtin_popcount(x); }
#define ATOMIC_ADD(p, v) (*(p) += (v))
#endif
#define LEAST_i32 (-2147483647 - 1)
#define MOST_i32 2147483647
#define LEAST_i64 (-9223372036854775807LL - 1)
#define MOST_i64 9223372036854775807LL

FN float add_f32(float a, float b) { return a + b; }
FN float mul_f32(float a, float b) { return a * b; }
FN float max_f32(float a, float b) { return (a > b || a != a) ? a : b; }
FN float min_f32(float a, float b) { return (a < b || a != a) ? a : b; }
FN double add_f64(double a, double b) { return a + b; }
FN double mul_f64(double a, double b) { return a * b; }
FN double max_f64(double a, double b) { return (a > b || a != a) ? a : b; }
FN double min_f64(double a, double b) { return (a < b || a != a) ? a : b; }
"""

_WHOLE = r"""
FN T add_S(T a, T b) { return (T)((U)a + (U)b); }
FN T mul_S(T a, T b) { return (T)((U)a * (U)b); }
FN T max_S(T a, T b) { return a > b ? a : b; }
FN T min_S(T a, T b) { return a < b ? a : b; }
FN T and_S(T a, T b) { return a & b; }
FN T or_S(T a, T b) { return a | b; }
FN T xor_S(T a, T b) { return a ^ b; }
FN T rem_S(T a, T b) { return b == 0 ? a : SIGNED && b == (T)-1 ? 0 : a % b; }
FN T div_S(T a, T b) { return b == 0 ? (T)-1 : SIGNED && b == (T)-1 ? (T)(0 - (U)a) : a / b; }
FN T ipow_S(T x, int y) { T r = 1; while (y) { if (y & 1) r = mul_S(r, x); x = mul_S(x, x); y >>= 1; } return r; }
FN T to_S(double x) { return x != x ? 0 : x <= LOW ? (T)LOWEST : x >= HIGH ? (T)HIGHEST : (T)x; }
"""
_FLOAT = r"""
FN T ipow_S(T x, int y) { T r = 1; while (y) { if (y & 1) r *= x; x *= x; y >>= 1; } return r; }
"""
# erf_inv on the host: Newton's method on erf, which takes no table
_HOST_ERF_INV = r"""
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
"""

_REDUCE = r"""
/* a reduction: each warp gives its part; in a team the first warps pass the block's on; then all take the whole */
#ifdef __CUDACC__
#define ROOM(off) (parts + (off))
#define OWN_TAKE(N, none, off) gather_##N(none, parts + (off), WARPS)
#define OWN_TAKE_BEST(N, off) gather_##N(parts + (off), WARPS, 256)
#if TEAM == 1
#define PASS(N, none, off, n)
#define PASS_BEST(N, off, n)
#define TAKE OWN_TAKE
#define TAKE_BEST OWN_TAKE_BEST
#else
#define PASS(N, none, off, n) \
    if (WARP == (n) % WARPS) pass_##N(gather_##N(none, parts + (off), WARPS), team_parts + 4 * (off))
#define PASS_BEST(N, off, n) if (WARP == (n) % WARPS) pass_##N(parts + (off), team_parts + 4 * (off))
#define TAKE(N, none, off) gather_##N(none, team_parts + 4 * (off), TEAM)
#define TAKE_BEST(N, off) gather_##N(team_parts + 4 * (off), TEAM, 1280)
#endif
#define PARTS(T, OP, N) \
FN T whole_##N(T x) { \
    for (int k = 16; k; k >>= 1) x = OP(x, __shfl_xor_sync(0xffffffffu, x, k)); \
    return x; } \
FN T group_##N(T x, int g) { \
    u32 mask = g == 32 ? 0xffffffffu : ((1u << g) - 1) << (LANE & ~(g - 1)); \
    for (int k = g >> 1; k; k >>= 1) x = OP(x, __shfl_xor_sync(mask, x, k)); \
    return x; } \
FN void give_##N(T x, char *at) { x = whole_##N(x); if (LANE == 0) ((T *)at)[WARP] = x; } \
FN void pass_##N(T x, char *at) { if (LANE == 0) ((T *)at)[MEMBER] = x; } \
FN T gather_##N(T none, const char *at, int count) { \
    T x = ((const T *)at)[0]; \
    if (count <= 4) { for (int k = 1; k < count; k++) x = OP(x, ((const T *)at)[k]); return x; } \
    x = none; \
    for (int k = LANE; k < count; k += 32) x = OP(x, ((const T *)at)[k]); \
    return whole_##N(x); }
#else
#define ROOM(off) (parts + (off))
#define PASS(N, none, off, n)
#define PASS_BEST(N, off, n)
#define TAKE(N, none, off) take_##N(parts + (off))
#define TAKE_BEST(N, off) take_##N(parts + (off))
#define OWN_TAKE TAKE
#define OWN_TAKE_BEST TAKE_BEST
#define PARTS(T, OP, N) \
FN T group_##N(T x, int g) { (void)g; return x; } \
FN void give_##N(T x, char *at) { *(T *)at = x; } \
FN T take_##N(const char *at) { return *(const T *)at; }
#endif
"""

_BEST = r"""
#define AHEAD(T, N, SIGN) \
FN int ahead_##N(T a, int i, T b, int j) { \
    return a SIGN b || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j); }
#ifdef __CUDACC__
#define BEST(T, N, SIGN) AHEAD(T, N, SIGN) \
FN int whole_##N(T *value, int i) { \
    T x = *value; \
    for (int k = 16; k; k >>= 1) { \
        T y = __shfl_xor_sync(0xffffffffu, x, k); int j = __shfl_xor_sync(0xffffffffu, i, k); \
        if (ahead_##N(y, j, x, i)) { x = y; i = j; } } \
    *value = x; return i; } \
FN void keep_##N(T x, int i, char *at, int place, int room) { \
    if (LANE == 0) { ((T *)at)[place] = x; ((int *)(at + room))[place] = i; } } \
FN void give_##N(T x, int i, char *at) { i = whole_##N(&x, i); keep_##N(x, i, at, WARP, 256); } \
FN int best_##N(T *value, const char *at, int count, int room) { \
    int first = LANE < count ? LANE : 0; \
    T x = ((const T *)at)[first]; int i = ((const int *)(at + room))[first]; \
    for (int k = LANE + 32; k < count; k += 32) { \
        T y = ((const T *)at)[k]; int j = ((const int *)(at + room))[k]; \
        if (ahead_##N(y, j, x, i)) { x = y; i = j; } } \
    *value = x; return whole_##N(value, i); } \
FN void pass_##N(const char *at, char *to) { \
    T x; int i = best_##N(&x, at, WARPS, 256); keep_##N(x, i, to, MEMBER, 1280); } \
FN int gather_##N(const char *at, int count, int room) { T x; return best_##N(&x, at, count, room); }
#else
#define BEST(T, N, SIGN) AHEAD(T, N, SIGN) \
FN void give_##N(T x, int i, char *at) { (void)x; *(int *)at = i; } \
FN int take_##N(const char *at) { return *(const int *)at; }
#endif
"""

_SCAN = r"""
/* running sums and the like along an axis: rows of `length` numbers, `stride` apart, by all threads of a run, or by
   each block for itself */
#ifdef __CUDACC__
#define SCAN(T, OP, N) \
FN void scan_##N(const T *in, T *out, int length, int stride, int reverse, T none, char *at, char *team_at, \
                 int alone) { \
    int threads = alone ? BLOCK : THREADS, thread = alone ? (int)threadIdx.x : THREAD; \
    int each = (length + threads - 1) / threads, first = thread * each; \
    T own = none; \
    for (int k = first; k < first + each && k < length; k++) \
        own = OP(own, in[(reverse ? length - 1 - k : k) * stride]); \
    T sum = own; \
    for (int k = 1; k < 32; k <<= 1) { T y = __shfl_up_sync(0xffffffffu, sum, k); if (LANE >= k) sum = OP(y, sum); } \
    if (LANE == 31) ((T *)at)[WARP] = sum; \
    __syncthreads(); \
    T before = none; \
    if (TEAM > 1 && !alone) { \
        T all = gather_##N(none, at, WARPS); \
        if (threadIdx.x == 0) ((T *)team_at)[MEMBER] = all; \
        BARRIER \
        if (MEMBER) before = gather_##N(none, team_at, MEMBER); } \
    T ahead = LANE < WARP ? ((const T *)at)[LANE] : none; \
    before = OP(before, whole_##N(ahead)); \
    T y = __shfl_up_sync(0xffffffffu, sum, 1); \
    if (LANE) before = OP(before, y); \
    for (int k = first; k < first + each && k < length; k++) { \
        int p = (reverse ? length - 1 - k : k) * stride; \
        before = OP(before, in[p]); out[p] = before; } \
    if (alone) { BLOCK_BARRIER } else { BARRIER } }
#else
#define SCAN(T, OP, N) \
FN void scan_##N(const T *in, T *out, int length, int stride, int reverse, T none, char *at, char *team_at, \
                 int alone) { \
    (void)at; (void)team_at; (void)alone; T sum = none; \
    for (int k = 0; k < length; k++) { \
        int p = (reverse ? length - 1 - k : k) * stride; \
        sum = OP(sum, in[p]); out[p] = sum; } }
#endif
"""

_CHOLESKY = r"""
/* matrices d x d become their lower factors, what is above the diagonal stays; NaN where not positive definite */
#ifdef __CUDACC__
#define CHOLESKY(T, N, ROOT) \
FN void cholesky_##N(T *all, int count, int d) { \
    for (int m = MEMBER * WARPS + WARP; m < count; m += TEAM * WARPS) { \
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
"""


def _whole(kind: str, short: str, unsigned: str, signed: int, low: str, high: str, lowest: str, highest: str) -> str:
    text = _WHOLE.replace("LOWEST", lowest).replace("HIGHEST", highest).replace("SIGNED", str(signed))
    text = text.replace("LOW", low).replace("HIGH", high)
    return (
        text.replace("_S(", f"_{short}(")
        .replace("(U)", f"({unsigned})")
        .replace("T ", f"{kind} ")
        .replace("(T)", f"({kind})")
    )


def _parts() -> str:
    lines = []
    types = {"f32": "float", "f64": "double", "i32": "int", "u32": "u32", "i64": "long long", "u64": "u64"}
    for short, kind in types.items():
        operations = ["add", "mul", "max", "min"] + (["and", "or", "xor"] if short[0] != "f" else [])
        for op in operations:
            lines.append(f"PARTS({kind}, {op}_{short}, {op}_{short})")
            if op in ("add", "mul", "max", "min"):
                lines.append(f"SCAN({kind}, {op}_{short}, {op}_{short})")
        lines.append(f"BEST({kind}, least_{short}, <)")
        lines.append(f"BEST({kind}, most_{short}, >)")
    return "\n".join(lines)


PRELUDE = "".join(
    (
        HEAD,
        _whole("int", "i32", "u32", 1, "-2147483648.0", "2147483647.0", "LEAST_i32", "MOST_i32"),
        _whole("u32", "u32", "u32", 0, "0.0", "4294967295.0", "0", "4294967295u"),
        _whole(
            "long long", "i64", "u64", 1, "-9223372036854775808.0", "9223372036854775807.0", "LEAST_i64", "MOST_i64"
        ),
        _whole("u64", "u64", "u64", 0, "0.0", "18446744073709551615.0", "0", "18446744073709551615ULL"),
        _FLOAT.replace("_S(", "_f32(").replace("T ", "float "),
        _FLOAT.replace("_S(", "_f64(").replace("T ", "double "),
        _HOST_ERF_INV,
        _REDUCE,
        _BEST,
        _SCAN,
        _parts(),
        _CHOLESKY,
        "\n",
    )
)
