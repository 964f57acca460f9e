//! An exchange with nobody: where a worker stands between two flocks.

use super::{Agreed, Exchange, HandedIn};
use crate::exchange::served::Asks;
use starlings_core::{Fault, Model, Result, Step};
use starlings_learn::{Needs, Outcome};

/// Refuses everything.
pub(crate) struct Nobody;

impl Exchange for Nobody {
    fn open(&mut self, _: Step, _: &Needs, _: Asks, _: &mut Model) -> Result<Agreed> {
        Err(alone())
    }

    fn finish(&mut self, _: HandedIn, _: &mut Model) -> Result<Outcome> {
        Err(alone())
    }

    fn cut(&mut self, _: Step, _: &mut Model) -> Result<Step> {
        Err(alone())
    }

    fn sum(&mut self, _: Vec<f64>) -> Result<Vec<f64>> {
        Err(alone())
    }

    fn close(&mut self, _: Step) -> Result<()> {
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        0
    }

    fn replicated(&self) -> bool {
        false
    }
}

fn alone() -> Fault {
    Fault::peer(None, "this worker has no seat")
}
