//! The lasso and the elastic net against the tightly converged optimum of scikit-learn (bench/references/lasso.py makes
//! the figures), for both solvers; and what tells the scheduled solver from any other.
#![allow(clippy::unwrap_used, reason = "a test that cannot read its figures has failed")]

use serde_json::Value;
use starlings_core::{Blame, Entry, Model, Rng};
use starlings_data::{Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{LEARNERS, Learner};
use starlings_testkit::drive::{Drive, Driven, Run, drive};
use std::sync::Arc;

fn figures() -> Value {
    serde_json::from_str(include_str!("../../../bench/references/lasso.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn learner(name: &str, params: &str) -> Box<dyn Learner> {
    let entry = Entry::find("learner", LEARNERS, name).unwrap();
    (entry.build)(&entry.check("learner", &params.parse().unwrap()).unwrap()).unwrap()
}

fn schema(features: usize) -> Schema {
    let target = Target::Number;
    Schema { columns: vec![], encoding: Encoding::OneHot, features, target, label: None }
}

fn try_train(
    name: &str,
    params: &str,
    table: &Arc<Table>,
    workers: u32,
) -> starlings_core::Result<Driven> {
    let options = Drive { workers, ..Drive::default() };
    let facts = options.facts(&schema(table.width()), table.rows() as u64);
    let holding = Holding::whole(Arc::clone(table), options.shards);
    drive(&*learner(name, params), &facts, &holding, &options)
}

fn train(name: &str, params: &str, table: &Arc<Table>) -> Driven {
    try_train(name, params, table, 2).unwrap()
}

fn dense(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Arc<Table> {
    Arc::new(Table::new(Features::Dense { width, values }, labels))
}

fn diabetes() -> Arc<Table> {
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for line in include_str!("assets/diabetes.csv").lines().skip(1) {
        let row: Vec<f32> = line.split(',').map(|text| text.parse().unwrap()).collect();
        values.extend_from_slice(&row[..10]);
        labels.push(row[10]);
    }
    dense(10, values, labels)
}

/// The design of bench/references/lasso.py: each column is 0.95 of the one before and something new.
fn correlated() -> Arc<Table> {
    const ROWS: usize = 200;
    const WIDTH: usize = 40;
    let mut state = 1u64;
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..ROWS {
        let new: Vec<f64> = (0..=WIDTH)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f64 / f64::from(1 << 24) - 0.5
            })
            .collect();
        let mut x = vec![new[0]];
        for column in 1..WIDTH {
            x.push(0.95 * x[column - 1] + 0.3 * new[column]);
        }
        let y = 3.0 * x[2] - 2.0 * x[9] + 1.5 * x[10] + x[25] - x[39] + 0.2 * new[WIDTH] + 7.0;
        values.extend(x.iter().map(|x| *x as f32));
        labels.push(y as f32);
    }
    dense(WIDTH, values, labels)
}

/// The same rows as compressed sparse rows.
fn sparse(table: &Table) -> Arc<Table> {
    let Features::Dense { width, values } = &table.features else { panic!("dense wanted") };
    let (mut starts, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
    for row in values.chunks_exact(*width) {
        for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            kept.push(value);
        }
        starts.push(kept.len());
    }
    let features = Features::Sparse { width: *width, starts, columns, values: kept };
    Arc::new(Table { features: features.into(), ..table.clone() })
}

fn close(found: &[f64], expected: &[f64], share: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() <= share * largest, "{what}: {found} is not {expected}");
    }
}

/// Data sets by name, and the ways of solving: Gram matrix, working sets, scheduled blocks.
const WAYS: [&str; 3] = [
    "max_iterations = 1000000\ntolerance = 1e-11",
    "max_iterations = 1000000\ntolerance = 1e-11\ngram_max = 3",
    "max_iterations = 20000\ntolerance = 1e-7\nsolver = 'scheduled'\ntheta = 0.3",
];

fn check(found: &Driven, expected: &Value, what: &str) {
    let objective = expected["objective"].as_f64().unwrap();
    // Blocks of few coordinates come near the optimum in good time, and to its last digits in a long one.
    let scheduled = what.contains("scheduled");
    let (value, weights) = if scheduled { (1e-5, 1e-2) } else { (1e-8, 1e-4) };
    close(&[found.grade.objective], &[objective], value, what);
    close(found.model.f64("weights"), &numbers(&expected["weights"]), weights, what);
    assert!(found.grade.metrics["duality_gap"] <= value * objective, "{what}");
}

#[test]
fn every_solver_reaches_the_optimum_of_scikit_learn() {
    let figures = figures();
    for (name, table) in [("diabetes", diabetes()), ("correlated", correlated())] {
        for table in [Arc::clone(&table), sparse(&table)] {
            for (way, case) in WAYS.iter().flat_map(|way| {
                figures[name]["lasso"].as_array().unwrap().iter().map(move |case| (way, case))
            }) {
                let params = format!("{way}\nl1 = {}", case["l1"]);
                check(&train("lasso", &params, &table), case, &format!("{name}: {params}"));
            }
        }
        for (way, case) in WAYS.iter().flat_map(|way| {
            figures[name]["elastic_net"].as_array().unwrap().iter().map(move |case| (way, case))
        }) {
            let (l1, l2) = (case["l1"].as_f64().unwrap(), case["l2"].as_f64().unwrap());
            let params = format!("{way}\nl1 = {l1:?}\nl2 = {l2:?}");
            check(&train("elastic-net", &params, &table), case, &format!("{name}: {params}"));
            let (alpha, ratio) = (l1 + l2, l1 / (l1 + l2));
            let params = format!("{way}\nalpha = {alpha:?}\nl1_ratio = {ratio:?}");
            check(&train("elastic-net", &params, &table), case, &format!("{name}: {params}"));
        }
    }
}

#[test]
fn weights_intercepts_and_standardisation_are_those_of_scikit_learn() {
    let figures = figures();
    for (name, table) in [("diabetes", diabetes()), ("correlated", correlated())] {
        let mut weighted = (*table).clone();
        weighted.weights = (0..table.rows()).map(|row| 1.0 + (row % 3) as f32).collect();
        let weighted = Arc::new(weighted);
        for way in WAYS {
            for (case, more, table) in [
                ("without_intercept", "intercept = false", &table),
                ("weighted", "", &weighted),
                ("standardised", "standardise = true", &table),
            ] {
                if way.contains("scheduled") && case != "standardised" && name == "diabetes"
                    || way.contains("scheduled") && case == "without_intercept"
                {
                    continue; // Ill-conditioned: blocks of one would take minutes.
                }
                let case = &figures[name][case];
                let params = format!("{way}\n{more}\nl1 = {}", case["l1"]);
                let what = format!("{name}: {params}");
                check(&train("lasso", &params, table), case, &what);
                check(&train("lasso", &params, &sparse(table)), case, &what);
            }
        }
    }
}

#[test]
fn the_whole_path_is_that_of_scikit_learn() {
    let figures = figures();
    for (name, table, l1) in [("diabetes", diabetes(), 1.0), ("correlated", correlated(), 0.01)] {
        let (path, case) = (&figures[name]["path"], &figures[name]["lasso"][1]);
        for way in WAYS {
            let params = format!("{way}\nl1 = {l1:?}\npath = 20");
            let found = train("lasso", &params, &table);
            let what = format!("{name}: {params}");
            // The job's own penalty is solved on the way, from the answer next to it.
            check(&found, case, &what);
            let penalties: Vec<f64> =
                found.model.f64("penalties").chunks_exact(2).map(|pair| pair[0]).collect();
            close(&penalties, &numbers(&path["penalties"]), 1e-9, &what);
            let width = table.width() + 1;
            let rows = found.model.f64("path").chunks_exact(width);
            for (row, expected) in rows.zip(path["weights"].as_array().unwrap()) {
                let expected = numbers(expected);
                // The largest penalty of the path leaves nothing but rounding.
                if expected.iter().any(|weight| weight.abs() > 1e-9) {
                    let share = if way.contains("scheduled") { 1e-2 } else { 1e-4 };
                    close(&row[..width - 1], &expected, share, &what);
                }
            }
        }
    }
}

/// Four groups of copies, each copy with a little noise: within a group all but the same column.
fn copies(rows: usize, groups: usize, copies: usize) -> Arc<Table> {
    let mut rng = Rng::named(3, "copies", &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let mut y = 0.1 * rng.normal();
        for group in 0..groups {
            let origin = rng.normal();
            y += (group + 1) as f64 * origin;
            values.extend((0..copies).map(|_| (origin + 0.05 * rng.normal()) as f32));
        }
        labels.push(y as f32);
    }
    dense(groups * copies, values, labels)
}

fn correlation(table: &Table, a: usize, b: usize) -> f64 {
    let Features::Dense { width, values } = &table.features else { panic!("dense wanted") };
    let rows = (values.len() / width) as f64;
    let mean =
        |column: usize| values.iter().skip(column).step_by(*width).sum::<f32>() as f64 / rows;
    let (ma, mb) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for row in values.chunks_exact(*width) {
        let (x, y) = (f64::from(row[a]) - ma, f64::from(row[b]) - mb);
        (ab, aa, bb) = (ab + x * y, aa + x * x, bb + y * y);
    }
    ab.abs() / (aa * bb).sqrt()
}

/// Runs to the end, showing each model on the way. Gives the number of steps, or none if it never came to an end.
fn watch(
    params: &str,
    table: &Arc<Table>,
    steps_max: u64,
    mut see: impl FnMut(&Model),
) -> Option<u64> {
    let options = Drive { workers: 2, ..Drive::default() };
    let facts = options.facts(&schema(table.width()), table.rows() as u64);
    let holding = Holding::whole(Arc::clone(table), options.shards);
    let learner = learner("lasso", params);
    let mut run = Run::start(&*learner, &facts, &holding, &options).unwrap();
    for steps in 1..=steps_max {
        match run.step() {
            Ok(true) => see(&run.checkpoint().1),
            Ok(false) => return Some(steps - 1),
            Err(fault) => {
                assert!(fault.to_string().contains("theta"), "{fault}");
                return None;
            }
        }
    }
    None
}

fn block(model: &Model) -> Vec<usize> {
    let block = model.i64("schedule.block").iter();
    block.filter_map(|&column| usize::try_from(column).ok()).collect()
}

#[test]
fn correlated_coordinates_never_move_together() {
    let table = copies(300, 6, 5);
    let (mut blocks, mut largest) = (0, 0);
    let params = "solver = 'scheduled'\nl1 = 0.01\ntheta = 0.5\ntolerance = 1e-6";
    let steps = watch(params, &table, 20_000, |model| {
        let block = block(model);
        for (place, &a) in block.iter().enumerate() {
            for &b in &block[..place] {
                let found = correlation(&table, a, b);
                assert!(found < 0.5, "{a} and {b} move together with a correlation of {found}");
            }
        }
        blocks += 1;
        largest = largest.max(block.len());
    });
    assert!(steps.is_some() && blocks > 10, "{blocks} blocks");
    assert_eq!(largest, 6, "one of each group may move");
}

#[test]
fn without_the_dependency_check_correlated_coordinates_diverge() {
    let table = copies(300, 6, 5);
    let checked = "solver = 'scheduled'\nl1 = 0.01\ntheta = 0.5\ntolerance = 1e-6";
    let unchecked = checked.replace("0.5", "1e9");
    let steps = watch(checked, &table, 20_000, |_| {}).unwrap();
    let without = watch(&unchecked, &table, 20_000, |_| {});
    assert!(without.is_none_or(|without| without > 2 * steps), "{steps} with, {without:?} without");
}

#[test]
fn priorities_concentrate_on_coordinates_that_move() {
    let mut rng = Rng::named(5, "priorities", &[]);
    let (rows, width) = (400, 200);
    let values: Vec<f32> = (0..rows * width).map(|_| rng.normal() as f32).collect();
    let row = |row: &[f32]| row[..10].iter().sum::<f32>();
    let labels = values.chunks_exact(width).map(row).collect();
    let table = dense(width, values, labels);
    let mut moved = vec![0u32; width];
    let params =
        "solver = 'scheduled'\nl1 = 0.2\nblock = 4\ncandidates = 8\ntheta = 0.5\ntolerance = 1e-9";
    let mut own = Vec::new();
    watch(params, &table, 5_000, |model| {
        // While some coordinates still move: later all are at rest, and all are drawn alike.
        if moved.iter().sum::<u32>() < 100 {
            block(model).into_iter().for_each(|column| moved[column] += 1);
        }
        own = model.f64("weights").to_vec();
    })
    .unwrap();
    let count = |moving: bool| {
        let of = moved.iter().zip(&own).filter(|(_, weight)| (**weight != 0.0) == moving);
        let (sum, len) = of.fold((0, 0), |(sum, len), (count, _)| (sum + count, len + 1));
        f64::from(sum) / f64::from(len)
    };
    assert!(count(true) > 10.0 * count(false), "{} against {}", count(true), count(false));
}

#[test]
fn corners_are_learned_or_refused() {
    for way in WAYS {
        let params = format!("{way}\nl1 = 0.01");
        let fit = |table: &Arc<Table>| try_train("lasso", &params, table, 3);
        // One row: nothing varies, the intercept says it all.
        let one = fit(&dense(2, vec![1.0, 2.0], vec![5.0])).unwrap();
        assert_eq!(one.model.f64("weights"), [0.0, 0.0, 5.0]);
        // A constant column has no weight, and an offset loses no digits.
        let rows = 50u8;
        let values = (0..rows).flat_map(|row| [3.3, 1e6 + f32::from(row)]).collect();
        let labels: Vec<f32> = (0..rows).map(|row| 2.0 * f32::from(row)).collect();
        let constant = fit(&dense(2, values, labels.clone())).unwrap();
        let weights = constant.model.f64("weights");
        assert_eq!(weights[0], 0.0);
        assert!((weights[1] - 2.0).abs() < 1e-3, "{weights:?}");
        // Extreme scales.
        let values = (0..rows).flat_map(|row| [1e-20 * f32::from(row), 1e20 * f32::from(row % 7)]);
        let extreme = fit(&dense(2, values.collect(), labels.clone())).unwrap();
        assert!(extreme.grade.objective.is_finite(), "{params}");
        // A label that never varies.
        let flat = fit(&dense(1, vec![1.0, 2.0, 3.0], vec![4.0; 3])).unwrap();
        assert_eq!(flat.model.f64("weights"), [0.0, 4.0]);
        // Refusals.
        let mut weightless = (*dense(1, vec![1.0, 2.0], vec![1.0, 2.0])).clone();
        weightless.weights = vec![0.0; 2];
        let nan = dense(2, vec![1.0, 2.0, 3.0, f32::NAN], vec![1.0, 2.0]);
        let label = dense(1, vec![1.0, 2.0], vec![1.0, f32::INFINITY]);
        for (table, words) in [
            (Arc::new(weightless), "weigh nothing"),
            (nan, "row 1 has NaN in feature 1"),
            (label, "row 1 has the label inf"),
        ] {
            let fault = fit(&table).map(|_| ()).unwrap_err();
            assert_eq!(fault.blame(), Blame::Caller);
            assert!(fault.to_string().contains(words), "{fault}");
        }
    }
}

#[test]
fn penalties_under_two_names_are_refused() {
    for (name, params) in [
        ("lasso", "l1 = 1\nalpha = 1"),
        ("elastic-net", "l1 = 1\nalpha = 1"),
        ("elastic-net", "l1_ratio = 0.0\npath = 3"),
    ] {
        let entry = Entry::find("learner", LEARNERS, name).unwrap();
        let params = entry.check("learner", &params.parse().unwrap()).unwrap();
        assert_eq!((entry.build)(&params).map(|_| ()).unwrap_err().blame(), Blame::Caller);
    }
}
