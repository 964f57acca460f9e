//! The move of rows to where `[data] partition` wants them: everyone reads a share of the files and sends each row to whoever
//! holds its shard.

use crate::all_to_all::all_to_all;
use crate::choices;
use crate::net::Net;
use crate::net::kinds::SHUFFLED;
use starlings_core::{Deadline, Fault, Result, Seat, Step};
use starlings_data::{DataSpec, Holding, Loose, Room, Survey, load_share};
use std::collections::BTreeSet;

/// Rows that go from one worker to another at a time: bounded, so that no message is.
const ROWS_MAX: usize = 1 << 16;

/// Reads this worker's share of the files and exchanges rows, until it has those of its shards.
///
/// # Errors
/// Files that cannot be read; a lost peer.
pub(crate) fn gather(
    net: &Net,
    (spec, survey): (&DataSpec, &Survey),
    holders: &[Seat],
    room: &Room,
    patience: std::time::Duration,
) -> Result<Holding> {
    let shuffle = choices::shuffle()?;
    let (me, world, shards) = (net.seat(), net.world(), holders.len() as u32);
    let share = load_share(spec, survey, (me.0, world), Some(room))?;
    let seats: Vec<u32> = holders.iter().map(|seat| seat.0).collect();
    let routes = share.routes(survey, &seats, world);
    let longest = routes.iter().map(Vec::len).max().unwrap_or(0).div_ceil(ROWS_MAX) as u64;
    let by = Deadline::after(patience);
    let counts = vec![longest.to_le_bytes().to_vec(); world as usize];
    let counts = all_to_all(net, &*shuffle, counts, (SHUFFLED, Step(0)), by)?;
    let mut rounds = 0;
    for count in counts {
        let count: [u8; 8] = count
            .try_into()
            .map_err(|_| Fault::peer(None, "a worker sent rows that cannot be read"))?;
        rounds = rounds.max(u64::from_le_bytes(count));
    }
    let mut parcels = Vec::new();
    for round in 0..rounds {
        let part = |rows: &Vec<usize>| match rows.chunks(ROWS_MAX).nth(round as usize) {
            Some(rows) => share.pack(rows),
            None => Vec::new(),
        };
        let by = Deadline::after(patience);
        let parts = routes.iter().map(part).collect();
        parcels.extend(all_to_all(net, &*shuffle, parts, (SHUFFLED, Step(1 + round)), by)?);
    }
    drop(share);
    let keep = (0..shards).filter(|shard| seats[*shard as usize] == me.0);
    let keep: BTreeSet<_> = keep.map(starlings_core::Shard).collect();
    let room = Some(room);
    Loose::unpack(survey, &parcels, room)?.settle(survey, (&keep, shards), room)
}
