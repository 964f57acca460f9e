//! The laws of topologies, form by form. Sums are here: moves are played on paper, where a partial sum is the
//! set of seats in it, a number that shows the order of additions, and the count of messages behind it.

mod graph;
mod groups;
mod rounds;

use super::{Verdict, ensure};
use starlings_core::{Rng, Seat};
use starlings_topology::{Act, Cost, Form, Move, Pattern, Topology, moves};
use std::collections::{BTreeMap, VecDeque};

pub use graph::{check_graph, shrinkage};
pub use groups::{check_groups, check_groups_cost};
pub use rounds::{check_partial, check_shuffle, check_walk};

/// All laws of a topology of any form, for worlds of 1 to 17 and of 1,024.
///
/// # Errors
/// The first broken law.
pub fn check(form: &Form) -> Verdict {
    match form {
        Form::Sum(topology) => check_sum(&**topology),
        Form::Graph(graph) => check_graph(&**graph),
        Form::Walk(walk) => check_walk(&**walk),
        Form::Partial(partial) => check_partial(&**partial),
        Form::Shuffle(shuffle) => check_shuffle(&**shuffle),
        Form::Groups(groups) => check_groups(groups),
    }
}

/// The worlds that every form is checked for.
fn worlds() -> impl Iterator<Item = u32> {
    (1..=17).chain([1024])
}

/// All laws of a topology that sums.
///
/// # Errors
/// The first broken law.
pub fn check_sum(topology: &dyn Topology) -> Verdict {
    for world in 1..=17 {
        let grain = topology.grain(world);
        ensure!(grain > 0, "world {world}: a grain of zero");
        for chunks in [0, 1, 2, 7, grain, 3 * grain, 3 * grain - 1] {
            check_one(topology, world, chunks)?;
        }
    }
    [1, 5].into_iter().try_for_each(|chunks| check_one(topology, 1024, chunks))
}

/// All laws for one world and number of chunks.
///
/// # Errors
/// The first broken law.
pub fn check_one(topology: &dyn Topology, world: u32, chunks: usize) -> Verdict {
    let laws = match topology.pattern(Seat(0), world, chunks) {
        Pattern::Everyone => laws_of_everyone,
        _ => laws_of_moves,
    };
    laws(topology, world, chunks).map_err(|law| format!("world {world}, {chunks} chunks: {law}"))
}

fn laws_of_moves(topology: &dyn Topology, world: u32, chunks: usize) -> Verdict {
    let flock = plays(topology, world, chunks)?;
    let nothing = flock.iter().all(Vec::is_empty);
    ensure!(world > 1 || nothing, "a world of one has moves");
    sends_meet_receives(&flock, chunks)?;
    let sends: Vec<usize> = flock.iter().map(|moves| sends_in(moves)).collect();
    let (mut sums, begun) = (None, vec![0; flock.len()]);
    for order in [Order::Stack, Order::Queue] {
        let played = rendezvous(&flock, chunks, order, &begun)?;
        ensure!(
            *sums.get_or_insert(played.sums.clone()) == played.sums,
            "the order of additions depends on who is faster"
        );
        ensure!(
            played.sums.iter().all(|chunk| chunk.iter().all(|sum| *sum == chunk[0])),
            "seats have different bits"
        );
        let rounds = played.rounds.into_iter().max().unwrap_or(0);
        cost_is_counted(topology.cost(world, BYTES, chunks), &sends, rounds, chunks)?;
    }
    let buffered = buffered(&flock, chunks)?;
    ensure!(Some(buffered) == sums, "the order of additions depends on buffering");
    Ok(())
}

fn sends_in(moves: &[Move]) -> usize {
    let is_send = |step: &&Move| matches!(step.act, Act::SendPartial | Act::SendTotal);
    moves.iter().filter(is_send).count()
}

/// Where everyone sends to everyone, each seat folds in the order of seats, its own in its place.
fn laws_of_everyone(topology: &dyn Topology, world: u32, chunks: usize) -> Verdict {
    for seat in (0..world).map(Seat) {
        let pattern = topology.pattern(seat, world, chunks);
        ensure!(pattern == Pattern::Everyone, "{seat} sums in another way than rank 0");
    }
    let size = world as usize;
    let mut rounds = 0;
    for chunk in 0..chunks {
        let contributions: Vec<Held> =
            (0..size).map(|seat| Held::contribution(seat, size, chunk)).collect();
        let mut bits = None;
        for seat in 0..size {
            let sent = |from: usize| match from == seat {
                true => Ok(contributions[from].clone()),
                false => contributions[from].send(Act::SendPartial, size),
            };
            let mut held = sent(0)?;
            (1..size).try_for_each(|from| held.receive(Act::Fold, sent(from)?))?;
            ensure!(held.is_total(size), "chunk {chunk}: a seat ends without all contributions");
            ensure!(
                *bits.get_or_insert(held.sum.to_bits()) == held.sum.to_bits(),
                "seats have different bits"
            );
            rounds = rounds.max(held.rounds);
        }
    }
    let sends = vec![chunks * (size - 1); size];
    cost_is_counted(topology.cost(world, BYTES, chunks), &sends, rounds, chunks)
}

const BYTES: u64 = 1_000_000;

/// The bytes that all seats together send to seats of other groups, when neighbouring seats make groups of
/// `group` and sum `bytes` in `chunks` equal chunks.
///
/// # Errors
/// When the patterns are not the same each time.
pub fn bytes_between_groups(
    topology: &dyn Topology,
    (world, group): (u32, u32),
    (bytes, chunks): (u64, usize),
) -> Result<f64, String> {
    let mut sends = 0;
    for (seat, moves) in plays(topology, world, chunks)?.iter().enumerate() {
        let leaves = |step: &&Move| {
            let is_send = matches!(step.act, Act::SendPartial | Act::SendTotal);
            is_send && step.peer.0 / group != seat as u32 / group
        };
        sends += moves.iter().filter(leaves).count();
    }
    Ok(sends as f64 * bytes as f64 / chunks as f64)
}

/// The moves of all seats. Asking again must give the same answer.
///
/// # Errors
/// When it does not.
pub fn plays(topology: &dyn Topology, world: u32, chunks: usize) -> Result<Vec<Vec<Move>>, String> {
    let first = topology.pattern(Seat(0), world, chunks);
    let mut flock = Vec::new();
    for seat in (0..world).map(Seat) {
        let pattern = topology.pattern(seat, world, chunks);
        ensure!(
            pattern == topology.pattern(seat, world, chunks),
            "{seat}: another pattern each time"
        );
        if let Pattern::Owners(owners) = &pattern {
            ensure!(pattern == first, "{seat} sees other owners than rank 0");
            ensure!(owners.len() == chunks, "{} owners", owners.len());
            ensure!(owners.iter().all(|owner| owner.0 < world), "an owner outside the flock");
        }
        flock.push(moves(&pattern, seat, world));
    }
    Ok(flock)
}

fn sends_meet_receives(flock: &[Vec<Move>], chunks: usize) -> Verdict {
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (seat, moves) in flock.iter().enumerate() {
        for &Move { chunk, peer, act } in moves {
            let peer = peer.index();
            ensure!(peer < flock.len() && chunk < chunks, "{seat} has a move outside of the flock");
            ensure!(peer != seat, "{seat} sends to itself");
            match act {
                Act::SendPartial => sent.push((chunk, seat, peer, Act::Fold)),
                Act::SendTotal => sent.push((chunk, seat, peer, Act::Replace)),
                Act::Fold | Act::Replace => received.push((chunk, peer, seat, act)),
            }
        }
    }
    // Stable sorts by chunk and pair keep the order in which a pair sends and receives.
    sent.sort_by_key(|&(chunk, from, to, _)| (chunk, from, to));
    received.sort_by_key(|&(chunk, from, to, _)| (chunk, from, to));
    let mut pairs = sent.iter().zip(&received);
    if let Some((send, receive)) = pairs.find(|(send, receive)| send != receive) {
        return Err(format!("a send without its receive: {send:?} meets {receive:?}"));
    }
    ensure!(sent.len() == received.len(), "{} sends, {} receives", sent.len(), received.len());
    Ok(())
}

/// What a seat holds of one chunk.
#[derive(Clone)]
struct Held {
    /// Whose contributions are in it: one bit a seat.
    seats: Vec<u64>,
    /// Their sum. Contributions differ so much in size that another order of additions gives other bits.
    sum: f64,
    /// Messages one after another that led here.
    rounds: u64,
}

impl Held {
    fn contribution(seat: usize, world: usize, chunk: usize) -> Held {
        let mut seats = vec![0; world.div_ceil(64)];
        seats[seat / 64] |= 1 << (seat % 64);
        let mut rng = Rng::named(1, "contribution", &[seat as u64, chunk as u64]);
        let sum = rng.normal() * 10f64.powf(6.0 * rng.uniform());
        Held { seats, sum, rounds: 0 }
    }

    fn is_total(&self, world: usize) -> bool {
        self.seats.iter().map(|word| word.count_ones() as usize).sum::<usize>() == world
    }

    fn send(&self, act: Act, world: usize) -> Result<Held, String> {
        ensure!(act == Act::SendPartial || self.is_total(world), "a total is sent that is none");
        Ok(Held { rounds: self.rounds + 1, ..self.clone() })
    }

    fn receive(&mut self, act: Act, message: Held) -> Verdict {
        let rounds = self.rounds.max(message.rounds);
        if act == Act::Fold {
            for (mine, other) in self.seats.iter_mut().zip(&message.seats) {
                ensure!(*mine & other == 0, "a contribution is counted twice");
                *mine |= other;
            }
            self.sum += message.sum;
        } else {
            *self = message;
        }
        self.rounds = rounds;
        Ok(())
    }
}

struct Played {
    /// By chunk and seat, as bits.
    sums: Vec<Vec<u64>>,
    /// Messages one after another that led to what a seat holds.
    rounds: Vec<u64>,
}

/// Who goes on first when several could.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    Stack,
    Queue,
}

/// Plays each chunk on its own with sends that block until the receiver is at the matching receive. Seats begin after so
/// many messages one after another.
fn rendezvous(
    flock: &[Vec<Move>],
    chunks: usize,
    order: Order,
    begun: &[u64],
) -> Result<Played, String> {
    let mut by_chunk = vec![vec![Vec::new(); flock.len()]; chunks];
    for (seat, moves) in flock.iter().enumerate() {
        moves.iter().for_each(|step| by_chunk[step.chunk][seat].push(*step));
    }
    let mut played = Played { sums: Vec::new(), rounds: begun.to_vec() };
    for (chunk, lists) in by_chunk.iter().enumerate() {
        let held = rendezvous_chunk(lists, chunk, order, begun)?;
        ensure!(
            held.iter().all(|held| held.is_total(flock.len())),
            "chunk {chunk}: a seat ends without all contributions"
        );
        let rounds = played.rounds.iter_mut().zip(&held);
        rounds.for_each(|(most, held)| *most = held.rounds.max(*most));
        played.sums.push(held.iter().map(|held| held.sum.to_bits()).collect());
    }
    Ok(played)
}

fn rendezvous_chunk(
    lists: &[Vec<Move>],
    chunk: usize,
    order: Order,
    begun: &[u64],
) -> Result<Vec<Held>, String> {
    let world = lists.len();
    let first =
        |seat: usize| Held { rounds: begun[seat], ..Held::contribution(seat, world, chunk) };
    let mut held: Vec<Held> = (0..world).map(first).collect();
    let mut at = vec![0; world];
    let mut ready: VecDeque<usize> = (0..world).collect();
    let next = |ready: &mut VecDeque<usize>| match order {
        Order::Stack => ready.pop_back(),
        Order::Queue => ready.pop_front(),
    };
    while let Some(seat) = next(&mut ready) {
        let Some(mine) = lists[seat].get(at[seat]) else { continue };
        let peer = mine.peer.index();
        let Some(other) = lists[peer].get(at[peer]) else { continue };
        let (from, send, to, receive) = match mine.act {
            Act::SendPartial | Act::SendTotal => (seat, mine, peer, other),
            Act::Fold | Act::Replace => (peer, other, seat, mine),
        };
        let met = matches!(
            (send.act, receive.act),
            (Act::SendPartial, Act::Fold) | (Act::SendTotal, Act::Replace)
        );
        if met && send.peer.index() == to && receive.peer.index() == from {
            let message = held[from].send(send.act, world)?;
            held[to].receive(receive.act, message)?;
            at[from] += 1;
            at[to] += 1;
            ready.extend([from, to]);
        }
    }
    let stuck = (0..world).find(|&seat| at[seat] < lists[seat].len());
    match stuck {
        Some(seat) => Err(format!("deadlock: {seat} waits at {:?}", lists[seat][at[seat]])),
        None => Ok(held),
    }
}

/// Plays each seat's whole list in order with sends that never block. Gives the bits of the sums.
fn buffered(flock: &[Vec<Move>], chunks: usize) -> Result<Vec<Vec<u64>>, String> {
    let world = flock.len();
    let contributions = |chunk| (0..world).map(move |seat| Held::contribution(seat, world, chunk));
    let mut held: Vec<Vec<Held>> =
        (0..chunks).map(|chunk| contributions(chunk).collect()).collect();
    let mut wires: BTreeMap<(usize, usize, usize), VecDeque<Held>> = BTreeMap::new();
    let mut at = vec![0; world];
    let mut ready: VecDeque<usize> = (0..world).collect();
    while let Some(seat) = ready.pop_front() {
        while let Some(&Move { chunk, peer, act }) = flock[seat].get(at[seat]) {
            if matches!(act, Act::SendPartial | Act::SendTotal) {
                let message = held[chunk][seat].send(act, world)?;
                wires.entry((seat, peer.index(), chunk)).or_default().push_back(message);
                ready.push_back(peer.index());
            } else {
                let wire = wires.get_mut(&(peer.index(), seat, chunk));
                let Some(message) = wire.and_then(VecDeque::pop_front) else { break };
                held[chunk][seat].receive(act, message)?;
            }
            at[seat] += 1;
        }
    }
    if let Some(seat) = (0..world).find(|&seat| at[seat] < flock[seat].len()) {
        return Err(format!("played in order, {seat} waits at {:?}", flock[seat][at[seat]]));
    }
    Ok(held.iter().map(|seats| seats.iter().map(|held| held.sum.to_bits()).collect()).collect())
}

fn cost_is_counted(cost: Cost, sends: &[usize], rounds: u64, chunks: usize) -> Verdict {
    let bytes = |sends: usize| match chunks {
        0 => 0.0,
        _ => sends as f64 * BYTES as f64 / chunks as f64,
    };
    let most = bytes(sends.iter().copied().max().unwrap_or(0));
    let all = bytes(sends.iter().sum());
    cost_is(cost, Cost { rounds, bytes_sent_max: most, bytes_sent_total: all })
}

fn cost_is(said: Cost, counted: Cost) -> Verdict {
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
    ensure!(
        said.rounds == counted.rounds,
        "cost says {} rounds, {} were counted",
        said.rounds,
        counted.rounds
    );
    ensure!(
        same(said.bytes_sent_max, counted.bytes_sent_max),
        "cost says a seat sends {} bytes, {} were counted",
        said.bytes_sent_max,
        counted.bytes_sent_max
    );
    ensure!(
        same(said.bytes_sent_total, counted.bytes_sent_total),
        "cost says all send {} bytes, {} were counted",
        said.bytes_sent_total,
        counted.bytes_sent_total
    );
    Ok(())
}
