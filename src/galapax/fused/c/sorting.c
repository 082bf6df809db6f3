/* sorting: `order` becomes the rows 0 to SIZE - 1 in ascending order. KEYS: parameters, the arrays that AHEAD(i, j)
   compares rows i and j by; no two rows are equal. Each block sorts all of them, in memory of its own, by Batcher's
   bitonic network: in steps of at most 32 rows a warp waits for itself only. A CPU merges.
   fronts: `values` are the second objectives of points in order of the first, infinite where a point has no front. Front
   after front: a point is in it if its value is less than that of every unranked point before it. Each thread has EACH
   neighbours in registers. Once ENOUGH points are ranked, all others get the next number. On a CPU each point in turn
   goes to the first front whose least value is greater. */
#ifdef __CUDACC__
#define SORTED(NAME, SIZE, PADDED, KEYS, AHEAD) \
FN void NAME(int *order, KEYS) { \
    for (int i = (int)threadIdx.x; i < PADDED; i += BLOCK_THREADS) order[i] = i; \
    BLOCK_BARRIER \
    for (int length = 2; length <= PADDED; length *= 2) \
        for (int distance = length / 2; distance; distance /= 2) { \
            for (int t = (int)threadIdx.x; t < PADDED / 2; t += BLOCK_THREADS) { \
                const int first = 2 * t - (t & (distance - 1)), second = first + distance; \
                const int i = order[first], j = order[second]; \
                const int is_ahead = i >= SIZE ? j < i : j < SIZE && AHEAD(j, i); \
                if (is_ahead == !(first & length)) { order[first] = j; order[second] = i; } } \
            if (distance > 32 || (distance == 1 && length >= 64)) { BLOCK_BARRIER } else __syncwarp(); } \
    BLOCK_BARRIER }
#define FRONTS(NAME, T, MIN, SIZE, ENOUGH, NONE, SLOT) \
FN void NAME(const T *values, int *fronts, char *warp_partials) { \
    enum { EACH = TURNS(SIZE, BLOCK_THREADS) }; \
    const int start = (int)threadIdx.x * EACH; \
    T unranked[EACH]; \
    int ranks[EACH], count = 0, front = 0; \
    for (int e = 0; e < EACH; e++) { unranked[e] = start + e < SIZE ? values[start + e] : NONE; ranks[e] = -1; } \
    for (;; front++) { \
        T least = NONE; \
        for (int e = 0; e < EACH; e++) least = unranked[e] < least ? unranked[e] : least; \
        for (int k = 1; k < 32; k <<= 1) { \
            const T y = __shfl_up_sync(0xffffffffu, least, k); if (LANE >= k && y < least) least = y; } \
        T before = __shfl_up_sync(0xffffffffu, least, 1), all = __shfl_sync(0xffffffffu, least, 31); \
        if (LANE == 0) before = NONE; \
        int ranked = reduce_warp_add_i32(count); \
        if (WARPS > 1) { \
            char *at = WARP_SLOT(SLOT + (front & 1)); \
            if (LANE == 0) { ((T *)at)[WARP] = all; ((int *)(at + 8 * WARPS))[WARP] = ranked; } \
            BLOCK_BARRIER \
            const T of_warp = LANE < WARPS ? ((const T *)at)[LANE] : NONE; \
            ranked = reduce_warp_add_i32(LANE < WARPS ? ((const int *)(at + 8 * WARPS))[LANE] : 0); \
            all = reduce_warp_##MIN(of_warp); \
            const T ahead = reduce_warp_##MIN(LANE < WARP ? of_warp : NONE); \
            before = ahead < before ? ahead : before; } \
        if (ranked >= ENOUGH || !(all < NONE)) break; \
        for (int e = 0; e < EACH; e++) \
            if (unranked[e] < before) { before = unranked[e]; unranked[e] = NONE; ranks[e] = front; count++; } } \
    for (int e = 0; e < EACH; e++) if (start + e < SIZE) fronts[start + e] = ranks[e] < 0 ? front : ranks[e]; }
#else
#define SORTED(NAME, SIZE, PADDED, KEYS, AHEAD) \
FN void NAME(int *order, KEYS) { \
    int *const memory = malloc(SIZE * sizeof(int)), *from = memory, *to = order; \
    for (int i = 0; i < SIZE; i++) from[i] = i; \
    for (int length = 1; length < PADDED; length *= 2) { \
        for (int start = 0; start < SIZE; start += 2 * length) { \
            const int middle = start + length < SIZE ? start + length : SIZE; \
            const int end = middle + length < SIZE ? middle + length : SIZE; \
            for (int i = start, j = middle, k = start; k < end; k++) \
                to[k] = i < middle && (j == end || !(AHEAD(from[j], from[i]))) ? from[i++] : from[j++]; } \
        int *other = from; from = to; to = other; } \
    if (from != order) memcpy(order, from, SIZE * sizeof(int)); \
    free(memory); }
#define FRONTS(NAME, T, MIN, SIZE, ENOUGH, NONE, SLOT) \
FN void NAME(const T *values, int *fronts, char *warp_partials) { \
    T *least = malloc(SIZE * sizeof(T)); \
    int count = 0; \
    (void)warp_partials; \
    for (int i = 0; i < SIZE; i++) { \
        int low = 0, high = count; \
        if (!(values[i] < NONE)) { fronts[i] = -1; continue; } \
        while (low < high) { \
            const int middle = (low + high) / 2; \
            if (least[middle] > values[i]) high = middle; else low = middle + 1; } \
        least[low] = values[i]; \
        fronts[i] = low; \
        count += low == count; } \
    for (int i = 0; i < SIZE; i++) if (fronts[i] < 0) fronts[i] = count; \
    free(least); }
#endif
