//! Functions of each number by itself, without which stacked linear layers would be one.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form, each_number};
use crate::kernels::Finish;
use crate::pass::Pass;
use crate::stage::Stage;
use burn_tensor::activation;
use starlings_core::{Graph, Model, Op, Result};

pub(super) const RELU: Layer =
    layer("relu", "max(x, 0) (Nair and Hinton, 2010)", |s, w| plain(s, w, Kind::Relu));
pub(super) const LEAKY_RELU: Layer =
    layer("leaky-relu", "x, or x/100 below 0 (Maas, Hannun and Ng, 2013)", |s, w| {
        plain(s, w, Kind::LeakyRelu)
    });
pub(super) const GELU: Layer =
    layer("gelu", "x·Φ(x) (Hendrycks and Gimpel, 2016)", |s, w| plain(s, w, Kind::Gelu));
pub(super) const SILU: Layer =
    layer("silu", "x·σ(x) (Elfwing, Uchibe and Doya, 2018)", |s, w| plain(s, w, Kind::Silu));
pub(super) const TANH: Layer =
    layer("tanh", "the hyperbolic tangent", |s, w| plain(s, w, Kind::Tanh));
pub(super) const SIGMOID: Layer =
    layer("sigmoid", "1/(1 + e⁻ˣ)", |s, w| plain(s, w, Kind::Sigmoid));

const fn layer(
    name: &'static str,
    summary: &'static str,
    build: fn(&Site<'_>, &Words<'_>) -> Result<Box<dyn Stage>>,
) -> Layer {
    Layer { name, usage: name, summary, keys: &[], build }
}

fn plain(site: &Site<'_>, words: &Words<'_>, kind: Kind) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    Ok(Box::new(Activation { kind, form: site.input }))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Relu,
    LeakyRelu,
    Gelu,
    Silu,
    Tanh,
    Sigmoid,
}

struct Activation {
    kind: Kind,
    form: Form,
}

impl Stage for Activation {
    fn output(&self) -> Form {
        self.form
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        match self.kind {
            Kind::Relu => each_number!(input, x => activation::relu(x)),
            Kind::LeakyRelu => each_number!(input, x => activation::leaky_relu(x, 0.01)),
            Kind::Gelu => each_number!(input, x => activation::gelu(x)),
            Kind::Silu => each_number!(input, x => activation::silu(x)),
            Kind::Tanh => each_number!(input, x => activation::tanh(x)),
            Kind::Sigmoid => each_number!(input, x => activation::sigmoid(x)),
        }
    }

    fn finish(&self) -> Option<Finish> {
        (self.kind == Kind::Relu).then_some(Finish::RECTIFY)
    }

    fn draw(&self, graph: &mut Graph, input: &str, _: &Model) -> Option<String> {
        let number = |graph: &mut Graph, value: f64| {
            graph.constant(&format!("number_{}", graph.constants.len()), &[1], vec![value])
        };
        Some(match self.kind {
            Kind::Relu => graph.node(Op::Relu, &[input]),
            Kind::Tanh => graph.node(Op::Tanh, &[input]),
            Kind::Sigmoid => graph.node(Op::Sigmoid, &[input]),
            Kind::LeakyRelu => {
                let slope = number(graph, 0.01);
                let low = graph.node(Op::Mul, &[input, &slope]);
                graph.node(Op::Max, &[input, &low])
            }
            Kind::Silu => {
                let gate = graph.node(Op::Sigmoid, &[input]);
                graph.node(Op::Mul, &[input, &gate])
            }
            Kind::Gelu => {
                let (root, one, half) =
                    (number(graph, 0.5f64.sqrt()), number(graph, 1.0), number(graph, 0.5));
                let scaled = graph.node(Op::Mul, &[input, &root]);
                let erf = graph.node(Op::Erf, &[&scaled]);
                let shifted = graph.node(Op::Add, &[&erf, &one]);
                let chance = graph.node(Op::Mul, &[&shifted, &half]);
                graph.node(Op::Mul, &[input, &chance])
            }
        })
    }
}
