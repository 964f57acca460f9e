//! The best split of a node, from its histogram.
//!
//! A split's gain is how much the second-order approximation of the loss falls (Chen and Guestrin, 2016, equation
//! 7): G²/(H + λ) of both sides, less that of the node. Numeric features are scanned in order, what is missing once
//! on either side. Categories are put in order of their gradient statistics, and the best cut of that order is the
//! best of all subsets (Fisher, 1958), with the guards against over-fitting of LightGBM. Among equal gains the first
//! feature and bin win, so that all workers choose alike.

use super::columns::Columns;
use super::histogram::{Layout, Sums};

/// What a split must obey.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rules {
    pub(crate) l1: f64,
    pub(crate) l2: f64,
    pub(crate) min_rows_leaf: i64,
    pub(crate) min_hessian: f64,
    pub(crate) min_gain: f64,
    /// Added to the second derivatives of a category before it is put in order.
    pub(crate) category_smoothing: f64,
    /// Added to `l2` in splits of categories.
    pub(crate) category_l2: f64,
    /// The most categories on the smaller side.
    pub(crate) category_limit: usize,
    /// The fewest rows between two cuts of the order.
    pub(crate) category_group: i64,
    /// For each feature 1 (the score must not fall as it rises), -1 (must not rise) or 0; empty when all are 0.
    pub(crate) monotone: Vec<i8>,
    /// What a unit of the grids of gradients and second derivatives is.
    pub(crate) units: [f64; 2],
}

/// With so few categories each is tried alone against all others.
const ALONE_MAX: usize = 4;

/// A split: which bins of a feature go left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Split {
    pub(crate) gain: f64,
    pub(crate) feature: usize,
    /// The last bin that goes left, of a numeric feature.
    pub(crate) bin: u8,
    /// Whether bin 0 goes left, of a numeric feature.
    pub(crate) missing_left: bool,
    /// The bins that go left, of a categorical feature.
    pub(crate) set: Option<[u64; 4]>,
    /// The sums of the left side.
    pub(crate) left: Sums,
}

impl Split {
    /// For each bin, whether it goes left.
    pub(crate) fn left_bins(&self) -> [bool; 256] {
        match self.set {
            Some(set) => std::array::from_fn(|bin| holds(&set, bin)),
            None => std::array::from_fn(|bin| match bin {
                0 => self.missing_left,
                bin => bin <= usize::from(self.bin),
            }),
        }
    }
}

/// Whether a set has a bin.
pub(crate) fn holds(set: &[u64; 4], bin: usize) -> bool {
    set[bin / 64] >> (bin % 64) & 1 == 1
}

/// The node that is to be split.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Subject {
    /// Its sums.
    pub(crate) sums: Sums,
    /// The smallest and largest value its leaves may have.
    pub(crate) bounds: [f64; 2],
}

/// The best split of a node; none when nothing gains. `sums` has the bins of the layout; a feature whose place in
/// the layout is not `allowed` is passed over.
pub(crate) fn best(
    rules: &Rules,
    (columns, layout): (&Columns, &Layout),
    subject: Subject,
    sums: &[Sums],
    allowed: impl Fn(usize) -> bool,
) -> Option<Split> {
    let bounded = rules.l1 > 0.0
        || !rules.monotone.is_empty()
        || subject.bounds != [f64::NEG_INFINITY, f64::INFINITY];
    let mut search = Search { rules, subject, parent: 0.0, bounded, found: None };
    search.parent = search.gain(subject.sums, rules.l2);
    for (place, &feature) in layout.features.iter().enumerate() {
        if !allowed(place) {
            continue;
        }
        let bins = &sums[layout.starts[place]..layout.starts[place + 1]];
        match columns.is_categorical(feature) {
            true => search.categories(feature, bins),
            false => search.numbers(feature, bins),
        }
    }
    search.found
}

/// The value of a leaf: one Newton step, shrunk and held within bounds.
pub(crate) fn value(gradient: f64, hessian: f64, [l1, l2]: [f64; 2], bounds: [f64; 2]) -> f64 {
    let shrunk = gradient.signum() * (gradient.abs() - l1).max(0.0);
    let weight = hessian + l2;
    let free = if weight > 0.0 { -shrunk / weight } else { 0.0 };
    free.clamp(bounds[0], bounds[1])
}

struct Search<'a> {
    rules: &'a Rules,
    subject: Subject,
    parent: f64,
    bounded: bool,
    found: Option<Split>,
}

impl Search<'_> {
    fn numbers(&mut self, feature: usize, bins: &[Sums]) {
        let before = self.found;
        self.scan(feature, bins, Sums::default());
        if bins[0].rows > 0 {
            self.scan(feature, bins, bins[0]);
        } else if before != self.found
            && let Some(split) = &mut self.found
        {
            // Nobody is missing here: those missing later go with the majority.
            split.missing_left = 2 * split.left.rows > self.subject.sums.rows;
        }
    }

    /// Scans the bins from the left; `left` is what is on the left before the first.
    fn scan(&mut self, feature: usize, bins: &[Sums], mut left: Sums) {
        let missing_left = left.rows > 0;
        let (all, least) = (self.subject.sums, self.rules.min_rows_leaf);
        let mut enough = self.enough();
        // After the last bin nothing is left for the right but what is missing.
        let cuts = bins.len() - usize::from(missing_left || bins[0].rows == 0);
        for (bin, sums) in bins.iter().enumerate().take(cuts).skip(1) {
            left = left + *sums;
            if sums.rows == 0 || left.rows < least {
                continue;
            }
            let right = all - left;
            if right.rows < least {
                break;
            }
            if !self.bounded {
                let gain = self.plain_gain(left) + self.plain_gain(right) - self.parent;
                if gain <= enough {
                    continue;
                }
            }
            let bin = bin as u8;
            self.offer(
                Split { gain: 0.0, feature, bin, missing_left, set: None, left },
                self.rules.l2,
            );
            enough = self.enough();
        }
    }

    fn plain_gain(&self, sums: Sums) -> f64 {
        let gradient = sums.gradient as f64 * self.rules.units[0];
        gradient * gradient / (sums.hessian as f64 * self.rules.units[1] + self.rules.l2)
    }

    /// The gain that must be beaten. Sums of whole numbers are exact and quotients are not: what gains no more than
    /// rounding gains nothing.
    fn enough(&self) -> f64 {
        let least = self.rules.min_gain + 1e-12 * self.parent.abs();
        self.found.as_ref().map_or(least, |split| split.gain)
    }

    /// Categories, missing ones among them.
    fn categories(&mut self, feature: usize, bins: &[Sums]) {
        let used: Vec<usize> = (0..bins.len()).filter(|&bin| bins[bin].rows > 0).collect();
        if used.len() < 2 {
            return;
        }
        if used.len() <= ALONE_MAX {
            for &bin in &used {
                self.offer(category_split(feature, set_of(&[bin]), bins[bin]), self.rules.l2);
            }
            return;
        }
        let mut order: Vec<usize> = used
            .into_iter()
            .filter(|&bin| bins[bin].rows as f64 >= self.rules.category_smoothing)
            .collect();
        let rank = |bin: usize| {
            let (gradient, hessian) = self.true_sums(bins[bin]);
            gradient / (hessian + self.rules.category_smoothing)
        };
        order.sort_by(|&a, &b| rank(a).total_cmp(&rank(b)).then(a.cmp(&b)));
        self.cuts(feature, bins, &order);
        order.reverse();
        self.cuts(feature, bins, &order);
    }

    /// Cuts of an order of categories, from its beginning.
    fn cuts(&mut self, feature: usize, bins: &[Sums], order: &[usize]) {
        let most = self.rules.category_limit.min(order.len().div_ceil(2));
        let group = self.rules.category_group.min(self.subject.sums.rows / 4);
        let (mut left, mut since) = (Sums::default(), 0);
        for (at, &bin) in order.iter().enumerate().take(most) {
            left = left + bins[bin];
            since += bins[bin].rows;
            if (self.subject.sums - left).rows < group {
                break;
            }
            if since >= group {
                since = 0;
                let split = category_split(feature, set_of(&order[..=at]), left);
                self.offer(split, self.rules.l2 + self.rules.category_l2);
            }
        }
    }

    /// The loss saved by a leaf of these sums.
    fn gain(&self, sums: Sums, l2: f64) -> f64 {
        let (gradient, hessian) = self.true_sums(sums);
        let value = value(gradient, hessian, [self.rules.l1, l2], self.subject.bounds);
        let slope = 2.0 * (gradient * value + self.rules.l1 * value.abs());
        -(slope + (hessian + l2) * value * value)
    }

    fn true_sums(&self, sums: Sums) -> (f64, f64) {
        let [gradient, hessian] = self.rules.units;
        (sums.gradient as f64 * gradient, sums.hessian as f64 * hessian)
    }

    fn is_fit(&self, side: Sums) -> bool {
        let hessian = side.hessian as f64 * self.rules.units[1];
        side.rows >= self.rules.min_rows_leaf && hessian >= self.rules.min_hessian
    }

    /// Takes a split if it is allowed and better than the best so far.
    fn offer(&mut self, split: Split, l2: f64) {
        let (left, right) = (split.left, self.subject.sums - split.left);
        if !self.is_fit(left) || !self.is_fit(right) {
            return;
        }
        let gain = self.gain(left, l2) + self.gain(right, l2) - self.parent;
        if gain > self.enough() && !self.breaks_order(split.feature, left, right) {
            self.found = Some(Split { gain, ..split });
        }
    }

    fn breaks_order(&self, feature: usize, left: Sums, right: Sums) -> bool {
        let Some(&order) = self.rules.monotone.get(feature).filter(|&&order| order != 0) else {
            return false;
        };
        let [left, right] = [left, right].map(|sums| {
            let (gradient, hessian) = self.true_sums(sums);
            value(gradient, hessian, [self.rules.l1, self.rules.l2], self.subject.bounds)
        });
        f64::from(order) * (right - left) < 0.0
    }
}

fn category_split(feature: usize, set: [u64; 4], left: Sums) -> Split {
    let missing_left = holds(&set, 0);
    Split { gain: 0.0, feature, bin: 0, missing_left, set: Some(set), left }
}

fn set_of(bins: &[usize]) -> [u64; 4] {
    let mut set = [0; 4];
    bins.iter().for_each(|&bin| set[bin / 64] |= 1 << (bin % 64));
    set
}
