//! Metrics of numbers against numbers. The mean of the labels is agreed on first, so that their spread is a sum of
//! squares of differences and loses no digits.

use super::company::Company;
use super::{Named, Rated};
use starlings_core::{Panel, Result};

pub(super) fn measure(
    company: &mut dyn Company,
    rated: &Rated<'_>,
    panel: &mut Panel,
) -> Result<()> {
    let mut sums = vec![0.0; 2];
    for (_, label, weight) in rows(rated) {
        sums[0] += weight;
        sums[1] += weight * label;
    }
    let sums = company.sum(sums)?;
    let weight = sums[0];
    if weight <= 0.0 {
        return Ok(());
    }
    let mean = sums[1] / weight;
    let mut sums = vec![0.0; 3];
    for (said, label, weight) in rows(rated) {
        let (error, off) = (said - label, label - mean);
        sums[0] += weight * error * error;
        sums[1] += weight * error.abs();
        sums[2] += weight * off * off;
    }
    let sums = company.sum(sums)?;
    panel.put(&[("rmse", (sums[0] / weight).sqrt()), ("mae", sums[1] / weight)]);
    if sums[2] > 0.0 {
        panel.put(&[("r2", 1.0 - sums[0] / sums[2])]);
    }
    Ok(())
}

/// What was said of each row, what it is, and how much it counts.
fn rows<'a>(rated: &'a Rated<'_>) -> impl Iterator<Item = (f64, f64, f64)> + 'a {
    let labelled = rated.outputs.chunks_exact(rated.width).zip(rated.labels).enumerate();
    labelled.map(|(at, (row, &label))| (row[0], f64::from(label), rated.weight(at)))
}
