"""Expected figures for crates/engine/src/evaluation_tests.rs, made with scikit-learn on rows that are written out.

    python3 bench/references/metrics.py > bench/references/metrics.json
"""

import json
import sys

import numpy as np
import sklearn
from sklearn import metrics
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_iris


def rounded(values, digits=3):
    """Few digits, so that scores tie and the file stays small."""
    return np.round(np.asarray(values, dtype=float), digits)


def chances(rng, truths, classes, sharpness):
    """Chances that sum to one, better than guessing, with many ties."""
    logits = rng.normal(size=(len(truths), classes)) + sharpness * np.eye(classes)[truths]
    found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = rounded(found, 2)
    found[:, 0] = 1.0 - found[:, 1:].sum(axis=1)
    return np.clip(found, 0.0, 1.0)


def calibration(truths, found, weights):
    """Expected calibration error over ten bins, by its definition; of two classes of the second's chance."""
    if found.shape[1] == 2:
        chance, right = found[:, 1], truths == 1
    else:
        chance, right = found.max(axis=1), found.argmax(axis=1) == truths
    bins = np.searchsorted(np.linspace(0.0, 1.0, 11)[1:-1], chance)
    error, table = 0.0, []
    for b in range(10):
        inside = bins == b
        if not inside.any():
            continue
        w = weights[inside]
        mean, share = np.average(chance[inside], weights=w), np.average(right[inside], weights=w)
        error += w.sum() / weights.sum() * abs(mean - share)
        table.append([w.sum(), mean, share])
    return error, table


def classification(name, truths, found, weights):
    guesses, w = found.argmax(axis=1), weights
    classes = found.shape[1]
    binary = classes == 2
    score = found[:, 1] if binary else found
    ece, table = calibration(truths, found, w)
    f1 = lambda average: metrics.f1_score(truths, guesses, average=average, sample_weight=w)
    auc = lambda average: metrics.roc_auc_score(
        truths, score, average=average, multi_class="ovr", sample_weight=w
    )
    expected = {
        "accuracy": metrics.accuracy_score(truths, guesses, sample_weight=w),
        "balanced_accuracy": metrics.balanced_accuracy_score(truths, guesses, sample_weight=w),
        "f1": f1("binary" if binary else "macro"),
        "f1_macro": f1("macro"),
        "f1_weighted": f1("weighted"),
        "log_loss": metrics.log_loss(truths, found, sample_weight=w),
        "brier": metrics.brier_score_loss(truths, score, sample_weight=w),
        "calibration_error": ece,
        "auc": auc("macro"),
    }
    if not binary:
        expected["auc_weighted"] = auc("weighted")
    elif (w == 1).all():
        right, mean = calibration_curve(truths, score, n_bins=10)
        assert np.allclose(np.array(table)[:, 1], mean) and np.allclose(np.array(table)[:, 2], right)
    return {
        "name": name,
        "task": "classification",
        "width": classes,
        "outputs": found.ravel().tolist(),
        "labels": truths.tolist(),
        "weights": w.tolist(),
        "expected": expected,
        "confusion": metrics.confusion_matrix(truths, guesses, sample_weight=w).tolist(),
        "reliability": table,
    }


def regression(name, truths, found, weights):
    w = weights
    return {
        "name": name,
        "task": "regression",
        "width": 1,
        "outputs": found.tolist(),
        "labels": truths.tolist(),
        "weights": w.tolist(),
        "expected": {
            "rmse": metrics.root_mean_squared_error(truths, found, sample_weight=w),
            "mae": metrics.mean_absolute_error(truths, found, sample_weight=w),
            "r2": metrics.r2_score(truths, found, sample_weight=w),
        },
    }


def clusters():
    points = load_iris().data.astype(np.float32)
    centres = points[[3, 55, 120]].astype(float)
    squared = ((points.astype(float)[:, None, :] - centres[None]) ** 2).sum(axis=2)
    nearest = squared.argmin(axis=1)
    return {
        "name": "iris, three clusters",
        "task": "clustering",
        "width": 2,
        "outputs": np.column_stack([nearest, squared.min(axis=1)]).ravel().tolist(),
        "labels": [],
        "weights": [],
        "points": points.astype(float).round(6).tolist(),
        "expected": {
            "inertia": squared.min(axis=1).sum(),
            "silhouette": metrics.silhouette_score(points.astype(float), nearest),
            "silhouette_squared": metrics.silhouette_score(
                points.astype(float), nearest, metric="sqeuclidean"
            ),
        },
    }


def main():
    rng = np.random.default_rng(5)
    rows = 400
    two, three = rng.integers(0, 2, rows), rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    ones, weights = np.ones(rows), rng.choice([0.0, 0.25, 0.5, 1.0, 2.0, 3.5], rows)
    numbers = rounded(rng.gamma(2.0, 3.0, rows) + 1000.0)
    # Labels rest in f32: what is compared must be what it holds.
    numbers = numbers.astype(np.float32).astype(float)
    said = rounded(numbers + rng.normal(size=rows))
    cases = [
        classification("two classes with ties", two, chances(rng, two, 2, 1.5), ones),
        classification("two classes, weighted", two, chances(rng, two, 2, 0.7), weights),
        classification("three classes with ties", three, chances(rng, three, 3, 1.5), ones),
        classification("three classes, weighted", three, chances(rng, three, 3, 1.0), weights),
        regression("numbers", numbers, said, ones),
        regression("numbers, weighted", numbers, said, weights),
        clusters(),
    ]
    versions = {"scikit-learn": sklearn.__version__, "numpy": np.__version__}
    json.dump({"versions": versions, "cases": cases}, sys.stdout)
    print()


main()
