//! Cheap random numbers for stochastic rounding: a hash of a position under two keys, which are drawn once for a
//! part. It needs a few vector instructions a number, where a stream cipher needs tens of cycles; its numbers
//! round gradients and guard no secret. The steps are those of Murmur 3's finaliser (Appleby, 2008).

use starlings_core::Rng;

/// A function from positions to random numbers.
#[derive(Clone, Copy)]
pub(crate) struct Noise {
    before: u32,
    between: u32,
}

impl Noise {
    /// A function that `rng` draws.
    pub(crate) fn draw(rng: &mut Rng) -> Noise {
        let bits = rng.next_u64();
        Noise { before: bits as u32, between: (bits >> 32) as u32 }
    }

    /// Uniform in [0, 1), in steps of 2^-24.
    #[inline(always)]
    pub(crate) fn uniform(self, position: u32) -> f32 {
        let mut x = position.wrapping_mul(0x9e37_79b9).wrapping_add(self.before);
        x ^= x >> 16;
        x = x.wrapping_mul(0x85eb_ca6b);
        x ^= (x >> 13) ^ self.between;
        x = x.wrapping_mul(0xc2b2_ae35);
        x ^= x >> 16;
        (x >> 8) as i32 as f32 * (1.0 / (1u32 << 24) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covariance(pairs: impl Iterator<Item = (f32, f32)>) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for (a, b) in pairs {
            sum += (f64::from(a) - 0.5) * (f64::from(b) - 0.5);
            count += 1.0;
        }
        sum / count
    }

    #[test]
    fn numbers_are_uniform_and_independent() {
        const COUNT: u32 = 100_000;
        let mut rng = Rng::named(1, "noise", &[]);
        for _ in 0..20 {
            let (one, other) = (Noise::draw(&mut rng), Noise::draw(&mut rng));
            let mut bins = [0u32; 16];
            (0..COUNT).for_each(|at| bins[(one.uniform(at) * 16.0) as usize] += 1);
            let expected = f64::from(COUNT) / 16.0;
            let chi_square: f64 =
                bins.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
            // 15 degrees of freedom: beyond 45 once in ten thousand.
            assert!(chi_square < 45.0, "{bins:?}");
            // The deviation of a mean of so many products is 1/12 / sqrt(COUNT) = 0.00026.
            let neighbours =
                covariance((0..COUNT).map(|at| (one.uniform(at), one.uniform(at + 1))));
            let streams = covariance((0..COUNT).map(|at| (one.uniform(at), other.uniform(at))));
            assert!(neighbours.abs() < 0.0013 && streams.abs() < 0.0013, "{neighbours} {streams}");
        }
    }
}
