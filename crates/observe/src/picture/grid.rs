//! Many small images side by side: rows that a generative model makes up.

use super::{Anchor, Colour, Letters, Picture};

/// Images in a grid.
#[derive(Clone, PartialEq, Debug)]
pub struct Grid {
    /// What they are.
    pub title: String,
    /// Channels (1 is grey, 3 are red, green and blue), height and width of an image.
    pub shape: [usize; 3],
    /// The images' numbers, one after another, channel by channel. The smallest is black, the largest white.
    pub values: Vec<f32>,
}

/// Units between images.
const GAP: f64 = 4.0;
/// Units of a whole image, about.
const SIDE: f64 = 56.0;

impl Grid {
    /// The shape of an image of so many numbers, if it is a square, grey or coloured.
    #[must_use]
    pub fn square(numbers: usize) -> Option<[usize; 3]> {
        [1, 3].into_iter().find_map(|channels| {
            let side = (numbers / channels).isqrt();
            (side > 1 && channels * side * side == numbers).then_some([channels, side, side])
        })
    }

    /// As a picture, as many images across as down.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let [channels, height, width] = self.shape;
        let size = (channels * height * width).max(1);
        let count = self.values.len() / size;
        let across = (count as f64).sqrt().ceil().max(1.0) as usize;
        let side = (SIDE / width.max(1) as f64).max(1.0).round();
        let (step_x, step_y) = (side * width as f64 + GAP, side * height as f64 + GAP);
        let top = 28.0;
        let down = count.div_ceil(across);
        let mut picture = Picture::new(
            (across as f64 * step_x + GAP).max(160.0),
            top + down as f64 * step_y + GAP,
        );
        picture.text((GAP, 18.0), &self.title, (Anchor::Start, Letters::Title));
        let finite = self.values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let level = |value: f32| {
            let share = (value - low) / (high - low).max(f32::MIN_POSITIVE);
            (share.clamp(0.0, 1.0) * 255.0).round() as u8
        };
        for (at, image) in self.values.chunks_exact(size).enumerate() {
            let colour = |pixel: usize| -> Colour {
                let of = |channel: usize| level(image[channel % channels * height * width + pixel]);
                [of(0), of(1), of(2)]
            };
            let colours = (0..height * width).map(colour).collect();
            let place = (GAP + (at % across) as f64 * step_x, top + (at / across) as f64 * step_y);
            picture.pixels(place, side, width, colours);
        }
        picture
    }
}

/// Bytes as letters (RFC 4648), for files within files.
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 4648, section 10.
    #[test]
    fn bytes_become_letters() {
        let found = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|t| base64(t.as_bytes()));
        assert_eq!(found, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn images_stand_side_by_side_from_black_to_white() {
        assert_eq!(Grid::square(784), Some([1, 28, 28]));
        assert_eq!(Grid::square(12), Some([3, 2, 2]));
        assert_eq!(Grid::square(13), None);
        let values = vec![0.0, 1.0, 1.0, 0.0, 0.5, 0.5, 0.5, 0.5];
        let grid = Grid { title: "samples".to_string(), shape: [1, 2, 2], values };
        let svg = grid.draw().svg();
        assert_eq!(svg.matches("<image").count(), 2, "{svg}");
        assert!(grid.draw().png().starts_with(b"\x89PNG"));
    }
}
