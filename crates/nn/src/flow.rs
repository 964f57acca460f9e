//! What flows from stage to stage: rows of numbers, of steps, or of images. A [`Form`] is the shape of one row, known
//! before any row is seen, so that what does not fit is refused before the first step.

use crate::kernels;
use burn_tensor::{Gradients, Tensor};
use std::fmt;

/// Does the same to each number, whatever the form.
macro_rules! each_number {
    ($flow:expr, $rows:ident => $body:expr) => {
        match $flow {
            Flow::Flat($rows) => Flow::Flat($body),
            Flow::Sequence($rows) => Flow::Sequence($body),
            Flow::Image($rows) => Flow::Image($body),
        }
    };
}
pub(crate) use each_number;

/// The shape of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// So many numbers.
    Flat(usize),
    /// Steps one after another, each of so many numbers.
    Sequence { steps: usize, width: usize },
    /// Channels of a picture, each of height × width numbers.
    Image { channels: usize, height: usize, width: usize },
}

impl Form {
    /// How many numbers a row has.
    pub(crate) fn len(self) -> usize {
        match self {
            Form::Flat(width) => width,
            Form::Sequence { steps, width } => steps * width,
            Form::Image { channels, height, width } => channels * height * width,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Flat(width) => write!(f, "{width} numbers"),
            Form::Sequence { steps, width } => write!(f, "{steps} steps of {width} numbers"),
            Form::Image { channels, height, width } => {
                write!(f, "an image of {channels}×{height}×{width}")
            }
        }
    }
}

/// Rows on their way.
#[derive(Clone, Debug)]
pub(crate) enum Flow {
    /// rows × numbers.
    Flat(Tensor<2>),
    /// rows × steps × numbers.
    Sequence(Tensor<3>),
    /// rows × channels × height × width.
    Image(Tensor<4>),
}

impl Flow {
    /// Rows of numbers seen as rows of a form.
    pub(crate) fn shaped(rows: Tensor<2>, form: Form) -> Flow {
        let count = rows.dims()[0];
        match form {
            Form::Flat(_) => Flow::Flat(rows),
            Form::Sequence { steps, width } => Flow::Sequence(rows.reshape([count, steps, width])),
            Form::Image { channels, height, width } => {
                Flow::Image(rows.reshape([count, channels, height, width]))
            }
        }
    }

    /// All numbers of a row one after another.
    pub(crate) fn flat(self) -> Tensor<2> {
        match self {
            Flow::Flat(rows) => rows,
            Flow::Sequence(rows) => {
                let [count, steps, width] = rows.dims();
                rows.reshape([count, steps * width])
            }
            Flow::Image(rows) => {
                let [count, channels, height, width] = rows.dims();
                rows.reshape([count, channels * height * width])
            }
        }
    }

    /// The shape of one row.
    pub(crate) fn form(&self) -> Form {
        match self {
            Flow::Flat(rows) => Form::Flat(rows.dims()[1]),
            Flow::Sequence(rows) => {
                let [_, steps, width] = rows.dims();
                Form::Sequence { steps, width }
            }
            Flow::Image(rows) => {
                let [_, channels, height, width] = rows.dims();
                Form::Image { channels, height, width }
            }
        }
    }

    /// The sum with another of the same form.
    ///
    /// # Panics
    /// If the forms differ.
    pub(crate) fn plus(self, other: Flow) -> Flow {
        match (self, other) {
            (Flow::Flat(a), Flow::Flat(b)) => Flow::Flat(a + b),
            (Flow::Sequence(a), Flow::Sequence(b)) => Flow::Sequence(a + b),
            (Flow::Image(a), Flow::Image(b)) => Flow::Image(a + b),
            _ => unreachable!("what goes beside a block has its form"),
        }
    }

    /// The same numbers with nothing before them: gradients are asked for from here on.
    pub(crate) fn leaf(self) -> Flow {
        each_number!(self, rows => rows.autodiff().detach().require_grad())
    }

    /// Takes its gradient out of what a backward pass gave; `None` where it took no part.
    pub(crate) fn gradient(&self, from: &mut Gradients) -> Option<Flow> {
        Some(match self {
            Flow::Flat(rows) => Flow::Flat(rows.grad_remove(from)?),
            Flow::Sequence(rows) => Flow::Sequence(rows.grad_remove(from)?),
            Flow::Image(rows) => Flow::Image(rows.grad_remove(from)?),
        })
    }

    /// A number whose gradient by this is the given one, so that a backward pass can begin here.
    ///
    /// # Panics
    /// If the forms differ.
    pub(crate) fn seeded(self, gradient: &Flow) -> Tensor<1> {
        match (self, gradient) {
            (Flow::Flat(rows), Flow::Flat(gradient)) => kernels::seed(rows, gradient),
            (Flow::Sequence(rows), Flow::Sequence(gradient)) => kernels::seed(rows, gradient),
            (Flow::Image(rows), Flow::Image(gradient)) => kernels::seed(rows, gradient),
            _ => unreachable!("a gradient has the form of what it is by"),
        }
    }

    /// Whether gradients come back through it.
    pub(crate) fn is_tracked(&self) -> bool {
        match self {
            Flow::Flat(rows) => rows.is_tracked(),
            Flow::Sequence(rows) => rows.is_tracked(),
            Flow::Image(rows) => rows.is_tracked(),
        }
    }

    /// The images.
    ///
    /// # Panics
    /// If it is something else: stages check forms when they are built.
    pub(crate) fn image(self) -> Tensor<4> {
        match self {
            Flow::Image(rows) => rows,
            _ => unreachable!("the stage was built for images"),
        }
    }

    /// The sequences.
    ///
    /// # Panics
    /// If it is something else: stages check forms when they are built.
    pub(crate) fn sequence(self) -> Tensor<3> {
        match self {
            Flow::Sequence(rows) => rows,
            _ => unreachable!("the stage was built for sequences"),
        }
    }
}
