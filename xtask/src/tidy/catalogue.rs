//! Catalogues are whole: each file of a catalogue's folder has its `mod` line and its entry line in `mod.rs`, and each
//! entry says who wrote of it. Otherwise a choice exists that no surface can show.

use super::{Complaint, File};
use std::collections::BTreeSet;

/// The folders in which a file is a choice.
const FOLDERS: &[&str] = &[
    "crates/learn/src/learners",
    "crates/nn/src/networks",
    "crates/topology/src/topologies",
    "crates/consistency/src/gates",
    "crates/consistency/src/blends",
    "crates/codec/src/codecs",
    "crates/plan/src/plans",
    "crates/transport/src/transports",
    "crates/data/src/sources",
];

pub(super) fn check(files: &[File]) -> Vec<Complaint> {
    FOLDERS.iter().flat_map(|folder| check_folder(folder, files)).collect()
}

fn check_folder(folder: &str, files: &[File]) -> Vec<Complaint> {
    let prefix = format!("{folder}/");
    let inside: Vec<&File> =
        files.iter().filter(|file| file.is_rust() && file.path.starts_with(&prefix)).collect();
    let list = format!("{folder}/mod.rs");
    let Some(catalogue) = inside.iter().find(|file| file.path == list) else {
        return match inside.is_empty() {
            true => Vec::new(),
            false => vec![Complaint::new(list, "missing: the catalogue of this folder")],
        };
    };
    let choices: BTreeSet<&str> =
        inside.iter().filter_map(|file| choice(&file.path[prefix.len()..])).collect();
    let mut complaints = Vec::new();
    for name in choices {
        if !catalogue.text.lines().any(|line| declares(line, name)) {
            complaints.push(Complaint::new(&list, format!("no line `mod {name};`")));
        }
        if !lists(&catalogue.text, name) {
            complaints
                .push(Complaint::new(&list, format!("no entry `{name}::ENTRY` in the catalogue")));
        }
    }
    for file in inside {
        complaints.extend(entries_without_reference(file));
    }
    complaints
}

/// The choice that a path inside a catalogue's folder belongs to: a file, or a folder with several.
fn choice(path: &str) -> Option<&str> {
    match path.split_once('/') {
        Some((folder, _)) => Some(folder),
        None => path.strip_suffix(".rs").filter(|stem| *stem != "mod"),
    }
}

fn declares(line: &str, name: &str) -> bool {
    let line = line.trim();
    ["mod", "pub mod", "pub(crate) mod", "pub(super) mod"]
        .iter()
        .any(|word| line == format!("{word} {name};"))
}

/// Whether the catalogue has an entry of this file: `ring::ENTRY`, or a constant of another name where one file gives
/// several (`csv::CSV`, `csv::TSV`). The name must be whole: `ring::ENTRY` is not in `spring::ENTRY`.
fn lists(text: &str, name: &str) -> bool {
    let path = format!("{name}::");
    text.match_indices(&path).any(|(at, _)| {
        let is_whole = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let after =
            text[at + path.len()..].split(|c: char| !(c.is_alphanumeric() || c == '_')).next();
        let is_constant = after.is_some_and(|word| !word.is_empty() && word == word.to_uppercase());
        is_whole && is_constant
    })
}

/// The compiler sees to it that an entry has a reference; that it is not empty is for us to see.
fn entries_without_reference(file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (at, _) in file.text.match_indices("reference:") {
        let value = file.text[at + "reference:".len()..].trim_start();
        if value.starts_with("\"\"") {
            let line = file.text[..at].lines().count().saturating_sub(1);
            complaints.push(Complaint::at(
                file,
                line,
                "an entry without a reference: name the paper or text",
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    const FOLDER: &str = "crates/topology/src/topologies";

    fn complaints(catalogue: &str, ring: &str) -> Vec<String> {
        let files = [
            file(&format!("{FOLDER}/mod.rs"), catalogue),
            file(&format!("{FOLDER}/ring.rs"), ring),
        ];
        check(&files).into_iter().map(|complaint| complaint.what).collect()
    }

    #[test]
    fn a_whole_catalogue_has_no_complaint() {
        let catalogue = "mod ring;\nstatic ALL: &[Entry] = &[ring::ENTRY];\n";
        let ring = "const ENTRY: Entry = Entry { reference: \"Baidu, 2017\" };\n";
        assert!(complaints(catalogue, ring).is_empty());
    }

    #[test]
    fn a_file_may_give_several_entries_but_a_type_of_it_is_none() {
        assert!(
            complaints("mod ring;\nstatic ALL: &[Entry] = &[ring::ONE_WAY, ring::TWO_WAY];\n", "")
                .is_empty()
        );
        assert_eq!(complaints("mod ring;\npub use ring::Ring;\n", "").len(), 1);
    }

    #[test]
    fn a_choice_that_no_catalogue_lists_is_caught() {
        let found = complaints("mod spring;\nstatic ALL: &[Entry] = &[spring::ENTRY];\n", "");
        assert_eq!(found, ["no line `mod ring;`", "no entry `ring::ENTRY` in the catalogue"]);
        assert_eq!(
            check(&[file(&format!("{FOLDER}/ring.rs"), "")]).len(),
            1,
            "a folder without mod.rs"
        );
    }

    #[test]
    fn an_entry_without_a_reference_is_caught() {
        let catalogue = "mod ring;\nstatic ALL: &[Entry] = &[ring::ENTRY];\n";
        assert_eq!(
            complaints(
                catalogue,
                "const ENTRY: Entry = Entry {\n    reference:\n        \"\",\n};\n"
            )
            .len(),
            1
        );
    }

    #[test]
    fn a_choice_may_be_a_folder() {
        let files = [
            file(&format!("{FOLDER}/mod.rs"), ""),
            file(&format!("{FOLDER}/grouped/inner.rs"), ""),
        ];
        let found: Vec<String> =
            check(&files).into_iter().map(|complaint| complaint.what).collect();
        assert_eq!(found, ["no line `mod grouped;`", "no entry `grouped::ENTRY` in the catalogue"]);
    }
}
