//! Tensor parallelism (Shoeybi et al., 2019: Megatron-LM): the layers of a model are split among workers that compute the same
//! rows together. Groups of such workers are replicated, each with its own rows.

use super::BuildPlan;
use super::pipeline::no_whole_groups;
use crate::{Assignment, Plan, deal::deal};
use starlings_core::{Ability, Entry, Param, ParamKind, Result, Seat};

pub(super) const ENTRY: Entry<BuildPlan> = Entry {
    name: "tensor",
    summary: "Layers are split among workers, which compute the same rows together",
    reference: "Shoeybi et al.: Megatron-LM: Training multi-billion parameter language models using model parallelism, 2019; \
                Yuan et al.: OneFlow: Redesign the distributed deep learning framework from scratch, 2021",
    params: &[Param {
        name: "parts",
        kind: ParamKind::Integer { min: 1, max: 1024 },
        default: Some("2"),
        help: "workers that share the layers of a model; the number of workers must be a multiple of it",
    }],
    gives: &[Ability::Stages],
    needs: &[Ability::SplitModel, Ability::Sum, Ability::Barrier],
    build: |params| Ok(Box::new(Tensor { parts: params.size("parts") as u32 })),
};

struct Tensor {
    parts: u32,
}

impl Plan for Tensor {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        assert!(seat.0 < world, "{seat} in a flock of {world}");
        let parts = self.parts;
        if !world.is_multiple_of(parts) {
            return Err(no_whole_groups(world, (parts, "groups", "parts")));
        }
        let (part, number) = (seat.0 % parts, seat.0 / parts);
        Ok(Assignment {
            shards: deal(number, world / parts, shards)?,
            stage: part,
            pipeline: (number * parts..(number + 1) * parts).map(Seat).collect(),
            group: (part..world).step_by(parts as usize).map(Seat).collect(),
            layers: Vec::new(),
            turns: Vec::new(),
            parts,
        })
    }

    fn stages(&self) -> u32 {
        self.parts
    }

    fn parts(&self) -> u32 {
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_layers_and_rows() {
        let params = ENTRY.check("plan", &"parts = 2".parse().unwrap()).unwrap();
        let plan = (ENTRY.build)(&params).unwrap();
        let assignment = plan.assign(Seat(3), 4, 4).unwrap();
        assert_eq!((assignment.stage, assignment.parts), (1, 2));
        assert_eq!(assignment.pipeline, [2, 3].map(Seat));
        assert_eq!(assignment.group, [1, 3].map(Seat));
        let fault = plan.assign(Seat(0), 3, 4).unwrap_err().to_string();
        assert!(fault.contains("3 workers do not make whole groups of 2 parts"), "{fault}");
    }
}
