//! Grows one tree from rows that are all here (CART, Breiman et al., 1984): node by node, each split the best of its
//! features' cuts. The features a node may look at are drawn anew for every node, where they are drawn at all
//! (random forests, Breiman, 2001); features on which its rows do not differ are not counted.

use super::columns::Columns;
use super::impurity::{Criterion, Cut, Labels, Tally};
use super::partition::Partition;
use super::split::Split;
use super::store::Store;
use starlings_core::Rng;

/// What a tree must obey.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Limits {
    pub(crate) criterion: Criterion,
    pub(crate) max_depth: usize,
    pub(crate) min_rows_leaf: u32,
    pub(crate) min_rows_split: u32,
    /// Least share of the root's weight times impurity that a split must take away.
    pub(crate) min_gain: f64,
    /// Features that a node looks at.
    pub(crate) features: usize,
}

/// A node of a tree grown here.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Grown {
    /// Its split and left child; the right child is the next node. None for a leaf.
    pub(crate) split: Option<(Split, usize)>,
    /// Sums of its rows.
    pub(crate) sums: Vec<f64>,
    /// How many rows.
    pub(crate) rows: u32,
}

/// The rows from which trees grow.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    pub(crate) columns: &'a Columns,
    pub(crate) store: &'a Store,
    pub(crate) labels: Labels<'a>,
    /// How much each row counts in this tree; rows of zero are not in it.
    pub(crate) weights: &'a [f32],
}

/// Grows a tree. The nodes of a level follow each other.
pub(crate) fn grow(field: Field<'_>, limits: &Limits, rng: &mut Rng) -> Vec<Grown> {
    let inside = |row: &u32| field.weights[*row as usize] > 0.0;
    let mut partition = Partition::default();
    partition.reset((0..field.store.rows() as u32).filter(inside));
    let mut tally = Tally::new(field.labels.width());
    let mut nodes = vec![seed(field, partition.rows(0))];
    let total = field.labels.weight(&nodes[0].sums);
    let mut depths = vec![0];
    let mut at = 0;
    while at < nodes.len() {
        let found = match depths[at] < limits.max_depth && may_split(&nodes[at], limits) {
            true => best(field, limits, (&nodes[at], partition.rows(at)), (&mut tally, rng)),
            false => None,
        };
        if let Some((split, cut)) = found
            && cut.gain >= limits.min_gain * total
        {
            partition.split(at, field.store.column(split.feature), &split.left_bins());
            let right =
                nodes[at].sums.iter().zip(&cut.left).map(|(all, left)| all - left).collect();
            let rows = nodes[at].rows - cut.rows;
            nodes[at].split = Some((split, nodes.len()));
            nodes.push(Grown { split: None, sums: cut.left, rows: cut.rows });
            nodes.push(Grown { split: None, sums: right, rows });
            depths.extend([depths[at] + 1; 2]);
        }
        at += 1;
    }
    nodes
}

fn seed(field: Field<'_>, rows: &[u32]) -> Grown {
    let mut sums = vec![0.0; field.labels.width()];
    for &row in rows {
        field.labels.add(row as usize, f64::from(field.weights[row as usize]), &mut sums);
    }
    Grown { split: None, sums, rows: rows.len() as u32 }
}

fn may_split(node: &Grown, limits: &Limits) -> bool {
    node.rows >= limits.min_rows_split.max(2 * limits.min_rows_leaf)
        && limits.criterion.impurity(&node.sums) > 1e-12 * node.sums.iter().sum::<f64>().abs()
}

fn best(
    field: Field<'_>,
    limits: &Limits,
    (node, rows): (&Grown, &[u32]),
    (tally, rng): (&mut Tally, &mut Rng),
) -> Option<(Split, Cut)> {
    let mut features: Vec<usize> = (0..field.columns.len()).collect();
    if limits.features < features.len() {
        rng.shuffle(&mut features);
    }
    let main = (0..node.sums.len()).fold(0, |a, b| if node.sums[b] > node.sums[a] { b } else { a });
    let mut looked = 0;
    let mut found: Option<(Split, Cut)> = None;
    for feature in features {
        if looked == limits.features {
            break;
        }
        tally.fill(rows, field.store.column(feature), field.weights, field.labels);
        if tally.is_constant() {
            continue;
        }
        looked += 1;
        let cut = match field.columns.is_categorical(feature) {
            true => category_cut(field.labels, limits, (node, main), (tally, feature)),
            false => number_cut(limits, node, (tally, feature)),
        };
        if let Some(cut) = cut
            && found.as_ref().is_none_or(|(_, best)| cut.1.gain > best.gain)
        {
            found = Some(cut);
        }
    }
    found
}

fn number_cut(
    limits: &Limits,
    node: &Grown,
    (tally, feature): (&Tally, usize),
) -> Option<(Split, Cut)> {
    let order = tally.numbers();
    let cut = |order: &[u8], first: Option<u8>| {
        tally.cut(limits.criterion, (order, first), (&node.sums, node.rows), limits.min_rows_leaf)
    };
    let split = |cut: &Cut, bin: u8, missing_left: bool| Split {
        gain: cut.gain,
        feature,
        bin,
        missing_left,
        set: None,
        left: Default::default(),
    };
    if tally.rows(0) == 0 {
        let cut = cut(&order, None)?;
        let split = split(&cut, order[cut.at - 1], 2 * cut.rows > node.rows);
        return Some((split, cut));
    }
    // What is missing goes right, after all bins: the last cut parts it from everything else.
    let mut with_missing = order.clone();
    with_missing.push(0);
    let right = cut(&with_missing, None);
    let left = cut(&order, Some(0));
    match (left, right) {
        (Some(left), right) if right.as_ref().is_none_or(|right| left.gain > right.gain) => {
            Some((split(&left, order[left.at - 1], true), left))
        }
        (_, Some(right)) => Some((split(&right, order[right.at - 1], false), right)),
        _ => None,
    }
}

fn category_cut(
    labels: Labels<'_>,
    limits: &Limits,
    (node, main): (&Grown, usize),
    (tally, feature): (&Tally, usize),
) -> Option<(Split, Cut)> {
    let order = tally.categories(labels, main);
    let whole = (&node.sums[..], node.rows);
    let cut = tally.cut(limits.criterion, (&order, None), whole, limits.min_rows_leaf)?;
    let mut set = [0u64; 4];
    for &bin in &order[..cut.at] {
        set[usize::from(bin) / 64] |= 1 << (bin % 64);
    }
    let missing_left = set[0] & 1 == 1;
    let split = Split {
        gain: cut.gain,
        feature,
        bin: 0,
        missing_left,
        set: Some(set),
        left: Default::default(),
    };
    Some((split, cut))
}
