//! A long text as rows of equally many bytes (`[data] passage`), whatever its lines: what a language model reads. A row
//! begins at the first character that begins at or after its place, so that no character is cut, and the column is
//! called `text`. The preparation `tokens` makes numbers of it.

use super::{Format, Guess, Place, Request, Role, Rows, Shape, Sink};
use crate::blocks::{BLOCK_BYTES, in_order};
use crate::chunk::Chunk;
use crate::input::Input;
use crate::{DataSpec, Features};
use starlings_core::{Entry, Fault, Result};

/// A text in pieces.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "passages",
    summary: "A text cut into rows of [data] passage bytes, for language models: say format = \"passages\"",
    reference: "Bengio et al. (2003), A neural probabilistic language model: windows of a text",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &[], recognise: |_| false, open },
};

/// Bytes of a row where the job does not say.
const PASSAGE: u64 = 256;
/// The longest character of UTF-8 goes on for so many bytes after its first.
const GOES_ON: usize = 3;

struct Passages {
    input: Input,
    bytes: u64,
    shape: Shape,
}

fn open(place: Place, spec: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("passages are of a text: give the path of a file"));
    };
    let bytes = spec.passage.unwrap_or(PASSAGE);
    if !(8..=1 << 20).contains(&bytes) {
        return Err(Fault::caller(format!("[data] passage = {bytes} is not from 8 to 1048576")));
    }
    let columns = vec![Guess { name: "text".to_string(), numbers: false }];
    let shape = Shape::Columns { columns, named: true, label: None };
    Ok(Box::new(Passages { input, bytes, shape }))
}

/// Some rows, with the beginning of the next.
struct Task {
    bytes: Vec<u8>,
    rows: usize,
}

impl Rows for Passages {
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
        let mut stream = self.input.open(request.tally)?;
        stream.skip_to(request.rows.start * self.bytes)?;
        let (mut row, mut before) = (request.rows.start, Vec::new());
        let whole = (BLOCK_BYTES as u64 / self.bytes).max(1);
        let mut next = || {
            let rows = whole.min(request.rows.end.saturating_sub(row));
            if rows == 0 {
                return Ok(None);
            }
            let mut bytes = std::mem::take(&mut before);
            let wanted = (rows * self.bytes) as usize;
            stream.append(wanted + GOES_ON - bytes.len(), &mut bytes)?;
            before = bytes.get(wanted..).unwrap_or_default().to_vec();
            let ended = bytes.len() < wanted + GOES_ON;
            // At the end of the text a rest that belongs to the last character is no row.
            let begins = |at: usize| bytes[at..].iter().any(|&byte| !continues(byte));
            let size = self.bytes as usize;
            let rows = (0..rows as usize).take_while(|at| at * size < bytes.len());
            let rows = rows.filter(|at| !ended || begins(at * size)).count();
            row += rows as u64;
            Ok((rows > 0).then_some(Task { bytes, rows }))
        };
        let work = |task: &Task| self.parse(task, request);
        in_order(request.rows.start, &mut next, &work, sink)
    }
}

/// Whether a byte goes on with a character that began before it.
fn continues(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

impl Passages {
    fn parse(&self, task: &Task, request: &Request<'_>) -> Result<Chunk> {
        let reading = request.reading;
        let mut chunk = Chunk::dense(&reading.texts, reading.label.is_class());
        let size = self.bytes as usize;
        let begin = |place: usize| {
            let place = place.min(task.bytes.len());
            let rest = task.bytes[place..].iter().take(GOES_ON);
            place + rest.take_while(|&&byte| continues(byte)).count()
        };
        for row in 0..task.rows {
            let text = &task.bytes[begin(row * size)..begin((row + 1) * size)];
            if let (Role::Feature(slot), Features::Dense { values, .. }) =
                (reading.roles[0], &mut chunk.features)
            {
                let texts = chunk.texts[slot].as_mut();
                values.push(
                    texts.map_or(Ok(f32::NAN), |it| {
                        it.code_of_bytes(text).map(|code| code as f32)
                    })?,
                );
            }
            chunk.rows += 1;
        }
        chunk.add_up();
        Ok(chunk)
    }
}
