//! Back-propagation link by link: a network is cut into links of neighbouring stages, and each link has a graph of its own,
//! whose input is a leaf. So the gradients of the upper links are known, and may leave, while those of the lower ones are
//! still to be computed (wait-free back-propagation: Zhang et al., "Poseidon: an efficient communication architecture for
//! distributed deep learning on GPU clusters", 2017); and links may sit on different workers.
//!
//! Burn's own hook at each complete gradient hands it to a collective of its backend, which `flex` does not have, and is not
//! open to others: hence links.

use crate::flow::Flow;
use crate::pass::Pass;
use crate::stack::Stack;
use burn_tensor::{Gradients, Tensor};
use std::ops::Range;

/// Links have at least so many parameters: what is smaller does not leave by itself.
const NUMBERS_MIN: usize = 1 << 15;

/// Rows that have gone through some stages and wait for their gradient.
pub(crate) struct Link {
    /// Where the link begins; `None` where nobody asks for the gradient of what comes in.
    input: Option<Flow>,
    output: Flow,
    penalty: Option<Tensor<1>>,
}

/// From where gradients come.
pub(crate) enum Source {
    /// The loss of the link's own output.
    Loss(Tensor<1>),
    /// The link above: the gradient of this one's output.
    Above(Flow),
}

impl Link {
    /// Runs rows through some stages. Whoever is `inner` is asked for the gradient of what comes in.
    pub(crate) fn forward(
        (stack, stages): (&Stack, Range<usize>),
        input: Flow,
        inner: bool,
        pass: &mut Pass<'_>,
    ) -> Link {
        let input = if inner { input.leaf() } else { input };
        let kept = inner.then(|| input.clone());
        let output = stack.forward_between(input, pass, stages);
        Link { input: kept, output, penalty: pass.penalty.take() }
    }

    /// What came out.
    pub(crate) fn output(&self) -> Flow {
        self.output.clone()
    }

    /// What is to be small besides the loss.
    pub(crate) fn penalty(&self) -> f64 {
        let number = |penalty: &Tensor<1>| f64::from(penalty.clone().into_scalar::<f32>());
        self.penalty.as_ref().map_or(0.0, number)
    }

    /// The gradients of the link's parameters, and that of what came in. `None`: nothing in it learns.
    pub(crate) fn backward(self, source: Source) -> Option<(Gradients, Option<Flow>)> {
        if !self.output.is_tracked() {
            return None;
        }
        let root = match source {
            Source::Loss(loss) => loss,
            Source::Above(gradient) => self.output.seeded(&gradient),
        };
        let root = match self.penalty {
            Some(penalty) => root + penalty,
            None => root,
        };
        let mut gradients = root.backward();
        let below = self.input.and_then(|input| input.gradient(&mut gradients));
        Some((gradients, below))
    }
}

/// Where a network is cut so that gradients can leave early: ranges of stages, the lowest first. From the top down each is as
/// short as it can be with parameters worth sending; the lowest takes what is left.
pub(crate) fn links(stack: &Stack) -> Vec<Range<usize>> {
    let all = stack.numbers();
    let (mut links, mut end, mut numbers) = (Vec::new(), stack.len(), 0);
    for stage in (0..stack.len()).rev() {
        numbers += all[stage];
        let below = all[..stage].iter().any(|&numbers| numbers > 0);
        if numbers >= NUMBERS_MIN && below {
            links.push(stage..end);
            (end, numbers) = (stage, 0);
        }
    }
    links.push(0..end);
    links.reverse();
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Form;

    fn cut(input: Form, lines: &[&str]) -> Vec<Range<usize>> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_string()).collect();
        links(&Stack::build(input, &lines).unwrap())
    }

    #[test]
    fn links_are_cut_below_parameters_that_are_worth_sending() {
        let perceptron = ["linear 512", "relu", "linear 256", "relu", "linear 10"];
        assert_eq!(cut(Form::Flat(784), &perceptron), [0..2, 2..5]);
        // Convolutions are few numbers and much work: what leaves before them is hidden behind it.
        let image = Form::Image { channels: 1, height: 28, width: 28 };
        let layers =
            ["conv 32", "relu", "max-pool 2", "conv 64", "relu", "linear 128", "linear 10"];
        assert_eq!(cut(image, &layers), [0..5, 5..7]);
        assert_eq!(cut(Form::Flat(4), &["linear 3", "relu", "linear 2"]).len(), 1);
        // What has no parameters is no link.
        assert_eq!(cut(Form::Flat(400), &["dropout 0.5", "linear 400"]).len(), 1);
    }
}
