//! Chance from a seed, so that a run can be played again: SplitMix64 (Steele, Lea and Flood, 2014).

/// A stream of numbers.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x5eed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `from` to `to`, both included.
    pub(super) fn within(&mut self, from: u64, to: u64) -> u64 {
        assert!(from <= to, "{from} to {to} is no range");
        from + self.next() % (to - from + 1)
    }

    /// One of several.
    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.within(0, all.len() as u64 - 1) as usize]
    }

    /// True in so many of a hundred cases.
    pub(super) fn percent(&mut self, part: u64) -> bool {
        self.within(1, 100) <= part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_stream_of_its_own_that_covers_its_range() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..200).map(|_| chance.within(3, 6)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!((3..=6).all(|number| draw(1).contains(&number)));
    }
}
