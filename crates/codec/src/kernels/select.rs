//! Which numbers are the largest in size. A histogram of the upper bits of the magnitudes finds the bin in which
//! the smallest chosen one lies; only numbers from that bin up are looked at again. Two passes, no sort.

/// Bits of a magnitude that choose its bin: the exponent and four of the mantissa.
const BIN_BITS: u32 = 12;
const BINS: usize = 1 << BIN_BITS;
const SHIFT: u32 = 31 - BIN_BITS;

/// Numbers looked at together: most groups hold nothing large and are passed over.
const GROUP: usize = 32;

/// How many of `len` numbers this share is: one at least, where there is one.
pub(crate) fn share(ratio: f64, len: usize) -> usize {
    ((ratio * len as f64).ceil() as usize).clamp(len.min(1), len)
}

/// The places of the `count` largest magnitudes, increasing. NaN and infinities are larger than all numbers;
/// among equals the first ones are taken.
///
/// # Panics
/// If there are fewer numbers than `count`.
pub(crate) fn largest(values: &[f32], count: usize) -> Vec<u32> {
    assert!(count <= values.len(), "{count} of {} numbers", values.len());
    if count == 0 {
        return Vec::new();
    }
    let (bin, above) = bin_of(values, count);
    let floor = (bin as u32) << SHIFT;
    let mut places = at_least(values, floor, count);
    let mut inside: Vec<u32> = places
        .iter()
        .map(|&place| magnitude(values[place as usize]))
        .filter(|&bits| bits >> SHIFT == bin as u32)
        .collect();
    let missing = count - above;
    let at = inside.len() - missing;
    let (_, &mut threshold, larger) = inside.select_nth_unstable(at);
    let mut ties = missing - larger.iter().filter(|&&bits| bits > threshold).count();
    places.retain(|&place| {
        let bits = magnitude(values[place as usize]);
        let tie = bits == threshold && ties > 0;
        ties -= usize::from(tie);
        tie || bits > threshold
    });
    places
}

/// The places of the numbers whose magnitude has at least these bits, increasing; about `expected` of them.
pub(crate) fn at_least(values: &[f32], floor: u32, expected: usize) -> Vec<u32> {
    assert!(u32::try_from(values.len()).is_ok(), "a part has fewer than 2^32 numbers");
    let mut places = Vec::with_capacity(expected + GROUP);
    // With narrow vectors, which leave a group without large numbers sooner than wide ones.
    scan(values, floor, &mut places);
    places
}

/// The bits of |value|: they are in the order of the magnitudes.
#[inline(always)]
pub(crate) fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

fn scan(values: &[f32], floor: u32, places: &mut Vec<u32>) {
    let (groups, rest) = values.as_chunks::<GROUP>();
    for (number, group) in groups.iter().enumerate() {
        let mut flags = [0u8; GROUP];
        for (flag, &value) in flags.iter_mut().zip(group) {
            *flag = u8::from(magnitude(value) >= floor);
        }
        if flags == [0; GROUP] {
            continue;
        }
        let mut found = [0u32; GROUP];
        let mut count = 0;
        for (at, &flag) in flags.iter().enumerate() {
            // Written always, kept if the count moves on: no branch to guess.
            found[count] = (number * GROUP + at) as u32;
            count += usize::from(flag);
        }
        places.extend_from_slice(&found[..count]);
    }
    let start = values.len() - rest.len();
    let large = rest.iter().enumerate().filter(|(_, value)| magnitude(**value) >= floor);
    places.extend(large.map(|(at, _)| (start + at) as u32));
}

/// The bin of the magnitude that is the `count`th from above, and how many numbers lie in bins above it.
fn bin_of(values: &[f32], count: usize) -> (usize, usize) {
    // Two tables, so that equal neighbours do not wait for each other's counter.
    let mut tables = vec![[0u32; 2]; BINS];
    let (pairs, rest) = values.as_chunks::<2>();
    for pair in pairs {
        tables[(magnitude(pair[0]) >> SHIFT) as usize][0] += 1;
        tables[(magnitude(pair[1]) >> SHIFT) as usize][1] += 1;
    }
    rest.iter().for_each(|&value| tables[(magnitude(value) >> SHIFT) as usize][0] += 1);
    let mut above = 0;
    for (bin, counts) in tables.iter().enumerate().rev() {
        let here = counts[0] as usize + counts[1] as usize;
        if above + here >= count {
            return (bin, above);
        }
        above += here;
    }
    unreachable!("all numbers lie in a bin")
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn by_sorting(values: &[f32], count: usize) -> Vec<u32> {
        let mut places: Vec<u32> = (0..values.len() as u32).collect();
        places.sort_by_key(|&place| std::cmp::Reverse(magnitude(values[place as usize])));
        places.truncate(count);
        places.sort_unstable();
        places
    }

    #[test]
    fn selection_agrees_with_a_stable_sort() {
        let mut rng = Rng::named(1, "select", &[]);
        for len in [1, 2, 31, 32, 33, 64, 100, 1000] {
            let normal: Vec<f32> = (0..len).map(|_| rng.normal() as f32).collect();
            let tied: Vec<f32> = (0..len).map(|_| rng.below(3) as f32 - 1.0).collect();
            let bits: Vec<f32> = (0..len).map(|_| f32::from_bits(rng.next_u64() as u32)).collect();
            for values in [normal, tied, bits, vec![0.0; len], vec![f32::NAN; len]] {
                for count in [0, 1, len / 3, len - 1, len] {
                    assert_eq!(largest(&values, count), by_sorting(&values, count), "{values:?}");
                }
            }
        }
    }
}
