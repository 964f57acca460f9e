"""Small models of other libraries as ONNX files, and what onnxruntime answers for some rows.

    python bench/references/other_libraries.py

writes crates/learn/tests/assets/onnx/*.onnx, examples/digits-network.onnx and bench/references/other_libraries.json, which crates/learn/tests/references/other_libraries.rs
and crates/starlings/tests/other_libraries.rs compare with. Libraries and versions are in the JSON file.
"""

import importlib.metadata
import json
import pathlib
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType as Floats
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import (AdaBoostClassifier, BaggingClassifier, ExtraTreesClassifier,
                              GradientBoostingClassifier, GradientBoostingRegressor,
                              RandomForestClassifier, RandomForestRegressor)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import (LinearRegression, LogisticRegression, PoissonRegressor, SGDClassifier)
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (MinMaxScaler, Normalizer, OneHotEncoder, PolynomialFeatures,
                                   StandardScaler)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

warnings.filterwarnings("ignore")
ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "crates/learn/tests/assets/onnx"
FILES.mkdir(exist_ok=True)

iris = load_iris()
X = iris.data.astype(np.float32)
names = np.array(iris.target_names)[iris.target]
later = (iris.target > 0).astype(np.int64)
length = X[:, 3]
X3 = X[:, :3]
digits = load_digits()
D = digits.data.astype(np.float32)
models = {}


def put(name, model, data, wishes=None):
    """Saves a model and what the reference runtime says of every fifth row (of digits: of every fiftieth)."""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    path = FILES / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    rows = {"iris": X, "iris-3": X3, "digits": D}[data]
    rows = rows[:: 50 if data == "digits" else 5]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    said = session.run(None, {inputs[0].name: rows})[-1]
    keep(name, data, said, wishes)


def keep(name, data, said, wishes):
    classes = []
    if isinstance(said, list):
        classes = [str(key) for key in said[0]]
        said = [list(row.values()) for row in said]
    said = np.asarray(said, dtype=np.float64)
    assert np.isfinite(said).all()
    models[name] = {
        "data": data,
        "wishes": wishes or "",
        "classes": classes,
        "said": [float(f"{x:.8g}") for x in said.ravel()],
    }


def learn(name, model, rows, labels, data, wishes=None, **options):
    model.fit(rows, labels)
    put(name, to_onnx(model, rows[:1], **options), data, wishes)


learn("logistic", LogisticRegression(max_iter=500), X, names, "iris")
learn("logistic-binary", LogisticRegression(max_iter=500), X, later, "iris")
learn("pipeline", make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()), X, names, "iris")
learn("min-max", make_pipeline(MinMaxScaler(), Normalizer(), LogisticRegression()), X, names, "iris")
learn("tree", DecisionTreeClassifier(max_depth=3, random_state=1), X, names, "iris")
learn("forest", RandomForestClassifier(5, max_depth=3, random_state=1), X, names, "iris")
learn("extra-trees", ExtraTreesClassifier(3, max_depth=3, random_state=1), X, iris.target, "iris")
learn("boosting", GradientBoostingClassifier(n_estimators=3, random_state=1), X, names, "iris")
learn("boosting-binary", GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=1), X, later, "iris")
learn("adaboost", AdaBoostClassifier(n_estimators=3, random_state=1), X, names, "iris")
learn("bagging", BaggingClassifier(LogisticRegression(), n_estimators=2, random_state=1), X, names, "iris")
learn("naive-bayes", GaussianNB(), X, names, "iris")
learn("sgd", SGDClassifier(loss="log_loss", random_state=1), X, names, "iris")
learn("mlp", MLPClassifier(hidden_layer_sizes=(5,), max_iter=300, random_state=1), X, names, "iris")
learn("mlp-binary", MLPClassifier(hidden_layer_sizes=(5,), activation="tanh", max_iter=300, random_state=1), X, later, "iris")
learn("linear", LinearRegression(), X3, length, "iris-3")
learn("poisson", PoissonRegressor(), X3, length, "iris-3")
learn("polynomial", make_pipeline(PolynomialFeatures(2), LinearRegression()), X3, length, "iris-3")
learn("tree-numbers", DecisionTreeRegressor(max_depth=3, random_state=1), X3, length, "iris-3")
learn("forest-numbers", RandomForestRegressor(3, max_depth=3, random_state=1), X3, length, "iris-3")
learn("boosting-numbers", GradientBoostingRegressor(n_estimators=5, max_depth=2, random_state=1), X3, length, "iris-3")
learn("mlp-numbers", MLPRegressor(hidden_layer_sizes=(5,), max_iter=300, random_state=1), X3, length, "iris-3")
# Scores that are no chances: the job must say what they are.
learn("margins", LinearSVC(random_state=1), X, names, "iris", 'scale = "logits"')
models["margins"]["said"] = []

for name, model, rows, labels, data in [
    ("lightgbm", LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1), X, iris.target, "iris"),
    ("lightgbm-binary", LGBMClassifier(n_estimators=3, num_leaves=4, verbose=-1), X, later, "iris"),
    ("lightgbm-numbers", LGBMRegressor(n_estimators=3, num_leaves=4, verbose=-1), X3, length, "iris-3"),
]:
    model.fit(rows, labels)
    put(name, convert_lightgbm(model, initial_types=[("X", Floats([None, rows.shape[1]]))], target_opset=15), data)

# A column a name, one of them of texts.
frame = {"length": X[:, 2:3], "width": X[:, 3:4], "size": np.where(X[:, :1] > 5.8, "large", "small").astype(object)}
table = np.concatenate([frame["length"], frame["width"], frame["size"]], axis=1)
columns = make_pipeline(
    ColumnTransformer([("n", StandardScaler(), [0, 1]), ("t", OneHotEncoder(handle_unknown="ignore"), [2])]),
    LogisticRegression(max_iter=500))
import pandas  # noqa: E402
named = pandas.DataFrame({key: value.ravel() for key, value in frame.items()})
columns[0].set_params(transformers=[
    ("n", StandardScaler(), ["length", "width"]), ("t", OneHotEncoder(handle_unknown="ignore"), ["size"])])
columns.fit(named, names)
model = to_onnx(columns, initial_types=[
    ("length", FloatTensorType([None, 1])), ("width", FloatTensorType([None, 1])), ("size", StringTensorType([None, 1]))])
(FILES / "columns.onnx").write_bytes(model.SerializeToString())
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
keep("columns", "columns", session.run(None, {key: value[::5] for key, value in frame.items()})[-1], None)


class Network(torch.nn.Module):
    """Two layers; the answer are logits, or chances."""

    def __init__(self, shape, chances):
        super().__init__()
        inputs, hidden, outputs = shape
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(),
            torch.nn.Dropout(0.1), torch.nn.Linear(hidden, outputs))
        self.chances = chances

    def forward(self, x):
        x = self.layers(x)
        return torch.softmax(x, dim=1) if self.chances else x


def train(shape, chances, rows, labels):
    torch.manual_seed(1)
    network = Network(shape, chances)
    best = torch.optim.Adam(network.parameters(), 0.02)
    rows, labels = torch.from_numpy(rows), torch.from_numpy(labels)
    for _ in range(200):
        best.zero_grad()
        torch.nn.functional.cross_entropy(network.layers(rows), labels).backward()
        best.step()
    return network.eval()


def export(name, network, rows, data, wishes, dynamo):
    """With the exporter that traces programs (dynamo) or with the older one."""
    path = FILES / f"{name}.onnx"
    how = {"dynamic_shapes": ({0: torch.export.Dim("rows")},), "external_data": False} if dynamo else {
        "dynamic_axes": {"x": {0: "rows"}, "y": {0: "rows"}}}
    torch.onnx.export(network, (torch.from_numpy(rows[:2]),), str(path), input_names=["x"], output_names=["y"],
                      dynamo=dynamo, **how)
    put(name, onnx.load(path), data, wishes)


export("torch", train((4, 6, 3), True, X, iris.target), X, "iris", 'classes = ["setosa", "versicolor", "virginica"]', True)
seen = np.arange(len(D)) % 5 != 4  # the others are for testing, as in the built-in data
export("torch-digits", train((64, 12, 10), False, D[seen], digits.target[seen]), D, "digits", 'scale = "logits"', False)
models["torch-digits"]["said"] = torch.softmax(
    torch.tensor(models["torch-digits"]["said"], dtype=torch.float64).reshape(-1, 10), 1).ravel().tolist()

(ROOT / "examples/digits-network.onnx").write_bytes((FILES / "torch-digits.onnx").read_bytes())

# Three sites of digits: rows 0 to 2 of every five are the sites', the fourth is of the sample, the fifth of the test. How
# rows fall to sites is in crates/starlings/tests/other_libraries.rs again. The third site trains here.
def site(world, k, label):
    group = label % 3
    if world == "alike":
        return k % 3
    if world == "skewed":
        return group if k % 10 else (group + 1 + k // 10 % 2) % 3
    return (group + 1 + k % 2) % 3


for world in ["alike", "skewed", "apart"]:
    mine = [r for r in range(len(D)) if r % 5 < 3 and site(world, r // 5 * 3 + r % 5, digits.target[r]) == 2]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(D[mine], digits.target[mine])
    (FILES / f"site-{world}.onnx").write_bytes(to_onnx(model, D[:1], options={"zipmap": False}).SerializeToString())

# What nobody here computes: it must be refused by name.
class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.last = torch.nn.Conv1d(1, 2, 3), torch.nn.Linear(124, 10)

    def forward(self, x):
        return self.last(self.convolution(x.unsqueeze(1)).flatten(1))


torch.manual_seed(1)
convolution = Convolution().eval()
torch.onnx.export(convolution, (torch.from_numpy(D[:2]),), str(FILES / "convolution.onnx"), input_names=["x"],
                  output_names=["y"], dynamic_axes={"x": {0: "rows"}, "y": {0: "rows"}}, dynamo=False)

packages = ["scikit-learn", "skl2onnx", "onnxmltools", "lightgbm", "torch", "onnx", "onnxruntime", "numpy"]
versions = {package: importlib.metadata.version(package) for package in packages}
text = json.dumps({"versions": versions, "models": models}, indent=None, separators=(",", ":"))
(ROOT / "bench/references/other_libraries.json").write_text(text.replace('"models":{', '"models":{\n').replace("]},", "]},\n") + "\n")
print({path.name: path.stat().st_size for path in sorted(FILES.glob("*.onnx"))})
