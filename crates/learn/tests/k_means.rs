//! k-means against scikit-learn's figures, and its laws over workers. The figures are those of
//! `KMeans(k, init=…, n_init=1, algorithm="lloyd")` of scikit-learn 1.9.1 on the same rows.

#![expect(clippy::unwrap_used, reason = "whatever fails here fails the test")]

use starlings_core::{Blame, Model, Rng, Shard, Step, Values};
use starlings_data::{
    Batch, Dealer, Encoding, Features, Holding, Picked, Schema, Slice, Table, Target,
};
use starlings_learn::k_means::{KMeans, Sampling, Seeding};
use starlings_learn::{Cells, Learner, Memory, Moment, NoWires, Outbox, Outcome, Place, Work};
use starlings_testkit::drive::{Drive, Driven, Run, drive};
use std::sync::Arc;

const SCALABLE: Seeding = Seeding::Scalable(Sampling { oversampling: 2.0, rounds: 5 });

fn schema(features: usize) -> Schema {
    let encoding = Encoding::OneHot;
    Schema { columns: vec![], encoding, features, target: Target::None, label: None }
}

fn dense(width: usize, values: Vec<f32>) -> Table {
    Table::new(Features::Dense { width, values }, vec![])
}

fn sparse(table: &Table) -> Table {
    let Features::Dense { width, values } = &table.features else { panic!("dense") };
    let (mut starts, mut columns, mut entries) = (vec![0], vec![], vec![]);
    for row in values.chunks(*width) {
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            entries.push(*value);
        }
        starts.push(columns.len());
    }
    Table::new(Features::Sparse { width: *width, starts, columns, values: entries }, vec![])
}

fn iris() -> Table {
    let text = include_str!("assets/iris.csv");
    let values = text.lines().skip(1).flat_map(|line| line.split(',').take(4));
    dense(4, values.map(|number| number.parse().unwrap()).collect())
}

/// Rows from whole-number arithmetic, the same in any language.
fn generated() -> Table {
    let value = |i: u64, j: u64| {
        let h = (i * 7919 + j * 104_729 + i * j * 31 + (i * i) % 1009 * 17) % 4001;
        let group = i % 7;
        h as f64 / 100.0 + if group % 5 == j { group as f64 * 9.0 } else { 0.0 }
    };
    dense(5, (0..2000).flat_map(|i| (0..5).map(move |j| value(i, j) as f32)).collect())
}

/// `rows` rows around `count` centres that lie far apart.
fn blobs(rows: usize, count: usize, width: usize) -> Table {
    let mut rng = Rng::named(11, "blobs", &[]);
    let centres: Vec<f64> = (0..count * width).map(|_| 20.0 * rng.normal()).collect();
    let mut values = Vec::new();
    for row in 0..rows {
        for feature in 0..width {
            values.push((centres[row % count * width + feature] + rng.normal()) as f32);
        }
    }
    dense(width, values)
}

fn first_rows(table: &Table, rows: &[usize]) -> Vec<f64> {
    let points = rows.iter().flat_map(|&row| table.dense_rows(row, row + 1).unwrap());
    points.map(|&x| f64::from(x)).collect()
}

fn fit(learner: &KMeans, table: Table, options: &Drive) -> Driven {
    let facts = options.facts(&schema(table.width()), table.rows() as u64);
    drive(learner, &facts, &Holding::whole(Arc::new(table), options.shards), options).unwrap()
}

fn close(found: f64, reference: f64) {
    assert!((found / reference - 1.0).abs() < 1e-6, "{found}, not {reference}");
}

#[test]
fn iris_has_the_inertia_of_scikit_learn_after_every_iteration() {
    let learner = KMeans::with_centres(3, first_rows(&iris(), &[0, 50, 100]));
    let figures = [
        (1, 1, 82.45357235975663),
        (2, 2, 78.94269600491099),
        (3, 3, 78.85143964425953),
        (100, 4, 78.85143964425953),
    ];
    for (limit, iterations, inertia) in figures {
        for workers in [1, 3] {
            let options = Drive { workers, epochs: Some(limit), ..Drive::default() };
            let driven = fit(&learner, iris(), &options);
            close(driven.grade.objective, inertia);
            assert_eq!(driven.outcome.iterations, Some(iterations));
        }
    }
}

#[test]
fn the_first_rows_as_centres_end_where_scikit_learn_ends() {
    let learner = KMeans { seeding: Seeding::First, ..KMeans::with_centres(7, vec![]) };
    for (limit, iterations, inertia) in [(5, 5, 1181134.469964036), (100, 27, 1178169.5299971756)] {
        let options = Drive { workers: 2, epochs: Some(limit), ..Drive::default() };
        let driven = fit(&learner, generated(), &options);
        close(driven.grade.objective, inertia);
        assert_eq!(driven.outcome.iterations, Some(iterations));
    }
}

#[test]
fn sparse_rows_give_the_clusters_of_the_same_dense_rows() {
    let learner = KMeans { seeding: SCALABLE, ..KMeans::with_centres(7, vec![]) };
    let dense = fit(&learner, generated(), &Drive::default());
    let sparse = fit(&learner, sparse(&generated()), &Drive { workers: 4, ..Drive::default() });
    close(sparse.grade.objective, dense.grade.objective);
}

/// The model and what is remembered when the phase of the weights begins: all candidates are there.
fn candidates(workers: u32, table: &Arc<Table>) -> Vec<f64> {
    let learner = KMeans { seeding: SCALABLE, ..KMeans::with_centres(10, vec![]) };
    let options = Drive { workers, ..Drive::default() };
    let facts = options.facts(&schema(table.width()), table.rows() as u64);
    let holding = Holding::whole(Arc::clone(table), options.shards);
    let mut run = Run::start(&learner, &facts, &holding, &options).unwrap();
    let mut found = Vec::new();
    while let Some(tensor) = {
        run.step().unwrap();
        let model: Model = run.checkpoint().1;
        model.get("candidates").cloned()
    } {
        found = tensor.values.as_f64().unwrap().to_vec();
    }
    found
}

#[test]
fn any_number_of_workers_draws_the_same_candidates() {
    let table = Arc::new(blobs(3000, 10, 6));
    let alone = candidates(1, &table);
    let count = alone.len() / 6;
    assert!((50..200).contains(&count), "{count}");
    for workers in [2, 4] {
        assert_eq!(candidates(workers, &table), alone);
    }
}

#[test]
fn scalable_seeding_beats_random_rows_on_separated_blobs() {
    let mean = |seeding: Seeding| -> f64 {
        let learner = KMeans { seeding, ..KMeans::with_centres(15, vec![]) };
        let run = |seed| fit(&learner, blobs(1500, 15, 4), &Drive { seed, ..Drive::default() });
        (1..=10).map(|seed| run(seed).grade.objective).sum::<f64>() / 10.0
    };
    let (scalable, random) = (mean(SCALABLE), mean(Seeding::Random));
    // 1500 rows of 4 features with variance 1, less what 15 means take up.
    assert!(scalable < 1.1 * (1500.0 - 15.0) * 4.0, "{scalable}");
    assert!(random > 2.0 * scalable, "{random} {scalable}");
}

#[test]
fn a_shard_adopted_late_is_remembered_as_if_it_had_always_been_held() {
    let learner = KMeans { seeding: SCALABLE, ..KMeans::with_centres(6, vec![]) };
    let options = Drive::default();
    let table = Arc::new(blobs(500, 6, 3));
    let holding = Holding::whole(Arc::clone(&table), options.shards);
    let facts = options.facts(&schema(3), 500);
    let mut run = Run::start(&learner, &facts, &holding, &options).unwrap();
    let dealer = Dealer::new(holding.clone(), 1, 1);
    let batch = dealer.everything();
    for _ in 0..9 {
        run.step().unwrap();
        let (_, model, memory) = run.checkpoint();
        for slice in &batch.slices {
            let mut cells = Cells::new();
            learner.adopt(&model, &batch, slice, &mut cells);
            let (_, held) = memory.iter().find(|(shard, _)| *shard == slice.shard).unwrap();
            assert_eq!(&cells, held);
        }
    }
}

#[test]
fn centres_without_rows_move_to_the_farthest_rows() {
    // Two centres start in a place where they lose every row to the third; two rows lie far away.
    let values = vec![49.75, 0.0, 50.0, 50.25, 100.5, 50.5];
    let learner = KMeans::with_centres(3, vec![10.0, -500.0, -600.0]);
    for workers in [1, 4] {
        let driven =
            fit(&learner, dense(1, values.clone()), &Drive { workers, ..Drive::default() });
        let mut centres = driven.model.f64("centres").to_vec();
        centres.sort_by(f64::total_cmp);
        assert_eq!(centres, [0.0, 50.125, 100.5]);
        assert_eq!(driven.grade.objective, 0.3125);
    }
}

#[test]
fn as_many_centres_as_different_rows_leave_no_inertia() {
    let values: Vec<f32> = (0..40).map(|i| (i % 4) as f32 * 10.0).collect();
    for seeding in [SCALABLE, Seeding::Random] {
        for k in [4, 6] {
            let learner = KMeans { seeding: seeding.clone(), ..KMeans::with_centres(k, vec![]) };
            let driven = fit(&learner, dense(1, values.clone()), &Drive::default());
            assert_eq!(driven.grade.objective, 0.0, "{k} {seeding:?}");
        }
    }
}

#[test]
fn predictions_are_the_nearest_centre_and_the_squared_distance() {
    let learner = KMeans::with_centres(2, vec![0.0, 0.0, 10.0, 0.0]);
    let options = Drive::default();
    let model = learner.init(&options.facts(&schema(2), 4), Place::WHOLE).unwrap();
    let table = dense(2, vec![1.0, 2.0, 9.0, 0.0, 4.0, 3.0, 6.0, 0.0]);
    let picked = Picked::Some(vec![2, 0, 1]);
    let slices = vec![Slice { shard: Shard(0), start: 0, origin: 0, picked }];
    let mut out = vec![];
    learner.predict(&model, &Batch { table: &table, slices, rows_step: 3 }, &mut out).unwrap();
    assert_eq!(out, [0.0, 25.0, 0.0, 5.0, 1.0, 1.0]);
    assert_eq!(learner.outputs(&model), 2);
}

#[test]
fn fewer_rows_than_clusters_are_refused_with_advice() {
    let learner = KMeans { seeding: Seeding::First, ..KMeans::with_centres(5, vec![]) };
    let fault = learner.init(&Drive::default().facts(&schema(2), 4), Place::WHOLE).unwrap_err();
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.to_string().contains("5 clusters cannot be made of 4 rows"), "{fault}");
    assert!(fault.advice().is_some());
}

#[test]
fn a_worker_without_rows_emits_the_same_blocks() {
    let learner = KMeans { seeding: SCALABLE, ..KMeans::with_centres(2, vec![]) };
    let options = Drive { workers: 4, shards: 16, ..Drive::default() };
    // Three rows on sixteen shards: the fourth worker has none.
    let driven = fit(&learner, dense(1, vec![1.0, 2.0, 9.0]), &options);
    close(driven.grade.objective, 0.5);
}

#[test]
fn contributing_twice_in_one_step_changes_nothing() {
    let learner = KMeans { seeding: SCALABLE, ..KMeans::with_centres(4, vec![]) };
    let options = Drive::default();
    let holding = Holding::whole(Arc::new(blobs(200, 4, 2)), options.shards);
    let dealer = Dealer::new(holding, 1, 1);
    let batch = dealer.everything();
    let mut model = learner.init(&options.facts(&schema(2), 200), Place::WHOLE).unwrap();
    let mut memory = Memory::new();
    for slice in &batch.slices {
        let mut cells = Cells::new();
        learner.adopt(&model, &batch, slice, &mut cells);
        memory.insert(slice.shard, cells);
    }
    let mut outcome = Outcome::default();
    for step in 0.. {
        let moment = Moment { step: Step(step), pass: 0, seed: 1, rows: 200 };
        let mut contribute = || {
            let mut outbox = Outbox::new();
            let mut work = Work {
                moment,
                place: Place::WHOLE,
                model: &model,
                batch: &batch,
                memory: &mut memory,
                wires: &mut NoWires,
                outbox: &mut outbox,
            };
            learner.contribute(&mut work).unwrap();
            outbox.take()
        };
        let update = contribute();
        assert_eq!(update, contribute());
        outcome = learner.apply(&mut model, &update, &moment).unwrap();
        if outcome.done {
            break;
        }
    }
    assert!(outcome.iterations.unwrap() >= 1);
    assert!(memory.iter().all(|(_, cells)| cells.values().all(Values::is_empty)));
}
