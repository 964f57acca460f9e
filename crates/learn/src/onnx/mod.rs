//! Models of other libraries as ONNX files (Open Neural Network Exchange, Microsoft and Facebook, 2017): read, checked,
//! and asked about rows. What scikit-learn's converter writes for linear models, trees, forests, boosting and networks
//! is known, and so are plain networks of PyTorch; an operator that is not is refused by the name of its node.
//!
//! A file may come from anywhere: every length is checked, no list is made longer than the file or the budget allows, and
//! what does not fit is an error. `wire` reads the bytes, `file` the messages, `operators` has the mathematics, `faces`
//! finds out what goes in and what comes out, and here the nodes are put in order and run.

mod faces;
mod file;
mod operators;
mod value;
mod wire;

pub use faces::{Scale, Wishes};

use faces::{Answer, Entrance};
use file::{File, Node};
use operators::{Budget, Inputs, Operator};
use starlings_core::{Fault, Model, Result, Role, Tensor, Values};
use starlings_data::{Batch, Row, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;
use value::Value;

/// The largest file that is read.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Rows that are computed at once.
const BLOCK: usize = 256;

/// What one block of rows may hold and do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Numbers held at a time, of 8 bytes each.
    pub numbers_max: usize,
    /// Elementary operations.
    pub work_max: u64,
}

impl Limits {
    /// For models that somebody wants to use.
    pub const USE: Limits = Limits { numbers_max: 1 << 25, work_max: 1 << 34 };
}

/// A model of another library, ready to be asked.
pub struct Program {
    steps: Vec<Step>,
    /// Constants, by the place of their value.
    constants: Vec<(usize, Arc<Value>)>,
    values: usize,
    entrance: Entrance,
    answer: Answer,
    limits: Limits,
    producer: String,
}

/// A node with the places of what it reads and makes.
struct Step {
    place: String,
    op: String,
    operator: Operator,
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
    /// Values that nobody reads afterwards.
    last: Vec<usize>,
}

impl Program {
    /// Reads a file's bytes, and asks it about one row to see that it answers.
    ///
    /// # Errors
    /// Not an ONNX file, or damaged; an operator that is not known; inputs or outputs that are not those of a model
    /// of rows.
    pub fn read(bytes: &[u8], wishes: &Wishes, limits: Limits) -> Result<Program> {
        let file = File::read(bytes)?;
        let entrance = Entrance::of(&file)?;
        let output = faces::output(&file, wishes)?;
        let mut program = Program {
            steps: Vec::new(),
            constants: Vec::new(),
            values: 0,
            entrance,
            answer: Answer::of(&file, &output, wishes)?,
            limits,
            producer: file.producer.clone(),
        };
        program.arrange(file, &output.name)?;
        let said = program.compute(1, &vec![0.0; program.features()])?;
        program.answer.settle(&said, wishes)?;
        Ok(program)
    }

    /// Orders the nodes that the output needs, and gives every value its place.
    fn arrange(&mut self, file: File, output: &str) -> Result<()> {
        let needed = needed(&file.nodes, output);
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for name in self.entrance.names() {
            let next = places.len();
            places.insert(name.to_string(), next);
        }
        for (name, value) in file.constants {
            let next = places.len();
            let place = *places.entry(name).or_insert(next);
            self.constants.push((place, Arc::new(value)));
        }
        for (node, _) in file.nodes.iter().zip(&needed).filter(|(_, needed)| **needed) {
            let step = Step::of(node, &mut places)?;
            self.steps.push(step);
        }
        let Some(&answer) = places.get(output) else {
            return Err(Fault::caller(format!("nothing makes its output '{output}'")));
        };
        self.values = places.len();
        self.answer.place = answer;
        self.note_last();
        Ok(())
    }

    /// Notes after which step a value is needed no more.
    fn note_last(&mut self) {
        let mut seen = vec![false; self.values];
        seen[self.answer.place] = true;
        self.constants.iter().for_each(|(place, _)| seen[*place] = true);
        for step in self.steps.iter_mut().rev() {
            for place in step.inputs.iter().chain(&step.outputs).copied().flatten() {
                if !std::mem::replace(&mut seen[place], true) {
                    step.last.push(place);
                }
            }
        }
    }

    /// What its rows mean, and what it answers.
    #[must_use]
    pub fn schema(&self) -> Schema {
        Schema { target: self.answer.target(), ..self.entrance.schema() }
    }

    /// Numbers in a row that goes in.
    #[must_use]
    pub fn features(&self) -> usize {
        self.entrance.features()
    }

    /// Numbers of an answer: one for each class, or one.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.answer.outputs()
    }

    /// The model in words: who wrote it, and its operators.
    #[must_use]
    pub fn describe(&self) -> String {
        let operators: Vec<&str> = self.steps.iter().map(|step| step.op.as_str()).collect();
        let by = if self.producer.is_empty() { "an unnamed library" } else { &self.producer };
        format!("ONNX, written by {by}\noperators: {}\n", operators.join(", "))
    }

    /// Answers for all rows of a batch, appended to `out` row by row.
    ///
    /// # Errors
    /// When rows do not fit the model, or it answers what is no chance or number.
    pub fn answer(&self, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let width = self.features();
        if batch.table.width() != width {
            return Err(Fault::caller(format!(
                "the model reads {width} features, and the rows have {}",
                batch.table.width()
            )));
        }
        let block = self.entrance.rows.unwrap_or(BLOCK);
        let mut features = Vec::with_capacity(block * width);
        let mut rows = 0;
        for row in batch.rows() {
            add(batch.table.row(row), width, &mut features);
            rows += 1;
            if rows == block {
                self.block(rows, &mut features, out)?;
                rows = 0;
            }
        }
        if rows > 0 {
            self.block(rows, &mut features, out)?;
        }
        Ok(())
    }

    /// Answers for rows that stand one behind the other.
    ///
    /// # Errors
    /// As [`answer`](Program::answer).
    pub fn answer_dense(&self, features: &[f32], out: &mut Vec<f64>) -> Result<()> {
        let width = self.features();
        for rows in features.chunks(self.entrance.rows.unwrap_or(BLOCK) * width.max(1)) {
            let mut copy = rows.to_vec();
            self.block(rows.len() / width.max(1), &mut copy, out)?;
        }
        Ok(())
    }

    fn block(&self, rows: usize, features: &mut Vec<f32>, out: &mut Vec<f64>) -> Result<()> {
        let said = self.compute(rows, features)?;
        features.clear();
        self.answer.read(&said, rows, out)
    }

    /// The value of the output for a block of rows.
    fn compute(&self, rows: usize, features: &[f32]) -> Result<Value> {
        let mut budget = Budget { numbers: self.limits.numbers_max, work: self.limits.work_max };
        let mut values: Vec<Option<Arc<Value>>> = vec![None; self.values];
        for (place, value) in self.entrance.values(rows, features)?.into_iter().enumerate() {
            values[place] = Some(Arc::new(value));
        }
        for (place, value) in &self.constants {
            values[*place] = Some(value.clone());
        }
        for step in &self.steps {
            step.run(&mut values, &mut budget).map_err(|fault| fault.during(step.place.clone()))?;
        }
        let said = values[self.answer.place].take();
        let said = said.ok_or_else(|| Fault::caller("its output is never made"))?;
        Ok(Arc::unwrap_or_clone(said))
    }
}

impl Step {
    fn of(node: &Node, places: &mut BTreeMap<String, usize>) -> Result<Step> {
        let operator = operators::build(node)?;
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for name in &node.inputs {
            let place = places.get(name).copied();
            if place.is_none() && !name.is_empty() {
                return Err(Fault::caller(format!(
                    "{} reads '{name}', which nothing before it makes",
                    node.place()
                )));
            }
            inputs.push(place);
        }
        let mut outputs = Vec::with_capacity(node.outputs.len());
        for name in &node.outputs {
            let next = places.len();
            if !name.is_empty() && places.insert(name.clone(), next).is_some() {
                return Err(Fault::caller(format!("'{name}' is made twice")));
            }
            outputs.push((!name.is_empty()).then_some(next));
        }
        let (place, op) = (node.place(), node.op.clone());
        Ok(Step { place, op, operator, inputs, outputs, last: Vec::new() })
    }

    fn run(&self, values: &mut [Option<Arc<Value>>], budget: &mut Budget) -> Result<()> {
        let inputs: Vec<Option<&Value>> = self
            .inputs
            .iter()
            .map(|place| place.and_then(|place| values[place].as_deref()))
            .collect();
        let before = budget.numbers;
        let made = (self.operator)(&Inputs(&inputs), budget)?;
        // What the operator needed in between is free again.
        budget.numbers = before.saturating_sub(made.iter().map(Value::len).sum());
        for (place, value) in self.outputs.iter().zip(made) {
            if let Some(place) = place {
                values[*place] = Some(Arc::new(value));
            }
        }
        for place in &self.last {
            if let Some(gone) = values[*place].take() {
                budget.numbers = budget.numbers.saturating_add(gone.len());
            }
        }
        Ok(())
    }
}

/// Which nodes the output needs.
fn needed(nodes: &[Node], output: &str) -> Vec<bool> {
    let mut names: std::collections::BTreeSet<&str> = [output].into();
    let mut needed = vec![false; nodes.len()];
    for (node, needed) in nodes.iter().zip(&mut needed).rev() {
        *needed = node.outputs.iter().any(|name| names.contains(name.as_str()));
        if *needed {
            names.extend(node.inputs.iter().map(String::as_str));
        }
    }
    needed
}

/// Adds a row with all its zeros.
fn add(row: Row<'_>, width: usize, into: &mut Vec<f32>) {
    match row {
        Row::Dense(numbers) => into.extend_from_slice(numbers),
        Row::Sparse(columns, numbers) => {
            let from = into.len();
            into.resize(from + width, 0.0);
            for (&column, &x) in columns.iter().zip(numbers) {
                into[from + column as usize] = x;
            }
        }
    }
}

/// Where a file's bytes stand in a model.
const BYTES: &str = "onnx";
const LENGTH: &str = "onnx.bytes";

/// A file's bytes as tensors, so that a model that holds it needs the file no more.
#[must_use]
pub fn tensors(bytes: &[u8]) -> Model {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        i64::from_le_bytes(word)
    });
    let mut model = Model::new();
    let whole = |values: Vec<i64>| Tensor {
        shape: vec![values.len()],
        values: Values::I64(values),
        role: Role::Weight,
    };
    model.set(BYTES, whole(words.collect()));
    model.set(LENGTH, whole(vec![bytes.len() as i64]));
    model
}

/// The bytes again.
///
/// # Errors
/// When the model holds no such file.
pub fn bytes(model: &Model) -> Result<Vec<u8>> {
    let list = |name: &str| model.get(name).and_then(|tensor| tensor.values.as_i64());
    let found = list(BYTES).zip(list(LENGTH).and_then(<[i64]>::first));
    let mut bytes: Vec<u8> = match found {
        Some((words, _)) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        None => return Err(Fault::caller("the model holds no ONNX file")),
    };
    let length = found.and_then(|(_, length)| usize::try_from(*length).ok()).unwrap_or(0);
    bytes.truncate(length);
    Ok(bytes)
}
