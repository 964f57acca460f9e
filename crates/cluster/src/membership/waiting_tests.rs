//! Jobs with too few workers: what is told of the wait, and that it ends when it was said to.

use super::tests::{Bench, id, joined, left, prompt, survivors};
use super::*;
use crate::journal::Record;
use crate::succession::Unfinished;

/// What is told of waiting: how many are here, how many are needed, and for how many more seconds.
fn waiting(bench: &Bench) -> Vec<(u32, u32, f64)> {
    let told = bench.out.iter().filter_map(|command| match command {
        Command::Waiting(it) => Some((it.have, it.want, it.seconds_left)),
        _ => None,
    });
    told.collect()
}

#[test]
fn too_few_workers_wait_for_more_and_not_for_ever() {
    let mut bench = survivors(2, 2, 4);
    bench.on(Event::Left { member: id(10) });
    assert_eq!(waiting(&bench), [(1, 2, 60.0)]);
    assert!(!bench.out.iter().any(|command| matches!(command, Command::Regroup { .. })));
    bench.on(joined(20));
    bench.out.clear();
    bench.on(Event::Prepared { member: id(20) });
    let (epoch, members, _) = bench.regrouped();
    assert_eq!((epoch, members), (2, vec![11, 20]));
    bench.out.clear();
    bench.on(Event::Left { member: id(11) });
    bench.pass(61_000, &[20]);
    let Some(Command::Abort { reason, .. }) = bench.out.last() else { panic!("{:?}", bench.out) };
    let loss = "rank 0 on host-11 (process 111) was lost in starting: its connection closed";
    let end = "1 worker is left, 2 are needed, and too few came within 60 s";
    assert_eq!(*reason, format!("{loss}; {end}"));
}

/// A job that needs three of its four workers, after so many losses.
fn lost(members: &[u64]) -> Bench {
    let mut bench = survivors(4, 3, 4);
    for &member in members {
        bench.on(Event::Left { member: id(member) });
    }
    bench
}

#[test]
fn each_word_of_waiting_tells_what_is_left_of_the_same_deadline_and_the_wait_ends_then() {
    let mut bench = lost(&[13, 12]);
    bench.pass(20_000, &[10, 11]);
    bench.on(Event::Left { member: id(11) });
    bench.pass(15_000, &[10]);
    bench.on(joined(20));
    bench.on(Event::Prepared { member: id(20) });
    assert_eq!(waiting(&bench), [(2, 3, 60.0), (1, 3, 40.0), (2, 3, 25.0)]);
    bench.pass(24_900, &[10, 20]);
    assert_eq!(bench.machine.shortage(bench.now).unwrap().seconds_left, 0.1);
    assert!(!bench.machine.ended());
    bench.pass(100, &[10, 20]);
    let (blame, reason) = bench.aborted().unwrap();
    assert_eq!(blame, Blame::Peer(None));
    // The first loss was survived, and after the second the third changed nothing.
    assert!(reason.starts_with("rank 2 on host-12 (process 112) was lost"), "{reason}");
    assert!(reason.ends_with("2 workers are left, 3 are needed, and too few came within 60 s"));
}

#[test]
fn a_job_that_waits_because_a_worker_left_politely_names_no_loss() {
    let mut bench = survivors(3, 2, 4);
    bench.on(Event::Left { member: id(10) });
    bench.on(Event::Leave { member: id(11) });
    bench.pass(60_000, &[12]);
    let (_, reason) = bench.aborted().unwrap();
    assert_eq!(reason, "1 worker is left, 2 are needed, and too few came within 60 s");
}

#[test]
fn of_those_who_do_not_return_to_a_new_coordinator_the_one_counts_after_whom_too_few_are_left() {
    let bench = survivors(4, 2, 4);
    let Stage::Running(run) = &bench.machine.stage else { panic!("it has begun") };
    let last = left(Epoch(0), run.roster.infos());
    let machine = Membership::resumed(prompt(), 0, run.wish.clone(), last);
    let mut bench = Bench { machine, out: vec![], now: 0 };
    bench.on(Event::Returned { member: id(10) });
    bench.pass(66_000, &[10]);
    let (_, reason) = bench.aborted().unwrap();
    assert!(reason.starts_with("rank 3 on host-13"), "two of three may be missing: {reason}");
}

#[test]
fn the_next_coordinator_knows_after_which_loss_too_few_were_left() {
    let mut bench = survivors(3, 2, 4);
    let Stage::Running(run) = &bench.machine.stage else { panic!("it has begun") };
    let (job, wish, survey) = (String::new(), run.wish.clone(), None);
    let mut journal = vec![Record::Submitted { job, wish: wish.clone(), survey }];
    journal.extend(bench.machine.unwritten(&[]));
    for member in [12, 11] {
        bench.out.clear();
        bench.on(Event::Left { member: id(member) });
        journal.extend(bench.machine.unwritten(&bench.out));
    }
    let unfinished = Unfinished::read(journal).1.unwrap();
    let ranks: Vec<_> = unfinished.losses.iter().map(|loss| loss.rank).collect();
    assert_eq!(ranks, [Some(Seat(2)), Some(Seat(1))]);
    let machine = Membership::resumed(prompt(), 0, wish, unfinished.last.unwrap());
    let mut bench = Bench { machine, out: vec![], now: 0 };
    bench.on(Event::Returned { member: id(10) });
    assert_eq!(bench.machine.shortage(0).map(|it| (it.have, it.want)), Some((1, 2)));
    bench.pass(60_000, &[10]);
    let (_, reason) = bench.aborted().unwrap();
    assert!(reason.starts_with("rank 1 on host-11"), "{reason}");
}
