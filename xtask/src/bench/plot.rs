//! Lines and points as SVG, without a dependency: enough for objective against seconds or bytes.

use std::fmt::Write as _;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 250.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Told apart also by those who see few colours (Okabe and Ito), then by dashes.
const COLOURS: &[&str] =
    &["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f"];
const DASHES: &[&str] = &["none", "7 4", "2 3"];

/// How an axis grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Line,
    Dots,
}

/// Some points under one name.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// A picture.
pub(super) struct Chart {
    pub(super) title: String,
    /// What the axes are, and how they grow.
    pub(super) across: (&'static str, Scale),
    pub(super) up: (&'static str, Scale),
    pub(super) mark: Mark,
    pub(super) series: Vec<Series>,
    /// A horizontal line with a name.
    pub(super) target: Option<(String, f64)>,
}

/// One axis: from values to places.
struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Axis {
        let grown = values.filter(|value| value.is_finite()).map(|value| grow(scale, value));
        let (least, most) = grown
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
        let (least, most) = if least < most { (least, most) } else { (least - 0.5, least + 0.5) };
        let room = 0.04 * (most - least);
        Axis { scale, least: least - room, most: most + room, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = (grow(self.scale, value) - self.least) / (self.most - self.least);
        self.from + share * (self.to - self.from)
    }

    /// Round values inside, with their texts.
    fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = match self.scale {
            Scale::Linear => {
                let step = round_step((self.most - self.least) / 6.0);
                let first = (self.least / step).ceil() as i64;
                let last = (self.most / step).floor() as i64;
                (first..=last).map(|index| index as f64 * step).collect()
            }
            Scale::Logarithmic => {
                let decades = self.least.floor() as i32..=self.most.ceil() as i32;
                let is_wide = self.most - self.least > 2.0;
                let steps: &[f64] = if is_wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let all =
                    decades.flat_map(|decade| steps.iter().map(move |s| s * 10f64.powi(decade)));
                all.filter(|value| (self.least..=self.most).contains(&value.log10())).collect()
            }
        };
        values.into_iter().map(|value| (value, short(value))).collect()
    }
}

fn grow(scale: Scale, value: f64) -> f64 {
    if scale == Scale::Linear { value } else { value.log10() }
}

/// 1, 2 or 5 times a power of ten, at least this large.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|&s| s >= least).unwrap_or(power)
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if size >= 1e9 => format!("{}G", value / 1e9),
        size if size >= 1e6 => format!("{}M", value / 1e6),
        size if size >= 1e4 => format!("{}k", value / 1e3),
        size if size >= 1.0 => format!("{}", (value * 100.0).round() / 100.0),
        _ => format!("{}", (value * 1e4).round() / 1e4),
    }
}

impl Chart {
    /// The picture as a document.
    pub(super) fn svg(&self) -> String {
        let all = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let across = Axis::new(self.across.1, all().map(|point| point.0), (LEFT, WIDTH - RIGHT));
        let target = self.target.iter().map(|target| target.1);
        let up =
            Axis::new(self.up.1, all().map(|point| point.1).chain(target), (HEIGHT - BOTTOM, TOP));
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"16\">{}</text>\n",
            escape(&self.title)
        );
        self.frame(&mut text, &across, &up);
        if let Some((name, value)) = &self.target {
            let y = up.place(*value);
            let _ = writeln!(
                text,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#555\" \
                 stroke-dasharray=\"4 4\"/>\n<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                WIDTH - RIGHT,
                WIDTH - RIGHT - 4.0,
                y - 5.0,
                escape(name)
            );
        }
        for (index, series) in self.series.iter().enumerate() {
            self.draw(&mut text, (index, series), (&across, &up));
        }
        text + "</svg>\n"
    }

    fn frame(&self, text: &mut String, across: &Axis, up: &Axis) {
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (value, label) in across.ticks() {
            let x = across.place(value);
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{floor}\" stroke=\"#e4e4e4\"/>\n\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                floor + 18.0
            );
        }
        for (value, label) in up.ticks() {
            let y = up.place(value);
            let _ = writeln!(
                text,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            text,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#333\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            right - LEFT,
            floor - TOP,
            f64::midpoint(LEFT, right),
            HEIGHT - 14.0,
            escape(self.across.0),
            f64::midpoint(TOP, floor),
            escape(self.up.0)
        );
    }

    fn draw(&self, text: &mut String, (index, series): (usize, &Series), (x, y): (&Axis, &Axis)) {
        let colour = COLOURS[index % COLOURS.len()];
        let dash = DASHES[(index / COLOURS.len()) % DASHES.len()];
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|point| (x.place(point.0), y.place(point.1)))
            .filter(|place| place.0.is_finite() && place.1.is_finite())
            .collect();
        if self.mark == Mark::Line {
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                text,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" \
                 stroke-dasharray=\"{dash}\"/>",
                path.join(" ")
            );
        }
        let shape = |x: f64, y: f64| match index / COLOURS.len() {
            0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
            2 => format!("<path d=\"M{x:.1} {:.1} l4.5 8 h-9 z\" fill=\"{colour}\"/>", y - 4.5),
            _ => format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" fill=\"{colour}\"/>",
                x - 3.5,
                y - 3.5
            ),
        };
        for (x, y) in places {
            let _ = writeln!(text, "{}", shape(x, y));
        }
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 10.0 + 19.0 * index as f64);
        let _ = writeln!(text, "{}", shape(x, y));
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\">{}</text>",
            x + 12.0,
            y + 4.0,
            escape(&series.name)
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_draws_each_series_inside_its_frame() {
        let series = |name: &str, points: &[(f64, f64)]| Series {
            name: name.to_string(),
            points: points.to_vec(),
        };
        let chart = Chart {
            title: "a < b".to_string(),
            across: ("bytes", Scale::Logarithmic),
            up: ("objective", Scale::Linear),
            mark: Mark::Line,
            series: vec![
                series("one", &[(1e3, 1.0), (1e6, 0.5)]),
                series("nan", &[(1.0, f64::NAN)]),
            ],
            target: Some(("target".to_string(), 0.7)),
        };
        let text = chart.svg();
        assert!(text.contains("a &lt; b") && text.contains(">one</text>"), "{text}");
        assert_eq!(text.matches("<polyline").count(), 2);
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn ticks_are_round() {
        let axis = Axis::new(Scale::Linear, [0.0, 1.0].into_iter(), (0.0, 100.0));
        let texts: Vec<String> = axis.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(texts, ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let axis = Axis::new(Scale::Logarithmic, [900.0, 2e6].into_iter(), (0.0, 100.0));
        let texts: Vec<String> = axis.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(texts, ["1000", "10k", "100k", "1M"]);
    }
}
