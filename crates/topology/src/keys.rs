//! Rows to owners by consistent hashing (Karger et al., STOC 1997) with bounded loads (Mirrokni, Thorup and
//! Zadimoghaddam, SODA 2018): when the flock changes, few rows change their owner.
//!
//! Members and blocks of neighbouring rows are hashed onto a circle. A block belongs to the first member
//! clockwise that has room: none takes more than 1 + 1/4 times the average. A member stands at many places of
//! the circle, so that its share is nearly even before the bound has to act. How a table is cut into blocks
//! depends on its rows alone, never on the flock, or else a change of the flock would move everything.
//!
//! Measured, with 30 blocks an owner or more: when a member leaves or joins, at most 1.45 times an average
//! owner's rows move, and 1.09 times on average over who leaves; with 16 blocks at most 2.5 times. (What moves
//! beyond the member's own rows does so because the bound changes with the flock.)

use starlings_core::Seat;
use std::ops::Range;

/// Places on the circle of each member.
const POINTS: u64 = 128;

/// A table has at most so many blocks: sixteen for each owner in a flock of 256.
const BLOCKS_MAX: u32 = 4096;

/// An owner takes at most one part in so many above the average.
const SLACK: usize = 4;

/// The circle of a flock.
#[derive(Clone, Debug)]
pub struct KeyRing {
    /// Places and members, in the order of places.
    points: Vec<(u64, Seat)>,
    world: usize,
}

impl KeyRing {
    /// The circle of `members`, in the order of seats. A name must follow its member when seats are renumbered:
    /// where it stands on the circle depends on nothing else.
    ///
    /// ```
    /// use starlings_topology::KeyRing;
    /// let table = KeyRing::new(&[11, 12, 13]).table("weights", 1_000_000);
    /// let owner = table.owner(123_456);
    /// assert!(table.owned(owner).iter().any(|rows| rows.contains(&123_456)));
    /// ```
    ///
    /// # Panics
    /// If there are no members, or two of the same name.
    #[must_use]
    pub fn new(members: &[u64]) -> KeyRing {
        assert!(!members.is_empty(), "a table needs an owner");
        let places = |(seat, &member): (usize, &u64)| {
            // The name comes first: members of equal place (there are none but by accident) stay in order.
            (0..POINTS).map(move |point| ((mix(mix(member) ^ point), member), Seat(seat as u32)))
        };
        let mut points: Vec<_> = members.iter().enumerate().flat_map(places).collect();
        points.sort_unstable();
        let twice = points.windows(2).any(|pair| pair[0].0 == pair[1].0);
        assert!(!twice, "two members of one name");
        let points = points.into_iter().map(|((place, _), seat)| (place, seat)).collect();
        KeyRing { points, world: members.len() }
    }

    /// Who owns what of a table of `total` rows. It takes about as many steps as the table has blocks: make it
    /// once for a table and an epoch.
    #[must_use]
    pub fn table(&self, name: &str, total: u32) -> KeyTable {
        let shift = total.div_ceil(BLOCKS_MAX).max(1).next_power_of_two().trailing_zeros();
        let blocks = (u64::from(total).div_ceil(1 << shift)) as usize;
        // ⌈(1 + 1/SLACK) · blocks / world⌉, in whole numbers.
        let room = (blocks * (SLACK + 1)).div_ceil(SLACK * self.world);
        let mut load = vec![0; self.world];
        let salt = name.bytes().fold(0, |salt, byte| mix(salt ^ u64::from(byte)));
        let owners = (0..blocks).map(|block| {
            let place = mix(salt ^ mix(block as u64 + 1));
            let first = self.points.partition_point(|&(point, _)| point < place);
            let clockwise = self.points[first..].iter().chain(&self.points[..first]);
            let seats = clockwise.map(|&(_, seat)| seat);
            let owner = seats.into_iter().find(|seat| load[seat.index()] < room);
            let owner = owner.expect("all members together have room for more than all blocks");
            load[owner.index()] += 1;
            owner
        });
        KeyTable { owners: owners.collect(), shift, total }
    }
}

/// The owners of one table's rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyTable {
    /// By block.
    owners: Vec<Seat>,
    /// A block has two to this power rows.
    shift: u32,
    total: u32,
}

impl KeyTable {
    /// The owner of a row.
    ///
    /// # Panics
    /// If the table has no such row.
    #[must_use]
    pub fn owner(&self, row: u32) -> Seat {
        assert!(row < self.total, "row {row} of a table of {}", self.total);
        self.owners[(row >> self.shift) as usize]
    }

    /// The rows of a seat: sorted ranges that do not touch.
    #[must_use]
    pub fn owned(&self, seat: Seat) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let mine = self.owners.iter().enumerate().filter(|(_, owner)| **owner == seat);
        for (block, _) in mine {
            let start = (block as u32) << self.shift;
            let end = self.total - (self.total - start).saturating_sub(1 << self.shift);
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

/// Scatters a number over 64 bits (the finisher of SplitMix64: Steele, Lea and Flood, 2014).
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: [u32; 7] = [0, 1, 16, 1_000, 4_097, 1_000_000, 10_000_000];

    fn members(world: u32) -> Vec<u64> {
        (0..u64::from(world)).map(|seat| 1_000 + 7 * seat).collect()
    }

    fn rows(ranges: &[Range<u32>]) -> u32 {
        ranges.iter().map(|rows| rows.end - rows.start).sum()
    }

    #[test]
    fn ranges_make_up_the_table_and_rows_find_their_owner() {
        for world in (1..=17).chain([1024]) {
            let ring = KeyRing::new(&members(world));
            for total in TOTALS {
                let table = ring.table("weights", total);
                let mut all: Vec<(Range<u32>, Seat)> = Vec::new();
                for seat in (0..world).map(Seat) {
                    let owned = table.owned(seat);
                    assert!(owned.windows(2).all(|pair| pair[0].end < pair[1].start));
                    all.extend(owned.into_iter().map(|rows| (rows, seat)));
                }
                all.sort_unstable_by_key(|(rows, _)| rows.start);
                let mut end = 0;
                for (rows, seat) in all {
                    assert_eq!(rows.start, end, "world {world}, {total} rows");
                    assert!([rows.start, rows.end - 1].iter().all(|&row| table.owner(row) == seat));
                    end = rows.end;
                }
                assert_eq!(end, total, "world {world}");
            }
        }
    }

    #[test]
    fn nobody_owns_more_than_a_quarter_above_the_average() {
        for world in (1..=64).chain([256, 1024]) {
            let ring = KeyRing::new(&members(world));
            for total in TOTALS {
                let table = ring.table("weights", total);
                let block = 1u32 << table.shift;
                let most = (0..world).map(|seat| rows(&table.owned(Seat(seat)))).max().unwrap();
                let bound = 1.25 * f64::from(total) / f64::from(world) + 2.0 * f64::from(block);
                assert!(f64::from(most) <= bound, "world {world}, {total} rows: {most} > {bound}");
            }
        }
    }

    /// Rows that have another owner, by name, in shares of the average owner of the larger flock.
    fn moved(before: &[u64], after: &[u64], total: u32) -> f64 {
        let tables = [before, after].map(|members| KeyRing::new(members).table("weights", total));
        let moved = (0..tables[0].owners.len()).filter(|&block| {
            before[tables[0].owners[block].index()] != after[tables[1].owners[block].index()]
        });
        let average = tables[0].owners.len() as f64 / before.len().max(after.len()) as f64;
        moved.count() as f64 / average
    }

    #[test]
    fn when_one_leaves_or_joins_about_its_share_moves() {
        for (world, total) in [(2, 1_000), (3, 1_000), (8, 1_000), (16, 1_000), (32, 1_000)]
            .into_iter()
            .chain([2, 3, 4, 8, 16, 64].map(|world| (world, 4_096)))
            .chain([2, 3, 4, 8, 16, 64].map(|world| (world, 10_000_000)))
        {
            let all = members(world);
            let shares = (0..all.len()).map(|leaver| {
                let mut rest = all.clone();
                // Those after it get other seats, but keep their names and with them their rows.
                rest.remove(leaver);
                let shares = moved(&all, &rest, total);
                assert_eq!(shares, moved(&rest, &all, total), "joining is leaving backwards");
                shares
            });
            let shares: Vec<f64> = shares.collect();
            let most = shares.iter().copied().fold(0.0, f64::max);
            let average = shares.iter().sum::<f64>() / f64::from(world);
            assert!(most <= 1.5, "world {world}, {total} rows: {most} shares moved");
            assert!((0.999..1.1).contains(&average), "world {world}, {total} rows: {average}");
        }
    }

    #[test]
    fn tables_are_spread_apart_from_each_other() {
        let ring = KeyRing::new(&members(8));
        let (users, items) = (ring.table("users", 4_096), ring.table("items", 4_096));
        let same = (0..4_096).filter(|&row| users.owner(row) == items.owner(row)).count();
        assert!((350..700).contains(&same), "{same} of 4096 where 512 are expected");
    }

    #[test]
    fn seats_may_be_renumbered_without_moving_rows() {
        assert_eq!(moved(&[5, 6, 7, 8], &[8, 6, 5, 7], 100_000), 0.0);
    }

    #[test]
    #[should_panic(expected = "two members of one name")]
    fn names_are_unique() {
        let _ = KeyRing::new(&[3, 4, 3]);
    }
}
