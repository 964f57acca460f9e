//! What `starlings inspect` shows of a model beyond its parts: trees, importances and partial dependence, as text, JSON,
//! SVG and PNG.

use crate::data_arguments::Reading;
use crate::output::table;
use clap::Args;
use serde_json::{Value, json};
use starlings::observe::figures;
use starlings::observe::picture::{Bars, Branch as Drawn, Curve, Grid, Line, Picture, Tree};
use starlings::{Branch, Dependence, Fault, Predictor, Result, write_whole};
use std::path::{Path, PathBuf};

/// What to show of a model besides.
#[derive(Args)]
pub(super) struct PortraitArguments {
    /// Rows to judge a model by: how much worse it predicts them when a feature is shuffled, and with --column what
    /// it says for each value of a column
    #[arg(long, value_name = "DATA")]
    data: Option<String>,
    /// The column whose partial dependence to show; may be given often
    #[arg(long, value_name = "NAME", requires = "data")]
    column: Vec<String>,
    /// The tree to show in full, from 0
    #[arg(long, value_name = "NUMBER")]
    tree: Option<usize>,
    /// Levels of a tree that a picture shows
    #[arg(long, value_name = "LEVELS", default_value_t = DEPTH)]
    depth: usize,
    /// Where to draw: a folder for all pictures as SVG and PNG, or one file (.svg or .png)
    #[arg(long, value_name = "FOLDER|FILE")]
    output: Option<PathBuf>,
}

const DEPTH: usize = 4;
/// Bars that a picture has, and lines that a text has.
const FEATURES_SHOWN: usize = 30;
/// Rows that a generative model is asked for.
const SAMPLES: usize = 64;

impl PortraitArguments {
    /// Whether anything of it was asked for.
    pub(super) fn is_given(&self) -> bool {
        self.data.is_some()
            || self.tree.is_some()
            || self.output.is_some()
            || !self.column.is_empty()
    }
}

/// Adds to what is shown of a model, and draws what is wanted.
pub(super) fn add(
    predictor: &Predictor,
    arguments: &PortraitArguments,
    reading: &Reading,
    (mut value, mut text): (Value, String),
) -> Result<(Value, String)> {
    let mut pictures = Vec::new();
    let importances = predictor.importances();
    if !importances.is_empty() {
        value["importances"] = importances
            .iter()
            .map(|it| json!({"name": it.name, "gain": it.gain, "splits": it.splits}))
            .collect();
        let gains = importances.iter().map(|it| (it.name.clone(), it.gain));
        let splits = importances.iter().map(|it| (it.name.clone(), it.splits as f64));
        pictures.push(("importance-gain".to_string(), bars("importance: gain", gains)));
        pictures.push(("importance-splits".to_string(), bars("importance: splits", splits)));
    }
    let number = arguments.tree.unwrap_or(0);
    match predictor.tree(number) {
        Some(branches) => {
            if arguments.tree.is_some() {
                text += &format!("\ntree {number} in full\n{}", outline(&branches));
                value["tree"] = json!(outline(&branches));
            }
            pictures.push((format!("tree-{number}"), drawn(number, &branches, arguments.depth)));
        }
        None if arguments.tree.is_some() => {
            return Err(Fault::caller(format!("the model has no tree {number}"))
                .hint("trees are counted from 0, and only tree learners have them"));
        }
        None => {}
    }
    if let Some(data) = &arguments.data {
        let spec = reading.spec(data);
        // Some learners predict neither classes nor numbers: then there is only the column to show.
        let shuffled = predictor.permutation(&spec);
        match shuffled {
            Ok(found) => {
                text += &shuffled_text(&found);
                let title = "importance: loss when shuffled";
                pictures.push((
                    "importance-permutation".to_string(),
                    bars(title, found.iter().cloned()),
                ));
                value["permutation"] =
                    found.iter().map(|(name, loss)| json!({"name": name, "loss": loss})).collect();
            }
            Err(fault) if arguments.column.is_empty() => return Err(fault),
            Err(_) => {}
        }
        let mut all = Vec::new();
        for column in &arguments.column {
            let found = predictor.dependence(&spec, column)?;
            text += &dependence_text(&found);
            all.push(json!({"column": found.column, "values": found.places, "names": found.names,
                "outputs": found.outputs, "means": found.means}));
            pictures.push((format!("dependence-{}", file_name(column)), curve(&found)));
        }
        value["dependence"] = Value::Array(all);
    }
    if let Some(output) = &arguments.output {
        pictures.extend(samples(predictor).map(|picture| ("samples".to_string(), picture)));
        let written = write(output, arguments, &pictures)?;
        text += "\npictures\n";
        written.iter().for_each(|path| text += &format!("  {}\n", path.display()));
        value["pictures"] = json!(written);
    }
    Ok((value, text))
}

fn shuffled_text(found: &[(String, f64)]) -> String {
    let rows: Vec<Vec<String>> = found
        .iter()
        .take(FEATURES_SHOWN)
        .map(|(name, loss)| vec![format!("  {name}"), figures::number(*loss)])
        .collect();
    format!("\nimportance (how much the loss grows when the feature is shuffled)\n{}", table(&rows))
}

fn dependence_text(found: &Dependence) -> String {
    let mut rows = vec![vec![format!("  {}", found.column)]];
    rows[0].extend(found.outputs.iter().cloned());
    for (at, means) in found.means.iter().enumerate() {
        let place = found.names.get(at).cloned();
        let mut row =
            vec![format!("  {}", place.unwrap_or_else(|| figures::number(found.places[at])))];
        row.extend(means.iter().map(|&mean| figures::number(mean)));
        rows.push(row);
    }
    format!("\nmean prediction for each value of '{}'\n{}", found.column, table(&rows))
}

/// A tree as indented questions.
fn outline(branches: &[Branch]) -> String {
    let mut text = String::new();
    let mut open = vec![(0, 1)];
    while let Some((at, depth)) = open.pop() {
        let branch = &branches[at];
        let mark = if branch.children.is_some() { "?" } else { "" };
        text += &format!("{}{}{mark} ({} rows)\n", "  ".repeat(depth), branch.text, branch.rows);
        // The answer yes is written first, so it is put on top.
        open.extend(branch.children.into_iter().flatten().rev().map(|child| (child, depth + 1)));
    }
    text
}

fn bars(title: &str, bars: impl Iterator<Item = (String, f64)>) -> Picture {
    Bars { title: title.to_string(), bars: bars.take(FEATURES_SHOWN).collect() }.draw()
}

fn drawn(number: usize, branches: &[Branch], depth_max: usize) -> Picture {
    let drawn = |branch: &Branch| Drawn {
        text: branch.text.clone(),
        rows: branch.rows,
        children: branch.children,
    };
    let branches = branches.iter().map(drawn).collect();
    Tree { title: format!("tree {number}"), branches, depth_max }.draw()
}

fn curve(found: &Dependence) -> Picture {
    // Of two classes one says it all.
    let shown = if found.outputs.len() == 2 { 1..2 } else { 0..found.outputs.len() };
    let line = |at: usize| Line {
        name: found.outputs[at].clone(),
        heights: found.means.iter().map(|means| means[at]).collect(),
    };
    let up = if shown.len() == 1 { found.outputs[shown.start].as_str() } else { "" };
    Curve {
        title: format!("dependence on {}", found.column),
        across: found.column.clone(),
        up: format!("mean prediction {up}").trim_end().to_string(),
        places: found.places.clone(),
        names: found.names.clone(),
        lines: shown.map(line).collect(),
    }
    .draw()
}

/// What a generative model makes up, if its rows are square images.
fn samples(predictor: &Predictor) -> Option<Picture> {
    let made = predictor.samples(SAMPLES, 0)?;
    let shape = Grid::square(made.width)?;
    Some(Grid { title: "samples".to_string(), shape, values: made.values }.draw())
}

/// Writes all pictures into a folder, or the one that the arguments ask for into a file.
fn write(
    output: &Path,
    arguments: &PortraitArguments,
    pictures: &[(String, Picture)],
) -> Result<Vec<PathBuf>> {
    let nothing = || {
        Fault::caller("there is nothing to draw of this model")
            .hint("give rows with --data, and a column with --column")
    };
    let ending = output.extension().and_then(|ending| ending.to_str());
    if let Some(ending @ ("svg" | "png")) = ending {
        // A column asked for is what is wanted, then a tree, then importances.
        let wanted = match (arguments.column.is_empty(), arguments.tree.is_some()) {
            (false, _) => "dependence",
            (true, true) => "tree",
            (true, false) => "importance",
        };
        let of = |start: &str| pictures.iter().find(|(name, _)| name.starts_with(start));
        let (_, picture) = of(wanted).or_else(|| pictures.first()).ok_or_else(nothing)?;
        save(output, ending, picture)?;
        return Ok(vec![output.to_path_buf()]);
    }
    if pictures.is_empty() {
        return Err(nothing());
    }
    std::fs::create_dir_all(output)?;
    let mut written = Vec::new();
    for (name, picture) in pictures {
        for ending in ["svg", "png"] {
            let path = output.join(format!("{name}.{ending}"));
            save(&path, ending, picture)?;
            written.push(path);
        }
    }
    Ok(written)
}

fn save(path: &Path, ending: &str, picture: &Picture) -> Result<()> {
    let bytes = if ending == "svg" { picture.svg().into_bytes() } else { picture.png() };
    write_whole(path, |out| Ok(out.write_all(&bytes)?))
}

/// A column's name as a part of a file's.
fn file_name(column: &str) -> String {
    let plain = |letter: char| if letter.is_alphanumeric() { letter } else { '-' };
    column.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_outlined_with_the_answer_yes_first() {
        let leaf = |text: &str| Branch { text: text.to_string(), rows: 2.0, children: None };
        let root = Branch { text: "x <= 1".to_string(), rows: 4.0, children: Some([1, 2]) };
        let text = outline(&[root, leaf("left"), leaf("right")]);
        assert_eq!(text, "  x <= 1? (4 rows)\n    left (2 rows)\n    right (2 rows)\n");
        assert_eq!(file_name("a b/ß"), "a-b-ß");
    }
}
