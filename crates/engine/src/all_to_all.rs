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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, perches, run_all};
    use crate::choices;
    use starlings_transport::HEADER_BYTES;

    #[test]
    fn everyone_sends_as_many_bytes_as_is_said() {
        let (kind, len) = (1, 1000);
        for world in 1..=5 {
            let shuffle = choices::shuffle().unwrap();
            let seats = perches(world);
            run_all(&seats, |perch| {
                let parts = (0..world).map(|to| vec![(16 * perch.seat()) as u8 + to as u8; len]);
                let by = Deadline::after(PATIENCE);
                let which = (kind, Step(0));
                let came = all_to_all(&perch.net, &*shuffle, parts.collect(), which, by).unwrap();
                let mine = |from: u8| vec![16 * from + perch.seat() as u8; len];
                assert_eq!(came, (0..world as u8).map(mine).collect::<Vec<_>>());
            });
            let sent = seats.iter().map(|perch| {
                let heads = perch.sent(Lane::Exchange, kind) * HEADER_BYTES;
                (perch.net.bytes_sent() - heads as u64) as f64
            });
            let sent: Vec<f64> = sent.collect();
            let cost = shuffle.cost(world, u64::from(world) * len as u64);
            let counted = [sent.iter().copied().fold(0.0, f64::max), sent.iter().sum()];
            let said = [cost.bytes_sent_max, cost.bytes_sent_total];
            let near = |(said, sent): (&f64, &f64)| (said - sent).abs() < 1e-6;
            assert!(said.iter().zip(&counted).all(near), "{world} seats: {cost:?}, not {sent:?}");
        }
    }
}
