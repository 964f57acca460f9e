//! What the workers that share a network's layers do together: sums, largest numbers, and rows put together from everyone's
//! columns. Every result has the same bits on all of them, for numbers are always added in the order of the workers.
//!
//! Of n numbers on P workers a sum sends 2n(P − 1)/P from each: everyone adds up a share of the numbers and tells the others
//! (Rabenseifner, "Optimization of collective reduction operations", 2004). Putting together sends n(P − 1), where n are a
//! worker's own.

use starlings_core::{Fault, Result, Values};
use starlings_learn::{Place, Wires};
use std::ops::Range;

/// The workers that share a network's layers, as one of them sees them.
pub(crate) struct Together<'a> {
    pub(crate) part: u32,
    pub(crate) parts: u32,
    /// The stage of the first of them.
    first: u32,
    wires: &'a mut dyn Wires,
}

impl<'a> Together<'a> {
    /// Those of a place.
    pub(crate) fn of(place: &Place, wires: &'a mut dyn Wires) -> Together<'a> {
        let (part, parts) = (place.part(), place.parts);
        Together { part, parts, first: place.stage - part, wires }
    }

    /// The sum over all.
    ///
    /// # Errors
    /// When a worker is lost or sends something else.
    pub(crate) fn sum(&mut self, mut own: Vec<f32>) -> Result<Vec<f32>> {
        let len = own.len();
        for part in self.others() {
            let share = own[self.share(part, len)].to_vec();
            self.wires.send(self.first + part, Values::F32(share))?;
        }
        let mine = self.share(self.part, len);
        let mut sum: Vec<f32> = Vec::new();
        for part in 0..self.parts {
            let values = match part == self.part {
                true => own[mine.clone()].to_vec(),
                false => self.received(part, mine.len())?,
            };
            match part {
                0 => sum = values,
                _ => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            }
        }
        for part in self.others() {
            self.wires.send(self.first + part, Values::F32(sum.clone()))?;
        }
        own[mine].copy_from_slice(&sum);
        for part in self.others() {
            let share = self.share(part, len);
            let values = self.received(part, share.len())?;
            own[share].copy_from_slice(&values);
        }
        Ok(own)
    }

    /// The sum over all of what each has for this one; `shares` are for everyone, in order.
    ///
    /// # Errors
    /// When a worker is lost or sends something else.
    pub(crate) fn sum_of_own(&mut self, mut shares: Vec<Vec<f32>>) -> Result<Vec<f32>> {
        let mine = std::mem::take(&mut shares[self.part as usize]);
        for part in self.others() {
            let share = std::mem::take(&mut shares[part as usize]);
            self.wires.send(self.first + part, Values::F32(share))?;
        }
        let mut sum = vec![0.0; mine.len()];
        for part in 0..self.parts {
            let values = match part == self.part {
                true => mine.clone(),
                false => self.received(part, mine.len())?,
            };
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        Ok(sum)
    }

    /// The largest of all, number by number.
    ///
    /// # Errors
    /// When a worker is lost or sends something else.
    pub(crate) fn most(&mut self, own: Vec<f32>) -> Result<Vec<f32>> {
        let all = self.all(own)?;
        let mut most = all[0].clone();
        for values in &all[1..] {
            most.iter_mut().zip(values).for_each(|(most, value)| *most = most.max(*value));
        }
        Ok(most)
    }

    /// Everyone's numbers, of which each has as many.
    ///
    /// # Errors
    /// When a worker is lost or sends something else.
    pub(crate) fn all(&mut self, own: Vec<f32>) -> Result<Vec<Vec<f32>>> {
        for part in self.others() {
            self.wires.send(self.first + part, Values::F32(own.clone()))?;
        }
        let (len, parts) = (own.len(), self.parts);
        let of = |part| match part == self.part {
            true => Ok(own.clone()),
            false => self.received(part, len),
        };
        (0..parts).map(of).collect()
    }

    /// Everyone's numbers, at the first worker; nothing at the others.
    ///
    /// # Errors
    /// When a worker is lost or sends something else.
    pub(crate) fn at_first(&mut self, own: Vec<f32>) -> Result<Option<Vec<Vec<f32>>>> {
        if self.part > 0 {
            self.wires.send(self.first, Values::F32(own))?;
            return Ok(None);
        }
        let (len, parts) = (own.len(), self.parts);
        let others = (1..parts).map(|part| self.received(part, len));
        std::iter::once(Ok(own)).chain(others).collect::<Result<_>>().map(Some)
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.part;
        (0..self.parts).filter(move |&part| part != own)
    }

    /// Which of so many numbers a worker adds up.
    fn share(&self, part: u32, len: usize) -> Range<usize> {
        let at = |part: u32| len * part as usize / self.parts as usize;
        at(part)..at(part + 1)
    }

    fn received(&mut self, part: u32, len: usize) -> Result<Vec<f32>> {
        match self.wires.receive(self.first + part)? {
            Values::F32(values) if values.len() == len => Ok(values),
            other => {
                let what = format!("part {part} sent {} numbers instead of {len}", other.len());
                Err(Fault::peer(None, what))
            }
        }
    }
}
