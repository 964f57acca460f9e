//! Sufficient factors of linear layers (Xie et al., "Lighter-communication distributed machine learning via sufficient factor
//! broadcasting", 2016; Zhang et al., "Poseidon", 2017): the gradient of a matrix over K rows is Σ xᵢ gᵢᵀ, where xᵢ went into
//! the layer and gᵢ is the gradient by what came out. Where the job's codec wants them, the layer's matrix leaves as these
//! vectors, and is never multiplied out here.
//!
//! With `auto` each layer is weighed: of an M × N matrix and K rows of a step on all of P workers, factors are
//! K(M + N)(P − 1)/P numbers from each worker and a sum of matrices is 2MN(P − 1)/P, so that factors are cheaper where
//! K(M + N) < 2MN. For layers of sequences K counts steps.

use crate::flow::Form;
use crate::stack::Stack;
use starlings_core::{Body, Factors};
use starlings_learn::Outbox;
use std::ops::Range;

/// The layers whose matrices leave as factors, in a step of so many rows on all workers. The same on all of them.
pub(crate) fn factored(stack: &Stack, rows: u64, outbox: &Outbox) -> Vec<usize> {
    let mut found = Vec::new();
    for (at, (_, line, stage)) in stack.each().enumerate() {
        let parameters = stage.parameters();
        if line.split_whitespace().next() != Some("linear") || !outbox.wants_factors() {
            continue;
        }
        let [height, width] = parameters[0].shape[..] else { continue };
        let steps = match stage.output() {
            Form::Sequence { steps, .. } => steps as u64,
            _ => 1,
        };
        if outbox.takes_factors((height, width), rows.saturating_mul(steps)) {
            found.push(at);
        }
    }
    found
}

/// Links cut so that each of some layers is one by itself.
pub(crate) fn apart(links: Vec<Range<usize>>, layers: &[usize]) -> Vec<Range<usize>> {
    let mut cut = Vec::new();
    for link in links {
        let mut start = link.start;
        for &layer in layers.iter().filter(|layer| link.contains(layer)) {
            cut.extend((start < layer).then_some(start..layer));
            cut.push(layer..layer + 1);
            start = layer + 1;
        }
        cut.extend((start < link.end).then_some(start..link.end));
    }
    cut
}

/// The vectors of a matrix so far.
#[derive(Clone, Default, Debug)]
pub(crate) struct Terms {
    left: Vec<f64>,
    right: Vec<f64>,
}

impl Terms {
    /// Adds the terms of some rows: what went in, and the gradient by what came out.
    pub(crate) fn add(&mut self, inputs: &[f32], gradients: &[f32]) {
        self.left.extend(inputs.iter().map(|&x| f64::from(x)));
        self.right.extend(gradients.iter().map(|&x| f64::from(x)));
    }

    /// As what leaves, of a matrix of this shape.
    pub(crate) fn body(self, shape: &[usize]) -> Body {
        let Terms { left, right } = self;
        Body::Factors(Factors { rows: shape[0] as u32, width: shape[1] as u32, left, right })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_leave_as_factors_are_links_by_themselves() {
        let whole = std::iter::once(0..5).collect();
        assert_eq!(apart(whole, &[0, 2, 4]), [0..1, 1..2, 2..3, 3..4, 4..5]);
        assert_eq!(apart(vec![0..2, 2..6], &[3]), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(apart(vec![0..2, 2..6], &[]), [0..2, 2..6]);
    }

    #[test]
    fn each_layer_is_weighed_by_its_size_and_the_rows_of_a_step() {
        let lines = ["linear 512", "relu", "linear 64", "relu", "linear 10"].map(str::to_string);
        let stack = Stack::build(Form::Flat(784), &lines).unwrap();
        let mut outbox = Outbox::new();
        assert!(factored(&stack, 16, &outbox).is_empty());
        outbox.want_factors(true);
        assert_eq!(factored(&stack, 100_000, &outbox), [0, 2, 4]);
        outbox.weigh_factors(true);
        // 2MN/(M + N) rows are as dear as the matrix: 619.5, 113.7 and 17.3.
        for (rows, wanted) in [
            (17, &[0, 2, 4][..]),
            (18, &[0, 2]),
            (113, &[0, 2]),
            (114, &[0]),
            (619, &[0]),
            (620, &[]),
        ] {
            assert_eq!(factored(&stack, rows, &outbox), wanted, "{rows} rows");
        }
        let sequence = Form::Sequence { steps: 10, width: 784 };
        let stack = Stack::build(sequence, &lines).unwrap();
        assert_eq!(factored(&stack, 61, &outbox), [0], "every step is a term");
        assert!(factored(&stack, 62, &outbox).is_empty());
    }
}
