//! Arrows between crates point down. The allowed edges are written here once and compared with what cargo says, so
//! that a new edge is a change of its own and somebody reads it.

use super::Complaint;
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::path::Path;

/// Which crates of ours a crate may stand on. `dev` edges are free for the test kit alone.
const ALLOWED: &[(&str, &[&str])] = &[
    ("starlings-core", &[]),
    ("starlings-plan", &["starlings-core"]),
    ("starlings-topology", &["starlings-core"]),
    ("starlings-consistency", &["starlings-core"]),
    ("starlings-codec", &["starlings-core"]),
    ("starlings-data", &["starlings-core"]),
    ("starlings-transport", &["starlings-core"]),
    ("starlings-observe", &["starlings-core"]),
    ("starlings-learn", &["starlings-core", "starlings-data"]),
    ("starlings-nn", &["starlings-core", "starlings-data", "starlings-learn"]),
    ("starlings-cluster", &["starlings-core", "starlings-transport"]),
    ("starlings-engine", BELOW_ENGINE),
    ("starlings", BELOW_FRONT_DOOR),
    ("starlings-cli", &["starlings"]),
    ("starlings-testkit", BELOW_FRONT_DOOR),
    ("xtask", &[]),
];

const BELOW_ENGINE: &[&str] = &[
    "starlings-core",
    "starlings-plan",
    "starlings-topology",
    "starlings-consistency",
    "starlings-codec",
    "starlings-data",
    "starlings-transport",
    "starlings-observe",
    "starlings-learn",
    "starlings-nn",
    "starlings-cluster",
];

const BELOW_FRONT_DOOR: &[&str] = &[
    "starlings-core",
    "starlings-plan",
    "starlings-topology",
    "starlings-consistency",
    "starlings-codec",
    "starlings-data",
    "starlings-transport",
    "starlings-observe",
    "starlings-learn",
    "starlings-nn",
    "starlings-cluster",
    "starlings-engine",
];

const TEST_KIT: &str = "starlings-testkit";

/// An edge between two crates of the workspace.
pub(super) struct Edge {
    from: String,
    to: String,
    is_dev: bool,
}

/// The edges that cargo knows, and an edge from each crate to itself so that a crate without edges is seen too.
pub(super) fn edges(root: &Path) -> Result<Vec<Edge>, String> {
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml")).no_deps();
    let metadata = command.exec().map_err(|why| format!("cargo metadata: {why}"))?;
    let ours: Vec<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let mut edges = Vec::new();
    for package in &metadata.packages {
        let from = package.name.to_string();
        edges.push(Edge { from: from.clone(), to: from.clone(), is_dev: false });
        for dependency in
            package.dependencies.iter().filter(|dependency| ours.contains(&dependency.name))
        {
            let is_dev = dependency.kind == DependencyKind::Development;
            edges.push(Edge { from: from.clone(), to: dependency.name.clone(), is_dev });
        }
    }
    Ok(edges)
}

pub(super) fn check(edges: &[Edge]) -> Vec<Complaint> {
    edges.iter().filter_map(complaint).collect()
}

fn complaint(edge: &Edge) -> Option<Complaint> {
    let Edge { from, to, is_dev } = edge;
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == from) else {
        return (from == to)
            .then(|| Complaint::new(from, "a crate without a place in xtask/src/tidy/arrows.rs"));
    };
    let fine = from == to || allowed.contains(&to.as_str()) || (*is_dev && to == TEST_KIT);
    (!fine).then(|| {
        Complaint::new(
            from,
            format!("may not depend on {to}: arrows point down (see ARCHITECTURE.md)"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(from: &str, to: &str, is_dev: bool) -> bool {
        check(&[Edge { from: from.to_string(), to: to.to_string(), is_dev }]).is_empty()
    }

    #[test]
    fn an_upward_edge_is_caught() {
        assert!(allowed("starlings-engine", "starlings-codec", false));
        assert!(!allowed("starlings-codec", "starlings-engine", false));
        assert!(!allowed("starlings-codec", "starlings-topology", false));
        assert!(
            !allowed("starlings-cli", "starlings-engine", false),
            "the binary uses only the front door"
        );
        assert!(!allowed("xtask", "starlings", false));
    }

    #[test]
    fn the_test_kit_is_only_for_tests() {
        assert!(allowed("starlings-learn", TEST_KIT, true));
        assert!(!allowed("starlings-learn", TEST_KIT, false));
        assert!(!allowed("starlings-learn", "starlings-engine", true));
    }

    #[test]
    fn a_crate_that_nobody_placed_is_caught() {
        assert!(!allowed("starlings-magic", "starlings-magic", false));
        assert!(allowed("starlings-core", "starlings-core", false));
    }

    #[test]
    fn the_allowed_edges_themselves_have_no_circle() {
        // Each crate stands only on crates listed before it, so that the list is an order of all.
        for (index, (name, below)) in ALLOWED.iter().enumerate() {
            let before: Vec<&str> = ALLOWED[..index].iter().map(|(name, _)| *name).collect();
            assert!(below.iter().all(|crate_below| before.contains(crate_below)), "{name}");
        }
    }
}
