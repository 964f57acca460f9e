//! A trained model measured by a flock: everyone reads its share of the rows, predicts them, and the metrics are made of
//! sums and of what is exchanged through the all-to-all. At the end of a training the flock that trained does it; for a
//! model file some threads do.

use crate::all_to_all::all_to_all;
use crate::choices::{shuffle, summing};
use crate::launch::threads::nets;
use crate::merge::{MergeOptions, Merger};
use crate::net::Net;
use crate::net::kinds::{EXAM_PARTS, EXAM_SUMS};
use starlings_core::{Block, Deadline, Fault, Model, Panel, Result, Step, Update};
use starlings_data::{
    Batch, DataSpec, Dealer, Encoding, Holding, Intake, Schema, Share, Table, Target, piece_rows,
    read_with,
};
use starlings_learn::metrics::{Company, Points, Rated, measure};
use starlings_learn::{Cells, Learner, Memory, Moment, NoWires, Outbox, Place, Task, Work};
use starlings_topology::Shuffle;
use std::sync::Arc;
use std::time::Duration;

/// A model and the rows that it is to be measured on. The rows are read, answered and forgotten piece by piece.
pub struct Exam<'a> {
    /// The rows.
    pub rows: &'a DataSpec,
    /// What the columns mean to the model.
    pub schema: &'a Schema,
    /// How files become its rows, besides what the schema says.
    pub intake: &'a Intake,
    /// Who made it.
    pub learner: &'a dyn Learner,
    /// The model.
    pub model: &'a Model,
    /// Its answers, row after row.
    pub predict: &'a Predict<'a>,
    /// How long to wait for a peer that is alive but makes no progress.
    pub patience: Duration,
}

/// Gives a model's answers for all rows of a batch.
pub type Predict<'a> = dyn Fn(&Batch<'_>) -> Result<Vec<f64>> + Sync + 'a;

impl Exam<'_> {
    /// Measures with all seats of a net, who all call it. The inner result is the same kind on all: rows that one of
    /// them cannot read are measured by nobody.
    ///
    /// # Errors
    /// A lost peer; within, rows that cannot be read, do not fit the model or have no labels that are needed.
    pub fn take(&self, net: &Arc<Net>) -> Result<Result<Panel>> {
        let share = Share { reader: net.seat().0, of: net.world() };
        let mut company = Colleagues::new(net, self.patience)?;
        let answered = self.answered(share);
        let found = match agreed(&mut company, answered)? {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault)),
        };
        let labelled = company.sum(vec![found.labels.len() as f64, found.rows as f64])?;
        if labelled[1] == 0.0 {
            let what = format!("{} has no rows", self.rows.source.text());
            return Ok(Err(
                Fault::caller(what).hint("is it the right file, and was it written fully?")
            ));
        }
        if labelled[0] == 0.0 && !matches!(self.schema.target, Target::None) {
            return Ok(Err(self.no_labels()));
        }
        let classes = match &self.schema.target {
            Target::Classes(classes) => &classes[..],
            _ => &[],
        };
        let rated = Rated {
            task: self.learner.task(),
            outputs: &found.outputs,
            width: self.learner.outputs(self.model),
            labels: &found.labels,
            weights: &found.weights,
            groups: &found.groups,
            classes,
            points: found.table.as_ref().map(|table| Points { table, share }),
        };
        let mut panel = measure(&mut company, &rated)?;
        if self.learner.grades_unseen() {
            let sums = company.sum(found.sums)?;
            let grade = self.learner.grade(self.model, &sums, panel.rows);
            panel.metrics.extend(grade.metrics.into_iter().filter(|(_, value)| value.is_finite()));
        }
        Ok(Ok(panel))
    }

    /// Measures with this many threads of this process.
    ///
    /// # Errors
    /// Rows that cannot be read, do not fit the model or have no labels that are needed.
    pub fn in_threads(&self, workers: u32) -> Result<Panel> {
        let results: Vec<Result<Panel>> = std::thread::scope(|scope| {
            let start = |net: Net| {
                let take = move || {
                    let net = Arc::new(net);
                    let found = self.take(&net);
                    // Others may still be waiting for each other: whoever says goodbye is not missed.
                    net.leave();
                    found.and_then(|found| found)
                };
                std::thread::Builder::new().name("evaluation".to_string()).spawn_scoped(scope, take)
            };
            let threads: Vec<_> = nets(workers)?.into_iter().map(start).collect();
            let end =
                |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<Panel>>>| {
                    thread?.join().unwrap_or_else(|_| Err(Fault::machine("an evaluation panicked")))
                };
            Ok::<_, Fault>(threads.into_iter().map(end).collect())
        })?;
        // Whoever met the fault itself says more than those who lost a colleague by it.
        let (mut found, mut faults) = (None, Vec::new());
        for result in results {
            match result {
                Ok(panel) => found = Some(panel),
                Err(fault) => faults.push(fault),
            }
        }
        match crate::launch::worst(faults) {
            Some(fault) => Err(fault),
            None => found.ok_or_else(|| Fault::caller("an evaluation needs at least one worker")),
        }
    }

    /// Reads the rows of a share piece by piece. Only what the metrics are made of is kept.
    fn answered(&self, share: Share) -> Result<Answers> {
        // Distances between rows need the rows; identities are names, between which there is no distance.
        let apart = self.learner.task() == Task::Clustering;
        let keep = apart && self.schema.encoding != Encoding::Identity;
        let most = if keep { usize::MAX } else { piece_rows(self.schema) };
        // Groups are measured as wholes, by one.
        let share = match (self.learner.task(), share.reader) {
            (Task::Ranking, 0) => Share::WHOLE,
            (Task::Ranking, _) => Share::NONE,
            _ => share,
        };
        let mut found = Answers::default();
        read_with(self.rows, (self.schema, self.intake), (share, most), &mut |table| {
            self.answer(table, keep, &mut found)
        })?;
        match found.labels.len() {
            labels if labels == 0 || labels == found.rows => Ok(found),
            _ => Err(Fault::caller(format!(
                "{}: some files have labels, and others have none",
                self.rows.source.text()
            ))),
        }
    }

    fn answer(&self, table: Table, keep: bool, found: &mut Answers) -> Result<()> {
        let table = Arc::new(table);
        let dealer = Dealer::new(Holding::whole(table.clone(), 1), 0, 1);
        let batch = dealer.everything();
        if table.rows() > 0 {
            found.outputs.extend((self.predict)(&batch)?);
        }
        if self.learner.grades_unseen() {
            let sums = self.scored(&batch)?;
            found.sums.resize(sums.len(), 0.0);
            found.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
        }
        found.rows += table.rows();
        found.labels.extend_from_slice(&table.labels);
        found.weights.extend_from_slice(&table.weights);
        found.groups.extend_from_slice(&table.groups);
        found.table = keep.then_some(table);
        Ok(())
    }

    /// What the learner sums up for its own metrics.
    fn scored(&self, batch: &Batch<'_>) -> Result<Vec<f64>> {
        let (mut memory, mut outbox) = (Memory::new(), Outbox::new());
        for slice in &batch.slices {
            let mut cells = Cells::default();
            self.learner.adopt(self.model, batch, slice, &mut cells);
            memory.insert(slice.shard, cells);
        }
        let moment = Moment { step: Step(0), pass: 0, seed: 0, rows: batch.rows_step };
        self.learner.score(&mut Work {
            moment,
            place: Place::WHOLE,
            model: self.model,
            batch,
            memory: &mut memory,
            wires: &mut NoWires,
            outbox: &mut outbox,
        })
    }

    fn no_labels(&self) -> Fault {
        let label = self.schema.label.clone().unwrap_or_else(|| "label".to_string());
        Fault::caller(format!("the data has no column '{label}' to compare with"))
            .hint("`starlings predict` needs no labels")
    }
}

/// What a model said of the rows of a share, and what they are measured by.
#[derive(Default)]
struct Answers {
    rows: usize,
    outputs: Vec<f64>,
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
    /// The learner's own sums, if it grades rows that it has not learnt from.
    sums: Vec<f64>,
    /// The rows, where they are needed.
    table: Option<Arc<Table>>,
}

/// What one has, if all have it.
fn agreed<T>(company: &mut Colleagues, own: Result<T>) -> Result<Result<T>> {
    let failed = company.sum(vec![f64::from(u8::from(own.is_err()))])?;
    Ok(match own {
        Ok(_) if failed[0] > 0.0 => {
            Err(Fault::peer(None, "another worker cannot read the rows to evaluate"))
        }
        own => own,
    })
}

/// Those at the other ends of a net.
struct Colleagues {
    net: Arc<Net>,
    merger: Merger,
    shuffle: Box<dyn Shuffle>,
    shuffles: u64,
    patience: Duration,
}

impl Colleagues {
    fn new(net: &Arc<Net>, patience: Duration) -> Result<Colleagues> {
        let options = MergeOptions::exact(EXAM_SUMS, net, summing("ring", "")?, patience);
        let merger = Merger::new(net.clone(), options);
        Ok(Colleagues { net: net.clone(), merger, shuffle: shuffle()?, shuffles: 0, patience })
    }
}

impl Company for Colleagues {
    fn place(&self) -> (usize, usize) {
        (self.net.seat().index(), self.net.world() as usize)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        if numbers.is_empty() {
            return Ok(numbers);
        }
        let update = Update { blocks: vec![Block::dense("sum", numbers)] };
        Ok(self.merger.merge(update)?.f64("sum").to_vec())
    }

    fn shuffle(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let step = Step(self.shuffles);
        self.shuffles += 1;
        let by = Deadline::after(self.patience);
        all_to_all(&self.net, &*self.shuffle, parts, (EXAM_PARTS, step), by)
    }
}

#[cfg(test)]
#[path = "evaluation_tests.rs"]
mod tests;
