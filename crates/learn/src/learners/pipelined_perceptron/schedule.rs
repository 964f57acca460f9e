//! Which stage does what, micro-batch after micro-batch (GPipe, Huang et al., 2019, with the bounded
//! window of PipeDream-flush, Narayanan et al., 2021). A stage on its own does the same arithmetic in the
//! same order, so that one stage and two give the same bits.
//!
//! On the wire, a step is: the hidden layer's penalty, then the activations of each micro-batch; back come
//! the derivatives by these activations. At most [`WINDOW`] micro-batches are unanswered, so that wires
//! that hold one message suffice and stage 0 keeps the activations of no more than that.

use super::layers::{Hidden, Output};
use crate::Wires;
use starlings_core::{Fault, Result, Values};
use std::collections::VecDeque;

/// Micro-batches on the way at once: one for each of the two stages keeps both busy.
const WINDOW: usize = 2;

/// The first stage, and where the second is.
const FIRST: u32 = 0;
const SECOND: u32 = 1;

/// Both layers here.
pub(super) fn whole<'r>(
    micros: impl Iterator<Item = &'r [usize]>,
    hidden: &mut Hidden<'_>,
    output: &mut Output<'_>,
) -> Result<()> {
    for rows in micros {
        let activations = hidden.forward(rows);
        let upstream = output.step(rows, &activations)?;
        hidden.backward(rows, &activations, &upstream);
    }
    Ok(())
}

/// The hidden layer's part of a step.
pub(super) fn first<'r>(
    micros: impl Iterator<Item = &'r [usize]>,
    hidden: &mut Hidden<'_>,
    penalty: f64,
    wires: &mut dyn Wires,
) -> Result<()> {
    wires.send(SECOND, Values::F64(vec![penalty]))?;
    let mut unanswered: VecDeque<(&[usize], Vec<f64>)> = VecDeque::with_capacity(WINDOW);
    for rows in micros {
        if unanswered.len() == WINDOW {
            answer(hidden, &mut unanswered, wires)?;
        }
        let activations = hidden.forward(rows);
        wires.send(SECOND, Values::F64(activations.clone()))?;
        unanswered.push_back((rows, activations));
    }
    while !unanswered.is_empty() {
        answer(hidden, &mut unanswered, wires)?;
    }
    Ok(())
}

/// The output layer's part of a step. Returns the penalty of the hidden layer.
pub(super) fn second<'r>(
    micros: impl Iterator<Item = &'r [usize]>,
    output: &mut Output<'_>,
    width: usize,
    wires: &mut dyn Wires,
) -> Result<f64> {
    let penalty = receive(wires, FIRST, 1)?[0];
    for rows in micros {
        let activations = receive(wires, FIRST, rows.len() * width)?;
        let upstream = output.step(rows, &activations)?;
        wires.send(FIRST, Values::F64(upstream))?;
    }
    Ok(penalty)
}

/// The hidden layer's part of scoring: activations go one way only.
pub(super) fn score_first<'r>(
    micros: impl Iterator<Item = &'r [usize]>,
    hidden: &Hidden<'_>,
    wires: &mut dyn Wires,
) -> Result<()> {
    for rows in micros {
        wires.send(SECOND, Values::F64(hidden.forward(rows)))?;
    }
    Ok(())
}

/// The output layer's part of scoring.
pub(super) fn score_second<'r>(
    micros: impl Iterator<Item = &'r [usize]>,
    output: &mut Output<'_>,
    width: usize,
    wires: &mut dyn Wires,
) -> Result<()> {
    for rows in micros {
        let activations = receive(wires, FIRST, rows.len() * width)?;
        output.score(rows, &activations)?;
    }
    Ok(())
}

fn answer(
    hidden: &mut Hidden<'_>,
    unanswered: &mut VecDeque<(&[usize], Vec<f64>)>,
    wires: &mut dyn Wires,
) -> Result<()> {
    let (rows, activations) = unanswered.pop_front().expect("the caller saw one");
    let upstream = receive(wires, SECOND, activations.len())?;
    hidden.backward(rows, &activations, &upstream);
    Ok(())
}

fn receive(wires: &mut dyn Wires, stage: u32, len: usize) -> Result<Vec<f64>> {
    match wires.receive(stage)? {
        Values::F64(values) if values.len() == len => Ok(values),
        other => Err(Fault::peer(
            None,
            format!(
                "stage {stage} sent {} {:?} where {len} F64 are due",
                other.len(),
                other.kind()
            ),
        )
        .hint("the stages of a pipeline must run the same job on the same rows")),
    }
}
