//! Gossip learning ages its models and does not keep their mean; its cache is bounded, and becomes votes; it sends as many
//! bytes as it says.

use super::*;
use crate::bridge::adder::{
    Adder, PATIENCE, Perch, assert_near, flock, form, model, perches, run_all, step,
};
use crate::choices::raw;
use starlings_topology::Form;
use starlings_transport::HEADER_BYTES;

fn walk(cache: usize) -> Arc<dyn Walk> {
    match form("gossip", &format!("cache = {cache}")) {
        Form::Walk(walk) => walk.into(),
        _ => panic!("gossip is a walk"),
    }
}

fn gossip(perch: &Perch, cache: usize) -> Gossip {
    let options = WalkOptions { walk: walk(cache), codec: raw(), seed: 1, patience: PATIENCE };
    Gossip::new(Adder::shared(), options, perch.net.clone(), perch.exact(3))
}

fn open(gossip: &mut Gossip, model: &mut Model) {
    gossip.open(Step(0), &Needs::All, Asks::default(), model).unwrap();
}

#[test]
fn a_visitor_is_merged_with_the_one_before_and_learning_makes_it_one_older_than_both() {
    let seats = perches(2);
    let (mut a, mut b) = (gossip(&seats[0], 10), gossip(&seats[1], 10));
    let (mut at_a, mut at_b) = (model(vec![0.0]), model(vec![100.0]));
    // Seat 0 learns twice: its models of age 1 and 2 walk to seat 1.
    a.finish(step(0, vec![8.0]), &mut at_a).unwrap();
    a.finish(step(1, vec![4.0]), &mut at_a).unwrap();
    assert_eq!((age(&at_a), at_a.f64("x")), (2, &[12.0][..]));
    seats[1].hear(&seats[0]);
    open(&mut b, &mut at_b);
    // The first visitor met the model that was there, the second met the first.
    assert_eq!((age(&at_b), at_b.f64("x")), (2, &[10.0][..]));
    b.finish(step(0, vec![1.0]), &mut at_b).unwrap();
    assert_eq!((age(&at_b), at_b.f64("x")), (3, &[11.0][..]), "one more than the older of the two");
    seats[0].hear(&seats[1]);
    open(&mut a, &mut at_a);
    assert_eq!((age(&at_a), at_a.f64("x")), (3, &[11.5][..]), "met by the model that was there");
    a.finish(step(2, vec![0.5]), &mut at_a).unwrap();
    assert_eq!((age(&at_a), at_a.f64("x")), (4, &[12.0][..]));
    // An old worker that a young model visits keeps the age of the older.
    set_age(&mut at_b, 20);
    b.last = Some((20, weights(&model(vec![0.0]))));
    seats[1].hear(&seats[0]);
    open(&mut b, &mut at_b);
    assert_eq!((age(&at_b), at_b.f64("x")), (20, &[6.0][..]));
}

#[test]
fn who_is_behind_sees_how_far_others_are_ahead() {
    let seats = perches(2);
    let (mut ahead, mut behind) = (gossip(&seats[0], 10), gossip(&seats[1], 10));
    let (mut at_first, mut at_second) = (model(vec![0.0]), model(vec![0.0]));
    let open = |gossip: &mut Gossip, number, model: &mut Model| {
        gossip.open(Step(number), &Needs::All, Asks::default(), model).unwrap();
    };
    for number in 0..4 {
        open(&mut ahead, number, &mut at_first);
        ahead.finish(step(number, vec![0.0]), &mut at_first).unwrap();
    }
    seats[1].hear(&seats[0]);
    // Step 3 was begun while the other had finished none.
    open(&mut behind, 0, &mut at_second);
    assert_eq!(behind.lead_max(), 3);
    behind.finish(step(0, vec![0.0]), &mut at_second).unwrap();
    seats[0].hear(&seats[1]);
    open(&mut ahead, 4, &mut at_first);
    assert_eq!(ahead.lead_max(), 0, "who is ahead has nobody before it");
    ahead.finish(step(4, vec![0.0]), &mut at_first).unwrap();
    seats[1].hear(&seats[0]);
    open(&mut behind, 4, &mut at_second);
    assert_eq!(behind.lead_max(), 3, "nobody is ahead now, but was");
}

#[test]
fn gossip_does_not_keep_the_mean() {
    let seats = perches(2);
    let (mut a, mut b) = (gossip(&seats[0], 10), gossip(&seats[1], 10));
    let (mut at_a, mut at_b) = (model(vec![0.0]), model(vec![1.0]));
    a.finish(step(0, vec![0.0]), &mut at_a).unwrap();
    seats[1].hear(&seats[0]);
    open(&mut b, &mut at_b);
    assert_eq!((at_a.f64("x")[0] + at_b.f64("x")[0]) / 2.0, 0.25, "it was a half");
}

#[test]
fn the_cache_is_bounded_and_votes_at_the_end() {
    let models = flock(3, |perch| {
        let mut gossip = gossip(&perch, 4);
        let mut model = model(vec![0.0, 1.0]);
        let mut seen = Vec::new();
        for number in 0..9 {
            open(&mut gossip, &mut model);
            gossip.finish(step(number, vec![1.0, perch.seat() as f64]), &mut model).unwrap();
            seen.push(model.f64("x").to_vec());
            assert_eq!(gossip.cache.len(), seen.len().min(4));
        }
        gossip.close(Step(9)).unwrap();
        gossip.cut(Step(9), &mut model).unwrap();
        for (number, remembered) in seen[5..].iter().enumerate() {
            assert_eq!(model.f64(&format!("{VOTE}{number}.x")), remembered, "the newest four vote");
        }
        let weights = model.iter().filter(|(_, tensor)| tensor.role == Role::Weight);
        assert_eq!(weights.count(), 5);
        gossip.sum(vec![]).unwrap();
        model.f64("x").to_vec()
    });
    assert!(models[0] != models[1] || models[1] != models[2], "nobody has made them one");
}

#[test]
fn a_cut_under_way_makes_the_models_one() {
    let models = flock(3, |perch| {
        let mut gossip = gossip(&perch, 2);
        let mut model = model(vec![perch.seat() as f64]);
        let cut = gossip.cut(Step(perch.seat() as u64), &mut model).unwrap();
        assert_eq!(cut, Step(2), "the cut is before the step of the first");
        model.f64("x").to_vec()
    });
    for model in models {
        assert_near(&model, &[1.0], 1e-12);
    }
}

#[test]
fn the_age_of_a_model_outlives_the_exchange() {
    let models = flock(3, |perch| {
        let mut model = model(vec![1.0]);
        let mut walked = gossip(&perch, 2);
        // The seats are of different ages: one has not begun.
        for number in 0..perch.seat() as u64 {
            walked.finish(step(number, vec![0.0]), &mut model).unwrap();
        }
        assert_eq!(age(&model), perch.seat() as u64);
        walked.cut(Step(2), &mut model).unwrap();
        drop(walked);
        // As after a resume, or when members have changed: the exchange is another, the model is there.
        let mut anew = gossip(&perch, 2);
        anew.finish(step(2, vec![0.0]), &mut model).unwrap();
        anew.sum(vec![]).unwrap();
        (age(&model), model.get(AGE).unwrap().role)
    });
    assert_eq!(models, [(3, Role::State); 3], "one more than the oldest");
}

#[test]
fn walking_models_send_as_many_bytes_as_is_said() {
    let (steps, len) = (6, 1000);
    for world in [1, 2, 5] {
        let seats = perches(world);
        run_all(&seats, |perch| {
            let (mut gossip, mut model) = (gossip(&perch, 2), model(vec![0.0; len]));
            for number in 0..steps {
                open(&mut gossip, &mut model);
                gossip.finish(step(number, vec![1.0; len]), &mut model).unwrap();
            }
        });
        // Before the numbers a message says how old its model is.
        let sent = seats.iter().map(|perch| {
            let heads = perch.sent(Lane::Exchange, WALKING) * (HEADER_BYTES + 24);
            perch.net.bytes_sent() - heads as u64
        });
        let sent: Vec<u64> = sent.collect();
        let cost = walk(2).cost(world, (len * 8) as u64);
        let said = [cost.bytes_sent_max, cost.bytes_sent_total].map(|it| it * steps as f64);
        let counted = [sent.iter().max().copied(), Some(sent.iter().sum())].map(Option::unwrap);
        assert_eq!(said, counted.map(|bytes| bytes as f64), "{world} seats: {sent:?}");
    }
}
