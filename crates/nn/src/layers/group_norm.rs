//! Group normalisation (Wu and He, 2018): the channels of each row are normalised in groups, without looking at other
//! rows, so that the size of a worker's batch does not matter. y = γ·(x − mean)/√(variance + ε) + β.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::{Care, Parameter, Stage, Start};
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "group-norm",
    usage: "group-norm GROUPS",
    summary: "normalises groups of channels of each row by itself (Wu and He, 2018)",
    keys: &[],
    build,
};

/// Keeps quotients finite, as PyTorch does.
pub(super) const EPSILON: f64 = 1e-5;

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let [channels, ..] = site.image()?;
    let groups = words.size(site, 0, "groups")?;
    if !channels.is_multiple_of(groups) {
        return Err(site
            .refuse(format!("cannot cut {channels} channels into {groups} groups"))
            .hint("choose a number of groups that divides the channels"));
    }
    Ok(Box::new(GroupNorm { name: site.name.clone(), channels, groups, form: site.input }))
}

struct GroupNorm {
    name: String,
    channels: usize,
    groups: usize,
    form: Form,
}

impl Stage for GroupNorm {
    fn output(&self) -> Form {
        self.form
    }

    fn parameters(&self) -> Vec<Parameter> {
        scale_and_shift(&self.name, self.channels)
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let rows = input.image();
        let shape = rows.dims();
        let [count, channels, height, width] = shape;
        let lines = rows.reshape([count, self.groups, channels / self.groups * height * width]);
        let centred = lines.clone() - lines.mean_dim(2);
        let variance = centred.clone().square().mean_dim(2);
        let normal = (centred / (variance + EPSILON).sqrt()).reshape(shape);
        let scale = pass.weight(&format!("{}.scale", self.name), [1, channels, 1, 1]);
        let shift = pass.weight(&format!("{}.shift", self.name), [1, channels, 1, 1]);
        Flow::Image(normal * scale + shift)
    }
}

/// γ, which starts at one, and β, which starts at zero.
pub(super) fn scale_and_shift(name: &str, width: usize) -> Vec<Parameter> {
    let vector = |part: &str, start: f32| Parameter {
        name: format!("{name}.{part}"),
        shape: vec![width],
        start: Start::Constant(start),
        care: Care::Vector,
    };
    vec![vector("scale", 1.0), vector("shift", 0.0)]
}
