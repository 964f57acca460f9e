"""Makes survival_regression.json anew: accelerated failure time by other hands. The likelihood maximised by SciPy for
three distributions on data that the file holds and on Rossi's recidivism data (Rossi, Berk and Lenihan, 1980), there
compared with lifelines; and the five rows of Spark's documentation with the figures printed there.

    python bench/references/survival_regression.py
"""

import json
import pathlib
import re

import lifelines
import numpy
import scipy
from lifelines.datasets import load_rossi
from scipy.optimize import minimize, root
from scipy.special import expit
from scipy.stats import norm

HERE = pathlib.Path(__file__).parent


def numbers_in_lines(text):
    """A list of numbers is a line, not a line each."""
    return re.sub(r"\n\s+(?=[-\d\]])", " ", text)


def losses(distribution, e):
    """−ln f and −ln S with their slopes."""
    if distribution == "weibull":
        power = numpy.exp(e)
        return (power - e, power - 1), (power, power)
    if distribution == "log-normal":
        return (-norm.logpdf(e), e), (-norm.logsf(e), numpy.exp(norm.logpdf(e) - norm.logsf(e)))
    soft, share = numpy.logaddexp(0, e), expit(e)
    return (2 * soft - e, 2 * share - 1), (soft, share)


def objective(distribution, x, t, d, w, theta):
    """The mean of −ln L and its gradient by (β, b, ln σ)."""
    beta, b, s = theta[:-2], theta[-2], theta[-1]
    e = (numpy.log(t) - b - x @ beta) / numpy.exp(s)
    (happened, up), (censored, over) = losses(distribution, e)
    value = numpy.average(numpy.where(d == 1, happened + s + numpy.log(t), censored), weights=w)
    slope = numpy.where(d == 1, up, over) * w / w.sum()
    by_beta = -(slope @ x) / numpy.exp(s)
    return value, numpy.concatenate([by_beta, [-slope.sum() / numpy.exp(s), (w * d).sum() / w.sum() - slope @ e]])


def fit(distribution, x, t, d, w):
    mean, deviation = x.mean(0), x.std(0)
    z = (x - mean) / deviation
    f = lambda theta: objective(distribution, z, t, d, w, theta)
    start = numpy.zeros(x.shape[1] + 2)
    start[-2] = numpy.log(t).mean()
    found = minimize(f, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 10000})
    # The last digits by finding the root of the gradient.
    found = root(lambda theta: f(theta)[1], found.x, tol=1e-15)
    assert abs(found.fun).max() < 1e-13, found
    beta = found.x[:-2] / deviation
    return {
        "distribution": distribution,
        "weights": beta.tolist(),
        "intercept": float(found.x[-2] - beta @ mean),
        "scale": float(numpy.exp(found.x[-1])),
        "objective": float(f(found.x)[0]),
    }


def generated():
    rng = numpy.random.default_rng(5)
    rows = 80
    x = (rng.normal(size=(rows, 3)) * [1, 10, 0.1] + [0, 50, 1]).astype("float32").astype("float64")
    t = numpy.exp(1 + x @ [0.5, -0.03, 2.0] + 0.7 * numpy.log(rng.exponential(size=rows)))
    c = rng.exponential(size=rows) * numpy.median(t) * 3
    d, t = (t <= c).astype(int), numpy.minimum(t, c).astype("float32").astype("float64")
    w = rng.integers(1, 4, size=rows) / 2
    fits = [fit(distribution, x, t, d, w) for distribution in ("weibull", "log-normal", "log-logistic")]
    return {"x": x.tolist(), "t": t.tolist(), "d": d.tolist(), "w": w.tolist(), "fits": fits}


def rossi():
    frame = load_rossi()
    columns = [c for c in frame.columns if c not in ("week", "arrest")]
    x, t, d = frame[columns].values.astype(float), frame["week"].values.astype(float), frame["arrest"].values
    fits = []
    for name, fitter in (
        ("weibull", lifelines.WeibullAFTFitter()),
        ("log-normal", lifelines.LogNormalAFTFitter()),
        ("log-logistic", lifelines.LogLogisticAFTFitter()),
    ):
        fitter.fit(frame, duration_col="week", event_col="arrest")
        found = fit(name, x, t, d, numpy.ones(len(t)))
        # lifelines stops early; its likelihood must be this one, and not better.
        found["lifelines"] = float(-fitter.log_likelihood_ / len(frame))
        assert -1e-9 < found["lifelines"] - found["objective"] < 1e-6, found
        found["lifelines_median"] = float(fitter.predict_median(frame.iloc[[0]]).iloc[0])
        fits.append(found)
    rows = frame[columns].astype(int).values.tolist()
    return {"columns": columns, "x": rows, "t": t.tolist(), "d": d.tolist(), "fits": fits}


def spark():
    """https://spark.apache.org/docs/latest/ml-classification-regression.html#survival-regression"""
    return {
        "x": [[1.560, -0.605], [0.346, 2.158], [1.380, 0.231], [0.520, 1.151], [0.795, -0.226]],
        "t": [1.218, 2.949, 3.627, 0.273, 4.199],
        "d": [1, 0, 0, 1, 0],
        "weights": [-0.49631114666506776, 0.1984443769993409],
        "intercept": 2.6380946151040043,
        "scale": 1.5472345574364683,
    }


def main():
    made = {"scipy": scipy.__version__, "numpy": numpy.__version__, "lifelines": lifelines.__version__}
    found = {"made_with": made, "generated": generated(), "rossi": rossi(), "spark": spark()}
    (HERE / "survival_regression.json").write_text(numbers_in_lines(json.dumps(found, indent=1)) + "\n")


main()
