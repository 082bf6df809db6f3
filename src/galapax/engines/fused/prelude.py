"""What every generated text begins with: helpers, and the few macros in which a GPU and the host differ."""

from __future__ import annotations

from galapax.engines.fused.drawn import DRAWN

HEAD = r"""
#ifdef __CUDACC__
#define FN static __device__ __forceinline__
typedef unsigned int u32;
typedef unsigned long long u64;
/* TEAM blocks of BLOCK threads make a run: one block, a cluster of them, or a grid that is resident as a whole */
#if BLOCK == 32
#define BLOCK_BARRIER __syncwarp();
#else
#define BLOCK_BARRIER __syncthreads();
#endif
#define THREADS (TEAM * BLOCK)
#define MEMBER ((int)(blockIdx.x % TEAM))
/* neighbouring warps are of different blocks, so that a short loop keeps all of them busy */
#define THREAD ((WARP * TEAM + MEMBER) * 32 + LANE)
#if TEAM == 1 && BLOCK == 32
#define BARRIER __syncwarp();
#elif TEAM == 1
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
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(team_counter) : "memory");
        u32 seen;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(team_counter) : "memory");
        } while (seen < team_phase);
    }
    __syncthreads();
}
#define BARRIER team_barrier();
#endif
#define GROUP(g) (g)
#define LOOP(i, n) for (int i = THREAD; i < (n); i += THREADS)
#define LOOP_BY(i, n, k) for (int i = THREAD; i < (n); i += (k) * THREADS)
#define NEXT(i, k, n) (i + (k) * THREADS < (n) ? i + (k) * THREADS : i)
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
#define LOOP_BY(i, n, k) for (int i = 0; i < (n); i += (k))
#define NEXT(i, k, n) (i + (k) < (n) ? i + (k) : i)
#define BLOCK_LOOP LOOP
#define THREAD 0
#define WARPS 1
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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
FN float max_f32(float a, float b) { float c; asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
FN float min_f32(float a, float b) { float c; asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c; }
#else
FN float max_f32(float a, float b) { return (a > b || a != a) ? a : b; }
FN float min_f32(float a, float b) { return (a < b || a != a) ? a : b; }
#endif
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
/* a reduction: each warp gives its part; in a team a block adds up its parts and passes them on, and fetches those of
   all; then every thread takes the whole. A block of one warp knows it at once. */
#define PART (16 * WARPS)
#define TEAM_PART (16 * TEAM)
#define ROOM(n) (parts + (n) * PART)
#define TEAM_ROOM(n) (team_parts + (n) * TEAM_PART)
#ifdef __CUDACC__
#if TEAM == 1 && BLOCK == 32
#define GIVE(N, x, n) x = whole_##N(x)
#define GIVE_BEST(N, x, i, n) i = whole_##N(&x, i)
#define TAKE(N, none, n, x) x
#define TAKE_BEST(N, n, i) i
#else
#define GIVE(N, x, n) give_##N(x, ROOM(n))
#define GIVE_BEST(N, x, i, n) give_##N(x, i, ROOM(n))
#define OWN_TAKE(N, none, n, x) gather_##N(none, ROOM(n), WARPS)
#define OWN_TAKE_BEST(N, n, i) gather_##N(ROOM(n), WARPS, 8 * WARPS)
#if TEAM == 1
#define TAKE OWN_TAKE
#define TAKE_BEST OWN_TAKE_BEST
#else
#define TAKE(N, none, n, x) first_##N(ROOM(n))
#define TAKE_BEST(N, n, i) (*(const int *)ROOM(n))
#endif
#endif
#define PASS(N, none, n, k) \
    if (WARP == (k) % WARPS) pass_##N(gather_##N(none, ROOM(n), WARPS), TEAM_ROOM(n), MEMBER)
#define PASS_BEST(N, n, k) if (WARP == (k) % WARPS) pass_##N(ROOM(n), TEAM_ROOM(n))
#define FETCH(N, none, n, k) \
    if (WARP == (k) % WARPS) pass_##N(gather_##N(none, TEAM_ROOM(n), TEAM), ROOM(n), 0)
#define FETCH_BEST(N, n, k) \
    if (WARP == (k) % WARPS) { int i = gather_##N(TEAM_ROOM(n), TEAM, 8 * TEAM); if (LANE == 0) *(int *)ROOM(n) = i; }
#if __CUDA_ARCH__ >= 800
FN u32 least_key(u32 x) { return __reduce_min_sync(0xffffffffu, x); }
#else
FN u32 least_key(u32 x) {
    for (int k = 16; k; k >>= 1) { u32 y = __shfl_xor_sync(0xffffffffu, x, k); x = x < y ? x : y; }
    return x; }
#endif
FN u64 least_key(u64 x) {
    u32 high = (u32)(x >> 32), most = least_key(high);
    return (u64)most << 32 | least_key(high == most ? (u32)x : 0xffffffffu); }
/* numbers as whole ones without a sign, in the same order */
FN u32 key_of(int x) { return (u32)x ^ 0x80000000u; }
FN u32 key_of(u32 x) { return x; }
FN u64 key_of(long long x) { return (u64)x ^ 0x8000000000000000ULL; }
FN u64 key_of(u64 x) { return x; }
FN u32 key_of(float x) { u32 b = __float_as_uint(x); return b ^ ((u32)((int)b >> 31) | 0x80000000u); }
FN u64 key_of(double x) {
    u64 b = (u64)__double_as_longlong(x);
    return b ^ ((u64)((long long)b >> 63) | 0x8000000000000000ULL); }
FN void of_key(u32 k, int *x) { *x = (int)(k ^ 0x80000000u); }
FN void of_key(u32 k, u32 *x) { *x = k; }
FN void of_key(u64 k, long long *x) { *x = (long long)(k ^ 0x8000000000000000ULL); }
FN void of_key(u64 k, u64 *x) { *x = k; }
FN void of_key(u32 k, float *x) { *x = __uint_as_float(k ^ (k >> 31 ? 0x80000000u : 0xffffffffu)); }
FN void of_key(u64 k, double *x) {
    *x = __longlong_as_double((long long)(k ^ (k >> 63 ? 0x8000000000000000ULL : 0xffffffffffffffffULL))); }
/* what is not a number comes before all others */
#define LEAST_KEY(x) ((x) != (x) ? 0 : key_of(x))
#define MOST_KEY(x) ((x) != (x) ? 0 : ~key_of(x))
#define SHUFFLED(T, OP, N) FN T whole_##N(T x) { \
    for (int k = 16; k; k >>= 1) x = OP(x, __shfl_xor_sync(0xffffffffu, x, k)); \
    return x; }
#define LEAST_OF(T, N) FN T whole_##N(T x) { T y; of_key(least_key(LEAST_KEY(x)), &y); return y; }
#define MOST_OF(T, N) FN T whole_##N(T x) { T y; of_key(~least_key(MOST_KEY(x)), &y); return y; }
#if __CUDA_ARCH__ >= 800
#define ADDED(T, OP, N) FN T whole_##N(T x) { return (T)__reduce_add_sync(0xffffffffu, x); }
#else
#define ADDED SHUFFLED
#endif
#define PARTS(T, OP, N, HOW) HOW \
FN T group_##N(T x, int g) { \
    u32 mask = g == 32 ? 0xffffffffu : ((1u << g) - 1) << (LANE & ~(g - 1)); \
    for (int k = g >> 1; k; k >>= 1) x = OP(x, __shfl_xor_sync(mask, x, k)); \
    return x; } \
FN void give_##N(T x, char *at) { x = whole_##N(x); if (LANE == 0) ((T *)at)[WARP] = x; } \
FN void pass_##N(T x, char *at, int place) { if (LANE == 0) ((T *)at)[place] = x; } \
FN T first_##N(const char *at) { return *(const T *)at; } \
FN T gather_##N(T none, const char *at, int count) { \
    T x = ((const T *)at)[0]; \
    if (count <= 4) { for (int k = 1; k < count; k++) x = OP(x, ((const T *)at)[k]); return x; } \
    x = none; \
    for (int k = LANE; k < count; k += 32) x = OP(x, ((const T *)at)[k]); \
    return whole_##N(x); }
#else
#define GIVE(N, x, n) give_##N(x, ROOM(n))
#define GIVE_BEST(N, x, i, n) give_##N(x, i, ROOM(n))
#define PASS(N, none, n, k)
#define PASS_BEST(N, n, k)
#define FETCH(N, none, n, k)
#define FETCH_BEST(N, n, k)
#define TAKE(N, none, n, x) take_##N(ROOM(n))
#define TAKE_BEST(N, n, i) take_##N(ROOM(n))
#define OWN_TAKE TAKE
#define OWN_TAKE_BEST TAKE_BEST
#define PARTS(T, OP, N, HOW) \
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
/* zeros of either sign are equal: 0 is added */
#define FIRST_LEAST(T, N) FN int whole_##N(T *value, int i) { \
    auto own = LEAST_KEY(*value + (T)0), best = least_key(own); of_key(best, value); \
    return (int)least_key(own == best ? (u32)i : 0xffffffffu); }
#define FIRST_MOST(T, N) FN int whole_##N(T *value, int i) { \
    auto own = MOST_KEY(*value + (T)0), best = least_key(own); of_key(~best, value); \
    return (int)least_key(own == best ? (u32)i : 0xffffffffu); }
#define BEST(T, N, SIGN, HOW) AHEAD(T, N, SIGN) HOW \
FN void keep_##N(T x, int i, char *at, int place, int room) { \
    if (LANE == 0) { ((T *)at)[place] = x; ((int *)(at + room))[place] = i; } } \
FN void give_##N(T x, int i, char *at) { i = whole_##N(&x, i); keep_##N(x, i, at, WARP, 8 * WARPS); } \
FN int best_##N(T *value, const char *at, int count, int room) { \
    int first = LANE < count ? LANE : 0; \
    T x = ((const T *)at)[first]; int i = ((const int *)(at + room))[first]; \
    for (int k = LANE + 32; k < count; k += 32) { \
        T y = ((const T *)at)[k]; int j = ((const int *)(at + room))[k]; \
        if (ahead_##N(y, j, x, i)) { x = y; i = j; } } \
    *value = x; return whole_##N(value, i); } \
FN void pass_##N(const char *at, char *to) { \
    T x; int i = best_##N(&x, at, WARPS, 8 * WARPS); keep_##N(x, i, to, MEMBER, 8 * TEAM); } \
FN int gather_##N(const char *at, int count, int room) { T x; return best_##N(&x, at, count, room); }
#else
#define BEST(T, N, SIGN, HOW) AHEAD(T, N, SIGN) \
FN void give_##N(T x, int i, char *at) { (void)x; *(int *)at = i; } \
FN int take_##N(const char *at) { return *(const int *)at; }
#endif
"""

_SCAN = r"""
/* running sums: each thread has a piece of a row, in order; alone: each block makes all of it for itself */
#ifdef __CUDACC__
#define PLACE(alone) ((alone) ? (int)threadIdx.x : MEMBER * BLOCK + (int)threadIdx.x)
#define PIECES(n, alone) (((n) - 1) / ((alone) ? BLOCK : THREADS) + 1)
#define PIECE(n, alone) (PLACE(alone) * PIECES(n, alone))
#define PIECE_END(n, alone) min((n), (PLACE(alone) + 1) * PIECES(n, alone))
#define PIECE_GIVE(N, x, n) up_##N(&x, ROOM(n))
#define PIECE_BEFORE(N, none, x, n, alone) before_##N(none, x, ROOM(n), TEAM_ROOM(n), alone)
#define SCAN(T, OP, N) \
FN void up_##N(T *own, char *at) { \
    T sum = *own; \
    for (int k = 1; k < 32; k <<= 1) { T y = __shfl_up_sync(0xffffffffu, sum, k); if (LANE >= k) sum = OP(y, sum); } \
    if (LANE == 31) ((T *)at)[WARP] = sum; \
    *own = sum; } \
FN T before_##N(T none, T sum, const char *at, const char *team_at, int alone) { \
    T before = none; \
    if (TEAM > 1 && !alone && MEMBER) before = gather_##N(none, team_at, MEMBER); \
    T ahead = LANE < WARP ? ((const T *)at)[LANE] : none; \
    if (WARPS > 1) before = OP(before, whole_##N(ahead)); \
    T y = __shfl_up_sync(0xffffffffu, sum, 1); \
    return LANE ? OP(before, y) : before; }
#else
#define PIECE(n, alone) 0
#define PIECE_END(n, alone) (n)
#define PIECE_GIVE(N, x, n)
#define PIECE_BEFORE(N, none, x, n, alone) none
#define SCAN(T, OP, N)
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
            name = f"{op}_{short}"
            how = {"max": f"MOST_OF({kind}, {name})", "min": f"LEAST_OF({kind}, {name})"}.get(op)
            if op == "add" and short in ("i32", "u32"):
                how = f"ADDED({kind}, {name}, {name})"
            lines.append(f"PARTS({kind}, {name}, {name}, {how or f'SHUFFLED({kind}, {name}, {name})'})")
            if op in ("add", "mul", "max", "min"):
                lines.append(f"SCAN({kind}, {name}, {name})")
        lines.append(f"BEST({kind}, least_{short}, <, FIRST_LEAST({kind}, least_{short}))")
        lines.append(f"BEST({kind}, most_{short}, >, FIRST_MOST({kind}, most_{short}))")
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
        DRAWN,
        _HOST_ERF_INV,
        _REDUCE,
        _BEST,
        _SCAN,
        _parts(),
        _CHOLESKY,
        "\n",
    )
)
