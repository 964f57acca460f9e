//! Gates, alone and inside blends.

use starlings_consistency::{Blending, CONSISTENCIES, Consistency, Gate};
use starlings_core::{Entry, Step};
use starlings_testkit::conformance::{gate, variants};

fn build(name: &str, params: &str) -> Consistency {
    let entry = Entry::find("consistency", CONSISTENCIES, name).expect("in the catalogue");
    let given = params.parse().expect("a table");
    (entry.build)(&entry.check("consistency", &given).expect("allowed")).expect("builds")
}

#[test]
fn every_gate_obeys_the_laws() {
    for entry in CONSISTENCIES {
        for (label, params) in variants(entry) {
            let gate = (entry.build)(&params).unwrap().gate;
            gate::check(&*gate).unwrap_or_else(|law| panic!("{label}: {law}"));
        }
    }
}

#[test]
fn ssp_with_bound_zero_is_bsp() {
    let (ssp, bsp) = (build("ssp", "bound = 0").gate, build("bsp", "").gate);
    assert_eq!(ssp.lead_max(), bsp.lead_max());
    for step in 0..64 {
        for slowest in 0..64 {
            assert_eq!(ssp.fresh(Step(step), slowest), bsp.fresh(Step(step), slowest));
        }
    }
}

#[test]
fn leads_tell_the_gates_apart() {
    let lead = |made: Consistency| gate::longest_lead(&*made.gate, 7, 4_000).unwrap();
    assert_eq!(lead(build("bsp", "")), 0);
    assert_eq!(lead(build("backup-workers", "")), 0);
    assert_eq!(lead(build("ssp", "")), 3);
    assert_eq!(lead(build("ssp", "bound = 9")), 9);
    assert!(lead(build("async", "")) > 500);
}

#[test]
fn blends_have_the_gate_that_they_are_told() {
    let lead = |name: &str, params: &str| build(name, params).gate.lead_max();
    for name in ["staleness-aware", "delay-compensated"] {
        assert_eq!(lead(name, ""), None, "{name}");
        assert_eq!(lead(name, "gate = 'ssp'\nbound = 5"), Some(5), "{name}");
    }
    assert_eq!(lead("downpour", ""), None);
    for entry in CONSISTENCIES {
        let made = build(entry.name, "");
        if matches!(made.blend, Blending::Local(_) | Blending::Mixing(_)) {
            assert_eq!(made.gate.lead_max(), Some(0), "{} exchanges together", entry.name);
        }
    }
}

#[test]
fn ssp_pushes_fresh_rows_unless_told_not_to_and_nobody_else_does() {
    assert!(build("ssp", "").gate.pushes());
    assert!(!build("ssp", "push = false").gate.pushes());
    for name in ["bsp", "async", "backup-workers"] {
        assert!(!build(name, "").gate.pushes(), "{name}");
    }
}

#[test]
fn backup_workers_wait_for_all_but_the_spare_and_for_one_at_least() {
    let quorum = |params: &str, world| build("backup-workers", params).gate.quorum(world);
    assert_eq!(quorum("", 8), 7);
    assert_eq!(quorum("spare = 3", 8), 5);
    assert_eq!(quorum("spare = 3", 2), 1);
    assert_eq!(quorum("spare = 0", 8), 8);
    for name in ["bsp", "ssp", "async"] {
        assert_eq!(build(name, "").gate.quorum(8), 8, "{name}");
    }
}

/// When workers whose steps take so long have completed `steps` together. Under a barrier all start a step at the same
/// moment, so a step lasts as long as its quorum's slowest.
fn barrier_time(gate: &dyn Gate, durations: &[u64], steps: u64) -> u64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    steps * sorted[gate.quorum(durations.len() as u32) as usize - 1]
}

/// The same for workers that start a step as soon as the gate lets them, moment by moment.
fn elapsed(gate: &dyn Gate, durations: &[u64], steps: u64) -> u64 {
    let mut clocks = vec![0; durations.len()];
    let mut due: Vec<Option<u64>> = vec![None; durations.len()];
    for now in 0.. {
        for worker in 0..clocks.len() {
            if due[worker] == Some(now) {
                clocks[worker] += 1;
                due[worker] = None;
            }
        }
        let completed = gate::completed(gate, &clocks);
        if completed >= steps {
            return now;
        }
        for worker in 0..clocks.len() {
            // A worker whose step was completed without it is told so, and its contribution dropped.
            if clocks[worker] < completed {
                (clocks[worker], due[worker]) = (completed, None);
            }
            if due[worker].is_none() && gate.fresh(Step(clocks[worker]), completed) {
                due[worker] = Some(now + durations[worker]);
            }
        }
    }
    unreachable!("every step ends")
}

#[test]
fn with_a_spare_the_slowest_worker_no_longer_sets_the_pace() {
    let durations = [10, 11, 12, 40];
    let (bsp, backup) = (build("bsp", "").gate, build("backup-workers", "").gate);
    assert_eq!(elapsed(&*bsp, &durations, 25), 1_000);
    assert_eq!(elapsed(&*backup, &durations, 25), 300);
    for (name, params) in [("bsp", ""), ("backup-workers", ""), ("backup-workers", "spare = 2")] {
        let gate = build(name, params).gate;
        let expected = barrier_time(&*gate, &durations, 25);
        assert_eq!(elapsed(&*gate, &durations, 25), expected, "{name} {params}");
    }
}

/// A gate made of functions.
struct Broken {
    fresh: fn(u64, u64) -> bool,
    lead_max: Option<u64>,
    quorum: fn(u32) -> u32,
}

impl Gate for Broken {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        (self.fresh)(step.0, slowest)
    }

    fn lead_max(&self) -> Option<u64> {
        self.lead_max
    }

    fn quorum(&self, world: u32) -> u32 {
        (self.quorum)(world)
    }
}

#[test]
fn broken_gates_are_found_out() {
    type Case = (fn(u64, u64) -> bool, Option<u64>, &'static str);
    let cases: [Case; 4] = [
        (|step, slowest| slowest > step, Some(0), "the slowest worker is refused"),
        (|step, slowest| slowest == step, Some(0), "was admitted until"),
        (|step, slowest| slowest.saturating_add(2) >= step, Some(1), "lead_max is Some(1)"),
        (|step, slowest| slowest.saturating_add(9) >= step, None, "lead_max is None"),
    ];
    for (fresh, lead_max, law) in cases {
        let found = gate::check(&Broken { fresh, lead_max, quorum: |world| world }).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}

#[test]
fn broken_quorums_are_found_out() {
    type Case = (fn(u32) -> u32, &'static str);
    let cases: [Case; 3] = [
        (|world| world.saturating_sub(1), "a quorum of 0 in a world of 1"),
        (|world| world + 1, "a quorum of 2 in a world of 1"),
        (|world| if world > 8 { 1 } else { world }, "the quorum shrinks"),
    ];
    for (quorum, law) in cases {
        let fresh = |step, slowest| slowest >= step;
        let found = gate::check(&Broken { fresh, lead_max: Some(0), quorum }).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}
