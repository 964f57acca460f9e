//! Pooling adjacent violators: values come in order; each is a pool, and as long as a pool lies not above the one
//! before it the two become one at their weighted mean. What is on the stack is always the isotonic
//! regression of what has come so far, so it can rest in the model between two ranges of values.

use super::order;
use starlings_core::{Model, Role, Tensor, Values};

const ENDS: &str = "pools.ends";
const SUMS: &str = "pools.sums";

/// Neighbouring values with one level.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Pool {
    /// The keys of its first and last value.
    first: u32,
    last: u32,
    /// Σw and Σwy.
    weight: f64,
    sum: f64,
}

impl Pool {
    fn level(self) -> f64 {
        self.sum / self.weight
    }
}

/// A stack of pools, their levels strictly rising.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Pools(Vec<Pool>);

impl Pools {
    /// Takes the next value: its weight and the weighted sum of its labels.
    pub(super) fn push(&mut self, key: u32, weight: f64, sum: f64) {
        let mut pool = Pool { first: key, last: key, weight, sum };
        while let Some(before) = self.0.last().filter(|before| before.level() >= pool.level()) {
            pool.first = before.first;
            pool.weight += before.weight;
            pool.sum += before.sum;
            self.0.pop();
        }
        self.0.push(pool);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first and the last value of each pool with its level: all that interpolation needs.
    pub(super) fn steps(&self) -> (Vec<f64>, Vec<f64>) {
        let (mut thresholds, mut levels) = (Vec::new(), Vec::new());
        for pool in &self.0 {
            let ends = [pool.first, pool.last];
            for &end in &ends[..if pool.first == pool.last { 1 } else { 2 }] {
                thresholds.push(f64::from(order::value(end)));
                levels.push(pool.level());
            }
        }
        (thresholds, levels)
    }

    /// Puts the stack into the model.
    pub(super) fn write(self, model: &mut Model) {
        let ends = self.0.iter().flat_map(|p| [i64::from(p.first), i64::from(p.last)]).collect();
        let sums = self.0.iter().flat_map(|p| [p.weight, p.sum]).collect();
        let shape = [self.0.len(), 2];
        let values = Values::I64(ends);
        model.set(ENDS, Tensor { shape: shape.to_vec(), values, role: Role::State });
        model.set(SUMS, Tensor::of(&shape, sums, Role::State));
    }

    /// Reads the stack.
    pub(super) fn take(model: &Model) -> Pools {
        let pairs = model.i64(ENDS).chunks_exact(2).zip(model.f64(SUMS).chunks_exact(2));
        let pool = |(ends, sums): (&[i64], &[f64])| Pool {
            first: ends[0] as u32,
            last: ends[1] as u32,
            weight: sums[0],
            sum: sums[1],
        };
        Pools(pairs.map(pool).collect())
    }
}
