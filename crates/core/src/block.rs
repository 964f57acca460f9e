//! Blocks: what travels. A block is dense, or a set of rows of a wide table; its numbers are f32, f64 or
//! i64. Statistics of exact learners travel as f64 or i64. Blocks know how to be summed, and no more.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The kind of number in a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
    /// 64-bit integers.
    I64,
}

impl Kind {
    /// Bytes of one number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::F64 | Kind::I64 => 8,
        }
    }
}

/// A vector of numbers of one kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Values {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 64-bit floats.
    F64(Vec<f64>),
    /// 64-bit integers.
    I64(Vec<i64>),
}

/// Runs one expression for whichever vector is inside.
macro_rules! each {
    ($values:expr, $inner:ident => $body:expr) => {
        match $values {
            Values::F32($inner) => $body,
            Values::F64($inner) => $body,
            Values::I64($inner) => $body,
        }
    };
}

impl Values {
    /// `len` zeros.
    #[must_use]
    pub fn zeros(kind: Kind, len: usize) -> Values {
        match kind {
            Kind::F32 => Values::F32(vec![0.0; len]),
            Kind::F64 => Values::F64(vec![0.0; len]),
            Kind::I64 => Values::I64(vec![0; len]),
        }
    }

    /// The kind of number.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Values::F32(_) => Kind::F32,
            Values::F64(_) => Kind::F64,
            Values::I64(_) => Kind::I64,
        }
    }

    /// How many numbers.
    #[must_use]
    pub fn len(&self) -> usize {
        each!(self, inner => inner.len())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `other[..]` onto `self[at..]`.
    ///
    /// # Errors
    /// When kinds differ or `other` does not fit.
    pub fn add_at(&mut self, at: usize, other: &Values) -> Result<(), FoldError> {
        let end = at.checked_add(other.len()).filter(|&end| end <= self.len());
        let end = end.ok_or(FoldError::Shape)?;
        match (self, other) {
            (Values::F32(a), Values::F32(b)) => add(&mut a[at..end], b),
            (Values::F64(a), Values::F64(b)) => add(&mut a[at..end], b),
            (Values::I64(a), Values::I64(b)) => {
                a[at..end].iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(*b));
            }
            _ => return Err(FoldError::Kind),
        }
        Ok(())
    }

    /// Copies `other[..]` onto `self[at..]`.
    ///
    /// # Errors
    /// When kinds differ or `other` does not fit.
    pub fn copy_at(&mut self, at: usize, other: &Values) -> Result<(), FoldError> {
        let end = at.checked_add(other.len()).filter(|&end| end <= self.len());
        let end = end.ok_or(FoldError::Shape)?;
        match (self, other) {
            (Values::F32(a), Values::F32(b)) => a[at..end].copy_from_slice(b),
            (Values::F64(a), Values::F64(b)) => a[at..end].copy_from_slice(b),
            (Values::I64(a), Values::I64(b)) => a[at..end].copy_from_slice(b),
            _ => return Err(FoldError::Kind),
        }
        Ok(())
    }

    /// Copies `other[range]` onto `self[range]`.
    ///
    /// # Panics
    /// If kinds differ or the range is not in both.
    pub fn copy_range(&mut self, other: &Values, range: std::ops::Range<usize>) {
        match (self, other) {
            (Values::F32(a), Values::F32(b)) => a[range.clone()].copy_from_slice(&b[range]),
            (Values::F64(a), Values::F64(b)) => a[range.clone()].copy_from_slice(&b[range]),
            (Values::I64(a), Values::I64(b)) => a[range.clone()].copy_from_slice(&b[range]),
            (a, b) => panic!("{:?} are no {:?}", b.kind(), a.kind()),
        }
    }

    /// A copy of `self[from..to]`.
    #[must_use]
    pub fn slice(&self, from: usize, to: usize) -> Values {
        match self {
            Values::F32(inner) => Values::F32(inner[from..to].to_vec()),
            Values::F64(inner) => Values::F64(inner[from..to].to_vec()),
            Values::I64(inner) => Values::I64(inner[from..to].to_vec()),
        }
    }

    /// The numbers, if they are f64.
    #[must_use]
    pub fn as_f64(&self) -> Option<&[f64]> {
        if let Values::F64(inner) = self { Some(inner) } else { None }
    }

    /// The numbers, if they are i64.
    #[must_use]
    pub fn as_i64(&self) -> Option<&[i64]> {
        if let Values::I64(inner) = self { Some(inner) } else { None }
    }

    /// The numbers, if they are f32.
    #[must_use]
    pub fn as_f32(&self) -> Option<&[f32]> {
        if let Values::F32(inner) = self { Some(inner) } else { None }
    }

    /// Whether every float is finite.
    #[must_use]
    pub fn all_finite(&self) -> bool {
        match self {
            Values::F32(inner) => inner.iter().all(|x| x.is_finite()),
            Values::F64(inner) => inner.iter().all(|x| x.is_finite()),
            Values::I64(_) => true,
        }
    }
}

fn add<T: Copy + std::ops::AddAssign>(into: &mut [T], from: &[T]) {
    into.iter_mut().zip(from).for_each(|(a, b)| *a += *b);
}

/// Some rows of a table: strictly increasing row numbers and, for each, `width` numbers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rows {
    /// Rows of the whole table (row numbers are below this).
    pub total: u32,
    /// Numbers in a row.
    pub width: u32,
    /// Which rows, strictly increasing.
    pub index: Vec<u32>,
    /// Their numbers, row after row.
    pub values: Values,
}

impl Rows {
    /// No rows of a table.
    #[must_use]
    pub fn none(kind: Kind, total: u32, width: u32) -> Rows {
        Rows { total, width, index: Vec::new(), values: Values::zeros(kind, 0) }
    }

    /// Whether index and values agree: increasing, in bounds, right length.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.index.windows(2).all(|pair| pair[0] < pair[1])
            && self.index.last().is_none_or(|&last| last < self.total)
            && self.values.len() == self.index.len() * self.width as usize
    }

    /// The rows with numbers in `from..to`.
    #[must_use]
    pub fn range(&self, from: u32, to: u32) -> Rows {
        let first = self.index.partition_point(|&row| row < from);
        let last = self.index.partition_point(|&row| row < to);
        let width = self.width as usize;
        Rows {
            total: self.total,
            width: self.width,
            index: self.index[first..last].to_vec(),
            values: self.values.slice(first * width, last * width),
        }
    }

    /// Sums another set of rows into this one: a union of rows, added where both have one.
    ///
    /// # Errors
    /// When the tables differ in kind or shape.
    pub fn fold(&mut self, other: &Rows) -> Result<(), FoldError> {
        if self.width != other.width || self.total != other.total {
            return Err(FoldError::Shape);
        }
        let merged = match (&self.values, &other.values) {
            (Values::F32(a), Values::F32(b)) => {
                let (index, values) = union(self, a, other, b, |a, b| a + b);
                (index, Values::F32(values))
            }
            (Values::F64(a), Values::F64(b)) => {
                let (index, values) = union(self, a, other, b, |a, b| a + b);
                (index, Values::F64(values))
            }
            (Values::I64(a), Values::I64(b)) => {
                let (index, values) = union(self, a, other, b, i64::wrapping_add);
                (index, Values::I64(values))
            }
            _ => return Err(FoldError::Kind),
        };
        (self.index, self.values) = merged;
        Ok(())
    }
}

fn union<T: Copy>(
    left: &Rows,
    a: &[T],
    right: &Rows,
    b: &[T],
    add: impl Fn(T, T) -> T,
) -> (Vec<u32>, Vec<T>) {
    let width = left.width as usize;
    let mut index = Vec::with_capacity(left.index.len() + right.index.len());
    let mut values = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < left.index.len() || j < right.index.len() {
        let x = left.index.get(i).copied().unwrap_or(u32::MAX);
        let y = right.index.get(j).copied().unwrap_or(u32::MAX);
        index.push(x.min(y));
        if x < y {
            values.extend_from_slice(&a[i * width..(i + 1) * width]);
            i += 1;
        } else if y < x {
            values.extend_from_slice(&b[j * width..(j + 1) * width]);
            j += 1;
        } else {
            let pairs = a[i * width..(i + 1) * width].iter().zip(&b[j * width..(j + 1) * width]);
            values.extend(pairs.map(|(a, b)| add(*a, *b)));
            (i, j) = (i + 1, j + 1);
        }
    }
    (index, values)
}

/// Columns of a matrix that are multiplied out together: of a few hundred terms they fit into a core's own cache.
const COLUMNS: usize = 512;

/// A matrix as a sum of outer products Σ uᵢ vᵢᵀ: its sufficient factors (Xie et al., 2015). A gradient of a
/// linear layer over b rows is one, with b terms: b (rows + width) numbers instead of rows · width.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Factors {
    /// Rows of the matrix.
    pub rows: u32,
    /// Columns of the matrix.
    pub width: u32,
    /// The uᵢ, one after another: terms × rows.
    pub left: Vec<f64>,
    /// The vᵢ, one after another: terms × width.
    pub right: Vec<f64>,
}

impl Factors {
    /// How many outer products.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.left.len().checked_div(self.rows as usize).unwrap_or(0)
    }

    /// Whether both sides have the same number of terms.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let (rows, width) = (self.rows as usize, self.width as usize);
        let terms = self.terms();
        self.left.len() == terms * rows && self.right.len() == terms * width
    }

    /// Adds the matrix onto `into`, term by term.
    ///
    /// # Panics
    /// If `into` is not rows × width long.
    pub fn add_to(&self, into: &mut [f64]) {
        let (rows, width) = (self.rows as usize, self.width as usize);
        assert_eq!(into.len(), rows * width, "a matrix of another shape");
        if into.is_empty() {
            return;
        }
        // Some columns of all terms stay in a cache while rows pass over them; each sum has its terms in their order.
        for from in (0..width).step_by(COLUMNS) {
            let to = (from + COLUMNS).min(width);
            for (at, row) in into.chunks_exact_mut(width).enumerate() {
                self.add_columns(at, from..to, &mut row[from..to]);
            }
        }
    }

    /// Adds some columns of a row, four terms on the way, so that sums are read and written less often.
    fn add_columns(&self, at: usize, columns: Range<usize>, sums: &mut [f64]) {
        let (rows, width) = (self.rows as usize, self.width as usize);
        // Those that have both sides.
        let terms = self.terms().min(self.right.len() / width);
        let term = |term: usize| {
            let right = term * width + columns.start..term * width + columns.end;
            (self.left[term * rows + at], &self.right[right])
        };
        let fours = terms / 4 * 4;
        for first in (0..fours).step_by(4) {
            let [(a, v), (b, w), (c, x), (d, y)] = [0, 1, 2, 3].map(|next| term(first + next));
            let four = v.iter().zip(w).zip(x).zip(y);
            for (sum, (((v, w), x), y)) in sums.iter_mut().zip(four) {
                *sum = (((*sum + a * v) + b * w) + c * x) + d * y;
            }
        }
        for (scale, v) in (fours..terms).map(term) {
            sums.iter_mut().zip(v).for_each(|(sum, v)| *sum += scale * v);
        }
    }

    /// Joins the terms of another sum of the same shape: the matrices add.
    ///
    /// # Errors
    /// When the shapes differ.
    pub fn fold(&mut self, other: &Factors) -> Result<(), FoldError> {
        if (self.rows, self.width) != (other.rows, other.width) {
            return Err(FoldError::Shape);
        }
        self.left.extend_from_slice(&other.left);
        self.right.extend_from_slice(&other.right);
        Ok(())
    }
}

/// What a block holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// All numbers of a tensor.
    Dense(Values),
    /// Some rows of a table; absent rows are zero.
    Rows(Rows),
    /// A matrix as a sum of outer products.
    Factors(Factors),
}

/// A named block. Under one step all workers emit the same names and shapes in the same order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Block {
    /// The tensor of the model it concerns, or a statistic's name.
    pub name: String,
    /// Its numbers.
    pub body: Body,
}

impl Block {
    /// A dense block of f64.
    pub fn dense(name: impl Into<String>, values: Vec<f64>) -> Block {
        Block { name: name.into(), body: Body::Dense(Values::F64(values)) }
    }

    /// A dense block of i64.
    pub fn counts(name: impl Into<String>, values: Vec<i64>) -> Block {
        Block { name: name.into(), body: Body::Dense(Values::I64(values)) }
    }

    /// A block of rows.
    pub fn rows(name: impl Into<String>, rows: Rows) -> Block {
        Block { name: name.into(), body: Body::Rows(rows) }
    }

    /// The numbers of a dense block of f64.
    ///
    /// # Panics
    /// If it is another kind of block.
    #[must_use]
    pub fn f64s(&self) -> &[f64] {
        match &self.body {
            Body::Dense(Values::F64(values)) => values,
            _ => panic!("'{}' is not a dense block of f64", self.name),
        }
    }

    /// Bytes of its numbers as they are in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.body {
            Body::Dense(values) => values.len() * values.kind().bytes(),
            Body::Rows(rows) => {
                rows.index.len() * 4 + rows.values.len() * rows.values.kind().bytes()
            }
            Body::Factors(factors) => (factors.left.len() + factors.right.len()) * 8,
        }
    }

    /// Sums another block into this one.
    ///
    /// # Errors
    /// When names, kinds or shapes differ.
    pub fn fold(&mut self, other: &Block) -> Result<(), FoldError> {
        if self.name != other.name {
            return Err(FoldError::Shape);
        }
        match (&mut self.body, &other.body) {
            (Body::Dense(a), Body::Dense(b)) if a.len() == b.len() => a.add_at(0, b),
            (Body::Rows(a), Body::Rows(b)) => a.fold(b),
            (Body::Factors(a), Body::Factors(b)) => a.fold(b),
            _ => Err(FoldError::Shape),
        }
    }
}

/// Why two blocks cannot be summed. Peers that disagree on shapes break the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FoldError {
    /// f32, f64 and i64 do not mix.
    #[error("the blocks hold different kinds of numbers")]
    Kind,
    /// Names, lengths, widths or table sizes differ.
    #[error("the blocks have different names or shapes")]
    Shape,
}

/// The blocks one step emits, in the order of emission.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Update {
    /// The blocks.
    pub blocks: Vec<Block>,
}

impl Update {
    /// The block with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Block> {
        self.blocks.iter().find(|block| block.name == name)
    }

    /// The numbers of a dense f64 block.
    ///
    /// # Panics
    /// If the learner did not emit such a block: a bug in the learner.
    #[must_use]
    pub fn f64(&self, name: &str) -> &[f64] {
        match self.get(name).map(|block| &block.body) {
            Some(Body::Dense(Values::F64(values))) => values,
            _ => panic!("no dense f64 block '{name}' was emitted"),
        }
    }

    /// The numbers of a dense i64 block.
    ///
    /// # Panics
    /// If the learner did not emit such a block: a bug in the learner.
    #[must_use]
    pub fn i64(&self, name: &str) -> &[i64] {
        match self.get(name).map(|block| &block.body) {
            Some(Body::Dense(Values::I64(values))) => values,
            _ => panic!("no dense i64 block '{name}' was emitted"),
        }
    }

    /// The rows of a row block.
    #[must_use]
    pub fn rows(&self, name: &str) -> Option<&Rows> {
        match self.get(name).map(|block| &block.body) {
            Some(Body::Rows(rows)) => Some(rows),
            _ => None,
        }
    }

    /// Bytes of all numbers as they are in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(Block::bytes).sum()
    }

    /// Sums another update into this one, block by block.
    ///
    /// # Errors
    /// When they hold different blocks.
    pub fn fold(&mut self, other: &Update) -> Result<(), FoldError> {
        if self.blocks.len() != other.blocks.len() {
            return Err(FoldError::Shape);
        }
        self.blocks.iter_mut().zip(&other.blocks).try_for_each(|(a, b)| a.fold(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(index: &[u32], values: &[f64]) -> Rows {
        Rows { total: 10, width: 2, index: index.to_vec(), values: Values::F64(values.to_vec()) }
    }

    #[test]
    fn rows_fold_to_their_union() {
        let mut a = rows(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
        a.fold(&rows(&[0, 4, 9], &[9.0, 9.0, 10.0, 20.0, 7.0, 7.0])).unwrap();
        assert_eq!(a, rows(&[0, 1, 4, 9], &[9.0, 9.0, 1.0, 2.0, 13.0, 24.0, 7.0, 7.0]));
        assert!(a.is_sound());
        assert_eq!(a.range(1, 5), rows(&[1, 4], &[1.0, 2.0, 13.0, 24.0]));
    }

    #[test]
    fn blocks_that_differ_do_not_fold() {
        let mut a = Block::dense("g", vec![1.0, 2.0]);
        assert_eq!(a.fold(&Block::dense("g", vec![1.0])), Err(FoldError::Shape));
        assert_eq!(a.fold(&Block::counts("g", vec![1, 2])), Err(FoldError::Kind));
        a.fold(&Block::dense("g", vec![0.5, 0.5])).unwrap();
        assert_eq!(a, Block::dense("g", vec![1.5, 2.5]));
    }

    #[test]
    fn factors_multiplied_out_have_the_bits_of_their_terms_in_order() {
        let made = |len: usize, seed: usize| -> Vec<f64> {
            (0..len).map(|at| ((at * 7919 + seed) % 97) as f64 / 31.0 - 1.4).collect()
        };
        for (rows, width, terms) in [(3, 1100, 11), (2, 512, 4), (5, 7, 3), (1, 513, 0)] {
            let (left, right) = (made(terms * rows, 1), made(terms * width, 2));
            let (mut sums, mut wanted) = (made(rows * width, 3), made(rows * width, 3));
            for term in 0..terms {
                for (at, sum) in wanted.iter_mut().enumerate() {
                    let (row, column) = (at / width, at % width);
                    *sum += left[term * rows + row] * right[term * width + column];
                }
            }
            let (rows, width) = (rows as u32, width as u32);
            Factors { rows, width, left, right }.add_to(&mut sums);
            assert_eq!(sums, wanted, "{rows} × {width}, {terms} terms");
        }
    }

    #[test]
    fn factors_fold_to_the_sum_of_their_matrices() {
        let term = |u: [f64; 2], v: [f64; 3]| Factors {
            rows: 2,
            width: 3,
            left: u.to_vec(),
            right: v.to_vec(),
        };
        let mut sum = term([1.0, 2.0], [1.0, 0.0, -1.0]);
        sum.fold(&term([0.0, 1.0], [5.0, 6.0, 7.0])).unwrap();
        assert!(sum.is_sound() && sum.terms() == 2);
        let mut matrix = vec![0.0; 6];
        sum.add_to(&mut matrix);
        assert_eq!(matrix, [1.0, 0.0, -1.0, 7.0, 6.0, 5.0]);
    }

    #[test]
    fn unsound_rows_are_recognised() {
        assert!(!rows(&[4, 1], &[0.0; 4]).is_sound());
        assert!(!rows(&[4, 10], &[0.0; 4]).is_sound());
        assert!(!rows(&[4], &[0.0; 4]).is_sound());
    }
}
