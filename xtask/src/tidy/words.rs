//! Words that must not be committed: markers of unfinished work, and paths of somebody's machine.

use super::{Complaint, File};

/// Markers of unfinished work, in halves, so that this file passes its own rule.
const MARKERS: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("HA", "CK:"),
    ("todo", "!("),
    ("unimplemented", "!("),
    ("dbg", "!("),
];

/// Folders of one machine.
const PATHS: &[(&str, &str)] = &[("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/"), ("/tm", "p/")];

/// Settings that name a private package registry.
const REGISTRIES: &[(&str, &str)] =
    &[("index", "-url"), ("replace", "-with"), ("artifact", "ory"), ("sparse+", "http")];

pub(super) fn check(file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut in_tests = file.path.contains("tests/") || file.path.starts_with("xtask/");
    for (index, line) in file.text.lines().enumerate() {
        in_tests |= file.is_rust() && line.trim() == "#[cfg(test)]";
        if let Some(marker) = first(line, MARKERS) {
            let what = format!("leftover marker '{marker}': finish it, or write an issue");
            complaints.push(Complaint::at(file, index, what));
        }
        if let Some(path) = first(line, PATHS).filter(|_| !in_tests) {
            let what = format!("'{path}' is a path of one machine: take it as an argument");
            complaints.push(Complaint::at(file, index, what));
        }
        if let Some(setting) = first(line, REGISTRIES) {
            let what = format!(
                "'{setting}' names a registry of one machine: that is the user's own setting"
            );
            complaints.push(Complaint::at(file, index, what));
        }
    }
    complaints
}

/// The first of these words that stands in the line by itself, not as a part of a longer word or path.
fn first(line: &str, words: &[(&str, &str)]) -> Option<String> {
    words.iter().map(|(left, right)| format!("{left}{right}")).find(|word| {
        line.match_indices(word.as_str()).any(|(at, _)| {
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            let open_end = !word.ends_with(|c: char| c.is_alphanumeric());
            !before.is_some_and(is_part) && (open_end || !after.is_some_and(is_part))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn complaints(path: &str, line: &str) -> usize {
        check(&file(path, line)).len()
    }

    #[test]
    fn every_leftover_marker_is_caught() {
        for (left, right) in MARKERS {
            let line = format!("    // {left}{right} later)\n");
            assert_eq!(complaints("crates/a/src/ring.rs", &line), 1, "{line}");
        }
        assert_eq!(complaints("crates/a/src/ring.rs", "the method of lines, to do it well"), 0);
    }

    #[test]
    fn paths_of_a_machine_are_caught_outside_tests() {
        for (left, right) in PATHS {
            let line = format!("let path = \"{left}{right}model\";\n");
            assert_eq!(complaints("crates/a/src/ring.rs", &line), 1, "{line}");
            assert_eq!(complaints("crates/a/tests/ring.rs", &line), 0, "{line}");
            assert_eq!(
                complaints("crates/a/src/ring.rs", &format!("#[cfg(test)]\n{line}")),
                0,
                "{line}"
            );
        }
        assert_eq!(complaints("README.md", "https://example.org/net/workers/ring"), 0);
    }

    #[test]
    fn a_registry_of_a_machine_is_caught() {
        for (left, right) in REGISTRIES {
            assert_eq!(complaints(".cargo/config.toml", &format!("{left}{right} = \"x\"\n")), 1);
        }
    }
}
