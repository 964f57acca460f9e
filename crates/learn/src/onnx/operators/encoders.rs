//! Operators on the columns of a table: scaling, filling in, codes and categories.

use super::super::file::Node;
use super::super::value::{Array, Kind, Value};
use super::shapes::pick_along;
use super::{Budget, Inputs, Known, Operator};
use starlings_core::{Fault, Result};
use std::collections::BTreeMap;

pub(super) const KNOWN: &[Known] = &[
    ("Scaler", scaler),
    ("Normalizer", normalizer),
    ("Imputer", imputer),
    ("Binarizer", binarizer),
    ("OneHotEncoder", one_hot),
    ("LabelEncoder", label_encoder),
    ("ArrayFeatureExtractor", |_| Ok(Box::new(extract))),
    ("FeatureVectorizer", |_| Ok(Box::new(vectorize))),
    // A row of chances as a map from names: who asks reads the chances by their places.
    ("ZipMap", |_| Ok(Box::new(|inputs, budget| columns(inputs.value(0)?, budget, |_, x| x)))),
];

/// A number from each number and its column.
fn columns(
    value: &Value,
    budget: &mut Budget,
    change: impl Fn(usize, f64) -> f64,
) -> Result<Vec<Value>> {
    let numbers = value.numbers()?;
    let (_, width) = numbers.array.matrix()?;
    budget.hold(numbers.array.values.len())?;
    let each = numbers.array.values.iter().enumerate();
    let values = each.map(|(at, x)| change(at % width, *x)).collect();
    // What these operators make are floats, whatever they read.
    let kind = if numbers.kind == Kind::Double { Kind::Double } else { Kind::Float };
    Ok(vec![Value::of(kind, numbers.array.shape.clone(), values)?])
}

/// One number for all columns, or one for each.
fn of_column(list: &[f64], width: usize) -> Result<impl Fn(usize) -> f64> {
    if list.len() != 1 && list.len() != width {
        return Err(Fault::caller(format!("{} numbers for {width} columns", list.len())));
    }
    Ok(move |column: usize| if list.len() == 1 { list[0] } else { list[column] })
}

fn width(inputs: &Inputs<'_>) -> Result<usize> {
    Ok(inputs.numbers(0)?.array.matrix()?.1)
}

fn scaler(node: &Node) -> Result<Operator> {
    let (offset, scale) = (node.floats("offset")?, node.floats("scale")?);
    Ok(Box::new(move |inputs, budget| {
        let width = width(inputs)?;
        let (offset, scale) = (of_column(&offset, width)?, of_column(&scale, width)?);
        columns(inputs.value(0)?, budget, |column, x| (x - offset(column)) * scale(column))
    }))
}

fn normalizer(node: &Node) -> Result<Operator> {
    let norm: fn(&[f64]) -> f64 = match node.text("norm", "MAX")?.as_str() {
        "MAX" => |row| row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "L1" => |row| row.iter().map(|x| x.abs()).sum(),
        "L2" => |row| row.iter().map(|x| x * x).sum::<f64>().sqrt(),
        other => return Err(Fault::caller(format!("the norm {other} is not known"))),
    };
    Ok(Box::new(move |inputs, budget| {
        let numbers = inputs.numbers(0)?;
        let (_, width) = numbers.array.matrix()?;
        budget.hold(numbers.array.values.len())?;
        let mut values = numbers.array.values.clone();
        for row in values.chunks_exact_mut(width.max(1)) {
            let norm = norm(row);
            if norm != 0.0 {
                row.iter_mut().for_each(|x| *x /= norm);
            }
        }
        Ok(vec![Value::of(Kind::Float, numbers.array.shape.clone(), values)?])
    }))
}

fn imputer(node: &Node) -> Result<Operator> {
    let mut fills = node.floats("imputed_value_floats")?;
    let mut missing = node.float("replaced_value_float", 0.0)?;
    if fills.is_empty() {
        let ints = node.ints("imputed_value_int64s")?.unwrap_or_default();
        fills = ints.iter().map(|x| *x as f64).collect();
        missing = node.int("replaced_value_int64", 0)? as f64;
    }
    Ok(Box::new(move |inputs, budget| {
        let fill = of_column(&fills, width(inputs)?)?;
        let is_missing = |x: f64| x == missing || (x.is_nan() && missing.is_nan());
        columns(inputs.value(0)?, budget, |at, x| if is_missing(x) { fill(at) } else { x })
    }))
}

fn binarizer(node: &Node) -> Result<Operator> {
    let threshold = node.float("threshold", 0.0)?;
    Ok(Box::new(move |inputs, budget| {
        columns(inputs.value(0)?, budget, |_, x| f64::from(u8::from(x > threshold)))
    }))
}

/// A 0/1 number for each category, on a new last axis.
fn one_hot(node: &Node) -> Result<Operator> {
    let texts = node.texts("cats_strings")?.unwrap_or_default();
    let ints = node.ints("cats_int64s")?.unwrap_or_default();
    let lenient = node.int("zeros", 1)? != 0;
    let width = texts.len().max(ints.len());
    if width == 0 {
        return Err(Fault::caller("it has no categories"));
    }
    let texts: BTreeMap<String, usize> = texts.into_iter().zip(0..).collect();
    let ints: BTreeMap<i64, usize> = ints.into_iter().zip(0..).collect();
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        budget.hold(value.len().saturating_mul(width + 1))?;
        let places: Vec<Option<usize>> = match value {
            Value::Texts(found) => found.values.iter().map(|x| texts.get(x).copied()).collect(),
            Value::Numbers(found) => found.ints().iter().map(|x| ints.get(x).copied()).collect(),
        };
        if !lenient && places.iter().any(Option::is_none) {
            return Err(Fault::caller("a category that it does not know"));
        }
        let mut values = vec![0.0; places.len() * width];
        for (row, place) in values.chunks_exact_mut(width).zip(places) {
            if let Some(one) = place.and_then(|place| row.get_mut(place)) {
                *one = 1.0;
            }
        }
        let mut shape = value.shape().to_vec();
        shape.push(width);
        Ok(vec![Value::of(Kind::Float, shape, values)?])
    }))
}

/// Texts as numbers, numbers as texts, or numbers as other numbers, by a list.
fn label_encoder(node: &Node) -> Result<Operator> {
    let (from, to) = (Side::of(node, "keys")?, Side::of(node, "values")?);
    let (from, to) = match (from, to, node.texts("classes_strings")?) {
        (Some(from), Some(to), _) => (from, to),
        // The first version knew a list of texts, whose places are the numbers.
        (None, None, Some(texts)) => {
            let places = (0..texts.len()).map(|at| at as f64).collect();
            (Side::Texts(texts), Side::Numbers(places))
        }
        _ => return Err(Fault::caller("it lacks keys or values")),
    };
    let otherwise = (
        node.text("default_string", "_Unused")?,
        match to {
            Side::Numbers(_) if node.floats("values_floats")?.is_empty() => {
                node.int("default_int64", -1)? as f64
            }
            _ => node.float("default_float", -0.0)?,
        },
    );
    if from.len() != to.len() {
        return Err(Fault::caller(format!("{} keys and {} values", from.len(), to.len())));
    }
    let kind = if node.floats("values_floats")?.is_empty() { Kind::Int } else { Kind::Float };
    Ok(Box::new(move |inputs, budget| {
        let value = inputs.value(0)?;
        budget.hold(2 * value.len())?;
        let places = from.places(value)?;
        let shape = value.shape().to_vec();
        Ok(vec![match &to {
            Side::Numbers(numbers) => {
                let one = |place: &Option<usize>| place.map_or(otherwise.1, |at| numbers[at]);
                Value::of(kind, shape, places.iter().map(one).collect())?
            }
            Side::Texts(texts) => {
                let one = |place: &Option<usize>| {
                    place.map_or_else(|| otherwise.0.clone(), |at| texts[at].clone())
                };
                Value::Texts(Array::new(shape, places.iter().map(one).collect())?)
            }
        }])
    }))
}

/// One side of a list.
enum Side {
    Texts(Vec<String>),
    Numbers(Vec<f64>),
}

impl Side {
    fn of(node: &Node, name: &str) -> Result<Option<Side>> {
        if let Some(texts) = node.texts(&format!("{name}_strings"))? {
            return Ok(Some(Side::Texts(texts)));
        }
        if let Some(ints) = node.ints(&format!("{name}_int64s"))? {
            return Ok(Some(Side::Numbers(ints.iter().map(|x| *x as f64).collect())));
        }
        let floats = node.floats(&format!("{name}_floats"))?;
        Ok((!floats.is_empty()).then_some(Side::Numbers(floats)))
    }

    fn len(&self) -> usize {
        match self {
            Side::Texts(texts) => texts.len(),
            Side::Numbers(numbers) => numbers.len(),
        }
    }

    fn places(&self, value: &Value) -> Result<Vec<Option<usize>>> {
        match (self, value) {
            (Side::Texts(keys), Value::Texts(found)) => {
                let known: BTreeMap<&String, usize> = keys.iter().zip(0..).collect();
                Ok(found.values.iter().map(|text| known.get(text).copied()).collect())
            }
            (Side::Numbers(keys), Value::Numbers(found)) => {
                let known: BTreeMap<u64, usize> =
                    keys.iter().map(|x| x.to_bits()).zip(0..).collect();
                let values = found.array.values.iter();
                Ok(values.map(|x| known.get(&x.to_bits()).copied()).collect())
            }
            _ => Err(Fault::caller("its keys are of another kind than its input")),
        }
    }
}

/// These columns.
fn extract(inputs: &Inputs<'_>, budget: &mut Budget) -> Result<Vec<Value>> {
    let (value, wanted) = (inputs.value(0)?, inputs.numbers(1)?.ints());
    let mut shape = value.shape().to_vec();
    let Some(last) = shape.pop() else { return Err(Fault::caller("it reads a single number")) };
    let places = wanted.iter().map(|one| super::super::value::place(*one, last));
    let places = places.collect::<Result<Vec<_>>>()?;
    // A list of names, from which the names of rows are picked, becomes one row of them.
    let whole = if shape.is_empty() {
        vec![1, places.len()]
    } else {
        [&shape[..], &[places.len()]].concat()
    };
    pick_along((value, value.shape().len() - 1), &places, whole, budget)
}

/// The columns of all inputs side by side.
fn vectorize(inputs: &Inputs<'_>, budget: &mut Budget) -> Result<Vec<Value>> {
    let all = inputs.all()?;
    let parts = all.iter().map(|value| Ok(&value.numbers()?.array)).collect::<Result<Vec<_>>>()?;
    let widths = parts.iter().map(|part| part.matrix()).collect::<Result<Vec<_>>>()?;
    let rows = widths[0].0;
    if widths.iter().any(|(other, _)| *other != rows) {
        return Err(Fault::caller("its inputs have unequally many rows"));
    }
    let width = widths.iter().map(|(_, width)| width).sum::<usize>();
    budget.hold(rows.saturating_mul(width))?;
    let mut values = Vec::with_capacity(rows * width);
    for row in 0..rows {
        for (part, (_, width)) in parts.iter().zip(&widths) {
            values.extend_from_slice(&part.values[row * width..(row + 1) * width]);
        }
    }
    Ok(vec![Value::of(Kind::Float, vec![rows, width], values)?])
}
