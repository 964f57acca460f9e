//! Dropout (Srivastava et al., 2014): while it learns, each number is left out with some chance and the others are made
//! larger by as much, so that answers need no change. Masks come from the job's generator, by shard of rows.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, tensor};
use crate::stage::Stage;
use starlings_core::{Graph, Model, Result, Rng};

pub(super) const LAYER: Layer = Layer {
    name: "dropout",
    usage: "dropout SHARE",
    summary: "leaves out a share of the numbers while it learns (Srivastava et al., 2014)",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let share = words.fraction(site, 0, "share")?;
    Ok(Box::new(Dropout { purpose: format!("dropout {}", site.name), share, form: site.input }))
}

struct Dropout {
    purpose: String,
    share: f64,
    form: Form,
}

impl Stage for Dropout {
    fn output(&self) -> Form {
        self.form
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let width = self.form.len();
        let drawn = pass.drawn(&self.purpose, width, |rng, mask, count| {
            draw(self.share, rng, mask, count);
        });
        let Some(mask) = drawn.filter(|_| self.share > 0.0) else { return input };
        let rows = mask.len() / width;
        let kept = input.flat() * tensor(mask, [rows, width]);
        Flow::shaped(kept, self.form)
    }

    fn draw(&self, _: &mut Graph, input: &str, _: &Model) -> Option<String> {
        Some(input.to_string())
    }
}

/// Appends numbers that are 0 with the given chance (to one in 65,536) and 1/(1 − chance) otherwise: four from each draw.
fn draw(share: f64, rng: &mut Rng, mask: &mut Vec<f32>, count: usize) {
    let limit = (share * 65_536.0).round() as u64;
    let kept = (1.0 / (1.0 - share)) as f32;
    let end = mask.len() + count;
    while mask.len() < end {
        let bits = rng.next_u64();
        for part in 0..(end - mask.len()).min(4) {
            mask.push(if (bits >> (16 * part)) & 0xffff < limit { 0.0 } else { kept });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_keep_the_mean_and_leave_out_their_share() {
        let mut mask = Vec::new();
        draw(0.3, &mut Rng::named(1, "test", &[]), &mut mask, 100_003);
        assert_eq!(mask.len(), 100_003);
        let out = mask.iter().filter(|x| **x == 0.0).count() as f64 / mask.len() as f64;
        let mean = mask.iter().map(|&x| f64::from(x)).sum::<f64>() / mask.len() as f64;
        assert!((out - 0.3).abs() < 0.005 && (mean - 1.0).abs() < 0.01, "{out} {mean}");
    }
}
