//! Byte pairs: a vocabulary of byte strings that comes of the 256 bytes by joining, again and again, the two neighbours
//! that stand together most often (Gage 1994 for compression; Sennrich et al. 2016 for words; over bytes Radford et al.
//! 2019, so that every text can be written). Joins never reach over the pieces that a text falls into: a word with the
//! space before it, a run of signs, a run of blanks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// Bytes of the longest piece: what is longer falls apart.
const PIECE_MAX: usize = 64;
/// Tokens that are bytes.
pub(super) const BYTES: usize = 256;

type Pair = (u32, u32);

/// The pieces of a text, in order.
pub(super) fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let word = usize::from(first == b' ' && rest.get(1).is_some_and(|&next| kind(next) != 0));
        let of = kind(rest[word]);
        let run = rest[word..].iter().take(PIECE_MAX - 1).take_while(|&&byte| kind(byte) == of);
        let (piece, after) = rest.split_at(word + run.count());
        rest = after;
        Some(piece)
    })
}

/// Blanks, letters and digits, or signs. What is no ASCII is a letter.
fn kind(byte: u8) -> u8 {
    match byte {
        b' ' | b'\t' | b'\n' | b'\r' => 0,
        b'_' | 0x80.. => 1,
        _ if byte.is_ascii_alphanumeric() => 1,
        _ => 2,
    }
}

/// A piece as it is while pairs are learnt.
struct Piece {
    tokens: Vec<u32>,
    times: u64,
}

/// Learns at most so many joins of pieces that came so often. Of pairs that are equally frequent the one with the smaller
/// tokens is joined first; a pair that came only once is not worth a token.
pub(super) fn learn(counts: &BTreeMap<Vec<u8>, u64>, joins: usize) -> Vec<Pair> {
    let mut pieces: Vec<Piece> = counts
        .iter()
        .map(|(bytes, &times)| Piece {
            tokens: bytes.iter().map(|&byte| byte.into()).collect(),
            times,
        })
        .collect();
    let mut index = Index::default();
    for (at, piece) in pieces.iter().enumerate() {
        for pair in pairs(&piece.tokens) {
            index.add(pair, at, piece.times);
        }
    }
    let mut heap: BinaryHeap<(u64, Reverse<Pair>)> =
        index.times.iter().map(|(&pair, &times)| (times, Reverse(pair))).collect();
    let mut learnt = Vec::new();
    while let (true, Some((times, Reverse(pair)))) = (learnt.len() < joins, heap.pop()) {
        let now = index.times.get(&pair).copied().unwrap_or(0);
        if now < times {
            // It has become rarer since it was put here.
            if now > 1 {
                heap.push((now, Reverse(pair)));
            }
            continue;
        }
        if now < 2 {
            break;
        }
        let token = (BYTES + learnt.len()) as u32;
        learnt.push(pair);
        let mut grown = BTreeSet::new();
        for at in index.places.remove(&pair).unwrap_or_default() {
            let piece = &mut pieces[at];
            let old = std::mem::take(&mut piece.tokens);
            pairs(&old).for_each(|it| index.subtract(it, piece.times));
            piece.tokens = joined(&old, pair, token);
            for it in pairs(&piece.tokens) {
                index.add(it, at, piece.times);
                grown.insert(it);
            }
        }
        index.times.remove(&pair);
        for pair in grown {
            heap.push((index.times[&pair], Reverse(pair)));
        }
    }
    learnt
}

/// How often each pair comes, and in which pieces; a piece may have lost it since.
#[derive(Default)]
struct Index {
    times: BTreeMap<Pair, u64>,
    places: BTreeMap<Pair, BTreeSet<usize>>,
}

impl Index {
    fn add(&mut self, pair: Pair, piece: usize, times: u64) {
        *self.times.entry(pair).or_default() += times;
        self.places.entry(pair).or_default().insert(piece);
    }

    fn subtract(&mut self, pair: Pair, times: u64) {
        if let Some(sum) = self.times.get_mut(&pair) {
            *sum = sum.saturating_sub(times);
        }
    }
}

fn pairs(tokens: &[u32]) -> impl Iterator<Item = Pair> + '_ {
    tokens.windows(2).map(|two| (two[0], two[1]))
}

/// The tokens with a pair joined wherever it comes, from the left.
fn joined(tokens: &[u32], pair: Pair, token: u32) -> Vec<u32> {
    let mut made = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let here = tokens.get(at + 1).is_some_and(|&next| (tokens[at], next) == pair);
        made.push(if here { token } else { tokens[at] });
        at += 1 + usize::from(here);
    }
    made
}

/// The joins by pair: which came first, and what they make.
pub(super) fn ranks(learnt: &[Pair]) -> BTreeMap<Pair, u32> {
    let made = |(rank, pair): (usize, &Pair)| (*pair, (BYTES + rank) as u32);
    learnt.iter().enumerate().map(made).collect()
}

/// The tokens of a piece: the joins in the order in which they were learnt.
pub(super) fn encode(piece: &[u8], ranks: &BTreeMap<Pair, u32>) -> Vec<u32> {
    let mut tokens: Vec<u32> = piece.iter().map(|&byte| byte.into()).collect();
    loop {
        let known = pairs(&tokens).filter_map(|pair| ranks.get(&pair).map(|&token| (token, pair)));
        let Some((token, pair)) = known.min() else { return tokens };
        tokens = joined(&tokens, pair, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes of a token.
    fn spelt(token: u32, learnt: &[Pair]) -> Vec<u8> {
        match (token as usize).checked_sub(BYTES).and_then(|rank| learnt.get(rank)) {
            None => vec![token as u8],
            Some(&(left, right)) => [spelt(left, learnt), spelt(right, learnt)].concat(),
        }
    }

    /// The same, counting all pairs anew for each join.
    fn plain(counts: &BTreeMap<Vec<u8>, u64>, joins: usize) -> Vec<Pair> {
        let mut words: Vec<(Vec<u32>, u64)> = counts
            .iter()
            .map(|(word, &times)| (word.iter().map(|&byte| byte.into()).collect(), times))
            .collect();
        let mut learnt = Vec::new();
        while learnt.len() < joins {
            let mut times: BTreeMap<Pair, u64> = BTreeMap::new();
            for (word, count) in &words {
                pairs(word).for_each(|pair| *times.entry(pair).or_default() += count);
            }
            let best = times.into_iter().max_by_key(|&(pair, times)| (times, Reverse(pair)));
            let Some((pair, _)) = best.filter(|&(_, times)| times > 1) else { break };
            let token = (BYTES + learnt.len()) as u32;
            learnt.push(pair);
            words.iter_mut().for_each(|(word, _)| *word = joined(word, pair, token));
        }
        learnt
    }

    fn counted(text: &[u8]) -> BTreeMap<Vec<u8>, u64> {
        let mut counts = BTreeMap::new();
        pieces(text).for_each(|piece| *counts.entry(piece.to_vec()).or_default() += 1);
        counts
    }

    #[test]
    fn frequent_neighbours_are_joined_first() {
        // The example of Sennrich et al.: low × 5, lower × 2, newest × 6, widest × 3.
        let words = [("low", 5), ("lower", 2), ("newest", 6), ("widest", 3)];
        let counts = words.map(|(word, times)| (word.as_bytes().to_vec(), times)).into();
        let learnt = learn(&counts, 4);
        let made: Vec<String> = (0..learnt.len())
            .map(|rank| String::from_utf8(spelt((BYTES + rank) as u32, &learnt)).unwrap())
            .collect();
        assert_eq!(made, ["es", "est", "lo", "low"]);
        assert_eq!(encode(b"lowest", &ranks(&learnt)), [259, 257]);
    }

    #[test]
    fn a_text_falls_into_words_with_their_space_signs_and_blanks() {
        let found: Vec<&[u8]> = pieces(b"To be, or\n  not_2!").collect();
        let expected: Vec<&[u8]> = vec![b"To", b" be", b",", b" or", b"\n  ", b"not_2", b"!"];
        assert_eq!(found, expected);
        assert!(pieces(&[b'a'; 1000]).all(|piece| piece.len() <= PIECE_MAX));
    }

    proptest! {
        #[test]
        fn joins_are_those_of_counting_anew(text in "[ab c,]{0,200}", joins in 0usize..40) {
            let counts = counted(text.as_bytes());
            prop_assert_eq!(learn(&counts, joins), plain(&counts, joins));
        }

        #[test]
        fn every_text_can_be_read_back(learnt in "[a-d ]{0,200}", text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let learnt = learn(&counted(learnt.as_bytes()), 30);
            let ranks = ranks(&learnt);
            let tokens = pieces(&text).flat_map(|piece| encode(piece, &ranks));
            let back: Vec<u8> = tokens.flat_map(|token| spelt(token, &learnt)).collect();
            prop_assert_eq!(back, text);
        }
    }
}
