//! A decision tree (CART; Breiman, Friedman, Olshen and Stone, 1984) for classes (Gini's index or entropy) and numbers
//! (variance), with minimal cost-complexity pruning. Splits are exact on features of up to 255 values, and between 255
//! bins of equal counts on others.

use super::BuildLearner;
use crate::trees::dealt::{Choice, Dealt, GIVES, NEEDS};
use crate::trees::impurity::Criterion;
use starlings_core::{Entry, Param, ParamKind, Params};

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "decision-tree",
    summary: "A decision tree for classes or numbers, with pruning",
    reference: "Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984",
    params: &[
        CRITERION,
        Param {
            name: "max_depth",
            kind: ParamKind::Integer { min: 0, max: 1000 },
            default: Some("0"),
            help: "most splits from the root to a leaf; 0 for no limit",
        },
        MIN_ROWS_LEAF,
        MIN_ROWS_SPLIT,
        MIN_GAIN,
        BINS,
        Param {
            name: "ccp_alpha",
            kind: ParamKind::Float { min: 0.0, max: 1e12 },
            default: Some("0.0"),
            help: "impurity that each leaf must save; subtrees that save less are pruned",
        },
    ],
    gives: GIVES,
    needs: NEEDS,
    build: |params| {
        let tree = Dealt { ccp_alpha: params.f64("ccp_alpha"), ..common(params, "decision-tree") };
        Ok(Box::new(tree))
    },
};

pub(super) const CRITERION: Param = Param {
    name: "criterion",
    kind: ParamKind::Choice(&["gini", "entropy", "variance"]),
    default: Some("gini"),
    help: "how mixed a node is: gini or entropy for classes, variance for numbers",
};
pub(super) const MIN_ROWS_LEAF: Param = Param {
    name: "min_rows_leaf",
    kind: ParamKind::Integer { min: 1, max: 1_000_000_000 },
    default: Some("1"),
    help: "fewest rows of a leaf",
};
pub(super) const MIN_ROWS_SPLIT: Param = Param {
    name: "min_rows_split",
    kind: ParamKind::Integer { min: 2, max: 1_000_000_000 },
    default: Some("2"),
    help: "fewest rows of a node that is split",
};
pub(super) const MIN_GAIN: Param = Param {
    name: "min_gain",
    kind: ParamKind::Float { min: 0.0, max: 1e12 },
    default: Some("0.0"),
    help: "least impurity a split takes away, by its share of all rows",
};
pub(super) const BINS: Param = Param {
    name: "bins",
    kind: ParamKind::Integer { min: 2, max: 255 },
    default: Some("255"),
    help: "most bins of a feature",
};

/// One tree on all rows and features, by the parameters that trees and forests share.
pub(super) fn common(params: &Params, name: &'static str) -> Dealt {
    let depth = params.size("max_depth");
    Dealt {
        name,
        trees: 1,
        criterion: match params.text("criterion") {
            "entropy" => Criterion::Entropy,
            "variance" => Criterion::Variance,
            _ => Criterion::Gini,
        },
        max_depth: if depth == 0 { 1_000_000 } else { depth },
        min_rows_leaf: params.i64("min_rows_leaf") as u32,
        min_rows_split: params.i64("min_rows_split") as u32,
        min_gain: params.f64("min_gain"),
        bins: params.size("bins"),
        features: Choice::All,
        bootstrap: false,
        out_of_bag: false,
        ccp_alpha: 0.0,
    }
}
