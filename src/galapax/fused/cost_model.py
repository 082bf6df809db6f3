"""The cost model: what the compiler assumes about a GPU, in one place.

Costs are in operations: what an addition takes one thread. `OpSpec.cost` has those of single operations. Most limits
are where two ways of computing took equally long on an H200; `benchmarks/phases.py` shows where a kernel's time goes,
and `benchmarks/gpu.py` how long it takes, by which a change here is judged.
"""

from __future__ import annotations

# operations
DEAR = 8.0  # a division, a root or a function of the C library, about
BARRIER_OPS = 2**12  # that a block executes in the time of a barrier of its threads
RUN_BARRIER_OPS = 2**16  # the same for a barrier of several blocks, times their number
MIN_BRANCH_OPS = 14  # a branch costs about as much: cheaper operands of a select are always computed
COST_CAP = 1000  # estimates stop here: anything dearer is materialised anyway

# recompute or materialise: operations per element
MAX_RECOMPUTE_OPS = 6  # what takes no more is recomputed by every loop that reads it
MAX_RECOMPUTE_OPS_IN_LOOP = 40  # the same where several roots of one loop read it
MAX_INLINE_REDUCTION = 64  # longer reductions are materialised, not computed inline by one thread

# registers of a thread
MAX_REGISTER_ELEMENTS = 6  # arrays up to this size are held in registers by every thread
MAX_PREFETCHED_VALUES = 8  # loads of a reduction that a thread makes at once
MAX_BUFFERED_VALUES = 8  # inputs of a history row that a lane buffers
MAX_SERIAL_ROW = 4 * MAX_REGISTER_ELEMENTS  # longer history rows are written by all threads
MAX_JOINT_REDUCTIONS = 20  # reductions over a long axis that share one pass of all threads
MAX_JOINT_SCANS = 4  # more rows are scanned one after another

# what one thread computes by itself
MAX_UNROLLED_STEPS = 16  # shorter reductions are unrolled
MAX_SERIAL_SCAN = 32  # longer scans are computed by all threads together
MAX_SERIAL_AXIS = 4  # all elements along axes this short,
MAX_SERIAL_ELEMENTS = 8  # together no more than that,
MIN_PARALLEL_ELEMENTS = 16  # if so many remain for other threads
MAX_STACKED_ARRAYS = 12  # longer stacks are distributed over threads
MAX_TABLE_ELEMENTS = 64  # larger arrays are not in the generation table, but computed where they are read

# groups of threads that share reductions
MIN_GROUP_STEPS = 8  # shorter reductions are not split among the threads of a group, where several blocks share a run
MAX_GROUPED_THREADS = 1024  # groups share the reductions of a loop up to this many threads
SECTOR_BYTES = 32  # a GPU loads memory in sectors of so many bytes: a group loads at least one

# what each block computes redundantly instead of waiting for a barrier of all blocks
MAX_REDUNDANT_ELEMENTS = 2**12  # elements of a loop; in a cluster, also of a scan or scatter
MAX_REDUNDANT_GRID_ELEMENTS = 2**15  # of a scan or scatter in a grid, whose barriers are dearer
MAX_REDUNDANT_LOOP_OPS = 2**17  # operations of a loop
MAX_REDUNDANT_COMPARISONS = 2**17  # of a rank sort

# sorting
MAX_RANK_SORTED = 512  # up to so many numbers all pairs are compared, by all threads; more are sorted by each block
MAX_RANK_SORTED_ON_CPU = 16
MAX_SORTED_ROWS = 4096  # numbers to a row of which several are sorted, which is by comparing all pairs
MAX_RANKED_POINTS = 2**14  # whose fronts a block finds, with their objectives in its registers

# blocks, and runs that share a streaming multiprocessor (SM)
MAX_BLOCK_THREADS = 1024  # the hardware's limit
MAX_SHARED_BYTES = 200 * 1024  # per block; arrays that do not fit are placed in global scratch memory
MAX_CLUSTER_BLOCKS = 16  # larger grids synchronise through a counter in global memory
MIN_CLUSTER_WORK = 2**13  # numbers of a population from which on several blocks share a run
WORK_PER_BLOCK = 512  # of these numbers
MAX_CLUSTER_WORK = 2**17  # a larger population of a single run takes a grid of all SMs
MAX_EXCLUSIVE_RUNS = 4  # per SM; of more runs several share an SM at a time, with fewer threads each
MAX_BRANCHLESS_RUNS = 8  # with more runs per SM it is busy anyway, so that branches which save work save time
MIN_VECTOR_ROW = 8  # on a CPU, longer rows are an inner loop that can be vectorised

# selection by bit planes; others use the generic selection
MAX_BITPLANE_POPULATION = 2**18
MAX_SCORE_BITS = 6
