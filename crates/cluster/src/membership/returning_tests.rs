//! One coordinator after another: what the first has written when it is killed, and what the second makes of it.

use super::tests::{Bench, id, joined, lineup, prompt, surviving, survivors};
use super::*;
use crate::journal::Record;
use crate::succession::{Ending, Unfinished};

/// A machine and its journal.
struct Desk {
    bench: Bench,
    journal: Vec<Record>,
}

impl Desk {
    fn of(wish: Wish, bench: Bench) -> Desk {
        let submitted = Record::Submitted { job: String::new(), wish, survey: None };
        let mut desk = Desk { bench, journal: vec![submitted] };
        desk.journal.extend(desk.bench.machine.unwritten(&[]));
        desk
    }

    /// So many members from the start, of at least so many; up to four may take part.
    fn new(workers: u32, least: u32) -> Desk {
        let bench = survivors(workers, least, 4);
        let Stage::Running(run) = &bench.machine.stage else { panic!("it has begun") };
        Desk::of(run.wish.clone(), bench)
    }

    /// Gives what was written before anyone heard of it.
    fn on(&mut self, event: Event) -> Vec<Record> {
        self.bench.out.clear();
        self.bench.on(event);
        let written = self.bench.machine.unwritten(&self.bench.out);
        self.journal.extend(written.clone());
        written
    }

    fn left(&self) -> Unfinished {
        Unfinished::read(self.journal.clone()).1.unwrap()
    }

    /// The machine of the next coordinator.
    fn killed(self) -> Desk {
        let Unfinished { job, last, .. } = self.left();
        let machine = Membership::resumed(prompt(), 0, job.1, last.unwrap());
        Desk { bench: Bench { machine, out: vec![], now: 0 }, ..self }
    }

    fn finish(&mut self, member: u64, epoch: u32) {
        self.on(Event::Finished { member: id(member), epoch: Epoch(epoch), holds: true });
    }
}

#[test]
fn who_was_let_go_is_not_missed_by_the_next_coordinator_also_where_too_few_are_left() {
    let mut desk = Desk::new(2, 2);
    let written = desk.on(Event::Leave { member: id(11) });
    assert!(matches!(&written[..], [Record::Epoch { roster, .. }] if roster.len() == 1));
    let mut desk = desk.killed();
    assert!(!desk.bench.machine.keeps_seat_of(id(11)));
    desk.on(Event::Returned { member: id(10) });
    assert_eq!(desk.bench.machine.news_since(id(10), Epoch(0)), None, "one alone does not go on");
    desk.bench.pass(6_000, &[10]);
    assert!(!desk.bench.out.iter().any(|command| matches!(command, Command::Fault(_))));
    desk.on(joined(20));
    desk.on(Event::Prepared { member: id(20) });
    assert_eq!(lineup(&desk.bench), [10, 20]);
}

#[test]
fn a_newcomer_that_came_after_the_work_does_not_begin_it_anew_under_the_next_coordinator() {
    let mut desk = Desk::new(2, 1);
    desk.on(joined(20));
    desk.on(Event::Prepared { member: id(20) });
    let mut desk = desk.killed();
    for member in [20, 10] {
        desk.on(Event::Returned { member: id(member) });
    }
    // It was done before it heard of the newcomer.
    desk.finish(10, 0);
    assert_eq!(desk.bench.told(|it| *it == Verdict::Released), [20]);
    assert_eq!(lineup(&desk.bench), [11]);
    // Of this the coordinator after that knows, too.
    let desk = desk.killed();
    assert!(desk.bench.machine.keeps_seat_of(id(11)) && !desk.bench.machine.keeps_seat_of(id(20)));
}

#[test]
fn who_is_done_and_has_no_seat_any_more_is_received_and_asked_for_the_result() {
    let mut desk = Desk::new(2, 1);
    desk.on(joined(20));
    desk.on(Event::Prepared { member: id(20) });
    desk.finish(10, 0);
    let mut desk = desk.killed();
    assert!(desk.bench.machine.keeps_seat_of(id(10)), "it is in no lineup, and has the result");
    desk.on(Event::Returned { member: id(11) });
    desk.finish(11, 2);
    assert!(!desk.bench.machine.ended(), "the other has to hear of the end, too");
    desk.on(Event::Left { member: id(11) });
    desk.on(Event::Returned { member: id(10) });
    assert_eq!(desk.bench.told(|it| *it == Verdict::Deliver), [10]);
    desk.on(Event::Delivered { member: id(10) });
    assert_eq!(desk.bench.told(|it| *it == Verdict::Done), [10]);
    assert_eq!(desk.left().ending, Some(Ending::Complete));
}

#[test]
fn who_never_heard_of_its_seat_keeps_it_also_where_the_others_have_begun_without_it() {
    let mut desk = Desk::new(2, 1).killed();
    let (pid, address) = (111, "127.0.0.1:11");
    assert_eq!(desk.bench.machine.unaware(pid, "127.0.0.1:10"), None, "another process");
    assert_eq!(desk.bench.machine.begins_late(id(11)), None, "nobody has begun");
    desk.on(Event::Returned { member: id(10) });
    desk.on(joined(20));
    desk.on(Event::Prepared { member: id(20) });
    let unaware = desk.bench.machine.unaware(pid, address).map(|info| info.member);
    assert_eq!(unaware, Some(id(11)), "and asks for no other one");
    assert!(desk.bench.machine.begins_late(id(11)).is_some());
    desk.on(Event::Returned { member: id(11) });
    assert_eq!(desk.bench.machine.unaware(pid, address), None);
    // It has no model: the one who has it stays.
    desk.on(Event::Leave { member: id(10) });
    assert!(desk.bench.told(|it| *it == Verdict::Released).is_empty());
}

#[test]
fn the_model_is_not_left_with_one_who_has_not_returned() {
    let mut desk = Desk::new(2, 1).killed();
    desk.on(Event::Returned { member: id(10) });
    desk.on(Event::Leave { member: id(10) });
    assert!(desk.bench.machine.awaits_heir(id(10)), "the other may be gone");
    desk.on(Event::Returned { member: id(11) });
    desk.bench.phase(11, 3, "computation");
    desk.bench.pass(100, &[10, 11]);
    assert_eq!(desk.bench.told(|it| *it == Verdict::Released), [10]);
}

#[test]
fn of_two_who_may_not_leave_yet_both_are_heard() {
    let mut desk = Desk::new(1, 1);
    desk.on(joined(20));
    desk.on(Event::Prepared { member: id(20) });
    let mut desk = desk.killed();
    desk.on(Event::Returned { member: id(20) });
    desk.on(Event::Leave { member: id(20) });
    desk.on(Event::Returned { member: id(10) });
    desk.on(Event::Leave { member: id(10) });
    let waits = |member| desk.bench.machine.awaits_heir(id(member));
    assert!(waits(20) && waits(10), "neither is known to have the model");
    desk.bench.phase(10, 3, "computation");
    assert_eq!(desk.bench.told(|it| *it == Verdict::Released), [20]);
    assert_eq!(desk.bench.told(|it| *it == Verdict::Stop), [10], "nobody is left to go on");
}

#[test]
fn nobody_is_left_in_a_lineup_with_one_who_finished_before_it() {
    let mut desk = Desk::new(3, 2);
    // Epoch 1 has two; one of them was done in epoch 0, and the coordinator dies before it says who goes on.
    desk.on(Event::Left { member: id(12) });
    desk.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: true });
    desk.journal.truncate(desk.journal.len() - 1);
    let mut desk = desk.killed();
    desk.on(Event::Returned { member: id(11) });
    assert_eq!(lineup(&desk.bench), [11]);
}

#[test]
fn however_a_job_ends_that_is_written_before_anyone_is_told() {
    let mut desk = Desk::new(1, 1);
    desk.on(Event::Left { member: id(10) });
    assert!(matches!(desk.left().ending, Some(Ending::GivenUp { .. })));

    let mut desk = Desk::new(1, 1);
    let written = desk.on(Event::Leave { member: id(10) });
    assert!(matches!(&written[..], [Record::Stopping { .. }]));
    let mut desk = desk.killed();
    desk.on(Event::Returned { member: id(10) });
    assert_eq!(desk.bench.told(|it| *it == Verdict::Stop), [10], "it may not have heard");
    desk.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: false });
    assert!(matches!(desk.left().ending, Some(Ending::Stopped { .. })), "and is not complete");
}

#[test]
fn what_has_not_changed_is_written_once() {
    let bench = surviving(2);
    let Stage::Running(run) = &bench.machine.stage else { panic!("it has begun") };
    let mut desk = Desk::of(run.wish.clone(), bench);
    assert_eq!(desk.journal.len(), 2, "the job and its first epoch");
    assert!(desk.on(Event::Tick).is_empty());
    desk.finish(10, 0);
    assert_eq!(desk.journal.len(), 3);
    assert!(desk.on(Event::Tick).is_empty());
    let mut desk = desk.killed();
    assert!(desk.on(Event::Returned { member: id(10) }).is_empty());
}
