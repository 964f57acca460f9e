//! Sums that name their contributors: rank i contributes 2^i in a lane of integers, so that the bits of a sum say whose
//! contributions are in it, and numbers of its own that everyone can compute, so that everyone can check the rest.
//! Kill members while it runs: each sum is that of the members it names, to the bit. `cargo xtask chaos` does so.
//!
//! ```text
//! named_sums host MEMBERS TICKET
//! named_sums join ADDRESS TICKET ROUNDS PAUSE_MS NUMBERS [HOST]     in as many shells as there are members
//! ```
//!
//! A member prints a line of JSON for each sum: which, the bits, the members that the flock names, and a digest.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example speaks to people")]

use starlings::{
    Block, Fault, Flock, FlockHost, FlockOptions, NearbyAllocator, Result, Ticket, Update,
    contributing,
};
use std::alloc::System;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Members of one host read each other's large contributions where they are.
#[global_allocator]
static ALLOCATOR: NearbyAllocator<System> = NearbyAllocator(System);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["host", members, ticket] => host(members, ticket),
        ["join", address, ticket, numbers @ ..] => join(address, ticket, numbers),
        _ => Err(Fault::caller("named_sums host MEMBERS TICKET, or named_sums join ADDRESS …")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn host(members: &str, ticket: &str) -> Result<()> {
    let host = FlockHost::start(number(members)? as u32)?;
    host.ticket().save(ticket.as_ref())?;
    println!("listening on {}", host.address());
    host.wait()
}

fn join(address: &str, ticket: &str, words: &[&str]) -> Result<()> {
    let (numbers, host) = words.split_at(words.len().min(3));
    let numbers = numbers.iter().map(|word| number(word)).collect::<Result<Vec<u64>>>()?;
    let [rounds, pause_ms, width] = numbers[..] else {
        return Err(Fault::caller("a member is told ROUNDS, PAUSE_MS and NUMBERS"));
    };
    let mut options = FlockOptions::new(address, Ticket::load(ticket.as_ref())?)?;
    // Members of one host sum through its memory; those of different names do not.
    if let [host] = host {
        options.join.host = host.to_string();
    }
    let mut flock = Flock::join(&options)?;
    let (me, mut room) = (u64::from(flock.seat().0), Vec::new());
    for round in 0..rounds {
        let make = || {
            let mine = contributing(|| (0..width).map(|at| own(me, round, at)).collect());
            vec![Block::counts("names", vec![1 << me]), Block::dense("numbers", mine)]
        };
        // Contributions stay where they are and are made again in turn: what survives a loss is the same.
        if round % 2 == 0 {
            flock.merge(&mut make(), &mut room)?;
        } else {
            room = flock.merge_made(make)?;
        }
        let sum = Update { blocks: std::mem::take(&mut room) };
        let (names, sums) = (sum.i64("names")[0], sum.f64("numbers"));
        let members: Vec<u64> = flock.participants().iter().map(|rank| rank.0.into()).collect();
        let of = |at: u64| members.iter().map(|&member| own(member, round, at)).sum::<f64>();
        let wrong = (0..width).find(|&at| sums[at as usize].to_bits() != of(at).to_bits());
        let digest = sums.iter().fold(round, |digest, sum| digest.rotate_left(9) ^ sum.to_bits());
        println!(
            "{{\"round\": {round}, \"names\": {names}, \"members\": {members:?}, \"wrong\": {}, \"digest\": \"{digest:x}\"}}",
            wrong.map_or("null".to_string(), |at| at.to_string()),
        );
        room = sum.blocks;
        std::io::stdout().flush()?;
        std::thread::sleep(Duration::from_millis(pause_ms));
    }
    flock.leave()
}

/// A whole number that is a member's own in this round: sums of few of them are exact in any order.
fn own(member: u64, round: u64, at: u64) -> f64 {
    let mixed = (member + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (round << 20) ^ at;
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as f64
}

fn number(word: &str) -> Result<u64> {
    word.parse().map_err(|_| Fault::caller(format!("'{word}' is not a number")))
}
