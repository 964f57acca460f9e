//! What a trained model computes, as a graph of operators: from the encoded features of a row to its prediction. The
//! vocabulary is ONNX's, so that a writer of ONNX files needs one line an operator and knows no learner. Every
//! value is a matrix with one row for each row of data; constants broadcast as in NumPy.

use crate::Tensor;
use std::collections::BTreeMap;

/// The name of the graph's only input: the encoded features, one row a row of data.
pub const FEATURES: &str = "features";

/// An operator. Its name is ONNX's, unless its comment says otherwise.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// The product of two matrices.
    MatMul,
    /// Sum, number by number.
    Add,
    /// Difference.
    Sub,
    /// Product, number by number.
    Mul,
    /// Quotient.
    Div,
    /// Power, number by number.
    Pow,
    /// The larger of two numbers.
    Max,
    /// The smaller of two numbers.
    Min,
    /// 1 where the first is less than the second, else 0 (`Less` and a cast).
    Less,
    /// 1 where both are equal, else 0 (`Equal` and a cast).
    Equal,
    /// The second where the first is not 0, else the third (`Where` after a cast).
    Where,
    /// e to the power of the number.
    Exp,
    /// Natural logarithm.
    Log,
    /// Square root.
    Sqrt,
    /// Magnitude.
    Abs,
    /// The number with the other sign.
    Neg,
    /// Cosine.
    Cos,
    /// Hyperbolic tangent.
    Tanh,
    /// The larger of the number and 0.
    Relu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// The error function.
    Erf,
    /// Powers of e over their sum, along each row.
    Softmax,
    /// The sum of each row, one column (`ReduceSum` over axis 1, axes kept).
    SumRows,
    /// The largest of each row, one column.
    MaxRows,
    /// The smallest of each row, one column.
    MinRows,
    /// Where the largest of each row stands first, one column (`ArgMax` and a cast).
    ArgMaxRows,
    /// Where the smallest of each row stands first, one column (`ArgMin` and a cast).
    ArgMinRows,
    /// The columns of all inputs side by side (`Concat` on axis 1).
    Concat,
    /// These columns (`Gather` on axis 1).
    Columns(Vec<usize>),
    /// 1 where the number is missing, else 0 (`IsNaN` and a cast).
    IsNaN,
}

/// One operator at work.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// The values it reads: [`FEATURES`], constants, or outputs of earlier nodes.
    pub inputs: Vec<String>,
    /// What its value is called.
    pub output: String,
}

/// A graph: nodes in the order in which they can be computed. The last node's value is the prediction.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Graph {
    /// Constants by name: matrices, or vectors that stand for one row.
    pub constants: BTreeMap<String, Tensor>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

impl Graph {
    /// An empty graph.
    #[must_use]
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Adds a constant and gives its name back.
    pub fn constant(&mut self, name: &str, shape: &[usize], values: Vec<f64>) -> String {
        self.constants.insert(name.to_string(), Tensor::of(shape, values, crate::Role::Weight));
        name.to_string()
    }

    /// Adds a node and gives the name of its value.
    ///
    /// ```
    /// use starlings_core::{FEATURES, Graph, Op};
    /// let mut graph = Graph::new();
    /// let weights = graph.constant("weights", &[2, 1], vec![1.0, -1.0]);
    /// let score = graph.node(Op::MatMul, &[FEATURES, &weights]);
    /// graph.node(Op::Sigmoid, &[&score]);
    /// assert_eq!(graph.nodes.len(), 2);
    /// ```
    pub fn node(&mut self, op: Op, inputs: &[&str]) -> String {
        let output = format!("value_{}", self.nodes.len());
        let inputs = inputs.iter().map(ToString::to_string).collect();
        self.nodes.push(Node { op, inputs, output: output.clone() });
        output
    }
}
