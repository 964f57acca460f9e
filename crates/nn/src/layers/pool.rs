//! Pooling: the largest number or the mean of each window of an image (Fukushima, 1980; Ranzato et al., 2007), or the
//! mean of each whole channel (Lin, Chen and Yan, "Network in network", 2014).

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::kernels::{self, Finish};
use crate::pass::Pass;
use crate::stage::Stage;
use burn_tensor::module;
use burn_tensor::ops::AvgPoolOptions;
use starlings_core::Result;

pub(super) const MAX: Layer = Layer {
    name: "max-pool",
    usage: "max-pool WINDOW [stride N]",
    summary: "the largest number of each window; windows lie side by side unless a stride is given",
    keys: &["stride"],
    build: |site, words| window(site, words, Kind::Max),
};

pub(super) const AVERAGE: Layer = Layer {
    name: "average-pool",
    usage: "average-pool WINDOW [stride N]",
    summary: "the mean of each window",
    keys: &["stride"],
    build: |site, words| window(site, words, Kind::Average),
};

pub(super) const GLOBAL_AVERAGE: Layer = Layer {
    name: "global-average-pool",
    usage: "global-average-pool",
    summary: "the mean of each channel, or of the steps of a sequence",
    keys: &[],
    build: global,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Max,
    Average,
}

fn window(site: &Site<'_>, words: &Words<'_>, kind: Kind) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let [channels, height, width] = site.image()?;
    let size = words.size(site, 0, "window")?;
    let stride = words.size_of(site, "stride", size)?;
    if size > height || size > width {
        return Err(site.refuse(format!("has a window of {size}×{size} for {}", site.input)));
    }
    let (height, width) = ((height - size) / stride + 1, (width - size) / stride + 1);
    Ok(Box::new(Window { kind, size, stride, output: Form::Image { channels, height, width } }))
}

struct Window {
    kind: Kind,
    size: usize,
    stride: usize,
    output: Form,
}

impl Stage for Window {
    fn output(&self) -> Form {
        self.output
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        let (size, stride) = ([self.size; 2], [self.stride; 2]);
        Flow::Image(match self.kind {
            Kind::Max => kernels::largest(input.image(), self.size, self.stride),
            Kind::Average => {
                let options = AvgPoolOptions::new(size).with_stride(stride);
                module::avg_pool2d(input.image(), options)
            }
        })
    }

    fn finish(&self) -> Option<Finish> {
        let side_by_side = self.kind == Kind::Max && self.size == self.stride;
        side_by_side.then_some(Finish { rectifies: false, window: self.size })
    }
}

fn global(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    let width = match site.input {
        Form::Image { channels, .. } => channels,
        Form::Sequence { width, .. } => width,
        other @ Form::Flat(_) => {
            return Err(site.refuse(format!("wants an image or steps and gets {other}")));
        }
    };
    Ok(Box::new(Global { width }))
}

struct Global {
    width: usize,
}

impl Stage for Global {
    fn output(&self) -> Form {
        Form::Flat(self.width)
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        Flow::Flat(match input {
            Flow::Flat(rows) => rows,
            Flow::Sequence(rows) => {
                let count = rows.dims()[0];
                rows.mean_dim(1).reshape([count, self.width])
            }
            Flow::Image(rows) => {
                let [count, channels, height, width] = rows.dims();
                let lines = rows.reshape([count, channels, height * width]);
                lines.mean_dim(2).reshape([count, channels])
            }
        })
    }
}
