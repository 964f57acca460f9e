//! Two charts: bars with names, and curves over numbers or categories.

use super::{Anchor, FAINT, INK, Letters, Picture, SERIES, cut, short};

/// Named bars, the longest first as given.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bars {
    /// Above.
    pub title: String,
    /// Names and lengths.
    pub bars: Vec<(String, f64)>,
}

const PLAIN: Letters = Letters::Plain;
/// Letters of a name that are shown.
const NAME_MAX: usize = 28;

impl Bars {
    /// As a picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let names: Vec<String> = self.bars.iter().map(|(name, _)| cut(name, NAME_MAX)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
        let (left, room, row) = (20.0 + longest * PLAIN.width(), 420.0, 20.0);
        // Some lengths may be below zero: permuting a feature that says nothing may help by chance.
        let low = self.bars.iter().fold(0.0, |low: f64, bar| low.min(bar.1));
        let high = self.bars.iter().fold(0.0, |high: f64, bar| high.max(bar.1));
        let unit = room / (high - low).max(f64::MIN_POSITIVE);
        let zero = left + 10.0 - low * unit;
        let height = 70.0 + row * self.bars.len() as f64;
        let title = self.title.chars().count() as f64 * Letters::Title.width() + 40.0;
        let mut picture = Picture::new((left + room + 110.0).max(title), height);
        picture.text((20.0, 30.0), &self.title, (Anchor::Start, Letters::Title));
        for (at, ((_, length), name)) in self.bars.iter().zip(&names).enumerate() {
            let top = 50.0 + row * at as f64;
            let (from, to) = (zero + length.min(0.0) * unit, zero + length.max(0.0) * unit);
            picture.text((left, top + 12.0), name, (Anchor::End, PLAIN));
            picture.rectangle([from, top + 2.0, to - from, row - 6.0], SERIES[0], SERIES[0]);
            picture.text((to + 6.0, top + 12.0), &short(*length), (Anchor::Start, PLAIN));
        }
        let foot = 50.0 + row * self.bars.len() as f64;
        picture.lines(vec![(zero, 46.0), (zero, foot)], 1.0, INK);
        picture
    }
}

/// One line of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its heights, one for each place across.
    pub heights: Vec<f64>,
}

/// Curves over the same places.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Curve {
    /// Above.
    pub title: String,
    /// What goes across.
    pub across: String,
    /// What goes up.
    pub up: String,
    /// The places: numbers, or the numbers of categories.
    pub places: Vec<f64>,
    /// The names of the places, where they are categories.
    pub names: Vec<String>,
    /// The curves.
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 60.0;
const FOOT: f64 = 60.0;

impl Curve {
    /// As a picture.
    #[must_use]
    pub fn draw(&self) -> Picture {
        let legend = self.lines.len().min(SERIES.len()) as f64 * 18.0;
        let legend = if self.lines.len() > 1 { legend } else { 0.0 };
        let title = self.title.chars().count() as f64 * Letters::Title.width() + 40.0;
        let mut picture = Picture::new(WIDTH.max(title), HEIGHT + legend);
        picture.text((20.0, 30.0), &self.title, (Anchor::Start, Letters::Title));
        let heights = self.lines.iter().flat_map(|line| line.heights.iter().copied());
        let (low, high) = extent(heights);
        let (first, last) = extent(self.places.iter().copied());
        let x = |place: f64| LEFT + (WIDTH - LEFT - RIGHT) * (place - first) / (last - first);
        let y = |height: f64| HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * (height - low) / (high - low);
        for tick in ticks(low, high) {
            picture.lines(vec![(LEFT, y(tick)), (WIDTH - RIGHT, y(tick))], 1.0, FAINT);
            picture.text((LEFT - 8.0, y(tick) + 4.0), &short(tick), (Anchor::End, PLAIN));
        }
        let ground = HEIGHT - FOOT;
        for (place, name) in self.marks(first, last) {
            picture.lines(vec![(x(place), ground), (x(place), ground + 5.0)], 1.0, INK);
            picture.text((x(place), ground + 20.0), &name, (Anchor::Middle, PLAIN));
        }
        picture.lines(vec![(LEFT, TOP), (LEFT, ground), (WIDTH - RIGHT, ground)], 1.0, INK);
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        picture.text((middle, HEIGHT - 18.0), &self.across, (Anchor::Middle, PLAIN));
        picture.text((20.0, TOP - 10.0), &self.up, (Anchor::Start, PLAIN));
        for (at, line) in self.lines.iter().take(SERIES.len()).enumerate() {
            let points =
                self.places.iter().zip(&line.heights).map(|(&place, &up)| (x(place), y(up)));
            picture.lines(points.clone().collect(), 2.0, SERIES[at]);
            for (x, y) in points {
                picture.rectangle([x - 2.0, y - 2.0, 4.0, 4.0], SERIES[at], SERIES[at]);
            }
            if self.lines.len() > 1 {
                let top = HEIGHT + 18.0 * at as f64 - 2.0;
                picture.lines(vec![(LEFT, top), (LEFT + 24.0, top)], 2.0, SERIES[at]);
                picture.text((LEFT + 32.0, top + 4.0), &line.name, (Anchor::Start, PLAIN));
            }
        }
        picture
    }

    /// What is written below: names of categories, as far as there is room, or numbers.
    fn marks(&self, first: f64, last: f64) -> Vec<(f64, String)> {
        if self.names.is_empty() {
            return ticks(first, last).into_iter().map(|tick| (tick, short(tick))).collect();
        }
        let room = (WIDTH - LEFT - RIGHT) / self.names.len() as f64 / PLAIN.width();
        let every = (4.0 / room).ceil().max(1.0) as usize;
        let letters = (room * every as f64) as usize - 1;
        let named = self.places.iter().copied().zip(&self.names);
        named.step_by(every).map(|(place, name)| (place, cut(name, letters.max(3)))).collect()
    }
}

/// The smallest and the largest, apart.
fn extent(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = numbers.fold(start, |(low, high), x| (low.min(x), high.max(x)));
    match high > low {
        true => (low, high),
        false if low.is_finite() => (low - 0.5, low + 0.5),
        false => (0.0, 1.0),
    }
}

/// Round numbers between two, about five of them.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|x| x * power).find(|&step| step >= rough);
    let step = step.unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..=(high / step).floor() as i64).map(|at| at as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(-7.0, 12.0), [-5.0, 0.0, 5.0, 10.0]);
        assert_eq!(extent([3.0].into_iter()), (2.5, 3.5));
        assert_eq!(extent(std::iter::empty()), (0.0, 1.0));
    }

    #[test]
    fn bars_and_curves_say_names_and_numbers() {
        let bars =
            Bars { title: "gain".into(), bars: vec![("age".into(), 2.5), ("b".into(), -1.0)] };
        let svg = bars.draw().svg();
        assert!(
            [">age<", ">2.5<", ">-1<", ">gain<"].iter().all(|word| svg.contains(word)),
            "{svg}"
        );
        let curve = Curve {
            title: "how".into(),
            across: "colour".into(),
            up: "chance".into(),
            places: vec![0.0, 1.0],
            names: vec!["red".into(), "green".into()],
            lines: vec![Line { name: "yes".into(), heights: vec![0.1, 0.9] }],
        };
        let svg = curve.draw().svg();
        assert!([">red<", ">green<", ">colour<"].iter().all(|word| svg.contains(word)), "{svg}");
    }
}
