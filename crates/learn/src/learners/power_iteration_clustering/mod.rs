//! Power iteration clustering (Lin and Cohen, ICML 2010): nodes of a graph get a number each, repeatedly replaced by
//! the mean of their neighbours' numbers weighted by similarity. Long before all become equal, those of one cluster
//! have: the numbers, an approximation of a combination of the leading eigenvectors, are clustered on a line
//! (`line.rs`). An iteration is one exchange of a number for each node.
//!
//! Rows are edges, as in Spark: source, destination, and as the label their similarity. An edge counts in both
//! directions, edges given twice add up, and an edge to itself counts once.

mod line;
mod nodes;

use super::BuildLearner;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use nodes::Edges;
use starlings_core::{
    Ability, Block, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params,
    Result, Rng, Role, Tensor, Update, Values,
};
use starlings_data::{Batch, Encoding, LabelNeed};
use std::collections::BTreeMap;

/// Power iteration clustering in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "power-iteration-clustering",
    summary: "Clusters of the nodes of a graph, whose rows are edges with similarities",
    reference: "Lin, Cohen, Power iteration clustering, ICML 2010",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(PowerIterationClustering::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "k",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("2"),
        help: "how many clusters",
    },
    Param {
        name: "start",
        kind: ParamKind::Choice(&["random", "degree"]),
        default: Some("random"),
        help: "the nodes' first numbers: drawn, or their share of all similarities",
    },
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("20"),
        help: "iterations at most, unless [train] epochs says otherwise",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1e6 },
        default: Some("1e-5"),
        help: "done when, from one iteration to the next, no number's change changes by more than this over the number of nodes",
    },
];

/// Power iteration clustering.
struct PowerIterationClustering {
    k: usize,
    by_degree: bool,
    iterations_max: u64,
    tolerance: f64,
}

impl PowerIterationClustering {
    fn new(params: &Params) -> PowerIterationClustering {
        PowerIterationClustering {
            k: params.size("k"),
            by_degree: params.text("start") == "degree",
            iterations_max: params.size("max_iterations") as u64,
            tolerance: params.f64("tolerance"),
        }
    }

    /// The first numbers, which add up to one.
    fn first(&self, model: &mut Model, degrees: &[f64], seed: u64) {
        let total: f64 = degrees.iter().sum();
        let mut numbers: Vec<f64> = match self.by_degree {
            true => degrees.to_vec(),
            false => {
                let mut rng = Rng::named(seed, "power iteration", &[]);
                degrees.iter().map(|_| rng.uniform()).collect()
            }
        };
        let sum = if self.by_degree { total } else { numbers.iter().sum() };
        numbers.iter_mut().for_each(|number| *number /= sum);
        *model.f64_mut("embedding") = numbers;
    }

    /// Replaces the numbers, and says whether they have come to rest within the clusters.
    fn iterate(&self, model: &mut Model, sums: &[f64]) -> bool {
        let nodes = sums.len() as f64;
        let degrees = model.f64("degrees").to_vec();
        let means = sums.iter().zip(&degrees).map(|(sum, d)| if *d > 0.0 { sum / d } else { 0.0 });
        let mut numbers: Vec<f64> = means.collect();
        let total: f64 = numbers.iter().map(|number| number.abs()).sum();
        numbers.iter_mut().for_each(|number| *number /= total.max(f64::MIN_POSITIVE));
        let before = model.f64("embedding").iter();
        let changes: Vec<f64> =
            numbers.iter().zip(before).map(|(new, old)| (new - old).abs()).collect();
        let pairs = changes.iter().zip(model.f64("changes"));
        let acceleration = pairs.fold(0.0f64, |most, (new, old)| most.max((new - old).abs()));
        *model.f64_mut("embedding") = numbers;
        *model.f64_mut("changes") = changes;
        acceleration <= self.tolerance / nodes
    }

    /// Clusters the numbers on the line. Nodes without any similarity are in the first cluster.
    fn cluster(&self, model: &mut Model) {
        let (clusters, centres) = line::cluster(model.f64("embedding"), self.k);
        let shape = vec![clusters.len()];
        let values = Values::I64(clusters);
        model.set("clusters", Tensor { shape, values, role: Role::Weight });
        model.set("centres", Tensor::of(&[centres.len()], centres, Role::Weight));
    }
}

impl Learner for PowerIterationClustering {
    fn task(&self) -> Task {
        Task::Clustering
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn encoding(&self) -> Encoding {
        Encoding::Identity
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Number
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let (sources, targets, count) = nodes::numbered(&facts.schema)?;
        if count < self.k {
            return Err(Fault::caller(format!(
                "{} clusters cannot be made of {count} nodes",
                self.k
            ))
            .hint(format!("set k to {count} or less")));
        }
        let integers = |numbers: Vec<i64>, role| Tensor {
            shape: vec![numbers.len()],
            values: Values::I64(numbers),
            role,
        };
        let iterations = facts.epochs.unwrap_or(self.iterations_max).max(1) as i64;
        let mut model = Model::new();
        model.set("sources", integers(sources, Role::Weight));
        model.set("targets", integers(targets, Role::Weight));
        model.set("clusters", Tensor::zeros(Kind::I64, &[count], Role::Weight));
        model.set("centres", Tensor::zeros(Kind::F64, &[self.k], Role::Weight));
        model.set("embedding", Tensor::zeros(Kind::F64, &[count], Role::Weight));
        model.set("degrees", Tensor::zeros(Kind::F64, &[count], Role::State));
        model.set("changes", Tensor::zeros(Kind::F64, &[count], Role::State));
        model.set("progress", integers(vec![-1, iterations], Role::State));
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let edges = Edges::of(work.model, work.batch)?;
        let mut sums = vec![0.0; work.model.f64("degrees").len()];
        if work.model.i64("progress")[0] < 0 {
            edges.add(|_| 1.0, &mut sums);
        } else {
            let numbers = work.model.f64("embedding");
            edges.add(|node| numbers[node], &mut sums);
        }
        work.outbox.emit(Block::dense("sums", sums));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let sums = update.f64("sums");
        let &[iterations, iterations_max] = model.i64("progress") else {
            panic!("'progress' has two numbers");
        };
        if !sums.iter().all(|sum| sum.is_finite()) {
            return Err(Fault::caller("power-iteration-clustering: similarities are too large")
                .hint("divide them by the largest"));
        }
        model.i64_mut("progress")[0] += 1;
        if iterations < 0 {
            if sums.iter().sum::<f64>() <= 0.0 {
                return Err(Fault::caller("power-iteration-clustering: no edge has a similarity"));
            }
            *model.f64_mut("degrees") = sums.to_vec();
            self.first(model, sums, moment.seed);
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        let rests = self.iterate(model, sums);
        let done = rests || iterations + 1 >= iterations_max;
        if done {
            self.cluster(model);
        }
        Ok(Outcome { objective: None, done, iterations: Some(iterations as u64 + 1) })
    }

    /// For each cluster, the similarities that end in it and those that leave it.
    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let clusters = work.model.i64("clusters");
        let mut sums = vec![0.0; 2 * self.k];
        for (a, b, similarity) in Edges::of(work.model, work.batch)?.iter() {
            let (of_a, of_b) = (clusters[a] as usize, clusters[b] as usize);
            sums[2 * of_a] += similarity;
            if a != b {
                sums[2 * of_b] += similarity;
            }
            if of_a != of_b {
                sums[2 * of_a + 1] += similarity;
                sums[2 * of_b + 1] += similarity;
            }
        }
        Ok(sums)
    }

    /// The objective is the normalised cut (Shi and Malik, 2000): the share of each cluster's similarities that leave it,
    /// summed.
    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let share = |pair: &[f64]| if pair[0] > 0.0 { pair[1] / pair[0] } else { 0.0 };
        let cut: f64 = sums.chunks_exact(2).map(share).sum();
        let metrics = BTreeMap::from([("normalised_cut".to_string(), cut)]);
        Grade { objective: cut, metrics }
    }

    fn outputs(&self, _: &Model) -> usize {
        2
    }

    /// The cluster of a row's source, and the squared distance of its number to the cluster's mean.
    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let answers = answers(model);
        for source in nodes::sources(model, batch)? {
            out.extend(answers[source]);
        }
        Ok(())
    }

    /// A table: one row for each code of the source column.
    fn graph(&self, model: &Model) -> Option<Graph> {
        let (answers, sources) = (answers(model), model.i64("sources"));
        let count = sources.len();
        let mut graph = Graph::new();
        let codes = graph.constant("codes", &[count], (0..count).map(|code| code as f64).collect());
        let rows = sources.iter().flat_map(|&node| answers[node as usize]).collect();
        let table = graph.constant("table", &[count, 2], rows);
        let source = graph.node(Op::Columns(vec![0]), &[FEATURES]);
        let which = graph.node(Op::Equal, &[&source, &codes]);
        graph.node(Op::MatMul, &[&which, &table]);
        Some(graph)
    }
}

/// The prediction for each node.
fn answers(model: &Model) -> Vec<[f64; 2]> {
    let (clusters, centres) = (model.i64("clusters"), model.f64("centres"));
    let one = |(&cluster, number): (&i64, &f64)| {
        [cluster as f64, (number - centres[cluster as usize]).powi(2)]
    };
    clusters.iter().zip(model.f64("embedding")).map(one).collect()
}
