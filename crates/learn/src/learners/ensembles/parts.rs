//! A member's corner of what the ensemble shares: tensors and blocks whose names begin with the member's prefix.

use crate::Outbox;
use starlings_core::{Block, Model, Role, Update};

/// The prefix of a fit.
pub(super) fn prefix(fit: usize) -> String {
    format!("m{fit}.")
}

fn names(model: &Model, prefix: &str) -> Vec<String> {
    let names = model.iter().map(|(name, _)| name);
    names.filter(|name| name.starts_with(prefix)).map(str::to_string).collect()
}

/// A copy of a member's model.
pub(super) fn copy(model: &Model, prefix: &str) -> Model {
    let mut part = Model::new();
    for (name, tensor) in model.iter() {
        if let Some(inner) = name.strip_prefix(prefix) {
            part.set(inner, tensor.clone());
        }
    }
    part
}

/// Moves a member's model out.
pub(super) fn take(model: &mut Model, prefix: &str) -> Model {
    let mut part = Model::new();
    for name in names(model, prefix) {
        if let Some(tensor) = model.remove(&name) {
            part.set(&name[prefix.len()..], tensor);
        }
    }
    part
}

/// Moves a member's model in; what was there goes away.
pub(super) fn put(model: &mut Model, prefix: &str, mut part: Model) {
    names(model, prefix).iter().for_each(|name| drop(model.remove(name)));
    let inner: Vec<String> = part.iter().map(|(name, _)| name.to_string()).collect();
    for name in inner {
        if let Some(tensor) = part.remove(&name) {
            model.set(format!("{prefix}{name}"), tensor);
        }
    }
}

/// Forgets the way to a member's answer, and keeps the answer.
pub(super) fn settle(model: &mut Model, prefix: &str) {
    for name in names(model, prefix) {
        if model.get(&name).is_some_and(|tensor| tensor.role == Role::State) {
            model.remove(&name);
        }
    }
}

/// Forgets a member.
pub(super) fn drop_all(model: &mut Model, prefix: &str) {
    names(model, prefix).iter().for_each(|name| drop(model.remove(name)));
}

/// Hands on what a member emitted.
pub(super) fn emit(outbox: &mut Outbox, prefix: &str, update: Update) {
    for block in update.blocks {
        outbox.emit(Block { name: format!("{prefix}{}", block.name), body: block.body });
    }
}

/// The sum of what a member emitted.
pub(super) fn update(all: &Update, prefix: &str) -> Update {
    let own = all.blocks.iter().filter_map(|block| {
        let name = block.name.strip_prefix(prefix)?;
        Some(Block { name: name.to_string(), body: block.body.clone() })
    });
    Update { blocks: own.collect() }
}
