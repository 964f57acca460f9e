//! A thousand seeds of delays and crashes through the real machines. A failure names its seed; put it into
//! the list of old bugs below, and it is never forgotten.

use starlings_core::Seat;
use starlings_testkit::sim::{collecting, membership, merging, serving, surviving};

const SEEDS: u64 = 1_000;

#[test]
fn a_thousand_sums_under_delays_and_crashes() {
    (0..SEEDS).for_each(merging::check);
}

#[test]
fn a_thousand_collected_sums_under_delays_and_crashes() {
    (0..SEEDS).for_each(collecting::check);
}

#[test]
fn a_thousand_parameter_servers_under_stragglers() {
    (0..SEEDS).for_each(serving::check);
}

#[test]
fn a_thousand_flocks_under_kills_and_freezes() {
    (0..SEEDS).for_each(membership::check);
}

#[test]
fn ten_thousand_jobs_whose_members_die_freeze_leave_and_join() {
    let mut epochs = 0;
    for seed in 0..10_000 {
        epochs += u64::from(surviving::Scenario::check(seed).epochs);
    }
    // Most scenarios change members, many of them more than once.
    assert!(epochs > 20_000, "{epochs} epochs");
}

/// Four workers, of which the first is slow.
fn slow_first(gate: &'static str) -> serving::Scenario {
    serving::Scenario {
        seed: 7,
        gate,
        bound: 3,
        push: false,
        spare: 1,
        world: 4,
        steps: 30,
        stop: None,
        cut: None,
        dead: None,
        slowness: 20,
    }
}

#[test]
fn stale_synchronous_workers_reach_their_bound_and_bulk_synchronous_ones_never_lead() {
    assert_eq!(slow_first("ssp").run().lead_max, 3);
    assert_eq!(serving::Scenario { push: true, ..slow_first("ssp") }.run().lead_max, 3);
    assert_eq!(slow_first("bsp").run().lead_max, 0);
    assert!(slow_first("async").run().lead_max > 3);
}

#[test]
fn owners_that_push_are_asked_once() {
    let asking = slow_first("ssp").run();
    let silent = serving::Scenario { push: true, ..slow_first("ssp") }.run();
    assert_eq!(asking.pulls, 4 * 4 * 30, "each worker asks each owner before each step");
    assert_eq!(silent.pulls, 4 * 4);
}

#[test]
fn backup_workers_leave_the_slow_one_out_and_a_barrier_does_not() {
    let barrier = slow_first("bsp").run();
    assert_eq!((&barrier.pushes[..], &barrier.dropped[..]), (&[30; 4][..], &[0; 4][..]));
    let outcome = slow_first("backup-workers").run();
    assert_eq!(outcome.steps, [30; 4]);
    assert!(outcome.pushes[0] < 30, "it skips steps: {:?}", outcome.pushes);
    assert!(outcome.dropped.iter().sum::<u64>() > 0, "and some of what it pushes comes late");
    let applied =
        |at: usize| outcome.applied[at].iter().map(|&(_, count)| count).collect::<Vec<_>>();
    assert!((0..4).all(|shard| applied(shard) == [3; 30]), "a step is what three have pushed");
    let spared = serving::Scenario { spare: 3, ..slow_first("backup-workers") }.run();
    assert!(spared.applied.iter().flatten().all(|&(_, count)| count == 1));
}

#[test]
fn a_dead_replica_stops_only_those_who_wait_for_it() {
    let dead = |gate| {
        let dead = Some((Seat(2), 5));
        serving::Scenario { dead, ..slow_first(gate) }.run()
    };
    let survivors = [true, true, false, true];
    let anytime = dead("async");
    assert_eq!(anytime.over, survivors, "nobody waits for anybody");
    assert_eq!(anytime.pushes, [30, 30, 5, 30]);
    assert_eq!(dead("backup-workers").over, survivors, "one is spared");
    let barrier = dead("bsp");
    assert_eq!((&barrier.over[..], &barrier.steps[..]), (&[false; 4][..], &[6, 6, 5, 6][..]));
    let bounded = dead("ssp");
    assert_eq!((&bounded.over[..], &bounded.steps[..]), (&[false; 4][..], &[9, 9, 5, 9][..]));
}
