//! Gates.

use starlings_consistency::{GATES, Gate};
use starlings_core::{Entry, Step};
use starlings_testkit::conformance::{gate, variants};

fn build(name: &str, params: &str) -> Box<dyn Gate> {
    let entry = Entry::find("consistency", GATES, name).expect("in the catalogue");
    let given = params.parse().expect("a table");
    (entry.build)(&entry.check("consistency", &given).expect("allowed")).expect("builds")
}

#[test]
fn every_gate_obeys_the_laws() {
    for entry in GATES {
        for (label, params) in variants(entry) {
            let gate = (entry.build)(&params).unwrap();
            gate::check(&*gate).unwrap_or_else(|law| panic!("{label}: {law}"));
        }
    }
}

#[test]
fn ssp_with_bound_zero_is_bsp() {
    let (ssp, bsp) = (build("ssp", "bound = 0"), build("bsp", ""));
    assert_eq!(ssp.lead_max(), bsp.lead_max());
    for step in 0..64 {
        for slowest in 0..64 {
            assert_eq!(ssp.fresh(Step(step), slowest), bsp.fresh(Step(step), slowest));
        }
    }
}

#[test]
fn leads_tell_the_gates_apart() {
    let lead = |gate: Box<dyn Gate>| gate::longest_lead(&*gate, 7, 4_000).unwrap();
    assert_eq!(lead(build("bsp", "")), 0);
    assert_eq!(lead(build("ssp", "")), 3);
    assert_eq!(lead(build("ssp", "bound = 9")), 9);
    assert!(lead(build("async", "")) > 500);
}

/// A gate made of two functions.
struct Broken {
    fresh: fn(u64, u64) -> bool,
    lead_max: Option<u64>,
}

impl Gate for Broken {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        (self.fresh)(step.0, slowest)
    }

    fn lead_max(&self) -> Option<u64> {
        self.lead_max
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
        let found = gate::check(&Broken { fresh, lead_max }).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}
