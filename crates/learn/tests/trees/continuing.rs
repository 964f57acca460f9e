//! Continued training: trees that are added later are those that would have been grown at once.

use crate::workers::rows;
use crate::{learner, schema, train};
use starlings_core::{Blame, Model};
use starlings_data::{Holding, Table};
use starlings_learn::{Memory, Place};
use starlings_testkit::drive::{Drive, Run};
use std::sync::Arc;

/// The model after so many trees more.
fn continued(parameters: &str, table: &Table, earlier: &Model) -> starlings_core::Result<Model> {
    let learner = learner("gradient-boosting", parameters);
    let options = Drive { workers: 2, ..Drive::default() };
    let facts = options.facts(&schema(&*learner, table), table.rows() as u64);
    let holding = Holding::whole(Arc::new(table.clone()), options.shards);
    let mut model = learner.init(&facts, Place::WHOLE)?;
    learner.go_on(&mut model, earlier)?;
    let mut run = Run::resume(&*learner, &holding, &options, (0, &model, &Memory::new()));
    while run.step()? {}
    Ok(run.finish()?.model)
}

#[test]
fn trees_added_later_are_those_grown_at_once() {
    for (more, classes) in [
        ("", 2),
        ("gradient_bits = '13'", 3),
        ("subsample = 0.7\ncolumn_share = 0.6", 2),
        ("loss = 'absolute'", 3),
        ("loss = 'lambdarank'", 4),
        ("parallelism = 'feature'", 2),
    ] {
        let table = rows(classes);
        let of = |trees: usize| format!("{more}\nmin_rows_leaf = 5\ntrees = {trees}");
        let at_once = train("gradient-boosting", &of(7), &table, 1).model;
        let first = train("gradient-boosting", &of(3), &table, 1).model;
        assert_ne!(first.f64("nodes"), at_once.f64("nodes"));
        let later = continued(&of(4), &table, &first).unwrap();
        for name in ["base", "nodes", "bins"] {
            assert_eq!(later.f64(name), at_once.f64(name), "{more}: {name}");
        }
        for name in ["tree_starts", "sets", "bin_starts"] {
            assert_eq!(later.i64(name), at_once.i64(name), "{more}: {name}");
        }
    }
}

#[test]
fn models_of_other_columns_or_classes_are_refused() {
    let three = train("gradient-boosting", "trees = 2", &rows(3), 1).model;
    let fault = continued("trees = 2", &rows(2), &three).unwrap_err();
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.to_string().contains("tells other classes apart"), "{fault}");
    let mut narrow = rows(2);
    let starlings_data::Features::Dense { width, values } = &mut narrow.features else { panic!() };
    *values = values[..600 * 7].to_vec().into();
    *width = 7;
    let two = train("gradient-boosting", "trees = 2", &rows(2), 1).model;
    let fault = continued("trees = 2", &narrow, &two).unwrap_err();
    assert!(fault.to_string().contains("has other columns"), "{fault}");
    let fault = continued("trees = 2", &rows(2), &Model::new()).unwrap_err();
    assert!(fault.to_string().contains("lacks its trees"), "{fault}");
}
