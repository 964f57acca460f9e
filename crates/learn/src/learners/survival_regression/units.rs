//! The optimiser's units: γ, c and τ = ln θ, where the noise is θ·(ln t − m)/s − c − Σ γ·(x − μ)/d with means m, μ and
//! deviations s, d. So σ = s/θ, β = γσ/d and b = m + cσ − β·μ. Features and times of any scale look alike to the
//! optimiser, and the feature that tells events takes no part. Without an intercept the means count as zero.

use super::sums::{MOMENTS, Noise, SLOPES};
use starlings_core::{Fault, Model, Result, Role, Tensor};

/// A variance of this share of the mean square is rounding: the feature does not vary.
const SPREAD_MIN: f64 = 1e-12;
const OF_FEATURES: &str = "units.features";
const OF_ROWS: &str = "units.rows";

/// Means and deviations.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Units {
    means: Vec<f64>,
    /// One over the deviation of each feature; zero for one that takes no part.
    inverses: Vec<f64>,
    rows: OfRows,
}

/// What is known of all rows together.
#[derive(Clone, Copy, PartialEq, Debug)]
struct OfRows {
    /// Σw.
    weight: f64,
    /// Σw of rows whose event happened, and of w·ln t of these.
    events: f64,
    event_times: f64,
    /// Mean and deviation of ln t.
    time_mean: f64,
    time_deviation: f64,
    /// 1 where the constant is free, 0 where it stays zero.
    intercept: f64,
}

/// A model in the data's units.
pub(super) struct Found {
    pub(super) weights: Vec<f64>,
    pub(super) intercept: f64,
    pub(super) scale: f64,
}

impl Units {
    /// Before the moments are known.
    pub(super) fn unknown(features: usize) -> Units {
        let rows = OfRows {
            weight: 1.0,
            events: 0.0,
            event_times: 0.0,
            time_mean: 0.0,
            time_deviation: 1.0,
            intercept: 0.0,
        };
        Units { means: vec![0.0; features], inverses: vec![0.0; features], rows }
    }

    /// From the sums over all rows.
    pub(super) fn from_moments(
        sums: &[f64],
        event: Option<usize>,
        intercept: bool,
    ) -> Result<Units> {
        let (own, features) = sums.split_at(MOMENTS);
        let &[weight, times, squares, events, event_times] = own else {
            unreachable!("split at five")
        };
        if events <= 0.0 {
            return Err(Fault::caller("no row tells of an event: all are censored")
                .hint("the event's column is 1 where the event happened"));
        }
        let free = f64::from(u8::from(intercept));
        let (time_mean, time_variance) = spread(times / weight, squares / weight);
        let (first, second) = features.split_at(features.len() / 2);
        let (mut means, mut inverses) = (Vec::new(), Vec::new());
        for (feature, (first, second)) in first.iter().zip(second).enumerate() {
            let (mean, variance) = spread(first / weight, second / weight);
            // Without an intercept a feature that never varies takes its place.
            let size = if intercept { variance } else { second / weight };
            let takes_part = size > 0.0 && event != Some(feature);
            means.push(free * mean);
            inverses.push(if takes_part { 1.0 / size.sqrt() } else { 0.0 });
        }
        let rows = OfRows {
            weight,
            events,
            event_times,
            time_mean: free * time_mean,
            time_deviation: if time_variance > 0.0 { time_variance.sqrt() } else { 1.0 },
            intercept: free,
        };
        Ok(Units { means, inverses, rows })
    }

    /// The noise of rows at a point of the optimiser's.
    pub(super) fn noise(&self, point: &[f64]) -> Noise {
        let (steepness, constant, rate) = self.parts(point);
        let slopes: Vec<f64> = steepness.iter().zip(&self.inverses).map(|(g, i)| g * i).collect();
        let fitted: f64 = slopes.iter().zip(&self.means).map(|(slope, mean)| slope * mean).sum();
        let time = rate / self.rows.time_deviation;
        Noise { constant: fitted - constant - time * self.rows.time_mean, time, slopes }
    }

    /// The mean loss at a point and its gradient, from the sums at that point.
    pub(super) fn value_and_gradient(&self, point: &[f64], sums: &[f64]) -> (f64, Vec<f64>) {
        let OfRows { weight, events, event_times, time_mean, time_deviation, intercept } =
            self.rows;
        let (_, _, rate) = self.parts(point);
        let (own, features) = sums.split_at(SLOPES);
        let (loss, slopes, slopes_times) = (own[0], own[1], own[2]);
        let constant = events * (time_deviation.ln() - rate.ln()) + event_times;
        let units = self.means.iter().zip(&self.inverses);
        let mut gradient: Vec<f64> = features
            .iter()
            .zip(units)
            .map(|(sum, (mean, inverse))| -(sum - mean * slopes) * inverse / weight)
            .collect();
        gradient.push(-slopes * intercept / weight);
        let by_time = (slopes_times - time_mean * slopes) / time_deviation;
        gradient.push((rate * by_time - events) / weight);
        ((loss + constant) / weight, gradient)
    }

    /// A point of the optimiser's in the data's units.
    pub(super) fn leave(&self, point: &[f64]) -> Found {
        let (steepness, constant, rate) = self.parts(point);
        let scale = self.rows.time_deviation / rate;
        let weights: Vec<f64> =
            steepness.iter().zip(&self.inverses).map(|(g, inverse)| g * inverse * scale).collect();
        let fitted: f64 = weights.iter().zip(&self.means).map(|(weight, mean)| weight * mean).sum();
        Found { intercept: self.rows.time_mean + constant * scale - fitted, weights, scale }
    }

    /// γ, c and θ of a point.
    fn parts<'a>(&self, point: &'a [f64]) -> (&'a [f64], f64, f64) {
        let (steepness, rest) = point.split_at(self.means.len());
        (steepness, rest[0], rest[1].exp())
    }

    /// Puts them into the model.
    pub(super) fn write(&self, model: &mut Model) {
        let values = [self.means.as_slice(), &self.inverses].concat();
        model.set(OF_FEATURES, Tensor::of(&[2, self.means.len()], values, Role::State));
        let OfRows { weight, events, event_times, time_mean, time_deviation, intercept } =
            self.rows;
        let values = vec![weight, events, event_times, time_mean, time_deviation, intercept];
        model.set(OF_ROWS, Tensor::of(&[6], values, Role::State));
    }

    /// Reads them.
    pub(super) fn read(model: &Model) -> Units {
        let values = model.f64(OF_FEATURES);
        let (means, inverses) = values.split_at(values.len() / 2);
        let &[weight, events, event_times, time_mean, time_deviation, intercept] =
            model.f64(OF_ROWS)
        else {
            panic!("'{OF_ROWS}' has six numbers")
        };
        let rows = OfRows { weight, events, event_times, time_mean, time_deviation, intercept };
        Units { means: means.to_vec(), inverses: inverses.to_vec(), rows }
    }
}

/// Mean and variance from the mean and the mean square.
fn spread(mean: f64, square: f64) -> (f64, f64) {
    let variance = square - mean * mean;
    (mean, if variance > SPREAD_MIN * square { variance } else { 0.0 })
}
