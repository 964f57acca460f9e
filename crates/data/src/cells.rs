//! Values of typed columns (Parquet, Arrow, JSON, arrays) on their way into a chunk: what is missing, what is a number,
//! what is a label, a weight or a group, and what is said of a value that cannot be what it should.

use crate::chunk::{Chunk, Surprise};
use crate::number::{missing, number};
use crate::sources::{NO_GROUP, NO_WEIGHT, Reading, Role};
use crate::{Features, LabelNeed};
use starlings_core::{Fault, Result};
use std::borrow::Cow;

/// One value of a column; texts are bytes of any owner.
#[derive(Clone, Debug)]
pub(crate) enum Cell<T> {
    Missing,
    Whole(i64),
    Number(f64),
    Text(T),
}

impl<T: AsRef<[u8]>> Cell<T> {
    fn is_missing(&self) -> bool {
        match self {
            Cell::Missing => true,
            Cell::Whole(_) => false,
            Cell::Number(number) => number.is_nan(),
            Cell::Text(text) => missing(text.as_ref()),
        }
    }

    fn number(&self) -> Option<f32> {
        match self {
            Cell::Whole(whole) => Some(*whole as f32),
            Cell::Number(number) => Some(*number as f32),
            Cell::Text(text) => number(text.as_ref()),
            Cell::Missing => None,
        }
    }

    fn text(&self) -> Cow<'_, str> {
        match self {
            Cell::Missing => Cow::Borrowed("null"),
            Cell::Whole(whole) => Cow::Owned(whole.to_string()),
            Cell::Number(number) => Cow::Owned(number.to_string()),
            Cell::Text(text) => String::from_utf8_lossy(text.as_ref()),
        }
    }
}

/// Where a value stands: the row within the chunk, its column, and what messages call the row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) row: usize,
    pub(crate) column: usize,
    /// The number of the row or line in the file.
    pub(crate) number: u64,
}

/// Writes values into a chunk. Each column's values come in the order of rows.
pub(crate) struct Writer<'a> {
    /// What messages call the file.
    pub(crate) name: &'a str,
    /// What messages call a row: "row" or "line".
    pub(crate) unit: &'static str,
    pub(crate) reading: &'a Reading,
    pub(crate) chunk: Chunk,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(name: &'a str, unit: &'static str, reading: &'a Reading) -> Writer<'a> {
        let chunk = Chunk::dense(&reading.texts, reading.label.is_class());
        Writer { name, unit, reading, chunk }
    }

    /// Adds rows whose features are all missing.
    pub(crate) fn grow(&mut self, rows: usize) {
        if let Features::Dense { width, values } = &mut self.chunk.features {
            values.resize(values.len() + *width * rows, f32::NAN);
        }
        self.chunk.rows += rows;
    }

    /// The chunk, when all is written.
    pub(crate) fn finish(mut self) -> Chunk {
        self.chunk.add_up();
        self.chunk
    }

    /// Writes one value.
    pub(crate) fn put<T: AsRef<[u8]>>(&mut self, spot: Spot, cell: &Cell<T>) -> Result<()> {
        match self.reading.roles[spot.column] {
            Role::Skip => Ok(()),
            Role::Feature(slot) => self.feature(spot, slot, cell),
            Role::Label => {
                let label = match (&mut self.chunk.classes, cell.number()) {
                    _ if cell.is_missing() && self.reading.label == LabelNeed::SomeClasses => {
                        f32::NAN
                    }
                    _ if cell.is_missing() => {
                        return Err(self.fault(spot, cell, "is no label: every row needs one"));
                    }
                    (Some(classes), _) => classes.code(&cell.text())? as f32,
                    (None, Some(number)) if number.is_finite() => number,
                    (None, _) => return Err(self.fault(spot, cell, "is not a number")),
                };
                self.chunk.labels.push(label);
                Ok(())
            }
            Role::Weight => {
                let weight = cell.number().filter(|it| it.is_finite() && *it >= 0.0);
                self.chunk.weights.push(weight.ok_or_else(|| self.fault(spot, cell, NO_WEIGHT))?);
                Ok(())
            }
            Role::Group if cell.is_missing() => Err(self.fault(spot, cell, NO_GROUP)),
            Role::Group => {
                let code = self.chunk.group_keys.code(&cell.text())?;
                self.chunk.groups.push(code);
                Ok(())
            }
        }
    }

    fn feature<T: AsRef<[u8]>>(&mut self, spot: Spot, slot: usize, cell: &Cell<T>) -> Result<()> {
        let value = match (&mut self.chunk.texts[slot], cell.number()) {
            _ if cell.is_missing() => return Ok(()),
            (Some(texts), _) => texts.code(&cell.text())? as f32,
            (None, Some(number)) if number.is_finite() => number,
            (None, Some(_)) => return Err(self.fault(spot, cell, "is not a 32-bit number")),
            (None, None) => {
                if self.chunk.surprises.iter().all(|surprise| surprise.slot != slot) {
                    let fault = self.fault(spot, cell, "is not a number");
                    self.chunk.surprises.push(Surprise { slot, fault });
                }
                return Ok(());
            }
        };
        if let Features::Dense { width, values } = &mut self.chunk.features {
            values[spot.row * *width + slot] = value;
        }
        Ok(())
    }

    pub(crate) fn fault<T: AsRef<[u8]>>(&self, spot: Spot, cell: &Cell<T>, what: &str) -> Fault {
        let (name, unit, column) = (self.name, self.unit, &self.reading.names[spot.column]);
        let text: String = cell.text().chars().take(40).collect();
        Fault::caller(format!("{name}, {unit} {}, column '{column}': '{text}' {what}", spot.number))
    }
}
