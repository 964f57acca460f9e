//! The lock file names no other registry than crates.io, so that a clone builds anywhere.

use super::{Complaint, File};

const REGISTRY: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub(super) fn check(file: &File) -> Vec<Complaint> {
    if file.name() != "Cargo.lock" {
        return Vec::new();
    }
    let foreign = |line: &&str| line.starts_with("source = ") && *line != REGISTRY;
    let lines = file.text.lines().enumerate().filter(|(_, line)| foreign(line));
    lines
        .map(|(index, line)| {
            Complaint::at(file, index, format!("{line}: only crates.io is allowed"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn a_package_from_elsewhere_is_caught() {
        let good = format!("name = \"ring\"\n{REGISTRY}\n");
        assert!(check(&file("Cargo.lock", &good)).is_empty());
        let bad = format!("{good}source = \"registry+https://mirror.example/index\"\n");
        assert_eq!(check(&file("Cargo.lock", &bad)).len(), 1);
    }
}
