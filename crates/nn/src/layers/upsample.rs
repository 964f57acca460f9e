//! Larger images: each pixel becomes a square of as many (Odena, Dumoulin and Olah, "Deconvolution and checkerboard
//! artifacts", 2016, who prefer it, with a convolution behind it, to a transposed convolution).

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::Stage;
use starlings_core::Result;

pub(super) const LAYER: Layer = Layer {
    name: "upsample",
    usage: "upsample TIMES",
    summary: "makes a square of each pixel",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 1)?;
    let [channels, height, width] = site.image()?;
    let times = words.size(site, 0, "times")?;
    Ok(Box::new(Upsample { channels, height, width, times }))
}

struct Upsample {
    channels: usize,
    height: usize,
    width: usize,
    times: usize,
}

impl Stage for Upsample {
    fn output(&self) -> Form {
        let (height, width) = (self.height * self.times, self.width * self.times);
        Form::Image { channels: self.channels, height, width }
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        let rows = input.image();
        let count = rows.dims()[0];
        let (planes, times) = (count * self.channels, self.times);
        let (high, wide) = (self.height * times, self.width * times);
        let across = rows.reshape([planes * self.height, 1, self.width, 1]).repeat_dim(3, times);
        let both = across.reshape([planes, self.height, 1, wide]).repeat_dim(2, times);
        Flow::Image(both.reshape([count, self.channels, high, wide]))
    }
}
