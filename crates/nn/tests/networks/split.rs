//! Networks whose layers are split among workers: their parts contribute together what the whole network contributes, and are
//! put together to the whole model.

use crate::pipeline::{SHARES, contributed, rows, run};
use crate::world::{batch, contribution, facts, moment, network, table};
use starlings_core::{Body, Model, Rng, Role, Tensor, Update, Values, tracked};
use starlings_data::Table;
use starlings_learn::{Facts, Learner, Memory, NoWires, Outbox, Place, Wires, Work};

fn places(parts: u32) -> Vec<Place> {
    (0..parts).map(|part| Place { parts, ..Place::stage(part, parts) }).collect()
}

/// Name, parameters, features, parts, and a tensor that is split.
const NETWORKS: &[(&str, &str, usize, u32, &str)] = &[
    ("mlp", "hidden = [12, 9]", 8, 3, "00-linear"),
    ("mlp", "hidden = [12, 9, 6]\nactivation = 'tanh'\naccumulate = 2", 8, 2, "04-linear"),
    ("mlp", "hidden = [6, 8, 6]\nnorm = 'layer-norm'", 8, 2, ""),
    (
        "cnn",
        "shape = [1, 4, 4]\nlayers = ['conv 4', 'relu', 'conv 6', 'batch-norm', 'conv 4', 'relu', 'max-pool 2', 'linear 6']",
        16,
        2,
        "02-conv",
    ),
    ("vae", "hidden = [12]\ncode = 3", 8, 4, "03-linear"),
    ("mlp", "hidden = [6, 8, 6]\nnorm = 'batch-norm'", 8, 2, "01-batch-norm"),
];

/// Layers of pictures, and tensors of which each part has its share.
const RESIDUALS: &[(&str, &[&str])] = &[
    ("'residual 4', 'linear 8'", &["00-residual.body.0-conv", "00-residual.shortcut.0-conv"]),
    (
        "'conv 4', 'residual 4', 'residual 8 stride 2', 'global-average-pool'",
        &[
            "01-residual.body.0-conv",
            "01-residual.body.1-batch-norm",
            "01-residual.body.3-conv",
            "02-residual.body.0-conv",
            "02-residual.body.3-conv",
            "02-residual.shortcut.0-conv",
            "02-residual.shortcut.1-batch-norm",
        ],
    ),
    (
        "'conv 8', 'relu', 'residual 8 groups 4', 'residual 4 groups 4', 'conv 4', 'group-norm 4', 'relu', 'linear 6'",
        &[
            "02-residual.body.0-conv",
            "02-residual.body.1-group-norm",
            "03-residual.shortcut.1-group-norm",
            "04-conv",
            "05-group-norm",
            "07-linear",
        ],
    ),
];

#[test]
fn residual_blocks_are_shared_by_channels_beside_their_shortcuts() {
    for (layers, tensors) in RESIDUALS {
        let settings = format!("shape = [1, 4, 4]\nlayers = [{layers}]");
        let learner = network("cnn", &settings).unwrap();
        let table = rows(16, 3);
        let facts = Facts { shards: 6, ..facts(&table, 3) };
        for parts in [2, 4] {
            agree((&settings, &*learner), (&table, &facts), parts, tensors);
        }
    }
}

#[test]
fn recurrent_layers_are_shared_by_units() {
    for cell in ["rnn", "gru", "lstm"] {
        let settings = format!("cell = '{cell}'\nhidden = [8, 4]\nsteps = 4");
        let learner = network("rnn", &settings).unwrap();
        let table = rows(8, 3);
        let facts = Facts { shards: 6, ..facts(&table, 3) };
        let tensors = [format!("00-{cell}"), format!("01-{cell}")];
        for parts in [2, 4] {
            let tensors: Vec<&str> = tensors.iter().map(String::as_str).collect();
            agree((&settings, &*learner), (&table, &facts), parts, &tensors);
        }
    }
}

#[test]
fn a_part_of_a_recurrent_or_residual_network_takes_its_share_of_the_memory() {
    let cases = [
        ("rnn", "cell = 'lstm'\nhidden = [32, 32]\nsteps = 4\nsolver = 'adam'", 8),
        ("rnn", "cell = 'gru'\nhidden = [32, 32]\nsteps = 4", 8),
        (
            "cnn",
            "shape = [1, 4, 4]\nlayers = ['conv 16', 'residual 16', 'residual 32 stride 2', 'global-average-pool']",
            16,
        ),
    ];
    for (name, settings, width) in cases {
        let learner = network(name, settings).unwrap();
        let facts = Facts { shards: 6, ..facts(&rows(width, 3), 3) };
        let numbers = |place| -> usize {
            let model = learner.init(&facts, place).unwrap();
            model.iter().map(|(_, tensor)| tensor.values.len()).sum()
        };
        let whole = numbers(Place::WHOLE);
        for place in places(4) {
            let own = numbers(place);
            assert!(own * 3 < whole, "{name}: {own} of {whole} numbers on one of 4");
        }
    }
}

/// What parts contribute, seen as tensors of the whole model.
pub(crate) fn joined(learner: &dyn Learner, parts: &[(Model, Update)]) -> Model {
    let mut all = Model::new();
    for (model, update) in parts {
        for (name, tensor) in model.iter() {
            let tensor = match update
                .get(name)
                .or_else(|| update.get(&tracked(name)))
                .map(|block| &block.body)
            {
                Some(Body::Dense(values)) => Tensor { values: values.clone(), ..tensor.clone() },
                _ => tensor.clone(),
            };
            all.set(name, tensor);
        }
    }
    learner.assemble(all)
}

#[test]
fn parts_contribute_together_what_the_whole_network_does() {
    for &(name, settings, width, parts, tensor) in NETWORKS {
        let learner = network(name, settings).unwrap();
        let table = rows(width, 3);
        let facts = Facts { shards: 6, ..facts(&table, 3) };
        if tensor.is_empty() {
            let fault = learner.init(&facts, places(parts).remove(0)).unwrap_err().to_string();
            assert!(fault.contains("no layer of this network can be split"), "{fault}");
            continue;
        }
        agree((name, &*learner), (&table, &facts), parts, &[tensor]);
    }
}

/// Whether parts start from the whole network's weights, each with its share of some tensors, and contribute what it does.
fn agree(
    (name, learner): (&str, &dyn Learner),
    (table, facts): (&Table, &Facts),
    parts: u32,
    tensors: &[&str],
) {
    let batch = batch(table, SHARES);
    let whole = learner.init(facts, Place::WHOLE).unwrap();
    let wanted = contribution(learner, &whole, &batch).unwrap();
    let found = contributed(learner, &batch, facts, &places(parts));
    for tensor in tensors {
        // The matrix of a layer, or what states are multiplied with, or what a norm scales by.
        let of_layer = |part: &&str| whole.get(&format!("{tensor}.{part}")).is_some();
        let matrix = ["weight", "hidden", "scale"].into_iter().find(of_layer).unwrap();
        let all = &whole.get(&format!("{tensor}.{matrix}")).unwrap().values;
        for (part, (model, _)) in (1..).zip(&found) {
            let own = model.get(&format!("{tensor}@{part}of{parts}.{matrix}")).unwrap();
            assert_eq!(own.values.len() * parts as usize, all.len(), "{name}: {tensor}");
            assert!(
                model.get(&format!("{tensor}.{matrix}")).is_none(),
                "{name}: it has but its part"
            );
        }
    }
    let nothing: Vec<(Model, Update)> =
        found.iter().map(|(model, _)| (model.clone(), Update::default())).collect();
    let started = joined(learner, &nothing);
    let weights: Vec<(&str, &Tensor)> =
        whole.iter().filter(|(_, tensor)| tensor.role == Role::Weight).collect();
    for (name, tensor) in &weights {
        assert_eq!(started.get(name), Some(*tensor), "{name}");
    }
    assert_eq!(started.iter().count(), weights.len(), "{name}: nothing else is left");
    let sums = joined(learner, &found);
    for block in &wanted.blocks {
        let Body::Dense(Values::F32(wanted)) = &block.body else { continue };
        let tensor = block.name.strip_prefix("tracked.").unwrap_or(&block.name);
        let Some(Values::F32(sums)) = sums.get(tensor).map(|it| &it.values) else {
            panic!("{name}: no {}", block.name)
        };
        let size = wanted.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
        for (a, b) in sums.iter().zip(wanted) {
            assert!((a - b).abs() <= 1e-5 * size, "{name}: {}: {a} for {b}", block.name);
        }
    }
    let loss = |update: &Update| update.f64("loss").to_vec();
    for (_, update) in &found {
        assert_eq!(loss(update), loss(&found[0].1), "{name}: all parts know the same loss");
        let apart = (loss(update)[0] / loss(&wanted)[0] - 1.0).abs();
        assert!(apart < 1e-5, "{name}: {apart}");
    }
    for part in &found[1..] {
        let shared = part.1.blocks.iter().filter(|it| !it.name.contains('@'));
        shared.for_each(|it| assert_eq!(found[0].1.get(&it.name), Some(it), "{name}: same bits"));
    }
}

/// Name, parameters, what is known of the rows (tokens, or 0 for numbers), and tensors of which each part has its share.
const SEQUENCES: &[(&str, &str, usize, &[&str])] = &[
    (
        "transformer",
        "task = 'next-token'\ntokens = 12\nwidth = 8\nheads = 4\nblocks = 2\ndropout = 0.1\nlabel_smoothing = 0.1",
        12,
        &[
            "00-embedding",
            "02-transformer.mix.1-attention",
            "03-transformer.think.1-linear",
            "03-transformer.think.3-linear",
            "05-linear",
        ],
    ),
    (
        "transformer",
        "width = 8\nheads = 4\nblocks = 1\nsteps = 4",
        0,
        &["02-transformer.mix.1-attention", "02-transformer.think.1-linear"],
    ),
    (
        "transformer",
        "task = 'next-token'\ntokens = 12\nlayers = ['embedding 12 8', 'attention 4 causal', 'transformer 4 causal']",
        12,
        &["00-embedding", "01-attention", "02-transformer.mix.1-attention", "03-linear"],
    ),
    (
        "rnn",
        "cell = 'lstm'\ntask = 'next-token'\ntokens = 12\nembedding = 8\nhidden = [8]",
        12,
        &["00-embedding", "01-lstm", "02-linear"],
    ),
    ("embedding", "tokens = 12\nwidth = 8\nwindow = 2", 12, &["00-embedding", "01-linear"]),
];

pub(crate) fn tokens(width: usize, tokens: usize) -> Table {
    let mut rng = Rng::named(7, "tokens", &[]);
    let values = (0..width * 40).map(|_| (rng.next_u64() % tokens as u64) as f32).collect();
    table(width, values, vec![0.0; 40])
}

#[test]
fn attention_vectors_and_vocabulary_are_shared_by_two_workers_and_by_four() {
    for &(name, settings, count, tensors) in SEQUENCES {
        let learner = network(name, settings).unwrap();
        let (table, outputs) = match count {
            0 => (rows(8, 3), 3),
            count => (tokens(6, count), 0),
        };
        let facts = Facts { shards: 6, ..facts(&table, outputs) };
        for parts in [2, 4] {
            agree((name, &*learner), (&table, &facts), parts, tensors);
        }
    }
}

#[test]
fn a_part_of_a_language_model_takes_its_share_of_the_memory() {
    let settings =
        "task = 'next-token'\ntokens = 64\nwidth = 32\nheads = 4\nblocks = 2\nsolver = 'adam'";
    let learner = network("transformer", settings).unwrap();
    let table = tokens(16, 64);
    let facts = Facts { shards: 6, ..facts(&table, 0) };
    let numbers = |place| -> usize {
        let model = learner.init(&facts, place).unwrap();
        model.iter().map(|(_, tensor)| tensor.values.len()).sum()
    };
    // What all parts have: places, norms and biases that are added once, with two means of Adam's; and some words.
    let whole = numbers(Place::WHOLE);
    for parts in [2, 4] {
        for place in places(parts) {
            let shared = 3 * (16 * 32 + 5 * 2 * 32 + 2 * 2 * 32) + 8;
            let bound = (whole - shared) / parts as usize + shared;
            let own = numbers(place);
            assert!(own <= bound, "{own} of {whole} numbers on one of {parts}");
        }
    }
}

#[test]
fn parts_score_together_what_the_whole_network_does() {
    let perceptron = network("mlp", "hidden = [12, 9]").unwrap();
    scores_agree(&*perceptron, &rows(8, 3), (3, 3));
    let language = network("transformer", SEQUENCES[0].1).unwrap();
    scores_agree(&*language, &tokens(6, 12), (0, 2));
    let recurrent = network("rnn", "cell = 'gru'\nhidden = [8, 4]\nsteps = 4").unwrap();
    scores_agree(&*recurrent, &rows(8, 3), (3, 4));
    let settings = format!("shape = [1, 4, 4]\nlayers = [{}]", RESIDUALS[1].0);
    scores_agree(&*network("cnn", &settings).unwrap(), &rows(16, 3), (3, 2));
}

fn scores_agree(learner: &dyn Learner, table: &Table, (classes, parts): (usize, u32)) {
    let (all, facts) = (batch(table, &[40]), facts(table, classes));
    let score = |model: &Model, place: &Place, wires: &mut dyn Wires| {
        let (mut memory, mut outbox) = (Memory::new(), Outbox::new());
        let (moment, place, batch) = (moment(all.rows_step), place.clone(), &all);
        let (memory, outbox) = (&mut memory, &mut outbox);
        learner.score(&mut Work { moment, place, model, batch, memory, wires, outbox }).unwrap()
    };
    let whole = learner.init(&facts, Place::WHOLE).unwrap();
    let wanted = score(&whole, &Place::WHOLE, &mut NoWires);
    let parts =
        run((learner, &facts), &places(parts), |model, place, wires| score(model, place, wires));
    assert!(parts[1..].iter().all(|(_, sums)| sums.iter().all(|&sum| sum == 0.0)));
    for (found, wanted) in parts[0].1.iter().zip(&wanted) {
        assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{found} for {wanted}");
    }
}

#[test]
fn what_a_part_cannot_do_is_refused() {
    let table = rows(16, 3);
    let refusal = |name: &str, settings: &str| {
        let place = places(2).remove(1);
        network(name, settings).unwrap().init(&facts(&table, 3), place).unwrap_err().to_string()
    };
    for (name, settings, told) in [
        (
            "mlp",
            "hidden = [7, 4]",
            "layer 1 'linear 7' has 7 outputs, which 2 workers cannot share",
        ),
        ("mlp", "hidden = [6, 4]\nsolver = 'lamb'", "whole matrices"),
        ("mlp", "hidden = []", "no layer of this network can be split"),
        ("rnn", "cell = 'gru'\nhidden = [8, 5]\nsteps = 4", "layer 2 'gru 5' has 5 units, which 2"),
        (
            "cnn",
            "shape = [1, 4, 4]\nlayers = ['residual 4', 'residual 7']",
            "layer 2 'residual 7' has 7 outputs, which 2",
        ),
        (
            "cnn",
            "shape = [1, 4, 4]\nlayers = ['residual 6 groups 3']",
            "layer 1 'residual 6 groups 3' has 3 groups of channels, which 2",
        ),
    ] {
        let found = refusal(name, settings);
        assert!(found.contains(told), "{found}");
    }
}
