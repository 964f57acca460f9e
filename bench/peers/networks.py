"""Networks in PyTorch on the same rows, layers, batch, rate and passes as the jobs network-*.toml.

Usage: networks.py single1|single2|ddp mlp|cnn TRAIN.parquet TEST.parquet. `single1` and `single2` are one process with one
and two threads; `ddp` is DistributedDataParallel over gloo, two processes of one thread, half the batch each. Prints one
line of JSON; loading is not in `seconds`. The objective is the mean loss of the training rows after the last step.
"""

import json
import os
import socket
import sys
import time

MODE, KIND = sys.argv[1:3]
THREADS = 2 if MODE == "single2" else 1
for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[key] = str(THREADS)

import numpy as np
import pyarrow.parquet
import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch import nn

BATCH, RATE, EPOCHS = (256, 0.1, 5) if KIND == "mlp" else (128, 0.05, 1)


def read(path):
    table = pyarrow.parquet.read_table(path)
    rows = np.stack([table[name].to_numpy() for name in table.column_names if name != "label"], axis=1)
    return torch.from_numpy(rows.astype(np.float32)), torch.from_numpy(table["label"].to_numpy().astype(np.int64))


def network():
    torch.manual_seed(0)
    if KIND == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )


def train(rank, world, address, answers):
    torch.set_num_threads(THREADS)
    (rows, labels), test = read(sys.argv[3]), read(sys.argv[4])
    model = network()
    run = model
    if world > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
        run = nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    loss, share = nn.CrossEntropyLoss(), BATCH // world
    run(rows[:share])
    if world > 1:
        distributed.barrier()
    start, seen = time.perf_counter(), 0
    for epoch in range(EPOCHS):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))[rank::world]
        for at in range(0, len(order) - share + 1, share):
            picked = order[at:at + share]
            optimiser.zero_grad()
            loss(run(rows[picked]), labels[picked]).backward()
            optimiser.step()
            seen += share
    if world > 1:
        distributed.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        answers.put(graded(model, (rows, labels), test, seconds, seen * world))
    if world > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def graded(model, train, test, seconds, seen):
    def scores(rows):
        with torch.no_grad():
            return torch.cat([model(part) for part in rows.split(1000)])

    objective = nn.functional.cross_entropy(scores(train[0]), train[1]).item()
    accuracy = (scores(test[0]).argmax(1) == test[1]).double().mean().item()
    return dict(seconds=seconds, objective=objective, metrics={"accuracy": accuracy}, samples_per_second=seen / seconds,
                version=f"torch {torch.__version__}")


if __name__ == "__main__":
    world = 2 if MODE == "ddp" else 1
    context = processes.get_context("spawn")
    answers = context.Queue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "tcp://127.0.0.1:%d" % free.getsockname()[1]
    if world == 1:
        train(0, 1, address, answers)
        answer = answers.get(timeout=60)
    else:
        workers = [context.Process(target=train, args=(rank, world, address, answers)) for rank in range(world)]
        [worker.start() for worker in workers]
        answer = answers.get(timeout=1200)
        [worker.join(60) for worker in workers]
    print(json.dumps(answer))
