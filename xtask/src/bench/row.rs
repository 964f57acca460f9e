//! Rows and their two forms: a table for people and JSON for programs. A row is one of our measurements divided by one
//! peer's in the same case; above 1 we are faster.

use super::machine::Machine;
use super::scaling::{Limits, Scaling, Traffic};
use super::turns::{Figures, Measured, median};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// All that a run found.
#[derive(Default)]
pub(super) struct Outcome {
    rows: Vec<Row>,
    /// What is missing and why, one sentence each.
    skipped: Vec<String>,
    failures: usize,
    limits: Option<Limits>,
    scalings: Vec<Scaling>,
}

/// One of ours against one peer.
struct Row {
    case: String,
    ours: (String, Figures),
    peer: (String, Figures),
}

impl Row {
    fn ratio(&self) -> f64 {
        self.peer.1.seconds / self.ours.1.seconds
    }

    /// The median of the rounds' own ratios: an hour in which the machine becomes slower hits both sides of each alike.
    fn ratio_in_turns(&self) -> f64 {
        let each = |(_, figures): &(String, Figures)| figures.seconds_each.clone();
        let pairs = each(&self.peer).into_iter().zip(each(&self.ours));
        median(pairs.map(|(peer, ours)| peer / ours).collect())
    }
}

impl Outcome {
    /// Enters a case: every measurement of ours against every peer's.
    pub(super) fn enter(&mut self, case: &str, ours: &[Measured], peers: &[Measured]) {
        for measured in ours.iter().chain(peers) {
            if let Err(why) = &measured.result {
                self.skip(format!("{case}: {}: {why}", measured.name));
            }
        }
        self.failures += ours.iter().filter(|measured| measured.result.is_err()).count();
        for one in ours {
            for peer in peers {
                if let (Ok(a), Ok(b)) = (&one.result, &peer.result) {
                    let ours = (one.name.clone(), a.clone());
                    let peer = (peer.name.clone(), b.clone());
                    self.rows.push(Row { case: case.to_string(), ours, peer });
                }
            }
        }
    }

    /// Enters what a second worker brought in a case, of whose rows each has so many bytes in memory.
    pub(super) fn scale(&mut self, case: &str, ours: &[Measured], traffic: Traffic) {
        let limits = *self.limits.get_or_insert_with(Limits::measure);
        self.scalings.extend(limits.compare(case, ours, traffic));
    }

    /// Notes what was not measured.
    pub(super) fn skip(&mut self, what: String) {
        eprintln!("skipped: {what}");
        self.skipped.push(what);
    }

    /// How many of our own measurements failed.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }
}

/// Writes both forms into a folder of this run's own.
pub(super) fn write(
    folder: &Path,
    machine: &Machine,
    outcome: &Outcome,
    is_quick: bool,
) -> Result<(), String> {
    let rows = serde_json::to_string_pretty(&rows(machine, outcome, is_quick))
        .map_err(|why| why.to_string())?;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    write("table.md", &table(machine, outcome, is_quick))?;
    write("rows.json", &(rows + "\n"))
}

/// The table for people.
pub(super) fn table(machine: &Machine, outcome: &Outcome, is_quick: bool) -> String {
    let mut text = format!("# Benchmarks of {}\n\n{}\n\n", machine.date, machine.sentence());
    if is_quick {
        text.push_str("A quick run: it shows that the suite runs, and proves nothing.\n\n");
    }
    text.push_str(
        "Ratio: the peer's time divided by ours in the same run; above 1 we are faster. Loading ",
    );
    text.push_str(
        "and start-up are not in it. In turns: the median of the rounds' own ratios.\n\n",
    );
    text.push_str("| case | ours | seconds | peer | seconds | ratio | in turns | memory | quality, ours | quality, peer | rounds |\n");
    text.push_str("|---|---|---:|---|---:|---:|---:|---:|---|---|---|\n");
    for row in &outcome.rows {
        let ((ours, a), (peer, b)) = (&row.ours, &row.peer);
        let _ = writeln!(
            text,
            "| {} | {ours} | {} | {peer} | {} | {:.2} | {:.3} | {} | {} | {} | {} / {} |",
            row.case,
            time(a.seconds),
            time(b.seconds),
            row.ratio(),
            row.ratio_in_turns(),
            memory(a, b),
            quality(&a.detail),
            quality(&b.detail),
            a.rounds,
            b.rounds,
        );
    }
    text.push_str(&scaled(outcome));
    for what in &outcome.skipped {
        let _ = writeln!(text, "\nSkipped: {what}");
    }
    text
}

/// Two workers of one thread against one, and what the machine allows.
fn scaled(outcome: &Outcome) -> String {
    let Some(limits) = outcome.limits.filter(|_| !outcome.scalings.is_empty()) else {
        return String::new();
    };
    let mut text = format!("\nTwo workers of one thread against one. {}\n\n", limits.sentence());
    text.push_str("| case | times faster | allowed | what binds | share of it | of the bandwidth, one worker |\n");
    text.push_str("|---|---:|---:|---|---:|---:|\n");
    outcome.scalings.iter().for_each(|scaling| text.push_str(&(scaling.line() + "\n")));
    text
}

/// The most memory of both, in megabytes.
fn memory(ours: &Figures, peer: &Figures) -> String {
    let side = |figures: &Figures| {
        figures.megabytes.map_or("?".to_string(), |megabytes| format!("{megabytes:.0}"))
    };
    format!("{} / {} MB", side(ours), side(peer))
}

fn rows(machine: &Machine, outcome: &Outcome, is_quick: bool) -> Value {
    let side = |(name, figures): &(String, Figures)| {
        json!({
            "name": name,
            "seconds": figures.seconds,
            "seconds_each": figures.seconds_each,
            "seconds_min": figures.seconds_min,
            "wall_seconds": figures.wall_seconds,
            "rounds": figures.rounds,
            "megabytes": figures.megabytes,
            "detail": figures.detail,
        })
    };
    let rows = outcome.rows.iter().map(|row| {
        json!({
            "case": row.case,
            "ours": side(&row.ours),
            "peer": side(&row.peer),
            "ratio": row.ratio(),
            "ratio_in_turns": row.ratio_in_turns(),
        })
    });
    json!({
        "machine": machine.json(),
        "quick": is_quick,
        "rows": rows.collect::<Vec<_>>(),
        "limits": outcome.limits.map(|limits| limits.json()),
        "scaling": outcome.scalings.iter().map(Scaling::json).collect::<Vec<_>>(),
        "skipped": outcome.skipped,
    })
}

/// Three figures and a unit that suits.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.3} ms", s * 1e3),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// What the result was worth: a speed without it is no measurement.
fn quality(detail: &Value) -> String {
    if let Some(rate) = detail["gigabytes_per_second"].as_f64() {
        return format!("{rate:.3} GB/s");
    }
    let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
    let mut parts = Vec::new();
    if let Some(objective) = number(&detail["objective"]) {
        parts.push(format!("objective {objective:.7}"));
    }
    for (place, mark) in [("metrics", ""), ("evaluation", "test ")] {
        for name in ["inertia", "accuracy", "auc", "rmse"] {
            if let Some(value) = number(&detail[place][name]) {
                parts.push(format!("{mark}{name} {value:.5}"));
            }
        }
    }
    if let Some(iterations) = number(&detail["iterations"]).or_else(|| number(&detail["epochs"])) {
        parts.push(format!("{iterations} iterations"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, seconds: f64) -> Measured {
        let detail = json!({"seconds": seconds, "objective": 0.25, "metrics": {"accuracy": 0.9}});
        let wall_seconds = seconds + 1.0;
        let (rounds, megabytes) = (5, Some(100.0));
        let figures = Figures {
            seconds,
            seconds_each: vec![seconds],
            seconds_min: seconds,
            wall_seconds,
            rounds,
            detail,
            megabytes,
        };
        Measured { name: name.to_string(), result: Ok(figures) }
    }

    #[test]
    fn a_row_is_a_ratio_against_a_named_peer() {
        let mut outcome = Outcome::default();
        outcome.enter("k-means", &[measured("starlings", 1.0)], &[measured("scikit-learn", 3.0)]);
        let machine = Machine::example();
        let text = table(&machine, &outcome, false);
        let row = "| k-means | starlings | 1.00 s | scikit-learn | 3.00 s | 3.00 | 3.000 | 100 / 100 MB | \
                   objective 0.2500000, accuracy 0.90000 | objective 0.2500000, accuracy 0.90000 | 5 / 5 |";
        assert!(text.contains(row), "{text}");
        let value = rows(&machine, &outcome, false);
        assert_eq!(value["rows"][0]["ratio"], 3.0);
        assert_eq!(value["rows"][0]["peer"]["name"], "scikit-learn");
    }

    #[test]
    fn ratios_in_turns_are_those_of_the_rounds() {
        // The machine became three times slower after the first round; the peer takes a tenth more in each.
        let side = |each: [f64; 3]| {
            let Measured { name, result } = measured("one", super::median(each.to_vec()));
            (name, Figures { seconds_each: each.to_vec(), ..result.unwrap() })
        };
        let (ours, peer) = (side([1.0, 3.0, 3.1]), side([1.1, 3.3, 3.41]));
        let row = Row { case: String::new(), ours, peer };
        assert!((row.ratio_in_turns() - 1.1).abs() < 1e-12);
    }

    #[test]
    fn a_missing_peer_is_said_and_our_own_failure_counts() {
        let missing = Measured { name: "Spark".to_string(), result: Err("no java".to_string()) };
        let mut outcome = Outcome::default();
        outcome.enter("k-means", &[measured("starlings", 1.0)], std::slice::from_ref(&missing));
        assert_eq!(outcome.failures(), 0);
        assert!(
            table(&Machine::example(), &outcome, true).contains("Skipped: k-means: Spark: no java")
        );
        outcome.enter("k-means", &[missing], &[measured("scikit-learn", 1.0)]);
        assert_eq!((outcome.failures(), outcome.rows.len()), (1, 0));
    }
}
