//! How the learning rate changes from step to step: it warms up along a line (Goyal et al., "Accurate, large minibatch
//! SGD", 2017), then stays, falls along a line, along half a cosine (Loshchilov and Hutter, "SGDR", 2017), or by a
//! factor every so many steps.

use starlings_core::Params;

/// How the rate changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Schedule {
    /// Steps during which it rises from near zero.
    pub(crate) warmup: u64,
    /// What it does then.
    pub(crate) shape: Shape,
}

/// What the rate does after it has warmed up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Shape {
    /// It stays.
    Constant,
    /// It falls along a line to a share of itself.
    Linear { last: f64 },
    /// It falls along half a cosine to a share of itself.
    Cosine { last: f64 },
    /// It is multiplied every so many steps.
    Step { every: u64, factor: f64 },
}

/// The words of `schedule`.
pub(crate) const NAMES: &[&str] = &["constant", "cosine", "linear", "step"];

impl Schedule {
    /// From a job's parameters.
    pub(crate) fn of(params: &Params) -> Schedule {
        let last = params.f64("final_rate");
        let shape = match params.text("schedule") {
            "linear" => Shape::Linear { last },
            "cosine" => Shape::Cosine { last },
            "step" => Shape::Step {
                every: params.size("step_every").max(1) as u64,
                factor: params.f64("step_factor"),
            },
            _ => Shape::Constant,
        };
        Schedule { warmup: params.size("warmup_steps") as u64, shape }
    }

    /// What the rate is multiplied by at a step of a job of so many steps.
    pub(crate) fn factor(&self, step: u64, steps: u64) -> f64 {
        if step < self.warmup {
            return (step + 1) as f64 / self.warmup as f64;
        }
        let (since, span) = (step - self.warmup, steps.saturating_sub(self.warmup).max(1));
        let done = (since as f64 / span as f64).min(1.0);
        match self.shape {
            Shape::Constant => 1.0,
            Shape::Linear { last } => 1.0 + done * (last - 1.0),
            Shape::Cosine { last } => {
                last + (1.0 - last) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos())
            }
            Shape::Step { every, factor } => {
                factor.powi(i32::try_from(since / every).unwrap_or(i32::MAX))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.optim.lr_scheduler` of torch 2: LinearLR(start_factor = 1/4, total_iters = 3) for the warm-up,
    /// CosineAnnealingLR(T_max = 8, eta_min = 0.1) and StepLR(step_size = 3, gamma = 0.5) after it, at rate 1.
    #[test]
    fn rates_are_those_of_torch() {
        let cosine = Schedule { warmup: 4, shape: Shape::Cosine { last: 0.1 } };
        let rates: Vec<f64> = [0, 1, 2, 3, 4, 6, 8, 12, 20].map(|t| cosine.factor(t, 12)).to_vec();
        let expected = [0.25, 0.5, 0.75, 1.0, 1.0, 0.868_198_051_5, 0.55, 0.1, 0.1];
        rates.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{rates:?}"));
        let step = Schedule { warmup: 0, shape: Shape::Step { every: 3, factor: 0.5 } };
        assert_eq!(
            [0, 2, 3, 5, 6, 9].map(|t| step.factor(t, 0)),
            [1.0, 1.0, 0.5, 0.5, 0.25, 0.125]
        );
        let line = Schedule { warmup: 0, shape: Shape::Linear { last: 0.0 } };
        assert_eq!([0, 5, 10, 11].map(|t| line.factor(t, 10)), [1.0, 0.5, 0.0, 0.0]);
    }
}
