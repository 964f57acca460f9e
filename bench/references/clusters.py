"""Expected figures of clusters, densities, projections and selections, from scikit-learn.

Usage: python bench/references/clusters.py > bench/references/clusters.json. Rows are iris and digits as scikit-learn has
them, the rows of whole-number arithmetic that the tests make too, and no chance anywhere.
"""

import json
import sys

import numpy as np
import scipy
import sklearn
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import VarianceThreshold, chi2, mutual_info_classif
from sklearn.mixture import GaussianMixture


def generated(rows=600, width=4):
    """The same numbers in any language."""
    i, j = np.arange(rows)[:, None], np.arange(width)[None, :]
    h = (i * 7919 + j * 104729 + i * j * 31 + (i * i) % 1009 * 17) % 4001
    group = i % 3
    return (h / 1000.0 + np.where(group == j, group * 9.0 + 4.0, 0.0)).astype(np.float32).astype(np.float64)


def pca(rows, components):
    model = PCA(components, svd_solver="full").fit(rows)
    return {
        "mean": model.mean_.tolist(),
        "components": model.components_.tolist(),
        "explained_variance": model.explained_variance_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
    }


def truncated(rows, components):
    model = TruncatedSVD(components, algorithm="arpack", tol=0, random_state=0).fit(rows)
    return {
        "components": model.components_.tolist(),
        "singular_values": model.singular_values_.tolist(),
        "explained_variance": model.explained_variance_.tolist(),
        "explained_variance_ratio": model.explained_variance_ratio_.tolist(),
    }


def mixture(rows, kind, start, iterations, weights=None):
    """EM from equal shares, given means and unit covariances."""
    count, width = len(start), rows.shape[1]
    precisions = {
        "full": np.repeat(np.eye(width)[None], count, 0),
        "tied": np.eye(width),
        "diag": np.ones((count, width)),
        "spherical": np.ones(count),
    }[kind]
    model = GaussianMixture(
        count, covariance_type=kind, tol=1e-9, max_iter=iterations, means_init=start,
        weights_init=np.full(count, 1.0 / count), precisions_init=precisions,
    ).fit(rows)
    return {
        "log_likelihood": float(model.score(rows)),
        "iterations": int(model.n_iter_),
        "weights": model.weights_.tolist(),
        "means": model.means_.tolist(),
    }


def main():
    iris = load_iris().data.astype(np.float32).astype(np.float64)
    digits, classes = load_digits(return_X_y=True)
    made = generated()
    reduced = PCA(6, svd_solver="full").fit_transform(digits).astype(np.float32).astype(np.float64)
    kinds = ["full", "tied", "diag", "spherical"]
    figures = {
        "versions": {"sklearn": sklearn.__version__, "numpy": np.__version__, "scipy": scipy.__version__},
        "pca": {"iris": pca(iris, 4), "digits": pca(digits, 10)},
        "pca_share": {"digits": int(PCA(0.9, svd_solver="full").fit(digits).n_components_)},
        "truncated_svd": {"iris": truncated(iris, 2), "digits": truncated(digits, 5)},
        "mixture": {
            "iris": {kind: mixture(iris, kind, iris[[0, 50, 100]], 25) for kind in kinds},
            "made": {kind: mixture(made, kind, made[:3], 25) for kind in kinds},
            "digits": {"full": mixture(reduced, "full", reduced[:10], 20)},
        },
        "digits_reduced_rows": reduced[:2].tolist(),
        "selection": {
            "chi2": np.nan_to_num(chi2(digits, classes)[0]).tolist(),
            # With a threshold of exactly zero the variances are replaced by ranges where those are smaller.
            "variance": VarianceThreshold(1e-300).fit(digits).variances_.tolist(),
            "selected": VarianceThreshold(0.0).fit(digits).get_support(True).tolist(),
            "mutual_information": mutual_info_classif(digits, classes, discrete_features=True).tolist(),
        },
        "weighted_k_means": weighted(iris),
    }
    json.dump(figures, sys.stdout, indent=1)
    sys.stdout.write("\n")


def weighted(rows):
    weights = 1.0 + np.arange(len(rows)) % 4
    model = KMeans(3, init=rows[[0, 50, 100]], n_init=1, algorithm="lloyd").fit(rows, sample_weight=weights)
    return {"inertia": float(model.inertia_), "centres": model.cluster_centers_.tolist()}


if __name__ == "__main__":
    main()
