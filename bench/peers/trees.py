"""Gradient boosting and random forests on the same rows, two threads.

Usage: trees.py lightgbm|xgboost|sklearn boosting|forest TRAIN.parquet TEST.parquet. Prints one line of JSON; loading
is not in `seconds`, binning is. The objective is the log-loss of the training rows, the metrics are of the test rows.
"""

import json
import sys
import time

TREES, LEAVES, BINS, RATE, DEPTH, THREADS = 100, 63, 255, 0.1, 12, 2


def read(path):
    import numpy as np
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    points = np.stack([table[name].to_numpy() for name in table.column_names if name != "label"], axis=1)
    return points, table["label"].to_numpy()


def lightgbm(_, train, test):
    import lightgbm as lgb

    start = time.perf_counter()
    rows = lgb.Dataset(*train, params={"max_bin": BINS, "num_threads": THREADS, "verbose": -1})
    settings = dict(objective="binary", num_leaves=LEAVES, max_bin=BINS, learning_rate=RATE, min_data_in_leaf=20)
    model = lgb.train(dict(settings, num_threads=THREADS, verbose=-1, seed=1), rows, TREES)
    seconds = time.perf_counter() - start
    return seconds, model.predict(train[0]), model.predict(test[0]), lgb.__version__


def xgboost(_, train, test):
    import xgboost as xgb

    start = time.perf_counter()
    rows = xgb.QuantileDMatrix(*train, max_bin=BINS, nthread=THREADS)
    settings = dict(objective="binary:logistic", tree_method="hist", grow_policy="lossguide", max_leaves=LEAVES, max_depth=0)
    model = xgb.train(dict(settings, max_bin=BINS, eta=RATE, nthread=THREADS, seed=1), rows, TREES)
    seconds = time.perf_counter() - start
    return seconds, model.inplace_predict(train[0]), model.inplace_predict(test[0]), xgb.__version__


def sklearn(_, train, test):
    import sklearn
    from sklearn.ensemble import RandomForestClassifier

    start = time.perf_counter()
    model = RandomForestClassifier(TREES, max_depth=DEPTH, n_jobs=THREADS, random_state=1).fit(*train)
    seconds = time.perf_counter() - start
    return seconds, model.predict_proba(train[0])[:, 1], model.predict_proba(test[0])[:, 1], sklearn.__version__


if __name__ == "__main__":
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    peers = {"lightgbm": lightgbm, "xgboost": xgboost, "sklearn": sklearn}
    train, test = read(sys.argv[3]), read(sys.argv[4])
    seconds, seen, unseen, version = peers[sys.argv[1]](sys.argv[2], train, test)
    metrics = {"auc": roc_auc_score(test[1], unseen), "accuracy": accuracy_score(test[1], unseen > 0.5)}
    print(json.dumps({
        "version": version,
        "seconds": seconds,
        "objective": float(log_loss(train[1], seen)),
        "metrics": metrics,
        "iterations": TREES,
    }))
