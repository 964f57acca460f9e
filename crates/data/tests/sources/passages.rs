//! Texts cut into passages, and the tokens that they are made of.

use crate::{Folder, dense};
use starlings_core::Shard;
use starlings_data::{DataSpec, Encoding, LabelNeed, StepSpec, load, load_all, load_with};

#[test]
fn a_text_is_cut_into_passages_whatever_its_lines() {
    let folder = Folder::new();
    // Characters of one, two, three and four bytes; none is cut.
    let text: String = (0..9000).map(|at| ['a', '\n', 'ö', '€', '🐦'][at % 5]).collect();
    let spec = DataSpec {
        format: Some("passages".to_string()),
        passage: Some(16),
        ..folder.spec("t.txt", &text)
    };
    let packed = DataSpec { source: folder.spec("t.txt.gz", &text).source, ..spec.clone() };
    let step = |given: &str| StepSpec {
        name: "tokens".to_string(),
        columns: None,
        given: given.to_string(),
    };
    let prepared = |given: &str, spec: &DataSpec| {
        let spec = DataSpec { prepare: vec![step(given)], ..spec.clone() };
        load_all(&spec, Encoding::OneHot, LabelNeed::None, 4).unwrap()
    };
    let (survey, holding) = prepared("kind = 'byte'\nlength = 19", &spec);
    let bytes: Vec<u8> = dense(&holding.table).iter().map(|&it| it as u8).collect();
    let back: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 0).collect();
    assert_eq!(String::from_utf8(back).unwrap(), text, "rows together are the text");
    assert_eq!(survey.rows, (text.len() as u64).div_ceil(16));
    assert_eq!(prepared("kind = 'byte'\nlength = 19", &packed).1.table, holding.table);
    // Any worker reads the rows of its shards alone.
    let with = DataSpec { prepare: vec![step("kind = 'byte'\nlength = 19")], ..spec.clone() };
    let third = load(&with, &survey, &[Shard(2)], 4).unwrap();
    let whole = dense(&holding.table);
    let from = holding.starts[&Shard(2)] * 19;
    assert_eq!(dense(&third.table), &whole[from..from + dense(&third.table).len()]);
    let (survey, holding) = prepared("vocabulary = 260\nlength = 19", &spec);
    assert!(dense(&holding.table).iter().any(|&token| token >= 256.0), "pairs are joined");
    let again = load_with(&spec, &survey.schema, &survey.intake).unwrap();
    assert_eq!(dense(&again), dense(&holding.table), "a model cuts new texts as it learnt");
}
