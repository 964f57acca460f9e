//! What a run was and what came of it, for people.

use crate::figures;
use starlings_core::{Report, Spread};
use std::collections::BTreeMap;

/// The report in a few aligned lines.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut lines = vec![("objective", figures::number(report.objective))];
    if !report.metrics.is_empty() {
        lines.push(("training rows", metrics(&report.metrics)));
    }
    if !report.evaluation.is_empty() {
        lines.push(("test rows", metrics(&report.evaluation)));
    }
    if let Some(found) = &report.validation {
        let one = |(name, spread): (&String, &Spread)| {
            format!(
                "{name} {} ± {}",
                figures::number(spread.mean),
                figures::number(spread.deviation)
            )
        };
        let shown = found.metrics.iter().filter(|(name, _)| !DETAILS.contains(&name.as_str()));
        let text = shown.map(one).collect::<Vec<_>>().join(" · ");
        lines.push(("validation", format!("{text} ({} folds)", found.folds.len())));
    }
    lines.push(("work", work(report)));
    lines.push(("speed", speed(report)));
    lines.push(("exchanged", exchanged(report)));
    if report.dropped > 0 {
        lines.push(("dropped", format!("{} late contributions", report.dropped)));
    }
    for straggler in &report.stragglers {
        lines.push(("straggler", straggler.clone()));
    }
    if !report.faults.is_empty() {
        lines.push(("faults", report.faults.len().to_string()));
    }
    if let Some(model) = &report.model {
        lines.push(("model", model.clone()));
    }
    let wide = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let title = format!(
        "{} is trained: {} × {} × {} × {}, {} {}{} ({})\n",
        report.learner,
        report.plan,
        report.topology,
        report.consistency,
        report.codec,
        report.workers,
        if report.workers == 1 { "worker" } else { "workers" },
        match report.workers_max > report.workers {
            true => format!(" at the end, {} at most", report.workers_max),
            false => String::new(),
        },
        report.launcher
    );
    lines.iter().fold(title, |text, (name, value)| text + &format!("  {name:wide$}  {value}\n"))
}

/// Metrics that a line has no room for: `starlings evaluate` and the report show them.
const DETAILS: [&str; 6] =
    ["auc_weighted", "f1_macro", "f1_weighted", "brier", "calibration_error", "silhouette_squared"];

/// `accuracy 0.97 · log_loss 0.12`.
#[must_use]
pub(crate) fn metrics(metrics: &BTreeMap<String, f64>) -> String {
    let shown = metrics.iter().filter(|(name, _)| !DETAILS.contains(&name.as_str()));
    let one = |(name, value): (&String, &f64)| format!("{name} {}", figures::number(*value));
    shown.map(one).collect::<Vec<_>>().join(" · ")
}

fn work(report: &Report) -> String {
    let epochs = figures::number((report.epochs * 100.0).round() / 100.0);
    format!(
        "{} steps · {epochs} passes · {} rows",
        figures::count(report.steps),
        figures::count(report.samples)
    )
}

fn speed(report: &Report) -> String {
    format!(
        "{} (loading {}) · {} rows/s",
        figures::duration(report.seconds),
        figures::duration(report.load_seconds),
        figures::rate(report.samples_per_second)
    )
}

fn exchanged(report: &Report) -> String {
    match (report.bytes_sent, report.bytes_raw) {
        (0, _) => "nothing".to_string(),
        (sent, raw) if raw > sent => {
            let saved = raw as f64 / sent as f64;
            format!("{} ({saved:.1} times less than raw)", figures::bytes(sent))
        }
        (sent, _) => figures::bytes(sent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flock_that_has_shrunk_tells_how_many_it_was() {
        let report = Report { workers: 2, workers_max: 3, ..Report::default() };
        assert!(summary(&report).contains("2 workers at the end, 3 at most ("));
        let report = Report { workers: 3, workers_max: 3, ..Report::default() };
        assert!(summary(&report).contains(", 3 workers ("));
    }

    #[test]
    fn the_summary_is_aligned_and_leaves_out_what_there_is_not() {
        let report = Report {
            learner: "k-means".to_string(),
            plan: "data-parallel".to_string(),
            topology: "ring".to_string(),
            consistency: "bsp".to_string(),
            codec: "half".to_string(),
            launcher: "threads".to_string(),
            workers: 1,
            objective: 0.5,
            steps: 1200,
            epochs: 12.004,
            samples: 12_000,
            seconds: 2.0,
            samples_per_second: 6000.0,
            bytes_sent: 1 << 20,
            bytes_raw: 2 << 20,
            metrics: BTreeMap::from([("inertia".to_string(), 0.5)]),
            ..Report::default()
        };
        assert_eq!(
            summary(&report),
            "k-means is trained: data-parallel × ring × bsp × half, 1 worker (threads)\n  \
             objective      0.5\n  \
             training rows  inertia 0.5\n  \
             work           1,200 steps · 12 passes · 12,000 rows\n  \
             speed          2.0 s (loading 0 µs) · 6.00 k rows/s\n  \
             exchanged      1.00 MB (2.0 times less than raw)\n"
        );
    }
}
