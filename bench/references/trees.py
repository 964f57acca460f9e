"""What other libraries reach on the data sets that the tree learners are tested on.

Usage: python bench/references/trees.py FOLDER > bench/references/trees.json, where FOLDER has the data sets
(see DATA.md there). The figures are those of held-out rows.
"""

import gzip
import json
import os
import sys

import lightgbm as lgb
import numpy as np
import pandas as pd
import sklearn
import xgboost as xgb
from sklearn.datasets import load_svmlight_file
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.metrics import accuracy_score, log_loss, ndcg_score, roc_auc_score, root_mean_squared_error
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

FOLDER = sys.argv[1]
BOOST = dict(num_leaves=31, learning_rate=0.1, max_bin=255, min_data_in_leaf=20, num_threads=1, verbose=-1, seed=1)
XGB = dict(tree_method="hist", grow_policy="lossguide", max_leaves=31, max_depth=0, max_bin=255, eta=0.1, nthread=1, seed=1)


def path(name):
    return os.path.join(FOLDER, name)


def table(name):
    both = [np.loadtxt(path(f"lightgbm_{name}.{part}"), delimiter="\t") for part in ("train", "test")]
    return [(rows[:, 1:], rows[:, 0]) for rows in both]


def housing():
    """Every fifth row is held out; the label is in hundreds of thousands."""
    rows = np.loadtxt(gzip.open(path("cal_housing.data.gz"), "rt"), delimiter=",")
    held = np.arange(len(rows)) % 5 == 4
    features, labels = rows[:, :8], rows[:, 8] / 100_000
    return (features[~held], labels[~held]), (features[held], labels[held])


def adult():
    names = [f"c{i}" for i in range(15)]
    read = lambda name, skip: pd.read_csv(
        path(name), header=None, names=names, skiprows=skip, skipinitialspace=True, na_values="?", compression="gzip"
    )
    train, test = read("adult.data.gz", 0), read("adult.test.gz", 1)
    labels = [rows["c14"].str.rstrip(".").eq(">50K").astype(int).to_numpy() for rows in (train, test)]
    features = []
    for rows in (train, test):
        rows = rows.drop(columns="c14").copy()
        for column in rows.columns:
            if not pd.api.types.is_numeric_dtype(train[column]):
                rows[column] = pd.Categorical(rows[column], categories=sorted(train[column].dropna().unique()))
        features.append(rows)
    return (features[0], labels[0]), (features[1], labels[1])


def digits():
    rows = np.loadtxt(gzip.open(path("sklearn_digits.csv.gz"), "rt"), delimiter=",")
    held = np.arange(len(rows)) % 5 == 4
    return (rows[~held, :64], rows[~held, 64]), (rows[held, :64], rows[held, 64])


def shuttle():
    rows = np.loadtxt(gzip.open(path("shuttle.csv.gz"), "rt"), delimiter=",", skiprows=1)
    held = np.arange(len(rows)) % 5 == 4
    return (rows[~held, :9], rows[~held, 9]), (rows[held, :9], rows[held, 9])


def rank():
    parts = []
    for part, opened in (("train", gzip.open(path("lightgbm_rank.train.gz"))), ("test", path("lightgbm_rank.test"))):
        features, labels = load_svmlight_file(opened, n_features=300)
        groups = np.loadtxt(path(f"lightgbm_rank.{part}.query"), dtype=int)
        parts.append((features.toarray(), labels, groups))
    return parts


def boosted(train, test, objective, judge, **more):
    """LightGBM's and XGBoost's predictions of the held-out rows after 100 trees."""
    model = lgb.train(dict(BOOST, objective=objective, **more), lgb.Dataset(train[0], train[1]), 100)
    found = {"lightgbm": judge(model.predict(test[0]))}
    names = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}
    if objective in names:
        matrix = lambda part: xgb.DMatrix(part[0], part[1], enable_categorical=True)
        params = dict(XGB, objective=names[objective], **more)
        found["xgboost"] = judge(xgb.train(params, matrix(train), 100).predict(matrix(test)))
    return found


def ndcg(labels, scores, groups):
    ends = np.cumsum(groups)
    found = []
    for end, size in zip(ends, groups):
        relevance, score = labels[end - size : end], scores[end - size : end]
        if relevance.max() == 0 or size == 1:
            found.append(1.0)
        else:
            found.append(ndcg_score([2.0**relevance - 1], [score], k=10))
    return float(np.mean(found))


def main():
    found = {"versions": {"lightgbm": lgb.__version__, "xgboost": xgb.__version__, "scikit-learn": sklearn.__version__}}
    train, test = table("binary")
    found["binary_auc"] = boosted(train, test, "binary", lambda p: roc_auc_score(test[1], p))
    found["binary_log_loss"] = boosted(train, test, "binary", lambda p: log_loss(test[1], p))
    train, test = table("multiclass")
    found["multiclass_log_loss"] = boosted(train, test, "multiclass", lambda p: log_loss(test[1], p), num_class=5)
    train, test = housing()
    rmse = lambda p: root_mean_squared_error(test[1], p)
    mae = lambda p: float(np.abs(test[1] - p).mean())
    found["housing_rmse"] = boosted(train, test, "regression", rmse)
    found["housing_mae_absolute"] = boosted(train, test, "l1", mae)
    found["housing_mae_huber"] = boosted(train, test, "huber", mae, alpha=0.9)
    pinball = lambda p: float(np.maximum(0.9 * (test[1] - p), -0.1 * (test[1] - p)).mean())
    found["housing_pinball_quantile"] = boosted(train, test, "quantile", pinball, alpha=0.9)
    found["housing_rmse_poisson"] = boosted(train, test, "poisson", rmse)
    tree = DecisionTreeRegressor(max_depth=8, min_samples_leaf=5, random_state=1).fit(*train)
    found["housing_rmse_tree"] = {"scikit-learn": rmse(tree.predict(test[0]))}
    train, test = adult()
    found["adult_auc"] = boosted(train, test, "binary", lambda p: roc_auc_score(test[1], p))
    (x, y, groups), (xt, yt, groupst) = rank()
    model = lgb.train(dict(BOOST, objective="lambdarank"), lgb.Dataset(x, y, group=groups), 100)
    found["rank_ndcg"] = {"lightgbm": ndcg(yt, model.predict(xt), groupst)}
    for name, (train, test) in (("digits", digits()), ("shuttle", shuttle())):
        tree = DecisionTreeClassifier(random_state=1).fit(*train)
        forest = RandomForestClassifier(100, random_state=1, n_jobs=1, oob_score=True).fit(*train)
        found[f"{name}_accuracy_tree"] = {"scikit-learn": accuracy_score(test[1], tree.predict(test[0]))}
        found[f"{name}_accuracy_forest"] = {"scikit-learn": accuracy_score(test[1], forest.predict(test[0]))}
        found[f"{name}_out_of_bag"] = {"scikit-learn": forest.oob_score_}
    train, test = digits()
    pruned = DecisionTreeClassifier(ccp_alpha=0.005, random_state=1).fit(*train)
    found["digits_leaves_pruned"] = {"scikit-learn": int(pruned.get_n_leaves())}
    (x, y), _ = shuttle()
    odd = IsolationForest(n_estimators=100, random_state=1).fit(x)
    found["shuttle_auc_isolation"] = {"scikit-learn": roc_auc_score(y, -odd.score_samples(x))}
    print(json.dumps(found, indent=2))


main()
