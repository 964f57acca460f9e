//! Convolution of images (LeCun et al., "Gradient-based learning applied to document recognition", 1998). Without other
//! words the kernel is 3×3 and the padding such that, at stride 1, an image keeps its size.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::kernels::{self, Finish, Reach};
use crate::pass::Pass;
use crate::stage::{Care, Finishing, Parameter, Stage, Start};
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "conv",
    usage: "conv CHANNELS [KERNEL or HEIGHTxWIDTH] [stride N] [padding N] [bias off]",
    summary: "convolution with learned kernels (LeCun et al., 1998)",
    keys: &["stride", "padding", "bias"],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 2)?;
    let input = site.image()?;
    let outputs = words.size(site, 0, "channels")?;
    let kernel = words.rectangle(site, words.plain(1).unwrap_or("3"), "kernel")?;
    let stride = words.size_of(site, "stride", 1)?;
    let padding = match words.named("padding") {
        None => [kernel[0] / 2, kernel[1] / 2],
        Some("0") => [0, 0],
        Some(word) => words.rectangle(site, word, "padding")?,
    };
    let bias = words.is_on(site, "bias")?;
    let sizes = [0, 1].map(|axis| {
        let padded = input[axis + 1] + 2 * padding[axis];
        padded.checked_sub(kernel[axis]).map(|room| room / stride + 1)
    });
    let [Some(height), Some(width)] = sizes else {
        let [tall, wide] = kernel;
        return Err(site.refuse(format!("has a kernel of {tall}×{wide} for {}", site.input)));
    };
    let output = Form::Image { channels: outputs, height, width };
    let name = site.name.clone();
    let shape = [outputs, input[0], kernel[0], kernel[1]];
    Ok(Box::new(Conv { name, shape, stride, padding, bias, output }))
}

struct Conv {
    name: String,
    /// Outputs, inputs, height and width of the kernels.
    shape: [usize; 4],
    stride: usize,
    padding: [usize; 2],
    bias: bool,
    output: Form,
}

impl Stage for Conv {
    fn output(&self) -> Form {
        self.output
    }

    fn parameters(&self) -> Vec<Parameter> {
        let start = Start::fan_in(self.shape[1..].iter().product());
        let kernels = Parameter {
            name: format!("{}.weight", self.name),
            shape: self.shape.to_vec(),
            start,
            care: Care::Matrix,
        };
        let bias = self.bias.then(|| Parameter {
            name: format!("{}.bias", self.name),
            shape: vec![self.shape[0]],
            start,
            care: Care::Vector,
        });
        [kernels].into_iter().chain(bias).collect()
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        self.forward_finished(input, Finish::NONE, pass)
    }

    fn finishing(&self) -> Option<&dyn Finishing> {
        Some(self)
    }
}

impl Finishing for Conv {
    fn with(&self, already: Finish, next: Finish) -> Option<Finish> {
        already.then(next)
    }

    fn forward_finished(&self, input: Flow, finish: Finish, pass: &mut Pass<'_>) -> Flow {
        let kernels = pass.weight(&format!("{}.weight", self.name), self.shape);
        let bias = self.bias.then(|| pass.line(&format!("{}.bias", self.name)));
        let reach = Reach { stride: self.stride, padding: self.padding };
        let precision = pass.precision;
        let images = precision.narrowed(input.image());
        let given = (precision.narrowed(kernels), bias.map(|it| precision.narrowed(it)));
        Flow::Image(precision.widened(kernels::convolve(images, given, reach, finish)))
    }
}
