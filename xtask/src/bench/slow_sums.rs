//! What it costs that a sum survives the loss of a worker, over links of a network's speed: sums that do beside sums that do not,
//! in turns. On one machine's loopback they are compared by the rows of the all-reduce; workers there share memory instead.

use super::namespaces::Namespaces;
use super::sheet::{Finding, Sheet, number};
use super::slow_links::{flock, load};
use super::turns::median;
use super::{Study, Suite};
use serde_json::Value;

pub(super) const STUDY: Study = Study { name: "surviving-sums", run };

/// A name and bits a second.
const RATES: &[(&str, u64)] = &[("1 Gbit/s", 1_000_000_000), ("10 Gbit/s", 10_000_000_000)];
/// What is summed, and how many sums a run times.
const SIZES: &[(&str, &str)] = &[("4MB", "40"), ("64MB", "8"), ("256MB", "5")];
const ROUNDS: usize = 13;
/// What it may cost at most.
const GOAL: f64 = 0.03;

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let (mut finding, mut rows) = (Finding::default(), Vec::new());
    for &(rate, bits_per_second) in RATES.iter().filter(|rate| suite.wants(rate.0)) {
        let namespaces = Namespaces::new(bits_per_second)?;
        for size in SIZES.iter().take(if suite.is_quick { 1 } else { SIZES.len() }) {
            match compared(suite, &namespaces, size) {
                Ok((plain, surviving)) => {
                    let cost = surviving / plain - 1.0;
                    eprintln!("  {rate}, {}: {:.1} %", size.0, 100.0 * cost);
                    rows.push(vec![
                        rate.to_string(),
                        size.0.to_string(),
                        number(Some(1e3 * plain), 2),
                        number(Some(1e3 * surviving), 2),
                        format!("{:.1} %", 100.0 * cost),
                        if cost < GOAL { "yes" } else { "no" }.to_string(),
                    ]);
                }
                Err(why) => finding.skip(format!("{rate}, {}: {why}", size.0)),
            }
        }
    }
    let notes = vec![format!(
        "Two workers, one on each side of a link that lets so much through (a token bucket), inside TLS as between hosts; both on \
         this machine's cores. Medians of {ROUNDS} runs in turns, each of which is a median of its sums. Load of the machine at \
         the end: {}.",
        load()
    )];
    let header =
        vec!["link", "sum of f32", "lost with a worker, ms", "survives, ms", "cost", "< 3 %"];
    let title = "Sums that survive a loss, over links".to_string();
    finding.sheets.push(("surviving-sums".to_string(), Sheet { title, notes, header, rows }));
    Ok(finding)
}

/// Median seconds of sums that are lost with a worker and of those that survive.
fn compared(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    size: &(&str, &str),
) -> Result<(f64, f64), String> {
    let (mut plain, mut surviving) = (Vec::new(), Vec::new());
    for _ in 0..if suite.is_quick { 1 } else { ROUNDS } {
        plain.push(summed(suite, namespaces, size, false)?);
        surviving.push(summed(suite, namespaces, size, true)?);
    }
    Ok((median(plain), median(surviving)))
}

fn summed(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    (bytes, repeats): &(&str, &str),
    survives: bool,
) -> Result<f64, String> {
    let said = flock(suite, namespaces, |bench, place, ticket| {
        bench.args(["bench", "all-reduce", "--workers", "2", "--launcher", "flock", "--at", place]);
        bench.arg("--ticket").arg(ticket).args(["--bytes", bytes, "--repeats", repeats]);
        bench.args(["--transport", "tcp", "--json"]);
        bench.args(survives.then_some("--survive"));
    })?;
    let told: Value = serde_json::from_str(&said).map_err(|why| format!("{why}: {said}"))?;
    told["median_seconds"].as_f64().ok_or_else(|| format!("no median in {said}"))
}
