//! The failpoints, as `failpoint!` in the sources names them, who reaches each, and what must happen before it is reached.

use std::path::Path;

/// Whom a failpoint is set for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    /// Any worker that was there from the start.
    Worker,
    /// The worker that joined first: it has rank 0.
    First,
    /// A worker that joined later.
    Later,
    /// A worker that comes while the job runs.
    Newcomer,
    /// The coordinator.
    Coordinator,
    /// The coordinator that takes over from a killed one.
    Heir,
    /// A member with a loop of its own (`named_sums`).
    Member,
}

/// What must happen for it to be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum After {
    /// Nothing: every run comes by.
    Nothing,
    /// Members change: another worker is killed, or one joins.
    Change,
    /// A newcomer joins.
    Join,
    /// A job that keeps checkpoints.
    Checkpoints,
    /// A worker is killed in a job that goes back to a checkpoint.
    Restore,
    /// A job with mini-batches loses a worker.
    Owed,
    /// A job of which two workers sum gradients where they use them.
    Late,
    /// A job that folds shard by shard.
    Folds,
    /// A member is lost in the middle of a sum, so that some have its result and others do not.
    Half,
}

/// A failpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    pub(super) name: &'static str,
    pub(super) at: At,
    pub(super) after: After,
    /// It is reached again and again: up to so many visits are passed over.
    pub(super) visits: u64,
}

const fn point(name: &'static str, at: At, after: After, visits: u64) -> Point {
    Point { name, at, after, visits }
}

pub(super) const POINTS: &[Point] = &[
    // A step.
    point("before-contribute", At::Worker, After::Nothing, 60),
    point("after-contribute", At::Worker, After::Nothing, 60),
    point("chunk-sent", At::Worker, After::Nothing, 120),
    point("chunk-arrived", At::Worker, After::Nothing, 120),
    point("before-shared-sum", At::Worker, After::Nothing, 60),
    point("between-sums", At::Worker, After::Folds, 40),
    point("before-apply", At::Worker, After::Nothing, 60),
    point("applied-late", At::Worker, After::Late, 60),
    point("after-apply", At::Worker, After::Nothing, 60),
    point("after-report", At::Worker, After::Nothing, 60),
    point("frame-before", At::Worker, After::Nothing, 200),
    point("frame-after", At::Worker, After::Nothing, 200),
    // The beginning and the end.
    point("join-welcomed", At::Worker, After::Nothing, 1),
    point("join-ready", At::Worker, After::Nothing, 1),
    point("join-assigned", At::Worker, After::Nothing, 1),
    point("join-linked", At::Worker, After::Nothing, 1),
    point("join-loaded", At::Worker, After::Nothing, 1),
    point("wind-up", At::Worker, After::Nothing, 1),
    point("deliver-before", At::First, After::Nothing, 1),
    point("deliver-after", At::First, After::Nothing, 1),
    point("all-done", At::Worker, After::Nothing, 1),
    point("said-goodbye", At::Worker, After::Nothing, 1),
    // Recovery.
    point("regroup-accused", At::Worker, After::Change, 1),
    point("regroup-lineup", At::Worker, After::Change, 1),
    point("regroup-linked", At::Worker, After::Change, 1),
    point("standings-before", At::Worker, After::Change, 1),
    point("standings-after", At::Worker, After::Change, 1),
    point("handover-over", At::Worker, After::Change, 1),
    point("shards-taken", At::Worker, After::Change, 1),
    point("regrouped", At::Worker, After::Change, 1),
    point("settle", At::Worker, After::Owed, 1),
    point("restore-agreed", At::Worker, After::Restore, 1),
    point("handover-sending", At::First, After::Join, 1),
    point("handover-sent", At::First, After::Join, 1),
    // A newcomer.
    point("join-welcomed", At::Newcomer, After::Join, 1),
    point("join-ready", At::Newcomer, After::Join, 1),
    point("join-assigned", At::Newcomer, After::Join, 1),
    point("join-loaded", At::Newcomer, After::Join, 1),
    point("prepared-before", At::Newcomer, After::Join, 1),
    point("prepared-after", At::Newcomer, After::Join, 1),
    point("regroup-lineup", At::Newcomer, After::Join, 1),
    point("standings-after", At::Newcomer, After::Join, 1),
    point("handover-awaited", At::Newcomer, After::Join, 1),
    point("handover-arrived", At::Newcomer, After::Join, 1),
    point("regrouped", At::Newcomer, After::Join, 1),
    // Checkpoints.
    point("checkpoint-cut", At::Worker, After::Checkpoints, 4),
    point("checkpoint-telling", At::Later, After::Checkpoints, 4),
    point("rename-before", At::Worker, After::Checkpoints, 6),
    point("rename-after", At::Worker, After::Checkpoints, 6),
    point("manifest-before", At::First, After::Checkpoints, 4),
    point("manifest-after", At::First, After::Checkpoints, 4),
    // The coordinator. Before its first record nobody knows of it, before the second there is no job.
    point("submitted", At::Coordinator, After::Nothing, 1),
    point("assigning", At::Coordinator, After::Nothing, 2),
    point("journal-synced", At::Coordinator, After::Nothing, 3),
    point("journal-before", At::Coordinator, After::Change, 4),
    point("journal-written", At::Coordinator, After::Change, 4),
    point("journal-synced", At::Coordinator, After::Change, 4),
    point("announcing", At::Coordinator, After::Change, 2),
    point("announced", At::Coordinator, After::Change, 1),
    point("model-received", At::Coordinator, After::Nothing, 1),
    point("model-relayed", At::Coordinator, After::Nothing, 1),
    point("job-done", At::Coordinator, After::Nothing, 1),
    point("resume-read", At::Heir, After::Nothing, 1),
    point("resume-listening", At::Heir, After::Nothing, 1),
    point("resume-returned", At::Heir, After::Nothing, 2),
    // Loops of one's own.
    point("flock-before-sum", At::Member, After::Nothing, 60),
    point("flock-after-sum", At::Member, After::Nothing, 60),
    point("flock-in-hand", At::Member, After::Nothing, 30),
    point("chunk-sent", At::Member, After::Nothing, 120),
    point("chunk-arrived", At::Member, After::Nothing, 120),
    point("flock-ranks", At::Member, After::Change, 1),
    point("flock-handing-over", At::Member, After::Half, 1),
    point("flock-handed-over", At::Member, After::Half, 1),
];

/// Every failpoint of the table is in the sources, and every one of the sources is in the table.
pub(super) fn check_sites(root: &Path) -> Result<(), String> {
    let mut text = String::new();
    gather(&root.join("crates"), &mut text)?;
    let named: Vec<&str> = text
        .split("failpoint!(\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"').map(|it| it.0))
        .collect();
    let missing = POINTS.iter().map(|point| point.name).find(|name| !named.contains(name));
    let unknown = named.iter().find(|name| POINTS.iter().all(|point| point.name != **name));
    match (missing, unknown) {
        (Some(name), _) => Err(format!("no failpoint!(\"{name}\") is in the sources")),
        (_, Some(name)) => Err(format!("failpoint!(\"{name}\") is not in xtask's table")),
        (None, None) => Ok(()),
    }
}

fn gather(folder: &Path, text: &mut String) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            gather(&path, text)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            *text += &std::fs::read_to_string(&path).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_sources_name_the_same_failpoints() {
        check_sites(&crate::project_root()).unwrap();
    }
}
