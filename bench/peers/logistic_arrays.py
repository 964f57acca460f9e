"""scikit-learn's L-BFGS, and L-BFGS on features scaled by their deviation, on the rows that the example `logistic_speed`
left in a folder: the same numbers, the same objective (mean log loss + l2/2 · |w|², intercept free).

Usage: logistic_arrays.py dense|sparse FOLDER. Prints one line of JSON for each; loading is not in `seconds`.
"""

import json
import sys
import time

import numpy as np
import scaled_lbfgs
import scipy
import scipy.sparse
import sklearn
from sklearn.linear_model import LogisticRegression

KIND, FOLDER = sys.argv[1:3]
L2 = {"dense": 1e-4, "sparse": 1e-5}[KIND]


def read():
    stem = f"{FOLDER}/logistic_{KIND}"
    labels = np.fromfile(f"{stem}.labels", np.float32).astype(np.float64)
    if KIND == "dense":
        return np.fromfile(f"{stem}.f32", np.float32).reshape(len(labels), -1), labels
    parts = (np.fromfile(f"{stem}.values", np.float32), np.fromfile(f"{stem}.columns", np.int32),
             np.fromfile(f"{stem}.starts", np.int64).astype(np.int32))
    return scipy.sparse.csr_matrix(parts, shape=(len(labels), 50_000)), labels


def objective(x, y, w, b):
    z = np.asarray(x @ w) + b
    return float(np.mean(np.logaddexp(0, z) - y * z) + L2 / 2 * w @ w)


if __name__ == "__main__":
    x, y = read()
    start = time.perf_counter()
    model = LogisticRegression(C=1 / (L2 * len(y)), tol=1e-6, max_iter=1000).fit(x, y)
    seconds = time.perf_counter() - start
    w, b = model.coef_[0].astype(np.float64), float(model.intercept_[0])
    print(json.dumps({"peer": f"scikit-learn {sklearn.__version__}", "seconds": seconds, "iterations": int(model.n_iter_[0]),
                      "objective": objective(x, y, w, b)}), flush=True)
    start = time.perf_counter()
    w, b, iterations = scaled_lbfgs.solve(x, y, L2)
    seconds = time.perf_counter() - start
    print(json.dumps({"peer": f"SciPy {scipy.__version__}, scaled", "seconds": seconds, "iterations": int(iterations),
                      "objective": objective(x, y, w, b)}))
