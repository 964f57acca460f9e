//! The collected exchange: a pure machine for sums whose contributions arrive whole at whoever folds them, for
//! codecs that cannot be folded on the way. Either each chunk has an owner, who folds all contributions
//! in the order of seats and sends the total to all (Seide et al., 2014, between machines), or
//! everyone sends everything to everyone and folds alike (sufficient-factor broadcasting, Xie et al., 2016).
//!
//! Events in, commands out, as in `scheduled.rs`. What a lossy codec loses is kept by the packer: of
//! contributions at each seat, of totals at each owner, so that both arrive in the end.

use super::cut::{Part, cut};
use super::packet::{Packer, Place};
use super::scheduled::{Command, Event};
use starlings_codec::Malformed;
use starlings_core::{Body, Kind, Rows, Seat, Update, Values, planted};
use std::collections::BTreeMap;

/// The machine for one sum.
pub struct Collected {
    own: Update,
    sum: Update,
    chunks: Vec<Vec<Part>>,
    /// Who folds each chunk; everyone folds all where there are none.
    owners: Option<Vec<Seat>>,
    count: u64,
    me: Seat,
    world: u32,
    packets: Vec<Vec<u8>>,
    totals: Vec<Vec<u8>>,
    arrived: Vec<BTreeMap<Seat, Vec<u8>>>,
    settled: Vec<bool>,
    over: bool,
}

/// Which sum, and who takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sitting {
    /// What a codec's noise is drawn from: the same on all seats, another for each sum.
    pub count: u64,
    /// This seat's place in the group.
    pub me: Seat,
    /// Seats of the group.
    pub world: u32,
}

/// Whose bytes are wrong, and how: not always theirs who came last.
struct Wrong(Seat, Malformed);

impl Collected {
    /// A machine that will sum `own` over the group. `owners(chunks)` says who folds each chunk, if not all.
    pub fn new(
        own: Update,
        sitting: Sitting,
        grain: usize,
        owners: impl FnOnce(usize) -> Option<Vec<Seat>>,
    ) -> Collected {
        let chunks = cut(&own, grain);
        let owners = owners(chunks.len());
        let Sitting { count, me, world } = sitting;
        Collected {
            sum: nothing_like(&own),
            own,
            owners,
            count,
            me,
            world,
            packets: vec![Vec::new(); chunks.len()],
            totals: vec![Vec::new(); chunks.len()],
            arrived: vec![BTreeMap::new(); chunks.len()],
            settled: vec![false; chunks.len()],
            chunks,
            over: false,
        }
    }

    /// Feeds an event. After `Done` or `Fail` further events are ignored.
    pub fn on(&mut self, event: Event, packer: &mut Packer, out: &mut Vec<Command>) {
        if self.over {
            return;
        }
        match event {
            Event::Begin => self.begin(packer, out),
            Event::Frame { from, chunk, total, payload } => {
                if let Err(Wrong(seat, why)) =
                    self.frame(from, (chunk, total), payload, (packer, out))
                {
                    return self.fail(seat, why.0.to_string(), out);
                }
            }
            Event::Lost { seat, why } => return self.fail(seat, why, out),
        }
        if self.settled.iter().all(|settled| *settled) {
            self.over = true;
            out.push(Command::Done);
        }
    }

    /// The bytes that a `Send` of this chunk means.
    #[must_use]
    pub fn payload(&self, chunk: usize, total: bool) -> &[u8] {
        if total { &self.totals[chunk] } else { &self.packets[chunk] }
    }

    /// The sum, after `Done`.
    #[must_use]
    pub fn take(self) -> Update {
        self.sum
    }

    /// Bytes that a chunk has in memory as dense numbers and rows. Factors are always f64; `stands_for` says of which kind the
    /// numbers of the tensor are that a block of this name is added to.
    #[must_use]
    pub fn bytes_raw(&self, chunk: usize, stands_for: impl Fn(&str) -> Kind) -> u64 {
        let bytes = |part: &Part| match &self.own.blocks[part.block].body {
            Body::Dense(values) => (part.to - part.from) * values.kind().bytes(),
            Body::Rows(rows) => {
                let rows = rows.range(part.from as u32, part.to as u32);
                rows.index.len() * 4 + rows.values.len() * rows.values.kind().bytes()
            }
            Body::Factors(factors) => {
                let kind = stands_for(&self.own.blocks[part.block].name);
                factors.rows as usize * factors.width as usize * kind.bytes()
            }
        };
        self.chunks[chunk].iter().map(bytes).sum::<usize>() as u64
    }

    /// What this seat waits for at the moment.
    #[must_use]
    pub fn waiting(&self) -> Option<(Seat, usize)> {
        let chunk = self.settled.iter().position(|settled| !settled)?;
        match &self.owners {
            Some(owners) if owners[chunk] != self.me => Some((owners[chunk], chunk)),
            _ => self
                .others()
                .find(|seat| !self.arrived[chunk].contains_key(seat))
                .map(|seat| (seat, chunk)),
        }
    }

    fn others(&self) -> impl Iterator<Item = Seat> + use<> {
        // Everyone starts with the next seat, so that the flock does not fall upon one after the other.
        let (me, world) = (self.me.0, self.world);
        (1..world).map(move |step| Seat((me + step) % world))
    }

    fn folds(&self, chunk: usize) -> bool {
        self.owners.as_ref().is_none_or(|owners| owners[chunk] == self.me)
    }

    fn begin(&mut self, packer: &mut Packer, out: &mut Vec<Command>) {
        for chunk in 0..self.chunks.len() {
            if self.world == 1 {
                // Nothing travels, so nothing is lost.
                self.add_own(chunk).expect("the sum was made like the own contribution");
                self.settled[chunk] = true;
                continue;
            }
            let owner = self.owners.as_ref().map(|owners| owners[chunk]);
            if owner == Some(self.me) {
                continue;
            }
            let place = Place { count: self.count, chunk, total: false };
            let mut packet = Vec::new();
            for part in &self.chunks[chunk] {
                packer.pack(&self.own, part, place, &mut packet);
            }
            self.packets[chunk] = packet;
            let to: Vec<Seat> = owner.map_or_else(|| self.others().collect(), |owner| vec![owner]);
            out.extend(to.into_iter().map(|to| Command::Send { to, chunk, total: false }));
        }
    }

    fn frame(
        &mut self,
        from: Seat,
        (chunk, total): (usize, bool),
        payload: Vec<u8>,
        (packer, out): (&mut Packer, &mut Vec<Command>),
    ) -> Result<(), Wrong> {
        let unexpected = Wrong(from, Malformed("sent a chunk that nobody waits for"));
        let stranger = from == self.me || from.0 >= self.world;
        if stranger || chunk >= self.chunks.len() || self.settled[chunk] {
            return Err(unexpected);
        }
        if total {
            let owner = self.owners.as_ref().map(|owners| owners[chunk]);
            if owner != Some(from) {
                return Err(unexpected);
            }
            self.unpack(chunk, &payload, packer).map_err(|why| Wrong(from, why))?;
            self.settled[chunk] = true;
            return Ok(());
        }
        if !self.folds(chunk) || self.arrived[chunk].insert(from, payload).is_some() {
            return Err(unexpected);
        }
        if self.arrived[chunk].len() + 1 == self.world as usize {
            self.fold(chunk, packer, out)?;
        }
        Ok(())
    }

    /// All contributions to a chunk are here: in the order of seats they become the total.
    fn fold(
        &mut self,
        chunk: usize,
        packer: &mut Packer,
        out: &mut Vec<Command>,
    ) -> Result<(), Wrong> {
        let arrived = std::mem::take(&mut self.arrived[chunk]);
        let (world, first) = (self.world, if planted!("fold-from-self") { self.me.0 } else { 0 });
        for seat in (0..world).map(|turn| Seat((first + turn) % world)) {
            let folded = match arrived.get(&seat) {
                Some(packet) => self.unpack(chunk, packet, packer),
                None if self.owners.is_some() => {
                    let added = self.add_own(chunk);
                    let parts = self.chunks[chunk].iter();
                    parts.for_each(|part| packer.claim(&mut self.sum, part));
                    added
                }
                // What the others read of this seat's contribution, it reads itself: all hold the same bits.
                None => {
                    let packet = std::mem::take(&mut self.packets[chunk]);
                    let own = self.unpack(chunk, &packet, packer);
                    self.packets[chunk] = packet;
                    own
                }
            };
            folded.map_err(|why| Wrong(seat, why))?;
        }
        self.settled[chunk] = true;
        if self.owners.is_none() {
            return Ok(());
        }
        let place = Place { count: self.count, chunk, total: true };
        let mut packet = Vec::new();
        for part in &self.chunks[chunk] {
            packer.pack(&self.sum, part, place, &mut packet);
        }
        if packer.loses() {
            self.clear(chunk);
            self.unpack(chunk, &packet, packer).map_err(|why| Wrong(self.me, why))?;
        }
        self.totals[chunk] = packet;
        out.extend(self.others().map(|to| Command::Send { to, chunk, total: true }));
        Ok(())
    }

    fn unpack(&mut self, chunk: usize, packet: &[u8], packer: &Packer) -> Result<(), Malformed> {
        let mut rest = packet;
        for part in &self.chunks[chunk] {
            rest = packer.unpack(&mut self.sum, part, rest)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed("a chunk is too long")) }
    }

    /// An owner's own contribution needs no packing.
    fn add_own(&mut self, chunk: usize) -> Result<(), Malformed> {
        let differs = |_| Malformed("blocks of another shape");
        for part in &self.chunks[chunk] {
            match (&mut self.sum.blocks[part.block].body, &self.own.blocks[part.block].body) {
                (Body::Dense(sum), Body::Dense(own)) => {
                    sum.add_at(part.from, &own.slice(part.from, part.to)).map_err(differs)?;
                }
                (Body::Rows(sum), Body::Rows(own)) => {
                    sum.fold(&own.range(part.from as u32, part.to as u32)).map_err(differs)?;
                }
                (Body::Dense(Values::F64(sum)), Body::Factors(own)) => own.add_to(sum),
                _ => unreachable!("the sum was made like the own contribution"),
            }
        }
        Ok(())
    }

    fn clear(&mut self, chunk: usize) {
        for part in &self.chunks[chunk] {
            match &mut self.sum.blocks[part.block].body {
                Body::Dense(values) => {
                    let span = part.span(values.len());
                    let zeros = Values::zeros(values.kind(), span.len());
                    values.copy_at(span.start, &zeros).expect("the part is inside its block");
                }
                Body::Rows(rows) => {
                    let (mut before, after) =
                        (rows.range(0, part.from as u32), rows.range(part.to as u32, u32::MAX));
                    before.fold(&after).expect("both are of one table");
                    *rows = before;
                }
                Body::Factors(_) => unreachable!("a sum of factors is a matrix"),
            }
        }
    }

    fn fail(&mut self, seat: Seat, why: String, out: &mut Vec<Command>) {
        self.over = true;
        let phase = match self.waiting() {
            Some((peer, chunk)) => format!("waiting for chunk {chunk} of {peer}"),
            None => "sending chunks".to_string(),
        };
        out.push(Command::Fail { seat, phase, why });
    }
}

/// Zeros of the shapes that a sum of such updates has. Factors add up to a matrix.
fn nothing_like(update: &Update) -> Update {
    let mut sum = Update::default();
    for block in &update.blocks {
        let body = match &block.body {
            Body::Dense(values) => Body::Dense(Values::zeros(values.kind(), values.len())),
            Body::Rows(rows) => Body::Rows(Rows::none(rows.values.kind(), rows.total, rows.width)),
            Body::Factors(factors) => {
                let len = factors.rows as usize * factors.width as usize;
                Body::Dense(Values::F64(vec![0.0; len]))
            }
        };
        sum.blocks.push(starlings_core::Block { name: block.name.clone(), body });
    }
    sum
}

#[cfg(test)]
#[path = "collected_tests.rs"]
mod tests;
