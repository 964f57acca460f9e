//! IDX, the format of MNIST and Fashion-MNIST: a big-endian header of type and dimensions, then the numbers.
//! Images stand in one file and their labels in another. Pixels stay as they are (0 to 255 for bytes). The
//! header is believed only as far as bytes follow it.

use super::{Flow, Format, Place, Request, Rows, Shape, Sink};
use crate::chunk::Chunk;
use crate::input::{Input, Stream};
use crate::{Features, LabelNeed};
use starlings_core::{Entry, Fault, Result};

/// IDX images and labels.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "idx",
    summary: "Images and labels in two files, as MNIST comes: { images = …, labels = … }",
    reference: "LeCun, Cortes and Burges, The MNIST database of handwritten digits",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format {
        extensions: &["idx", "idx1-ubyte", "idx3-ubyte"],
        recognise: |head| matches!(head, [0, 0, 0x08 | 0x09 | 0x0b..=0x0e, 1..=8, ..]),
        open,
    },
};

/// The widest row.
const WIDTH_MAX: u64 = 1 << 24;
/// Bytes of one chunk, about.
const CHUNK_BYTES: u64 = 1 << 20;

struct Idx {
    images: Input,
    labels: Option<Input>,
    shape: Shape,
}

fn open(place: Place, _: &crate::DataSpec) -> Result<Box<dyn Rows>> {
    let (images, labels) = match place {
        Place::File(images) => (images, None),
        Place::Pair(images, labels) => (images, Some(labels)),
        Place::Named(_) | Place::Arrays(..) => {
            return Err(Fault::caller("idx data are files: give paths"));
        }
    };
    let header = Header::read(&images.name(), &mut images.open(None)?)?;
    let width = Some(header.width as usize);
    let shape = Shape::Numbered { labels: labels.is_some(), sparse: false, width };
    Ok(Box::new(Idx { images, labels, shape }))
}

#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u8,
    /// Bytes of one number.
    size: u64,
    rows: u64,
    /// Numbers in a row.
    width: u64,
    /// Bytes of the header itself.
    length: u64,
}

impl Header {
    fn read(name: &str, stream: &mut Stream<'_>) -> Result<Header> {
        let wrong = |what: &str| Fault::caller(format!("{name} is not an idx file: {what}"));
        let mut bytes = Vec::new();
        stream.append(4, &mut bytes)?;
        let (kind, dimensions) = match bytes[..] {
            [0, 0, kind, dimensions @ 1..=8] => (kind, usize::from(dimensions)),
            _ => return Err(wrong("its first bytes are not 0, 0, a type and 1 to 8 dimensions")),
        };
        let size = match kind {
            0x08 | 0x09 => 1,
            0x0b => 2,
            0x0c | 0x0d => 4,
            0x0e => 8,
            _ => return Err(wrong(&format!("type {kind:#04x} is unknown"))),
        };
        bytes.clear();
        if stream.append(4 * dimensions, &mut bytes)? < 4 * dimensions {
            return Err(wrong("it ends within its header"));
        }
        let mut sizes =
            bytes.chunks_exact(4).map(|b| u64::from(u32::from_be_bytes([b[0], b[1], b[2], b[3]])));
        let rows = sizes.next().expect("at least one dimension");
        let width = sizes
            .try_fold(1u64, |width, size| width.checked_mul(size))
            .filter(|width| (1..=WIDTH_MAX).contains(width))
            .ok_or_else(|| {
                wrong(&format!("its rows have none or more than {WIDTH_MAX} numbers"))
            })?;
        Ok(Header { kind, size, rows, width, length: 4 + 4 * dimensions as u64 })
    }

    fn row_bytes(&self) -> u64 {
        self.size * self.width
    }

    /// Appends the numbers in these bytes.
    fn decode(&self, bytes: &[u8], values: &mut Vec<f32>) {
        match self.kind {
            0x08 => values.extend(bytes.iter().map(|b| f32::from(*b))),
            0x09 => values.extend(bytes.iter().map(|b| f32::from(*b as i8))),
            0x0b => values.extend(words(bytes).map(i16::from_be_bytes).map(f32::from)),
            0x0c => values.extend(words(bytes).map(i32::from_be_bytes).map(|v| v as f32)),
            0x0d => values.extend(words(bytes).map(f32::from_be_bytes)),
            _ => values.extend(words(bytes).map(f64::from_be_bytes).map(|v| v as f32)),
        }
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.chunks_exact(N).map(|word| word.try_into().expect("chunks are exact"))
}

impl Rows for Idx {
    fn name(&self) -> String {
        self.images.name()
    }

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn size(&self) -> Result<u64> {
        let labels = self.labels.as_ref().map_or(Ok(0), Input::size)?;
        Ok(self.images.size()? + labels)
    }

    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let need = request.reading.label;
        let mut images = Numbers::open(&self.images, request)?;
        let mut labels = match &self.labels {
            Some(labels) => Some(Numbers::open(labels, request)?),
            None => None,
        };
        if let Some(labels) = &labels
            && (labels.header.width != 1 || labels.header.rows != images.header.rows)
        {
            return Err(Fault::caller(format!(
                "{} has {} rows of {}, and {} has {} images: there must be one label each",
                labels.name,
                labels.header.rows,
                labels.header.width,
                images.name,
                images.header.rows
            )));
        }
        let mut row = request.rows.start;
        let end = images.header.rows.min(request.rows.end);
        while row < end {
            let rows = (CHUNK_BYTES / images.header.row_bytes()).clamp(1, end - row);
            let mut chunk = Chunk::numbers(images.header.width as usize, need.is_class());
            let Features::Dense { values, .. } = &mut chunk.features else {
                unreachable!("idx chunks are dense")
            };
            images.take(rows, row, values)?;
            let mut numbers = Vec::new();
            if let Some(labels) = &mut labels {
                labels.take(rows, row, &mut numbers)?;
            }
            (chunk.rows, chunk.first_row) = (rows as usize, row);
            self.label(need, &numbers, &mut chunk)?;
            if sink(chunk)? == Flow::Stop {
                return Ok(());
            }
            row += rows;
        }
        images.finish(request)?;
        labels.map_or(Ok(()), |labels| labels.finish(request))
    }
}

impl Idx {
    fn label(&self, need: LabelNeed, numbers: &[f32], chunk: &mut Chunk) -> Result<()> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(Fault::caller(format!("{}: a label is not a number", self.name())));
        }
        match (need, &mut chunk.classes) {
            (LabelNeed::None, _) => {}
            (_, None) => chunk.labels.extend_from_slice(numbers),
            (_, Some(classes)) => {
                for number in numbers {
                    chunk.labels.push(classes.code(&number.to_string())? as f32);
                }
            }
        }
        Ok(())
    }
}

/// The numbers of one file, row after row.
struct Numbers<'a> {
    name: String,
    header: Header,
    stream: Stream<'a>,
    bytes: Vec<u8>,
}

impl<'a> Numbers<'a> {
    fn open(input: &'a Input, request: &Request<'a>) -> Result<Numbers<'a>> {
        let name = input.name();
        let header = Header::read(&name, &mut input.open(None)?)?;
        let mut stream = input.open(request.tally)?;
        let first = request.rows.start.min(header.rows);
        stream.skip_to(header.length + first * header.row_bytes())?;
        Ok(Numbers { name, header, stream, bytes: Vec::new() })
    }

    fn take(&mut self, rows: u64, row: u64, values: &mut Vec<f32>) -> Result<()> {
        let wanted = (rows * self.header.row_bytes()) as usize;
        self.bytes.clear();
        if self.stream.append(wanted, &mut self.bytes)? < wanted {
            let found = row + self.bytes.len() as u64 / self.header.row_bytes();
            let what = format!(
                "{} promises {} rows of {} numbers and ends after {found}",
                self.name, self.header.rows, self.header.width
            );
            return Err(Fault::caller(what).hint("the file is damaged: fetch it again"));
        }
        self.header.decode(&self.bytes, values);
        Ok(())
    }

    /// Hashes what is left, and refuses bytes that belong to no row.
    fn finish(mut self, request: &Request<'_>) -> Result<()> {
        self.bytes.clear();
        if request.rows.end >= self.header.rows && self.stream.append(1, &mut self.bytes)? > 0 {
            let what = format!("{} goes on after its {} rows", self.name, self.header.rows);
            return Err(Fault::caller(what).hint("the file is damaged: fetch it again"));
        }
        Ok(())
    }
}
