/* a table: of each 32 members a word of those who stay and how many stay before it; then of each 32 who stay the word
   in which the first of them is */
#ifdef __CUDACC__
#define STORE_BITPLANES(planes, bits, width, i, x) { u32 own = 0; \
    for (int b = 0; b < bits; b++) { \
        u32 all = __ballot_sync(0xffffffffu, (x) >> b & 1); \
        if (LANE == b) own = all; } \
    if (LANE < bits) ((u32 *)planes)[(turn_##i >> 5) * width + LANE] = own; }
/* few words are every warp's own business, so that none waits; neighbouring threads have neighbouring words */
#define FILL_ALONE(words) ((words) <= 64 || BLOCK_THREADS == 32)
#define FILL_STEP 32
#define FILL_TURNS(words) TURNS(words, FILL_ALONE(words) ? 32 : BLOCK_THREADS)
#define FILL_FIRST(words) ((FILL_ALONE(words) ? 0 : WARP * FILL_TURNS(words) * 32) + LANE)
#define FILL_BARRIER(words) if (FILL_ALONE(words)) __syncwarp(); else BLOCK_BARRIER
FN int fill_sum(int x, int alone, char *at) {
    if (alone) return reduce_warp_add_i32(x);
    store_warp_add_i32(x, at);
    BLOCK_BARRIER
    return gather_add_i32(0, at, WARPS); }
/* the numbers of the threads before this one, and those of all of a warp */
FN int fill_run(int x, int *total) {
    int here = x;
    for (int k = 1; k < 32; k <<= 1) { int y = __shfl_up_sync(0xffffffffu, here, k); if (LANE >= k) here += y; }
    *total = __shfl_sync(0xffffffffu, here, 31);
    return here - x; }
FN void fill_before(int *x, int *y, int alone, char *at, char *also) {
    if (LANE == 0) { ((int *)at)[WARP] = *x; ((int *)also)[WARP] = *y; }
    *x = *y = 0;
    if (alone) return;
    BLOCK_BARRIER
    *x = prefix_add_i32(0, at, at, 1); *y = prefix_add_i32(0, also, also, 1); }
FN void fill_read(const u32 *at, u32 *bits, int count) {
    const uint4 low = *(const uint4 *)at;
    bits[0] = low.x;
    if (count > 1) bits[1] = low.y;
    if (count > 2) bits[2] = low.z;
    if (count > 3) bits[3] = low.w;
    for (int b = 4; b < count; b++) bits[b] = at[b]; }
/* worth it in loops of several turns, and possible in those of as many as a warp has threads */
#define BY_TURNS(n) (TURNS(n, RUN_THREADS) > 4 && TURNS(n, RUN_THREADS) <= 32)
#define REPLACEMENTS_OF_TURNS(n, dim, table, words, half, old) (BY_TURNS(n) && THREAD - LANE + LANE * RUN_THREADS < (n) ? \
    find_replacement(table, words, half, old, (THREAD - LANE + LANE * RUN_THREADS) / (dim)) : -1)
#define OF_TURN(n, lanes, i, direct) (BY_TURNS(n) ? __shfl_sync(0xffffffffu, lanes, (u32)(i) / RUN_THREADS) : direct)
#else
#define REPLACEMENTS_OF_TURNS(n, dim, table, words, half, old) -1
#define OF_TURN(n, lanes, i, direct) direct
#define STORE_BITPLANES(planes, bits, width, i, x) for (int b = 0; b < bits; b++) { \
    u32 *word = (u32 *)planes + (i >> 5) * width + b; \
    *word = (i & 31 ? *word : 0) | (u32)((x) >> b & 1) << (i & 31); }
#define FILL_ALONE(words) 1
#define FILL_STEP 1
#define FILL_TURNS(words) (words)
#define FILL_FIRST(words) 0
#define FILL_BARRIER(words)
#define fill_sum(x, alone, at) (x)
#define fill_run(x, total) (*(total) = (x), 0)
#define fill_before(x, y, alone, at, also) (*(x) = *(y) = 0)
#define fill_read(at, bits, count) memcpy(bits, at, (count) * 4)
#endif
FN u32 lowest_bits(u32 x, int count) { u32 left = x; while (count-- > 0) left &= left - 1; return x ^ left; }
FN int place_of_bit(u32 x, int number) {
    int at = 0;
    for (int k = 16; k; k >>= 1) {
        int below = (int)popcount_u32(x >> at & ((1u << k) - 1));
        if (number >= below) { number -= below; at += k; } }
    return at; }
#define REPLACEMENT_TABLE(NAME, SIZE, BITS, WIDTH, SLOT) \
FN int NAME(const u32 *planes, u32 *table, char *warp_partials) { \
    enum { WORDS = ((SIZE) + 31) / 32, HALF = (SIZE) / 2, EACH = FILL_TURNS(WORDS), ALONE = FILL_ALONE(WORDS) }; \
    const int start = FILL_FIRST(WORDS); \
    u32 bits[EACH][BITS], tied[EACH], above[EACH]; \
    int above_before[EACH], tied_before[EACH], left = HALF, all_above = 0, all_tied = 0; \
    for (int t = 0; t < EACH; t++) { \
        const int w = start + t * FILL_STEP; \
        fill_read(planes + (w < WORDS ? w : 0) * WIDTH, bits[t], BITS); \
        tied[t] = w < WORDS - 1 ? 0xffffffffu : w == WORDS - 1 ? 0xffffffffu >> (31 - ((SIZE) - 1) % 32) : 0; \
        above[t] = 0; } \
    for (int b = BITS - 1; b >= 0; b--) { \
        int count = 0; \
        for (int t = 0; t < EACH; t++) count += popcount_u32(tied[t] & bits[t][b]); \
        count = fill_sum(count, ALONE, WARP_SLOT(SLOT + b)); \
        const int reached = count >= left; \
        left -= reached ? 0 : count; \
        for (int t = 0; t < EACH; t++) { \
            const u32 ones = tied[t] & bits[t][b]; \
            above[t] |= reached ? 0 : ones; \
            tied[t] = reached ? ones : tied[t] ^ ones; } } \
    for (int t = 0; t < EACH; t++) { \
        int both; \
        const int here = fill_run((int)popcount_u32(above[t]) << 16 | (int)popcount_u32(tied[t]), &both); \
        above_before[t] = all_above + (here >> 16); tied_before[t] = all_tied + (here & 0xffff); \
        all_above += both >> 16; all_tied += both & 0xffff; } \
    fill_before(&all_above, &all_tied, ALONE, WARP_SLOT(SLOT + BITS), WARP_SLOT(SLOT + BITS + 1)); \
    for (int t = 0; t < EACH; t++) { \
        const int w = start + t * FILL_STEP, count = popcount_u32(tied[t]), number = all_tied + tied_before[t]; \
        const int here = all_above + above_before[t] + min_i32(number, left), first = (here + 31) >> 5; \
        const u32 stay = above[t] | (number + count <= left ? tied[t] : lowest_bits(tied[t], left - number)); \
        if (w < WORDS) ((u64 *)table)[w] = (u64)(u32)here << 32 | stay; \
        if (w < WORDS && first * 32 < here + (int)popcount_u32(stay)) table[2 * (WORDS + 1) + first] = (u32)w; } \
    if (start == 0) ((u64 *)table)[WORDS] = (u64)HALF << 32; \
    FILL_BARRIER(WORDS) \
    const u64 own = ((const u64 *)table)[HALF >> 5]; \
    return (int)(own >> 32) + popcount_u32((u32)own & ((1u << (HALF & 31)) - 1)); }
FN int find_replacement(const u32 *table, int words, int half, int old, int row) {
    const u64 own = ((const u64 *)table)[row >> 5];
    const u32 stay = (u32)own, at = (u32)row & 31;
    if (stay >> at & 1) return -1;
    const int number = old + row - (int)(own >> 32) - (int)popcount_u32(stay & ((1u << at) - 1));
    int w = (int)table[2 * (words + 1) + (number >> 5)];
    while ((int)table[2 * w + 3] <= number) w++;
    return 32 * w + place_of_bit(table[2 * w], number - (int)table[2 * w + 1]) - half; }
