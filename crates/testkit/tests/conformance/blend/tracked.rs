//! Statistics of rows, such as the running variances of batch normalisation: a blend may average them and nothing more.

use super::{WORLD, local};
use starlings_consistency::{At, Blend};
use starlings_core::{Model, Role, Seat, Tensor, Update};

fn replica(blend: &dyn Blend) -> Model {
    let mut model = Model::new();
    model.set("weight", Tensor::of(&[1], vec![0.0], Role::Weight));
    model.set("variance", Tensor::of(&[1], vec![8.0], Role::Weight));
    model.mark_tracked("variance");
    blend.prepare(&mut model);
    model
}

/// A local step of each replica; gives the mean of their variances.
fn walk(replicas: &mut [Model]) -> f64 {
    let world = replicas.len() as f64;
    let mut mean = 0.0;
    for (seat, model) in replicas.iter_mut().enumerate() {
        model.f64_mut("weight")[0] -= 1.0;
        let variance = &mut model.f64_mut("variance")[0];
        *variance *= 0.5 + 0.1 * seat as f64;
        mean += *variance / world;
    }
    mean
}

/// Variances that fall were carried below zero by the momentum over blocks.
#[test]
fn statistics_of_rows_are_averaged_and_never_carried_on() {
    let nesterov = "steps = 1\nnesterov = true";
    let cases =
        [("block-momentum", "steps = 1"), ("block-momentum", nesterov), ("diloco", "steps = 1")];
    for (name, settings) in cases {
        let blend = local(name, settings);
        let mut replicas = vec![replica(&*blend); WORLD];
        for steps in 1..=12 {
            let mean = walk(&mut replicas);
            let (world, ending) = (WORLD as u32, steps == 12);
            let at =
                |seat: usize| At { steps, seat: Seat(seat as u32), world, circles: false, ending };
            let offers = replicas.iter_mut().enumerate();
            let offers = offers.map(|(seat, model)| blend.offer(&at(seat), 0, model).unwrap());
            let offers: Vec<Update> = offers.collect();
            assert!(offers[0].get("variance").is_none(), "codecs compress what names a weight");
            let mut sum = offers[0].clone();
            offers[1..].iter().for_each(|offer| sum.fold(offer).unwrap());
            for (seat, model) in replicas.iter_mut().enumerate() {
                blend.absorb(&at(seat), 0, &sum, model);
                let found = model.f64("variance")[0];
                assert!((found - mean).abs() < 1e-12, "{name}, {steps}: {found} for {mean}");
            }
        }
        assert!(replicas[0].f64("weight")[0] < -12.0, "{name}: weights are carried on");
    }
}
