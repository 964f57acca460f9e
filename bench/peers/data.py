"""The files that all contenders read, from fixed seeds.

Usage: data.py blobs|correlated|onehot|words|mixed|clouds|signals|ratings|wide|collisions|fashion FOLDER SCALE. A scale below 1 makes fewer rows, for quick runs.
Files appear whole or not at all: they are written beside their place and then renamed.
"""

import os
import sys

import numpy as np


def blobs(folder, scale):
    """100 overlapping Gaussian clouds in 32 dimensions."""
    random = np.random.default_rng(11)
    rows = int(1_000_000 * scale)
    centres = random.normal(0.0, 2.0, (100, 32))
    points = centres[random.integers(0, 100, rows)] + random.normal(0.0, 1.5, (rows, 32))
    parquet(folder, "blobs", points)


def correlated(folder, scale):
    """100 features that share 10 causes and differ in scale, so that the solver has something to do."""
    random = np.random.default_rng(12)
    rows, columns, causes = int(1_000_000 * scale), 100, 10
    mixing = random.normal(size=(causes, columns))
    points = random.normal(size=(rows, causes)) @ mixing + 0.3 * random.normal(size=(rows, columns))
    points *= np.exp(random.uniform(-1.0, 1.0, columns))
    weights = random.normal(size=columns) / points.std(axis=0)
    score = points @ weights
    chance = 1.0 / (1.0 + np.exp(-(2.0 * score / score.std() - 0.5)))
    parquet(folder, "correlated", points, (random.random(rows) < chance).astype(np.int64))


def onehot(folder, scale):
    """14 categorical answers with 123 values together, as in LIBSVM's a9a, in LIBSVM's format."""
    random = np.random.default_rng(13)
    rows = int(300_000 * scale)
    widths = np.array([5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41])
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    chosen = np.empty((rows, len(widths)), np.int64)
    for column, width in enumerate(widths):
        popularity = 1.0 / np.arange(1, width + 1)
        chosen[:, column] = random.choice(width, rows, p=popularity / popularity.sum()) + starts[column]
    weights = random.normal(size=widths.sum())
    chance = 1.0 / (1.0 + np.exp(-(weights[chosen].sum(axis=1) - 1.5)))
    labels = np.where(random.random(rows) < chance, "+1", "-1")
    with whole(folder, "onehot.libsvm") as file:
        for label, features in zip(labels, chosen + 1):
            file.write(f"{label} " + " ".join(f"{feature}:1" for feature in features) + "\n")


def words(folder, scale):
    """Bags of 40 words out of 50,000, popular as words are: badly scaled features, in LIBSVM's format."""
    random = np.random.default_rng(2)
    rows, width, length = int(500_000 * scale), 50_000, 40
    popularity = 1.0 / (np.arange(width) + 10.0) ** 0.8
    chosen = np.searchsorted(np.cumsum(popularity / popularity.sum()), random.random((rows, length)))
    chosen = np.minimum(chosen, width - 1)
    weights = random.normal(size=width) * (random.random(width) < 0.3) * 0.6
    score = weights[chosen].sum(axis=1)
    labels = random.random(rows) < 1.0 / (1.0 + np.exp(score.mean() - score))
    # The last word stands in the last row, so that all programs see the same width.
    chosen[-1, -1] = width - 1
    with whole(folder, "words.libsvm") as file:
        for label, row in zip(labels, chosen + 1):
            found, counts = np.unique(row, return_counts=True)
            file.write(f"{int(label)} " + " ".join(f"{w}:{c}" for w, c in zip(found, counts)) + "\n")


def mixed(folder, scale):
    """50 mixtures of 50 causes, around a centre that is not the origin."""
    random = np.random.default_rng(17)
    rows = int(1_000_000 * scale)
    mixing = random.normal(size=(50, 50)) / 7.0
    parquet(folder, "mixed", random.normal(size=(rows, 50)) @ mixing + random.normal(size=50))


def clouds(folder, scale):
    """Ten clouds of different shapes in 16 dimensions."""
    random = np.random.default_rng(18)
    rows = int(200_000 * scale)
    centres, shapes = random.normal(size=(10, 16)) * 2.0, random.normal(size=(10, 16, 16)) / 4.0
    which = random.integers(10, size=rows)
    noise = np.einsum("nij,nj->ni", shapes[which], random.normal(size=(rows, 16)))
    parquet(folder, "clouds", centres[which] + noise)


def signals(folder, scale):
    """200 features that share ten causes; twenty of them make the number."""
    random = np.random.default_rng(19)
    rows, columns, causes = int(200_000 * scale), 200, 10
    points = random.normal(size=(rows, causes)) @ random.normal(size=(causes, columns))
    points = (0.5 * points / np.sqrt(causes) + random.normal(size=(rows, columns))).astype(np.float32)
    weights = np.zeros(columns)
    weights[random.choice(columns, 20, replace=False)] = random.normal(size=20)
    parquet(folder, "signals", points, points @ weights + random.normal(size=rows))


def ratings(folder, scale):
    """A million ratings of 4,000 items by 6,000 users with popularity as in life; a tenth is for testing."""
    random = np.random.default_rng(14)
    users, items, rank, many = 6_000, 4_000, 8, int(1_000_000 * scale)
    likes = random.normal(size=(users, rank)) * 0.45
    traits = random.normal(size=(items, rank)) * 0.45
    weight = lambda count: (lambda w: w / w.sum())(1.0 / np.sqrt(np.arange(count) + 50.0))
    pairs = random.choice(users, 2 * many, p=weight(users)) * items + random.choice(items, 2 * many, p=weight(items))
    pairs = random.permutation(np.unique(pairs))[:many]
    user, item = pairs // items, pairs % items
    score = 3.5 + (likes[user] * traits[item]).sum(axis=1) + random.normal(0.0, 0.5, len(pairs))
    score = np.clip(np.round(score * 2) / 2, 0.5, 6.5)
    is_test = random.random(len(pairs)) < 0.1
    # The test file first: the training file says that both are there.
    for name, part in (("ratings-test.csv", is_test), ("ratings.csv", ~is_test)):
        with whole(folder, name) as file:
            file.write("user,item,rating\n")
            file.writelines(f"{u},{i},{r}\n" for u, i, r in zip(user[part], item[part], score[part]))


def wide(folder, scale):
    """256 classes of 1,024 features: few rows and a large model, so that the bytes of an exchange are what counts."""
    random = np.random.default_rng(15)
    rows, columns, classes = int(1_600 * scale), 1_024, 256
    centres = random.normal(size=(classes, columns))
    labels = np.arange(rows) % classes
    random.shuffle(labels)
    points = (0.5 * centres[labels] + random.normal(size=(rows, columns))) / np.sqrt(columns)
    parquet(folder, "wide", points, labels)


def collisions(folder, scale):
    """28 features of which products, waves and steps decide, as hard as UCI's HIGGS; a sixth is for testing."""
    random = np.random.default_rng(16)
    rows, tests = int(1_000_000 * scale), int(200_000 * scale)
    x = random.standard_normal((rows + tests, 28), dtype=np.float32)
    x[:, 21:] = np.abs(x[:, 21:]) ** 1.5
    x[:, 7], x[:, 11] = random.integers(0, 3, (2, rows + tests))
    score = 0.8 * x[:, 0] * x[:, 1] - 0.6 * np.sin(2 * x[:, 2]) + 0.5 * (x[:, 3] > 0.5) * x[:, 4] + 0.4 * x[:, 22] * x[:, 5]
    score += -0.5 * np.abs(x[:, 6] - x[:, 8]) + 0.3 * x[:, 23] - 0.3 * (x[:, 7] == 1) * x[:, 9] + 0.2 * x[:, 10] ** 2
    chance = 1.0 / (1.0 + np.exp(-1.2 * (score - score.mean())))
    labels = (random.random(rows + tests) < chance).astype(np.int64)
    # The others first: the large training file says that all are there.
    parquet(folder, "collisions-test", x[rows:], labels[rows:])
    parquet(folder, "collisions-some", x[: rows // 5], labels[: rows // 5])
    parquet(folder, "collisions", x[:rows], labels[:rows])


def fashion(folder, scale):
    """Fashion-MNIST as Debian's package dataset-fashion-mnist has it, pixels less their mean over their deviation."""
    import gzip

    place = "/usr/share/datasets/fashion-mnist/"

    def numbers(name, header):
        with gzip.open(place + name) as stream:
            return np.frombuffer(stream.read()[header:], np.uint8)

    for part, name in (("t10k", "fashion-test"), ("train", "fashion")):
        pixels = numbers(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784).astype(np.float32)
        labels = numbers(f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64)
        rows = int(len(labels) * max(scale, 0.1))
        parquet(folder, name, ((pixels / 255 - 0.2860) / 0.3530)[:rows], labels[:rows])


def parquet(folder, name, points, labels=None):
    import pyarrow
    import pyarrow.parquet

    columns = {f"x{index}": points[:, index].astype(np.float32) for index in range(points.shape[1])}
    if labels is not None:
        columns["label"] = labels
    path = os.path.join(folder, f"{name}.parquet")
    pyarrow.parquet.write_table(pyarrow.table(columns), path + ".part", row_group_size=125_000)
    os.replace(path + ".part", path)


class whole:
    """A text file that gets its name only when it is complete."""

    def __init__(self, folder, name):
        self.path = os.path.join(folder, name)

    def __enter__(self):
        self.file = open(self.path + ".part", "w")
        return self.file

    def __exit__(self, failure, *_):
        self.file.close()
        if failure is None:
            os.replace(self.path + ".part", self.path)


if __name__ == "__main__":
    name, folder, scale = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    makers = {"blobs": blobs, "correlated": correlated, "onehot": onehot, "words": words, "mixed": mixed, "clouds": clouds,
              "signals": signals, "ratings": ratings, "wide": wide, "collisions": collisions, "fashion": fashion}
    makers[name](folder, float(scale))
