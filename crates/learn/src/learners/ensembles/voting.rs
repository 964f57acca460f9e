//! Voting: several learners on the same rows, and their answers taken together: of classes the mean of the chances
//! (soft) or the share of votes (hard), of numbers the mean; each counts by its weight.

use super::crew::{Crew, Plain};
use super::graphs;
use super::member::Member;
use super::method::{Ensemble, Method};
use super::verdict::largest;
use super::views::Views;
use super::{NEEDS, TOGETHER};
use crate::learners::BuildLearner;
use crate::{Cells, Facts, Moment, Outcome, Place, Task, Work};
use starlings_core::{Entry, Graph, Model, Param, ParamKind, Result, Role, Update};
use starlings_data::{Batch, Schema, Slice};

/// The entry of the catalogue.
pub(in crate::learners) const ENTRY: Entry<BuildLearner> = Entry {
    name: "voting",
    summary: "Several learners on the same rows; their votes, mean chances or mean numbers are the answer",
    reference: "Kittler, Hatef, Duin and Matas, On combining classifiers, IEEE PAMI 20(3), 1998",
    params: &[
        Param {
            name: "members",
            kind: ParamKind::Tables,
            default: Some(
                "[{ name = \"logistic-regression\" }, { name = \"naive-bayes\" }, { name = \"decision-tree\" }]",
            ),
            help: "the learners: name and parameters of each, or model = a model file or ONNX file; and weight, how much its answer counts",
        },
        Param {
            name: "voting",
            kind: ParamKind::Choice(&["soft", "hard"]),
            default: Some("soft"),
            help: "for classes: the mean of the chances (soft), or one vote a member (hard)",
        },
        TOGETHER,
    ],
    gives: &[],
    needs: NEEDS,
    build: |params| {
        let members = Member::all("voting", &params.tables("members"))?;
        let crew = Crew::once(members, params.size("together"));
        Ok(Box::new(Ensemble(Voting { crew, hard: params.text("voting") == "hard" })))
    },
};

struct Voting {
    crew: Crew,
    hard: bool,
}

impl Voting {
    fn fits(&self) -> std::ops::Range<usize> {
        0..self.crew.fits.len()
    }
}

impl Method for Voting {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn weighs(&self) -> bool {
        self.crew.members.iter().all(|member| member.learner.weighs() || member.trained.is_some())
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let mut model = Model::new();
        let schemas = self.crew.show(&facts.schema, &mut model)?;
        let schema = |fit: usize| schemas[self.crew.fits[fit].member].clone();
        self.crew.init((facts, place), &schema, &mut model)?;
        model.set("outputs", outputs(facts));
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let one = alone(batch, slice);
        let mut lens = Plain { crew: &self.crew, model, batch: &one, views: Views::default() };
        self.crew.adopt(model, (&one, slice), (self.fits(), &mut lens), cells);
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let views = Views::take(work.memory, work.batch);
        let mut lens = Plain { crew: &self.crew, model: work.model, batch: work.batch, views };
        self.crew.contribute(work, self.fits(), &mut lens)?;
        lens.views.leave(work.memory);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let done = self.crew.apply(model, update, (moment, self.fits()))?;
        Ok(self.crew.outcome(model, done))
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let width = self.outputs(model);
        let mut tally = Tally::new(batch.len(), width);
        for fit in self.fits().filter(|&fit| self.crew.is_done(model, fit)) {
            let said = self.crew.said(model, fit, batch)?;
            let weight = self.crew.member(fit).weight;
            tally.add(&said, weight, self.hard && self.task() == Task::Classification);
        }
        tally.finish(self.task(), out);
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        let mut answers = Vec::new();
        for fit in self.fits() {
            let mut answer = graphs::fit(&mut graph, &self.crew, model, fit)?;
            if self.hard && self.task() == Task::Classification {
                answer = graphs::vote(&mut graph, &answer, self.outputs(model));
            }
            answers.push((answer, self.crew.member(fit).weight));
        }
        graphs::mean(&mut graph, &answers)?;
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        self.crew.describe(model, (self.fits(), schema))
    }
}

/// One shard's rows as a batch.
pub(super) fn alone<'a>(batch: &Batch<'a>, slice: &Slice) -> Batch<'a> {
    Batch { slices: vec![slice.clone()], ..batch.clone() }
}

/// How many numbers an ensemble's answer has, as a tensor.
pub(super) fn outputs(facts: &Facts) -> starlings_core::Tensor {
    let outputs = match facts.schema.classes() {
        0 => 1,
        classes => classes.max(2),
    };
    super::conversion::whole(vec![outputs as i64], Role::Weight)
}

/// Answers added up row by row.
pub(super) struct Tally {
    sums: Vec<f64>,
    width: usize,
    weight: f64,
}

impl Tally {
    pub(super) fn new(rows: usize, width: usize) -> Tally {
        Tally { sums: vec![0.0; rows * width], width, weight: 0.0 }
    }

    /// Adds a member's answers, as votes where they are to be.
    pub(super) fn add(&mut self, said: &[f64], weight: f64, votes: bool) {
        self.weight += weight;
        if !votes {
            self.sums.iter_mut().zip(said).for_each(|(sum, said)| *sum += weight * said);
            return;
        }
        for (sums, said) in self.sums.chunks_mut(self.width).zip(said.chunks(self.width)) {
            sums[largest(said)] += weight;
        }
    }

    /// The means; where nobody has said anything all classes are alike.
    pub(super) fn finish(self, task: Task, out: &mut Vec<f64>) {
        match (self.weight > 0.0, task) {
            (true, _) => out.extend(self.sums.iter().map(|sum| sum / self.weight)),
            (false, Task::Classification) => {
                out.extend(self.sums.iter().map(|_| 1.0 / self.width as f64));
            }
            (false, _) => out.extend(self.sums),
        }
    }
}
