//! Approximate synchrony: what waits, what is sent, and how near it stays to bulk-synchronous steps.

use super::Replicas;
use super::{RATE, START, WORLD, descended, local, mean, square};
use starlings_consistency::{At, Share};
use starlings_core::Seat;
use starlings_testkit::conformance::blend::{Flock, Quadratic, objectives};

#[test]
fn approximate_with_significance_zero_is_bulk_synchronous() {
    let blend = local("approximate", "significance = 0.0");
    assert_eq!(blend.share(), Share::Flock);
    let objectives = objectives(WORLD, START.len(), 1.0);
    let mut flock = Flock::new(&*blend, objectives.clone(), &START, RATE);
    let mut bulk = START.to_vec();
    for step in 1..=40 {
        flock.step(&*blend).unwrap();
        bulk = descended_together(&objectives, &bulk);
        for model in &flock.models {
            assert!(square(model.f64("weights"), &bulk) < 1e-24, "step {step}");
        }
    }
}

/// One step along the mean of all gradients.
fn descended_together(objectives: &[Quadratic], from: &[f64]) -> Vec<f64> {
    let steps: Replicas = objectives.iter().map(|f| descended(f, from, 1)).collect();
    mean(&steps)
}

#[test]
fn approximate_holds_back_no_more_than_its_threshold_and_sends_the_rest() {
    for (params, decays) in
        [("significance = 0.05\ndecay = false", false), ("significance = 0.2", true)]
    {
        let blend = local("approximate", params);
        let mut flock = Flock::new(&*blend, objectives(WORLD, 8, 1.0), &[1.5; 8], 0.02);
        let (mut held_back, mut sent) = (0, 0);
        for step in 1..=60u64 {
            flock.walk(&*blend);
            let root = if decays { (step as f64).sqrt() } else { 1.0 };
            let threshold = if decays { 0.2 } else { 0.05 } / root;
            let (seat, world) = (Seat(0), WORLD as u32);
            let at = At { steps: step, seat, world, circles: true, ending: false };
            for model in &mut flock.models {
                let offer = blend.offer(&at, 0, model).unwrap();
                let rows = offer.rows("weights").unwrap();
                assert_eq!((rows.total, rows.width), (8, 1));
                let shared = model.f64("blend.shared.weights");
                let pending = model.f64("blend.pending.weights");
                for k in 0..8 {
                    let is_sent = rows.index.contains(&(k as u32));
                    let is_large = pending[k].abs() > threshold * shared[k].abs();
                    assert_eq!(is_sent, is_large, "step {step}, number {k}");
                    assert_eq!(model.f64("weights")[k], shared[k] + pending[k]);
                    held_back += usize::from(!is_sent && pending[k] != 0.0);
                    sent += usize::from(is_sent);
                }
            }
            flock.exchange(&*blend, false).unwrap();
            let shared = flock.models[0].f64("blend.shared.weights").to_vec();
            for model in &flock.models {
                assert_eq!(model.f64("blend.shared.weights"), shared, "step {step}");
                let pending = model.f64("blend.pending.weights");
                let parts = model.f64("weights").iter().zip(shared.iter().zip(pending));
                parts.for_each(|(w, (s, p))| assert_eq!(*w, s + p));
            }
        }
        assert!(held_back > 100 && sent > 20, "{params}: {held_back} held back, {sent} sent");
    }
}

#[test]
fn changes_too_small_to_send_add_up_until_they_matter() {
    let blend = local("approximate", "significance = 0.0045\ndecay = false");
    // So far from the minimum that each step is 0.001 long.
    let slope = Quadratic { curvature: vec![1e-9], target: vec![1e7] };
    let mut flock = Flock::new(&*blend, vec![slope], &[1.0], RATE);
    let mut sent = Vec::new();
    for step in 1..=20 {
        flock.step(&*blend).unwrap();
        if flock.models[0].f64("blend.pending.weights")[0] == 0.0 {
            sent.push(step);
        }
        let expected = 1.0 + 0.001 * f64::from(step);
        assert!((flock.models[0].f64("weights")[0] - expected).abs() < 1e-5, "own changes count");
    }
    assert_eq!(sent, [5, 10, 15, 20]);
}

#[test]
fn approximate_sends_fewer_bytes_than_bsp_and_ends_near_it() {
    let (len, steps, significance) = (64, 200, 0.01);
    let objectives = objectives(WORLD, len, 40.0);
    let blend = local("approximate", &format!("significance = {significance}\ndecay = false"));
    let start = vec![30.0; len];
    let mut flock = Flock::new(&*blend, objectives.clone(), &start, RATE);
    let mut bulk = start;
    for _ in 0..steps {
        flock.step(&*blend).unwrap();
        bulk = descended_together(&objectives, &bulk);
    }
    let bulk_bytes = steps * WORLD * len * (8 + 4);
    assert!(flock.bytes * 2 < bulk_bytes, "{} of {bulk_bytes} bytes", flock.bytes);
    flock.exchange(&*blend, true).unwrap();
    for (found, exact) in flock.models[0].f64("weights").iter().zip(&bulk) {
        let bound = WORLD as f64 * significance * exact.abs();
        assert!((found - exact).abs() <= bound, "{found} and {exact} are more than {bound} apart");
    }
}
