/* elements that threads share out: how often is known when it is compiled, so that a short loop is none */
#define TURNS(n, step) (((n) + (step) - 1) / (step))
#define SHARED_OUT(i, n, first, step) for (int i = (first), turn_##i = 0; \
    turn_##i < TURNS(n, step) && ((n) % (step) == 0 || i < (n)); turn_##i++, i += (step))
#ifdef __CUDACC__
#define WRITTEN_OUT _Pragma("unroll")
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
#define LOOP(i, n) SHARED_OUT(i, n, THREAD, THREADS)
#define LOOP_ATOMIC LOOP
#define LOOP_BACK(i, n) SHARED_OUT(i, n, THREADS - 1 - THREAD, THREADS)
#define LOOP_BY(i, n, k) for (int i = THREAD; i < (n); i += (k) * THREADS)
#define NEXT(i, k, n) (i + (k) * THREADS < (n) ? i + (k) * THREADS : i)
#define BLOCK_LOOP(i, n) SHARED_OUT(i, n, (int)threadIdx.x, BLOCK)
#define BLOCK_LOOP_ATOMIC BLOCK_LOOP
#define LANE ((int)threadIdx.x & 31)
/* i % n, where n divides 32 and threads have places in their order: the same in every turn */
#define OF_LANE(i, n) (LANE % (n))
#define WARP ((int)threadIdx.x >> 5)
#define WARPS ((BLOCK + 31) / 32)
#define FIRST if (THREAD == 0)
/* the one that has least to do in most loops */
#define THE_LAST (MEMBER == TEAM - 1 && WARP == WARPS - 1)
#define LAST if (THE_LAST && LANE == 0)
#define KEEPS 32 /* generations whose rows of history a warp keeps */
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
/* what a thread has seen of a reduction: `folds` is for the host */
#define TOTAL(T, s, none) T s = none
#define TOTAL_BEST(T, s, at, none) T s = none; int at = MOST_i32
#define LOOP_OF(i, n, folds) LOOP(i, n)
#define LOOP_BACK_OF(i, n, folds) LOOP_BACK(i, n)
#define LOOP_BY_OF(i, n, k, folds) LOOP_BY(i, n, k)
#define BLOCK_LOOP_OF(i, n, folds) BLOCK_LOOP(i, n)
#define STEPS_OF(i, n, folds) for (int i = 0; i < (n); i++)
#define GROUP_STEPS_OF(i, n, g, folds) SHARED_OUT(i, n, lane, g)
/* what is read for them, all at once */
#define FETCH_STEPS(i, n, g) WRITTEN_OUT SHARED_OUT(i, n, lane, g)
#define FETCHED(held, i, x) held[turn_##i]
#define SEEN(N, s, i, x) s = N(s, x)
#define SEEN_TOO SEEN
#define SEEN_BEST(N, s, at, i, x, place) if (later_##N(x, s, at)) { s = x; at = place; }
#define SEEN_BEST_TOO SEEN_BEST
#define CHANGES(test) if (test)
#define CHANGED(changed, whole) changed
#define ATOMIC_ADD(p, v) atomicAdd(p, v)
#define ATOMIC_MAX(p, v) atomicMax(p, v)
#define ATOMIC_MIN(p, v) atomicMin(p, v)
#else
#include <math.h>
#include <string.h>
#if defined(__GLIBC__) && defined(__x86_64__) && !defined(__clang__)
/* of these the C library has versions for several numbers at once */
#define AT_ONCE(NAME) extern __attribute__((simd("notinbranch"))) double NAME(double); \
    extern __attribute__((simd("notinbranch"))) float NAME##f(float);
AT_ONCE(sin) AT_ONCE(cos) AT_ONCE(exp) AT_ONCE(log)
extern __attribute__((simd("notinbranch"))) double pow(double, double);
extern __attribute__((simd("notinbranch"))) float powf(float, float);
#if __GLIBC_PREREQ(2, 35)
AT_ONCE(tan) AT_ONCE(asin) AT_ONCE(acos) AT_ONCE(atan) AT_ONCE(sinh) AT_ONCE(cosh) AT_ONCE(tanh) AT_ONCE(asinh)
AT_ONCE(acosh) AT_ONCE(atanh) AT_ONCE(exp2) AT_ONCE(expm1) AT_ONCE(log2) AT_ONCE(log1p) AT_ONCE(cbrt) AT_ONCE(erf)
AT_ONCE(erfc)
#endif
#endif
#define FN static inline __attribute__((always_inline))
typedef unsigned int u32;
typedef unsigned long long u64;
#define BARRIER
#define BLOCK_BARRIER
#define WRITTEN_OUT
/* turns of a loop do not depend on each other, so that the compiler may make several at once */
#ifdef __clang__
#define APART _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define APART _Pragma("GCC ivdep")
#else
#define APART
#endif
#define LOOP(i, n) APART for (int i = 0; i < (n); i++)
#define LOOP_ATOMIC(i, n) for (int i = 0; i < (n); i++)
#define LOOP_BY(i, n, k) for (int i = 0; i < (n); i += (k))
#define NEXT(i, k, n) (i + (k) < (n) ? i + (k) : i)
#define BLOCK_LOOP LOOP
#define BLOCK_LOOP_ATOMIC LOOP_ATOMIC
#define LOOP_BACK LOOP
/* what is to be reduced is written down, a tile at a time, as adding it up in the loop would keep turns in order */
#define TILE 128
#define LANES 16
#define TOTAL(T, s, none) T s = none, s##_of[TILE]
#define TOTAL_BEST(T, s, at, none) T s = none, s##_of[TILE]; int at = MOST_i32, at##_of[TILE]
#define TILES(i, n, k, folds) for (int tile_##i = 0, by_##i = (k), end_##i; \
    tile_##i < (n) && (end_##i = (n) - tile_##i < TILE ? (n) : tile_##i + TILE, 1); folds, tile_##i += TILE) \
    APART for (int i = tile_##i; i < end_##i; i += (k))
#define LOOP_OF(i, n, folds) TILES(i, n, 1, folds)
#define LOOP_BACK_OF LOOP_OF
#define LOOP_BY_OF TILES
#define BLOCK_LOOP_OF LOOP_OF
#define STEPS_OF LOOP_OF
#define GROUP_STEPS_OF(i, n, g, folds) TILES(i, n, 1, folds)
#define FETCH_STEPS(i, n, g) for (int i = 0, turn_##i = 0; i < 0; i++)
#define FETCHED(held, i, x) x
#define SLOT(i) ((i - tile_##i) / by_##i)
#define SEEN(N, s, i, x) s##_of[SLOT(i)] = x
#define SEEN_TOO(N, s, i, x) s##_of[SLOT(i)] = N(s##_of[SLOT(i)], x)
#define SEEN_BEST(N, s, at, i, x, place) { s##_of[SLOT(i)] = x; at##_of[SLOT(i)] = place; }
#define SEEN_BEST_TOO(N, s, at, i, x, place) \
    if (later_##N(x, s##_of[SLOT(i)], 0)) { s##_of[SLOT(i)] = x; at##_of[SLOT(i)] = place; }
#define FOLD(N, s, i) s = fold_##N(s, s##_of, (end_##i - tile_##i + by_##i - 1) / by_##i)
#define FOLD_BEST(N, s, at, i) at = fold_##N(&s, at, s##_of, at##_of, (end_##i - tile_##i + by_##i - 1) / by_##i)
/* an element that stays is written again */
#define CHANGES(test)
#define CHANGED(changed, whole) whole
#define THREAD 0
#define WARPS 1
#define GROUP(g) 1
#define FIRST
#define LAST
#define LANE 0
#define OF_LANE(i, n) ((u32)(i) % (n))
#define THE_LAST 1
#define KEEPS 1
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
#define ATOMIC_MAX(p, v) (*(p) = *(p) > (v) ? *(p) : (v))
#define ATOMIC_MIN(p, v) (*(p) = *(p) < (v) ? *(p) : (v))
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
