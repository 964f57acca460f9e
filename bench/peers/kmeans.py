"""k-means: k = 100, exactly 20 iterations of Lloyd's algorithm.

Usage: kmeans.py sklearn|faiss|spark dense FILE.parquet. Prints one line of JSON; loading is not in `seconds`.
scikit-learn and faiss start from the first 100 rows, as our job does. Spark's interface for tables takes no centres, so it starts
at random: the work is the same, the inertia is not.
"""

import json
import sys
import time

CLUSTERS, ITERATIONS = 100, 20


def sklearn(path):
    import numpy as np
    import pyarrow.parquet
    import sklearn
    from sklearn.cluster import KMeans

    table = pyarrow.parquet.read_table(path)
    points = np.stack([column.to_numpy() for column in table.columns], axis=1)
    model = KMeans(CLUSTERS, init=points[:CLUSTERS].copy(), n_init=1, max_iter=ITERATIONS, tol=0.0)
    start = time.perf_counter()
    model.fit(points)
    return time.perf_counter() - start, float(model.inertia_), int(model.n_iter_), sklearn.__version__


def faiss(path):
    import faiss
    import numpy as np
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    points = np.ascontiguousarray(np.stack([column.to_numpy() for column in table.columns], axis=1))
    # All rows count: by default faiss trains on a sample.
    model = faiss.Kmeans(points.shape[1], CLUSTERS, niter=ITERATIONS, max_points_per_centroid=len(points), verbose=False)
    start = time.perf_counter()
    model.train(points, init_centroids=points[:CLUSTERS].copy())
    seconds = time.perf_counter() - start
    inertia = float(model.index.search(points, 1)[0].astype(np.float64).sum())
    return seconds, inertia, ITERATIONS, faiss.__version__


def spark(path):
    import spark as local
    from pyspark.ml.clustering import KMeans

    session = local.session()
    table = local.vectors(session, path)
    learner = KMeans(k=CLUSTERS, maxIter=ITERATIONS, tol=0.0, initMode="random", seed=1)
    start = time.perf_counter()
    model = learner.fit(table)
    seconds = time.perf_counter() - start
    return seconds, float(model.summary.trainingCost), int(model.summary.numIter), session.version


if __name__ == "__main__":
    seconds, inertia, iterations, version = {"sklearn": sklearn, "faiss": faiss, "spark": spark}[sys.argv[1]](sys.argv[3])
    print(json.dumps({
        "version": version,
        "seconds": seconds,
        "objective": inertia,
        "metrics": {"inertia": inertia},
        "iterations": iterations,
    }))
