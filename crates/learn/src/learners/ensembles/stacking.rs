//! Stacked generalisation (Wolpert, 1992): a final learner that learns from what the members say of each row. What it
//! learns from must be honest, so a row is told by members that did not see it: each member is trained once for every
//! fold of the rows, without that fold, and once on all rows, which is the one that is asked later.

use super::conversion::Conversion;
use super::crew::{Crew, Fit, Lens};
use super::folds::{Folds, rows_of};
use super::graphs;
use super::member::{self, Member};
use super::method::{Ensemble, Method};
use super::parts;
use super::views::{View, Views};
use super::voting::{alone, outputs};
use super::{FOLDS, NEEDS, SHUFFLE, TOGETHER};
use crate::learners::BuildLearner;
use crate::{Cells, Facts, Moment, Outcome, Place, Task, Work};
use starlings_core::{
    Entry, FEATURES, Graph, Model, Op, Param, ParamKind, Params, Result, Role, Update,
};
use starlings_data::{Batch, Column, ColumnKind, Encoding, Features, Row, Schema, Slice};
use std::ops::Range;

/// The entry of the catalogue.
pub(in crate::learners) const ENTRY: Entry<BuildLearner> = Entry {
    name: "stacking",
    summary: "A final learner that learns from what members say of rows they did not see",
    reference: "Wolpert, Stacked generalization, Neural Networks 5(2), 1992",
    params: &[
        Param {
            name: "members",
            kind: ParamKind::Tables,
            default: Some("[{ name = \"naive-bayes\" }, { name = \"decision-tree\" }]"),
            help: "the learners: name and parameters of each (they must weigh rows), or model = a model file or ONNX file",
        },
        Param {
            name: "final",
            kind: ParamKind::Table,
            default: Some("{}"),
            help: "the final learner; logistic-regression for classes and ridge for numbers if not given",
        },
        FOLDS,
        SHUFFLE,
        Param {
            name: "passthrough",
            kind: ParamKind::Flag,
            default: Some("false"),
            help: "whether the final learner sees the features too",
        },
        TOGETHER,
    ],
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Ensemble(Stacking::new(params)?))),
};

struct Stacking {
    /// The members, and behind them the final learner.
    crew: Crew,
    folds: Folds,
    passthrough: bool,
}

impl Stacking {
    fn new(params: &Params) -> Result<Stacking> {
        let mut members = Member::all_alike("stacking", &params.tables("members"))?;
        for member in &members {
            member.must_be_told("stacking")?;
            member.must_weigh("stacking", "members are trained without the rows of a fold")?;
        }
        let task = members[0].learner.task();
        let mut table = params.table("final").clone();
        if !table.contains_key("name") {
            let name = if task == Task::Classification { "logistic-regression" } else { "ridge" };
            table.insert("name".to_string(), name.into());
        }
        let last = Member::build("stacking: final", &table)?;
        last.must_answer("stacking: final", &[task])?;
        members.push(last);
        let folds = Folds::Cross { count: params.size("folds"), shuffle: params.flag("shuffle") };
        let (count, above) = (folds.count(), members.len() - 1);
        // Folds within folds must not be the same rows, so what is trained on folds has a seed of its own.
        let within =
            (0..above * count).map(|fit| Fit { member: fit / count, seed: Some(fit as u64) });
        let whole = (0..=above).map(|member| Fit { member, seed: None });
        let fits = within.chain(whole).collect();
        let crew = Crew { members, fits, together: params.size("together") };
        Ok(Stacking { crew, folds, passthrough: params.flag("passthrough") })
    }

    /// The members without the final learner.
    fn members(&self) -> usize {
        self.crew.members.len() - 1
    }

    /// The fit of a member on all rows; behind the last, that of the final learner.
    fn whole(&self, member: usize) -> usize {
        self.members() * self.folds.count() + member
    }

    /// The fits that the next step is of.
    fn layer(&self, model: &Model) -> Range<usize> {
        let first = 0..self.whole(self.members());
        match first.clone().all(|fit| self.crew.is_done(model, fit)) {
            true => first.end..first.end + 1,
            false => first,
        }
    }

    /// Numbers that the final learner reads of one member: of two classes the second's chance says all.
    fn said_width(&self, model: &Model) -> usize {
        match self.outputs(model) {
            2 => 1,
            width => width,
        }
    }

    /// What members say of a batch's rows, side by side, as rows for the final learner. `honest`: each row is told by
    /// those that did not see it.
    fn told(&self, model: &Model, batch: &Batch<'_>, honest: Option<u64>) -> Result<View> {
        let (outputs, one) = (self.outputs(model), self.said_width(model));
        let width = self.members() * one;
        let mut told = vec![0.0f32; batch.len() * width];
        for member in 0..self.members() {
            let mut write = |places: &[usize], said: &[f64]| {
                for (&row, said) in places.iter().zip(said.chunks_exact(outputs)) {
                    let into = &mut told[row * width + member * one..][..one];
                    into.iter_mut().zip(&said[outputs - one..]).for_each(|(to, x)| *to = *x as f32);
                }
            };
            match honest {
                None => {
                    let places: Vec<usize> = (0..batch.len()).collect();
                    write(&places, &self.crew.said(model, self.whole(member), batch)?);
                }
                Some(seed) => {
                    for fold in 0..self.folds.count() {
                        // A model that was trained elsewhere has not seen any fold.
                        let fit = match self.crew.members[member].trained {
                            Some(_) => self.whole(member),
                            None => member * self.folds.count() + fold,
                        };
                        let (rows, places) = rows_of((self.folds, seed), batch, fold);
                        write(&places, &self.crew.said(model, fit, &rows)?);
                    }
                }
            }
        }
        Ok(View::with(batch, self.beside(model, batch, (told, width))))
    }

    /// The features beside what was told, where the final learner sees them.
    fn beside(
        &self,
        model: &Model,
        batch: &Batch<'_>,
        (told, width): (Vec<f32>, usize),
    ) -> Features {
        if !self.passthrough {
            return Features::Dense { width, values: told };
        }
        let conversion = Conversion::load(&format!("view{}", self.members()), model);
        let own = View::of(batch, conversion.as_ref());
        let seen = own.table.width();
        let mut values = Vec::with_capacity(batch.len() * (width + seen));
        for row in 0..batch.len() {
            values.extend_from_slice(&told[row * width..(row + 1) * width]);
            match own.table.row(row) {
                Row::Dense(numbers) => values.extend_from_slice(numbers),
                Row::Sparse(entries, numbers) => {
                    let from = values.len();
                    values.resize(from + seen, 0.0);
                    let entries = entries.iter().zip(numbers);
                    entries.for_each(|(&at, &x)| values[from + at as usize] = x);
                }
            }
        }
        Features::Dense { width: width + seen, values }
    }

    /// What the final learner's rows mean.
    fn schema(&self, facts: &Facts, seen: &Schema, model: &Model) -> Schema {
        let one = self.said_width(model);
        let column = |at: usize| Column {
            name: format!("{}.{}", self.crew.members[at / one].name, at),
            position: at,
            kind: ColumnKind::Numeric { mean: 0.0 },
            missing: 0,
        };
        let mut columns: Vec<Column> = (0..self.members() * one).map(column).collect();
        let mut features = columns.len();
        if self.passthrough {
            columns.extend(seen.columns.iter().cloned());
            features += seen.features;
            // Features without names leave all without.
            if seen.columns.is_empty() {
                columns.clear();
            }
        }
        let encoding = self.crew.members[self.members()].learner.encoding();
        Schema { columns, features, encoding, ..facts.schema.clone() }
    }

    fn lens<'a>(&'a self, (model, batch): (&'a Model, &'a Batch<'a>), seed: u64) -> Layers<'a> {
        Layers { stacking: self, model, batch, seed, views: Views::default() }
    }
}

/// The rows as the fits of both layers see them.
struct Layers<'a> {
    stacking: &'a Stacking,
    model: &'a Model,
    batch: &'a Batch<'a>,
    seed: u64,
    views: Views,
}

const TOLD: &str = "told";

impl Layers<'_> {
    /// Makes what the final learner reads, where that is what the step needs.
    fn prepare(&mut self) -> Result<()> {
        let stacking = self.stacking;
        if stacking.layer(self.model).start != stacking.whole(stacking.members()) {
            return Ok(());
        }
        if !self.views.has(TOLD) {
            let told = stacking.told(self.model, self.batch, Some(self.seed))?;
            self.views.get(TOLD, || told);
        }
        Ok(())
    }
}

impl Lens for Layers<'_> {
    fn look(&mut self, fit: usize) -> Option<&View> {
        let stacking = self.stacking;
        if fit == stacking.whole(stacking.members()) {
            return Some(self.views.known(TOLD));
        }
        let member = stacking.crew.fits[fit].member;
        let name = format!("view{member}");
        let name = match Conversion::load(&name, self.model) {
            Some(_) => name,
            None => "rows".to_string(),
        };
        let view = self.views.converted(&name, self.model, self.batch);
        if fit >= stacking.whole(0) {
            view.reset();
            return Some(view);
        }
        let (folds, seed, own) = (stacking.folds, self.seed, fit % stacking.folds.count());
        view.weigh(|row| f32::from(u8::from(folds.of(seed, row) != own)));
        Some(view)
    }
}

impl Method for Stacking {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn encoding(&self) -> Encoding {
        member::encoding(&self.crew.members[..self.members()])
    }

    fn weighs(&self) -> bool {
        self.crew.members[self.members()].learner.weighs()
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let mut model = Model::new();
        model.set("outputs", outputs(facts));
        model.set("seed", super::conversion::whole(vec![facts.seed as i64], Role::State));
        let mut schemas = self.crew.show(&facts.schema, &mut model)?;
        let last = self.members();
        if !self.passthrough {
            parts::drop_all(&mut model, &format!("view{last}."));
        }
        schemas[last] = self.schema(facts, &schemas[last], &model);
        let schema = |fit: usize| schemas[self.crew.fits[fit].member].clone();
        self.crew.init((facts, place), &schema, &mut model)?;
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let one = alone(batch, slice);
        let mut lens = self.lens((model, &one), model.i64("seed")[0] as u64);
        // Rows that a member refuses are refused again, and told, when they are next used.
        if lens.prepare().is_ok() {
            let range = self.layer(model);
            self.crew.adopt(model, (&one, slice), (range, &mut lens), cells);
        }
    }

    fn first_whole(&self) -> usize {
        self.whole(0)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let mut lens = self.lens((work.model, work.batch), work.moment.seed);
        lens.views = Views::take(work.memory, work.batch);
        lens.prepare()?;
        self.crew.contribute(work, self.layer(work.model), &mut lens)?;
        lens.views.leave(work.memory);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let layer = self.layer(model);
        let last = layer.start == self.whole(self.members());
        let done = self.crew.apply(model, update, (moment, layer))? && last;
        let outcome = self.crew.outcome(model, done);
        if done {
            for fit in 0..self.whole(0) {
                parts::drop_all(model, &parts::prefix(fit));
            }
        }
        Ok(outcome)
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let last = self.whole(self.members());
        if !self.crew.is_done(model, last) {
            super::voting::Tally::new(batch.len(), self.outputs(model)).finish(self.task(), out);
            return Ok(());
        }
        let told = self.told(model, batch, None)?;
        out.extend(self.crew.said_seen(model, last, &told.batch())?);
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let (outputs, one) = (self.outputs(model), self.said_width(model));
        let mut graph = Graph::new();
        let mut told = Vec::new();
        for member in 0..self.members() {
            let said = graphs::fit(&mut graph, &self.crew, model, self.whole(member))?;
            told.push(graph.node(Op::Columns((outputs - one..outputs).collect()), &[&said]));
        }
        if self.passthrough {
            let view = format!("view{}", self.members());
            told.push(match Conversion::load(&view, model) {
                None => FEATURES.to_string(),
                Some(conversion) => conversion.graph(&mut graph, &view)?,
            });
        }
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let told = graph.node(Op::Concat, &told);
        let last = self.whole(self.members());
        let prefix = parts::prefix(last);
        let own = self.crew.member(last).learner.graph(&parts::copy(model, &prefix))?;
        graphs::join(&mut graph, &prefix, own, &told)?;
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        self.crew.describe(model, (self.whole(0)..self.whole(self.members()), schema))
    }
}
