//! A recurrent layer whose units are split among workers: everyone has the columns of its own units in all gates, and after
//! every step the state, at which all units look, is put together. Gradients go the same way back: what everyone's gates ask of
//! the state before them is partial, and of the sum each needs but that of its own units.
//!
//! Of n numbers of a state (rows × width) on P workers a step sends n(P − 1)/P from each forward, and as many back. Nothing is
//! to be put together after the layer, for everyone has all states by then.

use crate::flow::Flow;
use crate::kernels;
use crate::layers::Recurrent;
use crate::parts::{join, slice};
use crate::pass::{Pass, Weights, numbers, tensor};
use crate::stage::Parameter;
use crate::sums::Sums;
use crate::together::Together;
use burn_tensor::{Tensor, module};
use starlings_core::Result;
use std::ops::Range;

/// Rows that have gone through all steps and wait for their gradient.
pub(crate) struct Recurrence {
    /// Where it begins; `None` where nobody asks for the gradient of what comes in.
    input: Option<Flow>,
    /// What inputs say to the own gates at all steps.
    told: Tensor<3>,
    taken: Vec<Taken>,
    /// What all units' states are multiplied with for the own gates.
    hidden: Tensor<2>,
}

/// A step, with a graph of its own.
struct Taken {
    /// All units' states before it.
    before: Tensor<2>,
    /// What inputs and the past say to the own gates; states and cells of the own units before.
    from: [Tensor<2>; 4],
    /// States and cells of the own units after.
    to: [Tensor<2>; 2],
}

impl Recurrence {
    /// Runs rows through all steps. Whoever is `inner` is asked for the gradient of what comes in.
    ///
    /// # Errors
    /// When a worker is lost.
    pub(crate) fn forward(
        layer: &Recurrent,
        (input, inner): (Flow, bool),
        pass: &Pass<'_>,
        together: &mut Together<'_>,
    ) -> Result<(Recurrence, Flow)> {
        let input = if inner { input.leaf() } else { input };
        let kept = inner.then(|| input.clone());
        let told = layer.told(input.sequence(), pass);
        let (hidden, bias) = layer.hidden(pass);
        let (hidden, bias) = (hidden.inner(), bias.inner());
        let ([count, steps, wide], width) = (told.dims(), hidden.dims()[0]);
        let own = width / together.parts as usize;
        let nothing = |width: usize| tensor(vec![0.0; count * width], [count, width]);
        let (mut all, mut state, mut cell) = (nothing(width), nothing(own), nothing(own));
        let (plain, learns) = (told.clone().inner(), pass.lesson.is_some());
        let (mut taken, mut states) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
        for step in 0..steps {
            let now = plain.clone().narrow(1, step, 1).reshape([count, wide]);
            let past = module::linear(all.clone(), hidden.clone(), Some(bias.clone()));
            let leaf = |it: Tensor<2>| if learns { it.autodiff().require_grad() } else { it };
            let from = [now, past, state, cell].map(leaf);
            let to = layer.advance(from.clone());
            [state, cell] = to.clone().map(Tensor::inner);
            let parts = together.all(numbers(state.clone()))?;
            let before = std::mem::replace(&mut all, tensor(join(&parts, width), [count, width]));
            states.push(all.clone().reshape([count, 1, width]));
            taken.push(Taken { before, from, to });
        }
        let flow = Flow::Sequence(Tensor::cat(states, 1));
        Ok((Recurrence { input: kept, told, taken, hidden }, flow))
    }

    /// Adds the gradients of the layer's parameters to the sums, and gives this part's gradient of what came in.
    ///
    /// # Errors
    /// When a worker is lost.
    pub(crate) fn backward(
        self,
        gradient: Flow,
        (parameters, mine): (&[Parameter], Range<usize>),
        weights: &Weights<'_>,
        (together, sums): (&mut Together<'_>, &mut Sums),
    ) -> Result<Option<Flow>> {
        let Recurrence { input, told, taken, hidden } = self;
        let by_states = gradient.sequence();
        let ([count, _, wide], width) = (told.dims(), hidden.dims()[0]);
        let (part, own) = (together.part as usize, width / together.parts as usize);
        let (mut later, mut by_cell): (Option<Tensor<2>>, Option<Tensor<2>>) = (None, None);
        let (mut by_told, mut by_past, mut before) = (Vec::new(), Vec::new(), Vec::new());
        for (step, taken) in taken.into_iter().enumerate().rev() {
            let here = by_states.clone().narrow(1, step, 1).reshape([count, width]);
            let here = here.narrow(1, part * own, own);
            let by_state = match later.take() {
                Some(later) => here + later,
                None => here,
            };
            let mut root = kernels::seed(taken.to[0].clone(), &by_state);
            if let Some(by_cell) = by_cell.take() {
                root = root + kernels::seed(taken.to[1].clone(), &by_cell);
            }
            let mut gradients = root.backward();
            let [now, past, state, cell] = taken.from.map(|it| it.grad_remove(&mut gradients));
            let past = past.expect("every gate looks at the past");
            if step > 0 {
                let asked = numbers(past.clone().matmul(hidden.clone().transpose()));
                let parts = together.parts as usize;
                let shares = (0..parts).map(|to| slice(&asked, width, (to, parts))).collect();
                let asked: Tensor<2> = tensor(together.sum_of_own(shares)?, [count, own]);
                later = Some(match state {
                    Some(state) => asked + state,
                    None => asked,
                });
                by_cell = cell;
            }
            by_told.push(now.expect("every gate looks at the input").reshape([count, 1, wide]));
            by_past.push(past);
            before.push(taken.before);
        }
        by_told.reverse();
        let root = kernels::seed(told, &Tensor::cat(by_told, 1));
        let mut gradients = root.backward();
        let below = input.and_then(|input| input.gradient(&mut gradients));
        let (by_past, before) = (Tensor::cat(by_past, 0), Tensor::cat(before, 0));
        // Parameters for the input, the state, and biases of both.
        sums.add_numbers(mine.start + 1, numbers(before.transpose().matmul(by_past.clone())));
        sums.add_numbers(mine.start + 3, numbers(by_past.sum_dim(0)));
        for index in [mine.start, mine.start + 2] {
            sums.add_numbers(index, weights.gradient(&parameters[index], &mut gradients));
        }
        Ok(below)
    }
}
