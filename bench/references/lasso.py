"""Expected figures of `lasso` and `elastic-net`, made with scikit-learn and written to lasso.json.

    python bench/references/lasso.py

Data: the diabetes rows of crates/learn/tests/assets/diabetes.csv, and a correlated design that the tests make by the
same rule (`correlated` below). All features and labels are rounded to float32 first, as Starlings holds them.
"""

import json
import pathlib

import numpy
import sklearn
from sklearn.linear_model import ElasticNet, Lasso, lasso_path

HERE = pathlib.Path(__file__).parent
ASSETS = HERE / "../../crates/learn/tests/assets"
TIGHT = dict(tol=1e-13, max_iter=1_000_000)


def single(values):
    return numpy.asarray(values, dtype=numpy.float32).astype(numpy.float64)


def diabetes():
    rows = numpy.loadtxt(ASSETS / "diabetes.csv", delimiter=",", skiprows=1)
    return single(rows[:, :10]), single(rows[:, 10])


def uniforms(count, state=1):
    """A congruential generator (Knuth's MMIX), its top 24 bits as numbers from -1/2 to 1/2."""
    out = numpy.empty(count)
    for at in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out[at] = (state >> 40) / 2**24 - 0.5
    return out


def correlated(rows=200, width=40):
    """Each column is 0.95 of the one before and something new; y is by five of them."""
    new = uniforms(rows * (width + 1)).reshape(rows, width + 1)
    x = numpy.empty((rows, width))
    x[:, 0] = new[:, 0]
    for column in range(1, width):
        x[:, column] = 0.95 * x[:, column - 1] + 0.3 * new[:, column]
    y = 3.0 * x[:, 2] - 2.0 * x[:, 9] + 1.5 * x[:, 10] + x[:, 25] - x[:, 39] + 0.2 * new[:, width] + 7.0
    return single(x), single(y)


def objective(x, y, model, l1, l2, weights=None):
    weights = numpy.ones(len(y)) if weights is None else weights
    residual = y - x @ model.coef_ - model.intercept_
    squares = numpy.average(residual**2, weights=weights)
    return 0.5 * squares + l1 * abs(model.coef_).sum() + 0.5 * l2 * (model.coef_**2).sum()


def answer(x, y, l1, l2, **settings):
    weights = settings.pop("sample_weight", None)
    if l2 == 0.0:
        model = Lasso(alpha=l1, **settings, **TIGHT)
    else:
        model = ElasticNet(alpha=l1 + l2, l1_ratio=l1 / (l1 + l2), **settings, **TIGHT)
    model.fit(x, y, sample_weight=weights)
    found = {"objective": objective(x, y, model, l1, l2, weights), "weights": [*model.coef_]}
    if settings.get("fit_intercept", True):
        found["weights"].append(float(model.intercept_))
    return found


def path(x, y, count):
    centred = x - x.mean(0)
    alphas, weights, _ = lasso_path(centred, y - y.mean(), alphas=count, eps=1e-3, **TIGHT)
    return {"penalties": [*alphas], "weights": [[*column] for column in weights.T]}


def main():
    figures = {"made_with": f"scikit-learn {sklearn.__version__}, numpy {numpy.__version__}"}
    for name, (x, y) in [("diabetes", diabetes()), ("correlated", correlated())]:
        strengths = [0.1, 1.0, 10.0] if name == "diabetes" else [0.001, 0.01, 0.1]
        weights = 1.0 + numpy.arange(len(y)) % 3
        deviations = x.std(0)
        figures[name] = {
            "lasso": [{"l1": l1, **answer(x, y, l1, 0.0)} for l1 in strengths],
            "elastic_net": [{"l1": l1, "l2": l1 / 2, **answer(x, y, l1, l1 / 2)} for l1 in strengths],
            "without_intercept": {"l1": strengths[1], **answer(x, y, strengths[1], 0.0, fit_intercept=False)},
            "weighted": {"l1": strengths[1], **answer(x, y, strengths[1], 0.0, sample_weight=weights)},
            "standardised": {"l1": strengths[1], **answer(x / deviations, y, strengths[1], 0.0)},
            "path": path(x, y, 20),
        }
        standardised = figures[name]["standardised"]["weights"]
        standardised[:-1] = [weight / unit for weight, unit in zip(standardised[:-1], deviations)]
    (HERE / "lasso.json").write_text(json.dumps(figures, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
