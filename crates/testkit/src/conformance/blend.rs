//! The laws of blends, of tempers and of what controls mixing. Blends are run in a small flock of replicas, each of
//! which descends a quadratic of its own: pure arithmetic, in which the papers' recurrences can be written down.

mod flock;

pub use flock::{Flock, Quadratic, objectives};

use super::{Verdict, ensure};
use starlings_consistency::{At, Blend, Late, MixControl, Temper};
use starlings_core::{Block, Body, Kind, Role, Rows, Seat, Values};

const STEPS: u64 = 23;
const FAR: f64 = 1_000.0;
/// So many rounds of an exchange are broken off, each in a run of its own.
const BROKEN_ROUNDS: u32 = 6;

/// All laws but [`check_alone`]. `make` builds the same blend afresh, for whatever a blend remembers must lie in
/// the model.
///
/// # Errors
/// The first broken law.
pub fn check(make: &dyn Fn() -> Box<dyn Blend>) -> Verdict {
    check_memory(&*make())?;
    for world in [1, 2, 3, 5] {
        check_offers(&*make(), world)?;
        check_endings(make, world)?;
        check_stillness(&*make(), world)?;
        for in_circles in [true, false] {
            for round in 0..BROKEN_ROUNDS {
                check_breaks(&*make(), world, round, in_circles)?;
            }
        }
    }
    Ok(())
}

/// Only tensors of our own names are added, as state, and only once.
fn check_memory(blend: &dyn Blend) -> Verdict {
    let flock = Flock::new(blend, objectives(1, 3, 1.0), &[1.0; 3], 0.1);
    let theirs = ["narrow", "tally", "weights", "weights.clock", "weights.momentum"];
    for (name, tensor) in flock.models[0].iter().filter(|(name, _)| !theirs.contains(name)) {
        ensure!(name.starts_with("blend."), "it remembers '{name}': its names begin with blend.");
        ensure!(tensor.role == Role::State, "'{name}' is no weight: it is state");
    }
    let mut walked = flock;
    walked.walk(blend);
    let mut again = walked.models[0].clone();
    blend.prepare(&mut again);
    ensure!(again == walked.models[0], "a model that was prepared already is changed");
    Ok(())
}

/// Replicas agree after each ending; a second ending changes nothing; a blend built afresh goes on alike.
fn check_endings(make: &dyn Fn() -> Box<dyn Blend>, world: usize) -> Verdict {
    let blend = make();
    let start = [FAR, 0.5, 0.0];
    let mut flock = Flock::new(&*blend, objectives(world, 3, 1.0), &start, 0.1);
    let mut fresh = Flock::new(&*make(), objectives(world, 3, 1.0), &start, 0.1);
    for step in 1..=STEPS {
        flock.step(&*blend)?;
        fresh.step(&*make())?;
        ensure!(flock.models == fresh.models, "step {step}: it remembers beside the model");
        // A checkpoint at some step that is due for few periods, and the end.
        if step == 11 || step == STEPS {
            flock.exchange(&*blend, true)?;
            ensure!(flock.agrees(), "{world} workers differ after the ending at step {step}");
            let before = flock.models[0].digest();
            let at = first_at(step, world, true);
            for block in blend.offer(&at, 0, &mut flock.models[0]).unwrap_or_default().blocks {
                ensure!(
                    largest(&block) == 0.0,
                    "'{}' is offered again after an ending",
                    block.name
                );
            }
            flock.exchange(&*blend, true)?;
            let after = flock.models[0].digest();
            ensure!(before == after, "a second ending at step {step} changes the model");
            fresh.exchange(&*make(), true)?;
        }
    }
    ensure!(flock.models[0].f64("weights") != start, "the model never moves");
    let finite = flock.models[0].iter().all(|(_, tensor)| tensor.values.all_finite());
    ensure!(finite, "a model of {world} workers is not finite");
    Ok(())
}

/// Wherever exchanges break off, and whoever has heard the last sum or is lost then, replicas agree after the ending.
fn check_breaks(blend: &dyn Blend, world: usize, round: u32, in_circles: bool) -> Verdict {
    let start = [1.0, 0.5, 0.0];
    // Two move in opposite directions, one more slowly, the others stay where they are.
    let shifts = [2.0, -2.0, 0.1, 0.0, 0.0];
    let objective = |seat: usize| Quadratic {
        curvature: vec![0.5; start.len()],
        target: start.iter().map(|x| x + shifts[seat % shifts.len()]).collect(),
    };
    let mut flock = Flock::new(blend, (0..world).map(objective).collect(), &start, 0.1);
    flock.in_circles = in_circles;
    let mut broken = 0;
    for step in 0..STEPS as usize {
        flock.walk(blend);
        // Another half each time.
        let hears = |seat: usize| (seat + step).is_multiple_of(2);
        if !flock.break_off(blend, round, &hears)? {
            continue;
        }
        broken += 1;
        if broken == 2 && flock.models.len() > 1 {
            flock.lose_last();
        }
        flock.step(blend)?;
    }
    flock.exchange(blend, true)?;
    ensure!(flock.agrees(), "{world} workers differ after exchanges broke off in round {round}");
    Ok(())
}

/// Replicas that are equal and take no step stay as they are.
fn check_stillness(blend: &dyn Blend, world: usize) -> Verdict {
    let start = [3.0, -0.5, 0.0];
    let mut flock = Flock::new(blend, objectives(world, 3, 1.0), &start, 0.1);
    for step in 1..=STEPS {
        flock.steps = step;
        flock.exchange(blend, step == STEPS)?;
        ensure!(flock.agrees(), "still replicas differ after step {step}");
        ensure!(flock.models[0].f64("weights") == start, "a still model moves at step {step}");
    }
    Ok(())
}

/// Offers are no longer than the way that a model has gone: deltas, and never models.
fn check_offers(blend: &dyn Blend, world: usize) -> Verdict {
    let mut flock = Flock::new(blend, objectives(world, 3, FAR), &[FAR; 3], 0.1);
    for step in 1..=STEPS {
        flock.walk(blend);
        let at = first_at(step, world, step == STEPS);
        for model in &mut flock.models {
            let blocks = blend.offer(&at, 0, model).unwrap_or_default().blocks;
            for block in &blocks {
                let largest = largest(block);
                ensure!(
                    largest < FAR / 2.0,
                    "step {step}: the offer of '{}' has {largest}, a model and no delta",
                    block.name
                );
            }
        }
        flock.exchange(blend, at.ending)?;
    }
    Ok(())
}

/// Where seat 0 is; offers of round 0 are deltas or counts at any seat.
fn first_at(steps: u64, world: usize, ending: bool) -> At {
    At { steps, seat: Seat(0), world: world as u32, circles: true, ending }
}

fn largest(block: &Block) -> f64 {
    let values = match &block.body {
        Body::Dense(values) => values,
        Body::Rows(rows) => &rows.values,
        Body::Factors(_) => return f64::INFINITY,
    };
    let numbers: Vec<f64> = match values {
        Values::F32(values) => values.iter().map(|&x| f64::from(x)).collect(),
        Values::F64(values) => values.clone(),
        Values::I64(values) => values.iter().map(|&x| x as f64).collect(),
    };
    numbers.into_iter().fold(0.0, |most, x| most.max(x.abs()))
}

/// With one worker and no momentum of its own, the blend changes nothing: plain steps.
///
/// # Errors
/// Where the models part.
pub fn check_alone(blend: &dyn Blend) -> Verdict {
    let objective = objectives(1, 3, 2.0);
    let mut plain = vec![FAR, 0.5, 0.0];
    let mut flock = Flock::new(blend, objective.clone(), &plain, 0.1);
    for step in 1..=STEPS {
        flock.step(blend)?;
        if step == 11 || step == STEPS {
            flock.exchange(blend, true)?;
        }
        let gradient = objective[0].gradient(&plain);
        plain.iter_mut().zip(gradient).for_each(|(x, g)| *x -= 0.1 * g);
        for (found, expected) in flock.models[0].f64("weights").iter().zip(&plain) {
            let close = (found - expected).abs() <= 1e-12 * FAR;
            ensure!(close, "step {step} alone: {found} instead of {expected}");
        }
        ensure!(flock.models[0].i64("weights.clock")[0] == step as i64, "the clock is changed");
    }
    Ok(())
}

/// The laws of a temper.
///
/// # Errors
/// The first broken law.
pub fn check_temper(temper: &dyn Temper) -> Verdict {
    let of = |values| Rows { total: 9, width: 2, index: vec![1, 7], values };
    let gradient = of(Values::F64(vec![3.0, -0.5, 0.0, 12.0]));
    let narrow = of(Values::F32(vec![3.0, -0.5, 0.0, 12.0]));
    let counts = of(Values::I64(vec![3, -5, 0, 12]));
    for rows in [&gradient, &narrow, &counts] {
        let late = Late {
            staleness: 0,
            world: 4,
            share: 6,
            read: Some(rows),
            now: Some(rows),
            squares: None,
        };
        let mut tempered = rows.clone();
        temper.temper(&mut tempered, &late);
        ensure!(&tempered == rows, "a contribution that is not late is changed to {tempered:?}");
    }
    for staleness in [0, 1, 2, 40] {
        for rows in [&gradient, &narrow, &counts] {
            let now = of(match rows.values.kind() {
                Kind::F32 => Values::F32(vec![1.0, 2.0, 3.0, 4.0]),
                Kind::F64 => Values::F64(vec![1.0, 2.0, 3.0, 4.0]),
                Kind::I64 => Values::I64(vec![1, 2, 3, 4]),
            });
            let late = Late {
                staleness,
                world: 4,
                share: 6,
                read: Some(rows),
                now: Some(&now),
                squares: None,
            };
            let mut tempered = rows.clone();
            temper.temper(&mut tempered, &late);
            let whole = tempered.index == rows.index && tempered.is_sound();
            ensure!(whole && tempered.values.all_finite(), "rows are changed to {tempered:?}");
            ensure!(rows != &counts || tempered == counts, "counts are changed to {tempered:?}");
        }
    }
    Ok(())
}

/// The laws of what controls mixing.
///
/// # Errors
/// The first broken law.
pub fn check_mixing(control: &dyn MixControl, rounds_max: u32) -> Verdict {
    let distances = [0.0, 1e-9, 0.1, 1.0, 7.0, 1e12, f64::INFINITY];
    for critical in distances {
        let mut before = 0;
        for distance in distances {
            let again = |rounds: &u32| !control.again(3, *rounds, distance, critical);
            let rounds = (0..=rounds_max).find(again).unwrap_or(u32::MAX);
            ensure!(rounds >= 1, "at {distance} with {critical} allowed nobody mixes");
            ensure!(rounds <= rounds_max, "at {distance} more than {rounds_max} rounds");
            ensure!(rounds >= before, "a larger distance of {distance} asks for fewer rounds");
            before = rounds;
        }
        let allowed = distances[..6].iter().map(|&moved| control.critical(moved, critical));
        let allowed: Vec<f64> = allowed.collect();
        ensure!(allowed.is_sorted(), "a larger step lowers the critical distance: {allowed:?}");
        ensure!(allowed[0] >= 0.0, "a critical distance of {}", allowed[0]);
    }
    Ok(())
}
