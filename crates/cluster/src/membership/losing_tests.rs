//! How losses are told: whom they name, and what is told of them later.

use super::tests::{Bench, id, left, prompt, survivors};
use super::*;

#[test]
fn all_who_do_not_return_to_a_new_coordinator_are_named_by_the_seats_that_they_had() {
    let bench = survivors(3, 1, 4);
    let Stage::Running(run) = &bench.machine.stage else { panic!("it has begun") };
    let last = left(Epoch(0), run.roster.infos());
    let machine = Membership::resumed(prompt(), 0, run.wish.clone(), last);
    for returned in [false, true] {
        let mut bench = Bench { machine: machine.clone(), out: vec![], now: 0 };
        if returned {
            bench.on(Event::Returned { member: id(11) });
        }
        let beating: &[u64] = if returned { &[11] } else { &[] };
        bench.pass(bench.machine.options.return_ms + 1_000, beating);
        let lost = bench.out.iter().filter_map(|command| match command {
            Command::Fault(report) => Some((report.rank.unwrap().0, report.phase.as_str())),
            _ => None,
        });
        let (ranks, phases): (Vec<u32>, Vec<&str>) = lost.unzip();
        assert_eq!(ranks, if returned { vec![0, 2] } else { vec![0, 1, 2] });
        assert!(phases.iter().all(|phase| *phase == "the change of coordinators"), "{phases:?}");
        let regrouped = |it: &&Command| matches!(it, Command::Regroup { .. });
        assert_eq!(bench.out.iter().filter(regrouped).count(), usize::from(returned));
        assert_eq!(bench.aborted().is_some(), !returned);
    }
}

#[test]
fn what_is_told_of_a_loss_is_what_is_known_of_it_later() {
    let mut bench = survivors(2, 1, 4);
    bench.phase(10, 7, "the gate");
    bench.accuse(11, 0, 9, "the merge");
    bench.out.clear();
    bench.on(Event::Left { member: id(10) });
    let (step, phase) = (bench.fault().step, bench.fault().phase.clone());
    assert_eq!((step, phase.as_str()), (Some(Step(9)), "the merge"));
    let dead = bench.machine.roster().unwrap().past.last().unwrap();
    let known = dead.progress.as_ref().unwrap();
    assert_eq!((Some(known.step), &known.phase), (step, &phase));
}
