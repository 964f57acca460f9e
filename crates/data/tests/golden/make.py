"""Makes the golden files beside it: the same 25 rows as Arrow, NumPy and Parquet's cousins write them.

Run with any Python that has numpy and pyarrow; the versions that made the committed files are in versions.json.
The rows: x = row * 0.5 - 3 (missing where row % 7 == 3), n = row % 5, flag = row % 2 == 0, town in a small cycle
(missing where row % 11 == 5), y = row % 3.
"""
import json
import pathlib

import numpy
import pyarrow
import pyarrow.feather

HERE = pathlib.Path(__file__).parent
ROWS = range(25)
TOWNS = ["Rome", "Oslo", "Łódź"]


def x(row):
    return None if row % 7 == 3 else row * 0.5 - 3


def town(row):
    return None if row % 11 == 5 else TOWNS[row % 3]


table = pyarrow.table(
    {
        "x": pyarrow.array([x(row) for row in ROWS], pyarrow.float64()),
        "n": pyarrow.array([row % 5 for row in ROWS], pyarrow.int16()),
        "flag": pyarrow.array([row % 2 == 0 for row in ROWS], pyarrow.bool_()),
        "town": pyarrow.array([town(row) for row in ROWS], pyarrow.string()),
        "y": pyarrow.array([row % 3 for row in ROWS], pyarrow.int64()),
    }
)


def write(name, table, stream=False, compression=None):
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
    with make(str(HERE / name), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=7)


write("file.arrow", table)
write("stream.arrows", table, stream=True)
write("lz4.arrow", table, compression="lz4")
write("zstd.arrows", table, stream=True, compression="zstd")
coded = table.set_column(3, "town", table["town"].dictionary_encode())
write("dictionary.arrow", coded)
wide = table.set_column(3, "town", table["town"].cast(pyarrow.large_string()))
wide = wide.set_column(0, "x", table["x"].cast(pyarrow.float32()))
wide = wide.set_column(1, "n", table["n"].cast(pyarrow.uint64()))
write("wide.arrows", wide, stream=True)
nested = pyarrow.table({"x": [1.0, 2.0], "l": [[1, 2], [3]], "y": [0, 1]})
write("nested.arrow", nested)

base = numpy.array([[row * 0.5 - 3, row % 5, row % 2] for row in ROWS])
labels = numpy.array([row % 3 for row in ROWS])
for kind in ["f4", "f8", "i1", "i2", "i4", "i8", ">f8", ">i4"]:
    numpy.save(HERE / f"{kind.replace('>', 'big_')}.npy", base.astype(kind))
for kind in ["u1", "u2", "u4", "u8"]:
    numpy.save(HERE / f"{kind}.npy", (base + 3).astype(kind))
numpy.save(HERE / "b1.npy", base > 0)
numpy.save(HERE / "fortran.npy", numpy.asfortranarray(base))
numpy.save(HERE / "flat.npy", base[:, 0])
numpy.save(HERE / "labels.npy", labels)
gaps = base.astype("f4").copy()
gaps[3, 0] = numpy.nan
numpy.save(HERE / "gaps.npy", gaps)
numpy.save(HERE / "cube.npy", numpy.zeros((2, 2, 2)))
numpy.save(HERE / "objects.npy", numpy.array([1, "a"], dtype=object), allow_pickle=True)

with open(HERE / "rows.jsonl", "w", encoding="utf-8") as out:
    for row in ROWS:
        record = {"x": x(row), "n": row % 5, "flag": row % 2 == 0, "town": town(row), "y": row % 3}
        if record["town"] is None:
            del record["town"]
        out.write(json.dumps(record, ensure_ascii=False) + "\n")

versions = {"numpy": numpy.__version__, "pyarrow": pyarrow.__version__}
(HERE / "versions.json").write_text(json.dumps(versions, indent=2) + "\n")
