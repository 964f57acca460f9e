//! What a step of groups around owners costs, by counting: which seat is the busiest depends on how its group sums.

use crate::count::{Tally, tally};
use crate::{Cost, Groups};

impl Groups {
    /// What a step costs that pushes and pulls `bytes`, where every seat owns as many of them and groups cut their sums evenly
    /// (into a multiple of the grain). Owners answer when all groups have pushed, as under a barrier.
    ///
    /// In a job rows are dealt to owners by hashing, so that these are expectations; only the part that goes to owners and
    /// back depends on it.
    #[must_use]
    pub fn cost(&self, world: u32, bytes: u64) -> Cost {
        if world < 2 {
            return Cost::NOTHING;
        }
        let firsts = (0..world).step_by(self.size as usize);
        let seats: Vec<usize> = firsts.map(|first| self.size.min(world - first) as usize).collect();
        let sum = |begun: &[u64]| {
            let chunks = self.inner.grain(begun.len() as u32);
            (tally(&*self.inner, chunks, begun), bytes as f64 / chunks as f64)
        };
        let sums: Vec<(Tally, f64)> = seats.iter().map(|&seats| sum(&vec![0; seats])).collect();
        let pushed = sums.iter().map(|(tally, _)| tally.rounds[0] + 1).max().unwrap_or(0);
        let share = bytes as f64 / f64::from(world);
        let mut cost = Cost::NOTHING;
        for (Tally { sends, mut rounds }, chunk) in sums {
            rounds[0] = pushed + 1;
            let (share_out, _) = sum(&rounds);
            cost.rounds = share_out.rounds.into_iter().fold(cost.rounds, u64::max);
            for (place, (summed, shared)) in sends.into_iter().zip(share_out.sends).enumerate() {
                // A first seat pushes to all other owners, and need not answer itself.
                let is_first = place == 0;
                let answers = seats.len() - usize::from(is_first);
                let pushes = if is_first { world as usize - 1 } else { 0 };
                let sent = (summed + shared) as f64 * chunk + (pushes + answers) as f64 * share;
                cost.bytes_sent_max = cost.bytes_sent_max.max(sent);
                cost.bytes_sent_total += sent;
            }
        }
        cost
    }
}
