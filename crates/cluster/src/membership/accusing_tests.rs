//! Accusations that go around in a circle, and a coordinator that stands still while they come.

use super::tests::{Bench, id, lineup, surviving, survivors};
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

#[test]
fn a_failure_of_an_older_epoch_does_not_hit_whoever_has_the_seat_now() {
    let mut bench = surviving(3);
    bench.on(Event::Left { member: id(10) });
    bench.out.clear();
    // In the old epoch rank 1 was the member that is rank 0 now; rank 1 is the one who reports.
    let blame = Blame::Peer(Some(Seat(0)));
    bench.on(Event::Failed { member: id(12), epoch: Epoch(0), blame, message: "waits".into() });
    bench.pass(3_000, &[11, 12]);
    assert_eq!(lineup(&bench), [11], "it ends by its own word, and takes nobody along");
    assert_eq!(bench.fault().rank, Some(Seat(1)));
    let mut now = surviving(3);
    let blame = Blame::Peer(Some(Seat(0)));
    now.on(Event::Failed { member: id(12), epoch: Epoch(0), blame, message: "waits".into() });
    now.pass(1_100, &[10, 11, 12]);
    assert_eq!(now.fault().rank, Some(Seat(0)), "in the same epoch it is an accusation");
}

/// Three members whose word of themselves is old; connections that close wait for witnesses.
fn working(step: u64) -> Bench {
    let mut bench = survivors(3, 1, 3);
    bench.machine.options.witness_ms = Options::default().witness_ms;
    for member in [10, 11, 12] {
        bench.phase(member, step, "computation");
    }
    bench
}

#[test]
fn the_step_of_the_dead_is_the_one_in_which_it_is_missed() {
    let mut bench = working(2_786);
    bench.on(Event::Left { member: id(12) });
    assert!(bench.out.is_empty(), "its own last word is old: {:?}", bench.out);
    bench.accuse(10, 2, 2_900, "the merge");
    let fault = bench.fault();
    assert_eq!((fault.step, fault.phase.as_str()), (Some(Step(2_900)), "the merge"));
    assert_eq!((fault.rank, fault.seen_by), (Some(Seat(2)), Some(Seat(0))));
    assert_eq!(bench.regrouped().1, [10, 11]);
}

#[test]
fn the_dead_knew_best_what_it_did_in_the_step_in_which_it_is_missed() {
    let mut bench = working(7);
    bench.accuse(10, 2, 7, "the merge");
    bench.on(Event::Left { member: id(12) });
    let fault = bench.fault();
    assert_eq!((fault.step, fault.phase.as_str()), (Some(Step(7)), "computation"));
}

#[test]
fn where_nobody_says_in_time_where_it_is_missed_its_own_last_word_counts() {
    let mut bench = working(7);
    bench.on(Event::Left { member: id(12) });
    bench.pass(Options::default().witness_ms, &[10, 11]);
    let fault = bench.fault();
    assert_eq!((fault.step, fault.phase.as_str()), (Some(Step(7)), "computation"));
    assert_eq!(bench.regrouped().1, [10, 11]);
}

#[test]
fn a_newcomer_is_not_seated_beside_one_whose_connection_closed() {
    let mut bench = working(7);
    bench.on(Event::Left { member: id(12) });
    bench.on(super::tests::joined(20));
    assert_eq!(bench.regrouped().1, [10, 11], "whoever is gone is gone before it is asked in");
}

#[test]
fn several_whose_connections_closed_are_given_up_together() {
    let mut bench = working(7);
    bench.on(Event::Left { member: id(11) });
    bench.on(Event::Left { member: id(12) });
    bench.accuse(10, 2, 9, "the merge");
    let epochs = bench.out.iter().filter(|it| matches!(it, Command::Regroup { .. })).count();
    assert_eq!((epochs, bench.machine.roster().unwrap().running()), (2, 1));
}

#[test]
fn who_stops_a_job_whose_members_have_all_gone_finds_it_over() {
    for gone in [&[10][..], &[10, 11], &[10, 11, 12]] {
        let mut bench = working(7);
        gone.iter().for_each(|&member| bench.on(Event::Left { member: id(member) }));
        bench.on(Event::Stop { blame: Blame::Caller, reason: "enough".into() });
        bench.pass(3_000, &[]);
        let ends = bench.out.iter().filter(|it| matches!(it, Command::Abort { .. }));
        assert_eq!(ends.count(), 1, "{gone:?}: {:?}", bench.out);
    }
}
