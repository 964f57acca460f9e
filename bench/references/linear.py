"""Optima of linear models by scikit-learn (and SciPy, where it has no such model), converged as far as it goes.

Usage: linear.py DATA > linear.json, where DATA is the folder with scikit-learn's and LIBSVM's data sets. Features are
rounded to float32 first, as our tables hold them. Objectives are means over rows, computed here in float64 by the
formulas of the book, not by the library. `standardise` cases penalise weights times their feature's deviation.
"""

import gzip
import json
import platform
import sys

import numpy as np
import scipy
import sklearn
from scipy.optimize import minimize
from scipy.special import log_ndtr, xlogy
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import (GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor, Ridge,
                                  TweedieRegressor)

DATA = sys.argv[1]


def single(values):
    return np.asarray(values, np.float32).astype(np.float64)


def breast_cancer():
    table = np.loadtxt(f"{DATA}/sklearn_breast_cancer.csv", delimiter=",", skiprows=1)
    return single(table[:, :-1]), table[:, -1]


def diabetes():
    return single(np.loadtxt(f"{DATA}/sklearn_diabetes_data_raw.csv.gz")), np.loadtxt(f"{DATA}/sklearn_diabetes_target.csv.gz")


def digits():
    table = np.loadtxt(f"{DATA}/sklearn_digits.csv.gz", delimiter=",")
    return single(table[:, :-1]), table[:, -1]


def log_loss(x, y, w, b, weights):
    z = x @ w + b
    return np.average(np.logaddexp(0, z) - y * z, weights=weights)


def half_deviance(power, y, mean):
    if power == 1:
        return xlogy(y, y / mean) - y + mean
    if power == 2:
        return y / mean - np.log(y / mean) - 1
    return y ** (2 - power) / ((1 - power) * (2 - power)) - y * mean ** (1 - power) / (1 - power) + mean ** (2 - power) / (2 - power)


def answer(objective, w, b):
    return {"objective": float(objective), "weights": [float(x) for x in np.append(w, b)]}


def logistic(x, y, l2, weights):
    """Newton on features that are centred and scaled: w in the data's units, penalised times the deviation."""
    mean, deviation = x.mean(0), x.std(0)
    scaled = (x - mean) / deviation
    model = LogisticRegression(C=1 / (l2 * weights.sum()), solver="newton-cholesky", tol=1e-14, max_iter=10000)
    model.fit(scaled, y, sample_weight=weights)
    u = model.coef_[0]
    w, b = u / deviation, model.intercept_[0] - (u / deviation) @ mean
    return answer(log_loss(x, y, w, b, weights) + l2 / 2 * u @ u, w, b)


def l1(x, y, strength):
    mean, deviation = x.mean(0), x.std(0)
    scaled = (x - mean) / deviation
    model = LogisticRegression(l1_ratio=1.0, C=1 / (strength * len(y)), solver="saga", tol=1e-9, max_iter=100_000)
    model.fit(scaled, y)
    u = model.coef_[0]
    w, b = u / deviation, model.intercept_[0] - (u / deviation) @ mean
    return answer(log_loss(x, y, w, b, None) + strength * np.abs(u).sum(), w, b)


def softmax(x, y, l2):
    model = LogisticRegression(C=1 / (l2 * len(y)), solver="newton-cg", tol=1e-9, max_iter=1000).fit(x, y)
    z = x @ model.coef_.T + model.intercept_
    loss = np.mean(np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[np.arange(len(y)), y.astype(int)])
    return {"objective": float(loss + l2 / 2 * (model.coef_ ** 2).sum())}


def a9a(l2):
    x, y = load_svmlight_file(f"{DATA}/a9a.gz", n_features=123)
    y = (y > 0).astype(float)
    model = LogisticRegression(C=1 / (l2 * len(y)), solver="newton-cg", tol=1e-9, max_iter=1000).fit(x, y)
    w, b = model.coef_[0], model.intercept_[0]
    return {"objective": float(log_loss(x, y, w, b, None) + l2 / 2 * w @ w)}


def squares(x, y, l2, weights):
    model = Ridge(alpha=l2 * weights.sum(), solver="cholesky") if l2 else LinearRegression()
    model.fit(x, y, sample_weight=weights)
    error = y - model.predict(x)
    return answer(np.average(error ** 2, weights=weights) / 2 + l2 / 2 * model.coef_ @ model.coef_, model.coef_, model.intercept_)


def deviance(x, y, power, l2):
    mean, deviation = x.mean(0), x.std(0)
    options = dict(alpha=l2, tol=1e-12, max_iter=100000, solver="newton-cholesky")
    model = {1: PoissonRegressor(**options), 2: GammaRegressor(**options)}.get(power, TweedieRegressor(power=power, link="log", **options))
    model.fit((x - mean) / deviation, y)
    w = model.coef_ / deviation
    b = model.intercept_ - w @ mean
    return answer(np.mean(half_deviance(power, y, np.exp(x @ w + b))) + l2 / 2 * model.coef_ @ model.coef_, w, b)


def probit(x, y, l2):
    """Binomial labels with the probit link by SciPy: scikit-learn has no such model."""
    mean, deviation = x.mean(0), x.std(0)
    scaled = np.column_stack([(x - mean) / deviation, np.ones(len(y))])
    penalised = np.append(np.full(x.shape[1], l2), 0)

    def value(u):
        z = scaled @ u
        density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        loss = -np.mean(y * log_ndtr(z) + (1 - y) * log_ndtr(-z)) + (penalised * u) @ u / 2
        slope = y * density / np.exp(log_ndtr(z)) - (1 - y) * density / np.exp(log_ndtr(-z))
        return loss, -scaled.T @ slope / len(y) + penalised * u

    found = minimize(value, np.zeros(scaled.shape[1]), jac=True, method="BFGS", options=dict(gtol=1e-10, maxiter=10000))
    w = found.x[:-1] / deviation
    return answer(found.fun, w, found.x[-1] - w @ mean)


if __name__ == "__main__":
    x, y = breast_cancer()
    ones = np.ones(len(y))
    counts = np.bincount(y.astype(int))
    sugar, progress = diabetes()
    uneven = 1.0 + np.arange(len(progress)) % 3
    print(json.dumps({
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__, "scikit-learn": sklearn.__version__},
        "breast cancer, logistic, l2 = 1e-3": logistic(x, y, 1e-3, ones),
        "breast cancer, logistic, l2 = 1e-3, balanced": logistic(x, y, 1e-3, len(y) / (2 * counts)[y.astype(int)]),
        "breast cancer, logistic, l1 = 0.01": l1(x, y, 0.01),
        "breast cancer, binomial, probit, l2 = 0.01": probit(x, y, 0.01),
        "digits, softmax, l2 = 0.01": softmax(*digits(), 0.01),
        "a9a, logistic, l2 = 1e-4": a9a(1e-4),
        "diabetes, squares": squares(sugar, progress, 0.0, np.ones(len(progress))),
        "diabetes, squares, l2 = 0.01": squares(sugar, progress, 0.01, np.ones(len(progress))),
        "diabetes, squares, l2 = 0.01, weights 1 2 3": squares(sugar, progress, 0.01, uneven),
        "diabetes, poisson, l2 = 0.01": deviance(sugar, progress, 1, 0.01),
        "diabetes, gamma, l2 = 0.01": deviance(sugar, progress, 2, 0.01),
        "diabetes, tweedie 1.5, l2 = 0.01": deviance(sugar, progress, 1.5, 0.01),
    }, indent=1))
