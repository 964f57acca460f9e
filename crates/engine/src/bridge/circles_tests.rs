//! Circles in a flock: who is outside sends no model, sums of circles that follow each other are not confused, members
//! count by their rows, and a look that breaks off leaves nothing that would part those who are left.

use super::*;
use crate::bridge::adder::{Adder, PATIENCE, Perch, blending, flock, model, perches_that, run_all};
use crate::bridge::{Blended, Exchange, HandedIn, asks_block};
use crate::choices::{codec, summing};
use crate::exchange::served::Asks;
use starlings_consistency::{At, Blend, Blending};
use starlings_core::{Block, Deadline, Model, Rng, Step};
use starlings_learn::Moment;
use starlings_transport::{Header, Lane};
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers of a model, so many that a model is not taken for counts.
const LEN: usize = 300;

fn local(blending: &Blending) -> &dyn Blend {
    match blending {
        Blending::Local(blend) => &**blend,
        _ => unreachable!("local steps are tested"),
    }
}

fn prepared(blending: &Blending) -> Model {
    let mut model = model(vec![0.0; LEN]);
    local(blending).prepare(&mut model);
    model
}

fn options(perch: &Perch, topology: &str, name: &str) -> MergeOptions {
    let exact = MergeOptions::exact(1, &perch.net, summing(topology, "").unwrap(), PATIENCE);
    MergeOptions { carriage: codec(name, "").unwrap(), ..exact }
}

fn blended(perch: &Perch, blending: &Arc<Blending>, [topology, codec]: [&str; 2]) -> Blended {
    let options = options(perch, topology, codec);
    let mergers = [Merger::new(perch.net.clone(), options.clone()), perch.exact(3)];
    let circles = Circles::new(perch.net.clone(), options);
    Blended::new(Adder::shared(), blending.clone(), mergers).in_circles(Some(circles))
}

/// A step that moves all numbers alike, on this many of eight rows.
fn step(number: u64, by: f64, own_rows: u64) -> HandedIn {
    let moment = Moment { step: Step(number), pass: 0, seed: 0, rows: 8 };
    HandedIn::new(moment, own_rows, vec![Update { blocks: vec![Block::dense("x", vec![by; LEN])] }])
}

#[test]
fn who_is_outside_the_circle_keeps_its_model_and_sends_only_counts() {
    let blending = blending("dynamic-averaging", "check = 1\ndivergence = 1.0");
    let seats = flock(5, |perch| {
        let (mut blended, mut model) =
            (blended(&perch, &blending, ["ring", "raw"]), prepared(&blending));
        let by = [0.01, 2.0, 0.02, -2.0, 0.0][perch.seat()];
        blended.finish(step(0, by, 2), &mut model).unwrap();
        let raw = blended.bytes_raw();
        let frames = perch.sent(Lane::Exchange, CIRCLES);
        blended.sum(vec![]).unwrap();
        (model, raw, frames)
    });
    for (seat, (model, raw, frames)) in seats.iter().enumerate() {
        let is_member = seat % 2 == 1;
        let expected = [0.01, 0.0, 0.02, 0.0, 0.0][seat];
        assert_eq!(model.f64("x"), [expected; LEN], "seat {seat}");
        assert_eq!(model.f64("blend.anchor.x"), [0.0; LEN], "seat {seat}");
        assert_eq!(model.i64("blend.violations"), [2], "seat {seat}");
        assert_eq!(*frames > 0, is_member, "seat {seat} sends {frames} frames to a circle");
        assert_eq!(*raw > 8 * LEN as u64, is_member, "seat {seat} sends {raw} bytes");
    }
}

/// The blend by itself, without an engine: sums in the order of seats.
fn look(blend: &dyn Blend, steps: u64, models: &mut [Model]) -> Option<usize> {
    let world = models.len() as u32;
    let at = |seat: Seat| At { steps, seat, world, circles: true, ending: false };
    let mut smallest = None;
    for round in 0.. {
        let circle = blend.circle(&at(Seat(0)), round, &models[0]);
        smallest = circle.as_ref().map(Vec::len).or(smallest);
        let members = circle.unwrap_or_else(|| (0..world).map(Seat).collect());
        let offer = |seat: &Seat| blend.offer(&at(*seat), round, &mut models[seat.index()]);
        let offers: Option<Vec<Update>> = members.iter().map(offer).collect();
        let Some(mut offers) = offers.map(Vec::into_iter) else { break };
        let mut sum = offers.next().unwrap();
        offers.for_each(|offer| sum.fold(&offer).unwrap());
        for seat in members {
            blend.absorb(&at(seat), round, &sum, &mut models[seat.index()]);
        }
    }
    smallest
}

/// Where each replica goes before a look.
fn drift(seat: usize, number: u64) -> f64 {
    let mut rng = Rng::named(3, "drift", &[seat as u64, number]);
    [0.0, 0.02, 0.1][(rng.next_u64() % 3) as usize] * rng.normal()
}

#[test]
fn circles_that_follow_each_other_are_not_confused() {
    const WORLD: usize = 6;
    const LOOKS: u64 = 30;
    let blending = blending("dynamic-averaging", "check = 1\ndivergence = 1.0");
    let mut models = vec![prepared(&blending); WORLD];
    let mut partial = 0;
    for number in 0..LOOKS {
        for (seat, model) in models.iter_mut().enumerate() {
            model.f64_mut("x").iter_mut().for_each(|x| *x += drift(seat, number));
        }
        partial += usize::from(look(local(&blending), number + 1, &mut models).is_some());
    }
    assert!(partial > 10 && partial < LOOKS as usize, "{partial} looks with circles");
    for how in
        [["ring", "raw"], ["tree", "raw"], ["mesh", "raw"], ["mesh", "auto"], ["star", "half"]]
    {
        // Frames of some are late, so that the others are far ahead when they can be.
        let late = |seat: u32, header: &Header| {
            if (u64::from(seat) + header.step.0).is_multiple_of(5) {
                (0..100).for_each(|_| std::thread::yield_now());
            }
        };
        let replicas = run_all(&perches_that(WORLD as u32, late), |perch| {
            let (mut blended, mut model) = (blended(&perch, &blending, how), prepared(&blending));
            for number in 0..LOOKS {
                let by = drift(perch.seat(), number);
                blended.finish(step(number, by, 1), &mut model).unwrap();
            }
            blended.sum(vec![]).unwrap();
            model
        });
        let allowed = if how[1] == "half" { 0.02 } else { 1e-9 };
        for (seat, (found, expected)) in replicas.iter().zip(&models).enumerate() {
            for name in ["x", "blend.anchor.x"] {
                let (found, expected) = (found.f64(name)[LEN / 2], expected.f64(name)[LEN / 2]);
                let near = (found - expected).abs() <= allowed;
                assert!(near, "{how:?}, seat {seat}, {name}: {found} and {expected}");
            }
        }
    }
}

#[test]
fn members_count_by_their_rows_until_all_synchronise() {
    let blending = blending("dynamic-averaging", "check = 1\ndivergence = 1.0");
    let seats = flock(4, |perch| {
        let mut blended = blended(&perch, &blending, ["ring", "raw"]).by_rows(true);
        let mut model = prepared(&blending);
        // Of eight rows seat 0 uses three and seat 1 two: (3 · 1 − 2 · 1.475) / 5, where a plain mean would be far off.
        let (rows, by) = [(3, 1.0), (2, -1.475), (1, 0.01), (2, 0.0)][perch.seat()];
        blended.finish(step(0, by, rows), &mut model).unwrap();
        let balanced = model.f64("x")[0];
        // Rows of both steps count: (4 · 0.03 + 3 · 0.03 + 5 · 0.03 + 4 · 0.02) / 16.
        let later = [1, 1, 4, 2][perch.seat()];
        blended.finish(step(1, 0.02, later), &mut model).unwrap();
        blended.cut(Step(2), &mut model).unwrap();
        let settled = model.f64("x")[0];
        // And not those from before: all drift, and it is (3 · 1 + 2 · 2 + 1 · 1 + 2 · 1) / 8.
        let by = [1.0, 2.0, 1.0, 1.0][perch.seat()];
        blended.finish(step(2, by, rows), &mut model).unwrap();
        let frames = perch.sent(Lane::Exchange, CIRCLES);
        blended.sum(vec![]).unwrap();
        (balanced, settled, model.f64("x")[0], frames)
    });
    for (seat, (balanced, settled, last, frames)) in seats.into_iter().enumerate() {
        let expected = if seat == 3 { 0.0 } else { 0.01 };
        assert!((balanced - expected).abs() < 1e-12, "seat {seat}: {balanced}");
        assert!((settled - 0.0275).abs() < 1e-12, "seat {seat}: {settled}");
        assert!((last - settled - 1.25).abs() < 1e-12, "seat {seat}: {last}");
        assert_eq!(frames > 0, seat < 2, "seat {seat}");
    }
}

/// Number of the sum in which all say whether the second circle is balanced: the first look took two sums of all.
const VERDICT: u64 = 3;

#[test]
fn those_who_are_left_after_a_look_that_broke_off_end_alike() {
    let blending = blending("dynamic-averaging", "check = 1\ndivergence = 1.0");
    let speaking = Arc::new(AtomicU32::new(0));
    let heard = speaking.clone();
    let perches = perches_that(5, move |seat, header| {
        if (header.kind, header.step) == (1, Step(VERDICT)) {
            heard.fetch_or(1 << seat, Ordering::SeqCst);
        }
    });
    let left = run_all(&perches, |perch| {
        let (mut blended, mut model) =
            (blended(&perch, &blending, ["mesh", "raw"]), prepared(&blending));
        let drift = [2.0, -2.0, 0.01, 0.0, 0.0][perch.seat()];
        blended.finish(step(0, drift, 2), &mut model).unwrap();
        assert_eq!(model.i64("blend.violations"), [2]);
        if perch.seat() == 4 {
            // The others have its word of the next look, and never its word on their balance.
            let violators = Block::counts("blend.violators", vec![0]);
            let asks = asks_block(Asks::default(), false);
            let merger = Merger::new(perch.net.clone(), options(&perch, "mesh", "raw"));
            let update = Update { blocks: vec![violators, asks] };
            merger.numbered(VERDICT - 1).merge(update).unwrap();
            let by = Deadline::after(PATIENCE);
            while speaking.load(Ordering::SeqCst) != 0b1111 && !by.passed() {
                std::thread::yield_now();
            }
            perch.net.close();
            return None;
        }
        blended.finish(step(1, 3.0 * drift, 2), &mut model).unwrap_err();
        assert_eq!(model.i64("blend.violators"), [0b11], "the look was under way");
        assert_eq!(model.i64("blend.violations"), [2], "and counts only when it is over");
        Some(model)
    });
    let left: Vec<Model> = left.into_iter().flatten().collect();
    assert_eq!(left.len(), 4);
    let ends = flock(4, |perch| {
        let mut blended = blended(&perch, &blending, ["ring", "raw"]);
        let mut model = left[perch.seat()].clone();
        blended.finish(step(1, [0.3, -0.2, 0.01, 0.0][perch.seat()], 2), &mut model).unwrap();
        blended.cut(Step(2), &mut model).unwrap();
        model
    });
    assert!(ends.iter().all(|model| model.digest() == ends[0].digest()));
}
