//! What is held for the rows of a table: only rows that some contribution had, each in a slot of its own.

use super::held::Held;
use crate::float::floats;
use starlings_core::{Rows, Values};
use std::collections::BTreeMap;

/// Rows, and where in `held` each one lies.
#[derive(Clone, Debug)]
pub(super) struct HeldRows {
    total: u32,
    width: u32,
    slots: BTreeMap<u32, usize>,
    pub(super) held: Held,
}

impl HeldRows {
    /// Nothing, for a table like that of these rows.
    pub(super) fn none(like: &Rows) -> HeldRows {
        let (total, width) = (like.total, like.width);
        HeldRows { total, width, slots: BTreeMap::new(), held: Held::zeros(like.values.kind(), 0) }
    }

    /// What was saved: total, width and row numbers, and the numbers row after row. Nothing if they do not fit together.
    pub(super) fn of(
        index: &Values,
        residual: Values,
        velocity: Option<Values>,
    ) -> Option<HeldRows> {
        let [total, width, index @ ..] = index.as_i64()? else { return None };
        let (total, width) = (u32::try_from(*total).ok()?, u32::try_from(*width).ok()?);
        let index = index.iter().map(|&row| u32::try_from(row).ok()).collect::<Option<_>>()?;
        let rows = Rows { total, width, index, values: residual };
        if !rows.is_sound() || rows.values.as_i64().is_some() {
            return None;
        }
        let same = |it: &Values| it.kind() == rows.values.kind() && it.len() == rows.values.len();
        let velocity = velocity.filter(same);
        let velocity = velocity.unwrap_or(Values::zeros(rows.values.kind(), 0));
        let slots = rows.index.iter().copied().zip(0..).collect();
        Some(HeldRows { total, width, slots, held: Held { residual: rows.values, velocity } })
    }

    /// What is held for these rows, in their order; zeros where nothing is.
    ///
    /// # Panics
    /// If the rows are of another table.
    pub(super) fn gather(&self, rows: &Rows) -> Held {
        let same = (self.total, self.width) == (rows.total, rows.width);
        assert!(same && self.held.residual.kind() == rows.values.kind(), "rows of another table");
        let mut here = Held::zeros(rows.values.kind(), rows.values.len());
        copy(self, &rows.index, &self.held.residual, &mut here.residual);
        if !self.held.velocity.is_empty() {
            here.velocity = Values::zeros(rows.values.kind(), rows.values.len());
            copy(self, &rows.index, &self.held.velocity, &mut here.velocity);
        }
        here
    }

    /// Holds this for these rows instead of what was held.
    pub(super) fn scatter(&mut self, index: &[u32], here: &Held) {
        let width = self.width as usize;
        for row in index {
            let next = self.slots.len();
            self.slots.entry(*row).or_insert(next);
        }
        let len = self.slots.len() * width;
        put(&self.slots, (index, width), &here.residual, (&mut self.held.residual, len));
        if !here.velocity.is_empty() {
            put(&self.slots, (index, width), &here.velocity, (&mut self.held.velocity, len));
        }
    }

    /// Adds what another seat held of the same table; another table is left out.
    pub(super) fn add(&mut self, other: &HeldRows) {
        let theirs = other.rows();
        if (self.total, self.width) != (theirs.total, theirs.width)
            || self.held.residual.kind() != theirs.values.kind()
        {
            return;
        }
        let mut here = self.gather(&theirs);
        let velocity = other.velocity().unwrap_or(Values::zeros(theirs.values.kind(), 0));
        here.add(0, &Held { residual: theirs.values, velocity });
        self.scatter(&theirs.index, &here);
    }

    /// Takes out the residuals of the rows that are wanted, in the order of rows.
    pub(super) fn release(&mut self, wanted: impl Fn(u32) -> bool) -> Rows {
        let (all, velocity) = (self.rows(), self.velocity());
        let width = self.width as usize;
        let places = |of: bool| -> Vec<usize> {
            let chosen = all.index.iter().enumerate().filter(|(_, row)| wanted(**row) == of);
            chosen.map(|(at, _)| at).collect()
        };
        let (out, rest) = (places(true), places(false));
        let index = |places: &[usize]| places.iter().map(|&at| all.index[at]).collect::<Vec<u32>>();
        self.slots = index(&rest).into_iter().zip(0..).collect();
        self.held.residual = picked(&all.values, &rest, width);
        if let Some(velocity) = velocity {
            self.held.velocity = picked(&velocity, &rest, width);
        }
        let values = picked(&all.values, &out, width);
        Rows { total: self.total, width: self.width, index: index(&out), values }
    }

    /// The residuals, in the order of rows.
    pub(super) fn rows(&self) -> Rows {
        let values = self.in_order(&self.held.residual);
        let index = self.slots.keys().copied().collect();
        Rows { total: self.total, width: self.width, index, values }
    }

    /// The velocities, in the order of rows.
    pub(super) fn velocity(&self) -> Option<Values> {
        (!self.held.velocity.is_empty()).then(|| self.in_order(&self.held.velocity))
    }

    fn in_order(&self, numbers: &Values) -> Values {
        let mut ordered = Values::zeros(numbers.kind(), numbers.len());
        let index: Vec<u32> = self.slots.keys().copied().collect();
        copy(self, &index, numbers, &mut ordered);
        ordered
    }
}

/// The rows at these places, one after another.
fn picked(values: &Values, places: &[usize], width: usize) -> Values {
    let mut picked = Values::zeros(values.kind(), places.len() * width);
    for (number, at) in places.iter().enumerate() {
        let row = values.slice(at * width, (at + 1) * width);
        picked.copy_at(number * width, &row).expect("the same kind, and room was made");
    }
    picked
}

/// Copies rows out of their slots, one after another.
fn copy(table: &HeldRows, index: &[u32], from: &Values, into: &mut Values) {
    fn each<T: Copy>(table: &HeldRows, index: &[u32], from: &[T], into: &mut [T]) {
        let width = table.width as usize;
        for (number, row) in index.iter().enumerate() {
            if let Some(slot) = table.slots.get(row) {
                into[number * width..][..width].copy_from_slice(&from[slot * width..][..width]);
            }
        }
    }
    match (from, into) {
        (Values::F32(from), Values::F32(into)) => each(table, index, from, into),
        (Values::F64(from), Values::F64(into)) => each(table, index, from, into),
        _ => unreachable!("both are of the kind of the table, which is a float"),
    }
}

/// Makes room for all slots, and copies rows into theirs.
fn put(
    slots: &BTreeMap<u32, usize>,
    (index, width): (&[u32], usize),
    from: &Values,
    (into, len): (&mut Values, usize),
) {
    floats!(&mut *into, into => into.resize(len, Default::default()));
    for (number, row) in index.iter().enumerate() {
        let rows = from.slice(number * width, (number + 1) * width);
        into.copy_at(slots[row] * width, &rows).expect("the same kind, and room was made");
    }
}
