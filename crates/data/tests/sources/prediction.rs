//! Raw files read by the schema of a model.

use crate::{Folder, all, classes, dense, says};
use starlings_data::{DataSpec, Encoding, Features, LabelNeed, Share, load_with, read_with};

#[test]
fn columns_are_found_by_name_and_labels_may_be_absent() {
    let folder = Folder::new();
    let (survey, _) = classes(&folder.spec("t.csv", "a,b,class\n1,x,no\n3,y,yes\n"));
    let same = load_with(
        &folder.spec("p.csv", "class,extra,b,a\nyes,0,y,5\nno,0,z,?\n"),
        &survey.schema,
        &survey.intake,
    );
    let same = same.unwrap();
    // Category z is unknown and becomes no feature; the missing number becomes the training mean.
    assert_eq!(dense(&same), [5.0, 0.0, 1.0, 2.0, 0.0, 0.0]);
    assert_eq!(same.labels, [1.0, 0.0]);
    let without =
        load_with(&folder.spec("p.csv", "b,a\nx,7\n"), &survey.schema, &survey.intake).unwrap();
    assert_eq!((dense(&without), without.labels.len()), (&[7.0, 1.0, 0.0][..], 0));
    let lacking = load_with(&folder.spec("p.csv", "b,aa\nx,7\n"), &survey.schema, &survey.intake)
        .unwrap_err();
    says(&lacking.to_string(), &["no column 'a'", "'aa'"]);
    let unknown =
        load_with(&folder.spec("p.csv", "a,b,class\n1,x,noo\n"), &survey.schema, &survey.intake);
    says(&unknown.unwrap_err().to_string(), &["label 'noo'", "did you mean 'no'"]);
    let text =
        load_with(&folder.spec("p.csv", "a,b\n1,x\nred,x\n"), &survey.schema, &survey.intake)
            .unwrap_err();
    says(&text.to_string(), &["line 3, column 'a'", "'red' is not a number"]);
}

#[test]
fn without_header_columns_are_found_by_position() {
    let folder = Folder::new();
    let (survey, _) = classes(&folder.spec("t.csv", "1,10,20\n0,30,40\n").label(0));
    let whole =
        load_with(&folder.spec("p.csv", "0,5,6\n"), &survey.schema, &survey.intake).unwrap();
    assert_eq!((dense(&whole), &whole.labels[..]), (&[5.0, 6.0][..], &[0.0][..]));
    let features =
        load_with(&folder.spec("p.csv", "5,6\n"), &survey.schema, &survey.intake).unwrap();
    assert_eq!((dense(&features), features.labels.len()), (&[5.0, 6.0][..], 0));
    let short =
        load_with(&folder.spec("p.csv", "5\n"), &survey.schema, &survey.intake).unwrap_err();
    says(&short.to_string(), &["1 columns", "column 2"]);
}

#[test]
fn unknown_identities_are_nan() {
    let folder = Folder::new();
    let spec = folder.spec("t.csv", "user,item,rating\n1,2,3\n4,5,6\n").label("rating");
    let (survey, _) = all(&spec, Encoding::Identity, LabelNeed::Number);
    let table =
        load_with(&folder.spec("p.csv", "user,item\n4,2\n9,5\n"), &survey.schema, &survey.intake)
            .unwrap();
    assert_eq!(dense(&table)[..2], [1.0, 0.0]);
    assert!(dense(&table)[2].is_nan() && dense(&table)[3] == 1.0);
}

#[test]
fn numbered_features_beyond_the_models_are_left_out() {
    let folder = Folder::new();
    let (survey, _) = classes(&folder.spec("t.svm", "+1 1:1 3:1\n-1 2:1\n"));
    let table = load_with(&folder.spec("p.svm", "1 1:2 9:1\n-1\n"), &survey.schema, &survey.intake)
        .unwrap();
    let expected =
        Features::Sparse { width: 3, starts: vec![0, 1, 1], columns: vec![0], values: vec![2.0] };
    assert_eq!((table.features, table.labels), (expected.into(), vec![1.0, 0.0]));
    let other =
        load_with(&folder.spec("p.csv", "1,2\n"), &survey.schema, &survey.intake).unwrap_err();
    says(&other.to_string(), &["does not fit the model"]);
}

#[test]
fn the_test_part_of_digits_reads_by_the_schema_of_the_training_part() {
    let (survey, _) = classes(&DataSpec::new("digits"));
    let (_, alone) = classes(&DataSpec::new("digits:test"));
    assert_eq!(
        load_with(&DataSpec::new("digits:test"), &survey.schema, &survey.intake).unwrap(),
        alone
    );
}

#[test]
fn pieces_together_are_the_whole() {
    let folder = Folder::new();
    let row = |row: u32| {
        let odd = row as usize % 2;
        format!("{row}.{:060},{},{}\n", 0, ["x", "y"][odd], ["no", "yes"][odd])
    };
    let text: String = (0..50_000).map(row).collect();
    let spec = folder.spec("t.csv", format!("a,b,class\n{text}"));
    let (survey, _) = classes(&spec);
    let whole = load_with(&spec, &survey.schema, &survey.intake).unwrap();
    for share in [Share::WHOLE, Share { reader: 1, of: 2 }] {
        let (mut values, mut labels, mut pieces) = (Vec::new(), Vec::new(), 0);
        let known = (&survey.schema, &survey.intake);
        read_with(&spec, known, (share, 1000), &mut |table| {
            pieces += 1;
            assert!(table.rows() > 0 && table.rows() < 40_000, "{} rows", table.rows());
            values.extend_from_slice(dense(&table));
            labels.extend_from_slice(&table.labels);
            Ok(())
        })
        .unwrap();
        assert!(pieces > 1, "a large file is read in pieces");
        let mine = (0..50_000).filter(|&row| share.has(row));
        let mine: Vec<usize> = mine.map(|row| row as usize).collect();
        let width = whole.width();
        assert!(mine.iter().flat_map(|row| &dense(&whole)[row * width..][..width]).eq(&values));
        assert!(mine.iter().map(|&row| &whole.labels[row]).eq(&labels));
    }
    let mut sizes = Vec::new();
    read_with(&spec, (&survey.schema, &survey.intake), (Share::NONE, 1000), &mut |table| {
        sizes.push(table.rows());
        Ok(())
    })
    .unwrap();
    assert_eq!(sizes, [0], "whoever has no rows is told so");
}
