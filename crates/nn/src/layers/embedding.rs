//! Embedding (Bengio et al., "A neural probabilistic language model", 2003): each number of a row is a token, and each
//! token has a vector that is learned. `position` adds a learned vector for each place in the sequence.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::{Care, Parameter, Stage, Start};
use burn_tensor::module;
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "embedding",
    usage: "embedding TOKENS WIDTH",
    summary: "a learned vector for each token (Bengio et al., 2003)",
    keys: &[],
    build,
};

pub(super) const POSITION: Layer = Layer {
    name: "position",
    usage: "position",
    summary: "adds a learned vector for each place (Gehring et al., 2017)",
    keys: &[],
    build: position,
};

/// What vectors start from, as in GPT-2.
const START: Start = Start::Normal(0.02);

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 2)?;
    let Form::Flat(steps) = site.input else {
        return Err(site.refuse(format!("wants tokens and gets {}", site.input)));
    };
    let (tokens, width) = (words.size(site, 0, "tokens")?, words.size(site, 1, "width")?);
    Ok(Box::new(Embedding { name: site.name.clone(), steps, tokens, width }))
}

struct Embedding {
    name: String,
    steps: usize,
    tokens: usize,
    width: usize,
}

impl Stage for Embedding {
    fn output(&self) -> Form {
        Form::Sequence { steps: self.steps, width: self.width }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let name = format!("{}.weight", self.name);
        vec![Parameter {
            name,
            shape: vec![self.tokens, self.width],
            start: START,
            care: Care::Vector,
        }]
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let vectors = pass.weight(&format!("{}.weight", self.name), [self.tokens, self.width]);
        // Rows are checked before they come here; a sequence of another network's making may be none.
        let tokens = input.flat().clamp(0.0, (self.tokens - 1) as f64).int();
        Flow::Sequence(module::embedding(vectors, tokens))
    }
}

fn position(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    let [steps, width] = site.sequence()?;
    Ok(Box::new(Position { name: site.name.clone(), steps, width }))
}

struct Position {
    name: String,
    steps: usize,
    width: usize,
}

impl Stage for Position {
    fn output(&self) -> Form {
        Form::Sequence { steps: self.steps, width: self.width }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let name = format!("{}.weight", self.name);
        let shape = vec![self.steps, self.width];
        vec![Parameter { name, shape, start: START, care: Care::Vector }]
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let vectors = pass.weight(&format!("{}.weight", self.name), [1, self.steps, self.width]);
        Flow::Sequence(input.sequence() + vectors)
    }
}
