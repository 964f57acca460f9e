//! Texts: one document a line, in the column `text`. Where the first lines all have a tab (or the job's `delimiter`),
//! what stands before it is the column `label`. A preparation (`tf-idf`, `hashed-n-grams`) makes numbers of the texts.
//! A line without words is a document, too; only the job says that a file is of this kind (`format = "text"`).

use super::{Format, Guess, NO_GROUP, NO_WEIGHT, Place, Reading, Request, Role, Rows, Shape, Sink};
use crate::blocks::{Block, MARK_BYTES, read_lines};
use crate::chunk::{Chunk, Mark};
use crate::input::Input;
use crate::number::{missing, number, trim};
use crate::{DataSpec, Features};
use starlings_core::{Entry, Fault, Result};

/// One document a line.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "text",
    summary: "One document a line, its label before a tab if there is one: say format = \"text\"",
    reference: "fastText's and MALLET's one-instance-a-line files",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &["text"], recognise: |_| false, open },
};

const HEAD_BYTES: usize = 64 << 10;
/// Lines that inference looks at.
const SAMPLE: usize = 100;

struct Text {
    input: Input,
    /// What stands between label and document.
    delimiter: Option<u8>,
    shape: Shape,
}

fn open(place: Place, spec: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("text data are files: give a path"));
    };
    let given = match spec.delimiter {
        None => None,
        Some(given) => Some(u8::try_from(given).ok().filter(u8::is_ascii).ok_or_else(|| {
            Fault::caller(format!("delimiter '{given}' is not a single ASCII character"))
        })?),
    };
    let mut head = Vec::new();
    let ended = input.open(None)?.append(HEAD_BYTES, &mut head)? < HEAD_BYTES;
    let mut lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').take(SAMPLE + 1).collect();
    // The last piece is the empty rest of the last line, or a line cut short by the end of the head.
    if lines.len() > 1 && (!ended || lines.last().is_some_and(|line| line.is_empty())) {
        lines.pop();
    }
    let delimiter = given.unwrap_or(b'\t');
    let labelled = given.is_some() || lines.iter().all(|line| line.contains(&delimiter));
    let guess = |name: &str, numbers| Guess { name: name.to_string(), numbers };
    let columns = match labelled {
        true => vec![guess("label", false), guess("text", false)],
        false => vec![guess("text", false)],
    };
    let shape = Shape::Columns { columns, named: true, label: labelled.then_some(0) };
    Ok(Box::new(Text { input, delimiter: labelled.then_some(delimiter), shape }))
}

impl Rows for Text {
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
        let work = |block: &Block| self.parse(block, request.reading);
        read_lines(&self.input, request, &work, sink)
    }
}

impl Text {
    fn parse(&self, block: &Block, reading: &Reading) -> Result<Chunk> {
        let mut chunk = Chunk::dense(&reading.texts, reading.label.is_class());
        let (mut at, mut marked) = (0, 0);
        while at < block.bytes.len() {
            let end =
                memchr::memchr(b'\n', &block.bytes[at..]).map_or(block.bytes.len(), |n| at + n);
            let byte = block.byte + at as u64;
            let line_number = block.line + chunk.rows as u64;
            if chunk.rows == 0 || byte - marked >= MARK_BYTES {
                marked = byte;
                chunk.marks.push(Mark { row: chunk.rows as u64, byte, line: line_number });
            }
            self.row(&block.bytes[at..end], line_number, reading, &mut chunk)?;
            at = end + 1;
        }
        chunk.add_up();
        Ok(chunk)
    }

    fn row(
        &self,
        line: &[u8],
        line_number: u64,
        reading: &Reading,
        chunk: &mut Chunk,
    ) -> Result<()> {
        let fault = |column: usize, field: &[u8], what: &str| {
            let text: String = String::from_utf8_lossy(field).chars().take(40).collect();
            let (name, column) = (self.name(), &reading.names[column]);
            Fault::caller(format!("{name}, line {line_number}, column '{column}': '{text}' {what}"))
        };
        let (before, document) = match self.delimiter.map(|it| (it, memchr::memchr(it, line))) {
            None => (None, line),
            Some((_, Some(at))) => (Some(&line[..at]), &line[at + 1..]),
            Some((delimiter, None)) => {
                let what =
                    format!("has no label before a '{}'", char::from(delimiter).escape_debug());
                return Err(fault(0, line, &what));
            }
        };
        let fields = before.into_iter().chain([document]);
        for (column, field) in fields.enumerate() {
            match reading.roles[column] {
                Role::Skip => {}
                Role::Feature(slot) => {
                    let code = match &mut chunk.texts[slot] {
                        Some(texts) => texts.code_of_bytes(trim(field))? as f32,
                        None => number(trim(field)).unwrap_or(f32::NAN),
                    };
                    let Features::Dense { values, .. } = &mut chunk.features else {
                        unreachable!("chunks of texts are dense")
                    };
                    values.push(code);
                }
                _ if missing(trim(field)) => {
                    return Err(fault(column, field, "is no label: every row needs one"));
                }
                Role::Label => {
                    let label = match &mut chunk.classes {
                        Some(classes) => classes.code_of_bytes(trim(field))? as f32,
                        None => number(trim(field))
                            .filter(|label| label.is_finite())
                            .ok_or_else(|| fault(column, field, "is not a number"))?,
                    };
                    chunk.labels.push(label);
                }
                Role::Weight => return Err(fault(column, field, NO_WEIGHT)),
                Role::Group => return Err(fault(column, field, NO_GROUP)),
            }
        }
        chunk.rows += 1;
        Ok(())
    }
}
