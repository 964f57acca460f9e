//! What members hear of each other: the real detector, fed by the beats of peers whose links carry them.

use super::Message;
use starlings_cluster::detector::{self, Detector};
use starlings_core::Seat;
use std::collections::BTreeMap;

/// What a member hears of its peers.
pub(super) struct Ears {
    detector: Detector<Seat>,
    /// Its lineup, in the order of seats.
    lineup: Vec<Seat>,
    /// The last beat that was heard of each.
    last: BTreeMap<Seat, u64>,
    /// Peers whose messages never arrive.
    pub(super) deaf: Vec<Seat>,
    /// Peers whose messages arrive later, and those messages.
    pub(super) muffled: Vec<(Seat, Vec<Message>)>,
    /// Whether it has told the coordinator that it does not hear somebody.
    pub(super) told: bool,
}

impl Default for Ears {
    fn default() -> Ears {
        let detector = Detector::new(detector::Options::default());
        let (lineup, last, deaf, muffled) = (vec![], BTreeMap::new(), vec![], vec![]);
        Ears { detector, lineup, last, deaf, muffled, told: false }
    }
}

impl Ears {
    /// Links up with others: they are heard from now on.
    pub(super) fn turn(&mut self, now: u64, lineup: &[Seat]) {
        self.detector = Detector::new(detector::Options::default());
        lineup.iter().for_each(|&seat| self.detector.watch(now, seat));
        self.lineup = lineup.to_vec();
    }

    fn hears(&self, peer: Seat) -> bool {
        !self.deaf.contains(&peer) && self.muffled.iter().all(|(seat, _)| *seat != peer)
    }

    /// Who has not been heard for too long, by place in the lineup. `beats` is when each peer has beaten last.
    pub(super) fn unheard(&mut self, now: u64, beats: &[u64]) -> Vec<Seat> {
        for &peer in &self.lineup {
            let beat = beats[peer.index()];
            if self.hears(peer) && self.last.insert(peer, beat) != Some(beat) {
                self.detector.beat(now, peer);
            }
        }
        let silent = self.detector.silent(now);
        let place = |peer: &Seat| self.lineup.iter().position(|it| it == peer);
        silent.iter().filter_map(place).map(|at| Seat(at as u32)).collect()
    }
}
