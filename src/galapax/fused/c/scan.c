/* running sums: each warp has a piece of a row, 32 numbers at a time; alone: each block makes all of it for itself */
#ifdef __CUDACC__
#define TILE_TURNS(n, alone) (((n) - 1) / ((alone) ? BLOCK_THREADS : RUN_THREADS) + 1)
#define FITS_REGISTERS(n, alone) (TILE_TURNS(n, alone) <= 16)
#define TILE_REGISTERS(n, alone) (FITS_REGISTERS(n, alone) ? TILE_TURNS(n, alone) : 1)
#define STORE_TILE(N, x, n) store_warp_##N(x, WARP_SLOT(n))
#define STORE_TILE_BITS(N, x, n) if (LANE == 0) ((int *)WARP_SLOT(n))[WARP] = x
#define TILE_PREFIX(N, none, n, alone) prefix_##N(none, WARP_SLOT(n), BLOCK_SLOT(n), alone)
#define SCAN(T, OP, N) \
FN T scan_##N(T *before, T x) { \
    for (int k = 1; k < 32; k <<= 1) { T y = __shfl_up_sync(0xffffffffu, x, k); if (LANE >= k) x = OP(y, x); } \
    T here = OP(*before, x); \
    *before = OP(*before, __shfl_sync(0xffffffffu, x, 31)); \
    return here; } \
FN T prefix_##N(T none, const char *at, const char *block_at, int alone) { \
    T before = none; \
    if (RUN_BLOCKS > 1 && !alone && RUN_BLOCK) before = gather_##N(none, block_at, RUN_BLOCK); \
    T ahead = LANE < WARP ? ((const T *)at)[LANE] : none; \
    return WARPS > 1 ? OP(before, reduce_warp_##N(ahead)) : before; }
FN u32 ballot(u32 x) { return __ballot_sync(0xffffffffu, (int)x); }
FN int scan_bits(int *before, u32 all) {
    int here = *before + __popc(all & (0xffffffffu >> (31 - LANE)));
    *before += __popc(all);
    return here; }
#else
#define FITS_REGISTERS(n, alone) 0
#define TILE_REGISTERS(n, alone) 1
#define STORE_TILE(N, x, n)
#define STORE_TILE_BITS(N, x, n)
#define TILE_PREFIX(N, none, n, alone) none
#define SCAN(T, OP, N) FN T scan_##N(T *before, T x) { *before = OP(*before, x); return *before; }
FN u32 ballot(u32 x) { return x; }
FN int scan_bits(int *before, u32 all) { *before += (int)all; return *before; }
#endif
