//! Bagging (Breiman, 1996): one learner trained many times, each time on its own sample of the rows, and the mean of the
//! answers. With samples of columns instead of rows it is the random subspace method (Ho, 1998), without replacement
//! pasting (Breiman, 1999).
//!
//! A sample is a number for each row: how often the sample has it. With replacement that is Poisson's law (Oza and
//! Russell, 2001), drawn from the seed, the member and the row's own number, so that samples do not depend on who
//! holds which rows. Rows that a member did not see judge it: the out-of-bag estimate.

use super::conversion::{Conversion, columns};
use super::crew::{Crew, Fit, Lens};
use super::graphs;
use super::member::Member;
use super::method::{Ensemble, Method};
use super::verdict;
use super::views::{View, Views};
use super::voting::{Tally, alone, outputs};
use super::{NEEDS, TOGETHER};
use crate::learners::BuildLearner;
use crate::trees::fixed;
use crate::{Cells, Facts, Grade, Moment, Outcome, Place, Task, Work};
use starlings_core::{Entry, Graph, Model, Param, ParamKind, Params, Result, Rng, Role, Update};
use starlings_data::{Batch, Schema, Slice};
use std::ops::Range;

/// The entry of the catalogue.
pub(in crate::learners) const ENTRY: Entry<BuildLearner> = Entry {
    name: "bagging",
    summary: "One learner on many samples of rows and columns; the mean of the answers, with out-of-bag estimate",
    reference: "Breiman, Bagging predictors, Machine Learning 24(2), 1996; Ho, The random subspace method, IEEE PAMI 1998",
    params: &[
        Param {
            name: "base",
            kind: ParamKind::Table,
            default: Some("{ name = \"decision-tree\" }"),
            help: "the learner: its name and parameters",
        },
        Param {
            name: "bags",
            kind: ParamKind::Integer { min: 1, max: 100_000 },
            default: Some("10"),
            help: "how often it is trained",
        },
        Param {
            name: "subsample",
            kind: ParamKind::Float { min: 1e-6, max: 1.0 },
            default: Some("1.0"),
            help: "size of a sample as a share of all rows",
        },
        Param {
            name: "bootstrap",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "whether rows are drawn with replacement",
        },
        Param {
            name: "column_share",
            kind: ParamKind::Float { min: 1e-6, max: 1.0 },
            default: Some("1.0"),
            help: "share of the columns that a member sees",
        },
        Param {
            name: "out_of_bag",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "whether rows are judged by the members that did not see them",
        },
        TOGETHER,
    ],
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Ensemble(Bagging::new(params)?))),
};

struct Bagging {
    crew: Crew,
    sample: Sample,
    column_share: f64,
    out_of_bag: bool,
}

/// How rows are sampled.
#[derive(Clone, Copy)]
struct Sample {
    share: f64,
    bootstrap: bool,
}

/// Of so few rows a sample may have none.
const FEW: u64 = 64;

impl Sample {
    fn is_all(self) -> bool {
        !self.bootstrap && self.share >= 1.0
    }

    /// How often a bag has a row, by the row's number.
    fn bag(self, seed: u64, bag: usize, rows: u64) -> impl Fn(u64) -> f32 {
        let key = fixed::key(seed, "bagging", &[bag as u64]);
        let times = move |row: u64| self.times(fixed::uniform(key, row));
        // Such a bag has them all: a member cannot learn from nothing.
        let empty = rows <= FEW && (0..rows).all(|row| times(row) == 0.0);
        move |row| if empty { 1.0 } else { times(row) }
    }

    fn times(self, mut chance: f64) -> f32 {
        if !self.bootstrap {
            return f32::from(u8::from(chance < self.share));
        }
        let (mut count, mut share) = (0.0, (-self.share).exp());
        while chance >= share && count < 20.0 {
            chance -= share;
            count += 1.0;
            share *= self.share / count;
        }
        count as f32
    }
}

impl Bagging {
    fn new(params: &Params) -> Result<Bagging> {
        let at = "bagging: base";
        let base = Member::build(at, params.table("base"))?;
        base.must_answer(at, &[Task::Classification, Task::Regression])?;
        let sample = Sample { share: params.f64("subsample"), bootstrap: params.flag("bootstrap") };
        if !sample.is_all() {
            base.must_weigh(at, "a sample says how often it has each row")?;
        }
        let fit = |bag: usize| Fit { member: 0, seed: Some(bag as u64) };
        let fits = (0..params.size("bags")).map(fit).collect();
        let crew = Crew { members: vec![base], fits, together: params.size("together") };
        let out_of_bag = params.flag("out_of_bag") && !sample.is_all();
        Ok(Bagging { crew, sample, column_share: params.f64("column_share"), out_of_bag })
    }

    fn fits(&self) -> Range<usize> {
        0..self.crew.fits.len()
    }

    /// Where the columns of a bag are noted; all bags that see all columns see the same.
    fn view(&self, bag: usize) -> String {
        if self.column_share < 1.0 { format!("view{bag}") } else { "view".to_string() }
    }

    fn lens<'a>(&'a self, (model, batch): (&'a Model, &'a Batch<'a>), seed: u64) -> Bags<'a> {
        Bags { bagging: self, model, batch, seed, views: Views::default() }
    }

    /// What a bag's member says of rows.
    fn said(&self, model: &Model, bag: usize, batch: &Batch<'_>) -> Result<Vec<f64>> {
        match Conversion::load(&self.view(bag), model) {
            None => self.crew.said_seen(model, bag, batch),
            Some(conversion) => {
                self.crew.said_seen(model, bag, &View::of(batch, Some(&conversion)).batch())
            }
        }
    }
}

/// The rows as the bags see them.
struct Bags<'a> {
    bagging: &'a Bagging,
    model: &'a Model,
    batch: &'a Batch<'a>,
    seed: u64,
    views: Views,
}

impl Lens for Bags<'_> {
    fn look(&mut self, fit: usize) -> Option<&View> {
        let name = self.bagging.view(fit);
        if self.bagging.sample.is_all() && self.bagging.column_share >= 1.0 {
            return None;
        }
        let bag = self.bagging.sample.bag(self.seed, fit, self.batch.rows_step);
        let view = self.views.converted(&name, self.model, self.batch);
        if !self.bagging.sample.is_all() {
            view.weigh(bag);
        }
        Some(view)
    }
}

/// The schema of some of the columns, and the features that they are.
fn some_columns(schema: &Schema, share: f64, rng: &mut Rng) -> (Schema, Vec<usize>) {
    let ranges = columns(schema);
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    rng.shuffle(&mut order);
    order.truncate(((share * ranges.len() as f64).round() as usize).max(1));
    order.sort_unstable();
    let features: Vec<usize> = order.iter().flat_map(|&column| ranges[column].clone()).collect();
    let named = if schema.columns.is_empty() { &[][..] } else { &order[..] };
    let kept = named.iter().map(|&column| schema.columns[column].clone()).collect();
    (Schema { columns: kept, features: features.len(), ..schema.clone() }, features)
}

impl Method for Bagging {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn weighs(&self) -> bool {
        self.crew.members[0].learner.weighs()
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let mut model = Model::new();
        let mut schemas = vec![facts.schema.clone()];
        if self.column_share < 1.0 {
            schemas = Vec::new();
            for bag in self.fits() {
                let mut rng = Rng::named(facts.seed, "columns of a bag", &[bag as u64]);
                let (schema, features) = some_columns(&facts.schema, self.column_share, &mut rng);
                Conversion::only(&features).save(&self.view(bag), &mut model);
                schemas.push(schema);
            }
        }
        let schema = |fit: usize| schemas.get(fit).unwrap_or(&schemas[0]).clone();
        self.crew.init((facts, place), &schema, &mut model)?;
        model.set("outputs", outputs(facts));
        model.set("seed", super::conversion::whole(vec![facts.seed as i64], Role::State));
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let one = alone(batch, slice);
        let mut lens = self.lens((model, &one), model.i64("seed")[0] as u64);
        self.crew.adopt(model, (&one, slice), (self.fits(), &mut lens), cells);
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let mut lens = self.lens((work.model, work.batch), work.moment.seed);
        lens.views = Views::take(work.memory, work.batch);
        let active = self.crew.active(work.model, self.fits());
        let wanted: Vec<String> = active.into_iter().map(|bag| self.view(bag)).collect();
        lens.views.retain(|name| wanted.iter().any(|wanted| wanted == name));
        self.crew.contribute(work, self.fits(), &mut lens)?;
        lens.views.leave(work.memory);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let done = self.crew.apply(model, update, (moment, self.fits()))?;
        Ok(self.crew.outcome(model, done))
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (model, batch, task) = (work.model, work.batch, self.task());
        let width = self.outputs(model);
        let mut all = Tally::new(batch.len(), width);
        let mut outside = vec![0.0; batch.len() * width];
        let mut judges = vec![0u32; batch.len()];
        for bag in self.fits().filter(|&bag| self.crew.is_done(model, bag)) {
            let said = self.said(model, bag, batch)?;
            all.add(&said, 1.0, false);
            if !self.out_of_bag {
                continue;
            }
            let times = self.sample.bag(work.moment.seed, bag, batch.rows_step);
            let globals = batch
                .slices
                .iter()
                .flat_map(|slice| (0..slice.len() as u64).map(|at| slice.origin + at));
            for (row, _) in globals.enumerate().filter(|(_, global)| times(*global) == 0.0) {
                judges[row] += 1;
                let sums = &mut outside[row * width..(row + 1) * width];
                sums.iter_mut().zip(&said[row * width..]).for_each(|(sum, said)| *sum += said);
            }
        }
        let mut said = Vec::new();
        all.finish(task, &mut said);
        let mut sums = verdict::judge_batch(task, batch, &said, width);
        for (said, &judges) in outside.chunks_mut(width).zip(&judges) {
            said.iter_mut().for_each(|said| *said /= f64::from(judges.max(1)));
        }
        let rows = batch.rows().zip(outside.chunks(width)).zip(&judges);
        let judged = rows
            .filter(|(_, judges)| **judges > 0)
            .map(|((row, said), _)| (said, batch.table.labels[row], batch.table.weight(row)));
        sums.extend(verdict::judge(task, judged));
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64]) -> Grade {
        let (own, outside) = sums.split_at(verdict::SUMS);
        let mut grade = verdict::grade(self.task(), own);
        if self.out_of_bag && outside[1] > 0.0 {
            grade.metrics.extend(verdict::metrics(self.task(), outside, "out_of_bag_").0);
        }
        grade
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let mut tally = Tally::new(batch.len(), self.outputs(model));
        for bag in self.fits().filter(|&bag| self.crew.is_done(model, bag)) {
            tally.add(&self.said(model, bag, batch)?, 1.0, false);
        }
        tally.finish(self.task(), out);
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        let mut answers = Vec::new();
        for bag in self.fits() {
            let view = self.view(bag);
            answers.push((graphs::seen(&mut graph, &self.crew, (model, bag), &view)?, 1.0));
        }
        graphs::mean(&mut graph, &answers)?;
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        // The names of columns would be wrong where a member sees only some.
        if self.column_share < 1.0 {
            return None;
        }
        self.crew.describe(model, (self.fits(), schema))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_has_each_row_once_in_the_mean_and_misses_a_share_of_them() {
        let sample = Sample { share: 1.0, bootstrap: true };
        let bag = sample.bag(3, 1, 20_000);
        let times: Vec<f32> = (0..20_000).map(bag).collect();
        let mean = times.iter().sum::<f32>() / 20_000.0;
        let missed = times.iter().filter(|times| **times == 0.0).count() as f64 / 20_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!((missed - (-1f64).exp()).abs() < 0.01, "{missed}");
        let pasted = Sample { share: 0.3, bootstrap: false }.bag(3, 1, 20_000);
        let kept: Vec<f32> = (0..20_000).map(pasted).collect();
        assert!(kept.iter().all(|times| *times <= 1.0));
        let share = kept.iter().sum::<f32>() / 20_000.0;
        assert!((share - 0.3).abs() < 0.01, "{share}");
    }

    #[test]
    fn bags_differ_and_none_is_empty() {
        let sample = Sample { share: 0.01, bootstrap: true };
        for bag in 0..20 {
            let times = sample.bag(1, bag, 3);
            assert!((0..3).any(|row| times(row) > 0.0));
        }
        let many = Sample { share: 1.0, bootstrap: true };
        let (one, other) = (many.bag(1, 0, 1000), many.bag(1, 1, 1000));
        assert!((0..1000).any(|row| one(row) != other(row)));
    }
}
