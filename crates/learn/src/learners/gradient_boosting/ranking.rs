//! LambdaMART's derivatives (Burges, 2010), with LightGBM's truncation and normalisation.
//!
//! A group's rows push and pull each other, so whoever holds one of them needs the scores of all: scores are gathered
//! once a tree. Each worker then computes the derivatives of its own rows.

use crate::trees::columns::whole;
use starlings_core::{Model, Role};
use std::ops::Range;

/// The largest relevance: gains are 2 to its power.
pub(super) const RELEVANCE_MAX: f32 = 30.0;

/// Groups, relevances and scores of all rows.
pub(super) struct Queries<'a> {
    /// Group and relevance of each row in a word.
    words: &'a [i64],
    /// The bits of each row's score.
    scores: &'a [i64],
}

/// Group and relevance of a row as a word.
pub(super) fn word(group: u32, relevance: f32) -> i64 {
    i64::from(group) << 32 | i64::from(relevance as u32)
}

/// Puts the tensors of no rows into a model.
pub(super) fn init(model: &mut Model) {
    model.set("queries", whole(Vec::new(), Role::State));
    model.set("scores", whole(Vec::new(), Role::State));
}

impl<'a> Queries<'a> {
    pub(super) fn load(model: &'a Model) -> Queries<'a> {
        Queries { words: model.i64("queries"), scores: model.i64("scores") }
    }

    /// The group of a row.
    pub(super) fn group(&self, row: u64) -> u64 {
        (self.words[row as usize] >> 32) as u64
    }

    fn relevance(&self, row: usize) -> i32 {
        (self.words[row] & 0xffff_ffff) as i32
    }

    fn score(&self, row: usize) -> f64 {
        f64::from_bits(self.scores[row] as u64)
    }

    /// All groups as ranges of rows.
    fn groups(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut first = 0;
        self.words.chunk_by(|a, b| a >> 32 == b >> 32).map(move |rows| {
            first += rows.len();
            first - rows.len()..first
        })
    }

    /// Calls with first and second derivative of every row in `held`.
    pub(super) fn lambdas(
        &self,
        held: Range<u64>,
        truncation: usize,
        mut each: impl FnMut(u64, [f64; 2]),
    ) {
        for group in self.groups() {
            if (group.end as u64) <= held.start || group.start as u64 >= held.end {
                continue;
            }
            let lambdas = self.group_lambdas(group.clone(), truncation);
            for (row, lambda) in group.zip(lambdas) {
                if held.contains(&(row as u64)) {
                    each(row as u64, lambda);
                }
            }
        }
    }

    fn group_lambdas(&self, group: Range<usize>, truncation: usize) -> Vec<[f64; 2]> {
        let mut lambdas = vec![[0.0; 2]; group.len()];
        let ideal = self.ideal(group.clone(), truncation);
        if ideal <= 0.0 {
            return lambdas;
        }
        let order = self.order(group.clone());
        let differ = self.score(order[0]) != self.score(order[order.len() - 1]);
        let mut total = 0.0;
        for first in 0..order.len().min(truncation) {
            for second in first + 1..order.len() {
                let pair = self.pair((order[first], first), (order[second], second));
                let Some((better, worse, distance, gap)) = pair else { continue };
                let mut change = distance / ideal;
                if differ {
                    change /= 0.01 + gap.abs();
                }
                let chance = 1.0 / (1.0 + gap.exp());
                let push = -chance * change;
                let curve = chance * (1.0 - chance) * change;
                lambdas[better - group.start][0] += push;
                lambdas[worse - group.start][0] -= push;
                lambdas[better - group.start][1] += curve;
                lambdas[worse - group.start][1] += curve;
                total -= 2.0 * push;
            }
        }
        if total > 0.0 {
            let scale = (1.0 + total).log2() / total;
            lambdas.iter_mut().flatten().for_each(|x| *x *= scale);
        }
        lambdas
    }

    /// Of two rows at their places: the better, the worse, how much their exchange would change the gain, and by how
    /// much the better one's score is above. None when they are equally good.
    fn pair(
        &self,
        (a, a_place): (usize, usize),
        (b, b_place): (usize, usize),
    ) -> Option<(usize, usize, f64, f64)> {
        let (first, second) = (self.relevance(a), self.relevance(b));
        let distance =
            (gain(first) - gain(second)).abs() * (discount(a_place) - discount(b_place)).abs();
        let (better, worse) = if first > second { (a, b) } else { (b, a) };
        (first != second).then(|| (better, worse, distance, self.score(better) - self.score(worse)))
    }

    /// The rows of a group, the highest score first; among equals the first row.
    fn order(&self, group: Range<usize>) -> Vec<usize> {
        let mut order: Vec<usize> = group.collect();
        order.sort_by(|&a, &b| self.score(b).total_cmp(&self.score(a)).then(a.cmp(&b)));
        order
    }

    /// The largest discounted gain the group can have.
    fn ideal(&self, group: Range<usize>, at: usize) -> f64 {
        let mut relevances: Vec<i32> = group.map(|row| self.relevance(row)).collect();
        relevances.sort_unstable_by(|a, b| b.cmp(a));
        relevances.iter().take(at).enumerate().map(|(place, &r)| gain(r) * discount(place)).sum()
    }

    /// The mean normalised discounted cumulative gain at `at` over the groups that `counts`; groups without a
    /// relevant row count as 1.
    pub(super) fn ndcg(&self, at: usize, counts: impl Fn(u64) -> bool) -> Option<f64> {
        let (mut sum, mut groups) = (0.0, 0.0);
        for group in self.groups() {
            if !counts(self.group(group.start as u64)) {
                continue;
            }
            groups += 1.0;
            let ideal = self.ideal(group.clone(), at);
            let order = self.order(group);
            let found: f64 = order
                .iter()
                .take(at)
                .enumerate()
                .map(|(place, &row)| gain(self.relevance(row)) * discount(place))
                .sum();
            sum += if ideal > 0.0 { found / ideal } else { 1.0 };
        }
        (groups > 0.0).then(|| sum / groups)
    }
}

fn gain(relevance: i32) -> f64 {
    2f64.powi(relevance) - 1.0
}

fn discount(place: usize) -> f64 {
    1.0 / (place as f64 + 2.0).log2()
}
