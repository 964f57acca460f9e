//! How an update is cut into chunks: many small blocks share a chunk, a large one is spread over several.
//! The cut depends on names and shapes alone, so every worker makes the same one.

use starlings_core::{Block, Body, Update, planted};

/// A piece of one block: numbers `from..to` of a dense block, rows `from..to` of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which block of the update.
    pub block: usize,
    /// First number or row.
    pub from: usize,
    /// One past the last.
    pub to: usize,
    /// The block goes in one piece, whatever form it has on this seat.
    pub whole: bool,
}

impl Part {
    /// Which numbers of a dense block of `len` it means.
    #[must_use]
    pub fn span(&self, len: usize) -> std::ops::Range<usize> {
        if self.whole { 0..len } else { self.from..self.to }
    }
}

/// Bytes that a chunk should not exceed (before encoding). Large enough to keep a link busy, small enough
/// that the chunks of one sum follow each other through the topology.
pub const CHUNK_BYTES: usize = 512 << 10;

/// Chunks beyond this are not worth their headers.
const CHUNKS_MAX: usize = 4096;

/// Cuts an update into a multiple of `grain` chunks.
#[must_use]
pub fn cut(update: &Update, grain: usize) -> Vec<Vec<Part>> {
    let grain = grain.max(1);
    let bytes: usize = update.blocks.iter().map(dense_bytes).sum();
    let wanted = bytes.div_ceil(CHUNK_BYTES).clamp(1, CHUNKS_MAX);
    let chunks = wanted.div_ceil(grain) * grain;
    let mut cut = vec![Vec::new(); chunks];
    let mut before = 0;
    for (block, content) in update.blocks.iter().enumerate() {
        match &content.body {
            Body::Dense(values) => {
                let place =
                    Place { block, before, width: values.kind().bytes(), len: values.len() };
                spread_dense(&mut cut, place, bytes);
                before += values.len() * values.kind().bytes();
            }
            // An outer product cannot be cut: it goes whole, to chunks in turn.
            Body::Factors(factors) => {
                cut[block % chunks].push(Part { block, from: 0, to: factors.terms(), whole: true });
            }
            Body::Rows(rows) => {
                for (chunk, parts) in cut.iter_mut().enumerate() {
                    let at = |chunk| (rows.total as u128 * chunk as u128 / chunks as u128) as usize;
                    parts.push(Part { block, from: at(chunk), to: at(chunk + 1), whole: false });
                }
            }
        }
    }
    cut
}

/// Where a dense block lies among the bytes of all dense blocks.
struct Place {
    block: usize,
    before: usize,
    width: usize,
    len: usize,
}

/// Gives each chunk its share of a dense block: chunk c has the bytes c·T/n … (c+1)·T/n of all of them.
fn spread_dense(cut: &mut [Vec<Part>], place: Place, total: usize) {
    let chunks = cut.len();
    for (chunk, parts) in cut.iter_mut().enumerate() {
        let edge = |chunk: usize| {
            let byte = (total as u128 * chunk as u128 / chunks as u128) as usize;
            (byte.saturating_sub(place.before) / place.width).min(place.len)
        };
        let from = edge(chunk);
        let short = usize::from(planted!("chunk-too-short"));
        let to = match chunk + 1 == chunks {
            true => place.len,
            false => edge(chunk + 1).saturating_sub(short),
        };
        if from < to {
            parts.push(Part { block: place.block, from, to, whole: false });
        }
    }
}

fn dense_bytes(block: &Block) -> usize {
    match &block.body {
        Body::Dense(values) => values.len() * values.kind().bytes(),
        Body::Rows(_) | Body::Factors(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Kind, Rows, Values};

    fn covered(update: &Update, chunks: &[Vec<Part>]) {
        for (block, content) in update.blocks.iter().enumerate() {
            let len = match &content.body {
                Body::Dense(values) => values.len(),
                Body::Rows(rows) => rows.total as usize,
                Body::Factors(factors) => factors.terms(),
            };
            let mut next = 0;
            for part in chunks.iter().flatten().filter(|part| part.block == block) {
                assert_eq!(part.from, next);
                next = part.to;
            }
            assert_eq!(next, len, "block {block} is covered once");
        }
    }

    #[test]
    fn every_number_is_in_exactly_one_chunk() {
        let shapes = [vec![1usize], vec![3, 1, 200_000], vec![7, 65_537, 2], vec![300_001]];
        for lens in shapes {
            for grain in 1..=7 {
                let mut update = Update::default();
                for (at, len) in lens.iter().enumerate() {
                    let values = if at % 2 == 0 {
                        Values::F64(vec![0.0; *len])
                    } else {
                        Values::F32(vec![0.0; *len])
                    };
                    update.blocks.push(Block { name: at.to_string(), body: Body::Dense(values) });
                }
                update.blocks.push(Block::rows("r", Rows::none(Kind::F64, 1000, 4)));
                let chunks = cut(&update, grain);
                assert_eq!(chunks.len() % grain, 0);
                covered(&update, &chunks);
            }
        }
    }

    #[test]
    fn small_blocks_share_a_chunk_and_large_ones_are_spread() {
        let mut update = Update::default();
        update.blocks.push(Block::dense("a", vec![0.0; 10]));
        update.blocks.push(Block::dense("b", vec![0.0; 10]));
        assert_eq!(cut(&update, 1).len(), 1);
        assert_eq!(cut(&update, 1)[0].len(), 2);
        update.blocks.push(Block::dense("c", vec![0.0; CHUNK_BYTES]));
        assert!(cut(&update, 4).len() >= 8);
    }
}
