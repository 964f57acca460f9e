//! A model of another library, an ONNX file, as a member: it is asked and not trained. The file's bytes are its model, so
//! that the ensemble's model file needs no other.

use super::verdict;
use crate::onnx::{Limits, Program, Wishes, bytes};
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_core::{Ability, Fault, Model, Result, Update};
use starlings_data::{Batch, Encoding, LabelNeed, Schema, Target};

/// What such a member is called in place of a learner's name.
pub(super) const NAME: &str = "onnx";

/// A model of another library.
pub(super) struct Foreign {
    wishes: Wishes,
    task: Task,
    outputs: usize,
}

impl Foreign {
    /// From what a job says of it, and what its file answers.
    pub(super) fn new(given: &mut toml::Table, schema: &Schema) -> Result<Foreign> {
        let wishes = Wishes::take(given)?;
        if let Some(key) = given.keys().next() {
            return Err(Fault::caller(format!("unknown key '{key}'"))
                .hint("an ONNX file takes weight, classes, output and scale"));
        }
        let task = match schema.target {
            Target::Classes(_) => Task::Classification,
            _ => Task::Regression,
        };
        Ok(Foreign { wishes, task, outputs: schema.classes().max(1) })
    }

    fn program(&self, model: &Model) -> Result<Program> {
        Program::read(&bytes(model)?, &self.wishes, Limits::USE)
    }
}

impl Learner for Foreign {
    fn task(&self) -> Task {
        self.task
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn encoding(&self) -> Encoding {
        // What is missing stays so: whether it is filled in is the model's affair.
        Encoding::Codes
    }

    fn label(&self) -> LabelNeed {
        match self.task {
            Task::Classification => LabelNeed::Class,
            _ => LabelNeed::Number,
        }
    }

    fn requires(&self) -> &'static [Ability] {
        &[]
    }

    fn init(&self, _: &Facts, _: Place) -> Result<Model> {
        Ok(Model::new())
    }

    fn contribute(&self, _: &mut Work<'_>) -> Result<()> {
        Ok(())
    }

    fn apply(&self, _: &mut Model, _: &Update, _: &Moment) -> Result<Outcome> {
        Ok(Outcome { objective: None, done: true, iterations: None })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let mut said = Vec::new();
        self.predict(work.model, work.batch, &mut said)?;
        Ok(verdict::judge_batch(self.task, work.batch, &said, self.outputs))
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        verdict::grade(self.task, sums)
    }

    fn outputs(&self, _: &Model) -> usize {
        self.outputs
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let program = self.program(model)?;
        if program.outputs() != self.outputs {
            return Err(Fault::caller("the ONNX file is not the one that the model was made with"));
        }
        program.answer(batch, out)
    }

    fn describe(&self, model: &Model, _: &Schema) -> Option<String> {
        self.program(model).ok().map(|program| program.describe())
    }
}
