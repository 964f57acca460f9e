//! Products of matrices as linear layers need them, on one thread: with biases that sums begin with and a rectifier behind. Where
//! the processor has vectors of sixteen numbers and sizes suit them, by `wide.rs`; otherwise by the `gemm` crate.

#[cfg(target_arch = "x86_64")]
use super::wide;
use pulp::{Arch, Simd, WithSimd};

/// A matrix, and how far the next column and the next row are.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) column: usize,
    pub(super) row: usize,
}

impl<'a> Matrix<'a> {
    /// Row after row, of so many numbers.
    pub(super) fn of(numbers: &'a [f32], width: usize) -> Matrix<'a> {
        Matrix { numbers, column: 1, row: width }
    }

    /// Rows become columns.
    pub(super) fn turned(self) -> Matrix<'a> {
        Matrix { column: self.row, row: self.column, ..self }
    }

    /// How far its last number is, of so many rows and columns.
    fn reach(&self, rows: usize, columns: usize) -> usize {
        (rows - 1) * self.row + (columns - 1) * self.column
    }
}

/// first + left × right, of rows × between × columns numbers, rectified if wanted.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub(super) sizes: [usize; 3],
    pub(super) left: Matrix<'a>,
    pub(super) right: Matrix<'a>,
    /// What the sums of each column begin with.
    pub(super) first: Option<&'a [f32]>,
    /// Whether numbers below zero become zero.
    pub(super) rectifies: bool,
}

impl<'a> Product<'a> {
    /// left × right and no more.
    pub(super) fn of(sizes: [usize; 3], left: Matrix<'a>, right: Matrix<'a>) -> Product<'a> {
        Product { sizes, left, right, first: None, rectifies: false }
    }

    /// The numbers of it, row after row.
    ///
    /// # Panics
    /// If a matrix is smaller than its sizes.
    pub(super) fn numbers(&self) -> Vec<f32> {
        #[cfg(target_arch = "x86_64")]
        if wide::serves(self) {
            return wide::numbers(self);
        }
        let [rows, between, columns] = self.sizes;
        let mut into = match self.first {
            Some(first) => first.repeat(rows),
            None if between == 0 => vec![0.0; rows * columns],
            None => Vec::with_capacity(rows * columns),
        };
        if rows > 0 && between > 0 && columns > 0 {
            self.check();
            #[expect(
                unsafe_code,
                reason = "there is room for all numbers, and the product writes each, for `between` is not 0"
            )]
            unsafe {
                self.multiply(into.as_mut_ptr());
                into.set_len(rows * columns);
            }
        }
        if self.rectifies {
            Arch::new().dispatch(Rectify(&mut into));
        }
        into
    }

    /// That both matrices are as large as they are said to be.
    pub(super) fn check(&self) {
        let Product { sizes: [rows, between, columns], left, right, first, .. } = self;
        let is_left = left.reach(*rows, *between) < left.numbers.len();
        let is_right = right.reach(*between, *columns) < right.numbers.len();
        assert!(is_left, "the left matrix is too small");
        assert!(is_right, "the right matrix is too small");
        assert!(first.is_none_or(|first| first.len() == *columns), "a number for each column");
    }

    /// By the `gemm` crate.
    ///
    /// # Safety
    /// Sizes have been checked, and `into` has room for rows × columns numbers, which are there already if sums begin with some.
    #[expect(unsafe_code, reason = "it writes where its caller says")]
    unsafe fn multiply(&self, into: *mut f32) {
        let Product { sizes: [rows, between, columns], left, right, first, .. } = *self;
        let stride = |step: usize| isize::try_from(step).expect("steps within a slice");
        #[expect(unsafe_code, reason = "both matrices lie within their slices, as was checked")]
        unsafe {
            gemm::gemm(
                rows,
                columns,
                between,
                into,
                1,
                stride(columns),
                first.is_some(),
                left.numbers.as_ptr(),
                stride(left.column),
                stride(left.row),
                right.numbers.as_ptr(),
                stride(right.column),
                stride(right.row),
                1.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// Numbers below zero become zero.
struct Rectify<'a>(&'a mut [f32]);

impl WithSimd for Rectify<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for number in self.0 {
            // What is no number stays, so that it is seen.
            *number = if *number <= 0.0 { 0.0 } else { *number };
        }
    }
}
