//! From rows to edges. Source and destination columns have codes of their own; a node is a text, whichever of the two
//! columns it stands in.

use starlings_core::{Fault, Model, Result};
use starlings_data::{Batch, ColumnKind, Row, Schema};
use std::collections::BTreeMap;

/// Codes travel as f32, which counts exactly to 2²⁴.
const CODES_MAX: usize = 1 << 24;

/// The node of every source code and of every destination code, and how many nodes there are.
pub(super) fn numbered(schema: &Schema) -> Result<(Vec<i64>, Vec<i64>, usize)> {
    if schema.features != 2 {
        let found = schema.features;
        return Err(Fault::caller(format!(
            "an edge has a source and a destination, not {found} features"
        ))
        .hint("name the two columns: [data] features = [\"source\", \"destination\"]"));
    }
    let codes = |column: usize| match schema.columns.get(column).map(|column| &column.kind) {
        Some(ColumnKind::Categorical { codes }) => codes.as_slice(),
        _ => &[],
    };
    let (sources, targets) = (codes(0), codes(1));
    if sources.is_empty() || sources.len().max(targets.len()) > CODES_MAX {
        return Err(Fault::caller(format!(
            "power-iteration-clustering: {} sources and {} destinations: there must be some, and at most {CODES_MAX} of each",
            sources.len(),
            targets.len()
        )));
    }
    let mut nodes: BTreeMap<&str, i64> = BTreeMap::new();
    for text in sources.iter().chain(targets) {
        let next = nodes.len() as i64;
        nodes.entry(text).or_insert(next);
    }
    let of = |codes: &[String]| codes.iter().map(|text| nodes[text.as_str()]).collect();
    Ok((of(sources), of(targets), nodes.len()))
}

/// The edges of a batch: two nodes and what they share.
pub(super) struct Edges {
    edges: Vec<(usize, usize, f64)>,
}

impl Edges {
    /// Reads the rows.
    pub(super) fn of(model: &Model, batch: &Batch<'_>) -> Result<Edges> {
        let (sources, targets) = (model.i64("sources"), model.i64("targets"));
        let edge = |row: usize| {
            let [source, target] = codes(batch, row)?;
            let (source, target) = (node(sources, source, row)?, node(targets, target, row)?);
            let similarity = batch.table.labels.get(row).map_or(1.0, |&label| f64::from(label));
            if !similarity.is_finite() || similarity < 0.0 {
                return Err(Fault::caller(format!(
                    "power-iteration-clustering: row {row} has the similarity {similarity}"
                ))
                .hint("similarities are finite and not negative"));
            }
            Ok((source, target, batch.table.weight(row) * similarity))
        };
        Ok(Edges { edges: batch.rows().map(edge).collect::<Result<_>>()? })
    }

    /// Both nodes and the similarity of every edge.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        self.edges.iter().copied()
    }

    /// Adds to every node the numbers of its neighbours, weighted by similarity.
    pub(super) fn add(&self, number: impl Fn(usize) -> f64, sums: &mut [f64]) {
        for &(a, b, similarity) in &self.edges {
            sums[a] += similarity * number(b);
            if a != b {
                sums[b] += similarity * number(a);
            }
        }
    }
}

/// The source node of every row of a batch.
pub(super) fn sources(model: &Model, batch: &Batch<'_>) -> Result<Vec<usize>> {
    let sources = model.i64("sources");
    batch.rows().map(|row| node(sources, codes(batch, row)?[0], row)).collect()
}

fn codes(batch: &Batch<'_>, row: usize) -> Result<[f32; 2]> {
    if batch.table.width() != 2 {
        let found = batch.table.width();
        return Err(Fault::caller(format!(
            "an edge has a source and a destination, not {found} features"
        ))
        .hint("use the same two columns as in training"));
    }
    Ok(match batch.table.row(row) {
        Row::Dense(codes) => [codes[0], codes[1]],
        Row::Sparse(columns, values) => {
            // An entry that is not stored is the code 0.
            let at = |column: u32| columns.iter().position(|&c| c == column);
            [0, 1].map(|column| at(column).map_or(0.0, |at| values[at]))
        }
    })
}

fn node(nodes: &[i64], code: f32, row: usize) -> Result<usize> {
    // NaN fails both comparisons.
    if code >= 0.0 && code < nodes.len() as f32 {
        return Ok(nodes[code as usize] as usize);
    }
    Err(Fault::caller(format!(
        "power-iteration-clustering: row {row} names a node that was not in the training edges"
    ))
    .hint("train on all edges: the clusters are those of the graph trained on"))
}
