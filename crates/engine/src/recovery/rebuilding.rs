//! How a model that lives at owners is put together again after a loss: every row from whoever has it (see
//! [`owners`](super::owners)), by a sum of bit patterns to which exactly one member adds each number, so that it is exact and
//! everyone, newcomers too, gets the whole. Workers then go to the step that the rows are of.

use super::Leases;
use super::owners::{Located, Telling, locate};
use super::resolve::Resolution;
use crate::choices::summing;
use crate::desk::Desk;
use crate::exchange::packet::Losses;
use crate::exchange::served::Shard;
use crate::merge::{MergeOptions, Merger};
use crate::net::Arrival;
use crate::net::kinds::{OWNERS, REBUILT};
use crate::walk::Walked;
use starlings_core::{
    Block, Deadline, Fault, Kind, Model, Result, Seat, Step, Tensor, Update, Values,
};
use starlings_transport::{Header, Lane};

/// The kind of a message with a worker's counts on the control lane.
const COUNTS: u8 = 15;

/// What a worker has left of the flock that it was in.
pub(crate) struct Left {
    /// Seats of that flock.
    pub(super) world: u32,
    /// How many endings it had had.
    pub(super) endings: u64,
    /// What its codec had lost.
    pub(super) losses: Losses,
    /// The newest step that may have to be taken again, and what the codec had lost before it.
    pub(super) before: Option<(Step, Losses)>,
    /// The shard that it ran, where the model lives at owners.
    pub(super) shard: Option<Shard>,
    /// The epoch of that flock.
    pub(super) generation: u64,
}

impl Left {
    /// What the codec had lost before a step. Of an ending that was taken over from another nothing is taken again: this
    /// worker's part is in it.
    pub(super) fn losses_before(&self, step: Step, endings: u64) -> &Losses {
        match &self.before {
            Some((newest, losses)) if *newest == step && endings == self.endings => losses,
            _ => &self.losses,
        }
    }

    fn telling(&self) -> Option<Telling> {
        let shard = self.shard.as_ref()?;
        Some(Telling {
            generation: self.generation,
            seat: shard.seat(),
            world: self.world,
            start: shard.start(),
            own: shard.complete(),
            kept: shard.kept(),
        })
    }
}

impl Desk {
    /// Puts the model together and brings everyone to its step. False when a part of it is lost.
    pub(super) fn rebuild(&mut self, left: &Left, resolution: &Resolution) -> Result<bool> {
        let barrier = self.choices.gate.lead_max() == Some(0);
        let Some(located) = self.locate(left, barrier)? else { return Ok(false) };
        let model = self.put_together(left, &located)?;
        if barrier {
            self.walk_to(Step(located.step), resolution)?;
        } else if let Some((step, source)) = resolution.from {
            self.hand_counts(step, source, &resolution.newcomers)?;
        }
        self.model = model;
        Ok(true)
    }

    /// What all members tell of their shards, and where the model is.
    fn locate(&self, left: &Left, barrier: bool) -> Result<Option<Located>> {
        let (net, width) = (&self.net, Telling::WIDTH);
        let mut numbers = vec![0; width * net.world() as usize];
        if let Some(telling) = left.telling() {
            numbers[width * net.seat().index()..][..width].copy_from_slice(&telling.write());
        }
        let tree = summing("tree", "")?;
        let options = MergeOptions::exact(OWNERS, net, tree, self.job.patience);
        let told = Merger::new(net.clone(), options)
            .merge(Update { blocks: vec![Block::counts("owners", numbers)] })?;
        let tellings: Vec<Option<Telling>> =
            told.i64("owners").chunks_exact(width).map(Telling::read).collect();
        Ok(locate(&tellings, barrier))
    }

    fn put_together(&self, left: &Left, located: &Located) -> Result<Model> {
        let own = left.shard.as_ref().filter(|_| left.generation == located.generation);
        let held = own.map(|shard| (shard, shard.model_at(located.step)));
        let (shard, held) = match held {
            Some((_, None)) => {
                return Err(Fault::machine("this owner cannot go back to the others' step"));
            }
            Some((shard, Some(model))) => (Some(shard), model),
            None => (None, Model::new()),
        };
        let blocks = self.model.iter().map(|(name, tensor)| {
            let mut bits = vec![0; tensor.values.len()];
            let mine = (0..).zip(&located.holders).filter(|(_, seat)| **seat == self.net.seat());
            if let (Some(shard), Some(from)) = (shard, held.get(name)) {
                for (old, _) in mine {
                    for rows in shard.owners().owned(name, Seat(old)) {
                        let at = |row: u32| row as usize * tensor.width();
                        write_bits(&from.values, at(rows.start)..at(rows.end), &mut bits);
                    }
                }
            }
            Block::counts(name, bits)
        });
        let update = Update { blocks: blocks.collect() };
        let options =
            MergeOptions::exact(REBUILT, &self.net, summing("ring", "")?, self.job.patience);
        let sum = Merger::new(self.net.clone(), options).merge(update)?;
        let mut model = Model::new();
        for (name, tensor) in self.model.iter() {
            let values = read_bits(tensor.values.kind(), sum.i64(name));
            model.set(name, Tensor { values, shape: tensor.shape.clone(), role: tensor.role });
        }
        Ok(model)
    }

    /// Everyone's next step is this one. Whoever has done it already takes it again; whoever is not there yet, or new, takes
    /// over the counts of one who is.
    fn walk_to(&mut self, step: Step, resolution: &Resolution) -> Result<()> {
        let Some((_, furthest)) = resolution.from else { return Ok(()) };
        if self.walk.steps() > step.0 {
            self.take_back(step);
        }
        let steps = |seat: Seat| resolution.steps[seat.index()];
        let seats = || (0..resolution.steps.len() as u32).map(Seat);
        let there = |seat: &Seat| steps(*seat).is_some_and(|it| it >= step.0);
        let source = seats().find(there).unwrap_or(furthest);
        let behind: Vec<Seat> = seats().filter(|seat| !there(seat) && *seat != source).collect();
        self.hand_counts(step, source, &behind)?;
        self.walk.skip_to(step);
        Ok(())
    }

    /// The last step is taken again: everything is as it was before.
    fn take_back(&mut self, step: Step) {
        match self.before.take() {
            Some((walked, leases)) if walked.steps() == step.0 => {
                self.walk.take_over(walked);
                self.leases = leases;
            }
            _ => self.walk.back_to(step),
        }
        self.clock.take_back();
    }

    /// Brings the counts of `source` to those who are behind.
    fn hand_counts(&mut self, step: Step, source: Seat, behind: &[Seat]) -> Result<()> {
        let (seat, by) = (self.net.seat(), Deadline::after(self.job.patience));
        if seat == source {
            let counts = (self.walk.so_far(), &self.leases);
            let bytes = postcard::to_stdvec(&counts).expect("plain data serialises");
            let header = Header { lane: Lane::Control, kind: COUNTS, step, tag: 0 };
            behind.iter().try_for_each(|&to| self.net.send(to, header, &bytes, by))?;
        }
        if !behind.contains(&seat) {
            return Ok(());
        }
        let wanted = |arrival: &Arrival| {
            arrival.header.kind == COUNTS && arrival.from == source && arrival.header.step == step
        };
        let arrival = self.net.next(Lane::Control, wanted, by)?;
        let broken =
            |_| Fault::peer(Some(source), format!("{source} told counts that cannot be read"));
        let (walked, leases): (Walked, Leases) =
            postcard::from_bytes(&arrival.payload).map_err(broken)?;
        self.walk.take_over(walked);
        self.leases = leases;
        Ok(())
    }
}

/// Numbers as the integers that have the same bits.
fn write_bits(from: &Values, range: std::ops::Range<usize>, into: &mut [i64]) {
    let into = into[range.clone()].iter_mut();
    match from {
        Values::F32(from) => into.zip(&from[range]).for_each(|(to, it)| *to = it.to_bits().into()),
        Values::F64(from) => into.zip(&from[range]).for_each(|(to, it)| *to = it.to_bits() as i64),
        Values::I64(from) => into.zip(&from[range]).for_each(|(to, it)| *to = *it),
    }
}

fn read_bits(kind: Kind, bits: &[i64]) -> Values {
    match kind {
        Kind::F32 => Values::F32(bits.iter().map(|&it| f32::from_bits(it as u32)).collect()),
        Kind::F64 => Values::F64(bits.iter().map(|&it| f64::from_bits(it as u64)).collect()),
        Kind::I64 => Values::I64(bits.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back_in_its_own_bits() {
        let odd = [0.0, -0.0, 1.5, f64::MIN_POSITIVE / 3.0, f64::NEG_INFINITY, f64::NAN];
        let narrow: Vec<f32> = odd.iter().map(|&it| it as f32).collect();
        let whole = vec![i64::MIN, -1, 0, 1, i64::MAX, 7];
        for values in [Values::F64(odd.to_vec()), Values::F32(narrow), Values::I64(whole)] {
            // Two members have a part each, and the sum is that of their integers.
            let (mut left, mut right) = (vec![0; 6], vec![0; 6]);
            write_bits(&values, 0..2, &mut left);
            write_bits(&values, 2..6, &mut right);
            let sum: Vec<i64> = left.iter().zip(&right).map(|(a, b)| a.wrapping_add(*b)).collect();
            let mut again = vec![0; 6];
            write_bits(&read_bits(values.kind(), &sum), 0..6, &mut again);
            assert_eq!(again, sum);
            assert_eq!(read_bits(values.kind(), &again).slice(0, 5), values.slice(0, 5));
        }
    }

    #[test]
    fn a_step_that_is_taken_again_begins_with_what_was_lost_before_it() {
        let lost = |number: f64| Losses::from([("x".to_string(), Values::F64(vec![number]))]);
        let left = Left {
            world: 2,
            endings: 3,
            losses: lost(2.0),
            before: Some((Step(7), lost(1.0))),
            shard: None,
            generation: 0,
        };
        assert_eq!(*left.losses_before(Step(7), 3), lost(1.0));
        // Another had the end of that step, or the ending before it, and so all that this seat gave: nothing of it is given again.
        assert_eq!(*left.losses_before(Step(8), 3), lost(2.0));
        assert_eq!(*left.losses_before(Step(7), 4), lost(2.0));
    }
}
