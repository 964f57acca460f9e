//! The settings under which an entry is checked: its defaults, and each parameter at the values where entries
//! tend to go wrong, one at a time.

use starlings_core::{Entry, ParamKind, Params};

/// Labels and parameters: the defaults first, then every word of a choice, both flags, and the smallest, the
/// largest and another small value of a whole number.
///
/// # Panics
/// If a parameter has no default, or a value within its declared bounds is refused.
#[must_use]
pub fn variants<B>(entry: &Entry<B>) -> Vec<(String, Params)> {
    let mut made = vec![with(entry, None)];
    for param in entry.params {
        let values: Vec<toml::Value> = match param.kind {
            ParamKind::Choice(words) => words.iter().map(|&word| word.into()).collect(),
            ParamKind::Flag => vec![false.into(), true.into()],
            ParamKind::Integer { min, max } => {
                [min, max.min(min + 5), max].map(toml::Value::from).to_vec()
            }
            ParamKind::Float { .. }
            | ParamKind::Text
            | ParamKind::Sizes { .. }
            | ParamKind::Texts
            | ParamKind::Table
            | ParamKind::Tables => Vec::new(),
        };
        made.extend(values.into_iter().map(|value| with(entry, Some((param.name, value)))));
    }
    made
}

fn with<B>(entry: &Entry<B>, set: Option<(&str, toml::Value)>) -> (String, Params) {
    let label = match &set {
        Some((name, value)) => format!("{} with {name} = {value}", entry.name),
        None => entry.name.to_string(),
    };
    let given = set.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    let params = entry.check("entry", &given).expect("declared values are allowed");
    (label, params)
}
