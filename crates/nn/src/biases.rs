//! Biases that mean nothing. Batch normalisation takes out again whatever a layer directly before it adds to all rows, so
//! the gradient of that layer's bias is rounding alone, which Adam makes a step of full length: the model would compute the
//! same and yet differ with the number of workers. Such layers are built without a bias (Ioffe and Szegedy, 2015, section
//! 3.2). Models that were trained with one keep it: their running means count on it.

use starlings_core::Model;

/// The lines of layers, those whose bias would mean nothing without one.
pub(crate) fn without_idle(mut lines: Vec<String>) -> Vec<String> {
    for index in idle(&lines) {
        lines[index].push_str(" bias off");
    }
    lines
}

/// Whether a model has a bias that [`without_idle`] would leave out.
pub(crate) fn has_idle(lines: &[String], model: &Model) -> bool {
    idle(lines).into_iter().any(|index| {
        let layer = format!("{index:02}-{}", kind(&lines[index]));
        let of_layer = |name: &str| {
            // The parts of a layer that is split are marked behind its name.
            let rest = name.strip_prefix(&layer).filter(|rest| rest.starts_with(['.', '@']));
            rest.is_some_and(|rest| rest.ends_with(".bias"))
        };
        model.iter().any(|(name, _)| of_layer(name))
    })
}

/// Which lines are of a layer with a bias that batch normalisation takes out again. Whoever writes `bias on` has it.
fn idle(lines: &[String]) -> Vec<usize> {
    let is_idle = |pair: &[String]| {
        let has_bias = ["linear", "conv"].contains(&kind(&pair[0]));
        let is_said = pair[0].split_whitespace().any(|word| word == "bias");
        has_bias && !is_said && kind(&pair[1]) == "batch-norm"
    };
    (0..lines.len().saturating_sub(1)).filter(|&at| is_idle(&lines[at..at + 2])).collect()
}

fn kind(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Role, Tensor};

    #[test]
    fn only_a_bias_directly_before_batch_normalisation_is_left_out() {
        let lines = [
            "conv 4",
            "batch-norm",
            "linear 3",
            "relu",
            "batch-norm",
            "linear 2 bias on",
            "batch-norm",
        ];
        let lines = lines.map(str::to_string).to_vec();
        let found = without_idle(lines.clone());
        assert_eq!(found[0], "conv 4 bias off");
        assert_eq!(found[1..], lines[1..]);
    }

    #[test]
    fn a_model_that_has_such_a_bias_is_known_by_it() {
        let lines = ["linear 3", "batch-norm"].map(str::to_string);
        let with = |name: &str| {
            let mut model = Model::new();
            model.set(name, Tensor::of(&[3], vec![0.0; 3], Role::Weight));
            has_idle(&lines, &model)
        };
        assert!(with("00-linear.bias") && with("00-linear@0.bias"));
        assert!(!with("00-linear.weight") && !with("02-linear.bias"));
    }
}
