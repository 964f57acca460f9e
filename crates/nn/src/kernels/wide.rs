//! Products of matrices on vectors of sixteen numbers (AVX-512), for what linear layers multiply: a panel of the right matrix is
//! put side by side in the nearest cache, and tiles of sums stay in registers while rows of the left one pass over it (Goto and
//! van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). The left matrix is read where it is. Biases are
//! what sums begin with, and a rectifier is applied before they are written: what comes out is touched once.
//!
//! Every sum is taken in the order of its terms, whatever the tile and wherever a row stands among others.

#![allow(
    unsafe_code,
    reason = "vectors are loaded and stored by address, within slices whose lengths are checked before"
)]

use super::product::{Matrix, Product};
use std::arch::x86_64::{
    __m512, _CMP_LE_OQ, _MM_HINT_ET0, _MM_HINT_T1, _mm_prefetch, _mm512_castpd_ps,
    _mm512_castps_pd, _mm512_cmp_ps_mask, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_mov_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_unpackhi_pd,
    _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

/// Numbers of a vector.
const LANES: usize = 16;
/// Numbers of a panel, which the nearest cache holds beside what passes over it.
const PANEL: usize = 8192;
/// Terms of a sum whose left matrix is turned, at most: of more, other products are faster.
const TURNED_MAX: usize = PANEL / (4 * LANES);

/// Whether this processor and these sizes are served here.
pub(super) fn serves(product: &Product<'_>) -> bool {
    let Product { sizes: [rows, between, columns], left, right, .. } = *product;
    let is_left = left.column == 1
        || left.row == 1 && columns.is_multiple_of(4 * LANES) && between <= TURNED_MAX;
    let is_right = right.column == 1 || right.row == 1 && between.is_multiple_of(LANES);
    let are_many = rows >= LANES && between > 0 && columns > 0 && columns.is_multiple_of(2 * LANES);
    is_left && is_right && are_many && is_x86_feature_detected!("avx512f")
}

/// Computes it.
///
/// # Panics
/// If it is not served, or a matrix is smaller than its sizes.
pub(super) fn numbers(product: &Product<'_>) -> Vec<f32> {
    let [rows, _, columns] = product.sizes;
    assert!(serves(product), "asked for before");
    product.check();
    let mut into = Vec::with_capacity(rows * columns);
    // SAFETY: the processor was asked; matrices reach as far as was checked; there is room for all numbers, and each is
    // written.
    unsafe {
        // A left matrix that is turned has the numbers of a tile's rows side by side: of few rows, they are in few lines.
        match product.left.column {
            1 => run::<12, 2>(product, into.as_mut_ptr()),
            _ => run::<6, 4>(product, into.as_mut_ptr()),
        }
        into.set_len(rows * columns);
    }
    into
}

/// A panel, aligned as vectors are.
#[repr(align(64))]
struct Room([f32; PANEL]);

/// Panel after panel, deeper and deeper.
#[target_feature(enable = "avx512f")]
unsafe fn run<const M: usize, const W: usize>(product: &Product<'_>, into: *mut f32) {
    let Product { sizes: [rows, between, columns], left, right, first, rectifies } = *product;
    let (width, depth) = (W * LANES, PANEL / (W * LANES));
    let mut room = std::mem::MaybeUninit::<Room>::uninit();
    // SAFETY: a place inside of it; nothing is read before it is written.
    let panel: *mut f32 = unsafe { (&raw mut (*room.as_mut_ptr()).0).cast() };
    // As many panels as need be, each as deep as the others.
    let depth = between.div_ceil(between.div_ceil(depth)).next_multiple_of(LANES);
    for start in (0..between).step_by(depth) {
        let deep = depth.min(between - start);
        for column in (0..columns).step_by(width) {
            // SAFETY: within the matrices, as the caller has checked; a panel has room for `depth` rows.
            unsafe {
                let from = right.numbers.as_ptr().add(start * right.row + column * right.column);
                if right.column != 1 {
                    pack_turned::<W>(from, right.column, deep, panel);
                }
                let begin = match (start, first) {
                    (0, Some(first)) => Begin::First(first.as_ptr().add(column)),
                    (0, None) => Begin::Zero,
                    _ => Begin::There,
                };
                let ends = rectifies && start + deep == between;
                let work = Work {
                    begin,
                    ends,
                    deep,
                    panel,
                    from: (right.column == 1).then_some((from, right.row)),
                    stride: columns,
                    column: left.column,
                    row: left.row,
                };
                let rows_at = left.numbers.as_ptr().add(start * left.column);
                let next = Next::after((start, depth), (column, width), (between, columns), right);
                work.all::<M, W>(rows, rows_at, into.add(column), next);
            }
        }
    }
}

/// What the sums of a tile begin with.
#[derive(Clone, Copy)]
enum Begin {
    Zero,
    /// Numbers for each column.
    First(*const f32),
    /// What is there already.
    There,
}

/// What the tiles of a panel have in common.
#[derive(Clone, Copy)]
struct Work {
    begin: Begin,
    /// Whether these are the last terms, and sums below zero become zero.
    ends: bool,
    deep: usize,
    panel: *mut f32,
    /// Where the panel's rows are and how far apart, if the first tile is to put them side by side.
    from: Option<(*const f32, usize)>,
    /// From one row of what comes out to the next.
    stride: usize,
    /// The left matrix's steps.
    column: usize,
    row: usize,
}

/// Numbers of the right matrix that are needed soon: runs of some lines.
#[derive(Clone, Copy)]
struct Next {
    first: *const f32,
    /// Lines of a run.
    lines: usize,
    /// Runs.
    count: usize,
    /// From one run to the next.
    step: usize,
}

impl Next {
    /// What follows a panel: the one beside it, or the first of those below.
    fn after(
        (start, depth): (usize, usize),
        (column, width): (usize, usize),
        (between, columns): (usize, usize),
        right: Matrix<'_>,
    ) -> Next {
        let (down, aside) = match column + width < columns {
            true => (start, column + width),
            false => (between.min(start + depth), 0),
        };
        let place = down * right.row + aside * right.column;
        let first = right.numbers.as_ptr().wrapping_add(place);
        let deep = depth.min(between - down);
        let lines = |numbers: usize| numbers.div_ceil(LANES);
        match right.column {
            1 => Next { first, lines: lines(width), count: deep, step: right.row },
            _ if deep == 0 => Next { first, lines: 0, count: 0, step: 0 },
            step => Next { first, lines: lines(deep), count: width, step },
        }
    }

    /// Asks for some of the runs.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn ask(&mut self, share: usize) {
        for run in 0..share.min(self.count) {
            for line in 0..self.lines {
                let place = self.first.wrapping_add(run * self.step + line * LANES);
                // A hint, harmless for any address.
                _mm_prefetch::<_MM_HINT_T1>(place.cast());
            }
        }
        self.first = self.first.wrapping_add(share * self.step);
        self.count -= share.min(self.count);
    }
}

impl Work {
    /// All rows of a panel, in tiles of M and what is left in smaller ones.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn all<const M: usize, const W: usize>(
        self,
        rows: usize,
        left: *const f32,
        into: *mut f32,
        mut next: Next,
    ) {
        let share = next.count.div_ceil(rows.div_ceil(M));
        let mut row = 0;
        if self.from.is_some() {
            next.ask(share);
            // SAFETY: as the caller promised; there are at least as many rows.
            row += unsafe { self.tile::<M, W, true>(left, into) };
        }
        while row < rows {
            next.ask(share);
            // SAFETY: as the caller promised, for fewer rows.
            unsafe {
                let (left, into) = (left.add(row * self.row), into.add(row * self.stride));
                row += match rows - row {
                    some if some >= M => self.tile::<M, W, false>(left, into),
                    8.. if M > 8 => self.tile::<8, W, false>(left, into),
                    4.. => self.tile::<4, W, false>(left, into),
                    2.. => self.tile::<2, W, false>(left, into),
                    _ => self.tile::<1, W, false>(left, into),
                };
            }
        }
    }

    /// M rows of a panel of W vectors; the first of them may put the panel down on its way, at next to no cost.
    #[inline]
    #[target_feature(enable = "avx512f")]
    #[expect(clippy::needless_range_loop, reason = "constant places keep the sums in registers")]
    unsafe fn tile<const M: usize, const W: usize, const PACKS: bool>(
        self,
        left: *const f32,
        into: *mut f32,
    ) -> usize {
        let Work { begin, ends, deep, panel, stride, column, row, .. } = self;
        let (mut from, step) = self.from.unwrap_or((panel, 0));
        let mut sums = [[_mm512_setzero_ps(); W]; M];
        // SAFETY: as the caller promised.
        unsafe {
            for m in 0..M {
                for w in 0..W {
                    let place = into.add(m * stride + w * LANES);
                    match begin {
                        Begin::Zero => {}
                        Begin::First(first) => sums[m][w] = _mm512_loadu_ps(first.add(w * LANES)),
                        Begin::There => sums[m][w] = _mm512_loadu_ps(place),
                    }
                    _mm_prefetch::<_MM_HINT_ET0>(place.cast());
                }
            }
            let (mut left, mut panel) = (left, panel);
            for _ in 0..deep {
                let mut right = [_mm512_setzero_ps(); W];
                for w in 0..W {
                    let place = panel.add(w * LANES);
                    right[w] = _mm512_loadu_ps(if PACKS { from.add(w * LANES) } else { place });
                    if PACKS {
                        _mm512_storeu_ps(place, right[w]);
                    }
                }
                from = from.wrapping_add(step);
                for m in 0..M {
                    let number = _mm512_set1_ps(*left.add(m * row));
                    for w in 0..W {
                        sums[m][w] = _mm512_fmadd_ps(number, right[w], sums[m][w]);
                    }
                }
                left = left.wrapping_add(column);
                panel = panel.add(W * LANES);
            }
            for m in 0..M {
                for w in 0..W {
                    let sum = if ends { rectified(sums[m][w]) } else { sums[m][w] };
                    _mm512_storeu_ps(into.add(m * stride + w * LANES), sum);
                }
            }
        }
        M
    }
}

/// Numbers below zero become zero; what is no number stays, so that it is seen.
#[inline]
#[target_feature(enable = "avx512f")]
fn rectified(sum: __m512) -> __m512 {
    let zero = _mm512_setzero_ps();
    _mm512_mask_mov_ps(sum, _mm512_cmp_ps_mask::<_CMP_LE_OQ>(sum, zero), zero)
}

/// Columns side by side, row after row, of a matrix whose columns are its rows; `deep` comes by sixteen.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn pack_turned<const W: usize>(
    from: *const f32,
    column: usize,
    deep: usize,
    panel: *mut f32,
) {
    for w in 0..W {
        for q in (0..deep).step_by(LANES) {
            let mut block = [_mm512_setzero_ps(); LANES];
            // SAFETY: as the caller promised.
            unsafe {
                for (lane, block) in block.iter_mut().enumerate() {
                    *block = _mm512_loadu_ps(from.add((w * LANES + lane) * column + q));
                }
                for (lane, row) in turned(block).into_iter().enumerate() {
                    _mm512_storeu_ps(panel.add(((q + lane) * W + w) * LANES), row);
                }
            }
        }
    }
}

/// Sixteen rows as sixteen columns.
#[inline]
#[target_feature(enable = "avx512f")]
fn turned(mut rows: [__m512; LANES]) -> [__m512; LANES] {
    let mut other = rows;
    for i in 0..8 {
        other[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        other[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    for i in (0..16).step_by(4) {
        let pairs = [0, 1, 2, 3].map(|at| _mm512_castps_pd(other[i + at]));
        rows[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs[0], pairs[2]));
        rows[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[0], pairs[2]));
        rows[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs[1], pairs[3]));
        rows[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs[1], pairs[3]));
    }
    for i in 0..4 {
        for half in [0, 8] {
            other[i + half] = _mm512_shuffle_f32x4::<0x88>(rows[i + half], rows[i + half + 4]);
            other[i + half + 4] = _mm512_shuffle_f32x4::<0xdd>(rows[i + half], rows[i + half + 4]);
        }
    }
    for i in 0..8 {
        rows[i] = _mm512_shuffle_f32x4::<0x88>(other[i], other[i + 8]);
        rows[i + 8] = _mm512_shuffle_f32x4::<0xdd>(other[i], other[i + 8]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|at| ((at * 7919 + seed * 104_729) % 97) as f32 / 48.0 - 1.0).collect()
    }

    /// The same, term by term.
    fn plainly(product: &Product<'_>) -> Vec<f32> {
        let Product { sizes: [rows, between, columns], left, right, first, rectifies } = *product;
        let each = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let sum = |(row, column): (usize, usize)| {
            let start = first.map_or(0.0, |first| first[column]);
            let terms = (0..between).map(|at| {
                let x = left.numbers[row * left.row + at * left.column];
                (x, right.numbers[at * right.row + column * right.column])
            });
            let sum = terms.fold(start, |sum, (x, y)| x.mul_add(y, sum));
            if rectifies && sum <= 0.0 { 0.0 } else { sum }
        };
        each.map(sum).collect()
    }

    #[test]
    fn every_sum_has_the_bits_of_its_terms_in_order() {
        for (rows, between, columns) in [
            (16, 1, 32),
            (17, 16, 64),
            (31, 128, 64),
            (128, 784, 96),
            (29, 272, 32),
            (18, 528, 128),
        ] {
            let (left, right) = (made(rows * between, 1), made(between * columns, 2));
            let first = made(columns, 3);
            for case in 0..8 {
                let [left_turned, right_turned, ends] = [1, 2, 4].map(|bit| case & bit != 0);
                let left = Matrix::of(&left, if left_turned { rows } else { between });
                let right = Matrix::of(&right, if right_turned { between } else { columns });
                let product = Product {
                    sizes: [rows, between, columns],
                    left: if left_turned { left.turned() } else { left },
                    right: if right_turned { right.turned() } else { right },
                    first: ends.then_some(&first[..]),
                    rectifies: ends,
                };
                if serves(&product) {
                    let name = format!("{rows} × {between} × {columns}, {case}");
                    assert_eq!(numbers(&product), plainly(&product), "{name}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_not_hidden_by_the_rectifier() {
        let (mut left, right) = (made(16 * 16, 1), made(16 * 32, 2));
        left[3] = f32::NAN;
        let (left, right) = (Matrix::of(&left, 16), Matrix::of(&right, 32));
        let product = Product { sizes: [16, 16, 32], left, right, first: None, rectifies: true };
        if serves(&product) {
            assert!(numbers(&product)[..32].iter().all(|number| number.is_nan()));
        }
    }
}
