//! The two faces of a model from elsewhere: what goes in (one matrix of features, or a column a name) and what comes out
//! (chances of named classes, a class alone, or a number).

use super::file::{File, Port};
use super::operators::Transform;
use super::value::{Array, Kind, TEXT, Value};
use starlings_core::{Fault, Result};
use starlings_data::{Column, ColumnKind, Encoding, Schema, Target};
use std::collections::BTreeSet;

/// What a job says of a file that the file does not say itself.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wishes {
    /// The names of the classes, in the order of the outputs.
    pub classes: Option<Vec<String>>,
    /// Which output is read.
    pub output: Option<String>,
    /// What the numbers that come out are.
    pub scale: Scale,
}

/// What the numbers that come out for classes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scale {
    /// Chances.
    #[default]
    Chances,
    /// Logarithms of odds: softmax makes chances of them, or the logistic function of a single one.
    Logits,
}

impl Wishes {
    /// The keys that say so, taken out of a member's table.
    ///
    /// # Errors
    /// A key with a value that it cannot have.
    pub fn take(given: &mut toml::Table) -> Result<Wishes> {
        let wrong = |key: &str, value: &toml::Value, expected: &str| {
            Fault::caller(format!("{key} = {value} is not allowed"))
                .hint(format!("expected {expected}"))
        };
        let mut wishes = Wishes::default();
        if let Some(value) = given.remove("classes") {
            let text = |one: &toml::Value| one.as_str().map(str::to_string);
            let texts = value.as_array().and_then(|many| many.iter().map(text).collect());
            let expected =
                "the names of the classes in the order of the outputs: [\"no\", \"yes\"]";
            wishes.classes = Some(texts.ok_or_else(|| wrong("classes", &value, expected))?);
        }
        if let Some(value) = given.remove("output") {
            let name = value.as_str().map(str::to_string);
            wishes.output = Some(name.ok_or_else(|| wrong("output", &value, "an output's name"))?);
        }
        if let Some(value) = given.remove("scale") {
            wishes.scale = match value.as_str() {
                Some("chances") => Scale::Chances,
                Some("logits") => Scale::Logits,
                _ => return Err(wrong("scale", &value, "\"chances\" or \"logits\"")),
            };
        }
        Ok(wishes)
    }
}

/// More features than this are no model of rows.
const FEATURES_MAX: usize = 1 << 20;

/// What goes in.
pub(super) struct Entrance {
    ports: Vec<Gate>,
    /// How many rows it takes at a time, where that is fixed.
    pub(super) rows: Option<usize>,
    /// The texts that the model tells apart, in the order of their codes.
    texts: Vec<String>,
}

struct Gate {
    name: String,
    kind: Option<Kind>,
    width: usize,
}

impl Entrance {
    pub(super) fn of(file: &File) -> Result<Entrance> {
        let mut ports = Vec::with_capacity(file.inputs.len());
        let mut rows = None;
        for port in &file.inputs {
            let (gate, fixed) = Gate::of(port)?;
            rows = rows.or(fixed);
            ports.push(gate);
        }
        let many = ports.len() > 1;
        let names: BTreeSet<&String> = ports.iter().map(|gate| &gate.name).collect();
        if names.len() != ports.len() {
            return Err(Fault::caller("two of its inputs have the same name"));
        }
        match ports.iter().find(|gate| gate.width != 1 || gate.kind.is_none()) {
            _ if ports.is_empty() => return Err(Fault::caller("it has no input")),
            Some(gate) if many && gate.width != 1 => {
                return Err(Fault::caller(format!(
                    "its input '{}' has {} columns beside other inputs",
                    gate.name, gate.width
                ))
                .hint("a model of rows has one input with all features, or one for each column"));
            }
            Some(gate) if !many && gate.kind.is_none() && gate.width != 1 => {
                return Err(Fault::caller(format!(
                    "its input '{}' has {} columns of texts without names",
                    gate.name, gate.width
                ))
                .hint("export it with an input for each column"));
            }
            _ => {}
        }
        if rows.is_some_and(|rows| rows != 1) {
            return Err(Fault::caller(format!(
                "it takes {} rows at a time, and no other number of them",
                rows.unwrap_or(0)
            ))
            .hint("export it with a number of rows that is not fixed (dynamic_axes, None)"));
        }
        // A text that no operator was told is a text that none tells from others that it does not know.
        let texts: BTreeSet<&String> =
            file.nodes.iter().flat_map(super::file::Node::all_texts).collect();
        let texts = texts.into_iter().filter(|text| !text.is_empty()).cloned().collect();
        Ok(Entrance { ports, rows, texts })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|gate| gate.name.as_str())
    }

    pub(super) fn features(&self) -> usize {
        self.ports.iter().map(|gate| gate.width).sum()
    }

    /// What rows mean: columns are found by their names where there is an input for each, else by their places.
    pub(super) fn schema(&self) -> Schema {
        let named = self.ports.len() > 1 || self.ports[0].kind.is_none();
        let column = |(position, gate): (usize, &Gate)| Column {
            name: gate.name.clone(),
            position,
            kind: match gate.kind {
                Some(_) => ColumnKind::Numeric { mean: 0.0 },
                None => ColumnKind::Categorical { codes: self.texts.clone() },
            },
            missing: 0,
        };
        let columns = self.ports.iter().enumerate().filter(|_| named).map(column).collect();
        Schema {
            columns,
            encoding: Encoding::Codes,
            features: self.features(),
            target: Target::None,
            label: None,
        }
    }

    /// The inputs for some rows.
    pub(super) fn values(&self, rows: usize, features: &[f32]) -> Result<Vec<Value>> {
        let all = self.features();
        let mut from = 0;
        let mut values = Vec::with_capacity(self.ports.len());
        for gate in &self.ports {
            let columns = from..from + gate.width;
            from += gate.width;
            let cells = features.chunks_exact(all.max(1)).take(rows);
            let cells = cells.flat_map(|row| row[columns.clone()].iter());
            let shape = vec![rows, gate.width];
            values.push(match gate.kind {
                Some(kind) => Value::of(kind, shape, cells.map(|x| f64::from(*x)).collect())?,
                None => {
                    let text = |code: &f32| match *code >= 0.0 {
                        true => self.texts.get(*code as usize).cloned().unwrap_or_default(),
                        false => String::new(),
                    };
                    Value::Texts(Array::new(shape, cells.map(text).collect())?)
                }
            });
        }
        Ok(values)
    }
}

impl Gate {
    /// The port, and how many rows it takes where that is fixed.
    fn of(port: &Port) -> Result<(Gate, Option<usize>)> {
        let kind = match port.elements {
            Some(TEXT) => None,
            Some(number) if Kind::of(number).is_some() => Kind::of(number),
            _ => {
                return Err(Fault::caller(format!(
                    "its input '{}' is no matrix of numbers or texts",
                    port.name
                )));
            }
        };
        let shape = port.shape.as_deref().unwrap_or_default();
        let [rows, Some(width)] = *shape else {
            return Err(Fault::caller(format!(
                "its input '{}' does not say how many features a row has",
                port.name
            ))
            .hint("export it with rows × features, for instance FloatTensorType([None, 4])"));
        };
        if width > FEATURES_MAX {
            return Err(Fault::caller(format!("{width} features are too many")));
        }
        Ok((Gate { name: port.name.clone(), kind, width }, rows))
    }
}

/// What comes out.
pub(super) struct Answer {
    /// Where the value stands.
    pub(super) place: usize,
    reading: Reading,
    classes: Vec<String>,
    scale: Scale,
}

/// How the value is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// Chances of all classes.
    Chances,
    /// The chance of the second of two classes.
    Second,
    /// The name of the class.
    Name,
    /// A number.
    Number,
}

/// The output that answers: chances before names, and of several the one that the job wishes.
pub(super) fn output(file: &File, wishes: &Wishes) -> Result<Port> {
    let names = || file.outputs.iter().map(|port| port.name.as_str()).collect::<Vec<_>>();
    if let Some(wish) = &wishes.output {
        let found = file.outputs.iter().find(|port| port.name == *wish);
        return found.cloned().ok_or_else(|| {
            Fault::caller(format!("it has no output '{wish}'"))
                .hint(format!("its outputs: {}", names().join(", ")))
        });
    }
    let mut numbers = file.outputs.iter().filter(|port| is_float(port) || port.elements.is_none());
    match (numbers.next(), numbers.next(), &file.outputs[..]) {
        (Some(only), None, _) => Ok(only.clone()),
        (None, _, [only]) => Ok(only.clone()),
        _ => Err(Fault::caller(format!(
            "which of its outputs is to be read: {}?",
            names().join(", ")
        ))
        .hint("name it: output = \"…\" beside model")),
    }
}

fn is_float(port: &Port) -> bool {
    matches!(port.elements.and_then(Kind::of), Some(Kind::Float | Kind::Double))
}

impl Answer {
    pub(super) fn of(file: &File, output: &Port, wishes: &Wishes) -> Result<Answer> {
        let named = wishes.classes.clone().or(classes(file)?);
        let is_name = output.elements.is_some() && !is_float(output);
        // A class beside the numbers says that they are chances.
        let beside = file.outputs.iter().any(|port| port.elements.is_some() && !is_float(port));
        let reading = match (&named, is_name) {
            (Some(_), true) => Reading::Name,
            (None, true) => {
                return Err(Fault::caller("it answers classes and does not name them")
                    .hint("name them: classes = [\"…\", \"…\"] beside model"));
            }
            (Some(_), false) if wishes.classes.is_some() || beside || output.elements.is_none() => {
                Reading::Chances
            }
            (None, false) if beside => Reading::Chances,
            _ => Reading::Number,
        };
        let classes = match reading {
            Reading::Number => Vec::new(),
            _ => named.unwrap_or_default(),
        };
        Ok(Answer { place: 0, reading, classes, scale: wishes.scale })
    }

    /// Looks at the answer for one row: what was not said is found out.
    pub(super) fn settle(&mut self, said: &Value, wishes: &Wishes) -> Result<()> {
        let width = said.len();
        match self.reading {
            Reading::Name if width == 1 => return self.check_classes(),
            Reading::Number if width > 1 => {
                // Several numbers without names are the chances of classes that are called by their places.
                self.reading = Reading::Chances;
                self.classes = (0..width).map(|place| place.to_string()).collect();
            }
            Reading::Number if width == 1 => {
                return match wishes.scale {
                    Scale::Chances => Ok(()),
                    Scale::Logits => Err(Fault::caller("it answers one number, and no classes")
                        .hint("name them: classes = [\"…\", \"…\"] beside model")),
                };
            }
            Reading::Chances if self.classes.is_empty() => {
                self.classes = (0..width).map(|place| place.to_string()).collect();
            }
            Reading::Chances if width == 1 && self.classes.len() == 2 => {
                self.reading = Reading::Second;
                return self.check_classes();
            }
            _ => {}
        }
        if width != self.classes.len() {
            return Err(Fault::caller(format!(
                "it answers {width} numbers, and there are {} classes: {}",
                self.classes.len(),
                self.classes.join(", ")
            )));
        }
        self.check_classes()
    }

    fn check_classes(&self) -> Result<()> {
        let different: BTreeSet<&String> = self.classes.iter().collect();
        match different.len() == self.classes.len() && different.len() > 1 {
            true => Ok(()),
            false => Err(Fault::caller(format!(
                "its classes are not at least two that differ: {}",
                self.classes.join(", ")
            ))),
        }
    }

    pub(super) fn outputs(&self) -> usize {
        self.classes.len().max(1)
    }

    pub(super) fn target(&self) -> Target {
        match self.reading {
            Reading::Number => Target::Number,
            _ => Target::Classes(self.classes.clone()),
        }
    }

    /// Adds the answers for some rows.
    pub(super) fn read(&self, said: &Value, rows: usize, out: &mut Vec<f64>) -> Result<()> {
        let expected = match self.reading {
            Reading::Chances => self.classes.len(),
            _ => 1,
        };
        if said.len() != rows * expected {
            return Err(Fault::caller(format!("{} answers for {rows} rows", said.len())));
        }
        if self.reading == Reading::Name {
            return self.read_names(said, out);
        }
        let numbers = &said.numbers()?.array.values;
        let mut row = Vec::with_capacity(self.outputs());
        for said in numbers.chunks_exact(expected) {
            row.clear();
            row.extend_from_slice(said);
            self.finish(&mut row)?;
            out.extend_from_slice(&row);
        }
        Ok(())
    }

    fn finish(&self, row: &mut Vec<f64>) -> Result<()> {
        match (self.reading, self.scale) {
            (Reading::Chances, Scale::Logits) => Transform::Softmax.change(row),
            (Reading::Second, Scale::Logits) => Transform::Logistic.change(row),
            _ => {}
        }
        if self.reading == Reading::Second {
            row.insert(0, 1.0 - row[0]);
        }
        if row.iter().any(|x| !x.is_finite()) {
            return Err(Fault::caller("it answers what is no number")
                .hint("missing values are refused by models that do not fill them in"));
        }
        let sum: f64 = row.iter().sum();
        let chances =
            row.iter().all(|x| (-1e-6..=1.0 + 1e-6).contains(x)) && (sum - 1.0).abs() < 1e-3;
        match self.reading == Reading::Number || chances {
            true => Ok(()),
            false => Err(Fault::caller(format!("it answers {row:?}, which are no chances"))
                .hint("if these are logits, say scale = \"logits\" beside model")),
        }
    }

    fn read_names(&self, said: &Value, out: &mut Vec<f64>) -> Result<()> {
        let names: Vec<String> = match said {
            Value::Texts(texts) => texts.values.clone(),
            Value::Numbers(numbers) => numbers.ints().iter().map(ToString::to_string).collect(),
        };
        for name in names {
            let place = self.classes.iter().position(|class| *class == name);
            let place = place.ok_or_else(|| {
                Fault::caller(format!("it answers the class '{name}', which it did not name"))
            })?;
            out.extend((0..self.classes.len()).map(|at| f64::from(u8::from(at == place))));
        }
        Ok(())
    }
}

/// The names of the classes as operators have them: a classifier, a map of chances, or the list from which the name of the
/// likeliest is picked.
fn classes(file: &File) -> Result<Option<Vec<String>>> {
    let texts = |ints: Vec<i64>| ints.iter().map(ToString::to_string).collect();
    // The last is the nearest to the outputs.
    for node in file.nodes.iter().rev() {
        if let Some(texts) = node.texts("classlabels_strings")?.filter(|list| !list.is_empty()) {
            return Ok(Some(texts));
        }
        for name in ["classlabels_int64s", "classlabels_ints"] {
            if let Some(ints) = node.ints(name)?.filter(|list| !list.is_empty()) {
                return Ok(Some(texts(ints)));
            }
        }
    }
    for node in file.nodes.iter().rev().filter(|node| node.op == "ArrayFeatureExtractor") {
        let list = node.inputs.first().and_then(|name| file.constants.get(name));
        let picks = node.inputs.get(1).and_then(|name| file.maker(name));
        match list {
            Some(list) if picks.is_some_and(|node| node.op == "ArgMax") => {
                return Ok(Some(match list {
                    Value::Texts(list) => list.values.clone(),
                    Value::Numbers(list) => texts(list.ints()),
                }));
            }
            _ => {}
        }
    }
    Ok(None)
}
