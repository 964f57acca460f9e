//! Runs one simulation over many seeds: `simulate MACHINE FROM COUNT THREADS [PLANTED BUG]`. `cargo xtask simulate` and
//! `cargo xtask planted` build it and start it. Its last line is JSON: what failed, or nothing. A single seed of whole jobs
//! that fails tells its story.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "it talks to whoever started it, and measures how long it took"
)]

use starlings_testkit::sim::MACHINES;
use starlings_testkit::sim::surviving::Scenario;
use starlings_testkit::sim::sweep::{Seeds, sweep};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How often it says how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (Some(machine), [from, count, threads]) = (
        MACHINES.iter().find(|machine| words.first().is_some_and(|name| name == machine.name)),
        [1, 2, 3].map(|at| words.get(at).and_then(|word| word.parse::<u64>().ok())),
    ) else {
        eprintln!("simulate MACHINE FROM COUNT THREADS [PLANTED BUG]");
        return ExitCode::FAILURE;
    };
    plant(words.get(4));
    let (from, count) = (from.unwrap_or(0), count.unwrap_or(1));
    let seeds = Seeds { from, count, threads: threads.unwrap_or(1) as usize };
    let (start, told) = (Instant::now(), Mutex::new(Instant::now()));
    let tell = |taken: u64| {
        let mut told = told.lock().expect("nobody panics with this lock held");
        if told.elapsed() >= PROGRESS {
            *told = Instant::now();
            let rate = taken as f64 / start.elapsed().as_secs_f64();
            eprintln!("{}: {taken} of {count} seeds, {rate:.0} a second", machine.name);
        }
    };
    // What a seed says when it fails is told below, once.
    std::panic::set_hook(Box::new(|_| {}));
    let failing = sweep(*machine, seeds, &tell).err();
    let seconds = start.elapsed().as_secs_f64();
    if failing.is_some() && count == 1 && machine.name == "surviving" {
        Scenario::story(from).iter().for_each(|line| eprintln!("{line}"));
    }
    println!(
        "{{\"machine\": {:?}, \"from\": {from}, \"seeds\": {count}, \"seconds\": {seconds:.1}, \
         \"seed\": {}, \"why\": {:?}, \"replay\": {:?}}}",
        machine.name,
        failing.as_ref().map_or("null".to_string(), |failing| failing.seed.to_string()),
        failing.as_ref().map_or("", |failing| failing.why.as_str()),
        failing.as_ref().map_or("", |failing| failing.replay.as_str()),
    );
    if failing.is_none() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

#[cfg(planted)]
fn plant(name: Option<&String>) {
    if let Some(name) = name {
        starlings_core::plant(name);
    }
}

#[cfg(not(planted))]
fn plant(name: Option<&String>) {
    assert!(name.is_none(), "bugs are planted in builds with --cfg planted alone");
}
