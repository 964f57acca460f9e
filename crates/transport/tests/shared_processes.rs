//! Shared sums between real processes: this test binary starts itself again, once for every other seat.

#![allow(clippy::unwrap_used, reason = "helper functions of a test")]

use starlings_core::{Blame, Deadline, Epoch, JobId, Seat, contributing};
use starlings_transport::shared::{
    Circle, Identity, NearbyAllocator, Numbers, NumbersMut, Offer, Patience, Segment, View,
};
use std::alloc::System;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// So that long contributions can be lent; those of odd seats are.
#[global_allocator]
static ALLOCATOR: NearbyAllocator<System> = NearbyAllocator(System);

const LENS: [usize; 5] = [0, 1, 1001, 300_000, 7];
const HEAP_BYTES: usize = 64 << 20;

/// Seats above 0, each a process.
struct Others(Vec<Child>);

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn identity(seat: u32) -> Identity {
    Identity { job: JobId(11), epoch: Epoch(0), seat: Seat(seat), nonce: 1234 + u64::from(seat) }
}

fn line(offer: Offer) -> String {
    format!("offer {}", serde_json::to_string(&offer).unwrap())
}

fn parse(line: &str) -> Offer {
    serde_json::from_str(line.strip_prefix("offer ").unwrap()).unwrap()
}

/// A seat's circle: long contributions of odd seats are lent.
fn circle(mine: Arc<Segment>, offers: impl Iterator<Item = Offer>) -> Circle {
    let views: Vec<View> = offers.map(|offer| View::open(&offer).unwrap()).collect();
    assert!(views.iter().all(View::has_heap), "every process has a heap");
    let is_odd = !mine.identity().seat.0.is_multiple_of(2);
    let circle = Circle::new(mine, views, 0, 2);
    circle.lending(is_odd)
}

fn segment(seat: u32) -> Arc<Segment> {
    Arc::new(Segment::new(identity(seat)).unwrap().with_heap(HEAP_BYTES))
}

/// Starts all other seats and hands segments over.
fn flock(world: u32) -> (Circle, Others) {
    let mine = segment(0);
    let program = std::env::current_exe().unwrap();
    let mut others = Others(Vec::new());
    let mut offers = vec![mine.offer()];
    for seat in 1..world {
        let mut child = Command::new(&program)
            .args(["--exact", "--ignored", "--nocapture", "a_seat_that_another_test_starts"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{seat} {world}").unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        others.0.push(child);
        let said = output.lines().map(|line| line.unwrap());
        let said = said.map(|line| line[line.find("offer").unwrap_or(0)..].to_string());
        let offer = said.into_iter().find(|line| line.starts_with("offer")).unwrap();
        offers.push(parse(&offer));
    }
    for child in &mut others.0 {
        let lines: Vec<String> = offers.iter().map(|&offer| line(offer)).collect();
        writeln!(child.stdin.as_mut().unwrap(), "{}", lines.join("\n")).unwrap();
    }
    (circle(mine, offers.into_iter()), others)
}

fn number(seat: u32, at: usize) -> f64 {
    (1.0 + at as f64) * 10f64.powi((seat * 7 % 5) as i32 * 4 - 8)
}

fn sum(
    circle: &mut Circle,
    seat: u32,
    len: usize,
    wait_ms: u64,
) -> starlings_core::Result<Vec<f64>> {
    let mine: Vec<f64> = contributing(|| (0..len).map(|at| number(seat, at)).collect());
    let mut total = contributing(|| vec![0.0; len]);
    let patience = Patience { by: Deadline::after_ms(wait_ms), interrupted: &|| None };
    circle.sum(&[Numbers::F64(&mine)], &mut [NumbersMut::F64(&mut total)], &patience)?;
    Ok(total)
}

#[test]
#[ignore = "not a test: a seat of the others"]
fn a_seat_that_another_test_starts() {
    let mut lines = std::io::stdin().lock().lines().map(|line| line.unwrap());
    let Some(first) = lines.next() else { return };
    let (seat, world) = first.split_once(' ').unwrap();
    let (seat, world): (u32, u32) = (seat.parse().unwrap(), world.parse().unwrap());
    let mine = segment(seat);
    println!("\n{}", line(mine.offer()));
    let offers = (0..world).map(|_| parse(&lines.next().unwrap()));
    let mut circle = circle(mine, offers);
    for len in LENS {
        sum(&mut circle, seat, len, 20_000).unwrap();
    }
    // Stays until it is ended: dead and alive must not look alike.
    let _ = lines.next();
}

#[test]
fn processes_get_the_sums_of_the_documented_order() {
    for world in [2, 3] {
        let (mut circle, _others) = flock(world);
        for len in LENS {
            let total = sum(&mut circle, 0, len, 20_000).unwrap();
            for (at, total) in total.into_iter().enumerate() {
                let expected = (1..world).fold(number(0, at), |sum, seat| sum + number(seat, at));
                assert_eq!(total.to_bits(), expected.to_bits(), "{world} processes, number {at}");
            }
        }
    }
}

#[test]
fn a_killed_process_is_noticed_and_named() {
    let (mut circle, mut others) = flock(3);
    sum(&mut circle, 0, LENS[0], 20_000).unwrap();
    others.0[1].kill().unwrap();
    others.0[1].wait().unwrap();
    // Rank 2 fell somewhere; whatever it had contributed before still counts.
    let fault = LENS[1..].iter().chain(&[5]).find_map(|&len| sum(&mut circle, 0, len, 300).err());
    let fault = fault.unwrap();
    assert!(matches!(fault.blame(), Blame::Peer(Some(Seat(1 | 2)))), "{fault}");
    let told = std::cell::Cell::new(0);
    let (mut circle, _others) = flock(2);
    let lost = || {
        (told.replace(told.get() + 1) > 2)
            .then(|| starlings_core::Fault::peer(Some(Seat(1)), "gone"))
    };
    for len in LENS {
        sum(&mut circle, 0, len, 20_000).unwrap();
    }
    let patience = Patience { by: Deadline::after_ms(20_000), interrupted: &lost };
    let fault = circle.sum(&[], &mut [], &patience).unwrap_err();
    assert!(fault.message().contains("gone"), "{fault}");
}
