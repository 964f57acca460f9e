//! Ensembles of trees, as scikit-learn's, LightGBM's and XGBoost's converters write them: one list for each property of
//! a node, over all trees. Here they become one list of nodes, each of which knows where its children stand.

use super::super::file::Node;
use super::super::value::{Kind, Value};
use super::linear::Labels;
use super::transform::logistic;
use super::{Budget, Known, Operator, Transform};
use starlings_core::{Fault, Result};
use std::collections::BTreeMap;

pub(super) const KNOWN: &[Known] =
    &[("TreeEnsembleClassifier", classifier), ("TreeEnsembleRegressor", regressor)];

/// A node of a tree.
#[derive(Clone)]
enum Branch {
    /// Goes one way or the other.
    Split { feature: usize, threshold: f64, mode: Mode, missing_is_true: bool, ways: [usize; 2] },
    /// Adds to targets: a range of the weights.
    Leaf { from: usize, to: usize },
}

/// When a row goes the first way.
#[derive(Clone, Copy)]
enum Mode {
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
    Equal,
    NotEqual,
}

impl Mode {
    fn named(name: &str) -> Result<Option<Mode>> {
        Ok(Some(match name {
            "LEAF" => return Ok(None),
            "BRANCH_LEQ" => Mode::LessOrEqual,
            "BRANCH_LT" => Mode::Less,
            "BRANCH_GTE" => Mode::GreaterOrEqual,
            "BRANCH_GT" => Mode::Greater,
            "BRANCH_EQ" => Mode::Equal,
            "BRANCH_NEQ" => Mode::NotEqual,
            other => return Err(Fault::caller(format!("the mode {other} is not known"))),
        }))
    }

    fn holds(self, x: f64, threshold: f64) -> bool {
        match self {
            Mode::LessOrEqual => x <= threshold,
            Mode::Less => x < threshold,
            Mode::GreaterOrEqual => x >= threshold,
            Mode::Greater => x > threshold,
            Mode::Equal => x == threshold,
            Mode::NotEqual => x != threshold,
        }
    }
}

struct Trees {
    branches: Vec<Branch>,
    roots: Vec<usize>,
    /// Target and weight, sorted by leaf.
    weights: Vec<(usize, f64)>,
    /// Features that are read.
    width: usize,
    base: Vec<f64>,
}

/// The lists of a node, which must be equally long.
fn equally<T>(name: &str, list: Option<Vec<T>>, count: usize) -> Result<Vec<T>> {
    let list = list.unwrap_or_default();
    match list.len() == count {
        true => Ok(list),
        false => Err(Fault::caller(format!("'{name}' has {} elements, not {count}", list.len()))),
    }
}

impl Trees {
    /// From the attributes; `of` is what weights are for: `class` or `target`.
    fn of(node: &Node, of: &str, targets: usize) -> Result<Trees> {
        let keys = keys(node, "nodes")?;
        let mut places = BTreeMap::new();
        for (at, key) in keys.iter().enumerate() {
            if places.insert(*key, at).is_some() {
                return Err(Fault::caller(format!("tree {} has node {} twice", key.0, key.1)));
            }
        }
        let (weights, leaves) = weights(node, of, targets)?;
        let ints = |name: &str| equally(name, node.ints(name)?, keys.len());
        let features = ints("nodes_featureids")?;
        let ways = [ints("nodes_truenodeids")?, ints("nodes_falsenodeids")?];
        let modes = equally("nodes_modes", node.texts("nodes_modes")?, keys.len())?;
        let thresholds = equally("nodes_values", Some(node.floats("nodes_values")?), keys.len())?;
        let missing = node.ints("nodes_missing_value_tracks_true")?.filter(|list| !list.is_empty());
        let missing = match missing {
            None => vec![0; keys.len()],
            some => equally("nodes_missing_value_tracks_true", some, keys.len())?,
        };
        let mut trees = Trees {
            branches: vec![],
            roots: vec![],
            weights,
            width: 0,
            base: node.floats("base_values")?,
        };
        for (at, key) in keys.iter().enumerate() {
            if at == 0 || keys[at - 1].0 != key.0 {
                trees.roots.push(at);
            }
            let Some(mode) = Mode::named(&modes[at])? else {
                let (from, to) = leaves.get(key).copied().unwrap_or((0, 0));
                trees.branches.push(Branch::Leaf { from, to });
                continue;
            };
            let child = |way: usize| {
                let found = places.get(&(key.0, ways[way][at])).copied();
                found.ok_or_else(|| Fault::caller(format!("tree {} leads out of itself", key.0)))
            };
            let ways = [child(0)?, child(1)?];
            let feature = usize::try_from(features[at]).ok().filter(|feature| *feature < 1 << 24);
            let feature = feature.ok_or_else(|| Fault::caller("a feature below zero"))?;
            trees.width = trees.width.max(feature + 1);
            let missing_is_true = missing[at] != 0;
            let threshold = thresholds[at];
            trees.branches.push(Branch::Split { feature, threshold, mode, missing_is_true, ways });
        }
        trees.check()?;
        Ok(trees)
    }

    /// Every node is reached once at most: there is no way in a circle.
    fn check(&self) -> Result<()> {
        let mut reached = vec![false; self.branches.len()];
        for &root in &self.roots {
            let mut open = vec![root];
            while let Some(at) = open.pop() {
                if std::mem::replace(&mut reached[at], true) {
                    return Err(Fault::caller("a node of a tree is reached twice"));
                }
                if let Branch::Split { ways, .. } = &self.branches[at] {
                    open.extend(ways);
                }
            }
        }
        Ok(())
    }

    /// Hands on target and weight of all leaves that a row falls into; how many nodes it passed.
    fn fall(&self, row: &[f64], mut add: impl FnMut(usize, f64)) -> u64 {
        let mut passed = 0;
        for &root in &self.roots {
            let mut at = root;
            loop {
                passed += 1;
                match &self.branches[at] {
                    Branch::Split { feature, threshold, mode, missing_is_true, ways } => {
                        let x = row[*feature];
                        let first = mode.holds(x, *threshold) || (*missing_is_true && x.is_nan());
                        at = ways[usize::from(!first)];
                    }
                    Branch::Leaf { from, to } => {
                        for (target, weight) in &self.weights[*from..*to] {
                            add(*target, *weight);
                        }
                        break;
                    }
                }
            }
        }
        passed
    }

    /// Sums for each row and target.
    fn sums(&self, x: &Value, targets: usize, budget: &mut Budget) -> Result<Vec<f64>> {
        let array = &x.numbers()?.array;
        let (rows, width) = array.matrix()?;
        if width < self.width {
            return Err(Fault::caller(format!(
                "it reads {} features and gets {width}",
                self.width
            )));
        }
        budget.hold(rows.saturating_mul(targets))?;
        let mut sums = vec![0.0; rows * targets];
        for (row, sums) in
            array.values.chunks_exact(width.max(1)).zip(sums.chunks_exact_mut(targets))
        {
            let passed = self.fall(row, |target, weight| sums[target] += weight);
            budget.work(passed)?;
        }
        Ok(sums)
    }
}

type Key = (i64, i64);

/// Tree and node of each element.
fn keys(node: &Node, of: &str) -> Result<Vec<Key>> {
    let trees = node.ints(&format!("{of}_treeids"))?.unwrap_or_default();
    let name = format!("{of}_nodeids");
    let nodes = equally(&name, node.ints(&name)?, trees.len())?;
    Ok(trees.into_iter().zip(nodes).collect())
}

/// Target and weight of all leaves, and where those of each leaf stand.
#[expect(clippy::type_complexity, reason = "two lists that are made together and used once")]
fn weights(
    node: &Node,
    of: &str,
    targets: usize,
) -> Result<(Vec<(usize, f64)>, BTreeMap<Key, (usize, usize)>)> {
    let keys = keys(node, of)?;
    let (ids, amounts) = (format!("{of}_ids"), format!("{of}_weights"));
    let ids = equally(&ids, node.ints(&ids)?, keys.len())?;
    let amounts = equally(&amounts, Some(node.floats(&amounts)?), keys.len())?;
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by_key(|at| keys[*at]);
    let mut weights = Vec::with_capacity(order.len());
    let mut leaves = BTreeMap::new();
    for at in order {
        let target = usize::try_from(ids[at]).ok().filter(|target| *target < targets);
        let target = target.ok_or_else(|| {
            Fault::caller(format!("a weight for number {} of {targets}", ids[at]))
        })?;
        let place = leaves.entry(keys[at]).or_insert((weights.len(), weights.len()));
        weights.push((target, amounts[at]));
        place.1 = weights.len();
    }
    Ok((weights, leaves))
}

fn regressor(node: &Node) -> Result<Operator> {
    let targets = usize::try_from(node.int("n_targets", 1)?).ok();
    let targets = targets.filter(|targets| (1..=1 << 16).contains(targets));
    let targets = targets.ok_or_else(|| Fault::caller("no targets, or too many"))?;
    let trees = Trees::of(node, "target", targets)?;
    let mean = match node.text("aggregate_function", "SUM")?.as_str() {
        "SUM" => false,
        "AVERAGE" => true,
        other => return Err(Fault::caller(format!("aggregate_function {other} is not known"))),
    };
    let base = match trees.base.len() {
        0 => vec![0.0; targets],
        count if count == targets => trees.base.clone(),
        count => return Err(Fault::caller(format!("{count} base values for {targets} targets"))),
    };
    let transform = Transform::named(&node.text("post_transform", "NONE")?)?;
    Ok(Box::new(move |inputs, budget| {
        let mut sums = trees.sums(inputs.value(0)?, targets, budget)?;
        let count = if mean { trees.roots.len().max(1) as f64 } else { 1.0 };
        for row in sums.chunks_exact_mut(targets) {
            row.iter_mut().zip(&base).for_each(|(sum, base)| *sum = *sum / count + base);
            transform.change(row);
        }
        let rows = sums.len() / targets;
        Ok(vec![Value::of(Kind::Float, vec![rows, targets], sums)?])
    }))
}

fn classifier(node: &Node) -> Result<Operator> {
    let labels = Labels::of(node, "classlabels_int64s")?;
    let classes = labels.len();
    let trees = Trees::of(node, "class", classes)?;
    let transform = Transform::named(&node.text("post_transform", "NONE")?)?;
    let one_score = one_score(&trees, classes)?;
    let base = match (trees.base.len(), one_score) {
        (0, _) => vec![0.0; classes],
        (1, true) => vec![trees.base[0]; classes],
        (count, false) if count == classes => trees.base.clone(),
        (count, _) => {
            return Err(Fault::caller(format!("{count} base values for {classes} classes")));
        }
    };
    let none_below_zero = trees.weights.iter().all(|(_, weight)| *weight >= 0.0);
    Ok(Box::new(move |inputs, budget| {
        let mut sums = trees.sums(inputs.value(0)?, classes, budget)?;
        for row in sums.chunks_exact_mut(classes) {
            if one_score {
                let score = row.iter().sum::<f64>() + base[0];
                let both = second(score, transform, none_below_zero);
                row.copy_from_slice(&both);
                continue;
            }
            row.iter_mut().zip(&base).for_each(|(sum, base)| *sum += base);
            transform.change(row);
        }
        labels.answer(sums, budget)
    }))
}

/// Of two classes only one has weights: they are the score of the second.
fn one_score(trees: &Trees, classes: usize) -> Result<bool> {
    let first = trees.weights.first().map(|(class, _)| *class);
    Ok(classes == 2 && trees.weights.iter().all(|(class, _)| Some(*class) == first))
}

/// Both classes of the score of the second, by the rules of the reference runtime: weights of which none is below zero
/// are chances already.
fn second(score: f64, transform: Transform, chances: bool) -> [f64; 2] {
    match (chances, transform) {
        (true, _) => [1.0 - score, score],
        (false, Transform::Logistic) => [logistic(-score), logistic(score)],
        (false, _) => [-score, score],
    }
}
