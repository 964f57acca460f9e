//! Apache Parquet: flat files of numbers, booleans and strings. Only the chosen columns are read, a slice of
//! a row group at a time. Decimals are scaled; dates and times are numbers in the file's own unit.

use super::{Flow, Format, Guess, Place, Reading, Request, Role, Rows, Shape, Sink};
use crate::DataSpec;
use crate::cells::{Spot, Writer};
use crate::chunk::Mark;
use crate::input::{Input, cannot_open, changed};
use crate::pages::Sound;
use crate::quietly::quietly;
use crate::thrift::{self, Flaw};
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use starlings_core::{Entry, Fault, Result};
use std::fs::File;
use std::io::{Cursor, Read};

/// Parquet files.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "parquet",
    summary: "Apache Parquet: flat files of numbers, booleans and strings",
    reference: "Apache Parquet format specification, github.com/apache/parquet-format",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &["parquet"], recognise: |head| head.starts_with(b"PAR1"), open },
};

/// A value of a file.
type Cell = crate::cells::Cell<ByteArray>;

/// Rows decoded at a time.
const ROWS: usize = 8192;
/// Bytes at the end of a file that say how long its description is.
const TAIL_BYTES: u64 = 8;
/// Bytes of a page's header that are looked at first, which most do not fill.
const HEADER_BYTES: usize = 1 << 10;
/// The longest header of a page.
const HEADER_BYTES_MAX: usize = 1 << 24;

struct Parquet {
    input: Input,
    shape: Shape,
    /// Powers of ten by which decimals are divided.
    scales: Vec<f64>,
}

fn open(place: Place, _: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("parquet data are files: give a path"));
    };
    let reader = reader(&input)?;
    let described = reader.metadata().file_metadata().schema_descr();
    let columns = described
        .columns()
        .iter()
        .map(|column| Guess { name: column.path().string(), numbers: is_number(column) })
        .collect();
    let scales = described.columns().iter().map(|column| scale(column)).collect();
    let shape = Shape::Columns { columns, named: true, label: None };
    Ok(Box::new(Parquet { input, shape, scales }))
}

/// A file that Parquet's reader jumps about in.
enum Body {
    File(File),
    #[cfg(feature = "remote")]
    Remote(std::sync::Arc<crate::remote::Remote>),
}

impl Length for Body {
    fn len(&self) -> u64 {
        match self {
            Body::File(file) => Length::len(file),
            #[cfg(feature = "remote")]
            Body::Remote(remote) => remote.size(),
        }
    }
}

impl Body {
    fn stream(&self, start: u64) -> Result<Box<dyn Read>, ParquetError> {
        match self {
            Body::File(file) => Ok(Box::new(file.get_read(start)?)),
            #[cfg(feature = "remote")]
            Body::Remote(remote) => {
                let mut reader = crate::remote::Reader::new(remote.clone());
                reader.seek(start);
                Ok(Box::new(reader))
            }
        }
    }

    fn bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        let gone = || ParquetError::EOF(format!("{length} bytes at {start} are not there"));
        // Memory is taken for bytes that are there, not for those that a page promises.
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len());
        end.ok_or_else(gone)?;
        match self {
            Body::File(file) => file.get_bytes(start, length),
            #[cfg(feature = "remote")]
            Body::Remote(remote) => {
                let bytes = remote.range(start, length as u64)?;
                if bytes.len() == length { Ok(bytes.into()) } else { Err(gone()) }
            }
        }
    }
}

impl ChunkReader for Body {
    type T = Box<dyn Read>;

    /// The library reads the last bytes of a file so, and the headers of pages.
    fn get_read(&self, start: u64) -> Result<Box<dyn Read>, ParquetError> {
        let read = self.stream(start)?;
        match start.checked_add(TAIL_BYTES) == Some(self.len()) {
            true => Ok(read),
            false => page(read),
        }
    }

    /// The library reads the description of a file so, and the contents of pages.
    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes, ParquetError> {
        let bytes = self.bytes(start, length)?;
        let is_description = start + length as u64 + TAIL_BYTES == self.len();
        match is_description && thrift::length(&bytes, thrift::FILE_METADATA).is_err() {
            true => Err(contradiction("its description")),
            false => Ok(bytes),
        }
    }
}

/// Reads from the header of a page on, if that is sound.
fn page(mut read: Box<dyn Read>) -> Result<Box<dyn Read>, ParquetError> {
    let (mut head, mut wanted) = (Vec::new(), HEADER_BYTES);
    loop {
        let more = wanted - head.len();
        let ended = read.by_ref().take(more as u64).read_to_end(&mut head)? < more;
        match thrift::page(&head) {
            Ok(()) => return Ok(Box::new(Cursor::new(head).chain(read))),
            Err(Flaw::Short) if !ended && wanted < HEADER_BYTES_MAX => wanted *= 4,
            Err(_) => return Err(contradiction("the header of a page")),
        }
    }
}

fn contradiction(what: &str) -> ParquetError {
    ParquetError::General(format!("{what} contradicts itself"))
}

fn reader(input: &Input) -> Result<SerializedFileReader<Body>> {
    let body = match input {
        Input::File(path) => {
            Body::File(File::open(path).map_err(|error| cannot_open(path, &error))?)
        }
        #[cfg(feature = "remote")]
        Input::Remote(remote) => Body::Remote(remote.clone()),
        Input::Memory { .. } => return Err(Fault::caller("parquet data are files: give a path")),
    };
    guarded(&input.name(), || SerializedFileReader::new(body))
}

/// Calls the decoder. Some damage makes it panic instead of refusing; a bad file must not end the process.
fn guarded<T>(name: &str, decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T> {
    let gave_up = || Err(ParquetError::General("the decoder gave up on it".to_string()));
    quietly(decode).unwrap_or_else(gave_up).map_err(|error| damaged(name, error))
}

fn damaged(name: &str, error: ParquetError) -> Fault {
    Fault::caller(format!("{name} is not a sound Parquet file"))
        .caused_by(error)
        .hint("was it written fully? write or fetch it again")
}

fn is_number(column: &ColumnDescriptor) -> bool {
    !matches!(
        column.physical_type(),
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY | Physical::INT96
    )
}

fn scale(column: &ColumnDescriptor) -> f64 {
    let decimal = matches!(column.logical_type_ref(), Some(LogicalType::Decimal { .. }))
        || column.converted_type() == ConvertedType::DECIMAL;
    if decimal { 10f64.powi(column.type_scale()) } else { 1.0 }
}

impl Rows for Parquet {
    fn name(&self) -> String {
        self.input.name()
    }

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn size(&self) -> Result<u64> {
        self.input.size()
    }

    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let reader = reader(&self.input)?;
        let described = reader.metadata().file_metadata().schema_descr_ptr();
        if described.num_columns() != request.reading.roles.len() {
            return Err(changed(&self.name()));
        }
        for (column, role) in described.columns().iter().zip(&request.reading.roles) {
            self.readable(column, *role)?;
        }
        let mut first_row = 0;
        for group in 0..reader.num_row_groups() {
            let rows = reader.metadata().row_group(group).num_rows();
            let rows = u64::try_from(rows).map_err(|_| self.miscounted())?;
            if first_row < request.rows.end && first_row + rows > request.rows.start {
                let mark = Mark { row: first_row, byte: group as u64, line: 0 };
                if self.read_group(&reader, mark, rows, (request.reading, sink))? == Flow::Stop {
                    return Ok(());
                }
            }
            first_row += rows;
        }
        if let Some(tally) = request.tally {
            self.input.hash(tally)?;
        }
        Ok(())
    }
}

impl Parquet {
    fn readable(&self, column: &ColumnDescriptor, role: Role) -> Result<()> {
        let reason = match column.physical_type() {
            _ if role == Role::Skip => return Ok(()),
            _ if column.max_rep_level() > 0 || column.max_def_level() > 1 => "is nested or a list",
            Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => "has a type that is not read yet",
            Physical::BYTE_ARRAY if scale(column) != 1.0 => "is a decimal of any length",
            _ => return Ok(()),
        };
        let what = format!("{}, column '{}': it {reason}", self.name(), column.path().string());
        Err(Fault::caller(what).hint("leave it out with `features = [...]`, or write it flat"))
    }

    fn miscounted(&self) -> Fault {
        let wrong = ParquetError::General("columns differ in their number of rows".to_string());
        damaged(&self.name(), wrong)
    }

    fn read_group(
        &self,
        reader: &SerializedFileReader<Body>,
        mark: Mark,
        rows: u64,
        (reading, sink): (&Reading, &mut Sink<'_>),
    ) -> Result<Flow> {
        let group = guarded(&self.name(), || reader.get_row_group(mark.byte as usize))?;
        let name = self.name();
        let mut columns = Vec::new();
        for (column, role) in reading.roles.iter().enumerate() {
            if *role != Role::Skip {
                let described = group.metadata().column(column).column_descr_ptr();
                let pages = guarded(&self.name(), || group.get_column_page_reader(column))?;
                let pages = Box::new(Sound::new(pages, &described));
                columns.push((column, get_column_reader(described, pages)));
            }
        }
        let mut done = 0;
        while done < rows {
            let count = (rows - done).min(ROWS as u64) as usize;
            let mut writer = Writer::new(&name, "row", reading);
            writer.chunk.first_row = mark.row + done;
            if done == 0 {
                writer.chunk.marks.push(Mark { row: 0, ..mark });
            }
            writer.grow(count);
            for (column, reader) in &mut columns {
                let cells = self.cells(*column, count, reader)?;
                for (row, cell) in cells.iter().enumerate() {
                    let number = mark.row + done + row as u64;
                    writer.put(Spot { row, column: *column, number }, cell)?;
                }
            }
            if sink(writer.finish())? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            done += count as u64;
        }
        Ok(Flow::More)
    }

    /// The next `count` values of a column.
    fn cells(&self, column: usize, count: usize, reader: &mut ColumnReader) -> Result<Vec<Cell>> {
        let scale = self.scales[column];
        let whole = |value: i64| match scale == 1.0 {
            true => Cell::Whole(value),
            false => Cell::Number(value as f64 / scale),
        };
        let cells = guarded(&self.name(), || match reader {
            ColumnReader::BoolColumnReader(r) => take(r, count, |v| Cell::Whole(i64::from(v))),
            ColumnReader::Int32ColumnReader(r) => take(r, count, |v| whole(i64::from(v))),
            ColumnReader::Int64ColumnReader(r) => take(r, count, whole),
            ColumnReader::FloatColumnReader(r) => take(r, count, |v| Cell::Number(f64::from(v))),
            ColumnReader::DoubleColumnReader(r) => take(r, count, Cell::Number),
            ColumnReader::ByteArrayColumnReader(r) => take(r, count, Cell::Text),
            _ => unreachable!("refused by `readable`"),
        })?;
        if cells.len() == count { Ok(cells) } else { Err(self.miscounted()) }
    }
}

/// Reads `count` values, with the missing ones in their places.
fn take<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    cell: impl Fn(T::T) -> Cell,
) -> std::result::Result<Vec<Cell>, ParquetError> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut records = 0;
    while records < count {
        let (more, _, _) =
            reader.read_records(count - records, Some(&mut levels), None, &mut values)?;
        if more == 0 {
            break;
        }
        records += more;
    }
    // Columns that cannot be missing have no levels.
    if levels.is_empty() {
        return Ok(values.into_iter().map(cell).collect());
    }
    let mut values = values.into_iter();
    let present = |level: &i16| match level {
        0 => Cell::Missing,
        _ => values.next().map_or(Cell::Missing, &cell),
    };
    Ok(levels.iter().map(present).collect())
}
