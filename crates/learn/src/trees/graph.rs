//! Trees as a graph of matrix products (Nakandala et al., Hummingbird, OSDI 2020): which splits a row answers with
//! "right", how many of a leaf's answers it gives, and the values of the leaves whose answers it gives all.

use super::columns::Columns;
use super::split::holds;
use super::tree::{self, Node};
use starlings_core::{FEATURES, Graph, Model, Op};

/// The largest matrix of a graph; larger models have none.
const NUMBERS_MAX: usize = 1 << 22;

/// The inner nodes and leaves of all trees.
#[derive(Default)]
struct Parts {
    inner: Vec<Node>,
    leaves: Vec<Leaf>,
}

struct Leaf {
    tree: usize,
    value: f64,
    /// The inner nodes above it, and whether it is on their right.
    path: Vec<(usize, bool)>,
}

/// A graph and its last value: `base` and the sum of the trees. A leaf of tree t says `values(t, value)`, a number
/// for each output. None when the matrices would be too large.
pub(crate) fn scores(
    model: &Model,
    base: &[f64],
    values: impl Fn(usize, f64) -> Vec<f64>,
) -> Option<(Graph, String)> {
    let (columns, parts) = (Columns::load(model), parts(model));
    let (inner, leaves, outputs) = (parts.inner.len() + 1, parts.leaves.len(), base.len());
    if columns.len() == 0 || inner * leaves > NUMBERS_MAX {
        return None;
    }
    let mut graph = Graph::new();
    let base = graph.constant("base", &[1, outputs], base.to_vec());
    let mut paths = vec![0.0; inner * leaves];
    let mut wanted = vec![0.0; leaves];
    let mut said = Vec::with_capacity(leaves * outputs);
    for (leaf, Leaf { tree, value, path }) in parts.leaves.iter().enumerate() {
        for &(node, right) in path {
            paths[node * leaves + leaf] = if right { 1.0 } else { -1.0 };
            wanted[leaf] += f64::from(u8::from(right));
        }
        said.extend(values(*tree, *value));
    }
    let rights = rights(model, &columns, &mut graph, &parts.inner);
    if leaves == 0 {
        let last = graph.node(Op::Add, &[&rights, &base]);
        return Some((graph, last));
    }
    let paths = graph.constant("paths", &[inner, leaves], paths);
    let wanted = graph.constant("path_rights", &[1, leaves], wanted);
    let said = graph.constant("leaf_values", &[leaves, outputs], said);
    let given = graph.node(Op::MatMul, &[&rights, &paths]);
    let arrived = graph.node(Op::Equal, &[&given, &wanted]);
    let sums = graph.node(Op::MatMul, &[&arrived, &said]);
    let last = graph.node(Op::Add, &[&sums, &base]);
    Some((graph, last))
}

fn parts(model: &Model) -> Parts {
    let mut parts = Parts::default();
    for tree in 0..tree::count(model) {
        let nodes = tree::read(model, tree);
        let mut open = vec![(0, Vec::new())];
        while let Some((at, path)) = open.pop() {
            let node: &Node = &nodes[at];
            if node.feature.is_none() {
                parts.leaves.push(Leaf { tree, value: node.value, path });
                continue;
            }
            let place = parts.inner.len();
            parts.inner.push(*node);
            for (side, &child) in node.children.iter().enumerate() {
                let path = path.iter().copied().chain([(place, side == 1)]).collect();
                open.push((child as usize, path));
            }
        }
    }
    parts
}

/// For each inner node a column that is 1 where the row goes right; then a column of zeros.
fn rights(model: &Model, columns: &Columns, graph: &mut Graph, inner: &[Node]) -> String {
    let mut sides = Vec::new();
    let first = graph.node(Op::Columns(vec![0]), &[FEATURES]);
    let missing = graph.node(Op::IsNaN, &[&first]);
    let zero = graph.constant("zero", &[1], vec![0.0]);
    let zeros = graph.node(Op::Mul, &[&missing, &zero]);
    for (at, run) in runs(columns, inner).into_iter().enumerate() {
        let nodes = &inner[run.clone()];
        let feature = nodes[0].feature.expect("inner nodes have a feature") as usize;
        sides.push(match columns.is_categorical(feature) {
            true => category(model, columns, graph, (&nodes[0], feature, at)),
            false => numbers(graph, nodes, at),
        });
    }
    sides.push(zeros);
    let sides: Vec<&str> = sides.iter().map(String::as_str).collect();
    graph.node(Op::Concat, &sides)
}

/// Inner nodes in order: each category alone, numbers as many as follow each other.
fn runs(columns: &Columns, inner: &[Node]) -> Vec<std::ops::Range<usize>> {
    let is_category =
        |node: &Node| node.feature.is_some_and(|feature| columns.is_categorical(feature as usize));
    let mut from = 0;
    let runs = inner.chunk_by(|a, b| !is_category(a) && !is_category(b));
    runs.map(|run| {
        from += run.len();
        from - run.len()..from
    })
    .collect()
}

fn numbers(graph: &mut Graph, nodes: &[Node], at: usize) -> String {
    let features = nodes.iter().filter_map(|node| node.feature).map(|f| f as usize).collect();
    let width = nodes.len();
    let thresholds = nodes.iter().map(|node| node.threshold).collect();
    let missing = nodes.iter().map(|node| f64::from(u8::from(!node.missing_left))).collect();
    let thresholds = graph.constant(&format!("thresholds_{at}"), &[1, width], thresholds);
    let missing_right = graph.constant(&format!("missing_right_{at}"), &[1, width], missing);
    let values = graph.node(Op::Columns(features), &[FEATURES]);
    let above = graph.node(Op::Less, &[&thresholds, &values]);
    let is_missing = graph.node(Op::IsNaN, &[&values]);
    graph.node(Op::Where, &[&is_missing, &missing_right, &above])
}

/// A category goes the way of bin 0 unless it is one of the codes that go the other way.
fn category(
    model: &Model,
    columns: &Columns,
    graph: &mut Graph,
    (node, feature, at): (&Node, usize, usize),
) -> String {
    let set = tree::set(model, node.threshold as usize);
    let other = |bin: usize| holds(&set, bin) != node.missing_left;
    let codes: Vec<f64> = (1..columns.bins(feature))
        .filter(|&bin| other(bin))
        .map(|bin| f64::from(columns.values(feature)[bin - 1]))
        .collect();
    let codes = graph.constant(&format!("codes_{at}"), &[1, codes.len()], codes);
    let value = graph.node(Op::Columns(vec![feature]), &[FEATURES]);
    let same = graph.node(Op::Equal, &[&value, &codes]);
    let hits = graph.node(Op::SumRows, &[&same]);
    if node.missing_left {
        return hits;
    }
    let one = graph.constant("one", &[1], vec![1.0]);
    graph.node(Op::Sub, &[&one, &hits])
}
