//! A bucket of models: several learners are tried, each is judged on rows that it did not see (cross-validation, Stone
//! 1974, or rows held out), and the best is trained on all rows and kept.

use super::conversion::{Conversion, whole};
use super::crew::{Crew, Fit, Lens};
use super::folds::{Folds, rows_of};
use super::graphs;
use super::member::Member;
use super::method::{Ensemble, Method};
use super::parts;
use super::verdict::{self, SUMS};
use super::views::{View, Views};
use super::voting::{Tally, alone, outputs};
use super::{FOLDS, NEEDS, SHUFFLE, TOGETHER};
use crate::learners::BuildLearner;
use crate::{Cells, Facts, Grade, Moment, Outcome, Place, Task, Work, by_shard};
use starlings_core::{
    Block, Entry, Fault, Graph, Model, Param, ParamKind, Params, Result, Role, Tensor, Update,
};
use starlings_data::{Batch, Schema, Slice};
use std::ops::Range;

/// The entry of the catalogue.
pub(in crate::learners) const ENTRY: Entry<BuildLearner> = Entry {
    name: "bucket",
    summary: "Several learners are tried, and the best by cross-validation or on rows held out is kept",
    reference: "Stone, Cross-validatory choice, JRSS B 36(2), 1974; Džeroski and Ženko, Is combining classifiers better \
                than selecting the best one?, Machine Learning 54, 2004",
    params: &[
        Param {
            name: "members",
            kind: ParamKind::Tables,
            default: Some(
                "[{ name = \"logistic-regression\" }, { name = \"naive-bayes\" }, { name = \"decision-tree\" }]",
            ),
            help: "the learners: name and parameters of each (they must weigh rows), or model = a model file or ONNX file",
        },
        Param {
            name: "metric",
            kind: ParamKind::Choice(&["auto", "log_loss", "accuracy", "rmse", "mae"]),
            default: Some("auto"),
            help: "by what the best is chosen; auto: log_loss for classes, rmse for numbers",
        },
        FOLDS,
        SHUFFLE,
        Param {
            name: "holdout",
            kind: ParamKind::Float { min: 0.0, max: 0.9 },
            default: Some("0.0"),
            help: "share of the rows held out to judge members, in place of cross-validation; 0: cross-validation",
        },
        TOGETHER,
    ],
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Ensemble(Bucket::new(params)?))),
};

struct Bucket {
    crew: Crew,
    folds: Folds,
    metric: &'static str,
}

/// What a step does.
const TRY: i64 = 0;
const JUDGE: i64 = 1;
const KEEP: i64 = 2;

impl Bucket {
    fn new(params: &Params) -> Result<Bucket> {
        let members = Member::all_alike("bucket", &params.tables("members"))?;
        for member in &members {
            member.must_be_told("bucket")?;
            member.must_weigh("bucket", "members are judged on rows that they do not see")?;
        }
        let task = members[0].learner.task();
        let classes = task == Task::Classification;
        let metric = match (params.text("metric"), classes) {
            ("auto" | "log_loss", true) => "log_loss",
            ("accuracy", true) => "accuracy",
            ("auto" | "rmse", false) => "rmse",
            ("mae", false) => "mae",
            (other, _) => {
                let word = super::member::word(task);
                return Err(Fault::caller(format!("bucket: metric = {other} is not for {word}"))
                    .hint("log_loss and accuracy judge classes, rmse and mae judge numbers"));
            }
        };
        let folds = match params.f64("holdout") {
            share if share > 0.0 => Folds::Held { share },
            _ => Folds::Cross { count: params.size("folds"), shuffle: params.flag("shuffle") },
        };
        let count = folds.count();
        // Folds within folds must not be the same rows, so what is trained on folds has a seed of its own.
        let within = (0..members.len() * count)
            .map(|fit| Fit { member: fit / count, seed: Some(fit as u64) });
        let all = (0..members.len()).map(|member| Fit { member, seed: None });
        let fits = within.chain(all).collect();
        let crew = Crew { members, fits, together: params.size("together") };
        Ok(Bucket { crew, folds, metric })
    }

    fn tried(&self) -> Range<usize> {
        0..self.crew.members.len() * self.folds.count()
    }

    fn chosen(&self, model: &Model) -> Option<usize> {
        usize::try_from(model.i64("chosen")[0]).ok()
    }

    /// The fit of the best on all rows.
    fn kept(&self, model: &Model) -> Option<usize> {
        self.chosen(model).map(|member| self.tried().end + member)
    }

    /// The fits that the next step is of.
    fn range(&self, model: &Model) -> Range<usize> {
        self.kept(model).map_or(self.tried(), |fit| fit..fit + 1)
    }

    fn lens<'a>(&'a self, (model, batch): (&'a Model, &'a Batch<'a>), seed: u64) -> Tried<'a> {
        Tried { bucket: self, model, batch, seed, views: Views::default() }
    }

    /// What members say of the rows that they did not see, judged.
    fn judge(&self, work: &mut Work<'_>) -> Result<()> {
        let (model, batch, task) = (work.model, work.batch, self.task());
        let width = self.outputs(model);
        let members = self.crew.members.len();
        let shards = model.i64("bucket")[1] as u32;
        let rows = by_shard::sums(batch, (shards, members * SUMS), |slice, sums| {
            let one = alone(batch, slice);
            for (member, sums) in sums.chunks_exact_mut(SUMS).enumerate() {
                for fold in 0..self.folds.count() {
                    let (rows, _) = rows_of((self.folds, work.moment.seed), &one, fold);
                    // A model that was trained elsewhere has not seen any fold.
                    let fit = match self.crew.members[member].trained {
                        Some(_) => self.tried().end + member,
                        None => member * self.folds.count() + fold,
                    };
                    let said = self.crew.said(model, fit, &rows)?;
                    let judged = verdict::judge_batch(task, &rows, &said, width);
                    sums.iter_mut().zip(judged).for_each(|(sum, part)| *sum += part);
                }
            }
            Ok(())
        })?;
        work.outbox.emit(Block::rows("judged", rows));
        Ok(())
    }

    /// Chooses the best and forgets the others.
    fn choose(&self, model: &mut Model, update: &Update) -> Result<()> {
        let sums = update.rows("judged").map(by_shard::add_up).unwrap_or_default();
        if sums.get(1).is_none_or(|weight| *weight <= 0.0) {
            return Err(Fault::caller("bucket: no row is left to judge the members on")
                .hint("hold out more, or give more rows"));
        }
        let score = |sums: &[f64]| verdict::metrics(self.task(), sums, "").0[self.metric];
        let scores: Vec<f64> = sums.chunks_exact(SUMS).map(score).collect();
        let sign = if self.metric == "accuracy" { -1.0 } else { 1.0 };
        let best = (1..scores.len()).fold(0, |best, member| {
            if sign * scores[member] < sign * scores[best] { member } else { best }
        });
        model.set("scores", Tensor::of(&[scores.len()], scores, Role::Weight));
        model.i64_mut("chosen")[0] = best as i64;
        let kept = self.tried().end + best;
        for fit in (0..self.crew.fits.len()).filter(|&fit| fit != kept) {
            parts::drop_all(model, &parts::prefix(fit));
        }
        Ok(())
    }
}

/// The rows as the fits see them.
struct Tried<'a> {
    bucket: &'a Bucket,
    model: &'a Model,
    batch: &'a Batch<'a>,
    seed: u64,
    views: Views,
}

impl Lens for Tried<'_> {
    fn look(&mut self, fit: usize) -> Option<&View> {
        let bucket = self.bucket;
        let name = format!("view{}", bucket.crew.fits[fit].member);
        let converted = Conversion::load(&name, self.model).is_some();
        if fit >= bucket.tried().end {
            if !converted {
                return None;
            }
            let view = self.views.converted(&name, self.model, self.batch);
            view.reset();
            return Some(view);
        }
        let name = if converted { name } else { "rows".to_string() };
        let view = self.views.converted(&name, self.model, self.batch);
        let (folds, seed, own) = (bucket.folds, self.seed, fit % bucket.folds.count());
        view.weigh(|row| f32::from(u8::from(folds.of(seed, row) != own)));
        Some(view)
    }
}

impl Method for Bucket {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let mut model = Model::new();
        let schemas = self.crew.show(&facts.schema, &mut model)?;
        let schema = |fit: usize| schemas[self.crew.fits[fit].member].clone();
        self.crew.init((facts, place), &schema, &mut model)?;
        model.set("outputs", outputs(facts));
        model.set("chosen", whole(vec![-1], Role::Weight));
        model.set("scores", Tensor::of(&[0], vec![], Role::Weight));
        let at = vec![TRY, i64::from(facts.shards), facts.seed as i64];
        model.set("bucket", whole(at, Role::State));
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let at = model.i64("bucket");
        if at[0] == JUDGE {
            return;
        }
        let one = alone(batch, slice);
        let mut lens = self.lens((model, &one), at[2] as u64);
        self.crew.adopt(model, (&one, slice), (self.range(model), &mut lens), cells);
    }

    fn first_whole(&self) -> usize {
        self.tried().end
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        if work.model.i64("bucket")[0] == JUDGE {
            return self.judge(work);
        }
        let mut lens = self.lens((work.model, work.batch), work.moment.seed);
        lens.views = Views::take(work.memory, work.batch);
        self.crew.contribute(work, self.range(work.model), &mut lens)?;
        lens.views.leave(work.memory);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let stage = model.i64("bucket")[0];
        if stage == JUDGE {
            self.choose(model, update)?;
            model.i64_mut("bucket")[0] = KEEP;
            return Ok(self.crew.outcome(model, false));
        }
        let range = self.range(model);
        let through = self.crew.apply(model, update, (moment, range))?;
        if through && stage == TRY {
            model.i64_mut("bucket")[0] = JUDGE;
        }
        Ok(self.crew.outcome(model, through && stage == KEEP))
    }

    fn grade(&self, model: &Model, sums: &[f64]) -> Grade {
        let mut grade = verdict::grade(self.task(), sums);
        let how = match self.folds {
            Folds::Cross { .. } => "cross_validated",
            Folds::Held { .. } => "held_out",
        };
        let scores = model.f64("scores");
        for (number, (score, member)) in scores.iter().zip(&self.crew.members).enumerate() {
            let name = format!("{how}_{}_{number}_{}", self.metric, member.name);
            grade.metrics.insert(name, *score);
        }
        if let Some(score) = self.chosen(model).and_then(|chosen| scores.get(chosen)) {
            grade.metrics.insert(format!("{how}_{}", self.metric), *score);
        }
        grade
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        match self.kept(model).filter(|&fit| self.crew.is_done(model, fit)) {
            Some(fit) => out.extend(self.crew.said(model, fit, batch)?),
            None => Tally::new(batch.len(), self.outputs(model)).finish(self.task(), out),
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        graphs::fit(&mut graph, &self.crew, model, self.kept(model)?)?;
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        let mut text = format!("member  {}\n", self.metric);
        let chosen = self.chosen(model);
        for (number, score) in model.f64("scores").iter().enumerate() {
            let name = &self.crew.members[number].name;
            let mark = if chosen == Some(number) { "  kept" } else { "" };
            text.push_str(&format!("{number} {name}  {score:.6}{mark}\n"));
        }
        let kept = self.kept(model)?;
        Some(text + &self.crew.describe(model, (kept..kept + 1, schema))?)
    }
}
