//! Sums of a caller's own loop that survive a loss: finished by those who are left, or taken over from one who has the
//! result already. A contribution that the caller cannot make again, as a training job does, stays as it is, and the sum is made
//! beside it. Of a small result a copy is kept, too, until the next sum; of a large one nobody goes on
//! before all have it, which costs a word around the flock instead.

use super::{Flock, mergers};
use crate::choices::summing;
use crate::exchange::packet::Losses;
use crate::merge::{MergeOptions, Merger};
use crate::net::kinds::STANDINGS;
use crate::net::{Net, PART_BYTES};
use crate::recovery::Flocked;
use crate::stock::host_memory;
use starlings_core::{Blame, Block, Deadline, Fault, Result, Seat, Step, Update, failpoint};
use starlings_transport::{Header, Lane};
use std::sync::Arc;
use std::time::Duration;

/// Results up to this are kept; for larger ones members wait for each other.
const KEPT_BYTES: usize = 256 << 10;
/// The kind of a handed-over result, on the control lane.
const HANDOVER: u8 = 14;

/// Whether a copy of a result is kept; of others all confirm that they have it.
pub(crate) fn is_kept(sum: &Update) -> bool {
    sum.bytes() <= KEPT_BYTES
}

/// How far a member is with its sums.
#[derive(Default)]
pub(super) struct Progress {
    /// Sums that are over for the caller.
    pub(super) calls: u64,
    /// The last result: a copy of it, or the one that is not yet the caller's.
    last: Option<Update>,
    /// Whether the last result is not yet the caller's.
    in_hand: bool,
}

impl Progress {
    /// As one number: twice the calls, and one more with the next result in hand.
    fn rank(&self) -> u64 {
        2 * self.calls + u64::from(self.in_hand)
    }

    fn take_in_hand(&mut self) -> Update {
        self.in_hand = false;
        self.calls += 1;
        self.last.take().unwrap_or_default()
    }

    /// Everyone says how far it is; whoever has the result that others lack gives it to them. Nobody goes on with a large one
    /// before all have it, for nobody keeps it then: should the giver be lost on its way, another has it in hand.
    fn conclude(&mut self, net: &Arc<Net>, patience: Duration) -> Result<Option<Update>> {
        let (me, by) = (net.seat(), Deadline::after(patience));
        let mut ranks = vec![0; net.world() as usize];
        ranks[me.index()] = self.rank() as i64;
        let options = MergeOptions::exact(STANDINGS, net, summing("tree", "")?, patience);
        let mut standings = Merger::new(net.clone(), options);
        let told = standings.merge(Update { blocks: vec![Block::counts("ranks", ranks)] })?;
        let ranks: Vec<u64> = told.i64("ranks").iter().map(|&rank| rank as u64).collect();
        failpoint!("flock-ranks");
        let Some((source, behind)) = owed(&ranks) else {
            return Ok(self.in_hand.then(|| self.take_in_hand()));
        };
        let header = Header { lane: Lane::Control, kind: HANDOVER, step: Step(0), tag: 0 };
        if me == source {
            let result = self.last.as_ref();
            let result = result.ok_or_else(|| Fault::machine("a result that was kept is gone"))?;
            let bytes = postcard::to_stdvec(result).expect("plain data serialises");
            for &to in &behind {
                failpoint!("flock-handing-over");
                net.send_parts(to, header, (&bytes, PART_BYTES), by)?;
                failpoint!("flock-handed-over");
            }
        }
        if behind.contains(&me) {
            let bytes = net.next_parts(source, (header, host_memory() / 2), by)?;
            let result: Update = postcard::from_bytes(&bytes).map_err(|_| {
                Fault::peer(Some(source), format!("{source} handed over what cannot be read"))
            })?;
            if is_kept(&result) {
                self.calls += 1;
                self.last = Some(result.clone());
                return Ok(Some(result));
            }
            (self.last, self.in_hand) = (Some(result), true);
        }
        if !self.in_hand {
            return Ok(None);
        }
        failpoint!("flock-in-hand");
        standings.meet()?;
        Ok(Some(self.take_in_hand()))
    }
}

/// What a member contributes to a sum.
pub(super) enum Offer<'a> {
    /// The same, whatever its seat becomes, and still there afterwards; the sum is made in the other's memory.
    Beside(Update, Update),
    /// Made for each seat that it has while the sum is made.
    Made(&'a dyn Fn(Seat) -> Update),
}

impl Flock {
    /// Sums what the members offer, over all who are left.
    pub(super) fn sum(&mut self, lossy: bool, offer: &mut Offer<'_>) -> Result<Update> {
        loop {
            let losses = if lossy { self.merger.losses() } else { Losses::new() };
            let world = self.world();
            let parting = self.member.parting();
            if parting.asked() && lossy {
                self.merger.part();
            }
            self.merger.begin(Step(self.steps));
            self.enter("a sum");
            let outcome = self.attempt(lossy, offer);
            // A contribution is taken from the merger before that is made anew.
            let returned = match offer {
                Offer::Beside(update, _) => self.take_back(lossy, update),
                Offer::Made(_) => Ok(()),
            };
            match outcome {
                Ok(sum) => {
                    self.enter("the work between sums");
                    parting.hold(self.holds_back() && !self.merger.parted());
                    return returned.map(|()| sum);
                }
                Err(fault) => {
                    if let Some(result) = self.recover(fault, &losses, world)? {
                        return Ok(result);
                    }
                    returned?;
                }
            }
        }
    }

    fn take_back(&mut self, lossy: bool, update: &mut Update) -> Result<()> {
        let gone = || Fault::machine("what was contributed is gone");
        *update = self.merger_of(lossy).contribution().ok_or_else(gone)?;
        Ok(())
    }

    /// What the coordinator is told of this member: sums are its steps.
    fn enter(&self, phase: &str) {
        self.member.whereabouts.set(phase, Step(self.progress.calls));
    }

    fn merger_of(&mut self, lossy: bool) -> &mut Merger {
        if lossy { &mut self.merger } else { &mut self.exact }
    }

    /// Whether this member's codec holds something back that it can give before it leaves. In a loop of the caller's own
    /// nobody can ask all members for a plain sum, which a codec of several sums would need.
    fn holds_back(&self) -> bool {
        self.merger.holds_back() && !self.merger.parts_together()
    }

    fn attempt(&mut self, lossy: bool, offer: &mut Offer<'_>) -> Result<Update> {
        failpoint!("flock-before-sum");
        let seat = self.seat();
        let merger = self.merger_of(lossy);
        let sum = match offer {
            Offer::Beside(update, room) => {
                merger.merge_beside(std::mem::take(update), std::mem::take(room))?
            }
            Offer::Made(make) => merger.merge(make(seat))?,
        };
        failpoint!("flock-after-sum");
        if is_kept(&sum) {
            self.progress.last = self.survives.then(|| sum.clone());
            self.progress.calls += 1;
            return Ok(sum);
        }
        if !self.survives {
            self.progress.calls += 1;
            return Ok(sum);
        }
        (self.progress.last, self.progress.in_hand) = (Some(sum), true);
        failpoint!("flock-in-hand");
        self.exact.meet()?;
        Ok(self.progress.take_in_hand())
    }

    /// Goes on with those who are left. Gives the result of the sum in progress, where someone has it.
    pub(super) fn recover(
        &mut self,
        mut fault: Fault,
        losses: &Losses,
        world: u32,
    ) -> Result<Option<Update>> {
        loop {
            if !self.survives || !matches!(fault.blame(), Blame::Peer(_)) {
                return Err(fault);
            }
            self.net.close();
            // What lived at owners went with one of them.
            self.table = None;
            self.regroup.accuse(&fault);
            let Flocked { net, .. } = self.regroup.regroup()?;
            self.net = net;
            match self.progress.conclude(&self.net, self.options.patience) {
                Ok(result) => {
                    (self.merger, self.exact) = mergers(&self.net, &self.options);
                    self.merger.restore(losses.clone(), world == self.world());
                    return Ok(result);
                }
                Err(next) => fault = next,
            }
        }
    }
}

/// Who has the result that others lack, and who lacks it. Nobody is more than one sum ahead of another: whoever has
/// the result of a sum has had everybody's contribution to it.
fn owed(ranks: &[u64]) -> Option<(Seat, Vec<Seat>)> {
    let (least, most) = (*ranks.iter().min()?, *ranks.iter().max()?);
    // Those at an odd rank have the result in hand: nothing is owed to them.
    if least == most || least % 2 == 1 {
        return None;
    }
    let seats = |wanted: &dyn Fn(u64) -> bool| -> Vec<Seat> {
        (0..ranks.len()).filter(|seat| wanted(ranks[*seat])).map(|seat| Seat(seat as u32)).collect()
    };
    let source =
        *seats(&|rank| rank == least + 1).first().or(seats(&|rank| rank == most).first())?;
    Some((source, seats(&|rank| rank == least)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, Perch, perches, run_all};

    /// A result that is too large to be kept.
    fn large() -> Update {
        Update { blocks: vec![Block::dense("sum", vec![1.5; KEPT_BYTES])] }
    }

    /// A seat that has a large result in hand, gives it to some of those who have not, and is gone.
    fn gives_to(perch: &Perch, some: &[u32]) {
        let told = Update { blocks: vec![Block::counts("ranks", vec![1, 0, 0])] };
        perch.exact(STANDINGS).merge(told).unwrap();
        let bytes = postcard::to_stdvec(&large()).unwrap();
        let header = Header { lane: Lane::Control, kind: HANDOVER, step: Step(0), tag: 0 };
        for &to in some {
            let by = Deadline::after(PATIENCE);
            perch.net.send_parts(Seat(to), header, (&bytes, PART_BYTES), by).unwrap();
        }
        perch.net.close();
    }

    /// Found by chaos (seed 150149): who had been given the result went on with it, and the next giver was to be one who had
    /// it no longer.
    #[test]
    fn who_is_given_a_large_result_has_it_in_hand_until_all_have_it() {
        let ranks = run_all(&perches(3), |perch| {
            if perch.seat() == 0 {
                gives_to(&perch, &[1]);
                return None;
            }
            let mut progress = Progress::default();
            progress.conclude(&perch.net, PATIENCE).unwrap_err();
            Some((progress.rank(), progress.last.is_some()))
        });
        // The second can give it to the third in the next lineup.
        assert_eq!(ranks, [None, Some((1, true)), Some((0, false))]);
        let results = run_all(&perches(2), |perch| {
            let in_hand = perch.seat() == 0;
            let last = in_hand.then(large);
            let mut progress = Progress { calls: 0, last, in_hand };
            let result = progress.conclude(&perch.net, PATIENCE).unwrap();
            (result == Some(large()), progress.rank())
        });
        assert_eq!(results, [(true, 2), (true, 2)]);
    }

    #[test]
    fn whoever_has_a_result_owes_it_to_those_who_have_not() {
        let seats = |seats: &[u32]| seats.iter().map(|&seat| Seat(seat)).collect::<Vec<_>>();
        assert_eq!(owed(&[4, 4, 4]), None);
        // One has kept a copy of a small result, and is in its next sum.
        assert_eq!(owed(&[4, 6, 4]), Some((Seat(1), seats(&[0, 2]))));
        // One has a large result in hand.
        assert_eq!(owed(&[5, 4]), Some((Seat(0), seats(&[1]))));
        // All have it in hand, some are past it: nothing is owed.
        assert_eq!(owed(&[5, 6, 5]), None);
        assert_eq!(owed(&[0]), None);
    }
}
