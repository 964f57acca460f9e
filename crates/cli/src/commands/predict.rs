//! `starlings predict`: a model and raw rows in, predictions as CSV out.

use crate::data_arguments::DataArguments;
use crate::output::say;
use clap::Args;
use starlings::{Prediction, Predictor, Result, write_whole};
use std::path::PathBuf;

/// Predict rows with a trained model, as CSV
#[derive(Args)]
#[command(after_long_help = "\
The model knows what the columns mean: give it raw rows as they were for training, labels are not needed.
The first column is the class (or the cluster, the rating, the output); probabilities follow.

Examples:
  starlings predict digits.safetensors --data digits:test
  starlings predict model.safetensors --data new.csv --out predictions.csv")]
pub(crate) struct Arguments {
    /// The model file
    model: PathBuf,
    #[command(flatten)]
    data: DataArguments,
    /// Where to write; standard output otherwise
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let predictor = Predictor::load(&arguments.model)?;
    let data = arguments.data.spec();
    match &arguments.out {
        Some(path) => write_whole(path, |out| {
            predictor
                .predict_pieces(&data, &mut csv(&mut |text| Ok(out.write_all(text.as_bytes())?)))
        }),
        None => predictor.predict_pieces(&data, &mut csv(&mut say)),
    }
}

/// Writes pieces of a prediction one after another, with a header before the first.
fn csv(write: &mut dyn FnMut(&str) -> Result<()>) -> impl FnMut(Prediction) -> Result<()> {
    let mut begun = false;
    move |prediction| {
        let mut text = if begun { String::new() } else { header(&prediction) };
        begun = true;
        let width = prediction.names.len().max(1);
        for (at, row) in prediction.values.chunks_exact(width).enumerate() {
            let class = prediction.classes.get(at).map(|class| field(class));
            let cells: Vec<String> =
                class.into_iter().chain(row.iter().map(f64::to_string)).collect();
            text += &cells.join(",");
            text.push('\n');
        }
        write(&text)
    }
}

fn header(prediction: &Prediction) -> String {
    let class = (!prediction.classes.is_empty()).then(|| "class".to_string());
    let names: Vec<String> =
        class.iter().chain(&prediction.names).map(|name| field(name)).collect();
    names.join(",") + "\n"
}

/// A field as RFC 4180 wants it: quoted only where it must be.
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_first_and_odd_names_are_quoted() {
        let prediction = Prediction {
            names: vec!["p(a,b)".to_string(), "p(c)".to_string()],
            values: vec![0.75, 0.25, 0.5, 0.5],
            classes: vec!["a,b".to_string(), "say \"c\"".to_string()],
        };
        let text = "class,\"p(a,b)\",p(c)\n\"a,b\",0.75,0.25\n\"say \"\"c\"\"\",0.5,0.5\n";
        let mut written = String::new();
        let mut write = |more: &str| {
            written += more;
            Ok(())
        };
        csv(&mut write)(prediction).unwrap();
        assert_eq!(written, text);
    }
}
