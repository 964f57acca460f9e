//! Layer normalisation (Ba, Kiros and Hinton, 2016): the numbers of each row, or of each step of a sequence, are
//! normalised by themselves.

use super::group_norm::{EPSILON, scale_and_shift};
use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::{Parameter, Stage};
use burn_tensor::module;
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "layer-norm",
    usage: "layer-norm",
    summary: "normalises the numbers of each row or step (Ba, Kiros and Hinton, 2016)",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    Ok(Box::new(LayerNorm { name: site.name.clone(), form: site.input }))
}

struct LayerNorm {
    name: String,
    form: Form,
}

impl LayerNorm {
    fn width(&self) -> usize {
        match self.form {
            Form::Sequence { width, .. } => width,
            other => other.len(),
        }
    }
}

impl Stage for LayerNorm {
    fn output(&self) -> Form {
        self.form
    }

    fn parameters(&self) -> Vec<Parameter> {
        scale_and_shift(&self.name, self.width())
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let scale = pass.line(&format!("{}.scale", self.name));
        let shift = Some(pass.line(&format!("{}.shift", self.name)));
        match input {
            Flow::Sequence(rows) => Flow::Sequence(module::layer_norm(rows, scale, shift, EPSILON)),
            other => {
                let rows = module::layer_norm(other.flat(), scale, shift, EPSILON);
                Flow::shaped(rows, self.form)
            }
        }
    }
}
