//! Rows on their way to where the arrangement wants them: read in the order of files, sent to whoever holds their
//! shard, and put in order there.

use super::{Arrangement, Sorter, Spot};
use crate::chunk::Chunk;
use crate::encode::{Fitting, dictionary, relabel};
use crate::groups::Groups;
use crate::load::{prepare_reading, read_rows};
use crate::sources::Request;
use crate::spill::Pile;
use crate::{
    DataSpec, Features, Holding, Room, Row, Stored, Survey, Table, Target, locate, shard_start,
};
use starlings_core::{Fault, Result, Shard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Rows gathered at a time when they are put in order.
const GATHERED: usize = 4096;

/// Rows with the spots that the arrangement has for them, in any order.
#[derive(Clone, PartialEq, Debug)]
pub struct Loose {
    table: Table,
    spots: Vec<Spot>,
}

/// Reads the rows of a share of the files: part `part` of `parts`.
///
/// # Errors
/// As [`load`](crate::load).
pub fn load_share(
    spec: &DataSpec,
    survey: &Survey,
    (part, parts): (u32, u32),
    room: Option<&Room>,
) -> Result<Loose> {
    let start = |part| shard_start(survey.rows, parts, Shard(part));
    let to = if part + 1 == parts { survey.rows } else { start(part + 1) };
    read(spec, survey, start(part)..to, &mut |_| true, room)
}

/// Reads the rows of some shards by looking at all rows.
pub(crate) fn load_arranged(
    spec: &DataSpec,
    survey: &Survey,
    (keep, shards): (&BTreeSet<Shard>, u32),
    room: Option<&Room>,
) -> Result<Holding> {
    let groups = Groups::new(&survey.group_rows, shards);
    let arrangement = &survey.arrangement;
    let mut wanted = |spot| keep.contains(&arrangement.shard_of(spot, groups.as_ref()));
    let loose = read(spec, survey, 0..survey.rows, &mut wanted, room)?;
    loose.settle(survey, (keep, shards), room)
}

/// Reads rows of the files, those that are wanted.
fn read(
    spec: &DataSpec,
    survey: &Survey,
    rows: Range<u64>,
    wanted: &mut dyn FnMut(Spot) -> bool,
    room: Option<&Room>,
) -> Result<Loose> {
    let mut fitting = Fitting::new(&survey.schema, &survey.intake.prepared, room)?;
    fitting.next_row = Some(rows.start);
    let mut spots = Vec::new();
    each_chunk(spec, survey, rows, &mut |found, name, mut chunk| {
        let picked: Vec<usize> = (0..chunk.rows).filter(|row| wanted(found[*row])).collect();
        // The spots know the groups already.
        chunk.groups.clear();
        spots.extend(picked.iter().map(|row| found[*row]));
        fitting.add_some(name, chunk, Some(&picked)).map(|_| ())
    })?;
    Ok(Loose { table: fitting.finish()?, spots })
}

/// Who takes chunks with the spots of their rows and the name of their file.
type Take<'a> = dyn FnMut(Vec<Spot>, &str, Chunk) -> Result<()> + 'a;

/// Goes through rows of the files in their order.
pub(super) fn each_chunk(
    spec: &DataSpec,
    survey: &Survey,
    rows: Range<u64>,
    take: &mut Take<'_>,
) -> Result<()> {
    let (_, parts) = locate::open(spec)?;
    let reading = prepare_reading(spec, survey, &parts)?;
    let sorter = Sorter::new(spec, survey)?.expect("only jobs that arrange rows come here");
    let classes = match &survey.schema.target {
        Target::Classes(classes) => Some(dictionary(classes)?),
        _ => None,
    };
    let mut first = 0;
    for (part, plan) in parts.iter().zip(&survey.files) {
        let from = rows.start.clamp(first, first + plan.rows) - first;
        let to = rows.end.clamp(first, first + plan.rows) - first;
        let request =
            Request { reading: &reading, rows: from..to, marks: &plan.marks, tally: None };
        let name = part.name();
        if from < to {
            read_rows(part.as_ref(), &request, &mut |chunk| {
                if let (Sorter::Label, Some(classes)) = (&sorter, &classes) {
                    let mut known = chunk.clone();
                    relabel(&name, &mut known, classes)?;
                    let spots = sorter.spots(&name, &known, first + known.first_row)?;
                    return take(spots, &name, chunk);
                }
                let spots = sorter.spots(&name, &chunk, first + chunk.first_row)?;
                take(spots, &name, chunk)
            })?;
        }
        first += plan.rows;
    }
    Ok(())
}

impl Loose {
    /// Which rows go to which of `world` workers; `holders` has the worker of each shard.
    #[must_use]
    pub fn routes(&self, survey: &Survey, holders: &[u32], world: u32) -> Vec<Vec<usize>> {
        let groups = Groups::new(&survey.group_rows, holders.len() as u32);
        let mut routes = vec![Vec::new(); world as usize];
        for (row, spot) in self.spots.iter().enumerate() {
            let shard = survey.arrangement.shard_of(*spot, groups.as_ref());
            routes[holders[shard.0 as usize] as usize].push(row);
        }
        routes
    }

    /// Some rows as bytes.
    #[must_use]
    pub fn pack(&self, rows: &[usize]) -> Vec<u8> {
        let table = &self.table;
        let spots = rows.iter().map(|row| self.spots[*row]);
        let mut places: Vec<u32> = Vec::with_capacity(rows.len());
        let mut numbers: Vec<u64> = Vec::with_capacity(rows.len());
        for (place, number) in spots {
            places.push(place);
            numbers.push(number);
        }
        let parcel = Parcel {
            places,
            numbers,
            labels: beside(&table.labels, rows).collect(),
            weights: beside(&table.weights, rows).collect(),
            features: gathered(table, rows),
        };
        postcard_bytes(&parcel)
    }

    /// The rows of all parcels, which fit the rows of a survey.
    ///
    /// # Errors
    /// Bytes that are no rows, or rows of another width.
    pub fn unpack(survey: &Survey, parcels: &[Vec<u8>], room: Option<&Room>) -> Result<Loose> {
        let broken = || Fault::peer(None, "a worker sent rows that cannot be read");
        let mut pile = Pile::new(survey.schema.features, room);
        let (mut spots, mut labels, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for bytes in parcels.iter().filter(|bytes| !bytes.is_empty()) {
            let parcel: Parcel = parcel_of(bytes).ok_or_else(broken)?;
            let rows = parcel.places.len();
            let width = match &parcel.features {
                Features::Dense { width, .. } | Features::Sparse { width, .. } => *width,
            };
            if rows > 0 && (parcel.rows() != Some(rows) || width != survey.schema.features) {
                return Err(broken());
            }
            spots.extend(parcel.places.into_iter().zip(parcel.numbers));
            labels.extend(parcel.labels);
            weights.extend(parcel.weights);
            if rows > 0 {
                pile.add(rows, parcel.features)?;
            }
        }
        let features = pile.finish(|plain| plain)?;
        Ok(Loose { table: Table { features, labels, weights, groups: vec![] }, spots })
    }

    /// Puts the rows in order: those of these shards, all of them.
    ///
    /// # Errors
    /// Rows that are missing or come twice; a full disk.
    pub fn settle(
        self,
        survey: &Survey,
        (keep, shards): (&BTreeSet<Shard>, u32),
        room: Option<&Room>,
    ) -> Result<Holding> {
        let groups = Groups::new(&survey.group_rows, shards).map(Arc::new);
        let table = Arc::new(Table::new(Features::Dense { width: 0, values: vec![] }, vec![]));
        let starts = BTreeMap::new();
        let mut holding = Holding { table, starts, rows_total: survey.rows, shards, groups };
        let mut held = 0;
        for &shard in keep {
            holding.starts.insert(shard, held as usize);
            held += holding.shard_rows(shard);
        }
        let mut order: Vec<usize> = (0..self.spots.len()).collect();
        order.sort_unstable_by_key(|row| self.spots[*row]);
        let twice = order.windows(2).any(|pair| self.spots[pair[0]] == self.spots[pair[1]]);
        if twice || order.len() as u64 != held {
            let what = format!("{} rows came instead of {held}", order.len());
            return Err(Fault::machine("rows went astray while they were put in order")
                .caused_by(what)
                .hint("did a file change meanwhile? start the job again"));
        }
        let mut pile = Pile::new(survey.schema.features, room);
        for rows in order.chunks(GATHERED) {
            pile.add(rows.len(), gathered(&self.table, rows))?;
        }
        let groups = match &survey.arrangement {
            Arrangement::Keys(_) => order.iter().map(|row| self.spots[*row].0).collect(),
            _ => vec![],
        };
        let empty = self.table.features.clone();
        let features = match order.is_empty() {
            true => empty,
            false => pile.finish(|plain| plain)?,
        };
        let labels = beside(&self.table.labels, &order).collect();
        let weights = beside(&self.table.weights, &order).collect();
        holding.table = Arc::new(Table { features, labels, weights, groups });
        Ok(holding)
    }
}

/// Rows on the wire.
#[derive(serde::Serialize, serde::Deserialize)]
struct Parcel {
    places: Vec<u32>,
    numbers: Vec<u64>,
    labels: Vec<f32>,
    weights: Vec<f32>,
    features: Features,
}

impl Parcel {
    /// How many rows there are, if all parts agree.
    fn rows(&self) -> Option<usize> {
        let rows = self.places.len();
        let beside = |values: &Vec<f32>| values.is_empty() || values.len() == rows;
        let agree = self.numbers.len() == rows && beside(&self.labels) && beside(&self.weights);
        (agree && self.features.is_sound(rows)).then_some(rows)
    }
}

fn postcard_bytes(parcel: &Parcel) -> Vec<u8> {
    postcard::to_stdvec(parcel).expect("plain data serialises")
}

fn parcel_of(bytes: &[u8]) -> Option<Parcel> {
    postcard::from_bytes(bytes).ok()
}

/// The labels or weights of some rows, where there are any.
pub(crate) fn beside<'a>(values: &'a [f32], rows: &'a [usize]) -> impl Iterator<Item = f32> + 'a {
    let rows = if values.is_empty() { &[] } else { rows };
    rows.iter().map(|row| values[*row])
}

/// The features of some rows.
pub(crate) fn gathered(table: &Table, rows: &[usize]) -> Features {
    let width = table.width();
    match &table.features {
        Stored::Dense { values, .. } => {
            let mut gathered = Vec::with_capacity(rows.len() * width);
            rows.iter().for_each(|row| gathered.extend(&values[row * width..(row + 1) * width]));
            Features::Dense { width, values: gathered }
        }
        Stored::Sparse { .. } => {
            let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
            for row in rows {
                if let Row::Sparse(at, entries) = table.row(*row) {
                    columns.extend_from_slice(at);
                    values.extend_from_slice(entries);
                }
                starts.push(columns.len());
            }
            Features::Sparse { width, starts, columns, values }
        }
    }
}
