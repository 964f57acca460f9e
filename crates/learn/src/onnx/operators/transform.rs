//! What is made of scores at the end: chances of classes, or numbers on another scale.

use starlings_core::{Fault, Result};

/// What is made of a row of scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transform {
    /// They stay as they are.
    None,
    /// 1 / (1 + e⁻ˣ) of each.
    Logistic,
    /// Powers of e over their sum.
    Softmax,
    /// The same, where scores of zero stay zero.
    SoftmaxZero,
}

impl Transform {
    /// By ONNX's name.
    pub(super) fn named(name: &str) -> Result<Transform> {
        match name {
            "NONE" => Ok(Transform::None),
            "LOGISTIC" => Ok(Transform::Logistic),
            "SOFTMAX" => Ok(Transform::Softmax),
            "SOFTMAX_ZERO" => Ok(Transform::SoftmaxZero),
            other => Err(Fault::caller(format!("post_transform {other} is not known"))),
        }
    }

    /// Changes a row of scores.
    pub(crate) fn change(self, row: &mut [f64]) {
        match self {
            Transform::None => {}
            Transform::Logistic => row.iter_mut().for_each(|x| *x = logistic(*x)),
            Transform::Softmax => softmax(row, |_| true),
            Transform::SoftmaxZero => softmax(row, |x| x.abs() > 1e-7),
        }
    }
}

/// 1 / (1 + e⁻ˣ).
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Powers of e over their sum, of those that count.
pub(super) fn softmax(row: &mut [f64], counts: fn(f64) -> bool) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for x in row.iter_mut() {
        *x = if counts(*x) { (*x - largest).exp() } else { 0.0 };
        sum += *x;
    }
    row.iter_mut().for_each(|x| *x /= sum);
}
