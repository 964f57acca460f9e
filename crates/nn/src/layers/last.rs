//! The last step of a sequence: what a recurrent layer knows after all of them.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::Stage;
use starlings_core::Result;

pub(super) const LAYER: Layer =
    Layer { name: "last", usage: "last", summary: "the last step of a sequence", keys: &[], build };

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    let [steps, width] = site.sequence()?;
    Ok(Box::new(Last { steps, width }))
}

struct Last {
    steps: usize,
    width: usize,
}

impl Stage for Last {
    fn output(&self) -> Form {
        Form::Flat(self.width)
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        let rows = input.sequence();
        let count = rows.dims()[0];
        Flow::Flat(rows.narrow(1, self.steps - 1, 1).reshape([count, self.width]))
    }
}
