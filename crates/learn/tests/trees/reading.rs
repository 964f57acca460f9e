//! The data sets of the references, read as the script that made the references reads them.

use crate::dense;
use starlings_data::{Features, Table};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// A file of the shared data sets, if they are here.
pub(crate) fn text(name: &str) -> Option<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let path = PathBuf::from(folder).join(name);
    let bytes = std::fs::read(path).ok()?;
    let mut text = String::new();
    match name.ends_with(".gz") {
        true => flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).ok()?,
        false => (&bytes[..]).read_to_string(&mut text).ok()?,
    };
    Some(text)
}

/// Rows of numbers.
fn numbers(text: &str, separator: char) -> Vec<Vec<f32>> {
    let number = |word: &str| word.trim().parse::<f32>();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines
        .filter_map(|line| line.split(separator).map(number).collect::<Result<_, _>>().ok())
        .collect()
}

/// A table whose label is one of the columns.
fn table(rows: &[Vec<f32>], label: usize) -> Table {
    let labels = rows.iter().map(|row| row[label]).collect();
    let features = rows.iter().flat_map(|row| {
        row.iter().enumerate().filter(|(at, _)| *at != label).map(|(_, &value)| value)
    });
    dense(rows[0].len() - 1, features.collect(), labels)
}

/// LightGBM's examples: training and test rows.
pub(crate) fn lightgbm(name: &str) -> Option<[Table; 2]> {
    let part = |part| Some(table(&numbers(&text(&format!("lightgbm_{name}.{part}"))?, '\t'), 0));
    Some([part("train")?, part("test")?])
}

/// Every fifth row is held out.
fn fifths(rows: &[Vec<f32>], label: usize) -> [Table; 2] {
    let part = |held: bool| -> Vec<Vec<f32>> {
        let rows = rows.iter().enumerate();
        rows.filter(|(at, _)| (at % 5 == 4) == held).map(|(_, row)| row.clone()).collect()
    };
    [false, true].map(|held| table(&part(held), label))
}

pub(crate) fn housing() -> Option<[Table; 2]> {
    let mut rows = numbers(&text("cal_housing.data.gz")?, ',');
    rows.iter_mut().for_each(|row| row[8] /= 100_000.0);
    Some(fifths(&rows, 8))
}

pub(crate) fn digits() -> Option<[Table; 2]> {
    Some(fifths(&numbers(&text("sklearn_digits.csv.gz")?, ','), 64))
}

pub(crate) fn shuttle() -> Option<[Table; 2]> {
    Some(fifths(&numbers(&text("shuttle.csv.gz")?, ','), 9))
}

/// Adult: codes of categories are those of the training rows, sorted; anything else is missing. Gives the number of
/// codes of each column, 0 for numbers.
pub(crate) fn adult() -> Option<([Table; 2], Vec<usize>)> {
    let read = |name: &str| -> Option<Vec<Vec<String>>> {
        let text = text(name)?;
        let lines = text.lines().filter(|line| line.split(',').count() == 15);
        Some(lines.map(|line| line.split(',').map(|w| w.trim().to_string()).collect()).collect())
    };
    let parts = [read("adult.data.gz")?, read("adult.test.gz")?];
    let mut codes: Vec<BTreeMap<String, f32>> = vec![BTreeMap::new(); 14];
    for row in &parts[0] {
        for (codes, word) in codes.iter_mut().zip(row) {
            if word != "?" && word.parse::<f32>().is_err() {
                codes.insert(word.clone(), 0.0);
            }
        }
    }
    for codes in &mut codes {
        codes.values_mut().enumerate().for_each(|(at, code)| *code = at as f32);
    }
    let tables = parts.map(|rows| {
        let value = |(word, codes): (&String, &BTreeMap<String, f32>)| match codes.is_empty() {
            true => word.parse().unwrap_or(f32::NAN),
            false => codes.get(word).copied().unwrap_or(f32::NAN),
        };
        let values = rows.iter().flat_map(|row| row.iter().zip(&codes).map(value)).collect();
        let labels =
            rows.iter().map(|row| f32::from(u8::from(row[14].starts_with(">50K")))).collect();
        dense(14, values, labels)
    });
    Some((tables, codes.iter().map(BTreeMap::len).collect()))
}

/// LightGBM's ranking example, with groups.
pub(crate) fn rank() -> Option<[Table; 2]> {
    let part = |file: &str, name: &str| -> Option<Table> {
        let (mut labels, mut starts, mut columns, mut values) = (vec![], vec![0], vec![], vec![]);
        for line in text(file)?.lines().filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            labels.push(words.next()?.parse().ok()?);
            for word in words {
                let (column, value) = word.split_once(':')?;
                columns.push(column.parse::<u32>().ok()? - 1);
                values.push(value.parse().ok()?);
            }
            starts.push(columns.len());
        }
        let features = Features::Sparse { width: 300, starts, columns, values };
        let mut table = Table::new(features, labels);
        let sizes = text(&format!("lightgbm_rank.{name}.query"))?;
        for (group, size) in sizes.split_whitespace().enumerate() {
            table.groups.extend(vec![group as u32; size.parse().ok()?]);
        }
        Some(table)
    };
    Some([part("lightgbm_rank.train.gz", "train")?, part("lightgbm_rank.test", "test")?])
}
