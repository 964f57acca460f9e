//! Operators that go number by number. Shapes that differ are stretched as in NumPy.

use super::super::file::Node;
use super::super::value::{Array, Kind, Numbers, RANK_MAX, TEXT, Value, count};
use super::{Budget, Inputs, Known, Operator};
use starlings_core::{Fault, Result};

pub(super) const KNOWN: &[Known] = &[
    ("Add", |_| pairwise(|a, b| a + b)),
    ("Sub", |_| pairwise(|a, b| a - b)),
    ("Mul", |_| pairwise(|a, b| a * b)),
    ("Div", |_| pairwise(|a, b| a / b)),
    ("Pow", |_| pairwise(f64::powf)),
    ("PRelu", |_| pairwise(|x, slope| if x < 0.0 { slope * x } else { x })),
    ("Equal", |_| comparison(|a, b| a == b)),
    ("Less", |_| comparison(|a, b| a < b)),
    ("LessOrEqual", |_| comparison(|a, b| a <= b)),
    ("Greater", |_| comparison(|a, b| a > b)),
    ("GreaterOrEqual", |_| comparison(|a, b| a >= b)),
    ("And", |_| comparison(|a, b| a != 0.0 && b != 0.0)),
    ("Or", |_| comparison(|a, b| a != 0.0 || b != 0.0)),
    ("Sum", |_| many(|a, b| a + b, false)),
    ("Mean", |_| many(|a, b| a + b, true)),
    ("Max", |_| many(f64::max, false)),
    ("Min", |_| many(f64::min, false)),
    ("Neg", |_| single(|x| -x)),
    ("Abs", |_| single(f64::abs)),
    ("Exp", |_| single(f64::exp)),
    ("Log", |_| single(f64::ln)),
    ("Sqrt", |_| single(f64::sqrt)),
    ("Reciprocal", |_| single(f64::recip)),
    ("Floor", |_| single(f64::floor)),
    ("Ceil", |_| single(f64::ceil)),
    ("Sign", |_| single(|x| if x == 0.0 { 0.0 } else { x.signum() })),
    ("Sin", |_| single(f64::sin)),
    ("Cos", |_| single(f64::cos)),
    ("Tanh", |_| single(f64::tanh)),
    ("Relu", |_| single(|x| if x < 0.0 { 0.0 } else { x })),
    ("Sigmoid", |_| single(super::transform::logistic)),
    ("Softplus", |_| single(|x| x.max(0.0) + (-x.abs()).exp().ln_1p())),
    ("Softsign", |_| single(|x| x / (1.0 + x.abs()))),
    ("LeakyRelu", |node| scaled(node, 0.01, |x, slope| if x < 0.0 { slope * x } else { x })),
    ("Elu", |node| scaled(node, 1.0, |x, scale| if x < 0.0 { scale * x.exp_m1() } else { x })),
    ("IsNaN", |_| test(f64::is_nan)),
    ("Not", |_| test(|x| x == 0.0)),
    ("Cast", cast),
    ("Clip", clip),
    ("Where", |_| Ok(Box::new(pick))),
    ("BatchNormalization", batch_normalization),
];

fn pairwise(f: fn(f64, f64) -> f64) -> Result<Operator> {
    Ok(Box::new(move |inputs, budget| {
        let (a, b) = (inputs.numbers(0)?, inputs.numbers(1)?);
        Ok(vec![Value::Numbers(stretched((a, b), a.kind, f, budget)?)])
    }))
}

fn comparison(f: fn(f64, f64) -> bool) -> Result<Operator> {
    Ok(Box::new(move |inputs, budget| {
        let pair = (inputs.numbers(0)?, inputs.numbers(1)?);
        let (shape, places) = together(&pair.0.array.shape, &pair.1.array.shape, budget)?;
        let (a, b) = (&pair.0.array.values, &pair.1.array.values);
        let values = places.iter().map(|&(x, y)| f64::from(u8::from(f(a[x], b[y])))).collect();
        Ok(vec![Value::of(Kind::Bool, shape, values)?])
    }))
}

fn many(f: fn(f64, f64) -> f64, mean: bool) -> Result<Operator> {
    Ok(Box::new(move |inputs, budget| {
        let all = inputs.all()?;
        let mut result = all[0].numbers()?.clone();
        budget.hold(result.array.values.len())?;
        for other in &all[1..] {
            result = stretched((&result, other.numbers()?), result.kind, f, budget)?;
        }
        if mean {
            let kind = result.kind;
            let values = &mut result.array.values;
            values.iter_mut().for_each(|x| *x = kind.settle(*x / all.len() as f64));
        }
        Ok(vec![Value::Numbers(result)])
    }))
}

fn single(f: fn(f64) -> f64) -> Result<Operator> {
    Ok(Box::new(move |inputs, budget| Ok(vec![each(inputs.numbers(0)?, None, f, budget)?])))
}

fn test(f: fn(f64) -> bool) -> Result<Operator> {
    Ok(Box::new(move |inputs, budget| {
        let f = |x| f64::from(u8::from(f(x)));
        Ok(vec![each(inputs.numbers(0)?, Some(Kind::Bool), f, budget)?])
    }))
}

fn scaled(node: &Node, otherwise: f64, f: fn(f64, f64) -> f64) -> Result<Operator> {
    let scale = node.float("alpha", otherwise)?;
    Ok(Box::new(move |inputs, budget| {
        Ok(vec![each(inputs.numbers(0)?, None, |x| f(x, scale), budget)?])
    }))
}

/// A number from each number.
fn each(
    of: &Numbers,
    kind: Option<Kind>,
    f: impl Fn(f64) -> f64,
    budget: &mut Budget,
) -> Result<Value> {
    budget.hold(of.array.values.len())?;
    let values = of.array.values.iter().map(|x| f(*x)).collect();
    Value::of(kind.unwrap_or(of.kind), of.array.shape.clone(), values)
}

/// A number from each pair.
pub(super) fn stretched(
    (a, b): (&Numbers, &Numbers),
    kind: Kind,
    f: impl Fn(f64, f64) -> f64,
    budget: &mut Budget,
) -> Result<Numbers> {
    if a.array.shape == b.array.shape {
        budget.hold(a.array.values.len())?;
        let pairs = a.array.values.iter().zip(&b.array.values);
        return Numbers::new(kind, a.array.shape.clone(), pairs.map(|(a, b)| f(*a, *b)).collect());
    }
    let (shape, places) = together(&a.array.shape, &b.array.shape, budget)?;
    let (a, b) = (&a.array.values, &b.array.values);
    Numbers::new(kind, shape, places.iter().map(|&(x, y)| f(a[x], b[y])).collect())
}

/// A shape, and for each place of it the places of two others.
type Pairing = (Vec<usize>, Vec<(usize, usize)>);

/// The shape of both, and for each of its places the places in both.
fn together(a: &[usize], b: &[usize], budget: &mut Budget) -> Result<Pairing> {
    let shape = stretch(a, b)?;
    // A pair of places is as large as two numbers, and the value that is made of it is a third.
    budget.hold(3 * count(&shape)?)?;
    let (first, second) = (strides(a, &shape), strides(b, &shape));
    let mut places = Vec::with_capacity(count(&shape)?);
    let (mut at, mut here) = ([0; RANK_MAX], (0, 0));
    for _ in 0..count(&shape)? {
        places.push(here);
        for axis in (0..shape.len()).rev() {
            at[axis] += 1;
            here = (here.0 + first[axis], here.1 + second[axis]);
            if at[axis] < shape[axis] {
                break;
            }
            here = (here.0 - first[axis] * shape[axis], here.1 - second[axis] * shape[axis]);
            at[axis] = 0;
        }
    }
    Ok((shape, places))
}

/// The shape to which both can be stretched.
pub(super) fn stretch(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let rank = a.len().max(b.len());
    let axis =
        |shape: &[usize], at: usize| (at + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
    let both = |at: usize| match (axis(a, at), axis(b, at)) {
        (a, b) if a == b => Ok(a),
        (1, b) => Ok(b),
        (a, 1) => Ok(a),
        _ => Err(Fault::caller(format!("the shapes {a:?} and {b:?} do not fit"))),
    };
    let shape = (0..rank).map(both).collect::<Result<Vec<_>>>()?;
    count(&shape)?;
    Ok(shape)
}

/// How far the next place of each axis is; zero along an axis that is stretched.
fn strides(own: &[usize], shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for (axis, length) in own.iter().enumerate().rev() {
        let at = axis + shape.len() - own.len();
        strides[at] = if *length == 1 { 0 } else { step };
        step *= length;
    }
    strides
}

fn cast(node: &Node) -> Result<Operator> {
    let to = node.int("to", 0)?;
    let kind = Kind::of(to).filter(|_| to != TEXT);
    let kind =
        kind.ok_or_else(|| Fault::caller(format!("a cast to the kind {to} is not known")))?;
    Ok(Box::new(move |inputs, budget| match inputs.value(0)? {
        Value::Numbers(numbers) => Ok(vec![each(numbers, Some(kind), |x| x, budget)?]),
        Value::Texts(texts) => {
            budget.hold(texts.values.len())?;
            let number = |text: &String| text.trim().parse().unwrap_or(f64::NAN);
            let values = texts.values.iter().map(number).collect();
            Ok(vec![Value::of(kind, texts.shape.clone(), values)?])
        }
    }))
}

fn clip(node: &Node) -> Result<Operator> {
    let told = [node.float("min", f64::NEG_INFINITY)?, node.float("max", f64::INFINITY)?];
    Ok(Box::new(move |inputs, budget| {
        let bound = |at: usize| match inputs.maybe(at + 1) {
            None => Ok(told[at]),
            Some(value) => value.numbers()?.array.only().copied(),
        };
        let (low, high) = (bound(0)?, bound(1)?);
        let within = |x: f64| if x < low { low } else { x }.min(high);
        let keep = |x: f64| if x.is_nan() { x } else { within(x) };
        Ok(vec![each(inputs.numbers(0)?, None, keep, budget)?])
    }))
}

/// The second where the first is true, else the third.
fn pick(inputs: &Inputs<'_>, budget: &mut Budget) -> Result<Vec<Value>> {
    let (test, yes, no) = (inputs.numbers(0)?, inputs.numbers(1)?, inputs.numbers(2)?);
    let all = stretch(&stretch(&test.array.shape, &yes.array.shape)?, &no.array.shape)?;
    budget.hold(count(&all)?)?;
    let zeros =
        Numbers { kind: yes.kind, array: Array::new(all.clone(), vec![0.0; count(&all)?])? };
    let [test, yes, no] =
        [test, yes, no].map(|one| stretched((&zeros, one), one.kind, |_, x| x, budget));
    let (test, yes, no) = (test?.array.values, yes?, no?.array.values);
    let rows = test.iter().zip(&yes.array.values).zip(&no);
    let values = rows.map(|((test, yes), no)| if *test == 0.0 { *no } else { *yes }).collect();
    Ok(vec![Value::of(yes.kind, all, values)?])
}

/// (x − mean) / √(variance + ε) · scale + offset, along the second axis.
fn batch_normalization(node: &Node) -> Result<Operator> {
    let epsilon = node.float("epsilon", 1e-5)?;
    if node.int("training_mode", 0)? != 0 {
        return Err(Fault::caller("it is in training mode").hint("export the model in eval() mode"));
    }
    Ok(Box::new(move |inputs, budget| {
        let x = inputs.numbers(0)?;
        let [outer, width, inner] = x.array.around(1)?;
        let mut parts = Vec::with_capacity(4);
        for at in 1..5 {
            let part = &inputs.numbers(at)?.array.values;
            if part.len() != width {
                return Err(Fault::caller(format!("{} numbers for {width} columns", part.len())));
            }
            parts.push(part);
        }
        let [scale, offset, mean, variance] = parts[..] else {
            return Err(Fault::caller("it takes five inputs"));
        };
        budget.hold(outer * width * inner)?;
        let change = |(at, x): (usize, &f64)| {
            let c = at / inner % width;
            (x - mean[c]) / (variance[c] + epsilon).sqrt() * scale[c] + offset[c]
        };
        let values = x.array.values.iter().enumerate().map(change).collect();
        Ok(vec![Value::of(x.kind, x.array.shape.clone(), values)?])
    }))
}
