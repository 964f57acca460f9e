"""PyTorch DistributedDataParallel on the jobs of `cargo xtask bench slow-links`: the same model, data, batch and rate.

Usage: ddp.py softmax|factorisation|mlp FILE HOOK EPOCHS BATCH RATE, with HOOK one of none, fp16, powersgd. One process a
seat; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and GLOO_SOCKET_IFNAME come from the environment. The last line of
rank 0 is JSON: seconds, and for every pass the seconds of training until then, the mean loss of its steps and the
objective over all rows. The clock stands still while the objective is computed.
"""

import csv
import json
import os
import sys
import time

import numpy as np
import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


def labelled(path):
    """Rows and labels of a parquet file."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    columns = [table.column(name).to_numpy() for name in table.column_names if name != "label"]
    return torch.from_numpy(np.stack(columns, axis=1)), torch.from_numpy(table.column("label").to_numpy().copy())


class Softmax(nn.Module):
    """Scores of classes, and their mean log loss."""

    penalty = 1e-4

    def __init__(self, path):
        super().__init__()
        self.rows, self.labels = labelled(path)
        self.linear = nn.Linear(self.rows.shape[1], int(self.labels.max()) + 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, chosen):
        loss = nn.functional.cross_entropy(self.linear(self.rows[chosen]), self.labels[chosen])
        return loss, loss.detach()

    @torch.no_grad()
    def objective(self):
        loss = nn.functional.cross_entropy(self.linear(self.rows), self.labels)
        return float(loss + 0.5 * self.penalty * (self.linear.weight**2).sum())

    def rate(self, rate, _epoch):
        return rate


class Factorisation(nn.Module):
    """Ratings as products of factors, with biases; the loss is the mean squared error."""

    penalty = 0.0
    rank = 32
    ridge = 0.05

    def __init__(self, path):
        super().__init__()
        with open(path, newline="") as file:
            lines = [(int(a), int(b), float(c)) for a, b, c in list(csv.reader(file))[1:]]
        numbers = np.array(lines)
        _, users = np.unique(numbers[:, 0], return_inverse=True)
        _, items = np.unique(numbers[:, 1], return_inverse=True)
        self.users, self.items = torch.from_numpy(users), torch.from_numpy(items)
        self.ratings = torch.from_numpy(numbers[:, 2].astype(np.float32))
        self.mean = self.ratings.mean()
        self.rows = self.ratings
        # The last column of each matrix is the bias.
        self.user = nn.Embedding(int(users.max()) + 1, self.rank + 1)
        self.item = nn.Embedding(int(items.max()) + 1, self.rank + 1)
        for matrix in (self.user, self.item):
            nn.init.normal_(matrix.weight, std=0.05)
            with torch.no_grad():
                matrix.weight[:, -1] = 0.0

    def forward(self, chosen):
        p, q = self.user(self.users[chosen]), self.item(self.items[chosen])
        guess = self.mean + p[:, -1] + q[:, -1] + (p[:, :-1] * q[:, :-1]).sum(axis=1)
        squared = (self.ratings[chosen] - guess) ** 2
        # DDP takes the mean over seats where the job takes the sum of steps of single ratings.
        whole = 0.5 * (squared + self.ridge * ((p * p).sum(axis=1) + (q * q).sum(axis=1)))
        return distributed.get_world_size() * whole.sum(), squared.detach().mean()

    @torch.no_grad()
    def objective(self):
        whole, _ = self(torch.arange(len(self.ratings)))
        return float(2.0 * whole / distributed.get_world_size() / len(self.ratings))

    def rate(self, rate, epoch):
        return rate / (1.0 + 0.1 * epoch)


class Perceptron(nn.Module):
    """784-512-256-10 with the mean log loss."""

    penalty = 0.0

    def __init__(self, path):
        super().__init__()
        self.rows, self.labels = labelled(path)
        sizes = [self.rows.shape[1], 512, 256, int(self.labels.max()) + 1]
        layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, chosen):
        loss = nn.functional.cross_entropy(self.layers(self.rows[chosen]), self.labels[chosen])
        return loss, loss.detach()

    @torch.no_grad()
    def objective(self):
        return float(nn.functional.cross_entropy(self.layers(self.rows), self.labels))

    def rate(self, rate, _epoch):
        return rate


def hooked(model, hook):
    wrapped = DistributedDataParallel(model)
    if hook == "fp16":
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        # Compression from the earliest step that warm start and error feedback allow; the default waits for 1,000.
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return wrapped


def main(job, path, hook, epochs, batch, rate):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo")
    seat, seats = distributed.get_rank(), distributed.get_world_size()
    model = {"softmax": Softmax, "factorisation": Factorisation, "mlp": Perceptron}[job](path)
    wrapped = hooked(model, hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, weight_decay=model.penalty)
    distributed.barrier()
    curve, spent = [], 0.0
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = model.rate(rate, epoch)
        order = torch.randperm(len(model.rows), generator=torch.Generator().manual_seed(epoch))
        losses, start = [], time.perf_counter()
        for place in range(0, len(order), batch):
            chosen = order[place : place + batch][seat::seats]
            optimiser.zero_grad()
            loss, told = wrapped(chosen)
            loss.backward()
            optimiser.step()
            losses.append(told)
        spent += time.perf_counter() - start
        curve.append((spent, torch.stack(losses).mean(), model.objective()))
        distributed.barrier()
    # The seats' losses are put together after the clock has stopped.
    means = torch.stack([mean for _, mean, _ in curve])
    distributed.all_reduce(means)
    if seat == 0:
        points = [[seconds, float(mean) / seats, whole] for (seconds, _, whole), mean in zip(curve, means)]
        print(json.dumps({"seconds": spent, "objective": curve[-1][2], "curve": points}), flush=True)
    distributed.barrier()
    # gloo's threads sometimes abort an orderly end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
