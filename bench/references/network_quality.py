"""How good networks get: Fashion-MNIST (Debian package dataset-fashion-mnist) with 2 and 4 workers, raw and compressed,
against fixed marks, and two language models on Tiny Shakespeare against the same models, rows, batch, optimiser and passes in
PyTorch. Prints JSON, and to standard error a line a figure; ends with 1 if a mark is missed.

Usage: network_quality.py --binary target/release/starlings [--text input.txt] [--only mlp|cnn|decoder|lstm] [--epochs N]
       [--workers N] [--codec raw|int8] > bench/references/network_quality.json
With --workers or --codec only those runs of mlp and cnn are made.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FASHION = "/usr/share/datasets/fashion-mnist/"
STEPS, BATCH, RATE, WARMUP, DECAY = 65, 64, 0.003, 100, 0.01
MARKS = {"mlp": 0.88, "cnn": 0.915}
EPOCHS = {"mlp": 10, "cnn": 12, "decoder": 3, "lstm": 3}
IMAGES = {
    "mlp": 'name = "mlp"\nhidden = [256, 128]\n',
    "cnn": 'name = "cnn"\nshape = [1, 28, 28]\nlearning_rate = 0.002\nlayers = ["augment flip on", "conv 32", "relu", "max-pool 2", '
           '"conv 64", "relu", "max-pool 2", "linear 128", "relu", "dropout 0.3"]\n',
}
TEXTS = {
    "decoder": 'name = "transformer"\nwidth = 64\nheads = 4\nblocks = 2\n',
    "lstm": 'name = "rnn"\ncell = "lstm"\nembedding = 32\nhidden = [128]\n',
}


def ours(binary, folder, job, **sets):
    path = os.path.join(folder, "job.toml")
    with open(path, "w") as file:
        file.write(job)
    command = [binary, "train", path, "--json"]
    for key, value in sets.items():
        command += ["--set", f"{key.replace('__', '.')}={value}"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(ended.stderr)
    report = json.loads(ended.stdout.splitlines()[-1])
    # A flock outlives a worker that is lost, but then it is no longer the one that was asked for.
    if report["faults"]:
        sys.exit(f"workers were lost: {report['faults']}")
    return report


def fashion(binary, folder, kind, epochs, wanted):
    files = {part: f'{{ images = "{FASHION}{name}-images-idx3-ubyte.gz", labels = "{FASHION}{name}-labels-idx1-ubyte.gz" }}'
             for part, name in (("train", "train"), ("test", "t10k"))}
    job = (f"[data]\ntrain = {files['train']}\ntest = {files['test']}\n"
           '[[prepare]]\nname = "scale"\nkind = "max-abs"\n'
           f"[learner]\n{IMAGES[kind]}schedule = \"cosine\"\n[train]\nepochs = {epochs}\nbatch = 128\nseed = 1\n"
           '[cluster]\nlauncher = "processes"\n')
    runs = [(workers, codec) for workers in (2, 4) for codec in ("raw", "int8")
            if wanted[0] in (None, workers) and wanted[1] in (None, codec)]
    found = []
    for workers, codec in runs:
        # Eight bits cannot be added on the way round a ring: each sends its own to all.
        topology = "mesh" if codec == "int8" else "ring"
        report = ours(binary, folder, job, cluster__workers=workers, cluster__codec=codec, cluster__topology=topology)
        found.append({"workers": workers, "codec": codec, "accuracy": report["evaluation"]["accuracy"]})
        print(kind, found[-1], file=sys.stderr)
    raw = {run["workers"]: run["accuracy"] for run in found if run["codec"] == "raw"}
    reached = all(run["accuracy"] >= MARKS[kind] for run in found)
    near = all(abs(run["accuracy"] - raw.get(run["workers"], run["accuracy"])) <= 0.005 for run in found)
    return {"epochs": epochs, "mark": MARKS[kind], "runs": found, "reached": reached and near}


class Block(nn.Module):
    """Attention, then two linear layers, each after a norm and beside a shortcut."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.joint, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, steps, width = x.shape
        parts = (part.reshape(rows, steps, self.heads, -1).transpose(1, 2)
                 for part in self.joint(self.norms[0](x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(rows, steps, width)
        x = x + self.output(mixed)
        return x + self.think(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self, width=64, heads=4, blocks=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Parameter(torch.randn(STEPS, width) * 0.02)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)), nn.LayerNorm(width), nn.Linear(width, 256))

    def forward(self, x):
        return self.blocks(self.tokens(x) + self.places)


class Recurrent(nn.Module):
    def __init__(self, embedding=32, width=128):
        super().__init__()
        self.tokens = nn.Embedding(256, embedding)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.cells, self.output = nn.LSTM(embedding, width, batch_first=True), nn.Linear(width, 256)

    def forward(self, x):
        return self.output(self.cells(self.tokens(x))[0])


def theirs(kind, train, test, epochs):
    torch.manual_seed(1)
    model = Decoder() if kind == "decoder" else Recurrent()
    # Matrices decay, vectors do not; nor do those of tokens and places.
    decays = [p for name, p in model.named_parameters() if p.dim() == 2 and name not in ("tokens.weight", "places")]
    others = [p for p in model.parameters() if all(p is not q for q in decays)]
    optimiser = torch.optim.AdamW([{"params": decays, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], lr=RATE)
    train, test = (torch.from_numpy(rows.astype(np.int64)) for rows in (train, test))
    total = epochs * math.ceil(len(train) / BATCH)

    def factor(step):
        if step < WARMUP:
            return (step + 1) / WARMUP
        return 0.5 * (1 + math.cos(math.pi * min((step - WARMUP) / max(total - WARMUP, 1), 1)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, factor)

    def loss(rows):
        scores = model(rows)[:, :-1]
        return F.cross_entropy(scores.reshape(-1, 256), rows[:, 1:].flatten())

    for _ in range(epochs):
        for rows in train[torch.randperm(len(train))].split(BATCH):
            optimiser.zero_grad()
            loss(rows).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        parts = [(loss(rows).item(), len(rows)) for rows in test.split(256)]
    return sum(value * count for value, count in parts) / len(test)


def language(binary, folder, kind, epochs, text):
    numbers = np.frombuffer(open(text, "rb").read(), np.uint8)
    rows = numbers[: len(numbers) // STEPS * STEPS].reshape(-1, STEPS)
    cut = len(rows) * 9 // 10
    parts = {"train": rows[:cut], "test": rows[cut:]}
    for name, part in parts.items():
        np.save(os.path.join(folder, f"{name}.npy"), part)
    job = ('[data]\ntrain = "train.npy"\ntest = "test.npy"\n'
           f'[learner]\n{TEXTS[kind]}task = "next-token"\ntokens = 256\nsolver = "adamw"\nlearning_rate = {RATE}\n'
           f'weight_decay = {DECAY}\nschedule = "cosine"\nwarmup_steps = {WARMUP}\nclip_norm = 1.0\n'
           f'[train]\nepochs = {epochs}\nbatch = {BATCH}\nseed = 1\n[cluster]\nlauncher = "processes"\nworkers = 2\n')
    own = ours(binary, folder, job)["evaluation"]["loss"]
    other = theirs(kind, parts["train"], parts["test"], epochs)
    found = {"epochs": epochs, "text": os.path.basename(text), "rows": len(rows), "loss": own, "loss_torch": other,
             "ratio": own / other, "reached": own <= 1.02 * other}
    print(kind, found, file=sys.stderr)
    return found


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--binary", required=True, type=os.path.abspath)
    words.add_argument("--text", default="../shared/data/tinyshakespeare_input.txt", type=os.path.abspath)
    words.add_argument("--only", choices=[*MARKS, *TEXTS])
    words.add_argument("--epochs", type=int)
    words.add_argument("--workers", type=int, choices=[2, 4])
    words.add_argument("--codec", choices=["raw", "int8"])
    given = words.parse_args()
    figures = {"made with": f"torch {torch.__version__}"}
    with tempfile.TemporaryDirectory() as folder:
        for kind in [given.only] if given.only else [*MARKS, *TEXTS]:
            epochs = given.epochs or EPOCHS[kind]
            there = FASHION if kind in MARKS else given.text
            if not os.path.exists(there):
                print(f"{kind}: {there} is not there", file=sys.stderr)
                continue
            if kind in MARKS:
                figures[kind] = fashion(given.binary, folder, kind, epochs, (given.workers, given.codec))
            else:
                figures[kind] = language(given.binary, folder, kind, epochs, given.text)
    print(json.dumps(figures, indent=1))
    sys.exit(0 if all(found.get("reached", True) for found in figures.values() if isinstance(found, dict)) else 1)


main()
