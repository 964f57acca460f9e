//! Everyone sends something else to everyone (the shuffle of MapReduce), over whatever net there is.

use crate::net::{Arrival, Net};
use starlings_core::{Deadline, Result, Step};
use starlings_topology::Shuffle;
use starlings_transport::{Header, Lane};

/// `parts[s]` goes to seat s; what comes back has at place s what seat s had for this one. All seats call it together,
/// with the same kind and step.
///
/// # Errors
/// A lost peer, an abort or the deadline.
///
/// # Panics
/// If there are not as many parts as seats.
pub(crate) fn all_to_all(
    net: &Net,
    shuffle: &dyn Shuffle,
    mut parts: Vec<Vec<u8>>,
    (kind, step): (u8, Step),
    by: Deadline,
) -> Result<Vec<Vec<u8>>> {
    let (me, world) = (net.seat(), net.world());
    assert_eq!(parts.len(), world as usize, "one part for each seat");
    let mut received = vec![Vec::new(); world as usize];
    received[me.index()] = std::mem::take(&mut parts[me.index()]);
    for round in 0..shuffle.rounds(world) {
        let Some((to, from)) = shuffle.pair(me, world, round) else { continue };
        let header = Header { lane: Lane::Exchange, kind, step, tag: round };
        net.send(to, header, &parts[to.index()], by)?;
        let mine = |arrival: &Arrival| {
            let header = arrival.header;
            arrival.from == from && header.kind == kind && header.step == step
        };
        received[from.index()] = net.next(Lane::Exchange, mine, by)?.payload;
    }
    Ok(received)
}
