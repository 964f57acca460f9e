//! Dynamic averaging: silence while the conditions hold, an average at the very step at which one breaks.

use super::recurrences::{same, walked};
use super::{PERIOD, RATE, START, WORLD, descended, local, mean, square};
use starlings_testkit::conformance::blend::{Flock, objectives};

#[test]
fn dynamic_averaging_is_silent_on_a_converged_model() {
    let blend = local("dynamic-averaging", "check = 2\ndivergence = 0.001");
    let one = objectives(1, 3, 1.0).remove(0);
    let start = one.target.clone();
    let mut flock = Flock::new(&*blend, vec![one; 4], &start, RATE);
    (0..40).for_each(|_| flock.step(&*blend).unwrap());
    assert_eq!(flock.exchanges, [0; 0]);
    assert_eq!(flock.bytes, 4 * 20 * 8, "one integer from each worker at each look");
}

#[test]
fn dynamic_averaging_synchronises_at_the_step_at_which_a_condition_breaks() {
    let (check, divergence) = (2, 0.3);
    let params = format!("check = {check}\ndivergence = {divergence}");
    let blend = local("dynamic-averaging", &params);
    let objectives = objectives(WORLD, START.len(), 1.0);
    let mut flock = Flock::new(&*blend, objectives.clone(), &START, RATE);
    let mut reference = START.to_vec();
    let (mut replicas, mut breaks) = (vec![START.to_vec(); WORLD], Vec::new());
    for step in 1..=60 {
        flock.step(&*blend).unwrap();
        let steps = replicas.iter().zip(&objectives).map(|(x, f)| descended(f, x, 1));
        replicas = steps.collect();
        // Twice: the f32 weights beside take the same steps.
        let far = |x: &Vec<f64>| 2.0 * square(x, &reference) > divergence;
        if step % check == 0 && replicas.iter().any(far) {
            breaks.push(step);
            reference = mean(&replicas);
            replicas = vec![reference.clone(); WORLD];
        }
        if step % check == 0 {
            let spread = replicas.iter().map(|x| square(x, &mean(&replicas))).sum::<f64>();
            assert!(spread / WORLD as f64 <= divergence, "step {step}: {spread}");
        }
        for (model, x) in flock.models.iter().zip(&replicas) {
            assert!(square(model.f64("weights"), x) < 1e-20, "step {step}");
        }
    }
    assert_eq!(flock.exchanges, breaks);
    assert!(breaks.len() > 3 && breaks.len() < 30, "{breaks:?}");
}

#[test]
fn dynamic_averaging_without_tolerance_is_local_averaging() {
    let local_steps = walked(&*local("local", &format!("steps = {PERIOD}")));
    let params = |divergence| format!("check = {PERIOD}\ndivergence = {divergence}");
    let strict = walked(&*local("dynamic-averaging", &params("0.0")));
    let loose = walked(&*local("dynamic-averaging", &params("1000.0")));
    assert!(same(&strict, &local_steps) && !same(&loose, &local_steps));
}
