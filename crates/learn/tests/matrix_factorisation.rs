//! Matrix factorisation against figures from NumPy, its laws over rows and workers, and what it learns.

#![expect(clippy::unwrap_used, reason = "whatever fails here fails the test")]

use flate2::read::GzDecoder;
use starlings_core::{Blame, Body, Model, Rng, Role, Shard, Step, Tensor, Update};
use starlings_data::{
    Batch, Column, ColumnKind, Dealer, Encoding, Features, Holding, Picked, Schema, Slice, Table,
    Target,
};
use starlings_learn::matrix_factorisation::MatrixFactorisation;
use starlings_learn::{LEARNERS, Learner, Memory, Moment, Needs, NoWires, Outbox, Place, Work};
use starlings_testkit::drive::{Drive, drive};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

fn schema(users: usize, items: usize) -> Schema {
    let column = |name: &str, position, count: usize| Column {
        name: name.into(),
        position,
        kind: ColumnKind::Categorical { codes: (0..count).map(|c| c.to_string()).collect() },
        missing: 0,
    };
    Schema {
        columns: vec![column("user", 0, users), column("item", 1, items)],
        encoding: Encoding::Identity,
        features: 2,
        target: Target::Number,
        label: None,
    }
}

fn table(ratings: &[(f32, f32, f32)]) -> Table {
    let values = ratings.iter().flat_map(|&(user, item, _)| [user, item]).collect();
    let labels = ratings.iter().map(|&(.., rating)| rating).collect();
    Table::new(Features::Dense { width: 2, values }, labels)
}

fn everything(table: &Table) -> Batch<'_> {
    let picked = Picked::All(table.rows());
    let slices = vec![Slice { shard: Shard(0), start: 0, origin: 0, picked }];
    Batch { table, slices, rows_step: table.rows() as u64 }
}

fn defaults() -> MatrixFactorisation {
    let entry = LEARNERS.iter().find(|entry| entry.name == "matrix-factorisation").unwrap();
    let params = entry.check("learner", &toml::Table::new()).unwrap();
    MatrixFactorisation::new(&params)
}

fn contribute(learner: &dyn Learner, model: &Model, batch: &Batch<'_>, moment: Moment) -> Update {
    let mut outbox = Outbox::new();
    let mut work = Work {
        moment,
        place: Place::WHOLE,
        model,
        batch,
        memory: &mut Memory::new(),
        wires: &mut NoWires,
        outbox: &mut outbox,
    };
    learner.contribute(&mut work).unwrap();
    outbox.take()
}

fn test_rmse(learner: &dyn Learner, model: &Model, ratings: &[(f32, f32, f32)]) -> f64 {
    let table = table(ratings);
    let mut out = Vec::new();
    learner.predict(model, &everything(&table), &mut out).unwrap();
    let squares = out.iter().zip(&table.labels).map(|(p, r)| (p - f64::from(*r)).powi(2));
    (squares.sum::<f64>() / out.len() as f64).sqrt()
}

fn tiny_ratings() -> Vec<(f32, f32, f32)> {
    let pairs = (0..4u8).flat_map(|u| (0..3u8).map(move |i| (u, i)));
    pairs
        .filter(|(u, i)| (u + i) % 4 != 3)
        .map(|(u, i)| (f32::from(u), f32::from(i), f32::from((u * 2 + i * 3) % 5 + 1)))
        .collect()
}

fn tiny_model() -> Model {
    let users = (0..4).flat_map(|u| {
        let factor = move |c: i32| 0.1 * f64::from((3 * u + 2 * c) % 5 - 2);
        [factor(0), factor(1), 0.0]
    });
    let items = (0..3).flat_map(|i| {
        let factor = move |c: i32| 0.1 * (f64::from((2 * i + c) % 4) - 1.5);
        [factor(0), factor(1), 0.0]
    });
    let mut model = Model::new();
    model.set("users", Tensor::of(&[4, 3], users.collect(), Role::Weight));
    model.set("items", Tensor::of(&[3, 3], items.collect(), Role::Weight));
    model.set("mean", Tensor::of(&[1], vec![0.0], Role::Weight));
    model
}

/// The same rules written with NumPy, 9 ratings in one batch, five passes.
#[test]
fn five_steps_are_those_of_numpy() {
    let learner =
        MatrixFactorisation { rank: 2, learning_rate: 0.1, l2: 0.05, decay: 0.5, deviation: 0.0 };
    let (mut model, table) = (tiny_model(), table(&tiny_ratings()));
    let batch = everything(&table);
    for step in 0..5 {
        let moment = Moment { step: Step(step), pass: step, seed: 1, rows: 9 };
        let update = contribute(&learner, &model, &batch, moment);
        learner.apply(&mut model, &update, &moment).unwrap();
    }
    let near = |found: f64, reference: f64| {
        assert!((found - reference).abs() < 1e-12, "{found}, not {reference}");
    };
    near(model.f64("mean")[0], 2.783927529086489);
    near(model.f64("users")[0], -0.1296239118106303);
    near(model.f64("users")[11], 0.3925383076320863);
    near(model.f64("items")[4], 0.18760467423945879);
    near(model.f64("items")[8], -0.3443412344899384);
    let moment = Moment { step: Step(5), pass: 5, seed: 1, rows: 9 };
    let mut work = Work {
        moment,
        place: Place::WHOLE,
        model: &model,
        batch: &batch,
        memory: &mut Memory::new(),
        wires: &mut NoWires,
        outbox: &mut Outbox::new(),
    };
    let grade = learner.grade(&model, &learner.score(&mut work).unwrap(), 9);
    near(grade.metrics["rmse"], 1.34834974760984);
    near(grade.objective, 1.8273827497852209);
}

#[test]
fn an_update_applied_row_by_row_changes_what_the_whole_update_changes() {
    let learner = MatrixFactorisation { rank: 2, ..defaults() };
    let (start, table) = (tiny_model(), table(&tiny_ratings()));
    let moment = Moment { step: Step(3), pass: 1, seed: 1, rows: 9 };
    let update = contribute(&learner, &start, &everything(&table), moment);
    let mut whole = start.clone();
    learner.apply(&mut whole, &update, &moment).unwrap();
    assert_ne!(whole.f64("users"), start.f64("users"));
    // Each owner has the blocks cut to its rows, in any order of owners.
    let mut parts = start.clone();
    for owner in [2, 0, 3, 1] {
        let mut part = update.clone();
        for block in &mut part.blocks {
            let Body::Rows(rows) = &mut block.body else { panic!("'{}' is dense", block.name) };
            assert!(rows.is_sound() && start.get(&block.name).is_some());
            *rows = rows.range(owner, owner + 1);
        }
        learner.apply(&mut parts, &part, &moment).unwrap();
    }
    assert_eq!(parts, whole);
}

#[test]
fn needs_are_exactly_the_rows_that_the_update_touches() {
    let learner = MatrixFactorisation { rank: 2, ..defaults() };
    let (model, all) = (tiny_model(), table(&tiny_ratings()));
    let slices =
        vec![Slice { shard: Shard(0), start: 0, origin: 0, picked: Picked::Some(vec![8, 0]) }];
    let batch = Batch { table: &all, slices, rows_step: 2 };
    let moment = Moment { step: Step(0), pass: 0, seed: 1, rows: 2 };
    let update = contribute(&learner, &model, &batch, moment);
    let touched: BTreeMap<String, Vec<u32>> = ["users", "items", "mean"]
        .map(|name| (name.to_string(), update.rows(name).unwrap().index.clone()))
        .into();
    assert_eq!(touched["users"], [0, 3]);
    assert_eq!(learner.needs(&model, &batch), Needs::Rows(touched));
}

#[test]
fn workers_together_learn_what_one_learns() {
    let ratings = low_rank(60, 40, 4);
    let learner = MatrixFactorisation { rank: 4, ..defaults() };
    let holding = Holding::whole(Arc::new(table(&ratings)), 16);
    let run = |workers| {
        let options = Drive { workers, batch: 64, epochs: Some(3), ..Drive::default() };
        let facts = options.facts(&schema(60, 40), ratings.len() as u64);
        drive(&learner, &facts, &holding, &options).unwrap().grade.objective
    };
    let alone = run(1);
    for workers in [2, 4] {
        assert!((run(workers) / alone - 1.0).abs() < 1e-9);
    }
}

/// All ratings of a matrix of low rank with noise of deviation 0.1, every tenth left for testing.
fn low_rank(users: usize, items: usize, rank: usize) -> Vec<(f32, f32, f32)> {
    let mut rng = Rng::named(4, "low rank", &[]);
    let mut normals = |count: usize| -> Vec<f64> { (0..count).map(|_| rng.normal()).collect() };
    let (p, q) = (normals(users * rank), normals(items * rank));
    let (b, c, noise) = (normals(users), normals(items), normals(users * items));
    let mut ratings = Vec::new();
    for u in 0..users {
        for i in 0..items {
            let product: f64 = (0..rank).map(|f| p[u * rank + f] * q[i * rank + f]).sum();
            let rating = 3.5 + 0.5 * (b[u] + c[i]) + 0.5 * product + 0.1 * noise[u * items + i];
            ratings.push((u as f32, i as f32, rating as f32));
        }
    }
    ratings
}

#[test]
fn a_low_rank_matrix_is_learned_to_the_level_of_its_noise() {
    let all = low_rank(120, 100, 3);
    let (test, train): (Vec<_>, Vec<_>) =
        all.iter().enumerate().partition(|(place, _)| (place / 100 + place % 100) % 10 == 3);
    let pick = |part: Vec<(usize, &(f32, f32, f32))>| -> Vec<_> {
        part.into_iter().map(|(_, rating)| *rating).collect()
    };
    let (train, test) = (pick(train), pick(test));
    let learner = MatrixFactorisation {
        rank: 4,
        learning_rate: 0.05,
        l2: 0.002,
        decay: 0.02,
        deviation: 0.1,
    };
    let options = Drive { workers: 2, batch: 256, epochs: Some(60), ..Drive::default() };
    let facts = options.facts(&schema(120, 100), train.len() as u64);
    let holding = Holding::whole(Arc::new(table(&train)), options.shards);
    let driven = drive(&learner, &facts, &holding, &options).unwrap();
    let rmse = test_rmse(&learner, &driven.model, &test);
    assert!(rmse < 0.12, "{rmse}");
    assert!(driven.grade.metrics["rmse"] < 0.11, "{:?}", driven.grade);
}

#[test]
fn unknown_users_and_items_fall_back_to_what_is_known() {
    let learner = MatrixFactorisation { rank: 2, ..defaults() };
    let mut model = tiny_model();
    model.f64_mut("mean")[0] = 3.0;
    model.f64_mut("users")[5] = 0.5;
    model.f64_mut("items")[8] = -0.25;
    let unknown = f32::NAN;
    let asked = table(&[
        (1.0, unknown, 0.0),
        (unknown, 2.0, 0.0),
        (unknown, unknown, 0.0),
        (1.0, 7.0, 0.0),
    ]);
    let mut out = Vec::new();
    learner.predict(&model, &everything(&asked), &mut out).unwrap();
    assert_eq!(out, [3.5, 2.75, 3.0, 3.5]);
}

#[test]
fn a_start_of_a_row_depends_on_seed_and_row_alone() {
    let learner = defaults();
    let init = |users, items, seed| {
        let options = Drive { seed, ..Drive::default() };
        learner.init(&options.facts(&schema(users, items), 10), Place::WHOLE).unwrap()
    };
    let (small, large) = (init(3, 5, 1), init(8, 2, 1));
    assert_eq!(small.f64("users"), &large.f64("users")[..3 * 17]);
    assert_eq!(large.f64("items"), &small.f64("items")[..2 * 17]);
    assert_ne!(small.f64("users"), init(3, 5, 2).f64("users"));
}

#[test]
fn rows_that_are_not_pairs_are_refused_with_advice() {
    let schema = Schema { features: 3, ..schema(2, 2) };
    let fault = defaults().init(&Drive::default().facts(&schema, 5), Place::WHOLE).unwrap_err();
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.advice().is_some_and(|hint| hint.contains("features")), "{fault}");
}

#[test]
fn a_rate_that_diverges_is_reported() {
    let learner = MatrixFactorisation { rank: 2, learning_rate: 0.5, ..defaults() };
    let (mut model, table) = (tiny_model(), table(&tiny_ratings()));
    model.f64_mut("users").fill(1e3);
    let dealer = Dealer::new(Holding::whole(Arc::new(table), 1), 1, 9);
    let batch = dealer.everything();
    let fault = (0..400).find_map(|step| {
        let moment = Moment { step: Step(step), pass: 0, seed: 1, rows: 9 };
        let update = contribute(&learner, &model, &batch, moment);
        learner.apply(&mut model, &update, &moment).err()
    });
    assert!(fault.unwrap().to_string().contains("learning_rate"));
}

/// MovieLens latest-small, where it is present: nine tenths to learn, one to test.
#[test]
fn movie_ratings_are_predicted_as_well_as_by_sequential_descent() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/data/movielens_latest_small_ratings.csv.gz"
    );
    let Ok(file) = std::fs::File::open(path) else { return };
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut codes = [BTreeMap::new(), BTreeMap::new()];
    let mut ratings: Vec<(f32, f32, f32)> = Vec::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let mut code = |side: usize| {
            let next = codes[side].len();
            *codes[side].entry(fields[side].to_string()).or_insert(next) as f32
        };
        ratings.push((code(0), code(1), fields[2].parse().unwrap()));
    }
    assert_eq!(ratings.len(), 100_836);
    Rng::named(1, "split", &[]).shuffle(&mut ratings);
    let (test, train) = ratings.split_at(10_084);
    let options = Drive { batch: 512, epochs: Some(20), ..Drive::default() };
    let facts = options.facts(&schema(codes[0].len(), codes[1].len()), train.len() as u64);
    let holding = Holding::whole(Arc::new(table(train)), options.shards);
    let driven = drive(&defaults(), &facts, &holding, &options).unwrap();
    let rmse = test_rmse(&defaults(), &driven.model, test);
    assert!(rmse < 0.86, "{rmse}");
}

#[test]
fn steps_that_accrue_move_the_mean_as_far_as_each_of_them_would() {
    let learner = defaults();
    let table = table(&[(0.0, 0.0, 4.0), (1.0, 1.0, 2.0), (0.0, 1.0, 3.0)]);
    let facts = Drive::default().facts(&schema(2, 2), 3);
    let fresh = learner.init(&facts, Place::WHOLE).unwrap();
    let moment = |step| Moment { step: Step(step), pass: 0, seed: 1, rows: 3 };
    let updates: Vec<Update> = (0..4)
        .map(|step| contribute(&learner, &fresh, &everything(&table), moment(step)))
        .collect();
    let mut apart = fresh.clone();
    for (step, update) in (0..).zip(&updates) {
        learner.apply(&mut apart, update, &moment(step)).unwrap();
    }
    let mut sum = updates[0].clone();
    let still = |name: &&str| {
        let rows = sum.rows(name).unwrap();
        rows.values.as_f64().unwrap().iter().all(|&number| number == 0.0)
    };
    assert!(["users", "items"].iter().all(still), "the first step only finds the mean");
    updates[1..].iter().for_each(|update| sum.fold(update).unwrap());
    let mut together = fresh.clone();
    learner.apply(&mut together, &sum, &moment(3)).unwrap();
    let means = [apart.f64("mean")[0], together.f64("mean")[0]];
    assert!((means[0] - means[1]).abs() < 1e-12 && means[0] > 1.0, "{means:?}");
}
