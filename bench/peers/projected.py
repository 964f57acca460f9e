"""PCA (10 components), a mixture of 10 Gaussians with full covariances (20 iterations) and a path of 100 lasso penalties.

Usage: projected.py sklearn|spark pca|mixture|lasso FILE.parquet. Prints one line of JSON; loading is not in `seconds`. The
objective of PCA is minus the share of the variance that is explained, of the mixture the mean negative logarithm of the density
(starts differ by chance), of the path none.
"""

import json
import sys
import time
import warnings

import numpy as np

COMPONENTS, ITERATIONS, PENALTIES = 10, 20, 100


def read(path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    names = [name for name in table.column_names if name != "label"]
    points = np.stack([table[name].to_numpy() for name in names], axis=1)
    return points, table["label"].to_numpy() if "label" in table.column_names else None


def sklearn(kind, path):
    import sklearn
    from sklearn.decomposition import PCA
    from sklearn.linear_model import lasso_path
    from sklearn.mixture import GaussianMixture

    warnings.simplefilter("ignore")
    points, labels = read(path)
    start = time.perf_counter()
    if kind == "pca":
        model = PCA(COMPONENTS).fit(points)
    elif kind == "mixture":
        model = GaussianMixture(COMPONENTS, tol=0.0, max_iter=ITERATIONS, init_params="random_from_data", random_state=1)
        model.fit(points)
    else:
        # The caller centres: lasso_path has no intercept.
        points = points.astype(np.float64)
        points -= points.mean(axis=0)
        lasso_path(points, labels - labels.mean(), alphas=PENALTIES, eps=1e-3, tol=1e-6, max_iter=10_000)
    seconds = time.perf_counter() - start
    objective = {
        "pca": lambda: -float(model.explained_variance_ratio_.sum()),
        "mixture": lambda: -float(model.score(points)),
        "lasso": lambda: None,
    }[kind]()
    return seconds, objective, sklearn.__version__


def spark(kind, path):
    import spark as local
    from pyspark.ml.clustering import GaussianMixture
    from pyspark.ml.feature import PCA

    session = local.session()
    table = local.vectors(session, path)
    if kind == "pca":
        learner = PCA(k=COMPONENTS, inputCol="features", outputCol="projected")
    else:
        learner = GaussianMixture(k=COMPONENTS, maxIter=ITERATIONS, tol=0.0, seed=1)
    start = time.perf_counter()
    model = learner.fit(table)
    seconds = time.perf_counter() - start
    if kind == "pca":
        return seconds, -float(sum(model.explainedVariance)), session.version
    return seconds, -float(model.summary.logLikelihood) / table.count(), session.version


if __name__ == "__main__":
    library, kind, path = sys.argv[1:4]
    seconds, objective, version = {"sklearn": sklearn, "spark": spark}[library](kind, path)
    print(json.dumps({"version": version, "seconds": seconds, "objective": objective}))
