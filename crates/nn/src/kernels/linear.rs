//! y = x·W + b on rows of numbers, with a rectifier behind it if there is one, and its gradients. Sums begin with the biases, and
//! what comes out is never zeroed before, nor copied after.

use super::composed::{self, ON_FLEX};
use super::extension::{Recorded, made, plain, recorded, slice};
use super::product::{Matrix, Product};
use super::window::Finish;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};
use burn_tensor::Tensor;
use pulp::{Arch, Simd, WithSimd};

/// x·W + b, rectified if wanted.
pub(crate) fn linear(
    rows: Tensor<2>,
    (weight, bias): (Tensor<2>, Option<Tensor<1>>),
    finish: Finish,
) -> Tensor<2> {
    if !ON_FLEX {
        return composed::linear(rows, (weight, bias), finish);
    }
    let ([count, inputs], [_, outputs]) = (rows.dims(), weight.dims());
    let how = Linear { count, inputs, outputs, rectifies: finish.rectifies };
    let bias_plain = bias.as_ref().map(plain);
    match (plain(&rows), plain(&weight), &bias_plain) {
        (Some(rows), Some(weight), None | Some(Some(_))) => {
            let bias = bias_plain.flatten();
            Tensor::from_primitive::<Flex>(how.forward(&rows, &weight, bias.as_ref()))
        }
        _ => {
            let (rows, weight) = (recorded(rows), recorded(weight));
            Tensor::from_primitive::<Recorded>(match bias {
                Some(bias) => how.recorded([rows, weight, recorded(bias)]),
                None => how.recorded([rows, weight]),
            })
        }
    }
}

/// The sizes of a linear layer; the step back through it has as parents rows, weights and perhaps biases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Linear {
    count: usize,
    inputs: usize,
    outputs: usize,
    rectifies: bool,
}

/// What its gradients are made of.
#[derive(Clone, Debug)]
struct Known {
    rows: FlexTensor,
    weight: FlexTensor,
    /// What came out, where a rectifier may have stopped some of it.
    output: Option<FlexTensor>,
}

impl Linear {
    fn forward(
        self,
        rows: &FlexTensor,
        weight: &FlexTensor,
        bias: Option<&FlexTensor>,
    ) -> FlexTensor {
        let Linear { count, inputs, outputs, rectifies } = self;
        let (x, w) = (Matrix::of(slice(rows), inputs), Matrix::of(slice(weight), outputs));
        let product = Product {
            first: bias.map(slice),
            rectifies,
            ..Product::of([count, inputs, outputs], x, w)
        };
        made(product.numbers(), [count, outputs])
    }

    fn recorded<const N: usize>(self, given: [FloatTensor<Recorded>; N]) -> FloatTensor<Recorded> {
        let nodes = given.each_ref().map(|it| it.node());
        let given = given.map(|it| it.into_primitive().to_contiguous());
        let [rows, weight, ..] = &given[..] else { unreachable!("rows and weights at least") };
        let output = self.forward(rows, weight, given.get(2));
        match self.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(step) => {
                let known = Known {
                    rows: rows.clone(),
                    weight: weight.clone(),
                    output: self.rectifies.then(|| output.clone()),
                };
                step.finish(known, output)
            }
            OpsKind::UnTracked(step) => step.finish(output),
        }
    }
}

impl<const N: usize> Backward<Flex, N> for Linear {
    type State = Known;

    fn backward(self, step: Ops<Known, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let Linear { count, inputs, outputs, .. } = self;
        let Known { rows, weight, output } = step.state;
        let mut gradient = gradients.consume::<Flex>(&step.node).to_contiguous();
        if let Some(output) = output {
            let stopped = Stopped { gradient: slice(&gradient), output: slice(&output) };
            gradient = made(Arch::new().dispatch(stopped), [count, outputs]);
        }
        let above = Matrix::of(slice(&gradient), outputs);
        for (index, parent) in step.parents.into_iter().enumerate() {
            let Some(parent) = parent else { continue };
            let own = match index {
                0 => {
                    let weight = Matrix::of(slice(&weight), outputs).turned();
                    let product = Product::of([count, outputs, inputs], above, weight);
                    made(product.numbers(), [count, inputs])
                }
                1 => {
                    let rows = Matrix::of(slice(&rows), inputs).turned();
                    let product = Product::of([inputs, count, outputs], rows, above);
                    made(product.numbers(), [inputs, outputs])
                }
                _ => made(Arch::new().dispatch(SumOfRows(slice(&gradient), outputs)), [outputs]),
            };
            gradients.register::<Flex>(parent.id, own);
        }
    }
}

/// The gradient of what the rectifier let through.
struct Stopped<'a> {
    gradient: &'a [f32],
    output: &'a [f32],
}

impl WithSimd for Stopped<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        let both = self.gradient.iter().zip(self.output);
        both.map(|(&gradient, &output)| if output <= 0.0 { 0.0 } else { gradient }).collect()
    }
}

/// The sum of rows of a width.
struct SumOfRows<'a>(&'a [f32], usize);

impl WithSimd for SumOfRows<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        let mut sums = vec![0.0; self.1];
        for row in self.0.chunks_exact(self.1) {
            sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_near, leaf};
    use crate::pass::numbers;

    #[test]
    fn outputs_and_gradients_are_those_of_burn() {
        for (count, inputs, outputs) in [(1, 1, 1), (5, 3, 2), (33, 17, 65), (8, 100, 10)] {
            for (rectifies, biased) in [(false, true), (true, true), (true, false)] {
                let name = format!("{count}×{inputs}→{outputs} {rectifies} {biased}");
                let rows = leaf::<2>(1, [count, inputs]);
                let weight = leaf::<2>(2, [inputs, outputs]);
                let bias = biased.then(|| leaf::<1>(3, [outputs]));
                let above = leaf::<2>(4, [count, outputs]).inner();
                let finish = if rectifies { Finish::RECTIFY } else { Finish::NONE };
                let ours = linear(rows.clone(), (weight.clone(), bias.clone()), finish);
                let given = (weight.clone(), bias.clone());
                let theirs = composed::linear(rows.clone(), given, finish);
                assert_near(&name, &numbers(ours.clone()), &numbers(theirs.clone()));
                let above = above.autodiff();
                let mut own = (ours * above.clone()).sum().backward();
                let mut other = (theirs * above).sum().backward();
                let mut pair = |leaf: &Tensor<2>| {
                    let take = |from| leaf.grad_remove(from).map(numbers).unwrap();
                    (take(&mut own), take(&mut other))
                };
                for leaf in [&rows, &weight] {
                    let (ours, theirs) = pair(leaf);
                    assert_near(&name, &ours, &theirs);
                }
                if let Some(bias) = bias {
                    let ours = numbers(bias.grad_remove(&mut own).unwrap());
                    assert_near(&name, &ours, &numbers(bias.grad_remove(&mut other).unwrap()));
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_not_hidden_by_the_rectifier() {
        let rows = crate::pass::tensor(vec![f32::NAN, 1.0], [1, 2]);
        let weight = crate::pass::tensor(vec![1.0, 1.0], [2, 1]);
        let output = numbers(linear(rows, (weight, None), Finish::RECTIFY));
        assert!(output[0].is_nan());
    }
}
