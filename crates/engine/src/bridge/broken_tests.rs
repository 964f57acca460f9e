//! A sum that breaks off: what its codec had lost before it is still known, for the sum may be made again; and so is what it
//! has lost since, for others may have had all of it.

use super::adder::{Adder, PATIENCE, Perch, blending, flock};
use super::replicated::Mergers;
use super::{Blended, Exchange, HandedIn, Replicated};
use crate::choices::{codec, summing};
use crate::merge::{MergeOptions, Merger};
use starlings_codec::Shapes;
use starlings_consistency::Blending;
use starlings_core::{Block, Model, Rng, Role, Seat, Step, Tensor, Update};
use starlings_learn::Moment;
use std::sync::Arc;

const SHAPE: (usize, usize) = (16, 8);
const LEN: usize = SHAPE.0 * SHAPE.1;
/// The step that breaks off.
const LAST: u64 = 3;

fn model() -> Model {
    let mut model = Model::new();
    model.set("x", Tensor::of(&[SHAPE.0, SHAPE.1], vec![0.0; LEN], Role::Weight));
    model
}

fn step(perch: &Perch, number: u64) -> HandedIn {
    let moment = Moment { step: Step(number), pass: 0, seed: 0, rows: 4 };
    let mut rng = Rng::named(1, "change", &[perch.seat() as u64, number]);
    let change = (0..LEN).map(|_| rng.normal()).collect::<Vec<f64>>();
    HandedIn::new(moment, 2, vec![Update { blocks: vec![Block::dense("x", change)] }])
}

/// A merger that holds back all but the largest tenth.
fn merger(perch: &Perch) -> Merger {
    let options = MergeOptions {
        kind: 1,
        group: (0..perch.net.world()).map(Seat).collect(),
        topology: summing("ring", "").unwrap(),
        carriage: codec("top-k", "ratio = 0.1").unwrap(),
        shapes: Arc::new(Shapes::from([("x".to_string(), SHAPE)])),
        single: Arc::default(),
        seed: 3,
        patience: PATIENCE,
    };
    Merger::new(perch.net.clone(), options)
}

fn replicated(perch: &Perch) -> Box<dyn Exchange> {
    let (group, exact) = (merger(perch), perch.exact(3));
    let mergers = Mergers { group, world: None, exact, peaks: None };
    Box::new(Replicated::new(Adder::shared(), mergers, None, PATIENCE).surviving(true))
}

fn blended(perch: &Perch) -> Box<dyn Exchange> {
    let mergers = [merger(perch), perch.exact(3)];
    Box::new(Blended::new(Adder::shared(), blending("local", "steps = 1"), mergers))
}

/// Gives a model what local steps remember beside it.
fn prepare(model: &mut Model) {
    let Blending::Local(blend) = &*blending("local", "steps = 1") else { unreachable!() };
    blend.prepare(model);
}

#[test]
fn what_a_codec_had_lost_before_a_sum_that_broke_off_is_known() {
    for begin in [replicated, blended] {
        flock(2, |perch| {
            let (mut exchange, mut model) = (begin(&perch), model());
            prepare(&mut model);
            for number in 0..LAST {
                exchange.finish(step(&perch, number), &mut model).unwrap();
                assert!(exchange.losses_before().is_none(), "that sum is over");
            }
            if perch.seat() == 1 {
                return perch.net.close();
            }
            let before = exchange.losses();
            assert!(!before.is_empty());
            exchange.finish(step(&perch, LAST), &mut model).unwrap_err();
            assert_eq!(exchange.losses_before(), Some((Step(LAST), before.clone())));
            assert_ne!(exchange.losses(), before, "its own part was encoded");
        });
    }
}
