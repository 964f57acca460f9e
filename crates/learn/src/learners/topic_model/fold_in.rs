//! The topics of a document that the counts do not contain: its shares under fixed topics, by expectation
//! maximisation (folding in, Hofmann, 1999, with the Dirichlet prior as in CVB0, Asuncion et al., 2009).
//! Without chance: a document has the same shares wherever it stands.

use super::documents;
use super::gibbs::{Priors, draw};
use starlings_core::{Model, Rng};
use starlings_data::Row;

const ITERATIONS_MAX: usize = 100;
/// Shares that move less than this have arrived.
const TOLERANCE: f64 = 1e-7;

/// The shares of all topics in a document.
pub(super) fn shares(priors: Priors, model: &Model, row: Row<'_>) -> Vec<f64> {
    let (width, length) = (priors.topics, documents::length(row) as f64);
    let words = affinities(priors, model, row);
    let mut shares = vec![1.0 / width as f64; width];
    for _ in 0..ITERATIONS_MAX {
        let mut next = vec![priors.alpha; width];
        for (affinity, count) in &words {
            let total: f64 = affinity.iter().zip(&shares).map(|(a, s)| a * s).sum();
            for ((next, a), s) in next.iter_mut().zip(affinity).zip(&shares) {
                *next += count * a * s / total;
            }
        }
        let mass = length + priors.alpha * width as f64;
        next.iter_mut().for_each(|share| *share /= mass);
        let moved = next.iter().zip(&shares).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        shares = next;
        if moved < TOLERANCE {
            break;
        }
    }
    shares
}

/// Draws topics for the tokens of a document by its shares.
pub(super) fn assign(
    priors: Priors,
    model: &Model,
    row: Row<'_>,
    rng: &mut Rng,
    topics: &mut Vec<i64>,
) {
    let shares = shares(priors, model, row);
    for (affinity, count) in affinities(priors, model, row) {
        let mut height = 0.0;
        let rung = |(a, s): (&f64, &f64)| {
            height += a * s;
            height
        };
        let ladder: Vec<f64> = affinity.iter().zip(&shares).map(rung).collect();
        topics.extend((0..count as usize).map(|_| draw(&ladder, rng) as i64));
    }
}

/// For each word of a document, its share in every topic and how often it occurs.
fn affinities(priors: Priors, model: &Model, row: Row<'_>) -> Vec<(Vec<f64>, f64)> {
    let (counts, totals) = (model.i64(super::WORDS), model.i64(super::TOTALS));
    let mut words = Vec::new();
    documents::each_word(row, |word, count| {
        let counts = &counts[word * priors.topics..][..priors.topics];
        let share = counts.iter().zip(totals).map(|(&word, &total)| priors.share(word, total));
        words.push((share.collect(), count as f64));
    });
    words
}
