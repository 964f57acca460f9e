//! A stage: one layer of a network with its parameters. Stages are the unit of which networks are made, and by which
//! they are cut: a stage knows the form of its rows and the names of its parameters, and nothing of its neighbours.

use crate::flow::{Flow, Form};
use crate::kernels::Finish;
use crate::layers::Recurrent;
use crate::pass::Pass;
use crate::stack::Stack;
use starlings_core::{Graph, Model, Rng, tracked};
use std::borrow::Cow;

/// One layer.
///
/// Law `Form`: from rows of the form it was built for, `forward` makes as many rows of the form that `output` says.
/// Law `Parameters`: `forward` reads no weights but those it names, each of the shape it says.
/// Law `Rows`: a row's output depends on the other rows of its shard at most, and in answering on no other row.
pub(crate) trait Stage: Send + Sync {
    /// The form of its output rows.
    fn output(&self) -> Form;

    /// Its parameters, in a fixed order.
    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// Networks inside it, one after another. Their layers can be split among workers by themselves. Empty where the stage is
    /// all of a piece.
    fn limbs(&self) -> Vec<Limb<'_>> {
        Vec::new()
    }

    /// Itself, if a state goes from step to step in it, so that workers who share its units must meet at each.
    fn recurrent(&self) -> Option<&Recurrent> {
        None
    }

    /// How many numbers a row leaves inside it for the way back, besides its output. Never more than it does.
    fn inside(&self) -> u64 {
        let of = |stack: &Stack| stack.inside();
        let limbs = self.limbs().into_iter().map(|limb| match limb {
            Limb::Alone(inner) => of(inner),
            Limb::Beside { body, shortcut } => of(body).saturating_add(shortcut.map_or(0, of)),
        });
        limbs.fold(0, u64::saturating_add)
    }

    /// What a row costs, in multiplications: each parameter is applied at every position of the output.
    fn cost(&self) -> u64 {
        let output = self.output();
        let positions = match output {
            Form::Flat(_) => 1,
            Form::Sequence { steps, .. } => steps,
            Form::Image { height, width, .. } => height * width,
        };
        let matrices = self.parameters().into_iter().filter(|it| it.care == Care::Matrix);
        let numbers: usize = matrices.map(|parameter| parameter.len()).sum();
        (numbers * positions + output.len()) as u64
    }

    /// Computes its output.
    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow;

    /// What it does to its input, if the stage before it may do so on the way out.
    fn finish(&self) -> Option<Finish> {
        None
    }

    /// Itself, if it can do on the way out what stages after it would do.
    fn finishing(&self) -> Option<&dyn Finishing> {
        None
    }

    /// The first numbers of all its parameters, where it draws them itself; `None`: each starts as it says.
    fn begun(&self, seed: u64) -> Option<Vec<Vec<f32>>> {
        let _ = seed;
        None
    }

    /// Draws what it answers into a graph, after the value `input`, and names its own. `None`: operators on rows of
    /// numbers cannot write it.
    fn draw(&self, graph: &mut Graph, input: &str, model: &Model) -> Option<String> {
        let _ = (graph, input, model);
        None
    }
}

/// A network inside a stage.
pub(crate) enum Limb<'a> {
    /// One beside a shortcut: what goes into it, or what the shortcut's own layers make of that, is added to what comes out.
    Beside { body: &'a Stack, shortcut: Option<&'a Stack> },
    /// One by itself.
    Alone(&'a Stack),
}

/// A stage that can do what stages after it would do, while its output is still near.
pub(crate) trait Finishing {
    /// What it can do of what is wanted next, besides what it does already.
    fn with(&self, already: Finish, next: Finish) -> Option<Finish>;

    /// Computes its output, finished.
    fn forward_finished(&self, input: Flow, finish: Finish, pass: &mut Pass<'_>) -> Flow;
}

/// What becomes of a parameter in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Care {
    /// It follows its gradient, and decays if it is a matrix.
    Matrix,
    /// The same, of the layer that gives the outputs.
    Output,
    /// It follows its gradient and does not decay: biases, scales, what a row of the input or output owns.
    Vector,
    /// It is not trained: a running mean of what the stage sees (batch normalisation).
    Tracked,
    /// It is not trained: passes that learn move it themselves, or leave it as it is (what a user's own layers keep).
    #[cfg_attr(
        not(feature = "modules"),
        expect(dead_code, reason = "layers of the catalogue have none")
    )]
    Moved,
}

impl Care {
    /// Whether it follows its gradient.
    pub(crate) fn learns(self) -> bool {
        matches!(self, Care::Matrix | Care::Output | Care::Vector)
    }

    /// Whether it decays.
    pub(crate) fn decays(self) -> bool {
        matches!(self, Care::Matrix | Care::Output)
    }
}

/// One named tensor of a stage.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parameter {
    /// Its name in the model.
    pub(crate) name: String,
    /// Its shape.
    pub(crate) shape: Vec<usize>,
    /// What it is before the first step.
    pub(crate) start: Start,
    /// What becomes of it in a step.
    pub(crate) care: Care,
}

impl Parameter {
    /// How many numbers.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The name of its block in an update. What no gradient leads is a statistic: it travels as it is under every codec.
    pub(crate) fn block(&self) -> Cow<'_, str> {
        match self.care.learns() {
            true => Cow::Borrowed(&self.name),
            false => Cow::Owned(tracked(&self.name)),
        }
    }
}

/// What a parameter is before the first step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Start {
    /// All the same number.
    Constant(f32),
    /// Uniform between −bound and bound.
    Uniform(f64),
    /// Normal around zero with this deviation.
    Normal(f64),
}

impl Start {
    /// Uniform within 1/√inputs: what PyTorch starts linear and convolution layers from (LeCun et al., 1998; He et al.,
    /// 2015, with a = √5).
    pub(crate) fn fan_in(inputs: usize) -> Start {
        Start::Uniform(1.0 / (inputs.max(1) as f64).sqrt())
    }

    /// So many numbers from a generator.
    pub(crate) fn draw(self, len: usize, rng: &mut Rng) -> Vec<f32> {
        match self {
            Start::Constant(value) => vec![value; len],
            Start::Uniform(bound) => {
                (0..len).map(|_| ((2.0 * rng.uniform() - 1.0) * bound) as f32).collect()
            }
            Start::Normal(deviation) => {
                (0..len).map(|_| (rng.normal() * deviation) as f32).collect()
            }
        }
    }
}
