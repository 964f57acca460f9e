//! What becomes of the result when the one that was to send it is lost.

use super::tests::{Bench, id, surviving};
use super::*;

fn finish(bench: &mut Bench, members: &[u64]) {
    for &member in members {
        bench.on(Event::Finished { member: id(member), epoch: Epoch(0), holds: true });
    }
}

fn asked(bench: &Bench) -> Vec<u64> {
    bench.told(|verdict| *verdict == Verdict::Deliver)
}

fn is_complete(bench: &Bench) -> bool {
    bench.out.iter().any(|command| matches!(command, Command::Complete { stopped: None }))
}

#[test]
fn where_the_result_is_here_nobody_is_asked_for_it() {
    let mut bench = surviving(3);
    bench.on(Event::Delivered { member: id(10) });
    finish(&mut bench, &[10, 11, 12]);
    assert!(is_complete(&bench) && asked(&bench).is_empty());
}

#[test]
fn another_one_is_asked_for_a_result_that_was_lost_with_the_first_seat() {
    let mut bench = surviving(3);
    finish(&mut bench, &[12, 11]);
    bench.pass(2_500, &[11, 12]);
    assert_eq!(asked(&bench), [11], "the lowest seat that is left");
    assert!(!is_complete(&bench), "and all stay until it has come");
    assert!(bench.told(|verdict| *verdict == Verdict::Done).is_empty());
    bench.on(Event::Delivered { member: id(11) });
    assert!(is_complete(&bench));
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Done), [11, 12]);
}

#[test]
fn whoever_is_asked_and_lost_or_slow_is_followed_by_the_next_and_that_ends() {
    let mut bench = surviving(4);
    finish(&mut bench, &[11, 12, 13]);
    bench.on(Event::Left { member: id(10) });
    assert_eq!(asked(&bench), [11]);
    bench.on(Event::Left { member: id(11) });
    assert_eq!(asked(&bench), [11, 12]);
    bench.pass(61_000, &[12, 13]);
    assert_eq!(asked(&bench), [11, 12, 13], "it beats and does not send");
    bench.on(Event::Delivered { member: id(10) });
    assert!(!is_complete(&bench), "whoever is gone cannot send anything");
    bench.on(Event::Left { member: id(13) });
    assert!(is_complete(&bench), "nobody is asked twice");
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Done), [12]);
}

#[test]
fn whoever_has_no_result_is_not_asked_and_a_job_that_was_stopped_asks_nobody() {
    let mut bench = surviving(2);
    bench.on(Event::Finished { member: id(11), epoch: Epoch(0), holds: false });
    bench.on(Event::Left { member: id(10) });
    assert!(is_complete(&bench) && asked(&bench).is_empty());
    let mut bench = surviving(2);
    bench.on(Event::Stop { blame: Blame::Interrupted, reason: "enough".into() });
    finish(&mut bench, &[10, 11]);
    assert!(matches!(bench.out.last(), Some(Command::Complete { stopped: Some(_) })));
    assert!(asked(&bench).is_empty());
}

#[test]
fn who_finished_in_an_older_epoch_may_be_asked_too() {
    let mut bench = surviving(3);
    bench.on(Event::Left { member: id(12) });
    // It was done with the others of the epoch before, who go on without it.
    bench.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: true });
    bench.on(Event::Left { member: id(11) });
    assert_eq!(asked(&bench), [10]);
    bench.on(Event::Delivered { member: id(10) });
    assert!(is_complete(&bench));
}
