//! The catalogue of layers: one file each, two lines here. A layer is written in a job file as a line of words: its name,
//! then numbers and `key value` pairs, such as `conv 32 5x5 stride 2`.

mod activation;
mod attention;
mod augment;
mod batch_norm;
mod conv;
mod dropout;
mod embedding;
mod flatten;
mod group_norm;
mod image;
mod last;
mod layer_norm;
mod linear;
mod noise;
mod pool;
mod recurrent;
mod residual;
mod sample;
mod upsample;

use crate::flow::Form;
use crate::own::OwnLayers;
use crate::stage::Stage;
pub(crate) use recurrent::{Recurrent, gates};
use starlings_core::{Fault, Result, suggestion};

/// One kind of layer.
pub struct Layer {
    /// The first word of its line.
    pub name: &'static str,
    /// How its line is written.
    pub usage: &'static str,
    /// What it does and who proposed it.
    pub summary: &'static str,
    /// The keys that a value follows.
    keys: &'static [&'static str],
    build: fn(&Site<'_>, &Words<'_>) -> Result<Box<dyn Stage>>,
}

static LAYERS: &[Layer] = &[
    linear::LAYER,
    conv::LAYER,
    pool::MAX,
    pool::AVERAGE,
    pool::GLOBAL_AVERAGE,
    batch_norm::LAYER,
    group_norm::LAYER,
    layer_norm::LAYER,
    dropout::LAYER,
    upsample::LAYER,
    augment::LAYER,
    flatten::LAYER,
    image::LAYER,
    residual::LAYER,
    embedding::LAYER,
    embedding::POSITION,
    recurrent::RNN,
    recurrent::LSTM,
    recurrent::GRU,
    last::LAYER,
    attention::LAYER,
    attention::TRANSFORMER,
    noise::LAYER,
    sample::LAYER,
    activation::RELU,
    activation::LEAKY_RELU,
    activation::GELU,
    activation::SILU,
    activation::TANH,
    activation::SIGMOID,
];

/// All kinds of layers.
#[must_use]
pub fn layers() -> &'static [Layer] {
    LAYERS
}

/// Where a layer stands in a network.
pub(crate) struct Site<'a> {
    /// What the names of its parameters begin with.
    pub(crate) name: String,
    /// Counted from 1, for messages.
    pub(crate) number: usize,
    /// Its line.
    pub(crate) line: &'a str,
    /// The form of the rows that reach it.
    pub(crate) input: Form,
    /// The layers that the job defines.
    pub(crate) own: &'a OwnLayers,
    /// Which share of its heads or units is computed here, and of how many shares.
    pub(crate) share: (usize, usize),
}

/// The share of a layer that is all in one place.
pub(crate) const ALL: (usize, usize) = (0, 1);

impl Site<'_> {
    /// Refuses the layer: the sentence goes on after its name.
    pub(crate) fn refuse(&self, what: impl std::fmt::Display) -> Fault {
        Fault::caller(format!("layer {} '{}' {what}", self.number, self.line))
    }

    /// Channels, height and width of the images that reach it.
    ///
    /// # Errors
    /// When something else does.
    pub(crate) fn image(&self) -> Result<[usize; 3]> {
        match self.input {
            Form::Image { channels, height, width } => Ok([channels, height, width]),
            other => Err(self.refuse(format!("wants an image and gets {other}")).hint(
                "layers of images come before the first linear layer; set shape = [channels, height, width]",
            )),
        }
    }

    /// Steps and width of the sequences that reach it.
    ///
    /// # Errors
    /// When something else does.
    pub(crate) fn sequence(&self) -> Result<[usize; 2]> {
        match self.input {
            Form::Sequence { steps, width } => Ok([steps, width]),
            other => Err(self.refuse(format!("wants steps and gets {other}"))),
        }
    }
}

/// Builds the layer of a line.
///
/// # Errors
/// An unknown layer, a line that is not understood, or rows of a form that it cannot take.
pub(crate) fn build(site: &Site<'_>) -> Result<Box<dyn Stage>> {
    let name = site.line.split_whitespace().next().unwrap_or_default();
    if let Some(layer) = site.own.find(name) {
        return layer.build(site);
    }
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        let known = LAYERS.iter().map(|layer| layer.name);
        let known: Vec<&str> = known.chain(site.own.names()).collect();
        return Err(site.refuse("is no layer that I know").hint(suggestion(name, &known)));
    };
    let words = Words::parse(site, layer)?;
    (layer.build)(site, &words)
}

/// Whether there is a layer of this name.
pub(crate) fn is_known(name: &str, own: &OwnLayers) -> bool {
    own.find(name).is_some() || LAYERS.iter().any(|layer| layer.name == name)
}

/// The words of a line after the layer's name.
pub(crate) struct Words<'a> {
    plain: Vec<&'a str>,
    named: Vec<(&'static str, &'a str)>,
    usage: &'static str,
}

impl<'a> Words<'a> {
    fn parse(site: &Site<'a>, layer: &Layer) -> Result<Words<'a>> {
        let mut words = Words { plain: Vec::new(), named: Vec::new(), usage: layer.usage };
        let mut rest = site.line.split_whitespace().skip(1);
        while let Some(word) = rest.next() {
            match layer.keys.iter().find(|key| **key == word) {
                None => words.plain.push(word),
                Some(key) => {
                    let value = rest.next().ok_or_else(|| {
                        site.refuse(format!("has no value after '{key}'")).hint(layer.usage)
                    })?;
                    words.named.push((*key, value));
                }
            }
        }
        Ok(words)
    }

    /// Refuses words beyond the first `count` plain ones.
    ///
    /// # Errors
    /// When there are more.
    pub(crate) fn at_most(&self, site: &Site<'_>, count: usize) -> Result<()> {
        match self.plain.get(count) {
            None => Ok(()),
            Some(word) => {
                Err(site.refuse(format!("has a word too many: '{word}'")).hint(self.usage))
            }
        }
    }

    /// A plain word, if the line has so many.
    pub(crate) fn plain(&self, index: usize) -> Option<&'a str> {
        self.plain.get(index).copied()
    }

    /// The value after a key.
    pub(crate) fn named(&self, key: &str) -> Option<&'a str> {
        self.named.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    /// A plain word that is a size.
    ///
    /// # Errors
    /// When it is missing or no number from 1 up.
    pub(crate) fn size(&self, site: &Site<'_>, index: usize, what: &str) -> Result<usize> {
        let word = self
            .plain(index)
            .ok_or_else(|| site.refuse(format!("does not say the {what}")).hint(self.usage))?;
        self.number(site, word, what)
    }

    /// The size after a key, or what it is without.
    ///
    /// # Errors
    /// When it is no number from 1 up.
    pub(crate) fn size_of(&self, site: &Site<'_>, key: &str, otherwise: usize) -> Result<usize> {
        self.named(key).map_or(Ok(otherwise), |word| self.number(site, word, key))
    }

    fn number(&self, site: &Site<'_>, word: &str, what: &str) -> Result<usize> {
        word.parse().ok().filter(|&size| (1..=SIZE_MAX).contains(&size)).ok_or_else(|| {
            site.refuse(format!("has '{word}' for the {what}, which is no whole number from 1 up"))
                .hint(self.usage)
        })
    }

    /// Whether the word after a key is `on`, as it is without one, or `off`.
    ///
    /// # Errors
    /// When it is another.
    pub(crate) fn is_on(&self, site: &Site<'_>, key: &str) -> Result<bool> {
        match self.named(key) {
            None | Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(site.refuse(format!("has '{key} {other}'")).hint(self.usage)),
        }
    }

    /// The fraction after the name.
    ///
    /// # Errors
    /// When it is missing or not from 0 to below 1.
    pub(crate) fn fraction(&self, site: &Site<'_>, index: usize, what: &str) -> Result<f64> {
        let word = self.plain(index).unwrap_or_default();
        word.parse().ok().filter(|share| (0.0..1.0).contains(share)).ok_or_else(|| {
            site.refuse(format!("has '{word}' for the {what}, which is not from 0 to below 1"))
                .hint(self.usage)
        })
    }

    /// A square or a rectangle, written `3` or `3x5`.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn rectangle(&self, site: &Site<'_>, word: &str, what: &str) -> Result<[usize; 2]> {
        let (height, width) = word.split_once('x').unwrap_or((word, word));
        Ok([self.number(site, height, what)?, self.number(site, width, what)?])
    }
}

/// No layer is wider: sizes beyond are slips of the finger.
const SIZE_MAX: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str, input: Form) -> String {
        let own = &OwnLayers::default();
        let site = Site { name: "00".to_string(), number: 3, line, input, own, share: ALL };
        build(&site).err().map(|fault| fault.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_layer_that_does_not_fit_is_named_with_its_sizes() {
        let image = Form::Image { channels: 3, height: 4, width: 4 };
        let cases: [(&str, Form, &[&str]); 8] = [
            ("conv 8", Form::Flat(64), &["layer 3 'conv 8'", "wants an image", "64 numbers"]),
            ("conv 8 7x7 padding 0", image, &["7×7", "3×4×4"]),
            ("max-pool 5", image, &["5×5", "3×4×4"]),
            ("group-norm 2", image, &["3 channels", "2 groups"]),
            ("conv", image, &["does not say", "channels"]),
            ("linear 0", Form::Flat(3), &["'0'", "from 1 up"]),
            ("dropout 1.0", Form::Flat(3), &["'1.0'", "below 1"]),
            ("linaer 3", Form::Flat(3), &["no layer", "'linear'"]),
        ];
        for (line, input, parts) in cases {
            let found = refusal(line, input);
            parts.iter().for_each(|part| assert!(found.contains(part), "{line}: {found}"));
        }
    }

    #[test]
    fn every_layer_says_how_it_is_written() {
        for layer in LAYERS {
            assert!(layer.usage.starts_with(layer.name) && !layer.summary.is_empty());
        }
    }
}
