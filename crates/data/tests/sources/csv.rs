//! Comma- and tab-separated files: inference, types, labels, quotes, and refusals.

use crate::{Folder, all, classes, dense, plain, refused, says};
use proptest::prelude::*;
use starlings_data::{ColumnKind, ColumnRef, DataSpec, Encoding, Features, LabelNeed, Target};

#[test]
fn header_types_and_labels_are_inferred() {
    let folder = Folder::new();
    let text = "size,colour,class\n1.5,red,no\n?,blue,yes\n2.5,,no\n";
    let (survey, table) = classes(&folder.spec("a.csv", text));
    let schema = &survey.schema;
    let names: Vec<&str> = schema.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["size", "colour"]);
    assert_eq!(schema.columns[0].kind, ColumnKind::Numeric { mean: 2.0 });
    let codes = vec!["blue".to_string(), "red".to_string()];
    assert_eq!(schema.columns[1].kind, ColumnKind::Categorical { codes });
    assert_eq!((schema.columns[0].missing, schema.columns[1].missing), (1, 1));
    assert_eq!(schema.target, Target::Classes(vec!["no".into(), "yes".into()]));
    assert_eq!(survey.class_rows, [2, 1]);
    assert_eq!(dense(&table), [1.5, 0.0, 1.0, 2.0, 1.0, 0.0, 2.5, 0.0, 0.0]);
    assert_eq!(table.labels, [0.0, 1.0, 0.0]);
}

#[test]
fn files_without_header_are_all_rows_and_columns_have_numbers() {
    let folder = Folder::new();
    let spec = folder.spec("a.tsv", "3\t1\r\n1\t2\r\n\r\n2\t5\r\n\r\n").label(-1);
    let (survey, table) = all(&spec, Encoding::OneHot, LabelNeed::Number);
    assert_eq!(survey.schema.columns[0].name, "c0");
    assert_eq!(survey.schema.label.as_deref(), Some("c1"));
    assert_eq!((dense(&table), &table.labels[..]), (&[3.0, 1.0, 2.0][..], &[1.0, 2.0, 5.0][..]));
}

#[test]
fn remarks_before_the_data_are_skipped_and_a_byte_order_mark_too() {
    let folder = Folder::new();
    let (survey, _) =
        classes(&folder.spec("a.data", "|1x3 Cross validator\n1, 2, a.\n3, 4, b.\n").label(2));
    assert_eq!((survey.rows, survey.schema.features), (2, 2));
    assert_eq!(survey.schema.target, Target::Classes(vec!["a.".into(), "b.".into()]));
    let (survey, table) = plain(&folder.spec("b.csv", "\u{feff}x,y\n1,2\n"));
    assert_eq!(survey.schema.columns[0].name, "x");
    assert_eq!(dense(&table), [1.0, 2.0]);
    assert_eq!(dense(&plain(&folder.spec("c.csv", "\u{feff}1,2\n3,4\n")).1), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_job_overrides_header_and_delimiter_and_chooses_columns() {
    let folder = Folder::new();
    let mut spec = folder.spec("a.csv", "a;b;c\nd;e;f\n");
    spec.header = Some(true);
    spec.delimiter = Some(';');
    spec.features = Some(vec![ColumnRef::Index(-1), "a".into()]);
    let (survey, _) = plain(&spec);
    let columns: Vec<(&str, usize)> =
        survey.schema.columns.iter().map(|c| (c.name.as_str(), c.position)).collect();
    assert_eq!(columns, [("c", 2), ("a", 0)]);
    spec.header = Some(false);
    spec.features = None;
    assert_eq!(plain(&spec).0.rows, 2);
}

#[test]
fn a_late_text_makes_its_column_categorical() {
    let folder = Folder::new();
    let mut text = String::from("x,y\n");
    (0..2000).for_each(|row| text.push_str(&format!("{row},{row}\n")));
    text.push_str("text,5\n");
    let (survey, table) = plain(&folder.spec("a.csv", text));
    assert_eq!(survey.schema.identities(0), 2001);
    assert_eq!(survey.schema.features, 2002);
    assert!(matches!(table.features, Features::Sparse { .. }));
}

#[test]
fn identities_are_codes_in_the_order_of_numbers() {
    let folder = Folder::new();
    let spec = folder.spec("r.csv", "user,item,rating\n10,b,4.5\n9,a,3\n10,?,1\n").label("rating");
    let (survey, table) = all(&spec, Encoding::Identity, LabelNeed::Number);
    assert_eq!((survey.schema.identities(0), survey.schema.identities(1)), (2, 2));
    assert_eq!(dense(&table)[..5], [1.0, 1.0, 0.0, 0.0, 1.0]);
    assert!(dense(&table)[5].is_nan());
    assert_eq!(table.labels, [4.5, 3.0, 1.0]);
}

#[test]
fn classes_sort_as_numbers_and_spellings_of_a_number_are_one_class() {
    let folder = Folder::new();
    let (survey, table) = classes(&folder.spec("a.csv", "x,y\n1,10\n1,9\n1,+9.0\n1,-1\n"));
    let texts = ["-1", "9", "10"].map(String::from).to_vec();
    assert_eq!(survey.schema.target, Target::Classes(texts));
    assert_eq!((table.labels, survey.class_rows), (vec![2.0, 1.0, 1.0, 0.0], vec![1, 2, 1]));
}

/// Few labels, many rows: a row without one is NaN where the learner takes it, and refused where it does not.
#[test]
fn labels_may_be_missing_where_some_classes_are_wanted() {
    let folder = Folder::new();
    let spec = folder.spec("few.csv", "x,class\n1,b\n2,\n3,a\n4,?\n5,b\n");
    let (survey, table) = all(&spec, Encoding::OneHot, LabelNeed::SomeClasses);
    assert_eq!((survey.schema.classes(), &survey.class_rows[..]), (2, &[1, 2][..]));
    let known = |labels: &[f32]| -> Vec<i32> {
        labels.iter().map(|label| if label.is_nan() { -1 } else { *label as i32 }).collect()
    };
    assert_eq!(known(&table.labels), [1, -1, 0, -1, 1]);
    says(&refused(&spec, LabelNeed::Class), &["line 3, column 'class'", "every row needs one"]);
}

#[test]
fn refusals_name_file_line_and_column() {
    let folder = Folder::new();
    let ragged = refused(&folder.spec("r.csv", "x,y\n1,2\n\n3\n"), LabelNeed::None);
    says(&ragged, &["r.csv, line 4: 1 fields instead of 2"]);
    let longer = refused(&folder.spec("r.csv", "x,y\n1,2,3\n"), LabelNeed::None);
    says(&longer, &["line 2: 3 fields instead of 2"]);
    let quoted = refused(&folder.spec("q.csv", "x,y\n1,\"a\nb\"\n3\n"), LabelNeed::None);
    says(&quoted, &["q.csv, line 4: 1 fields instead of 2"]);
    let missing = refused(&folder.spec("n.csv", "x,y\n1,2\n1,NaN\n"), LabelNeed::Number);
    says(&missing, &["n.csv, line 3, column 'y'", "'NaN'", "every row needs one"]);
    let missing = refused(&folder.spec("n.csv", "x,y\n1,a\n1,\n"), LabelNeed::Class);
    says(&missing, &["line 3, column 'y'"]);
    let text = refused(&folder.spec("t.csv", "x,y\n1,2\n1,red\n"), LabelNeed::Number);
    says(&text, &["t.csv, line 3, column 'y'", "'red' is not a number"]);
    let large = refused(&folder.spec("l.csv", "x,y\n1,2\n1e99,3\n"), LabelNeed::None);
    says(&large, &["l.csv, line 3, column 'x'", "too large"]);
}

#[test]
fn wrong_columns_get_the_nearest_right_one() {
    let folder = Folder::new();
    let spec = folder.spec("a.csv", "weight,height\n1,2\n");
    says(&refused(&spec.clone().label("wieght"), LabelNeed::Number), &["'wieght'", "'weight'?"]);
    says(&refused(&spec.clone().label(2), LabelNeed::Number), &["no column 2", "2 columns"]);
    says(&refused(&spec.clone().label(-3), LabelNeed::Number), &["no column -3"]);
    says(&refused(&spec, LabelNeed::Number), &["needs labels", "label = \"height\""]);
    let twice = DataSpec { features: Some(vec!["weight".into(), 0.into()]), ..spec.clone() };
    says(&refused(&twice, LabelNeed::None), &["'weight'", "twice"]);
}

#[test]
fn data_without_rows_are_refused() {
    let folder = Folder::new();
    for text in ["", "\n\n", "x,y\n"] {
        let mut spec = folder.spec("e.csv", text);
        spec.header = Some(text.len() > 2);
        says(&refused(&spec, LabelNeed::None), &["e.csv has no rows"]);
    }
}

#[test]
fn blocks_are_cut_at_records_even_within_quotes() {
    let folder = Folder::new();
    let mut text = String::from("a,b\n");
    let rows = 70_000;
    for row in 0..rows {
        text.push_str(&format!(
            "{row},\"line one, of {row}\nline \"\"two\"\"\"\n",
            row = row % 1000
        ));
    }
    assert!(text.len() > 2 << 20, "must be more than one block");
    for name in ["a.csv", "a.csv.gz"] {
        let (survey, table) = plain(&folder.spec(name, &text));
        assert_eq!((survey.rows, survey.schema.identities(1)), (rows, 1000));
        assert_eq!(survey.schema.columns[1].missing, 0);
        let ColumnKind::Categorical { codes } = &survey.schema.columns[1].kind else { panic!() };
        assert_eq!(codes[0], "line one, of 0\nline \"two\"");
        assert_eq!(table.rows(), rows as usize);
    }
}

fn cell() -> impl Strategy<Value = Option<f32>> {
    prop_oneof![
        1 => Just(None),
        8 => (-1_000_000i32..1_000_000).prop_map(|v| Some(v as f32 / 1000.0)),
        1 => any::<f32>().prop_filter_map("finite", |v| v.is_finite().then_some(Some(v))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_reads_back_exactly(
        rows in prop::collection::vec((prop::collection::vec(cell(), 3), -5i32..5), 1..60),
        name in prop::sample::select(vec!["a.csv", "a.csv.gz", "a.csv.zst"]),
        (end, space) in (prop::sample::select(vec!["\n", "\r\n"]), prop::sample::select(vec!["", " "])),
    ) {
        let mut text = format!("p,q,r,label{end}");
        for (values, label) in &rows {
            for value in values {
                text.push_str(&value.map_or("?".to_string(), |value| value.to_string()));
                text.push_str(&format!(",{space}"));
            }
            text.push_str(&format!("{label}{end}"));
        }
        let folder = Folder::new();
        let (survey, table) =
            all(&folder.spec(name, text), Encoding::OneHot, LabelNeed::Number);
        for (row, (values, label)) in rows.iter().enumerate() {
            prop_assert_eq!(table.labels[row], *label as f32);
            for (column, value) in values.iter().enumerate() {
                let ColumnKind::Numeric { mean } = survey.schema.columns[column].kind else {
                    return Err(TestCaseError::fail("all columns are numbers"));
                };
                let expected = value.unwrap_or(mean as f32);
                prop_assert_eq!(dense(&table)[row * 3 + column].to_bits(), expected.to_bits());
            }
        }
        let missing: Vec<u64> = survey.schema.columns.iter().map(|c| c.missing).collect();
        let expected: Vec<u64> = (0..3)
            .map(|c| rows.iter().filter(|(values, _)| values[c].is_none()).count() as u64)
            .collect();
        prop_assert_eq!(missing, expected);
    }

    #[test]
    fn any_texts_read_back_through_quotes(
        texts in prop::collection::vec("[ -~\n\r]{0,12}", 1..40),
    ) {
        let quoted: Vec<String> =
            texts.iter().map(|t| format!("\"{}\",1\n", t.replace('"', "\"\""))).collect();
        let folder = Folder::new();
        let spec = DataSpec { header: Some(true), ..folder.spec("a.csv", format!("t,n\n{}", quoted.concat())) };
        let (survey, table) = all(&spec, Encoding::Identity, LabelNeed::None);
        let ColumnKind::Categorical { codes } = &survey.schema.columns[0].kind else {
            return Err(TestCaseError::fail("identities are categories"));
        };
        for (row, text) in texts.iter().enumerate() {
            let code = dense(&table)[row * 2];
            let read = if code.is_nan() { None } else { Some(codes[code as usize].as_str()) };
            let text = text.trim_ascii();
            let known = !["", "?", "NA"].contains(&text)
                && !["nan", "null"].contains(&text.to_lowercase().as_str());
            prop_assert_eq!(read, known.then_some(text));
        }
    }

    #[test]
    fn damaged_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let folder = Folder::new();
        for name in ["a.csv", "a.svm", "a", "a.idx", "a.parquet", "b.csv.gz"] {
            let path = folder.path().join(name);
            std::fs::write(&path, &bytes).unwrap();
            let spec = DataSpec::new(path.to_string_lossy());
            let _ = starlings_data::load_all(&spec, Encoding::OneHot, LabelNeed::None, 2);
        }
    }
}
