//! Products of matrices tile by tile: a tile of sums stays in registers while numbers of one matrix are multiplied with
//! panels of the other (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). The left rows
//! may lie anywhere, so a convolution is such a product without its patches ever being written down.
//!
//! Each sum is taken in one fixed order, whatever the tile: no bit depends on the width of vectors.

use pulp::{Arch, Simd, WithSimd};

/// How the outputs of a product are cut: panels of so many numbers side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Panels {
    /// Numbers of a panel.
    pub(crate) width: usize,
    /// How many panels; the last may be filled up with zeros.
    pub(crate) count: usize,
}

impl Panels {
    /// For so many outputs, on this processor.
    pub(crate) fn of(outputs: usize) -> Panels {
        let lanes = Arch::new().dispatch(Lanes);
        let vectors = outputs.div_ceil(lanes).max(1);
        let most = if lanes >= 16 { 4 } else { 2 };
        let together = [4, 2, 1].into_iter().find(|by| *by <= most && vectors.is_multiple_of(*by));
        let width = lanes * together.unwrap_or(1);
        Panels { width, count: outputs.div_ceil(width).max(1) }
    }

    /// Numbers of a row of all panels.
    pub(crate) fn numbers(self) -> usize {
        self.width * self.count
    }
}

struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}

/// Runs a function of the tile that suits the vectors and the panel: M rows, W vectors.
macro_rules! tiled {
    ($lanes:expr, $width:expr, $function:ident, $($given:expr),*) => {
        match ($lanes, $width / $lanes) {
            (16, 4) => $function::<S, 6, 4>($($given),*),
            (16, 2) => $function::<S, 12, 2>($($given),*),
            (16, _) => $function::<S, 12, 1>($($given),*),
            (_, 2) => $function::<S, 6, 2>($($given),*),
            _ => $function::<S, 6, 1>($($given),*),
        }
    };
}

/// Left rows of a product: runs of numbers that start anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    /// All numbers, and as many behind the last run as a tile has rows.
    pub(crate) numbers: &'a [f32],
    /// Where each row starts.
    pub(crate) starts: &'a [usize],
    /// How many runs a row has.
    pub(crate) count: usize,
    /// From one run of a row to the next.
    pub(crate) stride: usize,
    /// Numbers of a run.
    pub(crate) len: usize,
}

/// Numbers that may lie behind the last run.
pub(crate) const SLACK: usize = 12;

/// rows × panel + first, one panel: `into` has a row of the panel for each left row.
pub(crate) struct Multiply<'a> {
    pub(crate) left: Runs<'a>,
    /// For each number of a left row, run after run, a row of the panel.
    pub(crate) panel: &'a [f32],
    /// What sums begin with.
    pub(crate) first: &'a [f32],
    pub(crate) into: &'a mut [f32],
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        tiled!(S::F32_LANES, self.first.len(), multiply, simd, self);
    }
}

#[inline(always)]
fn multiply<S: Simd, const M: usize, const W: usize>(simd: S, work: Multiply<'_>) {
    let Multiply { left, panel, first, into } = work;
    let panel = S::as_simd_f32s(panel).0.as_chunks::<W>().0;
    let first = S::as_simd_f32s(first).0.as_chunks::<W>().0[0];
    let into = S::as_mut_simd_f32s(into).0.as_chunks_mut::<W>().0;
    for (starts, into) in left.starts.chunks(M).zip(into.chunks_mut(M)) {
        let starts = filled::<M>(starts);
        let mut sums = [first; M];
        for run in 0..left.count {
            let mut rows = [&left.numbers[..0]; M];
            for m in 0..M {
                rows[m] = &left.numbers[starts[m] + run * left.stride..][..left.len];
            }
            let panel = &panel[run * left.len..][..left.len];
            sums = product::<S, M, W>(simd, rows, panel, sums);
        }
        into.iter_mut().zip(sums).for_each(|(into, sums)| *into = sums);
    }
}

/// Adds rows × panel to rows that lie anywhere: `into[target] += row × panel`. No two rows have the same target.
pub(crate) struct Spread<'a> {
    /// Left rows of equal length, one after another.
    pub(crate) left: &'a [f32],
    /// Numbers of a left row.
    pub(crate) len: usize,
    /// A row of the panel for each number of a left row.
    pub(crate) panel: &'a [f32],
    /// Which row of `into` each left row adds to.
    pub(crate) targets: &'a [usize],
    /// Rows before the first target.
    pub(crate) offset: usize,
    /// Rows of the panel's width.
    pub(crate) into: &'a mut [f32],
}

impl WithSimd for Spread<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        tiled!(S::F32_LANES, self.panel.len() / self.len, spread, simd, self);
    }
}

#[inline(always)]
fn spread<S: Simd, const M: usize, const W: usize>(simd: S, work: Spread<'_>) {
    let Spread { left, len, panel, targets, offset, into } = work;
    let panel = S::as_simd_f32s(panel).0.as_chunks::<W>().0;
    let into = S::as_mut_simd_f32s(into).0.as_chunks_mut::<W>().0;
    for (at, targets) in targets.chunks(M).enumerate() {
        let last = targets.len() - 1;
        let (mut rows, places) = ([&left[..0]; M], filled::<M>(targets));
        let mut sums = [[simd.splat_f32s(0.0); W]; M];
        for m in 0..M {
            rows[m] = &left[(at * M + m.min(last)) * len..][..len];
            sums[m] = into[places[m] + offset];
        }
        let sums = product::<S, M, W>(simd, rows, panel, sums);
        for (target, sums) in targets.iter().zip(sums) {
            into[target + offset] = sums;
        }
    }
}

/// Adds Σ leftᵀ × right over rows: `into` has a row of the panel for each number of a left row.
pub(crate) struct Outer<'a> {
    pub(crate) left: Runs<'a>,
    /// For each left row a row of the panel.
    pub(crate) right: &'a [f32],
    /// Numbers of a row of the panel.
    pub(crate) width: usize,
    pub(crate) into: &'a mut [f32],
}

impl WithSimd for Outer<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        tiled!(S::F32_LANES, self.width, outer, simd, self);
    }
}

#[inline(always)]
fn outer<S: Simd, const M: usize, const W: usize>(simd: S, work: Outer<'_>) {
    let Outer { left, right, into, .. } = work;
    let right = S::as_simd_f32s(right).0.as_chunks::<W>().0;
    let into = S::as_mut_simd_f32s(into).0.as_chunks_mut::<W>().0;
    for (run, into) in into.chunks_mut(left.len).enumerate() {
        for (at, into) in into.chunks_mut(M).enumerate() {
            let from = &left.numbers[run * left.stride + at * M..];
            let mut sums = [[simd.splat_f32s(0.0); W]; M];
            for (&start, right) in left.starts.iter().zip(right) {
                let left: &[f32; M] = from[start..].first_chunk().expect("slack behind runs");
                for m in 0..M {
                    let number = simd.splat_f32s(left[m]);
                    for w in 0..W {
                        sums[m][w] = simd.mul_add_f32s(number, right[w], sums[m][w]);
                    }
                }
            }
            for (into, sums) in into.iter_mut().zip(sums) {
                for w in 0..W {
                    into[w] = simd.add_f32s(into[w], sums[w]);
                }
            }
        }
    }
}

/// Adds rows × panel to a tile of sums.
#[inline(always)]
fn product<S: Simd, const M: usize, const W: usize>(
    simd: S,
    rows: [&[f32]; M],
    panel: &[[S::f32s; W]],
    mut sums: [[S::f32s; W]; M],
) -> [[S::f32s; W]; M] {
    for row in &rows {
        assert_eq!(row.len(), panel.len(), "a row of the panel for each number of a row");
    }
    for (k, panel) in panel.iter().enumerate() {
        for m in 0..M {
            let number = simd.splat_f32s(rows[m][k]);
            for w in 0..W {
                sums[m][w] = simd.mul_add_f32s(number, panel[w], sums[m][w]);
            }
        }
    }
    sums
}

/// M of them; where there are fewer, the last again.
#[inline(always)]
fn filled<const M: usize>(some: &[usize]) -> [usize; M] {
    let mut all = [some[some.len() - 1]; M];
    all.iter_mut().zip(some).for_each(|(all, some)| *all = *some);
    all
}
