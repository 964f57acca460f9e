//! A linear layer: y = x·W + b. Rows of other forms are taken as rows of numbers; of a sequence, each step by itself.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::kernels::{self, Finish};
use crate::pass::{Pass, f32s};
use crate::stage::{Care, Finishing, Parameter, Stage, Start};
use starlings_core::{Graph, Model, Op, Result};

pub(super) const LAYER: Layer = Layer {
    name: "linear",
    usage: "linear OUTPUTS [bias off]",
    summary: "y = x·W + b on the numbers of a row, or of each step of a sequence",
    keys: &["bias"],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let outputs = words.size(site, 0, "outputs")?;
    let bias = words.is_on(site, "bias")?;
    Ok(Box::new(Linear { name: site.name.clone(), input: site.input, outputs, bias }))
}

struct Linear {
    name: String,
    input: Form,
    outputs: usize,
    bias: bool,
}

impl Linear {
    fn inputs(&self) -> usize {
        match self.input {
            Form::Sequence { width, .. } => width,
            other => other.len(),
        }
    }
}

impl Stage for Linear {
    fn output(&self) -> Form {
        match self.input {
            Form::Sequence { steps, .. } => Form::Sequence { steps, width: self.outputs },
            _ => Form::Flat(self.outputs),
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let start = Start::fan_in(self.inputs());
        let matrix = Parameter {
            name: format!("{}.weight", self.name),
            shape: vec![self.inputs(), self.outputs],
            start,
            care: Care::Matrix,
        };
        let bias = self.bias.then(|| Parameter {
            name: format!("{}.bias", self.name),
            shape: vec![self.outputs],
            start,
            care: Care::Vector,
        });
        [matrix].into_iter().chain(bias).collect()
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        self.forward_finished(input, Finish::NONE, pass)
    }

    fn finishing(&self) -> Option<&dyn Finishing> {
        Some(self)
    }

    fn draw(&self, graph: &mut Graph, input: &str, model: &Model) -> Option<String> {
        if let Form::Sequence { .. } = self.input {
            return None;
        }
        let mut constant = |part: &str, shape: &[usize]| {
            let name = format!("{}.{part}", self.name);
            let values = f32s(model, &name).iter().map(|&x| f64::from(x)).collect();
            graph.constant(&name, shape, values)
        };
        let weight = constant("weight", &[self.inputs(), self.outputs]);
        let bias = self.bias.then(|| constant("bias", &[self.outputs]));
        let product = graph.node(Op::MatMul, &[input, &weight]);
        Some(match bias {
            None => product,
            Some(bias) => graph.node(Op::Add, &[&product, &bias]),
        })
    }
}

impl Finishing for Linear {
    fn with(&self, already: Finish, next: Finish) -> Option<Finish> {
        already.then(next).filter(|both| both.window == 1)
    }

    fn forward_finished(&self, input: Flow, finish: Finish, pass: &mut Pass<'_>) -> Flow {
        let shape = [self.inputs(), self.outputs];
        let weight = pass.weight(&format!("{}.weight", self.name), shape);
        let bias = self.bias.then(|| pass.line(&format!("{}.bias", self.name)));
        let precision = pass.precision;
        let (weight, bias) = (precision.narrowed(weight), bias.map(|it| precision.narrowed(it)));
        let product = |rows| {
            let output = kernels::linear(precision.narrowed(rows), (weight, bias), finish);
            precision.widened(output)
        };
        match input {
            Flow::Sequence(rows) => {
                let [count, steps, width] = rows.dims();
                let rows = rows.reshape([count * steps, width]);
                let output = product(rows);
                Flow::Sequence(output.reshape([count, steps, self.outputs]))
            }
            other => Flow::Flat(product(other.flat())),
        }
    }
}
