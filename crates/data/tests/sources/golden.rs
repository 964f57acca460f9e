//! Files as numpy and pyarrow write them (made by `golden/make.py`) read back to the rows they were made of.

use crate::{Folder, all, classes, dense, plain, refused, says};
use proptest::prelude::*;
use starlings_data::{
    ColumnKind, DataSpec, Encoding, LabelNeed, Source, Table, load_all, load_with, survey,
};
use std::path::PathBuf;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

fn spec(name: &str) -> DataSpec {
    DataSpec::new(golden(name).to_string_lossy())
}

fn x(row: usize) -> Option<f32> {
    (row % 7 != 3).then_some(row as f32 * 0.5 - 3.0)
}

/// The rows of the script, with codes for towns: Oslo 0, Rome 1, Łódź 2.
fn expected() -> Vec<f32> {
    let town = |row: usize| if row % 11 == 5 { f32::NAN } else { [1.0, 0.0, 2.0][row % 3] };
    let row = |row: usize| {
        let flag = if row.is_multiple_of(2) { 1.0 } else { 0.0 };
        [x(row).unwrap_or(f32::NAN), (row % 5) as f32, flag, town(row)]
    };
    (0..25).flat_map(row).collect()
}

fn check(table: &Table, name: &str) {
    let bits = |values: &[f32]| -> Vec<u32> {
        values
            .iter()
            .map(|value| if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() })
            .collect()
    };
    assert_eq!(bits(dense(table)), bits(&expected()), "{name}");
    let labels: Vec<f32> = (0..25).map(|row| (row % 3) as f32).collect();
    assert_eq!(table.labels, labels, "{name}");
}

#[test]
fn columns_of_every_writer_are_the_same_rows() {
    let folder = Folder::new();
    let mut specs: Vec<DataSpec> = [
        "file.arrow",
        "stream.arrows",
        "lz4.arrow",
        "zstd.arrows",
        "dictionary.arrow",
        "wide.arrows",
        "rows.jsonl",
    ]
    .map(spec)
    .to_vec();
    for name in ["file.arrow", "stream.arrows", "rows.jsonl"] {
        let bytes = std::fs::read(golden(name)).unwrap();
        for end in [".gz", ".zst", ".unknown"] {
            specs.push(folder.spec(&format!("{name}{end}"), &bytes));
        }
    }
    for spec in specs {
        let name = spec.source.text();
        let (found, table) = all(&spec, Encoding::Codes, LabelNeed::Class);
        assert_eq!((found.rows, found.schema.classes()), (25, 3), "{name}");
        let towns = ["Oslo", "Rome", "Łódź"].map(str::to_string).to_vec();
        assert_eq!(found.schema.columns[3].kind, ColumnKind::Categorical { codes: towns });
        check(&table, &name);
        let again = load_with(&spec, &found.schema, &found.intake).unwrap();
        check(&again, &name);
    }
}

#[test]
fn arrays_of_all_types_and_orders_are_the_same_rows() {
    let base = |row: usize, column: usize| match column {
        0 => row as f64 * 0.5 - 3.0,
        1 => (row % 5) as f64,
        _ => (row % 2) as f64,
    };
    let rows = |value: &dyn Fn(f64) -> f64| -> Vec<f32> {
        (0..75).map(|at| value(base(at / 3, at % 3)) as f32).collect()
    };
    for name in ["f4", "f8", "big_f8", "fortran"] {
        assert_eq!(dense(&plain(&spec(&format!("{name}.npy"))).1), rows(&|it| it), "{name}");
    }
    for name in ["i1", "i2", "i4", "i8", "big_i4"] {
        assert_eq!(dense(&plain(&spec(&format!("{name}.npy"))).1), rows(&f64::trunc), "{name}");
    }
    for name in ["u1", "u2", "u4", "u8"] {
        let shifted = rows(&|it| (it + 3.0).trunc());
        assert_eq!(dense(&plain(&spec(&format!("{name}.npy"))).1), shifted, "{name}");
    }
    let positive = rows(&|it| f64::from(u8::from(it > 0.0)));
    assert_eq!(dense(&plain(&spec("b1.npy")).1), positive);
    assert_eq!(plain(&spec("flat.npy")).0.schema.features, 1);
    let (found, _) = plain(&spec("gaps.npy"));
    assert_eq!(found.schema.columns[0].missing, 1);
    let (_, table) = classes(&spec("i8.npy").label(-1));
    assert_eq!(table.labels.len(), 25);
}

#[test]
fn labels_of_arrays_stand_in_a_second_file() {
    let path = |name: &str| golden(name).to_string_lossy().into_owned();
    let pair = |features: &str, labels: &str| DataSpec {
        source: Source::Arrays { features: path(features), labels: Some(path(labels)) },
        ..DataSpec::new("")
    };
    let (found, table) = classes(&pair("f4.npy", "labels.npy"));
    assert_eq!((found.schema.features, found.schema.classes(), table.width()), (3, 3, 3));
    assert!(table.labels.iter().enumerate().all(|(row, label)| *label == (row % 3) as f32));
    let again = load_with(&spec("f4.npy"), &found.schema, &found.intake).unwrap();
    assert_eq!((again.features, again.labels.len()), (table.features, 0));
    says(&refused(&pair("f4.npy", "f4.npy"), LabelNeed::Class), &["rows of 3", "one label each"]);
    says(&refused(&spec("cube.npy"), LabelNeed::None), &["one or two dimensions"]);
    says(&refused(&spec("objects.npy"), LabelNeed::None), &["floats, whole numbers"]);
}

#[test]
fn arrow_columns_that_are_not_flat_are_refused_unless_left_out() {
    says(&refused(&spec("nested.arrow"), LabelNeed::Class), &["column 'l'", "List", "features"]);
    let mut flat = spec("nested.arrow");
    flat.features = Some(vec!["x".into()]);
    assert_eq!(classes(&flat).0.rows, 2);
}

#[test]
fn json_lines_are_refused_by_line_and_key() {
    let folder = Folder::new();
    for (text, words) in [
        (
            "{\"x\":1,\"y\":0}\n{\"x\":{\"a\":1},\"y\":0}\n",
            "line 2, key 'x': it holds a list or an object",
        ),
        ("{\"x\":1,\"y\":0}\n{\"x\":1,\"x\":2,\"y\":0}\n", "line 2, key 'x': it comes twice"),
        ("{\"x\":1,\"y\":0}\n{\"x\":1,}\n", "line 2, character"),
        ("{\"x\":1,\"y\":0}\n[1,2]\n", "line 2, character"),
        ("{\"x\":1,\"y\":0}\n{\"x\":2}\n", "line 2, column 'y': 'null' is no label"),
        ("{\"x\":1,\"y\":0}\n{\"x\":1e300,\"y\":0}\n", "line 2, column 'x': '1"),
        ("\n", "has no rows"),
    ] {
        says(&refused(&folder.spec("a.jsonl", text), LabelNeed::Class), &[words]);
    }
    let mut late: String =
        (0..1200).map(|row| format!("{{\"x\":{row},\"y\":{}}}\n", row % 2)).collect();
    late.push_str("{\"x\":1,\"z\":2,\"y\":0}\n");
    let mut spec = folder.spec("b.jsonl", &late);
    says(&refused(&spec, LabelNeed::Class), &["line 1201, key 'z'", "features"]);
    spec.features = Some(vec!["x".into()]);
    assert_eq!(classes(&spec).0.rows, 1201);
    // A text far below makes the column one of texts.
    let late = late.replace("\"z\":2", "\"x\":\"red\"").replace("\"x\":1,\"x\"", "\"x\"");
    assert_eq!(classes(&folder.spec("c.jsonl", late)).0.schema.features, 1200 + 1);
}

#[test]
fn documents_come_a_line_each_with_their_label_before_a_tab() {
    let folder = Folder::new();
    let mut spec = folder.spec("a.txt", "spam\tbuy now\nham\tsee you\nham\t\n");
    spec.format = Some("text".into());
    let (found, table) = all(&spec, Encoding::Codes, LabelNeed::Class);
    assert_eq!((found.rows, found.schema.classes()), (3, 2));
    assert_eq!(table.labels, [1.0, 0.0, 0.0]);
    assert_eq!(found.schema.columns[0].name, "text");
    let mut bare = folder.spec("b.txt.gz", "buy now\n\nsee\tyou\n");
    bare.format = Some("text".into());
    assert_eq!(all(&bare, Encoding::Codes, LabelNeed::None).0.rows, 3);
    let mut broken = folder.spec("c.txt", format!("{}no tab\n", "a\tb\n".repeat(200)));
    broken.format = Some("text".into());
    says(&refused(&broken, LabelNeed::Class), &["line 201", "has no label before"]);
}

/// Reads hostile bytes as every format: anything but a panic will do.
fn harmless(name: &str, bytes: &[u8]) {
    let folder = Folder::new();
    for end in [".arrow", ".npy", ".jsonl", ".text"] {
        let spec = folder.spec(&format!("{name}{end}"), bytes);
        for label in [LabelNeed::None, LabelNeed::Class] {
            if let Ok((found, _)) = load_all(&spec, Encoding::OneHot, label, 2) {
                assert!(survey(&spec, Encoding::OneHot, label).unwrap() == found);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_golden_files_never_panic(
        which in 0usize..6,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let name = ["file.arrow", "zstd.arrows", "dictionary.arrow", "lz4.arrow", "f8.npy", "rows.jsonl"][which];
        let mut bytes = std::fs::read(golden(name)).unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        harmless("a", &bytes);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        harmless("a", &bytes);
    }
}
