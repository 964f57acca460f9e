//! Latent Dirichlet allocation by collapsed Gibbs sampling (Griffiths and Steyvers, 2004), on many workers
//! as AD-LDA (Newman et al., 2009). A row is a document: how often each word occurs in it.
//!
//! The model is counts: tokens by word and topic, and by topic. Step 0 counts the topics that tokens were
//! dealt at random; each later step draws new topics for a slice of each shard's documents and sends by how
//! much the counts change. Counts add row by row, so that servers may own the words. Memory: the topic
//! of every token. It is the other half of the counts and cannot be made again from them: it is saved
//! and restored with its model. The topics before the last step are kept beside it, so that a step that
//! is computed again draws what it drew before.

mod documents;
mod fold_in;
mod gibbs;

use self::gibbs::{Counts, Priors};
use super::BuildLearner;
use crate::{
    Appetite, Cells, Facts, Grade, Learner, Moment, Needs, Outcome, Place, Rebuilds, Task, Work,
};
use starlings_core::{
    Ability, Block, Entry, Fault, Kind, Model, Param, ParamKind, Params, Result, Rng, Role, Rows,
    Step, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed, Slice};
use std::collections::BTreeMap;

const GIVES: &[Ability] = &[Ability::RowWise];
const NEEDS: &[Ability] = &[Ability::Sum, Ability::Lossless, Ability::WholeModel];

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "latent-dirichlet-allocation",
    summary: "Topics of documents by collapsed Gibbs sampling",
    reference: "Griffiths and Steyvers, Finding scientific topics, PNAS 101, 2004; Newman et al., \
                Distributed algorithms for topic models, JMLR 10, 2009",
    params: &[
        Param {
            name: "topics",
            kind: ParamKind::Integer { min: 1, max: 1 << 20 },
            default: Some("20"),
            help: "how many topics",
        },
        Param {
            name: "alpha",
            kind: ParamKind::Float { min: 1e-9, max: 1e6 },
            default: Some("0.1"),
            help: "prior on each topic in a document",
        },
        Param {
            name: "beta",
            kind: ParamKind::Float { min: 1e-9, max: 1e6 },
            default: Some("0.01"),
            help: "prior on each word in a topic",
        },
        Param {
            name: "sweeps",
            kind: ParamKind::Integer { min: 0, max: 1 << 40 },
            default: Some("100"),
            help: "sweeps over all tokens; [train] epochs, if given, counts instead",
        },
        Param {
            name: "slices",
            kind: ParamKind::Integer { min: 1, max: 1 << 20 },
            default: Some("1"),
            help: "steps in a sweep: more of them keep the counts of all workers fresher",
        },
    ],
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(TopicModel::new(params))),
};

/// Tokens by word and topic.
const WORDS: &str = "topic_words";
/// Tokens by topic: one row.
const TOTALS: &str = "topics";
/// Steps of the whole job, and its seed.
const PLAN: &str = "plan";

struct TopicModel {
    topics: usize,
    alpha: f64,
    beta: f64,
    sweeps: u64,
    slices: u64,
}

impl TopicModel {
    fn new(params: &Params) -> TopicModel {
        TopicModel {
            topics: params.size("topics"),
            alpha: params.f64("alpha"),
            beta: params.f64("beta"),
            sweeps: params.size("sweeps") as u64,
            slices: params.size("slices") as u64,
        }
    }

    fn priors(&self, model: &Model) -> Priors {
        let words = model.i64(WORDS).len() / self.topics;
        Priors { topics: self.topics, alpha: self.alpha, beta: self.beta, words }
    }

    /// One step counts the first assignment, then each slice of each sweep is a step.
    fn steps(&self, facts: &Facts) -> u64 {
        let sweeps = facts.epochs.unwrap_or(self.sweeps);
        sweeps.saturating_mul(self.slices).saturating_add(1).min(i64::MAX as u64)
    }

    /// Which documents of a shard a step sweeps.
    fn turn(&self, step: Step, documents: usize) -> std::ops::Range<usize> {
        let turn = (step.0 - 1) % self.slices;
        let cut =
            |turn: u64| (documents as u128 * u128::from(turn) / u128::from(self.slices)) as usize;
        cut(turn)..cut(turn + 1)
    }

    /// Sums of a shard: log-likelihood and number of its tokens.
    fn likelihood(&self, work: &mut Work<'_>, slice: &Slice) -> [f64; 2] {
        let (priors, table) = (self.priors(work.model), work.batch.table);
        let (counts, totals) = (work.model.i64(WORDS), work.model.i64(TOTALS));
        let topics = remembered(work.memory.shard(slice.shard), "topics");
        let mut sums = [0.0; 2];
        for (row, first, last) in documents::placed(table, slice) {
            let length = (last - first) as f64;
            let mut shares = vec![self.alpha; self.topics];
            topics[first..last].iter().for_each(|&topic| shares[topic as usize] += 1.0);
            let mass = length + self.alpha * self.topics as f64;
            documents::each_word(table.row(row), |word, count| {
                let counts = &counts[word * self.topics..][..self.topics];
                let terms = shares.iter().zip(counts).zip(totals);
                let likelihood: f64 = terms.map(|((s, &c), &t)| s * priors.share(c, t)).sum();
                sums[0] += count as f64 * (likelihood / mass).ln();
            });
            sums[1] += length;
        }
        sums
    }
}

impl Learner for TopicModel {
    fn task(&self) -> Task {
        Task::Topics
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn steps_max(&self, facts: &Facts) -> Option<u64> {
        Some(self.steps(facts))
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let words = facts.schema.features;
        if words == 0 || u32::try_from(words).is_err() {
            return Err(Fault::caller(format!("documents of {words} words have no topics")));
        }
        let steps = self.steps(facts);
        let mut plan = Tensor::zeros(Kind::I64, &[1, 2], Role::State);
        plan.values = Values::I64(vec![steps as i64, facts.seed as i64]);
        let mut model = Model::new();
        model.set(WORDS, Tensor::zeros(Kind::I64, &[words, self.topics], Role::Weight));
        model.set(TOTALS, Tensor::zeros(Kind::I64, &[1, self.topics], Role::Weight));
        model.set(PLAN, plan);
        Ok(model)
    }

    fn needs(&self, _: &Model, batch: &Batch<'_>) -> Needs {
        let rows = [(WORDS, documents::vocabulary(batch)), (TOTALS, vec![0])];
        Needs::Rows(rows.map(|(name, rows)| (name.to_string(), rows)).into())
    }

    /// Before training tokens get topics at random; rows that a trained model has not seen get those that
    /// fit it.
    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let seed = model.get(PLAN).and_then(|plan| plan.values.as_i64()).map_or(0, |plan| plan[1]);
        let mut rng = Rng::named(seed as u64, "initial topics", &[u64::from(slice.shard.0)]);
        let fresh = model.i64(TOTALS).iter().all(|&total| total == 0);
        let (priors, mut topics) = (self.priors(model), Vec::new());
        for row in slice.rows().map(|row| batch.table.row(row)) {
            if fresh {
                let length = documents::length(row);
                topics.extend((0..length).map(|_| rng.below(self.topics as u64) as i64));
            } else {
                fold_in::assign(priors, model, row, &mut rng, &mut topics);
            }
        }
        cells.insert("topics".to_string(), Values::I64(topics));
    }

    /// Topics were drawn at random, sweep after sweep: the counts in the model fit no others.
    fn rebuilds(&self) -> Rebuilds {
        Rebuilds::Never
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let (model, batch, step) = (work.model, work.batch, work.moment.step);
        let words = documents::vocabulary(batch);
        let mut counts =
            Counts::new(self.priors(model), words, model.i64(WORDS), model.i64(TOTALS));
        if step.0 == 0 {
            documents::check(batch)?;
            for slice in &batch.slices {
                let topics = remembered(work.memory.shard(slice.shard), "topics");
                counts.count(batch.table, slice, topics);
            }
        } else {
            for slice in &batch.slices {
                let topics = rewound(work.memory.shard(slice.shard), step);
                let placed: Vec<_> = documents::placed(batch.table, slice).collect();
                let turn = &placed[self.turn(step, placed.len())];
                let mut rng = work.moment.shard_rng("topics", slice.shard);
                counts.sweep(batch.table, turn, topics, &mut rng);
            }
        }
        let (words, totals) = counts.into_rows();
        work.outbox.emit(Block::rows(WORDS, words));
        work.outbox.emit(Block::rows(TOTALS, totals));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        for name in [WORDS, TOTALS] {
            if let Some(rows) = update.rows(name) {
                add_rows(model.i64_mut(name), rows);
            }
        }
        let step = moment.step.0;
        let done = step + 1 >= model.i64(PLAN)[0] as u64;
        Ok(Outcome { objective: None, done, iterations: Some(step / self.slices) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let mut sums = vec![0.0; 2];
        for slice in &work.batch.slices {
            let part = self.likelihood(work, slice);
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        }
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let objective = -sums[0] / sums[1].max(1.0);
        let metrics = [("perplexity", objective.exp()), ("log_likelihood", sums[0])];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective, metrics: BTreeMap::from(metrics) }
    }

    fn outputs(&self, _: &Model) -> usize {
        self.topics
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        documents::check(batch)?;
        let priors = self.priors(model);
        batch
            .rows()
            .for_each(|row| out.extend(fold_in::shares(priors, model, batch.table.row(row))));
        Ok(())
    }
}

fn add_rows(tensor: &mut [i64], rows: &Rows) {
    let (width, values) = (rows.width as usize, rows.values.as_i64().unwrap_or(&[]));
    for (&row, changes) in rows.index.iter().zip(values.chunks_exact(width)) {
        let counts = &mut tensor[row as usize * width..][..width];
        counts.iter_mut().zip(changes).for_each(|(count, change)| *count += change);
    }
}

fn remembered<'a>(cells: &'a mut Cells, name: &str) -> &'a mut Vec<i64> {
    match cells.get_mut(name) {
        Some(Values::I64(values)) => values,
        _ => panic!("the memory has no i64 cell '{name}'"),
    }
}

/// The topics as they were before `step`, however often it is computed.
fn rewound(cells: &mut Cells, step: Step) -> &mut Vec<i64> {
    let this = Values::I64(vec![step.0 as i64]);
    if cells.get("step") == Some(&this) {
        let before = remembered(cells, "before").clone();
        *remembered(cells, "topics") = before;
    } else {
        let before = remembered(cells, "topics").clone();
        cells.insert("before".to_string(), Values::I64(before));
        cells.insert("step".to_string(), this);
    }
    remembered(cells, "topics")
}
