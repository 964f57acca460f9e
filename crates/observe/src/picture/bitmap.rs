//! Painting shapes as pixels, two a unit. Letters come from a font of 8 × 8 points that is part of the program: a machine
//! without fonts can draw too.

use super::{Anchor, Colour, INK, Letters, Shape};
use font8x8::{BASIC_FONTS, GREEK_FONTS, LATIN_FONTS, UnicodeFonts};

/// Pixels of a unit.
const SCALE: f64 = 2.0;
/// The columns of a glyph that a letter takes; the last is empty in nearly all.
const COLUMNS: f64 = 7.0;

/// A painted picture: rows of pixels of three bytes.
pub(super) struct Painted {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) pixels: Vec<u8>,
}

/// Paints on white.
pub(super) fn paint((width, height): (f64, f64), shapes: &[Shape]) -> Painted {
    let (width, height) = ((width * SCALE).ceil() as usize, (height * SCALE).ceil() as usize);
    let mut painted = Painted { width, height, pixels: vec![255; width * height * 3] };
    shapes.iter().for_each(|shape| painted.shape(shape));
    painted
}

impl Painted {
    fn shape(&mut self, shape: &Shape) {
        match shape {
            Shape::Rectangle { place: [x, y, width, height], fill, outline } => {
                self.fill([*x, *y, *width, *height], *fill);
                let corners = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0), (0.0, 0.0)];
                let points: Vec<(f64, f64)> =
                    corners.iter().map(|(a, b)| (x + a * width, y + b * height)).collect();
                points.windows(2).for_each(|ends| self.line(ends[0], ends[1], (1.0, *outline)));
            }
            Shape::Lines { points, width, colour } => {
                points.windows(2).for_each(|ends| self.line(ends[0], ends[1], (*width, *colour)));
            }
            Shape::Pixels { place: (x, y), side, columns, colours } => {
                for (at, colour) in colours.iter().enumerate() {
                    let (row, column) = ((at / columns) as f64, (at % columns) as f64);
                    self.fill([x + column * side, y + row * side, *side, *side], *colour);
                }
            }
            Shape::Text { place, text, anchor, letters } => {
                self.text(*place, text, (*anchor, *letters));
            }
        }
    }

    fn fill(&mut self, [x, y, width, height]: [f64; 4], colour: Colour) {
        let pixel = |at: f64| (at * SCALE).round().max(0.0) as usize;
        for row in pixel(y)..pixel(y + height).min(self.height) {
            for column in pixel(x)..pixel(x + width).min(self.width) {
                self.blend((column, row), 1.0, colour);
            }
        }
    }

    /// A line with soft edges: a pixel is as dark as the line covers it.
    fn line(&mut self, a: (f64, f64), b: (f64, f64), (width, colour): (f64, Colour)) {
        let (a, b) = ((a.0 * SCALE, a.1 * SCALE), (b.0 * SCALE, b.1 * SCALE));
        let half = width * SCALE / 2.0;
        let reach = half + 1.0;
        let range = |low: f64, high: f64, most: usize| {
            let from = (low - reach).floor().max(0.0) as usize;
            from..((high + reach).ceil().max(0.0) as usize).min(most)
        };
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let square = (dx * dx + dy * dy).max(1e-9);
        for row in range(a.1.min(b.1), a.1.max(b.1), self.height) {
            for column in range(a.0.min(b.0), a.0.max(b.0), self.width) {
                let (x, y) = (column as f64 + 0.5 - a.0, row as f64 + 0.5 - a.1);
                let along = ((x * dx + y * dy) / square).clamp(0.0, 1.0);
                let away = (x - along * dx).hypot(y - along * dy);
                let cover = (half + 0.5 - away).clamp(0.0, 1.0);
                if cover > 0.0 {
                    self.blend((column, row), cover, colour);
                }
            }
        }
    }

    fn text(&mut self, (x, y): (f64, f64), text: &str, (anchor, letters): (Anchor, Letters)) {
        let length = letters.width() * text.chars().count() as f64;
        let start = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - length / 2.0,
            Anchor::End => x - length,
        };
        let point = letters.width() * SCALE / COLUMNS;
        let foot = y * SCALE;
        for (at, letter) in text.chars().enumerate() {
            let left = (start + at as f64 * letters.width()) * SCALE;
            for (row, bits) in glyph(letter).iter().enumerate() {
                let top = foot + (row as f64 - 7.0) * point;
                for column in (0..8).filter(|column| bits >> column & 1 == 1) {
                    let from = left + f64::from(column) * point;
                    let place = [from / SCALE, top / SCALE, point / SCALE, point / SCALE];
                    self.fill(place, INK);
                }
            }
        }
    }

    fn blend(&mut self, (column, row): (usize, usize), share: f64, colour: Colour) {
        let at = 3 * (row * self.width + column);
        for (pixel, colour) in self.pixels[at..at + 3].iter_mut().zip(colour) {
            let mixed = f64::from(*pixel) * (1.0 - share) + f64::from(colour) * share;
            *pixel = mixed.round() as u8;
        }
    }
}

/// The points of a letter, row by row, the lowest bit on the left. What the font lacks is a question mark.
fn glyph(letter: char) -> [u8; 8] {
    let known = BASIC_FONTS.get(letter).or_else(|| LATIN_FONTS.get(letter));
    known.or_else(|| GREEK_FONTS.get(letter)).or_else(|| BASIC_FONTS.get('?')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_leave_ink_where_they_are_and_nowhere_else() {
        let line = Shape::Lines { points: vec![(0.0, 5.0), (20.0, 5.0)], width: 1.0, colour: INK };
        let text = Shape::Text {
            place: (2.0, 18.0),
            text: "Hé".to_string(),
            anchor: Anchor::Start,
            letters: Letters::Plain,
        };
        let painted = paint((20.0, 20.0), &[line, text]);
        let dark = |row: usize| {
            painted.pixels[row * 120..(row + 1) * 120].chunks(3).filter(|p| p[0] < 128).count()
        };
        assert_eq!((dark(9), dark(10), dark(3)), (40, 40, 0));
        assert!((20..38).map(dark).sum::<usize>() > 40, "no letters");
        assert_ne!(glyph('é'), glyph('?'));
        assert_eq!(glyph('\u{4e00}'), glyph('?'));
    }
}
