//! The laws of compressors: what they keep, what they refuse, and that what is not finite shows.

use super::{damage, feedback};
use crate::conformance::{Verdict, ensure};
use starlings_codec::{Compressor, Into as Take, Keeps, residuals};
use starlings_core::{Kind, Rng, Rows, Values};

/// Lengths around the bytes and buckets that compressors like to work in.
const LENGTHS: [usize; 16] = [0, 1, 2, 5, 7, 8, 9, 31, 33, 64, 499, 501, 511, 512, 513, 1500];

/// Draws of a mean.
const DRAWS: u64 = 300;

/// All laws.
///
/// # Errors
/// The first broken law.
pub fn check(compressor: &dyn Compressor) -> Verdict {
    for len in LENGTHS {
        for (what, values) in inputs(len) {
            part(compressor, &values).map_err(|law| format!("{len} numbers, {what}: {law}"))?;
        }
        not_finite(compressor, len).map_err(|law| format!("{len} numbers: {law}"))?;
    }
    for len in [1, 37, 1200] {
        for (what, values) in inputs(len) {
            keeps(compressor, &values).map_err(|law| format!("{len} numbers, {what}: {law}"))?;
        }
    }
    either_kind(compressor)?;
    rows(compressor)?;
    feedback::check(compressor)
}

/// Parts of different natures.
fn inputs(len: usize) -> [(&'static str, Vec<f32>); 6] {
    let mut rng = Rng::named(1, "compressor", &[len as u64]);
    let mut normal = || (0..len).map(|_| rng.normal() as f32).collect::<Vec<f32>>();
    let (ordinary, mut tailed, mut shifted) = (normal(), normal(), normal());
    tailed.iter_mut().for_each(|x| *x = x.powi(3));
    shifted.iter_mut().for_each(|x| *x = 1e-30 * (3.0 + *x));
    let one = (0..len).map(|at| if at == len / 2 { -1.0 } else { 0.0 }).collect();
    [
        ("normal", ordinary),
        ("of heavy tails", tailed),
        ("small and of one sign", shifted),
        ("all but one zero", one),
        ("equal", vec![0.37; len]),
        ("zero", vec![0.0; len]),
    ]
}

fn noise(draw: u64) -> Rng {
    Rng::named(2, "compressor", &[draw])
}

fn encode(compressor: &dyn Compressor, values: &[f32], draw: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    compressor.encode(values, &mut noise(draw), &mut bytes);
    bytes
}

/// Through and back.
fn through(compressor: &dyn Compressor, values: &[f32], draw: u64) -> Result<Vec<f32>, String> {
    let mut decoded = vec![0.0; values.len()];
    let taken = compressor.decode(&encode(compressor, values, draw), &mut decoded);
    taken.map_err(|why| format!("it refuses its own: {}", why.0))?;
    Ok(decoded)
}

fn part(compressor: &dyn Compressor, values: &[f32]) -> Verdict {
    let mut bytes = vec![0xaa];
    compressor.encode(values, &mut noise(0), &mut bytes);
    ensure!(bytes[0] == 0xaa, "encode does not append");
    let bytes = &bytes[1..];
    ensure!(bytes == encode(compressor, values, 0), "the same noise gives other bytes");
    let decoded = through(compressor, values, 0)?;
    ensure!(decoded.iter().all(|x| x.is_finite()), "finite numbers did not arrive finite");
    let before: Vec<f32> = (0..values.len()).map(|at| at as f32 - 3.5).collect();
    let mut sum = before.clone();
    compressor.decode(bytes, &mut sum).map_err(|why| why.0.to_string())?;
    let added = before.iter().zip(&decoded).map(|(a, b)| a + b);
    ensure!(sum.iter().copied().eq(added), "decoding does not add");
    refusals(compressor, bytes, &before)
}

/// Cut or lengthened bytes are refused; damaged ones may be taken for other numbers. What is refused changes nothing.
fn refusals(compressor: &dyn Compressor, bytes: &[u8], before: &[f32]) -> Verdict {
    let mut values = before.to_vec();
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    let cuts = (0..bytes.len()).map(|end| &bytes[..end]);
    for wrong in cuts.chain([&longer[..]]) {
        let taken = compressor.decode(wrong, &mut values).is_ok();
        ensure!(!taken, "{} bytes were taken for {}", wrong.len(), bytes.len());
    }
    ensure!(values == before, "refused bytes changed numbers");
    let mut rng = Rng::named(3, "compressor", &[before.len() as u64]);
    for _ in 0..if bytes.is_empty() { 0 } else { 24 } {
        let damaged = damage(bytes, &mut rng);
        let mut values = before.to_vec();
        if compressor.decode(&damaged, &mut values).is_err() {
            ensure!(values == before, "refused bytes changed numbers");
        }
    }
    Ok(())
}

fn not_finite(compressor: &dyn Compressor, len: usize) -> Verdict {
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, len / 2, len.saturating_sub(1)] {
            let mut values: Vec<f32> = (0..len).map(|at| 1.0 - at as f32 / 3.0).collect();
            let Some(place) = values.get_mut(at) else { continue };
            *place = odd;
            let decoded = through(compressor, &values, 0)?;
            ensure!(
                !decoded.iter().all(|x| x.is_finite()),
                "{odd} at {at} arrived as finite numbers"
            );
        }
    }
    Ok(())
}

fn keeps(compressor: &dyn Compressor, values: &[f32]) -> Verdict {
    match compressor.keeps() {
        Keeps::Unbiased => unbiased(compressor, values, values),
        Keeps::Clipped { deviations, bucket } => {
            unbiased(compressor, values, &clipped(values, deviations, bucket))
        }
        Keeps::Contraction { delta } => {
            ensure!(delta > 0.0 && delta <= 1.0, "a contraction by {delta}");
            let decoded = through(compressor, values, 0)?;
            let whole: f64 = values.iter().map(|x| f64::from(*x).powi(2)).sum();
            let pairs = values.iter().zip(&decoded);
            let lost: f64 = pairs.map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum();
            ensure!(
                lost <= (1.0 - delta) * whole * (1.0 + 1e-6) + 1e-12 * whole,
                "{lost:e} of {whole:e} is lost, with delta {delta}"
            );
            Ok(())
        }
        // A law of error feedback.
        Keeps::Within { absolute } => {
            ensure!(absolute > 0.0, "within {absolute}");
            Ok(())
        }
    }
}

fn clipped(values: &[f32], deviations: f64, bucket: usize) -> Vec<f32> {
    let cut = |bucket: &[f32]| {
        let squares: f64 = bucket.iter().map(|x| f64::from(*x).powi(2)).sum();
        let bound = (deviations * (squares / bucket.len() as f64).sqrt()) as f32;
        bucket.iter().map(|x| x.clamp(-bound, bound)).collect::<Vec<f32>>()
    };
    values.chunks(bucket).flat_map(cut).collect()
}

/// The mean over many draws, seen from several directions: along the numbers, their signs, the larger and the
/// smaller half of them, and at random. A direction sees a bias that five deviations of its mean do not explain.
fn unbiased(compressor: &dyn Compressor, values: &[f32], expected: &[f32]) -> Verdict {
    let mut sizes: Vec<f32> = expected.iter().map(|x| x.abs()).collect();
    sizes.sort_by(f32::total_cmp);
    let middle = sizes[sizes.len() / 2];
    let mut rng = Rng::named(4, "compressor", &[]);
    let random: Vec<f32> = expected.iter().map(|_| rng.normal() as f32).collect();
    let along = |weight: &dyn Fn(f32) -> f32| expected.iter().map(|x| weight(*x)).collect();
    let directions: [Vec<f32>; 6] = [
        along(&|x| x),
        along(&f32::signum),
        along(&|x| if x.abs() > middle { x.signum() } else { 0.0 }),
        along(&|x| if x.abs() > middle { 0.0 } else { x.signum() }),
        along(&|_| 1.0),
        random,
    ];
    let mut sums = [(0.0f64, 0.0f64); 6];
    for draw in 0..DRAWS {
        let decoded = through(compressor, values, draw)?;
        for (direction, (sum, squares)) in directions.iter().zip(&mut sums) {
            let terms = direction.iter().zip(decoded.iter().zip(expected));
            let seen: f64 =
                terms.map(|(d, (y, x))| f64::from(*d) * (f64::from(*y) - f64::from(*x))).sum();
            *sum += seen;
            *squares += seen * seen;
        }
    }
    for (number, (direction, (sum, squares))) in directions.iter().zip(sums).enumerate() {
        let mean = sum / DRAWS as f64;
        let variance = (squares / DRAWS as f64 - mean * mean).max(0.0);
        let rounding: f64 =
            direction.iter().zip(expected).map(|(d, x)| f64::from((d * x).abs())).sum();
        let bound = 5.0 * (variance / DRAWS as f64).sqrt() + 1e-5 * rounding;
        ensure!(
            mean.abs() <= bound,
            "a bias of {mean:e} in direction {number}, where {bound:e} is chance"
        );
    }
    Ok(())
}

/// f64 arrive as f32 do, added or put, and nothing outside the range is touched.
fn either_kind(compressor: &dyn Compressor) -> Verdict {
    let values: Vec<f32> = (0..100).map(|at| (at as f32 - 40.0) / 16.0).collect();
    let bytes = encode(compressor, &values, 0);
    let decoded = through(compressor, &values, 0)?;
    for (how, before) in [(Take::Add, 0.25), (Take::Put, 0.0)] {
        for kind in [Kind::F32, Kind::F64] {
            let mut into = Values::zeros(kind, 103);
            let quarter = |into: &mut Values| match into {
                Values::F32(into) => into.fill(0.25),
                Values::F64(into) => into.fill(0.25),
                Values::I64(_) => {}
            };
            quarter(&mut into);
            let cut = residuals::decode(compressor, &bytes[1..], &mut into, 2..102, how);
            ensure!(cut.is_err(), "cut bytes were taken");
            residuals::decode(compressor, &bytes, &mut into, 2..102, how)
                .map_err(|why| why.0.to_string())?;
            let got = |at: usize| match &into {
                Values::F32(into) => f64::from(into[at]),
                Values::F64(into) => into[at],
                Values::I64(_) => f64::NAN,
            };
            ensure!([0, 1, 102].iter().all(|&at| got(at) == 0.25), "numbers outside were changed");
            for (at, x) in decoded.iter().enumerate() {
                let expected = match kind {
                    Kind::F32 => f64::from(before as f32 + x),
                    _ => before + f64::from(*x),
                };
                ensure!(
                    got(at + 2) == expected,
                    "{how:?} {kind:?}: {} for {expected}",
                    got(at + 2)
                );
            }
        }
    }
    Ok(())
}

fn rows(compressor: &dyn Compressor) -> Verdict {
    let tables: [(u32, u32, Vec<u32>); 5] = [
        (0, 3, vec![]),
        (10, 0, vec![1, 9]),
        (10, 3, vec![0, 4, 9]),
        (1000, 7, (0..1000).step_by(3).collect()),
        (u32::MAX, 1, vec![0, u32::MAX - 1]),
    ];
    for kind in [Kind::F32, Kind::F64] {
        for (total, width, index) in tables.clone() {
            let values = super::ordinary(kind, index.len() * width as usize);
            let sent = Rows { total, width, index, values };
            let mut bytes = Vec::new();
            let part = residuals::RowsPart { block: "table", rows: &sent };
            residuals::Residuals::default().encode_rows(
                compressor,
                part,
                &mut noise(0),
                &mut bytes,
            );
            let like = Rows::none(kind, total, width);
            let got = residuals::decode_rows(compressor, &bytes, &like);
            let got = got.map_err(|why| format!("rows of its own: {}", why.0))?;
            ensure!(got.is_sound() && got.values.kind() == kind, "unsound rows came back");
            ensure!(got.index == sent.index, "other rows came back");
            for end in 0..bytes.len() {
                let cut = residuals::decode_rows(compressor, &bytes[..end], &like);
                ensure!(cut.is_err(), "rows cut to {end} bytes are taken");
            }
            let mut rng = Rng::named(5, "compressor", &[bytes.len() as u64]);
            for _ in 0..64 {
                let damaged = damage(&bytes, &mut rng);
                if let Ok(taken) = residuals::decode_rows(compressor, &damaged, &like) {
                    ensure!(taken.is_sound(), "damaged rows were taken and are unsound");
                }
            }
        }
    }
    for index in [[3, 3], [4, 3], [3, 10], [3, u32::MAX]] {
        let bad = Rows {
            total: 10,
            width: 2,
            index: index.to_vec(),
            values: super::ordinary(Kind::F32, 4),
        };
        let mut bytes = Vec::new();
        let words = [2].into_iter().chain(index);
        words.for_each(|word: u32| bytes.extend_from_slice(&word.to_le_bytes()));
        if let Values::F32(values) = &bad.values {
            compressor.encode(values, &mut noise(0), &mut bytes);
        }
        let taken = residuals::decode_rows(compressor, &bytes, &Rows::none(Kind::F32, 10, 2));
        ensure!(taken.is_err(), "rows {index:?} of ten were taken");
    }
    Ok(())
}
