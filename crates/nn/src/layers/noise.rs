//! Noise on the numbers of a row while it learns: what makes an autoencoder a denoising one (Vincent et al., "Extracting and
//! composing robust features with denoising autoencoders", 2008). Drawn from the job's generator, by shard of rows.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, tensor};
use crate::stage::Stage;
use starlings_core::{Graph, Model, Result};

pub(super) const LAYER: Layer = Layer {
    name: "noise",
    usage: "noise DEVIATION",
    summary: "adds normal noise while it learns (Vincent et al., 2008)",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let word = words.plain(0).unwrap_or_default();
    let deviation = word.parse().ok().filter(|d: &f64| d.is_finite() && *d >= 0.0);
    let deviation = deviation.ok_or_else(|| {
        site.refuse(format!("has '{word}' for the deviation, which is no number from 0 up"))
            .hint(LAYER.usage)
    })?;
    Ok(Box::new(Noise { purpose: format!("noise {}", site.name), deviation, form: site.input }))
}

struct Noise {
    purpose: String,
    deviation: f64,
    form: Form,
}

impl Stage for Noise {
    fn output(&self) -> Form {
        self.form
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let width = self.form.len();
        let drawn = pass.drawn(&self.purpose, width, |rng, noise, count| {
            noise.extend((0..count).map(|_| (rng.normal() * self.deviation) as f32));
        });
        let Some(noise) = drawn else { return input };
        let rows = noise.len() / width;
        Flow::shaped(input.flat() + tensor(noise, [rows, width]), self.form)
    }

    fn draw(&self, _: &mut Graph, input: &str, _: &Model) -> Option<String> {
        Some(input.to_string())
    }
}
