"""PCA of 1,000,000 x 50 rows and a full Gaussian mixture of 10 components on 200,000 x 16 rows.

Usage: projection.py data|pca|mixture FOLDER. `data` writes the rows as FOLDER/pca.npy and FOLDER/mixture.npy; the others
print one line of JSON; loading is not in `seconds`. An iteration of the mixture is the difference of runs of 21 and of 1.
"""

import json
import sys
import time
import warnings

import numpy as np


def data(folder):
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(50, 50)) / 7.0
    rows = rng.normal(size=(1_000_000, 50)) @ mixing + rng.normal(size=50)
    np.save(f"{folder}/pca.npy", rows.astype(np.float32))
    centres = rng.normal(size=(10, 16)) * 2.0
    shapes = rng.normal(size=(10, 16, 16)) / 4.0
    which = rng.integers(10, size=200_000)
    rows = centres[which] + np.einsum("nij,nj->ni", shapes[which], rng.normal(size=(200_000, 16)))
    np.save(f"{folder}/mixture.npy", rows.astype(np.float32))


def pca(folder):
    from sklearn.decomposition import PCA

    rows = np.load(f"{folder}/pca.npy")
    start = time.perf_counter()
    model = PCA(10).fit(rows)
    return time.perf_counter() - start, float(model.explained_variance_ratio_.sum())


def mixture(folder):
    from sklearn.mixture import GaussianMixture

    warnings.simplefilter("ignore")
    rows = np.load(f"{folder}/mixture.npy")
    seconds = []
    for iterations in (1, 21):
        model = GaussianMixture(10, tol=0.0, max_iter=iterations, init_params="random_from_data", random_state=1)
        start = time.perf_counter()
        model.fit(rows)
        seconds.append(time.perf_counter() - start)
    return (seconds[1] - seconds[0]) / 20, float(model.score(rows))


if __name__ == "__main__":
    if sys.argv[1] == "data":
        data(sys.argv[2])
    else:
        import sklearn

        seconds, objective = {"pca": pca, "mixture": mixture}[sys.argv[1]](sys.argv[2])
        print(json.dumps({"version": sklearn.__version__, "seconds": seconds, "objective": objective}))
