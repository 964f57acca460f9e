//! Dynamic averaging: silence while the conditions hold; else the algorithm of the paper, written here by hand, says who
//! averages, who is left alone, and when the reference moves.

use super::recurrences::{same, walked};
use super::{PERIOD, RATE, Replicas, START, WORLD, descended, local, mean, square};
use starlings_consistency::Blend;
use starlings_core::{Model, Rng, Tensor, Values};
use starlings_testkit::conformance::blend::{Flock, objectives};

const CHECK: u64 = 2;

fn strict(divergence: f64) -> Box<dyn Blend> {
    local("dynamic-averaging", &format!("check = {CHECK}\ndivergence = {divergence}"))
}

/// A flock that takes no steps but those that a test gives it.
fn still(blend: &dyn Blend, world: usize) -> Flock {
    Flock::new(blend, objectives(world, START.len(), 1.0), &START, 0.0)
}

/// Moves some replicas along the first axis, and has all look.
fn look(flock: &mut Flock, blend: &dyn Blend, drifts: &[(usize, f64)]) {
    for &(seat, drift) in drifts {
        flock.models[seat].f64_mut("weights")[0] += drift;
    }
    flock.steps += CHECK;
    flock.exchange(blend, false).expect("lawful");
}

fn reference(model: &Model) -> &[f64] {
    model.f64("blend.anchor.weights")
}

/// Everything but what a look itself leaves behind.
fn content(model: &Model) -> Vec<(&str, &Tensor)> {
    let looks = ["blend.violations", "blend.violators"];
    model.iter().filter(|(name, _)| !looks.contains(name)).collect()
}

#[test]
fn dynamic_averaging_is_silent_on_a_converged_model() {
    let blend = strict(0.001);
    let one = objectives(1, 3, 1.0).remove(0);
    let start = one.target.clone();
    let mut flock = Flock::new(&*blend, vec![one; 4], &start, RATE);
    (0..40).for_each(|_| flock.step(&*blend).unwrap());
    assert_eq!(flock.exchanges, [0; 0]);
    assert_eq!(flock.bytes, 4 * 20 * 8, "one integer from each worker at each look");
}

#[test]
fn two_who_drift_apart_balance_each_other_and_leave_the_others_alone() {
    let blend = strict(0.5);
    let mut flock = still(&*blend, 5);
    let before = flock.models.clone();
    look(&mut flock, &*blend, &[(1, 1.0), (3, -1.0)]);
    assert_eq!(flock.circles, [(CHECK, vec![1, 3])]);
    for (seat, model) in flock.models.iter().enumerate() {
        assert_eq!(content(model), content(&before[seat]), "seat {seat}");
        assert_eq!(model.i64("blend.violations"), [2], "seat {seat}");
    }
    // Two words from each, and the deltas of two: those outside the circle send no model.
    assert_eq!(flock.bytes, 5 * 2 * 8 + 2 * (3 * 8 + 3 * 4));
}

#[test]
fn what_two_have_in_common_stays_with_them_while_it_is_within_the_condition() {
    let blend = strict(0.5);
    let mut flock = still(&*blend, 5);
    look(&mut flock, &*blend, &[(0, 1.5), (4, -0.75)]);
    assert_eq!(flock.circles, [(CHECK, vec![0, 4])]);
    for (seat, model) in flock.models.iter().enumerate() {
        let moved = if seat % 4 == 0 { 0.375 } else { 0.0 };
        assert_eq!(model.f64("weights"), [START[0] + moved, START[1], START[2]], "seat {seat}");
        assert_eq!(reference(model), START, "seat {seat}");
    }
}

#[test]
fn all_who_drift_alike_move_the_reference() {
    let blend = strict(0.5);
    let mut flock = still(&*blend, 5);
    look(&mut flock, &*blend, &[0, 1, 2, 3, 4].map(|seat| (seat, 1.0)));
    assert_eq!((flock.circles.len(), &flock.exchanges), (0, &vec![CHECK]));
    for model in &flock.models {
        assert_eq!(model.f64("weights"), [START[0] + 1.0, START[1], START[2]]);
        assert_eq!(reference(model), model.f64("weights"));
        assert_eq!(model.i64("blend.violations"), [0]);
    }
}

#[test]
fn a_lone_violator_is_balanced_by_whoever_is_next_in_turn() {
    let blend = strict(1.0);
    // Half of 1.5 is near enough; of 3.5 a fourth; of 50 no part of six.
    for (turn, pair, four) in [
        (1, vec![1, 2], vec![1, 2, 3, 4]),
        (2, vec![2, 3], vec![2, 3, 4, 5]),
        (3, vec![2, 3], vec![2, 3, 4, 5]),
        (5, vec![2, 5], vec![0, 1, 2, 5]),
        (12, vec![0, 2], vec![0, 1, 2, 3]),
    ] {
        let step = turn * CHECK;
        let looked = |drift| {
            let mut flock = still(&*blend, 6);
            flock.steps = step - CHECK;
            look(&mut flock, &*blend, &[(2, drift)]);
            flock
        };
        let flock = looked(1.5);
        assert_eq!(flock.circles, [(step, pair.clone())], "look {turn}");
        assert_eq!(flock.exchanges, [step], "nobody sums with itself alone");
        let flock = looked(3.5);
        assert_eq!(flock.circles, [(step, pair.clone()), (step, four.clone())], "look {turn}");
        for (seat, model) in flock.models.iter().enumerate() {
            let moved = if four.contains(&(seat as u32)) { 0.875 } else { 0.0 };
            assert_eq!(model.f64("weights")[0], START[0] + moved, "look {turn}, seat {seat}");
        }
        let flock = looked(50.0);
        assert_eq!(flock.circles, [(step, pair), (step, four)], "look {turn}");
        assert_eq!(flock.exchanges, [step; 3], "then all");
        for model in &flock.models {
            assert!((reference(model)[0] - START[0] - 50.0 / 6.0).abs() < 1e-12);
            assert_eq!(reference(model), model.f64("weights"));
        }
    }
}

#[test]
fn as_many_violations_as_seats_synchronise_all() {
    let blend = strict(0.5);
    let mut flock = still(&*blend, 5);
    let apart = [(1, 1.0), (3, -1.0)];
    for violations in [2, 4, 0, 2] {
        flock.circles.clear();
        look(&mut flock, &*blend, &apart);
        let is_partial = violations > 0;
        assert_eq!(flock.circles.len(), usize::from(is_partial), "{violations}");
        for model in &flock.models {
            assert_eq!(model.i64("blend.violations"), [violations]);
        }
    }
    // Of two that are left, two violations are as many as there are seats, whenever they were.
    (0..3).for_each(|_| flock.lose_last());
    look(&mut flock, &*blend, &[(0, 1.0)]);
    assert_eq!(reference(&flock.models[0]), [START[0] + 0.5, START[1], START[2]]);
    assert!(flock.agrees());
}

#[test]
fn seats_beyond_a_word_are_named_too() {
    let blend = strict(0.5);
    let mut flock = still(&*blend, 130);
    look(&mut flock, &*blend, &[(62, 1.0), (63, 1.0), (128, -2.0)]);
    assert_eq!(flock.circles, [(CHECK, vec![62, 63, 128])]);
    assert_eq!(flock.bytes, 130 * (3 * 8 + 8) + 3 * (3 * 8 + 3 * 4));
    flock.exchange(&*blend, true).unwrap();
    assert!(flock.agrees());
}

/// Algorithm 1 of the paper, with models and a coordinator.
struct Coordinator {
    reference: Vec<f64>,
    replicas: Replicas,
    violations: usize,
    divergence: f64,
}

impl Coordinator {
    fn is_far(&self, members: &[usize]) -> bool {
        square(&self.mean(members), &self.reference) > self.divergence
    }

    fn mean(&self, members: &[usize]) -> Vec<f64> {
        mean(&members.iter().map(|&seat| self.replicas[seat].clone()).collect())
    }

    /// Who averages in this look.
    fn look(&mut self, turn: usize) -> Vec<usize> {
        let world = self.replicas.len();
        let mut members: Vec<usize> = (0..world).filter(|&seat| self.is_far(&[seat])).collect();
        if members.is_empty() {
            return members;
        }
        self.violations += members.len();
        if self.violations >= world {
            members = (0..world).collect();
        }
        while members.len() < world && self.is_far(&members) {
            for _ in 0..members.len() {
                let next = (turn..turn + world).map(|it| it % world);
                members.extend(next.filter(|seat| !members.contains(seat)).take(1).last());
            }
        }
        let mean = self.mean(&members);
        members.iter().for_each(|&seat| self.replicas[seat] = mean.clone());
        if members.len() == world {
            (self.reference, self.violations) = (mean, 0);
        }
        members.sort_unstable();
        members
    }
}

/// How far each replica goes before a look: some not at all, some together, some by themselves.
fn drift(world: usize, turn: u64) -> Replicas {
    let draw = |purpose, seat: usize| Rng::named(7, purpose, &[world as u64, turn, seat as u64]);
    let together = draw("together", 0).normal() * 0.3;
    let one = |seat: usize| {
        let mut rng = draw("alone", seat);
        let size = [0.0, 0.05, 0.4][(rng.next_u64() % 3) as usize];
        (0..START.len()).map(|_| size * (rng.normal() + together)).collect()
    };
    (0..world).map(one).collect()
}

#[test]
fn random_drifts_are_balanced_as_the_paper_says() {
    let divergence = 0.3;
    let blend = strict(divergence);
    let (mut silent, mut some, mut all) = (0, 0, 0);
    for world in 1..=9 {
        let mut flock = still(&*blend, world);
        let mut paper = Coordinator {
            reference: START.to_vec(),
            replicas: vec![START.to_vec(); world],
            violations: 0,
            divergence,
        };
        for turn in 1..=40 {
            for (seat, by) in drift(world, turn).iter().enumerate() {
                let both = [flock.models[seat].f64_mut("weights"), &mut paper.replicas[seat]];
                both.into_iter().for_each(|x| x.iter_mut().zip(by).for_each(|(x, by)| *x += by));
            }
            flock.circles.clear();
            look(&mut flock, &*blend, &[]);
            let members = paper.look(turn as usize);
            let place = format!("{world} workers, look {turn}: {members:?}");
            match members.len() {
                0 => silent += 1,
                members if members == world => all += 1,
                _ => some += 1,
            }
            if members.len() < world {
                let last = flock.circles.last().map_or(vec![], |(_, circle)| circle.clone());
                let expected: Vec<u32> = members.iter().map(|&seat| seat as u32).collect();
                assert_eq!(last, expected, "{place}");
            }
            for (model, x) in flock.models.iter().zip(&paper.replicas) {
                assert!(square(model.f64("weights"), x) < 1e-20, "{place}");
                assert!(square(reference(model), &paper.reference) < 1e-20, "{place}");
                assert_eq!(reference(model), reference(&flock.models[0]), "{place}");
                assert_eq!(model.i64("blend.violations"), [paper.violations as i64], "{place}");
            }
        }
        flock.exchange(&*blend, true).unwrap();
        assert!(flock.agrees(), "{world} workers");
        let everyone: Vec<usize> = (0..world).collect();
        assert!(square(reference(&flock.models[0]), &paper.mean(&everyone)) < 1e-20);
    }
    assert!(silent > 20 && some > 60 && all > 40, "{silent} silent, {some} partial, {all} full");
}

#[test]
fn after_every_look_replicas_are_as_near_to_their_mean_as_the_law_says() {
    let divergence = 0.3;
    let blend = strict(divergence);
    let both = |model: &Model| -> Vec<f64> {
        let Some(Values::F32(narrow)) = model.get("narrow").map(|it| &it.values) else {
            panic!("a model of the suite")
        };
        let narrow = narrow.iter().map(|&x| f64::from(x));
        model.f64("weights").iter().copied().chain(narrow).collect()
    };
    let mut circles = 0;
    for world in [2, 3, 6, 11] {
        let mut flock = still(&*blend, world);
        for turn in 1..=60 {
            for (model, by) in flock.models.iter_mut().zip(drift(world, turn)) {
                model.f64_mut("weights").iter_mut().zip(&by).for_each(|(x, by)| *x += by);
                let Some(Values::F32(narrow)) = model.get_mut("narrow").map(|it| &mut it.values)
                else {
                    panic!("a model of the suite")
                };
                narrow.iter_mut().zip(&by).for_each(|(x, by)| *x -= *by as f32);
            }
            look(&mut flock, &*blend, &[]);
            let replicas: Replicas = flock.models.iter().map(both).collect();
            let centre = mean(&replicas);
            let spread = replicas.iter().map(|x| square(x, &centre)).sum::<f64>() / world as f64;
            assert!(spread <= divergence * (1.0 + 1e-6), "{world} workers, look {turn}: {spread}");
        }
        circles += flock.circles.len();
    }
    assert!(circles > 60, "{circles} circles");
}

#[test]
fn an_ending_without_a_look_gives_all_the_same_bits_and_begins_anew() {
    let blend = strict(0.5);
    let mut flock = still(&*blend, 5);
    look(&mut flock, &*blend, &[(1, 1.0), (3, -1.0)]);
    flock.models[2].f64_mut("weights")[1] += 0.25;
    flock.bytes = 0;
    flock.exchange(&*blend, true).unwrap();
    assert!(flock.agrees());
    assert_eq!(reference(&flock.models[0]), [START[0], START[1] + 0.05, START[2]]);
    assert_eq!(flock.models[0].i64("blend.violations"), [0]);
    // Weights, narrow, tally, clock and momentum, and no count before them.
    assert_eq!(flock.bytes, 5 * (3 * 8 + 3 * 4 + 2 * 8 + 2 * 8 + 3 * 8));
}

#[test]
fn without_circles_all_synchronise_at_the_step_at_which_a_condition_breaks() {
    let divergence = 0.3;
    let blend = strict(divergence);
    let objectives = objectives(WORLD, START.len(), 1.0);
    let mut flock = Flock::new(&*blend, objectives.clone(), &START, RATE);
    flock.in_circles = false;
    let mut reference = START.to_vec();
    let (mut replicas, mut breaks) = (vec![START.to_vec(); WORLD], Vec::new());
    for step in 1..=60 {
        flock.step(&*blend).unwrap();
        let steps = replicas.iter().zip(&objectives).map(|(x, f)| descended(f, x, 1));
        replicas = steps.collect();
        // Twice: the f32 weights beside take the same steps.
        let far = |x: &Vec<f64>| 2.0 * square(x, &reference) > divergence;
        if step % CHECK == 0 && replicas.iter().any(far) {
            breaks.push(step);
            reference = mean(&replicas);
            replicas = vec![reference.clone(); WORLD];
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
