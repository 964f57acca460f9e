"""Gradient boosting and random forests on the same rows, two threads or two processes.

Usage: trees.py lightgbm|xgboost|sklearn|spark boosting|forest|processes|prediction TRAIN.parquet TEST.parquet. Prints one
line of JSON; loading is not in `seconds`, binning is. The objective is the log-loss of the training rows, the metrics are of
the test rows. `processes`: LightGBM's own distributed mode, two processes of one thread joined by sockets, half of the rows
each. `prediction`: a model of TRAIN predicts the rows of TEST; `seconds` is the median of five predictions.
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
    return points, table["label"].to_numpy().copy()


def lightgbm(what, train, test):
    import lightgbm as lgb

    if what == "processes":
        return lightgbm_processes(train, test)
    if what == "prediction":
        return lightgbm_prediction(train, test)
    start = time.perf_counter()
    rows = lgb.Dataset(*train, params={"max_bin": BINS, "num_threads": THREADS, "verbose": -1})
    settings = dict(objective="binary", num_leaves=LEAVES, max_bin=BINS, learning_rate=RATE, min_data_in_leaf=20)
    model = lgb.train(dict(settings, num_threads=THREADS, verbose=-1, seed=1), rows, TREES)
    seconds = time.perf_counter() - start
    return seconds, model.predict(train[0]), model.predict(test[0]), lgb.__version__


def lightgbm_settings(threads):
    return dict(
        objective="binary", num_leaves=LEAVES, max_bin=BINS, learning_rate=RATE, min_data_in_leaf=20,
        num_threads=threads, verbose=-1, seed=1,
    )


def lightgbm_processes(train, test):
    """Two processes over sockets. Both wait for each other before the clock starts."""
    import lightgbm as lgb
    import multiprocessing
    import socket

    ports = []
    for _ in range(2):
        free = socket.socket()
        free.bind(("127.0.0.1", 0))
        ports.append(free.getsockname()[1])
        free.close()
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(2), context.Queue()
    halves = [(train[0][half::2], train[1][half::2]) for half in range(2)]
    members = [
        context.Process(target=lightgbm_member, args=(rank, ports, halves[rank], test[0], barrier, answers)) for rank in range(2)
    ]
    for member in members:
        member.start()
    found = sorted(answers.get(timeout=800) for _ in members)
    for member in members:
        member.join()
    import numpy as np

    seen = np.empty(len(train[1]))
    for rank, _, own, _ in found:
        seen[rank::2] = own
    return max(seconds for _, seconds, _, _ in found), seen, found[0][3], lgb.__version__


def lightgbm_member(rank, ports, rows, unseen, barrier, answers):
    import lightgbm as lgb

    machines = ",".join(f"127.0.0.1:{port}" for port in ports)
    network = dict(
        tree_learner="data", num_machines=2, machines=machines, local_listen_port=ports[rank], pre_partition=True, time_out=5
    )
    settings = dict(lightgbm_settings(1), **network)
    barrier.wait()
    start = time.perf_counter()
    model = lgb.train(settings, lgb.Dataset(*rows, params=settings), TREES)
    seconds = time.perf_counter() - start
    answers.put((rank, seconds, model.predict(rows[0]), model.predict(unseen)))


def lightgbm_prediction(train, test):
    import lightgbm as lgb
    import statistics

    model = lgb.train(lightgbm_settings(THREADS), lgb.Dataset(*train), TREES)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        unseen = model.predict(test[0], num_threads=THREADS)
        times.append(time.perf_counter() - start)
    return statistics.median(times), model.predict(train[0]), unseen, lgb.__version__


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


def spark(_, train, test):
    """Spark reads the files itself: its rows live in the JVM."""
    import numpy as np
    import pyspark
    import spark as local
    from pyspark.ml.classification import RandomForestClassifier

    session = local.session()
    files = [local.vectors(session, path) for path in sys.argv[3:5]]
    forest = RandomForestClassifier(numTrees=TREES, maxDepth=DEPTH, maxBins=BINS, seed=1)
    start = time.perf_counter()
    model = forest.fit(files[0])
    seconds = time.perf_counter() - start

    def chances(rows):
        pairs = model.transform(rows).select("label", "probability").collect()
        return np.array([[pair.label, pair.probability[1]] for pair in pairs])

    # Rows of a Spark table have no order of their own: labels come back with what was said of them.
    seen, unseen = map(chances, files)
    train[1][:], test[1][:] = seen[:, 0], unseen[:, 0]
    return seconds, seen[:, 1], unseen[:, 1], pyspark.__version__


if __name__ == "__main__":
    from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

    peers = {"lightgbm": lightgbm, "xgboost": xgboost, "sklearn": sklearn, "spark": spark}
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
