//! What came of many runs: counts, stalls and the 95 % bound, kept in `bench/chaos.json` and told in `bench/chaos.md`.

use super::scenario::Family;
use crate::bench::machine;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// What came of one run.
pub(super) struct Line {
    pub(super) seed: u64,
    pub(super) family: Family,
    pub(super) workers: usize,
    pub(super) armed: Option<&'static str>,
    pub(super) reached: bool,
    /// What stalled it, and for how many seconds.
    pub(super) stall: Option<(&'static str, f64)>,
    pub(super) sums: u64,
    pub(super) failure: Option<String>,
}

/// With 95 % confidence the probability is below this, if it happened in none of `runs` (the rule of three).
pub(super) fn bound(runs: usize) -> f64 {
    if runs == 0 { 1.0 } else { (3.0 / runs as f64).min(1.0) }
}

/// The campaign as data.
pub(super) fn campaign(lines: &[Line], minutes: f64, side_by_side: u64) -> Value {
    let machine = machine::describe(None).json();
    let families: serde_json::Map<String, Value> = Family::ALL
        .iter()
        .map(|&family| (family.name().to_string(), tally(lines, |line| line.family == family)))
        .collect();
    let mut stalls = serde_json::Map::new();
    for kind in ["kill", "freeze", "coordinator"] {
        for workers in [2, 3, 4, 8] {
            let seconds = lines.iter().filter(|line| line.workers == workers);
            let seconds = seconds.filter_map(|line| line.stall.filter(|it| it.0 == kind));
            let seconds: Vec<f64> = seconds.map(|it| it.1).collect();
            if !seconds.is_empty() {
                stalls.insert(format!("{kind} of {workers}"), quantiles(seconds));
            }
        }
    }
    let mut points: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for line in lines {
        if let Some(point) = line.armed {
            let counts = points.entry(point).or_default();
            counts[0] += 1;
            counts[1] += usize::from(line.reached);
        }
    }
    let failures: Vec<Value> = lines
        .iter()
        .filter_map(|line| Some(json!({"seed": line.seed, "why": line.failure.as_ref()?})))
        .collect();
    let seeds = lines.iter().map(|line| line.seed);
    json!({
        "commit": machine["versions"]["commit"],
        "machine": machine,
        "from": seeds.clone().min(),
        "to": seeds.max(),
        "minutes": (minutes * 10.0).round() / 10.0,
        "side_by_side": side_by_side,
        "runs": lines.len(),
        "sums": lines.iter().map(|line| line.sums).sum::<u64>(),
        "families": families,
        "points": points,
        "stalls": stalls,
        "failures": failures,
    })
}

fn tally(lines: &[Line], mine: impl Fn(&Line) -> bool) -> Value {
    let mine: Vec<&Line> = lines.iter().filter(|line| mine(line)).collect();
    let failed = mine.iter().filter(|line| line.failure.is_some()).count();
    json!({"runs": mine.len(), "failures": failed})
}

pub(super) fn quantiles(mut seconds: Vec<f64>) -> Value {
    seconds.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = ((seconds.len() as f64 * part).ceil() as usize).clamp(1, seconds.len()) - 1;
        (seconds[index] * 1e3).round() / 1e3
    };
    json!({"losses": seconds.len(), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0)})
}

/// Adds a campaign to the record and writes its page.
pub(super) fn record(root: &Path, campaign: &Value) -> Result<(), String> {
    let all = add(&root.join("bench/chaos.json"), campaign)?;
    let name = "bench/chaos.md";
    std::fs::write(root.join(name), page(&all)).map_err(|why| format!("{name}: {why}"))
}

/// Adds a line to a record, and gives all of them.
pub(super) fn add(path: &Path, line: &Value) -> Result<Vec<Value>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let mut all: Vec<Value> = match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|why| failed(&why))?,
        Err(_) => Vec::new(),
    };
    all.push(line.clone());
    let lines: Vec<String> = all.iter().map(|line| format!("  {line}")).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(path, text).map_err(|why| failed(&why))?;
    Ok(all)
}

/// For people: all campaigns together, then the last one.
pub(super) fn page(all: &[Value]) -> String {
    let mut text = "# Real processes under kills, freezes and lost coordinators\n\n\
        Written by `cargo xtask chaos --record`. A failure is a hang, an exit code that says so, a wrong sum, a committed step \
        that is lost or told twice, a row that is used twice or not at all, a model of other bits than an undisturbed run's \
        where bits are promised, a worker taken for dead that was not, or a process left behind.\n\n\
        ## All campaigns\n\n\
        | date | commit | seeds | runs | sums | failures | minutes |\n|---|---|---|---:|---:|---:|---:|\n"
        .to_string();
    for campaign in all {
        let failures = campaign["failures"].as_array().map_or(0, Vec::len);
        text += &format!(
            "| {} | {} | {}–{} | {} | {} | {failures} | {} |\n",
            campaign["machine"]["date"].as_str().unwrap_or("?"),
            campaign["commit"].as_str().unwrap_or("?"),
            campaign["from"],
            campaign["to"],
            campaign["runs"],
            campaign["sums"],
            campaign["minutes"],
        );
    }
    // Runs one at a time tell how long a loss takes, and are too few to tell how often one goes wrong.
    let (alone, together): (Vec<&Value>, Vec<&Value>) =
        all.iter().partition(|campaign| campaign["side_by_side"] == 1);
    if let Some(&last) = alone.last() {
        text += &format!(
            "\n## One run at a time\n\n{}, {} cores, nothing beside it. {} runs, {} failures.\n\n{}",
            last["machine"]["processor"].as_str().unwrap_or("?"),
            last["machine"]["cores"],
            last["runs"],
            last["failures"].as_array().map_or(0, Vec::len),
            stalls(last, "Stalls of the last such campaign, in seconds."),
        );
    }
    let Some(&last) = together.last() else { return text };
    text += &format!(
        "\n## The last of the others\n\n{}, {} cores.\n\n\
         | runs | number | failures | 95 % bound |\n|---|---:|---:|---|\n",
        last["machine"]["processor"].as_str().unwrap_or("?"),
        last["machine"]["cores"],
    );
    for (name, counts) in last["families"].as_object().into_iter().flatten() {
        let (runs, failures) = (counts["runs"].as_u64().unwrap_or(0), &counts["failures"]);
        let bound = match failures.as_u64() {
            Some(0) => format!("< {:.2} %", 100.0 * bound(runs as usize)),
            _ => "–".to_string(),
        };
        text += &format!("| {name} | {runs} | {failures} | {bound} |\n");
    }
    text += "\n";
    text += &stalls(
        last,
        "Stalls: the longest gap between two committed steps (or sums) of a run less the usual gap, in seconds. Several runs \
         were played at a time, so that these are upper ends and no more.",
    );
    text += "\n| failpoint | set | reached |\n|---|---:|---:|\n";
    for (name, counts) in last["points"].as_object().into_iter().flatten() {
        text += &format!("| `{name}` | {} | {} |\n", counts[0], counts[1]);
    }
    text + "\nA point that only delays is not counted as reached; some are passed by a job that ends first.\n"
}

fn stalls(campaign: &Value, note: &str) -> String {
    let mut text =
        format!("{note}\n\n| loss | runs | p50 | p99 | max |\n|---|---:|---:|---:|---:|\n");
    for (name, it) in campaign["stalls"].as_object().into_iter().flatten() {
        text += &format!(
            "| {name} | {} | {} | {} | {} |\n",
            it["losses"], it["p50"], it["p99"], it["max"]
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_bounds_are_those_of_the_book() {
        let found = quantiles((1..=100).map(f64::from).collect());
        assert_eq!((&found["p50"], &found["p99"]), (&json!(50.0), &json!(99.0)));
        assert_eq!(quantiles(vec![0.25])["max"], json!(0.25));
        assert!((bound(1_000) - 0.003).abs() < 1e-12);
        assert_eq!(bound(0), 1.0);
    }

    #[test]
    fn runs_one_at_a_time_stand_beside_the_campaign_and_not_in_its_place() {
        let line = |stall| Line {
            seed: 1,
            family: Family::Kills,
            workers: 2,
            armed: None,
            reached: false,
            stall: Some(("kill", stall)),
            sums: 0,
            failure: None,
        };
        let many = campaign(&[line(0.5), line(0.5)], 1.0, 3);
        let alone = campaign(&[line(0.25)], 1.0, 1);
        let text = page(&[many.clone(), alone]);
        let at = |part: &str| text.find(part).expect(part);
        assert!(at("## One run at a time") < at("| kill of 2 | 1 | 0.25 |"));
        assert!(at("| kill of 2 | 1 | 0.25 |") < at("| kill of 2 | 2 | 0.5 |"));
        assert!(!page(&[many]).contains("One run at a time"));
    }
}
