//! Grown trees and how the model holds them: one row of eight numbers for each node, tree after tree. A leaf has no
//! feature; its value is a score, or the row of a table of values where a leaf says several numbers.

use super::columns::{Columns, whole};
use super::split::Split;
use super::store::Store;
use starlings_core::{Model, Role, Tensor};

/// Numbers of a node in the model.
pub(crate) const FIELDS: usize = 8;

/// A node of a grown tree. Children are counted from the tree's first node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Node {
    /// The feature it asks for; none for a leaf.
    pub(crate) feature: Option<u32>,
    /// Values up to this go left; of a category, the number of the set of bins that go left.
    pub(crate) threshold: f64,
    /// Whether what is missing goes left.
    pub(crate) missing_left: bool,
    /// The children.
    pub(crate) children: [u32; 2],
    /// What a leaf says.
    pub(crate) value: f64,
    /// What the split gained.
    pub(crate) gain: f64,
    /// Training rows that came here.
    pub(crate) rows: f64,
}

impl Node {
    /// A leaf.
    pub(crate) fn leaf(value: f64, rows: f64) -> Node {
        Node {
            feature: None,
            threshold: 0.0,
            missing_left: false,
            children: [0, 0],
            value,
            gain: 0.0,
            rows,
        }
    }

    /// Its numbers.
    pub(crate) fn write(&self) -> [f64; FIELDS] {
        [
            self.feature.map_or(-1.0, f64::from),
            self.threshold,
            f64::from(u8::from(self.missing_left)),
            f64::from(self.children[0]),
            f64::from(self.children[1]),
            self.value,
            self.gain,
            self.rows,
        ]
    }

    /// From its numbers.
    pub(crate) fn read(fields: &[f64]) -> Node {
        Node {
            feature: (fields[0] >= 0.0).then_some(fields[0] as u32),
            threshold: fields[1],
            missing_left: fields[2] != 0.0,
            children: [fields[3] as u32, fields[4] as u32],
            value: fields[5],
            gain: fields[6],
            rows: fields[7],
        }
    }
}

/// Puts the tensors of no trees into a model.
pub(crate) fn init(model: &mut Model) {
    model.set("nodes", Tensor::of(&[0, FIELDS], Vec::new(), Role::Weight));
    model.set("tree_starts", whole(vec![0], Role::Weight));
    model.set("sets", whole(Vec::new(), Role::Weight));
}

/// How many trees a model has.
pub(crate) fn count(model: &Model) -> usize {
    model.i64("tree_starts").len() - 1
}

/// The nodes of a tree.
pub(crate) fn read(model: &Model, tree: usize) -> Vec<Node> {
    let starts = model.i64("tree_starts");
    let (from, to) = (starts[tree] as usize, starts[tree + 1] as usize);
    model.f64("nodes")[from * FIELDS..to * FIELDS].chunks_exact(FIELDS).map(Node::read).collect()
}

/// Adds a tree to a model.
pub(crate) fn push(model: &mut Model, tree: &[Node]) {
    let nodes = model.get_mut("nodes").expect("made by init");
    nodes.shape[0] += tree.len();
    let total = nodes.shape[0];
    model.f64_mut("nodes").extend(tree.iter().flat_map(Node::write));
    push_whole(model, "tree_starts", &[total as i64]);
}

/// Takes away all trees but the first `keep`.
pub(crate) fn truncate(model: &mut Model, keep: usize) {
    let starts = model.get_mut("tree_starts").expect("made by init");
    starts.shape[0] = keep + 1;
    model.i64_mut("tree_starts").truncate(keep + 1);
    let nodes_kept = model.i64("tree_starts")[keep] as usize;
    model.get_mut("nodes").expect("made by init").shape[0] = nodes_kept;
    model.f64_mut("nodes").truncate(nodes_kept * FIELDS);
}

fn push_whole(model: &mut Model, name: &str, values: &[i64]) {
    model.get_mut(name).expect("made by init").shape[0] += values.len();
    model.i64_mut(name).extend_from_slice(values);
}

/// Adds a set of bins and gives its number.
pub(crate) fn push_set(model: &mut Model, set: [u64; 4]) -> usize {
    let number = model.i64("sets").len() / 4;
    push_whole(model, "sets", &set.map(|word| word as i64));
    number
}

/// A set of bins by its number.
pub(crate) fn set(model: &Model, number: usize) -> [u64; 4] {
    std::array::from_fn(|word| model.i64("sets")[number * 4 + word] as u64)
}

/// The inner node that a split makes, its children still unknown. A set of categories goes into the model.
pub(crate) fn inner(model: &mut Model, columns: &Columns, split: &Split, rows: f64) -> Node {
    let threshold = match split.set {
        Some(set) => push_set(model, set) as f64,
        None => edge(columns, split.feature, split.bin),
    };
    Node {
        feature: Some(split.feature as u32),
        threshold,
        missing_left: split.missing_left,
        children: [0, 0],
        value: 0.0,
        gain: split.gain,
        rows,
    }
}

/// The largest value of a bin; of the last bin there is none.
pub(crate) fn edge(columns: &Columns, feature: usize, bin: u8) -> f64 {
    let edges = columns.values(feature);
    edges.get(usize::from(bin) - 1).map_or(f64::INFINITY, |&edge| f64::from(edge))
}

/// A tree that routes binned rows.
pub(crate) struct Router {
    nodes: Vec<Node>,
    lefts: Vec<[bool; 256]>,
}

impl Router {
    /// For one tree of a model.
    pub(crate) fn new(model: &Model, columns: &Columns, tree: usize) -> Router {
        let nodes = read(model, tree);
        let lefts = nodes.iter().map(|node| left_bins(model, columns, node)).collect();
        Router { nodes, lefts }
    }

    /// The value of the leaf in which a row ends.
    pub(crate) fn value(&self, store: &Store, row: usize) -> f64 {
        let bins = store.row(row);
        let mut at = 0;
        while let Some(feature) = self.nodes[at].feature {
            let right = !self.lefts[at][usize::from(bins[feature as usize])];
            at = self.nodes[at].children[usize::from(right)] as usize;
        }
        self.nodes[at].value
    }
}

fn left_bins(model: &Model, columns: &Columns, node: &Node) -> [bool; 256] {
    let Some(feature) = node.feature.map(|feature| feature as usize) else { return [false; 256] };
    let categorical = columns.is_categorical(feature);
    let split = Split {
        gain: 0.0,
        feature,
        bin: if categorical { 0 } else { columns.bin(feature, node.threshold as f32) },
        missing_left: node.missing_left,
        set: categorical.then(|| set(model, node.threshold as usize)),
        left: Default::default(),
    };
    split.left_bins()
}
