//! Text files in blocks of whole records, parsed on all cores and joined in order.
//!
//! While one batch of blocks is parsed, the calling thread reads the next. Where blocks are cut depends on
//! the bytes alone, so that sums over blocks are the same on every machine. Nothing holds the file.

use crate::chunk::{Chunk, Mark};
use crate::input::{Input, Stream};
use crate::sources::{Flow, Request, Sink};
use starlings_core::{Fault, Result};
use std::num::NonZero;
use std::sync::LazyLock;

/// Bytes in a block: large enough that a thread's start is noise, small enough to stay in cache.
pub(crate) const BLOCK_BYTES: usize = 2 << 20;
/// The longest record.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// Distance of two marks in a file that is not huge.
pub(crate) const MARK_BYTES: u64 = 64 << 10;
const PARSERS_MAX: usize = 8;
/// Threads that parse. Asked once, for the answer is read from several files.
static PARSERS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get).min(PARSERS_MAX));

/// Whole records.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    /// Where it begins in the file.
    pub(crate) byte: u64,
    /// The line it begins with, from 1.
    pub(crate) line: u64,
}

/// The blocks of a file, from one byte to another.
pub(crate) struct Blocks<'a> {
    pub(crate) name: String,
    pub(crate) stream: Stream<'a>,
    /// Where the next block begins.
    pub(crate) byte: u64,
    pub(crate) line: u64,
    /// Where reading ends, if not at the end of the file.
    pub(crate) until: u64,
    /// The bytes read already but not yet given away.
    pub(crate) rest: Vec<u8>,
    /// How many of some bytes are whole records.
    pub(crate) cut: &'a (dyn Fn(&[u8]) -> Option<usize> + Sync),
}

impl Blocks<'_> {
    /// The next block; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Block>> {
        let mut bytes = Vec::with_capacity(self.stream.room(BLOCK_BYTES));
        bytes.append(&mut self.rest);
        let mut wanted = BLOCK_BYTES;
        let whole = loop {
            let left = self.until.saturating_sub(self.byte).min(wanted as u64) as usize;
            let more = left.saturating_sub(bytes.len());
            let ended = self.stream.append(more, &mut bytes)? < more || left < wanted;
            match (ended, (self.cut)(&bytes)) {
                (true, _) => break bytes.len(),
                (false, Some(whole)) => break whole,
                (false, None) if wanted >= RECORD_BYTES_MAX => return Err(self.endless()),
                (false, None) => wanted *= 2,
            }
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        self.rest.extend_from_slice(&bytes[whole..]);
        bytes.truncate(whole);
        let block = Block { byte: self.byte, line: self.line, bytes };
        self.byte += whole as u64;
        self.line += memchr::memchr_iter(b'\n', &block.bytes).count() as u64;
        Ok(Some(block))
    }

    fn endless(&self) -> Fault {
        let what = format!(
            "{}, line {}: the record does not end within {RECORD_BYTES_MAX} bytes",
            self.name, self.line
        );
        Fault::caller(what).hint("is a closing quote missing, or is this not a text file?")
    }
}

/// Reads what a request wants of a file whose records are lines.
pub(crate) fn read_lines(
    input: &Input,
    request: &Request<'_>,
    work: &(dyn Fn(&Block) -> Result<Chunk> + Sync),
    sink: &mut Sink<'_>,
) -> Result<()> {
    let (from, until) = request.between();
    let from = from.unwrap_or(Mark { row: 0, byte: 0, line: 1 });
    let mut stream = input.open(request.tally)?;
    stream.skip_to(from.byte)?;
    let mut blocks = Blocks {
        name: input.name(),
        stream,
        byte: from.byte,
        line: from.line,
        until: until.map_or(u64::MAX, |mark| mark.byte),
        rest: Vec::new(),
        cut: &|bytes| memchr::memrchr(b'\n', bytes).map(|at| at + 1),
    };
    in_order(from.row, &mut || blocks.next(), work, sink)
}

/// Turns tasks into chunks on several threads and hands the chunks to `sink` in the order of tasks, until
/// the tasks or the sink end. The chunks' rows are numbered from `first_row`.
pub(crate) fn in_order<T: Send + Sync>(
    first_row: u64,
    next: &mut dyn FnMut() -> Result<Option<T>>,
    work: &(dyn Fn(&T) -> Result<Chunk> + Sync),
    sink: &mut Sink<'_>,
) -> Result<()> {
    let parsers = *PARSERS;
    let mut row = first_row;
    let mut tasks = take(parsers, next)?;
    if let ([task], true) = (tasks.as_slice(), parsers > 1) {
        // All there is: a thread would cost more than most small files.
        let chunk = Chunk { first_row, ..work(task)? };
        return sink(chunk).map(|_| ());
    }
    while !tasks.is_empty() {
        let (chunks, following) = std::thread::scope(|scope| {
            let parsing: Vec<_> =
                tasks.iter().map(|task| scope.spawn(move || work(task))).collect();
            let following = take(parsers, next);
            let chunks: Vec<_> = parsing.into_iter().map(|parser| parser.join()).collect();
            (chunks, following)
        });
        for chunk in chunks {
            // A panic below is a bug of ours and stays one: it must not become a fault of the data.
            let mut chunk = chunk.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            chunk.first_row = row;
            row += chunk.rows as u64;
            if sink(chunk)? == Flow::Stop {
                return Ok(());
            }
        }
        tasks = following?;
    }
    Ok(())
}

fn take<T>(count: usize, next: &mut dyn FnMut() -> Result<Option<T>>) -> Result<Vec<T>> {
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        match next()? {
            Some(task) => taken.push(task),
            None => break,
        }
    }
    Ok(taken)
}
