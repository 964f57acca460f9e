//! What boosted stumps read and remember of rows: keys of raw values, packed bins, and running scores.

use super::TREE;
use super::quantiles::{self, LEVELS};
use crate::Cells;
use starlings_core::{Model, Values};
use starlings_data::{Row, Slice, Table};

/// Bins that fit one word of memory.
pub(super) const PACK: usize = 8;

/// Calls with the key of every feature of a row, absent ones included.
pub(super) fn each_key(table: &Table, row: usize, each: &mut impl FnMut(usize, u32)) {
    match table.row(row) {
        Row::Dense(values) => {
            values.iter().enumerate().for_each(|(feature, &x)| each(feature, quantiles::key(x)));
        }
        Row::Sparse(columns, values) => {
            let mut entries = columns.iter().zip(values).peekable();
            for feature in 0..table.width() {
                let entry = entries.next_if(|(column, _)| **column as usize == feature);
                each(feature, quantiles::key(entry.map_or(0.0, |(_, &x)| x)));
            }
        }
    }
}

/// The raw score of a row: the base and all trees, added in the order in which they grew.
pub(super) fn score(model: &Model, table: &Table, row: usize) -> f64 {
    let grown = model.i64("grown")[0] as usize;
    let mut score = model.f64("base")[0];
    for tree in model.f64("trees").chunks_exact(TREE).take(grown) {
        score += leaf(tree, table, row);
    }
    score
}

/// Brings the memory of a shard up to the model: bins once the edges are known, then the trees that its
/// scores do not contain yet. From nothing it does the same additions in the same order: law `Memory`.
pub(super) fn refresh(model: &Model, table: &Table, slice: &Slice, cells: &mut Cells) {
    // A model that was loaded to be used has no state, and nothing to be remembered for.
    if model.get("level").is_none() || model.i64("level")[0] < LEVELS {
        return;
    }
    if !cells.contains_key("bins") {
        cells.insert("bins".to_string(), Values::I64(binned(model, table, slice)));
        let base = model.f64("base")[0];
        cells.insert("scores".to_string(), Values::F64(vec![base; slice.len()]));
        cells.insert("seen".to_string(), Values::I64(vec![0]));
    }
    let grown = model.i64("grown")[0];
    let seen = cells["seen"].as_i64().map_or(0, |seen| seen[0]);
    if let Some(Values::F64(scores)) = cells.get_mut("scores") {
        for tree in model.f64("trees").chunks_exact(TREE).take(grown as usize).skip(seen as usize) {
            add_tree(tree, table, slice, scores);
        }
    }
    cells.insert("seen".to_string(), Values::I64(vec![grown]));
}

/// The packed bins of each row, as words, and the scores.
///
/// # Panics
/// If the shard was not refreshed before.
pub(super) fn remembered(cells: &Cells, rows: usize) -> (impl Iterator<Item = &[i64]>, &[f64]) {
    let (Some(Values::I64(words)), Some(Values::F64(scores))) =
        (cells.get("bins"), cells.get("scores"))
    else {
        panic!("the shard was never refreshed")
    };
    let width = words.len() / rows.max(1);
    (words.chunks_exact(width.max(1)), scores)
}

fn add_tree(tree: &[f64], table: &Table, slice: &Slice, scores: &mut [f64]) {
    for (row, score) in slice.rows().zip(scores) {
        *score += leaf(tree, table, row);
    }
}

fn leaf(tree: &[f64], table: &Table, row: usize) -> f64 {
    let value = match table.row(row) {
        Row::Dense(values) => values[tree[0] as usize],
        Row::Sparse(columns, values) => {
            columns.binary_search(&(tree[0] as u32)).map_or(0.0, |at| values[at])
        }
    };
    if f64::from(value) < tree[1] { tree[2] } else { tree[3] }
}

fn binned(model: &Model, table: &Table, slice: &Slice) -> Vec<i64> {
    let edges = model.i64("edges");
    let width = edges.len() / table.width().max(1);
    let mut words = vec![0i64; slice.len() * table.width().div_ceil(PACK)];
    for (row, words) in slice.rows().zip(words.chunks_exact_mut(table.width().div_ceil(PACK))) {
        let mut each = |feature: usize, key: u32| {
            let bin = quantiles::bin(key, &edges[feature * width..(feature + 1) * width]);
            words[feature / PACK] |= i64::from(bin) << (8 * (feature % PACK));
        };
        each_key(table, row, &mut each);
    }
    words
}
