//! A flock of replicas without an engine: each descends a quadratic of its own, and exchanges are sums in the order of the
//! seats, which may break off.

use crate::conformance::{Verdict, ensure};
use starlings_consistency::{At, Blend, Share};
use starlings_core::{Model, Role, Seat, Tensor, Update, Values};

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

/// Rounds after which an exchange is held to have no end.
const ROUNDS_MAX: u32 = 24;

/// Replicas, and what they have exchanged.
pub struct Flock {
    /// One replica a seat: `weights` (f64), and beside it tensors of all kinds and roles.
    pub models: Vec<Model>,
    /// Own steps that each has made.
    pub steps: u64,
    /// Bytes that all seats have offered.
    pub bytes: usize,
    /// The steps after which deltas were exchanged, by all or by some.
    pub exchanges: Vec<u64>,
    /// Who exchanged deltas without the others, and after which step.
    pub circles: Vec<(u64, Vec<u32>)>,
    /// Whether some can sum without the others.
    pub in_circles: bool,
    objectives: Vec<Quadratic>,
    rate: f64,
}

/// Who took part in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Nobody,
    Circle,
    All,
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
            circles: Vec::new(),
            in_circles: true,
            objectives,
            rate,
        }
    }

    /// A local step of each replica, and what the blend exchanges after it.
    ///
    /// # Errors
    /// As [`exchange`](Flock::exchange).
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
    /// When only some offer, seats name different circles, offers differ in shape or change when they are asked for again,
    /// or rounds never end or end among some.
    pub fn exchange(&mut self, blend: &dyn Blend, ending: bool) -> Verdict {
        let mut last = Round::All;
        for round in 0..ROUNDS_MAX {
            let before = std::mem::replace(&mut last, self.round(blend, round, ending, &|_| true)?);
            if last == Round::Nobody {
                ensure!(
                    before != Round::Circle,
                    "step {}: the exchange ends with a sum of some alone",
                    self.steps
                );
                return Ok(());
            }
        }
        Err(format!("{ROUNDS_MAX} rounds after step {} and no end", self.steps))
    }

    /// As [`exchange`](Flock::exchange) before an ending, but only some hear the sum of this round, and all break off. As the
    /// engine has it, whoever is done by then is a step ahead, and the others take over its model; if nobody is, all take
    /// that step again. Says whether there was such a round.
    ///
    /// # Errors
    /// As [`exchange`](Flock::exchange).
    pub fn break_off(
        &mut self,
        blend: &dyn Blend,
        round: u32,
        hears: &dyn Fn(usize) -> bool,
    ) -> Result<bool, String> {
        for earlier in 0..round {
            if self.round(blend, earlier, false, &|_| true)? == Round::Nobody {
                return Ok(false);
            }
        }
        if self.round(blend, round, false, hears)? == Round::Nobody {
            return Ok(false);
        }
        let done = (0..self.models.len()).filter(|&seat| hears(seat)).find(|&seat| {
            let (at, model) = (self.at(seat, false), &mut self.models[seat]);
            blend.circle(&at, round + 1, model).is_none()
                && blend.offer(&at, round + 1, model).is_none()
        });
        match done {
            Some(seat) => self.models = vec![self.models[seat].clone(); self.models.len()],
            None => self.steps -= 1,
        }
        Ok(true)
    }

    /// The last seat is gone.
    pub fn lose_last(&mut self) {
        self.models.pop();
        self.objectives.pop();
    }

    fn at(&self, seat: usize, ending: bool) -> At {
        let (seat, world) = (Seat(seat as u32), self.models.len() as u32);
        At { steps: self.steps, seat, world, circles: self.in_circles, ending }
    }

    /// One round, whose sum is heard by some of those who made it.
    fn round(
        &mut self,
        blend: &dyn Blend,
        round: u32,
        ending: bool,
        hears: &dyn Fn(usize) -> bool,
    ) -> Result<Round, String> {
        let ats: Vec<At> = (0..self.models.len()).map(|seat| self.at(seat, ending)).collect();
        let place = format!("round {round} at {:?}", ats[0]);
        let circle = self.circle(blend, round, &ats)?;
        let everyone = 0..self.models.len();
        let members: Vec<usize> = match &circle {
            Some(circle) => circle.iter().map(|seat| seat.index()).collect(),
            None => everyone.collect(),
        };
        let mut ask = || -> Vec<Option<Update>> {
            let of = |&seat: &usize| blend.offer(&ats[seat], round, &mut self.models[seat]);
            members.iter().map(of).collect()
        };
        let (offers, again) = (ask(), ask());
        ensure!(offers == again, "{place}: asked twice, two different offers");
        let Some(offers) = offers.iter().cloned().collect::<Option<Vec<Update>>>() else {
            ensure!(
                offers.iter().all(Option::is_none) && circle.is_none(),
                "{place}: only some of the workers offer"
            );
            return Ok(Round::Nobody);
        };
        self.bytes += offers.iter().map(Update::bytes).sum::<usize>();
        if offers[0].get("weights").is_some() {
            self.exchanges.push(self.steps);
            let named = |circle: &Vec<Seat>| circle.iter().map(|seat| seat.0).collect();
            self.circles.extend(circle.as_ref().map(|circle| (self.steps, named(circle))));
        }
        let mut sum = offers[0].clone();
        for offer in &offers[1..] {
            sum.fold(offer).map_err(|why| format!("{place}: {why}"))?;
        }
        for seat in members.into_iter().filter(|&seat| hears(seat)) {
            blend.absorb(&ats[seat], round, &sum, &mut self.models[seat]);
        }
        Ok(if circle.is_some() { Round::Circle } else { Round::All })
    }

    /// The circle that all seats name, if they name one.
    fn circle(
        &self,
        blend: &dyn Blend,
        round: u32,
        ats: &[At],
    ) -> Result<Option<Vec<Seat>>, String> {
        let of = |(at, model)| blend.circle(at, round, model);
        let circles: Vec<Option<Vec<Seat>>> = ats.iter().zip(&self.models).map(of).collect();
        let place = format!("round {round} at {:?}", ats[0]);
        ensure!(
            circles.iter().all(|circle| circle == &circles[0]),
            "{place}: the workers name different circles, {circles:?}"
        );
        if let Some(circle) = &circles[0] {
            ensure!(self.in_circles, "{place}: a circle where some cannot sum by themselves");
            let is_within = circle.last().is_some_and(|last| last.0 < ats[0].world);
            let is_sorted = circle.is_sorted_by(|a, b| a < b);
            ensure!(is_within && is_sorted, "{place}: {circle:?} are not seats in their order");
        }
        Ok(circles.into_iter().next().flatten())
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
