//! Anchors: the model that a flock last agreed on, kept beside the weights so that blends can send how far a
//! replica has gone from it, and never a whole model: deltas are small and centred, which is what lossy codecs
//! with residuals need.
//!
//! Float weights take part in every exchange. Everything else (the optimiser's state, and integers) belongs to
//! its replica until an ending, where it *settles*: anchor + Σdelta / P, which for integers is rounded to the
//! nearest. Statistics of rows (running means and variances) are weights that no gradient leads: blends may average them
//! and nothing more, and their deltas go by names of their own, which codecs leave as they are. Only sums are agreed on, so a maximum cannot be; counters of steps hardly differ between
//! replicas, and a mean is a fair clock for averaged state.

use crate::At;
use starlings_core::{Block, Body, Kind, Model, Role, Tensor, Update, Values, tracked};

/// What begins the name of everything that a blend remembers.
const OURS: &str = "blend.";

/// The steps at which an exchange last changed the weights.
const EXCHANGED: &str = "blend.exchanged";

/// The name of the tensor that a blend keeps beside another.
pub(crate) fn beside(part: &str, name: &str) -> String {
    format!("{OURS}{part}.{name}")
}

/// The anchor of a tensor.
pub(crate) fn anchor(name: &str) -> String {
    beside("anchor", name)
}

/// Whether exchanges are due every `period` steps, and now.
pub(crate) fn due(at: &At, period: u64) -> bool {
    at.ending || at.steps.is_multiple_of(period)
}

/// Gives every tensor an anchor.
pub(crate) fn prepare(model: &mut Model) {
    for name in weights(model).into_iter().chain(others(model)) {
        add_copy(model, &name, "anchor");
    }
    add_counter(model, EXCHANGED);
}

/// Gives only what settles at an ending an anchor, for blends that keep something else of the weights.
pub(crate) fn prepare_others(model: &mut Model) {
    for name in others(model) {
        add_copy(model, &name, "anchor");
    }
}

/// Keeps a copy of a tensor, unless there is one.
pub(crate) fn add_copy(model: &mut Model, name: &str, part: &str) {
    let tensor = model.get(name).expect("a name of this model");
    add(model, beside(part, name), Tensor { role: Role::State, ..tensor.clone() });
}

/// Keeps zeros beside some weights, unless there are any.
pub(crate) fn add_zeros(model: &mut Model, names: &[String], part: &str) {
    for name in names {
        let tensor = model.get(name).expect("a name of this model");
        let zeros = Tensor::zeros(tensor.values.kind(), &tensor.shape, Role::State);
        add(model, beside(part, name), zeros);
    }
}

/// Keeps a counter, unless there is one.
pub(crate) fn add_counter(model: &mut Model, name: &str) {
    add(model, name.to_string(), Tensor::zeros(Kind::I64, &[1], Role::State));
}

fn add(model: &mut Model, name: String, tensor: Tensor) {
    if model.get(&name).is_none() {
        model.set(name, tensor);
    }
}

/// The float weights, which take part in every exchange.
pub(crate) fn weights(model: &Model) -> Vec<String> {
    names(model, |tensor| tensor.role == Role::Weight && tensor.values.kind() != Kind::I64)
}

/// The float weights that follow gradients: what a momentum may carry on.
pub(crate) fn led(model: &Model) -> Vec<String> {
    weights(model).into_iter().filter(|name| !model.is_tracked(name)).collect()
}

/// Gives statistics of rows their mean, which is their new anchor.
pub(crate) fn average_tracked(at: &At, sum: &Update, model: &mut Model) {
    let world = f64::from(at.world);
    let mut names = weights(model);
    names.retain(|name| model.is_tracked(name));
    for name in names {
        change(model, [&name, &anchor(&name)], summed(sum, &name), |[_, start], sum| {
            [start + sum / world; 2]
        });
    }
}

/// What is a replica's own until an ending.
fn others(model: &Model) -> Vec<String> {
    names(model, |tensor| tensor.role != Role::Weight || tensor.values.kind() == Kind::I64)
}

fn names(model: &Model, wanted: impl Fn(&Tensor) -> bool) -> Vec<String> {
    // Marks of statistics never change, and the statistics' own deltas go by their names.
    let marks = tracked("");
    let is_theirs = |name: &str| !name.starts_with(OURS) && !name.starts_with(&marks);
    let theirs = model.iter().filter(|(name, tensor)| is_theirs(name) && wanted(tensor));
    theirs.map(|(name, _)| name.to_string()).collect()
}

/// How far the weights are from their anchors; at an ending everything else too.
pub(crate) fn deltas(at: &At, model: &Model) -> Update {
    let blocks = weights(model).iter().map(|name| delta(model, name)).collect();
    let mut update = Update { blocks };
    update.blocks.extend(others_deltas(at, model));
    update
}

/// How far everything but the weights is from its anchors at an ending; nothing before.
pub(crate) fn others_deltas(at: &At, model: &Model) -> Vec<Block> {
    let names = if at.ending { others(model) } else { Vec::new() };
    names.iter().map(|name| delta(model, name)).collect()
}

fn delta(model: &Model, name: &str) -> Block {
    let values = |name: &str| &model.get(name).expect("prepared").values;
    let body = match (values(name), values(&anchor(name))) {
        (Values::F32(now), Values::F32(then)) => Values::F32(differences(now, then, |a, b| a - b)),
        (Values::F64(now), Values::F64(then)) => Values::F64(differences(now, then, |a, b| a - b)),
        (Values::I64(now), Values::I64(then)) => {
            Values::I64(differences(now, then, i64::wrapping_sub))
        }
        _ => panic!("'{name}' and its anchor hold different kinds of numbers"),
    };
    let name = if model.is_tracked(name) { tracked(name) } else { name.to_string() };
    Block { name, body: Body::Dense(body) }
}

fn differences<T: Copy>(now: &[T], then: &[T], minus: impl Fn(T, T) -> T) -> Vec<T> {
    now.iter().zip(then).map(|(now, then)| minus(*now, *then)).collect()
}

/// At an ending, gives everything but the weights its mean, which is its new anchor.
pub(crate) fn settle(at: &At, sum: &Update, model: &mut Model) {
    let names = if at.ending { others(model) } else { Vec::new() };
    for name in names {
        if let Values::I64(sum) = summed(sum, &name) {
            let mut then = std::mem::take(model.i64_mut(&anchor(&name)));
            settle_integers(sum, at.world, &mut then);
            model.i64_mut(&name).copy_from_slice(&then);
            *model.i64_mut(&anchor(&name)) = then;
            continue;
        }
        let world = f64::from(at.world);
        change(model, [&name, &anchor(&name)], summed(sum, &name), |[_, then], sum| {
            [then + sum / world; 2]
        });
    }
}

/// Adds the mean, rounded half away from zero, which is exact where all replicas moved alike.
fn settle_integers(sum: &[i64], world: u32, into: &mut [i64]) {
    let world = i128::from(world);
    for (into, &sum) in into.iter_mut().zip(sum) {
        let sum = i128::from(sum);
        let mean = (2 * sum + sum.signum() * world) / (2 * world);
        *into = into.wrapping_add(mean as i64);
    }
}

/// The sum of the dense blocks that all replicas offered under this name.
pub(crate) fn summed<'a>(sum: &'a Update, name: &str) -> &'a Values {
    let block = sum.get(name).or_else(|| sum.get(&tracked(name)));
    match block.map(|block| &block.body) {
        Some(Body::Dense(values)) => values,
        _ => panic!("no dense sum of '{name}', which every replica offered"),
    }
}

/// Whether the replicas have taken steps since the last exchange; from now on they have not. An ending at a
/// step that was exchanged already must not apply momentum a second time.
pub(crate) fn moved(at: &At, model: &mut Model) -> bool {
    let last = &mut model.i64_mut(EXCHANGED)[0];
    let now = at.steps as i64;
    std::mem::replace(last, now) != now
}

/// Applies a rule to each number of some float tensors and of a sum, all equally long. The rule sees f64 and its
/// answers replace the numbers of the tensors.
pub(crate) fn change<const N: usize>(
    model: &mut Model,
    names: [&str; N],
    sum: &Values,
    rule: impl Fn([f64; N], f64) -> [f64; N],
) {
    // Moved out of the model so that all can change at once.
    let mut taken = names.map(|name| {
        let tensor = model.get_mut(name).expect("prepared");
        std::mem::replace(&mut tensor.values, Values::I64(Vec::new()))
    });
    match sum {
        Values::F32(sum) => change_f32(taken.each_mut(), sum, rule),
        Values::F64(sum) => change_f64(taken.each_mut(), sum, rule),
        Values::I64(_) => panic!("'{}' holds integers", names[0]),
    }
    for (name, values) in names.iter().zip(taken) {
        model.get_mut(name).expect("just taken").values = values;
    }
}

fn change_f32<const N: usize>(
    cells: [&mut Values; N],
    sum: &[f32],
    rule: impl Fn([f64; N], f64) -> [f64; N],
) {
    let cells = cells.map(|values| match values {
        Values::F32(values) => &mut values[..sum.len()],
        _ => panic!("a sum of f32 for a tensor of another kind"),
    });
    for (at, &sum) in sum.iter().enumerate() {
        let now = std::array::from_fn(|part| f64::from(cells[part][at]));
        for (part, next) in rule(now, f64::from(sum)).into_iter().enumerate() {
            cells[part][at] = next as f32;
        }
    }
}

fn change_f64<const N: usize>(
    cells: [&mut Values; N],
    sum: &[f64],
    rule: impl Fn([f64; N], f64) -> [f64; N],
) {
    let cells = cells.map(|values| match values {
        Values::F64(values) => &mut values[..sum.len()],
        _ => panic!("a sum of f64 for a tensor of another kind"),
    });
    for (at, &sum) in sum.iter().enumerate() {
        let now = std::array::from_fn(|part| cells[part][at]);
        for (part, next) in rule(now, sum).into_iter().enumerate() {
            cells[part][at] = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_settle_at_the_rounded_mean_and_exactly_where_all_moved_alike() {
        let mut counters = vec![10, 10, 10, i64::MAX - 7];
        settle_integers(&[7, -7, 5, 12], 2, &mut counters);
        assert_eq!(counters, [14, 6, 13, i64::MAX - 1]);
    }

    #[test]
    fn f32_weights_change_by_the_rule_of_f64() {
        let mut model = Model::new();
        let values = Values::F32(vec![1.0, 2.0]);
        model.set("w", Tensor { shape: vec![2], values, role: Role::Weight });
        prepare(&mut model);
        let sum = Values::F32(vec![0.5, -1.0]);
        change(&mut model, ["w", "blend.anchor.w"], &sum, |[w, a], s| [w + s, a - s]);
        assert_eq!(model.get("w").unwrap().values, Values::F32(vec![1.5, 1.0]));
        assert_eq!(model.get("blend.anchor.w").unwrap().values, Values::F32(vec![0.5, 3.0]));
    }
}
