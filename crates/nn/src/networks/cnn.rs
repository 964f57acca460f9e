//! Convolutional networks (LeCun et al., "Gradient-based learning applied to document recognition", 1998), layer by layer
//! in the job file or by a preset: `plain` (two convolutions of 3×3 with pooling), `lenet-5`, or `resnet-18` (He et
//! al., 2016) with the stem for small images, as it is used on CIFAR.

use super::{LABEL_SMOOTHING, TASK, goal};
use crate::flow::Form;
use crate::learner::{Design, GIVES, Network};
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "cnn",
    summary: "Classes or numbers of images by a convolutional network; layers in the job file, or a preset",
    reference: "LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998; \
                He, Zhang, Ren and Sun, Deep residual learning for image recognition, CVPR 2016",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let design = Box::new(Cnn::of(params)?);
        Ok(Box::new(Network::new(design, goal(params), Recipe::of(params))))
    },
};

const OWN: &[Param] = &[
    Param {
        name: "shape",
        kind: ParamKind::Sizes { min: 1, max: 100_000 },
        default: Some("[]"),
        help: "[channels, height, width] of a row; without it, one square channel",
    },
    Param {
        name: "preset",
        kind: ParamKind::Choice(&["plain", "lenet-5", "resnet-18"]),
        default: Some("plain"),
        help: "which layers, unless the job lists them",
    },
    Param {
        name: "layers",
        kind: ParamKind::Texts,
        default: Some("[]"),
        help: "the layers one by one, but for the last, which gives the outputs: [\"conv 32\", \"relu\", \"max-pool 2\", …]",
    },
    TASK,
    LABEL_SMOOTHING,
];

const PLAIN: &[&str] =
    &["conv 32", "relu", "max-pool 2", "conv 64", "relu", "max-pool 2", "linear 128", "relu"];

const LENET_5: &[&str] = &[
    "conv 6 5",
    "tanh",
    "average-pool 2",
    "conv 16 5 padding 0",
    "tanh",
    "average-pool 2",
    "linear 120",
    "tanh",
    "linear 84",
    "tanh",
];

const RESNET_18: &[&str] = &[
    "conv 64 3 bias off",
    "batch-norm",
    "relu",
    "residual 64",
    "residual 64",
    "residual 128 stride 2",
    "residual 128",
    "residual 256 stride 2",
    "residual 256",
    "residual 512 stride 2",
    "residual 512",
    "global-average-pool",
];

struct Cnn {
    shape: Option<[usize; 3]>,
    lines: Vec<String>,
}

impl Cnn {
    fn of(params: &Params) -> Result<Cnn> {
        let shape = match params.sizes("shape")[..] {
            [] => None,
            [channels, height, width] => Some([channels, height, width]),
            ref other => {
                return Err(Fault::caller(format!("shape = {other:?} is not that of an image"))
                    .hint("write shape = [channels, height, width], such as [1, 28, 28]"));
            }
        };
        let preset = match params.text("preset") {
            "lenet-5" => LENET_5,
            "resnet-18" => RESNET_18,
            _ => PLAIN,
        };
        let listed = params.texts("layers");
        let lines = if listed.is_empty() { preset } else { &listed[..] };
        Ok(Cnn { shape, lines: lines.iter().map(|line| line.to_string()).collect() })
    }
}

impl Design for Cnn {
    fn input(&self, features: usize) -> Result<Form> {
        let side = features.isqrt();
        let [channels, height, width] = match self.shape {
            Some(shape) => shape,
            None if side * side == features => [1, side, side],
            None => {
                return Err(Fault::caller(format!("{features} features are no square image"))
                    .hint("set shape = [channels, height, width]"));
            }
        };
        let numbers = channels * height * width;
        if numbers != features {
            return Err(Fault::caller(format!(
                "shape = [{channels}, {height}, {width}] has {numbers} numbers, rows have {features}"
            ))
            .hint("set shape = [channels, height, width] so that their product is the features of a row"));
        }
        Ok(Form::Image { channels, height, width })
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.lines.clone()
    }
}
