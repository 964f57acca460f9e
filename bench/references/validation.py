"""Expected figures for crates/starlings/tests/validation.rs: scikit-learn on the digits of the built-in training part,
in the folds that Starlings deals (they are not scikit-learn's own, so they are given).

    cargo run -p starlings --example fold_of_rows -- digits class 5 1 > classes.txt
    cargo run -p starlings --example fold_of_rows -- digits number 4 2 > numbers.txt
    python3 bench/references/validation.py classes.txt numbers.txt > bench/references/validation.json
"""

import json
import sys

import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, f1_score, r2_score, root_mean_squared_error
from sklearn.model_selection import PredefinedSplit
from sklearn.naive_bayes import GaussianNB


def spread(values):
    return {"folds": values, "mean": np.mean(values), "deviation": np.std(values)}


def main():
    digits = load_digits()
    train = np.arange(len(digits.target)) % 5 != 4
    x, y = digits.data[train], digits.target[train]
    classes, numbers = (json.load(open(path)) for path in sys.argv[1:3])
    accuracy, f1, rmse, r2 = [], [], [], []
    for rest, held in PredefinedSplit(classes).split():
        said = GaussianNB(var_smoothing=1e-3).fit(x[rest], y[rest]).predict(x[held])
        accuracy.append(accuracy_score(y[held], said))
        f1.append(f1_score(y[held], said, average="macro"))
    for rest, held in PredefinedSplit(numbers).split():
        model = Ridge(alpha=0.01 * len(rest), solver="cholesky").fit(x[rest], y[rest].astype(float))
        said = model.predict(x[held])
        rmse.append(root_mean_squared_error(y[held], said))
        r2.append(r2_score(y[held], said))
    json.dump(
        {
            "versions": {"scikit-learn": sklearn.__version__},
            "classes": {
                "fold_of_rows": classes,
                "metrics": {"accuracy": spread(accuracy), "f1": spread(f1)},
            },
            "numbers": {
                "fold_of_rows": numbers,
                "metrics": {"rmse": spread(rmse), "r2": spread(r2)},
            },
        },
        sys.stdout,
    )
    print()


main()
