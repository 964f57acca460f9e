//! Bisecting k-means (Steinbach, Karypis, Kumar, "A comparison of document clustering techniques", 2000): all rows
//! are one cluster; the cluster of the largest inertia, or of the most rows, is cut in two by 2-means, again and
//! again, until there are k. The cuts are a tree, kept in the model: a row descends it to its cluster, as in
//! scikit-learn and Spark (`tree.rs`).
//!
//! A cut is tried from several starts at once, in the same exchanges (`cut.rs`), and the best is kept.

mod cut;
mod tree;

use super::BuildLearner;
use crate::projection::check_width;
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_core::{
    Ability, Entry, Fault, Graph, Kind, Model, Param, ParamKind, Params, Result, Role, Tensor,
    Update,
};
use starlings_data::{Batch, LabelNeed, Slice};
use std::collections::BTreeMap;
use tree::Tree;

/// Bisecting k-means in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "bisecting-k-means",
    summary: "K clusters by cutting one in two, again and again: a tree of centres",
    reference: "Steinbach, Karypis, Kumar, A comparison of document clustering techniques, KDD workshop on text mining 2000",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(BisectingKMeans::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "k",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: None,
        help: "how many clusters; fewer come out when rows differ too little",
    },
    Param {
        name: "strategy",
        kind: ParamKind::Choice(&["largest-inertia", "largest-cluster"]),
        default: Some("largest-inertia"),
        help: "which cluster is cut next: the one of the largest inertia, or of the most rows",
    },
    Param {
        name: "trials",
        kind: ParamKind::Integer { min: 1, max: 1000 },
        default: Some("5"),
        help: "starts that are tried for each cut",
    },
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("300"),
        help: "iterations of one cut at most, unless [train] epochs says otherwise",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1e3 },
        default: Some("1e-4"),
        help: "a cut is done when the squared shift of its centres is at most this times the features' mean variance",
    },
];

/// Which cluster is cut next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Strategy {
    LargestInertia,
    LargestCluster,
}

/// Bisecting k-means.
struct BisectingKMeans {
    k: usize,
    strategy: Strategy,
    trials: usize,
    iterations_max: u64,
    tolerance: f64,
}

impl BisectingKMeans {
    fn new(params: &Params) -> BisectingKMeans {
        let strategy = match params.text("strategy") {
            "largest-cluster" => Strategy::LargestCluster,
            _ => Strategy::LargestInertia,
        };
        BisectingKMeans {
            k: params.size("k"),
            strategy,
            trials: params.size("trials"),
            iterations_max: params.size("max_iterations") as u64,
            tolerance: params.f64("tolerance"),
        }
    }

    /// The leaf to cut next; `None` when there are k, or none can be cut.
    fn next(&self, model: &Model) -> Option<usize> {
        let tree = Tree::read(model);
        let (masses, inertias) = (model.f64("masses"), model.f64("inertias"));
        let whole = model.i64("whole");
        if tree.leaves().count() >= self.k {
            return None;
        }
        let size = |leaf: usize| match self.strategy {
            Strategy::LargestInertia => inertias[leaf],
            Strategy::LargestCluster => masses[leaf],
        };
        let able = tree.leaves().filter(|&leaf| whole[leaf] == 0 && inertias[leaf] > 0.0);
        // The first of the largest: replicas must agree.
        able.fold(None, |best: Option<usize>, leaf| match best {
            Some(best) if size(best) >= size(leaf) => Some(best),
            _ => Some(leaf),
        })
    }
}

impl Learner for BisectingKMeans {
    fn task(&self) -> Task {
        Task::Clustering
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let (k, rows, width) = (self.k, facts.rows, facts.schema.features);
        if rows < k as u64 {
            return Err(Fault::caller(format!("{k} clusters cannot be made of {rows} rows"))
                .hint(format!("set k to {rows} or less, or give more rows")));
        }
        if rows >= u64::from(u32::MAX) || width == 0 {
            return Err(Fault::caller(format!(
                "bisecting-k-means takes at least one feature and fewer than 2^32 - 1 rows, not {width} and {rows}"
            )));
        }
        let nodes = 2 * k - 1;
        let mut model = Model::new();
        model.set("nodes", Tensor::zeros(Kind::F64, &[nodes, width], Role::Weight));
        model.set("masses", Tensor::zeros(Kind::F64, &[nodes], Role::Weight));
        model.set("inertias", Tensor::zeros(Kind::F64, &[nodes], Role::Weight));
        model.set("children", Tensor::zeros(Kind::I64, &[nodes], Role::Weight));
        model.set("whole", Tensor::zeros(Kind::I64, &[nodes], Role::State));
        let iterations = facts.epochs.unwrap_or(self.iterations_max).max(1);
        cut::init(&mut model, iterations, (self.trials, rows));
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        cut::refresh(&Tree::read(model), batch.table, slice, cells);
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        check_width(work.batch, work.model.get("nodes").map_or(0, Tensor::width))?;
        cut::contribute(work);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let over = cut::apply(model, update, moment, self.tolerance)?;
        let mut done = false;
        if over {
            let next = self.next(model);
            done = next.is_none();
            cut::begin(model, next.unwrap_or(0));
        }
        let cuts = Tree::read(model).leaves().count() as u64 - 1;
        Ok(Outcome { objective: None, done, iterations: Some(cuts) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let tree = Tree::read(work.model);
        let table = work.batch.table;
        let inertia = work.batch.rows().map(|row| {
            let leaf = tree.leaf(table.row(row), 0);
            table.weight(row) * tree.squared_distance(table.row(row), leaf)
        });
        Ok(vec![inertia.sum()])
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let metrics = BTreeMap::from([("inertia".to_string(), sums[0])]);
        Grade { objective: sums[0], metrics }
    }

    fn outputs(&self, _: &Model) -> usize {
        2
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        check_width(batch, model.get("nodes").map_or(0, Tensor::width))?;
        let tree = Tree::read(model);
        let numbers = tree.numbers();
        for row in batch.rows() {
            let leaf = tree.leaf(batch.table.row(row), 0);
            let squared = tree.squared_distance(batch.table.row(row), leaf);
            out.extend([numbers[leaf] as f64, squared]);
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        Some(Tree::read(model).graph())
    }
}
