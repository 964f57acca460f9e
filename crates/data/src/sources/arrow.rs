//! Apache Arrow's IPC format, as a stream or as a file (also called Feather): flat columns of numbers, booleans and
//! strings. A file is a stream between two magic words, and is read as one: messages are walked from the start, those
//! of rows that nobody wants are skipped without being read, and the others are decoded on several threads. Memory
//! grows with the bytes that arrive, never with what a message declares.

use super::{Format, Guess, Place, Request, Role, Rows, Shape, Sink};
use crate::DataSpec;
use crate::blocks::in_order;
use crate::cells::{Cell, Spot, Writer};
use crate::chunk::Chunk;
use crate::input::{Input, Stream, changed};
use crate::quietly::quietly;
use arrow_array::cast::AsArray;
use arrow_array::types as kinds;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::MessageHeader;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use starlings_core::{Entry, Fault, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Arrow files and streams.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "arrow",
    summary: "Apache Arrow IPC files and streams (Feather): flat columns of numbers, booleans and strings",
    reference: "Apache Arrow columnar format specification, IPC section",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format {
        extensions: &["arrow", "arrows", "feather", "ipc"],
        recognise: |head| head.starts_with(MAGIC) || head.starts_with(&CONTINUATION),
        open,
    },
};

const MAGIC: &[u8] = b"ARROW1";
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The longest description of a message, and the most bytes that its compressed columns may become.
const HEADER_BYTES_MAX: u32 = 64 << 20;
const UNPACKED_BYTES_MAX: u64 = 4 << 30;

struct Arrow {
    input: Input,
    schema: SchemaRef,
    shape: Shape,
}

fn open(place: Place, _: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::File(input) = place else {
        return Err(Fault::caller("arrow data are files: give a path"));
    };
    let first = Messages::open(&input, None)?.next()?;
    let first = first.filter(|message| message.kind == MessageHeader::Schema);
    let Some(first) = first else { return Err(damaged(&input.name(), "it has no schema")) };
    let schema = guarded(&input.name(), || {
        let message = first.parsed()?;
        let described = message.header_as_schema().ok_or_else(|| lying("no schema"))?;
        arrow_ipc::convert::try_fb_to_schema(described)
    })?;
    let columns = schema.fields().iter().map(|field| {
        let numbers = !matches!(plain_type(field.data_type()), DataType::Utf8);
        Guess { name: field.name().clone(), numbers }
    });
    let shape = Shape::Columns { columns: columns.collect(), named: true, label: None };
    Ok(Box::new(Arrow { input, schema: Arc::new(schema), shape }))
}

/// Texts of all layouts are texts; a dictionary is what it holds.
fn plain_type(kind: &DataType) -> &DataType {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => &DataType::Utf8,
        DataType::Dictionary(_, values) => plain_type(values),
        other => other,
    }
}

fn readable(kind: &DataType) -> bool {
    use DataType as T;
    match kind {
        T::Dictionary(keys, values) => keys.is_integer() && **values == T::Utf8,
        T::Boolean | T::Utf8 | T::LargeUtf8 | T::Utf8View => true,
        T::Date32 | T::Date64 | T::Timestamp(..) => true,
        other => other.is_integer() || matches!(other, T::Float16 | T::Float32 | T::Float64),
    }
}

fn damaged(name: &str, what: impl std::fmt::Display) -> Fault {
    Fault::caller(format!("{name} is not sound Arrow data"))
        .caused_by(what)
        .hint("was it written fully? write or fetch it again")
}

fn lying(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_string())
}

/// Calls the decoder. Some damage makes it panic instead of refusing; a bad file must not end the process.
fn guarded<T>(name: &str, decode: impl FnOnce() -> Result<T, ArrowError>) -> Result<T> {
    let gave_up = || Err(lying("the decoder gave up on it"));
    quietly(decode).unwrap_or_else(gave_up).map_err(|error| damaged(name, error))
}

/// One message: its description, and its body once it is wanted.
struct Message {
    kind: MessageHeader,
    header: Vec<u8>,
    body_bytes: u64,
    /// Rows of a record batch.
    rows: u64,
    body: Buffer,
}

impl Message {
    fn parsed(&self) -> Result<arrow_ipc::Message<'_>, ArrowError> {
        arrow_ipc::root_as_message(&self.header).map_err(|error| lying(&error.to_string()))
    }

    /// Compressed columns say how long they will be: no more than memory should hold is believed.
    fn check_unpacked(&self, batch: arrow_ipc::RecordBatch<'_>) -> Result<(), ArrowError> {
        if batch.compression().is_none() {
            return Ok(());
        }
        let mut sum = 0u64;
        for buffer in batch.buffers().into_iter().flatten().filter(|buffer| buffer.length() > 0) {
            let start = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
            let declared = self.body.get(start..start.saturating_add(8));
            let declared = declared.and_then(|bytes| bytes.try_into().ok().map(i64::from_le_bytes));
            let length = declared.ok_or_else(|| lying("a column ends beyond its message"))?;
            // -1 says that the bytes are as they are.
            sum = sum.saturating_add(u64::try_from(length.max(0)).unwrap_or(0));
        }
        match sum <= UNPACKED_BYTES_MAX {
            true => Ok(()),
            false => Err(lying("its compressed columns would be larger than 4 GiB")),
        }
    }
}

/// The messages of a stream, in order.
struct Messages<'a> {
    name: String,
    stream: Stream<'a>,
}

impl<'a> Messages<'a> {
    fn open(input: &'a Input, tally: Option<&'a crate::input::Tally>) -> Result<Messages<'a>> {
        let mut head = Vec::new();
        input.open(None)?.append(8, &mut head)?;
        let mut stream = input.open(tally)?;
        if head.starts_with(MAGIC) {
            stream.append(8, &mut Vec::new())?;
        }
        Ok(Messages { name: input.name(), stream })
    }

    /// The description of the next message; its body must be taken or skipped before the one after.
    fn next(&mut self) -> Result<Option<Message>> {
        let mut start = self.exactly(4)?;
        if start.is_empty() {
            return Ok(None);
        }
        // Streams of before version 0.15 have no continuation word.
        if start == CONTINUATION {
            start = self.exactly(4)?;
        }
        let length = start.try_into().map(u32::from_le_bytes).map_err(|_| self.cut_short())?;
        if length == 0 {
            return Ok(None);
        }
        if length > HEADER_BYTES_MAX {
            return Err(damaged(&self.name, format!("a description of {length} bytes")));
        }
        let header = self.exactly(length as usize)?;
        if header.len() < length as usize {
            return Err(self.cut_short());
        }
        let described = guarded(&self.name, || {
            let message = arrow_ipc::root_as_message(&header).map_err(|e| lying(&e.to_string()))?;
            let rows = message.header_as_record_batch().map_or(0, |batch| batch.length());
            Ok((message.header_type(), message.bodyLength(), rows))
        })?;
        let (kind, body_bytes, rows) = described;
        let (Ok(body_bytes), Ok(rows)) = (u64::try_from(body_bytes), u64::try_from(rows)) else {
            return Err(damaged(&self.name, "a message of negative length"));
        };
        Ok(Some(Message {
            kind,
            header,
            body_bytes,
            rows,
            body: Buffer::from_vec(Vec::<u8>::new()),
        }))
    }

    fn body(&mut self, message: &mut Message) -> Result<()> {
        let length = usize::try_from(message.body_bytes).unwrap_or(usize::MAX >> 1);
        let bytes = self.exactly(length)?;
        if bytes.len() < length {
            return Err(self.cut_short());
        }
        message.body = Buffer::from_vec(bytes);
        Ok(())
    }

    fn exactly(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.stream.append(length, &mut bytes)?;
        Ok(bytes)
    }

    fn cut_short(&self) -> Fault {
        damaged(&self.name, "it ends in the middle of a message")
    }
}

/// A record batch that was read but not decoded.
struct Task {
    message: Message,
    first_row: u64,
    dictionaries: Arc<HashMap<i64, ArrayRef>>,
}

impl Rows for Arrow {
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
        if self.schema.fields().len() != request.reading.roles.len() {
            return Err(changed(&self.name()));
        }
        let mut chosen = Vec::new();
        for (column, role) in request.reading.roles.iter().enumerate() {
            let field = self.schema.field(column);
            if *role != Role::Skip && !readable(field.data_type()) {
                let (kind, name) = (field.data_type(), field.name());
                return Err(Fault::caller(format!(
                    "{}, column '{name}': columns of type {kind} are not read",
                    self.name()
                ))
                .hint("leave it out with `features = [...]`, or write it as numbers or texts"));
            }
            if *role != Role::Skip {
                chosen.push(column);
            }
        }
        let mut walk = Walk {
            messages: Messages::open(&self.input, request.tally)?,
            schema: &self.schema,
            dictionaries: Arc::default(),
            row: 0,
        };
        let mut pending = walk.next(request)?;
        let first_row = pending.as_ref().map_or(0, |task| task.first_row);
        let name = self.name();
        let work = |task: &Task| self.decode(&name, task, &chosen, request);
        let mut next = || match pending.take() {
            Some(task) => Ok(Some(task)),
            None => walk.next(request),
        };
        in_order(first_row, &mut next, &work, sink)?;
        match request.tally {
            // What follows the last message (a file's footer) is hashed, too.
            Some(_) => walk.messages.stream.skip(u64::MAX),
            None => Ok(()),
        }
    }
}

/// The walk over the messages of a file.
struct Walk<'a> {
    messages: Messages<'a>,
    schema: &'a Schema,
    dictionaries: Arc<HashMap<i64, ArrayRef>>,
    /// The first row of the next record batch.
    row: u64,
}

impl Walk<'_> {
    /// The next record batch with rows that are wanted.
    fn next(&mut self, request: &Request<'_>) -> Result<Option<Task>> {
        while self.row < request.rows.end {
            let Some(mut message) = self.messages.next()? else {
                // What follows the end is a file's footer, and no message.
                self.row = u64::MAX;
                return Ok(None);
            };
            let first_row = self.row;
            self.row = self.row.saturating_add(message.rows);
            if message.kind == MessageHeader::RecordBatch && self.row <= request.rows.start {
                self.messages.stream.skip(message.body_bytes)?;
                continue;
            }
            self.messages.body(&mut message)?;
            match message.kind {
                MessageHeader::RecordBatch if message.rows > 0 => {
                    let dictionaries = self.dictionaries.clone();
                    return Ok(Some(Task { message, first_row, dictionaries }));
                }
                MessageHeader::DictionaryBatch => self.dictionary(&message)?,
                _ => {}
            }
        }
        Ok(None)
    }

    fn dictionary(&mut self, message: &Message) -> Result<()> {
        let dictionaries = Arc::make_mut(&mut self.dictionaries);
        guarded(&self.messages.name, || {
            let parsed = message.parsed()?;
            let batch =
                parsed.header_as_dictionary_batch().ok_or_else(|| lying("no dictionary"))?;
            batch.data().map_or(Ok(()), |data| message.check_unpacked(data))?;
            let version = parsed.version();
            arrow_ipc::reader::read_dictionary(
                &message.body,
                batch,
                self.schema,
                dictionaries,
                &version,
            )
        })
    }
}

impl Arrow {
    fn decode(
        &self,
        name: &str,
        task: &Task,
        chosen: &[usize],
        request: &Request<'_>,
    ) -> Result<Chunk> {
        let batch: RecordBatch = guarded(name, || {
            let parsed = task.message.parsed()?;
            let batch = parsed.header_as_record_batch().ok_or_else(|| lying("no record batch"))?;
            task.message.check_unpacked(batch)?;
            arrow_ipc::reader::read_record_batch(
                &task.message.body,
                batch,
                self.schema.clone(),
                &task.dictionaries,
                Some(chosen),
                &parsed.version(),
            )
        })?;
        let mut writer = Writer::new(name, "row", request.reading);
        writer.grow(batch.num_rows());
        for (array, &column) in batch.columns().iter().zip(chosen) {
            write(&mut writer, array, column, task.first_row)?;
        }
        Ok(writer.finish())
    }
}

/// Writes a column of a record batch.
fn write(writer: &mut Writer<'_>, array: &ArrayRef, column: usize, first_row: u64) -> Result<()> {
    let cells = cells(array).ok_or_else(|| {
        damaged(writer.name, format!("column {column} is not of the type that the schema says"))
    })?;
    for row in 0..array.len() {
        let cell = if array.is_null(row) { Cell::Missing } else { cells(row) };
        writer.put(Spot { row, column, number: first_row + row as u64 }, &cell)?;
    }
    Ok(())
}

type Cells<'a> = Box<dyn Fn(usize) -> Cell<&'a [u8]> + 'a>;

/// The values of a column by row, of all types that are read.
fn cells(array: &ArrayRef) -> Option<Cells<'_>> {
    use DataType as T;
    macro_rules! whole {
        ($kind:ty) => {{
            let values = array.as_primitive_opt::<$kind>()?;
            Box::new(move |row| Cell::Whole(values.value(row) as i64))
        }};
    }
    macro_rules! number {
        ($kind:ty) => {{
            let values = array.as_primitive_opt::<$kind>()?;
            Box::new(move |row| Cell::Number(f64::from(values.value(row))))
        }};
    }
    Some(match array.data_type() {
        T::Int8 => whole!(kinds::Int8Type),
        T::Int16 => whole!(kinds::Int16Type),
        T::Int32 => whole!(kinds::Int32Type),
        T::Int64 => whole!(kinds::Int64Type),
        T::UInt8 => whole!(kinds::UInt8Type),
        T::UInt16 => whole!(kinds::UInt16Type),
        T::UInt32 => whole!(kinds::UInt32Type),
        T::UInt64 => {
            let values = array.as_primitive_opt::<kinds::UInt64Type>()?;
            Box::new(move |row| match i64::try_from(values.value(row)) {
                Ok(whole) => Cell::Whole(whole),
                Err(_) => Cell::Number(values.value(row) as f64),
            })
        }
        T::Float16 => number!(kinds::Float16Type),
        T::Float32 => number!(kinds::Float32Type),
        T::Float64 => number!(kinds::Float64Type),
        T::Date32 => whole!(kinds::Date32Type),
        T::Date64 => whole!(kinds::Date64Type),
        T::Timestamp(arrow_schema::TimeUnit::Second, _) => whole!(kinds::TimestampSecondType),
        T::Timestamp(arrow_schema::TimeUnit::Millisecond, _) => {
            whole!(kinds::TimestampMillisecondType)
        }
        T::Timestamp(arrow_schema::TimeUnit::Microsecond, _) => {
            whole!(kinds::TimestampMicrosecondType)
        }
        T::Timestamp(arrow_schema::TimeUnit::Nanosecond, _) => {
            whole!(kinds::TimestampNanosecondType)
        }
        T::Boolean => {
            let values = array.as_boolean_opt()?;
            Box::new(move |row| Cell::Whole(i64::from(values.value(row))))
        }
        T::Utf8 => {
            let values = array.as_string_opt::<i32>()?;
            Box::new(move |row| Cell::Text(values.value(row).as_bytes()))
        }
        T::LargeUtf8 => {
            let values = array.as_string_opt::<i64>()?;
            Box::new(move |row| Cell::Text(values.value(row).as_bytes()))
        }
        T::Utf8View => {
            let values = array.as_string_view_opt()?;
            Box::new(move |row| Cell::Text(values.value(row).as_bytes()))
        }
        T::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary_opt()?;
            let texts = dictionary.values().as_string_opt::<i32>()?;
            let keys = dictionary.normalized_keys();
            Box::new(move |row| Cell::Text(texts.value(keys[row]).as_bytes()))
        }
        _ => return None,
    })
}
