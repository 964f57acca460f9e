//! A residual block (He et al., "Deep residual learning for image recognition", 2016, figure 5 left): two convolutions of
//! 3×3 with normalisation, whose output is added to their input. Where sizes differ a convolution of 1×1 stands in the
//! shortcut (option B of the paper).

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stack::Stack;
use crate::stage::{Limb, Parameter, Stage};
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "residual",
    usage: "residual CHANNELS [stride N] [groups N]",
    summary: "two convolutions beside a shortcut (He et al., 2016); normalised by batch, or by groups of channels",
    keys: &["stride", "groups"],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let [inputs, ..] = site.image()?;
    let outputs = words.size(site, 0, "channels")?;
    let stride = words.size_of(site, "stride", 1)?;
    let norm = match words.named("groups") {
        None => "batch-norm".to_string(),
        Some(groups) => format!("group-norm {groups}"),
    };
    let lines = |lines: &[&str]| -> Vec<String> { lines.iter().map(|&line| line.into()).collect() };
    let first = format!("conv {outputs} 3 stride {stride} bias off");
    let second = format!("conv {outputs} 3 bias off");
    let body = lines(&[&first, &norm, "relu", &second, &norm]);
    let beside = match (inputs, stride) == (outputs, 1) {
        true => Vec::new(),
        false => lines(&[&format!("conv {outputs} 1 stride {stride} bias off"), &norm]),
    };
    let inner = |part: &str, lines: &[String]| {
        Stack::named(&format!("{}.{part}", site.name), site.input, lines)
            .map_err(|fault| fault.during(format!("layer {} '{}'", site.number, site.line)))
    };
    let (body, shortcut) = (inner("body", &body)?, inner("shortcut", &beside)?);
    let end = Stack::named(&format!("{}.end", site.name), body.output(), &lines(&["relu"]))?;
    Ok(Box::new(Residual { body, shortcut, end }))
}

struct Residual {
    body: Stack,
    shortcut: Stack,
    end: Stack,
}

impl Stage for Residual {
    fn output(&self) -> Form {
        self.body.output()
    }

    fn parameters(&self) -> Vec<Parameter> {
        [self.body.parameters(), self.shortcut.parameters()].concat()
    }

    fn limbs(&self) -> Vec<Limb<'_>> {
        let shortcut = (self.shortcut.len() > 0).then_some(&self.shortcut);
        vec![Limb::Beside { body: &self.body, shortcut }, Limb::Alone(&self.end)]
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let shortcut = self.shortcut.forward(input.clone(), pass);
        let body = self.body.forward(input, pass);
        self.end.forward(body.plus(shortcut), pass)
    }
}
