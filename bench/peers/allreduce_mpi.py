"""Open MPI through mpi4py: all-reduce of f32 in place. Run it under mpirun, which chooses ranks and transport.

Usage: mpirun -n WORKERS … python allreduce_mpi.py BYTES REPEATS. Rank 0 prints one line of JSON.
"""

import json
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

size, repeats = (int(word) for word in sys.argv[1:3])
world = MPI.COMM_WORLD
numbers = np.full(size // 4, world.rank + 1, np.float32)
world.Allreduce(MPI.IN_PLACE, numbers, MPI.SUM)
assert (numbers == world.size * (world.size + 1) / 2).all(), "the sum is wrong"

seconds = []
for _ in range(repeats + 2):
    numbers.fill(1.0)
    world.Barrier()
    start = time.perf_counter()
    world.Allreduce(MPI.IN_PLACE, numbers, MPI.SUM)
    seconds.append(time.perf_counter() - start)

if world.rank == 0:
    median = statistics.median(seconds[2:])
    print(json.dumps({
        "version": MPI.Get_library_version().split(",")[0],
        "median_seconds": median,
        "min_seconds": min(seconds[2:]),
        "gigabytes_per_second": size / median / 1e9,
    }))
