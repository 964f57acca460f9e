//! Packets: a part of a contribution as bytes that say themselves how they are to be read, since each
//! contribution may choose another way. Whoever folds knows names and shapes; the packet adds the numbers.
//!
//! A part is one byte that names the way, four of length, and that many of numbers. Statistics (blocks that
//! name no tensor) and integers always travel as they are.

use super::columns;
use super::cut::Part;
use crate::choices::Carriage;
use starlings_codec::{
    Cheapest, Codec, Compressor, Facts, Into as Put, Malformed, Residuals, Shapes, Way, residuals,
    sparse,
};
use starlings_core::{Block, Body, Factors, Kind, Rng, Rows, Update, Values};
use std::collections::BTreeMap;
use std::sync::Arc;

const NUMBERS: u8 = 0;
const SQUEEZED: u8 = 1;
const SPARSE: u8 = 2;
const FACTORS: u8 = 3;
/// Factors that lose nothing in half the bytes: those of networks.
const SHORT_FACTORS: u8 = 4;

/// What a seat's codec has lost so far, by name.
pub type Losses = BTreeMap<String, Values>;

const CONTRIBUTIONS: &str = "contributions/";
const TOTALS: &str = "totals/";

/// Where a packet belongs; what its noise is drawn from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Which sum: the step, and which of its sums.
    pub count: u64,
    /// Which chunk.
    pub chunk: usize,
    /// Whether it is a total (or else a contribution).
    pub total: bool,
}

/// Packs one seat's contributions, and remembers what was lost.
pub struct Packer {
    carriage: Carriage,
    /// For numbers that travel as they are.
    raw: Arc<dyn Codec>,
    shapes: Arc<Shapes>,
    contributions: Residuals,
    totals: Residuals,
    seed: u64,
    seat: u64,
    world: u32,
    everyone: bool,
    /// Bytes a second between two seats, where it was measured.
    bandwidth: Option<f64>,
    /// Whether nothing is held back any more.
    parting: bool,
}

/// Who packs, and for whom.
#[derive(Clone, Debug)]
pub struct Address {
    /// The job's seed.
    pub seed: u64,
    /// This seat's place in its group.
    pub seat: u32,
    /// Seats of the group.
    pub world: u32,
    /// Whether contributions go to everyone (or else to owners).
    pub everyone: bool,
}

impl Packer {
    /// A packer that has lost nothing yet.
    #[must_use]
    pub fn new(carriage: Carriage, shapes: Arc<Shapes>, address: &Address) -> Packer {
        Packer {
            carriage,
            raw: crate::choices::raw(),
            shapes,
            contributions: Residuals::default(),
            totals: Residuals::default(),
            seed: address.seed,
            seat: u64::from(address.seat),
            world: address.world,
            everyone: address.everyone,
            bandwidth: None,
            parting: false,
        }
    }

    /// Whether something may be held back of what is packed.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        match &self.carriage {
            Carriage::Contributions(compressor) => compressor.feedback().is_some(),
            _ => false,
        }
    }

    /// This seat is about to leave: from now on what it packs loses nothing, and carries what was held back before.
    pub fn part(&mut self) {
        self.parting = true;
    }

    /// Adds what is held back of contributions to a part that this seat folds itself: it never travels, so nothing else
    /// would bring it. Only what seats that are gone have left is ever held there.
    pub fn claim(&mut self, sum: &mut Update, part: &Part) {
        let block = &mut sum.blocks[part.block];
        if self.holds_back() && self.lossy(block) {
            let held = unheld(&mut self.contributions, block, part);
            add_held(block, part, held);
        }
    }

    /// Adds all that is held back, for a seat that is alone: nothing travels any more.
    pub fn claim_all(&mut self, update: &mut Update) {
        if self.holds_back() {
            self.contributions.flush(update);
            self.totals.flush(update);
        }
    }

    /// Whether a total comes back other than it was packed.
    #[must_use]
    pub fn loses(&self) -> bool {
        match &self.carriage {
            Carriage::Contributions(_) => true,
            Carriage::Numbers(codec) => codec.law() != starlings_codec::Law::Exact,
            _ => false,
        }
    }

    /// What was lost so far, by names that stay the same.
    #[must_use]
    pub fn save(&self) -> Losses {
        let named = |kind: &str, residuals: &Residuals| -> Losses {
            let saved = residuals.save().into_iter();
            saved.map(|(name, values)| (format!("{kind}{name}"), values)).collect()
        };
        let mut losses = named(CONTRIBUTIONS, &self.contributions);
        losses.extend(named(TOTALS, &self.totals));
        losses
    }

    /// Takes back what was lost: this seat's own, or that of seats that are gone. What an owner lost of totals
    /// anyone can contribute, for only the sum counts.
    pub fn restore(&mut self, losses: Losses, own: bool) {
        let (mut contributions, mut totals) = (Losses::new(), Losses::new());
        for (name, values) in losses {
            if let Some(name) = name.strip_prefix(TOTALS) {
                totals.insert(name.to_string(), values);
            } else if let Some(name) = name.strip_prefix(CONTRIBUTIONS) {
                contributions.insert(name.to_string(), values);
            }
        }
        self.contributions.add(contributions);
        if own {
            self.totals.add(totals);
        } else {
            self.contributions.add(totals);
        }
    }

    /// Appends the packet of a part.
    pub fn pack(&mut self, update: &Update, part: &Part, place: Place, out: &mut Vec<u8>) {
        let block = &update.blocks[part.block];
        let at = out.len();
        out.extend_from_slice(&[0; 5]);
        out[at] = match (&self.carriage, &block.body) {
            _ if !self.lossy(block) => self.plain(block, part, &*self.raw.clone(), out),
            (Carriage::Contributions(_), _) if self.parting => {
                self.release((block, part), place, out)
            }
            (Carriage::Contributions(compressor), _) => {
                let compressor = compressor.clone();
                self.squeeze(&*compressor, (block, part), place, out)
            }
            (Carriage::Numbers(codec), _) => self.plain(block, part, &*codec.clone(), out),
            (Carriage::Auto(cheapest), _) => self.cheapest(&*cheapest.clone(), block, part, out),
            _ => self.plain(block, part, &*self.raw.clone(), out),
        };
        let len = (out.len() - at - 5) as u32;
        out[at + 1..at + 5].copy_from_slice(&len.to_le_bytes());
    }

    /// Whether a block is a tensor's, of floats: everything else travels as it is.
    fn lossy(&self, block: &Block) -> bool {
        let float = match &block.body {
            Body::Dense(values) => values.kind() != Kind::I64,
            Body::Rows(rows) => rows.values.kind() != Kind::I64,
            Body::Factors(_) => true,
        };
        float && self.shapes.contains_key(&block.name)
    }

    fn plain(&self, block: &Block, part: &Part, codec: &dyn Codec, out: &mut Vec<u8>) -> u8 {
        match &block.body {
            Body::Dense(values) => {
                let span = part.span(values.len());
                codec.encode(values, span.start, span.end, out);
            }
            Body::Rows(rows) => {
                codec.encode_rows(&rows.range(part.from as u32, part.to as u32), out);
            }
            Body::Factors(factors) => {
                let both = || factors.left.iter().chain(&factors.right);
                if both().all(|&number| f64::from(number as f32) == number) {
                    both().for_each(|&number| out.extend((number as f32).to_le_bytes()));
                    return SHORT_FACTORS;
                }
                both().for_each(|number| out.extend(number.to_le_bytes()));
                return FACTORS;
            }
        }
        NUMBERS
    }

    /// Packs a part as it is, with what was held back of it.
    fn release(&mut self, (block, part): (&Block, &Part), place: Place, out: &mut Vec<u8>) -> u8 {
        let residuals = if place.total { &mut self.totals } else { &mut self.contributions };
        let held = unheld(residuals, block, part);
        if held.is_none() {
            return self.plain(block, part, &*self.raw.clone(), out);
        }
        let mut whole = block.clone();
        add_held(&mut whole, part, held);
        self.plain(&whole, part, &*self.raw.clone(), out)
    }

    fn squeeze(
        &mut self,
        compressor: &dyn Compressor,
        (block, part): (&Block, &Part),
        place: Place,
        out: &mut Vec<u8>,
    ) -> u8 {
        let key = [place.count, self.seat, place.chunk as u64, u64::from(place.total)];
        let mut noise = Rng::named(self.seed, "codec", &key);
        let residuals = if place.total { &mut self.totals } else { &mut self.contributions };
        let name = block.name.as_str();
        match &block.body {
            Body::Dense(values) => {
                let range = part.span(values.len());
                let part = residuals::Part { block: name, from: range.start, values, range };
                residuals.encode(compressor, part, &mut noise, out);
            }
            Body::Rows(rows) => {
                let rows = rows.range(part.from as u32, part.to as u32);
                let width = self.shapes.get(name).map_or(0, |shape| shape.1);
                columns::encode(residuals, compressor, (name, &rows, width), &mut noise, out);
            }
            Body::Factors(_) => panic!("factors are multiplied out before they are compressed"),
        }
        SQUEEZED
    }

    /// Whether blocks travel by whichever way is cheapest.
    #[must_use]
    pub fn weighs(&self) -> bool {
        matches!(self.carriage, Carriage::Auto(_))
    }

    /// Bytes a second between two seats, where it is known.
    #[must_use]
    pub fn bandwidth(&self) -> Option<f64> {
        self.bandwidth
    }

    /// Links carry so many bytes a second: from now on the time that ways take decides, and not bytes alone. All seats must
    /// be told the same.
    pub fn carried(&mut self, bytes_per_second: f64) {
        self.bandwidth = Some(bytes_per_second);
    }

    /// From now on contributions go to everyone, or else to owners.
    pub fn address(&mut self, everyone: bool) {
        self.everyone = everyone;
    }

    fn cheapest(
        &self,
        cheapest: &dyn Cheapest,
        block: &Block,
        part: &Part,
        out: &mut Vec<u8>,
    ) -> u8 {
        let mut width = 8;
        let (len, nonzero, factors) = match &block.body {
            Body::Dense(values) => {
                let span = part.span(values.len());
                width = values.kind().bytes();
                (span.len(), sparse::nonzero(values, span), None)
            }
            Body::Factors(factors) => {
                let (rows, width) = (factors.rows as usize, factors.width as usize);
                (rows * width, rows * width, Some((rows, width, factors.terms())))
            }
            // Rows are what the learner made of sparsity already.
            Body::Rows(_) => return self.plain(block, part, &*self.raw, out),
        };
        let facts = Facts {
            len,
            nonzero,
            factors,
            width,
            world: self.world,
            bytes_per_second: self.bandwidth,
            everyone: self.everyone,
        };
        match (cheapest.choose(&facts), &block.body) {
            (Way::Sparse, Body::Dense(values)) => {
                sparse::encode(values, part.span(values.len()), out);
                SPARSE
            }
            (Way::Dense | Way::Sparse, Body::Factors(factors)) => {
                let mut matrix = vec![0.0; len];
                factors.add_to(&mut matrix);
                self.raw.encode(&Values::F64(matrix), 0, len, out);
                NUMBERS
            }
            _ => self.plain(block, part, &*self.raw, out),
        }
    }

    /// Adds a packet onto the part of `sum`, and gives what follows it.
    ///
    /// # Errors
    /// When the bytes are no packet of that part.
    pub fn unpack<'a>(
        &self,
        sum: &mut Update,
        part: &Part,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], Malformed> {
        let (head, rest) = bytes.split_first_chunk::<5>().ok_or(Malformed("no packet"))?;
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (mine, rest) = rest.split_at_checked(len).ok_or(Malformed("a packet too short"))?;
        let block = &mut sum.blocks[part.block];
        let lossy = self.lossy(block);
        let shape = self.shapes.get(&block.name).copied();
        match (&mut block.body, head[0]) {
            (Body::Dense(values), FACTORS) => {
                let numbers = mine.as_chunks::<8>().0.iter().map(|it| f64::from_le_bytes(*it));
                add_factors(values, (shape, 8), mine.len(), numbers)?;
            }
            (Body::Dense(values), SHORT_FACTORS) => {
                let numbers =
                    mine.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it).into());
                add_factors(values, (shape, 4), mine.len(), numbers)?;
            }
            (Body::Dense(values), way) => {
                let span = part.span(values.len());
                self.unpack_dense(values, span, (way, lossy), mine)?;
            }
            (Body::Rows(rows), way) => {
                let width = shape.map_or(0, |shape| shape.1);
                let theirs = self.unpack_rows(rows, width, (way, lossy), mine)?;
                let inside = part.from as u32..part.to as u32;
                if theirs.index.iter().any(|row| !inside.contains(row)) {
                    return Err(Malformed("a row outside its chunk"));
                }
                rows.fold(&theirs).map_err(|_| Malformed("rows of another table"))?;
            }
            (Body::Factors(_), _) => return Err(Malformed("a sum of factors is a matrix")),
        }
        Ok(rest)
    }

    fn unpack_dense(
        &self,
        values: &mut Values,
        range: std::ops::Range<usize>,
        (way, lossy): (u8, bool),
        bytes: &[u8],
    ) -> Result<(), Malformed> {
        match (way, &self.carriage) {
            (SPARSE, _) => sparse::decode(bytes, values, range, Put::Add),
            (SQUEEZED, Carriage::Contributions(compressor)) if lossy => {
                residuals::decode(&**compressor, bytes, values, range, Put::Add)
            }
            (NUMBERS, Carriage::Numbers(codec)) if lossy => {
                codec.decode(bytes, values, range, Put::Add)
            }
            (NUMBERS, _) => self.raw.decode(bytes, values, range, Put::Add),
            _ => Err(Malformed("an unknown way of packing")),
        }
    }

    fn unpack_rows(
        &self,
        like: &Rows,
        width: usize,
        (way, lossy): (u8, bool),
        bytes: &[u8],
    ) -> Result<Rows, Malformed> {
        match (way, &self.carriage) {
            (SQUEEZED, Carriage::Contributions(compressor)) if lossy => {
                columns::decode(&**compressor, bytes, like, width)
            }
            (NUMBERS, Carriage::Numbers(codec)) if lossy => codec.decode_rows(bytes, like),
            (NUMBERS, _) => self.raw.decode_rows(bytes, like),
            _ => Err(Malformed("an unknown way of packing rows")),
        }
    }
}

/// Takes out what is held of a part of a block.
fn unheld(residuals: &mut Residuals, block: &Block, part: &Part) -> Option<Body> {
    match &block.body {
        Body::Dense(values) => {
            let range = part.span(values.len());
            let part = residuals::Part { block: &block.name, from: range.start, values, range };
            residuals.release(&part).map(Body::Dense)
        }
        Body::Rows(_) => {
            let inside = part.from as u32..part.to as u32;
            residuals.release_rows(&block.name, |row| inside.contains(&row)).map(Body::Rows)
        }
        Body::Factors(_) => None,
    }
}

/// Adds what was held of a part of a block.
fn add_held(block: &mut Block, part: &Part, held: Option<Body>) {
    let same = "what is held has the shape of its block";
    match (&mut block.body, held) {
        (Body::Dense(values), Some(Body::Dense(held))) => {
            values.add_at(part.span(values.len()).start, &held).expect(same);
        }
        (Body::Rows(rows), Some(Body::Rows(held))) => {
            rows.fold(&columns::widened(held, rows.width)).expect(same);
        }
        _ => {}
    }
}

/// Adds factors of so many bytes, each number of which has `each` of them.
fn add_factors(
    values: &mut Values,
    (shape, each): (Option<(usize, usize)>, usize),
    bytes: usize,
    mut numbers: impl Iterator<Item = f64>,
) -> Result<(), Malformed> {
    let (rows, width) = shape.ok_or(Malformed("factors of no matrix"))?;
    let Values::F64(matrix) = values else { return Err(Malformed("factors are f64")) };
    let term = (rows + width) * each;
    if matrix.len() != rows * width || term == 0 || !bytes.is_multiple_of(term) {
        return Err(Malformed("factors of another shape"));
    }
    let left: Vec<f64> = numbers.by_ref().take(bytes / term * rows).collect();
    let right: Vec<f64> = numbers.collect();
    add_product(matrix, (rows, width), &left, right);
    Ok(())
}

/// Numbers of a product that are made before they are added: they stay in a core's own cache.
const PRODUCT: usize = 8 << 10;

/// Adds factors as the matrix that they are, made by itself first: the sum has the bits that it has when the matrix
/// travels, so that bits do not depend on what is cheaper.
fn add_product(
    matrix: &mut [f64],
    (rows, width): (usize, usize),
    left: &[f64],
    mut right: Vec<f64>,
) {
    if matrix.is_empty() {
        return;
    }
    let some = (PRODUCT / width).clamp(1, rows);
    let mut product = vec![0.0; some * width];
    for (from, sums) in (0..rows).step_by(some).zip(matrix.chunks_mut(some * width)) {
        let here = sums.len() / width;
        let terms = left.chunks_exact(rows).flat_map(|term| &term[from..from + here]);
        let (left, width) = (terms.copied().collect(), width as u32);
        let factors = Factors { rows: here as u32, width, left, right };
        let product = &mut product[..sums.len()];
        product.fill(0.0);
        factors.add_to(product);
        sums.iter_mut().zip(product).for_each(|(sum, number)| *sum += *number);
        right = factors.right;
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
