//! NumPy's arrays (`numpy.save`): numbers of one row after another, in one or two dimensions, in C or Fortran order.
//! Columns are called `c0`, `c1` …; labels stand in a second file, `{ features = "x.npy", labels = "y.npy" }`, or in a
//! column of the first. NaN is missing. The header is believed only as far as bytes follow it. An array in Fortran
//! order is held in memory while it is read, for its rows lie scattered.

use super::{Format, Guess, Place, Request, Role, Rows, Shape, Sink};
use crate::DataSpec;
use crate::blocks::in_order;
use crate::cells::{Cell, Spot, Writer};
use crate::chunk::Chunk;
use crate::input::{Input, Stream, Tally, changed};
use starlings_core::{Entry, Fault, Result};

/// NumPy arrays.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "npy",
    summary: "NumPy arrays of numbers, labels beside: { features = \"x.npy\", labels = \"y.npy\" }",
    reference: "NumPy enhancement proposal 1, a simple file format for NumPy arrays",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &["npy"], recognise: |head| head.starts_with(MAGIC), open },
};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The widest row, and the longest header.
const WIDTH_MAX: u64 = 1 << 20;
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Bytes of one chunk, about.
const CHUNK_BYTES: u64 = 1 << 20;

struct Npy {
    features: Input,
    labels: Option<Input>,
    shape: Shape,
}

fn open(place: Place, _: &DataSpec) -> Result<Box<dyn Rows>> {
    let (features, labels) = match place {
        Place::File(features) => (features, None),
        Place::Arrays(features, labels) => (features, labels),
        _ => return Err(Fault::caller("npy data are files: give paths")),
    };
    let header = Header::read(&features.name(), &mut features.open(None)?)?;
    let names = (0..header.width).map(|column| format!("c{column}"));
    let names = names.chain(labels.is_some().then(|| "label".to_string()));
    let columns = names.map(|name| Guess { name, numbers: true }).collect();
    let label = labels.is_some().then_some(header.width as usize);
    let shape = Shape::Columns { columns, named: false, label };
    Ok(Box::new(Npy { features, labels, shape }))
}

/// How a number is written.
#[derive(Clone, Copy, Debug)]
struct Word {
    kind: u8,
    bytes: usize,
    big_endian: bool,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    word: Word,
    fortran: bool,
    rows: u64,
    width: u64,
    /// Bytes before the first number.
    length: u64,
}

impl Header {
    fn read(name: &str, stream: &mut Stream<'_>) -> Result<Header> {
        let wrong = |what: String| Fault::caller(format!("{name} is not a NumPy array: {what}"));
        let mut start = Vec::new();
        stream.append(8, &mut start)?;
        let size = match start[..] {
            [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _] => 2,
            [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _] => 4,
            _ => {
                return Err(wrong(
                    "it does not begin like one, or is of an unknown version".into(),
                ));
            }
        };
        let mut length = Vec::new();
        stream.append(size, &mut length)?;
        let declared = length.iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        if length.len() < size || declared > HEADER_BYTES_MAX {
            return Err(wrong("it ends within its header".into()));
        }
        let mut text = Vec::new();
        if stream.append(declared, &mut text)? < declared {
            return Err(wrong("it ends within its header".into()));
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let shape = value(&text, "shape").and_then(dimensions);
        let word = value(&text, "descr").and_then(word);
        let fortran = value(&text, "fortran_order").map(|value| value.starts_with("True"));
        let excerpt: String = text.chars().take(120).collect();
        let (Some(shape), Some(word), Some(fortran)) = (shape, word, fortran) else {
            return Err(wrong(format!("its header is '{}'", excerpt.trim())).hint(
                "arrays of floats, whole numbers and booleans are read, in one or two dimensions",
            ));
        };
        let (rows, width) = (shape.0, shape.1.unwrap_or(1));
        if !(1..=WIDTH_MAX).contains(&width) {
            return Err(wrong(format!("its rows have none or more than {WIDTH_MAX} numbers")));
        }
        Ok(Header { word, fortran, rows, width, length: (8 + size + declared) as u64 })
    }

    fn row_bytes(&self) -> u64 {
        self.word.bytes as u64 * self.width
    }
}

/// What follows a key of the header, which is a Python dictionary.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let at = text.find(&format!("'{key}'"))? + key.len() + 2;
    Some(text[at..].trim_start().strip_prefix(':')?.trim_start())
}

fn dimensions(text: &str) -> Option<(u64, Option<u64>)> {
    let inner = text.strip_prefix('(')?.split(')').next()?;
    let sizes: Option<Vec<u64>> = inner
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.parse().ok())
        .collect();
    match sizes?[..] {
        [rows] => Some((rows, None)),
        [rows, width] => Some((rows, Some(width))),
        _ => None,
    }
}

fn word(text: &str) -> Option<Word> {
    let inner = text.strip_prefix('\'')?.split('\'').next()?.as_bytes();
    let [order, kind, digit] = inner else { return None };
    let bytes = usize::from(digit.checked_sub(b'0')?);
    let known = matches!((kind, bytes), (b'f', 4 | 8) | (b'i' | b'u', 1 | 2 | 4 | 8) | (b'b', 1));
    let big_endian = match order {
        b'<' | b'|' | b'=' => false,
        b'>' => true,
        _ => return None,
    };
    known.then_some(Word { kind: *kind, bytes, big_endian })
}

impl Word {
    fn cell(self, bytes: &[u8]) -> Cell<&'static [u8]> {
        let mut word = [0u8; 8];
        for (at, byte) in bytes.iter().enumerate() {
            word[if self.big_endian { self.bytes - 1 - at } else { at }] = *byte;
        }
        let unsigned = u64::from_le_bytes(word);
        let unused = 64 - 8 * self.bytes as u32;
        match (self.kind, self.bytes) {
            (b'f', 4) => Cell::Number(f64::from(f32::from_bits(unsigned as u32))),
            (b'f', _) => Cell::Number(f64::from_bits(unsigned)),
            (b'i', _) => Cell::Whole((unsigned << unused) as i64 >> unused),
            _ => match i64::try_from(unsigned) {
                Ok(whole) => Cell::Whole(whole),
                Err(_) => Cell::Number(unsigned as f64),
            },
        }
    }
}

/// Some rows of both files, as bytes.
struct Task {
    first_row: u64,
    rows: usize,
    features: Vec<u8>,
    labels: Vec<u8>,
}

impl Rows for Npy {
    fn name(&self) -> String {
        self.features.name()
    }

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn size(&self) -> Result<u64> {
        let labels = self.labels.as_ref().map_or(Ok(0), Input::size)?;
        Ok(self.features.size()? + labels)
    }

    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let mut features = Numbers::open(&self.features, request)?;
        let labels = self.labels.as_ref().map(|labels| Numbers::open(labels, request));
        let mut labels = labels.transpose()?;
        let header = features.header;
        let columns = header.width as usize + usize::from(labels.is_some());
        if columns != request.reading.roles.len() {
            return Err(changed(&self.name()));
        }
        if let Some(labels) = &labels
            && (labels.header.width != 1 || labels.header.rows != header.rows)
        {
            return Err(Fault::caller(format!(
                "{} has {} rows of {}, and {} has {} rows: there must be one label each",
                labels.name, labels.header.rows, labels.header.width, features.name, header.rows
            )));
        }
        let mut row = request.rows.start;
        let end = header.rows.min(request.rows.end);
        let label_word = labels.as_ref().map(|labels| labels.header.word);
        let mut next = || {
            if row >= end {
                return Ok(None);
            }
            let rows = (CHUNK_BYTES / header.row_bytes()).clamp(1, end - row);
            let task = Task {
                first_row: row,
                rows: rows as usize,
                features: features.take(rows, row)?,
                labels: labels.as_mut().map_or(Ok(vec![]), |labels| labels.take(rows, row))?,
            };
            row += rows;
            Ok(Some(task))
        };
        let name = self.name();
        let work = |task: &Task| decode(&name, task, (header.word, label_word), request);
        in_order(request.rows.start, &mut next, &work, sink)?;
        features.finish(request)?;
        labels.map_or(Ok(()), |labels| labels.finish(request))
    }
}

fn decode(
    name: &str,
    task: &Task,
    (word, label): (Word, Option<Word>),
    request: &Request<'_>,
) -> Result<Chunk> {
    let mut writer = Writer::new(name, "row", request.reading);
    writer.grow(task.rows);
    let width = request.reading.roles.len() - usize::from(label.is_some());
    for (row, bytes) in task.features.chunks_exact(width * word.bytes).enumerate() {
        let number = task.first_row + row as u64;
        for (column, bytes) in bytes.chunks_exact(word.bytes).enumerate() {
            if request.reading.roles[column] != Role::Skip {
                writer.put(Spot { row, column, number }, &word.cell(bytes))?;
            }
        }
    }
    if let Some(label) = label {
        for (row, bytes) in task.labels.chunks_exact(label.bytes).enumerate() {
            let spot = Spot { row, column: width, number: task.first_row + row as u64 };
            writer.put(spot, &label.cell(bytes))?;
        }
    }
    Ok(writer.finish())
}

/// The numbers of one file, row after row.
struct Numbers<'a> {
    name: String,
    header: Header,
    stream: Stream<'a>,
    /// All numbers, of an array in Fortran order.
    scattered: Vec<u8>,
}

impl<'a> Numbers<'a> {
    fn open(input: &'a Input, request: &Request<'a>) -> Result<Numbers<'a>> {
        let (name, tally): (String, Option<&'a Tally>) = (input.name(), request.tally);
        let header = Header::read(&name, &mut input.open(None)?)?;
        let mut stream = input.open(tally)?;
        let scattered = header.fortran && header.width > 1 && header.rows > 1;
        let first = if scattered { 0 } else { request.rows.start.min(header.rows) };
        stream.skip_to(header.length + first.saturating_mul(header.row_bytes()))?;
        let mut numbers = Numbers { name, header, stream, scattered: Vec::new() };
        if scattered {
            let wanted = usize::try_from(header.rows.saturating_mul(header.row_bytes()));
            let mut bytes = Vec::new();
            let wanted = wanted.unwrap_or(usize::MAX).min(usize::MAX >> 1);
            if numbers.stream.append(wanted, &mut bytes)? < wanted {
                return Err(numbers.cut_short(bytes.len() as u64 / header.row_bytes()));
            }
            numbers.scattered = bytes;
        }
        Ok(numbers)
    }

    fn take(&mut self, rows: u64, row: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if !self.scattered.is_empty() {
            let (word, column) = (self.header.word.bytes, self.header.rows as usize);
            for row in row as usize..(row + rows) as usize {
                for at in 0..self.header.width as usize {
                    let from = (at * column + row) * word;
                    bytes.extend_from_slice(&self.scattered[from..from + word]);
                }
            }
            return Ok(bytes);
        }
        let wanted = (rows * self.header.row_bytes()) as usize;
        match self.stream.append(wanted, &mut bytes)? < wanted {
            true => Err(self.cut_short(row + bytes.len() as u64 / self.header.row_bytes())),
            false => Ok(bytes),
        }
    }

    fn cut_short(&self, found: u64) -> Fault {
        let (name, rows, width) = (&self.name, self.header.rows, self.header.width);
        Fault::caller(format!(
            "{name} promises {rows} rows of {width} numbers and ends after {found}"
        ))
        .hint("the file is damaged: fetch it again")
    }

    /// Refuses bytes that belong to no row.
    fn finish(mut self, request: &Request<'_>) -> Result<()> {
        if request.rows.end >= self.header.rows && self.stream.append(1, &mut Vec::new())? > 0 {
            let what = format!("{} goes on after its {} rows", self.name, self.header.rows);
            return Err(Fault::caller(what).hint("the file is damaged: fetch it again"));
        }
        Ok(())
    }
}
