//! Feature selection.

use super::{built, close, dense, digits, figures, fit, numbers, predictions, refused, sparse};
use starlings_data::Table;

#[test]
fn scores_are_those_of_scikit_learn_on_any_number_of_workers() {
    let figures = figures();
    for (method, name) in
        [("variance", "variance"), ("chi2", "chi2"), ("mutual-information", "mutual_information")]
    {
        let learner = built("feature-selection", &format!("method = '{method}'\nk = 7"));
        let wanted = numbers(&figures["selection"][name]);
        for table in [digits(), sparse(&digits())] {
            for workers in [1, 4] {
                let driven = fit(&*learner, &table, workers);
                close(driven.model.f64("scores"), &wanted, 1e-9);
                assert_eq!(driven.model.i64("selected").len(), 7);
            }
        }
    }
}

#[test]
fn features_above_the_threshold_are_kept_in_their_order() {
    let learner = built("feature-selection", "");
    let driven = fit(&*learner, &digits(), 2);
    let kept: Vec<f64> = driven.model.i64("selected").iter().map(|&column| column as f64).collect();
    assert_eq!(kept, numbers(&figures()["selection"]["selected"]));
    let rows = predictions(&*learner, &driven, &digits());
    assert_eq!(rows.len(), 1797 * kept.len());
    let first = digits().dense_rows(0, 1).unwrap().to_vec();
    assert!(kept.iter().zip(&rows).all(|(&column, x)| f64::from(first[column as usize]) == *x));
    let best = built("feature-selection", "threshold = 40.0");
    assert!(fit(&*best, &digits(), 1).model.i64("selected").len() < kept.len());
}

#[test]
fn methods_disagree_about_what_is_best() {
    let best = |method: &str| {
        let learner = built("feature-selection", &format!("method = '{method}'\nk = 5"));
        fit(&*learner, &digits(), 1).model.i64("selected").to_vec()
    };
    assert_ne!(best("variance"), best("chi2"));
    assert_ne!(best("chi2"), best("mutual-information"));
}

#[test]
fn rows_that_weigh_nothing_are_not_there() {
    let table = digits();
    let half = Table {
        labels: table.labels[..900].to_vec(),
        ..dense(64, table.dense_rows(0, 900).unwrap().to_vec())
    };
    let weights = (0..1797).map(|row| f32::from(u8::from(row < 900))).collect();
    let muted = Table { weights, ..table };
    for method in ["variance", "chi2", "mutual-information"] {
        let learner = built("feature-selection", &format!("method = '{method}'"));
        let (half, muted) = (fit(&*learner, &half, 1), fit(&*learner, &muted, 3));
        close(muted.model.f64("scores"), half.model.f64("scores"), 1e-9);
    }
}

#[test]
fn numbers_that_do_not_suit_the_method_are_refused_by_row_and_feature() {
    let labelled = |values: Vec<f32>| Table { labels: vec![0.0, 1.0, 1.0], ..dense(2, values) };
    let negative = labelled(vec![1.0, 2.0, 0.0, -3.0, 1.0, 1.0]);
    let fault = refused(&*built("feature-selection", "method = 'chi2'"), &negative).to_string();
    assert!(fault.contains("feature 1 of row 1 is -3"), "{fault}");
    let broken = labelled(vec![1.0, 2.0, 0.0, 3.0, 1.5, 1.0]);
    let learner = built("feature-selection", "method = 'mutual-information'");
    let fault = refused(&*learner, &broken).to_string();
    assert!(fault.contains("feature 0 of row 2 is 1.5"), "{fault}");
    let equal = dense(1, vec![2.0; 6]);
    let fault = refused(&*built("feature-selection", ""), &equal).to_string();
    assert!(fault.contains("no feature is above"), "{fault}");
    let fault = refused(&*built("feature-selection", "k = 2"), &equal).to_string();
    assert!(fault.contains("cannot be chosen"), "{fault}");
    let fault = refused(&*built("feature-selection", "method = 'chi2'"), &equal).to_string();
    assert!(fault.contains("two are needed"), "{fault}");
}
