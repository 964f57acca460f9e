//! Lloyd's iteration with fewer distances: by the triangle inequality a row whose own centre is near enough need not be
//! compared with the others. What is known of a row's distances is kept as bounds, which loosen by as much as the centres
//! move. The clusters are Lloyd's, to rounding.
//!
//! - Hamerly (2010) keeps for each row an upper bound to its own centre and one lower bound to all others. A row that
//!   both bounds and the gap between centres leave in doubt is compared with all of them.
//! - Elkan (2003) keeps a lower bound to every centre, k numbers a row, and compares with those in doubt alone: for wide
//!   rows, where a distance costs more than a bound.
//!
//! Bounds are in memory, by shard. A shard that is adopted has none, and its first iteration measures all of it; so does
//! one in which Lloyd's own iteration had to look for farthest rows. Doing a step twice changes nothing: bounds carry the
//! iteration that they hold for.

use super::Bounds;
use super::assign::Assigner;
use super::lloyd::{DISTANCES, add_labelled};
use super::state::{self, Progress};
use crate::{Cells, Work};
use starlings_core::{Block, Values};
use starlings_data::{Slice, Table};

/// Rows whose labels are added to the sums at once.
const STRETCH: usize = 4096;

/// The contribution: sums and counts, as Lloyd's, and how many distances it took.
pub(super) fn contribute(work: &mut Work<'_>, bounds: Bounds) {
    let (k, width) = (state::count(work.model), state::width(work.model));
    let table = work.batch.table;
    let centres = work.model.f64("centres");
    let search = Search {
        table,
        assigner: Assigner::new(centres, width, table),
        gaps: Gaps::new(centres, width, bounds),
        drifts: state::drifts(work.model),
        iteration: Progress::read(work.model).iterations,
    };
    let (mut sums, mut counts, mut distances) = (vec![0.0; k * width], vec![0.0; k], 0);
    for slice in &work.batch.slices {
        let cells = work.memory.shard(slice.shard);
        let labels = match bounds {
            Bounds::One => search.hamerly(slice, cells, &mut distances),
            Bounds::Each => search.elkan(slice, cells, &mut distances),
        };
        let rows: Vec<usize> = slice.rows().collect();
        for (rows, labels) in rows.chunks(STRETCH).zip(labels.chunks(STRETCH)) {
            add_labelled(table, rows, labels, &mut sums);
            for (&row, &label) in rows.iter().zip(labels) {
                counts[label as usize] += table.weight(row);
            }
        }
    }
    work.outbox.emit(Block::dense("sums", sums));
    work.outbox.emit(Block::dense("counts", counts));
    work.outbox.emit(Block::counts(DISTANCES, vec![distances]));
}

/// Half the distances between centres.
struct Gaps {
    /// To the nearest other centre.
    nearest: Vec<f64>,
    /// Between all pairs, where they are wanted.
    pairs: Vec<f64>,
}

impl Gaps {
    fn new(centres: &[f64], width: usize, bounds: Bounds) -> Gaps {
        let k = centres.len() / width;
        let mut nearest = vec![f64::INFINITY; k];
        let mut pairs = vec![0.0; if bounds == Bounds::Each { k * k } else { 0 }];
        for (a, first) in centres.chunks_exact(width).enumerate() {
            for (b, second) in centres.chunks_exact(width).enumerate().skip(a + 1) {
                let squared: f64 = first.iter().zip(second).map(|(x, y)| (x - y) * (x - y)).sum();
                let half = 0.5 * squared.sqrt();
                nearest[a] = nearest[a].min(half);
                nearest[b] = nearest[b].min(half);
                if bounds == Bounds::Each {
                    (pairs[a * k + b], pairs[b * k + a]) = (half, half);
                }
            }
        }
        Gaps { nearest, pairs }
    }
}

struct Search<'a> {
    table: &'a Table,
    assigner: Assigner<'a>,
    gaps: Gaps,
    drifts: &'a [f64],
    iteration: i64,
}

/// What is remembered of a shard.
struct Remembered {
    labels: Vec<i64>,
    upper: Vec<f64>,
    lower: Values,
    /// Iterations since the bounds were right: 0 or 1.
    age: i64,
}

impl Search<'_> {
    /// Takes the bounds out of the cells; `None` when there are none of the last iteration or this.
    fn recall(&self, cells: &mut Cells) -> Option<Remembered> {
        let age = self.iteration - cells.get("iteration")?.as_i64()?[0];
        match (cells.remove("label")?, cells.remove("upper")?, cells.remove("lower")?) {
            (Values::I64(labels), Values::F64(upper), lower) if age == 0 || age == 1 => {
                Some(Remembered { labels, upper, lower, age })
            }
            _ => None,
        }
    }

    fn remember(&self, cells: &mut Cells, bounds: Remembered) -> Vec<u32> {
        let labels = bounds.labels.iter().map(|&label| label as u32).collect();
        cells.clear();
        cells.insert("label".into(), Values::I64(bounds.labels));
        cells.insert("upper".into(), Values::F64(bounds.upper));
        cells.insert("lower".into(), bounds.lower);
        cells.insert("iteration".into(), Values::I64(vec![self.iteration]));
        labels
    }

    fn distance(&self, row: usize, label: usize) -> f64 {
        self.assigner.squared_distance(self.table, row, label as u32).sqrt()
    }

    fn hamerly(&self, slice: &Slice, cells: &mut Cells, distances: &mut i64) -> Vec<u32> {
        let (rows, k): (Vec<usize>, usize) = (slice.rows().collect(), self.drifts.len());
        let known = self.recall(cells);
        let fresh = known.is_none();
        let mut all = known.unwrap_or_else(|| Remembered {
            labels: vec![0; rows.len()],
            upper: vec![f64::INFINITY; rows.len()],
            lower: Values::F64(vec![0.0; rows.len()]),
            age: 0,
        });
        let Values::F64(mut lower) = std::mem::replace(&mut all.lower, Values::F64(Vec::new()))
        else {
            panic!("Hamerly's lower bounds are f64");
        };
        let mut doubtful: Vec<usize> = Vec::new();
        if fresh {
            doubtful.extend(0..rows.len());
        } else {
            if all.age == 1 {
                loosen(&all.labels, self.drifts, &mut all.upper, &mut lower);
            }
            for place in 0..rows.len() {
                let label = all.labels[place] as usize;
                let bound = lower[place].max(self.gaps.nearest[label]);
                if all.upper[place] > bound {
                    all.upper[place] = self.distance(rows[place], label);
                    *distances += 1;
                    if all.upper[place] > bound {
                        doubtful.push(place);
                    }
                }
            }
        }
        *distances += (doubtful.len() * k) as i64;
        if k == 1 {
            for place in doubtful {
                (all.upper[place], lower[place]) = (self.distance(rows[place], 0), f64::INFINITY);
            }
        } else {
            let searched: Vec<usize> = doubtful.iter().map(|&place| rows[place]).collect();
            self.assigner.visit_pairs(self.table, &searched, |at, pair| {
                let place = doubtful[at];
                all.labels[place] = i64::from(pair.label);
                (all.upper[place], lower[place]) = (pair.squared.sqrt(), pair.next.sqrt());
            });
        }
        all.lower = Values::F64(lower);
        self.remember(cells, all)
    }

    fn elkan(&self, slice: &Slice, cells: &mut Cells, distances: &mut i64) -> Vec<u32> {
        let (rows, k): (Vec<usize>, usize) = (slice.rows().collect(), self.drifts.len());
        let mut all = self.recall(cells).unwrap_or_else(|| Remembered {
            labels: vec![0; rows.len()],
            upper: vec![f64::INFINITY; rows.len()],
            lower: Values::F32(vec![0.0; rows.len() * k]),
            age: 0,
        });
        let Values::F32(mut lower) = std::mem::replace(&mut all.lower, Values::F32(Vec::new()))
        else {
            panic!("Elkan's lower bounds are f32");
        };
        for (place, bounds) in lower.chunks_exact_mut(k).enumerate() {
            let mut label = all.labels[place] as usize;
            if all.age == 1 {
                all.upper[place] += self.drifts[label];
                for (bound, drift) in bounds.iter_mut().zip(self.drifts) {
                    *bound = below((f64::from(*bound) - drift).max(0.0));
                }
            }
            let upper = &mut all.upper[place];
            if *upper > self.gaps.nearest[label] {
                *distances += self.compare(rows[place], &mut label, upper, bounds);
                all.labels[place] = label as i64;
            }
        }
        all.lower = Values::F32(lower);
        self.remember(cells, all)
    }

    /// Compares a row with the centres that its bounds leave in doubt; gives the distances computed.
    fn compare(&self, row: usize, label: &mut usize, upper: &mut f64, lower: &mut [f32]) -> i64 {
        let k = lower.len();
        let (mut tight, mut computed) = (false, 0);
        for other in 0..k {
            let doubt = |upper: f64, label: usize, bound: f32| {
                other != label
                    && upper > f64::from(bound)
                    && upper > self.gaps.pairs[label * k + other]
            };
            if !doubt(*upper, *label, lower[other]) {
                continue;
            }
            if !tight {
                *upper = self.distance(row, *label);
                lower[*label] = below(*upper);
                (tight, computed) = (true, computed + 1);
                if !doubt(*upper, *label, lower[other]) {
                    continue;
                }
            }
            let distance = self.distance(row, other);
            lower[other] = below(distance);
            computed += 1;
            if distance < *upper {
                (*label, *upper) = (other, distance);
            }
        }
        computed
    }
}

/// Loosens bounds by how far centres went: the row's own, and the farthest of the others.
fn loosen(labels: &[i64], drifts: &[f64], upper: &mut [f64], lower: &mut [f64]) {
    let farthest =
        (0..drifts.len()).fold(0, |best, c| if drifts[c] > drifts[best] { c } else { best });
    let others = drifts.iter().enumerate().filter(|(c, _)| *c != farthest);
    let next = others.fold(0.0f64, |most, (_, drift)| most.max(*drift));
    for ((&label, upper), lower) in labels.iter().zip(upper).zip(lower) {
        let label = label as usize;
        *upper += drifts[label];
        *lower -= if label == farthest { next } else { drifts[farthest] };
    }
}

/// A number of f32 that is not above a number of f64: a bound must not be rounded up.
fn below(number: f64) -> f32 {
    (number * (1.0 - 1e-6)) as f32
}
