//! Names of places and moments: who (seat), when (step), among whom (epoch), for what (job), on which
//! rows (shard). Distinct types, so that a rank is never added to a step by mistake.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number as an index.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, "{}"), self.0)
            }
        }
    };
}

number!(
    /// A worker's place in the member list of the current epoch: its rank.
    Seat(u32), "rank "
);
number!(
    /// One exchange. Steps are counted over the whole job, from 0.
    Step(u64), "step "
);
number!(
    /// A period with a fixed member list. (A pass over the data is called a *pass* in the code, so that
    /// the two meanings of the literature's "epoch" never meet.)
    Epoch(u32), "epoch "
);
number!(
    /// A virtual shard of the rows: the unit of leases, of memory and of randomness. The number of
    /// shards is fixed in the job, so that nothing depends on the number of workers.
    Shard(u32), "shard "
);
number!(
    /// A job's random identity; frames of another job are refused.
    JobId(u64), "job "
);

impl Step {
    /// The step after this one.
    #[must_use]
    pub fn next(self) -> Step {
        Step(self.0 + 1)
    }
}
