//! Approximate synchrony (Hsieh et al., 2017: Gaia; the value-bounded parallelism of Dai et al., 2015): every step is exchanged, but of each worker's
//! changes only those that matter. A change waits and accumulates at its worker until it is larger than a fraction of
//! the value that it changes; workers see their own waiting changes at once.
//!
//! For each number: w = shared + pending. After a step, pending grows by the step; where
//! |pending| > t·|shared| it is sent, added to everyone's `shared`, and pending is 0. So what a worker holds back is
//! at most t of the value in each number, and a replica differs from the sum of all changes by at most P·t of it.
//! With t = 0 this is bulk-synchronous for plain gradient descent. With `decay`, t shrinks as 1/√step, under which
//! Gaia's convergence is proved. An ending sends everything.
//!
//! Cost: 4 bytes more than the number itself for each number sent, so it pays when fewer than two thirds are
//! significant (f64).

use super::together;
use crate::anchor::{add_copy, add_zeros, beside, others_deltas, prepare_others, settle, weights};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{Ability, Block, Entry, Model, Param, ParamKind, Rows, Update, Values};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "approximate",
    summary: "Only changes that are significant beside the value they change are sent; the others wait and add up",
    reference: "Hsieh et al.: Gaia: Geo-distributed machine learning approaching LAN speeds, NSDI 2017; Dai et al.: High-performance distributed ML at scale through parameter server consistency models, AAAI 2015",
    params: &[
        Param {
            name: "significance",
            kind: ParamKind::Float { min: 0.0, max: 1e6 },
            default: Some("0.01"),
            help: "fraction of a value that a change must exceed to be sent",
        },
        Param {
            name: "decay",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "divide the fraction by the square root of the step",
        },
    ],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel],
    build: |params| {
        let (significance, decay) = (params.f64("significance"), params.flag("decay"));
        Ok(together(Approximate { significance, decay }))
    },
};

/// What all workers have.
const SHARED: &str = "shared";
/// What this worker alone has.
const PENDING: &str = "pending";

struct Approximate {
    significance: f64,
    decay: bool,
}

impl Blend for Approximate {
    fn share(&self) -> Share {
        Share::Flock
    }

    fn prepare(&self, model: &mut Model) {
        let names = weights(model);
        for name in &names {
            add_copy(model, name, SHARED);
        }
        add_zeros(model, &names, PENDING);
        prepare_others(model);
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        if round > 0 {
            return None;
        }
        let mut blocks = Vec::new();
        for name in weights(model) {
            let mut parts = Parts::take(model, &name);
            let (index, values) = match &mut parts {
                Parts::F32(parts) => {
                    let (index, values) = parts.significant(self.threshold(at));
                    (index, Values::F32(values))
                }
                Parts::F64(parts) => {
                    let (index, values) = parts.significant(self.threshold(at));
                    (index, Values::F64(values))
                }
            };
            let total = parts.put_back(model, &name);
            blocks.push(Block::rows(name, Rows { total, width: 1, index, values }));
        }
        blocks.extend(others_deltas(at, model));
        Some(Update { blocks })
    }

    fn absorb(&self, at: &At, _round: u32, sum: &Update, model: &mut Model) {
        for name in weights(model) {
            let rows = sum.rows(&name).expect("every worker offered its rows");
            let mut parts = Parts::take(model, &name);
            match (&mut parts, &rows.values) {
                (Parts::F32(parts), Values::F32(values)) => {
                    parts.absorb(self.threshold(at), &rows.index, values);
                }
                (Parts::F64(parts), Values::F64(values)) => {
                    parts.absorb(self.threshold(at), &rows.index, values);
                }
                _ => panic!("a sum of '{name}' in another kind of number"),
            }
            parts.put_back(model, &name);
        }
        settle(at, sum, model);
    }
}

impl Approximate {
    /// What a change must exceed, as a fraction of its value; nothing at an ending.
    fn threshold(&self, at: &At) -> f64 {
        match (at.ending, self.decay) {
            (true, _) => 0.0,
            (false, true) => self.significance / (at.steps.max(1) as f64).sqrt(),
            (false, false) => self.significance,
        }
    }
}

/// The three tensors of a weight, moved out of the model so that all can change at once.
enum Parts {
    F32(Held<f32>),
    F64(Held<f64>),
}

impl Parts {
    fn take(model: &mut Model, name: &str) -> Parts {
        let mut take = |name: &str| {
            let tensor = model.get_mut(name).expect("prepared");
            std::mem::replace(&mut tensor.values, Values::I64(Vec::new()))
        };
        match (take(name), take(&beside(SHARED, name)), take(&beside(PENDING, name))) {
            (Values::F32(weights), Values::F32(shared), Values::F32(pending)) => {
                Parts::F32(Held { weights, shared, pending })
            }
            (Values::F64(weights), Values::F64(shared), Values::F64(pending)) => {
                Parts::F64(Held { weights, shared, pending })
            }
            _ => panic!("'{name}' and what is kept beside it hold different kinds of numbers"),
        }
    }

    /// Gives how many numbers there are.
    fn put_back(self, model: &mut Model, name: &str) -> u32 {
        let (weights, shared, pending) = match self {
            Parts::F32(held) => {
                (Values::F32(held.weights), Values::F32(held.shared), Values::F32(held.pending))
            }
            Parts::F64(held) => {
                (Values::F64(held.weights), Values::F64(held.shared), Values::F64(held.pending))
            }
        };
        let total = u32::try_from(weights.len()).expect("rows are numbered by u32");
        let mut put = |name: &str, values: Values| {
            model.get_mut(name).expect("just taken").values = values;
        };
        put(name, weights);
        put(&beside(SHARED, name), shared);
        put(&beside(PENDING, name), pending);
        total
    }
}

struct Held<T> {
    weights: Vec<T>,
    shared: Vec<T>,
    pending: Vec<T>,
}

impl<T> Held<T>
where
    T: Copy + Default + Into<f64> + std::ops::Add<Output = T> + std::ops::Sub<Output = T>,
{
    /// Takes the last step into `pending`, and gives what of it is significant.
    fn significant(&mut self, threshold: f64) -> (Vec<u32>, Vec<T>) {
        let (mut index, mut values) = (Vec::new(), Vec::new());
        let shared = self.shared.iter().zip(&mut self.pending).zip(&mut self.weights);
        for (at, ((&shared, pending), weight)) in shared.enumerate() {
            *pending = *pending + (*weight - (shared + *pending));
            *weight = shared + *pending;
            if is_significant((*pending).into(), shared.into(), threshold) {
                index.push(at as u32);
                values.push(*pending);
            }
        }
        (index, values)
    }

    /// Drops from `pending` what was offered, and adds the sum of all offers to `shared`.
    fn absorb(&mut self, threshold: f64, index: &[u32], sum: &[T]) {
        for (pending, &shared) in self.pending.iter_mut().zip(&self.shared) {
            if is_significant((*pending).into(), shared.into(), threshold) {
                *pending = T::default();
            }
        }
        for (&at, &sum) in index.iter().zip(sum) {
            let shared = &mut self.shared[at as usize];
            *shared = *shared + sum;
        }
        let parts = self.shared.iter().zip(&self.pending);
        for (weight, (&shared, &pending)) in self.weights.iter_mut().zip(parts) {
            *weight = shared + pending;
        }
    }
}

/// A change that is no number is significant: everyone should see it. Beside a value of zero every change is.
fn is_significant(pending: f64, shared: f64, threshold: f64) -> bool {
    let bound = threshold * shared.abs().max(f64::MIN_POSITIVE);
    pending.abs() > bound || pending.is_nan()
}
