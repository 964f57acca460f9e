"""Makes factorisation_machine.json anew: steps of a factorisation machine by PyTorch's own gradients and optimisers in
float64, from parameters and rows that the file holds; the score has a term for every pair, as the paper defines it.

    python bench/references/factorisation_machine.py
"""

import json
import pathlib
import re

import numpy
import torch

HERE = pathlib.Path(__file__).parent


def numbers_in_lines(text):
    """A list of numbers is a line, not a line each."""
    return re.sub(r"\n\s+(?=[-\d\]])", " ", text)
FEATURES, COMPONENTS, ROWS, STEPS, L2 = 6, 3, 20, 8, 0.01


def score(bias, weights, x):
    total = bias + x @ weights[:, 0]
    v = weights[:, 1:]
    for i in range(FEATURES):
        for j in range(i + 1, FEATURES):
            total = total + (v[i] @ v[j]) * x[:, i] * x[:, j]
    return total


def run(task, solver, start, x, y):
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    weights = torch.tensor(start, requires_grad=True)
    make = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-8),
        "adam": lambda p: torch.optim.Adam(p, lr=0.05, eps=1e-8),
    }
    optimiser = make[solver]([bias, weights])
    for _ in range(STEPS):
        optimiser.zero_grad()
        z = score(bias, weights, x)
        if task == "regression":
            loss = 0.5 * ((z - y) ** 2).mean()
        else:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
        (loss + 0.5 * L2 * (weights**2).sum()).backward()
        optimiser.step()
    rate = 0.05 if solver == "adam" else 0.1
    return {
        "task": task,
        "params": f"task = '{task}'\nsolver = '{solver}'\ncomponents = {COMPONENTS}\nl2 = {L2}\nlearning_rate = {rate}",
        "bias": float(bias.detach()),
        "weights": weights.detach().ravel().tolist(),
    }


def main():
    rng = numpy.random.default_rng(3)
    start = 0.3 * rng.normal(size=(FEATURES, 1 + COMPONENTS))
    x = rng.normal(size=(ROWS, FEATURES)).astype("float32")
    x[rng.random(size=x.shape) < 0.4] = 0
    numbers = rng.normal(size=ROWS).astype("float32")
    classes = (x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=ROWS) > 0).astype("float32")
    wide = torch.tensor(x.astype("float64"))
    runs = []
    for task, y in (("regression", numbers), ("classification", classes)):
        for solver in ("sgd", "adagrad", "adam"):
            runs.append(run(task, solver, start, wide, torch.tensor(y.astype("float64"))))
    found = {
        "made_with": {"torch": torch.__version__, "numpy": numpy.__version__},
        "features": FEATURES,
        "steps": STEPS,
        "start": start.ravel().tolist(),
        "x": x.ravel().tolist(),
        "numbers": numbers.tolist(),
        "classes": classes.tolist(),
        "runs": runs,
    }
    (HERE / "factorisation_machine.json").write_text(numbers_in_lines(json.dumps(found, indent=1)) + "\n")


main()
