//! Categories as the labels they had: the mean label of a category's rows, drawn towards the mean of all rows the fewer
//! rows there are. `smooth = -1` weighs by variances (empirical Bayes), another number m counts as m rows of the mean.
//!
//! The training rows themselves are encoded by the other folds' rows alone, for a row that helped to make its own feature
//! would tell its label. A row's fold is a hash of its number in the data set, so that workers agree. Classes: one
//! feature for two classes, else one for each. A category that training did not show becomes the mean of all rows;
//! missing is a category of its own.

use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "target-encoding",
    summary: "Categories as the smoothed mean of their labels, out of fold for the training rows",
    reference: "Micci-Barreca (2001), A preprocessing scheme for high-cardinality categorical attributes",
    params: &[
        Param {
            name: "smooth",
            kind: ParamKind::Float { min: -1.0, max: 1e9 },
            default: Some("-1.0"),
            help: "how many rows the mean of all counts for; -1: as the variances say",
        },
        Param {
            name: "folds",
            kind: ParamKind::Integer { min: 2, max: 100 },
            default: Some("5"),
            help: "parts of the training rows, each encoded by the others",
        },
        Param {
            name: "seed",
            kind: ParamKind::Integer { min: 0, max: i64::MAX },
            default: Some("0"),
            help: "which rows are in which fold",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let smooth = params.f64("smooth");
        if smooth < 0.0 && smooth != -1.0 {
            return Err(Fault::caller("preparation 'target-encoding': smooth is -1 or from 0 up"));
        }
        let smooth = (smooth >= 0.0).then_some(smooth);
        let (folds, seed) = (params.size("folds"), params.size("seed") as u64);
        Ok(Box::new(Plan { smooth, folds, seed }))
    },
};

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// `None`: as the variances say.
    smooth: Option<f64>,
    folds: usize,
    seed: u64,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Texts
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Sums {
            plan: *self,
            targets: 0,
            all: vec![],
            columns: vec![BTreeMap::new(); inputs],
        })
    }
}

/// The fold of a row: splitmix64 (Steele, Lea and Flood, 2014) of its number.
pub(crate) fn fold(row: u64, folds: usize, seed: u64) -> usize {
    let mut mixed = (row ^ seed.rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % folds as u64) as usize
}

/// Labels of some rows, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Tally {
    fn add(&mut self, label: f64) {
        self.count += 1.0;
        self.sum += label;
        self.squares += label * label;
    }

    fn plus(self, other: Tally, sign: f64) -> Tally {
        Tally {
            count: self.count + sign * other.count,
            sum: self.sum + sign * other.sum,
            squares: self.squares + sign * other.squares,
        }
    }

    fn mean(self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }

    /// Sum of squared distances to the mean.
    fn spread(self) -> f64 {
        (self.squares - self.sum * self.mean()).max(0.0)
    }

    /// The mean, drawn towards that of all rows.
    fn drawn(self, all: Tally, smooth: Option<f64>) -> f64 {
        if self.count <= 0.0 {
            return all.mean();
        }
        match smooth {
            Some(rows) => (self.sum + rows * all.mean()) / (self.count + rows),
            None => {
                let prior = all.spread() / all.count * self.count;
                let share = prior / (prior + self.spread() / self.count);
                match share.is_nan() {
                    true => all.mean(),
                    false => share * self.mean() + (1.0 - share) * all.mean(),
                }
            }
        }
    }
}

/// Of each fold and target, the labels.
type Tallies = Vec<Tally>;

struct Sums {
    plan: Plan,
    targets: usize,
    all: Tallies,
    columns: Vec<BTreeMap<Option<String>, Tallies>>,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], labels: &Labels<'_>) -> Result<()> {
        if labels.values.is_empty() {
            return Err(Fault::caller("target encoding needs labels, and the learner uses none")
                .hint("use one-hot or hash-encoding"));
        }
        self.targets = if labels.classes > 2 { labels.classes } else { 1 };
        let size = self.plan.folds * self.targets;
        self.all.resize(size, Tally::default());
        let targets = self.targets;
        let record = |tallies: &mut Tallies, fold: usize, label: f32| {
            // A row without a label says nothing of its categories.
            if label.is_nan() {
                return;
            }
            for target in 0..targets {
                let value = match labels.classes > 2 {
                    true => f64::from(u8::from(label as usize == target)),
                    false => f64::from(label),
                };
                tallies[fold * targets + target].add(value);
            }
        };
        let fold_of =
            |row: usize| fold(labels.first_row + row as u64, self.plan.folds, self.plan.seed);
        for (row, label) in labels.values.iter().enumerate() {
            record(&mut self.all, fold_of(row), *label);
        }
        for (input, categories) in inputs.iter().zip(&mut self.columns) {
            let found = input.cells.categories();
            let (codes, texts) = found.ok_or_else(|| wrong_kind(input, "categories"))?;
            let mut here: BTreeMap<Option<u32>, Tallies> = BTreeMap::new();
            for (row, (code, label)) in codes.iter().zip(labels.values).enumerate() {
                let nothing = || vec![Tally::default(); size];
                record(here.entry(*code).or_insert_with(nothing), fold_of(row), *label);
            }
            for (code, tallies) in here {
                let key = code.map(|code| texts[code as usize].clone());
                let nothing = || vec![Tally::default(); size];
                let known = categories.entry(key).or_insert_with(nothing);
                known.iter_mut().zip(tallies).for_each(|(to, from)| *to = to.plus(from, 1.0));
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let Sums { plan, targets, all, columns } = *self;
        let total = |tallies: &Tallies, target: usize| {
            let folds = tallies.iter().skip(target).step_by(targets.max(1));
            folds.fold(Tally::default(), |sum, it| sum.plus(*it, 1.0))
        };
        let encode = |tallies: &Tallies, without: Option<usize>| -> Vec<f32> {
            let one = |target: usize| {
                let left = |tallies: &Tallies| match without {
                    None => total(tallies, target),
                    Some(fold) => {
                        total(tallies, target).plus(tallies[fold * targets + target], -1.0)
                    }
                };
                left(tallies).drawn(left(&all), plan.smooth) as f32
            };
            (0..targets).map(one).collect()
        };
        let means = |without: Option<usize>| encode(&vec![Tally::default(); all.len()], without);
        let column = |categories: BTreeMap<Option<String>, Tallies>| {
            let keys: Vec<Option<String>> = categories.keys().cloned().collect();
            let tallies: Vec<&Tallies> = categories.values().collect();
            let coded = |without| tallies.iter().flat_map(|it| encode(it, without)).collect();
            let folds = (0..plan.folds).map(|fold| coded(Some(fold))).collect();
            Encodings { keys, values: coded(None), folds }
        };
        Ok(Fitted::Target(Target {
            targets,
            folds: plan.folds,
            seed: plan.seed,
            mean: means(None),
            columns: columns.into_iter().map(column).collect(),
        }))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Encodings {
    /// The categories in order; missing is one.
    keys: Vec<Option<String>>,
    /// Of each category and target.
    values: Vec<f32>,
    /// The same without the rows of each fold; empty when only new rows are encoded.
    folds: Vec<Vec<f32>>,
}

/// The encodings of each column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Target {
    targets: usize,
    folds: usize,
    seed: u64,
    mean: Vec<f32>,
    columns: Vec<Encodings>,
}

impl Target {
    pub(super) fn forget_folds(&mut self) {
        self.columns.iter_mut().for_each(|column| column.folds.clear());
    }
}

impl Apply for Target {
    fn apply(&self, inputs: Vec<Series>, first_row: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut outputs = Vec::with_capacity(inputs.len());
        for (input, encodings) in inputs.into_iter().zip(&self.columns) {
            let found = input.cells.categories();
            let (codes, texts) = found.ok_or_else(|| wrong_kind(&input, "categories"))?;
            let place = |key: &Option<String>| encodings.keys.binary_search(key).ok();
            let map: Vec<Option<usize>> =
                texts.into_iter().map(|text| place(&Some(text))).collect();
            let missing = place(&None);
            let mut columns = vec![Vec::with_capacity(codes.len()); self.targets];
            for (row, code) in codes.iter().enumerate() {
                let values = match first_row {
                    Some(first) if !encodings.folds.is_empty() => {
                        &encodings.folds[fold(first + row as u64, self.folds, self.seed)]
                    }
                    _ => &encodings.values,
                };
                let place = code.map_or(missing, |code| map[code as usize]);
                for (target, column) in columns.iter_mut().enumerate() {
                    column.push(match place {
                        Some(place) => values[place * self.targets + target],
                        None => self.mean[target],
                    });
                }
            }
            let name = |target: usize| match self.targets {
                1 => input.name.clone(),
                _ => format!("{} of class {target}", input.name),
            };
            let columns = columns.into_iter().enumerate();
            let made = columns.map(|(at, it)| Series::new(name(at), Cells::Numbers(it)));
            outputs.push(made.collect());
        }
        Ok(outputs)
    }
}
