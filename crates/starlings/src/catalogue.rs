//! All catalogues as plain data, for the command line, documentation and other languages.

use serde::Serialize;
use starlings_codec::CODECS;
use starlings_consistency::CONSISTENCIES;
use starlings_core::{Ability, Entry, Fault, ParamKind, Result, suggestion};
use starlings_data::{PREPARATIONS, SOURCES};
use starlings_engine::choices::learners;
use starlings_engine::combinations::Combinations;
use starlings_engine::launch::LAUNCHERS;
use starlings_engine::rules::RULES;
use starlings_observe::figures;
use starlings_plan::PLANS;
use starlings_topology::TOPOLOGIES;
use starlings_transport::TRANSPORTS;

/// One entry of a catalogue.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Listing {
    /// The family, plural: "learners", "topologies" …
    pub family: &'static str,
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The paper or text that defines it.
    pub reference: &'static str,
    /// Its parameters.
    pub params: Vec<ListedParam>,
    /// What it gives to the other choices.
    pub gives: Vec<Ability>,
    /// What it needs from the other choices.
    pub needs: Vec<Ability>,
}

/// One parameter of an entry.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ListedParam {
    /// Its key in the job file.
    pub name: &'static str,
    /// What it may be, in words.
    pub kind: String,
    /// Its default; absent when it is required.
    pub default: Option<&'static str>,
    /// One sentence.
    pub help: &'static str,
}

const FAMILIES: [&str; 10] = [
    "learners",
    "plans",
    "topologies",
    "consistencies",
    "codecs",
    "rules",
    "transports",
    "launchers",
    "sources",
    "preparations",
];

/// The entries of one family, or of all.
///
/// # Errors
/// An unknown family, with the nearest known one.
pub fn list(family: Option<&str>) -> Result<Vec<Listing>> {
    if let Some(name) = family.filter(|name| !FAMILIES.contains(name)) {
        return Err(
            Fault::caller(format!("there is no family '{name}'")).hint(suggestion(name, &FAMILIES))
        );
    }
    let mut all = Vec::new();
    all.extend(learners().map(|entry| listing("learners", entry)));
    all.extend(PLANS.iter().map(|entry| listing("plans", entry)));
    all.extend(TOPOLOGIES.iter().map(|entry| listing("topologies", entry)));
    all.extend(CONSISTENCIES.iter().map(|entry| listing("consistencies", entry)));
    all.extend(CODECS.iter().map(|entry| listing("codecs", entry)));
    all.extend(RULES.iter().map(|entry| listing("rules", entry)));
    all.extend(TRANSPORTS.iter().map(|entry| listing("transports", entry)));
    all.extend(LAUNCHERS.iter().map(|entry| listing("launchers", entry)));
    all.extend(SOURCES.iter().map(|entry| listing("sources", entry)));
    all.extend(PREPARATIONS.iter().map(|entry| listing("preparations", entry)));
    all.retain(|listing| family.is_none_or(|family| family == listing.family));
    Ok(all)
}

fn listing<B>(family: &'static str, entry: &'static Entry<B>) -> Listing {
    let params = entry.params.iter().map(|param| ListedParam {
        name: param.name,
        kind: kind(&param.kind),
        default: param.default,
        help: param.help,
    });
    Listing {
        family,
        name: entry.name,
        summary: entry.summary,
        reference: entry.reference,
        params: params.collect(),
        gives: entry.gives.to_vec(),
        needs: entry.needs.to_vec(),
    }
}

fn kind(kind: &ParamKind) -> String {
    match kind {
        ParamKind::Float { min, max } => {
            format!("number from {} to {}", figures::number(*min), figures::number(*max))
        }
        ParamKind::Integer { min, max } => format!("whole number from {min} to {max}"),
        ParamKind::Flag => "true or false".to_string(),
        ParamKind::Choice(words) => words.join(" | "),
        ParamKind::Text => "text".to_string(),
        ParamKind::Sizes { min, max } => format!("list of whole numbers from {min} to {max}"),
        ParamKind::Texts => "list of texts".to_string(),
        ParamKind::Table => "table".to_string(),
        ParamKind::Tables => "tables".to_string(),
    }
}

/// The committed tables of combinations as Markdown: which make sense, and why the others do not.
#[must_use]
pub fn combinations_table() -> String {
    let combinations = Combinations::default();
    format!(
        "{} combinations of learner, plan, topology, consistency and codec make sense.\n\n{}",
        combinations.count(),
        combinations.tables()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_summary_is_one_sentence_that_lines_up_with_its_neighbours() {
        for listing in list(None).unwrap() {
            let (name, summary) = (listing.name, listing.summary);
            assert!(summary.starts_with(char::is_uppercase), "{name}: {summary}");
            assert!(!summary.ends_with('.') && summary.len() <= 140, "{name}: {summary}");
        }
    }
}
