//! Which rows lie together (`[data] partition`): as the files have them, by group, by the values of a key wherever its rows
//! stand, or in the sorted order of a column.
//!
//! An [`Arrangement`] is a new order of all rows, and shards are consecutive rows of it. It is learnt once, from all rows,
//! and is a function of the data alone: which row is where does not depend on the workers, and each row is somewhere
//! exactly once. Rows of equal value keep the order of the files. So a worker that knows the arrangement can fetch any
//! shard by reading everything; a flock does better: each reads its share, and rows move through the all-to-all
//! (`loose.rs`; MapReduce's shuffle, and sample sort with exact cuts in place of sampled ones: Frazer and McKellar, 1970).

mod loose;

pub use loose::{Loose, load_share};
pub(crate) use loose::{beside, gathered, load_arranged};

use crate::chunk::{Chunk, Dictionary};
use crate::encode::dictionary;
use crate::groups::Groups;
use crate::sources::Reading;
use crate::{Column, ColumnKind, ColumnRef, DataSpec, Survey, shard_start};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result, Shard, suggestion};
use std::collections::BTreeMap;

/// `[data] partition`: which rows lie together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Partition {
    /// As the files have them.
    Row,
    /// Groups are not cut; their rows stand together in the files.
    Group,
    /// Rows with the same value of this column are a group, wherever they stand.
    Key(ColumnRef),
    /// Rows in the order of this column's numbers, the label's or a feature's; missing ones last.
    Sort(ColumnRef),
}

/// A new order of all rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub enum Arrangement {
    /// As the files have them.
    #[default]
    AsRead,
    /// By the values of a key, in this order.
    Keys(Vec<String>),
    /// By a number; the first (value's place, row) of each shard but the first.
    Sorted(Vec<Spot>),
}

/// Where a row comes in the new order: the value's place among values, and among equal ones the row's number.
pub type Spot = (u32, u64);

impl Arrangement {
    /// Whether rows must move.
    #[must_use]
    pub fn moves(&self) -> bool {
        *self != Arrangement::AsRead
    }

    /// The shard of a row, of `groups` where there are any.
    pub(crate) fn shard_of(&self, spot: Spot, groups: Option<&Groups>) -> Shard {
        let shard = match self {
            Arrangement::Sorted(cuts) => cuts.partition_point(|cut| *cut <= spot),
            Arrangement::Keys(_) | Arrangement::AsRead => {
                groups.map_or(0, |groups| groups.shard_of_group(spot.0 as usize))
            }
        };
        Shard(shard as u32)
    }
}

/// What gives a row its spot.
pub(crate) enum Sorter {
    /// Its label.
    Label,
    /// The number in this slot of the raw columns.
    Slot(usize),
    /// Its key, by code.
    Key(Dictionary),
}

impl Sorter {
    /// By the words of a job and what the survey knows.
    pub(crate) fn new(spec: &DataSpec, survey: &Survey) -> Result<Option<Sorter>> {
        match (&spec.partition, &survey.arrangement) {
            (Some(Partition::Key(_)), Arrangement::Keys(texts)) => {
                Ok(Some(Sorter::Key(dictionary(texts)?)))
            }
            (Some(Partition::Sort(column)), _) => sorted_by(column, survey).map(Some),
            _ => Ok(None),
        }
    }

    /// The spots of a chunk's rows, of which the first has this number in the data set.
    pub(crate) fn spots(&self, name: &str, chunk: &Chunk, first: u64) -> Result<Vec<Spot>> {
        let rows = first..first + chunk.rows as u64;
        let places: Vec<u32> = match self {
            Sorter::Label => chunk.labels.iter().map(|label| place(*label)).collect(),
            Sorter::Slot(slot) => {
                let crate::Features::Dense { width, values } = &chunk.features else {
                    unreachable!("columns are dense before they are encoded")
                };
                values.iter().skip(*slot).step_by(*width).map(|value| place(*value)).collect()
            }
            Sorter::Key(codes) => {
                let texts = chunk.group_keys.texts();
                let code =
                    |text: &String| codes.find(text).ok_or_else(|| crate::input::changed(name));
                let map: Vec<u32> = texts.iter().map(code).collect::<Result<_>>()?;
                chunk.groups.iter().map(|seen| map[*seen as usize]).collect()
            }
        };
        assert_eq!(places.len(), chunk.rows, "every row has a place");
        Ok(places.into_iter().zip(rows).collect())
    }
}

/// A number's place among all numbers: 0 and -0 are one, and what is missing comes last.
fn place(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    match value.is_nan() {
        true => u32::MAX,
        false if bits >> 31 == 1 => !bits,
        false => bits | 1 << 31,
    }
}

fn sorted_by(wanted: &ColumnRef, survey: &Survey) -> Result<Sorter> {
    let label = survey.schema.label.as_deref();
    let raw = survey.intake.prepared.raw.as_slice();
    let columns: &[Column] = if raw.is_empty() { &survey.schema.columns } else { raw };
    let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).chain(label).collect();
    let slot = match wanted {
        ColumnRef::Name(name) if label == Some(name) => return Ok(Sorter::Label),
        // Formats without columns have no name for their label.
        ColumnRef::Name(name) if columns.is_empty() && name == "label" => return Ok(Sorter::Label),
        ColumnRef::Name(name) => columns.iter().position(|column| column.name == *name),
        ColumnRef::Index(at) => {
            columns.iter().position(|column| usize::try_from(*at) == Ok(column.position))
        }
    };
    let fault = |what: &str| Fault::caller(format!("[data] partition: {what}"));
    let Some(slot) = slot else {
        return Err(match wanted {
            ColumnRef::Name(name) => fault(&format!("'{name}' is neither the label nor a feature"))
                .hint(suggestion(name, &known)),
            ColumnRef::Index(at) => fault(&format!("column {at} is not a feature"))
                .hint("name the column: the label's, or a feature's"),
        });
    };
    match &columns[slot].kind {
        ColumnKind::Numeric { .. } => Ok(Sorter::Slot(slot)),
        ColumnKind::Categorical { .. } => {
            Err(fault(&format!("'{}' holds texts, which have no order", columns[slot].name))
                .hint("sort by a column of numbers, or keep equal texts together: { key = … }"))
        }
    }
}

/// Learns the cuts between shards, for a job that sorts its rows: one more reading of everything, and 8 bytes a row.
///
/// # Errors
/// A column that cannot be sorted by; files that have changed.
pub fn arrange(spec: &DataSpec, mut survey: Survey, shards: u32) -> Result<Survey> {
    let Some(Partition::Sort(_)) = spec.partition else { return Ok(survey) };
    let mut places = Vec::with_capacity(survey.rows as usize);
    loose::each_chunk(spec, &survey, 0..survey.rows, &mut |spots, _, _| {
        places.extend(spots.iter().map(|spot| spot.0));
        Ok(())
    })?;
    survey.arrangement = Arrangement::Sorted(cuts(&places, shards));
    Ok(survey)
}

/// The spots at which shards begin, so that they have the sizes that shards have.
fn cuts(places: &[u32], shards: u32) -> Vec<Spot> {
    let rows = places.len() as u64;
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let starts = (1..shards).map(|shard| shard_start(rows, shards, Shard(shard)) as usize);
    let mut cuts: Vec<(u32, usize)> = Vec::with_capacity(shards as usize);
    for start in starts {
        match sorted.get(start) {
            // Of the rows with this place, so many come before the cut.
            Some(&place) => cuts.push((place, start - sorted.partition_point(|it| *it < place))),
            None => cuts.push((u32::MAX, usize::MAX)),
        }
    }
    rows_of(&cuts, places)
}

/// Turns "the n-th row of this place" into the row's number: cuts are in order, so one look at all places is enough.
fn rows_of(cuts: &[(u32, usize)], places: &[u32]) -> Vec<Spot> {
    let mut found: Vec<Spot> = cuts.iter().map(|cut| (cut.0, u64::MAX)).collect();
    let mut seen: BTreeMap<u32, usize> = cuts.iter().map(|cut| (cut.0, 0)).collect();
    for (row, place) in places.iter().enumerate() {
        let Some(count) = seen.get_mut(place) else { continue };
        let from = cuts.partition_point(|cut| cut < &(*place, *count));
        for (cut, spot) in cuts[from..].iter().zip(&mut found[from..]) {
            if *cut != (*place, *count) {
                break;
            }
            spot.1 = row as u64;
        }
        *count += 1;
    }
    found
}

/// What `spec` says of the reading of keys: their column is read like a group's.
pub(crate) fn is_scattered(spec: &DataSpec) -> bool {
    matches!(spec.partition, Some(Partition::Key(_)))
}

/// Keeps the group's role of columns only where keys are to be read.
pub(crate) fn without_groups(reading: &mut Reading, keys: bool) {
    use crate::sources::Role;
    if keys {
        return;
    }
    reading.queries = false;
    let groups = reading.roles.iter_mut().filter(|role| **role == Role::Group);
    groups.for_each(|role| *role = Role::Skip);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_order_of_numbers_and_missing_ones_last() {
        let numbers = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 3.0, f32::INFINITY];
        assert!(numbers.windows(2).all(|pair| place(pair[0]) < place(pair[1])));
        assert!(place(f32::INFINITY) < place(f32::NAN));
        assert_eq!(place(0.0), place(-0.0));
    }

    #[test]
    fn cuts_give_every_shard_its_size_whatever_the_ties() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for (rows, values, shards) in [(1000, 7, 16), (50, 1, 16), (5, 3, 16), (999, 400, 3)] {
            let places: Vec<u32> = (0..rows).map(|_| draw(values) as u32).collect();
            let arrangement = Arrangement::Sorted(cuts(&places, shards));
            let mut sizes = vec![0; shards as usize];
            let spots = places.iter().enumerate().map(|(row, place)| (*place, row as u64));
            let mut spots: Vec<Spot> = spots.collect();
            spots.sort_unstable();
            let shard = |spot: &Spot| arrangement.shard_of(*spot, None).0;
            spots.iter().for_each(|spot| sizes[shard(spot) as usize] += 1);
            assert!(spots.iter().map(shard).is_sorted());
            for (at, size) in sizes.iter().enumerate() {
                assert_eq!(*size, crate::shard_rows(rows, shards, Shard(at as u32)), "{at}");
            }
        }
    }
}
