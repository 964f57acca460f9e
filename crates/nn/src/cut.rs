//! Where a network is cut into the stages of a pipeline: by hand, or so that the costliest stage costs as little as possible.
//! Costs are counted (multiplications of a row's way through a layer, the same in every run) or measured (see `measure.rs`).

use crate::stack::Stack;
use starlings_core::{Fault, Result};
use starlings_learn::Place;
use std::ops::Range;

/// The layers of a place.
///
/// # Errors
/// More stages than layers with parameters, or layers by hand that are not those of the network.
pub(crate) fn section(stack: &Stack, place: &Place) -> Result<Range<usize>> {
    if place.depths() == 1 {
        return Ok(0..stack.len());
    }
    let ends = match place.layers.is_empty() {
        true => even(stack, place.depths() as usize, &stack.costs())?,
        false => by_hand(stack, &place.layers)?,
    };
    let depth = place.depth() as usize;
    let start = if depth == 0 { 0 } else { ends[depth - 1] };
    Ok(start..ends[depth])
}

fn by_hand(stack: &Stack, layers: &[u32]) -> Result<Vec<usize>> {
    let sum: u32 = layers.iter().sum();
    if sum as usize != stack.len() {
        let what = format!("the stages have {sum} layers, and the network has {}", stack.len());
        let lines: Vec<String> =
            (1..).zip(stack.lines()).map(|(at, it)| format!("{at} {it}")).collect();
        return Err(Fault::caller(what).hint(format!("these are its layers: {}", lines.join(", "))));
    }
    let mut end = 0;
    let after = |len: &u32| {
        end += *len as usize;
        end
    };
    Ok(layers.iter().map(after).collect())
}

/// How many layers each stage has where the dearest by these costs is as cheap as can be.
///
/// # Errors
/// More stages than layers with parameters.
pub(crate) fn by_costs(stack: &Stack, stages: usize, costs: &[u64]) -> Result<Vec<u32>> {
    let ends = even(stack, stages, costs)?;
    let starts = std::iter::once(0).chain(ends.iter().copied());
    Ok(starts.zip(&ends).map(|(start, end)| (end - start) as u32).collect())
}

/// Ends of stages whose dearest is as cheap as can be. A stage begins with a layer that has parameters, but for the first.
fn even(stack: &Stack, stages: usize, all: &[u64]) -> Result<Vec<usize>> {
    let with: Vec<usize> =
        (0..).zip(stack.numbers()).filter(|(_, numbers)| *numbers > 0).map(|(at, _)| at).collect();
    if stages > with.len() {
        let what = format!(
            "the network has {} layers with parameters, and cannot be cut into {stages} stages",
            with.len()
        );
        return Err(Fault::caller(what)
            .hint(format!("use at most {} stages, of which the number of workers is a multiple, or a deeper network", with.len())));
    }
    // Units are such a layer and what follows it.
    let ends: Vec<usize> = with.iter().skip(1).copied().chain([stack.len()]).collect();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let costs: Vec<u64> = starts.zip(&ends).map(|(from, &to)| all[from..to].iter().sum()).collect();
    Ok(balanced(&costs, stages).into_iter().map(|unit| ends[unit - 1]).collect())
}

/// Ends of `parts` runs of neighbours, none empty, whose dearest is as cheap as can be.
fn balanced(costs: &[u64], parts: usize) -> Vec<usize> {
    let count = costs.len();
    let sum = |from: usize, to: usize| costs[from..to].iter().sum::<u64>();
    // The dearest run and where the last one begins, for the first `to` units in so many parts.
    let mut best = vec![vec![(u64::MAX, 0); count + 1]; parts + 1];
    best[0][0] = (0, 0);
    for part in 1..=parts {
        for to in part..=count {
            let run = |from: usize| (best[part - 1][from].0.max(sum(from, to)), from);
            best[part][to] = (part - 1..to).map(run).min().expect("at least one run");
        }
    }
    let mut ends = vec![count];
    for part in (2..=parts).rev() {
        let end = *ends.last().expect("the last end is there");
        ends.push(best[part][end].1);
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Form;

    fn stack(input: Form, lines: &[&str]) -> Stack {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_string()).collect();
        Stack::build(input, &lines).unwrap()
    }

    #[test]
    fn the_dearest_run_is_as_cheap_as_can_be() {
        assert_eq!(balanced(&[4, 1, 1, 1, 1], 2), [1, 5]);
        assert_eq!(balanced(&[1, 1, 1, 1, 4], 2), [4, 5]);
        assert_eq!(balanced(&[3, 3, 3, 3], 2), [2, 4]);
        assert_eq!(balanced(&[9, 1, 1], 3), [1, 2, 3]);
        assert_eq!(balanced(&[5], 1), [1]);
    }

    #[test]
    fn a_network_is_cut_where_it_costs_alike() {
        let network =
            stack(Form::Flat(784), &["linear 64", "relu", "linear 784", "relu", "linear 10"]);
        assert_eq!(section(&network, &Place::stage(0, 2)).unwrap(), 0..2);
        assert_eq!(section(&network, &Place::stage(1, 2)).unwrap(), 2..5);
        // Convolutions cost as often as they are applied.
        let image = Form::Image { channels: 1, height: 28, width: 28 };
        let lines = ["conv 8", "relu", "conv 8", "relu", "max-pool 2", "linear 64", "linear 10"];
        assert_eq!(section(&stack(image, &lines), &Place::stage(1, 2)).unwrap(), 5..7);
        assert_eq!(section(&network, &Place::WHOLE).unwrap(), 0..5);
    }

    #[test]
    fn costs_decide_how_many_layers_a_stage_has() {
        let network = stack(Form::Flat(8), &["linear 8", "relu", "linear 8", "relu", "linear 8"]);
        assert_eq!(by_costs(&network, 2, &[9, 0, 1, 0, 1]).unwrap(), [2, 3]);
        assert_eq!(by_costs(&network, 2, &[1, 0, 1, 0, 9]).unwrap(), [4, 1]);
        assert_eq!(by_costs(&network, 2, &[1, 9, 1, 0, 1]).unwrap(), [2, 3]);
    }

    #[test]
    fn what_cannot_be_cut_so_is_refused() {
        let network = stack(Form::Flat(8), &["linear 4", "relu", "linear 2"]);
        let fault = section(&network, &Place::stage(0, 3)).unwrap_err().to_string();
        assert!(
            fault.contains("2 layers with parameters") && fault.contains("3 stages"),
            "{fault}"
        );
        let by_hand = |layers: &[u32]| Place { layers: layers.to_vec(), ..Place::stage(1, 2) };
        assert_eq!(section(&network, &by_hand(&[1, 2])).unwrap(), 1..3);
        let fault = section(&network, &by_hand(&[1, 1])).unwrap_err().to_string();
        assert!(fault.contains("2 layers, and the network has 3"), "{fault}");
        assert!(fault.contains("2 relu"), "{fault}");
    }
}
