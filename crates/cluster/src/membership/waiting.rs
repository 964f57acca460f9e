//! Jobs that have fewer workers than they need: how long they wait for more, and how that ends.

use super::{Command, Membership, Shortage, Stage};
use starlings_core::Blame;

/// A job that had begun and has too few workers left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Short {
    /// Until when others may come.
    pub(super) by: u64,
    /// The loss with which it became so, as it was told; none where a worker left politely.
    pub(super) after: Option<String>,
}

impl Membership {
    /// How many workers are missing and for how long they are waited for, where the job cannot begin or go on without.
    #[must_use]
    pub fn shortage(&self, now: u64) -> Option<Shortage> {
        let (have, want, by) = match &self.stage {
            Stage::Gathering { wish, by } if self.lobby.len() < wish.workers as usize => {
                (self.lobby.len(), wish.workers, *by)
            }
            Stage::Running(run) => {
                let (short, least) = (run.short.as_ref()?, run.wish.least.unwrap_or(0));
                (run.roster.running(), least, short.by)
            }
            _ => return None,
        };
        let seconds_left = by.saturating_sub(now) as f64 / 1000.0;
        Some(Shortage { have: have as u32, want, seconds_left })
    }

    /// Too few came in time. The reason begins with the loss that made others necessary, where one did.
    pub(super) fn give_up_waiting(&mut self, now: u64, out: &mut Vec<Command>) {
        let Some(Shortage { have, want, .. }) = self.shortage(now) else { return };
        let seconds = self.options.join_ms as f64 / 1000.0;
        let reason = match &self.stage {
            Stage::Running(run) => {
                let after = run.short.as_ref().and_then(|short| short.after.clone());
                let after = after.map_or(String::new(), |loss| format!("{loss}; "));
                let are = if have == 1 { "worker is" } else { "workers are" };
                format!(
                    "{after}{have} {are} left, {want} are needed, and too few came within {seconds} s"
                )
            }
            _ => format!("only {have} of {want} workers joined within {seconds} s"),
        };
        self.abort(Blame::Peer(None), reason, out);
    }
}
