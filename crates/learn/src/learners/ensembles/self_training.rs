//! Self-training (Yarowsky, 1995; pseudo-labels: Lee, 2013): few rows have labels, many have none. A classifier is
//! trained on those that have one, gives one to the rows of which it is surest, and is trained anew on both, until it is
//! sure of no more.
//!
//! The labels given are remembered by shard. They cannot be made again from the model, whose earlier selves gave them,
//! so a worker's memory comes from a checkpoint when it is lost.

use super::NEEDS;
use super::conversion::whole;
use super::crew::{Crew, Same};
use super::graphs;
use super::member::Member;
use super::method::{Ensemble, Method};
use super::parts;
use super::verdict::{self, largest};
use super::views::{View, Views};
use super::voting::{Tally, alone, outputs};
use crate::learners::BuildLearner;
use crate::{Cells, Facts, Grade, Moment, Outcome, Place, Rebuilds, Task, Work};
use starlings_core::{
    Block, Entry, Graph, Kind, Model, Param, ParamKind, Params, Result, Role, Rows, Tensor, Update,
    Values,
};
use starlings_data::{Batch, LabelNeed, Picked, Schema, Slice};

/// The entry of the catalogue.
pub(in crate::learners) const ENTRY: Entry<BuildLearner> = Entry {
    name: "self-training",
    summary: "A classifier that labels the rows without labels it is sure of, and learns from them too",
    reference: "Yarowsky, Unsupervised word sense disambiguation, ACL 1995; Lee, Pseudo-label, ICML workshop 2013",
    params: &[
        Param {
            name: "base",
            kind: ParamKind::Table,
            default: Some("{ name = \"logistic-regression\" }"),
            help: "the classifier: its name and parameters; it must weigh rows",
        },
        Param {
            name: "criterion",
            kind: ParamKind::Choice(&["threshold", "k-best"]),
            default: Some("threshold"),
            help: "which rows are given a label: those surer than `threshold`, or the `k_best` surest",
        },
        Param {
            name: "threshold",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Some("0.75"),
            help: "the chance that a class must exceed",
        },
        Param {
            name: "k_best",
            kind: ParamKind::Integer { min: 1, max: 100_000 },
            default: Some("10"),
            help: "rows that are given a label in each round",
        },
        Param {
            name: "max_iterations",
            kind: ParamKind::Integer { min: 0, max: 1_000_000 },
            default: Some("10"),
            help: "rounds at most; 0 for no limit",
        },
    ],
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Ensemble(SelfTraining::new(params)?))),
};

/// Which rows are given a label.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rule {
    Threshold(f64),
    Best(usize),
}

struct SelfTraining {
    crew: Crew,
    rule: Rule,
    rounds_max: i64,
}

/// What a step does: trains the classifier, ranks the rows without labels, gives labels, trains for the last time.
const TRAIN: i64 = 0;
const RANK: i64 = 1;
const LABEL: i64 = 2;
const LAST: i64 = 3;

/// What is remembered of a row: its label, and the round in which it was given (0: by the job, −1: not yet).
const LABELS: &str = "labels";
const GIVEN: &str = "given";

/// Where the classifier begins.
const START: &str = "start.";

impl SelfTraining {
    fn new(params: &Params) -> Result<SelfTraining> {
        let at = "self-training: base";
        let base = Member::build(at, params.table("base"))?;
        base.must_answer(at, &[Task::Classification])?;
        base.must_be_told(at)?;
        base.must_weigh(at, "rows without a label are to weigh nothing")?;
        let rule = match params.text("criterion") {
            "k-best" => Rule::Best(params.size("k_best")),
            _ => Rule::Threshold(params.f64("threshold")),
        };
        let rounds_max = params.i64("max_iterations");
        Ok(SelfTraining { crew: Crew::once(vec![base], 1), rule, rounds_max })
    }

    /// How sure the classifier is of the rows of a shard that have no label before this round: place, class, chance.
    fn sure(
        &self,
        model: &Model,
        (batch, slice): (&Batch<'_>, &Slice),
        (given, round): (&[i64], i64),
    ) -> Result<Vec<(usize, usize, f64)>> {
        let open = |at: &usize| {
            let row = slice.start + at;
            (given[*at] < 0 || given[*at] == round) && batch.table.weight(row) > 0.0
        };
        let places: Vec<usize> = (0..slice.len()).filter(open).collect();
        let picked = Picked::Some(places.iter().map(|&at| at as u32).collect());
        let rows = Batch { slices: vec![Slice { picked, ..slice.clone() }], ..batch.clone() };
        let said = self.crew.said(model, 0, &rows)?;
        let width = self.outputs(model);
        let answers = places.into_iter().zip(said.chunks_exact(width));
        Ok(answers.map(|(at, said)| (at, largest(said), said[largest(said)])).collect())
    }

    /// The surest rows of each shard.
    fn rank(&self, work: &mut Work<'_>, k: usize) -> Result<()> {
        let at = work.model.i64("self_training");
        let mut rows = Rows::none(Kind::F64, at[2] as u32, 2 * k as u32);
        let mut values = Vec::new();
        for slice in &work.batch.slices {
            let given = given(work.memory.shard(slice.shard));
            let sure = self.sure(work.model, (work.batch, slice), (&given, at[1]))?;
            let number = |place: usize| (slice.origin + place as u64) as f64;
            let mut sure: Vec<(f64, f64)> =
                sure.into_iter().map(|(place, _, chance)| (chance, number(place))).collect();
            sure.sort_by(surest_first);
            sure.resize(k, (-1.0, 0.0));
            rows.index.push(slice.shard.0);
            values.extend(sure.into_iter().flat_map(|(chance, row)| [chance, row]));
        }
        rows.values = Values::F64(values);
        work.outbox.emit(Block::rows("surest", rows));
        Ok(())
    }

    /// Gives labels, and counts the rows that got one and those that still have none.
    fn label_rows(&self, work: &mut Work<'_>) -> Result<()> {
        let (round, cut) = (work.model.i64("self_training")[1], work.model.f64("cut"));
        let mut counts = vec![0i64; 2];
        for slice in &work.batch.slices {
            let mut given = given(work.memory.shard(slice.shard));
            let sure = self.sure(work.model, (work.batch, slice), (&given, round))?;
            let mut labels = labels(work.memory.shard(slice.shard));
            for (place, class, chance) in sure {
                let row = (slice.origin + place as u64) as f64;
                let taken = match self.rule {
                    Rule::Threshold(threshold) => chance > threshold,
                    Rule::Best(_) => chance > cut[0] || (chance == cut[0] && row <= cut[1]),
                };
                counts[usize::from(!taken)] += 1;
                given[place] = if taken { round } else { -1 };
                labels[place] = if taken { class as f32 } else { f32::NAN };
            }
            let cells = work.memory.shard(slice.shard);
            cells.insert(GIVEN.to_string(), Values::I64(given));
            cells.insert(LABELS.to_string(), Values::F32(labels));
        }
        work.outbox.emit(Block::counts("labelled", counts));
        Ok(())
    }

    /// What comes after labels were given. Says whether all is done.
    fn labelled(&self, model: &mut Model, update: &Update) -> bool {
        let counts = update.i64("labelled");
        let (new, left) = (counts[0], counts[1]);
        if new == 0 {
            return true;
        }
        let start = parts::copy(model, START);
        self.crew.restart(model, 0, start);
        let at = model.i64_mut("self_training");
        let enough = self.rounds_max > 0 && at[1] >= self.rounds_max;
        at[1] += 1;
        at[0] = if left == 0 || enough { LAST } else { TRAIN };
        false
    }
}

fn surest_first(one: &(f64, f64), other: &(f64, f64)) -> std::cmp::Ordering {
    other.0.total_cmp(&one.0).then(one.1.total_cmp(&other.1))
}

fn given(cells: &Cells) -> Vec<i64> {
    cells.get(GIVEN).and_then(Values::as_i64).unwrap_or(&[]).to_vec()
}

fn labels(cells: &Cells) -> Vec<f32> {
    cells.get(LABELS).and_then(Values::as_f32).unwrap_or(&[]).to_vec()
}

/// Rows without a label weigh nothing; what stands in its place is of no account.
fn show(view: &mut View, labels: &[f32]) {
    let weights = view.weights.iter().zip(labels);
    view.table.weights = weights.map(|(w, l)| if l.is_nan() { 0.0 } else { *w }).collect();
    view.table.labels = labels.iter().map(|l| if l.is_nan() { 0.0 } else { *l }).collect();
}

impl Method for SelfTraining {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn task(&self) -> Task {
        Task::Classification
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::SomeClasses
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let mut model = Model::new();
        self.crew.init((facts, place), &|_| facts.schema.clone(), &mut model)?;
        let start = parts::copy(&model, &parts::prefix(0));
        parts::put(&mut model, START, start);
        model.set("outputs", outputs(facts));
        let at = vec![TRAIN, 1, i64::from(facts.shards)];
        model.set("self_training", whole(at, Role::State));
        model.set("cut", Tensor::of(&[2], vec![0.0; 2], Role::State));
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let labels: Vec<f32> = slice.rows().map(|row| batch.table.labels[row]).collect();
        let given = labels.iter().map(|label| if label.is_nan() { -1 } else { 0 }).collect();
        let one = alone(batch, slice);
        let mut view = View::of(&one, None);
        show(&mut view, &labels);
        self.crew.adopt(model, (&one, slice), (0..1, &mut Same(&view)), cells);
        cells.insert(GIVEN.to_string(), Values::I64(given));
        cells.insert(LABELS.to_string(), Values::F32(labels));
    }

    fn rebuilds(&self) -> Rebuilds {
        Rebuilds::Never
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        match (work.model.i64("self_training")[0], self.rule) {
            (RANK, Rule::Best(k)) => return self.rank(work, k),
            (RANK | LABEL, _) => return self.label_rows(work),
            _ => {}
        }
        let mut views = Views::take(work.memory, work.batch);
        let view = views.get("rows", || View::of(work.batch, None));
        let known: Vec<f32> = work
            .batch
            .slices
            .iter()
            .flat_map(|slice| labels(work.memory.shard(slice.shard)))
            .collect();
        show(view, &known);
        self.crew.contribute(work, 0..1, &mut Same(view))?;
        views.leave(work.memory);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let stage = model.i64("self_training")[0];
        let mut done = false;
        match stage {
            RANK => {
                let rows = update.rows("surest").and_then(|rows| rows.values.as_f64());
                let pairs = rows.unwrap_or(&[]).chunks_exact(2).map(|pair| (pair[0], pair[1]));
                let mut surest: Vec<(f64, f64)> =
                    pairs.filter(|(chance, _)| *chance >= 0.0).collect();
                surest.sort_by(surest_first);
                let Rule::Best(k) = self.rule else { unreachable!("only k-best ranks") };
                let last = surest.get(k - 1).or(surest.last()).copied().unwrap_or((2.0, 0.0));
                *model.f64_mut("cut") = vec![last.0, last.1];
                model.i64_mut("self_training")[0] = LABEL;
            }
            LABEL => done = self.labelled(model, update),
            _ => {
                if self.crew.apply(model, update, (moment, 0..1))? {
                    let next = if self.rule_ranks() { RANK } else { LABEL };
                    done = stage == LAST;
                    model.i64_mut("self_training")[0] = if done { LAST } else { next };
                }
            }
        }
        if done {
            parts::drop_all(model, START);
        }
        let rounds = model.i64("self_training")[1] as u64;
        Ok(Outcome { objective: None, done, iterations: Some(rounds) })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let mut said = Vec::new();
        self.predict(work.model, work.batch, &mut said)?;
        let width = self.outputs(work.model);
        let mut sums = verdict::judge_batch(self.task(), work.batch, &said, width);
        let (mut own, mut none) = (0.0, 0.0);
        for slice in &work.batch.slices {
            let given = given(work.memory.shard(slice.shard));
            own += given.iter().filter(|round| **round > 0).count() as f64;
            none += given.iter().filter(|round| **round < 0).count() as f64;
        }
        sums.extend([own, none]);
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64]) -> Grade {
        let mut grade = verdict::grade(self.task(), sums);
        let counts = [("rows_self_labelled", sums[4]), ("rows_unlabelled", sums[5])];
        grade.metrics.extend(counts.map(|(name, count)| (name.to_string(), count)));
        grade
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        match self.crew.is_done(model, 0) {
            true => out.extend(self.crew.said(model, 0, batch)?),
            false => Tally::new(batch.len(), self.outputs(model)).finish(self.task(), out),
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let mut graph = Graph::new();
        graphs::fit(&mut graph, &self.crew, model, 0)?;
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        self.crew.describe(model, (0..1, schema))
    }
}

impl SelfTraining {
    fn rule_ranks(&self) -> bool {
        matches!(self.rule, Rule::Best(_))
    }
}
