//! The laws of links, kept over real MPI between two real processes: the test starts itself under mpirun. Rank 0
//! holds both ends of each pair; whatever goes from one to the other passes rank 1.

use super::World;
use crate::conformance::{Pair, check};
use crate::{Header, Lane, Link, LinkError};
use starlings_core::{Deadline, Epoch, JobId, Step};
use std::cell::Cell;
use std::process::Command;
use std::sync::Arc;

const JOB: JobId = JobId(7);
const EPOCH: Epoch = Epoch(1);

#[test]
fn mpi_links_keep_the_laws_of_links() {
    match std::env::var_os("OMPI_COMM_WORLD_RANK") {
        None => under_mpirun(2, "transports::mpi::tests::mpi_links_keep_the_laws_of_links"),
        Some(_) => {
            let world = World::start().unwrap();
            assert_eq!((world.size(), world.hosts().len()), (2, 2));
            match world.rank() {
                0 => check_all(&world),
                _ => relay_all(&world),
            }
            world.finish().unwrap();
        }
    }
}

/// Runs one test of this program under mpirun; it must end well and in time.
fn under_mpirun(processes: u32, test: &str) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120", "mpirun", "--allow-run-as-root", "--oversubscribe"]);
    command.args(["-n", &processes.to_string()]).arg(program).args(["--exact", test]);
    let ended = command.output().expect("mpirun and timeout are installed");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(said.matches("1 passed").count(), processes as usize, "{said}");
}

/// Rank 0: makes pairs and checks them.
fn check_all(world: &World) {
    let orders = world.link(1, 0, JOB, EPOCH);
    let order = |channel: u32| {
        let header = Header { lane: Lane::Control, kind: 0, step: Step(0), tag: channel };
        orders.send(header, b"", Deadline::after_ms(10_000)).unwrap();
    };
    let next = Cell::new(1);
    check(&|| -> Pair {
        let channel = next.replace(next.get() + 2);
        order(u32::from(channel));
        let link = |channel| Box::new(world.link(1, channel, JOB, EPOCH));
        (link(channel), link(channel + 1))
    });
    order(0);
}

/// Rank 1: joins each pair in the middle, until it is told that there are no more.
fn relay_all(world: &World) {
    let orders = world.link(0, 0, JOB, EPOCH);
    std::thread::scope(|scope| {
        loop {
            let order = orders.receive(Deadline::after_ms(60_000)).unwrap();
            let Some(channel) = Some(order.header.tag as u16).filter(|&channel| channel > 0) else {
                return;
            };
            let left = Arc::new(world.link(0, channel, JOB, EPOCH));
            let right = Arc::new(world.link(0, channel + 1, JOB, EPOCH));
            let (left_too, right_too) = (left.clone(), right.clone());
            scope.spawn(move || relay(&*left, &*right));
            scope.spawn(move || relay(&*right_too, &*left_too));
        }
    });
}

/// Passes frames on until an end is lost; then both are.
fn relay(from: &dyn Link, to: &dyn Link) {
    loop {
        match from.receive(Deadline::after_ms(1_000)) {
            Ok(frame) => {
                if to.send(frame.header, &frame.payload, Deadline::after_ms(20_000)).is_err() {
                    return from.close();
                }
            }
            Err(LinkError::Deadline) => {}
            Err(_) => return to.close(),
        }
    }
}
