"""Makes ensembles.json anew: what scikit-learn's ensembles and few-label learners give on iris, digits, breast cancer and
adult.

    python bench/references/ensembles.py ../shared/data

The folder is where sklearn_breast_cancer.csv and adult.data.gz are. Rows are read as float32, as the tests read them,
and computed with in float64.
"""

import gzip
import json
import pathlib
import re
import sys

import numpy
import pandas
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor, BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier

HERE = pathlib.Path(__file__).parent
SHARED = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data")


# What scikit-learn adds to variances is a share of the variance of all rows, whatever they weigh: as good as none here.
SMOOTHING = 1e-15


def as_read(x):
    return numpy.asarray(x, dtype=numpy.float32).astype(numpy.float64)


def iris():
    x, y = load_iris(return_X_y=True)
    return as_read(x), y


def digits(test):
    x, y = load_digits(return_X_y=True)
    mine = (numpy.arange(len(y)) % 5 == 4) == test
    return as_read(x[mine]), y[mine]


def breast_cancer():
    rows = numpy.loadtxt(SHARED / "sklearn_breast_cancer.csv", delimiter=",", skiprows=1)
    return as_read(rows[:, :-1]), rows[:, -1].astype(int)


def told(p, y, every):
    """Chances of some rows, and how good all are."""
    return {
        "rows": list(range(0, len(y), every)),
        "chances": p[::every].ravel().tolist(),
        "accuracy": float((p.argmax(1) == y).mean()),
    }


def adaboost(data, x, y, rounds, rate):
    model = AdaBoostClassifier(GaussianNB(var_smoothing=SMOOTHING), n_estimators=rounds, learning_rate=rate).fit(x, y)
    found = told(model.predict_proba(x), y, max(1, len(y) // 10))
    return found | {
        "data": data,
        "rounds": rounds,
        "learning_rate": rate,
        "says": model.estimator_weights_[: len(model.estimators_)].tolist(),
        "errors": model.estimator_errors_[: len(model.estimators_)].tolist(),
    }


def voting(how):
    x, y = digits(False)
    members = [("gaussian", GaussianNB()), ("bernoulli", BernoulliNB(binarize=8.0))]
    model = VotingClassifier(members, voting=how, weights=[2, 1]).fit(x, y)
    u, v = digits(True)
    if how == "soft":
        return told(model.predict_proba(u), v, 40)
    return {"accuracy": float((model.predict(u) == v).mean())}


def stacking(members_of, data, x, y, folds, l2):
    splits = [(numpy.flatnonzero(numpy.arange(len(y)) % folds != f), numpy.flatnonzero(numpy.arange(len(y)) % folds == f)) for f in range(folds)]
    last = LogisticRegression(C=1 / (l2 * len(y)), solver="newton-cg", tol=1e-10, max_iter=10_000)
    model = StackingClassifier(members_of(), final_estimator=last, cv=splits, stack_method="predict_proba").fit(x, y)
    found = told(model.predict_proba(x), y, max(1, len(y) // 10))
    return found | {"data": data, "folds": folds, "l2": l2, "log_loss": float(log_loss(y, model.predict_proba(x)))}


def bagging(data, train, test, bags):
    (x, y), (u, v) = train, test
    runs = [BaggingClassifier(DecisionTreeClassifier(), n_estimators=bags, oob_score=True, random_state=s, n_jobs=1).fit(x, y) for s in range(6)]
    seen = [float(run.score(u, v)) for run in runs]
    outside = [float(run.oob_score_) for run in runs]
    return {
        "data": data,
        "bags": bags,
        "accuracy": [float(numpy.mean(seen)), float(numpy.std(seen))],
        "out_of_bag": [float(numpy.mean(outside)), float(numpy.std(outside))],
    }


def regression():
    """The third feature of iris from the others, by ridge; weights in place of samples are not what scikit-learn does, so
    the recurrence of Drucker's paper is written out here."""
    x, _ = iris()
    u, y = x[:, [0, 1, 3]], x[:, 2]
    weights = numpy.ones(len(y)) / len(y)
    says, errors, members = [], [], []
    for _ in range(4):
        # Our ridge divides by the weight of all rows.
        member = Ridge(alpha=0.01 * len(y)).fit(u, y, sample_weight=weights * len(y))
        error = numpy.abs(member.predict(u) - y)
        loss = error / error.max()
        mean = float((weights * loss).sum())
        beta = mean / (1 - mean)
        says.append(float(numpy.log(1 / beta)))
        errors.append(mean)
        members.append(member)
        weights = weights * beta ** (1 - loss)
        weights /= weights.sum()
    return {"says": says, "errors": errors}


def few_labels(y, keep):
    """Every keep-th row has its label, the others none (-1)."""
    return numpy.where(numpy.arange(len(y)) % keep == 0, y, -1)


def without_ties(x):
    """Whole numbers have many neighbours at the same distance, of which anyone takes any; the tests add the same."""
    rows, columns = numpy.indices(x.shape)
    jitter = ((rows * 7 + columns * 13) % 101).astype(numpy.float32) * numpy.float32(0.001)
    return (x.astype(numpy.float32) + jitter).astype(numpy.float64)


def self_training(data, x, y, keep, threshold):
    model = SelfTrainingClassifier(GaussianNB(), threshold=threshold, max_iter=10).fit(x, few_labels(y, keep))
    return {
        "data": data,
        "keep": keep,
        "threshold": threshold,
        "rounds": [int((model.labeled_iter_ == r).sum()) for r in range(1, int(model.labeled_iter_.max()) + 1)],
        "unlabelled": int((model.labeled_iter_ == -1).sum()),
        "accuracy": float((model.predict(x) == y).mean()),
    }


def propagation(name, data, x, y, keep, settings):
    x, known = without_ties(x), few_labels(y, keep)
    kind = {"label-propagation": LabelPropagation, "label-spreading": LabelSpreading}[name]
    model = kind(**settings).fit(x, known)
    found = told(model.label_distributions_, y, max(1, len(y) // 15))
    p = model.predict_proba(x[::7] + 0.01)
    return found | {
        "learner": name,
        "data": data,
        "keep": keep,
        "params": {("neighbours" if k == "n_neighbors" else k): v for k, v in settings.items()},
        "iterations": int(model.n_iter_),
        "elsewhere": p[:12].ravel().tolist(),
    }


def adult(rows):
    names = [f"c{i}" for i in range(15)]
    with gzip.open(SHARED / "adult.data.gz") as f:
        table = pandas.read_csv(f, header=None, names=names, skipinitialspace=True, na_values=["?"], nrows=rows)
    x, y = table[names[:14]], (table["c14"] == ">50K").astype(int).to_numpy()
    text = [c for c in names[:14] if table[c].dtype == object]
    hot = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), text), remainder="passthrough")
    codes = x.copy()
    for c in text:
        codes[c] = codes[c].astype("category").cat.codes
    half = rows // 2
    logistic = make_pipeline(hot, sklearn.preprocessing.StandardScaler(with_mean=False), LogisticRegression(C=1 / (1e-3 * half), max_iter=2000)).fit(x[:half], y[:half])
    tree = DecisionTreeClassifier(max_depth=5, random_state=1).fit(codes[:half], y[:half])
    p = (logistic.predict_proba(x[half:]) + tree.predict_proba(codes[half:])) / 2
    return {"rows": rows, "accuracy": float((p.argmax(1) == y[half:]).mean())}


def naive():
    return [("gaussian", GaussianNB()), ("bernoulli", BernoulliNB(binarize=3.0))]


def main():
    x, y = iris()
    u, v = digits(False)
    found = {
        "made_with": {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__},
        "adaboost": [adaboost("iris", x, y, 5, 1.0), adaboost("iris", x, y, 4, 0.5)],
        "adaboost_numbers": regression(),
        "voting": {"soft": voting("soft"), "hard": voting("hard")},
        "stacking": [stacking(naive, "iris", x, y, 5, 0.01), stacking(naive, "digits", u, v, 4, 0.01)],
        "bagging": [bagging("digits", digits(False), digits(True), 20)],
        "self_training": [self_training("iris", x, y, 10, 0.75), self_training("digits", u, v, 10, 0.95)],
        "propagation": [
            propagation("label-propagation", "iris", x, y, 10, {"kernel": "rbf", "gamma": 20.0}),
            propagation("label-propagation", "digits", u, v, 20, {"kernel": "knn", "n_neighbors": 7}),
            propagation("label-spreading", "iris", x, y, 10, {"kernel": "rbf", "gamma": 5.0, "alpha": 0.3}),
            propagation("label-spreading", "digits", u, v, 20, {"kernel": "knn", "n_neighbors": 7}),
        ],
    }
    if (SHARED / "sklearn_breast_cancer.csv").exists():
        a, b = breast_cancer()
        found["adaboost"].append(adaboost("breast_cancer", a, b, 5, 1.0))
        odd = numpy.arange(len(b)) % 2 == 1
        found["bagging"].append(bagging("breast_cancer", (a[~odd], b[~odd]), (a[odd], b[odd]), 20))
        found["adult"] = adult(4000)
    text = json.dumps(found, indent=1)
    text = re.sub(r"\n\s+(?=[-\d\]])", " ", text)
    (HERE / "ensembles.json").write_text(text + "\n")


main()
