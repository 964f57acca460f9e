//! The algorithms of k-means: the clusters of Lloyd's iterations from fewer distances, and mini-batches.

use super::{built, close, dense, digits, fit, fitted, iris, sparse};
use starlings_core::Rng;
use starlings_data::{Batch, Dealer, Holding, Table};
use starlings_learn::k_means::{Algorithm, KMeans, Seeding};
use starlings_learn::{Cells, Learner, Memory, Moment, NoWires, Outbox, Place, Work};
use starlings_testkit::drive::{Drive, Driven, Run};
use std::sync::Arc;

fn blobs(rows: usize, count: usize, width: usize) -> Table {
    let mut rng = Rng::named(11, "blobs", &[]);
    let centres: Vec<f64> = (0..count * width).map(|_| 6.0 * rng.normal()).collect();
    let value = |at: usize, rng: &mut Rng| {
        (centres[at / width % count * width + at % width] + rng.normal()) as f32
    };
    dense(width, (0..rows * width).map(|at| value(at, &mut rng)).collect())
}

fn learner(k: usize, algorithm: Algorithm) -> KMeans {
    let seeding = Seeding::First;
    KMeans { algorithm, seeding, tolerance: 0.0, ..KMeans::with_centres(k, vec![]) }
}

fn same(found: &Driven, wanted: &Driven) {
    close(&[found.grade.objective], &[wanted.grade.objective], 1e-9);
    close(found.model.f64("centres"), wanted.model.f64("centres"), 1e-9);
    assert_eq!(found.outcome.iterations, wanted.outcome.iterations);
}

#[test]
fn bounds_give_the_clusters_of_lloyd_from_fewer_distances() {
    for (table, k) in
        [(blobs(3000, 20, 8), 20), (digits(), 10), (sparse(&digits()), 10), (iris(), 3)]
    {
        let lloyd = fit(&learner(k, Algorithm::Lloyd), &table, 1);
        let computed = |driven: &Driven| driven.model.i64("distances")[0];
        let all = lloyd.outcome.iterations.unwrap() as i64 * (table.rows() * k) as i64;
        assert_eq!(computed(&lloyd), all);
        for algorithm in [Algorithm::Elkan, Algorithm::Hamerly] {
            for workers in [1, 3] {
                let bounded = fit(&learner(k, algorithm), &table, workers);
                same(&bounded, &lloyd);
                assert!(
                    computed(&bounded) < all * 2 / 3,
                    "{algorithm:?}: {} of {all}",
                    computed(&bounded)
                );
            }
        }
    }
}

#[test]
fn elkan_spares_more_than_hamerly_where_centres_are_many() {
    let table = blobs(4000, 50, 16);
    let computed = |algorithm| fit(&learner(50, algorithm), &table, 1).model.i64("distances")[0];
    assert!(computed(Algorithm::Elkan) < computed(Algorithm::Hamerly));
}

#[test]
fn a_shard_that_moves_takes_its_first_iteration_in_full_and_ends_the_same() {
    let table = Arc::new(blobs(600, 8, 4));
    let options = Drive { workers: 2, ..Drive::default() };
    let holding = Holding::whole(Arc::clone(&table), options.shards);
    for algorithm in [Algorithm::Elkan, Algorithm::Hamerly] {
        let learner = learner(8, algorithm);
        let facts = options.facts(&super::schema(&table), 600);
        let mut run = Run::start(&learner, &facts, &holding, &options).unwrap();
        (0..4).for_each(|_| assert!(run.step().unwrap()));
        let (steps, model, _) = run.checkpoint();
        let mut moved = Run::resume(&learner, &holding, &options, (steps, &model, &Memory::new()));
        while run.step().unwrap() {}
        while moved.step().unwrap() {}
        same(&moved.finish().unwrap(), &run.finish().unwrap());
    }
}

#[test]
fn contributing_twice_in_one_step_changes_nothing() {
    let table = Arc::new(blobs(300, 6, 3));
    let options = Drive::default();
    let holding = Holding::whole(Arc::clone(&table), options.shards);
    for algorithm in [Algorithm::Elkan, Algorithm::Hamerly] {
        let learner = learner(6, algorithm);
        let facts = options.facts(&super::schema(&table), 300);
        let mut run = Run::start(&learner, &facts, &holding, &options).unwrap();
        (0..3).for_each(|_| assert!(run.step().unwrap()));
        let (steps, model, mut memory) = run.checkpoint();
        let dealer = Dealer::new(holding.clone(), 1, 1);
        let batch = dealer.everything();
        let once = sums(&learner, (&model, steps), &batch, &mut memory);
        let remembered = memory.clone();
        assert_eq!(sums(&learner, (&model, steps), &batch, &mut memory), once);
        assert_eq!(memory, remembered);
    }
}

fn sums(
    learner: &KMeans,
    (model, steps): (&starlings_core::Model, u64),
    batch: &Batch<'_>,
    memory: &mut Memory,
) -> Vec<f64> {
    let moment =
        Moment { step: starlings_core::Step(steps), pass: 0, seed: 1, rows: batch.rows_step };
    let mut outbox = Outbox::new();
    let work = &mut Work {
        moment,
        place: Place::WHOLE,
        model,
        batch,
        memory,
        wires: &mut NoWires,
        outbox: &mut outbox,
    };
    learner.contribute(work).unwrap();
    outbox.take().f64("sums").to_vec()
}

#[test]
fn bounds_survive_centres_without_rows() {
    let values = vec![49.75, 0.0, 50.0, 50.25, 100.5, 50.5];
    for algorithm in [Algorithm::Elkan, Algorithm::Hamerly] {
        let start = KMeans::with_centres(3, vec![10.0, -500.0, -600.0]);
        let driven = fit(&KMeans { algorithm, ..start }, &dense(1, values.clone()), 2);
        assert_eq!(driven.grade.objective, 0.3125);
    }
}

#[test]
fn memory_is_adopted_empty() {
    let table = Arc::new(iris());
    let learner = learner(3, Algorithm::Hamerly);
    let options = Drive::default();
    let model = learner.init(&options.facts(&super::schema(&table), 150), Place::WHOLE).unwrap();
    let dealer = Dealer::new(Holding::whole(Arc::clone(&table), 4), 1, 1);
    let batch = dealer.everything();
    let mut cells = Cells::new();
    learner.adopt(&model, &batch, &batch.slices[0], &mut cells);
    assert!(cells.is_empty());
}

#[test]
fn mini_batches_come_near_to_lloyd_and_every_centre_is_the_mean_of_what_it_saw() {
    let table = blobs(4000, 10, 6);
    let whole = fit(&*built("k-means", "k = 10"), &table, 1);
    for params in
        ["k = 10\nalgorithm = 'mini-batch'", "k = 10\nalgorithm = 'mini-batch'\nseeding = 'random'"]
    {
        let learner = built("k-means", params);
        let run = |workers| {
            let options = Drive { workers, batch: 100, epochs: Some(4), ..Drive::default() };
            fitted(&*learner, &table, &options).unwrap()
        };
        let alone = run(1);
        let worse = alone.grade.objective / whole.grade.objective;
        let bound = if params.contains("random") { 30.0 } else { 1.1 };
        assert!((0.99..bound).contains(&worse), "{params}: {worse}");
        close(run(3).model.f64("centres"), alone.model.f64("centres"), 1e-9);
        // All batches but those of the sample were seen, each row as one.
        let seen: f64 = alone.model.f64("seen").iter().sum();
        assert!((seen - (4.0 * 4000.0 - 1000.0)).abs() < 1e-6, "{seen}");
    }
}

#[test]
fn a_mini_batch_moves_a_centre_by_one_over_what_it_has_seen() {
    let learner =
        KMeans { algorithm: Algorithm::MiniBatch, ..KMeans::with_centres(2, vec![0.0, 100.0]) };
    let table = dense(1, vec![3.0, 90.0, 5.0, 96.0]);
    let options = Drive { batch: 4, epochs: Some(2), ..Drive::default() };
    let driven = fitted(&learner, &table, &options).unwrap();
    // Sculley's rule, row by row: the mean of all that was seen, twice the same rows.
    close(driven.model.f64("centres"), &[4.0, 93.0], 1e-12);
    assert_eq!(driven.model.f64("seen"), [4.0, 4.0]);
    let first = fitted(&learner, &table, &Drive { batch: 2, epochs: Some(1), ..options }).unwrap();
    close(first.model.f64("centres"), &[4.0, 93.0], 1e-12);
}

#[test]
fn mini_batches_have_no_first_rows() {
    let learner = built("k-means", "k = 2\nalgorithm = 'mini-batch'\nseeding = 'first'");
    let fault = super::refused(&*learner, &iris());
    assert!(fault.to_string().contains("random order") && fault.advice().is_some(), "{fault}");
}
