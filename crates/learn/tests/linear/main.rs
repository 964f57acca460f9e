//! Linear models against scikit-learn's optima on real data, against closed forms, against each other, and at the edges.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod references;

use starlings_core::{Entry, Fault, Rng};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{LEARNERS, Learner, Memory};
use starlings_testkit::drive::{Drive, Driven, Run, drive};
use std::sync::Arc;

fn learner(name: &str, params: &str) -> Result<Box<dyn Learner>, Fault> {
    let entry = Entry::find("learner", LEARNERS, name)?;
    (entry.build)(&entry.check("learner", &params.parse().unwrap())?)
}

fn schema(features: usize, classes: usize) -> Schema {
    let target = match classes {
        0 => Target::Number,
        _ => Target::Classes((0..classes).map(|class| class.to_string()).collect()),
    };
    Schema { columns: vec![], encoding: Encoding::OneHot, features, target, label: None }
}

/// A learner with data: `classes` is 0 for numbers.
struct Job<'a> {
    name: &'a str,
    params: &'a str,
    table: &'a Arc<Table>,
    classes: usize,
}

impl Job<'_> {
    fn run(&self, options: &Drive) -> Result<Driven, Fault> {
        let facts =
            options.facts(&schema(self.table.width(), self.classes), self.table.rows() as u64);
        let holding = Holding::whole(Arc::clone(self.table), options.shards);
        drive(&*learner(self.name, self.params)?, &facts, &holding, options)
    }

    fn train(&self) -> Driven {
        self.run(&Drive { workers: 2, ..Drive::default() }).unwrap()
    }
}

fn classify<'a>(params: &'a str, table: &'a Arc<Table>) -> Job<'a> {
    Job { name: "logistic-regression", params, table, classes: 2 }
}

fn regress<'a>(name: &'a str, params: &'a str, table: &'a Arc<Table>) -> Job<'a> {
    Job { name, params, table, classes: 0 }
}

fn dense(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Arc<Table> {
    Arc::new(Table::new(Features::Dense { width, values }, labels))
}

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

/// Correlated features of different sizes far from zero; labels by a noisy rule: classes or numbers.
fn made(rows: usize, width: usize, classes: bool) -> Arc<Table> {
    let mut rng = Rng::named(9, "linear tests", &[rows as u64, width as u64]);
    let rule: Vec<f64> = (0..width).map(|_| rng.normal()).collect();
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..rows {
        let (mut last, mut score) = (0.0, 0.0);
        for (feature, weight) in rule.iter().enumerate() {
            last = 0.8 * last + 0.6 * rng.normal();
            score += weight * last;
            values.push((last * 10f64.powi(feature as i32 % 5 - 2) + feature as f64) as f32);
        }
        let noisy = score + rng.normal();
        labels.push(if classes { f32::from(u8::from(noisy > 0.3)) } else { noisy as f32 });
    }
    dense(width, values, labels)
}

fn close(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let off = (found - expected).abs() / expected.abs().max(1.0);
        assert!(off <= tolerance, "{found} is not {expected}");
    }
}

/// Solves a dense system by elimination with pivots: the closed form that learners are held to.
fn solve(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Vec<f64> {
    let size = b.len();
    for column in 0..size {
        let pivot =
            (column..size).max_by(|&i, &j| a[i][column].abs().total_cmp(&a[j][column].abs()));
        let pivot = pivot.unwrap();
        a.swap(column, pivot);
        b.swap(column, pivot);
        for row in column + 1..size {
            let by = a[row][column] / a[column][column];
            let above = a[column].clone();
            a[row].iter_mut().zip(&above).for_each(|(x, y)| *x -= by * y);
            b[row] -= by * b[column];
        }
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|other| a[row][other] * b[other]).sum();
        b[row] = (b[row] - known) / a[row][row];
    }
    b
}

/// The normal equations with intercept: (XᵀDX/W + l2·I)·w = XᵀDy/W.
fn closed_form(table: &Table, l2: f64) -> Vec<f64> {
    let width = table.width() + 1;
    let (mut a, mut b) = (vec![vec![0.0; width]; width], vec![0.0; width]);
    let total: f64 = (0..table.rows()).map(|row| table.weight(row)).sum();
    let mean = |feature: usize| {
        let value = |row: usize| f64::from(table.dense_rows(row, row + 1).unwrap()[feature]);
        (0..table.rows()).map(|row| table.weight(row) * value(row)).sum::<f64>() / total
    };
    // Centred features: the raw equations lose what the test wants to see.
    let means: Vec<f64> = (0..width - 1).map(mean).collect();
    for row in 0..table.rows() {
        let x = table.dense_rows(row, row + 1).unwrap().iter().zip(&means);
        let x: Vec<f64> = x.map(|(x, m)| f64::from(*x) - m).chain([1.0]).collect();
        let weight = table.weight(row) / total;
        for i in 0..width {
            b[i] += weight * x[i] * f64::from(table.labels[row]);
            for j in 0..width {
                a[i][j] += weight * x[i] * x[j];
            }
        }
    }
    (0..width - 1).for_each(|feature| a[feature][feature] += l2);
    let mut w = solve(a, b);
    let shift: f64 = w.iter().zip(&means).map(|(w, m)| w * m).sum();
    w[width - 1] -= shift;
    w
}

#[test]
fn least_squares_are_those_of_the_normal_equations() {
    let table = made(300, 7, false);
    let weighted = {
        let weights = (0..300).map(|row| (1 + row % 4) as f32 * 0.5).collect();
        Arc::new(Table { weights, ..Table::clone(&table) })
    };
    for table in [&table, &weighted] {
        for (name, l2) in [("linear-regression", 0.0), ("ridge", 0.3)] {
            let expected = closed_form(table, l2);
            for solver in ["auto", "cholesky", "conjugate-gradient", "lbfgs", "sandblaster"] {
                let penalty = if l2 > 0.0 { format!("l2 = {l2}\n") } else { String::new() };
                let params = format!("{penalty}solver = '{solver}'\ntolerance = 1e-11");
                for table in [Arc::clone(table), sparse(table)] {
                    let found = regress(name, &params, &table).train();
                    close(found.model.f64("weights"), &expected, 1e-6);
                    assert!(found.grade.metrics["r2"] > 0.1, "{:?}", found.grade.metrics);
                }
            }
        }
    }
}

#[test]
fn the_normal_equations_take_a_handful_of_passes() {
    let table = made(500, 20, false);
    let found = regress("linear-regression", "", &table).train();
    // Sums, products, the gradient at the start, the solution, and perhaps one refinement.
    assert!(found.steps <= 5, "{}", found.steps);
}

/// Every way of getting there ends at the same place, with the same bits on one worker and on four.
#[test]
fn full_pass_solvers_agree_and_do_not_depend_on_workers() {
    let (classes, numbers) = (made(257, 6, true), made(257, 6, false));
    let counts = {
        let labels = numbers.labels.iter().map(|y| (0.3 * y).exp().round()).collect();
        Arc::new(Table { labels, ..Table::clone(&numbers) })
    };
    let tight = "l2 = 1e-3\ntolerance = 1e-10\n";
    let jobs = [
        (
            "logistic-regression",
            String::new(),
            &classes,
            vec!["lbfgs", "owlqn", "newton", "sandblaster"],
        ),
        (
            "ridge",
            String::new(),
            &numbers,
            vec!["cholesky", "conjugate-gradient", "lbfgs", "sandblaster"],
        ),
        (
            "generalised-linear",
            "family = 'poisson'\n".to_string(),
            &counts,
            vec!["lbfgs", "newton", "sandblaster"],
        ),
    ];
    for (name, more, table, solvers) in jobs {
        let count = if name == "logistic-regression" { 2 } else { 0 };
        let mut first: Option<Driven> = None;
        for solver in solvers {
            let params = format!("{tight}{more}solver = '{solver}'");
            let job = Job { name, params: &params, table, classes: count };
            let alone = job.run(&Drive::default()).unwrap();
            for workers in [2, 4] {
                let together = job.run(&Drive { workers, ..Drive::default() }).unwrap();
                assert_eq!(
                    alone.model.digest(),
                    together.model.digest(),
                    "{name} {solver} {workers}"
                );
            }
            let best = first.get_or_insert_with(|| alone.clone());
            close(&[alone.grade.objective], &[best.grade.objective], 1e-9);
            close(alone.model.f64("weights"), best.model.f64("weights"), 1e-4);
        }
    }
}

/// What is remembered can be made anew from the rows and the model: a worker that takes over shards goes on as the one
/// that had them.
#[test]
fn a_lost_memory_changes_nothing() {
    let table = made(200, 5, true);
    for (solver, same_bits) in
        [("lbfgs", true), ("newton", true), ("owlqn", true), ("sandblaster", false)]
    {
        let params = format!("solver = '{solver}'\nl2 = 1e-3\ntolerance = 1e-9");
        let job = classify(&params, &table);
        let options = Drive { workers: 2, ..Drive::default() };
        let whole = job.run(&options).unwrap();
        let built = learner(job.name, job.params).unwrap();
        let facts = options.facts(&schema(5, 2), 200);
        let holding = Holding::whole(Arc::clone(&table), options.shards);
        for cut in 1..whole.steps.min(25) {
            let mut run = Run::start(&*built, &facts, &holding, &options).unwrap();
            (0..cut).for_each(|_| assert!(run.step().unwrap()));
            let (steps, model, _) = run.checkpoint();
            let mut run = Run::resume(&*built, &holding, &options, (steps, &model, &Memory::new()));
            while run.step().unwrap() {}
            let resumed = run.finish().unwrap();
            if same_bits {
                assert_eq!(whole.model.digest(), resumed.model.digest(), "{solver} after {cut}");
            } else {
                // The history of a range is gone with its shard: another way to the same optimum.
                close(&[resumed.grade.objective], &[whole.grade.objective], 1e-9);
            }
        }
    }
}

/// Passes over the features, probes that read none, and points accepted.
fn costs(driven: &Driven) -> (i64, i64, i64) {
    let counters = driven.model.i64("descent.counters");
    (counters[6], counters[7], counters[1])
}

/// A line search that needs many probes reads the features twice: at the first length, and where it ends.
#[test]
fn probes_of_a_line_search_read_no_features() {
    let table = made(400, 12, true);
    let mut probed = 0;
    for params in
        ["solver = 'sandblaster'\nl2 = 1e-6", "solver = 'sandblaster'\nl2 = 10.0", "l2 = 1e-7"]
    {
        let found = classify(params, &table).train();
        let (passes, probes, iterations) = costs(&found);
        // Sums, products, the start, and at most two a line.
        assert!(passes <= 3 + 2 * iterations, "{params}: {passes} passes, {iterations} iterations");
        let lines_probed = passes - 3 - iterations;
        assert!(probes == 0 || lines_probed <= iterations, "{params}: {lines_probed}");
        probed += probes;
    }
    assert!(probed > 0, "no search needed a second probe: the test shows nothing");
}

/// Neither the model nor any shard's memory holds the history: a shard has its own range of coordinates.
#[test]
fn sandblaster_keeps_the_history_in_parts() {
    let table = made(200, 37, true);
    let found = classify("solver = 'sandblaster'\nhistory = 4\nl2 = 1e-3", &table).train();
    let numbers = 38;
    for (name, tensor) in found.model.iter() {
        assert!(tensor.values.len() <= 9 * 9 || tensor.values.len() <= 2 * numbers, "{name}");
    }
    let mut covered = 0;
    for (shard, cells) in found.memory.iter() {
        let steps = cells["history.steps"].len();
        assert!(steps <= 4 * 3, "{shard} holds {steps} numbers");
        covered += steps / 4;
    }
    assert_eq!(covered, numbers);
    let plain = classify("solver = 'lbfgs'\nl2 = 1e-3", &table).train();
    close(&[found.grade.objective], &[plain.grade.objective], 1e-8);
}

#[test]
fn correlations_spare_iterations() {
    let table = made(2000, 20, true);
    let iterations = |params: &str| classify(params, &table).train().outcome.iterations.unwrap();
    let (known, unknown) = (iterations("solver = 'lbfgs'"), iterations("solver = 'sandblaster'"));
    assert!(known * 2 < unknown, "{known} with correlations, {unknown} without");
}

#[test]
fn strong_l1_leaves_few_weights_and_none_in_the_end() {
    let table = made(400, 12, true);
    let zeros = |l1: f64| {
        let params = format!("l1 = {l1}\nl2 = 0.0\nstandardise = true\ntolerance = 1e-9");
        let found = classify(&params, &table).train();
        let weights = found.model.f64("weights");
        (weights[..12].iter().filter(|weight| **weight == 0.0).count(), weights[12])
    };
    let (few, some, all) = (zeros(1e-4).0, zeros(0.05).0, zeros(10.0));
    assert!(few < some && some < 12 && all.0 == 12, "{few} {some} {all:?}");
    // With no other weight the intercept is the log-odds.
    let share = table.labels.iter().sum::<f32>() / 400.0;
    close(&[all.1], &[f64::from(share / (1.0 - share)).ln()], 1e-5);
}

/// Doubling a row and doubling its weight are the same; balanced classes are weights by class.
#[test]
fn weights_are_repetitions() {
    let table = made(120, 4, true);
    let Features::Dense { values, width } = &table.features else { unreachable!() };
    let twice = |row: &usize| row.is_multiple_of(3);
    let (mut more, mut labels) = (values.to_vec(), table.labels.clone());
    for row in (0..120).filter(twice) {
        more.extend_from_slice(&values[row * width..(row + 1) * width]);
        labels.push(table.labels[row]);
    }
    let repeated = dense(*width, more, labels);
    let weights = (0..120).map(|row| if twice(&row) { 2.0 } else { 1.0 }).collect();
    let weighted = Arc::new(Table { weights, ..Table::clone(&table) });
    for params in
        ["l2 = 1e-2\ntolerance = 1e-10", "l2 = 1e-2\ntolerance = 1e-10\nsolver = 'newton'"]
    {
        let (a, b) = (classify(params, &repeated).train(), classify(params, &weighted).train());
        close(a.model.f64("weights"), b.model.f64("weights"), 1e-6);
        close(&[a.grade.objective], &[b.grade.objective], 1e-10);
    }
    let ones = table.labels.iter().sum::<f32>();
    let by_class = |label: &f32| if *label > 0.0 { 60.0 / ones } else { 60.0 / (120.0 - ones) };
    let weights = table.labels.iter().map(by_class).collect();
    let by_hand = Arc::new(Table { weights, ..Table::clone(&table) });
    let balanced =
        classify("class_weight = 'balanced'\nl2 = 1e-2\ntolerance = 1e-10", &table).train();
    let found = classify("l2 = 1e-2\ntolerance = 1e-10", &by_hand).train();
    close(balanced.model.f64("weights"), found.model.f64("weights"), 1e-5);
    close(&[balanced.grade.objective], &[found.grade.objective], 1e-7);
}

/// With all rows in a batch the mini-batch solvers are deterministic descent. LAMB's steps are as long as the weights and
/// never end, so it is held to a looser bound and a decay.
#[test]
fn mini_batch_solvers_come_to_the_optimum() {
    let mut rng = Rng::named(3, "isotropic", &[]);
    let values: Vec<f32> = (0..1000).map(|_| rng.normal() as f32).collect();
    let labels =
        values.chunks(5).map(|x| 2.0 * x[0] - x[3] + 0.5 + 0.3 * rng.normal() as f32).collect();
    let table = dense(5, values, labels);
    let best = regress("ridge", "l2 = 0.01", &table).train().grade.objective;
    let options = Drive { batch: 200, epochs: Some(1200), ..Drive::default() };
    for (solver, tolerance) in [
        ("solver = 'sgd'\nlearning_rate = 0.5", 1e-8),
        ("solver = 'momentum'\nlearning_rate = 0.1", 1e-8),
        ("solver = 'nesterov'\nlearning_rate = 0.1", 1e-8),
        ("solver = 'adagrad'\nlearning_rate = 0.5", 1e-6),
        ("solver = 'rmsprop'\nlearning_rate = 0.05\ndecay = 0.05", 1e-3),
        ("solver = 'adam'\nlearning_rate = 0.1\ndecay = 0.01", 1e-6),
        ("solver = 'adamw'\nlearning_rate = 0.1\ndecay = 0.01", 2e-2),
        ("solver = 'lamb'\nlearning_rate = 0.1\ndecay = 0.05", 2e-2),
    ] {
        let params = format!("l2 = 0.01\n{solver}");
        let found = regress("ridge", &params, &table).run(&options).unwrap().grade.objective;
        let excess = found / best - 1.0;
        assert!((-1e-12..tolerance).contains(&excess), "{solver}: {excess}");
    }
}

#[test]
fn columns_that_repeat_others_share_their_weight() {
    let mut rng = Rng::named(5, "twins", &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        let (x, z) = (rng.normal() as f32, rng.normal() as f32);
        values.extend([x, x, z, 7.0]);
        labels.push(3.0 * x - z + 2.0);
    }
    let table = dense(4, values, labels);
    for solver in ["cholesky", "conjugate-gradient", "lbfgs"] {
        let found = regress("linear-regression", &format!("solver = '{solver}'"), &table).train();
        close(found.model.f64("weights"), &[1.5, 1.5, -1.0, 0.0, 2.0], 1e-5);
    }
    // Fewer rows than features: an exact fit, and the shortest.
    let wide = dense(3, vec![1.0, 2.0, 3.0, 2.0, 1.0, -1.0], vec![1.0, 2.0]);
    let found = regress("linear-regression", "", &wide).train();
    assert!(found.grade.objective < 1e-12, "{}", found.grade.objective);
}

#[test]
fn edges_are_learned_or_refused_with_a_reason() {
    // One row, one column, constant columns, extreme scales, rows all alike.
    let one = dense(1, vec![2.0], vec![5.0]);
    let found = regress("linear-regression", "", &one).train();
    close(found.model.f64("weights"), &[0.0, 5.0], 1e-9);
    let alike = dense(2, [3.0, -1.0].repeat(30), vec![4.0; 30]);
    let found = regress("ridge", "", &alike).train();
    close(&[found.grade.objective], &[0.0], 1e-9);
    let Features::Dense { width, values } = &made(300, 4, true).features else { unreachable!() };
    let scaled = |by: f32| {
        let values = values.iter().enumerate().map(|(at, x)| if at % 4 == 1 { x * by } else { *x });
        dense(*width, values.collect(), made(300, 4, true).labels.clone())
    };
    let params = "l2 = 1e-3\nstandardise = true\ntolerance = 1e-9";
    let plain = classify(params, &scaled(1.0)).train();
    for by in [1e-15, 1e15] {
        let found = classify(params, &scaled(by)).train();
        close(&[found.grade.objective], &[plain.grade.objective], 1e-6);
    }
    // One class only, although two are known: no weight is needed.
    let one_class = dense(1, vec![1.0, 2.0, 3.0], vec![1.0; 3]);
    let found = classify("", &one_class).train();
    assert!(found.grade.metrics["accuracy"] == 1.0 && found.grade.objective < 1e-3);

    let refused = |job: &Job<'_>| job.run(&Drive::default()).unwrap_err().to_string();
    let missing = dense(2, vec![1.0, 2.0, f32::NAN, 4.0], vec![0.0, 1.0]);
    let why = refused(&regress("ridge", "", &missing));
    assert!(why.contains("row 1") && why.contains("feature 0"), "{why}");
    let why = refused(&regress(
        "generalised-linear",
        "family = 'poisson'",
        &dense(1, vec![1.0, 2.0], vec![1.0, -1.0]),
    ));
    assert!(why.contains("row 1") && why.contains("numbers from 0"), "{why}");
    let nothing = Arc::new(Table { weights: vec![0.0; 30], ..Table::clone(&alike) });
    assert!(refused(&regress("ridge", "", &nothing)).contains("no row weighs anything"));
    for (name, params, word) in [
        ("logistic-regression", "solver = 'adam'\nl1 = 0.1", "l1 needs a pass"),
        ("logistic-regression", "solver = 'sgd'\nclass_weight = 'balanced'", "class_weight"),
        ("logistic-regression", "solver = 'lbfgs'\nl1 = 0.1", "owlqn"),
        ("generalised-linear", "family = 'tweedie'\npower = 0.5", "no distribution"),
        ("generalised-linear", "family = 'poisson'\nlink = 'logit'", "binomial"),
    ] {
        let why = learner(name, params).err().unwrap().to_string();
        assert!(why.contains(word), "{params}: {why}");
    }
    let many = options_facts(5000);
    let why =
        learner("ridge", "solver = 'cholesky'").unwrap().init(&many, starlings_learn::Place::WHOLE);
    assert!(why.unwrap_err().to_string().contains("conjugate-gradient"));
    assert!(learner("ridge", "").unwrap().init(&many, starlings_learn::Place::WHOLE).is_ok());
}

fn options_facts(features: usize) -> starlings_learn::Facts {
    Drive::default().facts(&schema(features, 0), 10)
}

/// Every link is undone by its graph, and every family learns what it generated.
#[test]
fn families_and_links_learn_their_own_labels() {
    for (family, link) in [
        ("gaussian", "identity"),
        ("gaussian", "log"),
        ("poisson", "log"),
        ("poisson", "identity"),
        ("gamma", "log"),
        ("gamma", "inverse"),
        ("tweedie", "log"),
        ("binomial", "logit"),
        ("binomial", "probit"),
        ("binomial", "cloglog"),
    ] {
        let mut rng = Rng::named(6, "families", &[]);
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let x = [rng.uniform() as f32, rng.uniform() as f32];
            let score = 0.6 + 0.5 * f64::from(x[0]) - 0.3 * f64::from(x[1]);
            let mean = match link {
                "identity" => score,
                "log" => score.exp(),
                "inverse" => 1.0 / score,
                "logit" => 1.0 / (1.0 + (-score).exp()),
                "probit" => 0.5 + 0.5 * (score / 1.253).tanh(),
                _ => 1.0 - (-score.exp()).exp(),
            };
            values.extend(x);
            // Noise that keeps labels possible and their mean right.
            labels.push(
                (mean * if rng.below(2) == 0 { 0.9 } else { 1.1 })
                    .min(1.0 * if family == "binomial" { 1.0 } else { 1e9 }) as f32,
            );
        }
        let table = dense(2, values, labels);
        let params = format!("family = '{family}'\nlink = '{link}'\nl2 = 0.0\ntolerance = 1e-10");
        let best = regress("generalised-linear", &params, &table).train();
        let newton = format!("{params}\nsolver = 'newton'");
        let found = regress("generalised-linear", &newton, &table).train();
        close(found.model.f64("weights"), best.model.f64("weights"), 1e-5);
        if link != "probit" {
            close(best.model.f64("weights"), &[0.5, -0.3, 0.6], 0.08);
        }
        let built = learner("generalised-linear", &params).unwrap();
        let dealer = Dealer::new(Holding::whole(Arc::clone(&table), 1), 1, 1);
        let mut out = Vec::new();
        built.predict(&best.model, &dealer.everything(), &mut out).unwrap();
        let graph = built.graph(&best.model).unwrap();
        let Features::Dense { width, values } = &table.features else { unreachable!() };
        let values = values.iter().map(|x| f64::from(*x)).collect();
        let matrix = starlings_testkit::graph::Matrix { width: *width, values };
        let drawn = starlings_testkit::graph::evaluate(&graph, matrix).unwrap();
        close(&drawn.values, &out, 1e-6);
    }
}
