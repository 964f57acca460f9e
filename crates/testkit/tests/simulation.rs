//! Seeds of delays, crashes and everything else through the real machines; by the million with
//! `cargo xtask simulate`. A failure names its seed; put it into the list of old bugs below, and it is never forgotten.

use starlings_core::Seat;
use starlings_testkit::sim::sweep::{Seeds, sweep};
use starlings_testkit::sim::{MACHINES, owning, serving, surviving};

/// Seeds that once showed a bug of the protocol.
const OLD_BUGS: [(&str, u64, &str); 22] = [
    (
        "surviving",
        338,
        "a cut link between two cost a third its seat: it had only seen them close theirs",
    ),
    ("surviving", 1_235, "a newcomer that waited for a seat could not leave"),
    (
        "surviving",
        32_170,
        "who was left when the work was done waited for as many as the work needs",
    ),
    (
        "surviving",
        75_919,
        "who did not hear two that stood still was taken for the one with the bad link",
    ),
    ("surviving", 101_319, "the same, where a newcomer came at the very end"),
    (
        "surviving",
        407_181,
        "a result counted that came from one who was given up, and nobody read it",
    ),
    ("surviving", 413_870, "a failure after the work undid it, and a newcomer began anew"),
    (
        "surviving",
        445_179,
        "the last who had the model left it with a newcomer that did not have it yet",
    ),
    (
        "surviving",
        534,
        "a job that had been given up was gone on with by the next coordinator, and those who had heard of it were taken for dead",
    ),
    (
        "surviving",
        579,
        "who was told that it may go was missed by the next coordinator: it was told before that was written",
    ),
    ("surviving", 818, "the same, where fewer were left than the job needs"),
    (
        "surviving",
        1_104,
        "who never heard of its seat was given a second one by the next coordinator, and taken for dead on the first",
    ),
    (
        "surviving",
        2_110,
        "under the next coordinator a newcomer that came when the work was done began it anew",
    ),
    (
        "surviving",
        2_177,
        "the next coordinator of a job that was done went before all had heard of the end",
    ),
    (
        "surviving",
        15_629,
        "a newcomer that was sent home when the work was done was missed by the next coordinator",
    ),
    (
        "surviving",
        3_094_783,
        "a link was cut while one of its ends stood still: accusations went around in a circle, and a third lost its seat",
    ),
    (
        "surviving",
        288_027,
        "an accused was given up before it was heard, since the coordinator had stood still meanwhile",
    ),
    (
        "surviving",
        293_571,
        "of two who asked the next coordinator to let them go before others were back, the second was not heard",
    ),
    (
        "surviving",
        932_200,
        "the next coordinator gave the one who was left a lineup with one who had finished, and it waited for it",
    ),
    ("surviving", 3_430_525, "the same, where another coordinator heard them"),
    (
        "surviving",
        357_525,
        "one that had stood still moved again, and another lost its seat because it had not heard it yet",
    ),
    (
        "surviving",
        917_749,
        "the same, where the coordinator had stood still, too, and took what they had said before for a sign of life",
    ),
];

/// The first seeds of a simulation.
fn sweeps(name: &str, count: u64) {
    let machine =
        MACHINES.into_iter().find(|machine| machine.name == name).expect("a machine of the list");
    let failing = sweep(machine, Seeds { from: 0, count, threads: 2 }, &|_| {});
    assert_eq!(failing, Ok(()));
}

#[test]
fn old_bugs_do_not_come_back() {
    for (name, seed, what) in OLD_BUGS {
        let machine = MACHINES.into_iter().find(|machine| machine.name == name).unwrap();
        let failing = sweep(machine, Seeds { from: seed, count: 1, threads: 1 }, &|_| {});
        assert_eq!(failing, Ok(()), "{what}");
    }
}

#[test]
fn a_thousand_sums_under_delays_and_crashes() {
    sweeps("merging", 1_000);
}

#[test]
fn a_thousand_collected_sums_under_delays_and_crashes() {
    sweeps("collecting", 1_000);
}

#[test]
fn a_thousand_parameter_servers_under_stragglers() {
    sweeps("serving", 1_000);
}

#[test]
fn a_thousand_jobs_whose_owners_are_lost() {
    sweeps("owning", 1_000);
}

#[test]
fn lost_owners_are_found_at_their_backups_and_steps_are_taken_back() {
    let outcomes: Vec<_> = (0..300).map(owning::check).collect();
    let sum = |of: fn(&owning::Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(sum(|it| it.rebuilt) > 100, "{}", sum(|it| it.rebuilt));
    assert!(sum(|it| it.taken_back) > 30, "{}", sum(|it| it.taken_back));
    assert!(sum(|it| it.restored) > 3, "{}", sum(|it| it.restored));
    assert!(sum(|it| it.mixed) > 10, "{}", sum(|it| it.mixed));
}

#[test]
fn a_thousand_flocks_under_kills_and_freezes() {
    sweeps("membership", 1_000);
}

#[test]
fn ten_thousand_jobs_whose_members_die_freeze_leave_and_join() {
    sweeps("surviving", 10_000);
}

#[test]
fn most_simulated_jobs_change_members_and_some_more_than_once() {
    let outcomes: Vec<_> = (0..500).map(surviving::Scenario::check).collect();
    let epochs: u32 = outcomes.iter().map(|outcome| outcome.epochs).sum();
    assert!(epochs > 1_000, "{epochs} epochs");
    let completed = outcomes.iter().filter(|outcome| outcome.ended.is_some_and(|it| it.0)).count();
    assert!((300..500).contains(&completed), "{completed} jobs complete, and some are given up");
    let followed: Vec<u32> = outcomes.iter().map(|outcome| outcome.followed.0).collect();
    let count = |least: u32| followed.iter().filter(|it| **it >= least).count();
    assert!(count(1) > 60, "{} jobs have a second coordinator", count(1));
    assert!(count(2) > 10, "{} jobs have a third one", count(2));
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
