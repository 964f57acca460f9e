"""Makes perceptron.json anew: how well scikit-learn's Perceptron does, seed by seed, on digits (the built-in parts for
training and testing) and on breast cancer (features divided by their deviation, every fifth row for testing).

    python bench/references/perceptron.py
"""

import json
import pathlib
import re

import numpy
import sklearn
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import Perceptron

HERE = pathlib.Path(__file__).parent


def numbers_in_lines(text):
    """A list of numbers is a line, not a line each."""
    return re.sub(r"\n\s+(?=[-\d\]])", " ", text)


def accuracies(x, y):
    test = numpy.arange(len(y)) % 5 == 4
    fit = lambda seed: Perceptron(random_state=seed).fit(x[~test], y[~test]).score(x[test], y[test])
    found = [float(fit(seed)) for seed in range(20)]
    return {"mean": float(numpy.mean(found)), "deviation": float(numpy.std(found)), "least": min(found), "seeds": 20}


def main():
    digits, cancer = load_digits(), load_breast_cancer()
    scaled = (cancer.data - cancer.data.mean(0)) / cancer.data.std(0)
    found = {
        "made_with": {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__},
        "digits": accuracies(digits.data, digits.target),
        "breast_cancer": accuracies(scaled, cancer.target),
    }
    (HERE / "perceptron.json").write_text(numbers_in_lines(json.dumps(found, indent=1)) + "\n")


main()
