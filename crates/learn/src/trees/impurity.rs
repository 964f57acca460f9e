//! How mixed the rows of a node are, bin by bin: weights of classes (Gini's index, entropy; Breiman et al., 1984), or
//! sums of numbers (variance). A tally is filled for one feature of one node, then cut where impurity falls most.

/// How impurity is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Criterion {
    /// The chance that two rows differ in class.
    Gini,
    /// The entropy of the classes, in bits.
    Entropy,
    /// The variance of numbers.
    Variance,
}

/// What rows say: a class of so many, or a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Labels<'a> {
    /// Class of each row, and how many classes there are.
    Classes(&'a [u16], usize),
    /// Number of each row.
    Numbers(&'a [f32]),
}

impl Labels<'_> {
    /// Sums kept of some rows: the weight of each class; or weight, sum and sum of squares.
    pub(crate) fn width(self) -> usize {
        match self {
            Labels::Classes(_, classes) => classes,
            Labels::Numbers(_) => 3,
        }
    }

    /// Adds a row of a weight to sums.
    pub(crate) fn add(self, row: usize, weight: f64, sums: &mut [f64]) {
        match self {
            Labels::Classes(classes, _) => sums[usize::from(classes[row])] += weight,
            Labels::Numbers(numbers) => {
                let number = f64::from(numbers[row]);
                sums[0] += weight;
                sums[1] += weight * number;
                sums[2] += weight * number * number;
            }
        }
    }

    /// The weight that sums hold.
    pub(crate) fn weight(self, sums: &[f64]) -> f64 {
        match self {
            Labels::Classes(..) => sums.iter().sum(),
            Labels::Numbers(_) => sums[0],
        }
    }

    /// What a leaf of these sums says: the share of each class, or the mean.
    pub(crate) fn say(self, sums: &[f64]) -> Vec<f64> {
        let weight = self.weight(sums).max(f64::MIN_POSITIVE);
        match self {
            Labels::Classes(..) => sums.iter().map(|sum| sum / weight).collect(),
            Labels::Numbers(_) => vec![sums[1] / weight],
        }
    }
}

impl Criterion {
    /// Impurity times weight.
    pub(crate) fn impurity(self, sums: &[f64]) -> f64 {
        match self {
            Criterion::Variance => {
                let spread = sums[2] - sums[1] * sums[1] / sums[0].max(f64::MIN_POSITIVE);
                // What rounding leaves of no spread at all is none.
                if spread > 1e-12 * sums[2].abs() { spread } else { 0.0 }
            }
            Criterion::Gini => {
                let weight: f64 = sums.iter().sum();
                let squares: f64 = sums.iter().map(|sum| sum * sum).sum();
                weight - squares / weight.max(f64::MIN_POSITIVE)
            }
            Criterion::Entropy => {
                let weight: f64 = sums.iter().sum();
                sums.iter().filter(|&&sum| sum > 0.0).map(|sum| sum * (weight / sum).log2()).sum()
            }
        }
    }
}

/// The sums of every bin of one feature, for the rows of one node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tally {
    sums: Vec<f64>,
    counts: Vec<u32>,
    width: usize,
    /// The smallest and largest bin that has rows, bin 0 apart.
    low: usize,
    high: usize,
}

/// A cut: the bins before it in the order, and what lies there.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cut {
    /// How much impurity (times weight) falls.
    pub(crate) gain: f64,
    /// How many of the order's bins are on the left.
    pub(crate) at: usize,
    /// Sums and rows of the left.
    pub(crate) left: Vec<f64>,
    pub(crate) rows: u32,
}

impl Tally {
    /// Empty, for so many sums a bin.
    pub(crate) fn new(width: usize) -> Tally {
        Tally { sums: vec![0.0; 256 * width], counts: vec![0; 256], width, low: 256, high: 0 }
    }

    /// Fills it with rows.
    pub(crate) fn fill(
        &mut self,
        rows: &[u32],
        column: &[u8],
        weights: &[f32],
        labels: Labels<'_>,
    ) {
        self.clear();
        let width = self.width;
        match labels {
            Labels::Classes(classes, _) => {
                for &row in rows {
                    let row = row as usize;
                    let bin = usize::from(column[row]);
                    self.counts[bin] += 1;
                    self.sums[bin * width + usize::from(classes[row])] += f64::from(weights[row]);
                }
            }
            Labels::Numbers(_) => {
                for &row in rows {
                    let row = row as usize;
                    let bin = usize::from(column[row]);
                    self.counts[bin] += 1;
                    let sums = &mut self.sums[bin * width..(bin + 1) * width];
                    labels.add(row, f64::from(weights[row]), sums);
                }
            }
        }
        self.low = self.counts[1..].iter().position(|&count| count > 0).map_or(256, |at| at + 1);
        self.high = self.counts[1..].iter().rposition(|&count| count > 0).map_or(0, |at| at + 1);
    }

    fn clear(&mut self) {
        let (low, high) = (self.low.min(256), self.high);
        if low <= high {
            self.counts[low..=high].fill(0);
            self.sums[low * self.width..(high + 1) * self.width].fill(0.0);
        }
        self.counts[0] = 0;
        self.sums[..self.width].fill(0.0);
    }

    /// Whether all rows are in one bin.
    pub(crate) fn is_constant(&self) -> bool {
        self.low > self.high || (self.low == self.high && self.counts[0] == 0)
    }

    /// Rows in a bin.
    pub(crate) fn rows(&self, bin: usize) -> u32 {
        self.counts[bin]
    }

    /// Bins with rows in their own order, the missing left out.
    pub(crate) fn numbers(&self) -> Vec<u8> {
        let bins = self.low..=self.high.max(self.low);
        bins.filter(|&bin| bin < 256 && self.counts[bin] > 0).map(|bin| bin as u8).collect()
    }

    /// Bins with rows, the missing among them, in the order of how much they are of the node's main class or of their
    /// mean: for two classes and for numbers one cut of this order is the best of all subsets (Fisher, 1958).
    pub(crate) fn categories(&self, labels: Labels<'_>, main: usize) -> Vec<u8> {
        let mut bins: Vec<u8> =
            (0..=255u8).filter(|&bin| self.counts[usize::from(bin)] > 0).collect();
        let rank = |bin: u8| {
            let sums = self.of(usize::from(bin));
            match labels {
                Labels::Classes(..) => sums[main] / labels.weight(sums).max(f64::MIN_POSITIVE),
                Labels::Numbers(_) => sums[1] / sums[0].max(f64::MIN_POSITIVE),
            }
        };
        bins.sort_by(|&a, &b| rank(a).total_cmp(&rank(b)).then(a.cmp(&b)));
        bins
    }

    /// The sums of a bin.
    pub(crate) fn of(&self, bin: usize) -> &[f64] {
        &self.sums[bin * self.width..(bin + 1) * self.width]
    }

    /// The best cut of an order of bins; `first` goes left in any case, if it is given.
    pub(crate) fn cut(
        &self,
        criterion: Criterion,
        (order, first): (&[u8], Option<u8>),
        (all, rows): (&[f64], u32),
        min_rows_leaf: u32,
    ) -> Option<Cut> {
        let mut left = vec![0.0; self.width];
        let mut left_rows = 0;
        if let Some(first) = first {
            left.copy_from_slice(self.of(usize::from(first)));
            left_rows = self.counts[usize::from(first)];
        }
        let mut right: Vec<f64> = all.iter().zip(&left).map(|(all, left)| all - left).collect();
        let parent = criterion.impurity(all);
        let mut best: Option<Cut> = None;
        for (at, &bin) in order.iter().enumerate().take(order.len().saturating_sub(1)) {
            let sums = self.of(usize::from(bin));
            for (sum, (left, right)) in sums.iter().zip(left.iter_mut().zip(&mut right)) {
                *left += sum;
                *right -= sum;
            }
            left_rows += self.counts[usize::from(bin)];
            if left_rows < min_rows_leaf || rows - left_rows < min_rows_leaf {
                continue;
            }
            let gain = parent - criterion.impurity(&left) - criterion.impurity(&right);
            let enough = best.as_ref().map_or(1e-12 * parent, |best| best.gain);
            if gain > enough {
                best = Some(Cut { gain, at: at + 1, left: left.clone(), rows: left_rows });
            }
        }
        best
    }
}
