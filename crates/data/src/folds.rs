//! Folds of cross-validation (Stone, 1974; stratified: Kohavi, 1995). A fold is a data set with fewer rows: everything
//! that reads data reads a fold, and preparations and schemas are learnt from its rows alone, so that nothing of the
//! held-out rows leaks into a model.
//!
//! Rows go to folds by identity: of each k consecutive rows of a class (of rows, where labels are no classes; of groups,
//! where there are any) one goes to each fold, in an order drawn from the seed, the file's place in the data set, the
//! class and the count. So folds have the same share of every class to within one row a file, and do not depend on who reads.
//! Reading begins at the first row, because counts before a place in the middle are not known.

use crate::chunk::{Chunk, Dictionary};
use crate::sources::{Flow, Request, Rows, Shape, Sink};
use crate::{DataSpec, Features};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result, Rng};
use std::collections::BTreeMap;

/// Which rows of a data set are meant: those of one fold, or all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoldSpec {
    /// How many folds there are.
    pub folds: u32,
    /// Which is held out, from 0.
    pub fold: u32,
    /// Which side.
    pub side: Side,
    /// The seed of the folds.
    pub seed: u64,
}

/// A side of a cut into a fold and the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Side {
    /// The rows of the fold: what a model is measured on.
    HeldOut,
    /// All others: what it is trained on.
    Rest,
}

/// The rows of a part that the words mean.
pub(crate) fn folded(part: Box<dyn Rows>, number: usize, spec: &DataSpec) -> Box<dyn Rows> {
    match spec.fold {
        None => part,
        Some(fold) => Box::new(Folded { rows: part, number: number as u64, fold }),
    }
}

struct Folded {
    rows: Box<dyn Rows>,
    /// The part's place in the data set.
    number: u64,
    fold: FoldSpec,
}

impl Rows for Folded {
    fn name(&self) -> String {
        self.rows.name()
    }

    fn shape(&self) -> &Shape {
        self.rows.shape()
    }

    fn size(&self) -> Result<u64> {
        self.rows.size()
    }

    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()> {
        let all = Request { rows: 0..u64::MAX, marks: &[], ..request.clone() };
        let mut deal = Deal::new(self.number, self.fold);
        let mut kept = 0;
        self.rows.read(&all, &mut |mut chunk| {
            let picked = deal.picked(&chunk);
            pick(&mut chunk, &picked)?;
            (chunk.first_row, chunk.marks) = (kept, Vec::new());
            kept += chunk.rows as u64;
            match chunk.rows == 0 && chunk.surprises.is_empty() {
                true => Ok(Flow::More),
                false => sink(chunk),
            }
        })
    }
}

/// Deals rows to folds, in the order of a part's rows.
struct Deal {
    part: u64,
    fold: FoldSpec,
    /// Of each class what comes next; of rows and groups under the empty name.
    turns: BTreeMap<String, Turn>,
    /// The group of the last row, and its fold.
    group: Option<(String, u32)>,
}

/// How many rows of a class have come, and the order of the next few.
#[derive(Default)]
struct Turn {
    seen: u64,
    order: Vec<u32>,
}

impl Deal {
    fn new(part: u64, fold: FoldSpec) -> Deal {
        Deal { part, fold, turns: BTreeMap::new(), group: None }
    }

    /// The rows of a chunk that are meant, counted from its first.
    fn picked(&mut self, chunk: &Chunk) -> Vec<usize> {
        let side = self.fold.side;
        let wanted = |fold: u32, held: u32| (fold == held) == (side == Side::HeldOut);
        let folds: Vec<u32> = (0..chunk.rows).map(|row| self.fold_of(chunk, row)).collect();
        let held = self.fold.fold;
        (0..chunk.rows).filter(|&row| wanted(folds[row], held)).collect()
    }

    fn fold_of(&mut self, chunk: &Chunk, row: usize) -> u32 {
        if let Some(&code) = chunk.groups.get(row) {
            let key = &chunk.group_keys.texts()[code as usize];
            if let Some((_, fold)) = self.group.as_ref().filter(|(group, _)| group == key) {
                return *fold;
            }
            let fold = self.next("");
            self.group = Some((key.clone(), fold));
            return fold;
        }
        match (&chunk.classes, chunk.labels.get(row)) {
            (Some(classes), Some(&code)) => {
                let class = classes.texts()[code as usize].clone();
                self.next(&class)
            }
            _ => self.next(""),
        }
    }

    /// The fold of the next row (or group) of a class.
    fn next(&mut self, class: &str) -> u32 {
        if !self.turns.contains_key(class) {
            self.turns.insert(class.to_string(), Turn::default());
        }
        let turn = self.turns.get_mut(class).expect("just put there");
        let place = (turn.seen % u64::from(self.fold.folds)) as usize;
        if place == 0 {
            let round = turn.seen / u64::from(self.fold.folds);
            let name = blake3::hash(class.as_bytes());
            let name = name.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            turn.order = (0..self.fold.folds).collect();
            Rng::named(self.fold.seed, "folds", &[self.part, name, round]).shuffle(&mut turn.order);
        }
        turn.seen += 1;
        turn.order[place]
    }
}

/// Keeps only these rows, as if the file had no others.
pub(crate) fn pick(chunk: &mut Chunk, rows: &[usize]) -> Result<()> {
    if rows.len() == chunk.rows {
        return Ok(());
    }
    match &mut chunk.features {
        Features::Dense { width, values } => {
            let width = *width;
            let kept = rows.iter().flat_map(|row| &values[row * width..(row + 1) * width]);
            *values = kept.copied().collect();
        }
        Features::Sparse { starts, columns, values, .. } => {
            let mut kept = (vec![0], Vec::new(), Vec::new());
            for row in rows {
                kept.1.extend_from_slice(&columns[starts[*row]..starts[row + 1]]);
                kept.2.extend_from_slice(&values[starts[*row]..starts[row + 1]]);
                kept.0.push(kept.1.len());
            }
            (*starts, *columns, *values) = kept;
        }
    }
    picked(&mut chunk.labels, rows);
    picked(&mut chunk.weights, rows);
    picked(&mut chunk.groups, rows);
    chunk.rows = rows.len();
    if let Some(classes) = &mut chunk.classes {
        forget(classes, chunk.labels.iter_mut())?;
    }
    if let Features::Dense { width, values } = &mut chunk.features {
        for (slot, texts) in chunk.texts.iter_mut().enumerate() {
            if let Some(texts) = texts {
                forget(texts, values.iter_mut().skip(slot).step_by((*width).max(1)))?;
            }
        }
    }
    chunk.add_up();
    Ok(())
}

fn picked<T: Copy>(values: &mut Vec<T>, rows: &[usize]) {
    if !values.is_empty() {
        *values = rows.iter().map(|&row| values[row]).collect();
    }
}

/// Forgets the texts that no code stands for any more.
fn forget<'a>(texts: &mut Dictionary, codes: impl Iterator<Item = &'a mut f32>) -> Result<()> {
    let mut left = Dictionary::default();
    for code in codes.filter(|code| !code.is_nan()) {
        *code = left.code(&texts.texts()[*code as usize])? as f32;
    }
    *texts = left;
    Ok(())
}

/// The fold of each row of a data set, in the order of rows: for comparing with other programs on the same folds.
///
/// # Errors
/// As [`survey`](crate::survey).
pub fn fold_of_rows(
    spec: &DataSpec,
    (folds, seed): (u32, u64),
    (encoding, label): (crate::Encoding, crate::LabelNeed),
) -> Result<Vec<u32>> {
    let (_, parts) = crate::locate::open(&DataSpec { fold: None, ..spec.clone() })?;
    let mut all = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let shape = part.shape();
        let choice = crate::columns::choose(&part.name(), shape, spec, encoding, label)?;
        let mut deal =
            Deal::new(number as u64, FoldSpec { folds, fold: 0, side: Side::Rest, seed });
        let request =
            Request { reading: &choice.reading, rows: 0..u64::MAX, marks: &[], tally: None };
        part.read(&request, &mut |chunk| {
            all.extend((0..chunk.rows).map(|row| deal.fold_of(&chunk, row)));
            Ok(Flow::More)
        })?;
    }
    match all.is_empty() {
        true => Err(Fault::caller(format!("{} has no rows", spec.source.text()))),
        false => Ok(all),
    }
}
