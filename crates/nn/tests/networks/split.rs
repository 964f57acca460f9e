//! Networks whose layers are split among workers: their parts contribute together what the whole network contributes, and are
//! put together to the whole model.

use crate::pipeline::{SHARES, contributed, rows, run};
use crate::world::{batch, contribution, facts, moment, network};
use starlings_core::{Body, Model, Role, Tensor, Update, Values};
use starlings_learn::{Facts, Learner, Memory, NoWires, Outbox, Place, Wires, Work};

fn places(parts: u32) -> Vec<Place> {
    (0..parts).map(|part| Place { splits: true, ..Place::stage(part, parts) }).collect()
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
];

/// What parts contribute, seen as tensors of the whole model.
fn joined(learner: &dyn Learner, parts: &[(Model, Update)]) -> Model {
    let mut all = Model::new();
    for (model, update) in parts {
        for (name, tensor) in model.iter() {
            let tensor = match update.get(name).map(|block| &block.body) {
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
        let (batch, facts) = (batch(&table, SHARES), Facts { shards: 6, ..facts(&table, 3) });
        if tensor.is_empty() {
            let fault = learner.init(&facts, places(parts).remove(0)).unwrap_err().to_string();
            assert!(fault.contains("no layer of this network can be split"), "{fault}");
            continue;
        }
        let whole = learner.init(&facts, Place::WHOLE).unwrap();
        let wanted = contribution(&*learner, &whole, &batch).unwrap();
        let found = contributed(&*learner, &batch, &facts, &places(parts));
        let mark = |part: u32| format!("{tensor}@{}of{parts}.weight", part + 1);
        for (part, (model, _)) in (0..).zip(&found) {
            assert!(model.get(&mark(part)).is_some() && whole.get(&mark(part)).is_none());
            assert!(
                model.get(&format!("{tensor}.weight")).is_none(),
                "{name}: it has but its part"
            );
        }
        let nothing: Vec<(Model, Update)> =
            found.iter().map(|(model, _)| (model.clone(), Update::default())).collect();
        let started = joined(&*learner, &nothing);
        let weights: Vec<(&str, &Tensor)> =
            whole.iter().filter(|(_, tensor)| tensor.role == Role::Weight).collect();
        for (name, tensor) in &weights {
            assert_eq!(started.get(name), Some(*tensor));
        }
        assert_eq!(started.iter().count(), weights.len(), "{name}: nothing else is left");
        let sums = joined(&*learner, &found);
        for block in &wanted.blocks {
            let Body::Dense(Values::F32(wanted)) = &block.body else { continue };
            let Some(Values::F32(sums)) = sums.get(&block.name).map(|it| &it.values) else {
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
    }
}

#[test]
fn parts_score_together_what_the_whole_network_does() {
    let learner = network("mlp", "hidden = [12, 9]").unwrap();
    let table = rows(8, 3);
    let (all, facts) = (batch(&table, &[40]), facts(&table, 3));
    let score = |model: &Model, place: &Place, wires: &mut dyn Wires| {
        let (mut memory, mut outbox) = (Memory::new(), Outbox::new());
        let (moment, place, batch) = (moment(all.rows_step), place.clone(), &all);
        let (memory, outbox) = (&mut memory, &mut outbox);
        learner.score(&mut Work { moment, place, model, batch, memory, wires, outbox }).unwrap()
    };
    let whole = learner.init(&facts, Place::WHOLE).unwrap();
    let wanted = score(&whole, &Place::WHOLE, &mut NoWires);
    let parts =
        run((&*learner, &facts), &places(3), |model, place, wires| score(model, place, wires));
    assert!(parts[1..].iter().all(|(_, sums)| sums.iter().all(|&sum| sum == 0.0)));
    for (found, wanted) in parts[0].1.iter().zip(&wanted) {
        assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{found} for {wanted}");
    }
}

#[test]
fn what_a_part_cannot_do_is_refused() {
    let table = rows(8, 3);
    let refusal = |settings: &str| {
        let place = places(2).remove(1);
        network("mlp", settings).unwrap().init(&facts(&table, 3), place).unwrap_err().to_string()
    };
    for (settings, told) in [
        ("hidden = [7, 4]", "layer 1 'linear 7' has 7 outputs, which 2 workers cannot share"),
        ("hidden = [6, 4]\nclip_norm = 1.0", "clip_norm"),
        ("hidden = [6, 4]\nsolver = 'lamb'", "whole matrices"),
        ("hidden = []", "no layer of this network can be split"),
    ] {
        assert!(refusal(settings).contains(told), "{}", refusal(settings));
    }
}
