//! Fits the steps of a preparation, reading after reading of the training rows. Steps that name their columns, and take none
//! that another unfitted step takes, are fitted in one reading; all others wait for the steps before them.

use super::{
    BuildPreparation, Frame, Kind, Labels, PREPARATIONS, Preparation, Series, Statistics, Step,
    StepSpec, positions, walk,
};
use crate::Column;
use crate::chunk::Chunk;
use starlings_core::{Entry, Fault, Result};
use std::collections::VecDeque;

/// Builds a step from the words of a job.
///
/// # Errors
/// An unknown name or key, with the nearest known one; a value out of bounds.
fn build(spec: &StepSpec) -> Result<Box<dyn Preparation>> {
    let entry: &Entry<BuildPreparation> = Entry::find("preparation", PREPARATIONS, &spec.name)?;
    let given: toml::Table = spec.given.parse().map_err(|error: toml::de::Error| {
        Fault::caller(format!("preparation '{}': {}", spec.name, error.message()))
    })?;
    (entry.build)(&entry.check("preparation", &given)?)
}

/// Checks the words of all steps.
///
/// # Errors
/// As for a single step.
pub fn check(specs: &[StepSpec]) -> Result<()> {
    specs.iter().try_for_each(|spec| build(spec).map(|_| ()))
}

/// A step whose statistics are being added up.
struct Fitting {
    name: String,
    inputs: Vec<String>,
    statistics: Box<dyn Statistics>,
}

/// Fits steps one after another.
pub(crate) struct Fitter {
    raw: Vec<Column>,
    waiting: VecDeque<StepSpec>,
    fitting: Vec<Fitting>,
    pub(crate) steps: Vec<Step>,
}

impl Fitter {
    pub(crate) fn new(raw: Vec<Column>, specs: &[StepSpec]) -> Result<Fitter> {
        check(specs)?;
        let waiting = specs.iter().cloned().collect();
        Ok(Fitter { raw, waiting, fitting: Vec::new(), steps: Vec::new() })
    }

    /// Makes ready for one reading of all rows; false when everything is fitted.
    pub(crate) fn begin(&mut self) -> Result<bool> {
        let frame = walk(&self.steps, Frame::empty(&self.raw), None)?;
        while let Some(spec) = self.waiting.front() {
            let first = self.fitting.is_empty();
            let taken = |name: &String| self.fitting.iter().any(|step| step.inputs.contains(name));
            let inputs = match &spec.columns {
                None if !first => break,
                Some(names) if !first && names.iter().any(taken) => break,
                Some(names) if !first && positions(&frame, names, &spec.name).is_err() => break,
                Some(names) => {
                    positions(&frame, names, &spec.name)?;
                    names.clone()
                }
                None => fitting_columns(&frame, spec)?,
            };
            let statistics = build(spec)?.begin(inputs.len());
            self.fitting.push(Fitting { name: spec.name.clone(), inputs, statistics });
            self.waiting.pop_front();
        }
        Ok(!self.fitting.is_empty())
    }

    /// Takes the next rows.
    pub(crate) fn add(&mut self, chunk: &mut Chunk, labels: &Labels<'_>) -> Result<()> {
        let frame = Frame::of_chunk(chunk, &self.raw);
        let frame = walk(&self.steps, frame, Some(labels.first_row))?;
        for step in &mut self.fitting {
            let found = positions(&frame, &step.inputs, &step.name)?;
            let inputs: Vec<&Series> = found.into_iter().map(|at| &frame.columns[at]).collect();
            let during = |fault: Fault| fault.during(format!("preparation '{}'", step.name));
            step.statistics.add(&inputs, labels).map_err(during)?;
        }
        Ok(())
    }

    /// All rows have been read.
    pub(crate) fn end(&mut self) -> Result<()> {
        for Fitting { name, inputs, statistics } in self.fitting.drain(..) {
            let during = |fault: Fault| {
                fault.during(format!("preparation '{name}' of {}", inputs.join(", ")))
            };
            let fitted = statistics.finish().map_err(during)?;
            self.steps.push(Step { name, inputs, fitted });
        }
        Ok(())
    }
}

/// The columns that a step takes when the job names none.
fn fitting_columns(frame: &Frame, spec: &StepSpec) -> Result<Vec<String>> {
    let step = build(spec)?;
    let mut columns: Vec<&Series> =
        frame.columns.iter().filter(|column| step.takes(column.cells.kind())).collect();
    // A block is taken unasked only where there is nothing else.
    if columns.iter().any(|column| column.cells.kind() != Kind::Block) {
        columns.retain(|column| column.cells.kind() != Kind::Block);
    }
    match columns.is_empty() {
        false => Ok(columns.into_iter().map(|column| column.name.clone()).collect()),
        true => {
            Err(Fault::caller(format!("preparation '{}': no column is of its kind", spec.name))
                .hint("name the columns it is to take: columns = [\"…\"]"))
        }
    }
}
