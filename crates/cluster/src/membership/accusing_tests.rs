//! Accusations that go around in a circle, and a coordinator that stands still while they come.

use super::tests::{Bench, id, survivors};
use super::*;

/// The link between seats 1 and 2 is cut. Seat 1 sees it and closes its links, so seat 0 does; seat 2 stood still, and when
/// it goes on it first sees that seat 0 has closed its link.
fn circle(bench: &mut Bench) {
    bench.accuse(10, 1, 5, "the merge");
    bench.accuse(11, 2, 5, "the merge");
    bench.accuse(12, 0, 5, "the merge");
    bench.pass(2_000, &[10, 11, 12]);
}

#[test]
fn where_accusations_go_around_in_a_circle_all_meet_again() {
    let mut bench = survivors(3, 1, 3);
    circle(&mut bench);
    let (epoch, members, _) = bench.regrouped();
    assert_eq!((epoch, members), (1, vec![10, 11, 12]), "nobody is known to be dead");
    assert!(!bench.out.iter().any(|it| matches!(it, Command::Fault(_))), "{:?}", bench.out);
    // At the meeting the two that cannot link up say so.
    bench.out.clear();
    bench.accuse(10, 1, 5, "linking up");
    bench.accuse(11, 2, 5, "linking up");
    bench.accuse(12, 1, 5, "linking up");
    bench.pass(2_000, &[10, 11, 12]);
    assert_eq!(bench.fault().rank, Some(Seat(2)), "one end of the cut link");
    assert_eq!(bench.regrouped().1, [10, 11]);
}

#[test]
fn they_meet_again_once_in_a_row_so_that_it_ends() {
    let mut bench = survivors(3, 1, 3);
    circle(&mut bench);
    bench.out.clear();
    circle(&mut bench);
    assert_eq!(bench.fault().rank, Some(Seat(1)), "the first that was accused");
    assert_eq!(bench.regrouped().1, [10, 12]);
}

#[test]
fn a_job_that_cannot_survive_ends_with_the_first_accused() {
    let mut bench = Bench::started(3);
    circle(&mut bench);
    assert_eq!(bench.fault().rank, Some(Seat(1)));
}

#[test]
fn who_could_not_speak_while_the_coordinator_stood_still_is_heard_first() {
    // Seat 2 dies; seat 1 sees it and closes its links, and seat 0 says so before the coordinator stands still.
    let mut bench = survivors(3, 1, 3);
    bench.pass(300, &[10, 11, 12]);
    bench.accuse(10, 1, 5, "the merge");
    bench.now += 4_000;
    bench.on(Event::Beat { member: id(10) });
    assert!(bench.out.is_empty(), "seat 1 has not been heard: {:?}", bench.out);
    bench.accuse(11, 2, 5, "the merge");
    bench.pass(1_200, &[10, 11]);
    assert_eq!(bench.fault().rank, Some(Seat(2)));
    assert_eq!(bench.regrouped().1, [10, 11]);
}

#[test]
fn a_coordinator_that_is_starved_for_good_judges_some_day() {
    let mut bench = survivors(3, 1, 3);
    bench.pass(300, &[10, 11, 12]);
    bench.accuse(10, 1, 5, "the merge");
    // It runs only once in 0.7 s, and hears all whenever it does: nobody is silent.
    for _ in 0..6 {
        bench.now += 700;
        for member in [10, 11, 12] {
            bench.on(Event::Beat { member: id(member) });
        }
        bench.on(Event::Tick);
    }
    assert_eq!(bench.fault().rank, Some(Seat(1)));
    assert_eq!(bench.regrouped().1, [10, 12]);
}
