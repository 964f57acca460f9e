"""The deviation-scaled solver: SciPy's L-BFGS for logistic regression on u = deviation · w (mean log loss + l2/2 · |w|²,
intercept free). Where features differ in scale it is a fairer peer than a solver that takes them as they are."""

import numpy as np
import scipy.optimize
import scipy.sparse


def solve(x, y, l2):
    """Weights, intercept and iterations."""
    x = x.astype(np.float64)
    mean = np.asarray(x.mean(0)).ravel()
    square = np.asarray((x.multiply(x) if scipy.sparse.issparse(x) else x * x).mean(0)).ravel()
    by = 1 / np.sqrt(np.maximum(square - mean * mean, 1e-12))
    columns = x.T.tocsr() if scipy.sparse.issparse(x) else x.T

    def value(u):
        w = u[:-1] * by
        z = x @ w + u[-1]
        r = (1 / (1 + np.exp(-z)) - y) / len(y)
        return np.mean(np.logaddexp(0, z) - y * z) + l2 / 2 * w @ w, np.append((columns @ r + l2 * w) * by, r.sum())

    options = dict(maxiter=1000, maxcor=10, ftol=1e-12, gtol=1e-6)
    found = scipy.optimize.minimize(value, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B", options=options)
    return found.x[:-1] * by, found.x[-1], int(found.nit)
