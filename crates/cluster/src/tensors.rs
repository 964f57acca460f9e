//! Tensors as safetensors bytes, and back: no code in data. What is loaded may come from anywhere, so
//! every length is checked before it is believed: the header's size, the number of tensors, names that
//! occur twice (JSON parsers keep the last without a word), offsets that overlap or leave gaps, shapes
//! whose product overflows. Everything of ours beyond names and shapes is one JSON document in the
//! format's metadata, under the key `starlings`; one key only, so that equal contents give equal bytes.

use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Kind, Model, Result, Role, Tensor, Values};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Write;

/// What learners remember of each shard of rows: shard → name → numbers.
pub type Cells = BTreeMap<u32, BTreeMap<String, Values>>;

/// What a file may claim before it is refused.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest header in bytes.
    pub header_bytes_max: usize,
    /// Most tensors.
    pub tensors_max: usize,
}

impl Limits {
    /// For tensors alone.
    pub const TENSORS: Limits = Limits { header_bytes_max: 1 << 20, tensors_max: 10_000 };

    /// For model files, whose header carries the schema: a vocabulary or the categories of wide tables.
    pub const MODEL_FILE: Limits = Limits { header_bytes_max: 16 << 20, tensors_max: 10_000 };
}

/// A tensor by reference, to be written.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    /// The lengths of its axes.
    pub shape: &'a [usize],
    /// Its numbers.
    pub values: &'a Values,
}

/// What was read: our document and the tensors.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The JSON text under `starlings`, if there is one.
    pub document: Option<String>,
    /// Shapes and numbers by name.
    pub tensors: BTreeMap<String, (Vec<usize>, Values)>,
}

const DOCUMENT_KEY: &str = "starlings";
const METADATA_KEY: &str = "__metadata__";
const LENGTH_BYTES: usize = 8;

/// Writes tensors with a document.
///
/// # Errors
/// More than `limits` allow (what cannot be loaded again must not be saved), or the writer's error.
///
/// # Panics
/// If a tensor's shape and values disagree: a bug of the caller.
pub fn write_tensors(
    out: &mut dyn Write,
    tensors: &BTreeMap<String, TensorRef<'_>>,
    document: String,
    limits: Limits,
) -> Result<()> {
    if tensors.len() > limits.tensors_max {
        return Err(too_many(limits));
    }
    // Wide numbers first, so that every tensor stays aligned to its own width.
    let mut order: Vec<_> = tensors.iter().collect();
    order.sort_by_key(|(name, tensor)| {
        (std::cmp::Reverse(tensor.values.kind().bytes()), name.as_str())
    });
    let mut infos = Vec::with_capacity(order.len());
    let mut end = 0;
    for (name, tensor) in &order {
        let count: usize = tensor.shape.iter().product();
        assert_eq!(count, tensor.values.len(), "shape and values of '{name}' disagree");
        if name.as_str() == METADATA_KEY {
            return Err(Fault::caller(format!("no tensor may be called '{METADATA_KEY}'")));
        }
        let start = end;
        end += count * tensor.values.kind().bytes();
        let dtype = dtype_of(tensor.values.kind());
        let info = TensorInfo { dtype, shape: tensor.shape.to_vec(), data_offsets: (start, end) };
        infos.push(((*name).clone(), info));
    }
    let metadata = HashMap::from([(DOCUMENT_KEY.to_owned(), document)]);
    let metadata = Metadata::new(Some(metadata), infos)
        .map_err(|error| Fault::caller("these tensors cannot be saved").caused_by(error))?;
    let mut header = serde_json::to_vec(&metadata)
        .map_err(|error| Fault::caller("the header cannot be written as JSON").caused_by(error))?;
    header.resize(header.len().next_multiple_of(LENGTH_BYTES), b' ');
    if header.len() > limits.header_bytes_max {
        return Err(header_too_large(header.len() as u64, limits));
    }
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)?;
    for (_, tensor) in &order {
        write_values(out, tensor.values)?;
    }
    Ok(())
}

/// Reads tensors and the document.
///
/// # Errors
/// Bytes that are not safetensors, are cut short, contradict themselves or exceed `limits`.
pub fn read_tensors(bytes: &[u8], limits: Limits) -> Result<Contents> {
    let length = bytes.first_chunk().ok_or_else(|| cut_short("the length of the header"))?;
    let length = u64::from_le_bytes(*length);
    if length > limits.header_bytes_max as u64 {
        return Err(header_too_large(length, limits));
    }
    let after = &bytes[LENGTH_BYTES..];
    let (header, data) =
        after.split_at_checked(length as usize).ok_or_else(|| cut_short("the header"))?;
    check_keys(header, limits)?;
    let metadata: Metadata = serde_json::from_slice(header)
        .map_err(|error| Fault::caller("the header is not that of safetensors").caused_by(error))?;
    if metadata.data_len() > data.len() {
        let missing = metadata.data_len() - data.len();
        return Err(cut_short(&format!("the last {missing} bytes of the tensors")));
    }
    if metadata.data_len() < data.len() {
        let surplus = data.len() - metadata.data_len();
        return Err(Fault::caller(format!(
            "{surplus} bytes after the last tensor belong to nothing"
        )));
    }
    let mut tensors = BTreeMap::new();
    for name in metadata.offset_keys() {
        let info = metadata.info(&name).expect("offset_keys lists only tensors that exist");
        let tensor = read_tensor(&name, info, data)?;
        tensors.insert(name, tensor);
    }
    let document = metadata.metadata().as_ref().and_then(|map| map.get(DOCUMENT_KEY)).cloned();
    Ok(Contents { document, tensors })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelDocument {
    /// Names of the tensors that are state; the others are weights.
    state: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CellsDocument {
    /// All shards, also those that have nothing to remember.
    shards: BTreeSet<u32>,
}

/// Writes a whole model, state included.
///
/// # Errors
/// As [`write_tensors`].
pub fn write_model(out: &mut dyn Write, model: &Model) -> Result<()> {
    let state = model.iter().filter(|(_, tensor)| tensor.role == Role::State);
    let document = ModelDocument { state: state.map(|(name, _)| name.to_owned()).collect() };
    let tensors = model.iter().map(|(name, tensor)| {
        (name.to_owned(), TensorRef { shape: &tensor.shape, values: &tensor.values })
    });
    write_tensors(out, &tensors.collect(), to_json(&document), Limits::TENSORS)
}

/// Reads a model written by [`write_model`].
///
/// # Errors
/// As [`read_tensors`], and when the roles are missing or name tensors that are not there.
pub fn read_model(bytes: &[u8]) -> Result<Model> {
    let contents = read_tensors(bytes, Limits::TENSORS)?;
    let document: ModelDocument = from_json(contents.document.as_deref())?;
    if let Some(name) = document.state.iter().find(|name| !contents.tensors.contains_key(*name)) {
        return Err(Fault::caller(format!("the tensor '{name}' is missing")));
    }
    let mut model = Model::new();
    for (name, (shape, values)) in contents.tensors {
        let role = if document.state.contains(&name) { Role::State } else { Role::Weight };
        model.set(name, Tensor { shape, values, role });
    }
    Ok(model)
}

/// Writes the memory of some shards.
///
/// # Errors
/// As [`write_tensors`].
pub fn write_cells(out: &mut dyn Write, cells: &Cells) -> Result<()> {
    let document = CellsDocument { shards: cells.keys().copied().collect() };
    let shapes: Vec<[usize; 1]> =
        cells.values().flat_map(|cell| cell.values().map(|values| [values.len()])).collect();
    let flat = cells.iter().flat_map(|(shard, cell)| {
        cell.iter().map(move |(name, values)| (format!("{shard}/{name}"), values))
    });
    let tensors = flat
        .zip(&shapes)
        .map(|((name, values), shape)| (name, TensorRef { shape: shape.as_slice(), values }));
    write_tensors(out, &tensors.collect(), to_json(&document), Limits::TENSORS)
}

/// Reads what [`write_cells`] wrote.
///
/// # Errors
/// As [`read_tensors`], and names that are not `shard/name` of a listed shard.
pub fn read_cells(bytes: &[u8]) -> Result<Cells> {
    let contents = read_tensors(bytes, Limits::TENSORS)?;
    let document: CellsDocument = from_json(contents.document.as_deref())?;
    let mut cells: Cells =
        document.shards.into_iter().map(|shard| (shard, BTreeMap::new())).collect();
    for (name, (_, values)) in contents.tensors {
        let place = name.split_once('/').and_then(|(shard, cell)| {
            let number: u32 = shard.parse().ok()?;
            // "+1" and "01" parse too; each cell has exactly one spelling.
            (number.to_string() == shard).then(|| (number, cell.to_owned()))
        });
        let known = place.and_then(|(shard, cell)| Some((cells.get_mut(&shard)?, cell)));
        let (cell, name) =
            known.ok_or_else(|| Fault::caller(format!("'{name}' is no cell of a listed shard")))?;
        cell.insert(name, values);
    }
    Ok(cells)
}

fn to_json(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("names and numbers are always JSON")
}

fn from_json<T: for<'a> Deserialize<'a>>(document: Option<&str>) -> Result<T> {
    let text = document.ok_or_else(|| {
        Fault::caller("these tensors were not written by starlings for this purpose")
    })?;
    serde_json::from_str(text).map_err(|error| {
        Fault::caller("the document beside the tensors is unknown").caused_by(error)
    })
}

fn too_many(limits: Limits) -> Fault {
    Fault::caller(format!("more than {} tensors", limits.tensors_max))
}

fn header_too_large(length: u64, limits: Limits) -> Fault {
    let most = limits.header_bytes_max;
    Fault::caller(format!("a header of {length} bytes is above the limit of {most}"))
}

fn cut_short(what: &str) -> Fault {
    Fault::caller(format!("truncated: {what} is missing"))
}

fn dtype_of(kind: Kind) -> Dtype {
    match kind {
        Kind::F32 => Dtype::F32,
        Kind::F64 => Dtype::F64,
        Kind::I64 => Dtype::I64,
    }
}

fn read_tensor(name: &str, info: &TensorInfo, data: &[u8]) -> Result<(Vec<usize>, Values)> {
    // The library multiplies from the left, so that a zero in front hides an overflow behind it.
    let product = info.shape.iter().try_fold(1usize, |all, &axis| all.checked_mul(axis.max(1)));
    if product.is_none() {
        return Err(Fault::caller(format!("the shape of '{name}' overflows")));
    }
    let bytes = &data[info.data_offsets.0..info.data_offsets.1];
    let values = match info.dtype {
        Dtype::F32 => Values::F32(numbers(bytes, f32::from_le_bytes)),
        Dtype::F64 => Values::F64(numbers(bytes, f64::from_le_bytes)),
        Dtype::I64 => Values::I64(numbers(bytes, i64::from_le_bytes)),
        other => {
            return Err(Fault::caller(format!(
                "'{name}' holds {other}; only F32, F64 and I64 are known"
            )));
        }
    };
    Ok((info.shape.clone(), values))
}

fn numbers<const N: usize, T>(bytes: &[u8], read: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|chunk| read(*chunk)).collect()
}

fn write_values(out: &mut dyn Write, values: &Values) -> Result<()> {
    match values {
        Values::F32(inner) => write_numbers(out, inner, f32::to_le_bytes),
        Values::F64(inner) => write_numbers(out, inner, f64::to_le_bytes),
        Values::I64(inner) => write_numbers(out, inner, i64::to_le_bytes),
    }
}

fn write_numbers<const N: usize, T: Copy>(
    out: &mut dyn Write,
    values: &[T],
    bytes_of: impl Fn(T) -> [u8; N],
) -> Result<()> {
    let mut buffer = Vec::with_capacity(4096 * N);
    for chunk in values.chunks(4096) {
        buffer.clear();
        chunk.iter().for_each(|&value| buffer.extend_from_slice(&bytes_of(value)));
        out.write_all(&buffer)?;
    }
    Ok(())
}

/// Refuses names that occur twice and too many of them, before anything is built from the header.
fn check_keys(header: &[u8], limits: Limits) -> Result<()> {
    let mut parser = serde_json::Deserializer::from_slice(header);
    let visited = parser.deserialize_map(Keys { most: limits.tensors_max, nested: true });
    visited
        .and_then(|()| parser.end())
        .map_err(|error| Fault::caller("the header is not that of safetensors").caused_by(error))
}

struct Keys {
    most: usize,
    nested: bool,
}

impl<'de> Visitor<'de> for Keys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with each name once")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.nested && key == METADATA_KEY {
                map.next_value_seed(Keys { most: self.most, nested: false })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
            if let Some(twice) = seen.replace(key) {
                return Err(A::Error::custom(format!("the name '{twice}' occurs twice")));
            }
            if seen.len() > self.most + usize::from(seen.contains(METADATA_KEY)) {
                return Err(A::Error::custom(format!("more than {} names", self.most)));
            }
        }
        Ok(())
    }
}

impl<'de> serde::de::DeserializeSeed<'de> for Keys {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Values> {
        prop_oneof![
            proptest::collection::vec(any::<u32>(), 0..6)
                .prop_map(|bits| Values::F32(bits.into_iter().map(f32::from_bits).collect())),
            proptest::collection::vec(any::<u64>(), 0..6)
                .prop_map(|bits| Values::F64(bits.into_iter().map(f64::from_bits).collect())),
            proptest::collection::vec(any::<i64>(), 0..6).prop_map(Values::I64),
        ]
    }

    fn model() -> impl Strategy<Value = Model> {
        let tensor = (values(), any::<bool>(), any::<bool>()).prop_map(|(values, state, flat)| {
            let shape = if flat { vec![values.len()] } else { vec![1, values.len(), 1] };
            Tensor { shape, values, role: if state { Role::State } else { Role::Weight } }
        });
        proptest::collection::btree_map("[a-z\"/é]{0,4}", tensor, 0..5).prop_map(|tensors| {
            let mut model = Model::new();
            tensors.into_iter().for_each(|(name, tensor)| model.set(name, tensor));
            model
        })
    }

    fn bytes_of(model: &Model) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_model(&mut bytes, model).unwrap();
        bytes
    }

    fn with_header(header: &str, data: usize) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend(std::iter::repeat_n(0, data));
        bytes
    }

    fn refusal(header: &str, data: usize) -> String {
        read_tensors(&with_header(header, data), Limits::TENSORS).unwrap_err().message()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn models_come_back_bit_for_bit(model in model()) {
            let bytes = bytes_of(&model);
            let back = read_model(&bytes).unwrap();
            // Digests compare bits: NaN is not equal to itself.
            prop_assert_eq!(back.digest(), model.digest());
            prop_assert!(back.iter().zip(model.iter()).all(|(a, b)| a.0 == b.0
                && a.1.role == b.1.role && a.1.shape == b.1.shape));
            prop_assert_eq!(bytes_of(&back), bytes);
        }

        #[test]
        fn cells_come_back(cells in proptest::collection::btree_map(any::<u32>(),
            proptest::collection::btree_map("[a-z/0-9]{0,3}", values(), 0..3), 0..4))
        {
            let mut bytes = Vec::new();
            write_cells(&mut bytes, &cells).unwrap();
            let mut again = Vec::new();
            let back = read_cells(&bytes).unwrap();
            write_cells(&mut again, &back).unwrap();
            prop_assert_eq!(bytes, again);
            prop_assert!(back.keys().eq(cells.keys()));
        }

        #[test]
        fn hostile_bytes_are_refused_without_a_panic(
            noise in proptest::collection::vec(any::<u8>(), 0..200),
            at in any::<proptest::sample::Index>(), byte in any::<u8>(), model in model())
        {
            let _ = read_model(&noise);
            let mut bytes = bytes_of(&model);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(model) = read_model(&bytes) {
                // Whatever is accepted is sound: width and rows may be asked for.
                for (_, tensor) in model.iter() {
                    prop_assert_eq!(tensor.rows() * tensor.width(), tensor.values.len());
                }
            }
            prop_assert!(read_model(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_known_file_reads_as_the_format_says() {
        let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let mut bytes = with_header(header, 0);
        bytes.extend_from_slice(&[0, 0, 128, 63, 0, 0, 0, 192]);
        let contents = read_tensors(&bytes, Limits::TENSORS).unwrap();
        assert_eq!(contents.tensors["a"], (vec![2], Values::F32(vec![1.0, -2.0])));
        assert!(contents.document.is_none());
        assert!(read_model(&bytes).unwrap_err().message().contains("not written by starlings"));
    }

    #[test]
    fn lies_in_the_header_are_found() {
        let tensor = r#"{"dtype":"I64","shape":[1],"data_offsets":[0,8]}"#;
        let twice = format!(r#"{{"a":{tensor},"a":{tensor}}}"#);
        assert!(refusal(&twice, 8).contains("'a' occurs twice"));
        let metadata = r#"{"__metadata__":{"x":"1","x":"2"}}"#;
        assert!(refusal(metadata, 0).contains("'x' occurs twice"));
        let overlap = format!(r#"{{"a":{tensor},"b":{tensor}}}"#);
        assert!(refusal(&overlap, 8).contains("offset"));
        let gap = r#"{"a":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}}"#;
        assert!(refusal(gap, 16).contains("offset"));
        let size = r#"{"a":{"dtype":"I64","shape":[2],"data_offsets":[0,8]}}"#;
        assert!(refusal(size, 8).contains("shape"));
        let kind = r#"{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}"#;
        assert!(refusal(kind, 8).contains("only F32, F64 and I64"));
        let hidden = format!(
            r#"{{"a":{{"dtype":"F64","shape":[0,{0},{0}],"data_offsets":[0,0]}}}}"#,
            1u64 << 40
        );
        assert!(refusal(&hidden, 0).contains("overflows"));
        let one = format!(r#"{{"a":{tensor}}}"#);
        assert!(refusal(&one, 7).contains("truncated"));
        assert!(refusal(&one, 9).contains("belong to nothing"));
    }

    #[test]
    fn sizes_above_the_limits_are_refused_before_memory_is_taken() {
        let mut bytes = u64::MAX.to_le_bytes().to_vec();
        bytes.extend_from_slice(b"{}");
        let fault = read_tensors(&bytes, Limits::TENSORS).unwrap_err();
        assert!(fault.message().contains("above the limit"), "{fault}");
        let limits = Limits { header_bytes_max: 1 << 20, tensors_max: 1 };
        let empty = r#"{"dtype":"I64","shape":[0],"data_offsets":[0,0]}"#;
        let two = with_header(&format!(r#"{{"a":{empty},"b":{empty}}}"#), 0);
        assert!(read_tensors(&two, limits).unwrap_err().message().contains("more than 1"));
    }

    #[test]
    fn what_could_not_be_loaded_is_not_saved() {
        let values = Values::I64(vec![]);
        let tensors: BTreeMap<_, _> = ["a", "b"]
            .map(|name| (name.to_owned(), TensorRef { shape: &[0], values: &values }))
            .into();
        let few = Limits { header_bytes_max: 1 << 20, tensors_max: 1 };
        assert!(write_tensors(&mut Vec::new(), &tensors, String::new(), few).is_err());
        let small = Limits { header_bytes_max: 64, tensors_max: 9 };
        assert!(write_tensors(&mut Vec::new(), &tensors, String::new(), small).is_err());
    }
}
