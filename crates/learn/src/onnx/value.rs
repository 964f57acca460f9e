//! What flows through a graph: numbers with a shape, or texts. Numbers are kept as f64 whatever their kind, and rounded to
//! the kind after every operator, so that answers are those of the libraries that compute with f32.

use starlings_core::{Fault, Result};

/// The kind of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// f32.
    Float,
    /// f64.
    Double,
    /// Whole numbers.
    Int,
    /// 0 and 1.
    Bool,
}

impl Kind {
    /// ONNX's number for a kind of element.
    pub(super) fn of(number: i64) -> Option<Kind> {
        match number {
            1 => Some(Kind::Float),
            11 => Some(Kind::Double),
            2..=7 | 12 | 13 => Some(Kind::Int),
            9 => Some(Kind::Bool),
            _ => None,
        }
    }

    /// The number as this kind has it.
    pub(super) fn settle(self, x: f64) -> f64 {
        match self {
            Kind::Float => f64::from(x as f32),
            Kind::Double => x,
            Kind::Int => x.trunc(),
            Kind::Bool => f64::from(u8::from(x != 0.0)),
        }
    }
}

/// ONNX's number for texts.
pub(super) const TEXT: i64 = 8;

/// Elements with a shape, the last axis fastest.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Array<T> {
    /// The lengths of the axes.
    pub(super) shape: Vec<usize>,
    /// The elements.
    pub(super) values: Vec<T>,
}

/// Numbers of a kind.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Numbers {
    /// Their kind.
    pub(super) kind: Kind,
    /// They.
    pub(super) array: Array<f64>,
}

/// What flows.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    /// Numbers.
    Numbers(Numbers),
    /// Texts.
    Texts(Array<String>),
}

/// The most axes.
pub(super) const RANK_MAX: usize = 8;

/// More elements than this have no shape.
const ELEMENTS_MAX: usize = 1 << 40;

/// How many elements a shape has. Axes without length count as one for the limit, so that no part of the product is larger
/// than it.
pub(super) fn count(shape: &[usize]) -> Result<usize> {
    let times = |product: usize, axis: &usize| product.checked_mul((*axis).max(1));
    let most = shape.iter().try_fold(1usize, times).filter(|most| *most <= ELEMENTS_MAX);
    match most {
        Some(_) if shape.len() <= RANK_MAX => Ok(shape.iter().product()),
        _ => Err(Fault::caller(format!("the shape {shape:?} is too large"))),
    }
}

impl<T> Array<T> {
    /// Elements of this shape.
    pub(super) fn new(shape: Vec<usize>, values: Vec<T>) -> Result<Array<T>> {
        if count(&shape)? != values.len() {
            return Err(Fault::caller(format!(
                "the shape {shape:?} does not fit {} elements",
                values.len()
            )));
        }
        Ok(Array { shape, values })
    }

    /// Lengths before an axis, of it, and behind it.
    pub(super) fn around(&self, axis: i64) -> Result<[usize; 3]> {
        let axis = place(axis, self.shape.len())?;
        let product = |axes: &[usize]| axes.iter().product::<usize>();
        Ok([product(&self.shape[..axis]), self.shape[axis], product(&self.shape[axis + 1..])])
    }

    /// Rows and columns of a matrix; a vector is one row.
    pub(super) fn matrix(&self) -> Result<(usize, usize)> {
        match self.shape[..] {
            [width] => Ok((1, width)),
            [rows, width] => Ok((rows, width)),
            _ => {
                Err(Fault::caller(format!("a matrix is expected, not the shape {:?}", self.shape)))
            }
        }
    }

    /// The only element.
    pub(super) fn only(&self) -> Result<&T> {
        match &self.values[..] {
            [one] => Ok(one),
            many => Err(Fault::caller(format!("one element is expected, not {}", many.len()))),
        }
    }
}

/// An axis, which may be counted from behind.
pub(super) fn place(axis: i64, rank: usize) -> Result<usize> {
    let from = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    let place = from.and_then(|axis| usize::try_from(axis).ok()).filter(|axis| *axis < rank);
    place.ok_or_else(|| Fault::caller(format!("axis {axis} of {rank} axes")))
}

impl Numbers {
    /// Numbers of this kind and shape, rounded to the kind.
    pub(super) fn new(kind: Kind, shape: Vec<usize>, mut values: Vec<f64>) -> Result<Numbers> {
        if kind != Kind::Double {
            values.iter_mut().for_each(|x| *x = kind.settle(*x));
        }
        Ok(Numbers { kind, array: Array::new(shape, values)? })
    }

    /// As whole numbers.
    pub(super) fn ints(&self) -> Vec<i64> {
        self.array.values.iter().map(|x| *x as i64).collect()
    }
}

impl Value {
    /// Numbers of a kind and shape.
    pub(super) fn of(kind: Kind, shape: Vec<usize>, values: Vec<f64>) -> Result<Value> {
        Numbers::new(kind, shape, values).map(Value::Numbers)
    }

    /// The lengths of the axes.
    pub(super) fn shape(&self) -> &[usize] {
        match self {
            Value::Numbers(numbers) => &numbers.array.shape,
            Value::Texts(texts) => &texts.shape,
        }
    }

    /// How many elements.
    pub(super) fn len(&self) -> usize {
        match self {
            Value::Numbers(numbers) => numbers.array.values.len(),
            Value::Texts(texts) => texts.values.len(),
        }
    }

    /// The numbers.
    pub(super) fn numbers(&self) -> Result<&Numbers> {
        match self {
            Value::Numbers(numbers) => Ok(numbers),
            Value::Texts(_) => Err(Fault::caller("numbers are expected, not texts")),
        }
    }

    /// The same elements in another shape.
    pub(super) fn reshaped(&self, shape: Vec<usize>) -> Result<Value> {
        Ok(match self {
            Value::Numbers(Numbers { kind, array }) => Value::Numbers(Numbers {
                kind: *kind,
                array: Array::new(shape, array.values.clone())?,
            }),
            Value::Texts(texts) => Value::Texts(Array::new(shape, texts.values.clone())?),
        })
    }

    /// Elements picked by their places, in another shape.
    pub(super) fn picked(&self, shape: Vec<usize>, places: &[usize]) -> Result<Value> {
        let outside = || Fault::caller("a place outside of its input");
        Ok(match self {
            Value::Numbers(Numbers { kind, array }) => {
                let one = |at: &usize| array.values.get(*at).copied().ok_or_else(outside);
                let values = places.iter().map(one).collect::<Result<_>>()?;
                Value::Numbers(Numbers { kind: *kind, array: Array::new(shape, values)? })
            }
            Value::Texts(texts) => {
                let one = |at: &usize| texts.values.get(*at).cloned().ok_or_else(outside);
                let values = places.iter().map(one).collect::<Result<_>>()?;
                Value::Texts(Array::new(shape, values)?)
            }
        })
    }
}
