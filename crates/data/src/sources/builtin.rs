//! Data that are part of the program, so that a first job needs no files: `digits`, 1,797 handwritten digits
//! of 8 x 8 pixels (see `assets/ORIGIN.md`). Every fifth row is for testing, the others are for training.

use super::{Format, Place, Rows, csv};
use crate::DataSpec;
use crate::input::Input;
use starlings_core::{Entry, Fault, Result, suggestion};
use std::io::Read;

/// Data that are part of the program.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "builtin",
    summary: "Data in the program itself: digits (training part) and digits:test",
    reference: "Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &[], recognise: |_| false, open },
};

/// All names.
pub(crate) const NAMES: [&str; 2] = ["digits", "digits:test"];

const DIGITS: &[u8] = include_bytes!("../../assets/digits.csv.gz");
/// The label's column.
const LABEL: &str = "class";
const SIDE: usize = 8;

fn open(place: Place, spec: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::Named(name) = place else {
        return Err(Fault::caller("built-in data have names, not paths"));
    };
    let test = match name.as_str() {
        "digits" => false,
        "digits:test" => true,
        _ => {
            return Err(Fault::caller(format!("there is no built-in '{name}'"))
                .hint(suggestion(&name, &NAMES)));
        }
    };
    let input = Input::Memory { name, bytes: digits(test)?.into_bytes() };
    let spec = DataSpec { header: Some(true), delimiter: Some(','), ..spec.clone() };
    csv::open_with_label(input, &spec, None, Some(LABEL))
}

fn digits(test: bool) -> Result<String> {
    let mut all = String::new();
    flate2::read::GzDecoder::new(DIGITS).read_to_string(&mut all)?;
    let mut text = String::with_capacity(all.len());
    for pixel in 0..SIDE * SIDE {
        text.push_str(&format!("pixel_{}_{},", pixel / SIDE, pixel % SIDE));
    }
    text.push_str(LABEL);
    for (row, line) in all.lines().enumerate() {
        if (row % 5 == 4) == test {
            text.push('\n');
            text.push_str(line);
        }
    }
    text.push('\n');
    Ok(text)
}
