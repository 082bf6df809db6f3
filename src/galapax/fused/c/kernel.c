struct Arguments { void *p[POINTERS]; };
DEFINITIONS

FN void one(void *const *p, int RUN, int RUNS, char *shared, char *scratch) {
  (void)RUN; (void)RUNS; (void)scratch;
CODE
}

#ifdef __CUDACC__
#if RUN_BLOCKS > 1 && RUN_BLOCKS <= 16
#define CLUSTER_ATTRIBUTE __cluster_dims__(RUN_BLOCKS, 1, 1)
#else
#define CLUSTER_ATTRIBUTE
#endif
extern "C" __global__ void CLUSTER_ATTRIBUTE __launch_bounds__(BLOCK_THREADS, RESIDENT)
galapax_run(const __grid_constant__ struct Arguments a, int runs, char *scratch) {
  extern __shared__ __align__(16) char shared[];
  int run = blockIdx.x / RUN_BLOCKS;
  char *own = scratch + (long long)run * SCRATCH;
#if RUN_BLOCKS > 16
  if (threadIdx.x == 0) { barrier_phase = 0; barrier_counter = (u32 *)own; }
  __syncthreads();
#endif
  one(a.p, run, runs, shared, own);
}
#else
void galapax_run(const struct Arguments *a, int first, int end, int runs, char *shared, char *scratch) {
  for (int run = first; run < end; run++) one(a->p, run, runs, shared, scratch);
}
#endif
