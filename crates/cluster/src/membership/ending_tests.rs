//! The end of the work, and what may happen around it.

use super::tests::{id, joined, lineup, surviving, survivors};
use super::*;

#[test]
fn who_is_left_when_the_work_is_done_needs_nobody_else() {
    let mut bench = survivors(2, 2, 4);
    bench.on(joined(20));
    bench.on(Event::Prepared { member: id(20) });
    assert_eq!(lineup(&bench), [10, 11, 20]);
    // It was done before it heard of the newcomer.
    bench.on(Event::Delivered { member: id(10) });
    bench.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: true });
    assert_eq!(bench.told(|it| *it == Verdict::Released), [20]);
    assert_eq!(lineup(&bench), [11], "though the work itself needs two");
    bench.on(Event::Finished { member: id(11), epoch: Epoch(2), holds: true });
    assert_eq!(bench.out.last(), Some(&Command::Complete { stopped: None }));
}

#[test]
fn a_failure_after_the_work_does_not_undo_it() {
    let mut bench = survivors(2, 1, 4);
    bench.on(Event::Delivered { member: id(10) });
    bench.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: true });
    let (blame, message) = (Blame::Machine, "its disk is full".to_string());
    bench.on(Event::Failed { member: id(10), epoch: Epoch(0), blame, message });
    bench.on(joined(20));
    bench.on(Event::Prepared { member: id(20) });
    assert!(lineup(&bench).is_empty(), "nobody begins anew");
    bench.on(Event::Left { member: id(11) });
    assert_eq!(bench.out.last(), Some(&Command::Complete { stopped: None }));
}

#[test]
fn the_last_who_has_the_model_stays_until_a_newcomer_has_it() {
    let mut bench = surviving(1);
    bench.phase(10, 7, "the merge");
    bench.on(joined(20));
    bench.on(Event::Prepared { member: id(20) });
    bench.on(Event::Leave { member: id(10) });
    bench.pass(1_000, &[10, 20]);
    assert!(bench.told(|it| *it == Verdict::Released).is_empty(), "a seat is not a model");
    bench.phase(20, 7, "computation");
    bench.pass(100, &[10, 20]);
    assert_eq!(bench.told(|it| *it == Verdict::Released), [10]);
    assert_eq!(lineup(&bench), [20]);
}

/// Ctrl-C in a terminal reaches whoever submitted the job and its workers, in any order.
#[test]
fn a_job_whose_last_worker_must_go_too_ends_politely_and_says_so_once() {
    let stop = || Event::Stop { blame: Blame::Interrupted, reason: "stopped, as asked".into() };
    let leave = || Event::Leave { member: id(10) };
    for asked in [[stop(), leave()], [leave(), stop()]] {
        let mut bench = surviving(1);
        asked.into_iter().for_each(|event| bench.on(event));
        assert_eq!(bench.told(|it| *it == Verdict::Stop), [10]);
        bench.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: false });
        let stopped = Some("stopped, as asked".to_string());
        assert_eq!(bench.out.last(), Some(&Command::Complete { stopped }));
    }
    // Whoever asks twice does not want to wait.
    let mut bench = surviving(1);
    [leave(), stop(), stop()].into_iter().for_each(|event| bench.on(event));
    assert!(bench.aborted().is_some());
}
