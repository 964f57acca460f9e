"""torch.distributed with gloo over loopback: all-reduce of f32, one process for each rank.

Usage: allreduce_gloo.py WORKERS BYTES REPEATS. Prints one line of JSON: seconds of one sum, as rank 0 sees it.
"""

import json
import os
import socket
import statistics
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def measure(rank, workers, size, repeats, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
    numbers = torch.full((size // 4,), float(rank + 1))
    dist.all_reduce(numbers)
    expected = workers * (workers + 1) / 2
    assert float(numbers.min()) == expected == float(numbers.max()), "the sum is wrong"
    seconds = []
    for _ in range(repeats + 2):
        # Fresh numbers each time: repeated sums of sums would overflow.
        numbers.fill_(1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(numbers)
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        seconds = seconds[2:]
        median = statistics.median(seconds)
        print(json.dumps({
            "version": torch.__version__,
            "median_seconds": median,
            "min_seconds": min(seconds),
            "gigabytes_per_second": size / median / 1e9,
        }), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    workers, size, repeats = (int(word) for word in sys.argv[1:4])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes.spawn(measure, args=(workers, size, repeats, port), nprocs=workers)
