//! Momentum correction, and what a flock does with what its seats hold.

use super::{compressor, rounds};
use starlings_codec::{Compressor, Into as Take, Part, Residuals, Shapes, residuals};
use starlings_core::{Block, Body, Kind, Rng, Update, Values};
use starlings_testkit::conformance::codec::rounds::{seats, step};

fn send(compressor: &dyn Compressor, held: &mut Residuals, values: &[f64]) -> Vec<f64> {
    let (values, mut bytes) = (Values::F64(values.to_vec()), Vec::new());
    let part = Part { block: "g", from: 0, values: &values, range: 0..values.len() };
    held.encode(compressor, part, &mut Rng::named(1, "momentum", &[]), &mut bytes);
    let mut decoded = Values::zeros(Kind::F64, values.len());
    residuals::decode(compressor, &bytes, &mut decoded, 0..values.len(), Take::Put)
        .expect("its own");
    decoded.as_f64().expect("f64").to_vec()
}

#[test]
fn a_number_that_waited_arrives_as_the_velocities_of_momentum_descent() {
    let top = compressor("top-k", "ratio = 0.5\nmomentum = 0.9");
    let mut held = Residuals::default();
    let (mut velocity, mut velocities) = (0.0, 0.0);
    // The second number waits while the first is larger.
    for now in 0..8 {
        let gradient = 0.01 * f64::from(now + 1);
        velocity = 0.9 * velocity + gradient;
        velocities += velocity;
        assert_eq!(send(&*top, &mut held, &[100.0, gradient])[1], 0.0);
    }
    velocity *= 0.9;
    velocities += velocity;
    // The first was sent each time, so that its own velocity was cleared each time.
    let last = send(&*top, &mut held, &[0.0, 0.0]);
    assert_eq!(last[0], 0.0);
    assert!((last[1] - velocities).abs() < 1e-6, "{} for {velocities}", last[1]);
    // Sent, it is masked: nothing goes on by itself.
    assert!(send(&*top, &mut held, &[0.0, 0.0])[1].abs() < 1e-6);
}

#[test]
fn beyond_a_threshold_velocities_go_a_threshold_at_a_time() {
    let threshold = compressor("threshold", "threshold = 1.0\nmomentum = 0.5");
    let mut held = Residuals::default();
    // Velocities of 0.5, 0.75 and 0.875: what waits is 0.5, 1.25 less the one that is sent, and, masked, 0.25 + 0.5.
    assert_eq!(send(&*threshold, &mut held, &[0.5]), [0.0]);
    assert_eq!(send(&*threshold, &mut held, &[0.5]), [1.0]);
    assert_eq!(send(&*threshold, &mut held, &[0.5]), [0.0]);
    assert!((held.norm() - 0.75).abs() < 1e-6, "{}", held.norm());
    // Without momentum half as much has gathered.
    let (plain, mut held) = (compressor("threshold", "threshold = 1.0"), Residuals::default());
    assert_eq!((0..3).map(|_| send(&*plain, &mut held, &[0.5])[0]).sum::<f64>(), 1.0);
    assert!((held.norm() - 0.5).abs() < 1e-6, "{}", held.norm());
}

/// It would stay among the floats below the normal ones, over which processors take many times as long.
#[test]
fn a_velocity_without_gradients_becomes_exactly_zero() {
    let top = compressor("top-k", "ratio = 0.5\nmomentum = 0.9");
    for (single, steps) in [(true, 2_000), (false, 14_000)] {
        let mut held = Residuals::default();
        for now in 0..steps {
            // The first number alone is sent. The second waits, and is given once.
            let given = [100.0, if now == 0 { 0.001 } else { 0.0 }];
            let values = match single {
                true => Values::F32(given.map(|number| number as f32).to_vec()),
                false => Values::F64(given.to_vec()),
            };
            let part = Part { block: "w", from: 0, values: &values, range: 0..2 };
            held.encode(&*top, part, &mut Rng::named(1, "momentum", &[]), &mut Vec::new());
        }
        let saved = held.save();
        let number = |name: &str| match &saved[name] {
            Values::F32(values) => f64::from(values[1]),
            Values::F64(values) => values[1],
            Values::I64(_) => panic!("floats are held"),
        };
        let (velocity, residual) = (number("velocity/0/w"), number("residual/0/w"));
        assert_eq!(velocity.to_bits(), 0, "{velocity:e}");
        assert!((residual - 0.01).abs() < 1e-7, "all of it waits: {residual}");
    }
}

#[test]
fn without_momentum_a_number_that_waited_arrives_as_the_plain_sum() {
    let top = compressor("top-k", "ratio = 0.5");
    let mut held = Residuals::default();
    for _ in 0..8 {
        assert_eq!(send(&*top, &mut held, &[100.0, 0.01])[1], 0.0);
    }
    assert!((send(&*top, &mut held, &[0.0, 0.0])[1] - 0.08).abs() < 1e-7);
}

#[test]
fn random_k_gathers_velocities_until_a_place_is_drawn() {
    let shapes = Shapes::from([("g".to_string(), (10, 1))]);
    let random = rounds("random-k", "ratio = 0.2\nmomentum = 0.5");
    let mut seats = seats(&*random, &shapes, 2);
    let (mut velocity, mut rest) = ([0.0; 10], [0.0; 10]);
    for now in 0..30u64 {
        let given = |seat: f64| Update {
            blocks: vec![Block::dense("g", (0..10).map(|at| seat + f64::from(at)).collect())],
        };
        let (total, _) = step(&mut seats, &[given(1.0), given(0.25)], now).unwrap();
        for (at, told) in total.f64("g").iter().enumerate() {
            velocity[at] = 0.5 * velocity[at] + 1.25 + 2.0 * at as f64;
            rest[at] += velocity[at];
            if *told != 0.0 {
                assert!((told - rest[at]).abs() < 1e-9, "{told} for {}", rest[at]);
                (velocity[at], rest[at]) = (0.0, 0.0);
            }
        }
    }
}

#[test]
fn what_rounds_lost_can_be_flushed_by_a_leaver_and_merged_by_a_resumer() {
    let shapes = Shapes::from([("g".to_string(), (10, 10))]);
    for name in ["random-k", "low-rank"] {
        let codec = rounds(name, "");
        let mut seats = seats(&*codec, &shapes, 2);
        let mut rng = Rng::named(3, "flush", &[]);
        let mut given =
            || Update { blocks: vec![Block::dense("g", (0..100).map(|_| rng.normal()).collect())] };
        let updates = [given(), given()];
        let (total, _) = step(&mut seats, &updates, 0).unwrap();
        let mut held = Residuals::default();
        held.restore(seats[0].save());
        held.add(seats[1].save());
        let mut last = total;
        held.flush(&mut last);
        assert_eq!(held.norm(), 0.0);
        let pairs = updates[0].f64("g").iter().zip(updates[1].f64("g"));
        for ((a, b), got) in pairs.zip(last.f64("g")) {
            assert!((a + b - got).abs() < 1e-12, "{name}: {got} for {}", a + b);
        }
    }
}

#[test]
fn what_is_held_for_another_kind_of_block_stays() {
    let top = compressor("top-k", "");
    let mut held = Residuals::default();
    send(&*top, &mut held, &[1.0, 2.0, 3.0]);
    let norm = held.norm();
    let mut update = Update { blocks: vec![Block::counts("g", vec![1, 2, 3])] };
    held.flush(&mut update);
    assert!(norm > 0.0 && held.norm() == norm);
    let body = Body::Dense(Values::F32(vec![0.0; 3]));
    let mut update = Update { blocks: vec![Block { name: "g".to_string(), body }] };
    held.flush(&mut update);
    assert_eq!(held.norm(), 0.0);
    assert_eq!(update.blocks[0].body, Body::Dense(Values::F32(vec![1.0, 2.0, 0.0])));
}

#[test]
#[should_panic(expected = "integers are never compressed")]
fn integers_are_never_compressed() {
    let values = Values::I64(vec![1, 2]);
    let part = Part { block: "count", from: 0, values: &values, range: 0..2 };
    let mut noise = Rng::named(1, "integers", &[]);
    Residuals::default().encode(&*compressor("int8", ""), part, &mut noise, &mut Vec::new());
}
