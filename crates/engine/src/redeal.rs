//! Unequal workers: shards are dealt by measured speed, so that all finish a step together. From time to time the
//! workers tell each other how long their rows took, and all compute the same new deal. Its rows then travel in the
//! background, from whoever has them to whoever will, while steps go on by the old deal; once all have theirs, they
//! change to the new one between two steps, with what is remembered of the shards that move. So nobody waits for rows.
//!
//! With speeds sᵢ a step takes at least n/Σsᵢ for n rows; with whole shards the slowest worker takes at most one
//! shard's time more.

mod speeds;

use self::speeds::{APART_MAX, Speed, Speeds};
use crate::net::{Arrival, Net};
use crate::walk::Walk;
use starlings_core::{Deadline, Event, Fault, Result, Seat, Shard, Step};
use starlings_data::{Dealer, Holding, Parcel};
use starlings_learn::{Appetite, Cells, Memory};
use starlings_transport::{Header, Lane};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The kind of a message with what is remembered of shards that move.
const MOVING: u8 = 12;
/// The kind of a message with rows of shards that move.
const ROWS: u8 = 17;
/// The kind of a message that says that a parcel of rows has been taken.
const TAKEN: u8 = 24;

/// So many parcels that a worker gives may be under way. Whatever else it sends waits behind them: a megabyte is a hundredth of
/// a second at 1 Gbit/s.
const UNDER_WAY_MAX: usize = 4;

/// Whether all have their rows is asked about this often, in seconds, and at most every so many steps.
const ASK_SECONDS: f64 = 0.02;
/// So near the end nothing moves any more.
const STEPS_LEFT_MIN: u64 = 8;

/// Reads the rows of some shards.
pub type Read = Arc<dyn Fn(&[Shard]) -> Result<Holding> + Send + Sync>;
/// Puts rows that are held and rows that arrive together: exactly these shards.
pub type Assemble =
    Arc<dyn Fn(&Holding, &[Shard], &mut Arriving<'_>) -> Result<Holding> + Send + Sync>;
/// Rows as they arrive.
pub type Arriving<'a> = dyn Iterator<Item = Result<Parcel>> + 'a;

/// An exact sum over the flock.
pub type Sum<'a> = dyn FnMut(Vec<f64>) -> Result<Vec<f64>> + 'a;

/// Where rows of other shards come from.
#[derive(Clone)]
pub struct Loader {
    read: Read,
    assemble: Option<Assemble>,
}

impl Loader {
    /// Rows lie in files; those that another worker has can be sent, too, and are put together with one's own.
    #[must_use]
    pub fn new(read: Read, assemble: Assemble) -> Loader {
        Loader { read, assemble: Some(assemble) }
    }

    /// All rows are here already: another deal is another view of them.
    #[must_use]
    pub fn at_hand(whole: Holding) -> Loader {
        Loader { read: Arc::new(move |shards| Ok(whole.only(shards))), assemble: None }
    }
}

/// Deals shards by speed.
pub struct Redeal {
    loader: Loader,
    net: Arc<Net>,
    /// Who has each shard.
    holders: Vec<Seat>,
    patience: Duration,
    speeds: Speeds,
    coming: Option<Coming>,
}

/// A deal whose rows are on their way.
struct Coming {
    holders: Vec<Seat>,
    /// Steps done when it is next asked whether all have their rows, and from one question to the next.
    due: u64,
    apart: u64,
    rows: JoinHandle<Result<Holding>>,
}

impl Redeal {
    /// From the first deal, `done` steps after the beginning.
    #[must_use]
    pub fn new(
        loader: Loader,
        net: Arc<Net>,
        holders: Vec<Seat>,
        (appetite, done, patience): (Appetite, u64, Duration),
    ) -> Redeal {
        let speeds = Speeds::new(appetite, done);
        Redeal { loader, net, holders, patience, speeds, coming: None }
    }

    /// This worker has computed a contribution from so many rows.
    pub fn computed(&mut self, rows: u64, seconds: f64) {
        self.speeds.computed(rows, seconds);
    }

    /// Compares speeds, or changes to the deal that has been prepared, where that is due. All workers are at the
    /// same step. Gives the new deal to whoever speaks for all.
    ///
    /// # Errors
    /// A lost peer, or rows that can no longer be read.
    pub fn after_step(
        &mut self,
        walk: &Walk,
        dealer: &mut Dealer,
        memory: &mut Memory,
        sum: &mut Sum<'_>,
    ) -> Result<Option<Event>> {
        let done = walk.steps();
        if let Some(coming) = self.coming.take_if(|coming| done >= coming.due) {
            return self.change_over(coming, walk, (dealer, memory), sum);
        }
        if self.coming.is_some() || !self.speeds.are_due(done) {
            return Ok(None);
        }
        let (all, longest) = self.told(sum)?;
        let holders = self.speeds.compare(done, &all, &self.holders);
        let is_late = walk.steps_max().is_some_and(|max| done + STEPS_LEFT_MIN > max);
        if holders == self.holders || is_late {
            return Ok(None);
        }
        let apart = ((ASK_SECONDS / longest).ceil() as u64).clamp(1, APART_MAX);
        let rows = self.fetch(dealer.holding(), &holders, Step(done))?;
        self.coming = Some(Coming { holders, due: done + apart, apart, rows });
        Ok(None)
    }

    /// How fast everybody was, by seats, and the longest seconds of a step.
    fn told(&self, sum: &mut Sum<'_>) -> Result<(Vec<Speed>, f64)> {
        let mut mine = vec![0.0; 3 * self.net.world() as usize];
        let (at, Speed { mean, usual }) = (3 * self.net.seat().index(), self.speeds.own());
        mine[at..at + 3].copy_from_slice(&[mean, usual, self.speeds.seconds()]);
        let all = sum(mine)?;
        let seats = all.chunks_exact(3);
        let longest = seats.clone().map(|told| told[2]).fold(0.0, f64::max);
        Ok((seats.map(|told| Speed { mean: told[0], usual: told[1] }).collect(), longest))
    }

    /// Brings the rows of a new deal to where they will be, beside the training.
    fn fetch(
        &self,
        holding: &Holding,
        after: &[Seat],
        step: Step,
    ) -> Result<JoinHandle<Result<Holding>>> {
        let (loader, net, holding) = (self.loader.clone(), self.net.clone(), holding.clone());
        let (before, after, patience) = (self.holders.clone(), after.to_vec(), self.patience);
        let fetch = move || match &loader.assemble {
            None => (loader.read)(&held(&after, net.seat())),
            Some(assemble) => {
                let deals = (&before[..], &after[..]);
                give_rows(&net, &holding, deals, (step, patience))?;
                let mine = held(&after, net.seat());
                let mut coming = RowsComing::of(&net, &holding, deals, (step, patience));
                // Whoever only gives has nothing to put together: its table is no larger than it was.
                if coming.rows == 0 {
                    Ok(holding.only(&mine))
                } else {
                    assemble(&holding, &mine, &mut coming)
                }
            }
        };
        Ok(std::thread::Builder::new().name("rows".to_string()).spawn(fetch)?)
    }

    /// Changes to the new deal, if everyone has its rows.
    fn change_over(
        &mut self,
        mut coming: Coming,
        walk: &Walk,
        (dealer, memory): (&mut Dealer, &mut Memory),
        sum: &mut Sum<'_>,
    ) -> Result<Option<Event>> {
        let ready = sum(vec![f64::from(u8::from(coming.rows.is_finished()))])?;
        if ready[0] < f64::from(self.net.world()) {
            coming.due = walk.steps() + coming.apart;
            self.coming = Some(coming);
            return Ok(None);
        }
        let step = Step(walk.steps());
        let holding = joined(coming.rows)?;
        let before = std::mem::replace(&mut self.holders, coming.holders);
        self.move_memory(&before, memory, step)?;
        *dealer = dealer.with(holding);
        self.speeds.begin_anew(walk.steps());
        let holders = self.holders.iter().map(|seat| seat.0).collect();
        Ok((self.net.seat() == Seat(0)).then_some(Event::Dealt { step, holders }))
    }

    /// Waits for rows that are still on their way: nobody may leave while others send to it.
    ///
    /// # Errors
    /// A lost peer, or rows that can no longer be read.
    pub fn settle(&mut self) -> Result<()> {
        self.coming.take().map_or(Ok(()), |coming| joined(coming.rows).map(|_| ()))
    }

    /// What is remembered of shards that move goes with them.
    fn move_memory(&self, before: &[Seat], memory: &mut Memory, step: Step) -> Result<()> {
        let (me, by) = (self.net.seat(), Deadline::after(self.patience));
        let mut leaving: BTreeMap<Seat, Vec<(u32, Cells)>> = BTreeMap::new();
        let mut coming = 0;
        for (shard, (&from, &to)) in before.iter().zip(&self.holders).enumerate() {
            if from == me && to != me {
                let cells = memory.remove(Shard(shard as u32)).unwrap_or_default();
                leaving.entry(to).or_default().push((shard as u32, cells));
            }
            coming += u32::from(from != me && to == me);
        }
        for (to, cells) in leaving {
            let bytes = postcard::to_stdvec(&cells).expect("plain data serialises");
            let header = Header { lane: Lane::Control, kind: MOVING, step, tag: 0 };
            self.net.send(to, header, &bytes, by)?;
        }
        while coming > 0 {
            let mine =
                |arrival: &Arrival| arrival.header.kind == MOVING && arrival.header.step == step;
            let arrival = self.net.next(Lane::Control, mine, by)?;
            let broken = || {
                let from = arrival.from;
                Fault::peer(Some(from), format!("{from} handed over shards that cannot be read"))
            };
            let cells: Vec<(u32, Cells)> =
                postcard::from_bytes(&arrival.payload).map_err(|_| broken())?;
            coming = coming.checked_sub(cells.len() as u32).ok_or_else(broken)?;
            for (shard, cells) in cells {
                memory.insert(Shard(shard), cells);
            }
        }
        Ok(())
    }
}

/// Sends the rows of shards that leave.
fn give_rows(
    net: &Net,
    holding: &Holding,
    (before, after): (&[Seat], &[Seat]),
    (step, patience): (Step, Duration),
) -> Result<()> {
    let me = net.seat();
    let mut under_way = 0;
    let taken = || {
        let mine = |arrival: &Arrival| arrival.header.kind == TAKEN && arrival.header.step == step;
        net.next(Lane::Control, mine, Deadline::after(patience)).map(|_| ())
    };
    let moves = before.iter().zip(after).enumerate();
    for (shard, (_, &to)) in moves.filter(|(_, (from, to))| **from == me && **to != me) {
        let shard = Shard(shard as u32);
        let header = Header { lane: Lane::Control, kind: ROWS, step, tag: shard.0 };
        for parcel in holding.parcels(shard) {
            // Nobody gives and takes at once (`speeds::dealt`), so that whoever is waited for here is taking.
            if under_way == UNDER_WAY_MAX {
                taken()?;
                under_way -= 1;
            }
            net.send(to, header, &parcel.to_bytes(), Deadline::after(patience))?;
            under_way += 1;
        }
    }
    (0..under_way).try_for_each(|_| taken())
}

/// The rows of shards that come, as they arrive.
struct RowsComing<'a> {
    net: &'a Net,
    after: &'a [Seat],
    /// How many are still to come.
    rows: u64,
    step: Step,
    patience: Duration,
}

impl<'a> RowsComing<'a> {
    fn of(
        net: &'a Net,
        holding: &Holding,
        (before, after): (&[Seat], &'a [Seat]),
        (step, patience): (Step, Duration),
    ) -> RowsComing<'a> {
        let me = net.seat();
        let moves = before.iter().zip(after).enumerate();
        let coming = moves.filter(|(_, (from, to))| **from != me && **to == me);
        let rows = coming.map(|(shard, _)| holding.shard_rows(Shard(shard as u32))).sum();
        RowsComing { net, after, rows, step, patience }
    }

    fn take(&mut self) -> Result<Parcel> {
        let step = self.step;
        let mine = |arrival: &Arrival| arrival.header.kind == ROWS && arrival.header.step == step;
        let arrival = self.net.next(Lane::Control, mine, Deadline::after(self.patience))?;
        let parcel = Parcel::read(&arrival.payload)?;
        let (shard, rows) = parcel.rows();
        let is_mine = self.after.get(shard.0 as usize) == Some(&self.net.seat());
        let fits = self.rows.checked_sub(rows).filter(|_| is_mine && rows > 0);
        self.rows = fits.ok_or_else(|| {
            let from = arrival.from;
            Fault::peer(Some(from), format!("{from} sent rows that nobody asked for"))
        })?;
        let taken = Header { lane: Lane::Control, kind: TAKEN, step, tag: shard.0 };
        self.net.send(arrival.from, taken, &[], Deadline::after(self.patience))?;
        Ok(parcel)
    }
}

impl Iterator for RowsComing<'_> {
    type Item = Result<Parcel>;

    fn next(&mut self) -> Option<Result<Parcel>> {
        (self.rows > 0).then(|| self.take())
    }
}

fn joined(rows: JoinHandle<Result<Holding>>) -> Result<Holding> {
    let panicked = |_| Err(Fault::machine("the thread that brings rows panicked"));
    rows.join().unwrap_or_else(panicked)
}

/// Exactly these shards: what is not there is read, what is no longer wanted is let go.
///
/// # Errors
/// Rows that can no longer be read.
pub(crate) fn taken_up(holding: &Holding, shards: &[Shard], loader: &Loader) -> Result<Holding> {
    let lacking: Vec<Shard> =
        shards.iter().copied().filter(|shard| !holding.starts.contains_key(shard)).collect();
    if lacking.is_empty() {
        return Ok(holding.only(shards));
    }
    let more = (loader.read)(&lacking)?;
    // Rows of shards that went elsewhere are still in the table: they must not pile up.
    let crowded = holding.table.rows() as u64 > 2 * holding.rows_held() + more.rows_held();
    // Rows in a file stay in one: joined they would have to come into memory.
    let in_file = holding.table.is_mapped() || more.table.is_mapped();
    let holding = if crowded || in_file { (loader.read)(shards)? } else { holding.joined(&more) };
    Ok(holding.only(shards))
}

fn held(holders: &[Seat], seat: Seat) -> Vec<Shard> {
    let mine = holders.iter().enumerate().filter(|(_, holder)| **holder == seat);
    mine.map(|(shard, _)| Shard(shard as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::speeds::tests::{counts, even};
    use super::*;
    use crate::bridge::adder::{PATIENCE, Perch, perches, run_all};
    use starlings_core::{Block, Update};
    use starlings_data::{Features, Table};
    use starlings_learn::Outcome;

    const ROWS_ALL: usize = 1200;
    const STEPS_MAX: u64 = 20_000;

    fn rows() -> Holding {
        let numbers: Vec<f32> = (0..ROWS_ALL).map(|row| row as f32).collect();
        let features = Features::Dense { width: 1, values: numbers.clone() };
        Holding::whole(Arc::new(Table::new(features, numbers)), 64)
    }

    /// A holding with a table of its own.
    fn apart(whole: &Holding, shards: &[Shard]) -> Holding {
        whole.reassembled(shards, [], None).unwrap()
    }

    /// Nobody reads a file where rows can be sent.
    fn without_files() -> Loader {
        let assemble = |holding: &Holding, keep: &[Shard], parcels: &mut Arriving<'_>| {
            holding.reassembled(keep, parcels, None)
        };
        let read = |_: &[Shard]| -> Result<Holding> { panic!("a file was read") };
        Loader::new(Arc::new(read), Arc::new(assemble))
    }

    /// The labels of each step, as this seat computed them, until the deal is within a tenth of the ideal; and the deal.
    fn walk(perch: &Perch, speeds: &[f64]) -> (Vec<Vec<f32>>, Vec<Seat>) {
        let (whole, world) = (rows(), speeds.len());
        let holders = even(world as u32, whole.shards);
        let me = perch.net.seat();
        let mut dealer = Dealer::new(apart(&whole, &held(&holders, me)), 5, 64);
        let habits = (Appetite::Batches, 0, PATIENCE);
        let mut redeal = Redeal::new(without_files(), perch.net.clone(), holders, habits);
        let mut walk = Walk::new(Step(0), None, dealer.steps_a_pass());
        let (mut memory, mut merger) = (Memory::new(), perch.exact(3));
        for shard in held(&redeal.holders, me) {
            memory.insert(shard, Cells::default());
        }
        let mut sum = |numbers: Vec<f64>| -> Result<Vec<f64>> {
            let merged = merger.merge(Update { blocks: vec![Block::dense("sum", numbers)] })?;
            Ok(merged.f64("sum").to_vec())
        };
        let mut seen = Vec::new();
        while let Some(step) = walk.next_step().filter(|step| step.0 < STEPS_MAX) {
            let batch = dealer.deal(walk.pass(step), walk.step_in_pass(step));
            seen.push(batch.rows().map(|row| batch.table.labels[row]).collect());
            let used = batch.len() as u64;
            redeal.computed(used, used as f64 / speeds[me.index()]);
            walk.done(step, batch.rows_step, &Outcome::default());
            let dealt = redeal.after_step(&walk, &mut dealer, &mut memory, &mut sum).unwrap();
            assert!(dealt.is_none() || me == Seat(0), "one speaks for all");
            for shard in held(&redeal.holders, me) {
                assert!(memory.knows(shard), "what is remembered moves along");
            }
            let ideal = f64::from(whole.shards) / speeds.iter().sum::<f64>();
            let counts = counts(&redeal.holders, world);
            let pairs = counts.iter().zip(speeds);
            if pairs.map(|(&count, speed)| count as f64 / speed).fold(0.0, f64::max) < 1.1 * ideal {
                break;
            }
        }
        redeal.settle().unwrap();
        (seen, redeal.holders)
    }

    #[test]
    fn few_parcels_are_under_way_at_a_time() {
        let whole = rows();
        let (before, after) = (vec![Seat(0); 64], vec![Seat(1); 64]);
        let deals = (&before[..], &after[..]);
        let habits = (Step(7), Duration::from_millis(100));
        let outcomes = run_all(&perches(2), |perch| match perch.net.seat() {
            Seat(0) => (give_rows(&perch.net, &whole, deals, habits).is_err(), 0),
            // Rows that nobody says have been taken are followed by no more.
            _ => {
                let by = || Deadline::after(PATIENCE);
                let rows = |arrival: &Arrival| arrival.header.kind == ROWS;
                let mut come = 0;
                while come < UNDER_WAY_MAX {
                    perch.net.next(Lane::Control, rows, by()).unwrap();
                    come += 1;
                }
                let late = perch.net.next(Lane::Control, rows, Deadline::after(4 * habits.1));
                (late.is_err(), come)
            }
        });
        assert_eq!(outcomes, [(true, 0), (true, UNDER_WAY_MAX)]);
        let outcomes = run_all(&perches(2), |perch| match perch.net.seat() {
            Seat(0) => give_rows(&perch.net, &whole, deals, (Step(7), PATIENCE)).map(|()| 64),
            _ => {
                let habits = (Step(7), PATIENCE);
                let coming = RowsComing::of(&perch.net, &whole, deals, habits);
                coming.map(|parcel| parcel.map(|_| 1)).sum()
            }
        });
        outcomes.into_iter().for_each(|outcome| assert_eq!(outcome.unwrap(), 64));
    }

    #[test]
    fn shares_come_within_a_tenth_of_the_ideal_and_nobody_waits_for_a_file() {
        for speeds in [vec![1.0, 1.0, 0.25], vec![1.0, 1.0, 1.0 / 3.0], vec![1.0 / 3.0, 1.0]] {
            let world = speeds.len() as u32;
            let walked = run_all(&perches(world), |perch| walk(&perch, &speeds));
            let (steps, deal) = (walked[0].0.len(), &walked[0].1);
            assert!((steps as u64) < STEPS_MAX, "{speeds:?}: the deal stays {deal:?}");
            assert_ne!(deal, &even(world, 64));
            // Whoever computes them, the rows of a step are those of (seed, pass, step).
            let mut alone = Dealer::new(rows(), 5, 64);
            let a_pass = alone.steps_a_pass();
            for step in 0..steps {
                assert_eq!((walked[1].0.len(), &walked[1].1), (steps, deal));
                let mut all: Vec<f32> =
                    walked.iter().flat_map(|(seen, _)| seen[step].clone()).collect();
                let batch = alone.deal(step as u64 / a_pass, step as u64 % a_pass);
                let mut wanted: Vec<f32> =
                    batch.rows().map(|row| batch.table.labels[row]).collect();
                all.sort_by(f32::total_cmp);
                wanted.sort_by(f32::total_cmp);
                assert_eq!(all, wanted, "step {step}");
            }
        }
    }
}
