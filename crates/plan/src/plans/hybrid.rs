//! Data × pipeline parallelism as one product: so many pipelines of so many stages each. Every pipeline has its own rows; the
//! gradients of a stage are summed among its replicas alone, one in each pipeline (Narayanan et al., 2021).

use super::BuildPlan;
use super::pipeline::{COSTS, LAYERS, MICRO_BATCHES, Pipeline, SCHEDULE, WORKERS};
use crate::{Assignment, Plan};
use starlings_core::{Ability, Entry, Fault, Param, ParamKind, Result, Seat};

pub(super) const ENTRY: Entry<BuildPlan> = Entry {
    name: "hybrid",
    summary: "Several pipelines side by side, each with its own rows: data × pipeline parallelism",
    reference: "Narayanan et al.: Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021",
    params: &[
        Param {
            name: "data",
            kind: ParamKind::Integer { min: 1, max: 4096 },
            default: Some("2"),
            help: "pipelines side by side, each with its own rows",
        },
        Param {
            name: "pipeline",
            kind: ParamKind::Integer { min: 1, max: 1024 },
            default: Some("2"),
            help: "stages of each pipeline; data × pipeline is the number of workers",
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
        let (data, stages) = (params.size("data") as u32, params.size("pipeline") as u32);
        Ok(Box::new(Hybrid { data, stages, pipelines: Pipeline::of(params, stages)? }))
    },
};

struct Hybrid {
    data: u32,
    stages: u32,
    pipelines: Pipeline,
}

impl Plan for Hybrid {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        let Hybrid { data, stages, pipelines } = self;
        let wanted = data * stages;
        if world != wanted {
            let what = format!(
                "{data} pipelines of {stages} stages are {wanted} workers, and there are {world}"
            );
            return Err(Fault::caller(what)
                .hint(format!("set workers = {wanted}, or another product in [cluster] plan")));
        }
        pipelines.assign(seat, world, shards)
    }

    fn stages(&self) -> u32 {
        self.stages
    }

    fn measures(&self) -> bool {
        self.pipelines.measures()
    }

    fn world(&self) -> Option<u32> {
        Some(self.data * self.stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_that_many_workers_and_no_others() {
        let params = ENTRY.check("plan", &"data = 2\npipeline = 3".parse().unwrap()).unwrap();
        let plan = (ENTRY.build)(&params).unwrap();
        let assignment = plan.assign(Seat(4), 6, 16).unwrap();
        assert_eq!((assignment.stage, assignment.group), (1, [1, 4].map(Seat).to_vec()));
        let fault = plan.assign(Seat(0), 4, 16).unwrap_err().to_string();
        assert!(fault.contains("2 pipelines of 3 stages are 6 workers"), "{fault}");
    }
}
