//! How a network is trained, whatever it is: the parameters that all entries share.

use crate::networks::refuse_idle;
use crate::precision::{self, Precision};
use crate::schedule::{self, Schedule, Shape};
use crate::solver::Solver;
use starlings_core::{Param, ParamKind, Params, Result};
use starlings_data::Slice;
use starlings_learn::Facts;

/// How a network is trained.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Recipe {
    pub(crate) solver: Solver,
    pub(crate) schedule: Schedule,
    /// The gradient of all parameters is made no longer than this; 0 is no limit.
    pub(crate) clip_norm: f64,
    /// In how many parts a worker computes its rows of a step.
    pub(crate) parts: usize,
    /// Steps over which a schedule falls; 0 is the whole job.
    pub(crate) decay_steps: u64,
    /// Epochs without a lower loss after which training ends; 0 is never.
    pub(crate) patience: u64,
    /// In which numbers products are computed.
    pub(crate) precision: Precision,
}

impl Recipe {
    /// From a job's parameters.
    ///
    /// # Errors
    /// A precision that is not to be had, a momentum that is none, or a parameter that the chosen solver or schedule does
    /// not look at.
    pub(crate) fn of(params: &Params) -> Result<Recipe> {
        for (word, idle) in [("solver", SOLVER_IDLE), ("schedule", SCHEDULE_IDLE)] {
            let chosen = params.text(word);
            let idle = idle.iter().filter(|(choices, _)| choices.contains(&chosen));
            for (_, names) in idle {
                refuse_idle(params, PARAMS, &format!("{word} = \"{chosen}\""), names)?;
            }
        }
        Ok(Recipe {
            solver: Solver::of(params)?,
            schedule: Schedule::of(params),
            clip_norm: params.f64("clip_norm"),
            parts: params.size("accumulate"),
            decay_steps: params.size("decay_steps") as u64,
            patience: params.size("patience") as u64,
            precision: Precision::of(params)?,
        })
    }

    /// Over how many steps a schedule falls: as many as the job says, or those that it has; 0 where nothing falls, so that a model is
    /// the same however long its job was to be.
    pub(crate) fn falls_over(&self, facts: &Facts) -> u64 {
        if matches!(self.schedule.shape, Shape::Constant | Shape::Step { .. }) {
            return 0;
        }
        let a_pass = facts.rows.div_ceil(facts.batch.max(1)).max(1);
        let of_epochs = facts.epochs.unwrap_or(10).saturating_mul(a_pass);
        match self.decay_steps {
            0 => facts.steps.map_or(of_epochs, |steps| steps.min(of_epochs)),
            steps => steps,
        }
    }
}

/// Some slices in so many pieces, which differ by one slice at most; some are empty where there are fewer slices.
pub(crate) fn pieces(slices: &[Slice], count: usize) -> impl Iterator<Item = &[Slice]> {
    let (len, count) = (slices.len(), count.max(1));
    (0..count).map(move |at| &slices[at * len / count..(at + 1) * len / count])
}

/// The words of `solver`.
const SOLVERS: &[&str] =
    &["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "lamb", "muon"];

/// Parameters that mean nothing to some choices of a word.
type Idle = &'static [(&'static [&'static str], &'static [&'static str])];

const SOLVER_IDLE: Idle = &[
    (&["sgd", "adagrad", "rmsprop", "adam", "adamw", "lamb"], &["momentum"]),
    (&["sgd", "momentum", "nesterov", "adagrad", "rmsprop"], &["beta1", "beta2"]),
    (&["sgd", "momentum", "nesterov"], &["epsilon"]),
    (&["sgd", "momentum", "nesterov", "adagrad", "adam", "adamw", "lamb", "muon"], &["rho"]),
];

const SCHEDULE_IDLE: Idle = &[
    (&["constant", "step"], &["decay_steps", "final_rate"]),
    (&["constant", "linear", "cosine"], &["step_every", "step_factor"]),
];

const fn number(
    name: &'static str,
    (min, max): (f64, f64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Float { min, max }, default: Some(default), help }
}

const fn whole(
    name: &'static str,
    (min, max): (i64, i64),
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Integer { min, max }, default: Some(default), help }
}

const fn choice(
    name: &'static str,
    words: &'static [&'static str],
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind: ParamKind::Choice(words), default: Some(default), help }
}

/// Nearer to 1, what is left to 1 would be lost in f32 and the first means of Adam be 0/0.
const SHARE: (f64, f64) = (0.0, 0.999_999);
const COUNT: (i64, i64) = (0, 1_000_000_000_000);

/// The parameters of every network.
pub(crate) const PARAMS: &[Param] = &[
    choice("solver", SOLVERS, "adam", "which optimiser takes the steps"),
    number("learning_rate", (0.0, 1e6), "0.0", "how far a step goes; 0 takes the solver's own"),
    number(
        "momentum",
        (-1.0, SHARE.1),
        "-1.0",
        "how much of the velocity stays (momentum, nesterov, muon); -1 takes the solver's own: 0.95 for muon, 0.9 for others",
    ),
    number("beta1", SHARE, "0.9", "how much of the mean gradient stays (adam, adamw, lamb)"),
    number(
        "beta2",
        SHARE,
        "0.999",
        "how much of the mean squared gradient stays (adam, adamw, lamb)",
    ),
    number("epsilon", (1e-30, 1.0), "1e-8", "keeps quotients finite"),
    number("rho", SHARE, "0.99", "how much of the mean squared gradient stays (rmsprop)"),
    number(
        "weight_decay",
        (0.0, 1e6),
        "0.0",
        "pulls matrices towards zero; biases and scales stay",
    ),
    choice("schedule", schedule::NAMES, "constant", "how the rate changes after the warm-up"),
    whole("warmup_steps", COUNT, "0", "steps during which the rate rises along a line"),
    whole(
        "decay_steps",
        COUNT,
        "0",
        "steps over which linear and cosine fall; 0 takes the whole job",
    ),
    number("final_rate", (0.0, 1.0), "0.0", "share of the rate at the end (linear, cosine)"),
    whole("step_every", (1, 1_000_000_000_000), "1000", "steps between falls (step)"),
    number("step_factor", (0.0, 1.0), "0.1", "what the rate is multiplied by (step)"),
    number(
        "clip_norm",
        (0.0, 1e12),
        "0.0",
        "longest gradient of all parameters together; 0 is no limit",
    ),
    whole(
        "accumulate",
        (1, 4096),
        "1",
        "parts in which a worker computes its rows: less memory, same sum",
    ),
    whole(
        "patience",
        COUNT,
        "0",
        "epochs without a lower training loss that end the job; 0 is never",
    ),
    precision::PARAM,
];

/// An entry's own parameters, then those of every network. `N` is how many there are together.
pub(crate) const fn joined<const N: usize>(own: &[Param]) -> [Param; N] {
    assert!(N == own.len() + PARAMS.len(), "N counts the entry's own and the common ones");
    let mut all = [PARAMS[0]; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < own.len() { own[at] } else { PARAMS[at - own.len()] };
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Shard;
    use starlings_data::Picked;

    /// Nine of sixteen were eight once, in silence.
    #[test]
    fn there_are_as_many_pieces_as_are_asked_for() {
        let slice =
            |shard| Slice { shard: Shard(shard), start: 0, origin: 0, picked: Picked::All(1) };
        let slices: Vec<Slice> = (0..16).map(slice).collect();
        for count in 1..=16 {
            let sizes: Vec<usize> = pieces(&slices, count).map(<[Slice]>::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (count, 16));
            assert!(most - least <= 1 && *least > 0, "{sizes:?}");
        }
        assert_eq!(pieces(&slices[..1], 3).map(<[Slice]>::len).collect::<Vec<_>>(), [0, 0, 1]);
    }
}
