//! What a seat keeps of what its compressor lost (error feedback: Seide et al., 2014; Karimireddy et al., 2019), and the way
//! of contributions through a compressor. The sum of all that was decoded, and of what is held, is the sum of all
//! that was given, to rounding.
//!
//! With momentum correction (Lin et al., 2018) a velocity is gathered instead of the gradient: u ← m u + g, v ← v + u;
//! v is compressed, and where a number was sent both u and v are cleared (momentum factor masking), so that
//! what waited long does not go on in a stale direction.
//!
//! Numbers are encoded as f32. What f64 lose by that is a loss like others, and is kept: residuals have the kind of
//! their block. A number beyond the range of f32 arrives as infinity. Where a residual would not be finite it
//! is nothing instead: such a step is undone or ends the run, and must not poison all later ones.
//!
//! Integers are never given to a compressor: the caller sends them raw.

mod held;
mod held_rows;

use crate::{Compressor, Into, Malformed, float, rows};
use held::{Held, Scratch, Wire};
use held_rows::HeldRows;
use starlings_core::{Body, Kind, Rng, Rows, Update, Values};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of a dense block on its way out.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The block's name.
    pub block: &'a str,
    /// Where in the block the part begins.
    pub from: usize,
    /// Numbers that hold the part: floats.
    pub values: &'a Values,
    /// Where in `values` it lies.
    pub range: Range<usize>,
}

/// Rows of a table on their way out.
#[derive(Clone, Copy, Debug)]
pub struct RowsPart<'a> {
    /// The block's name.
    pub block: &'a str,
    /// The rows: floats.
    pub rows: &'a Rows,
}

/// A seat's memory of what was lost. Parts are found again by their block and where they begin; a block that is cut
/// in another way finds its numbers all the same.
#[derive(Clone, Debug, Default)]
pub struct Residuals {
    dense: BTreeMap<String, BTreeMap<usize, Held>>,
    rows: BTreeMap<String, HeldRows>,
    scratch: Scratch,
}

impl Residuals {
    /// Appends the encoding of a part and what is held for it, and holds what is lost.
    ///
    /// # Panics
    /// If the part holds integers.
    pub fn encode(
        &mut self,
        compressor: &dyn Compressor,
        part: Part<'_>,
        noise: &mut Rng,
        out: &mut Vec<u8>,
    ) {
        let mut wire = Wire { compressor, noise, out, scratch: &mut self.scratch };
        if compressor.feedback().is_none() {
            return wire.encode_and_forget(part.values, part.range);
        }
        if !self.dense.contains_key(part.block) {
            self.dense.insert(part.block.to_string(), BTreeMap::new());
        }
        let held = self.dense.get_mut(part.block).expect("it is there now");
        let mut here = take(held, part.from, (part.values.kind(), part.range.len()));
        here.encode(part.values, part.range, &mut wire);
        held.insert(part.from, here);
    }

    /// Appends the encoding of rows: which, and their numbers as one part. What is lost is held row by row, until a
    /// contribution has the row again.
    ///
    /// # Panics
    /// If the rows hold integers.
    pub fn encode_rows(
        &mut self,
        compressor: &dyn Compressor,
        part: RowsPart<'_>,
        noise: &mut Rng,
        out: &mut Vec<u8>,
    ) {
        rows::encode_index(&part.rows.index, out);
        let mut wire = Wire { compressor, noise, out, scratch: &mut self.scratch };
        if compressor.feedback().is_none() {
            return wire.encode_and_forget(&part.rows.values, 0..part.rows.values.len());
        }
        let fresh = || HeldRows::none(part.rows);
        let table = self.rows.entry(part.block.to_string()).or_insert_with(fresh);
        let mut here = table.gather(part.rows);
        here.encode(&part.rows.values, 0..part.rows.values.len(), &mut wire);
        table.scatter(&part.rows.index, &here);
    }

    /// The euclidean norm of all that is held.
    #[must_use]
    pub fn norm(&self) -> f64 {
        let dense = self.dense.values().flat_map(BTreeMap::values);
        let squares = dense.chain(self.rows.values().map(|table| &table.held)).map(Held::squares);
        squares.sum::<f64>().sqrt()
    }

    /// Adds what is held onto the blocks of an update, as a leaver does with its last one. Velocities go with it;
    /// what finds no block stays.
    pub fn flush(&mut self, update: &mut Update) {
        for block in &mut update.blocks {
            match &mut block.body {
                Body::Dense(values) if values.kind() != Kind::I64 => {
                    let held = self.dense.remove(&block.name).unwrap_or_default();
                    let (fits, beyond): (BTreeMap<_, _>, BTreeMap<_, _>) = held
                        .into_iter()
                        .partition(|(from, held)| from + held.residual.len() <= values.len());
                    fits.iter().for_each(|(&from, held)| float::add(values, from, &held.residual));
                    if !beyond.is_empty() {
                        self.dense.insert(block.name.clone(), beyond);
                    }
                }
                Body::Rows(rows) => {
                    let fits = self.rows.get(&block.name).map(HeldRows::rows);
                    if fits.is_some_and(|held| rows.fold(&held).is_ok()) {
                        self.rows.remove(&block.name);
                    }
                }
                Body::Dense(_) | Body::Factors(_) => {}
            }
        }
    }

    /// Takes out what is held for a part, to travel with a contribution that loses nothing. A velocity is not owed to
    /// anyone, and is forgotten.
    pub fn release(&mut self, part: &Part<'_>) -> Option<Values> {
        let held = self.dense.get_mut(part.block)?;
        let (from, to) = (part.from, part.from + part.range.len());
        if !held.range(..to).any(|(at, held)| at + held.residual.len() > from) {
            return None;
        }
        Some(take(held, from, (part.values.kind(), part.range.len())).residual)
    }

    /// As [`release`](Residuals::release), of the rows of a table that are wanted.
    pub fn release_rows(&mut self, block: &str, wanted: impl Fn(u32) -> bool) -> Option<Rows> {
        let rows = self.rows.get_mut(block)?.release(wanted);
        (!rows.index.is_empty()).then_some(rows)
    }

    /// All that is held, by names that stay the same.
    #[must_use]
    pub fn save(&self) -> BTreeMap<String, Values> {
        let mut state = BTreeMap::new();
        for (block, parts) in &self.dense {
            for (&from, held) in parts {
                state.insert(residual_key(block, from), held.residual.clone());
                if !held.velocity.is_empty() {
                    state.insert(velocity_key(block, from), held.velocity.clone());
                }
            }
        }
        for (block, table) in &self.rows {
            let rows = table.rows();
            let index = rows.index.iter().copied();
            let index = [rows.total, rows.width].into_iter().chain(index).map(i64::from).collect();
            state.insert(format!("{ROW_INDEX}/{block}"), Values::I64(index));
            state.insert(format!("{ROW_RESIDUAL}/{block}"), rows.values);
            if let Some(velocity) = table.velocity() {
                state.insert(format!("{ROW_VELOCITY}/{block}"), velocity);
            }
        }
        state
    }

    /// Takes back what was saved, bit for bit, in place of all that is held. What is not its own is left out.
    pub fn restore(&mut self, state: BTreeMap<String, Values>) {
        *self = Residuals::default();
        self.add(state);
    }

    /// Adds what another seat saved: a flock that resumes with fewer seats loses nothing.
    pub fn add(&mut self, mut state: BTreeMap<String, Values>) {
        let keys: Vec<String> = state.keys().cloned().collect();
        for key in keys {
            if let Some((RESIDUAL, from, block)) = dense_key(&key) {
                let residual = state.remove(&key).expect("listed");
                let velocity = state.remove(&velocity_key(block, from));
                self.add_part(block, from, residual, velocity);
            } else if let Some((ROW_INDEX, block)) = key.split_once('/') {
                let index = state.remove(&key).expect("listed");
                let residual = state.remove(&format!("{ROW_RESIDUAL}/{block}"));
                let velocity = state.remove(&format!("{ROW_VELOCITY}/{block}"));
                let table = residual.and_then(|it| HeldRows::of(&index, it, velocity));
                match (table, self.rows.get_mut(block)) {
                    (Some(table), Some(mine)) => mine.add(&table),
                    (Some(table), None) => {
                        self.rows.insert(block.to_string(), table);
                    }
                    (None, _) => {}
                }
            }
        }
    }

    fn add_part(&mut self, block: &str, from: usize, residual: Values, velocity: Option<Values>) {
        let same = |it: &Values| it.kind() == residual.kind() && it.len() == residual.len();
        let velocity = velocity.filter(same);
        let velocity = velocity.unwrap_or(Values::zeros(residual.kind(), 0));
        // Neither can be ours.
        let Some(end) = from.checked_add(residual.len()) else { return };
        if residual.kind() == Kind::I64 {
            return;
        }
        let parts = self.dense.entry(block.to_string()).or_default();
        let other = Held { residual, velocity };
        // Bit for bit where nothing is held yet: adding 0 would turn a negative zero positive.
        if !parts.range(..end).any(|(&at, held)| at + held.residual.len() > from) {
            parts.insert(from, other);
            return;
        }
        let mut here = take(parts, from, (other.residual.kind(), other.residual.len()));
        here.add(0, &other);
        parts.insert(from, here);
    }
}

/// Decodes a part onto `values[range]`.
///
/// # Errors
/// When the bytes are no encoding of that many numbers; `values` are unchanged then.
///
/// # Panics
/// If `values` are integers.
pub fn decode(
    compressor: &dyn Compressor,
    bytes: &[u8],
    values: &mut Values,
    range: Range<usize>,
    how: Into,
) -> Result<(), Malformed> {
    if let (Values::F32(values), Into::Add) = (&mut *values, how) {
        return compressor.decode(bytes, &mut values[range]);
    }
    let mut decoded = vec![0.0f32; range.len()];
    compressor.decode(bytes, &mut decoded)?;
    match (values, how) {
        (Values::F32(values), _) => values[range].copy_from_slice(&decoded),
        (Values::F64(values), Into::Put) => {
            values[range].iter_mut().zip(decoded).for_each(|(to, from)| *to = f64::from(from));
        }
        (Values::F64(values), Into::Add) => {
            values[range].iter_mut().zip(decoded).for_each(|(to, from)| *to += f64::from(from));
        }
        (Values::I64(_), _) => panic!("integers are never compressed"),
    }
    Ok(())
}

/// Decodes rows of a table of which `like` tells kind, width and total (its rows are ignored).
///
/// # Errors
/// When the bytes are no encoding of such rows.
///
/// # Panics
/// If the table holds integers.
pub fn decode_rows(
    compressor: &dyn Compressor,
    bytes: &[u8],
    like: &Rows,
) -> Result<Rows, Malformed> {
    let (index, numbers) = rows::decode_index(bytes, like.total)?;
    let len = index.len().checked_mul(like.width as usize).ok_or(Malformed("too many numbers"))?;
    let mut values = Values::zeros(like.values.kind(), len);
    decode(compressor, numbers, &mut values, 0..len, Into::Put)?;
    Ok(Rows { total: like.total, width: like.width, index, values })
}

const RESIDUAL: &str = "residual";
const VELOCITY: &str = "velocity";
const ROW_INDEX: &str = "row-index";
const ROW_RESIDUAL: &str = "row-residual";
const ROW_VELOCITY: &str = "row-velocity";

/// The name under which the residual of a part is saved.
pub(crate) fn residual_key(block: &str, from: usize) -> String {
    format!("{RESIDUAL}/{from}/{block}")
}

/// The name under which the velocity of a part is saved.
pub(crate) fn velocity_key(block: &str, from: usize) -> String {
    format!("{VELOCITY}/{from}/{block}")
}

/// What a name of a dense part says. The block comes last: its own name may have slashes.
fn dense_key(key: &str) -> Option<(&str, usize, &str)> {
    let (what, rest) = key.split_once('/')?;
    let (from, block) = rest.split_once('/')?;
    Some((what, from.parse().ok()?, block))
}

/// Takes out what is held for `len` numbers from `from` on: the part that is there, or a new one with the numbers of all
/// parts it overlaps, of which the rest is left.
fn take(parts: &mut BTreeMap<usize, Held>, from: usize, (kind, len): (Kind, usize)) -> Held {
    if let Some(held) = parts.remove(&from) {
        if held.residual.len() == len && held.residual.kind() == kind {
            return held;
        }
        parts.insert(from, held);
    }
    let (mut new, end) = (Held::zeros(kind, len), from + len);
    let overlapping: Vec<usize> = parts
        .range(..end)
        .filter(|(at, held)| *at + held.residual.len() > from)
        .map(|(&at, _)| at)
        .collect();
    for at in overlapping {
        let held = parts.remove(&at).expect("listed");
        let held_end = at + held.residual.len();
        let (first, last) = (at.max(from), held_end.min(end));
        new.add(first - from, &held.slice(first - at, last - at));
        if at < first {
            parts.insert(at, held.slice(0, first - at));
        }
        if last < held_end {
            parts.insert(last, held.slice(last - at, held_end - at));
        }
    }
    new
}
