//! Takes each row as plain numbers. Linear layers do so by themselves; of a sequence they take each step by itself, and
//! then this stands before them.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::Stage;
use starlings_core::{Graph, Model, Result};

pub(super) const LAYER: Layer = Layer {
    name: "flatten",
    usage: "flatten",
    summary: "takes each row as plain numbers",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    Ok(Box::new(Flatten(site.input.len())))
}

struct Flatten(usize);

impl Stage for Flatten {
    fn output(&self) -> Form {
        Form::Flat(self.0)
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        Flow::Flat(input.flat())
    }

    fn draw(&self, _: &mut Graph, input: &str, _: &Model) -> Option<String> {
        Some(input.to_string())
    }
}
