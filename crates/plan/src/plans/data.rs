//! Data parallelism: every worker holds the whole model and works on its own rows (the sum form of Chu et al.,
//! 2006). The plan of all learners whose model fits into one worker.

use super::BuildPlan;
use crate::{Assignment, Plan, deal::deal};
use starlings_core::{Ability, Entry, Result, Seat};

pub(super) const ENTRY: Entry<BuildPlan> = Entry {
    name: "data-parallel",
    summary: "Every worker holds the whole model and its share of the rows",
    reference: "Chu et al.: Map-reduce for machine learning on multicore, NIPS 2006",
    params: &[],
    gives: &[Ability::WholeModel],
    needs: &[],
    build: |_| Ok(Box::new(DataParallel)),
};

struct DataParallel;

impl Plan for DataParallel {
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment> {
        assert!(seat.0 < world, "{seat} in a flock of {world}");
        Ok(Assignment {
            shards: deal(seat.0, world, shards)?,
            stage: 0,
            pipeline: vec![seat],
            group: (0..world).map(Seat).collect(),
            layers: Vec::new(),
            turns: Vec::new(),
            parts: 1,
        })
    }

    fn stages(&self) -> u32 {
        1
    }
}
