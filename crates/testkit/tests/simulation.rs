//! A thousand seeds of delays and crashes through the real machines. A failure names its seed; put it into
//! the list of old bugs below, and it is never forgotten.

use starlings_testkit::sim::{membership, merging, serving};

const SEEDS: u64 = 1_000;

#[test]
fn a_thousand_sums_under_delays_and_crashes() {
    (0..SEEDS).for_each(merging::check);
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
fn stale_synchronous_workers_reach_their_bound_and_bulk_synchronous_ones_never_lead() {
    let base = serving::Scenario {
        seed: 7,
        gate: "ssp",
        bound: 3,
        world: 4,
        steps: 30,
        stop: None,
        slowness: 20,
    };
    assert_eq!(base.run().lead_max, 3);
    assert_eq!(serving::Scenario { gate: "bsp", ..base.clone() }.run().lead_max, 0);
    assert!(serving::Scenario { gate: "async", ..base }.run().lead_max > 3);
}
