//! Networks that are cut into stages whose layers are split as well: a grid of stages × parts contributes together what the
//! whole network contributes, whatever the schedule and wherever the cut, and each worker has but its share of its stage.

use crate::pipeline::{Ends, SHARES, contributed, rows, run, turns};
use crate::split::{joined, tokens};
use crate::world::{batch, contribution, facts, moment, network};
use starlings_core::{Body, Model, Role, Update, Values};
use starlings_data::Table;
use starlings_learn::{Facts, Learner, Memory, NoWires, Outbox, Place, Wires, Work};

/// A grid of so many stages of so many parts; layers by hand, or none.
fn places((depths, parts): (u32, u32), layers: &[u32], one_by_one: bool) -> Vec<Place> {
    const MICRO_BATCHES: u32 = 4;
    let place = |stage: u32| {
        let ahead = match one_by_one {
            true => MICRO_BATCHES.min(depths - stage / parts - 1),
            false => MICRO_BATCHES,
        };
        let turns = turns(ahead, MICRO_BATCHES);
        Place { parts, turns, layers: layers.to_vec(), ..Place::stage(stage, depths * parts) }
    };
    (0..depths * parts).map(place).collect()
}

const LANGUAGE: &str = "task = 'next-token'\ntokens = 12\nwidth = 8\nheads = 4\nblocks = 2\ndropout = 0.1\nlabel_smoothing = 0.1";

/// Name, parameters, features, tokens (or 0 for numbers), stages and parts, layers by hand.
type Case = (&'static str, &'static str, usize, usize, (u32, u32), &'static [u32]);

const NETWORKS: &[Case] = &[
    ("mlp", "hidden = [12, 8, 6]", 8, 0, (2, 2), &[]),
    ("mlp", "hidden = [12, 8, 6]", 8, 0, (4, 2), &[]),
    // Cut between columns and rows, of one pair and of the other, and where a stage has nothing to split.
    ("mlp", "hidden = [12, 8, 6]", 8, 0, (3, 2), &[1, 4, 2]),
    ("mlp", "hidden = [12, 8, 6]\nactivation = 'tanh'", 8, 0, (3, 2), &[2, 2, 3]),
    ("mlp", "hidden = [12, 9]", 8, 0, (2, 3), &[4, 1]),
    (
        "cnn",
        "shape = [1, 4, 4]\nlayers = ['conv 4', 'relu', 'conv 6', 'batch-norm', 'conv 4', 'relu', 'max-pool 2', 'linear 6']",
        16,
        0,
        (3, 2),
        &[],
    ),
    ("vae", "hidden = [12]\ncode = 3", 8, 0, (2, 4), &[]),
    (
        "transformer",
        "width = 8\nheads = 4\nblocks = 2\nsteps = 4\ndropout = 0.1",
        8,
        0,
        (2, 4),
        &[],
    ),
    ("rnn", "cell = 'lstm'\nhidden = [8, 4]\nsteps = 4", 8, 0, (2, 2), &[]),
    (
        "cnn",
        "shape = [1, 4, 4]\nlayers = ['conv 4', 'residual 4', 'residual 8 stride 2', 'global-average-pool']",
        16,
        0,
        (3, 2),
        &[],
    ),
    ("transformer", LANGUAGE, 6, 12, (2, 2), &[]),
    // Vectors of tokens by themselves, then all between, then scores.
    ("transformer", LANGUAGE, 6, 12, (3, 2), &[1, 4, 1]),
];

fn told(features: usize, count: usize) -> (Table, Facts) {
    let (table, outputs) = match count {
        0 => (rows(features, 3), 3),
        count => (tokens(features, count), 0),
    };
    let facts = Facts { shards: 6, ..facts(&table, outputs) };
    (table, facts)
}

#[test]
fn a_grid_contributes_together_what_the_whole_network_does() {
    for &(name, settings, features, count, grid, layers) in NETWORKS {
        let learner = network(name, settings).unwrap();
        let (table, facts) = told(features, count);
        let batch = batch(&table, SHARES);
        let whole = learner.init(&facts, Place::WHOLE).unwrap();
        let wanted = contribution(&*learner, &whole, &batch).unwrap();
        let schedules = [false, true].map(|one_by_one| {
            contributed(&*learner, &batch, &facts, &places(grid, layers, one_by_one))
        });
        let label = format!("{name} {settings} {grid:?} {layers:?}");
        assert!(schedules[0] == schedules[1], "{label}: both schedules give the same bits");
        let found = &schedules[0];
        starts_alike(&label, (&*learner, &whole), found);
        sums_alike(&label, &joined(&*learner, found), &wanted);
        let loss = |update: &Update| update.f64("loss").to_vec();
        for (_, update) in found {
            assert_eq!(loss(update), loss(&found[0].1), "{label}: all know the same loss");
            assert!((loss(update)[0] / loss(&wanted)[0] - 1.0).abs() < 1e-5, "{label}");
        }
        // Layers that all parts of a stage have stay alike.
        for stage in found.chunks(grid.1 as usize) {
            let shared = |update: &Update| -> Vec<_> {
                update.blocks.iter().filter(|it| !it.name.contains('@')).cloned().collect()
            };
            assert!(stage.iter().all(|(_, it)| shared(it) == shared(&stage[0].1)), "{label}");
        }
    }
}

/// Whether all workers together start from the whole network's weights, each tensor at one stage.
fn starts_alike(label: &str, (learner, whole): (&dyn Learner, &Model), found: &[(Model, Update)]) {
    let nothing: Vec<(Model, Update)> =
        found.iter().map(|(model, _)| (model.clone(), Update::default())).collect();
    let started = joined(learner, &nothing);
    let weights = whole.iter().filter(|(_, tensor)| tensor.role == Role::Weight);
    for (name, tensor) in weights {
        assert_eq!(started.get(name), Some(tensor), "{label}: {name}");
    }
    for (model, update) in found {
        for block in update.blocks.iter().filter(|it| it.name.contains('.')) {
            assert!(model.get(&block.name).is_some(), "{label}: {} is not its own", block.name);
        }
    }
}

fn sums_alike(label: &str, sums: &Model, wanted: &Update) {
    for block in &wanted.blocks {
        let Body::Dense(Values::F32(wanted)) = &block.body else { continue };
        let name = block.name.strip_prefix("tracked.").unwrap_or(&block.name);
        let Some(Values::F32(sums)) = sums.get(name).map(|it| &it.values) else {
            panic!("{label}: no {}", block.name)
        };
        let size = wanted.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
        for (a, b) in sums.iter().zip(wanted) {
            assert!((a - b).abs() <= 1e-5 * size, "{label}: {}: {a} for {b}", block.name);
        }
    }
}

#[test]
fn each_worker_of_a_grid_has_its_share_of_its_stage() {
    let settings =
        "task = 'next-token'\ntokens = 64\nwidth = 32\nheads = 4\nblocks = 4\nsolver = 'adam'";
    let learner = network("transformer", settings).unwrap();
    let (_, facts) = told(16, 64);
    let numbers = |place: &Place| -> usize {
        let model = learner.init(&facts, place.clone()).unwrap();
        model.iter().map(|(_, tensor)| tensor.values.len()).sum()
    };
    let whole = numbers(&Place::WHOLE);
    for place in places((2, 2), &[], true) {
        // A quarter, and what both parts of a stage have: norms, places and biases that are added once.
        let own = numbers(&place);
        assert!(own * 10 < whole * 3, "{own} of {whole} numbers at {place:?}");
    }
}

/// Between columns and rows a part of the next stage wants but its own columns, and no more travels.
#[test]
fn what_the_next_stage_wants_split_travels_split() {
    let learner = network("mlp", "hidden = [12, 8]").unwrap();
    let (table, facts) = told(8, 0);
    let batch = batch(&table, SHARES);
    let sent = |layers: &[u32]| -> usize {
        let step = |model: &Model, place: &Place, wires: &mut Ends| {
            let (mut memory, mut outbox) = (Memory::new(), Outbox::new());
            let (moment, place, batch) = (moment(batch.rows_step), place.clone(), &batch);
            let (memory, outbox) = (&mut memory, &mut outbox);
            let work = Work { moment, place, model, batch, memory, wires, outbox };
            learner.contribute(&mut { work }).unwrap();
            wires.sent.clone()
        };
        run((&*learner, &facts), &places((2, 2), layers, true), step)[0].1[&2]
    };
    // 40 rows in four micro-batches of 12 columns, or of half of them; with each its penalties.
    assert_eq!(sent(&[1, 4]), 40 * 6 + 4);
    assert_eq!(sent(&[3, 2]), 40 * 8 + 4);
}

#[test]
fn a_grid_scores_together_what_the_whole_network_does() {
    for (name, settings, features, count) in
        [("mlp", "hidden = [12, 8, 6]", 8, 0), ("transformer", LANGUAGE, 6, 12)]
    {
        let learner = network(name, settings).unwrap();
        let (table, facts) = told(features, count);
        let all = batch(&table, &[40]);
        let score = |model: &Model, place: &Place, wires: &mut dyn Wires| {
            let (mut memory, mut outbox) = (Memory::new(), Outbox::new());
            let (moment, place, batch) = (moment(all.rows_step), place.clone(), &all);
            let (memory, outbox) = (&mut memory, &mut outbox);
            learner.score(&mut Work { moment, place, model, batch, memory, wires, outbox }).unwrap()
        };
        let whole = learner.init(&facts, Place::WHOLE).unwrap();
        let wanted = score(&whole, &Place::WHOLE, &mut NoWires);
        let grid = places((2, 2), &[], true);
        let found =
            run((&*learner, &facts), &grid, |model, place, wires| score(model, place, wires));
        for (at, (_, sums)) in found.iter().enumerate() {
            assert_eq!(sums.iter().any(|&sum| sum != 0.0), at == 2, "the first of the last stage");
        }
        for (found, wanted) in found[2].1.iter().zip(&wanted) {
            assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{found} for {wanted}");
        }
    }
}

#[test]
fn what_a_grid_cannot_do_is_refused() {
    let (_, facts) = told(8, 0);
    let refusal = |settings: &str, grid, layers: &[u32]| {
        let place = places(grid, layers, true).remove(1);
        network("mlp", settings).unwrap().init(&facts, place).unwrap_err().to_string()
    };
    for (found, wanted) in [
        (refusal("hidden = [6]", (3, 2), &[]), "cannot be cut into 3 stages"),
        (refusal("hidden = [7, 4]", (2, 2), &[]), "layer 1 'linear 7' has 7 outputs, which 2"),
        (refusal("hidden = [6, 4]", (2, 2), &[1, 3]), "4 layers, and the network has 5"),
        (refusal("hidden = [6, 4]\nsolver = 'lamb'", (2, 2), &[]), "whole matrices"),
        (refusal("hidden = [6, 4]\naccumulate = 2", (2, 2), &[]), "micro_batches"),
    ] {
        assert!(found.contains(wanted), "{found}");
    }
}

#[test]
fn a_place_tells_its_share_and_what_it_has_whole() {
    let learner = network("mlp", "hidden = [12, 8, 6]").unwrap();
    let (_, facts) = told(8, 0);
    let grid = places((2, 2), &[2, 5], true);
    let told = |at: usize| learner.tell_place(&facts, &grid[at]).unwrap();
    assert_eq!(told(1), "its share of layers 1 'linear 12'; all of 2 'relu'");
    assert!(told(2).starts_with("its share of layers 3 'linear 8', 5 'linear 6', 7 'linear 3'"));
}
