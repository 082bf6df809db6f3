/* a reduction: each warp gives its part; in a team a block adds up its parts and passes them on; then every thread
   takes the whole. A block of one warp knows it at once. reductions.py says which way is taken when. */
#define PART (16 * WARPS)
#define TEAM_PART (16 * TEAM)
#define ROOM(n) (parts + (n) * PART)
#define TEAM_ROOM(n) (team_parts + (n) * TEAM_PART)
#ifdef __CUDACC__
#if TEAM == 1 && BLOCK == 32
#define GIVE(N, x, n) x = whole_##N(x)
#define GIVE_BEST(N, x, i, n) i = whole_##N(&x, i)
#define OWN_TAKE(N, none, n, x) x
#define OWN_TAKE_BEST(N, n, i) i
#define OWN_VALUE(N, n, x) x
#else
#define GIVE(N, x, n) give_##N(x, ROOM(n))
#define GIVE_BEST(N, x, i, n) give_##N(x, i, ROOM(n))
#define OWN_TAKE(N, none, n, x) gather_##N(none, ROOM(n), WARPS)
#define OWN_TAKE_BEST(N, n, i) gather_##N(ROOM(n), WARPS, 8 * WARPS)
#define OWN_VALUE(N, n, x) value_##N(ROOM(n), WARPS, 8 * WARPS)
#if TEAM <= 16
#define TAKE LATE_TAKE
#define TAKE_BEST LATE_TAKE_BEST
#else
#define TAKE(N, none, n, x) first_##N(ROOM(n))
#define TAKE_BEST(N, n, i) (*(const int *)ROOM(n))
#endif
#define LATE (TEAM <= 16 || THE_LAST)
#define LATE_TAKE(N, none, n, x) (LATE ? gather_##N(none, TEAM_ROOM(n), TEAM) : none)
#define LATE_TAKE_BEST(N, n, i) (LATE ? gather_##N(TEAM_ROOM(n), TEAM, 8 * TEAM) : 0)
#endif
#if TEAM > 1 && TEAM <= 16
/* the same place in the shared memory of another block of the cluster */
FN char *in_block(const char *at, int block) {
    char *there; asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(at), "r"(block)); return there; }
#define TO_OTHERS(at, place, x) if (LANE < TEAM) ((decltype(x) *)in_block(at, LANE))[place] = x
#else
#define TO_OTHERS(at, place, x) if (LANE == 0) ((decltype(x) *)(at))[place] = x
#endif
#define PASS(N, none, n, k) \
    if (WARP == (k) % WARPS) spread_##N(gather_##N(none, ROOM(n), WARPS), TEAM_ROOM(n))
#define PASS_BEST(N, n, k) if (WARP == (k) % WARPS) spread_##N(ROOM(n), TEAM_ROOM(n))
/* parts that meet in any order: at one number in memory, two of which take turns; 0 is less than all */
#define MEET_ROOM(n, g) (scratch + COUNTER + ((n) * 2 + ((g) & 1)) * MEETING)
#define MEET(N, none, n, k) \
    if (WARP == (k) % WARPS) meet_##N(gather_##N(none, ROOM(n), WARPS), MEET_ROOM(n, g))
#define MET(N, n) met_##N(MEET_ROOM(n, g))
#define UNMEET(n) *(u64 *)MEET_ROOM(n, (g) + 1) = 0
#define MEET_SUM(T, U, N) \
FN void meet_##N(T x, char *at) { if (LANE == 0) atomicAdd((U *)at, (U)x); } \
FN T met_##N(const char *at) { return *(const T *)at; }
#define MEET_MOST(T, N) \
FN void meet_##N(T x, char *at) { auto key = MOST_KEY(x); if (LANE == 0) atomicMax((decltype(key) *)at, ~key); } \
FN T met_##N(const char *at) { T x; of_key(*(const decltype(key_of(x)) *)at, &x); return x; }
#define MEET_LEAST(T, N) \
FN void meet_##N(T x, char *at) { auto key = LEAST_KEY(x); if (LANE == 0) atomicMax((decltype(key) *)at, ~key); } \
FN T met_##N(const char *at) { T x; of_key(~*(const decltype(key_of(x)) *)at, &x); return x; }
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
FN void spread_##N(T x, char *at) { TO_OTHERS(at, MEMBER, x); } \
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
#define MEET(N, none, n, k)
#define MET(N, n) take_##N(ROOM(n))
#define UNMEET(n)
#define LATE_TAKE TAKE
#define LATE_TAKE_BEST TAKE_BEST
#define MEET_SUM(T, U, N)
#define MEET_MOST(T, N)
#define MEET_LEAST(T, N)
#define TAKE(N, none, n, x) take_##N(ROOM(n))
#define TAKE_BEST(N, n, i) take_##N(ROOM(n))
#define OWN_TAKE TAKE
#define OWN_TAKE_BEST TAKE_BEST
#define OWN_VALUE(N, n, x) x
#define PARTS(T, OP, N, HOW) \
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
FN void give_##N(T x, char *at) { *(T *)at = x; } \
FN T take_##N(const char *at) { return *(const T *)at; }
#endif

#define AHEAD(T, N, SIGN) \
FN int ahead_##N(T a, int i, T b, int j) { \
    return a SIGN b || (a != a && b == b) || ((a == b || (a != a && b != b)) && i < j); } \
/* of a that comes after b, the best so far at place j, if there was one */ \
FN int later_##N(T a, T b, int j) { return (a SIGN b) | ((a != a) & (b == b)) | (j == MOST_i32); }
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
FN void spread_##N(const char *at, char *to) { \
    T x; int i = best_##N(&x, at, WARPS, 8 * WARPS); \
    TO_OTHERS(to, MEMBER, x); \
    TO_OTHERS(to + 8 * TEAM, MEMBER, i); } \
FN int gather_##N(const char *at, int count, int room) { T x; return best_##N(&x, at, count, room); } \
FN T value_##N(const char *at, int count, int room) { T x; best_##N(&x, at, count, room); return x; }
#else
#define BEST(T, N, SIGN, HOW) AHEAD(T, N, SIGN) \
static int fold_##N(T *s, int at, const T *of, const int *places, int n) { \
    for (int k = 0; k < n; k++) if (later_##N(of[k], *s, at)) { *s = of[k]; at = places[k]; } \
    return at; } \
FN void give_##N(T x, int i, char *at) { (void)x; *(int *)at = i; } \
FN int take_##N(const char *at) { return *(const int *)at; }
#endif
