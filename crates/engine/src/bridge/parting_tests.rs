//! Leaving politely: what a codec has held back of a worker's contributions is given before it goes, whatever the codec,
//! so that all that was ever contributed is in the model or held by those who stay.

use super::adder::{Adder, PATIENCE, Perch, assert_near, flock};
use super::replicated::Mergers;
use super::rhythm::Habits;
use super::{Exchange, HandedIn, Owned, Replicated};
use crate::choices::{codec, gate, raw, summing};
use crate::exchange::ownership::Ownership;
use crate::exchange::packet::Losses;
use crate::exchange::served::{Asks, Office, Shard};
use crate::merge::{MergeOptions, Merger};
use crate::rules::Learned;
use crate::serve::{self, Client, Service};
use starlings_codec::Shapes;
use starlings_consistency::Blending;
use starlings_core::{Block, Model, Rng, Role, Seat, Step, Tensor, Update};
use starlings_learn::{Moment, Needs};
use std::sync::Arc;

const SHAPE: (usize, usize) = (64, 40);
const LEN: usize = SHAPE.0 * SHAPE.1;
const LEAVER: usize = 1;
const ASKED: u64 = 6;

fn model() -> Model {
    let mut model = Model::new();
    model.set("x", Tensor::of(&[SHAPE.0, SHAPE.1], vec![0.0; LEN], Role::Weight));
    model
}

fn change(seat: usize, number: u64) -> Vec<f64> {
    let mut rng = Rng::named(1, "change", &[seat as u64, number]);
    (0..LEN).map(|_| rng.normal()).collect()
}

fn step(seat: usize, number: u64) -> HandedIn {
    let moment = Moment { step: Step(number), pass: 0, seed: 0, rows: 4 };
    let update = Update { blocks: vec![Block::dense("x", change(seat, number))] };
    HandedIn::new(moment, 2, vec![update])
}

fn replicated(perch: &Perch, name: &str, parameters: &str) -> Replicated {
    let shapes = Shapes::from([("x".to_string(), SHAPE)]);
    let options = MergeOptions {
        kind: 1,
        group: (0..perch.net.world()).map(Seat).collect(),
        topology: summing("ring", "").unwrap(),
        carriage: codec(name, parameters).unwrap(),
        shapes: Arc::new(shapes),
        single: Arc::default(),
        seed: 3,
        patience: PATIENCE,
    };
    let group = Merger::new(perch.net.clone(), options);
    let mergers = Mergers { group, world: None, exact: perch.exact(3), peaks: None };
    Replicated::new(Adder::shared(), mergers, None, PATIENCE).surviving(true)
}

fn owned(perch: &Perch, name: &str, parameters: &str, consistency: &str) -> Owned {
    let (fresh, world) = (model(), perch.net.world());
    let owners = Arc::new(Ownership::of(&fresh, world));
    let gate = gate(consistency, "").unwrap();
    let office = Office {
        rule: Arc::new(Learned(Adder::shared())),
        gate: gate.clone(),
        blending: Arc::new(Blending::Plain),
        owners: owners.clone(),
        seat: perch.net.seat(),
        pushers: (0..world).map(Seat).collect(),
    };
    let push = codec(name, parameters).unwrap();
    let service = Service { push, pull: raw(), owners, gate, patience: PATIENCE };
    let shard = Shard::new(office, fresh, Step(0));
    // The thread ends with the net.
    drop(serve::start(perch.net.clone(), shard, service.clone(), Arc::default()).unwrap());
    let client = Client::new(perch.net.clone(), service, 1);
    let seat = perch.net.seat();
    let habits = Habits { echo: None, cadence: None, seat, skips: false, repeats: false };
    Owned::new(client, perch.exact(3), habits, perch.net.clone())
}

/// What a seat came to: its model, what its codec still holds back, and the step after which the leaver could go.
struct Walked {
    model: Vec<f64>,
    losses: Losses,
    gone: Option<u64>,
}

/// Walks as a worker does. The leaver is asked to leave, and would go as soon as it may.
fn walk(perch: &Perch, exchange: &mut dyn Exchange, steps: u64) -> Walked {
    let (mut model, mut gone) = (model(), None);
    for number in 0..steps {
        let parts = perch.seat() == LEAVER && number >= ASKED;
        if parts {
            exchange.part();
        }
        exchange.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
        exchange.finish(step(perch.seat(), number), &mut model).unwrap();
        if parts && exchange.parted() {
            gone = gone.or(Some(number));
        }
    }
    exchange.close(Step(steps)).unwrap();
    exchange.cut(Step(steps), &mut model).unwrap();
    let losses = exchange.losses();
    exchange.sum(vec![]).unwrap();
    Walked { model: model.f64("x").to_vec(), losses, gone }
}

/// All that was ever contributed by so many seats in so many steps.
fn contributed(world: usize, steps: u64) -> Vec<f64> {
    let mut total = vec![0.0; LEN];
    for (seat, number) in (0..world).flat_map(|seat| (0..steps).map(move |number| (seat, number))) {
        total.iter_mut().zip(change(seat, number)).for_each(|(to, adds)| *to += adds);
    }
    total
}

/// Adds all residuals, of dense parts and of rows, onto numbers.
fn add_held(into: &mut [f64], losses: &Losses) {
    for (name, values) in losses {
        let words: Vec<&str> = name
            .trim_start_matches("contributions/")
            .trim_start_matches("totals/")
            .split('/')
            .collect();
        let Some(values) = values.as_f64() else { continue };
        match words[..] {
            ["residual", from, "x"] => {
                let into = &mut into[from.parse::<usize>().unwrap()..];
                into.iter_mut().zip(values).for_each(|(into, held)| *into += held);
            }
            ["row-residual", "x"] => {
                let index = losses["row-index/x"].as_i64().unwrap();
                for (row, values) in index[2..].iter().zip(values.chunks(SHAPE.1)) {
                    let into = &mut into[*row as usize * SHAPE.1..][..SHAPE.1];
                    into.iter_mut().zip(values).for_each(|(into, held)| *into += held);
                }
            }
            _ => {}
        }
    }
}

fn check(what: &str, walked: Vec<Walked>, steps: u64) {
    let gone = walked[LEAVER].gone.unwrap_or_else(|| panic!("{what}: it may never go"));
    assert!((ASKED + 1..ASKED + 4).contains(&gone), "{what}: it goes after step {gone}");
    let mut held = vec![0.0; LEN];
    add_held(&mut held, &walked[LEAVER].losses);
    assert!(held.iter().all(|held| *held == 0.0), "{what}: the leaver still holds something");
    let mut found = walked[0].model.clone();
    let mut of_others = vec![0.0; LEN];
    walked.iter().for_each(|walked| add_held(&mut of_others, &walked.losses));
    assert!(of_others.iter().any(|held| *held != 0.0), "{what}: nothing is ever held back");
    found.iter_mut().zip(&of_others).for_each(|(found, held)| *found += held);
    assert_near(&found, &contributed(walked.len(), steps), 1e-3);
}

#[test]
fn replicas_have_all_that_a_leaver_had_held_back() {
    let codecs = [
        ("one-bit", ""),
        ("top-k", "ratio = 0.05"),
        ("threshold", "threshold = 2.0"),
        ("random-k", "ratio = 0.1"),
        ("low-rank", "rank = 2"),
    ];
    for (name, parameters) in codecs {
        let walked = flock(3, |perch| {
            let mut exchange = replicated(&perch, name, parameters);
            assert!(exchange.holds_back(), "{name}");
            walk(&perch, &mut exchange, 12)
        });
        let same = walked.iter().all(|it| it.model == walked[0].model);
        assert!(same, "{name}: replicas differ");
        check(name, walked, 12);
    }
}

#[test]
fn owners_have_all_that_a_leaver_had_held_back() {
    for (name, parameters) in
        [("one-bit", ""), ("top-k", "ratio = 0.05"), ("threshold", "threshold = 2.0")]
    {
        for consistency in ["bsp", "ssp", "async"] {
            let walked = flock(3, |perch| {
                let mut exchange = owned(&perch, name, parameters, consistency);
                assert!(exchange.holds_back(), "{name}");
                walk(&perch, &mut exchange, 12)
            });
            check(&format!("{name} under {consistency}"), walked, 12);
        }
    }
}

#[test]
fn whoever_holds_nothing_back_need_not_wait() {
    for (name, parameters) in [("raw", ""), ("half", ""), ("int8", ""), ("ternary", "")] {
        let holds = flock(2, |perch| replicated(&perch, name, parameters).holds_back());
        assert_eq!(holds, [false, false], "{name}");
    }
}
