//! The planted bugs, each a small mistake in the protocol that a person could make, and the proof that the simulator sees
//! every one of them (`cargo xtask planted`). Where it is blind, it is the simulator that must be changed.

use super::{Stretch, build, simulate, text};
use crate::chores::compiler_with;
use std::path::Path;

/// A bug is found within so many seeds, or the simulator is blind to it.
const SEEDS_MAX: u64 = 100_000;

/// A planted bug: what `planted!` in the sources calls it, which simulation must find it, and what is wrong.
struct Bug {
    name: &'static str,
    machine: &'static str,
    what: &'static str,
}

const fn bug(name: &'static str, machine: &'static str, what: &'static str) -> Bug {
    Bug { name, machine, what }
}

const BUGS: &[Bug] = &[
    bug("epoch-reused", "surviving", "a new lineup under the number of the old one"),
    bug("fence-open", "surviving", "frames of an older epoch count"),
    bug(
        "old-accusation",
        "surviving",
        "an accusation of an older epoch hits whoever has the seat now",
    ),
    bug("accusations-kept", "surviving", "accusations outlive their epoch"),
    bug("finished-in-lineup", "surviving", "a lineup with a member that is done"),
    bug(
        "finished-elsewhere",
        "surviving",
        "who finished in an older epoch is waited for in the new one",
    ),
    bug("newcomer-after-end", "surviving", "a newcomer gets a seat when the work is done"),
    bug("leaver-stays", "surviving", "a member that was released keeps its seat"),
    bug(
        "lobby-may-not-leave",
        "surviving",
        "a newcomer without a seat wants to leave and is not heard",
    ),
    bug("cut-blames-others", "surviving", "a cut link between two costs a third its seat"),
    bug("silence-ignored", "surviving", "two who do not hear each other wait for ever"),
    bug(
        "silence-kept",
        "surviving",
        "silence outlives its epoch, and hits whoever has the seat now",
    ),
    bug(
        "model-only-with-first",
        "surviving",
        "a model that was lost with the first seat is asked of nobody else",
    ),
    bug("frozen-judged", "surviving", "whoever does not hear one who stands still loses its seat"),
    bug("told-twice", "surviving", "a member that was released is told of the end again"),
    bug("below-minimum", "surviving", "a flock that is too small goes on"),
    bug(
        "minimum-at-end",
        "surviving",
        "those who are left when the work is done wait for more, in vain",
    ),
    bug(
        "short-for-ever",
        "surviving",
        "a flock that is large enough again is given up all the same",
    ),
    bug("never-forgets", "surviving", "the detector goes on watching who is gone"),
    bug("own-pause-counts", "surviving", "silence is judged by a clock that stood still itself"),
    bug("shard-lost", "surviving", "a shard that moves to a newcomer gets lost"),
    bug("shard-dealt-twice", "surviving", "a shard of the dead is dealt to two"),
    bug(
        "last-not-furthest",
        "surviving",
        "those behind take over the last model, not the furthest",
    ),
    bug("behind-ignored", "surviving", "only newcomers get a model, those behind do not"),
    bug(
        "lack-piles-up",
        "surviving",
        "rows that were missing before a second loss count twice after it",
    ),
    bug("owed-forgotten", "surviving", "rows of the dead are never made up for"),
    bug("owed-dealt-twice", "surviving", "rows that were made up for are still owed"),
    bug("epoch-not-durable", "surviving", "the next coordinator begins with the first epoch"),
    bug(
        "since-forgotten",
        "surviving",
        "the next coordinator takes newcomers for members from the start",
    ),
    bug(
        "unaware-seated-twice",
        "surviving",
        "who never heard of its seat is given another by the next coordinator",
    ),
    bug("report-early", "surviving", "a step is reported before all have it"),
    bug("total-added", "merging", "a total is added to what it should replace"),
    bug("chunk-too-short", "merging", "a chunk ends one number before the next begins"),
    bug("done-before-sent", "merging", "a sum is done before its last total is sent"),
    bug("fold-from-self", "collecting", "everyone folds in an order of its own"),
    bug("gate-open", "serving", "a shard answers without asking the gate"),
    bug("half-counts", "serving", "half a contribution counts for a step"),
    bug("shown-before-mirrored", "owning", "an owner shows a step that its backup has not"),
    bug("furthest-owner", "owning", "all go on from the step of the furthest owner"),
    bug("ward-not-undone", "owning", "a backup does not take back the newest mirror"),
];

/// Plants each bug in turn and runs seeds until it is found.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let only = match arguments {
        [] => "",
        [flag, text] if flag == "--only" => text.as_str(),
        _ => return Err("planted takes --only TEXT and nothing else".to_string()),
    };
    check_sites(&sources(&root.join("crates"))?)?;
    let binary = build(root, Some(&compiler_with(root, "planted")?))?;
    let mut survivors = Vec::new();
    println!("| planted bug | what is wrong | found by | after seeds | what broke |");
    println!("|---|---|---|---:|---|");
    for Bug { name, machine, what } in BUGS.iter().filter(|bug| bug.name.contains(only)) {
        let stretch = Stretch { machine, from: 0, seeds: SEEDS_MAX };
        let told = simulate(&binary, stretch, Some(name))?;
        match told["seed"].as_u64() {
            Some(seed) => {
                let broke = gist(text(&told["why"]));
                println!("| `{name}` | {what} | `{machine}` | {} | {broke} |", seed + 1);
            }
            None => survivors.push(*name),
        }
    }
    match survivors.as_slice() {
        [] => Ok(()),
        missed => Err(format!("not found in {SEEDS_MAX} seeds: {}", missed.join(", "))),
    }
}

/// What broke, without the scenario in which it did.
fn gist(why: &str) -> String {
    let why = why.split(" in Scenario").next().unwrap_or(why);
    let why =
        why.strip_prefix("seed ").and_then(|rest| rest.split_once(": ")).map_or(why, |it| it.1);
    let line = why.lines().next().unwrap_or_default();
    line.chars().take(90).collect::<String>().replace('|', "/")
}

/// Every bug of the table is planted in one place, and no other is.
fn check_sites(sources: &[String]) -> Result<(), String> {
    let mut sites: Vec<&str> = Vec::new();
    for source in sources {
        let names = source.split("planted!(\"").skip(1);
        sites.extend(names.filter_map(|rest| rest.split('"').next()));
    }
    for name in &sites {
        if !BUGS.iter().any(|bug| bug.name == *name) {
            return Err(format!("the planted bug '{name}' is not in the table"));
        }
    }
    for Bug { name, .. } in BUGS {
        let count = sites.iter().filter(|site| *site == name).count();
        if count != 1 {
            return Err(format!("the bug '{name}' is planted in {count} places"));
        }
    }
    Ok(())
}

/// All Rust sources below a folder.
fn sources(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            texts.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(std::fs::read_to_string(&path).map_err(failed)?);
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_is_planted_once_and_none_is_unknown() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut texts = sources(&root.join("crates")).unwrap();
        assert_eq!(check_sites(&texts), Ok(()));
        assert!(BUGS.len() >= 20);
        let site = |name: &str| format!("planted!({name:?})");
        texts.push(site("gate-open"));
        assert!(check_sites(&texts).unwrap_err().contains("2 places"));
        assert!(check_sites(&[site("moonlight")]).unwrap_err().contains("moonlight"));
    }

    #[test]
    fn the_gist_of_a_failure_is_what_broke() {
        let why =
            "seed 7: I1: models differ in Scenario { seed: 7 }\nSome((true, 1)) after 2 epochs";
        assert_eq!(gist(why), "I1: models differ");
        assert_eq!(gist("I2: a sum broke: sent chunk 0"), "I2: a sum broke: sent chunk 0");
    }
}
