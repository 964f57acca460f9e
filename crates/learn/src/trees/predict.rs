//! Prediction: raw rows through all trees. Nodes are packed to 16 bytes and rows go through a tree eight at a time,
//! so that the processor has eight independent chains of loads to work on.

use super::columns::Columns;
use super::split::holds;
use super::tree;
use starlings_core::Model;
use starlings_data::{Batch, Row};

/// Rows that go down a tree side by side.
const LANES: usize = 8;
/// Rows that go through all trees before the next: their features stay in the cache.
const BLOCK: usize = 64;

/// Marks of a packed node.
const MISSING_LEFT: u16 = 1;
const CATEGORICAL: u16 = 2;

/// A packed node. A leaf is its own child, so that a row that has arrived may be asked on.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Packed {
    threshold: f32,
    feature: u16,
    marks: u16,
    children: [u32; 2],
}

/// All trees of a model, packed.
pub(crate) struct Forest {
    nodes: Vec<Packed>,
    values: Vec<f64>,
    roots: Vec<u32>,
    sets: Vec<[u64; 4]>,
    columns: Columns,
    wide: bool,
}

impl Forest {
    /// Of a model.
    pub(crate) fn new(model: &Model) -> Forest {
        let columns = Columns::load(model);
        let wide = columns.len() > usize::from(u16::MAX);
        let mut forest =
            Forest { nodes: vec![], values: vec![], roots: vec![], sets: vec![], columns, wide };
        let sets = model.i64("sets").len() / 4;
        forest.sets = (0..sets).map(|number| tree::set(model, number)).collect();
        for number in 0..tree::count(model) {
            forest.push(&tree::read(model, number));
        }
        forest
    }

    fn push(&mut self, nodes: &[tree::Node]) {
        let base = self.nodes.len() as u32;
        self.roots.push(base);
        for (at, node) in nodes.iter().enumerate() {
            let own = base + at as u32;
            let (feature, children) = match node.feature {
                Some(feature) => (feature, node.children.map(|child| base + child)),
                None => (0, [own; 2]),
            };
            let categorical = node.feature.is_some_and(|f| self.columns.is_categorical(f as usize));
            let marks = if node.missing_left { MISSING_LEFT } else { 0 }
                | if categorical { CATEGORICAL } else { 0 };
            let threshold = node.threshold as f32;
            self.nodes.push(Packed { threshold, feature: feature as u16, marks, children });
            self.values.push(node.value);
        }
    }

    /// How many trees.
    pub(crate) fn len(&self) -> usize {
        self.roots.len()
    }

    /// Calls with every row of a batch (counted from 0), every tree and the value of the leaf; for each row the trees
    /// come in order.
    pub(crate) fn each(&self, batch: &Batch<'_>, mut each: impl FnMut(usize, usize, f64)) {
        assert!(!self.wide, "more than 65535 features are refused at the start");
        let width = self.columns.len();
        let mut block = vec![0.0; BLOCK * width];
        let (mut first, mut held) = (0, 0);
        for row in batch.rows() {
            let into = &mut block[held * width..(held + 1) * width];
            match batch.table.row(row) {
                Row::Dense(values) => into.copy_from_slice(values),
                Row::Sparse(columns, values) => {
                    into.fill(0.0);
                    columns.iter().zip(values).for_each(|(&at, &x)| into[at as usize] = x);
                }
            }
            held += 1;
            if held == BLOCK {
                self.block(&block, (first, held), &mut each);
                (first, held) = (first + held, 0);
            }
        }
        self.block(&block[..held * width], (first, held), &mut each);
    }

    fn block(
        &self,
        block: &[f32],
        (first, held): (usize, usize),
        each: &mut impl FnMut(usize, usize, f64),
    ) {
        let width = self.columns.len();
        let mut leaves = [0u32; BLOCK];
        for (tree, &root) in self.roots.iter().enumerate() {
            if width == 0 {
                leaves.fill(root);
            } else {
                for (rows, leaves) in block.chunks(LANES * width).zip(leaves.chunks_mut(LANES)) {
                    self.descend(root, rows, leaves);
                }
            }
            for (row, &leaf) in leaves[..held].iter().enumerate() {
                each(first + row, tree, self.values[leaf as usize]);
            }
        }
    }

    fn descend(&self, root: u32, rows: &[f32], leaves: &mut [u32]) {
        let width = self.columns.len();
        leaves.fill(root);
        loop {
            let mut moved = false;
            for (row, at) in rows.chunks_exact(width).zip(leaves.iter_mut()) {
                let node = &self.nodes[*at as usize];
                let value = row[usize::from(node.feature)];
                let left = match node.marks & CATEGORICAL {
                    0 => {
                        let missing = value.is_nan() & (node.marks & MISSING_LEFT != 0);
                        (value <= node.threshold) | missing
                    }
                    _ => self.category_goes_left(node, value),
                };
                let next = node.children[usize::from(!left)];
                moved |= next != *at;
                *at = next;
            }
            if !moved {
                return;
            }
        }
    }

    fn category_goes_left(&self, node: &Packed, value: f32) -> bool {
        let bin = self.columns.bin(usize::from(node.feature), value);
        match bin {
            0 => node.marks & MISSING_LEFT != 0,
            bin => holds(&self.sets[node.threshold as usize], usize::from(bin)),
        }
    }
}
