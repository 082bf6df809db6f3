/* Reductions: each warp leaves its partial result in its slot; where several blocks share a run, each reduces its slot
   and publishes the result; then every thread combines them. print_c.py says which of these steps a target takes. */
#define WARP_SLOT_BYTES (16 * WARPS)
#define BLOCK_SLOT_BYTES (16 * RUN_BLOCKS)
#define WARP_SLOT(n) (warp_partials + (n) * WARP_SLOT_BYTES)
#define BLOCK_SLOT(n) (block_partials + (n) * BLOCK_SLOT_BYTES)
#ifdef __CUDACC__
#if RUN_BLOCKS > 1 && RUN_BLOCKS <= 16
/* the same place in the shared memory of another block of the cluster */
FN char *in_block(const char *at, int block) {
    char *there; asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(at), "r"(block)); return there; }
#define PUBLISH(at, place, x) if (LANE < RUN_BLOCKS) ((decltype(x) *)in_block(at, LANE))[place] = x
#else
#define PUBLISH(at, place, x) if (LANE == 0) ((decltype(x) *)(at))[place] = x
#endif
/* warp_partials that meet in any order: at one number in memory, two of which take turns; 0 is less than all */
#define ATOMIC_SLOT(n, g) (scratch + COUNTER_BYTES + ((n) * 2 + ((g) & 1)) * ATOMIC_SLOT_BYTES)
#define CLEAR_ATOMIC_SLOT(n) *(u64 *)ATOMIC_SLOT(n, (g) + 1) = 0
#define ATOMIC_SUM(T, U, N) \
FN void atomic_##N(T x, char *at) { if (LANE == 0) atomicAdd((U *)at, (U)x); } \
FN T atomic_result_##N(const char *at) { return *(const T *)at; }
#define ATOMIC_MAXIMUM(T, N) \
FN void atomic_##N(T x, char *at) { auto key = MOST_KEY(x); if (LANE == 0) atomicMax((decltype(key) *)at, ~key); } \
FN T atomic_result_##N(const char *at) { T x; of_key(*(const decltype(key_of(x)) *)at, &x); return x; }
#define ATOMIC_MINIMUM(T, N) \
FN void atomic_##N(T x, char *at) { auto key = LEAST_KEY(x); if (LANE == 0) atomicMax((decltype(key) *)at, ~key); } \
FN T atomic_result_##N(const char *at) { T x; of_key(~*(const decltype(key_of(x)) *)at, &x); return x; }
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
#define WARP_BY_SHUFFLES(T, OP, N) FN T reduce_warp_##N(T x) { \
    for (int k = 16; k; k >>= 1) x = OP(x, __shfl_xor_sync(0xffffffffu, x, k)); \
    return x; }
#define WARP_MINIMUM(T, N) FN T reduce_warp_##N(T x) { T y; of_key(least_key(LEAST_KEY(x)), &y); return y; }
#define WARP_MAXIMUM(T, N) FN T reduce_warp_##N(T x) { T y; of_key(~least_key(MOST_KEY(x)), &y); return y; }
#if __CUDA_ARCH__ >= 800
#define WARP_SUM(T, OP, N) FN T reduce_warp_##N(T x) { return (T)__reduce_add_sync(0xffffffffu, x); }
#else
#define WARP_SUM WARP_BY_SHUFFLES
#endif
#define REDUCTION(T, OP, N, HOW) HOW \
FN T group_##N(T x, int g) { \
    u32 mask = g == 32 ? 0xffffffffu : ((1u << g) - 1) << (LANE & ~(g - 1)); \
    for (int k = g >> 1; k; k >>= 1) x = OP(x, __shfl_xor_sync(mask, x, k)); \
    return x; } \
FN void store_warp_##N(T x, char *at) { x = reduce_warp_##N(x); if (LANE == 0) ((T *)at)[WARP] = x; } \
FN void store_block_##N(T x, char *at, int place) { if (LANE == 0) ((T *)at)[place] = x; } \
FN void publish_##N(T x, char *at) { PUBLISH(at, RUN_BLOCK, x); } \
FN T load_##N(const char *at) { return *(const T *)at; } \
FN T gather_##N(T none, const char *at, int count) { \
    T x = ((const T *)at)[0]; \
    if (count <= 4) { for (int k = 1; k < count; k++) x = OP(x, ((const T *)at)[k]); return x; } \
    x = none; \
    for (int k = LANE; k < count; k += 32) x = OP(x, ((const T *)at)[k]); \
    return reduce_warp_##N(x); }
#else
#define CLEAR_ATOMIC_SLOT(n)
#define ATOMIC_SUM(T, U, N)
#define ATOMIC_MAXIMUM(T, N)
#define ATOMIC_MINIMUM(T, N)
#define REDUCTION(T, OP, N, HOW) \
FN T group_##N(T x, int g) { (void)g; return x; } \
static T fold_##N(T s, const T *of, int n) { \
    T lane[LANES]; int k = 0; \
    if (n >= 2 * LANES) { \
        for (int l = 0; l < LANES; l++) lane[l] = of[l]; \
        for (k = LANES; k + LANES <= n; k += LANES) for (int l = 0; l < LANES; l++) lane[l] = OP(lane[l], of[k + l]); \
        for (int h = LANES / 2; h; h /= 2) for (int l = 0; l < h; l++) lane[l] = OP(lane[l], lane[l + h]); \
        s = OP(s, lane[0]); } \
    for (; k < n; k++) s = OP(s, of[k]); \
    return s; } \
FN void store_warp_##N(T x, char *at) { *(T *)at = x; } \
FN T load_result_##N(const char *at) { return *(const T *)at; }
#endif

#define AHEAD(T, N, SIGN) \
FN int ahead_##N(T a, int i, T b, int j) { \
    return a SIGN b || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j); } \
/* of a that comes after b, the best so far at place j, if there was one */ \
FN int later_##N(T a, T b, int j) { return (a SIGN b) | ((a != a) & (b == b)) | (j == MOST_i32); }
#ifdef __CUDACC__
/* zeros of either sign are equal: 0 is added */
#define FIRST_LEAST(T, N) FN int reduce_warp_##N(T *value, int i) { \
    auto own = LEAST_KEY(*value + (T)0), best = least_key(own); of_key(best, value); \
    return (int)least_key(own == best ? (u32)i : 0xffffffffu); }
#define FIRST_MOST(T, N) FN int reduce_warp_##N(T *value, int i) { \
    auto own = MOST_KEY(*value + (T)0), best = least_key(own); of_key(~best, value); \
    return (int)least_key(own == best ? (u32)i : 0xffffffffu); }
#define ARG_EXTREME(T, N, SIGN, HOW) AHEAD(T, N, SIGN) HOW \
FN void keep_##N(T x, int i, char *at, int place, int room) { \
    if (LANE == 0) { ((T *)at)[place] = x; ((int *)(at + room))[place] = i; } } \
FN void store_warp_##N(T x, int i, char *at) { i = reduce_warp_##N(&x, i); keep_##N(x, i, at, WARP, 8 * WARPS); } \
FN int best_##N(T *value, const char *at, int count, int room) { \
    int first = LANE < count ? LANE : 0; \
    T x = ((const T *)at)[first]; int i = ((const int *)(at + room))[first]; \
    for (int k = LANE + 32; k < count; k += 32) { \
        T y = ((const T *)at)[k]; int j = ((const int *)(at + room))[k]; \
        if (ahead_##N(y, j, x, i)) { x = y; i = j; } } \
    *value = x; return reduce_warp_##N(value, i); } \
FN void publish_##N(const char *at, char *to) { \
    T x; int i = best_##N(&x, at, WARPS, 8 * WARPS); \
    PUBLISH(to, RUN_BLOCK, x); \
    PUBLISH(to + 8 * RUN_BLOCKS, RUN_BLOCK, i); } \
FN int gather_##N(const char *at, int count, int room) { T x; return best_##N(&x, at, count, room); } \
FN T value_##N(const char *at, int count, int room) { T x; best_##N(&x, at, count, room); return x; }
#else
#define ARG_EXTREME(T, N, SIGN, HOW) AHEAD(T, N, SIGN) \
static int fold_##N(T *s, int at, const T *of, const int *places, int n) { \
    for (int k = 0; k < n; k++) if (later_##N(of[k], *s, at)) { *s = of[k]; at = places[k]; } \
    return at; } \
FN void store_warp_##N(T x, int i, char *at) { (void)x; *(int *)at = i; } \
FN int load_result_##N(const char *at) { return *(const int *)at; }
#endif
