//! Parameters of a catalogue entry: declared once beside the entry, checked once at the edge, then read
//! without further questions. The command line, the documentation and tuning read the same declarations.

use crate::{Fault, Result, suggestion};
use std::collections::BTreeMap;

/// What a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A number within bounds (inclusive).
    Float {
        /// Smallest value allowed.
        min: f64,
        /// Largest value allowed.
        max: f64,
    },
    /// A whole number within bounds (inclusive).
    Integer {
        /// Smallest value allowed.
        min: i64,
        /// Largest value allowed.
        max: i64,
    },
    /// true or false.
    Flag,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// A list of whole numbers within bounds (inclusive): `[512, 256]`.
    Sizes {
        /// Smallest value allowed.
        min: i64,
        /// Largest value allowed.
        max: i64,
    },
    /// A list of texts: `["conv 32", "relu"]`.
    Texts,
    /// A table of its own: `[learner.base]`.
    Table,
    /// Several tables: `[[learner.members]]`.
    Tables,
}

/// One declared parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its key in the job file.
    pub name: &'static str,
    /// What it may be.
    pub kind: ParamKind,
    /// The default, written as in a job file; `None` makes it required.
    pub default: Option<&'static str>,
    /// One sentence for people.
    pub help: &'static str,
}

/// Checked parameters: every declared key is present and of its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params {
    values: BTreeMap<&'static str, toml::Value>,
}

impl Params {
    /// Checks a table of a job file against declarations. `at` names the place for messages, such as
    /// `[learner] k-means`.
    ///
    /// # Errors
    /// An unknown key (with the nearest known one), a wrong type, a value out of bounds or a missing key.
    pub fn check(at: &str, given: &toml::Table, declared: &'static [Param]) -> Result<Params> {
        for key in given.keys() {
            if !declared.iter().any(|param| param.name == key) {
                let known: Vec<&str> = declared.iter().map(|param| param.name).collect();
                let hint = match known.is_empty() {
                    true => "it takes no parameters".to_string(),
                    false => suggestion(key, &known),
                };
                return Err(Fault::caller(format!("{at}: unknown key '{key}'")).hint(hint));
            }
        }
        let mut values = BTreeMap::new();
        for param in declared {
            let value = match (given.get(param.name), param.default) {
                (Some(value), _) => value.clone(),
                (None, Some(text)) => parse_default(param, text),
                (None, None) => {
                    return Err(Fault::caller(format!("{at}: '{}' is missing", param.name))
                        .hint(format!("{}: {}", param.name, param.help)));
                }
            };
            values.insert(param.name, checked(at, param, value)?);
        }
        Ok(Params { values })
    }

    /// All defaults of an entry.
    ///
    /// # Errors
    /// If a parameter has no default.
    pub fn defaults(declared: &'static [Param]) -> Result<Params> {
        Params::check("defaults", &toml::Table::new(), declared)
    }

    /// A number.
    ///
    /// # Panics
    /// If the entry did not declare it so: a bug in the entry, caught by its conformance run.
    #[must_use]
    pub fn f64(&self, name: &str) -> f64 {
        self.value(name).as_float().expect("declared as Float")
    }

    /// A whole number.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn i64(&self, name: &str) -> i64 {
        self.value(name).as_integer().expect("declared as Integer")
    }

    /// A whole number that is a size. Declare such parameters with `min: 0` or more.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn size(&self, name: &str) -> usize {
        usize::try_from(self.i64(name)).expect("declared with min >= 0")
    }

    /// true or false.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.value(name).as_bool().expect("declared as Flag")
    }

    /// A word or text.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.value(name).as_str().expect("declared as Choice or Text")
    }

    /// A list of whole numbers that are sizes. Declare such parameters with `min: 0` or more.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn sizes(&self, name: &str) -> Vec<usize> {
        let values = self.value(name).as_array().expect("declared as Sizes").iter();
        let size = |value: &toml::Value| value.as_integer().and_then(|x| usize::try_from(x).ok());
        values.map(|value| size(value).expect("checked as sizes")).collect()
    }

    /// A list of texts.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn texts(&self, name: &str) -> Vec<&str> {
        let values = self.value(name).as_array().expect("declared as Texts").iter();
        values.map(|value| value.as_str().expect("checked as texts")).collect()
    }

    /// A table.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn table(&self, name: &str) -> &toml::Table {
        self.value(name).as_table().expect("declared as Table")
    }

    /// Several tables.
    ///
    /// # Panics
    /// If the entry did not declare it so.
    #[must_use]
    pub fn tables(&self, name: &str) -> Vec<&toml::Table> {
        let tables = self.value(name).as_array().expect("declared as Tables");
        tables.iter().map(|table| table.as_table().expect("checked to be tables")).collect()
    }

    /// As a table again, for the model file and for workers of the same job.
    #[must_use]
    pub fn to_table(&self) -> toml::Table {
        self.values.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect()
    }

    fn value(&self, name: &str) -> &toml::Value {
        self.values.get(name).unwrap_or_else(|| panic!("parameter '{name}' was never declared"))
    }
}

fn parse_default(param: &Param, text: &str) -> toml::Value {
    match param.kind {
        ParamKind::Choice(_) | ParamKind::Text => toml::Value::String(text.to_string()),
        _ => text.parse().unwrap_or_else(|_| panic!("default of '{}' does not parse", param.name)),
    }
}

fn checked(at: &str, param: &Param, value: toml::Value) -> Result<toml::Value> {
    let wrong = |expected: String| {
        Fault::caller(format!("{at}: {} = {value} is not allowed", param.name))
            .hint(format!("expected {expected}: {}", param.help))
    };
    match param.kind {
        ParamKind::Float { min, max } => {
            let number = match &value {
                toml::Value::Float(number) => Some(*number),
                toml::Value::Integer(number) => Some(*number as f64),
                _ => None,
            };
            match number {
                Some(number) if number >= min && number <= max => Ok(toml::Value::Float(number)),
                _ => Err(wrong(format!("a number from {min} to {max}"))),
            }
        }
        ParamKind::Integer { min, max } => match value.as_integer() {
            Some(number) if (min..=max).contains(&number) => Ok(value),
            _ => Err(wrong(format!("a whole number from {min} to {max}"))),
        },
        ParamKind::Flag => match value.as_bool() {
            Some(_) => Ok(value),
            None => Err(wrong("true or false".to_string())),
        },
        ParamKind::Choice(words) => match value.as_str() {
            Some(word) if words.contains(&word) => Ok(value),
            _ => Err(wrong(format!("one of {}", words.join(", ")))),
        },
        ParamKind::Text => match value.as_str() {
            Some(_) => Ok(value),
            None => Err(wrong("text".to_string())),
        },
        ParamKind::Sizes { min, max } => {
            let fits = |size: &toml::Value| {
                size.as_integer().is_some_and(|size| (min..=max).contains(&size))
            };
            match value.as_array() {
                Some(sizes) if sizes.iter().all(fits) => Ok(value),
                _ => Err(wrong(format!("a list of whole numbers from {min} to {max}"))),
            }
        }
        ParamKind::Texts => match value.as_array() {
            Some(texts) if texts.iter().all(toml::Value::is_str) => Ok(value),
            _ => Err(wrong("a list of texts".to_string())),
        },
        ParamKind::Table => match value.is_table() {
            true => Ok(value),
            false => Err(wrong(format!("a table [learner.{}]", param.name))),
        },
        ParamKind::Tables => match &value {
            toml::Value::Array(tables) if tables.iter().all(toml::Value::is_table) => Ok(value),
            _ => Err(wrong(format!("tables, each written [[learner.{}]]", param.name))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Param] = &[
        Param {
            name: "l2",
            kind: ParamKind::Float { min: 0.0, max: 1e9 },
            default: Some("0.0"),
            help: "ridge",
        },
        Param {
            name: "solver",
            kind: ParamKind::Choice(&["sgd", "adam"]),
            default: Some("sgd"),
            help: "how",
        },
        Param {
            name: "k",
            kind: ParamKind::Integer { min: 1, max: 10 },
            default: None,
            help: "clusters",
        },
        Param {
            name: "hidden",
            kind: ParamKind::Sizes { min: 1, max: 100 },
            default: Some("[64, 32]"),
            help: "widths",
        },
        Param {
            name: "layers",
            kind: ParamKind::Texts,
            default: Some("[]"),
            help: "what follows what",
        },
    ];

    fn check(text: &str) -> Result<Params> {
        Params::check("[learner] test", &text.parse().unwrap(), DECLARED)
    }

    #[test]
    fn defaults_fill_in_and_integers_serve_as_numbers() {
        let params = check("k = 3\nl2 = 1").unwrap();
        assert_eq!((params.size("k"), params.f64("l2"), params.text("solver")), (3, 1.0, "sgd"));
    }

    #[test]
    fn lists_are_checked_number_by_number() {
        let params = check("k = 3\nlayers = ['conv 32', 'relu']").unwrap();
        assert_eq!(params.sizes("hidden"), [64, 32]);
        assert_eq!(params.texts("layers"), ["conv 32", "relu"]);
        for wrong in ["hidden = [64, 0]", "hidden = [64, 'a']", "hidden = 64", "layers = [1]"] {
            let fault = check(&format!("k = 3\n{wrong}")).unwrap_err().to_string();
            assert!(fault.contains("is not allowed") && fault.contains("a list of"), "{fault}");
        }
    }

    #[test]
    fn refusals_name_the_key_and_what_is_allowed() {
        let unknown = check("k = 3\nsovler = 'adam'").unwrap_err().to_string();
        assert!(unknown.contains("'sovler'") && unknown.contains("'solver'"), "{unknown}");
        let wrong = check("k = 30").unwrap_err().to_string();
        assert!(wrong.contains("k = 30") && wrong.contains("from 1 to 10"), "{wrong}");
        let missing = check("").unwrap_err().to_string();
        assert!(missing.contains("'k' is missing"), "{missing}");
        assert!(check("k = 3\nsolver = 'x'").is_err());
    }
}
