//! An ONNX file as far as a model needs it: nodes with their attributes, constants, and the inputs and outputs of the
//! graph (onnx.proto, IR version 3 and later). Fields that do not matter are passed over.

use super::value::{Array, Kind, Numbers, RANK_MAX, TEXT, Value, count};
use super::wire::{Field, broken, fields};
use starlings_core::{Fault, Result};
use std::collections::BTreeMap;

/// What a file holds.
#[derive(Default)]
pub(super) struct File {
    /// Who wrote it.
    pub(super) producer: String,
    /// The nodes, in the order in which they can be computed.
    pub(super) nodes: Vec<Node>,
    /// Constants by name.
    pub(super) constants: BTreeMap<String, Value>,
    /// What is put in.
    pub(super) inputs: Vec<Port>,
    /// What comes out.
    pub(super) outputs: Vec<Port>,
    /// Versions of the sets of operators, by domain.
    versions: BTreeMap<String, i64>,
}

/// An operator at work.
#[derive(Default)]
pub(super) struct Node {
    /// What it does.
    pub(super) op: String,
    /// Whose operator it is: empty for ONNX itself.
    pub(super) domain: String,
    /// What it is called.
    pub(super) name: String,
    /// What it reads; empty where an input is left out.
    pub(super) inputs: Vec<String>,
    /// What its values are called.
    pub(super) outputs: Vec<String>,
    /// The version of its set of operators.
    pub(super) version: i64,
    attributes: BTreeMap<String, Attribute>,
}

/// What a node was told.
enum Attribute {
    Float(f32),
    Int(i64),
    Text(String),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    Tensor(Value),
    Other,
}

/// An input or output of the graph.
#[derive(Default, Clone)]
pub(super) struct Port {
    /// Its name.
    pub(super) name: String,
    /// The kind of its elements, ONNX's number; none where it is no tensor.
    pub(super) elements: Option<i64>,
    /// Its axes; none where a length is not fixed. No shape where it is not said.
    pub(super) shape: Option<Vec<Option<usize>>>,
}

/// More nodes, constants or ports than this are refused.
const MANY: usize = 1 << 16;

impl File {
    /// Reads a file's bytes.
    pub(super) fn read(bytes: &[u8]) -> Result<File> {
        let mut file = File::default();
        let mut graph = None;
        for field in fields(bytes) {
            match field? {
                (2, producer) => file.producer = producer.text()?,
                (7, message) => graph = Some(message.bytes()?),
                (8, message) => {
                    let (domain, version) = operator_set(message.bytes()?)?;
                    file.versions.insert(domain, version);
                }
                _ => {}
            }
        }
        file.read_graph(graph.ok_or_else(broken)?)?;
        for node in &mut file.nodes {
            let domain = if node.domain == "ai.onnx" { "" } else { &node.domain };
            node.version = file.versions.get(domain).copied().unwrap_or(1);
        }
        // Older files list constants among the inputs.
        let constants = &file.constants;
        file.inputs.retain(|port| !constants.contains_key(&port.name));
        Ok(file)
    }

    fn read_graph(&mut self, graph: &[u8]) -> Result<()> {
        for field in fields(graph) {
            match field? {
                (1, node) => self.nodes.push(Node::read(node.bytes()?)?),
                (5, message) => {
                    let (name, value) = tensor(message.bytes()?)?;
                    self.constants.insert(name, value);
                }
                (11, message) => self.inputs.push(Port::read(message.bytes()?)?),
                (12, message) => self.outputs.push(Port::read(message.bytes()?)?),
                (15, _) => return Err(Fault::caller("sparse constants are not read")),
                _ => {}
            }
            let most = self.nodes.len().max(self.constants.len()).max(self.inputs.len());
            if most.max(self.outputs.len()) > MANY {
                return Err(Fault::caller(format!("more than {MANY} nodes or constants")));
            }
        }
        Ok(())
    }

    /// The node that makes a value.
    pub(super) fn maker(&self, value: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.outputs.iter().any(|output| output == value))
    }
}

fn operator_set(message: &[u8]) -> Result<(String, i64)> {
    let (mut domain, mut version) = (String::new(), 1);
    for field in fields(message) {
        match field? {
            (1, text) => domain = text.text()?,
            (2, number) => version = number.int()?,
            _ => {}
        }
    }
    Ok((domain, version))
}

impl Node {
    fn read(message: &[u8]) -> Result<Node> {
        let mut node = Node::default();
        for field in fields(message) {
            match field? {
                (1, text) => node.inputs.push(text.text()?),
                (2, text) => node.outputs.push(text.text()?),
                (3, text) => node.name = text.text()?,
                (4, text) => node.op = text.text()?,
                (5, message) => {
                    let (name, attribute) = Attribute::read(message.bytes()?)?;
                    node.attributes.insert(name, attribute);
                }
                (7, text) => node.domain = text.text()?,
                _ => {}
            }
        }
        Ok(node)
    }

    /// The node in words, for whoever must find it.
    pub(super) fn place(&self) -> String {
        format!("the node '{}' ({})", self.name, self.op)
    }

    fn wrong(&self, name: &str) -> Fault {
        Fault::caller(format!("its attribute '{name}' is not what it should be"))
    }

    /// A whole number.
    pub(super) fn int(&self, name: &str, otherwise: i64) -> Result<i64> {
        match self.attributes.get(name) {
            None => Ok(otherwise),
            Some(Attribute::Int(number)) => Ok(*number),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// A number.
    pub(super) fn float(&self, name: &str, otherwise: f64) -> Result<f64> {
        match self.attributes.get(name) {
            None => Ok(otherwise),
            Some(Attribute::Float(number)) => Ok(f64::from(*number)),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// A text.
    pub(super) fn text(&self, name: &str, otherwise: &str) -> Result<String> {
        match self.attributes.get(name) {
            None => Ok(otherwise.to_string()),
            Some(Attribute::Text(text)) => Ok(text.clone()),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// Whole numbers; none where it was not told.
    pub(super) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Ints(numbers)) => Ok(Some(numbers.clone())),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// Numbers, also where they are told as a tensor of doubles; empty where it was not told.
    pub(super) fn floats(&self, name: &str) -> Result<Vec<f64>> {
        let tensor = self.attributes.get(&format!("{name}_as_tensor"));
        match (self.attributes.get(name), tensor) {
            (Some(Attribute::Floats(numbers)), _) if !numbers.is_empty() => {
                Ok(numbers.iter().map(|x| f64::from(*x)).collect())
            }
            (None | Some(Attribute::Floats(_)), Some(Attribute::Tensor(value))) => {
                Ok(value.numbers()?.array.values.clone())
            }
            (None | Some(Attribute::Floats(_)), None) => Ok(Vec::new()),
            _ => Err(self.wrong(name)),
        }
    }

    /// Texts; none where it was not told.
    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Texts(texts)) => Ok(Some(texts.clone())),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// A tensor; none where it was not told.
    pub(super) fn tensor(&self, name: &str) -> Result<Option<Value>> {
        match self.attributes.get(name) {
            None => Ok(None),
            Some(Attribute::Tensor(value)) => Ok(Some(value.clone())),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// All lists of texts that it was told.
    pub(super) fn all_texts(&self) -> impl Iterator<Item = &String> {
        let lists = self.attributes.values().filter_map(|attribute| match attribute {
            Attribute::Texts(texts) => Some(texts),
            _ => None,
        });
        lists.flatten()
    }
}

impl Attribute {
    fn read(message: &[u8]) -> Result<(String, Attribute)> {
        let (mut name, mut kind) = (String::new(), 0);
        let (mut float, mut int, mut text, mut value) = (None, None, None, None);
        let (mut floats, mut ints, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for field in fields(message) {
            match field? {
                (1, field) => name = field.text()?,
                (2, field) => float = Some(field.float()?),
                (3, field) => int = Some(field.int()?),
                (4, field) => text = Some(field.text()?),
                (5, field) => value = Some(tensor(field.bytes()?)?.1),
                (7, field) => field.floats(&mut floats)?,
                (8, field) => field.ints(&mut ints)?,
                (9, field) => texts.push(field.text()?),
                (20, field) => kind = field.int()?,
                _ => {}
            }
        }
        let attribute = match (kind, float, int, text, value) {
            (1, float, ..) => Attribute::Float(float.unwrap_or(0.0)),
            (2, _, int, ..) => Attribute::Int(int.unwrap_or(0)),
            (3, _, _, text, _) => Attribute::Text(text.unwrap_or_default()),
            (4, .., Some(value)) => Attribute::Tensor(value),
            (6, ..) => Attribute::Floats(floats),
            (7, ..) => Attribute::Ints(ints),
            (8, ..) => Attribute::Texts(texts),
            _ => Attribute::Other,
        };
        Ok((name, attribute))
    }
}

/// A tensor with its name.
fn tensor(message: &[u8]) -> Result<(String, Value)> {
    let (mut name, mut kind, mut shape) = (String::new(), 0, Vec::new());
    let (mut floats, mut doubles, mut ints) = (Vec::new(), Vec::new(), Vec::new());
    let (mut texts, mut raw) = (Vec::new(), None);
    for field in fields(message) {
        match field? {
            (1, field) => field.ints(&mut shape)?,
            (2, field) => kind = field.int()?,
            (4, field) => field.floats(&mut floats)?,
            (5 | 7 | 11, field) => field.ints(&mut ints)?,
            (6, field) => texts.push(field.text()?),
            (8, field) => name = field.text()?,
            (9, field) => raw = Some(field.bytes()?),
            (10, field) => field.doubles(&mut doubles)?,
            (14, Field::Number(1)) => return Err(elsewhere(&name)),
            _ => {}
        }
    }
    let within = |fault: Fault| fault.during(format!("the constant '{name}'"));
    let axis = |axis: &i64| usize::try_from(*axis).map_err(|_| broken());
    let shape = shape.iter().take(RANK_MAX + 1).map(axis).collect::<Result<Vec<_>>>();
    let shape = shape.map_err(within)?;
    count(&shape).map_err(within)?;
    if kind == TEXT {
        return Ok((name.clone(), Value::Texts(Array::new(shape, texts).map_err(within)?)));
    }
    let Some(number) = Kind::of(kind) else {
        return Err(within(Fault::caller(format!("elements of the kind {kind} are not read"))));
    };
    let values = match (raw, number) {
        (Some(raw), _) => bare(raw, kind).ok_or_else(broken).map_err(within)?,
        (None, Kind::Float) => floats.into_iter().map(f64::from).collect(),
        (None, Kind::Double) => doubles,
        (None, Kind::Int | Kind::Bool) => ints.into_iter().map(|x| x as f64).collect(),
    };
    let numbers = Numbers::new(number, shape, values).map_err(within)?;
    Ok((name, Value::Numbers(numbers)))
}

/// Numbers as bare bytes, the lowest first.
fn bare(raw: &[u8], kind: i64) -> Option<Vec<f64>> {
    fn each<const N: usize>(raw: &[u8], read: fn([u8; N]) -> f64) -> Option<Vec<f64>> {
        let (numbers, rest) = raw.as_chunks();
        rest.is_empty().then(|| numbers.iter().map(|bytes| read(*bytes)).collect())
    }
    match kind {
        1 => each(raw, |bytes| f64::from(f32::from_le_bytes(bytes))),
        2 | 9 => each(raw, |[byte]| f64::from(byte)),
        3 => each(raw, |bytes| f64::from(i8::from_le_bytes(bytes))),
        4 => each(raw, |bytes| f64::from(u16::from_le_bytes(bytes))),
        5 => each(raw, |bytes| f64::from(i16::from_le_bytes(bytes))),
        6 => each(raw, |bytes| f64::from(i32::from_le_bytes(bytes))),
        7 => each(raw, |bytes| i64::from_le_bytes(bytes) as f64),
        11 => each(raw, f64::from_le_bytes),
        12 => each(raw, |bytes| f64::from(u32::from_le_bytes(bytes))),
        13 => each(raw, |bytes| u64::from_le_bytes(bytes) as f64),
        _ => None,
    }
}

fn elsewhere(name: &str) -> Fault {
    Fault::caller(format!("the constant '{name}' is in another file"))
        .hint("export the model as one file (torch.onnx.export: external_data=False)")
}

impl Port {
    fn read(message: &[u8]) -> Result<Port> {
        let mut port = Port::default();
        for field in fields(message) {
            match field? {
                (1, field) => port.name = field.text()?,
                (2, field) => {
                    for field in fields(field.bytes()?) {
                        if let (1, message) = field? {
                            port.read_tensor(message.bytes()?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(port)
    }

    fn read_tensor(&mut self, message: &[u8]) -> Result<()> {
        for field in fields(message) {
            match field? {
                (1, field) => self.elements = Some(field.int()?),
                (2, field) => {
                    let mut shape = Vec::new();
                    for field in fields(field.bytes()?) {
                        if let (1, axis) = field? {
                            shape.push(length(axis.bytes()?)?);
                        }
                    }
                    self.shape = Some(shape);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The length of an axis, where it is fixed.
fn length(message: &[u8]) -> Result<Option<usize>> {
    let mut length = None;
    for field in fields(message) {
        if let (1, field) = field? {
            length = usize::try_from(field.int()?).ok().filter(|length| *length > 0);
        }
    }
    Ok(length)
}
