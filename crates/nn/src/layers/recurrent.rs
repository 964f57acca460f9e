//! Recurrent layers: a state goes from step to step. `rnn` (Elman, "Finding structure in time", 1990), `lstm` (Hochreiter
//! and Schmidhuber, "Long short-term memory", 1997, with the forget gate of Gers et al., 2000) and `gru` (Cho et al.,
//! 2014), in the equations that PyTorch uses, so that weights can be carried over. The states of all steps come out.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, tensor};
use crate::stage::{Care, Parameter, Stage, Start};
use burn_tensor::activation::{sigmoid, tanh};
use burn_tensor::{Tensor, module};
use starlings_core::Result;

pub(super) const RNN: Layer = Layer {
    name: "rnn",
    usage: "rnn WIDTH",
    summary: "a state that a tanh of input and state makes anew (Elman, 1990)",
    keys: &[],
    build: |site, words| build(site, words, Cell::Plain),
};

pub(super) const LSTM: Layer = Layer {
    name: "lstm",
    usage: "lstm WIDTH",
    summary: "a state that gates keep, add to and show (Hochreiter and Schmidhuber, 1997)",
    keys: &[],
    build: |site, words| build(site, words, Cell::Long),
};

pub(super) const GRU: Layer = Layer {
    name: "gru",
    usage: "gru WIDTH",
    summary: "a state that two gates reset and update (Cho et al., 2014)",
    keys: &[],
    build: |site, words| build(site, words, Cell::Gated),
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    Plain,
    Long,
    Gated,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Plain => 1,
            Cell::Gated => 3,
            Cell::Long => 4,
        }
    }
}

fn build(site: &Site<'_>, words: &Words<'_>, cell: Cell) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let [steps, inputs] = site.sequence()?;
    let width = words.size(site, 0, "width")?;
    let own = width / site.share.1;
    Ok(Box::new(Recurrent { name: site.name.clone(), cell, steps, inputs, width, own }))
}

/// A recurrent layer, or some units of one.
pub(crate) struct Recurrent {
    name: String,
    cell: Cell,
    steps: usize,
    inputs: usize,
    width: usize,
    /// Units that are computed here: some, where workers share them (see `recurrence.rs`).
    own: usize,
}

/// How many gates each unit of a layer of this name has.
pub(crate) fn gates(kind: &str) -> Option<usize> {
    let cells = [("rnn", Cell::Plain), ("gru", Cell::Gated), ("lstm", Cell::Long)];
    cells.iter().find(|(name, _)| *name == kind).map(|(_, cell)| cell.gates())
}

impl Recurrent {
    fn wide(&self) -> usize {
        self.cell.gates() * self.own
    }

    /// What inputs say to all gates, which is one product for all steps.
    pub(crate) fn told(&self, rows: Tensor<3>, pass: &Pass<'_>) -> Tensor<3> {
        let line = |part: &str| pass.line(&format!("{}.{part}", self.name));
        let input = line("input").reshape([self.inputs, self.wide()]);
        module::linear(rows, input, Some(line("input_bias")))
    }

    /// The matrix and the bias by which states speak to all gates.
    pub(crate) fn hidden(&self, pass: &Pass<'_>) -> (Tensor<2>, Tensor<1>) {
        let line = |part: &str| pass.line(&format!("{}.{part}", self.name));
        (line("hidden").reshape([self.width, self.wide()]), line("hidden_bias"))
    }

    /// The next states and cells of units, from what inputs and the past say to their gates and from those before.
    pub(crate) fn advance(&self, [told, past, state, cell]: [Tensor<2>; 4]) -> [Tensor<2>; 2] {
        match self.cell {
            Cell::Plain => [tanh(told + past), cell],
            Cell::Gated => [gated([told, past], state, self.own), cell],
            Cell::Long => {
                let gates = told + past;
                let gate = |at: usize| gates.clone().narrow(1, at * self.own, self.own);
                let cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * tanh(gate(2));
                [sigmoid(gate(3)) * tanh(cell.clone()), cell]
            }
        }
    }
}

impl Stage for Recurrent {
    fn output(&self) -> Form {
        Form::Sequence { steps: self.steps, width: self.width }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let wide = self.wide();
        let parameter = |part: &str, shape: Vec<usize>, care| Parameter {
            name: format!("{}.{part}", self.name),
            shape,
            start: Start::fan_in(self.width),
            care,
        };
        vec![
            parameter("input", vec![self.inputs, wide], Care::Matrix),
            parameter("hidden", vec![self.width, wide], Care::Matrix),
            parameter("input_bias", vec![wide], Care::Vector),
            parameter("hidden_bias", vec![wide], Care::Vector),
        ]
    }

    fn recurrent(&self) -> Option<&Recurrent> {
        Some(self)
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let rows = input.sequence();
        let (count, width, wide) = (rows.dims()[0], self.width, self.wide());
        let told = self.told(rows, pass);
        let (hidden, bias) = self.hidden(pass);
        let mut state: Tensor<2> = tensor(vec![0.0; count * width], [count, width]);
        let mut cell = state.clone();
        let mut states = Vec::with_capacity(self.steps);
        for step in 0..self.steps {
            let own = told.clone().narrow(1, step, 1).reshape([count, wide]);
            let past = module::linear(state.clone(), hidden.clone(), Some(bias.clone()));
            [state, cell] = self.advance([own, past, state, cell]);
            states.push(state.clone().reshape([count, 1, width]));
        }
        Flow::Sequence(Tensor::cat(states, 1))
    }
}

/// The next state of a gated recurrent unit: reset, update and the new one, in this order.
fn gated([own, past]: [Tensor<2>; 2], state: Tensor<2>, width: usize) -> Tensor<2> {
    let part = |of: &Tensor<2>, at: usize| of.clone().narrow(1, at * width, width);
    let reset = sigmoid(part(&own, 0) + part(&past, 0));
    let update = sigmoid(part(&own, 1) + part(&past, 1));
    let fresh = tanh(part(&own, 2) + reset * part(&past, 2));
    fresh.clone() + update * (state - fresh)
}
