//! Seeded random numbers. A generator is named by what it is for (seed, purpose, step, shard …), never by
//! a rank, so that any worker can draw the numbers of any shard.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// A generator whose numbers depend on its name alone.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The generator named by `purpose` and `key`.
    ///
    /// ```
    /// use starlings_core::Rng;
    /// let (mut a, mut b) = (Rng::named(1, "shuffle", &[0, 3]), Rng::named(1, "shuffle", &[0, 3]));
    /// assert_eq!(a.next_u64(), b.next_u64());
    /// assert_ne!(a.next_u64(), Rng::named(1, "shuffle", &[0, 4]).next_u64());
    /// ```
    #[must_use]
    pub fn named(seed: u64, purpose: &str, key: &[u64]) -> Rng {
        let mut hasher = blake3::Hasher::new_derive_key("starlings random stream 1");
        hasher.update(&seed.to_le_bytes());
        hasher.update(&(purpose.len() as u64).to_le_bytes());
        hasher.update(purpose.as_bytes());
        for part in key {
            hasher.update(&part.to_le_bytes());
        }
        Rng(ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()))
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in 0..bound, without bias (Lemire's multiplication with rejection).
    ///
    /// # Panics
    /// If `bound` is zero: there is nothing to choose from.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "cannot choose among zero things");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if (wide as u64) >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Standard normal (Box and Muller's polar form without caching, so that the stream has no memory).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (u, v) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                return u * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let chosen = self.below(last as u64 + 1) as usize;
            items.swap(last, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_uniform_and_bounded() {
        let mut rng = Rng::named(7, "test", &[]);
        let mut counts = [0u32; 3];
        for _ in 0..30_000 {
            counts[rng.below(3) as usize] += 1;
        }
        assert!(counts.iter().all(|&c| (9_600..10_400).contains(&c)), "{counts:?}");
    }

    #[test]
    fn normal_has_mean_zero_and_variance_one() {
        let mut rng = Rng::named(7, "test", &[1]);
        let n = 50_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = rng.normal();
            sum += x;
            squares += x * x;
        }
        let (mean, variance) = (sum / f64::from(n), squares / f64::from(n));
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::named(1, "test", &[]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
