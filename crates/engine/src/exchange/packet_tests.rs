//! The cheapest way: what links carry decides between ways that are exact, and bits do not tell which it was.

use super::*;
use crate::choices::codec;

const ROWS: usize = 130;
const WIDTH: usize = 110;

fn packer(bandwidth: Option<f64>) -> Packer {
    let shapes = Shapes::from_iter([("w".to_string(), (ROWS, WIDTH))]);
    let address = Address { seed: 1, seat: 0, world: 4, everyone: true };
    let mut packer = Packer::new(codec("auto", "").unwrap(), Arc::new(shapes), &address);
    if let Some(bytes_per_second) = bandwidth {
        packer.carried(bytes_per_second);
    }
    packer
}

fn random(count: usize, of: u64) -> Vec<f64> {
    let mut rng = Rng::named(8, "numbers", &[of]);
    (0..count).map(|_| rng.normal()).collect()
}

/// A packet of factors of some terms, and the sum that comes of it when there is something already.
fn packed(bandwidth: Option<f64>, terms: usize) -> (u8, Vec<f64>) {
    let [left, right] = [ROWS, WIDTH].map(|side| random(terms * side, side as u64));
    let factors = Factors { rows: ROWS as u32, width: WIDTH as u32, left, right };
    let update = Update { blocks: vec![Block { name: "w".into(), body: Body::Factors(factors) }] };
    let part = Part { block: 0, from: 0, to: ROWS * WIDTH, whole: true };
    let mut packer = packer(bandwidth);
    let mut packet = Vec::new();
    packer.pack(&update, &part, Place { count: 0, chunk: 0, total: false }, &mut packet);
    let mut sum = Update { blocks: vec![Block::dense("w", random(ROWS * WIDTH, 5))] };
    assert_eq!(packer.unpack(&mut sum, &part, &packet), Ok(&[][..]));
    (packet[0], sum.f64("w").to_vec())
}

#[test]
fn bandwidth_decides_between_bytes_and_multiplications() {
    // 50 terms are 8 · 50 · 240 bytes where the matrix has 8 · 14,300, and half a million multiplications more.
    for (bandwidth, way) in [(None, FACTORS), (Some(1e6), FACTORS), (Some(1e10), NUMBERS)] {
        assert_eq!(packed(bandwidth, 50).0, way, "{bandwidth:?}");
    }
}

#[test]
fn the_way_that_a_block_travelled_does_not_show_in_the_bits_of_its_sum() {
    for terms in [4, 7, 50] {
        let ways = [Some(1.0), Some(1e15)].map(|bandwidth| packed(bandwidth, terms));
        let [(slow, by_factors), (fast, as_matrix)] = ways;
        assert_eq!((slow, fast), (FACTORS, NUMBERS), "{terms} terms");
        let bits = |numbers: &[f64]| numbers.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&by_factors), bits(&as_matrix), "{terms} terms");
    }
}
