//! How fast processes of this machine sum through shared memory: starts copies of itself, hands segments over, and
//! prints the median and least time of a sum for each size.
//!
//! ```text
//! cargo run --release -p starlings-transport --example shared_speed -- 4 [chunk-bytes flat-max streamed-from]
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measurement, not a part of the product"
)]
#![allow(clippy::print_stdout, reason = "its result")]

use starlings_core::{Deadline, Epoch, JobId, Seat};
use starlings_transport::shared::{
    Circle, Identity, Numbers, NumbersMut, Offer, Patience, Segment, Tuning, View,
};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const SIZES: [(usize, u32); 5] =
    [(4 << 10, 3000), (256 << 10, 400), (4 << 20, 60), (64 << 20, 8), (256 << 20, 4)];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("seat") => worker(&words[1..]),
        _ => parent(&words),
    }
}

fn parent(words: &[String]) {
    let world: u32 = words.first().map_or(2, |word| word.parse().unwrap());
    let program = std::env::current_exe().unwrap();
    let mut children: Vec<_> = (0..world)
        .map(|seat| {
            Command::new(&program)
                .args(["seat", &seat.to_string(), &world.to_string()])
                .args(words.iter().skip(1))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut outputs: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    let mut offers = String::new();
    for output in &mut outputs {
        output.read_line(&mut offers).unwrap();
    }
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(offers.as_bytes()).unwrap();
    }
    for line in outputs.remove(0).lines() {
        println!("{}", line.unwrap());
    }
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

fn identity(seat: u32) -> Identity {
    Identity { job: JobId(7), epoch: Epoch(1), seat: Seat(seat), nonce: 0x5eed + u64::from(seat) }
}

fn worker(words: &[String]) {
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok());
    let (seat, world) = (number(0).unwrap() as u32, number(1).unwrap() as u32);
    let mine = Arc::new(Segment::new(identity(seat)).unwrap());
    let Offer { pid, descriptor, bytes, .. } = mine.offer();
    println!("{pid} {descriptor} {bytes}");
    let mut views = Vec::new();
    for (peer, line) in std::io::stdin().lock().lines().take(world as usize).enumerate() {
        let line = line.unwrap();
        let mut words = line.split(' ').map(|word| word.parse::<u64>().unwrap());
        let mut next = || words.next().unwrap();
        let (pid, descriptor, bytes) = (next() as u32, next() as i32, next());
        let offer = Offer { pid, descriptor, bytes, identity: identity(peer as u32), heap: None };
        views.push(if peer as u32 == seat { mine.view() } else { View::open(&offer).unwrap() });
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let plain = Tuning::default();
    let tuning = Tuning {
        chunk_bytes: number(2).unwrap_or(plain.chunk_bytes),
        flat_bytes_max: number(3).unwrap_or(plain.flat_bytes_max),
        streamed_from: number(4).unwrap_or(plain.streamed_from),
    };
    let mut circle = Circle::new(mine.clone(), views, 0, cores).tuned(tuning);
    for (bytes, repeats) in SIZES {
        measure(&mut circle, (seat, world), bytes, repeats);
    }
}

fn measure(circle: &mut Circle, (seat, world): (u32, u32), bytes: usize, repeats: u32) {
    let mut contribution = vec![0f32; bytes / 4];
    let mut total = vec![0f32; bytes / 4];
    let patience = Patience { by: Deadline::after_ms(60_000), interrupted: &|| None };
    let mut seconds = Vec::new();
    for round in 0..repeats + 2 {
        contribution.fill((seat + 1) as f32);
        circle.sum(&[], &mut [], &patience).unwrap();
        let begun = Instant::now();
        let into = &mut [NumbersMut::F32(&mut total)];
        circle.sum(&[Numbers::F32(&contribution)], into, &patience).unwrap();
        seconds.push(begun.elapsed().as_secs_f64());
        check(&mut seconds, &total, round, world);
        // As a learner does: the sum is what the next contribution is made of.
        std::mem::swap(&mut contribution, &mut total);
    }
    report((seat, world), bytes, seconds);
}

/// Two rounds warm up. Later ones are looked at only here and there: where workers share a core, whoever is done first
/// would check at the others' expense.
fn check(seconds: &mut Vec<f64>, total: &[f32], round: u32, world: u32) {
    let expected = (world * (world + 1) / 2) as f32;
    let step = if round < 2 { 1 } else { 1 + total.len() / 64 };
    assert!(total.iter().step_by(step).all(|&sum| sum == expected));
    if round < 2 {
        seconds.clear();
    }
}

fn report((seat, world): (u32, u32), bytes: usize, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    if seat == 0 {
        let (median, least) = (seconds[seconds.len() / 2], seconds[0]);
        let speed = bytes as f64 / median / 1e9;
        let (median, least, size) = (median * 1e6, least * 1e6, bytes >> 10);
        println!(
            "P={world} {size:>7} KB  median {median:>10.1} µs  min {least:>10.1} µs  {speed:.2} GB/s"
        );
    }
}
