//! A trained model measured by a flock: everyone reads its share of the rows, predicts them, and the metrics are made of
//! sums and of what is exchanged through the all-to-all. At the end of a training the flock that trained does it; for a
//! model file some threads do.

use crate::all_to_all::all_to_all;
use crate::choices::{shuffle, summing};
use crate::launch::threads::nets;
use crate::merge::{MergeOptions, Merger};
use crate::net::Net;
use starlings_core::{Block, Deadline, Fault, Panel, Result, Step, Update};
use starlings_data::{
    Batch, DataSpec, Dealer, Encoding, Holding, Intake, Schema, Share, Table, Target,
    load_with_share,
};
use starlings_learn::Task;
use starlings_learn::metrics::{Company, Points, Rated, measure};
use starlings_topology::Shuffle;
use std::sync::Arc;
use std::time::Duration;

/// The kinds of its sums and of its shuffles on the exchange lane.
const SUMS: u8 = 15;
const PARTS: u8 = 16;

/// A model and the rows that it is to be measured on.
pub struct Exam<'a> {
    /// The rows.
    pub rows: &'a DataSpec,
    /// What the columns mean to the model.
    pub schema: &'a Schema,
    /// How files become its rows, besides what the schema says.
    pub intake: &'a Intake,
    /// What kind of answers it gives.
    pub task: Task,
    /// How many numbers it gives for a row.
    pub width: usize,
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
        let (table, outputs) = match agreed(&mut company, answered)? {
            Ok(found) => found,
            Err(fault) => return Ok(Err(fault)),
        };
        let labelled = company.sum(vec![table.labels.len() as f64, table.rows() as f64])?;
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
        let points = Points { table: &table, share };
        let rated = Rated {
            task: self.task,
            outputs: &outputs,
            width: self.width,
            labels: &table.labels,
            weights: &table.weights,
            classes,
            // Identities are names: there is no distance between them.
            points: (self.schema.encoding != Encoding::Identity).then_some(points),
        };
        measure(&mut company, &rated).map(Ok)
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

    fn answered(&self, share: Share) -> Result<(Arc<Table>, Vec<f64>)> {
        let table = Arc::new(load_with_share(self.rows, self.schema, self.intake, share)?);
        let dealer = Dealer::new(Holding::whole(table.clone(), 1), 0, 1);
        let outputs = match table.rows() {
            0 => Vec::new(),
            _ => (self.predict)(&dealer.everything())?,
        };
        Ok((table, outputs))
    }

    fn no_labels(&self) -> Fault {
        let label = self.schema.label.clone().unwrap_or_else(|| "label".to_string());
        Fault::caller(format!("the data has no column '{label}' to compare with"))
            .hint("`starlings predict` needs no labels")
    }
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
        let options = MergeOptions::exact(SUMS, net, summing("ring", "")?, patience);
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
        all_to_all(&self.net, &*self.shuffle, parts, (PARTS, step), by)
    }
}

#[cfg(test)]
#[path = "evaluation_tests.rs"]
mod tests;
