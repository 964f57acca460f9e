//! The nearest of k centres for many dense rows. ‖x − c‖² is smallest where x·c − ‖c‖²/2 is largest, so a
//! row costs one product with the matrix of centres; finding the largest is fused into the tile, so that
//! the products never leave the registers.
//!
//! Both x and c are first shifted by the mean of the centres. In f32 the products of data that lie far
//! from the origin would swallow the differences that matter; shifted, the error is relative to the
//! spread of the centres.

use pulp::{Arch, Simd, WithSimd};

/// Centres are packed in groups of this many: one vector of AVX-512, two of AVX2, four of NEON.
const GROUP: usize = 16;

/// Centres in the layout of the kernel.
pub(crate) struct PackedCentres {
    width: usize,
    /// The mean of the centres.
    offset: Vec<f32>,
    /// Group after group; in a group feature after feature; for each feature the centres of the group.
    groups: Vec<f32>,
    /// −‖c‖²/2 of the shifted centres. Places without a centre have −∞ and never win.
    bias: Vec<f32>,
}

impl PackedCentres {
    /// Packs centres of `width` features, one after the other.
    pub(crate) fn new(centres: &[f64], width: usize) -> PackedCentres {
        let count = centres.len() / width;
        let padded = count.next_multiple_of(GROUP);
        let mut mean = vec![0.0; width];
        for centre in centres.chunks_exact(width) {
            mean.iter_mut().zip(centre).for_each(|(m, c)| *m += c / count as f64);
        }
        let offset: Vec<f32> = mean.iter().map(|&m| m as f32).collect();
        let mut groups = vec![0.0; padded * width];
        let mut bias = vec![f32::NEG_INFINITY; padded];
        for (place, centre) in centres.chunks_exact(width).enumerate() {
            let (group, lane) = (place / GROUP, place % GROUP);
            let mut norm = 0.0;
            for (feature, (c, m)) in centre.iter().zip(&offset).enumerate() {
                let shifted = (c - f64::from(*m)) as f32;
                groups[(group * width + feature) * GROUP + lane] = shifted;
                norm += f64::from(shifted) * f64::from(shifted);
            }
            bias[place] = (-0.5 * norm) as f32;
        }
        PackedCentres { width, offset, groups, bias }
    }

    /// Writes for each row the number of its nearest centre. `rows` are shifted in place.
    pub(crate) fn nearest(&self, rows: &mut [f32], labels: &mut [u32]) {
        debug_assert_eq!(rows.len(), labels.len() * self.width, "one label a row");
        Arch::new().dispatch(Nearest { centres: self, rows, labels });
    }

    /// Writes for each row the numbers of its nearest and its next nearest centre. `rows` are shifted in place. There
    /// are at least two centres.
    pub(crate) fn nearest_two(&self, rows: &mut [f32], labels: &mut [u32], seconds: &mut [u32]) {
        debug_assert_eq!(rows.len(), labels.len() * self.width, "one label a row");
        Arch::new().dispatch(NearestTwo { centres: self, rows, labels, seconds });
    }
}

struct Nearest<'a> {
    centres: &'a PackedCentres,
    rows: &'a mut [f32],
    labels: &'a mut [u32],
}

struct NearestTwo<'a> {
    centres: &'a PackedCentres,
    rows: &'a mut [f32],
    labels: &'a mut [u32],
    seconds: &'a mut [u32],
}

impl WithSimd for NearestTwo<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for row in self.rows.chunks_exact_mut(self.centres.width) {
            row.iter_mut().zip(&self.centres.offset).for_each(|(x, m)| *x -= m);
        }
        let labels = (self.labels, self.seconds);
        match S::F32_LANES {
            16 => pair_blocks::<S, 4, 4, 1>(simd, self.centres, self.rows, labels),
            8 => pair_blocks::<S, 2, 2, 2>(simd, self.centres, self.rows, labels),
            4 => pair_blocks::<S, 2, 1, 4>(simd, self.centres, self.rows, labels),
            _ => pair_blocks::<S, 1, 1, 16>(simd, self.centres, self.rows, labels),
        }
    }
}

/// Blocks of R rows, then the remaining rows one by one, for the two nearest.
#[inline(always)]
fn pair_blocks<S: Simd, const R: usize, const G: usize, const W: usize>(
    simd: S,
    centres: &PackedCentres,
    rows: &[f32],
    (labels, seconds): (&mut [u32], &mut [u32]),
) {
    let width = centres.width;
    let whole = labels.len() / R * R;
    for first in (0..whole).step_by(R) {
        let mut best = BestTwo::<S, R, W>::new(simd);
        let rows = &rows[first * width..(first + R) * width];
        against_all::<S, R, G, W>(simd, centres, rows, &mut best);
        for row in 0..R {
            (labels[first + row], seconds[first + row]) = best.winners(simd, row);
        }
    }
    for at in whole..labels.len() {
        let mut best = BestTwo::<S, 1, W>::new(simd);
        let row = &rows[at * width..(at + 1) * width];
        against_all::<S, 1, G, W>(simd, centres, row, &mut best);
        (labels[at], seconds[at]) = best.winners(simd, 0);
    }
}

impl WithSimd for Nearest<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for row in self.rows.chunks_exact_mut(self.centres.width) {
            row.iter_mut().zip(&self.centres.offset).for_each(|(x, m)| *x -= m);
        }
        // Rows at a time: as many as the accumulators of four (two) groups leave registers for.
        match S::F32_LANES {
            16 => blocks::<S, 6, 4, 1>(simd, self.centres, self.rows, self.labels),
            8 => blocks::<S, 3, 2, 2>(simd, self.centres, self.rows, self.labels),
            4 => blocks::<S, 4, 1, 4>(simd, self.centres, self.rows, self.labels),
            _ => blocks::<S, 1, 1, 16>(simd, self.centres, self.rows, self.labels),
        }
    }
}

/// Blocks of R rows, then the remaining rows one by one.
#[inline(always)]
fn blocks<S: Simd, const R: usize, const G: usize, const W: usize>(
    simd: S,
    centres: &PackedCentres,
    rows: &[f32],
    labels: &mut [u32],
) {
    let width = centres.width;
    let whole = labels.len() / R * R;
    let (head, tail) = labels.split_at_mut(whole);
    let (rows_head, rows_tail) = rows.split_at(whole * width);
    for (rows, labels) in rows_head.chunks_exact(R * width).zip(head.chunks_exact_mut(R)) {
        block::<S, R, G, W>(simd, centres, rows, labels);
    }
    for (row, label) in rows_tail.chunks_exact(width).zip(tail.chunks_exact_mut(1)) {
        block::<S, 1, G, W>(simd, centres, row, label);
    }
}

/// R rows against all centres, G groups at a time.
#[inline(always)]
fn block<S: Simd, const R: usize, const G: usize, const W: usize>(
    simd: S,
    centres: &PackedCentres,
    rows: &[f32],
    labels: &mut [u32],
) {
    let mut best = Best::<S, R, W>::new(simd);
    against_all::<S, R, G, W>(simd, centres, rows, &mut best);
    for (row, label) in labels.iter_mut().enumerate() {
        *label = best.winner(simd, row);
    }
}

/// Offers the scores of R rows against all centres.
#[inline(always)]
fn against_all<S: Simd, const R: usize, const G: usize, const W: usize>(
    simd: S,
    centres: &PackedCentres,
    rows: &[f32],
    best: &mut impl Keep<S>,
) {
    let (count, mut group) = (centres.bias.len() / GROUP, 0);
    while group + G <= count {
        panel::<S, R, G, W>(simd, centres, rows, group, best);
        group += G;
    }
    // At most three groups remain, and all of them in one go keeps more additions in flight.
    match count - group {
        3 => panel::<S, R, 3, W>(simd, centres, rows, group, best),
        2 => panel::<S, R, 2, W>(simd, centres, rows, group, best),
        1 => panel::<S, R, 1, W>(simd, centres, rows, group, best),
        _ => {}
    }
}

/// What is kept of the scores that are offered.
trait Keep<S: Simd> {
    /// Takes the scores of the centres in `place` where they are larger than those kept.
    fn offer(&mut self, simd: S, at: (usize, usize), score: S::f32s, place: S::f32s);
}

/// The two largest scores so far and whose they are, for each row and lane.
struct BestTwo<S: Simd, const R: usize, const W: usize> {
    first: Best<S, R, W>,
    second: Best<S, R, W>,
}

impl<S: Simd, const R: usize, const W: usize> BestTwo<S, R, W> {
    #[inline(always)]
    fn new(simd: S) -> Self {
        BestTwo { first: Best::new(simd), second: Best::new(simd) }
    }

    /// The first of the centres with the largest score, and the next.
    #[inline(always)]
    fn winners(&self, simd: S, row: usize) -> (u32, u32) {
        let winner = self.first.winner(simd, row);
        let place = simd.splat_f32s(winner as f32);
        // In the lane of the winner the next is its second; elsewhere the first of the lane.
        let mut rest = Best::<S, 1, W>::new(simd);
        for w in 0..W {
            let own = simd.equal_f32s(self.first.place[row][w], place);
            let (first, second) = (self.first.score[row][w], self.second.score[row][w]);
            rest.score[0][w] = simd.select_f32s(own, second, first);
            let (first, second) = (self.first.place[row][w], self.second.place[row][w]);
            rest.place[0][w] = simd.select_f32s(own, second, first);
        }
        (winner, rest.winner(simd, 0))
    }
}

impl<S: Simd, const R: usize, const W: usize> Keep<S> for BestTwo<S, R, W> {
    #[inline(always)]
    fn offer(&mut self, simd: S, (r, w): (usize, usize), score: S::f32s, place: S::f32s) {
        let (first, at) = (self.first.score[r][w], self.first.place[r][w]);
        let better = simd.greater_than_f32s(score, first);
        let (less, less_at) =
            (simd.select_f32s(better, first, score), simd.select_f32s(better, at, place));
        self.first.score[r][w] = simd.select_f32s(better, score, first);
        self.first.place[r][w] = simd.select_f32s(better, place, at);
        self.second.offer(simd, (r, w), less, less_at);
    }
}

/// The largest score so far and whose it is, for each row and lane.
struct Best<S: Simd, const R: usize, const W: usize> {
    score: [[S::f32s; W]; R],
    /// Numbers of centres as floats (exact below 2²⁴), since vectors of floats can be reduced.
    place: [[S::f32s; W]; R],
}

impl<S: Simd, const R: usize, const W: usize> Best<S, R, W> {
    #[inline(always)]
    fn new(simd: S) -> Self {
        let score = [[simd.splat_f32s(f32::NEG_INFINITY); W]; R];
        Best { score, place: [[simd.splat_f32s(0.0); W]; R] }
    }

    /// The first of the centres with the largest score.
    #[inline(always)]
    fn winner(&self, simd: S, row: usize) -> u32 {
        let highest = self.score[row]
            .iter()
            .fold(f32::NEG_INFINITY, |highest, &score| highest.max(simd.reduce_max_f32s(score)));
        let target = simd.splat_f32s(highest);
        let none = simd.splat_f32s(f32::INFINITY);
        let mut first = f32::INFINITY;
        for (&score, &place) in self.score[row].iter().zip(&self.place[row]) {
            let places = simd.select_f32s(simd.equal_f32s(score, target), place, none);
            first = first.min(simd.reduce_min_f32s(places));
        }
        first as u32
    }
}

impl<S: Simd, const R: usize, const W: usize> Keep<S> for Best<S, R, W> {
    #[inline(always)]
    fn offer(&mut self, simd: S, (r, w): (usize, usize), score: S::f32s, place: S::f32s) {
        let better = simd.greater_than_f32s(score, self.score[r][w]);
        self.score[r][w] = simd.select_f32s(better, score, self.score[r][w]);
        self.place[r][w] = simd.select_f32s(better, place, self.place[r][w]);
    }
}

/// R rows against G groups of centres.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "indices of constant bounds keep the tile in registers"
)]
fn panel<S: Simd, const R: usize, const G: usize, const W: usize>(
    simd: S,
    centres: &PackedCentres,
    rows: &[f32],
    group: usize,
    best: &mut impl Keep<S>,
) {
    let width = centres.width;
    let packed: [&[[S::f32s; W]]; G] = std::array::from_fn(|g| {
        let from = (group + g) * width * GROUP;
        let vectors = S::as_simd_f32s(&centres.groups[from..from + width * GROUP]).0;
        &vectors.as_chunks::<W>().0[..width]
    });
    let bias = S::as_simd_f32s(&centres.bias[group * GROUP..(group + G) * GROUP]).0;
    let bias = &bias.as_chunks::<W>().0[..G];
    let rows: [&[f32]; R] = std::array::from_fn(|r| &rows[r * width..(r + 1) * width]);
    let mut scores: [[[S::f32s; W]; G]; R] = [std::array::from_fn(|g| bias[g]); R];
    for feature in 0..width {
        for r in 0..R {
            let x = simd.splat_f32s(rows[r][feature]);
            for g in 0..G {
                for w in 0..W {
                    scores[r][g][w] =
                        simd.mul_add_e_f32s(x, packed[g][feature][w], scores[r][g][w]);
                }
            }
        }
    }
    let numbers: [f32; GROUP] = std::array::from_fn(|lane| lane as f32);
    let lanes = S::as_simd_f32s(&numbers).0;
    for g in 0..G {
        let start = simd.splat_f32s(((group + g) * GROUP) as f32);
        for w in 0..W {
            let place = simd.add_f32s(start, lanes[w]);
            for r in 0..R {
                best.offer(simd, (r, w), scores[r][g][w], place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn normals(count: usize, shift: f64, rng: &mut Rng) -> Vec<f32> {
        (0..count).map(|_| (shift + rng.normal()) as f32).collect()
    }

    /// The nearest centre by the definition, in f64.
    fn by_definition(row: &[f32], centres: &[f64]) -> (usize, f64) {
        let distance = |centre: &[f64]| -> f64 {
            row.iter().zip(centre).map(|(x, c)| (f64::from(*x) - c).powi(2)).sum()
        };
        let all = centres.chunks_exact(row.len()).map(distance).enumerate();
        all.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
    }

    #[test]
    fn nearest_agrees_with_the_definition_for_every_shape() {
        let mut rng = Rng::named(3, "nearest", &[]);
        for (rows, count, width) in
            [(1, 1, 1), (5, 3, 2), (13, 16, 7), (40, 17, 32), (31, 100, 5), (25, 130, 33)]
        {
            for shift in [0.0, 1000.0] {
                let points = normals(rows * width, shift, &mut rng);
                let centres: Vec<f64> =
                    normals(count * width, shift, &mut rng).into_iter().map(f64::from).collect();
                let mut labels = vec![u32::MAX; rows];
                let packed = PackedCentres::new(&centres, width);
                packed.nearest(&mut points.clone(), &mut labels);
                for (row, &label) in points.chunks_exact(width).zip(&labels) {
                    let (_, smallest) = by_definition(row, &centres);
                    let label = label as usize;
                    let chosen = by_definition(row, &centres[label * width..(label + 1) * width]).1;
                    assert!(chosen <= smallest + 1e-4 * width as f64, "{chosen} {smallest}");
                }
            }
        }
    }

    #[test]
    fn the_next_nearest_is_nearer_than_all_others() {
        let mut rng = Rng::named(4, "nearest", &[]);
        for (rows, count, width) in [(5, 2, 2), (13, 16, 7), (9, 17, 32), (31, 100, 5)] {
            let points = normals(rows * width, 0.0, &mut rng);
            let centres: Vec<f64> =
                normals(count * width, 0.0, &mut rng).into_iter().map(f64::from).collect();
            let (mut labels, mut seconds) = (vec![0; rows], vec![0; rows]);
            let packed = PackedCentres::new(&centres, width);
            packed.nearest_two(&mut points.clone(), &mut labels, &mut seconds);
            for ((row, &label), &second) in points.chunks_exact(width).zip(&labels).zip(&seconds) {
                let to = |c: usize| by_definition(row, &centres[c * width..(c + 1) * width]).1;
                let (first, next) = (to(label as usize), to(second as usize));
                assert_ne!(label, second);
                for other in (0..count).filter(|&c| c as u32 != label && c as u32 != second) {
                    assert!(to(other) + 1e-4 >= next && next + 1e-4 >= first);
                }
            }
        }
    }

    #[test]
    fn equal_centres_are_won_by_the_first() {
        let centres: Vec<f64> = [5.0, 1.0, 5.0].repeat(20);
        let mut labels = [9; 7];
        PackedCentres::new(&centres, 1)
            .nearest(&mut [1.1, 5.0, 0.0, 9.0, 1.0, 2.0, 4.0], &mut labels);
        assert_eq!(labels, [1, 0, 1, 0, 1, 1, 0]);
    }
}
