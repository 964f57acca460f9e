//! A loop of one's own, summed across processes: linear regression by gradient descent on three members.
//!
//! `cargo run --release -p starlings --example own_loop`
//!
//! The parent hosts the flock and starts three copies of itself; each copy joins, works on its own rows, and
//! merges its gradient with the others'. If one dies, the others are told its rank and host within two seconds.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example speaks to people")]

use starlings::{Block, Flock, FlockHost, FlockOptions, Result, Rng, Ticket};
use std::process::{Command, ExitCode};

const MEMBERS: u32 = 3;
const ROWS: u64 = 3_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let outcome = match &arguments[1..] {
        [] => host(&arguments[0]),
        [address, ticket] => work(address, ticket),
        _ => return ExitCode::from(2),
    };
    outcome.map_or_else(
        |fault| {
            eprintln!("{fault}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn host(program: &str) -> Result<()> {
    let host = FlockHost::start(MEMBERS)?;
    let ticket = std::env::temp_dir().join(format!("own-loop-{}.ticket", std::process::id()));
    host.ticket().save(&ticket)?;
    let start = |_| Command::new(program).arg(host.address().to_string()).arg(&ticket).spawn();
    let members = (0..MEMBERS).map(start).collect::<Result<Vec<_>, _>>()?;
    let outcome = host.wait();
    members.into_iter().for_each(|mut member| drop(member.wait()));
    std::fs::remove_file(ticket)?;
    outcome
}

fn work(address: &str, ticket: &str) -> Result<()> {
    let mut flock = Flock::join(&FlockOptions::new(address, Ticket::load(ticket.as_ref())?)?)?;
    let rows = flock.lease_rows(ROWS);
    let (mut slope, mut constant, mut sums) = (0.0, 0.0, Vec::new());
    for _ in 0..200 {
        let mut gradient = vec![0.0; 2];
        for row in rows.clone() {
            let mut rng = Rng::named(1, "row", &[row]);
            let x = rng.uniform();
            let error = slope * x + constant - (2.0 * x + 1.0 + 0.01 * rng.normal());
            gradient[0] += error * x;
            gradient[1] += error;
        }
        flock.merge(&mut vec![Block::dense("gradient", gradient)], &mut sums)?;
        let gradient = sums[0].f64s();
        slope -= 1.0 / ROWS as f64 * gradient[0];
        constant -= 1.0 / ROWS as f64 * gradient[1];
    }
    println!("rank {} of {}: y = {slope:.3} x + {constant:.3}", flock.seat().0, flock.world());
    flock.leave()
}
