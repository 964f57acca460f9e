//! LightGBM's side files: `train.tsv.query` beside `train.tsv` has the number of rows of each group, a line each, and
//! `train.tsv.weight` how much each row counts. They belong to the data where the job names no such columns.

use crate::DataSpec;
use crate::chunk::{Chunk, Dictionary};
use crate::input::Input;
use crate::number::{number, trim};
use crate::sources::{NO_WEIGHT, Request, Rows, Shape, Sink};
use starlings_core::{Fault, Result};
use std::path::{Path, PathBuf};

/// The rows of a file together with what stands in the files beside it.
pub(crate) fn joined(path: &Path, rows: Box<dyn Rows>, spec: &DataSpec) -> Result<Box<dyn Rows>> {
    let side = |ending: &str, named: bool| (!named).then(|| side_file(path, ending)).flatten();
    let groups = side("query", spec.group.is_some()).map(Input::File);
    let weights = side("weight", spec.weight.is_some()).map(Input::File);
    if groups.is_none() && weights.is_none() {
        return Ok(rows);
    }
    let starts = match &groups {
        None => Vec::new(),
        Some(input) => starts(input)?,
    };
    let numbers = match &weights {
        None => Vec::new(),
        Some(input) => lines(input, weight)?,
    };
    Ok(Box::new(Joined { rows, groups, starts, weights, numbers }))
}

/// Whether rows have weights: a column, or a file beside the data.
pub(crate) fn weighs(path: &Path) -> bool {
    side_file(path, "weight").is_some()
}

/// `train.tsv.query` for `train.tsv` and for `train.tsv.gz`.
fn side_file(path: &Path, ending: &str) -> Option<PathBuf> {
    let name = path.to_string_lossy();
    let plain = name.strip_suffix(".gz").or(name.strip_suffix(".zst"));
    let candidates = [Some(name.as_ref()), plain];
    let beside = |name: &str| PathBuf::from(format!("{name}.{ending}"));
    candidates.into_iter().flatten().map(beside).find(|path| path.is_file())
}

struct Joined {
    rows: Box<dyn Rows>,
    groups: Option<Input>,
    /// The first row of each group, and the number of rows.
    starts: Vec<u64>,
    weights: Option<Input>,
    numbers: Vec<f32>,
}

impl Rows for Joined {
    fn name(&self) -> String {
        self.rows.name()
    }

    fn shape(&self) -> &Shape {
        self.rows.shape()
    }

    fn size(&self) -> Result<u64> {
        let beside = [&self.groups, &self.weights].into_iter().flatten();
        beside.map(Input::size).try_fold(self.rows.size()?, |sum, size| Ok(sum + size?))
    }

    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let mut rows = 0;
        self.rows.read(request, &mut |mut chunk| {
            rows = chunk.first_row + chunk.rows as u64;
            self.join(&mut chunk)?;
            sink(chunk)
        })?;
        if let Some(tally) = request.tally {
            for input in [&self.groups, &self.weights].into_iter().flatten() {
                tally.update(&content(input)?);
            }
        }
        match request.rows.end == u64::MAX {
            true => self.exhausted(rows),
            false => Ok(()),
        }
    }
}

impl Joined {
    fn join(&self, chunk: &mut Chunk) -> Result<()> {
        let rows = chunk.first_row..chunk.first_row + chunk.rows as u64;
        if let Some(input) = &self.groups {
            let last = self.starts.last().copied().unwrap_or(0);
            if rows.end > last {
                return Err(self.uneven(input, last, "more"));
            }
            let mut keys = Dictionary::default();
            let mut group = self.starts.partition_point(|start| *start <= rows.start);
            let mut row = rows.start;
            while row < rows.end {
                let end = self.starts[group].min(rows.end);
                let code = keys.code(&format!("{group} of {}", input.name()))?;
                chunk.groups.resize(chunk.groups.len() + (end - row) as usize, code);
                (group, row) = (group + 1, end);
            }
            chunk.group_keys = keys;
        }
        if let Some(input) = &self.weights {
            let range = rows.start as usize..rows.end as usize;
            let Some(numbers) = self.numbers.get(range) else {
                return Err(self.uneven(input, self.numbers.len() as u64, "more"));
            };
            chunk.weights.extend_from_slice(numbers);
        }
        Ok(())
    }

    /// Everything was read: the files beside must not promise more.
    fn exhausted(&self, rows: u64) -> Result<()> {
        match (&self.groups, &self.weights) {
            (Some(input), _) if self.starts.last().is_some_and(|last| *last > rows) => {
                Err(self.uneven(input, self.starts.last().copied().unwrap_or(0), "fewer"))
            }
            (_, Some(input)) if self.numbers.len() as u64 > rows => {
                Err(self.uneven(input, self.numbers.len() as u64, "fewer"))
            }
            _ => Ok(()),
        }
    }

    fn uneven(&self, input: &Input, rows: u64, than: &str) -> Fault {
        Fault::caller(format!(
            "{} is for {rows} rows, and {} has {than}",
            input.name(),
            self.rows.name()
        ))
        .hint("is it the file of another data set? move it away, or write it again")
    }
}

fn content(input: &Input) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.open(None)?.append(usize::MAX >> 1, &mut bytes)?;
    Ok(bytes)
}

/// One value a line; blank lines are none.
fn lines<T>(input: &Input, parse: fn(&[u8]) -> Result<T, &'static str>) -> Result<Vec<T>> {
    let bytes = content(input)?;
    let lines = bytes.split(|byte| *byte == b'\n').map(trim).enumerate();
    let values = lines.filter(|(_, line)| !line.is_empty()).map(|(at, line)| {
        parse(line).map_err(|what| {
            let text: String = String::from_utf8_lossy(line).chars().take(40).collect();
            Fault::caller(format!("{}, line {}: '{text}' {what}", input.name(), at + 1))
        })
    });
    values.collect()
}

fn weight(line: &[u8]) -> Result<f32, &'static str> {
    number(line).filter(|it| it.is_finite() && *it >= 0.0).ok_or(NO_WEIGHT)
}

fn count(line: &[u8]) -> Result<u64, &'static str> {
    let text = std::str::from_utf8(line).ok();
    let count = text.and_then(|text| text.parse::<u32>().ok()).filter(|count| *count > 0);
    count.map(u64::from).ok_or("is not a number of rows, from 1 up")
}

fn starts(input: &Input) -> Result<Vec<u64>> {
    let mut starts = vec![0];
    let mut rows = 0;
    for count in lines(input, count)? {
        rows += count;
        starts.push(rows);
    }
    Ok(starts)
}
