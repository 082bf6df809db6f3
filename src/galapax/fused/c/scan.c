/* running sums: each warp has a piece of a row, 32 numbers at a time; alone: each block makes all of it for itself */
#ifdef __CUDACC__
#define PIECE_TURNS(n, alone) (((n) - 1) / ((alone) ? BLOCK : THREADS) + 1)
#define OVER_PIECE(turn, k, n, alone) for (int turn = 0, k = \
    (((alone) ? WARP : MEMBER * WARPS + WARP) * PIECE_TURNS(n, alone)) * 32 + LANE; \
    turn < PIECE_TURNS(n, alone); turn++, k += 32)
#define HOLDS(n, alone) (PIECE_TURNS(n, alone) <= 16)
#define HELD(n, alone) (HOLDS(n, alone) ? PIECE_TURNS(n, alone) : 1)
#define PIECE_GIVE(N, x, n) give_##N(x, ROOM(n))
#define PIECE_GIVE_BITS(N, x, n) if (LANE == 0) ((int *)ROOM(n))[WARP] = x
#define PIECE_BEFORE(N, none, n, alone) before_##N(none, ROOM(n), TEAM_ROOM(n), alone)
#define SCAN(T, OP, N) \
FN T run_##N(T *before, T x) { \
    for (int k = 1; k < 32; k <<= 1) { T y = __shfl_up_sync(0xffffffffu, x, k); if (LANE >= k) x = OP(y, x); } \
    T here = OP(*before, x); \
    *before = OP(*before, __shfl_sync(0xffffffffu, x, 31)); \
    return here; } \
FN T before_##N(T none, const char *at, const char *team_at, int alone) { \
    T before = none; \
    if (TEAM > 1 && !alone && MEMBER) before = gather_##N(none, team_at, MEMBER); \
    T ahead = LANE < WARP ? ((const T *)at)[LANE] : none; \
    return WARPS > 1 ? OP(before, whole_##N(ahead)) : before; }
FN u32 voted(u32 x) { return __ballot_sync(0xffffffffu, (int)x); }
FN int run_bits(int *before, u32 all) {
    int here = *before + __popc(all & (0xffffffffu >> (31 - LANE)));
    *before += __popc(all);
    return here; }
#else
#define OVER_PIECE(turn, k, n, alone) for (int turn = 0, k = 0; k < (n); k++)
#define HOLDS(n, alone) 0
#define HELD(n, alone) 1
#define PIECE_GIVE(N, x, n)
#define PIECE_GIVE_BITS(N, x, n)
#define PIECE_BEFORE(N, none, n, alone) none
#define SCAN(T, OP, N) FN T run_##N(T *before, T x) { *before = OP(*before, x); return *before; }
FN u32 voted(u32 x) { return x; }
FN int run_bits(int *before, u32 all) { *before += (int)all; return *before; }
#endif
