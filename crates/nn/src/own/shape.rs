//! What is known of a value before any row is seen, and which values fit each other.

use super::expression::{Function, Pair};
use crate::flow::Form;
use std::fmt;

/// The shape of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// One number, the same for all rows.
    Number,
    /// A line of weights.
    Line(usize),
    /// A matrix of weights.
    Matrix(usize, usize),
    /// Something for each row.
    Rows(Form),
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Number => write!(f, "a number"),
            Shape::Line(len) => write!(f, "{len} weights"),
            Shape::Matrix(rows, columns) => write!(f, "{rows}×{columns} weights"),
            Shape::Rows(form) => write!(f, "{form}"),
        }
    }
}

/// The sizes of a row by name.
pub(super) fn sizes(form: Form) -> Vec<(&'static str, usize)> {
    match form {
        Form::Flat(width) => vec![("width", width)],
        Form::Sequence { steps, width } => vec![("steps", steps), ("width", width)],
        Form::Image { channels, height, width } => {
            vec![("channels", channels), ("height", height), ("width", width)]
        }
    }
}

/// How many weights stand beside a row: as many as it has numbers, a step has, or an image has channels.
fn beside(form: Form) -> usize {
    match form {
        Form::Flat(width) | Form::Sequence { width, .. } => width,
        Form::Image { channels, .. } => channels,
    }
}

/// The shape of two values joined number by number.
pub(super) fn joined(left: Shape, right: Shape) -> Option<Shape> {
    match (left, right) {
        (Shape::Number, other) | (other, Shape::Number) => Some(other),
        (Shape::Line(len), Shape::Rows(form)) | (Shape::Rows(form), Shape::Line(len)) => {
            (beside(form) == len).then_some(Shape::Rows(form))
        }
        (Shape::Rows(left), Shape::Rows(right)) => wider(left, right).map(Shape::Rows),
        (left, right) => (left == right).then_some(left),
    }
}

/// One number of a row or step stands for all.
fn wider(left: Form, right: Form) -> Option<Form> {
    match (left, right) {
        (Form::Flat(1), Form::Flat(_)) => Some(right),
        (Form::Flat(_), Form::Flat(1)) => Some(left),
        (Form::Sequence { steps, width: 1 }, Form::Sequence { steps: other, .. })
            if steps == other =>
        {
            Some(right)
        }
        (Form::Sequence { steps, .. }, Form::Sequence { steps: other, width: 1 })
            if steps == other =>
        {
            Some(left)
        }
        (left, right) => (left == right).then_some(left),
    }
}

/// The shape of a function's value.
pub(super) fn called(function: Function, values: &[Shape]) -> Option<Shape> {
    match (function, values) {
        (Function::Softmax, &[Shape::Rows(form @ (Form::Flat(_) | Form::Sequence { .. }))]) => {
            Some(Shape::Rows(form))
        }
        (Function::Sum | Function::Mean, [Shape::Rows(Form::Flat(_))]) => {
            Some(Shape::Rows(Form::Flat(1)))
        }
        (Function::Sum | Function::Mean, &[Shape::Rows(Form::Sequence { steps, .. })]) => {
            Some(Shape::Rows(Form::Sequence { steps, width: 1 }))
        }
        (Function::Softmax | Function::Sum | Function::Mean, _) => None,
        (Function::Concat, values) => {
            values[1..].iter().try_fold(values[0], |a, b| beside_each(a, *b))
        }
        (Function::Product, &[left, right]) => product(left, right),
        (Function::Transpose, [Shape::Matrix(rows, columns)]) => {
            Some(Shape::Matrix(*columns, *rows))
        }
        (Function::Transpose, &[Shape::Rows(Form::Sequence { steps, width })]) => {
            Some(Shape::Rows(Form::Sequence { steps: width, width: steps }))
        }
        (Function::Transpose | Function::Product, _) => None,
        (_, values) => Some(values[0]),
    }
}

/// The shape of values side by side.
fn beside_each(left: Shape, right: Shape) -> Option<Shape> {
    let (Shape::Rows(left), Shape::Rows(right)) = (left, right) else { return None };
    Some(Shape::Rows(match (left, right) {
        (Form::Flat(a), Form::Flat(b)) => Form::Flat(a + b),
        (Form::Sequence { steps, width: a }, Form::Sequence { steps: same, width: b })
            if steps == same =>
        {
            Form::Sequence { steps, width: a + b }
        }
        (
            Form::Image { channels: a, height, width },
            Form::Image { channels: b, height: high, width: wide },
        ) if (height, width) == (high, wide) => Form::Image { channels: a + b, height, width },
        _ => return None,
    }))
}

fn product(left: Shape, right: Shape) -> Option<Shape> {
    match (left, right) {
        (Shape::Matrix(a, b), Shape::Matrix(c, d)) if b == c => Some(Shape::Matrix(a, d)),
        (Shape::Rows(Form::Flat(a)), Shape::Matrix(b, c)) if a == b => {
            Some(Shape::Rows(Form::Flat(c)))
        }
        (Shape::Rows(Form::Sequence { steps, width }), Shape::Matrix(b, c)) if width == b => {
            Some(Shape::Rows(Form::Sequence { steps, width: c }))
        }
        (
            Shape::Rows(Form::Sequence { steps, width: a }),
            Shape::Rows(Form::Sequence { steps: b, width }),
        ) if a == b => Some(Shape::Rows(Form::Sequence { steps, width })),
        _ => None,
    }
}

/// What two values cannot be, for messages.
pub(super) fn verb(pair: Pair) -> &'static str {
    match pair {
        Pair::Add => "added",
        Pair::Subtract => "subtracted",
        Pair::Multiply => "multiplied",
        Pair::Divide => "divided",
        Pair::Larger | Pair::Smaller => "compared",
    }
}
