//! Networks cut into stages: what the stages of a pipeline contribute together is what the whole network contributes, whatever
//! the schedule, and each stage has only its own parameters.

use crate::world::{batch, contribution, f32s, facts, moment, network, table};
use starlings_core::{Block, Body, Model, Result, Rng, Turn, Update, Values};
use starlings_data::{Batch, Table};
use starlings_learn::{Facts, Learner, Memory, NoWires, Outbox, Place, Wires, Work};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Wires of one stage: an end of a channel to and from each other one.
#[derive(Default)]
pub(crate) struct Ends {
    to: BTreeMap<u32, SyncSender<Values>>,
    from: BTreeMap<u32, Receiver<Values>>,
    /// Numbers sent to each stage.
    pub(crate) sent: BTreeMap<u32, usize>,
}

impl Wires for Ends {
    fn send(&mut self, stage: u32, values: Values) -> Result<()> {
        *self.sent.entry(stage).or_default() += values.len();
        self.to[&stage].send(values).unwrap();
        Ok(())
    }

    fn receive(&mut self, stage: u32) -> Result<Values> {
        Ok(self.from[&stage].recv_timeout(Duration::from_secs(60)).unwrap())
    }
}

fn ends(stages: u32) -> Vec<Ends> {
    let mut all: Vec<Ends> = (0..stages).map(|_| Ends::default()).collect();
    for a in 0..stages {
        for b in (0..stages).filter(|b| *b != a) {
            let (sender, receiver) = sync_channel(64);
            all[a as usize].to.insert(b, sender);
            all[b as usize].from.insert(a, receiver);
        }
    }
    all
}

/// All forward, then all back; or one by one after so many.
pub(crate) fn turns(ahead: u32, micro_batches: u32) -> Vec<Turn> {
    let mut turns: Vec<Turn> = (0..ahead).map(Turn::Forward).collect();
    for number in 0..micro_batches {
        turns.extend((ahead + number < micro_batches).then(|| Turn::Forward(ahead + number)));
        turns.push(Turn::Backward(number));
    }
    turns
}

fn places(stages: u32, micro_batches: u32, one_by_one: bool) -> Vec<Place> {
    let place = |stage| {
        let ahead = if one_by_one { micro_batches.min(stages - stage - 1) } else { micro_batches };
        Place { turns: turns(ahead, micro_batches), ..Place::stage(stage, stages) }
    };
    (0..stages).map(place).collect()
}

/// Runs every stage in a thread of its own.
pub(crate) fn run<T: Send>(
    (learner, facts): (&dyn Learner, &Facts),
    places: &[Place],
    act: impl Fn(&Model, &Place, &mut Ends) -> T + Sync,
) -> Vec<(Model, T)> {
    let act = &act;
    std::thread::scope(|scope| {
        let stages: Vec<_> = places
            .iter()
            .zip(ends(places.len() as u32))
            .map(|(place, mut wires)| {
                scope.spawn(move || {
                    let model = learner.init(facts, place.clone()).unwrap();
                    let found = act(&model, place, &mut wires);
                    (model, found)
                })
            })
            .collect();
        stages.into_iter().map(|stage| stage.join().unwrap()).collect()
    })
}

pub(crate) fn contributed(
    learner: &dyn Learner,
    batch: &Batch<'_>,
    facts: &Facts,
    places: &[Place],
) -> Vec<(Model, Update)> {
    run((learner, facts), places, |model, place, wires| {
        let mut outbox = Outbox::new();
        let mut memory = Memory::new();
        let (moment, place) = (moment(batch.rows_step), place.clone());
        let (memory, outbox_of) = (&mut memory, &mut outbox);
        let mut work = Work { moment, place, model, batch, memory, wires, outbox: outbox_of };
        learner.contribute(&mut work).unwrap();
        outbox.take()
    })
}

pub(crate) fn rows(width: usize, classes: usize) -> Table {
    let mut rng = Rng::named(5, "stages", &[]);
    let values = (0..width * 40).map(|_| rng.normal() as f32).collect();
    table(width, values, (0..40).map(|row| (row % classes) as f32).collect())
}

pub(crate) const SHARES: &[usize] = &[7, 9, 0, 8, 6, 10];

/// Name, parameters, features and stages.
const NETWORKS: &[(&str, &str, usize, u32)] = &[
    ("mlp", "hidden = [12, 9]", 8, 3),
    ("mlp", "hidden = [12, 9]\ndropout = 0.3\nnorm = 'batch-norm'", 8, 2),
    (
        "cnn",
        "shape = [1, 4, 4]\nlayers = ['conv 4', 'relu', 'residual 4 groups 2', 'linear 6', 'tanh']",
        16,
        3,
    ),
    ("transformer", "width = 8\nheads = 2\nblocks = 2\nsteps = 4\ndropout = 0.1", 8, 2),
    ("rnn", "cell = 'lstm'\nhidden = [6, 5]", 8, 2),
    ("vae", "hidden = [12]\ncode = 3", 8, 4),
];

#[test]
fn stages_contribute_together_what_the_whole_network_does() {
    for &(name, settings, width, stages) in NETWORKS {
        let learner = network(name, settings).unwrap();
        let table = rows(width, 3);
        let (batch, facts) = (batch(&table, SHARES), Facts { shards: 6, ..facts(&table, 3) });
        let whole = learner.init(&facts, Place::WHOLE).unwrap();
        let wanted = contribution(&*learner, &whole, &batch).unwrap();
        let mut bits: Vec<Vec<Update>> = Vec::new();
        for one_by_one in [false, true] {
            let parts = contributed(&*learner, &batch, &facts, &places(stages, 4, one_by_one));
            let mut tensors = 0;
            for (stage, (model, update)) in parts.iter().enumerate() {
                for (tensor, values) in model.iter() {
                    assert_eq!(
                        whole.get(tensor),
                        Some(values),
                        "{name}: {tensor} of stage {stage}"
                    );
                }
                tensors += model.iter().count() - 1;
                update.blocks.iter().for_each(|block| near(name, stage, block, &wanted));
                assert!(update.get("loss").is_some(), "{name}: stage {stage} knows the loss");
            }
            assert_eq!(tensors + 1, whole.iter().count(), "{name}: each tensor is at one stage");
            let blocks: usize = parts.iter().map(|(_, update)| update.blocks.len()).sum();
            let counts =
                wanted.blocks.iter().filter(|it| ["rows", "loss"].contains(&&*it.name)).count();
            assert_eq!(blocks, wanted.blocks.len() + (stages as usize - 1) * counts, "{name}");
            bits.push(parts.into_iter().map(|(_, update)| update).collect());
        }
        assert!(bits[0] == bits[1], "{name}: both schedules give the same bits");
    }
}

fn near(name: &str, stage: usize, found: &Block, wanted: &Update) {
    let name_of = found.name.as_str();
    if let Body::Dense(Values::F64(found)) = &found.body {
        let wanted = wanted.f64(name_of);
        let alike = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
        assert!(found.iter().zip(wanted).all(alike), "{name}: {found:?} for {wanted:?}");
        return;
    }
    let update = Update { blocks: vec![found.clone()] };
    let (found_numbers, wanted_numbers) = (f32s(&update, &found.name), f32s(wanted, &found.name));
    let size = wanted_numbers.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
    for (a, b) in found_numbers.iter().zip(wanted_numbers) {
        assert!((a - b).abs() <= 1e-5 * size, "{name} stage {stage}: {}: {a} for {b}", found.name);
    }
}

#[test]
fn stages_score_together_what_the_whole_network_does() {
    let learner = network("mlp", "hidden = [12, 9]").unwrap();
    // More parts than may be on their way at once.
    let (width, count) = (8, 2_000);
    let mut rng = Rng::named(7, "score", &[]);
    let values = (0..width * count).map(|_| rng.normal() as f32).collect();
    let table = table(width, values, (0..count).map(|row| (row % 3) as f32).collect());
    let (all, facts) = (batch(&table, &[count]), facts(&table, 3));
    let score = |model: &Model, place: &Place, wires: &mut dyn Wires| {
        let (mut memory, mut outbox) = (Memory::new(), Outbox::new());
        let (moment, place, batch) = (moment(all.rows_step), place.clone(), &all);
        let (memory, outbox) = (&mut memory, &mut outbox);
        learner.score(&mut Work { moment, place, model, batch, memory, wires, outbox }).unwrap()
    };
    let whole = learner.init(&facts, Place::WHOLE).unwrap();
    let wanted = score(&whole, &Place::WHOLE, &mut NoWires);
    let parts = run((&*learner, &facts), &places(3, 1, true), |model, place, wires| {
        score(model, place, wires)
    });
    assert!(parts[..2].iter().all(|(_, sums)| sums.iter().all(|&sum| sum == 0.0)));
    for (found, wanted) in parts[2].1.iter().zip(&wanted) {
        assert!((found - wanted).abs() <= 1e-5 * wanted.abs().max(1.0), "{found} for {wanted}");
    }
}

/// A clock that runs slower while some layers are measured: cuts follow it, and not what could be counted.
#[test]
fn a_measured_cut_follows_the_clock() {
    let learner = network("mlp", "hidden = [8, 8, 8]").unwrap();
    let table = rows(8, 3);
    let facts = facts(&table, 3);
    let cut = |slow: usize| {
        // A layer's times are read in pairs, four of them.
        let reads = std::cell::Cell::new(0_usize);
        let now = std::cell::Cell::new(0.0);
        let clock = || {
            let layer = reads.get() / 8;
            reads.set(reads.get() + 1);
            now.set(now.get() + if layer == slow { 0.1 } else { 0.001 });
            now.get()
        };
        learner.measured_cut(&facts, 2, &clock).unwrap().unwrap()
    };
    // linear, relu, linear, relu, linear, relu, linear
    assert_eq!(cut(0), [2, 5]);
    assert_eq!(cut(6), [6, 1]);
    let fault = learner.measured_cut(&facts, 5, &|| 0.0).unwrap_err().to_string();
    assert!(fault.contains("4 layers with parameters"), "{fault}");
}

#[test]
fn what_a_stage_cannot_do_is_refused() {
    let table = rows(8, 3);
    let refusal = |settings: &str, place: Place, shards: u32| {
        let facts = Facts { shards, ..facts(&table, 3) };
        network("mlp", settings).unwrap().init(&facts, place).unwrap_err().to_string()
    };
    let stage = |micro_batches| places(2, micro_batches, true).remove(0);
    let cases = [
        (refusal("hidden = [4]\naccumulate = 2", stage(2), 16), "micro_batches"),
        (refusal("hidden = [4]", stage(20), 16), "20 micro-batches cannot be made of 16 shards"),
        (refusal("hidden = []", stage(2), 16), "cannot be cut into 2 stages"),
    ];
    cases.iter().for_each(|(found, wanted)| assert!(found.contains(wanted), "{found}"));
}
