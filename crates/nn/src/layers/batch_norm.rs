//! Batch normalisation (Ioffe and Szegedy, 2015), in the form of ghost batches (Hoffer, Hubara and Soudry, "Train longer,
//! generalize better", 2017): while it learns, rows are normalised by the mean and variance of their own *virtual shard*
//! within the step. What a worker holds is whole shards, so that the result does not depend on the number of workers, and
//! nothing but the running means has to be exchanged. A step of B rows has ghost batches of about B / shards rows.
//! While it answers, the running mean and variance serve, as in the paper.

use super::group_norm::{EPSILON, scale_and_shift};
use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, Share, numbers, tensor};
use crate::stage::{Care, Parameter, Stage, Start};
use burn_tensor::Tensor;
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "batch-norm",
    usage: "batch-norm",
    summary: "normalises channels over the rows of a shard in a step (Ioffe and Szegedy, 2015; Hoffer et al., 2017)",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    let channels = match site.input {
        Form::Flat(width) => width,
        Form::Image { channels, .. } => channels,
        other @ Form::Sequence { .. } => {
            return Err(site
                .refuse(format!("wants an image or numbers and gets {other}"))
                .hint("for sequences take layer-norm"));
        }
    };
    Ok(Box::new(BatchNorm { name: site.name.clone(), channels, form: site.input }))
}

struct BatchNorm {
    name: String,
    channels: usize,
    form: Form,
}

impl Stage for BatchNorm {
    fn output(&self) -> Form {
        self.form
    }

    fn parameters(&self) -> Vec<Parameter> {
        let tracked = |part: &str, start: f32| Parameter {
            name: format!("{}.{part}", self.name),
            shape: vec![self.channels],
            start: Start::Constant(start),
            care: Care::Tracked,
        };
        let mut all = scale_and_shift(&self.name, self.channels);
        all.extend([tracked("mean", 0.0), tracked("variance", 1.0)]);
        all
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let rows = input.flat();
        let count = rows.dims()[0];
        let area = self.form.len() / self.channels;
        let pixels = rows.reshape([count, self.channels, area]);
        let name = |part: &str| format!("{}.{part}", self.name);
        let (centred, variance) = match pass.lesson.as_ref().map(|lesson| lesson.shares.clone()) {
            None => {
                let mean = pass.weight(&name("mean"), [1, self.channels, 1]);
                (pixels - mean, pass.weight(&name("variance"), [1, self.channels, 1]))
            }
            Some(shares) => {
                let (centred, mean, variance) = self.ghosts(pixels, &shares);
                pass.tracked.insert(name("mean"), self.summed(mean));
                pass.tracked.insert(name("variance"), self.unbiased(&variance, &shares));
                (centred, variance.reshape([count, self.channels, 1]))
            }
        };
        let scale = pass.weight(&name("scale"), [1, self.channels, 1]);
        let shift = pass.weight(&name("shift"), [1, self.channels, 1]);
        let normal = centred / (variance + EPSILON).sqrt() * scale + shift;
        Flow::shaped(normal.reshape([count, self.form.len()]), self.form)
    }
}

impl BatchNorm {
    /// Rows less their shard's mean, and for every row its shard's mean and variance. A matrix that averages over shards
    /// does it in one product each, and its derivative with it.
    fn ghosts(&self, pixels: Tensor<3>, shares: &[Share]) -> (Tensor<3>, Tensor<2>, Tensor<2>) {
        let count = pixels.dims()[0];
        let average = tensor(averages(shares, count), [count, count]);
        let of_shard = |pixels: Tensor<3>| {
            let means = pixels.mean_dim(2).reshape([count, self.channels]);
            average.clone().matmul(means)
        };
        let mean = of_shard(pixels.clone());
        let centred = pixels - mean.clone().reshape([count, self.channels, 1]);
        let variance = of_shard(centred.clone().square());
        (centred, mean, variance)
    }

    /// Sums over rows.
    fn summed(&self, rows: Tensor<2>) -> Vec<f32> {
        numbers(rows.inner().sum_dim(0))
    }

    /// Sums over rows of the variance that a shard's numbers estimate: n/(n − 1) of their own, as PyTorch tracks it.
    fn unbiased(&self, variance: &Tensor<2>, shares: &[Share]) -> Vec<f32> {
        let area = self.form.len() / self.channels;
        let factors = shares.iter().flat_map(|share| {
            let n = (share.rows * area) as f32;
            std::iter::repeat_n(if n > 1.0 { n / (n - 1.0) } else { 1.0 }, share.rows)
        });
        let factors: Vec<f32> = factors.collect();
        let count = factors.len();
        self.summed(variance.clone() * tensor(factors, [count, 1]))
    }
}

/// A matrix that gives each row the mean of the rows of its shard.
fn averages(shares: &[Share], count: usize) -> Vec<f32> {
    let mut matrix = vec![0.0; count * count];
    let mut from = 0;
    for share in shares {
        let to = from + share.rows;
        for row in from..to {
            matrix[row * count + from..row * count + to].fill(1.0 / share.rows as f32);
        }
        from = to;
    }
    matrix
}
