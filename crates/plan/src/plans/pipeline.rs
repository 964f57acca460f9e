//! Pipeline parallelism (Huang et al., 2019: GPipe): the model is cut into stages, each held by another worker,
//! and small batches flow through them. Whole pipelines are replicated: seat `s` is stage `s mod stages` of
//! pipeline `s / stages`, so that neighbouring seats, which are often on one machine, exchange activations.

use super::BuildPlan;
use crate::{Assignment, Plan, deal::deal};
use starlings_core::{Ability, Entry, Fault, Param, ParamKind, Result, Seat};

pub(super) const ENTRY: Entry<BuildPlan> = Entry {
    name: "pipeline",
    summary: "The model is cut into stages on several workers, and batches flow through them",
    reference: "Huang et al.: GPipe: Efficient training of giant neural networks using pipeline parallelism, NeurIPS 2019",
    params: &[Param {
        name: "stages",
        kind: ParamKind::Integer { min: 1, max: 1024 },
        default: Some("2"),
        help: "parts that the model is cut into; the number of workers must be a multiple of it",
    }],
    gives: &[Ability::Stages],
    needs: &[Ability::StagedModel],
    build: |params| Ok(Box::new(Pipeline { stages: params.size("stages") as u32 })),
};

struct Pipeline {
    stages: u32,
}

impl Plan for Pipeline {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        assert!(seat.0 < world, "{seat} in a flock of {world}");
        let stages = self.stages;
        if !world.is_multiple_of(stages) {
            let what = format!("{world} workers do not make whole pipelines of {stages} stages");
            let below = world - world % stages;
            let hint = match below {
                0 => format!("use {stages} workers, or fewer stages"),
                _ => format!(
                    "use {below} or {} workers, or another number of stages",
                    below + stages
                ),
            };
            return Err(Fault::caller(what).hint(hint));
        }
        let (stage, number) = (seat.0 % stages, seat.0 / stages);
        Ok(Assignment {
            shards: deal(number, world / stages, shards)?,
            stage,
            pipeline: (number * stages..(number + 1) * stages).map(Seat).collect(),
            group: (stage..world).step_by(stages as usize).map(Seat).collect(),
        })
    }

    fn stages(&self) -> u32 {
        self.stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Shard;

    #[test]
    fn neighbours_are_a_pipeline_and_equal_stages_are_a_group() {
        let assignment = Pipeline { stages: 2 }.assign(Seat(3), 6, 6).unwrap();
        assert_eq!(assignment.stage, 1);
        assert_eq!(assignment.pipeline, [2, 3].map(Seat));
        assert_eq!(assignment.group, [1, 3, 5].map(Seat));
        assert_eq!(assignment.shards, [2, 3].map(Shard));
    }

    #[test]
    fn a_flock_that_does_not_fit_hears_which_would() {
        let fault =
            |world| Pipeline { stages: 3 }.assign(Seat(0), world, 16).unwrap_err().to_string();
        assert!(fault(7).contains("6 or 9 workers"), "{}", fault(7));
        assert!(fault(2).contains("use 3 workers"), "{}", fault(2));
    }
}
