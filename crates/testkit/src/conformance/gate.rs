//! The laws of gates, on a grid of counters and in a small run of workers with unequal speeds.

use super::{Verdict, ensure};
use starlings_consistency::Gate;
use starlings_core::{Rng, Step};

/// All laws.
///
/// # Errors
/// The first broken law.
pub fn check(gate: &dyn Gate) -> Verdict {
    let far = [u64::MAX - 1, u64::MAX];
    let counters = || (0..40).chain(far);
    for step in counters() {
        ensure!(gate.fresh(Step(step), step), "the slowest worker is refused step {step}");
        let mut admitted = false;
        for slowest in counters() {
            let fresh = gate.fresh(Step(step), slowest);
            ensure!(
                fresh || !admitted,
                "step {step} was admitted until the slowest reached {slowest}"
            );
            admitted = fresh;
            let allowed = gate.lead_max().is_none_or(|lead| step.saturating_sub(slowest) <= lead);
            ensure!(
                fresh == allowed,
                "step {step} with the slowest at {slowest}: fresh is {fresh}, lead_max is {:?}",
                gate.lead_max()
            );
        }
    }
    for seed in 0..8 {
        let lead = longest_lead(gate, seed, RUN_STEPS)?;
        match gate.lead_max() {
            Some(bound) => {
                ensure!(lead <= bound, "seed {seed}: a lead of {lead} over the bound {bound}");
                // A longer run would be needed to see large bounds reached.
                ensure!(bound > 20 || lead == bound, "seed {seed}: {lead} falls short of {bound}");
            }
            None => ensure!(lead > 20, "seed {seed}: a lead of {lead} looks bounded"),
        }
    }
    Ok(())
}

const RUN_STEPS: usize = 2_000;

/// Runs four workers of which the last is ten times slower, in an order drawn from `seed`. Gives the longest
/// lead over the slowest with which a worker read.
///
/// # Errors
/// When nobody is admitted any more.
pub fn longest_lead(gate: &dyn Gate, seed: u64, steps: usize) -> Result<u64, String> {
    const SPEEDS: [u64; 4] = [10, 10, 10, 1];
    let mut rng = Rng::named(seed, "gate", &[]);
    let mut clocks = [0u64; 4];
    let mut longest = 0;
    for _ in 0..steps {
        let slowest = *clocks.iter().min().expect("there are workers");
        let speed = |worker: usize| match gate.fresh(Step(clocks[worker]), slowest) {
            true => SPEEDS[worker],
            false => 0,
        };
        let all: u64 = (0..4).map(speed).sum();
        ensure!(all > 0, "seed {seed}: nobody is admitted at {clocks:?}");
        let mut drawn = rng.below(all);
        let mut worker = 0;
        while drawn >= speed(worker) {
            drawn -= speed(worker);
            worker += 1;
        }
        longest = longest.max(clocks[worker] - slowest);
        clocks[worker] += 1;
    }
    Ok(longest)
}
