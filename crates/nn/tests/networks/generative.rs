//! Networks that make rows, and vectors of tokens.

use crate::world::{contribution, f32s, facts, moment, network, table};
use starlings_core::{Model, Rng, Step, Values};
use starlings_data::{Features, Holding, Table};
use starlings_learn::{Learner, Moment, Place};
use starlings_testkit::conformance::learner::check_within;
use starlings_testkit::drive::{Drive, drive};
use std::sync::Arc;

fn trained(learner: &dyn Learner, table: &Table, epochs: u64) -> Model {
    let options = Drive { epochs: Some(epochs), batch: 64, workers: 2, ..Drive::default() };
    let holding = Holding::whole(Arc::new(table.clone()), options.shards);
    let facts = options.facts(&facts(table, 0).schema, table.rows() as u64);
    drive(learner, &facts, &holding, &options).unwrap().model
}

/// A cloud around (0.7, 0.2).
fn cloud() -> Table {
    let mut rng = Rng::named(4, "cloud", &[]);
    let mut number = |middle: f64| (middle + 0.05 * rng.normal()) as f32;
    let values = (0..512).flat_map(|_| [number(0.7), number(0.2)]).collect();
    table(2, values, vec![])
}

fn means(rows: &[f32]) -> [f32; 2] {
    let count = (rows.len() / 2) as f32;
    [0, 1].map(|at| rows.iter().skip(at).step_by(2).sum::<f32>() / count)
}

#[test]
fn a_gan_makes_rows_like_those_it_saw() {
    let learner = network(
        "gan",
        "hidden = [16]\ncode = 4\nlearning_rate = 0.01\nbeta1 = 0.5\nactivation = 'tanh'",
    )
    .unwrap();
    let rows = cloud();
    let before = learner.init(&facts(&rows, 0), Place::WHOLE).unwrap();
    let off = |model: &Model| {
        let [x, y] = means(&learner.samples(model, 500, 1).unwrap().values);
        (x - 0.7).abs() + (y - 0.2).abs()
    };
    let after = trained(&*learner, &rows, 40);
    assert!(off(&before) > 0.25, "{}", off(&before));
    assert!(off(&after) < 0.1, "{}", off(&after));
    let again = learner.samples(&after, 500, 1).unwrap();
    assert_eq!(again, learner.samples(&after, 500, 1).unwrap());
    assert_ne!(again, learner.samples(&after, 500, 2).unwrap());
}

#[test]
fn the_two_networks_of_a_gan_take_turns() {
    let learner = network("gan", "hidden = [4]\ncode = 2\nrounds = 2").unwrap();
    let rows = cloud();
    let mut model = learner.init(&facts(&rows, 0), Place::WHOLE).unwrap();
    let mut turns = Vec::new();
    for step in 0..6 {
        let now = Moment { step: Step(step), ..moment(rows.rows() as u64) };
        let all = crate::world::batch(&rows, &[256, 256]);
        let update = crate::world::contribution_at(&*learner, &model, &all, now).unwrap();
        let names: Vec<&str> = update.blocks.iter().map(|block| block.name.as_str()).collect();
        let of = |prefix: &str| names.iter().filter(|name| name.starts_with(prefix)).count();
        assert!(of("generator.") == 0 || of("discriminator.") == 0, "{names:?}");
        let before = model.clone();
        let told = learner.apply(&mut model, &update, &now).unwrap();
        assert_eq!(told.objective.is_some(), of("discriminator.") > 0);
        let moved = |prefix: &str| {
            model
                .iter()
                .any(|(name, tensor)| name.starts_with(prefix) && Some(tensor) != before.get(name))
        };
        turns.push((moved("generator."), moved("discriminator.")));
    }
    let (makes, tells) = ((true, false), (false, true));
    assert_eq!(turns, [tells, tells, makes, tells, tells, makes]);
    let patient = network("gan", "patience = 3").err().unwrap().to_string();
    assert!(patient.contains("patience"), "{patient}");
}

fn gan_obeys(settings: &str) {
    let learner = network("gan", &format!("hidden = [4]\ncode = 2\n{settings}")).unwrap();
    check_within(&*learner, &|_| true, 1e-5).unwrap_or_else(|law| panic!("{settings}: {law}"));
}

#[test]
fn gans_obey_the_laws() {
    gan_obeys("");
}

#[test]
fn gans_in_parts_obey_the_laws() {
    gan_obeys("dropout = 0.2\nrounds = 2\nclip_norm = 0.1\naccumulate = 2");
}

/// Tokens 0 to 2 stand among themselves, 3 to 5 too.
fn sentences() -> Table {
    let mut rng = Rng::named(6, "sentences", &[]);
    let mut values = Vec::new();
    for row in 0..300 {
        values.extend((0..5).map(|_| (3 * (row % 2) + rng.below(3) as usize) as f32));
    }
    table(5, values, vec![])
}

#[test]
fn tokens_that_stand_together_get_vectors_that_point_the_same_way() {
    let learner = network("embedding", "tokens = 6\nwidth = 4\nlearning_rate = 0.05").unwrap();
    let rows = sentences();
    let model = trained(&*learner, &rows, 15);
    let Some(Values::F32(vectors)) = model.get("00-embedding.weight").map(|t| &t.values) else {
        panic!("vectors are f32")
    };
    let of = |token: usize| &vectors[4 * token..4 * token + 4];
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let cosine =
        |a: usize, b: usize| dot(of(a), of(b)) / (dot(of(a), of(a)) * dot(of(b), of(b))).sqrt();
    for (a, b) in [(0, 1), (1, 2), (3, 4), (4, 5)] {
        assert!(cosine(a, b) > 0.8, "{a} {b}: {}", cosine(a, b));
    }
    assert!(cosine(0, 3) < 0.0 && cosine(2, 5) < 0.0, "{} {}", cosine(0, 3), cosine(2, 5));
    // A row's answer is the mean of its tokens' vectors.
    let one = table(5, vec![0.0, 0.0, 4.0, 4.0, 4.0], vec![]);
    let mut answer = Vec::new();
    learner.predict(&model, &crate::world::batch(&one, &[1]), &mut answer).unwrap();
    let expected = of(0).iter().zip(of(4)).map(|(a, b)| f64::from(2.0 * a + 3.0 * b) / 5.0);
    answer.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{a} {b}"));
}

/// With one neighbour on each side and equal chances the loss is that of the tokens' pairs, counted by hand.
#[test]
fn all_pairs_of_neighbours_count_alike() {
    let learner = network("embedding", "tokens = 3\nwidth = 2\nwindow = 1").unwrap();
    let rows = table(4, vec![0.0, 1.0, 2.0, 1.0], vec![]);
    let mut model = learner.init(&facts(&rows, 0), Place::WHOLE).unwrap();
    for name in ["01-linear.weight", "01-linear.bias"] {
        let Some(Values::F32(values)) = model.get_mut(name).map(|t| &mut t.values) else {
            panic!("{name} is f32")
        };
        values.fill(0.0);
    }
    let update = contribution(&*learner, &model, &crate::world::batch(&rows, &[1])).unwrap();
    assert!((update.f64("loss")[0] - 3f64.ln()).abs() < 1e-6);
    // Pairs: 0→1, 1→0, 1→2, 2→1, 2→1, 1→2. The slope of a bias is its chance less its share.
    let slopes = f32s(&update, "01-linear.bias");
    let shares = [1.0 / 6.0, 3.0 / 6.0, 2.0 / 6.0];
    for (slope, share) in slopes.iter().zip(shares) {
        assert!((slope - (1.0 / 3.0 - share)).abs() < 1e-6, "{slopes:?}");
    }
}

#[test]
fn embeddings_obey_the_laws() {
    let learner = network("embedding", "tokens = 4\nwidth = 3").unwrap();
    let whole = |table: &mut Table| {
        if let Features::Dense { values, .. } = &mut table.features {
            values.iter_mut().for_each(|value| *value = (value.abs() * 7.0).floor() % 4.0);
        }
        matches!(table.features, Features::Dense { width: 2.., .. })
    };
    check_within(&*learner, &whole, 1e-5).unwrap_or_else(|law| panic!("{law}"));
}

#[test]
fn a_variational_autoencoder_draws_rows_near_the_data() {
    let learner =
        network("vae", "hidden = [16]\ncode = 2\nbeta = 0.01\nlearning_rate = 0.01").unwrap();
    let model = trained(&*learner, &cloud(), 40);
    let [x, y] = means(&learner.samples(&model, 200, 3).unwrap().values);
    assert!((x - 0.7).abs() < 0.05 && (y - 0.2).abs() < 0.05, "{x} {y}");
    assert!(network("mlp", "").unwrap().samples(&model, 1, 1).is_none());
}

/// The report's objective is what training makes small: with the divergence of the codes, and as much of the truth as the
/// discriminator is told.
#[test]
fn the_objective_of_a_report_is_that_of_training() {
    use starlings_learn::{Memory, NoWires, Outbox, Work};
    let rows = cloud();
    let graded = |learner: &dyn Learner, model: &Model| {
        let all = crate::world::batch(&rows, &[256, 256]);
        let sums = learner.score(&mut Work {
            moment: moment(512),
            place: Place::WHOLE,
            model,
            batch: &all,
            memory: &mut Memory::new(),
            wires: &mut NoWires,
            outbox: &mut Outbox::new(),
        });
        learner.grade(model, &sums.unwrap(), 512).objective
    };
    let vae = |beta: f64| {
        let learner = network("vae", &format!("hidden = [8]\ncode = 2\nbeta = {beta}")).unwrap();
        let model = learner.init(&facts(&rows, 0), Place::WHOLE).unwrap();
        graded(&*learner, &model)
    };
    // The same weights at the start: what beta counts is on top of the error.
    let (error, once, thrice) = (vae(0.0), vae(1.0), vae(3.0));
    assert!(once > error + 1e-4, "{once} and {error}");
    assert!((thrice - error - 3.0 * (once - error)).abs() < 1e-5, "{error}, {once}, {thrice}");
    let gan = |smoothing: f64| {
        let learner = network("gan", &format!("hidden = [8]\nsmoothing = {smoothing}")).unwrap();
        let model = learner.init(&facts(&rows, 0), Place::WHOLE).unwrap();
        graded(&*learner, &model)
    };
    let (none, some, half) = (gan(0.0), gan(0.25), gan(0.5));
    assert!((some - (none + half) / 2.0).abs() < 1e-9 && (some - none).abs() > 1e-6);
}
