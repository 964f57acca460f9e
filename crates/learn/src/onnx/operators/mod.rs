//! The operators that are known: those of scikit-learn's, LightGBM's and XGBoost's converters and of small networks.
//! Each is built once from its node, its attributes checked, and then called for every block of rows. To add one is a
//! line in the list of its file.

mod arithmetic;
mod encoders;
mod linear;
mod matrices;
mod reductions;
mod shapes;
mod transform;
mod trees;

pub(super) use transform::Transform;

use super::file::Node;
use super::value::{Numbers, Value};
use starlings_core::{Fault, Result};

/// A node that is ready to compute.
pub(super) type Operator =
    Box<dyn Fn(&Inputs<'_>, &mut Budget) -> Result<Vec<Value>> + Send + Sync>;

/// How an operator is made of its node.
type Build = fn(&Node) -> Result<Operator>;

/// A name and how it is made.
type Known = (&'static str, Build);

/// The domain of operators for trees, linear models and tables.
pub(super) const TABLES: &str = "ai.onnx.ml";

/// Makes an operator ready; one that is not known is refused by name.
pub(super) fn build(node: &Node) -> Result<Operator> {
    let lists: &[&[Known]] = match node.domain.as_str() {
        "" | "ai.onnx" => &[arithmetic::KNOWN, matrices::KNOWN, reductions::KNOWN, shapes::KNOWN],
        TABLES => &[encoders::KNOWN, linear::KNOWN, trees::KNOWN],
        _ => &[],
    };
    let mut known = lists.iter().flat_map(|list| list.iter());
    match known.find(|(name, _)| *name == node.op) {
        Some((_, build)) => build(node).map_err(|fault| fault.during(node.place())),
        None => {
            let domain = if node.domain.is_empty() { "ai.onnx" } else { &node.domain };
            let fault = Fault::caller(format!(
                "{} needs the operator {} of {domain}, which is not known here",
                node.place(),
                node.op
            ));
            Err(fault.hint("the book's page on ensembles lists the operators that are"))
        }
    }
}

/// What an operator reads: inputs may be left out.
pub(super) struct Inputs<'a>(pub(super) &'a [Option<&'a Value>]);

impl<'a> Inputs<'a> {
    /// An input, if it is there.
    fn maybe(&self, at: usize) -> Option<&'a Value> {
        self.0.get(at).copied().flatten()
    }

    /// An input.
    fn value(&self, at: usize) -> Result<&'a Value> {
        self.maybe(at).ok_or_else(|| Fault::caller(format!("its input {at} is missing")))
    }

    /// An input of numbers.
    fn numbers(&self, at: usize) -> Result<&'a Numbers> {
        self.value(at)?.numbers()
    }

    /// All inputs.
    fn all(&self) -> Result<Vec<&'a Value>> {
        let all: Vec<&Value> = self.0.iter().copied().flatten().collect();
        match all.is_empty() {
            true => Err(Fault::caller("it has no input")),
            false => Ok(all),
        }
    }
}

/// What the computation of one block of rows may hold and do: a file from anywhere must not fill the memory.
pub(super) struct Budget {
    /// Numbers that may still be held.
    pub(super) numbers: usize,
    /// Multiplications, comparisons and the like that may still be done.
    pub(super) work: u64,
}

impl Budget {
    /// Asks for room for so many numbers before they are made.
    fn hold(&mut self, numbers: usize) -> Result<()> {
        self.numbers = self.numbers.checked_sub(numbers).ok_or_else(too_large)?;
        self.work(numbers as u64)
    }

    /// Asks for work.
    fn work(&mut self, count: u64) -> Result<()> {
        self.work = self.work.checked_sub(count).ok_or_else(too_large)?;
        Ok(())
    }
}

fn too_large() -> Fault {
    Fault::caller("the values within the model are too large")
        .hint("models of rows are expected, with at most some thousand numbers a row between nodes")
}
