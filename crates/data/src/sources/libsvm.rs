//! LIBSVM's sparse text: `label index:value index:value …`, a row a line. Indices count from 1, or from 0 in
//! the other entry: the files do not say, and a guess that differs between training and prediction would
//! shift every feature. `qid:` fields are groups when the job says `group = "qid"`, else skipped, and so are remarks
//! behind `#`.

use super::{Format, Place, Request, Rows, Shape, Sink};
use crate::blocks::{Block, MARK_BYTES, read_lines};
use crate::chunk::{Chunk, Mark};
use crate::input::Input;
use crate::number::{missing, number};
use crate::{Features, LabelNeed};
use starlings_core::{Entry, Fault, Result};

/// Indices from 1.
pub(super) const FROM_ONE: Entry<Format> = Entry {
    name: "libsvm",
    summary: "Sparse rows `label index:value …`, indices from 1",
    reference: "Chang and Lin (2011), LIBSVM: a library for support vector machines",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format {
        extensions: &["libsvm", "svm", "svmlight"],
        recognise,
        open: |place, _| open(place, 1),
    },
};

/// Indices from 0.
pub(super) const FROM_ZERO: Entry<Format> = Entry {
    name: "libsvm-from-0",
    summary: "Sparse rows `label index:value …`, indices from 0",
    reference: "scikit-learn's dump_svmlight_file, zero_based=True",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &[], recognise: |_| false, open: |place, _| open(place, 0) },
};

/// The largest index: learners keep a number for each feature, so a larger one is an accident or an attack.
const INDEX_MAX: u32 = 1 << 28;

struct Libsvm {
    input: Input,
    first_index: u32,
    shape: Shape,
}

fn open(place: Place, first_index: u32) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("libsvm data are files: give a path"));
    };
    let shape = Shape::Numbered { labels: true, sparse: true, width: None };
    Ok(Box::new(Libsvm { input, first_index, shape }))
}

/// A number, then only `index:value`.
fn recognise(head: &[u8]) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n');
    let pair = |token: &[u8]| match memchr::memchr(b':', token) {
        Some(at) => number(&token[..at]).is_some() || &token[..at] == b"qid",
        None => false,
    };
    let line = lines.find(|line| !line.trim_ascii().is_empty() && line[0] != b'#');
    let mut tokens =
        line.unwrap_or_default().split(u8::is_ascii_whitespace).filter(|t| !t.is_empty());
    tokens.next().is_some_and(|label| number(label).is_some()) && tokens.next().is_some_and(pair)
}

impl Rows for Libsvm {
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
        let wanted = Wanted { label: request.reading.label, queries: request.reading.queries };
        let parse = |block: &Block| self.parse(block, wanted);
        read_lines(&self.input, request, &parse, sink)
    }
}

/// What of a row is wanted besides its features.
#[derive(Clone, Copy)]
struct Wanted {
    label: LabelNeed,
    queries: bool,
}

impl Libsvm {
    fn parse(&self, block: &Block, wanted: Wanted) -> Result<Chunk> {
        let mut chunk = Chunk::sparse(0, wanted.label.is_class());
        let (mut at, mut line_number, mut marked) = (0, block.line, 0);
        let mut entries: Vec<(u32, f32)> = Vec::new();
        for line in block.bytes.split(|byte| *byte == b'\n') {
            let data = &line[..memchr::memchr(b'#', line).unwrap_or(line.len())];
            if !data.trim_ascii().is_empty() {
                let byte = block.byte + at as u64;
                if chunk.rows == 0 || byte - marked >= MARK_BYTES {
                    marked = byte;
                    chunk.marks.push(Mark { row: chunk.rows as u64, byte, line: line_number });
                }
                self.row(data, wanted, &mut chunk, &mut entries).map_err(|what| {
                    let fault =
                        Fault::caller(format!("{}, line {line_number}: {what}", self.name()));
                    match what.contains("index 0") {
                        true => {
                            fault.hint("if indices count from 0, say `format = \"libsvm-from-0\"`")
                        }
                        false => fault,
                    }
                })?;
            }
            at += line.len() + 1;
            line_number += 1;
        }
        Ok(chunk)
    }

    fn row(
        &self,
        line: &[u8],
        wanted: Wanted,
        chunk: &mut Chunk,
        entries: &mut Vec<(u32, f32)>,
    ) -> Result<(), String> {
        let mut tokens = line.split(u8::is_ascii_whitespace).filter(|token| !token.is_empty());
        self.label(tokens.next().unwrap_or_default(), wanted.label, chunk)?;
        entries.clear();
        let mut sorted = true;
        for token in tokens {
            let Some(colon) = memchr::memchr(b':', token) else {
                return Err(format!("'{}' is not index:value", String::from_utf8_lossy(token)));
            };
            let (index, value) = (&token[..colon], &token[colon + 1..]);
            if index == b"qid" {
                if wanted.queries && chunk.groups.len() == chunk.rows {
                    let code = chunk.group_keys.code_of_bytes(value);
                    chunk.groups.push(code.map_err(|fault| fault.to_string())?);
                }
                continue;
            }
            let entry = (self.index(index)?, finite(value)?);
            sorted &= entries.last().is_none_or(|last| last.0 < entry.0);
            entries.push(entry);
        }
        if !sorted {
            entries.sort_by_key(|entry| entry.0);
            if let Some(twice) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(format!("feature {} comes twice", twice[0].0 + self.first_index));
            }
        }
        let Features::Sparse { width, starts, columns, values } = &mut chunk.features else {
            unreachable!("libsvm chunks are sparse")
        };
        columns.extend(entries.iter().map(|entry| entry.0));
        values.extend(entries.iter().map(|entry| entry.1));
        starts.push(columns.len());
        *width = entries.last().map_or(*width, |last| (*width).max(last.0 as usize + 1));
        chunk.rows += 1;
        match wanted.queries && chunk.groups.len() < chunk.rows {
            true => Err("no qid: field, and `group = \"qid\"` wants one in every row".to_string()),
            false => Ok(()),
        }
    }

    fn label(&self, text: &[u8], need: LabelNeed, chunk: &mut Chunk) -> Result<(), String> {
        let label = match (&mut chunk.classes, need) {
            (_, LabelNeed::None) => return Ok(()),
            _ if missing(text) || text.contains(&b':') => {
                return Err(format!(
                    "'{}' is no label: every row needs one",
                    String::from_utf8_lossy(text)
                ));
            }
            (Some(classes), _) => {
                classes.code_of_bytes(text).map_err(|fault| fault.to_string())? as f32
            }
            (None, _) => finite(text).map_err(|what| format!("label {what}"))?,
        };
        chunk.labels.push(label);
        Ok(())
    }

    fn index(&self, text: &[u8]) -> Result<u32, String> {
        let shown = || String::from_utf8_lossy(text).into_owned();
        let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        let mut index = 0u32;
        for digit in text {
            index = index.saturating_mul(10).saturating_add(u32::from(digit.wrapping_sub(b'0')));
        }
        match index {
            _ if !digits => Err(format!("'{}' is not an index", shown())),
            0 if self.first_index == 1 => Err("index 0, and indices count from 1".to_string()),
            INDEX_MAX.. => Err(format!("index {} is above the limit of {INDEX_MAX}", shown())),
            _ => Ok(index - self.first_index),
        }
    }
}

fn finite(text: &[u8]) -> Result<f32, String> {
    number(text)
        .filter(|value| value.is_finite())
        .ok_or_else(|| format!("'{}' is not a 32-bit number", String::from_utf8_lossy(text)))
}
