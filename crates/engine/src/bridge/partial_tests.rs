//! Partial exchange: a step sends one part and no more, as many bytes as is said, and after a cut every replica has every
//! change.

use super::*;
use crate::bridge::adder::{
    Adder, PATIENCE, Perch, assert_near, flock, form, model, perches, run_all, step,
};
use crate::choices::raw;
use starlings_core::Rng;
use starlings_topology::Form;
use starlings_transport::HEADER_BYTES;

const LEN: usize = 10;

fn ako(parts: u32) -> Arc<dyn Partial> {
    match form("ako", &format!("partitions = {parts}")) {
        Form::Partial(partial) => partial.into(),
        _ => panic!("ako goes part by part"),
    }
}

fn partial(perch: &Perch, parts: u32) -> PartialExchange {
    let options = PartialOptions { partial: ako(parts), codec: raw(), patience: PATIENCE };
    PartialExchange::new(Adder::shared(), options, perch.net.clone(), perch.exact(3))
}

fn change(seat: u64, number: u64) -> Vec<f64> {
    let mut rng = Rng::named(1, "change", &[seat, number]);
    (0..LEN).map(|_| rng.normal()).collect()
}

#[test]
fn after_a_cut_every_replica_has_all_changes_and_a_step_sends_one_part() {
    for (world, parts) in [(1, 3), (2, 1), (3, 4), (4, 16)] {
        let models = flock(world, |perch| {
            let mut exchange = partial(&perch, parts);
            let mut model = model(vec![1.0; LEN]);
            let most = 8 * LEN.div_ceil(parts as usize) * (world as usize - 1);
            let mut sent = 0;
            for number in 0..7 {
                exchange.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
                let adds = change(perch.seat() as u64, number);
                exchange.finish(step(number, adds), &mut model).unwrap();
                let now = exchange.bytes_raw;
                assert!(now - sent <= most as u64, "{} bytes of {most}", now - sent);
                sent = now;
            }
            let frames = perch.sent(Lane::Exchange, PARTIAL);
            assert_eq!(frames, 7 * (world as usize - 1), "one part to each other seat in a step");
            exchange.cut(Step(7), &mut model).unwrap();
            let once = model.clone();
            // All of it has arrived: another cut changes nothing.
            exchange.cut(Step(7), &mut model).unwrap();
            assert_near(model.f64("x"), once.f64("x"), 1e-12);
            exchange.sum(vec![]).unwrap();
            model.f64("x").to_vec()
        });
        let mut truth = vec![1.0; LEN];
        for (seat, number) in (0..u64::from(world)).flat_map(|s| (0..7).map(move |n| (s, n))) {
            // Two of the step's four rows are this worker's: a half of its step counts.
            truth.iter_mut().zip(change(seat, number)).for_each(|(to, adds)| *to += 0.5 * adds);
        }
        for model in &models {
            assert_near(model, &truth, 1e-12);
            assert_eq!(model, &models[0], "the same bits");
        }
    }
}

#[test]
fn who_is_behind_sees_how_far_others_are_ahead() {
    let seats = perches(2);
    let (mut ahead, mut behind) = (partial(&seats[0], 2), partial(&seats[1], 2));
    (ahead.parts, behind.parts) = (2, 2);
    let (mut at_first, mut at_second) = (model(vec![0.0; 4]), model(vec![0.0; 4]));
    for number in 0..3 {
        ahead.open(Step(number), &Needs::All, Asks::default(), &mut at_first).unwrap();
        ahead.finish(step(number, vec![0.0; 4]), &mut at_first).unwrap();
    }
    seats[1].hear(&seats[0]);
    behind.open(Step(0), &Needs::All, Asks::default(), &mut at_second).unwrap();
    assert_eq!((ahead.lead_max(), behind.lead_max()), (0, 2));
}

#[test]
fn the_rest_that_a_cut_sends_is_of_no_new_step() {
    let leads = flock(2, |perch| {
        let mut exchange = partial(&perch, 3);
        let mut model = model(vec![0.0; LEN]);
        exchange.parts = 3;
        exchange.open(Step(0), &Needs::All, Asks::default(), &mut model).unwrap();
        exchange.finish(step(0, vec![1.0; LEN]), &mut model).unwrap();
        exchange.cut(Step(1), &mut model).unwrap();
        exchange.sum(vec![]).unwrap();
        let log = perch.log.lock().unwrap();
        let parts = log.iter().filter(|(_, header)| header.kind == PARTIAL);
        let steps: Vec<Step> = parts.map(|(_, header)| header.step).collect();
        assert_eq!(steps, [Step(0); 4], "one part of the step itself, and all of the rest");
        exchange.lead_max()
    });
    assert_eq!(leads, [0, 0]);
}

#[test]
fn what_was_not_sent_yet_is_gathered_and_goes_with_its_part() {
    let seats = perches(2);
    let mut exchange = partial(&seats[0], 2);
    exchange.parts = 2;
    let (mut own, mut other) = (model(vec![0.0; 4]), partial(&seats[1], 2));
    let mut theirs = model(vec![0.0; 4]);
    let receive = |other: &mut PartialExchange, theirs: &mut Model| {
        seats[1].hear(&seats[0]);
        other.receive(theirs).unwrap();
        theirs.f64("x").to_vec()
    };
    exchange.finish(step(0, vec![2.0, 4.0, 6.0, 8.0]), &mut own).unwrap();
    assert_eq!(receive(&mut other, &mut theirs), [1.0, 2.0, 0.0, 0.0]);
    exchange.finish(step(1, vec![20.0, 40.0, 60.0, 80.0]), &mut own).unwrap();
    assert_eq!(receive(&mut other, &mut theirs), [1.0, 2.0, 33.0, 44.0]);
    exchange.finish(step(2, vec![0.0; 4]), &mut own).unwrap();
    assert_eq!(receive(&mut other, &mut theirs), [11.0, 22.0, 33.0, 44.0]);
}

#[test]
fn parts_that_are_none_are_blamed_on_their_sender() {
    let seats = perches(2);
    let header = Header { lane: Lane::Exchange, kind: PARTIAL, step: Step(0), tag: 0 };
    let word = |part: u32, parts: u32| [part.to_le_bytes(), parts.to_le_bytes()].concat();
    let whole = [word(0, 1), vec![0; 8 * LEN]].concat();
    let broken = [
        vec![],
        word(0, 0),
        word(3, 3),
        word(u32::MAX, u32::MAX),
        whole[..whole.len() - 1].to_vec(),
        [whole.clone(), vec![0]].concat(),
    ];
    for bytes in broken {
        seats[1].net.send(Seat(0), header, &bytes, Deadline::after(PATIENCE)).unwrap();
        seats[0].hear(&seats[1]);
        let fault = partial(&seats[0], 1).receive(&mut model(vec![0.0; LEN])).unwrap_err();
        assert_eq!(fault.blame(), starlings_core::Blame::Peer(Some(Seat(1))), "{bytes:?}: {fault}");
    }
}

#[test]
fn parts_are_as_many_bytes_as_is_said() {
    // Seven does not divide the numbers: a turn of all parts is what is said, a round is so to a number.
    let len = 1000;
    for (world, parts) in [(1, 3), (2, 1), (3, 4), (5, 7)] {
        let (seats, steps) = (perches(world), 2 * u64::from(parts));
        run_all(&seats, |perch| {
            let (mut exchange, mut model) = (partial(&perch, parts), model(vec![0.0; len]));
            // Links need not be measured: how many parts there are is known.
            exchange.parts = parts;
            for number in 0..steps {
                exchange.open(Step(number), &Needs::All, Asks::default(), &mut model).unwrap();
                exchange.finish(step(number, vec![1.0; len]), &mut model).unwrap();
            }
        });
        // Before the numbers a message says which part it is, and of how many.
        let sent = seats.iter().map(|perch| {
            let heads = perch.sent(Lane::Exchange, PARTIAL) * (HEADER_BYTES + 8);
            (perch.net.bytes_sent() - heads as u64) as f64
        });
        let sent: Vec<f64> = sent.collect();
        let cost = ako(parts).cost(world, (len * 8) as u64, parts);
        let said = [cost.bytes_sent_max, cost.bytes_sent_total].map(|it| it * steps as f64);
        let counted = [sent.iter().copied().fold(0.0, f64::max), sent.iter().sum()];
        assert_near(&said, &counted, 1e-6);
    }
}
