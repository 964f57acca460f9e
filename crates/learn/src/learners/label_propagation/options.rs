//! The two entries of the catalogue and their parameters.

use crate::learners::BuildLearner;
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};

/// How much two rows have to do with each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kernel {
    /// e to the power of −gamma times the squared distance.
    Rbf { gamma: f64 },
    /// 1 for the nearest few, the row itself among them, else 0.
    Nearest { count: usize },
}

/// How labels run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Method {
    /// Known labels stay.
    Propagation,
    /// A row believes its neighbours by `alpha`, and what it was told by the rest.
    Spreading { alpha: f64 },
}

/// Checked parameters.
pub(super) struct Options {
    pub(super) kernel: Kernel,
    pub(super) method: Method,
    pub(super) max_iterations: i64,
    pub(super) tolerance: f64,
    memory_gb: f64,
}

impl Options {
    fn new(params: &Params, method: Method) -> Options {
        let kernel = match params.text("kernel") {
            "knn" => Kernel::Nearest { count: params.size("neighbours") },
            _ => Kernel::Rbf { gamma: params.f64("gamma") },
        };
        Options {
            kernel,
            method,
            max_iterations: params.i64("max_iterations"),
            tolerance: params.f64("tolerance"),
            memory_gb: params.f64("memory_gb"),
        }
    }

    /// Refuses rows whose graph would not fit.
    pub(super) fn check_size(&self, rows: usize, features: usize, classes: usize) -> Result<()> {
        let (n, shared) = (rows as f64, (4 * features + 16 * classes) as f64);
        let edges = match self.kernel {
            Kernel::Rbf { .. } => 8.0 * n * n,
            Kernel::Nearest { count } => 4.0 * n * count as f64,
        };
        let bytes = n * shared + edges;
        if bytes <= self.memory_gb * 1e9 {
            return Ok(());
        }
        let hint = match self.kernel {
            Kernel::Rbf { .. } => {
                "use kernel = \"knn\", whose graph is small, or fewer rows, or raise memory_gb"
            }
            Kernel::Nearest { .. } => "use fewer rows, or raise memory_gb",
        };
        Err(Fault::caller(format!(
            "{}: the graph of {rows} rows takes {:.1} GB, and memory_gb = {} is allowed",
            self.name(),
            bytes / 1e9,
            self.memory_gb
        ))
        .hint(hint))
    }
}

const fn kernel() -> Param {
    Param {
        name: "kernel",
        kind: ParamKind::Choice(&["rbf", "knn"]),
        default: Some("rbf"),
        help: "how much rows have to do with each other: all, the less the further apart, or the nearest few alike",
    }
}

const fn gamma() -> Param {
    Param {
        name: "gamma",
        kind: ParamKind::Float { min: 1e-12, max: 1e12 },
        default: Some("20.0"),
        help: "how fast that falls with the squared distance (rbf)",
    }
}

const fn neighbours() -> Param {
    Param {
        name: "neighbours",
        kind: ParamKind::Integer { min: 1, max: 10_000 },
        default: Some("7"),
        help: "how many of the nearest, the row itself among them (knn)",
    }
}

const fn tolerance() -> Param {
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1e12 },
        default: Some("1e-3"),
        help: "stop when an iteration changes all beliefs together by less",
    }
}

const fn memory() -> Param {
    Param {
        name: "memory_gb",
        kind: ParamKind::Float { min: 0.0, max: 1e6 },
        default: Some("2.0"),
        help: "most memory for the graph, over all workers",
    }
}

const fn iterations(default: &'static str) -> Param {
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some(default),
        help: "iterations at most",
    }
}

/// The entry of the catalogue.
pub(in crate::learners) const PROPAGATION: Entry<BuildLearner> = Entry {
    name: "label-propagation",
    summary: "Few labels run along a graph of all rows; those that are known stay",
    reference: "Zhu and Ghahramani, Learning from labeled and unlabeled data with label propagation, CMU-CALD-02-107, 2002",
    params: &[kernel(), gamma(), neighbours(), iterations("1000"), tolerance(), memory()],
    gives: &[],
    needs: super::NEEDS,
    build: |params| Ok(Box::new(Options::new(params, Method::Propagation))),
};

/// The entry of the catalogue.
pub(in crate::learners) const SPREADING: Entry<BuildLearner> = Entry {
    name: "label-spreading",
    summary: "Few labels run along a graph of all rows, evened out by how many neighbours a row has; known ones may give way",
    reference: "Zhou, Bousquet, Lal, Weston and Schölkopf, Learning with local and global consistency, NIPS 2004",
    params: &[
        kernel(),
        gamma(),
        neighbours(),
        Param {
            name: "alpha",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Some("0.2"),
            help: "how much a row believes its neighbours rather than what it was told",
        },
        iterations("30"),
        tolerance(),
        memory(),
    ],
    gives: &[],
    needs: super::NEEDS,
    build: |params| {
        let alpha = params.f64("alpha");
        Ok(Box::new(Options::new(params, Method::Spreading { alpha })))
    },
};
