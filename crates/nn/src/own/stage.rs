//! A composed layer at work: its steps one after another, forwards on Burn's tensors and, where all is rows of plain
//! numbers, as operators of a graph.

use super::expression::{Function, Pair};
use super::shape::Shape;
use crate::flow::{Flow, Form, each_number};
use crate::pass::{Pass, f32s};
use crate::stage::{Parameter, Stage};
use burn_tensor::{Tensor, activation, module};
use starlings_core::{Graph, Model, Op};

/// One step: what it does, and the shape of its value.
pub(super) struct Step {
    pub(super) operation: Operation,
    pub(super) shape: Shape,
}

/// What a step does, to the values of earlier steps.
pub(super) enum Operation {
    /// The row that reaches the layer.
    Input,
    Number(f64),
    Weight(Parameter),
    Pair(Pair, usize, usize),
    Call(Function, Vec<usize>),
    Layer(Box<dyn Stage>, usize),
}

/// A layer of steps.
pub(super) struct Composed {
    steps: Vec<Step>,
    last: usize,
    output: Form,
}

impl Composed {
    /// The layer that gives the value of step `last`.
    pub(super) fn new(steps: Vec<Step>, last: usize, output: Form) -> Composed {
        Composed { steps, last, output }
    }
}

/// A value at work.
#[derive(Clone)]
enum Value {
    Number(f64),
    Line(Tensor<1>),
    Matrix(Tensor<2>),
    Rows(Flow),
}

impl Stage for Composed {
    fn output(&self) -> Form {
        self.output
    }

    fn parameters(&self) -> Vec<Parameter> {
        let of = |step: &Step| match &step.operation {
            Operation::Weight(parameter) => vec![parameter.clone()],
            Operation::Layer(stage, _) => stage.parameters(),
            _ => Vec::new(),
        };
        self.steps.iter().flat_map(of).collect()
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let mut values: Vec<Value> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let of = |at: &usize| values[*at].clone();
            let value = match &step.operation {
                Operation::Input => Value::Rows(input.clone()),
                Operation::Number(number) => Value::Number(*number),
                Operation::Weight(parameter) => match parameter.shape[..] {
                    [rows, columns] => Value::Matrix(pass.weight(&parameter.name, [rows, columns])),
                    _ => Value::Line(pass.line(&parameter.name)),
                },
                Operation::Pair(pair, left, right) => pair_of(*pair, of(left), of(right)),
                Operation::Call(function, at) => call(*function, at.iter().map(of).collect()),
                Operation::Layer(stage, at) => Value::Rows(stage.forward(of(at).rows(), pass)),
            };
            values.push(value);
        }
        values.swap_remove(self.last).rows()
    }

    fn draw(&self, graph: &mut Graph, input: &str, model: &Model) -> Option<String> {
        let mut values: Vec<String> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let (Shape::Number | Shape::Line(_) | Shape::Matrix(..) | Shape::Rows(Form::Flat(_))) =
                step.shape
            else {
                return None;
            };
            let value = match &step.operation {
                Operation::Input => input.to_string(),
                Operation::Number(number) => {
                    let name = format!("number_{}", graph.constants.len());
                    graph.constant(&name, &[1], vec![*number])
                }
                Operation::Weight(parameter) => {
                    let values = f32s(model, &parameter.name).iter().map(|&x| f64::from(x));
                    graph.constant(&parameter.name, &parameter.shape, values.collect())
                }
                Operation::Pair(pair, left, right) => {
                    graph.node(drawn_pair(*pair), &[&values[*left], &values[*right]])
                }
                Operation::Call(function, at) => {
                    let given: Vec<&str> = at.iter().map(|&at| values[at].as_str()).collect();
                    drawn_call(graph, *function, &given, self.steps[at[0]].shape)?
                }
                Operation::Layer(stage, at) => stage.draw(graph, &values[*at], model)?,
            };
            values.push(value);
        }
        Some(values.swap_remove(self.last))
    }
}

impl Value {
    fn rows(self) -> Flow {
        match self {
            Value::Rows(flow) => flow,
            _ => unreachable!("shapes were checked when the layer was built"),
        }
    }
}

/// Two values number by number.
fn pair_of(pair: Pair, left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => Value::Number(numbers(pair, a, b)),
        (Value::Line(a), b) if !matches!(b, Value::Rows(_)) => {
            let b = match b {
                Value::Line(b) => Side::Many(b),
                other => Side::One(other.number()),
            };
            Value::Line(join(pair, Side::Many(a), b))
        }
        (a, Value::Line(b)) if !matches!(a, Value::Rows(_)) => {
            Value::Line(join(pair, Side::One(a.number()), Side::Many(b)))
        }
        (Value::Matrix(a), Value::Matrix(b)) => {
            Value::Matrix(join(pair, Side::Many(a), Side::Many(b)))
        }
        (Value::Matrix(a), b) => Value::Matrix(join(pair, Side::Many(a), Side::One(b.number()))),
        (a, Value::Matrix(b)) => Value::Matrix(join(pair, Side::One(a.number()), Side::Many(b))),
        (a, b) => {
            let like = match (&a, &b) {
                (Value::Rows(flow), _) | (_, Value::Rows(flow)) => flow.clone(),
                _ => unreachable!("one of them is rows"),
            };
            Value::Rows(match like {
                Flow::Flat(_) => Flow::Flat(join(pair, flat(a), flat(b))),
                Flow::Sequence(_) => Flow::Sequence(join(pair, sequence(a), sequence(b))),
                Flow::Image(_) => Flow::Image(join(pair, image(a), image(b))),
            })
        }
    }
}

impl Value {
    fn number(self) -> f64 {
        match self {
            Value::Number(number) => number,
            _ => unreachable!("shapes were checked when the layer was built"),
        }
    }
}

/// One side of a pair of values of so many axes.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for one operation, and tensors are moved anyway"
)]
enum Side<const D: usize> {
    One(f64),
    Many(Tensor<D>),
}

fn flat(value: Value) -> Side<2> {
    match value {
        Value::Number(number) => Side::One(number),
        Value::Line(line) => {
            let len = line.dims()[0];
            Side::Many(line.reshape([1, len]))
        }
        other => Side::Many(other.rows().flat()),
    }
}

fn sequence(value: Value) -> Side<3> {
    match value {
        Value::Number(number) => Side::One(number),
        Value::Line(line) => {
            let len = line.dims()[0];
            Side::Many(line.reshape([1, 1, len]))
        }
        other => Side::Many(other.rows().sequence()),
    }
}

fn image(value: Value) -> Side<4> {
    match value {
        Value::Number(number) => Side::One(number),
        Value::Line(line) => {
            let len = line.dims()[0];
            Side::Many(line.reshape([1, len, 1, 1]))
        }
        other => Side::Many(other.rows().image()),
    }
}

fn join<const D: usize>(pair: Pair, left: Side<D>, right: Side<D>) -> Tensor<D> {
    match (left, right) {
        (Side::Many(a), Side::Many(b)) => match pair {
            Pair::Add => a + b,
            Pair::Subtract => a - b,
            Pair::Multiply => a * b,
            Pair::Divide => a / b,
            Pair::Larger => a.max_pair(b),
            Pair::Smaller => a.min_pair(b),
        },
        (Side::Many(a), Side::One(b)) => match pair {
            Pair::Add => a + b,
            Pair::Subtract => a - b,
            Pair::Multiply => a * b,
            Pair::Divide => a / b,
            Pair::Larger => a.clamp_min(b),
            Pair::Smaller => a.clamp_max(b),
        },
        (Side::One(a), Side::Many(b)) => match pair {
            Pair::Subtract => b.neg() + a,
            Pair::Divide => b.recip() * a,
            other => join(other, Side::Many(b), Side::One(a)),
        },
        (Side::One(_), Side::One(_)) => unreachable!("one of them is rows or weights"),
    }
}

fn numbers(pair: Pair, a: f64, b: f64) -> f64 {
    match pair {
        Pair::Add => a + b,
        Pair::Subtract => a - b,
        Pair::Multiply => a * b,
        Pair::Divide => a / b,
        Pair::Larger => a.max(b),
        Pair::Smaller => a.min(b),
    }
}

fn call(function: Function, mut values: Vec<Value>) -> Value {
    match function {
        Function::Concat => Value::Rows(concat(values.into_iter().map(Value::rows).collect())),
        Function::Product => {
            let right = values.pop();
            match (values.pop(), right) {
                (Some(left), Some(right)) => product(left, right),
                _ => unreachable!("two values, checked when the line was read"),
            }
        }
        function => each(function, values.swap_remove(0)),
    }
}

fn product(left: Value, right: Value) -> Value {
    match (left, right) {
        (Value::Matrix(a), Value::Matrix(b)) => Value::Matrix(a.matmul(b)),
        (Value::Rows(Flow::Flat(rows)), Value::Matrix(b)) => {
            Value::Rows(Flow::Flat(module::linear(rows, b, None)))
        }
        (Value::Rows(Flow::Sequence(rows)), Value::Matrix(b)) => {
            Value::Rows(Flow::Sequence(module::linear(rows, b, None)))
        }
        (a, b) => Value::Rows(Flow::Sequence(a.rows().sequence().matmul(b.rows().sequence()))),
    }
}

fn concat(values: Vec<Flow>) -> Flow {
    match values[0] {
        Flow::Flat(_) => Flow::Flat(Tensor::cat(values.into_iter().map(Flow::flat).collect(), 1)),
        Flow::Sequence(_) => {
            Flow::Sequence(Tensor::cat(values.into_iter().map(Flow::sequence).collect(), 2))
        }
        Flow::Image(_) => {
            Flow::Image(Tensor::cat(values.into_iter().map(Flow::image).collect(), 1))
        }
    }
}

/// A function of one value.
fn each(function: Function, value: Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(match function {
            Function::Exp => number.exp(),
            Function::Log => number.ln(),
            Function::Sqrt => number.sqrt(),
            Function::Square => number * number,
            Function::Abs => number.abs(),
            Function::Cos => number.cos(),
            _ => unreachable!("shapes were checked when the layer was built"),
        }),
        Value::Line(line) => Value::Line(every(function, line)),
        Value::Matrix(matrix) => Value::Matrix(match function {
            Function::Transpose => matrix.transpose(),
            function => every(function, matrix),
        }),
        Value::Rows(flow) => Value::Rows(match (function, flow) {
            (Function::Transpose, flow) => Flow::Sequence(flow.sequence().swap_dims(1, 2)),
            (_, flow) => each_number!(flow, x => every(function, x)),
        }),
    }
}

fn every<const D: usize>(function: Function, x: Tensor<D>) -> Tensor<D> {
    match function {
        Function::Exp => x.exp(),
        Function::Log => x.log(),
        Function::Sqrt => x.sqrt(),
        Function::Square => x.square(),
        Function::Abs => x.abs(),
        Function::Cos => x.cos(),
        Function::Softmax => activation::softmax(x, D - 1),
        Function::Sum => x.sum_dim(D - 1),
        Function::Mean => x.mean_dim(D - 1),
        Function::Concat | Function::Product | Function::Transpose => {
            unreachable!("not a function of each number")
        }
    }
}

fn drawn_pair(pair: Pair) -> Op {
    match pair {
        Pair::Add => Op::Add,
        Pair::Subtract => Op::Sub,
        Pair::Multiply => Op::Mul,
        Pair::Divide => Op::Div,
        Pair::Larger => Op::Max,
        Pair::Smaller => Op::Min,
    }
}

/// A function as an operator of rows of numbers; `None` where there is none.
fn drawn_call(
    graph: &mut Graph,
    function: Function,
    given: &[&str],
    first: Shape,
) -> Option<String> {
    let op = match function {
        Function::Exp => Op::Exp,
        Function::Log => Op::Log,
        Function::Sqrt => Op::Sqrt,
        Function::Abs => Op::Abs,
        Function::Cos => Op::Cos,
        Function::Softmax => Op::Softmax,
        Function::Sum => Op::SumRows,
        Function::Concat => Op::Concat,
        Function::Product => Op::MatMul,
        Function::Square => return Some(graph.node(Op::Mul, &[given[0], given[0]])),
        Function::Mean => {
            let Shape::Rows(form) = first else { return None };
            let sum = graph.node(Op::SumRows, &[given[0]]);
            let name = format!("number_{}", graph.constants.len());
            let count = graph.constant(&name, &[1], vec![form.len() as f64]);
            return Some(graph.node(Op::Div, &[&sum, &count]));
        }
        Function::Transpose => return None,
    };
    Some(graph.node(op, given))
}
