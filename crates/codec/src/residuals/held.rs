//! What is held for one run of numbers, and the step of error feedback on it.

use crate::Compressor;
use crate::float::{self, Float};
use crate::kernels::widest;
use starlings_core::{Rng, Values};
use std::ops::Range;

/// Residual, and velocity where there is momentum correction (empty otherwise), of the same kind.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) residual: Values,
    pub(super) velocity: Values,
}

/// Buffers that are made once.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    singles: Vec<f32>,
    decoded: Vec<f32>,
}

/// Where encodings go.
pub(super) struct Wire<'a> {
    pub(super) compressor: &'a dyn Compressor,
    pub(super) noise: &'a mut Rng,
    pub(super) out: &'a mut Vec<u8>,
    pub(super) scratch: &'a mut Scratch,
}

impl Wire<'_> {
    /// Encodes without a memory.
    pub(super) fn encode_and_forget(&mut self, values: &Values, range: Range<usize>) {
        let singles = &mut self.scratch.singles;
        let values = match values {
            Values::F32(inner) => &inner[range],
            Values::F64(inner) => f64::singles(&inner[range], singles),
            Values::I64(_) => panic!("integers are never compressed"),
        };
        self.compressor.encode(values, self.noise, self.out);
    }
}

impl Held {
    pub(super) fn zeros(kind: starlings_core::Kind, len: usize) -> Held {
        Held { residual: Values::zeros(kind, len), velocity: Values::zeros(kind, 0) }
    }

    /// Adds a contribution, encodes, and keeps what was lost.
    pub(super) fn encode(&mut self, values: &Values, range: Range<usize>, wire: &mut Wire<'_>) {
        let momentum = wire.compressor.feedback().map_or(0.0, |feedback| feedback.momentum);
        if momentum > 0.0 && self.velocity.is_empty() {
            self.velocity = Values::zeros(self.residual.kind(), self.residual.len());
        }
        match (values, &mut self.residual, &mut self.velocity) {
            (Values::F32(values), Values::F32(residual), Values::F32(velocity)) => {
                step(&values[range], residual, (momentum, velocity), wire);
            }
            (Values::F64(values), Values::F64(residual), Values::F64(velocity)) => {
                step(&values[range], residual, (momentum, velocity), wire);
            }
            _ => panic!("integers are never compressed"),
        }
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> Held {
        let velocity = if self.velocity.is_empty() {
            self.velocity.clone()
        } else {
            self.velocity.slice(from, to)
        };
        Held { residual: self.residual.slice(from, to), velocity }
    }

    /// Adds what is held elsewhere onto the numbers from `at` on.
    pub(super) fn add(&mut self, at: usize, other: &Held) {
        float::add(&mut self.residual, at, &other.residual);
        if other.velocity.is_empty() {
            return;
        }
        if self.velocity.is_empty() {
            self.velocity = Values::zeros(self.residual.kind(), self.residual.len());
        }
        float::add(&mut self.velocity, at, &other.velocity);
    }

    pub(super) fn squares(&self) -> f64 {
        match &self.residual {
            Values::F32(inner) => inner.iter().map(|x| f64::from(*x) * f64::from(*x)).sum(),
            Values::F64(inner) => inner.iter().map(|x| x * x).sum(),
            Values::I64(_) => 0.0,
        }
    }
}

/// One step of error feedback; `velocity` is empty where there is no momentum.
fn step<T: Float>(
    values: &[T],
    residual: &mut [T],
    (momentum, velocity): (f64, &mut [T]),
    wire: &mut Wire<'_>,
) {
    match momentum > 0.0 {
        true => widest(
            #[inline(always)]
            || gather_velocity(values, T::of(momentum), velocity, residual),
        ),
        false => float::add_slice(residual, values),
    }
    let Scratch { singles, decoded } = &mut *wire.scratch;
    let start = wire.out.len();
    wire.compressor.encode(T::singles(residual, singles), wire.noise, wire.out);
    decoded.clear();
    decoded.resize(residual.len(), 0.0);
    let own = wire.compressor.decode(&wire.out[start..], decoded);
    own.expect("a compressor decodes what it encodes");
    widest(
        #[inline(always)]
        || {
            subtract(decoded, residual);
            if momentum > 0.0 {
                mask(decoded, velocity);
            }
        },
    );
}

#[inline(always)]
fn gather_velocity<T: Float>(values: &[T], momentum: T, velocity: &mut [T], residual: &mut [T]) {
    for ((value, velocity), sum) in values.iter().zip(velocity).zip(residual) {
        *velocity = (momentum * *velocity + *value).faded();
        *sum += *velocity;
    }
}

#[inline(always)]
fn subtract<T: Float>(decoded: &[f32], residual: &mut [T]) {
    for (sent, rest) in decoded.iter().zip(residual) {
        let lost = *rest - T::of_single(*sent);
        *rest = if lost.is_finite() { lost } else { T::default() };
    }
}

/// Clears the velocity of what was sent.
#[inline(always)]
fn mask<T: Float>(decoded: &[f32], velocity: &mut [T]) {
    for (sent, velocity) in decoded.iter().zip(velocity) {
        *velocity = if *sent == 0.0 { *velocity } else { T::default() };
    }
}
