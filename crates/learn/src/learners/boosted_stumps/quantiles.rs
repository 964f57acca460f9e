//! Exact quantiles of f32 columns by sums alone: radix descent over the sorted order of the bits
//! (selection by counting digits, Blum et al., 1973; in base 16). Sums of i64 are exact, so the edges do not
//! depend on how the rows are dealt; a sketch's would.
//!
//! Every edge has a prefix of its key, which grows by one digit of four bits a step, and the rank that is
//! left to go within the rows of that prefix. Edges of a feature are in order, and so are their prefixes:
//! edges that still share a prefix share the counts of the first of them.

/// Bits found in one step.
const DIGIT_BITS: u32 = 4;
/// Values of a digit.
pub(super) const DIGITS: usize = 1 << DIGIT_BITS;
/// Steps until all 32 bits are known.
pub(super) const LEVELS: i64 = 32 / DIGIT_BITS as i64;

/// A number whose order as an integer is the order of the floats. Zeros are equal, and what is not a
/// number comes last.
pub(super) fn key(value: f32) -> u32 {
    let value = if value.is_nan() { f32::NAN } else { value + 0.0 };
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The float of a key.
pub(super) fn value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// The rank of every edge of one feature among `rows` sorted values: evenly spaced, the last is the largest,
/// so that the rare ones of a 0/1 column are always told apart.
pub(super) fn ranks(rows: u64, edges: usize) -> impl Iterator<Item = i64> {
    let last = u128::from(rows.saturating_sub(1));
    (1..=edges as u128).map(move |edge| (edge * last / edges as u128) as i64)
}

/// Counts the next digit of one key of a feature. `prefixes` are the feature's edges so far.
pub(super) fn count(key: u32, level: i64, prefixes: &[i64], counts: &mut [i64]) {
    let rest = 32 - DIGIT_BITS * level as u32;
    let prefix = if level == 0 { 0 } else { i64::from(key >> rest) };
    let edge = prefixes.partition_point(|&other| other < prefix);
    if prefixes.get(edge) == Some(&prefix) {
        let digit = (key >> (rest - DIGIT_BITS)) as usize % DIGITS;
        counts[edge * DIGITS + digit] += 1;
    }
}

/// Lengthens the prefixes of a feature's edges by the digit in which their rank lies.
pub(super) fn descend(prefixes: &mut [i64], ranks: &mut [i64], counts: &[i64]) {
    let mut first = 0;
    let mut shared = prefixes.first().copied();
    for edge in 0..prefixes.len() {
        if Some(prefixes[edge]) != shared {
            (first, shared) = (edge, Some(prefixes[edge]));
        }
        let mut digit = 0;
        for &count in &counts[first * DIGITS..(first + 1) * DIGITS - 1] {
            if ranks[edge] < count {
                break;
            }
            ranks[edge] -= count;
            digit += 1;
        }
        prefixes[edge] = prefixes[edge] * DIGITS as i64 + digit;
    }
}

/// The bin of a key: how many edges are not above it. Bins up to e are the values below edge e.
pub(super) fn bin(key: u32, edges: &[i64]) -> u8 {
    u8::try_from(edges.partition_point(|&edge| edge <= i64::from(key)))
        .expect("at most 255 edges are declared")
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    #[test]
    fn keys_keep_the_order_of_floats() {
        let mut sorted = [f32::MIN, -2.5, -1e-30, 0.0, 1e-40, 0.7, 3.0, f32::MAX, f32::INFINITY];
        sorted.sort_by(f32::total_cmp);
        assert!(sorted.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert!(sorted.iter().all(|&x| value(key(x)) == x));
        assert_eq!(key(-0.0), key(0.0));
    }

    #[test]
    fn descent_finds_the_values_at_the_ranks() {
        let mut rng = Rng::named(1, "quantiles", &[]);
        let distinct: Vec<f32> = (0..997).map(|_| rng.normal() as f32).collect();
        let few: Vec<f32> = (0..500).map(|row| f32::from(row % 100 == 7)).collect();
        for column in [distinct, few] {
            let mut sorted = column.clone();
            sorted.sort_by(f32::total_cmp);
            let mut left: Vec<i64> = ranks(column.len() as u64, 31).collect();
            let wanted: Vec<f32> = left.iter().map(|&rank| sorted[rank as usize]).collect();
            let mut prefixes = vec![0; left.len()];
            for level in 0..LEVELS {
                let mut counts = vec![0; left.len() * DIGITS];
                column.iter().for_each(|&x| count(key(x), level, &prefixes, &mut counts));
                descend(&mut prefixes, &mut left, &counts);
            }
            let found: Vec<f32> = prefixes.iter().map(|&edge| value(edge as u32)).collect();
            assert_eq!(found, wanted);
            assert_eq!(found.last(), sorted.last());
        }
    }
}
