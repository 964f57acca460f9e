//! JSON lines: one object a line, its keys are columns. Keys that a line lacks, and `null`, are missing; true and false
//! are 1 and 0. The columns are the keys of the first lines; a key that comes up later is refused unless the job
//! chooses its `features`. Objects and lists within are refused.

use super::{Format, Guess, Place, Reading, Request, Role, Rows, Shape, Sink};
use crate::DataSpec;
use crate::blocks::{Block, MARK_BYTES, read_lines};
use crate::cells::{Cell, Spot, Writer};
use crate::chunk::{Chunk, Mark};
use crate::input::Input;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use starlings_core::{Entry, Fault, Result};
use std::collections::BTreeMap;

/// JSON lines.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "jsonl",
    summary: "JSON lines: one flat object a line, its keys are columns",
    reference: "RFC 8259; jsonlines.org",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format {
        extensions: &["jsonl", "ndjson"],
        recognise: |head| head.trim_ascii_start().starts_with(b"{"),
        open,
    },
};

const HEAD_BYTES: usize = 256 << 10;
const HEAD_BYTES_MAX: usize = 64 << 20;
/// Lines that inference looks at.
const SAMPLE: usize = 1000;

struct Jsonl {
    input: Input,
    shape: Shape,
    columns: BTreeMap<String, usize>,
    /// Whether keys that are no columns are of no interest.
    chosen: bool,
}

/// An object with its keys in the order of the line.
struct Record(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Record;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object, such as {\"age\": 39, \"town\": \"Rome\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
                let mut pairs: Vec<(String, Value)> = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Record(pairs))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

fn open(place: Place, spec: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("jsonl data are files: give a path"));
    };
    let name = input.name();
    let mut guesses: Vec<Guess> = Vec::new();
    let mut columns = BTreeMap::new();
    let mut rows = 0;
    let head = head(&input)?;
    let lines = head.split(|byte| *byte == b'\n').enumerate();
    for (at, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()).take(SAMPLE) {
        for (key, value) in parse(&name, at as u64 + 1, line)?.0 {
            let column = *columns.entry(key.clone()).or_insert_with(|| {
                guesses.push(Guess { name: key, numbers: true });
                guesses.len() - 1
            });
            guesses[column].numbers &= !value.is_string();
        }
        rows += 1;
    }
    if rows == 0 {
        return Err(Fault::caller(format!("{name} has no rows"))
            .hint("is it the right file, and was it written fully?"));
    }
    let shape = Shape::Columns { columns: guesses, named: true, label: None };
    Ok(Box::new(Jsonl { input, shape, columns, chosen: spec.features.is_some() }))
}

/// The first whole lines.
fn head(input: &Input) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut stream = input.open(None)?;
    loop {
        let wanted = (head.len() * 3).max(HEAD_BYTES);
        let ended = stream.append(wanted, &mut head)? < wanted;
        let whole = memchr::memrchr(b'\n', &head);
        match whole {
            _ if ended => return Ok(head),
            Some(whole) => {
                head.truncate(whole);
                return Ok(head);
            }
            None if head.len() >= HEAD_BYTES_MAX => return Ok(head),
            None => {}
        }
    }
}

fn parse(name: &str, line_number: u64, line: &[u8]) -> Result<Record> {
    serde_json::from_slice(line).map_err(|error| {
        // serde_json names line 1 of each line.
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or_default();
        let column = error.column();
        Fault::caller(format!("{name}, line {line_number}, character {column}: {text}"))
            .hint("each line is one JSON object: a pretty-printed file or a list of objects is not")
    })
}

impl Rows for Jsonl {
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
        let name = self.name();
        let work = |block: &Block| self.parse_block(&name, block, request.reading);
        read_lines(&self.input, request, &work, sink)
    }
}

impl Jsonl {
    fn parse_block(&self, name: &str, block: &Block, reading: &Reading) -> Result<Chunk> {
        let mut writer = Writer::new(name, "line", reading);
        let (mut at, mut line_number, mut marked) = (0, block.line, 0);
        for line in block.bytes.split(|byte| *byte == b'\n') {
            if !line.trim_ascii().is_empty() {
                let (row, byte) = (writer.chunk.rows, block.byte + at as u64);
                if row == 0 || byte - marked >= MARK_BYTES {
                    marked = byte;
                    writer.chunk.marks.push(Mark { row: row as u64, byte, line: line_number });
                }
                writer.grow(1);
                self.row(&mut writer, (row, line_number), line)?;
            }
            at += line.len() + 1;
            line_number += 1;
        }
        Ok(writer.finish())
    }

    fn row(&self, writer: &mut Writer<'_>, (row, number): (usize, u64), line: &[u8]) -> Result<()> {
        let record = parse(writer.name, number, line)?;
        let name = writer.name;
        let fault = |key: &str, what: &str| {
            let key: String = key.chars().take(40).collect();
            Fault::caller(format!("{name}, line {number}, key '{key}': {what}"))
        };
        let mut cells: Vec<Option<Cell<String>>> = vec![None; writer.reading.roles.len()];
        for (key, value) in record.0 {
            let Some(&column) = self.columns.get(&key) else {
                match self.chosen {
                    true => continue,
                    false => {
                        return Err(fault(&key, "no line at the beginning of the file has this key")
                            .hint("choose columns with `features = [...]`, or give the first line all keys"));
                    }
                }
            };
            if writer.reading.roles[column] == Role::Skip {
                continue;
            }
            let cell = match value {
                Value::Null => Cell::Missing,
                Value::Bool(flag) => Cell::Whole(i64::from(flag)),
                Value::Number(number) => match number.as_i64() {
                    Some(whole) => Cell::Whole(whole),
                    None => Cell::Number(number.as_f64().unwrap_or(f64::INFINITY)),
                },
                Value::String(text) => Cell::Text(text),
                Value::Array(_) | Value::Object(_) => {
                    return Err(fault(&key, "it holds a list or an object, and columns are flat")
                        .hint("write its parts under keys of their own, such as \"town.name\""));
                }
            };
            if cells[column].replace(cell).is_some() {
                return Err(fault(&key, "it comes twice in the line"));
            }
        }
        for (column, cell) in cells.into_iter().enumerate() {
            writer.put(Spot { row, column, number }, &cell.unwrap_or(Cell::Missing))?;
        }
        Ok(())
    }
}
