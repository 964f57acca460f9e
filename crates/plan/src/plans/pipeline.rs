//! Pipeline parallelism (Huang et al., 2019: GPipe): the model is cut into stages, each held by another worker,
//! and micro-batches flow through them. Whole pipelines are replicated: seat `s` belongs to pipeline `s / stages`, so that
//! neighbouring seats, which are often on one machine, exchange activations; which stage each of them has may be said by
//! hand (DistBelief, Dean et al., 2012; DIANNE, De Coninck et al., 2018).

use super::BuildPlan;
use crate::schedule::{SCHEDULES, Schedule};
use crate::{Assignment, Plan, deal::deal};
use starlings_core::{Ability, Entry, Fault, Param, ParamKind, Params, Result, Seat};

pub(super) const ENTRY: Entry<BuildPlan> = Entry {
    name: "pipeline",
    summary: "The model is cut into stages on several workers, and micro-batches flow through them",
    reference: "Huang et al.: GPipe: Efficient training of giant neural networks using pipeline parallelism, NeurIPS 2019; \
                Narayanan et al.: Memory-efficient pipeline-parallel DNN training, ICML 2021",
    params: &[
        Param {
            name: "stages",
            kind: ParamKind::Integer { min: 1, max: 1024 },
            default: Some("2"),
            help: "parts that the model is cut into; the number of workers must be a multiple of it",
        },
        SCHEDULE,
        MICRO_BATCHES,
        COSTS,
        LAYERS,
        WORKERS,
    ],
    gives: &[Ability::Stages],
    needs: &[Ability::StagedModel, Ability::Sum, Ability::Barrier],
    build: |params| Ok(Box::new(Pipeline::of(params, params.size("stages") as u32, 1)?)),
};

pub(super) const SCHEDULE: Param = Param {
    name: "schedule",
    kind: ParamKind::Choice(SCHEDULES),
    default: Some("1f1b"),
    help: "1f1b takes gradients back as soon as it can, gpipe after all micro-batches: same result, more memory",
};

pub(super) const MICRO_BATCHES: Param = Param {
    name: "micro_batches",
    kind: ParamKind::Integer { min: 1, max: 4096 },
    default: Some("4"),
    help: "parts of a pipeline's rows that follow each other through the stages of a network; they are made of whole shards",
};

pub(super) const COSTS: Param = Param {
    name: "costs",
    kind: ParamKind::Choice(&["counted", "measured"]),
    default: Some("counted"),
    help: "what a network is cut by: multiplications, the same in every run, or the time that layers take on the host that starts the job",
};

pub(super) const LAYERS: Param = Param {
    name: "layers",
    kind: ParamKind::Sizes { min: 1, max: 100_000 },
    default: Some("[]"),
    help: "how many layers each stage has, by hand; empty cuts a network so that stages cost alike",
};

pub(super) const WORKERS: Param = Param {
    name: "workers",
    kind: ParamKind::Sizes { min: 0, max: 1023 },
    default: Some("[]"),
    help: "which worker of a pipeline (or group of workers that share layers) has each stage, by hand; empty is in order",
};

/// Pipelines of so many stages, each of them on so many workers that share its layers.
#[derive(Debug)]
pub(super) struct Pipeline {
    stages: u32,
    parts: u32,
    schedule: Schedule,
    micro_batches: u32,
    layers: Vec<u32>,
    measures: bool,
    /// Of each stage, its worker within the pipeline, or its group of them.
    workers: Vec<u32>,
}

impl Pipeline {
    /// From a job's parameters.
    pub(super) fn of(params: &Params, stages: u32, parts: u32) -> Result<Pipeline> {
        let small = |name: &str| params.sizes(name).into_iter().map(|size| size as u32).collect();
        let (layers, mut workers): (Vec<u32>, Vec<u32>) = (small("layers"), small("workers"));
        let fits = |what: &str, len: usize| {
            if len == 0 || len == stages as usize {
                return Ok(());
            }
            let told = format!("{what} has {len} entries, and there are {stages} stages");
            Err(Fault::caller(told).hint(format!("give {what} one entry for each stage")))
        };
        fits("layers", layers.len())?;
        fits("workers", workers.len())?;
        if stages == 1 && !layers.is_empty() {
            return Err(Fault::caller("one stage has all layers, and there is nothing to cut")
                .hint("put layers on at least two workers, or leave out layers and [place]"));
        }
        if workers.is_empty() {
            workers = (0..stages).collect();
        }
        let missing = (0..stages).find(|worker| !workers.contains(worker));
        if let Some(worker) = missing {
            let what = format!("workers {workers:?} leave worker {worker} without a stage");
            return Err(Fault::caller(what)
                .hint(format!("name each of the workers 0 to {} once", stages - 1)));
        }
        Ok(Pipeline {
            stages,
            parts,
            schedule: Schedule::of(params.text("schedule")),
            micro_batches: params.size("micro_batches") as u32,
            measures: params.text("costs") == "measured" && layers.is_empty() && stages > 1,
            layers,
            workers,
        })
    }
}

impl Plan for Pipeline {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        assert!(seat.0 < world, "{seat} in a flock of {world}");
        let (stages, parts, size) = (self.stages, self.parts, self.stages * self.parts);
        if !world.is_multiple_of(size) {
            return Err(no_whole_groups(world, (size, "pipelines", "stages")));
        }
        let (inside, number) = (seat.0 % size, seat.0 / size);
        let stage = self.workers.iter().position(|&at| at == inside / parts);
        let stage = stage.expect("every worker has a stage") as u32;
        let first = |worker: &u32| number * size + worker * parts;
        let seats = self.workers.iter().flat_map(|it| (first(it)..first(it) + parts).map(Seat));
        let cut = stages > 1;
        Ok(Assignment {
            shards: deal(number, world / size, shards)?,
            stage: stage * parts + inside % parts,
            pipeline: seats.collect(),
            group: (inside..world).step_by(size as usize).map(Seat).collect(),
            layers: if cut { self.layers.clone() } else { Vec::new() },
            turns: match cut {
                true => self.schedule.turns(stage, stages, self.micro_batches),
                false => Vec::new(),
            },
            parts,
        })
    }

    fn stages(&self) -> u32 {
        self.stages * self.parts
    }

    fn parts(&self) -> u32 {
        self.parts
    }

    fn measures(&self) -> bool {
        self.measures
    }
}

/// Workers that do not make whole groups of so many parts, with the words for group and parts.
pub(super) fn no_whole_groups(world: u32, (size, groups, parts): (u32, &str, &str)) -> Fault {
    let what = format!("{world} workers do not make whole {groups} of {size} {parts}");
    let below = world - world % size;
    let hint = match below {
        0 => format!("use {size} workers, or fewer {parts}"),
        _ => format!("use {below} or {} workers, or another number of {parts}", below + size),
    };
    Fault::caller(what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Shard, Turn};

    fn pipeline(settings: &str) -> Result<Box<dyn Plan>> {
        let params = ENTRY.check("plan", &settings.parse().unwrap())?;
        (ENTRY.build)(&params)
    }

    #[test]
    fn neighbours_are_a_pipeline_and_equal_stages_are_a_group() {
        let assignment = pipeline("stages = 2").unwrap().assign(Seat(3), 6, 6).unwrap();
        assert_eq!(assignment.stage, 1);
        assert_eq!(assignment.pipeline, [2, 3].map(Seat));
        assert_eq!(assignment.group, [1, 3, 5].map(Seat));
        assert_eq!(assignment.shards, [2, 3].map(Shard));
        assert_eq!(assignment.turns[..2], [Turn::Forward(0), Turn::Backward(0)]);
    }

    #[test]
    fn stages_sit_where_the_job_says() {
        let plan = pipeline("stages = 3\nlayers = [2, 5, 1]\nworkers = [2, 0, 1]").unwrap();
        let stages: Vec<u32> =
            (0..6).map(|seat| plan.assign(Seat(seat), 6, 6).unwrap().stage).collect();
        assert_eq!(stages, [1, 2, 0, 1, 2, 0]);
        let assignment = plan.assign(Seat(4), 6, 6).unwrap();
        assert_eq!(assignment.pipeline, [5, 3, 4].map(Seat));
        assert_eq!(
            (assignment.group, assignment.layers),
            ([1, 4].map(Seat).to_vec(), vec![2, 5, 1])
        );
        for (settings, told) in [
            ("stages = 2\nworkers = [0, 2]", "worker 1 without a stage"),
            ("stages = 2\nworkers = [0]", "1 entries, and there are 2 stages"),
            ("stages = 2\nlayers = [1, 2, 3]", "3 entries, and there are 2 stages"),
        ] {
            let fault = pipeline(settings).err().unwrap().to_string();
            assert!(fault.contains(told), "{fault}");
        }
    }

    #[test]
    fn a_flock_that_does_not_fit_hears_which_would() {
        let fault = |world| {
            pipeline("stages = 3").unwrap().assign(Seat(0), world, 16).unwrap_err().to_string()
        };
        assert!(fault(7).contains("6 or 9 workers"), "{}", fault(7));
        assert!(fault(2).contains("use 3 workers"), "{}", fault(2));
    }
}
