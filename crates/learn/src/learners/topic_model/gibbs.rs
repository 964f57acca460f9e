//! The collapsed Gibbs sampler (Griffiths and Steyvers, 2004), as AD-LDA runs it on many shards at once
//! (Newman et al., 2009): each shard sweeps its documents against the model's counts and its own changes
//! within the step. Shards of one worker do not see each other's changes either, so that the result is the
//! same bits on any number of workers.

use super::documents;
use starlings_core::{Rng, Rows, Values};
use starlings_data::{Slice, Table};

/// The priors and the size of the vocabulary.
#[derive(Clone, Copy)]
pub(super) struct Priors {
    pub(super) topics: usize,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) words: usize,
}

impl Priors {
    /// The share of a word in a topic, from counts. Reads may be older than this worker's own writes:
    /// then a count may be less than what is taken from it.
    pub(super) fn share(&self, word: i64, total: i64) -> f64 {
        let mass = self.words as f64 * self.beta;
        (word.max(0) as f64 + self.beta) / (total.max(0) as f64 + mass)
    }
}

/// The counts as a shard changes them, and the changes of all shards so far.
pub(super) struct Counts<'a> {
    priors: Priors,
    model: &'a [i64],
    model_totals: &'a [i64],
    /// The words of this batch and, for each word of all, where it is among these.
    words: Vec<u32>,
    place: Vec<u32>,
    local: Vec<i64>,
    totals: Vec<i64>,
    changes: Vec<i64>,
    changed_totals: Vec<i64>,
}

impl<'a> Counts<'a> {
    pub(super) fn new(
        priors: Priors,
        words: Vec<u32>,
        model: &'a [i64],
        model_totals: &'a [i64],
    ) -> Counts<'a> {
        let width = priors.topics;
        let mut place = vec![u32::MAX; priors.words];
        let mut local = Vec::with_capacity(words.len() * width);
        for (at, &word) in (0..).zip(&words) {
            place[word as usize] = at;
            local.extend_from_slice(&model[word as usize * width..][..width]);
        }
        let (changes, changed_totals) = (vec![0; local.len()], vec![0; width]);
        let totals = model_totals.to_vec();
        Counts { priors, model, model_totals, words, place, local, totals, changes, changed_totals }
    }

    /// Counts the topics of a shard's tokens.
    pub(super) fn count(&mut self, table: &Table, slice: &Slice, topics: &[i64]) {
        let width = self.priors.topics;
        let mut token = topics.iter();
        for row in slice.rows() {
            documents::each_word(table.row(row), |word, count| {
                let at = self.place[word] as usize * width;
                for &topic in token.by_ref().take(count) {
                    self.changes[at + topic as usize] += 1;
                    self.changed_totals[topic as usize] += 1;
                }
            });
        }
    }

    /// Draws a new topic for every token of these documents, given those of all others.
    pub(super) fn sweep(
        &mut self,
        table: &Table,
        documents: &[(usize, usize, usize)],
        topics: &mut [i64],
        rng: &mut Rng,
    ) {
        let mut mixture = vec![0i64; self.priors.topics];
        let mut ladder = vec![0.0; self.priors.topics];
        for &(row, first, last) in documents {
            mixture.fill(0);
            topics[first..last].iter().for_each(|&topic| mixture[topic as usize] += 1);
            let mut tokens = topics[first..last].iter_mut();
            documents::each_word(table.row(row), |word, count| {
                let at = self.place[word] as usize * self.priors.topics;
                let counts = &mut self.local[at..at + self.priors.topics];
                for topic in tokens.by_ref().take(count) {
                    step(counts, &mut self.totals, &mut mixture, *topic as usize, -1);
                    climb(self.priors, counts, &self.totals, &mixture, &mut ladder);
                    *topic = draw(&ladder, rng) as i64;
                    step(counts, &mut self.totals, &mut mixture, *topic as usize, 1);
                }
            });
        }
        documents.iter().for_each(|&(row, ..)| self.settle(table, row));
        for topic in 0..self.totals.len() {
            self.changed_totals[topic] += self.totals[topic] - self.model_totals[topic];
        }
        self.totals.copy_from_slice(self.model_totals);
    }

    /// The changes as rows of the two tensors.
    pub(super) fn into_rows(self) -> (Rows, Rows) {
        let width = self.priors.topics;
        let (mut index, mut values) = (Vec::new(), Vec::new());
        for (&word, changes) in self.words.iter().zip(self.changes.chunks_exact(width)) {
            if changes.iter().any(|&change| change != 0) {
                index.push(word);
                values.extend_from_slice(changes);
            }
        }
        let (total, width) = (self.priors.words as u32, width as u32);
        let words = Rows { total, width, index, values: Values::I64(values) };
        let values = Values::I64(self.changed_totals);
        (words, Rows { total: 1, width, index: vec![0], values })
    }

    /// Moves what a document changed to the sum of changes. A word that was moved before adds nothing.
    fn settle(&mut self, table: &Table, row: usize) {
        let width = self.priors.topics;
        documents::each_word(table.row(row), |word, _| {
            let at = self.place[word] as usize * width;
            let model = &self.model[word * width..][..width];
            for (topic, &before) in model.iter().enumerate() {
                self.changes[at + topic] += self.local[at + topic] - before;
                self.local[at + topic] = before;
            }
        });
    }
}

fn step(counts: &mut [i64], totals: &mut [i64], mixture: &mut [i64], topic: usize, by: i64) {
    counts[topic] += by;
    totals[topic] += by;
    mixture[topic] += by;
}

/// The running sums of the probability of each topic, up to a factor.
fn climb(priors: Priors, counts: &[i64], totals: &[i64], mixture: &[i64], ladder: &mut [f64]) {
    let mut height = 0.0;
    let terms = counts.iter().zip(totals).zip(mixture);
    for (rung, ((&count, &total), &mine)) in ladder.iter_mut().zip(terms) {
        height += (mine as f64 + priors.alpha) * priors.share(count, total);
        *rung = height;
    }
}

/// The rung on which a uniform number falls.
pub(super) fn draw(ladder: &[f64], rng: &mut Rng) -> usize {
    let height = rng.uniform() * ladder.last().copied().unwrap_or(0.0);
    ladder.partition_point(|&rung| rung <= height).min(ladder.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_are_drawn_as_often_as_they_are_high() {
        let mut rng = Rng::named(3, "ladder", &[]);
        let mut drawn = [0; 3];
        (0..30_000).for_each(|_| drawn[draw(&[1.0, 1.0, 4.0], &mut rng)] += 1);
        assert_eq!(drawn[1], 0);
        assert!((7_100..7_900).contains(&drawn[0]), "a quarter of the height: {drawn:?}");
    }
}
