//! How good a model is, for people: metrics, which classes are taken for which, and whether chances mean what they say.

use crate::figures;
use starlings_core::{Calibration, Confusion, Panel, Validation};

/// Up to this many classes the whole table of which are taken for which is shown.
const CLASSES_SHOWN: usize = 20;
/// Of more classes so many pairs, the most frequent first.
const PAIRS_SHOWN: usize = 20;
/// Cells wider than this are cut.
const CELL_WIDTH: usize = 14;

/// Everything there is to say of a model on some rows.
#[must_use]
pub fn panel(panel: &Panel) -> String {
    let mut rows = vec![vec!["rows".to_string(), figures::count(panel.rows)]];
    let metrics = panel.metrics.iter();
    rows.extend(metrics.map(|(name, value)| vec![name.clone(), figures::number(*value)]));
    let mut text = lines(&rows, Align::Left);
    if let Some(confusion) = &panel.confusion {
        text += &format!("\n{}", confused(confusion));
    }
    if let Some(calibration) = &panel.calibration {
        text += &format!("\n{}", reliability(calibration));
    }
    text
}

/// What cross-validation found: a line for each metric, with what the folds gave.
#[must_use]
pub fn validation(found: &Validation) -> String {
    let mut rows = Vec::new();
    for (name, spread) in &found.metrics {
        let folds = found.folds.iter().filter_map(|fold| fold.metrics.get(name));
        let folds: Vec<String> = folds.map(|value| figures::number(*value)).collect();
        rows.push(vec![
            name.clone(),
            format!("{} ± {}", figures::number(spread.mean), figures::number(spread.deviation)),
            folds.join("  "),
        ]);
    }
    format!("{} folds, mean ± deviation:\n{}", found.folds.len(), lines(&rows, Align::Left))
}

/// What a class is stands at the left, what it was taken for above.
fn confused(confusion: &Confusion) -> String {
    let classes = &confusion.classes;
    if classes.len() > CLASSES_SHOWN {
        return pairs(confusion);
    }
    let head = std::iter::once("is \\ taken for".to_string());
    let mut rows = vec![head.chain(classes.iter().map(|class| cut(class))).collect()];
    for (class, counts) in classes.iter().zip(&confusion.counts) {
        let counts = counts.iter().map(|count| figures::number(*count));
        rows.push(std::iter::once(cut(class)).chain(counts).collect());
    }
    lines(&rows, Align::Right)
}

/// The classes that are taken for each other most often.
fn pairs(confusion: &Confusion) -> String {
    let mut found: Vec<(f64, usize, usize)> = Vec::new();
    for (truth, counts) in confusion.counts.iter().enumerate() {
        let wrong =
            counts.iter().enumerate().filter(|(guess, count)| *guess != truth && **count > 0.0);
        found.extend(wrong.map(|(guess, count)| (*count, truth, guess)));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut rows = vec![["is", "taken for", "rows"].map(str::to_string).to_vec()];
    for (count, truth, guess) in found.into_iter().take(PAIRS_SHOWN) {
        let [truth, guess] = [truth, guess].map(|class| cut(&confusion.classes[class]));
        rows.push(vec![truth, guess, figures::number(count)]);
    }
    lines(&rows, Align::Right)
}

fn reliability(calibration: &Calibration) -> String {
    let mut rows =
        vec![["chance", "rows", "mean chance", "share right"].map(str::to_string).to_vec()];
    for bin in &calibration.bins {
        rows.push(vec![
            format!("{:.1}–{:.1}", bin.from, bin.to),
            figures::number(bin.weight),
            format!("{:.3}", bin.predicted),
            format!("{:.3}", bin.observed),
        ]);
    }
    format!("Chances of {}:\n{}", calibration.of, lines(&rows, Align::Right))
}

fn cut(text: &str) -> String {
    match text.chars().count() > CELL_WIDTH {
        true => text.chars().take(CELL_WIDTH - 1).chain(['…']).collect(),
        false => text.to_string(),
    }
}

/// Where cells after the first stand in their columns.
#[derive(Clone, Copy, PartialEq)]
enum Align {
    Left,
    Right,
}

/// Rows of cells as aligned text, indented by two.
fn lines(rows: &[Vec<String>], align: Align) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let wide = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| wide(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cell = |(at, cell): (usize, &String)| match align == Align::Right && at > 0 {
            true => format!("{cell:>wide$}", wide = widths[at]),
            false => format!("{cell:wide$}", wide = widths[at]),
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        text += &format!("  {}\n", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::ReliabilityBin;
    use std::collections::BTreeMap;

    #[test]
    fn a_panel_is_shown_as_tables() {
        let bin =
            ReliabilityBin { from: 0.9, to: 1.0, weight: 8.0, predicted: 0.95, observed: 0.875 };
        let found = Panel {
            rows: 1200,
            metrics: BTreeMap::from([("accuracy".to_string(), 0.875)]),
            confusion: Some(Confusion {
                classes: vec!["no".to_string(), "a very long class name".to_string()],
                counts: vec![vec![700.0, 100.0], vec![50.0, 350.0]],
            }),
            calibration: Some(Calibration { of: "yes".to_string(), bins: vec![bin] }),
        };
        let expected = "  rows      1,200
  accuracy  0.875

  is \\ taken for   no  a very long c…
  no              700             100
  a very long c…   50             350

Chances of yes:
  chance   rows  mean chance  share right
  0.9–1.0     8        0.950        0.875
";
        assert_eq!(panel(&found), expected);
    }

    #[test]
    fn of_many_classes_the_most_confused_pairs_are_shown() {
        let classes: Vec<String> = (0..30).map(|class| format!("c{class}")).collect();
        let mut counts = vec![vec![0.0; 30]; 30];
        (counts[3][4], counts[7][7], counts[9][2]) = (5.0, 100.0, 6.0);
        let text = confused(&Confusion { classes, counts });
        assert_eq!(text, "  is  taken for  rows\n  c9         c2     6\n  c3         c4     5\n");
    }

    #[test]
    fn validation_shows_mean_deviation_and_folds() {
        let fold = |value: f64| Panel {
            metrics: BTreeMap::from([("rmse".to_string(), value)]),
            ..Panel::default()
        };
        let text = validation(&Validation::of(vec![fold(1.0), fold(3.0)]));
        assert_eq!(text, "2 folds, mean ± deviation:\n  rmse  2 ± 1  1  3\n");
    }
}
