//! The code of a variational autoencoder (Kingma and Welling, "Auto-encoding variational Bayes", 2014): a linear layer gives
//! mean and logarithm of the variance of each number; while it learns the number is drawn (mean + deviation · noise, so
//! that gradients pass), and how far the distribution is from the standard normal one is to be small. While it answers
//! the mean serves.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, f32s, tensor};
use crate::stage::{Care, Parameter, Stage, Start};
use burn_tensor::{Tensor, module};
use starlings_core::{Graph, Model, Op, Result};

pub(super) const LAYER: Layer = Layer {
    name: "sample",
    usage: "sample WIDTH [weight NUMBER]",
    summary: "a code drawn from a normal distribution that is kept near the standard one (Kingma and Welling, 2014)",
    keys: &["weight"],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let Form::Flat(inputs) = site.input else {
        return Err(site.refuse(format!("wants plain numbers and gets {}", site.input)));
    };
    let width = words.size(site, 0, "width")?;
    let word = words.named("weight").unwrap_or("1");
    let weight = word.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight >= 0.0);
    let weight = weight.ok_or_else(|| {
        site.refuse(format!("has '{word}' for the weight, which is no number from 0 up"))
    })?;
    Ok(Box::new(Sample { name: site.name.clone(), inputs, width, weight }))
}

struct Sample {
    name: String,
    inputs: usize,
    width: usize,
    /// How much the distance from the standard normal distribution counts.
    weight: f64,
}

impl Stage for Sample {
    fn output(&self) -> Form {
        Form::Flat(self.width)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let start = Start::fan_in(self.inputs);
        let parameter = |part: &str, shape: Vec<usize>, care| Parameter {
            name: format!("{}.{part}", self.name),
            shape,
            start,
            care,
        };
        vec![
            parameter("weight", vec![self.inputs, 2 * self.width], Care::Matrix),
            parameter("bias", vec![2 * self.width], Care::Vector),
        ]
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let weight = pass.weight(&format!("{}.weight", self.name), [self.inputs, 2 * self.width]);
        let bias = pass.line(&format!("{}.bias", self.name));
        let joint = module::linear(input.flat(), weight, Some(bias));
        let mean = joint.clone().narrow(1, 0, self.width);
        let log_variance = joint.narrow(1, self.width, self.width);
        if let Some(weights) = pass.row_weights() {
            // The divergence from the standard normal distribution, in closed form.
            let apart =
                mean.clone().square() + log_variance.clone().exp() - log_variance.clone() - 1.0;
            let rows = weights.len();
            let apart = (apart * tensor(weights, [rows, 1])).sum() * (0.5 * self.weight);
            pass.penalty = Some(match pass.penalty.take() {
                None => apart,
                Some(before) => before + apart,
            });
        }
        let drawn =
            pass.drawn(&format!("sample {}", self.name), self.width, |rng, noise, count| {
                noise.extend((0..count).map(|_| rng.normal() as f32));
            });
        let Some(noise) = drawn else { return Flow::Flat(mean) };
        let rows = noise.len() / self.width;
        let noise: Tensor<2> = tensor(noise, [rows, self.width]);
        Flow::Flat(mean + (log_variance * 0.5).exp() * noise)
    }

    fn draw(&self, graph: &mut Graph, input: &str, model: &Model) -> Option<String> {
        let values = |part: &str| f32s(model, &format!("{}.{part}", self.name));
        let (weight, bias) = (values("weight"), values("bias"));
        let rows = weight.chunks_exact(2 * self.width);
        let means = rows.flat_map(|row| &row[..self.width]).map(|&x| f64::from(x)).collect();
        let shape = [self.inputs, self.width];
        let weight = graph.constant(&format!("{}.weight", self.name), &shape, means);
        let bias = bias[..self.width].iter().map(|&x| f64::from(x)).collect();
        let bias = graph.constant(&format!("{}.bias", self.name), &[self.width], bias);
        let product = graph.node(Op::MatMul, &[input, &weight]);
        Some(graph.node(Op::Add, &[&product, &bias]))
    }
}
