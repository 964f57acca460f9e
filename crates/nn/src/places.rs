//! A network that is not in one place: what each worker does of it where the plan cuts it into stages one after another
//! (`staged.rs`) or splits its layers (`tensored.rs`), and what is refused then.

use crate::cut;
use crate::learner::{Lecture, Network, Sizes};
use crate::parts;
use crate::pass::Weights;
use crate::split::Split;
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::staged::Staged;
use crate::sums::{Emission, Sums};
use crate::tensored::Tensored;
use starlings_core::{Fault, Result, Rng};
use starlings_learn::{Facts, Place, Work};

impl Network {
    /// This stage's part of a step.
    pub(crate) fn contribute_stage(
        &self,
        work: &mut Work<'_>,
        (stack, parameters): (&Stack, &[Parameter]),
        sums: &mut Sums,
    ) -> Result<()> {
        let layers = cut::section(stack, &work.place)?;
        let mine = stack.parameters_of(layers.clone());
        let weights = Weights::of(work.model, &parameters[mine.clone()], true);
        let turns = work.place.turns.iter().map(|turn| turn.micro_batch() as usize + 1);
        let size = work.batch.slices.len().div_ceil(turns.max().unwrap_or(1)).max(1);
        let parts = work.batch.slices.chunks(size);
        let micro_batches: Vec<Option<Lecture>> = parts
            .map(|slices| self.read(work.batch, slices, &work.place))
            .collect::<Result<_>>()?;
        let (network, weights, place) = (self, &weights, &work.place);
        let staged = Staged { network, stack, parameters, weights, layers, place };
        staged.step(micro_batches, work.moment, work.wires, sums)?;
        let links = vec![mine];
        Emission { parameters, links, outbox: work.outbox }.emit(sums);
        Ok(())
    }

    /// Sums for the grade, through the stages.
    pub(crate) fn score_stage(&self, work: &mut Work<'_>, stack: &Stack) -> Result<Vec<f64>> {
        let layers = cut::section(stack, &work.place)?;
        let parameters = stack.parameters();
        let mine = &parameters[stack.parameters_of(layers.clone())];
        let weights = &Weights::of(work.model, mine, false);
        let (network, parameters, place) = (self, parameters, &work.place);
        let staged = Staged { network, stack, parameters, weights, layers, place };
        staged.score(work.batch, work.wires)
    }

    /// This worker's part of a step whose layers are split.
    pub(crate) fn contribute_part(
        &self,
        work: &mut Work<'_>,
        (stack, parameters): (&Stack, &[Parameter]),
        sums: &mut Sums,
    ) -> Result<()> {
        let weights = &Weights::of(work.model, parameters, true);
        let split = &self.split_at(Sizes::of(work.model), &work.place)?;
        let (network, place) = (self, &work.place);
        let part = Tensored { network, stack, parameters, weights, split, place };
        let size = work.batch.slices.len().div_ceil(self.recipe.parts.max(1)).max(1);
        for slices in work.batch.slices.chunks(size) {
            // Every part reads the same rows.
            if let Some(lecture) = self.read(work.batch, slices, &Place::WHOLE)? {
                part.learn(lecture, work.moment, work.wires, sums)?;
            }
        }
        let links = std::iter::once(0..parameters.len()).collect();
        Emission { parameters, links, outbox: work.outbox }.emit(sums);
        Ok(())
    }

    /// Sums for the grade, through split layers.
    pub(crate) fn score_part(
        &self,
        work: &mut Work<'_>,
        (sizes, stack): (Sizes, &Stack),
    ) -> Result<Vec<f64>> {
        let parameters = stack.parameters();
        let weights = &Weights::of(work.model, parameters, false);
        let split = &self.split_at(sizes, &work.place)?;
        let (network, place) = (self, &work.place);
        let part = Tensored { network, stack, parameters, weights, split, place };
        part.score(work.batch, work.wires)
    }

    fn split_at(&self, sizes: Sizes, place: &Place) -> Result<Split> {
        self.split(&self.stack(sizes)?, (place.stage as usize, place.stages as usize))
    }

    /// The parameters of a place and what they start from. Their numbers do not depend on who has the others.
    pub(crate) fn started(
        &self,
        seed: u64,
        stack: &Stack,
        place: &Place,
    ) -> Result<Vec<(Parameter, Vec<f32>)>> {
        let (all, begun) = (stack.parameters(), stack.begun(seed));
        let draw = |index: usize| {
            let mut rng = Rng::named(seed, "network", &[index as u64]);
            let fresh = || all[index].start.draw(all[index].len(), &mut rng);
            begun[index].clone().unwrap_or_else(fresh)
        };
        if place.splits {
            let split = self.split(stack, (place.stage as usize, place.stages as usize))?;
            return parts::started(stack, &split, draw);
        }
        let mine = stack.parameters_of(cut::section(stack, place)?);
        Ok(mine.map(|index| (all[index].clone(), draw(index))).collect())
    }

    /// Which layers a place has, in words.
    pub(crate) fn told_place(&self, stack: &Stack, place: &Place) -> Option<String> {
        if place.stages == 1 {
            return None;
        }
        let some = match place.splits {
            true => {
                let split =
                    self.split(stack, (place.stage as usize, place.stages as usize)).ok()?;
                split.split_layers(stack)
            }
            false => cut::section(stack, place).ok()?.collect(),
        };
        let lines = some.iter().map(|&at| format!("{} '{}'", at + 1, stack.lines()[at]));
        let told = lines.collect::<Vec<_>>().join(", ");
        Some(match place.splits {
            true => format!("its share of layers {told}"),
            false => format!("layers {told}"),
        })
    }

    /// What only a whole model can do.
    pub(crate) fn check_place(&self, facts: &Facts, place: &Place) -> Result<()> {
        if place.stages == 1 {
            return Ok(());
        }
        let refuse = |what: &str, hint: &str| Err(Fault::caller(what.to_string()).hint(hint));
        if place.splits && !self.recipe.solver.is_row_wise() {
            return refuse(
                "this solver looks at whole matrices, and a part of a layer has but some of their columns or rows",
                "choose a solver that works number by number, such as adam",
            );
        }
        if place.splits {
            return Ok(());
        }
        if self.recipe.parts > 1 {
            return refuse(
                "the rows of a pipeline are cut by its micro-batches, not by accumulate",
                "leave out accumulate, and set micro_batches in [cluster] plan",
            );
        }
        let micro_batches = place.turns.iter().map(|turn| turn.micro_batch() + 1).max();
        match micro_batches {
            Some(count) if count > facts.shards => Err(Fault::caller(format!(
                "{count} micro-batches cannot be made of {} shards",
                facts.shards
            ))
            .hint(format!("raise `train.shards` to at least {count}, or use fewer micro-batches"))),
            _ => Ok(()),
        }
    }
}
