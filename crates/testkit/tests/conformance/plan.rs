//! Plans.

use starlings_core::{Entry, Params, Result, Seat, Shard};
use starlings_plan::{Assignment, PLANS, Plan};
use starlings_testkit::conformance::{plan, plan::Fits, variants};

fn build(name: &str) -> Box<dyn Plan> {
    let entry = Entry::find("plan", PLANS, name).expect("in the catalogue");
    (entry.build)(&Params::defaults(entry.params).expect("defaults")).expect("builds")
}

#[test]
fn every_plan_obeys_the_laws() {
    for entry in PLANS {
        for (label, params) in variants(entry) {
            let plan = (entry.build)(&params).unwrap();
            plan::check(&*plan).unwrap_or_else(|law| panic!("{label}: {law}"));
        }
    }
}

#[test]
fn data_parallel_takes_any_flock_up_to_the_number_of_shards() {
    let data = build("data-parallel");
    for world in 1..=16 {
        assert_eq!(plan::check_one(&*data, world, 16).unwrap(), Fits::Yes);
        let mine = data.assign(Seat(world - 1), world, 16).unwrap();
        assert_eq!((mine.group.len(), mine.pipeline), (world as usize, vec![Seat(world - 1)]));
    }
    assert_eq!(plan::check_one(&*data, 17, 16).unwrap(), Fits::No);
}

#[test]
fn a_pipeline_takes_whole_pipelines_and_sums_among_equal_stages() {
    let pipeline = build("pipeline");
    for world in 1..=17 {
        let expected = if world % 2 == 0 { Fits::Yes } else { Fits::No };
        assert_eq!(plan::check_one(&*pipeline, world, 16).unwrap(), expected);
    }
    let mine = pipeline.assign(Seat(1), 8, 16).unwrap();
    assert_eq!(mine.group, [1, 3, 5, 7].map(Seat));
    // A pipeline needs half as many shards as there are workers.
    assert_eq!(plan::check_one(&*pipeline, 32, 16).unwrap(), Fits::Yes);
    assert_eq!(plan::check_one(&*pipeline, 34, 16).unwrap(), Fits::No);
}

/// Data parallelism with something wrong about seat 1.
struct Broken(fn(&mut Assignment));

impl Plan for Broken {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        let mut assignment = build("data-parallel").assign(seat, world, shards)?;
        if seat == Seat(1) {
            (self.0)(&mut assignment);
        }
        Ok(assignment)
    }

    fn stages(&self) -> u32 {
        1
    }
}

#[test]
fn broken_plans_are_found_out() {
    type Case = (fn(&mut Assignment), &'static str);
    let cases: [Case; 8] = [
        (|mine| mine.shards.truncate(1), "works on"),
        (|mine| mine.shards.push(Shard(0)), "works on"),
        (|mine| mine.stage = 1, "several parts of the model"),
        (|mine| mine.pipeline = vec![Seat(0)], "is not its place"),
        (|mine| mine.group = vec![Seat(0)], "not in its group"),
        (|mine| mine.group = vec![Seat(1)], "the groups have"),
        (|mine| mine.group.reverse(), "not in order"),
        (|mine| mine.parts = 2, "it has 2 parts, and the plan 1"),
    ];
    for (breaks, law) in cases {
        let found = plan::check_one(&Broken(breaks), 4, 16).unwrap_err();
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}
