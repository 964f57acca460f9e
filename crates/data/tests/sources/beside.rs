//! Weights and groups: as columns, as `qid:` fields and in LightGBM's side files.

use crate::{Folder, all, classes, refused, says};
use starlings_core::Shard;
use starlings_data::{DataSpec, Encoding, Intake, LabelNeed, load, load_all, load_with, weighted};

const CSV: &str = "q,w,x,y\na,1,1,0\na,0.5,2,1\nb,2,3,0\nc,0,4,1\nc,1,5,0\nc,1,6,1\n";

fn with(mut spec: DataSpec, weight: Option<&str>, group: Option<&str>) -> DataSpec {
    spec.weight = weight.map(Into::into);
    spec.group = group.map(Into::into);
    spec
}

#[test]
fn columns_of_weights_and_groups_are_no_features() {
    let folder = Folder::new();
    let spec = with(folder.spec("a.csv", CSV), Some("w"), Some("q"));
    let (found, table) = classes(&spec);
    assert_eq!((found.schema.features, &found.group_rows[..]), (1, &[2, 1, 3][..]));
    assert_eq!(table.weights, [1.0, 0.5, 2.0, 0.0, 1.0, 1.0]);
    assert_eq!(table.groups, [0, 0, 1, 2, 2, 2]);
    assert!(weighted(&spec).unwrap());
    let tsv = with(folder.spec("a.tsv", CSV.replace(',', "\t")), Some("w"), Some("q"));
    assert_eq!(classes(&tsv).1, table);
    // Raw files bring their weights and groups along where they have them.
    let again =
        load_with(&DataSpec::new(spec.source.text()), &found.schema, &found.intake).unwrap();
    assert_eq!((again.weights, again.groups), (table.weights, table.groups));
    let bare = folder.spec("bare.csv", "x\n1\n2\n");
    let bare = load_with(&bare, &found.schema, &found.intake).unwrap();
    assert!(bare.weights.is_empty() && bare.groups.is_empty());
    let missing = with(folder.spec("bare.csv", "x\n1\n2\n"), Some("w"), None);
    let fault = load_with(&missing, &found.schema, &Intake::default()).unwrap_err();
    says(&fault.to_string(), &["no column 'w'"]);
}

#[test]
fn weights_that_are_none_are_refused_by_line_and_column() {
    let folder = Folder::new();
    for (bad, shown) in
        [("-1", "'-1'"), ("nan", "'nan'"), ("", "''"), ("1e99", "'1e99'"), ("x", "'x'")]
    {
        let text = format!("w,x,y\n1,1,0\n{bad},2,1\n");
        let spec = with(folder.spec("a.csv", text), Some("w"), None);
        says(&refused(&spec, LabelNeed::Class), &["line 3, column 'w'", shown, "is no weight"]);
    }
    let spec = with(folder.spec("a.csv", "w,x,y\n0,1,0\n0,2,1\n"), Some("w"), None);
    says(&refused(&spec, LabelNeed::Class), &["all weights are 0"]);
    let spec = with(folder.spec("a.csv", CSV), Some("v"), None);
    says(&refused(&spec, LabelNeed::Class), &["no column 'v'"]);
    let spec = with(folder.spec("a.csv", CSV), Some("w"), Some("w"));
    says(&refused(&spec, LabelNeed::Class), &["'w'", "chosen twice"]);
}

#[test]
fn scattered_groups_are_refused_by_row() {
    let folder = Folder::new();
    let text = "q,x,y\na,1,0\nb,2,1\na,3,1\n";
    let spec = with(folder.spec("a.csv", text), None, Some("q"));
    says(&refused(&spec, LabelNeed::Class), &["row 2", "'a' comes again", "sort the file"]);
    let spec = with(folder.spec("a.csv", "q,x,y\na,1,0\n,2,1\n"), None, Some("q"));
    says(&refused(&spec, LabelNeed::Class), &["line 3, column 'q'", "is no group"]);
}

#[test]
fn groups_go_on_from_one_file_into_the_next() {
    let folder = Folder::new();
    folder.write("p1.csv", "q,x,y\na,1,0\nb,2,1\n");
    folder.write("p2.csv", "q,x,y\nb,3,1\nc,4,0\n");
    let pattern = folder.path().join("p*.csv");
    let spec = with(DataSpec::new(pattern.to_string_lossy()), None, Some("q"));
    assert_eq!(classes(&spec).0.group_rows, [1, 2, 1]);
}

#[test]
fn shards_of_groups_are_read_as_they_were_dealt() {
    let folder = Folder::new();
    let text: String = (0..5000u32).map(|row| format!("{},{row},{}\n", row / 7, row % 2)).collect();
    let spec = with(folder.spec("a.csv", format!("q,x,y\n{text}")), None, Some("q"));
    let (found, whole) = load_all(&spec, Encoding::OneHot, LabelNeed::Class, 16).unwrap();
    let mut rows = 0;
    for shard in (0..16).map(Shard) {
        let part = load(&spec, &found, &[shard], 16).unwrap();
        let (from, count) = (whole.starts[&shard], part.table.rows());
        assert_eq!(part.shard_rows(shard), count as u64);
        assert_eq!(part.table.groups, whole.table.groups[from..from + count]);
        assert!(from == 0 || whole.table.groups[from - 1] != whole.table.groups[from]);
        rows += count;
    }
    assert_eq!(rows, 5000);
}

#[test]
fn side_files_count_for_text_files() {
    let folder = Folder::new();
    folder.write("r.tsv.query", "2\n1\n3\n");
    folder.write("r.tsv.weight", "1\n0.5\n2\n0\n1\n1\n");
    let lines = "0\t1\n1\t2\n0\t3\n1\t4\n0\t5\n1\t6\n";
    for name in ["r.tsv", "r.tsv.gz"] {
        let mut spec = folder.spec(name, lines).label(0);
        spec.header = Some(false);
        let (found, table) = classes(&spec);
        assert_eq!((&found.group_rows[..], found.schema.features), (&[2, 1, 3][..], 1));
        assert_eq!(table.groups, [0, 0, 1, 2, 2, 2]);
        assert_eq!(table.weights, [1.0, 0.5, 2.0, 0.0, 1.0, 1.0]);
        assert!(weighted(&spec).unwrap());
    }
    for (query, words) in [
        ("2\n1\n", "is for 3 rows, and"),
        ("2\n1\n4\n", "fewer"),
        ("2\n0\n", "line 2: '0' is not a number of rows"),
        ("2\nx\n", "line 2: 'x'"),
    ] {
        folder.write("b.svm.query", query);
        says(
            &refused(
                &folder.spec("b.svm", "1 1:1\n0 1:2\n1 1:3\n0 2:1\n1 1:1\n0 1:1\n"),
                LabelNeed::Class,
            ),
            &[words],
        );
    }
}

#[test]
fn queries_of_libsvm_are_groups_when_asked_for() {
    let folder = Folder::new();
    let text = "1 qid:4 1:1\n0 qid:4 1:2\n2 qid:9 2:1\n";
    let plain = folder.spec("a.svm", text);
    assert!(classes(&plain).1.groups.is_empty());
    let spec = with(plain.clone(), None, Some("qid"));
    let (found, table) = all(&spec, Encoding::OneHot, LabelNeed::Number);
    assert_eq!((&table.groups[..], &found.group_rows[..]), (&[0, 0, 1][..], &[2, 1][..]));
    let again = load_with(&plain, &found.schema, &found.intake).unwrap();
    assert_eq!(again.groups, table.groups);
    let spec = with(folder.spec("a.svm", "1 qid:4 1:1\n0 1:2\n"), None, Some("qid"));
    says(&refused(&spec, LabelNeed::Class), &["line 2: no qid"]);
    says(&refused(&with(plain.clone(), None, Some("x")), LabelNeed::Class), &["has none"]);
    says(&refused(&with(plain, Some("w"), None), LabelNeed::Class), &["has none", ".weight"]);
}

#[test]
fn synthetic_columns_can_be_weights() {
    let address = "synthetic://ratings?rows=300&users=9&items=5";
    let spec = with(DataSpec::new(address), Some("item"), None);
    let (_, table) = all(&spec, Encoding::Codes, LabelNeed::Number);
    assert!(table.weights.len() == 300 && table.weights.iter().all(|weight| *weight < 5.0));
    let ranking = "synthetic://ranking?rows=3000&documents=7&features=3";
    let (found, table) = all(
        &with(DataSpec::new(ranking), None, Some("query")),
        Encoding::OneHot,
        LabelNeed::Number,
    );
    assert_eq!((found.group_rows.len(), found.schema.features), (429, 3));
    let share = |relevance: f32| table.labels.iter().filter(|it| **it == relevance).count();
    assert!((0..5).all(|relevance| (450..750).contains(&share(relevance as f32))));
    let blobs = with(DataSpec::new("synthetic://blobs?rows=300"), Some("x0"), None);
    says(&refused(&blobs, LabelNeed::Class), &["column 'x0'", "is no weight"]);
}
