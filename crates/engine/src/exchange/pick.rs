//! Rows in and out of a tensor.

use starlings_core::{Rows, Tensor, Values};

/// Some rows of a tensor.
#[must_use]
pub fn pick(tensor: &Tensor, index: Vec<u32>) -> Rows {
    fn gather<T: Copy>(from: &[T], index: &[u32], width: usize) -> Vec<T> {
        let mut values = Vec::with_capacity(index.len() * width);
        for &row in index {
            values.extend_from_slice(&from[row as usize * width..(row as usize + 1) * width]);
        }
        values
    }
    let width = tensor.width();
    let values = match &tensor.values {
        Values::F32(from) => Values::F32(gather(from, &index, width)),
        Values::F64(from) => Values::F64(gather(from, &index, width)),
        Values::I64(from) => Values::I64(gather(from, &index, width)),
    };
    Rows { total: tensor.rows() as u32, width: width as u32, index, values }
}

/// Puts rows back into a tensor. False when they are of another table.
#[must_use]
pub fn place(tensor: &mut Tensor, rows: &Rows) -> bool {
    fn scatter<T: Copy>(into: &mut [T], from: &[T], index: &[u32], width: usize) {
        for (at, &row) in index.iter().enumerate() {
            into[row as usize * width..(row as usize + 1) * width]
                .copy_from_slice(&from[at * width..(at + 1) * width]);
        }
    }
    let width = tensor.width();
    if rows.width as usize != width || rows.total as usize != tensor.rows() || !rows.is_sound() {
        return false;
    }
    match (&mut tensor.values, &rows.values) {
        (Values::F32(into), Values::F32(from)) => scatter(into, from, &rows.index, width),
        (Values::F64(into), Values::F64(from)) => scatter(into, from, &rows.index, width),
        (Values::I64(into), Values::I64(from)) => scatter(into, from, &rows.index, width),
        _ => return false,
    }
    true
}
