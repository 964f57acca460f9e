"""How far the quality of gradient boosting depends on the rows: five samples of the benchmark's training rows, ours with 13 and
with 32 bits a gradient, and LightGBM with bins from 200,000 rows and from all.

Usage: boosting_noise.py STARLINGS. The data of `cargo xtask bench --only "gradient boosting"` must be there. Prints a line a sample: training
log-loss and test AUC of the four, and last the means and deviations of the AUCs.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import lightgbm as lgb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import log_loss, roc_auc_score

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "target/bench/data/full"
ROWS, SAMPLES = 400_000, 5


def arrays(table):
    names = [name for name in table.column_names if name != "label"]
    return np.stack([table[name].to_numpy() for name in names], 1), table["label"].to_numpy().copy()


def ours(program, train, bits, folder):
    test = DATA / "collisions-test.parquet"
    words = [f'learner.gradient_bits="{bits}"', f'data.train="{train}"', f'data.test="{test}"']
    command = [program, "train", str(ROOT / "bench/jobs/boosting.toml"), "--workers", "2", "--json"]
    command += ["--out", str(folder / "model.safetensors")]
    for word in words:
        command += ["--set", word]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    report = json.loads(told.stdout.strip().splitlines()[-1])
    return report["objective"], report["evaluation"]["auc"]


def lightgbm(train, test, sampled):
    settings = dict(
        objective="binary", num_leaves=63, max_bin=255, learning_rate=0.1, min_data_in_leaf=20, num_threads=2, verbose=-1,
        seed=1, bin_construct_sample_cnt=sampled,
    )
    model = lgb.train(settings, lgb.Dataset(*train, params=settings), 100)
    return log_loss(train[1], model.predict(train[0])), roc_auc_score(test[1], model.predict(test[0]))


def main():
    program = sys.argv[1]
    table = pq.read_table(DATA / "collisions.parquet")
    test = arrays(pq.read_table(DATA / "collisions-test.parquet"))
    aucs = [[], [], [], []]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for sample in range(SAMPLES):
            rows = np.sort(np.random.default_rng(sample).choice(table.num_rows, ROWS, replace=False))
            train = table.take(pa.array(rows))
            pq.write_table(train, folder / "train.parquet")
            found = [ours(program, folder / "train.parquet", bits, folder) for bits in (13, 32)]
            found += [lightgbm(arrays(train), test, sampled) for sampled in (200_000, ROWS)]
            for list_, (_, auc) in zip(aucs, found):
                list_.append(auc)
            print(sample, [(round(loss, 5), round(auc, 5)) for loss, auc in found], flush=True)
    print([(round(statistics.mean(list_), 5), round(statistics.stdev(list_), 5)) for list_ in aucs])


main()
