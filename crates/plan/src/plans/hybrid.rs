//! Data × pipeline × tensor parallelism as one product (Narayanan et al., 2021): so many replicas of the model side by side, each
//! a pipeline of so many stages, the layers of each stage split among so many workers. Every replica has its own rows; the
//! gradients of a part of a stage are summed among its replicas alone.
//!
//! Seat ((d · pipeline) + s) · tensor + t is part t of stage s of replica d. So those who talk most are neighbours, which are often
//! on one machine: the parts of a layer first, then the stages of a pipeline.

use super::BuildPlan;
use super::pipeline::{COSTS, LAYERS, MICRO_BATCHES, Pipeline, SCHEDULE, WORKERS};
use crate::{Assignment, Plan};
use starlings_core::{Ability, Entry, Fault, Param, ParamKind, Result, Seat};

pub(super) const ENTRY: Entry<BuildPlan> = Entry {
    name: "hybrid",
    summary: "A grid of workers: replicas with their own rows × stages of a pipeline × parts of layers",
    reference: "Narayanan et al.: Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021",
    params: &[
        Param {
            name: "data",
            kind: ParamKind::Integer { min: 1, max: 4096 },
            default: Some("2"),
            help: "replicas of the model side by side, each with its own rows",
        },
        Param {
            name: "pipeline",
            kind: ParamKind::Integer { min: 1, max: 1024 },
            default: Some("2"),
            help: "stages of each replica",
        },
        Param {
            name: "tensor",
            kind: ParamKind::Integer { min: 1, max: 1024 },
            default: Some("1"),
            help: "workers that share the layers of each stage; data × pipeline × tensor is the number of workers",
        },
        SCHEDULE,
        MICRO_BATCHES,
        COSTS,
        LAYERS,
        WORKERS,
    ],
    gives: &[Ability::Stages],
    needs: &[Ability::StagedModel, Ability::Sum, Ability::Barrier],
    build: |params| {
        let size = |name: &str| params.size(name) as u32;
        let (data, stages, parts) = (size("data"), size("pipeline"), size("tensor"));
        Ok(Box::new(Hybrid { data, stages, parts, replicas: Pipeline::of(params, stages, parts)? }))
    },
};

struct Hybrid {
    data: u32,
    stages: u32,
    parts: u32,
    replicas: Pipeline,
}

impl Hybrid {
    fn workers(&self) -> u64 {
        u64::from(self.data) * u64::from(self.stages) * u64::from(self.parts)
    }
}

impl Plan for Hybrid {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        let Hybrid { data, stages, parts, replicas } = self;
        let wanted = self.workers();
        if u64::from(world) != wanted {
            let each = match parts {
                1 => format!("{data} pipelines of {stages} stages"),
                _ => format!("{data} replicas of {stages} stages of {parts} parts"),
            };
            return Err(Fault::caller(format!(
                "{each} are {wanted} workers, and there are {world}"
            ))
            .hint(match world.checked_div(stages * parts) {
                Some(fit) if fit * stages * parts == world => {
                    format!("set workers = {wanted}, or data = {fit} in [cluster] plan")
                }
                _ => format!("set workers = {wanted}, or another product in [cluster] plan"),
            }));
        }
        replicas.assign(seat, world, shards)
    }

    fn stages(&self) -> u32 {
        self.replicas.stages()
    }

    fn parts(&self) -> u32 {
        self.parts
    }

    fn measures(&self) -> bool {
        self.replicas.measures()
    }

    fn world(&self) -> Option<u32> {
        u32::try_from(self.workers()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(settings: &str) -> Box<dyn Plan> {
        let params = ENTRY.check("plan", &settings.parse().unwrap()).unwrap();
        (ENTRY.build)(&params).unwrap()
    }

    #[test]
    fn a_product_is_that_many_workers_and_no_others() {
        let two = plan("data = 2\npipeline = 3");
        let assignment = two.assign(Seat(4), 6, 16).unwrap();
        assert_eq!((assignment.stage, assignment.group), (1, [1, 4].map(Seat).to_vec()));
        let fault = two.assign(Seat(0), 4, 16).unwrap_err().to_string();
        assert!(fault.contains("2 pipelines of 3 stages are 6 workers"), "{fault}");
        let fault = plan("tensor = 2").assign(Seat(0), 4, 16).unwrap_err().to_string();
        assert!(fault.contains("2 replicas of 2 stages of 2 parts are 8 workers"), "{fault}");
        let huge = plan("data = 4096\npipeline = 1024\ntensor = 1024");
        assert!(huge.assign(Seat(0), 4, 16).is_err());
    }

    #[test]
    fn parts_are_neighbours_in_a_stage_and_stages_in_a_replica() {
        let grid = plan("data = 2\npipeline = 2\ntensor = 2");
        let seats: Vec<(u32, Vec<u32>)> = (0..8)
            .map(|seat| grid.assign(Seat(seat), 8, 16).unwrap())
            .map(|it| (it.stage, it.group.iter().map(|seat| seat.0).collect()))
            .collect();
        let wanted = [0, 1, 2, 3].map(|stage| (stage, vec![stage, stage + 4]));
        assert_eq!(seats, [&wanted[..], &wanted[..]].concat());
        let assignment = grid.assign(Seat(6), 8, 16).unwrap();
        assert_eq!(assignment.pipeline, [4, 5, 6, 7].map(Seat));
        assert_eq!((assignment.parts, grid.stages(), grid.parts()), (2, 4, 2));
        // Both parts of a stage take their micro-batches in the same order.
        assert_eq!(assignment.turns, grid.assign(Seat(7), 8, 16).unwrap().turns);
        assert_ne!(assignment.turns, grid.assign(Seat(4), 8, 16).unwrap().turns);
    }

    #[test]
    fn a_stage_by_hand_sits_on_a_group_of_workers() {
        let grid = plan("data = 1\npipeline = 2\ntensor = 2\nworkers = [1, 0]\nlayers = [1, 2]");
        let stages: Vec<u32> =
            (0..4).map(|seat| grid.assign(Seat(seat), 4, 16).unwrap().stage).collect();
        assert_eq!(stages, [2, 3, 0, 1]);
        assert_eq!(grid.assign(Seat(0), 4, 16).unwrap().pipeline, [2, 3, 0, 1].map(Seat));
    }
}
