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
const SIZES: &[(&str, &str)] = &[("4MB", "40"), ("64MB", "8"), ("256MB", "3")];
const ROUNDS: usize = 31;
/// What it may cost at most.
const GOAL: f64 = 0.03;

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let (mut finding, mut rows) = (Finding::default(), Vec::new());
    for &(rate, bits_per_second) in RATES.iter().filter(|rate| suite.wants(rate.0)) {
        let namespaces = Namespaces::new(bits_per_second)?;
        for size in SIZES.iter().take(if suite.is_quick { 1 } else { SIZES.len() }) {
            match compared(suite, &namespaces, size) {
                Ok(seconds) => {
                    let mut row = vec![rate.to_string(), size.0.to_string()];
                    for [plain, surviving] in &seconds {
                        let ratios = surviving.iter().zip(plain).map(|(one, other)| one / other);
                        let cost = median(ratios.collect()) - 1.0;
                        row.push(number(Some(1e3 * median(plain.clone())), 2));
                        row.push(number(Some(1e3 * median(surviving.clone())), 2));
                        row.push(format!("{:.1} %", 100.0 * cost));
                        row.push(if cost < GOAL { "yes" } else { "no" }.to_string());
                    }
                    eprintln!("  {}", row.join(", "));
                    rows.push(row);
                }
                Err(why) => finding.skip(format!("{rate}, {}: {why}", size.0)),
            }
        }
    }
    let notes = vec![format!(
        "Two workers, one on each side of a link that lets so much through (a token bucket), inside TLS as between hosts; both on \
         this machine's cores. Medians of {ROUNDS} runs in turns, each of which is a median of its sums; costs are medians of \
         the rounds' own. Load of the machine at the end: {}.",
        load()
    )];
    let mut header = vec!["link", "sum of f32"];
    header.extend(["into other memory, lost with a worker, ms", "surviving, ms", "cost", "< 3 %"]);
    header.extend(["made again, lost with a worker, ms", "surviving, ms", "cost", "< 3 %"]);
    let title = "Sums that survive a loss, over links".to_string();
    finding.sheets.push(("surviving-sums".to_string(), Sheet { title, notes, header, rows }));
    Ok(finding)
}

/// Seconds of each round, of sums that are lost with a worker and of those that survive: into other memory, where contributions
/// stay as they are, and in place, where they can be made again. Every other round is from the last to the first.
fn compared(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    size: &(&str, &str),
) -> Result<[[Vec<f64>; 2]; 2], String> {
    let mut seconds = [const { [const { Vec::new() }; 2] }; 2];
    for round in 0..if suite.is_quick { 1 } else { ROUNDS } {
        let mut order: [(usize, usize, &[&str]); 4] = [
            (0, 0, &["--beside"]),
            (0, 1, &["--beside", "--survive"]),
            (1, 0, &[]),
            (1, 1, &["--survive"]),
        ];
        if round % 2 == 1 {
            order.reverse();
        }
        for (way, survives, flags) in order {
            seconds[way][survives].push(summed(suite, namespaces, size, flags)?);
        }
    }
    Ok(seconds)
}

fn summed(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    (bytes, repeats): &(&str, &str),
    flags: &[&str],
) -> Result<f64, String> {
    let said = flock(suite, namespaces, |bench, place, ticket| {
        bench.args(["bench", "all-reduce", "--workers", "2", "--launcher", "flock", "--at", place]);
        bench.arg("--ticket").arg(ticket).args(["--bytes", bytes, "--repeats", repeats]);
        bench.args(["--transport", "tcp", "--json"]);
        bench.args(flags);
    })?;
    let told: Value = serde_json::from_str(&said).map_err(|why| format!("{why}: {said}"))?;
    told["median_seconds"].as_f64().ok_or_else(|| format!("no median in {said}"))
}
