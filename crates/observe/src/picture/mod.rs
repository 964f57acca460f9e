//! Pictures: rectangles, lines and texts, written as SVG or painted as PNG. One list of shapes for both, so that they
//! show the same. Letters are 7 units wide (10.5 in titles), in the SVG too, so that what fits in one fits in the other.

mod bitmap;
mod charts;
mod grid;
mod png;
mod tree;

pub use charts::{Bars, Curve, Line};
pub use grid::Grid;
pub use tree::{Branch, Tree};

use std::fmt::Write;

/// Red, green, blue.
pub type Colour = [u8; 3];

/// Colours that are told apart also by those who see few (Okabe and Ito, 2008).
pub(crate) const SERIES: [Colour; 6] =
    [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [213, 94, 0], [86, 180, 233]];
pub(crate) const INK: Colour = [34, 34, 34];
pub(crate) const FAINT: Colour = [210, 210, 210];

/// Where a text begins, given its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// At it.
    Start,
    /// It is its middle.
    Middle,
    /// It ends there.
    End,
}

/// How large letters are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Letters {
    /// 7 units wide.
    Plain,
    /// 10.5 units wide.
    Title,
}

impl Letters {
    /// The width of one.
    #[must_use]
    pub fn width(self) -> f64 {
        match self {
            Letters::Plain => 7.0,
            Letters::Title => 10.5,
        }
    }
}

/// A thing to draw.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// A filled rectangle with an outline.
    Rectangle {
        /// Left, top, width, height.
        place: [f64; 4],
        /// Its inside.
        fill: Colour,
        /// Its outline.
        outline: Colour,
    },
    /// Straight lines from point to point.
    Lines {
        /// The points.
        points: Vec<(f64, f64)>,
        /// How thick.
        width: f64,
        /// Of which colour.
        colour: Colour,
    },
    /// Small squares side by side, row after row.
    Pixels {
        /// Left and top.
        place: (f64, f64),
        /// The side of a square.
        side: f64,
        /// Squares in a row.
        columns: usize,
        /// Their colours.
        colours: Vec<Colour>,
    },
    /// A line of text.
    Text {
        /// Where, its foot.
        place: (f64, f64),
        /// What.
        text: String,
        /// Where it begins.
        anchor: Anchor,
        /// How large.
        letters: Letters,
    },
}

/// A picture on white ground.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Picture {
    width: f64,
    height: f64,
    shapes: Vec<Shape>,
}

impl Picture {
    /// An empty one.
    #[must_use]
    pub fn new(width: f64, height: f64) -> Picture {
        Picture { width, height, shapes: Vec::new() }
    }

    /// Adds a rectangle.
    pub fn rectangle(&mut self, place: [f64; 4], fill: Colour, outline: Colour) {
        self.shapes.push(Shape::Rectangle { place, fill, outline });
    }

    /// Adds lines.
    pub fn lines(&mut self, points: Vec<(f64, f64)>, width: f64, colour: Colour) {
        self.shapes.push(Shape::Lines { points, width, colour });
    }

    /// Adds small squares, so many in a row.
    pub fn pixels(&mut self, place: (f64, f64), side: f64, columns: usize, colours: Vec<Colour>) {
        self.shapes.push(Shape::Pixels { place, side, columns, colours });
    }

    /// Adds a text.
    pub fn text(&mut self, place: (f64, f64), text: &str, (anchor, letters): (Anchor, Letters)) {
        self.shapes.push(Shape::Text { place, text: text.to_string(), anchor, letters });
    }

    /// As SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"monospace\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        for shape in &self.shapes {
            write_shape(&mut out, shape);
        }
        out + "</svg>\n"
    }

    /// As PNG, two pixels a unit.
    #[must_use]
    pub fn png(&self) -> Vec<u8> {
        let painted = bitmap::paint((self.width, self.height), &self.shapes);
        png::encode(painted.width, painted.height, &painted.pixels)
    }
}

fn write_shape(out: &mut String, shape: &Shape) {
    let hex = |[r, g, b]: Colour| format!("#{r:02x}{g:02x}{b:02x}");
    let _ = match shape {
        Shape::Rectangle { place: [x, y, width, height], fill, outline } => writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\" stroke=\"{}\"/>",
            hex(*fill),
            hex(*outline)
        ),
        Shape::Lines { points, width, colour } => {
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"/>",
                path.join(" "),
                hex(*colour)
            )
        }
        Shape::Pixels { place: (x, y), side, columns, colours } => {
            let rows = colours.len() / (*columns).max(1);
            let (width, height) = (side * *columns as f64, side * rows as f64);
            let file = png::encode(*columns, rows, &colours.concat());
            writeln!(
                out,
                "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
                 style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>",
                grid::base64(&file)
            )
        }
        Shape::Text { place: (x, y), text, anchor, letters } => {
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let length = letters.width() * text.chars().count() as f64;
            let size = letters.width() / 0.6;
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" text-anchor=\"{anchor}\" \
                 textLength=\"{length:.1}\" fill=\"{}\">{text}</text>",
                hex(INK)
            )
        }
    };
}

/// A text of at most so many letters.
pub(crate) fn cut(text: &str, letters_max: usize) -> String {
    match text.chars().count() > letters_max {
        true => text.chars().take(letters_max.saturating_sub(2)).chain("..".chars()).collect(),
        false => text.to_string(),
    }
}

/// Three significant digits, without zeros at the end.
pub(crate) fn short(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return if number == 0.0 { "0".to_string() } else { number.to_string() };
    }
    let size = number.abs().log10().floor() as i32;
    if !(-4..6).contains(&size) {
        return format!("{number:.2e}");
    }
    let text = format!("{number:.*}", (2 - size).max(0) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_long_texts_are_cut() {
        let numbers = [0.0, 1.0, -0.12345, 1234.5, 1e-7, 25_000_000.0, 0.5];
        let wanted = ["0", "1", "-0.123", "1234", "1.00e-7", "2.50e7", "0.5"];
        assert_eq!(numbers.map(short), wanted);
        assert_eq!((cut("abcdef", 4), cut("abcd", 4)), ("ab..".to_string(), "abcd".to_string()));
    }

    #[test]
    fn texts_are_escaped_in_svg() {
        let mut picture = Picture::new(10.0, 10.0);
        picture.text((1.0, 1.0), "a<b & c", (Anchor::Start, Letters::Plain));
        let svg = picture.svg();
        assert!(svg.contains(">a&lt;b &amp; c</text>") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
