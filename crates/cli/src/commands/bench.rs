//! `starlings bench`: one machine's own figures.

use crate::data_arguments::DataArguments;
use crate::output::{say, say_json};
use clap::{Args, Subcommand};
use serde_json::json;
use starlings::observe::figures;
use starlings::{AllReduce, Fault, Predictor, Result, Ticket, Timing, Width, resolve};

/// Measure this machine
#[derive(Args)]
#[command(after_long_help = "\
Example:
  starlings bench all-reduce --workers 4 --bytes 64MB --launcher processes --json
  starlings bench all-reduce --workers 2 --bytes 64MB --launcher flock --at 10.0.0.5:7077 --ticket flock.ticket
  starlings bench predict model.safetensors --data rows.parquet")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    AllReduce(Sums),
    Predict(Predictions),
}

/// How long a model takes to predict rows that are read already
#[derive(Args)]
struct Predictions {
    /// The model file
    model: std::path::PathBuf,
    #[command(flatten)]
    data: DataArguments,
    /// How many predictions of all rows to time
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// How long it takes to sum numbers over all workers
#[derive(Args)]
struct Sums {
    /// How many workers
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// How much to sum, as in 4096, 4KB, 64MB (1 KB = 1024 bytes)
    #[arg(long, default_value = "4MB", value_parser = size)]
    bytes: u64,
    /// Where workers run: threads, processes, or flock (those that wait at a coordinator)
    #[arg(long, default_value = "threads")]
    launcher: String,
    /// With --launcher flock: where the coordinator is
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7077")]
    at: String,
    /// With --launcher flock: the ticket that the coordinator wrote
    #[arg(long, value_name = "FILE", default_value = "starlings.ticket")]
    ticket: std::path::PathBuf,
    /// Who talks to whom
    #[arg(long, default_value = "ring")]
    topology: String,
    /// What carries the sums: shared (memory of this host), or tcp between processes and memory between threads
    /// [default: shared where workers share a host]
    #[arg(long)]
    transport: Option<String>,
    /// Copy the numbers into shared memory although the others could read them where they are
    #[arg(long)]
    copied: bool,
    /// Make the sums in other memory, so that what was contributed stays as it is (`Flock::merge`)
    #[arg(long)]
    beside: bool,
    /// What is summed: f32, f64, or f64 by the reproducible fold
    #[arg(long, default_value = "f32", value_parser = ["f32", "f64", "reproducible"])]
    numbers: String,
    /// Inside TLS, as links between hosts are
    #[arg(long)]
    tls: bool,
    /// Sums that survive the loss of a worker, as those of a training loop of one's own do: because what was contributed stays
    /// as it is (with --beside), or can be made again (without)
    #[arg(long)]
    survive: bool,
    /// How many sums to time [default: 2000 for 4KB and less, fewer for more, at least 5]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    repeats: Option<u32>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let sums = match arguments.what {
        What::AllReduce(sums) => sums,
        What::Predict(predictions) => return predict(&predictions),
    };
    if sums.workers == 0 || sums.workers > 4096 {
        return Err(Fault::caller(format!("--workers {} is not allowed", sums.workers))
            .hint("from 1 to 4096"));
    }
    let spec = AllReduce {
        workers: sums.workers,
        bytes: sums.bytes,
        repeats: sums.repeats.unwrap_or_else(|| repeats(sums.bytes)),
        topology: sums.topology,
        transport: sums.transport,
        is_copied: sums.copied,
        is_beside: sums.beside,
        tls: sums.tls,
        survives: sums.survive,
        fold: match sums.numbers.as_str() {
            "f64" => Width::Double,
            "reproducible" => Width::Reproducible,
            _ => Width::Single,
        },
    };
    let timing = match sums.launcher.as_str() {
        "flock" => spec.measure_at(resolve(&sums.at)?, &Ticket::load(&sums.ticket)?)?,
        launcher => spec.measure(launcher, Some(&std::env::current_exe()?))?,
    };
    match sums.json {
        true => say_json(&json!(timing)),
        false => say(&text(&timing)),
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn predict(arguments: &Predictions) -> Result<()> {
    let predictor = Predictor::load(&arguments.model)?;
    let spec = arguments.data.spec();
    let table = predictor.rows(&spec)?;
    let mut times = Vec::new();
    for _ in 0..arguments.repeats {
        let start = std::time::Instant::now();
        predictor.predict_rows(&table)?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (median, rows) = (times[times.len() / 2], table.rows() as u64);
    let evaluation = predictor.evaluate(&spec).map(|found| found.metrics).unwrap_or_default();
    match arguments.json {
        true => {
            say_json(&json!({"rows": rows, "repeats": arguments.repeats, "median_seconds": median,
            "min_seconds": times[0], "metrics": evaluation}))
        }
        false => say(&format!(
            "prediction of {} rows, {} times\n  median   {}\n  minimum  {}\n  speed    {} rows/s\n",
            figures::count(rows),
            arguments.repeats,
            seconds(median),
            seconds(times[0]),
            figures::count((rows as f64 / median) as u64),
        )),
    }
}

fn text(timing: &Timing) -> String {
    format!(
        "sum of {} over {} workers ({}, {}, {}), {} times\n  median   {}\n  minimum  {}\n  speed    {:.3} GB/s\n",
        figures::bytes(timing.bytes),
        timing.workers,
        timing.topology,
        timing.launcher,
        timing.transport,
        timing.repeats,
        seconds(timing.median_seconds),
        seconds(timing.min_seconds),
        timing.gigabytes_per_second,
    )
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

/// Small sums are repeated often, so that the median is steady; large ones seldom, so that it ends.
fn repeats(bytes: u64) -> u32 {
    match bytes >> 10 {
        0..=4 => 2000,
        5..=64 => 1000,
        65..=1024 => 200,
        1025..=16_384 => 50,
        16_385..=65_536 => 20,
        _ => 5,
    }
}

/// `4096`, `4KB`, `64MB`, `1GB`, by powers of two.
fn size(text: &str) -> std::result::Result<u64, String> {
    let upper = text.trim().to_ascii_uppercase();
    let units =
        [("KB", 10), ("MB", 20), ("GB", 30), ("K", 10), ("M", 20), ("G", 30), ("B", 0), ("", 0)];
    let found = units.iter().find_map(|(unit, shift)| {
        let number: u64 = upper.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(1 << shift).filter(|bytes| (1..=1 << 40).contains(bytes))
    });
    found.ok_or_else(|| "write a size such as 4096, 4KB or 64MB, at most 1024GB".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(size("4KB"), Ok(4096));
        assert_eq!(size("64 mb"), Ok(64 << 20));
        assert_eq!(size("123"), Ok(123));
        for wrong in ["", "KB", "0", "-1", "4XB", "99999999999GB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn larger_sums_are_never_repeated_more_often() {
        let counts: Vec<u32> = (0..40).map(|power| repeats(1 << power)).collect();
        assert!(counts.is_sorted_by(|a, b| a >= b) && counts[0] == 2000 && counts[39] == 5);
    }
}
