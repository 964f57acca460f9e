//! Rows on their way from a worker that gives a shard away to the one that takes it: nobody has to read a file again
//! for rows that are in memory somewhere.

use crate::partition::{beside, gathered};
use crate::spill::Pile;
use crate::{Features, Holding, Numbers, Room, Stored, Table};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result, Shard};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Numbers in a parcel, about: a quarter of a megabyte, so that what shares the link with parcels never waits for long.
const NUMBERS: usize = 1 << 16;

/// Consecutive rows of one shard.
#[derive(Clone, PartialEq, Debug)]
pub struct Parcel {
    shard: Shard,
    /// The first of them, counted from the shard's first.
    first: u64,
    rows: u64,
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
    features: Features,
}

impl Parcel {
    /// Reads one, whose parts must agree.
    ///
    /// # Errors
    /// Bytes that are no rows.
    pub fn read(bytes: &[u8]) -> Result<Parcel> {
        let parcel = Parcel::parse(bytes).filter(Parcel::agrees);
        parcel.ok_or_else(|| Fault::peer(None, "a worker sent rows that cannot be read"))
    }

    fn parse(bytes: &[u8]) -> Option<Parcel> {
        let (head, mut rest): (Head, &[u8]) = postcard::take_from_bytes(bytes).ok()?;
        let [labels, weights, groups, starts, columns, values] = head.lengths;
        let (labels, weights) = (numbers(&mut rest, labels)?, numbers(&mut rest, weights)?);
        let groups = numbers(&mut rest, groups)?;
        let width = usize::try_from(head.width).ok()?;
        let features = match head.is_sparse {
            false => Features::Dense { width, values: numbers(&mut rest, values)? },
            true => {
                let starts: Vec<u64> = numbers(&mut rest, starts)?;
                let starts = starts.into_iter().map(|it| usize::try_from(it).ok());
                let starts = starts.collect::<Option<Vec<usize>>>()?;
                let columns = numbers(&mut rest, columns)?;
                Features::Sparse { width, starts, columns, values: numbers(&mut rest, values)? }
            }
        };
        let Head { shard, first, rows, .. } = head;
        rest.is_empty().then_some(Parcel { shard, first, rows, labels, weights, groups, features })
    }

    /// As bytes: a head, and the numbers as they lie in memory.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let none = (Vec::new(), &[][..]);
        let (is_sparse, width, (starts, columns), values) = match &self.features {
            Features::Dense { width, values } => (false, width, none, values),
            Features::Sparse { width, starts, columns, values } => {
                let starts = starts.iter().map(|it| *it as u64).collect();
                (true, width, (starts, &columns[..]), values)
            }
        };
        let (labels, weights, groups) = (&self.labels, &self.weights, &self.groups);
        let lengths =
            [labels.len(), weights.len(), groups.len(), starts.len(), columns.len(), values.len()];
        let head = Head {
            shard: self.shard,
            first: self.first,
            rows: self.rows,
            width: *width as u64,
            is_sparse,
            lengths: lengths.map(|len| len as u64),
        };
        let mut bytes = postcard::to_stdvec(&head).expect("plain data serialises");
        bytes.extend_from_slice(bytemuck::cast_slice(labels));
        bytes.extend_from_slice(bytemuck::cast_slice(weights));
        bytes.extend_from_slice(bytemuck::cast_slice(groups));
        bytes.extend_from_slice(bytemuck::cast_slice(&starts));
        bytes.extend_from_slice(bytemuck::cast_slice(columns));
        bytes.extend_from_slice(bytemuck::cast_slice(values));
        bytes
    }

    /// Which shard, and how many of its rows.
    #[must_use]
    pub fn rows(&self) -> (Shard, u64) {
        (self.shard, self.rows)
    }

    fn agrees(&self) -> bool {
        let rows = self.rows as usize;
        let beside = |len: usize| len == 0 || len == rows;
        // Rows without features take no bytes: only this bounds how many of them a few bytes may claim.
        self.rows <= NUMBERS as u64
            && beside(self.labels.len())
            && beside(self.weights.len())
            && beside(self.groups.len())
            && self.features.is_sound(rows)
    }
}

/// What a parcel begins with.
#[derive(Serialize, Deserialize)]
struct Head {
    shard: Shard,
    first: u64,
    rows: u64,
    width: u64,
    is_sparse: bool,
    /// Of labels, weights, groups, starts, columns and values.
    lengths: [u64; 6],
}

// The bytes in memory are the bytes on the wire. A big-endian machine would have to swap them.
const _: () = assert!(cfg!(target_endian = "little"), "parcels are little-endian");

/// The next numbers of some bytes, if there are so many.
fn numbers<T: bytemuck::Pod>(rest: &mut &[u8], len: u64) -> Option<Vec<T>> {
    let bytes = usize::try_from(len).ok()?.checked_mul(size_of::<T>())?;
    let (numbers, after) = rest.split_at_checked(bytes)?;
    *rest = after;
    Some(bytemuck::pod_collect_to_vec(numbers))
}

impl Features {
    /// Whether these are so many rows, with nothing that would lead a reader astray.
    pub(crate) fn is_sound(&self, rows: usize) -> bool {
        match self {
            Features::Dense { width, values } => rows.checked_mul(*width) == Some(values.len()),
            Features::Sparse { width, starts, columns, values } => {
                rows.checked_add(1) == Some(starts.len())
                    && starts.first() == Some(&0)
                    && starts.last() == Some(&values.len())
                    && starts.is_sorted()
                    && columns.len() == values.len()
                    && columns.iter().all(|column| (*column as usize) < *width)
            }
        }
    }
}

impl Holding {
    /// The rows of a shard that is held here, parcel after parcel.
    pub fn parcels(&self, shard: Shard) -> impl Iterator<Item = Parcel> + '_ {
        let (start, rows) = (self.starts[&shard], self.shard_rows(shard) as usize);
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = next;
            next = self.parcel_end(start, first..rows);
            (first < rows).then(|| self.parcel((shard, start), first..next))
        })
    }

    /// Where a parcel ends that begins with the first of these rows.
    fn parcel_end(&self, start: usize, rows: Range<usize>) -> usize {
        let mut numbers = 0;
        for row in rows.clone() {
            numbers += match self.table.row(start + row) {
                crate::Row::Dense(values) => values.len().max(1),
                crate::Row::Sparse(_, values) => 2 * values.len() + 1,
            };
            if numbers >= NUMBERS {
                return row + 1;
            }
        }
        rows.end
    }

    fn parcel(&self, (shard, start): (Shard, usize), range: Range<usize>) -> Parcel {
        let (table, rows) =
            (&*self.table, &range.clone().map(|row| start + row).collect::<Vec<_>>()[..]);
        let group = |row: &usize| table.groups.get(*row).copied();
        Parcel {
            shard,
            first: range.start as u64,
            rows: range.len() as u64,
            labels: beside(&table.labels, rows).collect(),
            weights: beside(&table.weights, rows).collect(),
            groups: rows.iter().filter_map(group).collect(),
            features: gathered(table, rows),
        }
    }

    /// Exactly these shards, out of rows that are held here and of parcels as they arrive. Where the table has room they are put
    /// behind its rows; else all are put down anew, those that arrive first, for whoever sends them waits until they are taken;
    /// what does not fit into the room lies in a file.
    ///
    /// # Errors
    /// Rows that are missing, come twice or do not fit the others, or no longer come; a full disk.
    pub fn reassembled(
        &self,
        keep: &[Shard],
        parcels: impl IntoIterator<Item = Result<Parcel>>,
        room: Option<&Room>,
    ) -> Result<Holding> {
        let mut keep = keep.to_vec();
        keep.sort_unstable();
        let (own, others): (Vec<Shard>, Vec<Shard>) =
            keep.iter().partition(|shard| self.starts.contains_key(shard));
        let rows = |shards: &[Shard]| shards.iter().map(|&shard| self.shard_rows(shard)).sum();
        let mut starts = BTreeMap::new();
        let behind = Stack::behind(&self.table, rows(&others));
        let is_anew = behind.is_none();
        let in_all = (rows(&keep), self.rows_total);
        let mut stack = behind.unwrap_or_else(|| Stack::new(self.table.width(), in_all, room));
        let mut arrivals = Arrivals::of(others.into_iter().map(|it| (it, self.shard_rows(it))));
        for parcel in parcels {
            arrivals.add(parcel?)?;
            while let Some((shard, parcel)) = arrivals.next() {
                starts.entry(shard).or_insert(stack.rows as usize);
                stack.put(parcel)?;
            }
        }
        arrivals.finish()?;
        for shard in own {
            starts.insert(shard, if is_anew { stack.rows as usize } else { self.starts[&shard] });
            if is_anew {
                self.parcels(shard).try_for_each(|parcel| stack.put(parcel))?;
            }
        }
        // Shards without a row never arrive.
        keep.iter().for_each(|&shard| _ = starts.entry(shard).or_insert(stack.rows as usize));
        let table = Arc::new(stack.finish(&self.table)?);
        Ok(Holding { table, starts, ..self.clone() })
    }
}

/// Parcels in the order in which they arrive, but that a shard is complete before the next begins: several givers send at once.
struct Arrivals {
    /// Of each shard that is still to come: rows that have arrived, and how many there will be.
    due: BTreeMap<Shard, (u64, u64)>,
    waiting: BTreeMap<Shard, VecDeque<Parcel>>,
    /// The shard that is being put down, and how many of its rows are still to be.
    open: Option<(Shard, u64)>,
}

impl Arrivals {
    fn of(shards: impl Iterator<Item = (Shard, u64)>) -> Arrivals {
        let due = shards.filter(|(_, rows)| *rows > 0).map(|(shard, rows)| (shard, (0, rows)));
        Arrivals { due: due.collect(), waiting: BTreeMap::new(), open: None }
    }

    fn add(&mut self, parcel: Parcel) -> Result<()> {
        let (there, rows) = self.due.get_mut(&parcel.shard).ok_or_else(astray)?;
        if parcel.first != *there || parcel.rows == 0 || parcel.rows > *rows - *there {
            return Err(astray());
        }
        *there += parcel.rows;
        self.waiting.entry(parcel.shard).or_default().push_back(parcel);
        Ok(())
    }

    /// The next parcel to put down, if it is there.
    fn next(&mut self) -> Option<(Shard, Parcel)> {
        let first = || self.waiting.keys().next().map(|&shard| (shard, self.due[&shard].1));
        let (shard, left) = self.open.or_else(first)?;
        self.open = Some((shard, left));
        let queue = self.waiting.get_mut(&shard)?;
        let parcel = queue.pop_front()?;
        let left = left - parcel.rows;
        if left == 0 {
            self.waiting.remove(&shard);
        }
        self.open = (left > 0).then_some((shard, left));
        Some((shard, parcel))
    }

    fn finish(self) -> Result<()> {
        let is_whole = self.due.values().all(|(there, rows)| there == rows);
        if is_whole { Ok(()) } else { Err(astray()) }
    }
}

fn astray() -> Fault {
    Fault::peer(None, "rows went astray on their way from worker to worker")
}

/// Rows put on top of each other.
struct Stack<'a> {
    ground: Ground<'a>,
    width: usize,
    rows: u64,
    /// How many it will be, and how many the data set has.
    rows_in_all: (u64, u64),
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
}

/// What rows are put on.
enum Ground<'a> {
    /// Nothing, at first.
    Pile(Pile<'a>),
    /// The dense rows of a table that has room.
    Behind(Numbers<f32>),
}

impl Ground<'_> {
    /// Whether these rows are of the same kind.
    fn is_like(&self, features: &Features) -> bool {
        match self {
            Ground::Pile(pile) => pile.is_like(features),
            Ground::Behind(_) => matches!(features, Features::Dense { .. }),
        }
    }

    fn add(&mut self, rows: usize, features: Features) -> Result<()> {
        match (self, features) {
            (Ground::Pile(pile), features) => pile.add(rows, features),
            (Ground::Behind(numbers), Features::Dense { values, .. }) => {
                let no_room = || Fault::machine("rows came where others had been put");
                *numbers = numbers.grown(&values).ok_or_else(no_room)?;
                Ok(())
            }
            (Ground::Behind(_), Features::Sparse { .. }) => unreachable!("refused before"),
        }
    }
}

impl<'a> Stack<'a> {
    fn new(width: usize, rows_in_all: (u64, u64), room: Option<&'a Room>) -> Stack<'a> {
        let (labels, weights, groups) = (Vec::new(), Vec::new(), Vec::new());
        let ground = Ground::Pile(Pile::new(width, room));
        Stack { ground, width, rows: 0, rows_in_all, labels, weights, groups }
    }

    /// Behind the rows of a table, if it has room for so many more. Rows that it holds for nobody stay, and take room.
    fn behind(table: &Table, more: u64) -> Option<Stack<'a>> {
        let Features::Dense { width, values } = &table.features else { return None };
        let (rows, numbers) = (table.rows() as u64, more.checked_mul(*width as u64)?);
        if rows == 0 || *width == 0 || numbers > values.room() as u64 {
            return None;
        }
        Some(Stack {
            ground: Ground::Behind(values.clone()),
            width: *width,
            rows,
            rows_in_all: (rows + more, rows + more),
            labels: table.labels.clone(),
            weights: table.weights.clone(),
            groups: table.groups.clone(),
        })
    }

    fn put(&mut self, parcel: Parcel) -> Result<()> {
        let width = match &parcel.features {
            Features::Dense { width, .. } | Features::Sparse { width, .. } => *width,
        };
        // A worker that had no rows yet does not know how wide they are.
        if self.rows == 0 {
            self.width = width;
        }
        let is_first = self.rows == 0;
        self.rows += parcel.rows;
        self.labels.extend(parcel.labels);
        self.weights.extend(parcel.weights);
        self.groups.extend(parcel.groups);
        let rows = self.rows as usize;
        let beside = |len: usize| len == 0 || len == rows;
        let is_like =
            beside(self.labels.len()) && beside(self.weights.len()) && beside(self.groups.len());
        if width != self.width || !is_like || !(is_first || self.ground.is_like(&parcel.features)) {
            return Err(Fault::peer(None, "a worker sent rows of another kind"));
        }
        self.ground.add(parcel.rows as usize, parcel.features)?;
        // Only the first says what kind of rows they are.
        if let Ground::Pile(pile) = &mut self.ground
            && is_first
        {
            let (rows, all) = self.rows_in_all;
            pile.expect(rows.saturating_sub(self.rows), all);
        }
        Ok(())
    }

    fn finish(self, before: &Table) -> Result<Table> {
        let Stack { ground, width, labels, weights, groups, rows, .. } = self;
        let features = match ground {
            Ground::Behind(values) => Stored::Dense { width, values },
            Ground::Pile(_) if rows == 0 => gathered(before, &[]).into(),
            Ground::Pile(pile) => pile.finish(|plain| plain)?,
        };
        Ok(Table { features, labels, weights, groups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dealer;

    const SHARDS: u32 = 4;

    fn table(rows: usize, is_sparse: bool) -> Table {
        let width = 3;
        let features = match is_sparse {
            false => {
                Features::Dense { width, values: (0..rows * width).map(|it| it as f32).collect() }
            }
            true => {
                let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
                for row in 0..rows {
                    for column in 0..row % (width + 1) {
                        columns.push(column as u32);
                        values.push((row * 10 + column) as f32);
                    }
                    starts.push(columns.len());
                }
                Features::Sparse { width, starts, columns, values }
            }
        };
        let mut table = Table::new(features, (0..rows).map(|row| row as f32).collect());
        table.weights = (0..rows).map(|row| 0.5 + row as f32).collect();
        table
    }

    fn sent(from: &Holding, shard: u32) -> Vec<Parcel> {
        let bytes = from.parcels(Shard(shard)).map(|parcel| parcel.to_bytes());
        bytes.map(|bytes| Parcel::read(&bytes).unwrap()).collect()
    }

    /// The labels, weights and features of all rows of a step.
    fn seen(holding: &Holding) -> Vec<String> {
        let mut dealer = Dealer::new(holding.clone(), 7, 9);
        let batch = dealer.deal(1, 1);
        let table = batch.table;
        let row =
            |row| format!("{:?} {} {}", table.row(row), table.labels[row], table.weights[row]);
        batch.rows().map(row).collect()
    }

    #[test]
    fn shards_that_were_sent_are_dealt_like_shards_that_were_read() {
        for (rows, is_sparse) in [(23, false), (23, true), (2, false), (400_000, false)] {
            let whole = Holding::whole(Arc::new(table(rows, is_sparse)), SHARDS);
            let mine = whole.only(&[Shard(1), Shard(2)]);
            let parcels = [sent(&whole, 3), sent(&whole, 0)].concat();
            assert!(rows < 400_000 || parcels.len() > 2, "large shards go in several parcels");
            let keep = [Shard(3), Shard(0), Shard(2)];
            let now = mine.reassembled(&keep, parcels.into_iter().map(Ok), None).unwrap();
            assert_eq!(seen(&now), seen(&whole.only(&keep)));
            assert_eq!(now.table.rows() as u64, now.rows_held(), "nothing else is kept");
        }
    }

    #[test]
    fn rows_are_put_behind_those_that_are_there_while_there_is_room() {
        let whole = Holding::whole(Arc::new(table(23, false)), SHARDS);
        let room = Room::new(1 << 20, "/nonexistent".into()).growing();
        let place = |holding: &Holding| match &holding.table.features {
            Features::Dense { values, .. } => values.as_ptr(),
            Features::Sparse { .. } => panic!("rows are dense"),
        };
        let take = |from: &Holding, keep: &[u32], more: u32| {
            let keep: Vec<Shard> = keep.iter().map(|shard| Shard(*shard)).collect();
            let sent = sent(&whole, more).into_iter().map(Ok);
            let now = from.reassembled(&keep, sent, Some(&room)).unwrap();
            assert_eq!(seen(&now), seen(&whole.only(&keep)));
            now
        };
        let first = take(&whole.only(&[Shard(1)]), &[1, 3], 3);
        let (before, then) = (seen(&first), take(&first, &[1, 3, 0], 0));
        assert_eq!(place(&first), place(&then), "nothing is copied");
        assert_eq!(seen(&first), before, "whoever still reads the old rows sees them");
        // A second of the same rows would have to be put where others are.
        assert_ne!(place(&take(&first, &[1, 3, 2], 2)), place(&then));
        // The rows of shards that have gone take room until there is none: then the others are put down anew.
        let last = take(&then.only(&[Shard(1)]), &[1, 2], 2);
        assert_eq!((place(&last), last.table.rows()), (place(&first), 23));
        let anew = take(&last, &[1, 2, 0], 0);
        assert_ne!(place(&anew), place(&first));
        assert_eq!(anew.table.rows() as u64, anew.rows_held());
    }

    #[test]
    fn rows_of_several_givers_may_arrive_in_turns() {
        let whole = Holding::whole(Arc::new(table(400_000, false)), SHARDS);
        let keep = [Shard(0), Shard(2), Shard(3)];
        let (mut first, mut second) = (sent(&whole, 0).into_iter(), sent(&whole, 3).into_iter());
        assert!(first.len() > 2);
        let mixed: Vec<Parcel> = std::iter::from_fn(|| Some([second.next(), first.next()]))
            .take_while(|pair| pair.iter().any(Option::is_some))
            .flat_map(|pair| pair.into_iter().flatten())
            .collect();
        let mixed = mixed.into_iter().map(Ok);
        let now = whole.only(&[Shard(2)]).reassembled(&keep, mixed, None).unwrap();
        assert_eq!(seen(&now), seen(&whole.only(&keep)));
    }

    #[test]
    fn whoever_gives_all_away_can_take_some_back() {
        let whole = Holding::whole(Arc::new(table(23, true)), SHARDS);
        let none = whole.reassembled(&[], [], None).unwrap();
        assert_eq!((none.table.rows(), none.rows_held()), (0, 0));
        let again =
            none.reassembled(&[Shard(2)], sent(&whole, 2).into_iter().map(Ok), None).unwrap();
        assert_eq!(seen(&again), seen(&whole.only(&[Shard(2)])));
    }

    #[test]
    fn rows_that_are_missing_twice_there_or_of_another_kind_are_refused() {
        let whole = Holding::whole(Arc::new(table(23, false)), SHARDS);
        let mine = whole.only(&[Shard(1)]);
        let keep = [Shard(0), Shard(1)];
        assert!(mine.reassembled(&keep, [], None).is_err());
        let twice = [sent(&whole, 0), sent(&whole, 0)].concat();
        assert!(mine.reassembled(&keep, twice.into_iter().map(Ok), None).is_err());
        let other = Holding::whole(Arc::new(table(23, true)), SHARDS);
        assert!(mine.reassembled(&keep, sent(&other, 0).into_iter().map(Ok), None).is_err());
        let mut bytes = sent(&whole, 0)[0].to_bytes();
        bytes.truncate(20);
        assert!(Parcel::read(&bytes).is_err());
    }

    #[test]
    fn rows_without_features_are_no_more_than_a_parcel_holds() {
        let of = |rows| Parcel {
            shard: Shard(0),
            first: 0,
            rows,
            labels: Vec::new(),
            weights: Vec::new(),
            groups: Vec::new(),
            features: Features::Dense { width: 0, values: Vec::new() },
        };
        assert!(Parcel::read(&of(NUMBERS as u64).to_bytes()).is_ok());
        assert!(Parcel::read(&of(NUMBERS as u64 + 1).to_bytes()).is_err());
        assert!(Parcel::read(&of(u64::MAX).to_bytes()).is_err());
    }
}
