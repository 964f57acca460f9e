//! Convolutional networks (LeCun et al., "Gradient-based learning applied to document recognition", 1998), layer by layer
//! in the job file or by a preset: `plain` (two convolutions of 3×3 with pooling), `lenet-5`, or `resnet-18` (He et
//! al., 2016) with the stem for small images, as it is used on CIFAR.

use super::{LABEL_SMOOTHING, LAYERS, LOSS, Listed, OWN_LAYERS, TASK, goal, image, no_image};
use crate::flow::Form;
use crate::learner::{Design, GIVES, Network};
use crate::own::OwnLayers;
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Param, ParamKind, Params, Result};
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
        Ok(Box::new(Network::new(design, goal(params)?, Recipe::of(params)?)))
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
    LAYERS,
    OWN_LAYERS,
    TASK,
    LOSS,
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
    shape: Vec<usize>,
    listed: Listed,
}

impl Cnn {
    fn of(params: &Params) -> Result<Cnn> {
        let shape = params.sizes("shape");
        if !shape.is_empty() && shape.len() != 3 {
            return Err(no_image(&shape));
        }
        let preset = match params.text("preset") {
            "lenet-5" => LENET_5,
            "resnet-18" => RESNET_18,
            _ => PLAIN,
        };
        let preset = || preset.iter().map(|line| line.to_string()).collect();
        Ok(Cnn { shape, listed: Listed::of(params, (OWN, &["preset"]), preset)? })
    }
}

impl Design for Cnn {
    fn input(&self, features: usize) -> Result<Form> {
        image(&self.shape, features)
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.listed.lines.clone()
    }

    fn own(&self) -> &OwnLayers {
        &self.listed.own
    }
}
