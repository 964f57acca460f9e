//! What tells neighbouring codecs apart: each test holds for one entry, and for none of its neighbours.

use super::{build, compressor, rounds, scheme};
use starlings_codec::{Compressor, Facts, Scheme, Shapes, Way};
use starlings_core::{Block, Kind, Rng, Update};
use starlings_testkit::conformance::codec::rounds::{seats, step};
use std::collections::BTreeSet;

fn normal(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::named(seed, "neighbours", &[]);
    (0..len).map(|_| rng.normal() as f32).collect()
}

fn through(compressor: &dyn Compressor, values: &[f32], draw: u64) -> (usize, Vec<f32>) {
    let mut bytes = Vec::new();
    compressor.encode(values, &mut Rng::named(draw, "neighbours", &[]), &mut bytes);
    let mut decoded = vec![0.0; values.len()];
    compressor.decode(&bytes, &mut decoded).expect("its own");
    (bytes.len(), decoded)
}

fn different(values: &[f32]) -> usize {
    values.iter().map(|x| x.to_bits()).collect::<BTreeSet<_>>().len()
}

fn nonzero(values: &[f32]) -> Vec<usize> {
    (0..values.len()).filter(|&at| values[at] != 0.0).collect()
}

const COMPRESSORS: [&str; 5] = ["int8", "one-bit", "ternary", "threshold", "top-k"];

#[test]
fn only_one_bit_sends_two_values_and_no_zeros() {
    let values = normal(480, 1);
    for name in COMPRESSORS {
        let (_, decoded) = through(&*compressor(name, ""), &values, 0);
        let two = different(&decoded) == 2 && nonzero(&decoded).len() == values.len();
        assert_eq!(two, name == "one-bit", "{name}");
    }
    // Which are the means of the two sides.
    let (_, decoded) = through(&*compressor("one-bit", ""), &values, 0);
    let upper: Vec<f32> = values.iter().copied().filter(|x| *x >= 0.0).collect();
    let mean = upper.iter().sum::<f32>() / upper.len() as f32;
    for (x, y) in values.iter().zip(decoded) {
        assert!((*x >= 0.0) == (y > 0.0) && (*x < 0.0 || (y - mean).abs() < 1e-5));
    }
}

#[test]
fn only_ternary_sends_three_values_that_differ_from_draw_to_draw() {
    let values = normal(480, 2);
    for name in COMPRESSORS {
        let made = compressor(name, "");
        let (_, decoded) = through(&*made, &values, 0);
        let three = different(&decoded) == 3 && nonzero(&decoded).len() < values.len();
        let drawn = through(&*made, &values, 1).1 != decoded;
        assert_eq!(three && drawn, name == "ternary", "{name}");
    }
}

#[test]
fn only_int8_is_unbiased_and_fine() {
    let values = normal(512, 3);
    let largest = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for name in COMPRESSORS {
        let made = compressor(name, "");
        let (_, decoded) = through(&*made, &values, 0);
        let near = |(x, y): (&f32, &f32)| (x - y).abs() <= largest / 127.0 * 1.0001;
        let fine = values.iter().zip(&decoded).all(near);
        assert_eq!(fine && different(&decoded) > 100, name == "int8", "{name}");
    }
    // Two levels of the norm: at most five values.
    let (_, coarse) = through(&*compressor("int8", "levels = 2"), &values, 0);
    assert_eq!(different(&coarse), 5);
    // The length of a bucket is longer than its largest number.
    let (_, zeros) = through(&*compressor("int8", "levels = 1\nnorm = 'euclidean'"), &values, 0);
    let (_, some) = through(&*compressor("int8", "levels = 1"), &values, 0);
    assert!(2 * nonzero(&zeros).len() < nonzero(&some).len());
}

#[test]
fn clipping_makes_ternary_smaller_and_biased() {
    let mut values = normal(500, 4);
    values[7] = 50.0;
    let largest = |name: &str| {
        let (_, decoded) = through(&*compressor("ternary", name), &values, 0);
        decoded.iter().fold(0.0f32, |most, x| most.max(x.abs()))
    };
    assert_eq!(largest("clip = 0"), 50.0);
    assert!(largest("") < 10.0);
}

#[test]
fn bytes_are_those_of_the_papers() {
    let values = normal(100_000, 5);
    let bytes = |name: &str, params: &str| through(&*compressor(name, params), &values, 0).0;
    assert_eq!(bytes("int8", ""), 100_000 + 4 * 196);
    assert_eq!(bytes("one-bit", ""), 12_500 + 8 * 196);
    assert_eq!(bytes("ternary", ""), 20_000 + 4 * 200);
    assert_eq!(build("half", "").encoded_len(Kind::F32, 100_000), 200_000);
    // A place needs a byte or two.
    assert!((5_000..6_100).contains(&bytes("top-k", "")));
    assert!((40_000..40_000 + 100_000 / 8 + 9).contains(&bytes("top-k", "ratio = 0.1")));
}

#[test]
fn top_k_sends_a_fixed_number_of_the_largest_and_threshold_all_beyond_it() {
    let small = normal(2_000, 6);
    let large: Vec<f32> = small.iter().map(|x| 3.0 * x).collect();
    let (top, threshold) = (compressor("top-k", ""), compressor("threshold", "threshold = 2.5"));
    for values in [&small, &large] {
        let (_, sent) = through(&*top, values, 0);
        let mut sizes: Vec<f32> = values.iter().map(|x| x.abs()).collect();
        sizes.sort_by(|a, b| b.total_cmp(a));
        for (x, y) in values.iter().zip(&sent) {
            assert_eq!(*y, if x.abs() >= sizes[19] { *x } else { 0.0 });
        }
        assert_eq!(nonzero(&sent).len(), 20);
        let (_, sent) = through(&*threshold, values, 0);
        for (x, y) in values.iter().zip(&sent) {
            assert_eq!(*y, if x.abs() > 2.5 { 2.5f32.copysign(*x) } else { 0.0 });
        }
    }
    let count = |values| nonzero(&through(&*threshold, values, 0).1).len();
    assert!(count(&large) > 10 * count(&small));
    assert_eq!(count(&vec![2.5; 100]), 0);
}

/// Which places of "g" two seats are told, when each has its own large numbers.
fn places(name: &str, now: u64) -> Vec<usize> {
    let shapes = Shapes::from([("g".to_string(), (50, 40))]);
    let mut seats = seats(&*rounds(name, ""), &shapes, 2);
    let given = |seat| {
        let numbers = normal(2_000, seat).into_iter().map(f64::from).collect();
        Update { blocks: vec![Block::dense("g", numbers)] }
    };
    let (total, _) = step(&mut seats, &[given(1), given(2)], now).expect("seats fit together");
    let told: Vec<f32> = total.f64("g").iter().map(|&x| x as f32).collect();
    nonzero(&told)
}

#[test]
fn random_k_draws_the_same_places_on_all_seats_and_others_in_each_step() {
    // Two hundred of 2,000, whatever the seats hold: the sum of two seats has no more.
    assert_eq!(places("random-k", 0).len(), 200);
    assert_ne!(places("random-k", 0), places("random-k", 1));
    assert_eq!(places("random-k", 3), places("random-k", 3));
    // A product of thin matrices is nowhere zero.
    assert_eq!(places("low-rank", 0).len(), 2_000);
    // Two seats with top-k send nearly twice as many places.
    let top = compressor("top-k", "");
    let sent = |seat| nonzero(&through(&*top, &normal(2_000, seat), 0).1);
    let union: BTreeSet<usize> = sent(1).into_iter().chain(sent(2)).collect();
    assert!(union.len() > 35);
}

#[test]
fn every_place_is_drawn_equally_often() {
    let shapes = Shapes::from([("g".to_string(), (10, 1))]);
    let mut seats = seats(&*rounds("random-k", "ratio = 0.3"), &shapes, 1);
    let mut drawn = [0u32; 10];
    for now in 0..2_000 {
        let given = Update { blocks: vec![Block::dense("g", vec![1.0; 10])] };
        let (total, _) = step(&mut seats, &[given], now).unwrap();
        let told = total.f64("g").iter().enumerate().filter(|(_, x)| **x != 0.0);
        told.for_each(|(at, _)| drawn[at] += 1);
    }
    // 600 expected, with a deviation of 20.
    assert!(drawn.iter().all(|count| (500..700).contains(count)), "{drawn:?}");
}

/// A sum over two seats of the given rank; no seat's own matrix has it.
fn of_rank(rank: usize, seed: u64) -> [Update; 2] {
    let (rows, columns) = (30, 20);
    let mut rng = Rng::named(seed, "rank", &[]);
    let mut sum = vec![0.0; rows * columns];
    for _ in 0..rank {
        let u: Vec<f64> = (0..rows).map(|_| rng.normal()).collect();
        let v: Vec<f64> = (0..columns).map(|_| rng.normal()).collect();
        for (at, x) in sum.iter_mut().enumerate() {
            *x += u[at / columns] * v[at % columns];
        }
    }
    let one: Vec<f64> = sum.iter().map(|_| rng.normal()).collect();
    let other = sum.iter().zip(&one).map(|(sum, one)| sum - one).collect();
    [one, other].map(|numbers| Update { blocks: vec![Block::dense("g", numbers)] })
}

/// The largest error of what two seats are told, and the bytes that one sent.
fn error(name: &str, params: &str, updates: impl Iterator<Item = [Update; 2]>) -> (f64, usize) {
    let shapes = Shapes::from([("g".to_string(), (30, 20))]);
    let mut seats = seats(&*rounds(name, params), &shapes, 2);
    let (mut most, mut bytes) = (0.0f64, 0);
    for (now, [a, b]) in (0..).zip(updates) {
        let (total, sent) =
            step(&mut seats, &[a.clone(), b.clone()], now).expect("seats fit together");
        let sums = a.f64("g").iter().zip(b.f64("g")).map(|(a, b)| a + b);
        most = sums.zip(total.f64("g")).fold(most, |most, (x, y)| most.max((x - y).abs()));
        bytes = sent;
    }
    (most, bytes)
}

#[test]
fn only_low_rank_is_exact_on_sums_of_its_rank_from_the_first_step_on() {
    let once = |rank| std::iter::once(of_rank(rank, 1));
    let (first, bytes) = error("low-rank", "rank = 2", once(2));
    assert!(first < 1e-11, "{first}");
    assert_eq!(bytes, 8 * 2 * (30 + 20));
    assert!(error("low-rank", "rank = 3", once(2)).0 < 1e-11);
    assert!(error("low-rank", "rank = 2", once(3)).0 > 1e-3);
    assert!(error("low-rank", "rank = 1", once(2)).0 > 1e-3);
    assert!(error("random-k", "ratio = 0.2", once(2)).0 > 1e-3);
}

#[test]
fn low_rank_stays_exact_when_it_starts_warm() {
    // Seats hold what their own matrices lost, which cancels in the sum: later sums are of rank 2 again.
    let steps = (0..6).map(|seed| of_rank(2, seed));
    assert!(error("low-rank", "rank = 2", steps).0 < 1e-9);
    // From a sum of lower rank, through nothing, back to the full rank.
    let steps = [1, 0, 2, 1, 2].into_iter().map(|rank| of_rank(rank, 7 + rank as u64));
    assert!(error("low-rank", "rank = 2", steps).0 < 1e-9);
}

#[test]
fn a_warm_start_finds_the_largest_directions() {
    // One sum of full rank, step after step: the error of each step's new part shrinks to that of the best rank 2.
    let matrix = of_rank(20, 3);
    let told = |params: &str| {
        let shapes = Shapes::from([("g".to_string(), (30, 20))]);
        let mut seats = seats(&*rounds("low-rank", params), &shapes, 2);
        let norms = (0..12).map(|now| {
            // Without what was held: only the directions stay warm.
            for seat in &mut seats {
                let warm = seat.save().into_iter().filter(|(key, _)| key.starts_with("warm/"));
                seat.restore(warm.collect());
            }
            let (total, _) = step(&mut seats, &matrix, now).unwrap();
            total.f64("g").iter().map(|x| x * x).sum::<f64>()
        });
        norms.collect::<Vec<f64>>()
    };
    let norms = told("rank = 2");
    assert!(norms.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - 1e-9)), "{norms:?}");
    assert!(norms[11] > 1.1 * norms[0], "{norms:?}");
}

#[test]
fn vectors_and_statistics_travel_whole_in_the_first_round() {
    let shapes = Shapes::from([("vector".to_string(), (50, 1)), ("g".to_string(), (40, 30))]);
    let mut seats = seats(&*rounds("low-rank", "rank = 1"), &shapes, 1);
    let blocks = vec![
        Block::dense("loss", vec![0.3; 3]),
        Block::dense("vector", (0..50).map(f64::from).collect()),
        Block::dense("g", vec![1.0; 1200]),
    ];
    let (total, bytes) = step(&mut seats, &[Update { blocks: blocks.clone() }], 0).unwrap();
    assert_eq!(total.blocks[..2], blocks[..2]);
    assert_eq!(bytes, 8 * (3 + 50 + 40 + 30));
}

#[test]
fn auto_chooses_and_factors_does_not() {
    assert!(matches!(scheme("factors", ""), Scheme::Factors));
    let Scheme::Auto(auto) = scheme("auto", "") else { panic!("auto chooses") };
    let dense = Facts {
        len: 10_000,
        nonzero: 10_000,
        factors: None,
        width: 8,
        world: 4,
        bytes_per_second: Some(125e6),
        everyone: true,
    };
    assert_eq!(auto.choose(&dense), Way::Dense);
    assert_eq!(auto.choose(&Facts { nonzero: 100, ..dense }), Way::Sparse);
    assert_eq!(auto.choose(&Facts { factors: Some((100, 100, 2)), ..dense }), Way::Factors);
    assert_eq!(auto.choose(&Facts { factors: Some((100, 100, 60)), ..dense }), Way::Dense);
}
