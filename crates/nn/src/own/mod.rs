//! Layers of a job's own: `[[layer]]` gives a name to a computation, written in lines of a small language over values
//! (rows on their way, and weights), and `layers` may then use that name as any other. That one composes new layers out
//! of operations instead of writing code is the point of TensorFlow (Abadi et al., "TensorFlow: a system for
//! large-scale machine learning", 2016, section 2.1).
//!
//! ```toml
//! [[layer]]
//! name = "gated"
//! sizes = ["hidden"]
//! compute = [
//!   "gate = silu(linear(input, hidden))",
//!   "linear(gate * linear(input, hidden), width)",
//! ]
//! ```

mod compile;
mod expression;
mod shape;
mod stage;
mod word;

use crate::layers::{self, Site};
use crate::stage::Stage;
use expression::Expression;
use starlings_core::{Fault, Result};

/// The layers that a job defines.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnLayers {
    layers: Vec<OwnLayer>,
}

/// None.
pub(crate) static NO_LAYERS: OwnLayers = OwnLayers { layers: Vec::new() };

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct OwnLayer {
    name: String,
    /// The words that follow its name in a line, in order.
    sizes: Vec<String>,
    lines: Vec<Line>,
}

/// One line of its computation.
#[derive(Clone, Debug)]
struct Line {
    text: String,
    /// What its value is called; nothing on the last.
    name: Option<String>,
    value: Expression,
}

/// The names that a job cannot give to values or sizes: the row itself and its own sizes.
const TAKEN: &[&str] = &["input", "width", "steps", "channels", "height"];

impl OwnLayers {
    /// From the tables of a job file.
    ///
    /// # Errors
    /// A table without name or computation, a name that is taken, a line that is not understood.
    pub(crate) fn parse(tables: &[&toml::Table]) -> Result<OwnLayers> {
        let mut found = OwnLayers::default();
        for table in tables {
            let layer = OwnLayer::parse(table)?;
            let taken = layers::layers().iter().any(|known| known.name == layer.name);
            if taken || found.find(&layer.name).is_some() {
                return Err(Fault::caller(format!("[[layer]] name '{}' is taken", layer.name))
                    .hint("give each layer a name of its own"));
            }
            found.knows_what_it_calls(&layer)?;
            found.layers.push(layer);
        }
        Ok(found)
    }

    /// Refuses a layer that calls what is neither of the catalogue nor defined before it: so none can call itself.
    fn knows_what_it_calls(&self, layer: &OwnLayer) -> Result<()> {
        for line in &layer.lines {
            let mut calls = Vec::new();
            line.value.calls(&mut calls);
            for call in calls {
                let name = call.split_whitespace().next().unwrap_or_default();
                if !layers::is_known(name, self) {
                    let known = layers::layers().iter().map(|layer| layer.name);
                    let known: Vec<&str> = known.chain(self.names()).collect();
                    return Err(Fault::caller(format!(
                        "[[layer]] {}: compute '{}': '{name}' is neither a layer nor a function",
                        layer.name, line.text
                    ))
                    .hint(expression::nearest(name, &known)));
                }
            }
        }
        Ok(())
    }

    /// A layer by name.
    pub(crate) fn find(&self, name: &str) -> Option<&OwnLayer> {
        self.layers.iter().find(|layer| layer.name == name)
    }

    /// All names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| layer.name.as_str())
    }

    /// Whether the layer of a line keeps means of what it sees: batch normalisation, at whatever depth.
    pub(crate) fn tracks(&self, line: &str) -> bool {
        let name = line.split_whitespace().next().unwrap_or_default();
        match self.find(name) {
            Some(layer) => {
                let mut calls = Vec::new();
                layer.lines.iter().for_each(|line| line.value.calls(&mut calls));
                calls.iter().any(|call| call != name && self.tracks(call))
            }
            None => name == "batch-norm" || (name == "residual" && !line.contains("groups")),
        }
    }
}

impl OwnLayer {
    fn parse(table: &toml::Table) -> Result<OwnLayer> {
        let name = table.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        if !word::is_name(name) {
            return Err(Fault::caller(format!("[[layer]] name = \"{name}\" is no name"))
                .hint("write name = \"gated\" below [[layer]]: letters, digits and hyphens"));
        }
        let refuse = |what: String| Fault::caller(format!("[[layer]] {name}: {what}"));
        let known = ["name", "sizes", "compute"];
        if let Some(other) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(refuse(format!("'{other}' is unknown"))
                .hint(starlings_core::suggestion(other, &known)));
        }
        let sizes = texts(table, "sizes").map_err(&refuse)?;
        if let Some(bad) = sizes.iter().find(|size| !word::is_name(size) || is_taken(size)) {
            return Err(refuse(format!("'{bad}' cannot be the name of a size")));
        }
        let texts = texts(table, "compute").map_err(&refuse)?;
        if texts.is_empty() {
            return Err(refuse("computes nothing".to_string()).hint(
                "write compute = [\"relu(linear(input, 8))\"]; the last line is the output",
            ));
        }
        let count = texts.len();
        let lines = texts.into_iter().enumerate().map(|(at, text)| {
            Line::parse(text, at + 1 == count)
                .map_err(|fault| fault.during(format!("[[layer]] {name}")))
        });
        Ok(OwnLayer { name: name.to_string(), sizes, lines: lines.collect::<Result<_>>()? })
    }

    /// Builds it where it stands.
    ///
    /// # Errors
    /// Words that do not fit its sizes; values that do not fit each other, with the line and their sizes.
    pub(crate) fn build(&self, site: &Site<'_>) -> Result<Box<dyn Stage>> {
        let given: Vec<&str> = site.line.split_whitespace().skip(1).collect();
        if given.len() != self.sizes.len() {
            let usage = format!("{} {}", self.name, self.sizes.join(" ").to_uppercase());
            return Err(site
                .refuse(format!("has {} sizes instead of {}", given.len(), self.sizes.len()))
                .hint(usage));
        }
        let mut sizes = Vec::new();
        for (name, word) in self.sizes.iter().zip(given) {
            let size = word.parse().ok().filter(|&size: &usize| (1..=1 << 24).contains(&size));
            let size = size.ok_or_else(|| {
                site.refuse(format!(
                    "has '{word}' for the {name}, which is no whole number from 1 up"
                ))
            })?;
            sizes.push((name.as_str(), size));
        }
        compile::stage(self, site, sizes)
    }
}

impl Line {
    fn parse(text: String, last: bool) -> Result<Line> {
        let (name, value) = match text.split_once('=') {
            None => (None, text.as_str()),
            Some((name, value)) => (Some(name.trim().to_string()), value),
        };
        let refuse = |what: &str| Fault::caller(format!("compute '{text}': {what}"));
        match &name {
            Some(name) if !word::is_name(name) || is_taken(name) => {
                return Err(refuse(&format!("'{name}' cannot be the name of a value")));
            }
            None if !last => {
                return Err(refuse("the value has no name, so nothing could use it")
                    .hint("write name = … on each line but the last"));
            }
            _ => {}
        }
        let value = Expression::parse(value).map_err(|what| refuse(&what))?;
        Ok(Line { text, name, value })
    }
}

fn is_taken(name: &str) -> bool {
    TAKEN.contains(&name)
}

/// A list of texts of a table; none where it is not there.
fn texts(table: &toml::Table, key: &str) -> std::result::Result<Vec<String>, String> {
    let wrong = || format!("{key} is not a list of texts");
    let Some(value) = table.get(key) else { return Ok(Vec::new()) };
    let values = value.as_array().ok_or_else(wrong)?;
    values.iter().map(|value| value.as_str().map(str::to_string).ok_or_else(wrong)).collect()
}
