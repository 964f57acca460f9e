//! The model: named tensors, shared by all workers. Everything a learner must remember between steps and
//! every replica must agree on lives here, optimiser state included, so that one checkpoint holds it all.

use crate::{Kind, Values};
use std::collections::BTreeMap;

/// Whether a tensor is part of the answer or only of the way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Part of the trained model: saved, exported, pulled from servers.
    Weight,
    /// Optimiser state and phase counters: checkpointed, left out of the model file.
    State,
}

/// Numbers with a shape. Its rows (the first axis) are what servers own.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The lengths of its axes; empty for a single number.
    pub shape: Vec<usize>,
    /// Its numbers, last axis fastest.
    pub values: Values,
    /// Weight or state.
    pub role: Role,
}

impl Tensor {
    /// Zeros.
    #[must_use]
    pub fn zeros(kind: Kind, shape: &[usize], role: Role) -> Tensor {
        let len = shape.iter().product();
        Tensor { shape: shape.to_vec(), values: Values::zeros(kind, len), role }
    }

    /// A tensor of f64.
    ///
    /// # Panics
    /// If shape and values disagree.
    #[must_use]
    pub fn of(shape: &[usize], values: Vec<f64>, role: Role) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "shape and values disagree");
        Tensor { shape: shape.to_vec(), values: Values::F64(values), role }
    }

    /// How many rows: the first axis.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Numbers in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }
}

/// The name under which a statistic of rows goes, such as a running mean: its blocks carry it, and so does the mark beside
/// a weight that is one. It names no weight, so that no codec takes it for a gradient.
#[must_use]
pub fn tracked(name: &str) -> String {
    format!("tracked.{name}")
}

/// Named tensors in the order of their names.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Model {
    tensors: BTreeMap<String, Tensor>,
}

impl Model {
    /// An empty model.
    #[must_use]
    pub fn new() -> Model {
        Model::default()
    }

    /// Adds or replaces a tensor.
    pub fn set(&mut self, name: impl Into<String>, tensor: Tensor) {
        self.tensors.insert(name.into(), tensor);
    }

    /// A tensor, if it is there.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// A tensor to change, if it is there.
    #[must_use]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.tensors.get_mut(name)
    }

    /// Marks a weight as a statistic of rows, which no gradient leads: it may be averaged, and momentum would carry it to
    /// where no rows are, such as a variance below zero.
    pub fn mark_tracked(&mut self, name: &str) {
        self.set(tracked(name), Tensor::zeros(Kind::I64, &[1], Role::State));
    }

    /// Whether a weight is marked as a statistic of rows.
    #[must_use]
    pub fn is_tracked(&self, name: &str) -> bool {
        self.tensors.contains_key(&tracked(name))
    }

    /// Removes a tensor.
    pub fn remove(&mut self, name: &str) -> Option<Tensor> {
        self.tensors.remove(name)
    }

    /// All tensors in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Numbers of an f64 tensor.
    ///
    /// # Panics
    /// If there is no such tensor: learners read only what their `init` made, and files are checked
    /// against the learner's layout when they are loaded.
    #[must_use]
    pub fn f64(&self, name: &str) -> &[f64] {
        match self.tensors.get(name).map(|tensor| &tensor.values) {
            Some(Values::F64(values)) => values,
            _ => panic!("the model has no f64 tensor '{name}'"),
        }
    }

    /// Numbers of an f64 tensor, to change.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn f64_mut(&mut self, name: &str) -> &mut Vec<f64> {
        match self.tensors.get_mut(name).map(|tensor| &mut tensor.values) {
            Some(Values::F64(values)) => values,
            _ => panic!("the model has no f64 tensor '{name}'"),
        }
    }

    /// Numbers of an i64 tensor.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn i64(&self, name: &str) -> &[i64] {
        match self.tensors.get(name).map(|tensor| &tensor.values) {
            Some(Values::I64(values)) => values,
            _ => panic!("the model has no i64 tensor '{name}'"),
        }
    }

    /// Numbers of an i64 tensor, to change.
    ///
    /// # Panics
    /// If there is no such tensor.
    #[must_use]
    pub fn i64_mut(&mut self, name: &str) -> &mut Vec<i64> {
        match self.tensors.get_mut(name).map(|tensor| &mut tensor.values) {
            Some(Values::I64(values)) => values,
            _ => panic!("the model has no i64 tensor '{name}'"),
        }
    }

    /// A digest of all names, shapes and bits: two replicas agree when theirs are equal.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (name, tensor) in &self.tensors {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            for axis in &tensor.shape {
                hasher.update(&(*axis as u64).to_le_bytes());
            }
            match &tensor.values {
                Values::F32(values) => hasher.update(bytemuck::cast_slice(values)),
                Values::F64(values) => hasher.update(bytemuck::cast_slice(values)),
                Values::I64(values) => hasher.update(bytemuck::cast_slice(values)),
            };
        }
        *hasher.finalize().as_bytes()
    }
}
