//! Prints the fold of each row of a data set, for a comparison with other programs on the same folds:
//! `cargo run --example fold_of_rows -- digits class 5 1` (data, label kind `class` or `number`, folds, seed).

#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use starlings::{DataSpec, Encoding, Fault, LabelNeed, Result};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, kind, folds, seed] = &arguments[..] else {
        return Err(Fault::caller("give data, class or number, folds and seed"));
    };
    let number = |text: &String| text.parse::<u32>().map_err(|e| Fault::caller(e.to_string()));
    let label = if kind == "class" { LabelNeed::Class } else { LabelNeed::Number };
    let wish = (number(folds)?, u64::from(number(seed)?));
    let spec = DataSpec::new(data.clone()).label("class");
    println!("{:?}", starlings::fold_of_rows(&spec, wish, (Encoding::OneHot, label))?);
    Ok(())
}
