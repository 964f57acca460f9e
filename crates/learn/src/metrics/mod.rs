//! Metrics of predictions against labels, by the contract's names. Each is written once for any number of members that
//! measure together ([`Company`]): everyone rates its own rows, and what is exchanged are sums, and for ranks and
//! distances small tables. Plain definitions in f64, rows counted by their weights; each is checked against
//! scikit-learn's numbers.

mod area;
mod calibration;
mod classes;
mod company;
mod numbers;
mod order;
mod silhouette;

pub use company::{Alone, Company};

use crate::Task;
use starlings_core::{Panel, Result};
use starlings_data::{Share, Table};
use std::collections::BTreeMap;

/// Rows that a model has given its answers for.
#[derive(Clone, Copy, Debug)]
pub struct Rated<'a> {
    /// What kind of answers they are.
    pub task: Task,
    /// `width` numbers a row, as the learner's `predict` gives them.
    pub outputs: &'a [f64],
    /// Numbers a row.
    pub width: usize,
    /// One number a row, or none for rows without labels.
    pub labels: &'a [f32],
    /// How much each row counts; empty when all count one.
    pub weights: &'a [f32],
    /// The group of each row, whose rows stand together; empty when there are none.
    pub groups: &'a [u32],
    /// The names of classes; without them their numbers serve.
    pub classes: &'a [String],
    /// The rows themselves, where distances between them mean something.
    pub points: Option<Points<'a>>,
}

/// Rows as points in space.
#[derive(Clone, Copy, Debug)]
pub struct Points<'a> {
    /// The features.
    pub table: &'a Table,
    /// Which rows of the data set they are.
    pub share: Share,
}

impl Rated<'_> {
    fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).map_or(1.0, |&weight| f64::from(weight))
    }
}

/// Measures, together with all others of the company. A metric that the rows do not define (the area under the curve
/// of one class, anything of no rows), or that is no number, is left out.
///
/// # Errors
/// A lost peer.
pub fn measure(company: &mut dyn Company, rated: &Rated<'_>) -> Result<Panel> {
    let own = rated.outputs.len().checked_div(rated.width).unwrap_or(0);
    let counts = company.sum(vec![own as f64, rated.labels.len() as f64])?;
    let mut panel = Panel { rows: counts[0] as u64, ..Panel::default() };
    let labelled = counts[1] > 0.0;
    match rated.task {
        Task::Classification if labelled && rated.width >= 2 => {
            classes::measure(company, rated, &mut panel)?;
        }
        Task::Regression | Task::Recommendation if labelled && rated.width > 0 => {
            numbers::measure(company, rated, &mut panel)?;
        }
        Task::Clustering | Task::Density if panel.rows > 0 && rated.width > 0 => {
            last_output(company, rated, &mut panel)?;
        }
        Task::Ranking if labelled && rated.width == 1 => {
            order::measure(company, rated, &mut panel)?;
        }
        // Their outputs do not say how good they are: the learner's own grade does.
        _ => {}
    }
    if let (Task::Clustering, Some(points)) = (rated.task, &rated.points)
        && panel.rows > 0
        && rated.width > 0
    {
        silhouette::measure(company, rated, points, &mut panel)?;
    }
    Ok(panel)
}

/// Metrics of a task over rows that one has all of and that all count one.
///
/// ```
/// use starlings_learn::{Task, metrics};
/// let found = metrics::evaluate(Task::Regression, &[1.0, 4.0], 1, &[1.0, 2.0]);
/// assert_eq!(found["mae"], 1.0);
/// ```
#[must_use]
pub fn evaluate(
    task: Task,
    outputs: &[f64],
    width: usize,
    labels: &[f32],
) -> BTreeMap<String, f64> {
    let (weights, groups, classes, points) = (&[][..], &[][..], &[][..], None);
    let rated = Rated { task, outputs, width, labels, weights, groups, classes, points };
    // One who is alone loses no peer.
    measure(&mut Alone, &rated).map(|panel| panel.metrics).unwrap_or_default()
}

/// Inertia: the sum of squared distances to the nearest centre. Log-likelihood: the mean logarithm of the density. Both
/// are made of the last output of each row.
fn last_output(company: &mut dyn Company, rated: &Rated<'_>, panel: &mut Panel) -> Result<()> {
    let mut sums = vec![0.0; 2];
    for (at, row) in rated.outputs.chunks_exact(rated.width).enumerate() {
        sums[0] += rated.weight(at);
        sums[1] += rated.weight(at) * row[rated.width - 1];
    }
    let sums = company.sum(sums)?;
    match rated.task {
        Task::Density if sums[0] > 0.0 => panel.put(&[("log_likelihood", sums[1] / sums[0])]),
        Task::Density => {}
        _ => panel.put(&[("inertia", sums[1])]),
    }
    Ok(())
}

/// Metrics by name.
trait Named {
    /// Adds those that are numbers.
    fn put(&mut self, found: &[(&str, f64)]);
}

impl Named for Panel {
    fn put(&mut self, found: &[(&str, f64)]) {
        let finite = found.iter().filter(|(_, value)| value.is_finite());
        self.metrics.extend(finite.map(|&(name, value)| (name.to_string(), value)));
    }
}
