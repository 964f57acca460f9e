//! Products of f32 rows with f64 vectors, several rows at once so that the vector is read once for all of
//! them. Sums are kept in eight lanes in a fixed order: a row gives the same bits alone or in company, and
//! on every width of vector registers (no fused multiply-add, whose rounding differs).
//!
//! Both functions are meant to be inlined into a caller that `pulp` has compiled for the machine at hand.

const LANES: usize = 8;

/// The dot product of each row with `vector`.
#[inline(always)]
pub(crate) fn dots<const N: usize>(rows: [&[f32]; N], vector: &[f64]) -> [f64; N] {
    let width = vector.len();
    let rows = rows.map(|row| &row[..width]);
    let mut lanes = [[0.0f64; LANES]; N];
    let whole = width - width % LANES;
    for at in (0..whole).step_by(LANES) {
        let part: &[f64; LANES] = vector[at..at + LANES].try_into().expect("LANES long");
        for (row, lanes) in rows.iter().zip(&mut lanes) {
            let row: &[f32; LANES] = row[at..at + LANES].try_into().expect("LANES long");
            for lane in 0..LANES {
                lanes[lane] += f64::from(row[lane]) * part[lane];
            }
        }
    }
    let mut sums = [0.0; N];
    for ((row, lanes), sum) in rows.iter().zip(&lanes).zip(&mut sums) {
        let [a, b, c, d, e, f, g, h] = lanes;
        *sum = ((a + e) + (b + f)) + ((c + g) + (d + h));
        for (x, w) in row[whole..].iter().zip(&vector[whole..]) {
            *sum += f64::from(*x) * w;
        }
    }
    sums
}

/// Adds `by[n]` times row n to `into`, for all rows.
#[inline(always)]
pub(crate) fn add_scaled<const N: usize>(rows: [&[f32]; N], by: [f64; N], into: &mut [f64]) {
    let rows = rows.map(|row| &row[..into.len()]);
    for (at, into) in into.iter_mut().enumerate() {
        let mut sum = 0.0;
        for n in 0..N {
            sum += f64::from(rows[n][at]) * by[n];
        }
        *into += sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    #[test]
    fn products_are_those_of_plain_loops_at_every_width() {
        let mut rng = Rng::named(1, "products", &[]);
        for width in 0..40 {
            let rows: Vec<Vec<f32>> =
                (0..4).map(|_| (0..width).map(|_| rng.normal() as f32).collect()).collect();
            let vector: Vec<f64> = (0..width).map(|_| rng.normal()).collect();
            let company = [0, 1, 2, 3].map(|n| rows[n].as_slice());
            let sums = dots(company, &vector);
            let by = [0.5, -1.0, 2.0, 0.25];
            let mut scaled = vector.clone();
            add_scaled(company, by, &mut scaled);
            for (row, sum) in rows.iter().zip(sums) {
                let plain: f64 = row.iter().zip(&vector).map(|(x, w)| f64::from(*x) * w).sum();
                assert!((sum - plain).abs() < 1e-12);
                assert_eq!(dots([row.as_slice()], &vector)[0].to_bits(), sum.to_bits());
            }
            for at in 0..width {
                let plain: f64 = (0..4).map(|n| f64::from(rows[n][at]) * by[n]).sum();
                assert!((scaled[at] - vector[at] - plain).abs() < 1e-12);
            }
        }
    }
}
