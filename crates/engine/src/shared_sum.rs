//! Sums of updates through shared memory: the shell between a merger and a circle of seats. A contribution is kept until
//! the next sum, because recovery needs it; its memory then serves later sums, for fresh pages cost more than summing.
//!
//! Of two seats each can also make the sum where it uses it ([`LateUpdate`]). A contribution to such a sum may be read until the
//! others have done with it: one whose sum fails, or whose circle is dropped before, is parked until this worker begins
//! another with others. Whoever takes part in that has left the old sum; whoever does not is no member any more, and takes its model
//! from those who are.

use crate::spare::Spare;
use starlings_core::{Block, Body, Deadline, Fault, Result, Update, Values, contributing};
use starlings_learn::Late;
use starlings_transport::shared::{Circle, LateSum, Numbers, NumbersMut, Patience, Turn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// Contributions that others may still read, with the worker's thread. Never dropped with a thread: the process that ends gives
/// its memory back, and neighbours that have it mapped keep it.
static PARKED: Mutex<Vec<(ThreadId, Update)>> = Mutex::new(Vec::new());
/// Whether anything was ever parked: sums of a microsecond do not take a lock to find out.
static HAS_PARKED: AtomicBool = AtomicBool::new(false);

fn park(update: Update) {
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    parked.push((std::thread::current().id(), update));
    HAS_PARKED.store(true, Ordering::Relaxed);
}

/// Nobody reads what this worker has parked.
fn unpark() {
    // What this thread has parked it sees; what others have is theirs.
    if !HAS_PARKED.load(Ordering::Relaxed) {
        return;
    }
    let me = std::thread::current().id();
    PARKED.lock().unwrap_or_else(PoisonError::into_inner).retain(|(thread, _)| *thread != me);
}

/// Sums over one group of seats of one host, one after another.
#[derive(Debug)]
pub struct SharedSum {
    circle: Circle,
    last: Option<Update>,
    spare: Spare,
}

impl SharedSum {
    pub(crate) fn new(circle: Circle) -> SharedSum {
        SharedSum { circle, last: None, spare: Spare::default() }
    }

    /// Copies contributions into slots even where they could be lent: to measure what that costs.
    pub(crate) fn copying(mut self) -> SharedSum {
        self.circle.lend(false);
        self
    }

    /// Whether an update can be summed here: all its blocks are dense. The answer is the same on every seat, for names
    /// and shapes of an update are.
    #[must_use]
    pub fn takes(update: &Update) -> bool {
        update.blocks.iter().all(|block| matches!(block.body, Body::Dense(_)))
    }

    /// Sums an update over the group; all seats get the same bits. Numbers are added as `turns` says for each block, else
    /// the group's first seat first and then the others in order.
    ///
    /// # Errors
    /// A peer that is late or sums something else, or whatever `interrupted` gives while a peer is awaited. The
    /// contribution is then given back by [`SharedSum::contribution`].
    ///
    /// # Panics
    /// If a block is not dense; see [`SharedSum::takes`].
    pub fn sum(
        &mut self,
        update: Update,
        turns: &[Vec<Turn>],
        by: Deadline,
        interrupted: &dyn Fn() -> Option<Fault>,
    ) -> Result<Update> {
        let patience = Patience { by, interrupted };
        if let Err(fault) = self.recycle(&patience) {
            self.last = Some(update);
            return Err(fault);
        }
        let mut totals = contributing(|| self.spare.room_like(&update));
        let sources: Vec<Numbers<'_>> = update.blocks.iter().map(numbers).collect();
        let mut targets: Vec<NumbersMut<'_>> = totals.blocks.iter_mut().map(numbers_mut).collect();
        let outcome = self.circle.sum_in_turns(&sources, &mut targets, turns, &patience);
        drop((sources, targets));
        self.last = Some(update);
        if outcome.is_ok() {
            unpark();
        }
        outcome.map(|()| totals)
    }

    /// Begins a sum that is made where it is used; gives the update back where that cannot be, on all seats
    /// alike.
    ///
    /// # Errors
    /// As [`SharedSum::sum`], but the contribution is not given back: others may be reading it.
    ///
    /// # Panics
    /// As [`SharedSum::sum`].
    pub fn sum_late(
        &mut self,
        update: Update,
        by: Deadline,
        interrupted: &dyn Fn() -> Option<Fault>,
    ) -> Result<Result<LateUpdate<'_>, Update>> {
        let patience = Patience { by, interrupted };
        if let Err(fault) = self.recycle(&patience) {
            park(update);
            return Err(fault);
        }
        let is_large = |block: &&Block| numbers(block).is_large();
        let small: Vec<&Block> = update.blocks.iter().filter(|block| !is_large(block)).collect();
        let mut told = Update { blocks: small.iter().map(|&block| block.clone()).collect() };
        let large: Vec<Numbers<'_>> = update.blocks.iter().filter(is_large).map(numbers).collect();
        let sources: Vec<Numbers<'_>> = small.into_iter().map(numbers).collect();
        let mut targets: Vec<NumbersMut<'_>> = told.blocks.iter_mut().map(numbers_mut).collect();
        match self.circle.begin_late((&sources, &mut targets), &large, &patience) {
            Ok(true) => unpark(),
            Ok(false) => return Ok(Err(update)),
            Err(fault) => {
                park(update);
                return Err(fault);
            }
        }
        let SharedSum { circle, last, .. } = self;
        let update: &Update = last.insert(update);
        let large: Vec<&Block> = update.blocks.iter().filter(is_large).collect();
        let lent: Vec<Numbers<'_>> = large.iter().map(|&block| numbers(block)).collect();
        let names = large.iter().map(|block| block.name.as_str()).collect();
        Ok(Ok(LateUpdate { sum: circle.late(&lent)?, told, names }))
    }

    /// Takes the memory of the last contribution, once nobody reads it.
    fn recycle(&mut self, patience: &Patience<'_>) -> Result<()> {
        if let Some(old) = self.last.take() {
            match self.circle.settle(patience) {
                Ok(()) => self.spare.keep(old),
                Err(fault) => {
                    park(old);
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Gives memory in which sums of its shape may be made.
    pub fn offer(&mut self, room: Update) {
        self.spare.keep(room);
    }

    /// What this seat contributed to the last sum, whether that succeeded or not.
    pub fn contribution(&mut self) -> Option<Update> {
        // What others may be reading stays.
        self.last.take_if(|_| self.circle.is_settled())
    }
}

impl Drop for SharedSum {
    fn drop(&mut self) {
        if let Some(last) = self.last.take().filter(|_| !self.circle.is_settled()) {
            park(last);
        }
    }
}

/// A sum that is made where it is used.
pub struct LateUpdate<'a> {
    sum: LateSum<'a>,
    told: Update,
    /// Blocks whose sums are made late.
    names: Vec<&'a str>,
}

impl LateUpdate<'_> {
    /// Ends it: the others may have their numbers back.
    ///
    /// # Errors
    /// A neighbour that has changed its numbers against the rules: what was made of them is spoilt.
    pub fn done(self) -> Result<()> {
        self.sum.done()
    }
}

impl Late for LateUpdate<'_> {
    fn told(&self) -> &Update {
        &self.told
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    fn sums(&self, block: usize, from: usize, into: &mut [f32]) {
        self.sum.sums(block, from, into);
    }
}

fn dense(block: &Block) -> &Values {
    match &block.body {
        Body::Dense(values) => values,
        _ => panic!("only dense blocks are summed in shared memory"),
    }
}

fn numbers(block: &Block) -> Numbers<'_> {
    match dense(block) {
        Values::F32(values) => Numbers::F32(values),
        Values::F64(values) => Numbers::F64(values),
        Values::I64(values) => Numbers::I64(values),
    }
}

fn numbers_mut(block: &mut Block) -> NumbersMut<'_> {
    match &mut block.body {
        Body::Dense(Values::F32(values)) => NumbersMut::F32(values),
        Body::Dense(Values::F64(values)) => NumbersMut::F64(values),
        Body::Dense(Values::I64(values)) => NumbersMut::I64(values),
        _ => unreachable!("room was made for dense blocks alone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Epoch, JobId, Seat};
    use starlings_transport::shared::{Identity, NearbyAllocator, Segment, View};
    use std::sync::{Arc, Barrier};

    /// Of all tests of this crate: sums are made late only of what lies in a heap.
    #[global_allocator]
    static ALLOCATOR: NearbyAllocator<std::alloc::System> = NearbyAllocator(std::alloc::System);

    const LEN: usize = 40_000;

    fn pair() -> Vec<SharedSum> {
        let segment = |seat| {
            let identity = Identity { job: JobId(1), epoch: Epoch(0), seat: Seat(seat), nonce: 5 };
            Arc::new(Segment::new(identity).unwrap().with_heap(64 << 20))
        };
        let segments = [0, 1].map(segment);
        let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
        let sum = |mine| SharedSum::new(Circle::new(mine, views.clone(), 0, 2).lending(true));
        segments.map(sum).into()
    }

    fn gradient(seat: usize, step: usize) -> Update {
        let large = contributing(|| vec![(1 + seat * 10 + step) as f32; LEN]);
        let large = Block { name: "w".to_string(), body: Body::Dense(Values::F32(large)) };
        Update { blocks: vec![large, Block::dense("loss", vec![1.0, seat as f64])] }
    }

    fn parked() -> usize {
        let me = std::thread::current().id();
        PARKED.lock().unwrap().iter().filter(|(thread, _)| *thread == me).count()
    }

    fn begun(sum: &mut SharedSum, update: Update) -> LateUpdate<'_> {
        let late = sum.sum_late(update, Deadline::after_ms(20_000), &|| None).unwrap();
        late.unwrap_or_else(|_| panic!("both lend"))
    }

    fn first(late: &LateUpdate<'_>) -> f32 {
        let mut some = [0.0; 3];
        late.sums(late.find("w").unwrap(), LEN - 3, &mut some);
        assert!(some.iter().all(|sum| *sum == some[0]));
        some[0]
    }

    /// Whoever is gone, by its own will or because its sum failed, leaves its numbers to those who still read them.
    #[test]
    fn a_contribution_outlives_its_sum_until_its_worker_sums_again() {
        let meeting = Barrier::new(2);
        std::thread::scope(|scope| {
            for (seat, mut sum) in pair().into_iter().enumerate() {
                let meeting = &meeting;
                scope.spawn(move || {
                    let late = begun(&mut sum, gradient(seat, 0));
                    assert_eq!(late.told().f64("loss"), [2.0, 1.0]);
                    if seat == 0 {
                        assert_eq!(first(&late), 12.0);
                        late.done().unwrap();
                        drop(sum);
                        assert_eq!(parked(), 1);
                        // What would be allocated in its place.
                        let others = [0; 4].map(|_| contributing(|| vec![99_f32; LEN]));
                        meeting.wait();
                        meeting.wait();
                        drop(others);
                        unpark();
                        assert_eq!(parked(), 0);
                    } else {
                        meeting.wait();
                        assert_eq!(first(&late), 12.0);
                        late.done().unwrap();
                        meeting.wait();
                        let fall = || Some(Fault::peer(Some(Seat(0)), "rank 0 fell"));
                        let by = Deadline::after_ms(20_000);
                        assert!(sum.sum_late(gradient(seat, 1), by, &fall).is_err());
                        assert_eq!(parked(), 1, "the other may have begun to read it");
                    }
                });
            }
        });
    }

    #[test]
    fn sums_follow_each_other_late_or_not_and_nothing_is_parked() {
        std::thread::scope(|scope| {
            for (seat, mut sum) in pair().into_iter().enumerate() {
                scope.spawn(move || {
                    for step in 0..6 {
                        let wanted = (12 + 2 * step) as f32;
                        if step % 3 == 2 {
                            let by = Deadline::after_ms(20_000);
                            let total = sum.sum(gradient(seat, step), &[], by, &|| None).unwrap();
                            assert_eq!(total.get("w").unwrap(), &whole(wanted));
                            continue;
                        }
                        let late = begun(&mut sum, gradient(seat, step));
                        assert_eq!(first(&late), wanted);
                        late.done().unwrap();
                    }
                    assert_eq!(parked(), 0);
                });
            }
        });
    }

    fn whole(number: f32) -> Block {
        Block { name: "w".to_string(), body: Body::Dense(Values::F32(vec![number; LEN])) }
    }
}
