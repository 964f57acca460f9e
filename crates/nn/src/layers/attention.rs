//! Attention (Vaswani et al., "Attention is all you need", 2017): each step mixes the steps of its sequence by how well
//! its query fits their keys, in several heads; with `causal` it looks back only. `transformer` is the block that
//! alternates it with two linear layers, normalised before each (Xiong et al., "On layer normalization in the
//! transformer architecture", 2020).

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, tensor};
use crate::stack::Stack;
use crate::stage::{Care, Limb, Parameter, Stage, Start};
use burn_tensor::{Tensor, activation, module};
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "attention",
    usage: "attention HEADS [causal]",
    summary: "steps mix by how well queries fit keys (Vaswani et al., 2017)",
    keys: &[],
    build,
};

pub(super) const TRANSFORMER: Layer = Layer {
    name: "transformer",
    usage: "transformer HEADS [causal] [dropout SHARE]",
    summary: "attention, then two linear layers, each beside a shortcut (Vaswani et al., 2017; Xiong et al., 2020)",
    keys: &["dropout"],
    build: transformer,
};

/// What a later step adds to a score so that it counts nothing.
const HIDDEN: f32 = -1e30;

/// Whether it looks back only.
fn is_causal(site: &Site<'_>, words: &Words<'_>) -> Result<bool> {
    match words.plain(1) {
        None => Ok(false),
        Some("causal") => Ok(true),
        Some(other) => Err(site.refuse(format!("has '{other}', which may only be 'causal'"))),
    }
}

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 2)?;
    let [steps, width] = site.sequence()?;
    let heads = words.size(site, 0, "heads")?;
    let causal = is_causal(site, words)?;
    if !width.is_multiple_of(heads) {
        return Err(site
            .refuse(format!("cannot cut a width of {width} into {heads} heads"))
            .hint("choose a number of heads that divides the width"));
    }
    let (part, parts) = site.share;
    let own = (width / parts, heads / parts);
    let name = site.name.clone();
    Ok(Box::new(Attention { name, steps, width, own, causal, shifts: part == 0 }))
}

struct Attention {
    name: String,
    steps: usize,
    width: usize,
    /// Numbers of all heads that are computed here, and how many heads: some, where workers share them.
    own: (usize, usize),
    causal: bool,
    /// Whether the bias of the output is added here: workers that share the heads add it once.
    shifts: bool,
}

impl Attention {
    /// What is added to scores so that no step sees a later one.
    fn mask(&self) -> Tensor<4> {
        let steps = self.steps;
        let at = |at: usize| if at % steps > at / steps { HIDDEN } else { 0.0 };
        tensor((0..steps * steps).map(at).collect(), [1, 1, steps, steps])
    }
}

impl Stage for Attention {
    fn output(&self) -> Form {
        Form::Sequence { steps: self.steps, width: self.width }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let (start, own) = (Start::fan_in(self.width), self.own.0);
        let parameter = |part: &str, shape: Vec<usize>, care| Parameter {
            name: format!("{}.{part}", self.name),
            shape,
            start,
            care,
        };
        let mut all = vec![
            parameter("weight", vec![self.width, 3 * own], Care::Matrix),
            parameter("bias", vec![3 * own], Care::Vector),
            parameter("output", vec![own, self.width], Care::Matrix),
        ];
        let bias = parameter("output_bias", vec![self.width], Care::Vector);
        all.extend(self.shifts.then_some(bias));
        all
    }

    /// Queries, keys and values, and in each head how much every step counts for every other.
    fn inside(&self) -> u64 {
        let ((own, heads), steps) = (self.own, self.steps as u64);
        let shares = steps.saturating_mul(steps).saturating_mul(heads as u64);
        shares.saturating_add(steps.saturating_mul(3 * own as u64))
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let rows = input.sequence();
        let (count, steps, width) = (rows.dims()[0], self.steps, self.width);
        let (own, heads) = self.own;
        let line = |part: &str| pass.line(&format!("{}.{part}", self.name));
        let joint =
            module::linear(rows, line("weight").reshape([width, 3 * own]), Some(line("bias")));
        let [query, key, value] = [0, 1, 2].map(|at| {
            let part = joint.clone().narrow(2, at * own, own);
            part.reshape([count, steps, heads, own / heads]).swap_dims(1, 2)
        });
        let scale = 1.0 / ((own / heads) as f64).sqrt();
        let mut scores = query.matmul(key.swap_dims(2, 3)) * scale;
        if self.causal {
            scores = scores + self.mask();
        }
        let mixed = activation::softmax(scores, 3).matmul(value);
        let mixed = mixed.swap_dims(1, 2).reshape([count, steps, own]);
        let output = line("output").reshape([own, width]);
        Flow::Sequence(module::linear(mixed, output, self.shifts.then(|| line("output_bias"))))
    }
}

fn transformer(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 2)?;
    let [_, width] = site.sequence()?;
    let heads = words.size(site, 0, "heads")?;
    let causal = if is_causal(site, words)? { " causal" } else { "" };
    let inner = |part: &str, lines: &[String]| {
        let dropout = words.named("dropout").map(|share| format!("dropout {share}"));
        let lines: Vec<String> = lines.iter().cloned().chain(dropout).collect();
        Stack::named(&format!("{}.{part}", site.name), site.input, &lines)
            .map_err(|fault| fault.during(format!("layer {} '{}'", site.number, site.line)))
    };
    let norm = || "layer-norm".to_string();
    let mix = inner("mix", &[norm(), format!("attention {heads}{causal}")])?;
    let wide = format!("linear {}", 4 * width);
    let think = inner("think", &[norm(), wide, "gelu".to_string(), format!("linear {width}")])?;
    Ok(Box::new(Transformer { mix, think }))
}

struct Transformer {
    mix: Stack,
    think: Stack,
}

impl Stage for Transformer {
    fn output(&self) -> Form {
        self.think.output()
    }

    fn parameters(&self) -> Vec<Parameter> {
        [self.mix.parameters(), self.think.parameters()].concat()
    }

    fn limbs(&self) -> Vec<Limb<'_>> {
        [&self.mix, &self.think].map(|body| Limb::Beside { body, shortcut: None }).into()
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let rows = input.clone().sequence() + self.mix.forward(input, pass).sequence();
        let thought = self.think.forward(Flow::Sequence(rows.clone()), pass).sequence();
        Flow::Sequence(rows + thought)
    }
}
