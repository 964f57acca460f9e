//! The tree of cuts. Node 0 holds all rows; a cut node has two children that stand side by side, and a row goes to the
//! nearer of their centres: which side of the plane midway between them it lies on. Leaves are the clusters, numbered
//! in the order of their nodes.

use crate::kernels::products::dots;
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{FEATURES, Graph, Model, Op, Tensor};
use starlings_data::Row;

/// A tree as the model has it.
pub(super) struct Tree<'a> {
    centres: &'a [f64],
    /// The first child of each node; 0 for a leaf. The second comes next.
    children: &'a [i64],
    width: usize,
    /// ‖centre‖² of each node.
    lengths: Vec<f64>,
    /// The plane of each node that is cut.
    planes: Vec<Option<Plane>>,
}

/// The plane midway between two centres: x·normal + offset is positive on the side of the second.
pub(super) struct Plane {
    normal: Vec<f64>,
    offset: f64,
}

impl Plane {
    /// Midway between two centres.
    pub(super) fn between(first: &[f64], second: &[f64]) -> Plane {
        let normal: Vec<f64> = first.iter().zip(second).map(|(a, b)| b - a).collect();
        let middle = first.iter().zip(second).map(|(a, b)| 0.5 * (a + b));
        let offset = -normal.iter().zip(middle).map(|(n, m)| n * m).sum::<f64>();
        Plane { normal, offset }
    }

    /// 0 on the side of the first centre and on the plane, 1 on that of the second.
    pub(super) fn side(&self, row: Row<'_>) -> usize {
        let product = match row {
            Row::Dense(values) => Arch::new().dispatch(Dot { values, vector: &self.normal }),
            Row::Sparse(columns, values) => {
                let entries = columns.iter().zip(values);
                entries.map(|(&c, &x)| f64::from(x) * self.normal[c as usize]).sum()
            }
        };
        usize::from(product + self.offset > 0.0)
    }
}

struct Dot<'a> {
    values: &'a [f32],
    vector: &'a [f64],
}

impl WithSimd for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        dots([self.values], self.vector)[0]
    }
}

impl<'a> Tree<'a> {
    /// The tree of a model.
    pub(super) fn read(model: &'a Model) -> Tree<'a> {
        let (centres, children) = (model.f64("nodes"), model.i64("children"));
        let width = model.get("nodes").map_or(0, Tensor::width);
        let centre = |node: usize| &centres[node * width..(node + 1) * width];
        let plane = |&child: &i64| {
            let child = child as usize;
            (child > 0).then(|| Plane::between(centre(child), centre(child + 1)))
        };
        let lengths = centres.chunks(width.max(1)).map(squared_length).collect();
        Tree { centres, children, width, lengths, planes: children.iter().map(plane).collect() }
    }

    /// How many nodes there are so far.
    pub(super) fn count(&self) -> usize {
        self.children.iter().map(|&child| child as usize + 2).max().filter(|&n| n > 2).unwrap_or(1)
    }

    /// The leaves in the order of their nodes.
    pub(super) fn leaves(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count()).filter(|&node| self.children[node] == 0)
    }

    /// The cluster of each node that is a leaf.
    pub(super) fn numbers(&self) -> Vec<usize> {
        let mut numbers = vec![0; self.children.len()];
        self.leaves().enumerate().for_each(|(number, leaf)| numbers[leaf] = number);
        numbers
    }

    /// The leaf that a row comes to from a node.
    pub(super) fn leaf(&self, row: Row<'_>, from: usize) -> usize {
        let mut node = from;
        while let Some(plane) = &self.planes[node] {
            node = self.children[node] as usize + plane.side(row);
        }
        node
    }

    /// ‖x − centre‖² of a node.
    pub(super) fn squared_distance(&self, row: Row<'_>, node: usize) -> f64 {
        squared_distance(row, self.centre(node), self.lengths[node])
    }

    /// The tree as operators: all planes at once, then the leaf whose whole path agrees with the sides.
    pub(super) fn graph(&self) -> Graph {
        let inner: Vec<usize> = (0..self.count()).filter(|&n| self.children[n] > 0).collect();
        let leaves: Vec<usize> = self.leaves().collect();
        let (width, count) = (self.width, leaves.len());
        let mut graph = Graph::new();
        let centres = graph.constant("centres", &[width, count], self.transposed(&leaves));
        let norms = leaves.iter().map(|&leaf| self.lengths[leaf]).collect();
        let norms = graph.constant("norms", &[count], norms);
        let two = graph.constant("two", &[1], vec![2.0]);
        let zero = graph.constant("zero", &[1], vec![0.0]);
        let squares = graph.node(Op::Mul, &[FEATURES, FEATURES]);
        let length = graph.node(Op::SumRows, &[&squares]);
        let products = graph.node(Op::MatMul, &[FEATURES, &centres]);
        let products = graph.node(Op::Mul, &[&products, &two]);
        let distances = graph.node(Op::Sub, &[&norms, &products]);
        let distances = graph.node(Op::Add, &[&distances, &length]);
        let distances = graph.node(Op::Max, &[&distances, &zero]);
        if inner.is_empty() {
            let cluster = graph.node(Op::Mul, &[&length, &zero]);
            graph.node(Op::Concat, &[&cluster, &distances]);
            return graph;
        }
        let reached = self.reached(&mut graph, &inner, &leaves);
        let numbers = (0..count).map(|number| number as f64).collect();
        let numbers = graph.constant("numbers", &[count, 1], numbers);
        let cluster = graph.node(Op::MatMul, &[&reached, &numbers]);
        let own = graph.node(Op::Mul, &[&reached, &distances]);
        let own = graph.node(Op::SumRows, &[&own]);
        graph.node(Op::Concat, &[&cluster, &own]);
        graph
    }

    /// 1 in the column of the leaf that a row comes to: as many sides agree with its path as the path has cuts.
    fn reached(&self, graph: &mut Graph, inner: &[usize], leaves: &[usize]) -> String {
        let (width, cuts, count) = (self.width, inner.len(), leaves.len());
        let plane = |cut: usize| self.planes[inner[cut]].as_ref().expect("inner nodes are cut");
        let normals = (0..width * cuts).map(|at| plane(at % cuts).normal[at / cuts]).collect();
        let normals = graph.constant("normals", &[width, cuts], normals);
        let offsets = (0..cuts).map(|cut| plane(cut).offset).collect();
        let offsets = graph.constant("offsets", &[cuts], offsets);
        let (mut turns, mut constant, mut depth) =
            (vec![0.0; cuts * count], vec![0.0; count], vec![0.0; count]);
        for (place, &leaf) in leaves.iter().enumerate() {
            let mut node = leaf;
            while let Some((cut, side)) = self.parent(inner, node) {
                turns[cut * count + place] = if side == 1 { 1.0 } else { -1.0 };
                constant[place] += if side == 1 { 0.0 } else { 1.0 };
                depth[place] += 1.0;
                node = inner[cut];
            }
        }
        let turns = graph.constant("turns", &[cuts, count], turns);
        let constant = graph.constant("constant", &[count], constant);
        let depth = graph.constant("depth", &[count], depth);
        let scores = graph.node(Op::MatMul, &[FEATURES, &normals]);
        let scores = graph.node(Op::Add, &[&scores, &offsets]);
        let sides = graph.node(Op::Less, &["zero", &scores]);
        let agreed = graph.node(Op::MatMul, &[&sides, &turns]);
        let agreed = graph.node(Op::Add, &[&agreed, &constant]);
        graph.node(Op::Equal, &[&agreed, &depth])
    }

    /// Which cut a node comes from, and on which side of it.
    fn parent(&self, inner: &[usize], node: usize) -> Option<(usize, usize)> {
        inner.iter().enumerate().find_map(|(cut, &parent)| {
            let first = self.children[parent] as usize;
            (first == node || first + 1 == node).then(|| (cut, node - first))
        })
    }

    fn centre(&self, node: usize) -> &[f64] {
        &self.centres[node * self.width..(node + 1) * self.width]
    }

    fn transposed(&self, nodes: &[usize]) -> Vec<f64> {
        let count = nodes.len();
        (0..self.width * count).map(|at| self.centre(nodes[at % count])[at / count]).collect()
    }
}

/// ‖x − centre‖² in f64, given ‖centre‖²: a sparse row looks at no column but its own.
pub(super) fn squared_distance(row: Row<'_>, centre: &[f64], length: f64) -> f64 {
    match row {
        Row::Dense(values) => {
            values.iter().zip(centre).map(|(x, c)| (f64::from(*x) - c).powi(2)).sum()
        }
        Row::Sparse(columns, values) => {
            let entries = columns.iter().zip(values).map(|(&column, &x)| {
                let (x, c) = (f64::from(x), centre[column as usize]);
                x * (x - 2.0 * c)
            });
            (length + entries.sum::<f64>()).max(0.0)
        }
    }
}

/// ‖vector‖².
pub(super) fn squared_length(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum()
}
