//! The book's tables of parameters say what the program does: every default that is a number or a word is the
//! catalogue's.

use crate::program::starlings;
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

/// Defaults of the entries by this name; several families may have one.
fn defaults_of<'a>(catalogue: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    catalogue.iter().filter(move |entry| entry["name"] == name).map(|entry| &entry["params"])
}

/// The words of a heading that may be names: `### gradient-boosting`, or `` ## `k-means` and `bisecting-k-means` ``.
fn names(heading: &str) -> Vec<&str> {
    let parts = |c: char| !(c.is_alphanumeric() || c == '-');
    heading.split(parts).filter(|word| !word.is_empty()).collect()
}

/// What is in backticks, or all of it where nothing is.
fn words(cell: &str) -> Vec<String> {
    let bare = |word: &str| word.trim_matches('"').to_string();
    let quoted: Vec<String> = cell.split('`').skip(1).step_by(2).map(bare).collect();
    match quoted.is_empty() {
        true => cell.split(", ").map(|word| word.trim().to_string()).collect(),
        false => quoted,
    }
}

fn agree(told: &str, default: &str) -> bool {
    // Learners inside a learner are described, not spelt.
    if default.starts_with(['{', '[']) {
        return default.contains(told);
    }
    match (told.replace(',', "").parse::<f64>(), default.parse::<f64>()) {
        (Ok(told), Ok(default)) => told == default,
        _ => told == default,
    }
}

/// Whether this is a default as the catalogue writes it: one word, and no description of one.
fn is_plain(told: &str) -> bool {
    !told.contains(' ') && told != "required" && told != "none" && !told.contains('\\')
}

#[test]
fn the_defaults_of_the_book_are_those_of_the_catalogue() {
    let folder = tempdir().unwrap();
    let listed = starlings(folder.path(), &["list", "--json"]).out;
    let catalogue: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book");
    let (mut compared, mut wrong) = (0, Vec::new());
    for page in std::fs::read_dir(book).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_none_or(|it| it != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&page).unwrap();
        let (mut heading, mut in_table) = ("", false);
        for line in text.lines() {
            if line.starts_with('#') {
                heading = line;
            }
            in_table =
                line.starts_with("| parameter | default |") || (in_table && line.starts_with('|'));
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if !in_table || cells.len() < 4 || !cells[1].starts_with('`') {
                continue;
            }
            let (params, told) = (words(cells[1]), words(cells[2]));
            if params.len() != told.len() {
                continue;
            }
            let entries = names(heading).into_iter().flat_map(|it| defaults_of(&catalogue, it));
            for known in entries {
                for (param, told) in params.iter().zip(&told).filter(|(_, told)| is_plain(told)) {
                    let known = known.as_array().unwrap().iter().find(|it| it["name"] == **param);
                    let default = known.and_then(|it| it["default"].as_str());
                    compared += 1;
                    if !default.is_some_and(|default| agree(told, default)) {
                        let page = page.display();
                        wrong.push(format!("{page}, {heading}: {param} = {told}, not {default:?}"));
                    }
                }
            }
        }
    }
    assert!(compared > 150, "only {compared} defaults were found");
    assert_eq!(wrong, Vec::<String>::new());
}
