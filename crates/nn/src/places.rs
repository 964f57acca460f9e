//! A network that is not in one place: what each worker does of it where the plan cuts it into stages one after another, splits
//! its layers, or does both, and what is refused then. A worker has a section of the layers (`section.rs`), through which
//! micro-batches go as its stage of the pipeline wants (`staged.rs`).

use crate::cut;
use crate::flow::Form;
use crate::learner::{Lecture, Network, Sizes};
use crate::parts;
use crate::pass::Weights;
use crate::recipe::pieces;
use crate::section::Section;
use crate::split::{Split, between_pair};
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::staged::Staged;
use crate::sums::{Emission, Sums};
use crate::unfold::unfolded;
use starlings_core::{Ability, Fault, Result, Rng, Turn};
use starlings_learn::{Facts, Place, Work};
use std::ops::Range;

/// Which layers of a stack a place has, how they are split, and the form of the rows that come in.
type Cutting = (Split, Range<usize>, Form);

impl Network {
    /// This place's part of a step.
    pub(crate) fn contribute_place(
        &self,
        work: &mut Work<'_>,
        (stack, parameters): (&Stack, &[Parameter]),
        sums: &mut Sums,
    ) -> Result<()> {
        let (split, stages, input) = self.cutting(Sizes::of(work.model), stack, &work.place)?;
        let mine = stack.parameters_of(stages.clone());
        let weights = &Weights::of(work.model, &parameters[mine.clone()], true);
        // A plan without micro-batches leaves it to the learner to take its rows in parts.
        let by_itself = (0..self.recipe.parts.max(1) as u32)
            .flat_map(|number| [Turn::Forward(number), Turn::Backward(number)]);
        let turns = match work.place.turns.is_empty() {
            true => by_itself.collect(),
            false => work.place.turns.clone(),
        };
        let count = turns.iter().map(|turn| turn.micro_batch() as usize + 1).max();
        let micro_batches: Vec<Option<Lecture>> = pieces(&work.batch.slices, count.unwrap_or(1))
            .map(|slices| self.read(work.batch, slices, &work.place))
            .collect::<Result<_>>()?;
        let (network, place) = (self, &work.place);
        let section = Section { stack, parameters, weights, split, stages, input, place };
        let staged = Staged { network, section, place };
        staged.step((micro_batches, &turns), work.moment, work.wires, sums)?;
        let links = vec![mine];
        Emission { parameters, links, outbox: work.outbox }.emit(sums);
        Ok(())
    }

    /// Sums for the grade, through all places.
    pub(crate) fn score_place(
        &self,
        work: &mut Work<'_>,
        (sizes, stack): (Sizes, &Stack),
    ) -> Result<Vec<f64>> {
        let (split, stages, input) = self.cutting(sizes, stack, &work.place)?;
        let parameters = stack.parameters();
        let mine = &parameters[stack.parameters_of(stages.clone())];
        let weights = &Weights::of(work.model, mine, false);
        let (network, place) = (self, &work.place);
        let section = Section { stack, parameters, weights, split, stages, input, place };
        Staged { network, section, place }.score(work.batch, work.wires)
    }

    /// What a place has of its own stack, which is that of the whole network or of its parts.
    fn cutting(&self, sizes: Sizes, stack: &Stack, place: &Place) -> Result<Cutting> {
        if !place.splits() {
            let layers = cut::section(stack, place)?;
            let input = stack.output_after(layers.start);
            return Ok((Split::none(stack.len()), layers, input));
        }
        let whole = self.stack(sizes)?;
        let split = self.split_at(&whole, place)?;
        let unfolded = unfolded(&whole);
        let stages = unfolded.of_layers(&cut::section(&whole, place)?);
        let input = match split.takes_whole(stages.start) {
            true => unfolded.pieces[stages.start].input,
            false => stack.output_after(stages.start),
        };
        Ok((split, stages, input))
    }

    fn split_at(&self, whole: &Stack, place: &Place) -> Result<Split> {
        self.split(whole, (place.part() as usize, place.parts as usize))
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
        let layers = cut::section(stack, place)?;
        if place.splits() {
            return parts::started((stack, &layers), &self.split_at(stack, place)?, draw);
        }
        let mine = stack.parameters_of(layers);
        Ok(mine.map(|index| (all[index].clone(), draw(index))).collect())
    }

    /// Which layers a place has, in words.
    pub(crate) fn told_place(&self, stack: &Stack, place: &Place) -> Option<String> {
        if place.stages == 1 {
            return None;
        }
        let layers = cut::section(stack, place).ok()?;
        let told = |some: &[usize]| {
            let lines = some.iter().map(|&at| format!("{} '{}'", at + 1, stack.lines()[at]));
            lines.collect::<Vec<_>>().join(", ")
        };
        if !place.splits() {
            return Some(format!("layers {}", told(&layers.collect::<Vec<_>>())));
        }
        let split = self.split_at(stack, place).ok()?.split_layers(stack);
        let (shared, whole): (Vec<usize>, Vec<usize>) =
            layers.partition(|layer| split.contains(layer));
        Some(match (shared.as_slice(), place.depths()) {
            ([], _) => format!("layers {}", told(&whole)),
            (_, 1) => format!("its share of layers {}", told(&shared)),
            _ if whole.is_empty() => format!("its share of layers {}", told(&shared)),
            _ => format!("its share of layers {}; all of {}", told(&shared), told(&whole)),
        })
    }

    /// Why it does not give an ability that other parameters would give.
    pub(crate) fn lacks(&self, ability: Ability) -> Option<String> {
        let is_row_wise = self.recipe.solver.is_row_wise();
        let whole = "its solver looks at whole matrices";
        match ability {
            Ability::SplitModel if !is_row_wise => Some(whole.to_string()),
            Ability::SplitModel => Some(match self.between().as_slice() {
                [] => "it has no two layers that can be split together".to_string(),
                [one] => format!(
                    "{one} stands between the layers that would be split, and works on whole rows"
                ),
                some => format!(
                    "{} stand between the layers that would be split, and work on whole rows",
                    some.join(" and ")
                ),
            }),
            Ability::RowWise if !is_row_wise => Some(whole.to_string()),
            Ability::RowWise if self.recipe.clip_norm > 0.0 => {
                Some("clip_norm measures the gradient of all parameters".to_string())
            }
            Ability::RowWise if self.tracks => {
                Some("batch normalisation tracks means over all rows of a step".to_string())
            }
            Ability::RowWise | Ability::LocalSteps if self.recipe.patience > 0 => {
                Some("patience needs the loss of all rows".to_string())
            }
            _ => None,
        }
    }

    /// What to change so that it gives an ability.
    pub(crate) fn cure(&self, ability: Ability) -> Option<String> {
        if ability != Ability::SplitModel || !self.recipe.solver.is_row_wise() {
            return None;
        }
        Some(match self.between().as_slice() {
            [] => "give it a hidden layer".to_string(),
            some => format!("leave out {}", some.join(" and ")),
        })
    }

    /// The layers that keep two others from being split together, with their numbers.
    fn between(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.push("linear 1".to_string());
        let found = between_pair(&lines).unwrap_or_default();
        found.into_iter().map(|at| format!("layer {} '{}'", at + 1, lines[at])).collect()
    }

    /// What only a whole model can do.
    pub(crate) fn check_place(&self, facts: &Facts, place: &Place) -> Result<()> {
        let refuse = |what: &str, hint: &str| Err(Fault::caller(what.to_string()).hint(hint));
        if place.splits() && !self.recipe.solver.is_row_wise() {
            return refuse(
                "this solver looks at whole matrices, and a part of a layer has but some of their columns or rows",
                "choose a solver that works number by number, such as adam",
            );
        }
        if place.depths() == 1 {
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
            .hint(format!(
                "set micro_batches to at most {}, or raise `train.shards`",
                facts.shards
            ))),
            _ => Ok(()),
        }
    }
}
