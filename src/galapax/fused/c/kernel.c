struct Arguments { void *p[POINTERS]; };
DEFINITIONS

FN void one(void *const *p, int RUN, int RUNS, char *shared, char *scratch) {
  (void)RUN; (void)RUNS; (void)scratch;
CODE
}

#ifdef __CUDACC__
#if TEAM > 1 && TEAM <= 16
#define AS_CLUSTER __cluster_dims__(TEAM, 1, 1)
#else
#define AS_CLUSTER
#endif
extern "C" __global__ void AS_CLUSTER __launch_bounds__(BLOCK, RESIDENT)
galapax_run(const __grid_constant__ struct Arguments a, int runs, char *scratch) {
  extern __shared__ __align__(16) char shared[];
  int run = blockIdx.x / TEAM;
  char *own = scratch + (long long)run * SCRATCH;
#if TEAM > 16
  if (threadIdx.x == 0) { team_phase = 0; team_counter = (u32 *)own; }
  __syncthreads();
#endif
  one(a.p, run, runs, shared, own);
}
#else
void galapax_run(const struct Arguments *a, int first, int end, int runs, char *shared, char *scratch) {
  for (int run = first; run < end; run++) one(a->p, run, runs, shared, scratch);
}
#endif
