"""A linear support vector machine (mean squared hinge + 1e-4 / 2 · |w|², no intercept) and multinomial naive Bayes on bags
of words.

Usage: counted.py sklearn|spark svm|bayes FILE.libsvm. Prints one line of JSON; loading is not in `seconds`. Spark's machine
has the hinge, not its square: its time compares, its objective does not.
"""

import json
import sys
import time

import numpy as np

L2 = 1e-4


def read(path):
    from sklearn.datasets import load_svmlight_file

    points, labels = load_svmlight_file(path)
    # liblinear takes 32-bit places alone.
    points.indices, points.indptr = points.indices.astype(np.int32), points.indptr.astype(np.int32)
    return points, labels > 0


def svm_quality(points, labels, weights):
    signs = np.where(labels, 1.0, -1.0)
    margin = np.maximum(0.0, 1.0 - signs * (points @ weights))
    objective = float(np.mean(margin**2)) + L2 / 2.0 * float(weights @ weights)
    return objective, float(np.mean((points @ weights > 0) == labels))


def sklearn(kind, path):
    import sklearn
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.svm import LinearSVC

    points, labels = read(path)
    if kind == "svm":
        model = LinearSVC(loss="squared_hinge", dual=False, C=1.0 / (L2 * len(labels)), tol=1e-4, fit_intercept=False)
    else:
        model = MultinomialNB()
    start = time.perf_counter()
    model.fit(points, labels)
    seconds = time.perf_counter() - start
    if kind == "svm":
        objective, accuracy = svm_quality(points, labels, model.coef_[0])
        return seconds, objective, accuracy, int(np.max(model.n_iter_)), sklearn.__version__
    return seconds, None, float(model.score(points, labels)), 1, sklearn.__version__


def spark(kind, path):
    import spark as local
    from pyspark.ml.classification import LinearSVC, NaiveBayes
    from pyspark.sql import functions

    points, labels = read(path)
    session = local.session()
    table = session.read.format("libsvm").option("numFeatures", str(points.shape[1])).load(path)
    table = local.resident(table.withColumn("label", (functions.col("label") > 0).cast("double")))
    if kind == "svm":
        learner = LinearSVC(maxIter=100, regParam=L2, standardization=False, fitIntercept=False, tol=1e-6)
    else:
        learner = NaiveBayes()
    start = time.perf_counter()
    model = learner.fit(table)
    seconds = time.perf_counter() - start
    if kind == "svm":
        _, accuracy = svm_quality(points, labels, model.coefficients.toArray())
        return seconds, None, accuracy, 100, session.version
    score = points @ model.theta.toArray().T + model.pi.toArray()
    return seconds, None, float(np.mean((score.argmax(axis=1) == 1) == labels)), 1, session.version


if __name__ == "__main__":
    library, kind, path = sys.argv[1:4]
    seconds, objective, accuracy, iterations, version = {"sklearn": sklearn, "spark": spark}[library](kind, path)
    print(json.dumps({
        "version": version,
        "seconds": seconds,
        "objective": objective,
        "metrics": {"accuracy": accuracy},
        "iterations": iterations,
    }))
