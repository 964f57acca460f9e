"""Makes isotonic_regression.json anew: what scikit-learn's IsotonicRegression gives on small data that the file holds,
and on the median incomes and house values of California.

    python bench/references/isotonic_regression.py ../shared/data
"""

import gzip
import json
import pathlib
import re
import sys

import numpy
import sklearn
from sklearn.isotonic import IsotonicRegression

HERE = pathlib.Path(__file__).parent


def numbers_in_lines(text):
    """A list of numbers is a line, not a line each."""
    return re.sub(r"\n\s+(?=[-\d\]])", " ", text)


def fit(x, y, w, increasing):
    model = IsotonicRegression(increasing=increasing, out_of_bounds="clip").fit(x, y, sample_weight=w)
    probe = numpy.linspace(x.min() - 1, x.max() + 1, 31).astype("float32").astype("float64")
    return {
        "increasing": str(increasing).lower(),
        "rises": bool(model.increasing_),
        "thresholds": model.X_thresholds_.tolist()[:200],
        "values": model.y_thresholds_.tolist()[:200],
        "probe": probe.tolist(),
        "expected": model.predict(probe).tolist(),
        "mean_square": float(numpy.average((model.predict(x) - y) ** 2, weights=w)),
    }


def small(name, seed, rows, slope, decimals, weighted):
    rng = numpy.random.default_rng(seed)
    x = rng.normal(size=rows).round(decimals).astype("float32").astype("float64")
    y = (slope * x + rng.normal(size=rows)).astype("float32").astype("float64")
    w = (rng.integers(1, 5, size=rows) / 2) if weighted else None
    fits = [fit(x, y, w, increasing) for increasing in (True, False, "auto")]
    return {"name": name, "x": x.tolist(), "y": y.tolist(), "w": w.tolist() if weighted else [], "fits": fits}


def main():
    cases = [
        small("rising, no ties", 1, 60, 1.0, 7, False),
        small("falling, ties and weights", 2, 80, -0.7, 1, True),
        small("hardly any direction", 3, 50, 0.01, 1, True),
    ]
    houses = None
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if folder and (folder / "cal_housing.data.gz").exists():
        text = gzip.open(folder / "cal_housing.data.gz", "rt").read().split()
        rows = numpy.array([[float(cell) for cell in line.split(",")] for line in text], dtype="float32").astype("float64")
        # The columns before the last are longitude, latitude, age, rooms, bedrooms, people, households, income.
        houses = fit(rows[:, 7], rows[:, 8], None, "auto")
    made = {"scikit-learn": sklearn.__version__, "numpy": numpy.__version__}
    text = numbers_in_lines(json.dumps({"made_with": made, "cases": cases, "houses": houses}, indent=1))
    (HERE / "isotonic_regression.json").write_text(text + "\n")


main()
