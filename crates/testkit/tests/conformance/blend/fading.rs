//! A momentum of weights that no longer move becomes exactly zero: it would stay among the floats below the normal ones,
//! over which processors take many times as long.

use super::local;
use starlings_consistency::At;
use starlings_core::{Model, Role, Seat, Tensor, Values};

/// The momenta of a blend after one move and so many exchanges without any.
fn rested(name: &str, settings: &str, values: Values, exchanges: u64) -> Vec<Vec<f64>> {
    let blend = local(name, settings);
    let mut model = Model::new();
    let shape = vec![values.len()];
    model.set("weight", Tensor { shape, values, role: Role::Weight });
    blend.prepare(&mut model);
    match &mut model.get_mut("weight").expect("it was set").values {
        Values::F32(values) => values[0] -= 1.0,
        Values::F64(values) => values[0] -= 1.0,
        Values::I64(_) => unreachable!("weights are floats"),
    }
    let mut momenta = Vec::new();
    for steps in 1..=exchanges {
        let at = At { steps, seat: Seat(0), world: 1, circles: false, ending: false };
        let sum = blend.offer(&at, 0, &mut model).expect("it offers a sum");
        blend.absorb(&at, 0, &sum, &mut model);
        let kept = ["blend.momentum.weight", "blend.move.weight"];
        let kept = kept.iter().find_map(|name| model.get(name)).expect("it keeps a momentum");
        momenta.push(match &kept.values {
            Values::F32(values) => {
                assert!(!values[0].is_subnormal(), "{name}, {steps}: {values:?}");
                values.iter().map(|&value| f64::from(value)).collect()
            }
            Values::F64(values) => {
                assert!(!values[0].is_subnormal(), "{name}, {steps}: {values:?}");
                values.clone()
            }
            Values::I64(_) => unreachable!("momenta are floats"),
        });
    }
    momenta
}

const WAYS: [(&str, &str); 3] = [
    ("diloco", "steps = 1"),
    ("block-momentum", "steps = 1\nmomentum = 0.9"),
    ("block-momentum", "steps = 1\nmomentum = 0.9\nnesterov = true"),
];

#[test]
fn momenta_of_weights_at_rest_become_exactly_zero() {
    for (name, settings) in WAYS {
        for (values, exchanges) in
            [(Values::F32(vec![3.0, 2.0]), 2_000), (Values::F64(vec![3.0, 2.0]), 14_000)]
        {
            let momenta = rested(name, settings, values, exchanges);
            assert!(momenta[0][0] != 0.0 && momenta[0][1] == 0.0, "{name}: the first has moved");
            assert_eq!(momenta.last().unwrap()[0].to_bits(), 0, "{name}");
        }
    }
}

/// What is not faint has the bits of a plain recurrence.
#[test]
fn momenta_that_count_keep_their_bits() {
    for (name, settings) in WAYS {
        let momenta = rested(name, settings, Values::F64(vec![3.0]), 500);
        let mut plain = momenta[0][0];
        for (exchange, momentum) in momenta.iter().enumerate().skip(1) {
            plain *= 0.9;
            assert_eq!(momentum[0].to_bits(), plain.to_bits(), "{name}, {exchange}");
        }
    }
}
