//! Numbers of a row seen as an image, so that layers of images can follow a linear one: what the second half of a
//! convolutional autoencoder begins with.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::Pass;
use crate::stage::Stage;
use starlings_core::{Graph, Model, Result};

pub(super) const LAYER: Layer = Layer {
    name: "image",
    usage: "image CHANNELS HEIGHT WIDTH",
    summary: "numbers of a row as an image",
    keys: &[],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 3)?;
    let channels = words.size(site, 0, "channels")?;
    let (height, width) = (words.size(site, 1, "height")?, words.size(site, 2, "width")?);
    let form = Form::Image { channels, height, width };
    if form.len() != site.input.len() {
        let (wanted, given) = (form.len(), site.input);
        return Err(site.refuse(format!("wants {wanted} numbers and gets {given}")));
    }
    Ok(Box::new(Image { form }))
}

struct Image {
    form: Form,
}

impl Stage for Image {
    fn output(&self) -> Form {
        self.form
    }

    fn forward(&self, input: Flow, _: &mut Pass<'_>) -> Flow {
        Flow::shaped(input.flat(), self.form)
    }

    fn draw(&self, _: &mut Graph, input: &str, _: &Model) -> Option<String> {
        Some(input.to_string())
    }
}
