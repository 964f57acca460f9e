//! Comma- and tab-separated values (RFC 4180), with or without a header. Fields without quotes go a fast
//! way that reads numbers where they stand; blocks with quotes go through the `csv` crate. Blanks around a
//! field do not belong to it, blank lines are no rows, and lines may end with CR LF.

use super::{Format, Guess, NO_GROUP, NO_WEIGHT, Place, Reading, Request, Role, Rows, Shape, Sink};
use crate::blocks::{Block, Blocks, MARK_BYTES, in_order};
use crate::chunk::{Chunk, Mark, Surprise};
use crate::input::Input;
use crate::number::{leading, missing, number, trim};
use crate::{ColumnRef, DataSpec, Features, LabelNeed};
use starlings_core::{Entry, Fault, Result};
use std::borrow::Cow;

/// Comma-separated values.
pub(super) const CSV: Entry<Format> = Entry {
    name: "csv",
    summary: "Comma-separated values; the delimiter, the header and the types are inferred",
    reference: "RFC 4180",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format {
        extensions: &["csv", "data"],
        recognise: |head| !head.contains(&0),
        open: |place, spec| open(place, spec, None),
    },
};

/// Tab-separated values.
pub(super) const TSV: Entry<Format> = Entry {
    name: "tsv",
    summary: "Tab-separated values; the header and the types are inferred",
    reference: "IANA media type text/tab-separated-values",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format {
        extensions: &["tsv"],
        recognise: |_| false,
        open: |place, spec| open(place, spec, Some(b'\t')),
    },
};

const HEAD_BYTES: usize = 256 << 10;
const HEAD_BYTES_MAX: usize = 64 << 20;
/// Records that inference looks at.
const SAMPLE: usize = 1000;

struct Csv {
    input: Input,
    delimiter: u8,
    /// Where the first row begins.
    start: Mark,
    shape: Shape,
}

fn open(place: Place, spec: &DataSpec, delimiter: Option<u8>) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("csv data are files: give a path"));
    };
    open_with_label(input, spec, delimiter, None)
}

/// Opens a file whose label column is known to the source.
pub(super) fn open_with_label(
    input: Input,
    spec: &DataSpec,
    delimiter: Option<u8>,
    label: Option<&str>,
) -> Result<Box<dyn Rows>> {
    let delimiter = match spec.delimiter {
        None => delimiter,
        Some(given) => Some(u8::try_from(given).ok().filter(u8::is_ascii).ok_or_else(|| {
            Fault::caller(format!("delimiter '{given}' is not a single ASCII character"))
        })?),
    };
    let (head, ended) = head(&input)?;
    let (delimiter, start, mut shape) = infer(&input.name(), &head, ended, spec, delimiter)?;
    if let (Shape::Columns { columns, label: found, .. }, Some(label)) = (&mut shape, label) {
        *found = columns.iter().position(|column| column.name == label);
    }
    Ok(Box::new(Csv { input, delimiter, start, shape }))
}

/// The first bytes, at least two lines of them, and whether they are all there are.
fn head(input: &Input) -> Result<(Vec<u8>, bool)> {
    let mut head = Vec::new();
    let mut stream = input.open(None)?;
    loop {
        let wanted = (head.len() * 3).max(HEAD_BYTES);
        let ended = stream.append(wanted, &mut head)? < wanted;
        let lines = memchr::memchr_iter(b'\n', &head).take(2).count();
        if ended || lines == 2 || head.len() >= HEAD_BYTES_MAX {
            return Ok((head, ended));
        }
    }
}

/// One record of the file's head.
struct Record {
    fields: Vec<Vec<u8>>,
    mark: Mark,
}

fn infer(
    name: &str,
    head: &[u8],
    ended: bool,
    spec: &DataSpec,
    delimiter: Option<u8>,
) -> Result<(u8, Mark, Shape)> {
    let mark_of_order: usize = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let text = &head[mark_of_order..];
    let delimiter = delimiter.unwrap_or_else(|| likely_delimiter(text));
    let mut records = sample(text, ended, delimiter);
    for record in &mut records {
        record.mark.byte += mark_of_order as u64;
    }
    // Remarks before the data have another number of fields than the data (adult.test begins so).
    let is_remark = |records: &[Record]| match records {
        [first, second, ..] => {
            matches!(first.fields[0].first(), Some(b'|' | b'#'))
                && first.fields.len() != second.fields.len()
        }
        _ => false,
    };
    while spec.header.is_none() && is_remark(&records) {
        records.remove(0);
    }
    let Some(first) = records.first() else { return Err(empty(name)) };
    let header = spec.header.unwrap_or_else(|| has_header(&records, spec));
    let names: Vec<String> = match header {
        true => first.fields.iter().map(|f| String::from_utf8_lossy(f).into_owned()).collect(),
        false => (0..first.fields.len()).map(|column| format!("c{column}")).collect(),
    };
    let rows = &records[usize::from(header)..];
    let Some(start) = rows.first().map(|record| record.mark) else { return Err(empty(name)) };
    let columns = names
        .into_iter()
        .enumerate()
        .map(|(column, name)| Guess { name, numbers: numeric(rows, column) })
        .collect();
    let shape = Shape::Columns { columns, named: header, label: None };
    Ok((delimiter, Mark { row: 0, ..start }, shape))
}

fn empty(name: &str) -> Fault {
    Fault::caller(format!("{name} has no rows"))
        .hint("is it the right file, and was it written fully?")
}

fn sample(text: &[u8], ended: bool, delimiter: u8) -> Vec<Record> {
    let mut reader = reader(text, delimiter);
    let mut record = csv::ByteRecord::new();
    let mut records = Vec::new();
    while records.len() < SAMPLE && reader.read_byte_record(&mut record).unwrap_or(false) {
        // The head may end in the middle of a record.
        if !ended && reader.position().byte() >= text.len() as u64 {
            break;
        }
        if record.len() == 1 && trim(&record[0]).is_empty() {
            continue;
        }
        let mark = settled(text, &record);
        let fields = record.iter().map(|field| trim(field).to_vec()).collect();
        records.push(Record { fields, mark });
    }
    records
}

/// Where a record begins; the reader says where the one before it ended, short of its line feed.
fn settled(text: &[u8], record: &csv::ByteRecord) -> Mark {
    let position = record.position().expect("records that were read have a position");
    let mut mark = Mark { row: 0, byte: position.byte(), line: position.line() };
    while let Some(byte @ (b'\r' | b'\n')) = text.get(mark.byte as usize) {
        mark.line += u64::from(*byte == b'\n');
        mark.byte += 1;
    }
    mark
}

fn reader(text: &[u8], delimiter: u8) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(text)
}

fn numeric(rows: &[Record], column: usize) -> bool {
    rows.iter()
        .filter_map(|record| record.fields.get(column))
        .all(|field| missing(field) || number(field).is_some())
}

/// The first line names the columns if the job names one of its fields, or if none of its fields is a number
/// while some column below is.
fn has_header(records: &[Record], spec: &DataSpec) -> bool {
    let Some((first, rows)) = records.split_first() else { return false };
    let named = spec.columns_named().any(|column| match column {
        ColumnRef::Name(name) => first.fields.iter().any(|field| field == name.as_bytes()),
        ColumnRef::Index(_) => false,
    });
    let texts = first.fields.iter().all(|field| !missing(field) && number(field).is_none());
    let known =
        |column: usize| rows.iter().any(|r| r.fields.get(column).is_some_and(|f| !missing(f)));
    let numbers_below =
        (0..first.fields.len()).any(|column| known(column) && numeric(rows, column));
    named || (texts && numbers_below)
}

/// The delimiter that occurs equally often in all of the first lines, else the most frequent in the first.
fn likely_delimiter(text: &[u8]) -> u8 {
    const CANDIDATES: [u8; 4] = *b",\t; ";
    let lines: Vec<&[u8]> = text
        .split(|byte| *byte == b'\n')
        .map(trim)
        .filter(|line| !matches!(line.first(), None | Some(b'|' | b'#')))
        .take(20)
        .collect();
    let count = |line: &[u8], candidate| memchr::memchr_iter(candidate, line).count();
    let Some((first, others)) = lines.split_first() else { return b',' };
    let steady = |candidate: &u8| {
        let expected = count(first, *candidate);
        expected > 0 && others.iter().all(|line| count(line, *candidate) == expected)
    };
    let frequent = || CANDIDATES.into_iter().rev().max_by_key(|candidate| count(first, *candidate));
    CANDIDATES.into_iter().find(steady).or_else(frequent).unwrap_or(b',')
}

impl Rows for Csv {
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
        let (from, until) = request.between();
        let from = from.unwrap_or(self.start);
        let mut stream = self.input.open(request.tally)?;
        stream.skip_to(from.byte)?;
        let cut = |bytes: &[u8]| whole_records(bytes, self.delimiter);
        let mut blocks = Blocks {
            name: self.name(),
            stream,
            byte: from.byte,
            line: from.line,
            until: until.map_or(u64::MAX, |mark| mark.byte),
            rest: Vec::new(),
            cut: &cut,
        };
        let name = self.name();
        let parse = |block: &Block| {
            let mut writer = Writer::new(&name, request.reading, block);
            match memchr::memchr(b'"', &block.bytes) {
                None => parse_plain(block, self.delimiter, &mut writer)?,
                Some(_) => parse_quoted(block, self.delimiter, &mut writer)?,
            }
            writer.chunk.add_up();
            Ok(writer.chunk)
        };
        in_order(from.row, &mut || blocks.next(), &parse, sink)
    }
}

/// How many of these bytes are whole records. A quote that opens a field hides line ends until it closes.
fn whole_records(bytes: &[u8], delimiter: u8) -> Option<usize> {
    if memchr::memchr(b'"', bytes).is_none() {
        return memchr::memrchr(b'\n', bytes).map(|at| at + 1);
    }
    let (mut whole, mut at, mut field_starts) = (None, 0, true);
    while at < bytes.len() {
        match bytes[at] {
            b'"' if field_starts => {
                at += 1;
                // Skip to the closing quote; two quotes are one quote of the text.
                loop {
                    at += memchr::memchr(b'"', &bytes[at..]).map_or(bytes.len() - at, |n| n + 1);
                    match bytes.get(at) {
                        Some(b'"') => at += 1,
                        _ => break,
                    }
                }
                field_starts = false;
                continue;
            }
            b'\n' => {
                whole = Some(at + 1);
                field_starts = true;
            }
            byte => field_starts = byte == delimiter,
        }
        at += 1;
    }
    whole
}

/// Writes fields into a chunk.
struct Writer<'a> {
    name: &'a str,
    reading: &'a Reading,
    chunk: Chunk,
    /// The line of the row being written.
    line: u64,
    marked: u64,
    block_byte: u64,
}

impl<'a> Writer<'a> {
    fn new(name: &'a str, reading: &'a Reading, block: &Block) -> Writer<'a> {
        let chunk = Chunk::dense(&reading.texts, reading.label.is_class());
        Writer { name, reading, chunk, line: block.line, marked: 0, block_byte: block.byte }
    }

    /// Begins a row at this byte of the block.
    fn begin(&mut self, at: usize) {
        let byte = self.block_byte + at as u64;
        if self.chunk.rows == 0 || byte - self.marked >= MARK_BYTES {
            self.marked = byte;
            self.chunk.marks.push(Mark { row: self.chunk.rows as u64, byte, line: self.line });
        }
        let Features::Dense { width, values } = &mut self.chunk.features else {
            unreachable!("csv chunks are dense")
        };
        values.resize(values.len() + *width, f32::NAN);
        self.chunk.rows += 1;
    }

    #[inline]
    fn put(&mut self, slot: usize, value: f32) {
        let Features::Dense { width, values } = &mut self.chunk.features else {
            unreachable!("csv chunks are dense")
        };
        let row = values.len() - *width;
        values[row + slot] = value;
    }

    /// Writes one trimmed field.
    fn field(&mut self, column: usize, field: &[u8]) -> Result<()> {
        match self.reading.roles[column] {
            Role::Skip => Ok(()),
            Role::Feature(_) if missing(field) => Ok(()),
            Role::Feature(slot) if self.reading.texts[slot] => {
                let dictionary = self.chunk.texts[slot].as_mut().expect("slot of texts");
                let code = dictionary.code_of_bytes(field).map_err(|fault| {
                    fault.during(format!("{}, column '{}'", self.name, self.reading.names[column]))
                })?;
                self.put(slot, code as f32);
                Ok(())
            }
            Role::Feature(slot) => self.number(column, slot, number(field), field),
            Role::Label => self.label(column, field),
            Role::Weight => {
                let weight = number(field).filter(|it| it.is_finite() && *it >= 0.0);
                let weight = weight.ok_or_else(|| self.fault(column, field, NO_WEIGHT))?;
                self.chunk.weights.push(weight);
                Ok(())
            }
            Role::Group if missing(field) => Err(self.fault(column, field, NO_GROUP)),
            Role::Group => {
                let code = self.chunk.group_keys.code_of_bytes(field)?;
                self.chunk.groups.push(code);
                Ok(())
            }
        }
    }

    fn number(
        &mut self,
        column: usize,
        slot: usize,
        value: Option<f32>,
        field: &[u8],
    ) -> Result<()> {
        match value {
            Some(value) if value.is_finite() => self.put(slot, value),
            Some(_) => return Err(self.fault(column, field, "is too large for a 32-bit number")),
            None if self.chunk.surprises.iter().any(|surprise| surprise.slot == slot) => {}
            None => {
                let fault = self.fault(column, field, "is not a number");
                self.chunk.surprises.push(Surprise { slot, fault });
            }
        }
        Ok(())
    }

    fn label(&mut self, column: usize, field: &[u8]) -> Result<()> {
        if missing(field) && self.reading.label == LabelNeed::SomeClasses {
            self.chunk.labels.push(f32::NAN);
            return Ok(());
        }
        if missing(field) {
            return Err(self
                .fault(column, field, "is no label: every row needs one")
                .hint("remove the rows without labels"));
        }
        let label = match &mut self.chunk.classes {
            Some(classes) => classes.code_of_bytes(field)? as f32,
            None => match number(field) {
                Some(value) if value.is_finite() => value,
                _ => {
                    return Err(self
                        .fault(
                            column,
                            field,
                            "is not a number, and the learner needs numbers as labels",
                        )
                        .hint("choose another `label`, or a learner of classes"));
                }
            },
        };
        self.chunk.labels.push(label);
        Ok(())
    }

    fn fault(&self, column: usize, field: &[u8], what: &str) -> Fault {
        let (text, column) = (excerpt(field), &self.reading.names[column]);
        Fault::caller(format!(
            "{}, line {}, column '{column}': '{text}' {what}",
            self.name, self.line
        ))
    }

    fn ragged(&self, found: usize) -> Fault {
        let expected = self.reading.roles.len();
        let what =
            format!("{}, line {}: {found} fields instead of {expected}", self.name, self.line);
        Fault::caller(what).hint("a delimiter inside a field needs quotes around the field")
    }
}

/// The beginning of a field, for messages.
fn excerpt(field: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&field[..field.len().min(40)])
}

/// Rows without quotes.
fn parse_plain(block: &Block, delimiter: u8, writer: &mut Writer<'_>) -> Result<()> {
    let bytes = &block.bytes[..];
    let mut at = 0;
    while at < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |n| at + n);
        let line_end = if end > at && bytes[end - 1] == b'\r' { end - 1 } else { end };
        let line = &bytes[at..line_end];
        if !line.trim_ascii().is_empty() {
            writer.begin(at);
            parse_line(line, delimiter, writer)?;
        }
        writer.line += 1;
        at = end + 1;
    }
    Ok(())
}

#[inline]
fn parse_line(line: &[u8], delimiter: u8, writer: &mut Writer<'_>) -> Result<()> {
    let columns = writer.reading.roles.len();
    let mut at = 0;
    for column in 0..columns {
        let rest = &line[at..];
        // A number followed by the delimiter is read where it stands; all else is looked at as a field.
        let quick = match writer.reading.roles[column] {
            Role::Feature(slot) if !writer.reading.texts[slot] => leading(rest)
                .filter(|(_, n)| rest.get(*n).is_none_or(|byte| *byte == delimiter))
                .map(|(value, n)| (slot, value, n)),
            _ => None,
        };
        let length = match quick {
            Some((slot, value, length)) if value.is_finite() => {
                writer.put(slot, value);
                length
            }
            _ => {
                let length = memchr::memchr(delimiter, rest).unwrap_or(rest.len());
                writer.field(column, trim(&rest[..length]))?;
                length
            }
        };
        at += length;
        match (at == line.len(), column + 1 == columns) {
            (true, true) => {}
            (false, false) => at += 1,
            _ => return Err(writer.ragged(memchr::memchr_iter(delimiter, line).count() + 1)),
        }
    }
    Ok(())
}

/// Rows with quotes.
fn parse_quoted(block: &Block, delimiter: u8, writer: &mut Writer<'_>) -> Result<()> {
    let mut reader = reader(&block.bytes, delimiter);
    let mut record = csv::ByteRecord::new();
    let damaged = |error: csv::Error| {
        Fault::caller(format!("cannot read the records from line {}", block.line)).caused_by(error)
    };
    while reader.read_byte_record(&mut record).map_err(damaged)? {
        if record.len() == 1 && trim(&record[0]).is_empty() {
            continue;
        }
        let mark = settled(&block.bytes, &record);
        writer.line = block.line + mark.line - 1;
        if record.len() != writer.reading.roles.len() {
            return Err(writer.ragged(record.len()));
        }
        writer.begin(mark.byte as usize);
        for (column, field) in record.iter().enumerate() {
            writer.field(column, trim(field))?;
        }
    }
    Ok(())
}
