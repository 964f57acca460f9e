//! Dynamic averaging (Kamp et al., 2018): replicas are averaged only when they have drifted apart, and then no more of
//! them than it takes. Each watches a condition of its own, ‖xᵢ − r‖² ≤ Δ against the reference r, the last average of all.
//! While all conditions hold, the mean squared distance of the replicas to their mean is at most Δ.
//!
//! Every `check` steps there is a look, the paper's σ with partial balancing, made of sums because nobody coordinates:
//! - round 0, all: whose conditions are broken, a bit a seat. Where nobody's is, that was all.
//! - round 1, those alone (the circle B): deltas; they take their mean, and r stays.
//! - round 2, all: whether that mean holds the condition. If not, B doubles, and rounds 3 and 4 are as 1 and 2.
//!
//! When B has become everybody, the mean is also the new r. So it is at once when, since r last changed, as many conditions
//! have broken as there are seats: r itself is then out of date. An ending is a synchronisation of all, without a look.
//! Who is not in B sends no model. Each circle is summed anew: doubling makes that at most twice the last one's deltas.
//!
//! Where a codec cannot serve circles all of this leaves one case: whoever breaks its condition, all synchronise.

use super::together;
use crate::anchor::{add_counter, anchor, change, deltas, due, prepare, settle, summed, weights};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{
    Ability, Block, Entry, Kind, Model, Param, ParamKind, Role, Seat, Tensor, Update, Values,
};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "dynamic-averaging",
    summary: "Workers that have drifted too far average their models, with as many others as it takes to come back",
    reference: "Kamp et al.: Efficient decentralized deep learning by dynamic model averaging, ECML-PKDD 2018",
    params: &[
        Param {
            name: "divergence",
            kind: ParamKind::Float { min: 0.0, max: 1e12 },
            default: Some("0.1"),
            help: "squared distance from the last average of all beyond which a worker asks for another",
        },
        Param {
            name: "check",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Some("8"),
            help: "local steps between two looks at that distance",
        },
    ],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel],
    build: |params| {
        let (divergence, check) = (params.f64("divergence"), params.size("check") as u64);
        Ok(together(DynamicAveraging { divergence, check }))
    },
};

/// Conditions that have broken since r last changed: the paper's v.
const VIOLATIONS: &str = "blend.violations";

/// Whose conditions are broken, a bit a seat, while a look is in progress. It counts only from the look's round 0 on, which
/// writes it: should the look break off, the next one begins with its own, perhaps of other seats.
const VIOLATORS: &str = "blend.violators";

/// How many members of a circle find their mean too far from r.
const FAR: &str = "blend.far";

/// Seats that one number can name without touching its sign.
const SEATS_A_WORD: u32 = 63;

struct DynamicAveraging {
    divergence: f64,
    check: u64,
}

impl Blend for DynamicAveraging {
    fn share(&self) -> Share {
        Share::Own
    }

    fn averages(&self) -> bool {
        true
    }

    fn prepare(&self, model: &mut Model) {
        prepare(model);
        add_counter(model, VIOLATIONS);
        add_counter(model, VIOLATORS);
    }

    fn circle(&self, at: &At, round: u32, model: &Model) -> Option<Vec<Seat>> {
        let is_exchange = !at.ending && round % 2 == 1;
        let members = is_exchange.then(|| self.members(at, round, model))?;
        let is_part = !members.is_empty() && members.len() < at.world as usize;
        is_part.then_some(members)
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        let counts = |name, numbers| Some(Update { blocks: vec![Block::counts(name, numbers)] });
        match round {
            0 if at.ending => Some(deltas(at, model)),
            0 if due(at, self.check) => {
                let mut words = no_seats(at.world);
                if !self.holds(model) {
                    words[(at.seat.0 / SEATS_A_WORD) as usize] |= 1 << (at.seat.0 % SEATS_A_WORD);
                }
                counts(VIOLATORS, words)
            }
            _ if round == 0 || at.ending || how_many(model) == 0 => None,
            _ if round % 2 == 1 => Some(deltas(at, model)),
            _ => {
                let is_member = self.members(at, round - 1, model).contains(&at.seat);
                counts(FAR, vec![i64::from(is_member && !self.holds(model))])
            }
        }
    }

    fn absorb(&self, at: &At, round: u32, sum: &Update, model: &mut Model) {
        match round {
            _ if at.ending => synchronise(at, sum, model),
            0 => set_violators(model, sum.i64(VIOLATORS).to_vec()),
            _ if round % 2 == 1 => match self.members(at, round, model).len() {
                all if all == at.world as usize => synchronise(at, sum, model),
                some => balance(some, sum, model),
            },
            // Only now, with the last sum: whoever has not had it takes over the model of one who has.
            _ if sum.i64(FAR)[0] == 0 => {
                model.i64_mut(VIOLATIONS)[0] += i64::from(how_many(model));
                set_violators(model, no_seats(1));
            }
            _ => {}
        }
    }
}

impl DynamicAveraging {
    /// Whether the own condition holds. A distance that is no number breaks it.
    fn holds(&self, model: &Model) -> bool {
        squared_distance(model) <= self.divergence
    }

    /// Who exchanges deltas in this round of a look: the violators, and as many others as it has taken so far. Others are
    /// asked in the order of seats, beginning one further on at each look, so that it is not always the same who serve.
    fn members(&self, at: &At, round: u32, model: &Model) -> Vec<Seat> {
        let (words, violators) = (model.i64(VIOLATORS), how_many(model));
        let since = model.i64(VIOLATIONS)[0].saturating_add(violators.into());
        let is_out_of_date = since >= at.world.into();
        // The mean of one violator is known without a sum to be too far.
        let doublings = round / 2 + u32::from(violators == 1);
        let size = match violators {
            0 => 0,
            _ if is_out_of_date || !at.circles => at.world,
            _ => violators.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX)),
        };
        let first = (at.steps / self.check % u64::from(at.world)) as u32;
        let others = (0..at.world).map(|turn| (first + turn) % at.world);
        let others = others.filter(|&seat| !names(words, seat));
        let wanted = size.saturating_sub(violators).min(at.world) as usize;
        let mut members: Vec<Seat> =
            (0..at.world).filter(|&seat| names(words, seat)).map(Seat).collect();
        members.extend(others.take(wanted).map(Seat));
        members.sort_unstable();
        members
    }
}

/// All take the mean of all, which is the new reference.
fn synchronise(at: &At, sum: &Update, model: &mut Model) {
    let world = f64::from(at.world);
    for name in weights(model) {
        change(model, [&name, &anchor(&name)], summed(sum, &name), |[_, reference], sum| {
            [reference + sum / world; 2]
        });
    }
    settle(at, sum, model);
    model.i64_mut(VIOLATIONS)[0] = 0;
    set_violators(model, no_seats(1));
}

/// The members of a circle take their mean; the reference stays. They take it before they know whether it balances them: should it
/// not, they bring the same sum into a larger circle as their own models would have.
fn balance(members: usize, sum: &Update, model: &mut Model) {
    for name in weights(model) {
        change(model, [&name, &anchor(&name)], summed(sum, &name), |[_, reference], sum| {
            [reference + sum / members as f64, reference]
        });
    }
}

/// Words that name nobody, for so many seats.
fn no_seats(world: u32) -> Vec<i64> {
    vec![0; world.div_ceil(SEATS_A_WORD) as usize]
}

fn names(words: &[i64], seat: u32) -> bool {
    let word = words.get((seat / SEATS_A_WORD) as usize);
    word.is_some_and(|word| word & (1 << (seat % SEATS_A_WORD)) != 0)
}

/// How many conditions are broken in the look in progress; none, when none is.
fn how_many(model: &Model) -> u32 {
    model.i64(VIOLATORS).iter().map(|word| word.count_ones()).sum()
}

fn set_violators(model: &mut Model, words: Vec<i64>) {
    let mut tensor = Tensor::zeros(Kind::I64, &[words.len()], Role::State);
    tensor.values = Values::I64(words);
    model.set(VIOLATORS, tensor);
}

/// ‖x − r‖² over all float weights.
fn squared_distance(model: &Model) -> f64 {
    let values = |name: &str| &model.get(name).expect("prepared").values;
    let of = |name: String| match (values(&name), values(&anchor(&name))) {
        (Values::F32(now), Values::F32(then)) => squares(now, then),
        (Values::F64(now), Values::F64(then)) => squares(now, then),
        _ => panic!("'{name}' and its reference hold different kinds of numbers"),
    };
    weights(model).into_iter().map(of).sum()
}

fn squares<T: Copy + Into<f64>>(now: &[T], then: &[T]) -> f64 {
    now.iter().zip(then).map(|(&now, &then)| (now.into() - then.into()).powi(2)).sum()
}
