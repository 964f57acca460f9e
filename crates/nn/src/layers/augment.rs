//! Augmentation of images while learning (Simard, Steinkraus and Platt, "Best practices for convolutional neural
//! networks applied to visual document analysis", 2003; Krizhevsky, Sutskever and Hinton, 2012): each row is moved by
//! up to so many pixels, mirrored by the toss of a coin, and loses a square (DeVries and Taylor, "Cutout", 2017). What
//! comes in from outside is zero. Drawn by shard of rows, so that it does not depend on who computes.

use super::{Layer, Site, Words};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, numbers, tensor};
use crate::stage::Stage;
use starlings_core::{Graph, Model, Result};

pub(super) const LAYER: Layer = Layer {
    name: "augment",
    usage: "augment [shift PIXELS] [flip on] [cut PIXELS]",
    summary: "moves, mirrors and cuts images at random while it learns; the first layer",
    keys: &["shift", "flip", "cut"],
    build,
};

fn build(site: &Site<'_>, words: &Words<'_>) -> Result<Box<dyn Stage>> {
    words.at_most(site, 0)?;
    let [channels, height, width] = site.image()?;
    // Rows are rearranged outside the graph of gradients, which therefore must begin behind it.
    if site.number != 1 {
        return Err(site.refuse("is not the first layer").hint("write it before all others"));
    }
    let pixels = |key: &str| match words.named(key) {
        None => Ok(0),
        Some(_) => words.size_of(site, key, 0),
    };
    let (shift, cut) = (pixels("shift")?, pixels("cut")?);
    if shift >= height.min(width) || cut >= height.min(width) {
        let what = format!("moves or cuts {} pixels of {}", shift.max(cut), site.input);
        return Err(site.refuse(what));
    }
    let flip = words.named("flip").is_some() && words.is_on(site, "flip")?;
    Ok(Box::new(Augment { channels, height, width, shift, flip, cut }))
}

struct Augment {
    channels: usize,
    height: usize,
    width: usize,
    shift: usize,
    flip: bool,
    cut: usize,
}

/// What is drawn for a row: shares of the way down, across, mirrored, and where the square is.
const DRAWN: usize = 5;

impl Augment {
    /// One image from another: `drawn` says how.
    fn change(&self, image: &[f32], drawn: &[f32], into: &mut Vec<f32>) {
        let (height, width) = (self.height, self.width);
        let choice = |share: f32, count: usize| ((share * count as f32) as usize).min(count - 1);
        let span = 2 * self.shift + 1;
        let (down, across) = (choice(drawn[0], span), choice(drawn[1], span));
        let mirrored = self.flip && drawn[2] < 0.5;
        let square = (choice(drawn[3], height), choice(drawn[4], width));
        let is_cut = |row: usize, column: usize| {
            let near = |at: usize, middle: usize| {
                (at + self.cut / 2).checked_sub(middle).is_some_and(|off| off < self.cut)
            };
            near(row, square.0) && near(column, square.1)
        };
        for plane in image.chunks_exact(height * width) {
            for row in 0..height {
                for column in 0..width {
                    let from_row = (row + down).checked_sub(self.shift);
                    let from_column = (column + across).checked_sub(self.shift);
                    let found = match (from_row, from_column) {
                        (Some(row), Some(column)) if row < height && column < width => {
                            let column = if mirrored { width - 1 - column } else { column };
                            plane[row * width + column]
                        }
                        _ => 0.0,
                    };
                    into.push(if is_cut(row, column) { 0.0 } else { found });
                }
            }
        }
    }
}

impl Stage for Augment {
    fn output(&self) -> Form {
        Form::Image { channels: self.channels, height: self.height, width: self.width }
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let drawn = pass.drawn("augment", DRAWN, |rng, drawn, count| {
            drawn.extend((0..count).map(|_| rng.uniform() as f32));
        });
        let Some(drawn) = drawn else { return input };
        let size = self.output().len();
        let images = numbers(input.flat());
        let mut changed = Vec::with_capacity(images.len());
        for (image, drawn) in images.chunks_exact(size).zip(drawn.chunks_exact(DRAWN)) {
            self.change(image, drawn, &mut changed);
        }
        let rows = changed.len() / size;
        Flow::shaped(tensor(changed, [rows, size]), self.output())
    }

    fn draw(&self, _: &mut Graph, input: &str, _: &Model) -> Option<String> {
        Some(input.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_move_turn_and_lose_a_square() {
        let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let changed = |shift, flip, cut, drawn: [f32; DRAWN]| {
            let mut into = Vec::new();
            Augment { channels: 1, height: 3, width: 3, shift, flip, cut }
                .change(&image, &drawn, &mut into);
            into
        };
        let half = 0.5;
        assert_eq!(changed(0, false, 0, [half; DRAWN]), image);
        // A share of zero looks one pixel up and left: the image moves down and right.
        let moved = changed(1, false, 0, [0.0, 0.0, half, half, half]);
        assert_eq!(moved, [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 4.0, 5.0]);
        let turned = changed(0, true, 0, [half, half, 0.1, half, half]);
        assert_eq!(turned, [3.0, 2.0, 1.0, 6.0, 5.0, 4.0, 9.0, 8.0, 7.0]);
        let cut = changed(0, true, 1, [half; DRAWN]);
        assert_eq!(cut, [1.0, 2.0, 3.0, 4.0, 0.0, 6.0, 7.0, 8.0, 9.0]);
    }
}
