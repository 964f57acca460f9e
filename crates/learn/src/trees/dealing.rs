//! The steps of trees that are dealt to shards: gathering rows, growing the trees of the shards held, and collecting
//! finished trees; and what rows out of the bag say of the forest.

use super::columns::Columns;
use super::dealt::Dealt;
use super::fixed;
use super::grower::{self, Field, Grown, Limits};
use super::impurity::Labels;
use super::pruning;
use super::store::{Store, each_row, segments};
use super::tree::{self, FIELDS, Node};
use crate::Work;
use starlings_core::{Block, Model, Rng, Role, Rows, Update, Values};
use starlings_data::Row;

/// A vote out of the bag is this many parts.
const VOTE: f64 = (1u64 << 32) as f64;

/// Words of a row: label and weight, then eight bins in each.
pub(crate) fn words(width: usize) -> usize {
    1 + width.div_ceil(8)
}

/// This worker's rows in their places, zeros elsewhere.
pub(crate) fn gather(work: &Work<'_>) -> Vec<i64> {
    let columns = Columns::load(work.model);
    let (width, table) = (columns.len(), work.batch.table);
    let words = words(width);
    let mut block = vec![0i64; work.moment.rows as usize * words];
    let mut tables = work.batch.rows();
    each_row(&segments(work.batch), |_, global| {
        let row = tables.next().expect("as many rows as the segments have");
        let out = &mut block[global as usize * words..(global as usize + 1) * words];
        let weight = table.weight(row) as f32;
        out[0] = i64::from(table.labels[row].to_bits()) | i64::from(weight.to_bits()) << 32;
        let mut put = |feature: usize, value: f32| {
            let bin = i64::from(columns.bin(feature, value));
            out[1 + feature / 8] |= bin << (8 * (feature % 8));
        };
        match table.row(row) {
            Row::Dense(values) => values.iter().enumerate().for_each(|(at, &x)| put(at, x)),
            Row::Sparse(entries, values) => {
                let mut entries = entries.iter().zip(values).peekable();
                for feature in 0..width {
                    let entry = entries.next_if(|(at, _)| **at as usize == feature);
                    put(feature, entry.map_or(0.0, |(_, &x)| x));
                }
            }
        }
    });
    block
}

/// The label of a gathered row, from its first word.
pub(crate) fn label(word: i64) -> f32 {
    f32::from_bits(word as u32)
}

/// The weight of a gathered row, from its first word.
pub(crate) fn weight(word: i64) -> f32 {
    f32::from_bits((word as u64 >> 32) as u32)
}

/// Whether no gathered row has a weight.
pub(crate) fn weightless(rows: &[i64], width: usize) -> bool {
    rows.chunks_exact(words(width)).all(|row| weight(row[0]) <= 0.0)
}

/// The bins of gathered rows.
pub(crate) fn store(gathered: &[i64], width: usize) -> Store {
    let rows = gathered.chunks_exact(words(width));
    let count = rows.len();
    let bins = rows.flat_map(|row| row[1..].iter().flat_map(|word| word.to_le_bytes()).take(width));
    Store::from_rows(width, count, bins.collect())
}

/// All rows, as every worker has them.
struct Ground {
    digest: i64,
    columns: Columns,
    store: Store,
    classes: Vec<u16>,
    numbers: Vec<f32>,
    weights: Vec<f32>,
}

impl Ground {
    fn new(learner: &Dealt, model: &Model, digest: i64) -> Ground {
        let columns = Columns::load(model);
        let (width, gathered) = (columns.len(), model.i64("rows"));
        let rows = gathered.chunks_exact(words(width));
        let labels: Vec<f32> = rows.clone().map(|row| label(row[0])).collect();
        let weights = rows.map(|row| weight(row[0])).collect();
        let store = store(gathered, width);
        let is_class = learner.is_classification();
        let classes = if is_class { labels.iter().map(|&x| x as u16).collect() } else { vec![] };
        Ground { digest, columns, store, classes, numbers: labels, weights }
    }

    fn labels(&self, outputs: usize, is_class: bool) -> Labels<'_> {
        match is_class {
            true => Labels::Classes(&self.classes, outputs),
            false => Labels::Numbers(&self.numbers),
        }
    }
}

/// How often a tree's sample has a row: Poisson's law of mean one, which is what drawing as many rows as there are,
/// with replacement, comes to when there are many (Oza and Russell, 2001).
fn multiplicity(key: u64, row: u64) -> f32 {
    let mut chance = fixed::uniform(key, row);
    let (mut count, mut share) = (0.0, (-1f64).exp());
    while chance >= share && count < 20.0 {
        chance -= share;
        count += 1.0;
        share /= count;
    }
    count as f32
}

/// How much each row counts in a tree.
fn bag(learner: &Dealt, ground: &Ground, (seed, tree): (u64, usize)) -> Vec<f32> {
    if !learner.bootstrap {
        return ground.weights.clone();
    }
    let key = fixed::key(seed, "bootstrap", &[tree as u64]);
    let times = |(row, &weight): (usize, &f32)| multiplicity(key, row as u64) * weight;
    let bag: Vec<f32> = ground.weights.iter().enumerate().map(times).collect();
    // Of very few rows a sample may have none; such a tree sees them all.
    if bag.iter().all(|&weight| weight <= 0.0) { ground.weights.clone() } else { bag }
}

/// The most nodes of a tree, and the trees of one step.
fn room(learner: &Dealt, model: &Model) -> (usize, usize) {
    let rows = model.i64("rows").len() / words(model.i64("categorical").len());
    let deep = 1usize.checked_shl(learner.max_depth.min(60) as u32 + 1).unwrap_or(usize::MAX);
    let nodes = (2 * rows).max(1).min(deep);
    let stage = model.i64("stage");
    let left = stage[1] as usize - tree::count(model);
    let fit = (u32::MAX as usize / nodes).max(1);
    (nodes, left.min(stage[2] as usize).min(fit))
}

/// Grows the trees of the shards held and emits them.
pub(crate) fn grow(learner: &Dealt, work: &mut Work<'_>) {
    let (model, seed) = (work.model, work.moment.seed);
    let (nodes_max, slots) = room(learner, model);
    let (first, outputs) = (tree::count(model), model.get("leaf_values").map_or(1, |v| v.width()));
    let rows = model.i64("rows").len() / words(model.i64("categorical").len());
    let mut votes = vec![0; if learner.out_of_bag { rows * (outputs + 1) } else { 0 }];
    let mut out = Emitted::default();
    let shards: Vec<usize> = work.batch.slices.iter().map(|slice| slice.shard.0 as usize).collect();
    if let Some(slice) = work.batch.slices.first() {
        let digest =
            model.i64("rows").iter().fold(1, |sum: i64, &x| sum.wrapping_mul(31).wrapping_add(x));
        let ground = work.memory.take_scratch::<Ground>(slice.shard);
        let ground = ground
            .filter(|ground| ground.digest == digest)
            .unwrap_or_else(|| Box::new(Ground::new(learner, model, digest)));
        let labels = ground.labels(outputs, learner.is_classification());
        for slot in (0..slots).filter(|slot| shards.contains(slot)) {
            let bag = bag(learner, &ground, (seed, first + slot));
            let field =
                Field { columns: &ground.columns, store: &ground.store, labels, weights: &bag };
            let limits = limits(learner, ground.columns.len());
            let mut rng = Rng::named(seed, "forest", &[(first + slot) as u64]);
            let mut grown = grower::grow(field, &limits, &mut rng);
            let total = labels.weight(&grown[0].sums);
            pruning::prune(&mut grown, learner.criterion, (learner.ccp_alpha, total));
            if learner.out_of_bag {
                vote(&ground, (&grown, labels), &bag, &mut votes);
            }
            out.add(&ground.columns, labels, &grown, slot * nodes_max);
        }
        work.memory.leave_scratch(slice.shard, ground);
    }
    let total = (slots * nodes_max) as u32;
    out.emit(work, (total, outputs as u32));
    work.outbox.emit(Block::counts("votes", votes));
}

fn limits(learner: &Dealt, features: usize) -> Limits {
    Limits {
        criterion: learner.criterion,
        max_depth: learner.max_depth,
        min_rows_leaf: learner.min_rows_leaf,
        min_rows_split: learner.min_rows_split,
        min_gain: learner.min_gain,
        features: learner.features.of(features),
    }
}

/// The rows of the blocks that carry trees: nodes, what leaves say, and sets of categories.
#[derive(Default)]
struct Emitted {
    nodes: (Vec<u32>, Vec<i64>),
    values: (Vec<u32>, Vec<i64>),
    sets: (Vec<u32>, Vec<i64>),
}

impl Emitted {
    fn add(&mut self, columns: &Columns, labels: Labels<'_>, grown: &[Grown], at: usize) {
        let mut places = vec![0; grown.len()];
        let mut open = vec![0];
        let mut order = Vec::new();
        while let Some(node) = open.pop() {
            places[node] = order.len();
            order.push(node);
            if let Some((_, left)) = grown[node].split {
                open.extend([left + 1, left]);
            }
        }
        for &node in &order {
            let index = (at + places[node]) as u32;
            let mut packed = Node::leaf(0.0, f64::from(grown[node].rows));
            match &grown[node].split {
                Some((split, left)) => {
                    packed.feature = Some(split.feature as u32);
                    packed.missing_left = split.missing_left;
                    packed.gain = split.gain;
                    packed.children = [places[*left] as u32, places[left + 1] as u32];
                    match split.set {
                        Some(set) => {
                            self.sets.0.push(index);
                            self.sets.1.extend(set.map(|word| word as i64));
                        }
                        None => packed.threshold = tree::edge(columns, split.feature, split.bin),
                    }
                }
                None => {
                    self.values.0.push(index);
                    let said = labels.say(&grown[node].sums);
                    self.values.1.extend(said.iter().map(|x| x.to_bits() as i64));
                }
            }
            self.nodes.0.push(index);
            self.nodes.1.extend(packed.write().map(|x| x.to_bits() as i64));
        }
    }

    fn emit(self, work: &mut Work<'_>, (total, outputs): (u32, u32)) {
        let blocks = [
            ("nodes", self.nodes, FIELDS as u32),
            ("values", self.values, outputs),
            ("sets", self.sets, 4),
        ];
        for (name, (index, values), width) in blocks {
            let rows = Rows { total, width, index, values: Values::I64(values) };
            work.outbox.emit(Block::rows(name, rows));
        }
    }
}

/// Puts finished trees into the model.
pub(crate) fn collect(learner: &Dealt, model: &mut Model, update: &Update) {
    let (nodes_max, slots) = room(learner, model);
    let width = model.get("leaf_values").map_or(1, |values| values.width());
    let block = |name: &str| update.rows(name).expect("emitted by grow");
    let mut values = cursor(block("values"));
    let mut sets = cursor(block("sets"));
    let mut nodes = cursor(block("nodes")).peekable();
    for slot in 0..slots {
        let end = ((slot + 1) * nodes_max) as u32;
        let mut tree = Vec::new();
        while let Some((_, words)) = nodes.next_if(|(index, _)| *index < end) {
            let mut node =
                Node::read(&words.iter().map(|&x| f64::from_bits(x as u64)).collect::<Vec<_>>());
            match node.feature {
                None => {
                    let (_, said) = values.next().expect("every leaf says something");
                    node.value = push_values(model, said, width) as f64;
                }
                Some(feature) if model.i64("categorical")[feature as usize] != 0 => {
                    let (_, set) = sets.next().expect("every category has its set");
                    let set = std::array::from_fn(|word| set[word] as u64);
                    node.threshold = tree::push_set(model, set) as f64;
                }
                Some(_) => {}
            }
            tree.push(node);
        }
        tree::push(model, &tree);
    }
    let votes = update.i64("votes");
    if model.i64("out_of_bag").is_empty() {
        model.set("out_of_bag", super::columns::whole(votes.to_vec(), Role::State));
    } else {
        model.i64_mut("out_of_bag").iter_mut().zip(votes).for_each(|(sum, vote)| *sum += vote);
    }
}

fn cursor(rows: &Rows) -> impl Iterator<Item = (u32, &[i64])> {
    let values = rows.values.as_i64().expect("emitted as whole numbers");
    rows.index.iter().copied().zip(values.chunks_exact(rows.width as usize))
}

fn push_values(model: &mut Model, said: &[i64], width: usize) -> usize {
    let tensor = model.get_mut("leaf_values").expect("made by init");
    let number = tensor.shape[0];
    tensor.shape[0] += 1;
    let values = model.f64_mut("leaf_values");
    values.extend(said.iter().take(width).map(|&bits| f64::from_bits(bits as u64)));
    number
}

/// Lets a tree vote on the rows it did not see.
fn vote(ground: &Ground, (grown, labels): (&[Grown], Labels<'_>), bag: &[f32], votes: &mut [i64]) {
    let said: Vec<Vec<f64>> = grown.iter().map(|node| labels.say(&node.sums)).collect();
    let width = said[0].len() + 1;
    let lefts: Vec<Option<[bool; 256]>> =
        grown.iter().map(|node| node.split.map(|(split, _)| split.left_bins())).collect();
    for row in (0..bag.len()).filter(|&row| bag[row] <= 0.0 && ground.weights[row] > 0.0) {
        let bins = ground.store.row(row);
        let mut at = 0;
        while let (Some((split, left)), Some(lefts)) = (&grown[at].split, &lefts[at]) {
            at = left + usize::from(!lefts[usize::from(bins[split.feature])]);
        }
        let votes = &mut votes[row * width..(row + 1) * width];
        votes[0] += 1;
        for (vote, said) in votes[1..].iter_mut().zip(&said[at]) {
            *vote += (said * VOTE) as i64;
        }
    }
}

/// Loss, hit or squared error, and absolute error of what is said of a row.
pub(crate) fn judge(is_class: bool, said: &[f64], label: f32) -> (f64, f64, f64) {
    if is_class {
        let truth = label as usize;
        let best = (1..said.len()).fold(0, |a, b| if said[b] > said[a] { b } else { a });
        let chance = said.get(truth).copied().unwrap_or(0.0).clamp(f64::EPSILON, 1.0);
        return (-chance.ln(), f64::from(u8::from(best == truth)), 0.0);
    }
    let error = said[0] - f64::from(label);
    (error * error, error * error, error.abs())
}

/// How well rows are judged by the trees that did not see them.
pub(crate) fn out_of_bag(learner: &Dealt, model: &Model) -> Option<(&'static str, f64)> {
    let votes = model.get("out_of_bag")?.values.as_i64()?;
    let width = model.get("leaf_values")?.width() + 1;
    let rows = model.i64("rows").chunks_exact(words(model.i64("categorical").len()));
    let (mut sum, mut all) = (0.0, 0.0);
    for (row, votes) in rows.zip(votes.chunks_exact(width)).filter(|(_, votes)| votes[0] > 0) {
        let said: Vec<f64> =
            votes[1..].iter().map(|&vote| vote as f64 / VOTE / votes[0] as f64).collect();
        let weight = f64::from(weight(row[0]));
        sum += weight * judge(learner.is_classification(), &said, label(row[0])).1;
        all += weight;
    }
    let mean = (all > 0.0).then(|| sum / all)?;
    Some(match learner.is_classification() {
        true => ("out_of_bag_accuracy", mean),
        false => ("out_of_bag_rmse", mean.sqrt()),
    })
}
