"""Expected figures of `linear-svm` and `kernel-svm`, made with scikit-learn and written to svm.json.

    python bench/references/svm.py

Data: the flowers of crates/learn/tests/assets/iris.csv, the tumours of breast_cancer.csv.gz beside it, and the digits of
crates/data/assets/digits.csv.gz. Features are rounded to float32 first, as Starlings holds them. Optima of linear
machines are tightly converged (the squared hinge) or to LIBLINEAR's tolerance of 1e-6 (the hinge); accuracies of kernel machines are on every fifth row, trained on the others, with the mean and
the deviation over the seeds where chance is involved.
"""

import gzip
import json
import pathlib
import warnings

import numpy
import sklearn
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

HERE = pathlib.Path(__file__).parent
ASSETS = HERE / "../../crates/learn/tests/assets"


def single(values):
    return numpy.asarray(values, dtype=numpy.float32).astype(numpy.float64)


def split(rows):
    rows = numpy.asarray(rows)
    return single(rows[:, :-1]), rows[:, -1].astype(int)


def iris():
    return split(numpy.loadtxt(ASSETS / "iris.csv", delimiter=",", skiprows=1))


def cancer():
    with gzip.open(ASSETS / "breast_cancer.csv.gz", "rt") as file:
        return split(numpy.loadtxt(file, delimiter=","))


def digits():
    with gzip.open(HERE / "../../crates/data/assets/digits.csv.gz", "rt") as file:
        return split(numpy.loadtxt(file, delimiter=","))


def linear(x, y, loss, c=1.0, standardise=False, weights=None, **settings):
    """The optimum, in the units of the data and of Starlings' objective."""
    scaler = StandardScaler().fit(x, sample_weight=weights)
    rows = scaler.transform(x) if standardise else x
    model = LinearSVC(loss=loss, C=c, dual=loss == "hinge", tol=1e-6 if loss == "hinge" else 1e-9, max_iter=50_000, **settings)
    model.fit(rows, y, sample_weight=weights)
    weights = numpy.ones(len(y)) if weights is None else weights
    objective = 0.0
    balanced = len(y) / (len(set(y)) * numpy.bincount(y))
    for score, (w, b) in enumerate(zip(model.coef_, numpy.atleast_1d(model.intercept_))):
        positive = y == (1 if len(model.coef_) == 1 else score)
        own = numpy.ones(len(y))
        if settings.get("class_weight") == "balanced":
            own = balanced[y] if len(model.coef_) == 1 else numpy.where(positive, balanced[y], 1.0)
        margin = numpy.where(positive, 1, -1) * (rows @ w + b)
        losses = numpy.maximum(0, 1 - margin) ** (2 if loss == "squared_hinge" else 1)
        objective += c * (weights * own * losses).sum() + 0.5 * (w @ w + b * b)
    coefficients, intercept = model.coef_, numpy.atleast_1d(model.intercept_)
    if standardise:
        coefficients = coefficients / scaler.scale_
        intercept = intercept - coefficients @ scaler.mean_
    return {
        "objective": objective / (c * weights.sum()),
        "weights": [[*w, b] for w, b in zip(coefficients, intercept)],
        "accuracy": model.score(rows, y),
    }


def accuracy(x, y, make, seeds=5):
    test = numpy.arange(len(y)) % 5 == 4
    scores = []
    for seed in range(seeds):
        model = make(seed)
        scores.append(model.fit(x[~test], y[~test]).score(x[test], y[test]))
    return {"mean": numpy.mean(scores), "deviation": numpy.std(scores)}


def kernels(x, y, components, seeds):
    svm = dict(C=1.0, max_iter=2_000)
    gamma = 1 / x.shape[1]

    def through(make):
        return accuracy(
            x, y, lambda seed: make_pipeline(StandardScaler(), make(random_state=seed, n_components=components), LinearSVC(**svm)), seeds
        )

    def exact(**settings):
        return accuracy(x, y, lambda _: make_pipeline(StandardScaler(), SVC(**settings)), 1)

    figures = {
        "components": components,
        "seeds": seeds,
        "svc_rbf": exact(),
        "nystroem": through(lambda **settings: Nystroem(gamma=gamma, **settings)),
        "random_features": through(lambda **settings: RBFSampler(gamma=gamma, **settings)),
    }
    if len(set(y)) == 2:
        figures["svc_polynomial"] = exact(kernel="poly", coef0=1.0)
        figures["svc_sigmoid"] = exact(kernel="sigmoid")
        sketch = lambda **settings: PolynomialCountSketch(gamma=gamma, degree=3, coef0=1, **settings)
        figures["tensor_sketch"] = through(sketch)
    return figures


def main():
    warnings.simplefilter("ignore")
    flowers, tumours = iris(), cancer()
    pair = (flowers[0][flowers[1] > 0], flowers[1][flowers[1] > 0] - 1)
    counts = 1.0 + numpy.arange(len(pair[1])) % 3
    figures = {
        "made_with": f"scikit-learn {sklearn.__version__}, numpy {numpy.__version__}",
        "iris": {loss: linear(*flowers, loss, standardise=True) for loss in ["hinge", "squared_hinge"]},
        "pair": {
            loss: {
                "plain": linear(*pair, loss),
                "c": linear(*pair, loss, c=0.05, standardise=True),
                "weighted": linear(*pair, loss, weights=counts, standardise=True),
                "without_intercept": linear(*pair, loss, fit_intercept=False),
                "standardised": linear(*pair, loss, standardise=True),
            }
            for loss in ["hinge", "squared_hinge"]
        },
        "cancer": {"squared_hinge": linear(*tumours, "squared_hinge", standardise=True, c=0.1)},
        "cancer_balanced": linear(*tumours, "squared_hinge", standardise=True, c=0.1, class_weight="balanced"),
        "iris_balanced": linear(flowers[0][:120], flowers[1][:120], "squared_hinge", standardise=True, class_weight="balanced"),
        "kernels": {"cancer": kernels(*tumours, 200, 5), "digits": kernels(*digits(), 300, 2)},
    }
    (HERE / "svm.json").write_text(json.dumps(figures, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
