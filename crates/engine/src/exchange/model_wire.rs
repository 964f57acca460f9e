//! How a model travels to a peer that has one of the same shapes: a few words, then its float weights in the
//! order of their names, as the codec writes them. Lengths follow from the shapes, so nothing is believed.

use starlings_codec::{Codec, Into as Put, Malformed};
use starlings_core::{Block, Body, Kind, Model, Role, Tensor, Update, Values};

/// Words before the numbers.
const WORDS: usize = 3;

/// The float weights of a model, as blocks in the order of their names.
#[must_use]
pub fn weights(model: &Model) -> Update {
    blocks(model, |tensor| tensor.role == Role::Weight && tensor.values.kind() != Kind::I64)
}

/// All weights of a model, integers too, as blocks in the order of their names.
#[must_use]
pub fn all_weights(model: &Model) -> Update {
    blocks(model, |tensor| tensor.role == Role::Weight)
}

fn blocks(model: &Model, travels: impl Fn(&Tensor) -> bool) -> Update {
    let blocks = model.iter().filter(|(_, tensor)| travels(tensor)).map(|(name, tensor)| Block {
        name: name.to_string(),
        body: Body::Dense(tensor.values.clone()),
    });
    Update { blocks: blocks.collect() }
}

/// Puts blocks made by [`weights`] in the place of a model's float weights.
pub fn put(model: &mut Model, weights: &Update) {
    for block in &weights.blocks {
        if let (Some(tensor), Body::Dense(values)) = (model.get_mut(&block.name), &block.body) {
            tensor.values.clone_from(values);
        }
    }
}

/// Writes words and weights.
#[must_use]
pub fn write(words: [u64; WORDS], weights: &Update, codec: &dyn Codec) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 * WORDS + weights.bytes());
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    for block in &weights.blocks {
        if let Body::Dense(values) = &block.body {
            codec.encode(values, 0, values.len(), &mut out);
        }
    }
    out
}

/// Reads what [`write()`] wrote for a model whose weights look `like` these.
///
/// # Errors
/// When the bytes are not as many as such a model has.
pub fn read(
    bytes: &[u8],
    like: &Update,
    codec: &dyn Codec,
) -> Result<([u64; WORDS], Update), Malformed> {
    let short = Malformed("a model that is too short");
    let (head, mut rest) = bytes.split_at_checked(8 * WORDS).ok_or(short)?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(head.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let mut update = Update::default();
    for block in &like.blocks {
        let Body::Dense(values) = &block.body else { return Err(Malformed("no dense block")) };
        let (kind, len) = (values.kind(), values.len());
        let (mine, after) = rest.split_at_checked(codec.encoded_len(kind, len)).ok_or(short)?;
        let mut values = Values::zeros(kind, len);
        codec.decode(mine, &mut values, 0..len, Put::Put)?;
        update.blocks.push(Block { name: block.name.clone(), body: Body::Dense(values) });
        rest = after;
    }
    if rest.is_empty() { Ok((words, update)) } else { Err(Malformed("a model that is too long")) }
}

/// Adds `scale` times the numbers of another set of weights of the same shapes.
///
/// # Panics
/// If the shapes differ: they are checked when weights are read.
pub fn add_scaled(into: &mut Update, scale: f64, from: &Update) {
    for (into, from) in into.blocks.iter_mut().zip(&from.blocks) {
        match (&mut into.body, &from.body) {
            (Body::Dense(Values::F64(a)), Body::Dense(Values::F64(b))) => {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += scale * b);
            }
            (Body::Dense(Values::F32(a)), Body::Dense(Values::F32(b))) => {
                let scale = scale as f32;
                a.iter_mut().zip(b).for_each(|(a, b)| *a += scale * b);
            }
            _ => panic!("weights of other shapes"),
        }
    }
}

/// Zeros of the same shapes.
#[must_use]
pub fn zeros_like(weights: &Update) -> Update {
    let mut zeros = weights.clone();
    for block in &mut zeros.blocks {
        if let Body::Dense(values) = &mut block.body {
            *values = Values::zeros(values.kind(), values.len());
        }
    }
    zeros
}

/// The squared Euclidean distance of two sets of weights.
#[must_use]
pub fn squared_distance(a: &Update, b: &Update) -> f64 {
    let pairs = a.blocks.iter().zip(&b.blocks);
    pairs
        .map(|(a, b)| match (&a.body, &b.body) {
            (Body::Dense(Values::F64(a)), Body::Dense(Values::F64(b))) => {
                a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>()
            }
            (Body::Dense(Values::F32(a)), Body::Dense(Values::F32(b))) => {
                a.iter().zip(b).map(|(a, b)| f64::from(a - b) * f64::from(a - b)).sum()
            }
            _ => 0.0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(scale: f64) -> Model {
        let mut model = Model::new();
        model.set("a", Tensor::of(&[2], vec![scale, -scale], Role::Weight));
        model.set("clock", Tensor::zeros(Kind::I64, &[2], Role::State));
        model.set("b", Tensor::of(&[1, 1], vec![3.0 * scale], Role::Weight));
        model
    }

    #[test]
    fn weights_come_back_and_anything_else_is_refused() {
        let codec = crate::choices::raw();
        let sent = weights(&model(1.0));
        let bytes = write([7, 8, 9], &sent, &*codec);
        assert_eq!(read(&bytes, &weights(&model(2.0)), &*codec), Ok(([7, 8, 9], sent.clone())));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut], &sent, &*codec).is_err(), "cut at {cut}");
        }
        assert!(read(&[&bytes[..], &[0]].concat(), &sent, &*codec).is_err());
    }

    #[test]
    fn the_distance_of_scaled_models() {
        let (one, three) = (weights(&model(1.0)), weights(&model(3.0)));
        assert_eq!(squared_distance(&one, &three), 4.0 + 4.0 + 36.0);
        let mut sum = zeros_like(&one);
        add_scaled(&mut sum, 0.5, &one);
        add_scaled(&mut sum, 0.5, &three);
        assert_eq!(sum, weights(&model(2.0)));
    }
}
