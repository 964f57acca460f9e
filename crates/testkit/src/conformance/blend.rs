//! The laws of blends, of tempers and of what controls mixing. Blends are run in a small flock of replicas, each of
//! which descends a quadratic of its own: pure arithmetic, in which the papers' recurrences can be written down.

use super::{Verdict, ensure};
use starlings_consistency::{At, Blend, Late, MixControl, Share, Temper};
use starlings_core::{Block, Body, Kind, Model, Role, Rows, Tensor, Update, Values};

/// A worker's objective: ½ Σ curvature (x − target)².
#[derive(Clone, Debug)]
pub struct Quadratic {
    /// How steep each coordinate is.
    pub curvature: Vec<f64>,
    /// The minimum.
    pub target: Vec<f64>,
}

impl Quadratic {
    /// The gradient at a point.
    #[must_use]
    pub fn gradient(&self, at: &[f64]) -> Vec<f64> {
        let parts = at.iter().zip(&self.curvature).zip(&self.target);
        parts.map(|((x, curvature), target)| curvature * (x - target)).collect()
    }
}

/// Replicas, and what they have exchanged.
pub struct Flock {
    /// One replica a seat: `weights` (f64), and beside it tensors of all kinds and roles.
    pub models: Vec<Model>,
    /// Own steps that each has made.
    pub steps: u64,
    /// Bytes that all seats have offered.
    pub bytes: usize,
    /// The steps after which deltas were exchanged.
    pub exchanges: Vec<u64>,
    objectives: Vec<Quadratic>,
    rate: f64,
}

impl Flock {
    /// Equal replicas at `start`, prepared by the blend, one for each objective, that descend at this rate.
    #[must_use]
    pub fn new(blend: &dyn Blend, objectives: Vec<Quadratic>, start: &[f64], rate: f64) -> Flock {
        let mut model = Model::new();
        let tensor = |values: Values, role| Tensor { shape: vec![values.len()], values, role };
        model.set("weights", tensor(Values::F64(start.to_vec()), Role::Weight));
        let narrow = start.iter().map(|&x| x as f32).collect();
        model.set("narrow", tensor(Values::F32(narrow), Role::Weight));
        model.set("tally", tensor(Values::I64(vec![i64::MAX - 40_000; 2]), Role::Weight));
        model.set("weights.clock", tensor(Values::I64(vec![0; 2]), Role::State));
        model.set("weights.momentum", tensor(Values::F64(vec![0.0; start.len()]), Role::State));
        blend.prepare(&mut model);
        Flock {
            models: vec![model; objectives.len()],
            steps: 0,
            bytes: 0,
            exchanges: Vec::new(),
            objectives,
            rate,
        }
    }

    /// A local step of each replica, and what the blend exchanges after it.
    ///
    /// # Errors
    /// When only some offer.
    pub fn step(&mut self, blend: &dyn Blend) -> Verdict {
        self.walk(blend);
        self.exchange(blend, false)
    }

    /// Local steps alone.
    pub fn walk(&mut self, blend: &dyn Blend) {
        self.steps += 1;
        let rate = match blend.share() {
            Share::Own => self.rate,
            Share::Flock => self.rate / self.models.len() as f64,
        };
        for (seat, (model, objective)) in self.models.iter_mut().zip(&self.objectives).enumerate() {
            let gradient = objective.gradient(model.f64("weights"));
            descend(model, &gradient, rate, seat as i64);
        }
    }

    /// What the blend exchanges now: rounds of sums, folded in the order of the seats.
    ///
    /// # Errors
    /// When only some offer, offers differ in shape or change when they are asked for again, or rounds never end.
    pub fn exchange(&mut self, blend: &dyn Blend, ending: bool) -> Verdict {
        let at = At { steps: self.steps, world: self.models.len() as u32, ending };
        for round in 0..8 {
            let offer = |model: &mut Model| blend.offer(&at, round, model);
            let offers: Vec<Option<Update>> = self.models.iter_mut().map(offer).collect();
            let again: Vec<Option<Update>> = self.models.iter_mut().map(offer).collect();
            ensure!(offers == again, "round {round} at {at:?}: asked twice, two different offers");
            let Some(offers) = offers.iter().cloned().collect::<Option<Vec<Update>>>() else {
                ensure!(
                    offers.iter().all(Option::is_none),
                    "round {round} at {at:?}: only some of the workers offer"
                );
                return Ok(());
            };
            self.bytes += offers.iter().map(Update::bytes).sum::<usize>();
            if offers[0].get("weights").is_some() {
                self.exchanges.push(self.steps);
            }
            let mut sum = offers[0].clone();
            for offer in &offers[1..] {
                sum.fold(offer).map_err(|why| format!("round {round} at {at:?}: {why}"))?;
            }
            self.models.iter_mut().for_each(|model| blend.absorb(&at, round, &sum, model));
        }
        Err(format!("eight rounds at {at:?} and no end"))
    }

    /// The mean of the replicas' weights.
    #[must_use]
    pub fn mean(&self) -> Vec<f64> {
        let world = self.models.len() as f64;
        let mut mean = vec![0.0; self.models[0].f64("weights").len()];
        for model in &self.models {
            mean.iter_mut().zip(model.f64("weights")).for_each(|(mean, x)| *mean += x / world);
        }
        mean
    }

    /// Whether all replicas hold the same bits.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.models.iter().all(|model| model.digest() == self.models[0].digest())
    }
}

/// A step of everything that the model holds; what is not a weight moves differently at each seat.
fn descend(model: &mut Model, gradient: &[f64], rate: f64, seat: i64) {
    for (weight, g) in model.f64_mut("weights").iter_mut().zip(gradient) {
        *weight -= rate * g;
    }
    for (momentum, g) in model.f64_mut("weights.momentum").iter_mut().zip(gradient) {
        *momentum = 0.5 * *momentum + g;
    }
    if let Some(Tensor { values: Values::F32(narrow), .. }) = model.get_mut("narrow") {
        let moves = narrow.iter_mut().zip(gradient);
        moves.for_each(|(weight, g)| *weight -= (rate * g) as f32);
    }
    model.i64_mut("tally")[0] += 2 * seat + 3;
    model.i64_mut("weights.clock").iter_mut().for_each(|clock| *clock += 1 + seat);
}

/// Objectives whose minima lie apart, near `centre`.
#[must_use]
pub fn objectives(world: usize, len: usize, centre: f64) -> Vec<Quadratic> {
    let of = |seat: usize| Quadratic {
        curvature: (0..len).map(|k| 0.4 + 0.1 * ((seat + k) % 4) as f64).collect(),
        target: (0..len).map(|k| centre + (seat as f64 - 0.7) * (k as f64 + 1.0) / 3.0).collect(),
    };
    (0..world).map(of).collect()
}

const STEPS: u64 = 23;
const FAR: f64 = 1_000.0;

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
            let at = At { steps: step, world: world as u32, ending: true };
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
        let at = At { steps: step, world: world as u32, ending: step == STEPS };
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
