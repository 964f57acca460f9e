"""What scikit-learn's preprocessing (for byte pairs: Hugging Face's tokenizers) makes of 60 small rows: the figures that
crates/data/tests/preparation.rs compares with.

Run with any Python that has numpy, scipy, scikit-learn and tokenizers:  python bench/references/prepare.py
It writes prepare.json beside it, with the versions that made it. Each case has the job's steps, what becomes of the
training rows, and what becomes of the new rows.
"""
import json
import pathlib
import warnings

import numpy
import scipy.sparse
import sklearn
import tokenizers
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectFromModel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from tokenizers import models, pre_tokenizers, trainers

warnings.simplefilter("ignore")
HERE = pathlib.Path(__file__).parent
random = numpy.random.default_rng(7)
ROWS, NEW = 60, 8
WORDS = "the red fox jumps over a lazy dog and Sees the Moon rise; x y fox_1 42".split()
TOWNS = ["Oslo", "Rome", "Lima", "Kyiv", "Bonn"]


def rows(count, unseen):
    out = []
    for row in range(count):
        town = TOWNS[min(int(random.exponential(1.3)), 4)]
        words = random.choice(WORDS, size=int(random.integers(0, 12)))
        out.append(
            {
                "a": None if row % 9 == 4 else float(random.integers(-40, 60)) / 8,
                "b": float(random.integers(0, 400)) / 4 + 1000,
                "k": 3.0,
                "town": "Mars" if unseen and row == 1 else town,
                "text": " ".join(words),
                "two": int(random.integers(0, 2)) if town != "Rome" else 1,
                "three": int(random.integers(0, 3)) if town != "Oslo" else 2,
                "number": float(random.integers(-20, 20)) / 2 + len(town),
            }
        )
    return out


train, new = rows(ROWS, False), rows(NEW, True)


def column(table, *names):
    values = [[numpy.nan if row[name] is None else row[name] for name in names] for row in table]
    return numpy.array(values, dtype=float)


def texts(table, name):
    return numpy.array([[row[name]] for row in table], dtype=object)


def plain(matrix):
    matrix = matrix.toarray() if scipy.sparse.issparse(matrix) else numpy.asarray(matrix, dtype=float)
    return [[None if numpy.isnan(value) else float(value) for value in row] for row in matrix]


cases = []


def case(name, features, steps, made, made_new, label="two"):
    cases.append(
        {
            "name": name,
            "features": features,
            "steps": steps,
            "label": label,
            "train": plain(made),
            "new": plain(made_new),
        }
    )


def numbers(name, step, made, features=("a", "b", "k")):
    matrix = column(train, *features)
    made.fit(matrix)
    case(name, list(features), [step], made.transform(matrix), made.transform(column(new, *features)))


numbers("scale standard", {"name": "scale"}, StandardScaler())
numbers("scale without centre", {"name": "scale", "center": False}, StandardScaler(with_mean=False))
numbers("scale min-max", {"name": "scale", "kind": "min-max", "low": -1.0, "high": 2.0}, MinMaxScaler((-1, 2)))
numbers("scale max-abs", {"name": "scale", "kind": "max-abs"}, MaxAbsScaler())
numbers("scale robust", {"name": "scale", "kind": "robust"}, RobustScaler())
numbers(
    "scale robust, 10 to 90",
    {"name": "scale", "kind": "robust", "quantile_low": 10.0, "quantile_high": 90.0, "center": False},
    RobustScaler(quantile_range=(10, 90), with_centering=False),
)
for strategy in ["mean", "median", "most-frequent", "constant"]:
    step = {"name": "impute", "strategy": strategy, "indicator": False}
    if strategy == "constant":
        step["value"] = -7.5
    imputer = SimpleImputer(strategy=strategy.replace("-", "_"), fill_value=-7.5 if strategy == "constant" else None)
    numbers(f"impute {strategy}", step, imputer)
imputer = SimpleImputer(add_indicator=True).fit(column(train, "a", "b"))
order = [0, 2, 1]
case(
    "impute with indicator",
    ["a", "b"],
    [{"name": "impute", "indicator": True}],
    imputer.transform(column(train, "a", "b"))[:, order],
    imputer.transform(column(new, "a", "b"))[:, order],
)

for name, step, encoder in [
    ("one-hot", {}, OneHotEncoder(handle_unknown="ignore")),
    ("one-hot of at most 3", {"max_categories": 3}, OneHotEncoder(handle_unknown="ignore", max_categories=3)),
    ("one-hot from 8 rows", {"min_frequency": 8}, OneHotEncoder(handle_unknown="ignore", min_frequency=8)),
]:
    encoder.fit(texts(train, "town"))
    case(
        name,
        ["town"],
        [{"name": "one-hot", **step}],
        encoder.transform(texts(train, "town")),
        encoder.transform(texts(new, "town")),
    )


def fold(row, folds, seed=0):
    mask = (1 << 64) - 1
    mixed = (row ^ ((seed << 32 | seed >> 32) & mask)) + 0x9E3779B97F4A7C15 & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return (mixed ^ mixed >> 31) % folds


for label, kind in [("two", "binary"), ("three", "multiclass"), ("number", "continuous")]:
    for smooth in [-1.0, 10.0]:
        towns, labels = texts(train, "town"), numpy.array([row[label] for row in train])
        folds = numpy.array([fold(row, 5) for row in range(ROWS)])

        def encoder():
            return TargetEncoder(smooth="auto" if smooth < 0 else smooth, target_type=kind)

        width = 3 if kind == "multiclass" else 1
        out_of_fold = numpy.zeros((ROWS, width))
        for number in range(5):
            fitted = encoder().fit(towns[folds != number], labels[folds != number])
            out_of_fold[folds == number] = fitted.transform(towns[folds == number])
        case(
            f"target encoding of {kind} labels, smooth {smooth}",
            ["town"],
            [{"name": "target-encoding", "smooth": smooth}],
            out_of_fold,
            encoder().fit(towns, labels).transform(texts(new, "town")),
            label,
        )

hasher = FeatureHasher(n_features=16, input_type="dict")
dicts = lambda table: [{"town": row["town"], "b": row["b"]} for row in table]
case(
    "hash encoding",
    ["town", "b"],
    [{"name": "hash-encoding", "features": 16, "columns": ["town", "b"]}],
    hasher.transform(dicts(train)),
    hasher.transform(dicts(new)),
)
for strategy in ["quantile", "uniform"]:
    for encode in ["ordinal", "one-hot"]:
        options = {"quantile_method": "linear"} if strategy == "quantile" else {}
        binner = KBinsDiscretizer(4, encode=encode.replace("-", ""), strategy=strategy, subsample=None, **options)
        numbers(
            f"bins, {strategy}, {encode}",
            {"name": "bin", "bins": 4, "strategy": strategy, "encode": encode},
            binner,
            ("b", "k"),
        )
numbers("polynomial", {"name": "polynomial", "degree": 3}, PolynomialFeatures(3, include_bias=False), ("b", "k"))
numbers(
    "interactions",
    {"name": "polynomial", "interaction_only": True, "bias": True},
    PolynomialFeatures(2, interaction_only=True),
    ("b", "k"),
)

for name, step, options in [
    ("tf-idf", {}, {}),
    ("tf-idf of runs", {"n_gram_max": 2, "min_df": 3}, {"ngram_range": (1, 2), "min_df": 3}),
    (
        "tf-idf, sublinear, l1",
        {"sublinear_tf": True, "norm": "l1", "max_df": 0.5, "lowercase": False},
        {"sublinear_tf": True, "norm": "l1", "max_df": 0.5, "lowercase": False},
    ),
    ("term counts", {"use_idf": False, "norm": "none"}, {"use_idf": False, "norm": None}),
]:
    vectorizer = TfidfVectorizer(**options)
    made = vectorizer.fit_transform([row["text"] for row in train])
    case(name, ["text"], [{"name": "tf-idf", **step}], made, vectorizer.transform([row["text"] for row in new]))
vectorizer = HashingVectorizer(n_features=32, ngram_range=(1, 2))
case(
    "hashed n-grams",
    ["text"],
    [{"name": "hashed-n-grams", "features": 32, "n_gram_max": 2}],
    vectorizer.transform([row["text"] for row in train]),
    vectorizer.transform([row["text"] for row in new]),
)
# One word a row and letters alone, so that which of two equally frequent pairs comes first is decided alike.
byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
pairs = tokenizers.Tokenizer(models.BPE())
pairs.pre_tokenizer = byte_level
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=263, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
pairs.train_from_iterator([row["town"] for row in train], trainer)
joins = [tuple(join) for join in json.loads(pairs.to_str())["model"]["merges"]]
numbers = {"".join(join): 256 + rank for rank, join in enumerate(joins)}


def tokens(text, length):
    found = [numbers[token] if token in numbers else ord(token) for token in pairs.encode(text).tokens]
    return (found + [0] * length)[:length]


case(
    "byte pairs",
    ["town"],
    [{"name": "tokens", "vocabulary": 263, "length": 3}],
    numpy.array([tokens(row["town"], 3) for row in train]),
    numpy.array([tokens(row["town"], 3) for row in new]),
)
filled = lambda text: list(text.encode().ljust(20, b"\0")[:20])
case(
    "bytes",
    ["text"],
    [{"name": "tokens", "kind": "byte", "length": 20}],
    numpy.array([filled(row["text"]) for row in train]),
    numpy.array([filled(row["text"]) for row in new]),
)
imputer = SimpleImputer(strategy="median").fit(column(train, "a", "b"))
scaler = StandardScaler().fit(imputer.transform(column(train, "a", "b")))
case(
    "impute, then scale",
    ["a", "b"],
    [{"name": "impute", "strategy": "median"}, {"name": "scale"}],
    scaler.transform(imputer.transform(column(train, "a", "b"))),
    scaler.transform(imputer.transform(column(new, "a", "b"))),
)

imputer = SimpleImputer(strategy="median").fit(column(train, "a", "b"))
powers = PolynomialFeatures(3, include_bias=False)
scaler = StandardScaler()
many = scaler.fit_transform(powers.fit_transform(imputer.transform(column(train, "a", "b"))))
many_new = scaler.transform(powers.transform(imputer.transform(column(new, "a", "b"))))
for label, l1 in [("two", 0.02), ("three", 0.03), ("number", 0.3)]:
    labels = numpy.array([row[label] for row in train])
    targets = [labels == kind for kind in range(3)] if label == "three" else [labels]
    lasso = lambda: SelectFromModel(Lasso(alpha=l1, tol=1e-12, max_iter=1_000_000))
    kept = [lasso().fit(many, target.astype(float)).get_support() for target in targets]
    kept = numpy.any(kept, axis=0)
    assert 0 < kept.sum() < many.shape[1], (label, kept)
    case(
        f"columns that a lasso of {label} needs",
        ["a", "b"],
        [
            {"name": "impute", "strategy": "median"},
            {"name": "polynomial", "degree": 3},
            {"name": "scale"},
            {"name": "select-l1", "l1": l1},
        ],
        many[:, kept],
        many_new[:, kept],
        label,
    )


def csv(table):
    names = list(table[0])
    quoted = lambda value: "" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
    return "\n".join([",".join(names)] + [",".join(quoted(row[name]) for name in names) for row in table]) + "\n"


versions = {"scikit-learn": sklearn.__version__, "tokenizers": tokenizers.__version__, "numpy": numpy.__version__}
document = {"versions": versions, "train": csv(train), "new": csv(new), "cases": cases}
(HERE / "prepare.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
