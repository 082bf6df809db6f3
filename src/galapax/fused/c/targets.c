#define TURNS(n, step) (((n) + (step) - 1) / (step))
#ifdef __CUDACC__
#define FN static __device__ __forceinline__
typedef unsigned int u32;
typedef unsigned long long u64;
/* RUN_BLOCKS blocks of BLOCK_THREADS threads make a run: one block, a cluster of them, or a grid that is resident as a whole */
#if BLOCK_THREADS == 32
#define BLOCK_BARRIER __syncwarp();
#else
#define BLOCK_BARRIER __syncthreads();
#endif
#define RUN_THREADS (RUN_BLOCKS * BLOCK_THREADS)
#define RUN_BLOCK ((int)(blockIdx.x % RUN_BLOCKS))
/* neighbouring warps are of different blocks, so that a short loop keeps all of them busy */
#define THREAD ((WARP * RUN_BLOCKS + RUN_BLOCK) * 32 + LANE)
#if RUN_BLOCKS > 1 && RUN_BLOCKS <= 16
FN void run_barrier() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
#elif RUN_BLOCKS > 16
__shared__ u32 barrier_phase;
__shared__ u32 *barrier_counter;
FN void run_barrier() {
    __syncthreads();
    if (threadIdx.x == 0) {
        barrier_phase += RUN_BLOCKS;
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(barrier_counter) : "memory");
        u32 seen;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(seen) : "l"(barrier_counter) : "memory");
        } while (seen < barrier_phase);
    }
    __syncthreads();
}
#endif
#define LANE ((int)threadIdx.x & 31)
/* i % n, where n divides 32 and threads have places in their order: the same in every turn */
#define OF_LANE(i, n) (LANE % (n))
#define WARP ((int)threadIdx.x >> 5)
#define WARPS ((BLOCK_THREADS + 31) / 32)
/* the one that has least to do in most loops */
#define THE_LAST (RUN_BLOCK == RUN_BLOCKS - 1 && WARP == WARPS - 1)
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
#define ATOMIC_MAX(p, v) atomicMax(p, v)
#define ATOMIC_MIN(p, v) atomicMin(p, v)
#else
#include <math.h>
#include <stdlib.h>
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
/* turns of a loop do not depend on each other, so that the compiler may make several at once */
#ifdef __clang__
#define APART _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define APART _Pragma("GCC ivdep")
#else
#define APART
#endif
#define LANES 16
#define THREAD 0
#define WARPS 1
#define LANE 0
#define OF_LANE(i, n) ((u32)(i) % (n))
#define THE_LAST 1
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
FN float ipow_f32(float x, int y) { float r = 1; while (y) { if (y & 1) r *= x; x *= x; y >>= 1; } return r; }
FN double ipow_f64(double x, int y) { double r = 1; while (y) { if (y & 1) r *= x; x *= x; y >>= 1; } return r; }
