//! The one thread that calls MPI, for all links of a process. Messages go out in batches and come in as they
//! arrive; in silence the thread polls a while, for an answer is often near, and then sleeps ever longer, for
//! MPI has no call that waits without burning a processor.

use super::link::{Post, Sort};
use super::{Address, Shared};
use crate::lock::enter;
use mpi::Threading;
use mpi::environment::{Universe, processor_name};
use mpi::point_to_point::Source;
use mpi::request::scope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Equivalence};
use starlings_core::{Fault, Result};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Looks in vain before the first sleep; each gives the processor to whoever wants it.
const LOOKS_MAX: u32 = 200;
/// The first sleep. The system makes it some 50 µs longer.
const SLEEP_MIN: Duration = Duration::from_micros(10);
/// The longest sleep: what a message after a long silence may be late by.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Messages taken in before others are sent.
const TAKEN_MAX: u32 = 64;
/// Bytes of a host's name.
const NAME_BYTES: usize = 256;

/// Who this process is.
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) hosts: Vec<String>,
}

/// How it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// With everything sent.
    Finish,
    /// At once, for all processes.
    Abort(u8),
}

/// What waits to be sent. Its size is bounded by the links' windows.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    posts: Vec<Post>,
    ending: Option<Ending>,
}

impl Outbox {
    pub(super) fn post(&self, post: Post) {
        enter(&self.waiting).posts.push(post);
        self.changed.notify_all();
    }

    pub(super) fn end(&self, ending: Ending) {
        enter(&self.waiting).ending = Some(ending);
        self.changed.notify_all();
    }

    /// All that waits; when nothing does, after this long.
    fn take(&self, wait: Duration) -> (Vec<Post>, Option<Ending>) {
        let mut waiting = enter(&self.waiting);
        if waiting.posts.is_empty() && waiting.ending.is_none() && !wait.is_zero() {
            let waited = self.changed.wait_timeout(waiting, wait);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        (std::mem::take(&mut waiting.posts), waiting.ending)
    }

    fn ending(&self) -> Option<Ending> {
        enter(&self.waiting).ending
    }
}

/// Starts MPI, tells who this process is, and moves messages until the end.
pub(super) fn serve(shared: &Shared, tell: &SyncSender<Result<Place>>) {
    // Only this thread calls MPI, and to MPI it is the main one.
    let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Funneled) else {
        let _ = tell.send(Err(Fault::caller("MPI was started before in this process")));
        return;
    };
    if threading < Threading::Funneled {
        let _ = tell.send(Err(Fault::machine("this MPI cannot be used beside other threads")
            .hint("build Open MPI with support for threads, as Debian does")));
        return;
    }
    let world = universe.world();
    let place = Place { rank: world.rank() as u32, hosts: gather_hosts(&world) };
    if tell.send(Ok(place)).is_ok() {
        move_messages(&world, shared);
    }
    leave(universe, shared);
}

fn move_messages(world: &SimpleCommunicator, shared: &Shared) {
    let mut pause = Pause::default();
    loop {
        let (posts, ending) = shared.outbox.take(pause.next());
        obey(world, ending);
        let quiet = posts.is_empty();
        send(world, shared, &posts);
        if take_in(world, shared) || !quiet {
            pause = Pause::default();
        } else if ending == Some(Ending::Finish) {
            return;
        }
    }
}

/// Sends a batch. Meanwhile messages come in: a large one goes out only when its receiver takes it, and that
/// one may be sending to us.
fn send(world: &SimpleCommunicator, shared: &Shared, posts: &[Post]) {
    scope(|scope| {
        let mut pending = Vec::with_capacity(posts.len());
        for post in posts {
            let to = world.process_at_rank(post.to.rank as i32);
            pending.push(to.immediate_send_with_tag(scope, &post.bytes[..], tag(post)));
        }
        let mut pause = Pause::default();
        loop {
            pending = pending.into_iter().filter_map(|request| request.test().err()).collect();
            if pending.is_empty() {
                return;
            }
            obey(world, shared.outbox.ending());
            match take_in(world, shared) {
                true => pause = Pause::default(),
                false => std::thread::sleep(pause.next()),
            }
        }
    });
}

/// Takes in what has arrived. Returns whether anything had.
fn take_in(world: &SimpleCommunicator, shared: &Shared) -> bool {
    for taken in 0..TAKEN_MAX {
        let Some((message, status)) = world.any_process().immediate_matched_probe() else {
            return taken > 0;
        };
        let mut bytes = vec![0_u8; status.count(u8::equivalent_datatype()) as usize];
        message.matched_receive_into(&mut bytes[..]);
        let (channel, sort) = meaning(status.tag());
        let from = Address { rank: status.source_rank() as u32, channel };
        shared.mailbox(from).accept(sort, bytes);
    }
    true
}

/// An abort is obeyed wherever this thread is.
fn obey(world: &SimpleCommunicator, ending: Option<Ending>) {
    if let Some(Ending::Abort(code)) = ending {
        world.abort(i32::from(code));
    }
}

fn leave(universe: Universe, shared: &Shared) {
    enter(&shared.mailboxes).values().for_each(|mailbox| mailbox.end());
    drop(universe);
}

fn tag(post: &Post) -> i32 {
    i32::from(post.to.channel) * 2 + i32::from(post.sort == Sort::Notice)
}

fn meaning(tag: i32) -> (u16, Sort) {
    ((tag / 2) as u16, if tag % 2 == 0 { Sort::Frame } else { Sort::Notice })
}

fn gather_hosts(world: &SimpleCommunicator) -> Vec<String> {
    let mut mine = [0; NAME_BYTES];
    let name = processor_name().unwrap_or_default();
    let length = name.len().min(NAME_BYTES);
    mine[..length].copy_from_slice(&name.as_bytes()[..length]);
    let mut all = vec![0_u8; NAME_BYTES * world.size() as usize];
    world.all_gather_into(&mine[..], &mut all[..]);
    let text = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_string();
    all.chunks(NAME_BYTES).map(text).collect()
}

/// How long to sleep before looking again: not at all for a while, then ever longer.
#[derive(Default)]
struct Pause {
    looks: u32,
}

impl Pause {
    fn next(&mut self) -> Duration {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= LOOKS_MAX {
            std::thread::yield_now();
            return Duration::ZERO;
        }
        let doublings = (self.looks - LOOKS_MAX) / 8;
        (SLEEP_MIN * 2_u32.pow(doublings.min(7))).min(SLEEP_MAX)
    }
}
