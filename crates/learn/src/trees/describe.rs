//! Trees and importances as text, for people.

use super::columns::Columns;
use super::split::holds;
use super::tree::{self, Node};
use crate::{Branch, Importance};
use starlings_core::Model;
use starlings_data::{ColumnKind, Schema};
use std::fmt::Write;

/// Trees that are written out; of the others only their number is told.
const TREES_SHOWN: usize = 3;
/// Nodes of a tree that are written out.
const NODES_SHOWN: usize = 127;
/// Features whose importance is told.
const FEATURES_SHOWN: usize = 30;

/// The features that have splits, those of most gain first.
pub(crate) fn importances(model: &Model, schema: &Schema) -> Vec<Importance> {
    let found = used(model, model.i64("categorical").len());
    let all = found.into_iter().enumerate().filter(|(_, (_, splits))| *splits > 0);
    let mut all: Vec<Importance> = all
        .map(|(feature, (gain, splits))| Importance { name: name(schema, feature), gain, splits })
        .collect();
    all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    all
}

/// A tree in words, its root first.
pub(crate) fn branches(
    model: &Model,
    schema: &Schema,
    number: usize,
    said: impl Fn(f64) -> String,
) -> Option<Vec<Branch>> {
    if number >= tree::count(model) {
        return None;
    }
    let (columns, nodes) = (Columns::load(model), tree::read(model, number));
    let scene = Scene { model, schema, columns: &columns, nodes: &nodes, said: &said };
    let branch = |node: &Node| match node.feature {
        None => Branch { text: said(node.value), rows: node.rows, children: None },
        Some(feature) => Branch {
            text: scene.question(node, feature as usize),
            rows: node.rows,
            children: Some(node.children.map(|child| child as usize)),
        },
    };
    Some(nodes.iter().map(branch).collect())
}

/// What splits on each feature gained, and how many there are.
fn used(model: &Model, features: usize) -> Vec<(f64, u64)> {
    let mut found = vec![(0.0, 0); features];
    for tree in 0..tree::count(model) {
        for node in tree::read(model, tree) {
            if let Some(feature) = node.feature {
                found[feature as usize].0 += node.gain;
                found[feature as usize].1 += 1;
            }
        }
    }
    found
}

/// Importances and the first trees.
pub(crate) fn text(model: &Model, schema: &Schema, said: impl Fn(f64) -> String) -> String {
    let columns = Columns::load(model);
    let mut text = importance_text(model, schema, columns.len());
    let trees = tree::count(model);
    for number in 0..trees.min(TREES_SHOWN) {
        let _ = writeln!(text, "tree {number}");
        let nodes = &tree::read(model, number);
        let scene = Scene { model, schema, columns: &columns, nodes, said: &said };
        let mut left = NODES_SHOWN;
        scene.write(0, 1, &mut left, &mut text);
    }
    if trees > TREES_SHOWN {
        let _ = writeln!(text, "and {} trees more", trees - TREES_SHOWN);
    }
    text
}

fn importance_text(model: &Model, schema: &Schema, features: usize) -> String {
    let found = used(model, features);
    let all: f64 = found.iter().map(|(gain, _)| gain).sum();
    let mut order: Vec<usize> = (0..features).filter(|&feature| found[feature].1 > 0).collect();
    order.sort_by(|&a, &b| found[b].0.total_cmp(&found[a].0).then(a.cmp(&b)));
    let mut text = String::from("importance (share of the gain, number of splits)\n");
    for &feature in order.iter().take(FEATURES_SHOWN) {
        let (gain, splits) = found[feature];
        let share = 100.0 * gain / all.max(f64::MIN_POSITIVE);
        let _ = writeln!(text, "  {share:5.1} %  {splits:6}  {}", name(schema, feature));
    }
    if order.is_empty() {
        text.push_str("  no tree has a split\n");
    }
    text
}

fn name(schema: &Schema, feature: usize) -> String {
    match schema.columns.get(feature) {
        Some(column) if schema.columns.len() == schema.features => column.name.clone(),
        _ => format!("feature {feature}"),
    }
}

struct Scene<'a> {
    model: &'a Model,
    schema: &'a Schema,
    columns: &'a Columns,
    nodes: &'a [Node],
    /// What a leaf's value is in words.
    said: &'a dyn Fn(f64) -> String,
}

impl Scene<'_> {
    fn write(&self, at: usize, depth: usize, left: &mut usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        if *left == 0 {
            let _ = writeln!(text, "{indent}…");
            return;
        }
        *left -= 1;
        let node = &self.nodes[at];
        let Some(feature) = node.feature else {
            let _ = writeln!(text, "{indent}{} ({} rows)", (self.said)(node.value), node.rows);
            return;
        };
        let question = self.question(node, feature as usize);
        let missing = if node.missing_left { ", or missing" } else { "" };
        let _ = writeln!(
            text,
            "{indent}{question}{missing}? ({} rows, gain {})",
            node.rows,
            short(node.gain)
        );
        for child in node.children {
            self.write(child as usize, depth + 1, left, text);
        }
    }

    fn question(&self, node: &Node, feature: usize) -> String {
        let name = name(self.schema, feature);
        if !self.columns.is_categorical(feature) {
            return format!("{name} <= {}", short(node.threshold));
        }
        let set = tree::set(self.model, node.threshold as usize);
        let texts = self.schema.columns.get(feature).map(|column| &column.kind);
        let word = |code: f32| match texts {
            Some(ColumnKind::Categorical { codes }) => {
                codes.get(code as usize).cloned().unwrap_or_else(|| code.to_string())
            }
            _ => code.to_string(),
        };
        let bins = (1..self.columns.bins(feature)).filter(|&bin| holds(&set, bin));
        let words: Vec<String> =
            bins.map(|bin| word(self.columns.values(feature)[bin - 1])).collect();
        format!("{name} is {}", words.join(" or "))
    }
}

/// Six digits, without zeros at the end.
pub(crate) fn short(number: f64) -> String {
    let text = format!("{number:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_string() } else { text.to_string() }
}
