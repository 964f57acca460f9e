//! Rules on the form of a source file: it says what it is, it has one idea, and its name says which.

use super::{Complaint, File};

/// Above this a file has more than one idea.
const LINES_MAX: usize = 800;

/// Names that say nothing of what is inside, so that everything gravitates there.
const VAGUE: &[&str] = &["utils", "util", "helpers", "helper", "misc", "common", "base"];

pub(super) fn check(file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let stem = file.name().split('.').next().unwrap_or_default();
    let folders = file.path.rsplit_once('/').map_or("", |(folders, _)| folders);
    if (file.is_rust() && VAGUE.contains(&stem))
        || folders.split('/').any(|folder| VAGUE.contains(&folder))
    {
        let what = "the name says nothing of what is inside: name the idea";
        complaints.push(Complaint::new(&file.path, what));
    }
    if !file.is_rust() {
        return complaints;
    }
    if !file.text.starts_with("//! ") {
        let what = "open with `//!`: what this is, why, and the paper";
        complaints.push(Complaint::at(file, 0, what));
    }
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let what = format!("{lines} lines, above {LINES_MAX}: split it by idea");
        complaints.push(Complaint::new(&file.path, what));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn a_source_without_a_first_line_is_caught() {
        assert_eq!(check(&file("crates/a/src/ring.rs", "use std::fmt;\n")).len(), 1);
        assert!(check(&file("crates/a/src/ring.rs", "//! Ring.\nuse std::fmt;\n")).is_empty());
        assert!(check(&file("notes.md", "no header wanted\n")).is_empty());
    }

    #[test]
    fn a_long_source_is_caught() {
        let lines = |many: usize| format!("//! Long.\n{}", "\n".repeat(many - 1));
        assert!(check(&file("a.rs", &lines(LINES_MAX))).is_empty());
        assert_eq!(check(&file("a.rs", &lines(LINES_MAX + 1))).len(), 1);
    }

    #[test]
    fn a_name_that_says_nothing_is_caught() {
        assert_eq!(check(&file("crates/a/src/utils.rs", "//! Things.\n")).len(), 1);
        assert_eq!(check(&file("crates/a/src/common/ring.rs", "//! Ring.\n")).len(), 1);
        assert!(check(&file("crates/a/src/baseline.rs", "//! Baseline.\n")).is_empty());
    }
}
