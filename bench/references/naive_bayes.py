"""Makes naive_bayes.json anew: what scikit-learn's naive Bayes gives on iris, digits and the Reuters counts.

    python bench/references/naive_bayes.py ../shared/data

The folder is where reuters.ldac is; without it that case is left as it is not made. Rows are read as float32, as the
tests read them, and computed with in float64.
"""

import json
import pathlib
import re
import sys

import numpy
import sklearn
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB

HERE = pathlib.Path(__file__).parent


def numbers_in_lines(text):
    """A list of numbers is a line, not a line each."""
    return re.sub(r"\n\s+(?=[-\d\]])", " ", text)


def reuters(folder):
    """Counts of words; there are no classes, so the row's number modulo 4 stands in: only arithmetic is compared."""
    lines = (folder / "reuters.ldac").read_text().splitlines()
    entries = [[tuple(map(int, e.split(":"))) for e in line.split()[1:]] for line in lines]
    x = numpy.zeros((len(lines), 1 + max(c for row in entries for c, _ in row)))
    for row, found in enumerate(entries):
        for column, count in found:
            x[row, column] = count
    return x, numpy.arange(len(lines)) % 4


def weights(rows):
    """Weights that the tests make too."""
    return 0.5 + (numpy.arange(rows) % 3) / 2


def case(name, data, params, model, x, y, weighted=False):
    model.fit(x, y, sample_weight=weights(len(y)) if weighted else None)
    p = model.predict_proba(x)
    table = model.theta_ if hasattr(model, "theta_") else model.feature_log_prob_
    found = {
        "name": name,
        "data": data,
        "params": params,
        "weighted": weighted,
        "prior": (numpy.log(model.class_prior_) if hasattr(model, "class_prior_") else model.class_log_prior_).tolist(),
        "every": 1 if table.size < 100 else table.size // 50,
        "accuracy": float((model.classes_[p.argmax(1)] == y).mean()),
        "log_loss": float(log_loss(y, p)),
        "rows": list(range(0, len(y), max(1, len(y) // 8))),
    }
    found["table"] = table.ravel()[:: found["every"]].tolist()
    if hasattr(model, "var_"):
        found["variances"] = model.var_.ravel()[:: found["every"]].tolist()
    found["probabilities"] = p[found["rows"]].tolist()
    return found


def main():
    iris, digits = load_iris(), load_digits()
    flowers = (iris.data.astype("float32").astype("float64"), iris.target)
    # The built-in digits: every fifth row is for testing.
    train = numpy.arange(len(digits.target)) % 5 != 4
    figures = (digits.data[train], digits.target[train])
    cases = [
        case("gaussian flowers", "iris", "", GaussianNB(), *flowers),
        case("weighted gaussian flowers", "iris", "", GaussianNB(), *flowers, weighted=True),
        case("gaussian flowers, alike", "iris", "fit_prior = false", GaussianNB(priors=[1 / 3] * 3), *flowers),
        case("gaussian digits", "digits", "var_smoothing = 1e-3", GaussianNB(var_smoothing=1e-3), *figures),
        case("multinomial digits", "digits", "kind = 'multinomial'", MultinomialNB(), *figures),
        case("multinomial flowers", "iris", "kind = 'multinomial'\nalpha = 0.1", MultinomialNB(alpha=0.1), *flowers, weighted=True),
        case("bernoulli digits", "digits", "kind = 'bernoulli'\nbinarize = 4", BernoulliNB(binarize=4), *figures),
        case("bernoulli flowers", "iris", "kind = 'bernoulli'\nbinarize = 1.5\nfit_prior = false", BernoulliNB(binarize=1.5, fit_prior=False), *flowers),
        case("complement digits", "digits", "kind = 'complement'", ComplementNB(), *figures),
        case("complement digits, normalised", "digits", "kind = 'complement'\nnorm = true", ComplementNB(norm=True), *figures),
    ]
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder and (folder / "reuters.ldac").exists():
        words = reuters(folder)
        cases.append(case("multinomial words", "reuters", "kind = 'multinomial'", MultinomialNB(), *words))
        cases.append(case("complement words", "reuters", "kind = 'complement'", ComplementNB(), *words))
        cases.append(case("bernoulli words", "reuters", "kind = 'bernoulli'", BernoulliNB(), *words))
    for found in cases:
        # The complement kind has no prior in its scores; scikit-learn keeps the frequencies all the same.
        if "complement" in found["params"]:
            found["prior"] = [0.0] * len(found["prior"])
    made = {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__}
    (HERE / "naive_bayes.json").write_text(numbers_in_lines(json.dumps({"made_with": made, "cases": cases}, indent=1)) + "\n")


main()
