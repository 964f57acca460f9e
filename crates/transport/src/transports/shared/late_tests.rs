//! What sums that are made where they are used promise. Seats are threads; the allocator of all tests of this crate is in
//! `heap_tests.rs`.

use super::super::layout::{Port, WITHDRAWN};
use super::super::{Circle, Identity, Numbers, NumbersMut, Patience, Segment, View};
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Result, Seat, contributing};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};

/// More than what is lent at least, and no whole number of lines.
const LEN: usize = 50_003;

fn segments(world: u32) -> Vec<Arc<Segment>> {
    let segment = |seat| {
        let identity = Identity { job: JobId(1), epoch: Epoch(0), seat: Seat(seat), nonce: 5 };
        Arc::new(Segment::new(identity).unwrap().with_heap(256 << 20))
    };
    (0..world).map(segment).collect()
}

fn circles(world: u32, lends: bool) -> Vec<Circle> {
    circles_of(&segments(world), lends)
}

fn circles_of(segments: &[Arc<Segment>], lends: bool) -> Vec<Circle> {
    let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
    let circle =
        |mine: &Arc<Segment>| Circle::new(mine.clone(), views.clone(), 0, 2).lending(lends);
    segments.iter().map(circle).collect()
}

fn patience(interrupted: &dyn Fn() -> Option<Fault>) -> Patience<'_> {
    Patience { by: Deadline::after_ms(20_000), interrupted }
}

/// Two large parts and a small one.
fn contribution(seat: u32, round: u32) -> [Vec<f32>; 3] {
    let number = |at: usize| (1.0 + at as f32 * 1e-3) * 10f32.powi((seat * 5 + round) as i32 % 9);
    contributing(|| [LEN, 3, 2 * LEN].map(|len| (0..len).map(number).collect()))
}

fn sum_of(parts: [&[f32]; 2]) -> Vec<f32> {
    parts[0].iter().zip(parts[1]).map(|(a, b)| a + b).collect()
}

/// Begins a late sum of a contribution; the sums of the small part, where it was one.
fn begun(circle: &mut Circle, [a, b, c]: &[Vec<f32>; 3]) -> Result<Option<Vec<f32>>> {
    let mut small = vec![7.0; b.len()];
    let is_late = circle.begin_late(
        (&[Numbers::F32(b)], &mut [NumbersMut::F32(&mut small)]),
        &[Numbers::F32(a), Numbers::F32(c)],
        &patience(&|| None),
    )?;
    Ok(is_late.then_some(small))
}

/// Both large parts' sums, asked for by some numbers at a time.
fn sums(circle: &mut Circle, [a, _, c]: &[Vec<f32>; 3], step: usize) -> Result<[Vec<f32>; 2]> {
    let late = circle.late(&[Numbers::F32(a), Numbers::F32(c)])?;
    let whole = |part: usize, len: usize| {
        let mut all = vec![7.0; len];
        for from in (0..len).step_by(step) {
            let end = len.min(from + step);
            late.sums(part, from, &mut all[from..end]);
        }
        all
    };
    let both = [whole(0, a.len()), whole(1, c.len())];
    late.done()?;
    Ok(both)
}

fn each_seat(circles: &mut [Circle], act: impl Fn(u32, &mut Circle) + Sync) {
    std::thread::scope(|scope| {
        for (seat, circle) in (0..).zip(circles) {
            let act = &act;
            scope.spawn(move || act(seat, circle));
        }
    });
}

#[test]
fn late_sums_have_the_bits_of_other_sums_and_take_turns_with_them() {
    each_seat(&mut circles(2, true), |seat, circle| {
        for round in 0..12 {
            let mine = contribution(seat, round);
            let both = [0, 1].map(|seat| contribution(seat, round));
            let [a, b, c] = [0, 1, 2].map(|part| sum_of([&both[0][part], &both[1][part]]));
            if round % 3 == 2 {
                let mut total = vec![7.0; LEN];
                circle
                    .sum(
                        &[Numbers::F32(&mine[0])],
                        &mut [NumbersMut::F32(&mut total)],
                        &patience(&|| None),
                    )
                    .unwrap();
                assert!(total == a);
                continue;
            }
            assert_eq!(begun(circle, &mine).unwrap(), Some(b));
            let found = sums(circle, &mine, 1000 + 333 * round as usize).unwrap();
            assert!(found == [a, c], "round {round}");
            // Its memory serves again once nobody reads it.
            circle.settle(&patience(&|| None)).unwrap();
            assert!(circle.is_settled());
        }
    });
}

#[test]
fn three_seats_and_those_whose_parts_cannot_be_read_sum_otherwise() {
    for (world, lends) in [(3, true), (2, false)] {
        each_seat(&mut circles(world, lends), |seat, circle| {
            for round in 0..3 {
                let mine = contribution(seat, round);
                assert_eq!(begun(circle, &mine).unwrap(), None, "{world} seats");
                let mut total = vec![7.0; LEN];
                circle
                    .sum(
                        &[Numbers::F32(&mine[0])],
                        &mut [NumbersMut::F32(&mut total)],
                        &patience(&|| None),
                    )
                    .unwrap();
            }
        });
    }
    // One whose vectors lie elsewhere is enough, and all are told the same.
    each_seat(&mut circles(2, true), |seat, circle| {
        let lent = contribution(seat, 0);
        let mine = if seat == 1 { lent.each_ref().map(|part| part.to_vec()) } else { lent };
        assert_eq!(begun(circle, &mine).unwrap(), None);
    });
}

#[test]
fn whoever_is_ahead_waits_before_its_numbers_may_change() {
    let meeting = Barrier::new(2);
    each_seat(&mut circles(2, true), |seat, circle| {
        let mine = contribution(seat, 0);
        begun(circle, &mine).unwrap().unwrap();
        if seat == 0 {
            sums(circle, &mine, LEN).unwrap();
            assert!(!circle.is_settled(), "the other has not read yet");
            let late = Patience { by: Deadline::after_ms(30), interrupted: &|| None };
            let fault = circle.settle(&late).unwrap_err();
            assert_eq!(fault.blame(), Blame::Peer(Some(Seat(1))));
            meeting.wait();
            circle.settle(&patience(&|| None)).unwrap();
        } else {
            meeting.wait();
            sums(circle, &mine, LEN).unwrap();
        }
    });
}

#[test]
fn numbers_that_change_against_the_rules_are_found_and_a_sum_given_up_is_still_good() {
    for (sequence, is_good) in [(WITHDRAWN, true), (1, false), (7, false)] {
        let segments = segments(2);
        let mut circles = circles_of(&segments, true);
        let meeting = Barrier::new(2);
        each_seat(&mut circles, |seat, circle| {
            let mine = contribution(seat, 0);
            begun(circle, &mine).unwrap().unwrap();
            meeting.wait();
            if seat == 1 {
                let place = Port::new(0).sequence(0);
                segments[1].mapping().long(place).store(sequence, Ordering::SeqCst);
                meeting.wait();
            } else {
                meeting.wait();
                let outcome = sums(circle, &mine, LEN);
                assert_eq!(outcome.is_ok(), is_good, "{sequence}");
            }
            // Whoever lends must live as long as it is read.
            meeting.wait();
        });
    }
}

#[test]
fn a_peer_that_sums_something_else_is_found_and_one_that_is_absent_named() {
    each_seat(&mut circles(2, true), |seat, circle| {
        let mine = contribution(seat, 0);
        let [a, b, c] = &mine;
        let other = &c[..c.len() - seat as usize];
        let mut small = vec![0.0; b.len()];
        let fault = circle
            .begin_late(
                (&[Numbers::F32(b)], &mut [NumbersMut::F32(&mut small)]),
                &[Numbers::F32(a), Numbers::F32(other)],
                &patience(&|| None),
            )
            .unwrap_err();
        assert!(fault.message().contains("other blocks") || fault.message().contains("gave up"));
        assert!(begun(circle, &mine).is_err(), "a circle that failed is of no more use");
        std::mem::forget(mine);
    });
    let mut circle = circles(2, true).remove(0);
    let abort = || Some(Fault::peer(Some(Seat(1)), "rank 1 fell"));
    let mine = contribution(0, 0);
    let fault = circle.begin_late((&[], &mut []), &[Numbers::F32(&mine[0])], &patience(&abort));
    assert_eq!(fault.unwrap_err().blame(), Blame::Peer(Some(Seat(1))));
}

#[test]
fn places_outside_of_a_heap_are_refused_and_the_sum_stays_open() {
    let segments = segments(2);
    let mut circles = circles_of(&segments, true);
    let meeting = Barrier::new(2);
    each_seat(&mut circles, |seat, circle| {
        let mine = contribution(seat, 0);
        begun(circle, &mine).unwrap().unwrap();
        meeting.wait();
        if seat == 1 {
            let place = Port::new(0).lent(1).0;
            segments[1].mapping().long(place).store(1 << 60, Ordering::SeqCst);
            meeting.wait();
        } else {
            meeting.wait();
            assert!(sums(circle, &mine, LEN).unwrap_err().message().contains("not in its heap"));
            assert!(!circle.is_settled(), "the other may be reading");
            assert!(circle.settle(&patience(&|| None)).is_err());
        }
        meeting.wait();
    });
}
