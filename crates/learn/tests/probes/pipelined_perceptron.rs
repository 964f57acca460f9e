//! The pipelined perceptron: against torch, finite differences, and one stage against two.

use crate::{Knuth, dense, learner, schema, sparse};
use starlings_core::{Fault, Model, Result, Role, Step, Tensor, Update, Values};
use starlings_data::{Batch, Dealer, Holding};
use starlings_learn::{Facts, Learner, Memory, Moment, NoWires, Outbox, Place, Wires, Work};
use starlings_testkit::drive::{Drive, drive};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const NAME: &str = "pipelined-perceptron";

/// A wire that holds one message: the least that the learner must do with.
struct Wire {
    other: u32,
    out: SyncSender<Values>,
    back: Receiver<Values>,
}

impl Wires for Wire {
    fn send(&mut self, stage: u32, values: Values) -> Result<()> {
        assert_eq!(stage, self.other);
        self.out.send(values).map_err(|_| Fault::peer(None, "the other stage hung up"))
    }

    fn receive(&mut self, stage: u32) -> Result<Values> {
        assert_eq!(stage, self.other);
        let lost = |_| Fault::peer(None, "the other stage is silent");
        self.back.recv_timeout(Duration::from_secs(10)).map_err(lost)
    }
}

fn wires() -> [Wire; 2] {
    let ((there, here), (back, from)) = (sync_channel(1), sync_channel(1));
    [Wire { other: 1, out: there, back: from }, Wire { other: 0, out: back, back: here }]
}

/// What is done with a worker's work: contribute or score.
type Act<T> = fn(&dyn Learner, &mut Work<'_>) -> Result<T>;

fn contribute(learner: &dyn Learner, work: &mut Work<'_>) -> Result<Update> {
    learner.contribute(work)?;
    Ok(work.outbox.take())
}

fn act<T>(
    learner: &dyn Learner,
    (place, model, wires): (Place, &Model, &mut dyn Wires),
    (moment, batch): (Moment, &Batch<'_>),
    act: Act<T>,
) -> Result<T> {
    let (memory, outbox) = (&mut Memory::new(), &mut Outbox::new());
    act(learner, &mut Work { moment, place, model, batch, memory, wires, outbox })
}

/// The same on two threads that are the two stages.
fn act_on_stages<T: Send>(
    learner: &dyn Learner,
    models: &[Model],
    on: (Moment, &Batch<'_>),
    what: Act<T>,
) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .zip(models)
            .zip(wires())
            .map(|((stage, model), mut wire)| {
                let place = Place::stage(stage, 2);
                scope.spawn(move || act(learner, (place, model, &mut wire), on, what))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Two crescents' worth of points in three classes by angle and radius.
fn data(rows: usize) -> Holding {
    let mut knuth = Knuth(3);
    let (mut values, mut labels) = (vec![], vec![]);
    for _ in 0..rows {
        let (x, y) = (knuth.uniform() * 2.0 - 1.0, knuth.uniform() * 2.0 - 1.0);
        values.extend([x as f32, 0.0, y as f32]);
        labels.push(if x * x + y * y < 0.3 { 0.0 } else { 1.0 + f32::from(x > y) });
    }
    dense(3, values, labels)
}

fn facts(rows: u64) -> Facts {
    Drive::default().facts(&schema(3, 3), rows)
}

fn moment(step: u64, rows: u64) -> Moment {
    Moment { step: Step(step), pass: 0, seed: 1, rows }
}

/// Six rows and weights that are sines and cosines of their place.
fn closed_form() -> (Model, Holding) {
    let wave = |from: usize, len: usize, of: fn(f64) -> f64| -> Vec<f64> {
        (from..from + len).map(|i| of(i as f64)).collect()
    };
    let half = |values: Vec<f64>| values.into_iter().map(|v| 0.5 * v).collect::<Vec<f64>>();
    let mut model = Model::new();
    model.set("hidden", Tensor::of(&[4, 4], half(wave(2, 16, f64::sin)), Role::Weight));
    model.set("output", Tensor::of(&[5, 3], half(wave(3, 15, f64::cos)), Role::Weight));
    let values = wave(1, 18, f64::sin).into_iter().map(|v| v as f32).collect();
    (model, dense(3, values, (0..6).map(|row| (row % 3) as f32).collect()))
}

#[test]
fn three_steps_are_those_of_torch() {
    // torch in double precision: a = tanh(X @ W1[:-1] + W1[-1]); cross_entropy(a @ W2[:-1] + W2[-1], y)
    // + 0.01 / 2 * (sum of squares without the last rows), three steps of W -= 0.5 * W.grad.
    const LOSSES: [f64; 3] = [1.1370676267342603, 1.1190172206139395, 1.1097982960746593];
    const HIDDEN: [f64; 16] = [
        0.4739667661908326,
        0.04293339412729833,
        -0.35519980893807884,
        -0.4962444494288179,
        -0.11498593493995285,
        0.3053273330063193,
        0.4896814504862277,
        0.19321451446156285,
        -0.2695932269235406,
        -0.4856943798344829,
        -0.27925824672277594,
        0.22032962374313167,
        0.43702980063866215,
        0.3819976822218785,
        -0.1980144448805622,
        -0.43318315976071303,
    ];
    const OUTPUT: [f64; 15] = [
        -0.434318004942816,
        -0.3494718826682996,
        0.11395181207662702,
        0.5116230165500977,
        0.3464507403343602,
        -0.08549307366257954,
        -0.4637113202235946,
        -0.41454349753195513,
        0.018394734473827917,
        0.36276222344458864,
        0.4730107119295852,
        0.09415644255422548,
        -0.338875598603759,
        -0.39346859179137944,
        -0.263911175221763,
    ];
    let perceptron = learner(NAME, "hidden = 4\nlearning_rate = 0.5\nl2 = 0.01\nmicro_batches = 4");
    let (mut model, holding) = closed_form();
    let dealer = Dealer::new(holding, 1, 6);
    for (step, expected) in (0..).zip(LOSSES) {
        let on = (moment(step, 6), &dealer.everything());
        let update = act(&*perceptron, (Place::WHOLE, &model, &mut NoWires), on, contribute);
        let outcome = perceptron.apply(&mut model, &update.unwrap(), &on.0).unwrap();
        assert!((outcome.objective.unwrap() - expected).abs() < 1e-12, "{outcome:?}");
    }
    for (name, expected) in [("hidden", &HIDDEN[..]), ("output", &OUTPUT[..])] {
        for (ours, theirs) in model.f64(name).iter().zip(expected) {
            assert!((ours - theirs).abs() < 1e-12, "{name}: {ours} {theirs}");
        }
    }
}

#[test]
fn the_gradient_is_the_slope_of_the_objective() {
    let perceptron = learner(NAME, "hidden = 4");
    let (model, holding) = closed_form();
    let dealer = Dealer::new(holding, 1, 6);
    let on = (moment(0, 6), &dealer.everything());
    let loss = |model: &Model| -> f64 {
        let score = |learner: &dyn Learner, work: &mut Work<'_>| learner.score(work);
        act(&*perceptron, (Place::WHOLE, model, &mut NoWires), on, score).unwrap()[0]
    };
    let update = act(&*perceptron, (Place::WHOLE, &model, &mut NoWires), on, contribute).unwrap();
    for name in ["hidden", "output"] {
        for (at, gradient) in update.f64(name).iter().enumerate() {
            let moved = |by: f64| {
                let mut model = model.clone();
                model.f64_mut(name)[at] += by;
                loss(&model)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - gradient).abs() < 1e-8, "{name}[{at}]: {slope} {gradient}");
        }
    }
}

#[test]
fn two_stages_learn_the_bits_of_one() {
    let perceptron =
        learner(NAME, "hidden = 8\nlearning_rate = 0.5\nl2 = 0.001\nmicro_batches = 5");
    let facts = facts(100);
    let mut whole = perceptron.init(&facts, Place::WHOLE).unwrap();
    let mut stages: Vec<Model> =
        (0..2).map(|stage| perceptron.init(&facts, Place::stage(stage, 2)).unwrap()).collect();
    let mut dealer = Dealer::new(data(100), 1, 32);
    // The last batch of a pass has four rows, fewer than micro-batches.
    for step in 0..12 {
        let batch = dealer.deal(step / 4, step % 4);
        let on = (moment(step, batch.rows_step), &batch);
        let one = act(&*perceptron, (Place::WHOLE, &whole, &mut NoWires), on, contribute).unwrap();
        let expected = perceptron.apply(&mut whole, &one, &on.0).unwrap();
        let two = act_on_stages(&*perceptron, &stages, on, contribute);
        let names: Vec<Vec<String>> =
            two.iter().map(|update| names(update.as_ref().unwrap())).collect();
        assert_eq!(names, [vec!["hidden"], vec!["output", "loss"]]);
        let outcomes: Vec<_> = stages
            .iter_mut()
            .zip(two)
            .map(|(model, update)| perceptron.apply(model, &update.unwrap(), &on.0).unwrap())
            .collect();
        assert_eq!((outcomes[0].objective, outcomes[1].objective), (None, expected.objective));
    }
    assert_eq!(whole.f64("hidden"), stages[0].f64("hidden"));
    assert_eq!(whole.f64("output"), stages[1].f64("output"));
    assert!(stages[0].get("output").is_none() && stages[1].get("hidden").is_none());

    let batch = dealer.everything();
    let on = (moment(12, 100), &batch);
    let score: Act<Vec<f64>> = |learner, work| learner.score(work);
    let one = act(&*perceptron, (Place::WHOLE, &whole, &mut NoWires), on, score).unwrap();
    let two: Vec<Vec<f64>> =
        act_on_stages(&*perceptron, &stages, on, score).into_iter().map(Result::unwrap).collect();
    assert_eq!(two[0][..2], [0.0, 0.0]);
    let sums: Vec<f64> = two[0].iter().zip(&two[1]).map(|(a, b)| a + b).collect();
    assert!(one.iter().zip(&sums).all(|(a, b)| (a - b).abs() < 1e-12), "{one:?} {sums:?}");
}

fn names(update: &Update) -> Vec<String> {
    update.blocks.iter().map(|block| block.name.clone()).collect()
}

#[test]
fn an_empty_batch_contributes_zeros_at_every_stage() {
    let perceptron = learner(NAME, "hidden = 2");
    let holding = data(10).only(&[]);
    let dealer = Dealer::new(holding, 1, 10);
    let models: Vec<Model> =
        (0..2).map(|stage| perceptron.init(&facts(10), Place::stage(stage, 2)).unwrap()).collect();
    let batch = dealer.everything();
    for update in act_on_stages(&*perceptron, &models, (moment(0, 10), &batch), contribute) {
        for block in update.unwrap().blocks {
            let starlings_core::Body::Dense(Values::F64(values)) = block.body else {
                panic!("f64")
            };
            assert!(!values.is_empty() && values.iter().all(|&v| v == 0.0));
        }
    }
}

#[test]
fn a_stage_that_sends_too_little_or_nothing_is_a_peer_at_fault() {
    let perceptron = learner(NAME, "hidden = 2");
    let place = Place::stage(1, 2);
    let model = perceptron.init(&facts(10), place.clone()).unwrap();
    let dealer = Dealer::new(data(10), 1, 10);
    let [mut first, mut second] = wires();
    first.send(1, Values::F64(vec![0.0, 0.0])).unwrap();
    let on = (moment(0, 10), &dealer.everything());
    let fault = act(&*perceptron, (place.clone(), &model, &mut second), on, contribute).unwrap_err();
    assert!(fault.to_string().contains("stage 0 sent 2 F64 where 1 F64 are due"), "{fault}");
    let fault = act(&*perceptron, (place, &model, &mut NoWires), on, contribute).unwrap_err();
    assert!(fault.to_string().contains("no wire"), "{fault}");
    let three = perceptron.init(&facts(10), Place::stage(2, 3)).unwrap_err();
    assert!(three.to_string().contains("3 stages"), "{three}");
}

#[test]
fn one_two_and_four_workers_learn_the_same_and_the_rings_are_told_apart() {
    let perceptron = learner(NAME, "hidden = 16\nlearning_rate = 0.5");
    let train = |workers, holding: &Holding| {
        let options = Drive { workers, epochs: Some(100), ..Drive::default() };
        drive(&*perceptron, &options.facts(&schema(3, 3), 300), holding, &options).unwrap()
    };
    let holding = data(300);
    let alone = train(1, &holding);
    assert!(alone.grade.metrics["accuracy"] > 0.95, "{:?}", alone.grade);
    for other in [train(2, &holding), train(4, &holding), train(2, &sparse(&holding))] {
        for name in ["hidden", "output"] {
            let pairs = alone.model.f64(name).iter().zip(other.model.f64(name));
            pairs.for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{name}: {a} {b}"));
        }
    }
    let dealer = Dealer::new(holding.clone(), 1, 32);
    let mut out = vec![];
    perceptron.predict(&alone.model, &dealer.everything(), &mut out).unwrap();
    let pairs = out.chunks_exact(3).zip(&holding.table.labels);
    let mean = pairs.map(|(p, &label)| -p[label as usize].ln()).sum::<f64>() / 300.0;
    assert!((mean - alone.grade.metrics["log_loss"]).abs() < 1e-9);
}
