//! Cross-entropy over a vocabulary that is split among workers (Shoeybi et al., "Megatron-LM", 2019, section 3): everyone has
//! the scores of some tokens, and nobody ever those of all. The softmax of a step needs its largest score and the sum of
//! its powers over all tokens; these few numbers are exchanged, four for each step, instead of a score for each token.
//!
//! With t what the logarithms of chances are multiplied by, and T its sum, the loss of a step is Σ tⱼ·zⱼ − T·ln Σ exp zⱼ and
//! its gradient tⱼ − T·exp(zⱼ)/Σ exp.

use crate::flow::Flow;
use crate::goal::{Goal, Told};
use crate::pass::{numbers, tensor};
use crate::together::Together;
use starlings_core::Result;

/// The sum over rows of loss times weight, the same on all workers, and its gradient by the own scores.
///
/// # Errors
/// When a worker is lost.
pub(crate) fn loss(
    goal: Goal,
    scores: Flow,
    told: &Told,
    together: &mut Together<'_>,
) -> Result<(f64, Flow)> {
    let form = scores.form();
    let scores = numbers(scores.flat());
    let (count, steps) = (told.inputs.len(), told.inputs.len() / told.weights.len());
    let own = scores.len() / count;
    let first = together.part as usize * own;
    let shape = [count, own];
    let truth = tensor(goal.token_truth(told, steps, first..first + own), shape);
    let scores = tensor(scores, shape);
    let most = together.most(numbers(scores.clone().max_dim(1)))?;
    let scores = scores - tensor(most, [count, 1]);
    let powers = scores.clone().exp();
    let sums = [powers.clone(), truth.clone(), truth.clone() * scores];
    let sums = together.sum(sums.into_iter().flat_map(|it| numbers(it.sum_dim(1))).collect())?;
    let (powers_sum, rest) = sums.split_at(count);
    let (truth_sum, products) = rest.split_at(count);
    let steps = powers_sum.iter().zip(truth_sum).zip(products).map(|((&powers, &truth), &dot)| {
        f64::from(dot) - f64::from(truth) * f64::from(powers).ln()
    });
    let loss = steps.sum();
    let shares = truth_sum.iter().zip(powers_sum).map(|(truth, powers)| truth / powers).collect();
    let gradient = truth - powers * tensor(shares, [count, 1]);
    let rows = told.weights.len();
    Ok((loss, Flow::shaped(gradient.reshape([rows, form.len()]), form)))
}
