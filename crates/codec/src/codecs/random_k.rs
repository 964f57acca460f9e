//! The same random numbers of each block on all seats: random-k sparsification with memory (Stich et al., 2018). All seats
//! draw the same places from the seed and the step, so only the numbers travel, and sums can be made on the
//! way. What is not drawn waits at its seat; with momentum correction (Lin et al., 2018) it gathers velocities.
//!
//! One round. Dense blocks of floats that stand for a matrix or vector of the model are thinned; statistics, rows,
//! factors and integers travel as they are.
//! Cost: `ratio` of the numbers, in the kind of the block.

use super::BuildCodec;
use crate::float::{Float, floats};
use crate::kernels::select::share;
use crate::residuals::{residual_key, velocity_key};
use crate::{Next, Rounds, Scheme, Shapes};
use starlings_core::{Ability, Body, Entry, Kind, Param, ParamKind, Rng, Update, Values};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "random-k",
    summary: "Random numbers of each dense block travel, the same on all seats, the others wait at their seat; rows of tables travel as they are",
    reference: "Stich et al.: Sparsified SGD with memory, NeurIPS 2018",
    params: &[
        Param {
            name: "ratio",
            kind: ParamKind::Float { min: 1e-6, max: 1.0 },
            default: Some("0.1"),
            help: "which share of a block travels, one number at least",
        },
        Param {
            name: "momentum",
            kind: ParamKind::Float { min: 0.0, max: 0.999 },
            default: Some("0.0"),
            help: "momentum correction: gather velocities instead of gradients (with a solver that has no momentum of its own)",
        },
        Param {
            name: "seed",
            kind: ParamKind::Integer { min: 0, max: i64::MAX },
            default: Some("0"),
            help: "what the places are drawn from, together with the step",
        },
    ],
    gives: &[Ability::Summable],
    needs: &[],
    build: |params| {
        Ok(Scheme::Rounds(Box::new(RandomK {
            ratio: params.f64("ratio"),
            momentum: params.f64("momentum"),
            seed: params.i64("seed") as u64,
            shapes: Shapes::new(),
            held: BTreeMap::new(),
            pending: Vec::new(),
        })))
    },
};

struct RandomK {
    ratio: f64,
    momentum: f64,
    seed: u64,
    shapes: Shapes,
    held: BTreeMap<String, Held>,
    pending: Vec<Pending>,
}

/// What waits at the seat for a block.
struct Held {
    residual: Values,
    /// Empty without momentum.
    velocity: Values,
}

/// A block that is being summed: what will be held once the sum is there.
struct Pending {
    name: String,
    places: Vec<u32>,
    held: Held,
}

impl Rounds for RandomK {
    fn begin_seat(&self, shapes: &Shapes) -> Box<dyn Rounds> {
        Box::new(RandomK {
            shapes: shapes.clone(),
            held: BTreeMap::new(),
            pending: Vec::new(),
            ..*self
        })
    }

    fn first(&mut self, mut update: Update, step: u64, _world: u32) -> Update {
        self.pending.clear();
        for block in &mut update.blocks {
            let Body::Dense(values) = &mut block.body else { continue };
            if values.kind() == Kind::I64 || !self.shapes.contains_key(&block.name) {
                continue;
            }
            let mut rng = Rng::named(self.seed, &block.name, &[step]);
            let places = draw(values.len(), share(self.ratio, values.len()), &mut rng);
            let held = self.held.get(&block.name);
            let (held, thin) =
                floats!(&*values, given => thin(given, held, self.momentum, &places));
            *values = thin;
            self.pending.push(Pending { name: block.name.clone(), places, held });
        }
        update
    }

    fn next(&mut self, mut sum: Update) -> Next {
        let mut pending = std::mem::take(&mut self.pending).into_iter().peekable();
        for block in &mut sum.blocks {
            let Some(Pending { name, places, held }) =
                pending.next_if(|pending| pending.name == block.name)
            else {
                continue;
            };
            let Body::Dense(values) = &mut block.body else { continue };
            let len = held.residual.len();
            *values = floats!(&*values, thin => spread(thin, &places, len));
            self.held.insert(name, held);
        }
        Next::Done(sum)
    }

    fn save(&self) -> BTreeMap<String, Values> {
        let mut state = BTreeMap::new();
        for (block, held) in &self.held {
            state.insert(residual_key(block, 0), held.residual.clone());
            if !held.velocity.is_empty() {
                state.insert(velocity_key(block, 0), held.velocity.clone());
            }
        }
        state
    }

    fn restore(&mut self, mut state: BTreeMap<String, Values>) {
        self.pending.clear();
        self.held.clear();
        for block in self.shapes.keys() {
            let Some(residual) = state.remove(&residual_key(block, 0)) else { continue };
            let velocity = state.remove(&velocity_key(block, 0));
            let velocity = velocity.unwrap_or(Values::zeros(residual.kind(), 0));
            self.held.insert(block.clone(), Held { residual, velocity });
        }
    }
}

/// Different places below `len`, increasing (Floyd's sampling: Bentley and Floyd, 1987), by a bitmap.
fn draw(len: usize, count: usize, rng: &mut Rng) -> Vec<u32> {
    assert!(u32::try_from(len).is_ok(), "a block has fewer than 2^32 numbers");
    let mut chosen = vec![0u64; len.div_ceil(64)];
    for last in len - count..len {
        let place = rng.below(last as u64 + 1) as usize;
        let place = if chosen[place / 64] >> (place % 64) & 1 == 1 { last } else { place };
        chosen[place / 64] |= 1 << (place % 64);
    }
    let mut places = Vec::with_capacity(count);
    for (number, &word) in chosen.iter().enumerate() {
        let mut word = word;
        while word != 0 {
            places.push((number * 64) as u32 + word.trailing_zeros());
            word &= word - 1;
        }
    }
    places
}

/// What will be held, and what travels.
fn thin<T: Float>(
    given: &[T],
    held: Option<&Held>,
    momentum: f64,
    places: &[u32],
) -> (Held, Values) {
    let old = |which: fn(&Held) -> &Values| -> Vec<T> {
        let values = held.map(which).filter(|values| values.len() == given.len());
        let narrow = |values: &Values| floats!(values, inner => inner.iter().map(|x| T::of(x.wide())).collect());
        values.map_or_else(|| vec![T::default(); given.len()], narrow)
    };
    let mut residual = old(|held| &held.residual);
    let mut velocity = if momentum > 0.0 { old(|held| &held.velocity) } else { Vec::new() };
    if momentum > 0.0 {
        for ((sum, velocity), value) in residual.iter_mut().zip(&mut velocity).zip(given) {
            *velocity = T::of(momentum * velocity.wide() + value.wide()).faded();
            *sum += *velocity;
        }
    } else {
        residual.iter_mut().zip(given).for_each(|(sum, value)| *sum += *value);
    }
    let mut sent = Vec::with_capacity(places.len());
    for &place in places {
        sent.push(std::mem::take(&mut residual[place as usize]));
        if let Some(velocity) = velocity.get_mut(place as usize) {
            *velocity = T::default();
        }
    }
    // A number that is not finite must arrive, drawn or not. Such a step is undone or ends the run, so that what is
    // held after it must not poison later ones.
    let finite = |value: &T| value.wide().is_finite();
    if !residual.iter().all(finite) {
        sent.fill(T::of(f64::NAN));
        residual.iter_mut().filter(|value| !finite(value)).for_each(|value| *value = T::default());
        velocity.iter_mut().filter(|value| !finite(value)).for_each(|value| *value = T::default());
    }
    (Held { residual: T::values(residual), velocity: T::values(velocity) }, T::values(sent))
}

/// The sums at their places, and zeros.
fn spread<T: Float>(sums: &[T], places: &[u32], len: usize) -> Values {
    assert_eq!(sums.len(), places.len(), "the sum of other places");
    let mut all = vec![T::default(); len];
    places.iter().zip(sums).for_each(|(&place, sum)| all[place as usize] = *sum);
    T::values(all)
}
