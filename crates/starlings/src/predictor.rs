//! Prediction and evaluation with a trained model: raw files in, numbers out. The schema stored in the model
//! says what the columns mean, so nothing need be repeated.

use crate::vote::{poll, voters};
use starlings_cluster::model_file::{self, ModelFile};
use starlings_core::{Fault, Model, Panel, Result, Shard};
use starlings_data::{
    Batch, DataSpec, Dealer, Holding, Intake, Schema, Share, Table, Target, load_with, piece_rows,
    read_with,
};
use starlings_engine::choices;
use starlings_engine::evaluation::Exam;
use starlings_engine::job::Choice;
use starlings_learn::{Learner, Task};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long workers of one process wait for each other: what ends early is a fault of its own.
const PATIENCE: Duration = Duration::from_secs(3600);

/// With fewer rows for each a further thread is not worth its start.
const ROWS_OF_A_THREAD: usize = 5_000;

/// Where the intake stands in the model file's schema.
const INTAKE: &str = "intake";

/// What the model file remembers of its data: the schema, and the intake within it where there is one.
pub(crate) fn schema_document(schema: &Schema, intake: Intake) -> serde_json::Value {
    let mut document = serde_json::to_value(schema).unwrap_or_default();
    let intake = Intake { prepared: intake.prepared.for_prediction(), ..intake };
    if intake != Intake::default() {
        document[INTAKE] = serde_json::to_value(&intake).unwrap_or_default();
    }
    document
}

/// A trained model that predicts.
pub struct Predictor {
    file: ModelFile,
    pub(crate) learner: Box<dyn Learner>,
    schema: Schema,
    intake: Intake,
}

/// Predictions for the rows of a data set.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// What the numbers of a row are: one name each.
    pub names: Vec<String>,
    /// The numbers, row after row.
    pub values: Vec<f64>,
    /// For classification the class of each row; for the others empty.
    pub classes: Vec<String>,
}

impl Predictor {
    /// Reads a model file.
    ///
    /// # Errors
    /// Not a model file, damaged, or of a newer version.
    pub fn load(path: &Path) -> Result<Predictor> {
        Predictor::new(model_file::load(path)?)
    }

    /// From a model in memory.
    ///
    /// # Errors
    /// When the model is not one of a learner that this version knows.
    pub fn new(file: ModelFile) -> Result<Predictor> {
        let broken = |what: &str| Fault::caller(format!("the model file has a broken {what}"));
        let given = serde_json::from_value(file.params.clone()).map_err(|_| broken("parameter"))?;
        let (_, learner, _) = choices::learner(&Choice { name: file.learner.clone(), given })?;
        let schema = serde_json::from_value(file.schema.clone()).map_err(|_| broken("schema"))?;
        let intake = match file.schema.get(INTAKE) {
            None => Intake::default(),
            Some(value) => serde_json::from_value(value.clone()).map_err(|_| broken("intake"))?,
        };
        Ok(Predictor { file, learner, schema, intake })
    }

    /// The model file.
    #[must_use]
    pub fn file(&self) -> &ModelFile {
        &self.file
    }

    /// What the columns mean.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The model in words, where the learner has some.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        self.learner.describe(&self.file.model, &self.schema)
    }

    /// Predicts every row of a data set.
    ///
    /// # Errors
    /// When the data cannot be read or does not fit the model.
    pub fn predict(&self, data: &DataSpec) -> Result<Prediction> {
        self.predict_rows(&self.rows(data)?)
    }

    /// The same, piece by piece: rows that are predicted are forgotten, so that a data set may be larger than memory.
    ///
    /// # Errors
    /// As [`predict`](Predictor::predict), and those of whoever takes the pieces.
    pub fn predict_pieces(
        &self,
        data: &DataSpec,
        take: &mut dyn FnMut(Prediction) -> Result<()>,
    ) -> Result<()> {
        let schema = Schema { target: Target::None, ..self.schema.clone() };
        let most = piece_rows(&schema);
        let mut rows = 0;
        read_with(data, (&schema, &self.intake), (Share::WHOLE, most), &mut |table| {
            rows += table.rows();
            match table.rows() {
                0 => Ok(()),
                _ => take(self.predict_rows(&Arc::new(table))?),
            }
        })?;
        match rows {
            // Says what is wrong with it.
            0 => self.predict(data).and_then(take),
            _ => Ok(()),
        }
    }

    /// The rows of a data set as the model reads them, without labels: a prediction does not look at them, so they may
    /// be missing, or classes that the model has never seen.
    ///
    /// # Errors
    /// When the data cannot be read or does not fit the model.
    pub fn rows(&self, data: &DataSpec) -> Result<Arc<Table>> {
        let schema = Schema { target: Target::None, ..self.schema.clone() };
        Ok(Arc::new(load_with(data, &schema, &self.intake)?))
    }

    /// The rows of a data set with their labels.
    ///
    /// # Errors
    /// When the data cannot be read, does not fit the model or has no labels that are needed.
    pub(crate) fn labelled_rows(&self, data: &DataSpec) -> Result<Arc<Table>> {
        Ok(Arc::new(load_with(data, &self.schema, &self.intake)?))
    }

    /// Predicts rows that are read already.
    ///
    /// # Errors
    /// When the rows do not fit the model.
    pub fn predict_rows(&self, table: &Arc<Table>) -> Result<Prediction> {
        let values = self.outputs(table)?;
        let names = self.names();
        let classes = match &self.schema.target {
            Target::Classes(classes) if self.learner.task() == Task::Classification => values
                .chunks_exact(names.len().max(1))
                .map(|row| classes[largest(row)].clone())
                .collect(),
            _ => Vec::new(),
        };
        Ok(Prediction { names, values, classes })
    }

    /// How good the model is on a data set with labels. Rows count by their weights, where they have any.
    ///
    /// # Errors
    /// When the data cannot be read, does not fit the model or has no labels that are needed.
    pub fn evaluate(&self, data: &DataSpec) -> Result<Panel> {
        self.evaluate_with(data, 1)
    }

    /// The same with some workers, each of which holds and predicts its share of the rows. The figures do not depend on
    /// how many there are.
    ///
    /// # Errors
    /// As [`evaluate`](Predictor::evaluate).
    pub fn evaluate_with(&self, data: &DataSpec, workers: u32) -> Result<Panel> {
        let voters = voters(&self.file.model);
        let exam = Exam {
            rows: data,
            schema: &self.schema,
            intake: &self.intake,
            learner: &*self.learner,
            model: &self.file.model,
            predict: &|batch| self.said(&voters, batch),
            patience: PATIENCE,
        };
        exam.in_threads(workers)
    }

    fn said(&self, voters: &[Model], batch: &Batch<'_>) -> Result<Vec<f64>> {
        if !voters.is_empty() {
            return poll(&*self.learner, voters, batch);
        }
        let mut values = Vec::new();
        let said = self.learner.predict(&self.file.model, batch, &mut values);
        let named = |fault: Fault| fault.name_feature(|it| self.schema.feature_name(it));
        said.map(|()| values).map_err(named)
    }

    fn outputs(&self, table: &Arc<Table>) -> Result<Vec<f64>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = cores.min(table.rows() / ROWS_OF_A_THREAD).max(1);
        let holding = Holding::whole(table.clone(), parts as u32);
        let voters = voters(&self.file.model);
        let part = |shard: u32| {
            let dealer = Dealer::new(holding.only(&[Shard(shard)]), 0, 1);
            self.said(&voters, &dealer.everything())
        };
        if parts == 1 {
            return part(0);
        }
        let part = &part;
        let said: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..parts as u32).map(|shard| scope.spawn(move || part(shard))).collect();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|said| said.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
        });
        Ok(said.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    /// What the numbers of a row are called.
    pub(crate) fn names(&self) -> Vec<String> {
        let count = self.learner.outputs(&self.file.model);
        match (self.learner.task(), &self.schema.target) {
            (Task::Classification, Target::Classes(classes)) => {
                classes.iter().map(|class| format!("p({class})")).collect()
            }
            (Task::Clustering, _) => vec!["cluster".to_string(), "squared_distance".to_string()],
            (Task::Recommendation, _) => vec!["rating".to_string()],
            (Task::Density, _) => (0..count - 1)
                .map(|component| format!("component_{component}"))
                .chain(["log_density".to_string()])
                .collect(),
            (Task::Projection, _) => (0..count).map(|c| format!("component_{c}")).collect(),
            (Task::Anomaly, _) => vec!["anomaly".to_string()],
            (Task::Ranking, _) => vec!["score".to_string()],
            (Task::Topics, _) => (0..count).map(|topic| format!("topic_{topic}")).collect(),
            _ => (0..count).map(|output| format!("output_{output}")).collect(),
        }
    }
}

pub(crate) fn largest(row: &[f64]) -> usize {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = at;
        }
    }
    best
}
