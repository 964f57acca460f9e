//! Sums of outer products of rows, XᵀX, in f64: the sufficient statistics of least squares. Rows are packed into panels
//! of 24 columns, blocks of rows are multiplied panel by panel with the tile in registers, and only tiles on or above
//! the diagonal are computed (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
//!
//! Cost: rows · width² / 2 multiplications; floating-point units bind, not memory.

use pulp::{Arch, Simd, WithSimd};

/// Columns of a panel: three vectors of AVX-512, six of AVX2, twelve of NEON.
const PANEL: usize = 24;
/// Rows of a block: a panel of them fits the nearest cache.
const BLOCK: usize = 128;
const TILE: usize = PANEL * PANEL;

/// A sum of outer products in the making.
pub(crate) struct Gram {
    width: usize,
    /// Panel after panel; in a panel row after row.
    block: Vec<f64>,
    filled: usize,
    /// Tiles (i, j) with i ≤ j, row after row of tiles.
    tiles: Vec<f64>,
}

impl Gram {
    /// No rows yet.
    pub(crate) fn new(width: usize) -> Gram {
        let panels = width.div_ceil(PANEL);
        let tiles = vec![0.0; panels * (panels + 1) / 2 * TILE];
        Gram { width, block: vec![0.0; panels * BLOCK * PANEL], filled: 0, tiles }
    }

    /// Adds the outer product of a row with itself.
    pub(crate) fn push(&mut self, row: &[f64]) {
        debug_assert_eq!(row.len(), self.width, "a row of another width");
        for (panel, part) in self.block.chunks_exact_mut(BLOCK * PANEL).zip(row.chunks(PANEL)) {
            panel[self.filled * PANEL..][..part.len()].copy_from_slice(part);
        }
        self.filled += 1;
        if self.filled == BLOCK {
            self.flush();
        }
    }

    /// The upper triangle, row after row: entry (i, j) with i ≤ j.
    pub(crate) fn into_triangle(mut self) -> Vec<f64> {
        self.flush();
        let mut triangle = Vec::with_capacity(triangle_len(self.width));
        let panels = self.width.div_ceil(PANEL);
        for i in 0..self.width {
            for j in i..self.width {
                let (above, left) = (i / PANEL, j / PANEL);
                let tile = above * panels - above * (above + 1) / 2 + left;
                triangle.push(self.tiles[tile * TILE + (i % PANEL) * PANEL + j % PANEL]);
            }
        }
        triangle
    }

    fn flush(&mut self) {
        if self.filled > 0 {
            Arch::new().dispatch(Flush(self));
            self.filled = 0;
        }
    }
}

/// How many numbers the upper triangle has.
pub(crate) fn triangle_len(width: usize) -> usize {
    width * (width + 1) / 2
}

/// The whole symmetric matrix, row after row, from its upper triangle.
pub(crate) fn whole(triangle: &[f64], width: usize) -> Vec<f64> {
    let mut matrix = vec![0.0; width * width];
    let mut from = triangle.iter();
    for i in 0..width {
        for j in i..width {
            let value = *from.next().expect("a triangle of this width");
            matrix[i * width + j] = value;
            matrix[j * width + i] = value;
        }
    }
    matrix
}

struct Flush<'a>(&'a mut Gram);

impl WithSimd for Flush<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Rows of a tile at a time: as many as its accumulators leave registers for.
        match S::F64_LANES {
            8 => multiply::<S, 8, 3>(simd, self.0),
            4 => multiply::<S, 2, 6>(simd, self.0),
            2 => multiply::<S, 2, 12>(simd, self.0),
            _ => multiply::<S, 1, 24>(simd, self.0),
        }
    }
}

/// Adds all tiles of a block; M rows of a tile at a time, W vectors each.
#[inline(always)]
fn multiply<S: Simd, const M: usize, const W: usize>(simd: S, gram: &mut Gram) {
    let panels: Vec<&[f64]> = gram.block.chunks_exact(BLOCK * PANEL).collect();
    let mut tiles = gram.tiles.chunks_exact_mut(TILE);
    for (i, left) in panels.iter().enumerate() {
        for right in &panels[i..] {
            let tile = tiles.next().expect("one tile for each pair of panels");
            for (at, part) in tile.chunks_exact_mut(M * PANEL).enumerate() {
                strip::<S, M, W>(simd, (left, at * M), right, gram.filled, part);
            }
        }
    }
}

#[inline(always)]
fn strip<S: Simd, const M: usize, const W: usize>(
    simd: S,
    (left, at): (&[f64], usize),
    right: &[f64],
    rows: usize,
    into: &mut [f64],
) {
    let left = &left.as_chunks::<PANEL>().0[..rows];
    let right = &S::as_simd_f64s(right).0.as_chunks::<W>().0[..rows];
    let mut sums = [[simd.splat_f64s(0.0); W]; M];
    for (left, right) in left.iter().zip(right) {
        let left: &[f64; M] = left[at..at + M].try_into().expect("M long");
        for m in 0..M {
            let x = simd.splat_f64s(left[m]);
            for w in 0..W {
                sums[m][w] = simd.mul_add_e_f64s(x, right[w], sums[m][w]);
            }
        }
    }
    let into = S::as_mut_simd_f64s(into).0.as_chunks_mut::<W>().0;
    for (into, sums) in into.iter_mut().zip(&sums) {
        for w in 0..W {
            into[w] = simd.add_f64s(into[w], sums[w]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    #[test]
    fn sums_are_those_of_plain_loops_for_every_shape() {
        let mut rng = Rng::named(1, "gram", &[]);
        for (rows, width) in [(0, 3), (1, 1), (5, 23), (128, 24), (300, 25), (257, 61)] {
            let data: Vec<f64> = (0..rows * width).map(|_| rng.normal()).collect();
            let mut gram = Gram::new(width);
            data.chunks_exact(width).for_each(|row| gram.push(row));
            let found = whole(&gram.into_triangle(), width);
            for i in 0..width {
                for j in 0..width {
                    let plain: f64 = data.chunks_exact(width).map(|row| row[i] * row[j]).sum();
                    assert!((found[i * width + j] - plain).abs() < 1e-10, "{rows} × {width}");
                }
            }
        }
    }
}
