"""Logistic regression with L2: mean log loss + 1e-4 / 2 · |w|², intercept free, L-BFGS until it has converged.

Usage: logistic.py sklearn|scaled|spark dense|sparse|words FILE (Parquet or LIBSVM). `scaled` is SciPy's L-BFGS on features
divided by their deviation; the penalty of `words` is 1e-5. Prints one line of JSON; loading is not in
`seconds`. The objective is computed afterwards in f64 by the same code for both.
"""

import json
import sys
import time

import numpy as np

KIND = sys.argv[2]
L2, ITERATIONS_MAX = (1e-5 if KIND == "words" else 1e-4), 1000


def read(kind, path):
    if kind != "dense":
        from sklearn.datasets import load_svmlight_file

        points, labels = load_svmlight_file(path)
        return points, labels > 0
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    labels = table["label"].to_numpy() > 0
    columns = [column.to_numpy() for name, column in zip(table.column_names, table.columns) if name != "label"]
    return np.stack(columns, axis=1), labels


def sklearn(kind, path, points, labels):
    import sklearn
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0 / (L2 * len(labels)), tol=1e-6, max_iter=ITERATIONS_MAX)
    start = time.perf_counter()
    model.fit(points, labels)
    seconds = time.perf_counter() - start
    return seconds, model.coef_[0], model.intercept_[0], int(model.n_iter_[0]), sklearn.__version__


def scaled(kind, path, points, labels):
    import scaled_lbfgs
    import scipy

    start = time.perf_counter()
    weights, intercept, iterations = scaled_lbfgs.solve(points, labels.astype(np.float64), L2)
    return time.perf_counter() - start, weights, intercept, iterations, scipy.__version__


def spark(kind, path, points, labels):
    import spark as local
    from pyspark.ml.classification import LogisticRegression
    from pyspark.sql import functions

    session = local.session()
    if kind != "dense":
        table = session.read.format("libsvm").option("numFeatures", str(points.shape[1])).load(path)
        table = local.resident(table.withColumn("label", (functions.col("label") > 0).cast("double")))
    else:
        table = local.vectors(session, path)
    learner = LogisticRegression(regParam=L2, standardization=False, tol=1e-8, maxIter=ITERATIONS_MAX)
    start = time.perf_counter()
    model = learner.fit(table)
    seconds = time.perf_counter() - start
    weights, intercept = model.coefficients.toArray(), model.intercept
    return seconds, weights, intercept, int(model.summary.totalIterations), session.version


if __name__ == "__main__":
    library, kind, path = sys.argv[1:4]
    points, labels = read(kind, path)
    contender = {"sklearn": sklearn, "scaled": scaled, "spark": spark}[library]
    seconds, weights, intercept, iterations, version = contender(kind, path, points, labels)
    weights = weights.astype(np.float64)
    score = points @ weights + intercept
    loss = float(np.mean(np.logaddexp(0.0, score) - labels * score))
    print(json.dumps({
        "version": version,
        "seconds": seconds,
        "objective": loss + L2 / 2.0 * float(weights @ weights),
        "metrics": {"accuracy": float(np.mean((score > 0) == labels)), "log_loss": loss},
        "iterations": iterations,
    }))
