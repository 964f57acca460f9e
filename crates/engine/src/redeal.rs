//! Unequal workers: shards are dealt by measured speed, so that all finish a step together. From time to time the
//! workers tell each other how long their rows took, and all compute the same new deal. Its rows then travel in the
//! background, from whoever has them to whoever will, while steps go on by the old deal; once all have theirs, they
//! change to the new one between two steps, with what is remembered of the shards that move. So nobody waits for rows.
//!
//! With speeds sᵢ a step takes at least n/Σsᵢ for n rows; with whole shards the slowest worker takes at most one
//! shard's time more.

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

/// A new deal must shorten the step by this share, or nothing moves.
const GAIN: f64 = 0.05;
/// Speeds of mini-batches are first compared after so many steps.
const FIRST: u64 = 4;
/// Each comparison is twice as far from the one before, up to so many steps: speeds that keep changing are noise.
const APART_MAX: u64 = 64;
/// Whether all have their rows is asked about this often, in seconds, and at most every so many steps.
const ASK_SECONDS: f64 = 0.02;
/// So near the end nothing moves any more.
const STEPS_LEFT_MIN: u64 = 8;

/// Reads the rows of some shards.
pub type Read = Arc<dyn Fn(&[Shard]) -> Result<Holding> + Send + Sync>;
/// Puts rows that are held and rows that were sent together: exactly these shards.
pub type Assemble = Arc<dyn Fn(&Holding, &[Shard], Vec<Parcel>) -> Result<Holding> + Send + Sync>;

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
    seconds: f64,
    rows: u64,
    steps: u64,
    /// Steps done when the next comparison or question is due.
    due: u64,
    /// Steps from one comparison to the next.
    apart: u64,
    coming: Option<Coming>,
}

/// A deal whose rows are on their way.
struct Coming {
    holders: Vec<Seat>,
    /// Steps from one question to the next.
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
        let apart = match appetite {
            Appetite::Passes => 1,
            Appetite::Batches => FIRST,
        };
        let (seconds, rows, steps, due) = (0.0, 0, 0, done + apart);
        Redeal { loader, net, holders, patience, seconds, rows, steps, due, apart, coming: None }
    }

    /// This worker has computed a contribution from so many rows.
    pub fn computed(&mut self, rows: u64, seconds: f64) {
        // The first step after a beginning or a change is not counted where there are others: its memory is fresh.
        if self.steps == 1 {
            (self.rows, self.seconds) = (0, 0.0);
        }
        self.rows += rows;
        self.seconds += seconds;
        self.steps += 1;
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
        if walk.steps() < self.due {
            return Ok(None);
        }
        if let Some(coming) = self.coming.take() {
            return self.change_over(coming, walk, (dealer, memory), sum);
        }
        let (me, world) = (self.net.seat(), self.net.world() as usize);
        let mut mine = vec![0.0; 2 * world];
        mine[2 * me.index()] = self.rows as f64;
        mine[2 * me.index() + 1] = self.seconds;
        let all = sum(mine)?;
        let steps = self.steps.max(1) as f64;
        self.apart = (2 * self.apart).min(APART_MAX);
        self.begin_anew(walk);
        let speeds: Vec<f64> = all.chunks_exact(2).map(|pair| pair[0] / pair[1]).collect();
        let holders = dealt(&speeds, &self.holders);
        let is_late = walk.steps_max().is_some_and(|max| walk.steps() + STEPS_LEFT_MIN > max);
        if holders == self.holders || is_late {
            return Ok(None);
        }
        let longest = all.chunks_exact(2).map(|pair| pair[1]).fold(0.0, f64::max) / steps;
        let apart = ((ASK_SECONDS / longest).ceil() as u64).clamp(1, APART_MAX);
        let rows = self.fetch(dealer.holding(), &holders, Step(walk.steps()))?;
        self.coming = Some(Coming { holders, apart, rows });
        self.due = walk.steps() + apart;
        Ok(None)
    }

    /// Speeds are measured from here on, and compared after a while.
    fn begin_anew(&mut self, walk: &Walk) {
        (self.rows, self.seconds, self.steps) = (0, 0.0, 0);
        self.due = walk.steps() + self.apart;
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
                let parcels = swap_rows(&net, &holding, (&before, &after), (step, patience))?;
                assemble(&holding, &held(&after, net.seat()), parcels)
            }
        };
        Ok(std::thread::Builder::new().name("rows".to_string()).spawn(fetch)?)
    }

    /// Changes to the new deal, if everyone has its rows.
    fn change_over(
        &mut self,
        coming: Coming,
        walk: &Walk,
        (dealer, memory): (&mut Dealer, &mut Memory),
        sum: &mut Sum<'_>,
    ) -> Result<Option<Event>> {
        let ready = sum(vec![f64::from(u8::from(coming.rows.is_finished()))])?;
        if ready[0] < f64::from(self.net.world()) {
            self.due = walk.steps() + coming.apart;
            self.coming = Some(coming);
            return Ok(None);
        }
        let step = Step(walk.steps());
        let holding = joined(coming.rows)?;
        let before = std::mem::replace(&mut self.holders, coming.holders);
        self.move_memory(&before, memory, step)?;
        *dealer = dealer.with(holding);
        self.begin_anew(walk);
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

/// Sends the rows of shards that leave, and takes those of shards that come.
fn swap_rows(
    net: &Net,
    holding: &Holding,
    (before, after): (&[Seat], &[Seat]),
    (step, patience): (Step, Duration),
) -> Result<Vec<Parcel>> {
    let me = net.seat();
    let mut coming = 0;
    for (shard, (&from, &to)) in before.iter().zip(after).enumerate().filter(|(_, (a, b))| a != b) {
        let shard = Shard(shard as u32);
        if from == me {
            let header = Header { lane: Lane::Control, kind: ROWS, step, tag: shard.0 };
            for parcel in holding.parcels(shard) {
                net.send(to, header, &parcel.to_bytes(), Deadline::after(patience))?;
            }
        }
        coming += if to == me { holding.shard_rows(shard) } else { 0 };
    }
    let mut parcels = Vec::new();
    while coming > 0 {
        let mine = |arrival: &Arrival| arrival.header.kind == ROWS && arrival.header.step == step;
        let arrival = net.next(Lane::Control, mine, Deadline::after(patience))?;
        let parcel = Parcel::read(&arrival.payload)?;
        let (shard, rows) = parcel.rows();
        let is_mine = after.get(shard.0 as usize) == Some(&me);
        let fits = coming.checked_sub(rows).filter(|_| is_mine && rows > 0);
        coming = fits.ok_or_else(|| {
            let from = arrival.from;
            Fault::peer(Some(from), format!("{from} sent rows that nobody asked for"))
        })?;
        parcels.push(parcel);
    }
    Ok(parcels)
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

/// Who should have each shard, given rows a second of each seat. The old deal stays where the speeds are not known or
/// the gain is small; otherwise as few shards move as the new numbers need.
#[must_use]
pub fn dealt(speeds: &[f64], holders: &[Seat]) -> Vec<Seat> {
    if speeds.iter().any(|speed| !(speed.is_finite() && *speed > 0.0)) {
        return holders.to_vec();
    }
    let mut counts = vec![0usize; speeds.len()];
    for _ in holders {
        // The next shard goes where it would be finished first.
        let time = |seat: &usize| (counts[*seat] + 1) as f64 / speeds[*seat];
        let first = (0..speeds.len()).min_by(|a, b| time(a).total_cmp(&time(b)));
        counts[first.expect("there are seats")] += 1;
    }
    let longest = |counts: &[usize]| {
        counts.iter().zip(speeds).map(|(&count, speed)| count as f64 / speed).fold(0.0, f64::max)
    };
    let now: Vec<usize> = (0..speeds.len())
        .map(|seat| holders.iter().filter(|holder| holder.index() == seat).count())
        .collect();
    if longest(&counts) > (1.0 - GAIN) * longest(&now) {
        return holders.to_vec();
    }
    let mut dealt = holders.to_vec();
    let mut room: Vec<usize> = counts.clone();
    let mut homeless = Vec::new();
    for (shard, holder) in dealt.iter().enumerate() {
        match room[holder.index()].checked_sub(1) {
            Some(left) => room[holder.index()] = left,
            None => homeless.push(shard),
        }
    }
    for shard in homeless {
        let free = room.iter().position(|&room| room > 0).expect("counts add up to all shards");
        room[free] -= 1;
        dealt[shard] = Seat(free as u32);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, Perch, perches, run_all};
    use starlings_core::{Block, Update};
    use starlings_data::{Features, Table};
    use starlings_learn::Outcome;

    fn even(world: u32, shards: u32) -> Vec<Seat> {
        (0..shards).map(|shard| Seat(shard * world / shards)).collect()
    }

    fn counts(holders: &[Seat], world: usize) -> Vec<usize> {
        let count = |seat| holders.iter().filter(|holder| holder.index() == seat).count();
        (0..world).map(count).collect()
    }

    #[test]
    fn a_worker_three_times_slower_gets_a_third() {
        let dealt = dealt(&[3.0, 1.0], &even(2, 16));
        assert_eq!(counts(&dealt, 2), [12, 4]);
        // Only four shards have moved.
        assert_eq!(dealt.iter().zip(even(2, 16)).filter(|(a, b)| **a != *b).count(), 4);
    }

    #[test]
    fn the_step_takes_less_than_a_tenth_over_the_ideal_with_enough_shards() {
        for speeds in [vec![1.0, 3.0, 3.0, 3.0], vec![1.0, 1.0, 3.0], vec![1.0, 2.0, 4.0, 8.0]] {
            let world = speeds.len();
            let shards = 40 * world as u32;
            let dealt = dealt(&speeds, &even(world as u32, shards));
            let ideal = f64::from(shards) / speeds.iter().sum::<f64>();
            for (count, speed) in counts(&dealt, world).iter().zip(&speeds) {
                assert!(*count as f64 / speed <= 1.1 * ideal, "{speeds:?}");
            }
        }
    }

    const ROWS_ALL: usize = 1200;
    const STEPS_MAX: u64 = 20_000;

    fn rows() -> Holding {
        let numbers: Vec<f32> = (0..ROWS_ALL).map(|row| row as f32).collect();
        let features = Features::Dense { width: 1, values: numbers.clone() };
        Holding::whole(Arc::new(Table::new(features, numbers)), 64)
    }

    /// A holding with a table of its own.
    fn apart(whole: &Holding, shards: &[Shard]) -> Holding {
        whole.reassembled(shards, vec![], None).unwrap()
    }

    /// Nobody reads a file where rows can be sent.
    fn without_files() -> Loader {
        let assemble =
            |holding: &Holding, keep: &[Shard], parcels| holding.reassembled(keep, parcels, None);
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

    #[test]
    fn equals_and_unknown_speeds_move_nothing() {
        for speeds in [[1.0, 1.0], [1.0, 1.05], [f64::NAN, 1.0], [0.0, 1.0], [1.0, f64::INFINITY]] {
            assert_eq!(dealt(&speeds, &even(2, 16)), even(2, 16));
        }
    }
}
