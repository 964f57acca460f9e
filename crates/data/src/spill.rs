//! Data sets that do not fit into memory. A process has so much [`Room`] for its rows; what a table needs beyond it goes
//! to a file without a name, written once in the order of rows and mapped for reading. Passes then read the file as the
//! system brings it in, ahead of where they are, and no bit of any result changes.
//!
//! What stays in memory in any case: 4 bytes a row each for label, weight and group, and 8 for where a sparse row starts.

use crate::Features;
use crate::encode::append;
use crate::numbers::{Mapping, Numbers, Plain};
use crate::table::Stored;
use starlings_core::{Fault, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Once rows go to the file, so many bytes are collected before they are written.
const WRITE_BYTES: u64 = 8 << 20;

/// How much memory the rows of this process may take, and where the others go.
#[derive(Debug)]
pub struct Room {
    bytes: u64,
    folder: PathBuf,
    mapped: Mutex<Vec<Weak<Mapping>>>,
    grows: bool,
}

impl Room {
    /// Of so many bytes half is for rows that stay in memory, and the other half for what learners remember of rows and
    /// for the pages of files that are being read. Rows beyond go to a file in `folder`.
    #[must_use]
    pub fn new(bytes: u64, folder: PathBuf) -> Room {
        Room { bytes, folder, mapped: Mutex::default(), grows: false }
    }

    /// Rows will move from worker to worker: dense tables in memory keep room for all rows of the data set, where that is no more
    /// than they may take.
    #[must_use]
    pub fn growing(self) -> Room {
        Room { grows: true, ..self }
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a table of so many bytes stays in memory.
    pub(crate) fn holds(&self, bytes: u64) -> bool {
        bytes <= self.bytes / 2
    }

    /// Bytes of rows that lie in files.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.mappings().iter().map(|mapping| mapping.bytes() as u64).sum()
    }

    /// Takes what was read of the files out of this process's memory. It is read again when it is needed.
    pub fn release(&self) {
        self.mappings().iter().for_each(|mapping| mapping.release());
    }

    fn mappings(&self) -> Vec<Arc<Mapping>> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|mapping| mapping.strong_count() > 0);
        mapped.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Rows put on top of each other, in memory as long as there is room.
pub(crate) struct Pile<'a> {
    room: Option<&'a Room>,
    /// Those in memory.
    features: Features,
    rows: usize,
    spilt: Option<Spilt>,
}

/// Rows in files: one of values, and one of columns where rows are sparse.
struct Spilt {
    values: File,
    columns: File,
    /// Where sparse rows start, in the files.
    starts: Vec<usize>,
    entries: usize,
}

impl<'a> Pile<'a> {
    pub(crate) fn new(width: usize, room: Option<&'a Room>) -> Pile<'a> {
        let features = Features::Dense { width, values: vec![] };
        Pile { room, features, rows: 0, spilt: None }
    }

    /// Adds rows of the same kind.
    pub(crate) fn add(&mut self, rows: usize, features: Features) -> Result<()> {
        match self.rows {
            0 => self.features = features,
            _ => append(&mut self.features, &features),
        }
        self.rows += rows;
        let Some(room) = self.room else { return Ok(()) };
        let here = bytes(&self.features);
        match &self.spilt {
            None if room.holds(here) => Ok(()),
            Some(_) if here < WRITE_BYTES => Ok(()),
            _ => self.write(room),
        }
    }

    /// So many more rows are coming, or as many as make `all` where tables grow: dense ones get their place at once where there
    /// is room. A vector that grows as it is filled would be moved again and again, each time into memory that nobody has
    /// touched yet.
    pub(crate) fn expect(&mut self, rows: u64, all: u64) {
        let grows = self.room.is_some_and(|room| room.grows);
        let others = all.saturating_sub(self.rows as u64);
        if !(grows && others > rows && self.reserve(others as usize)) {
            self.reserve(rows as usize);
        }
    }

    /// Whether there is room for so many more dense rows, which then have their place.
    fn reserve(&mut self, rows: usize) -> bool {
        let here = bytes(&self.features);
        let Features::Dense { width, values } = &mut self.features else { return false };
        let numbers = rows.saturating_mul(*width);
        let whole = here.saturating_add((numbers as u64).saturating_mul(4));
        if self.spilt.is_some() || !self.room.is_none_or(|room| room.holds(whole)) {
            return false;
        }
        // Whoever cannot have so much address space goes on with less.
        values.try_reserve_exact(numbers).is_ok()
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Whether these rows are of the same kind.
    pub(crate) fn is_like(&self, features: &Features) -> bool {
        std::mem::discriminant(&self.features) == std::mem::discriminant(features)
    }

    /// What there is, or this instead where there are no rows.
    pub(crate) fn finish(mut self, nothing: impl FnOnce(Features) -> Features) -> Result<Stored> {
        if self.rows == 0 {
            return Ok(nothing(self.features).into());
        }
        let Some(room) = self.room.filter(|_| self.spilt.is_some()) else {
            let grows = self.room.is_some_and(|room| room.grows);
            return Ok(match self.features {
                Features::Dense { width, values } if grows => {
                    Stored::Dense { width, values: Numbers::growing(values) }
                }
                features => features.into(),
            });
        };
        self.write(room)?;
        let Spilt { values, columns, starts, .. } = self.spilt.expect("rows were written");
        let stored = match self.features {
            Features::Dense { width, .. } => {
                Stored::Dense { width, values: mapped(room, &values)? }
            }
            Features::Sparse { width, .. } => {
                let (columns, values) = (mapped(room, &columns)?, mapped(room, &values)?);
                Stored::Sparse { width, starts, columns, values }
            }
        };
        Ok(stored)
    }

    /// Writes what is in memory behind what was written before.
    fn write(&mut self, room: &Room) -> Result<()> {
        let failed = |error| cannot_spill(&room.folder, &error);
        if self.spilt.is_none() {
            let file = || tempfile::tempfile_in(&room.folder).map_err(failed);
            let (values, columns) = (file()?, file()?);
            self.spilt = Some(Spilt { values, columns, starts: vec![0], entries: 0 });
        }
        let spilt = self.spilt.as_mut().expect("made above");
        match &mut self.features {
            Features::Dense { values, .. } => {
                spilt.values.write_all(bytemuck::cast_slice(values)).map_err(failed)?;
                *values = Vec::new();
            }
            Features::Sparse { starts, columns, values, .. } => {
                spilt.values.write_all(bytemuck::cast_slice(values)).map_err(failed)?;
                spilt.columns.write_all(bytemuck::cast_slice(columns)).map_err(failed)?;
                spilt.starts.extend(starts[1..].iter().map(|start| start + spilt.entries));
                spilt.entries += values.len();
                (*starts, *columns, *values) = (vec![0], Vec::new(), Vec::new());
            }
        }
        Ok(())
    }
}

/// Bytes that features take in memory, besides where rows start.
pub(crate) fn bytes(features: &Features) -> u64 {
    match features {
        Features::Dense { values, .. } => 4 * values.len() as u64,
        Features::Sparse { values, .. } => 8 * values.len() as u64,
    }
}

fn mapped<T: Plain>(room: &Room, file: &File) -> Result<Numbers<T>> {
    let mapping = Mapping::of(file).map_err(|error| cannot_spill(&room.folder, &error))?;
    let mapping = Arc::new(mapping);
    let known = Arc::downgrade(&mapping);
    room.mapped.lock().unwrap_or_else(PoisonError::into_inner).push(known);
    Ok(Numbers::mapped(mapping))
}

fn cannot_spill(folder: &Path, error: &std::io::Error) -> Fault {
    let folder = folder.display();
    Fault::machine(format!("rows that do not fit into memory cannot be kept in {folder}"))
        .caused_by(error)
        .hint("name a folder with enough space in [data] spill, or raise [data] memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(from: usize, rows: usize) -> Features {
        let values = (2 * from..2 * (from + rows)).map(|it| it as f32).collect();
        Features::Dense { width: 2, values }
    }

    fn sparse(from: usize, rows: usize) -> Features {
        let entries = |row: usize| (0..row % 3).map(move |at| (at as u32, (row * 3 + at) as f32));
        let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
        for row in from..from + rows {
            for (column, value) in entries(row) {
                columns.push(column);
                values.push(value);
            }
            starts.push(columns.len());
        }
        Features::Sparse { width: 3, starts, columns, values }
    }

    #[test]
    fn a_spilt_table_is_the_table_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        for kind in [dense, sparse] {
            for chunk in [1, 7, 500_000] {
                let room = Room::new(1_000, folder.path().to_path_buf());
                let piled = |room| {
                    let mut pile = Pile::new(2, room);
                    let mut from = 0;
                    while from < 2_000 {
                        let rows = chunk.min(2_000 - from);
                        pile.add(rows, kind(from, rows)).unwrap();
                        from += rows;
                    }
                    pile.finish(|it| it).unwrap()
                };
                let (spilt, held) = (piled(Some(&room)), piled(None));
                assert!(room.mapped_bytes() >= 8_000, "{} bytes", room.mapped_bytes());
                assert_eq!(spilt, held);
                room.release();
                assert_eq!(spilt, held, "what was released is read again");
                drop(spilt);
                assert_eq!(room.mapped_bytes(), 0);
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files have no names");
    }

    #[test]
    fn a_table_that_fits_stays_in_memory() {
        let room = Room::new(1_000, "/nonexistent".into());
        let mut pile = Pile::new(2, Some(&room));
        pile.add(62, dense(0, 62)).unwrap();
        let stored = pile.finish(|it| it).unwrap();
        assert!(matches!(&stored, Stored::Dense { values, .. } if !values.is_mapped()));
        let mut pile = Pile::new(2, Some(&room));
        let fault = pile.add(63, dense(0, 63)).unwrap_err();
        assert!(fault.message().contains("/nonexistent"), "{fault}");
    }

    #[test]
    fn rows_that_were_announced_are_put_down_once_and_only_where_there_is_room() {
        let reserved = |room: Option<&Room>| {
            let mut pile = Pile::new(2, room);
            pile.add(1, dense(0, 1)).unwrap();
            pile.expect(61, 62);
            let place = |pile: &Pile<'_>| match &pile.features {
                Features::Dense { values, .. } => (values.capacity(), values.as_ptr()),
                Features::Sparse { .. } => panic!("rows are dense"),
            };
            let first = place(&pile);
            (1..62).for_each(|row| pile.add(1, dense(row, 1)).unwrap());
            (first.0, first == place(&pile))
        };
        let (fits, tight) =
            (Room::new(1_000, "/nonexistent".into()), Room::new(900, std::env::temp_dir()));
        assert_eq!(reserved(None), (124, true));
        assert_eq!(reserved(Some(&fits)), (124, true));
        assert!(reserved(Some(&tight)).0 < 124, "it will lie in a file");
    }
}
