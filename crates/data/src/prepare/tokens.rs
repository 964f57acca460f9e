//! Words of texts and runs of consecutive words. A word is two or more letters, digits or underscores in a row, as
//! scikit-learn's vectorizers cut texts.

use starlings_core::{Fault, Param, ParamKind, Params, Result};
use std::collections::BTreeMap;

pub(super) const LOWERCASE: Param = Param {
    name: "lowercase",
    kind: ParamKind::Flag,
    default: Some("true"),
    help: "whether capitals are small letters",
};

pub(super) const N_GRAM_MIN: Param = words("n_gram_min", "fewest consecutive words of a term");
pub(super) const N_GRAM_MAX: Param = words("n_gram_max", "most consecutive words of a term");

const fn words(name: &'static str, help: &'static str) -> Param {
    Param { name, kind: ParamKind::Integer { min: 1, max: 10 }, default: Some("1"), help }
}

pub(super) const NORM: Param = Param {
    name: "norm",
    kind: ParamKind::Choice(&["l2", "l1", "none"]),
    default: Some("l2"),
    help: "what of a document becomes 1: its length, the sum of its magnitudes, or nothing",
};

/// How texts are cut into terms.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Cut {
    lowercase: bool,
    shortest: usize,
    longest: usize,
}

impl Cut {
    pub(super) fn of(params: &Params) -> Result<Cut> {
        let (shortest, longest) = (params.size("n_gram_min"), params.size("n_gram_max"));
        if shortest > longest {
            return Err(Fault::caller("n_gram_min must not be above n_gram_max"));
        }
        Ok(Cut { lowercase: params.flag("lowercase"), shortest, longest })
    }

    /// How often each term comes in a text.
    pub(super) fn count(&self, text: &str) -> BTreeMap<String, u32> {
        let lower;
        let text = match self.lowercase {
            true => {
                lower = text.to_lowercase();
                &lower
            }
            false => text,
        };
        let part = |character: char| character.is_alphanumeric() || character == '_';
        let words: Vec<&str> = text
            .split(|character| !part(character))
            .filter(|word| word.chars().nth(1).is_some())
            .collect();
        let mut counts = BTreeMap::new();
        for length in self.shortest..=self.longest {
            for run in words.windows(length) {
                *counts.entry(run.join(" ")).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// What of a document becomes 1.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub(super) enum Norm {
    Length,
    Sum,
    Nothing,
}

impl Norm {
    pub(super) fn of(params: &Params) -> Norm {
        match params.text("norm") {
            "l2" => Norm::Length,
            "l1" => Norm::Sum,
            _ => Norm::Nothing,
        }
    }

    /// The entries of a row, scaled.
    pub(super) fn scaled(self, row: &mut [(u32, f64)]) -> impl Iterator<Item = (u32, f32)> + '_ {
        let size = match self {
            Norm::Length => row.iter().map(|entry| entry.1 * entry.1).sum::<f64>().sqrt(),
            Norm::Sum => row.iter().map(|entry| entry.1.abs()).sum(),
            Norm::Nothing => 1.0,
        };
        let by = if size > 0.0 { 1.0 / size } else { 1.0 };
        row.iter().filter(|entry| entry.1 != 0.0).map(move |entry| (entry.0, (entry.1 * by) as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_two_letters_and_runs_are_joined() {
        let cut = Cut { lowercase: true, shortest: 1, longest: 2 };
        let terms: Vec<(String, u32)> = cut.count("A red Fox, a RED fox_1 !").into_iter().collect();
        let expected = [
            ("fox", 1),
            ("fox red", 1),
            ("fox_1", 1),
            ("red", 2),
            ("red fox", 1),
            ("red fox_1", 1),
        ];
        assert_eq!(terms, expected.map(|(term, count)| (term.to_string(), count)));
        assert!(cut.count("").is_empty());
    }
}
