"""What memory lets through: WORKERS processes that each copy BYTES from one array to another, all at the same time. The bound of a
sum from ordinary memory to ordinary memory: whoever sums reads its contribution and writes the result, however they meet.

Usage: copy_bandwidth.py WORKERS BYTES REPEATS. Prints one line of JSON: seconds of one copy, as the first process sees it; of
more workers than cores, until all have copied.
"""

import json
import multiprocessing
import os
import statistics
import sys
import time

import numpy as np


def measure(rank, barrier, size, repeats, told):
    source, target = np.full(size // 4, rank, np.float32), np.zeros(size // 4, np.float32)
    seconds = []
    for _ in range(repeats + 2):
        source.fill(rank)
        barrier.wait()
        start = time.perf_counter()
        np.copyto(target, source)
        if barrier.parties > len(os.sched_getaffinity(0)):
            barrier.wait()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        told.put(seconds[2:])


if __name__ == "__main__":
    workers, size, repeats = (int(word) for word in sys.argv[1:4])
    barrier, told = multiprocessing.Barrier(workers), multiprocessing.Queue()
    ranks = [multiprocessing.Process(target=measure, args=(rank, barrier, size, repeats, told)) for rank in range(workers)]
    for rank in ranks:
        rank.start()
    seconds = told.get()
    for rank in ranks:
        rank.join()
    median = statistics.median(seconds)
    print(json.dumps({
        "version": np.__version__,
        "median_seconds": median,
        "min_seconds": min(seconds),
        "gigabytes_per_second": size / median / 1e9,
    }))
