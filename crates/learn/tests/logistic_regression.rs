//! Logistic regression against the tightly converged optimum of scikit-learn, for every solver.

use starlings_core::{Entry, Model, Rng};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{LEARNERS, Learner, Outcome};
use starlings_testkit::drive::{Drive, Driven, drive};
use std::sync::Arc;

fn learner(params: &str) -> Box<dyn Learner> {
    let entry = Entry::find("learner", LEARNERS, "logistic-regression").expect("in the catalogue");
    let given = params.parse().expect("a table");
    (entry.build)(&entry.check("learner", &given).expect("allowed")).expect("builds")
}

fn schema(features: usize, classes: usize) -> Schema {
    let classes = (0..classes).map(|class| class.to_string()).collect();
    let target = Target::Classes(classes);
    Schema { columns: vec![], encoding: Encoding::OneHot, features, target, label: None }
}

fn train(params: &str, table: &Arc<Table>, classes: usize, options: &Drive) -> Driven {
    let facts = options.facts(&schema(table.width(), classes), table.rows() as u64);
    let holding = Holding::whole(Arc::clone(table), options.shards);
    drive(&*learner(params), &facts, &holding, options).expect("trains")
}

/// The flowers with a class code of at least `from`, which becomes class 0.
fn iris(from: u32) -> Arc<Table> {
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for line in include_str!("assets/iris.csv").lines().skip(1) {
        let numbers: Vec<f32> =
            line.split(',').map(|text| text.parse().expect("a number")).collect();
        if numbers[4] as u32 >= from {
            values.extend_from_slice(&numbers[..4]);
            labels.push(numbers[4] - from as f32);
        }
    }
    Arc::new(Table::new(Features::Dense { width: 4, values }, labels))
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
    Arc::new(Table::new(features, table.labels.clone()))
}

fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < tolerance, "{found} is not {expected}");
    }
}

/// Made with scikit-learn 1.9.1 on the rows of classes 1 and 2 as float32:
/// `LogisticRegression(C=1/(l2*n), solver="newton-cg", tol=1e-14, max_iter=100000)`, objective in float64.
#[test]
fn two_classes_reach_the_optimum_of_scikit_learn() {
    let params = "l2 = 1e-3\ntolerance = 1e-9\nmax_iterations = 1000";
    for table in [iris(1), sparse(&iris(1))] {
        let found = train(params, &table, 2, &Drive::default());
        close(&[found.grade.objective], &[0.118_990_395_065_450_37], 1e-10);
        let weights = [-1.550_156_89, -1.829_090_57, 5.193_674_22, 5.727_390_79, -20.090_799_64];
        close(found.model.f64("weights"), &weights, 1e-4);
        assert_eq!(found.grade.metrics["accuracy"], 0.98);
    }
    let without = format!("{params}\nintercept = false");
    let found = train(&without, &iris(1), 2, &Drive::default());
    close(&[found.grade.objective], &[0.170_667_890_696_729_3], 1e-10);
}

/// Made as above on all rows with l2 = 1e-2.
#[test]
fn three_classes_reach_the_optimum_of_scikit_learn() {
    for table in [iris(0), sparse(&iris(0))] {
        let params = "l2 = 1e-2\ntolerance = 1e-9\nmax_iterations = 1000";
        let found = train(params, &table, 3, &Drive::default());
        close(&[found.grade.objective], &[0.224_288_902_954_235_4], 1e-10);
        close(&[found.grade.metrics["accuracy"]], &[0.973_333_333_333_333_4], 1e-12);
        // Intercepts of softmax are only known up to a constant: compare what they mean.
        let mut probabilities = Vec::new();
        let holding = Holding::whole(Arc::clone(&table), 1);
        let dealer = Dealer::new(holding, 1, 1);
        learner(params).predict(&found.model, &dealer.everything(), &mut probabilities).unwrap();
        let first = [0.975_314_014_069_34, 0.024_685_851_897_97, 1.340_326_877_756_5e-7];
        close(&probabilities[..3], &first, 1e-6);
    }
}

/// Made as above with l2 = 1e-2 on features divided by their deviation (`X.std(0)`); coefficients divided
/// by the deviation again.
#[test]
fn standardised_weights_come_back_in_the_units_of_the_data() {
    let params = "l2 = 1e-2\ntolerance = 1e-10\nmax_iterations = 1000\nstandardise = true";
    for table in [iris(1), sparse(&iris(1))] {
        let found = train(params, &table, 2, &Drive { workers: 3, ..Drive::default() });
        close(&[found.grade.objective], &[0.170_284_698_753_660_76], 1e-10);
        let weights = [-0.422_744_76, -1.789_185_39, 2.691_516_47, 5.656_224_07, -14.797_077_08];
        close(found.model.f64("weights"), &weights, 1e-4);
    }
}

/// Standard normal features; classes by a noisy linear rule.
fn synthetic(rows: usize, width: usize, classes: usize) -> Arc<Table> {
    let mut rng = Rng::named(3, "synthetic", &[]);
    let rule: Vec<f64> = (0..width * classes).map(|_| rng.normal()).collect();
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let row: Vec<f32> = (0..width).map(|_| rng.normal() as f32).collect();
        let scores = rule.chunks(width).map(|rule| {
            let score: f64 = rule.iter().zip(&row).map(|(w, x)| w * f64::from(*x)).sum();
            score + rng.normal()
        });
        let scores: Vec<f64> = scores.collect();
        let best = (0..classes).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        values.extend_from_slice(&row);
        labels.push(best.expect("some class") as f32);
    }
    Arc::new(Table::new(Features::Dense { width, values }, labels))
}

/// With all rows in a batch the mini-batch solvers are deterministic descent, and must end where L-BFGS does.
#[test]
fn all_solvers_reach_the_same_optimum() {
    for classes in [2, 3] {
        let dense = synthetic(200, 5, classes);
        for table in [Arc::clone(&dense), sparse(&dense)] {
            let best = train("l2 = 0.01\ntolerance = 1e-10", &table, classes, &Drive::default());
            let descent = Drive { batch: 200, epochs: Some(1500), ..Drive::default() };
            for (solver, tolerance) in [
                ("solver = 'sgd'\nlearning_rate = 1.0", 1e-8),
                ("solver = 'momentum'\nlearning_rate = 0.2", 1e-8),
                ("solver = 'adam'\nlearning_rate = 0.1\ndecay = 0.01", 1e-6),
            ] {
                let params = format!("l2 = 0.01\n{solver}");
                let found = train(&params, &table, classes, &descent);
                let excess = found.grade.objective / best.grade.objective - 1.0;
                assert!((-1e-12..tolerance).contains(&excess), "{solver}: {excess}");
            }
        }
    }
}

/// Real mini-batches with the automatic learning rates: within 5 % of the optimum after 30 passes.
#[test]
fn automatic_learning_rates_come_near_the_optimum() {
    let table = synthetic(1000, 10, 2);
    let best = train("", &table, 2, &Drive::default());
    for solver in ["sgd", "momentum", "adam"] {
        let options = Drive { workers: 2, batch: 32, epochs: Some(30), ..Drive::default() };
        let found = train(&format!("solver = '{solver}'"), &table, 2, &options);
        let excess = found.grade.objective / best.grade.objective - 1.0;
        assert!(excess < 0.05, "{solver}: {excess}");
    }
}

/// A feature that few batches touch is penalised for the steps it has missed, so that sparse rows end where
/// the same rows held dense do.
#[test]
fn rare_features_are_penalised_as_often_as_common_ones() {
    let mut rng = Rng::named(4, "rare", &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..640 {
        let rare = f32::from(u8::from(row % 64 == 0));
        let class = f32::from(u8::from(rng.uniform() < if rare > 0.0 { 0.9 } else { 0.5 }));
        values.extend([rng.normal() as f32, rare]);
        labels.push(class);
    }
    let dense = Arc::new(Table::new(Features::Dense { width: 2, values }, labels));
    let options = Drive { batch: 16, epochs: Some(60), ..Drive::default() };
    let params = "solver = 'sgd'\nl2 = 0.02\nlearning_rate = 0.2\ndecay = 0.01";
    let weight = |table: &Arc<Table>| train(params, table, 2, &options).model.f64("weights")[1];
    let (lazy, eager) = (weight(&sparse(&dense)), weight(&dense));
    assert!((lazy / eager - 1.0).abs() < 0.01, "{lazy} {eager}");
}

#[test]
fn iterations_are_limited_by_the_job_before_the_learner() {
    let steps = |epochs, params| {
        let options = Drive { epochs, ..Drive::default() };
        let found = train(params, &iris(0), 3, &options);
        let Outcome { done, iterations, .. } = found.outcome;
        (done, iterations.unwrap())
    };
    assert_eq!(steps(Some(3), "tolerance = 0.0"), (true, 3));
    assert_eq!(steps(None, "tolerance = 0.0\nmax_iterations = 5"), (true, 5));
}

#[test]
fn data_and_parameters_that_cannot_work_are_refused() {
    let options = Drive::default();
    let one_class =
        learner("").init(&options.facts(&schema(4, 1), 10), starlings_learn::Place::WHOLE);
    assert!(one_class.unwrap_err().to_string().contains("1 classes"));
    let entry = Entry::find("learner", LEARNERS, "logistic-regression").unwrap();
    let params = entry.check("learner", &"solver = 'sgd'\nstandardise = true".parse().unwrap());
    assert!((entry.build)(&params.unwrap()).is_err());

    let mut table = Table::clone(&iris(1));
    table.labels[7] = 2.0;
    let facts = options.facts(&schema(4, 2), 100);
    let holding = Holding::whole(Arc::new(table), options.shards);
    let fault = drive(&*learner(""), &facts, &holding, &options).unwrap_err().to_string();
    assert!(fault.contains("row 7"), "{fault}");
}

#[test]
fn divergence_names_the_step_and_the_remedy() {
    let table = synthetic(64, 3, 2);
    let Features::Dense { values, .. } = &table.features else { unreachable!() };
    let values = values.iter().map(|value| value * 1e30).collect();
    let features = Features::Dense { width: 3, values };
    let table = Table::new(features, table.labels.clone());
    let options = Drive::default();
    let facts = options.facts(&schema(3, 2), 64);
    let holding = Holding::whole(Arc::new(table), options.shards);
    let learner = learner("solver = 'sgd'\nlearning_rate = 1e6\nl2 = 1e12");
    let fault = drive(&*learner, &facts, &holding, &options).unwrap_err().to_string();
    assert!(fault.contains("step") && fault.contains("lower learning_rate"), "{fault}");
}

#[test]
fn a_saved_model_is_its_weights_and_nothing_of_the_way_there() {
    let options = Drive { epochs: Some(1), ..Drive::default() };
    let names = |params: &str| -> Vec<String> {
        let model: Model = train(params, &iris(1), 2, &options).model;
        let weights = model.iter().filter(|(_, t)| t.role == starlings_core::Role::Weight);
        weights.map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names("solver = 'adam'"), ["weights"]);
    assert_eq!(names(""), ["weights"]);
    assert_eq!(names("standardise = true"), ["scale", "weights"]);
}
