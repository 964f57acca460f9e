//! Formats whose features have numbers instead of names: libsvm and idx.

use crate::{Folder, all, classes, dense, plain, refused, says};
use starlings_core::Blame;
use starlings_data::{DataSpec, Encoding, Features, LabelNeed, Source, Target, survey};

#[test]
fn libsvm_rows_are_sparse_and_indices_count_from_one() {
    let folder = Folder::new();
    let text = "# a remark\n+1 1:0.5 4:2 # more\n-1 qid:3 3:1 2:-1\n\n+1\n";
    for name in ["a.svm", "a.unknown", "a.gz", "a.libsvm.zst"] {
        let (found, table) = classes(&folder.spec(name, text));
        assert_eq!((found.rows, found.schema.features, found.entries), (3, 4, Some(4)), "{name}");
        assert_eq!(found.schema.target, Target::Classes(vec!["-1".into(), "1".into()]));
        assert_eq!(table.labels, [1.0, 0.0, 1.0]);
        let expected = Features::Sparse {
            width: 4,
            starts: vec![0, 2, 4, 4],
            columns: vec![0, 3, 1, 2],
            values: vec![0.5, 2.0, -1.0, 1.0],
        };
        assert_eq!(table.features, expected.into());
    }
    let spec = folder.spec("b.svm", "1.5 1:1\n2.5 1:2\n");
    assert_eq!(all(&spec, Encoding::OneHot, LabelNeed::Number).1.labels, [1.5, 2.5]);
}

#[test]
fn libsvm_indices_from_zero_are_asked_for_by_name() {
    let folder = Folder::new();
    let mut spec = folder.spec("a.svm", "1 0:1 2:1\n0 1:1\n");
    says(&refused(&spec, LabelNeed::Class), &["line 1: index 0", "libsvm-from-0"]);
    spec.format = Some("libsvm-from-0".into());
    assert_eq!(classes(&spec).0.schema.features, 3);
}

#[test]
fn hostile_libsvm_is_refused_by_line() {
    let folder = Folder::new();
    for (text, words) in [
        ("1 1:1\n1 4294967295:1\n", "line 2: index 4294967295 is above the limit"),
        ("1 99999999999999999999:1\n", "line 1: index 99999999999999999999 is above"),
        ("1 -3:1\n", "'-3' is not an index"),
        ("1 1:1 1:2\n", "feature 1 comes twice"),
        ("1 1:x\n", "'x' is not a 32-bit number"),
        ("1 1:1\n1 2:inf\n", "line 2: 'inf' is not a 32-bit number"),
        ("1 1:NaN\n", "line 1: 'NaN' is not a 32-bit number"),
        ("1 1:1e39\n", "line 1: '1e39' is not a 32-bit number"),
        ("1 1:1 7\n", "'7' is not index:value"),
        ("1:1 2:1\n", "'1:1' is no label"),
        ("nan 2:1\n", "'nan' is no label"),
        ("", "has no rows"),
    ] {
        says(&refused(&folder.spec("a.svm", text), LabelNeed::Class), &[words]);
    }
    let words = refused(&folder.spec("a.svm", "red 1:1\n"), LabelNeed::Number);
    says(&words, &["line 1: label 'red' is not"]);
    let fault = survey(&folder.spec("a.svm", "1 1:1\n"), Encoding::Identity, LabelNeed::None);
    says(&fault.unwrap_err().to_string(), &["columns of identities"]);
}

#[test]
fn many_blocks_of_libsvm_join_in_order() {
    let folder = Folder::new();
    let rows = 120_000;
    let text: String =
        (0..rows).map(|r| format!("{} {}:{r} 5000:1.25\n", r % 3, 1 + r % 4999)).collect();
    assert!(text.len() > 2 << 20, "must be more than one block");
    let (found, table) = classes(&folder.spec("a.svm", text));
    assert_eq!((found.rows, found.entries), (rows, Some(2 * rows)));
    let Features::Sparse { values, .. } = &table.features else { panic!("libsvm is sparse") };
    assert!(values.iter().step_by(2).enumerate().all(|(row, value)| *value == row as f32));
}

/// An idx file of bytes with these dimensions.
fn idx(dimensions: &[u32], numbers: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
    dimensions.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(numbers);
    bytes
}

fn pair(folder: &Folder, images: &[u8], labels: &[u8], end: &str) -> DataSpec {
    let place =
        |name: String, bytes: &[u8]| folder.write(&name, bytes).to_string_lossy().into_owned();
    let images = place(format!("images{end}"), images);
    let labels = place(format!("labels{end}"), labels);
    DataSpec { source: Source::Images { images, labels }, ..DataSpec::new("") }
}

#[test]
fn idx_images_come_with_their_labels() {
    let folder = Folder::new();
    let pixels: Vec<u8> = (0..9 * 4).map(|p| p * 7).collect();
    let labels = [5u8, 0, 4, 1, 9, 2, 1, 3, 1];
    for end in ["", ".gz", ".zst"] {
        let spec = pair(&folder, &idx(&[9, 2, 2], &pixels), &idx(&[9], &labels), end);
        let (found, table) = classes(&spec);
        assert_eq!((found.rows, found.schema.features, found.schema.classes()), (9, 4, 7));
        assert!(dense(&table).iter().zip(&pixels).all(|(a, b)| *a == f32::from(*b)));
        // The classes 0 1 2 3 4 5 9 have the codes 0 to 6.
        assert_eq!(table.labels, [5.0, 0.0, 4.0, 1.0, 6.0, 2.0, 1.0, 3.0, 1.0]);
        let numbers = all(&spec, Encoding::OneHot, LabelNeed::Number).1.labels;
        assert!(numbers.iter().zip(&labels).all(|(a, b)| *a == f32::from(*b)));
    }
    let alone = folder.spec("x.idx", idx(&[3, 2], &[1, 2, 3, 4, 5, 6]));
    assert_eq!(dense(&plain(&alone).1), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    says(&refused(&alone, LabelNeed::Class), &["it has no labels"]);
}

#[test]
fn idx_numbers_of_other_types_are_big_endian() {
    let folder = Folder::new();
    let mut bytes = vec![0, 0, 0x0d, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    bytes.extend(1.5f32.to_be_bytes());
    bytes.extend((-2.0f32).to_be_bytes());
    assert_eq!(dense(&plain(&folder.spec("a.idx", &bytes)).1), [1.5, -2.0]);
    bytes[2] = 0x0c;
    bytes.truncate(12);
    bytes.extend((-7i32).to_be_bytes());
    bytes.extend(9i32.to_be_bytes());
    assert_eq!(dense(&plain(&folder.spec("a.idx", &bytes)).1), [-7.0, 9.0]);
}

#[test]
fn idx_headers_that_lie_are_refused_without_believing_them() {
    let folder = Folder::new();
    let three = [1u8, 2, 3];
    for (header, words) in [
        (idx(&[u32::MAX, 1], &three), "ends after 3"),
        (idx(&[1, u32::MAX, u32::MAX, u32::MAX], &three), "more than"),
        (idx(&[1, 1 << 24], &three), "ends after 0"),
        (idx(&[2, 0], &three), "none or more than"),
        (idx(&[2, 1], &three), "goes on after its 2 rows"),
        (vec![0, 0, 8, 3, 0, 0], "ends within its header"),
        (vec![0, 0, 7, 1, 0, 0, 0, 1], "type 0x07 is unknown"),
    ] {
        for name in ["a.idx", "a.idx.gz"] {
            says(&refused(&folder.spec(name, &header), LabelNeed::None), &[words]);
        }
    }
    let spec = pair(&folder, &idx(&[2, 1], &[1, 2]), &idx(&[3], &three), "");
    let fault = survey(&spec, Encoding::OneHot, LabelNeed::Class).unwrap_err();
    assert_eq!(fault.blame(), Blame::Caller);
    says(&fault.to_string(), &["3 rows", "2 images", "one label each"]);
}
