//! Learners made of learners: bagging, AdaBoost, voting, a bucket of models, stacking and self-training, over any
//! learners of the catalogue, ensembles included.
//!
//! What they share: `method` is what all do alike, `member` builds the learners that a job nests, `crew` trains several of them side by side in one
//! exchange and knows nothing of the method, `views` shows each the rows as it should see them (other weights, labels,
//! columns or encoding), `parts` gives each its own corner of model and update, `verdict` judges the answers, and
//! `graphs` joins the members' graphs. `foreign` is a member from another library. What is left for a method's file is the method.

mod adaboost;
mod bagging;
mod bucket;
mod conversion;
mod crew;
mod folds;
mod foreign;
mod graphs;
mod member;
mod method;
mod parts;
mod self_training;
mod stacking;
mod verdict;
mod views;
mod voting;

pub(super) use adaboost::ENTRY as ADABOOST;
pub(super) use bagging::ENTRY as BAGGING;
pub(super) use bucket::ENTRY as BUCKET;
pub(super) use self_training::ENTRY as SELF_TRAINING;
pub(super) use stacking::ENTRY as STACKING;
pub(super) use voting::ENTRY as VOTING;

use starlings_core::{Ability, Param, ParamKind};

/// What ensembles need: members may pass over all rows and decide by themselves when they are done.
const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const TOGETHER: Param = Param {
    name: "together",
    kind: ParamKind::Integer { min: 1, max: 1000 },
    default: Some("8"),
    help: "most members that are trained side by side, in one exchange: more take fewer steps and more memory",
};

const FOLDS: Param = Param {
    name: "folds",
    kind: ParamKind::Integer { min: 2, max: 1000 },
    default: Some("5"),
    help: "folds of the cross-validation",
};

const SHUFFLE: Param = Param {
    name: "shuffle",
    kind: ParamKind::Flag,
    default: Some("true"),
    help: "whether rows are dealt to folds by chance, or one after the other",
};
