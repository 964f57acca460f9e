//! One pass of rows through a network: its weights as Burn's tensors, and, while it learns, the generators of masks and
//! what stages report besides their output. Masks and noise are drawn by shard of rows, never by worker, so that they do
//! not depend on who computes.

pub(crate) use crate::device::{ON_FLEX, device};
use crate::lent::Loan;
use crate::precision::Precision;
use crate::stage::Parameter;
use burn_tensor::{DType, Gradients, Tensor, TensorData};
use starlings_core::{Model, Rng, Shard, Values};
use starlings_learn::Moment;
use std::collections::BTreeMap;

/// A matrix of rows from numbers, row after row.
pub(crate) fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), &device())
}

/// The same from numbers that are lent, where the device reads them in their place.
pub(crate) fn lent<const D: usize>(loan: &Loan<'_>, shape: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::from_bytes(loan.bytes(), shape, DType::F32), &device())
}

/// The numbers of a tensor, last axis fastest.
pub(crate) fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().expect("networks compute in f32")
}

/// The parameters of a network as tensors, each in one line.
pub(crate) struct Weights<'a> {
    tensors: BTreeMap<String, Tensor<1>>,
    /// The numbers that they read. Behind the tensors, so that these are gone when the loans end.
    loans: Vec<Loan<'a>>,
}

impl<'a> Weights<'a> {
    /// Of a worker that has no rows.
    pub(crate) fn none() -> Weights<'a> {
        Weights { tensors: BTreeMap::new(), loans: Vec::new() }
    }

    /// Takes the weights of a model. If they are to learn, gradients are recorded from here on.
    pub(crate) fn of(model: &'a Model, parameters: &[Parameter], learns: bool) -> Weights<'a> {
        Weights::learning(model, parameters, |_| learns)
    }

    /// The same, where only some of them, by index, are asked for their gradients.
    pub(crate) fn learning(
        model: &'a Model,
        parameters: &[Parameter],
        learns: impl Fn(usize) -> bool,
    ) -> Weights<'a> {
        let mut weights = Weights::none();
        for (index, parameter) in parameters.iter().enumerate() {
            let (values, shape) = (f32s(model, &parameter.name), [parameter.len()]);
            // Other devices may read them later than they are told to.
            let line = if ON_FLEX {
                let loan = Loan::new(values);
                let line = lent(&loan, shape);
                weights.loans.push(loan);
                line
            } else {
                tensor(values.to_vec(), shape)
            };
            let line = match learns(index) && parameter.care.learns() {
                true => line.autodiff().require_grad(),
                false => line,
            };
            weights.tensors.insert(parameter.name.clone(), line);
        }
        weights
    }

    /// Takes a parameter's gradient out of what a backward pass gave; zeros where it took no part.
    pub(crate) fn gradient(&self, parameter: &Parameter, from: &mut Gradients) -> Vec<f32> {
        let gradient = self.tensors[&parameter.name].grad_remove(from);
        gradient.map_or_else(|| vec![0.0; parameter.len()], numbers)
    }
}

/// The numbers of a parameter in a model.
///
/// # Panics
/// If the model has no such parameter: models are checked against the network before they are used.
pub(crate) fn f32s<'a>(model: &'a Model, name: &str) -> &'a [f32] {
    match model.get(name).map(|tensor| &tensor.values) {
        Some(Values::F32(values)) => values,
        _ => panic!("the model has no f32 tensor '{name}'"),
    }
}

/// Some rows of one shard, which stand together in a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// Which shard.
    pub(crate) shard: Shard,
    /// How many rows.
    pub(crate) rows: usize,
}

/// What is known of a pass that learns.
#[derive(Clone, Debug)]
pub(crate) struct Lesson {
    /// When.
    pub(crate) moment: Moment,
    /// Whose rows, in order.
    pub(crate) shares: Vec<Share>,
    /// How much each row counts.
    pub(crate) weights: Vec<f32>,
}

impl Lesson {
    /// Of rows that stand together by shard, at a moment.
    pub(crate) fn of(moment: Moment, shares: Vec<Share>, weights: &[f32]) -> Lesson {
        Lesson { moment, shares, weights: weights.to_vec() }
    }
}

/// A pass.
pub(crate) struct Pass<'a> {
    weights: &'a Weights<'a>,
    /// What is known while it learns; nothing while it answers.
    pub(crate) lesson: Option<Lesson>,
    /// What tracked parameters should become, and by what others have moved: sums over rows.
    pub(crate) tracked: BTreeMap<String, Vec<f32>>,
    /// How much each row counts, where rows that answer are graded.
    graded: Option<Vec<f32>>,
    /// What is to be small besides the loss, summed over rows.
    pub(crate) penalty: Option<Tensor<1>>,
    /// In which numbers products are computed; what runs it through says so.
    pub(crate) precision: Precision,
}

impl<'a> Pass<'a> {
    /// A pass that learns.
    pub(crate) fn learning(weights: &'a Weights<'a>, lesson: Lesson) -> Pass<'a> {
        Pass {
            weights,
            lesson: Some(lesson),
            tracked: BTreeMap::new(),
            graded: None,
            penalty: None,
            precision: Precision::Single,
        }
    }

    /// A pass that answers.
    pub(crate) fn answering(weights: &'a Weights<'a>) -> Pass<'a> {
        Pass {
            weights,
            lesson: None,
            tracked: BTreeMap::new(),
            graded: None,
            penalty: None,
            precision: Precision::Single,
        }
    }

    /// A pass that answers and tells penalties, as one that learns does; rows count so much.
    pub(crate) fn grading(weights: &'a Weights<'a>, rows: &[f32]) -> Pass<'a> {
        Pass { graded: Some(rows.to_vec()), ..Pass::answering(weights) }
    }

    /// The penalties so far.
    pub(crate) fn penalties(&self) -> f64 {
        self.penalty.clone().map_or(0.0, |penalty| f64::from(penalty.into_scalar::<f32>()))
    }

    /// A parameter in its shape.
    pub(crate) fn weight<const D: usize>(&self, name: &str, shape: [usize; D]) -> Tensor<D> {
        self.line(name).reshape(shape)
    }

    /// A parameter in one line.
    pub(crate) fn line(&self, name: &str) -> Tensor<1> {
        self.weights.tensors[name].clone()
    }

    /// How much each row counts; none while it only answers.
    pub(crate) fn row_weights(&self) -> Option<Vec<f32>> {
        self.lesson.as_ref().map(|lesson| &lesson.weights).or(self.graded.as_ref()).cloned()
    }

    /// Numbers for each row of a pass that learns, drawn shard by shard; `None` while it answers.
    pub(crate) fn drawn(
        &self,
        purpose: &str,
        width: usize,
        mut draw: impl FnMut(&mut Rng, &mut Vec<f32>, usize),
    ) -> Option<Vec<f32>> {
        let lesson = self.lesson.as_ref()?;
        let rows: usize = lesson.shares.iter().map(|share| share.rows).sum();
        let mut all = Vec::with_capacity(rows * width);
        for share in &lesson.shares {
            let mut rng = lesson.moment.shard_rng(purpose, share.shard);
            draw(&mut rng, &mut all, share.rows * width);
        }
        Some(all)
    }
}
