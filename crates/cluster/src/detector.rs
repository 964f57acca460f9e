//! A failure detector by silence. A member is expected to be heard after the mean of its recent gaps plus
//! a margin of several deviations, as in Chen, Toueg and Aguilera, "On the quality of service of failure
//! detectors" (2002) and the φ detector of Hayashibara et al. (2004): one whose beats come unevenly, on a
//! crowded machine or network, is given more time. Nobody is given less than the timeout.
//!
//! Time comes in by the front door, in milliseconds. Whoever asks must do so several times within a
//! timeout: when it did not, it was itself asleep (a stopped process, a suspended machine), and that pause
//! is held against no one.

use starlings_core::planted;
use std::collections::{BTreeMap, VecDeque};

/// How silence is judged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Silence shorter than this is never death.
    pub timeout_ms: u64,
    /// Silence longer than this always is, however uneven the beats.
    pub timeout_ms_max: u64,
    /// Margin beyond the mean gap, in standard deviations.
    pub deviations: f64,
    /// How many recent gaps are remembered of each member.
    pub window: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { timeout_ms: 1_000, timeout_ms_max: 10_000, deviations: 8.0, window: 64 }
    }
}

/// Who has been silent for too long. Keys are whatever names members.
#[derive(Clone, Debug)]
pub struct Detector<K> {
    options: Options,
    watched: BTreeMap<K, Watched>,
    asked: Option<u64>,
}

#[derive(Clone, Debug)]
struct Watched {
    heard: u64,
    gaps: VecDeque<u64>,
    /// How much longer its silence may last than that of others.
    allowance_ms: u64,
}

impl Watched {
    fn timeout(&self, options: &Options) -> u64 {
        timeout(options, &self.gaps).saturating_add(self.allowance_ms)
    }
}

impl<K: Ord + Copy> Detector<K> {
    /// A detector that watches nobody.
    #[must_use]
    pub fn new(options: Options) -> Detector<K> {
        Detector { options, watched: BTreeMap::new(), asked: None }
    }

    /// Begins to watch; to be heard now is its first sign of life.
    pub fn watch(&mut self, now: u64, key: K) {
        self.watch_patiently(now, key, 0);
    }

    /// As [`watch`](Detector::watch), of one that is allowed so much more silence than others.
    pub fn watch_patiently(&mut self, now: u64, key: K, allowance_ms: u64) {
        self.awake(now);
        let gaps = VecDeque::new();
        self.watched.entry(key).or_insert(Watched { heard: now, gaps, allowance_ms });
    }

    /// Stops watching; whether it was watched.
    pub fn forget(&mut self, key: K) -> bool {
        if planted!("never-forgets") {
            return self.watched.contains_key(&key);
        }
        self.watched.remove(&key).is_some()
    }

    /// Everyone who is watched.
    pub fn watched(&self) -> impl Iterator<Item = K> {
        self.watched.keys().copied()
    }

    /// A sign of life. Those of members nobody watches are ignored.
    pub fn beat(&mut self, now: u64, key: K) {
        self.awake(now);
        let Some(watched) = self.watched.get_mut(&key) else { return };
        let gap = now.saturating_sub(watched.heard);
        watched.heard = watched.heard.max(now);
        // Several frames in one go are one sign of life, or a burst would make the mean meaningless.
        if gap == 0 {
            return;
        }
        if watched.gaps.len() == self.options.window {
            watched.gaps.pop_front();
        }
        watched.gaps.push_back(gap);
    }

    /// Everyone who is silent for too long, in order of their keys.
    pub fn silent(&mut self, now: u64) -> Vec<K> {
        self.awake(now);
        let late = self.watched.iter().filter(|(_, watched)| {
            now.saturating_sub(watched.heard) > watched.timeout(&self.options)
        });
        late.map(|(key, _)| *key).collect()
    }

    /// How long this member may be silent, in milliseconds.
    #[must_use]
    pub fn timeout_ms(&self, key: K) -> Option<u64> {
        self.watched.get(&key).map(|watched| watched.timeout(&self.options))
    }

    /// How long it has been since this member was heard, in milliseconds.
    #[must_use]
    pub fn silence_ms(&self, now: u64, key: K) -> Option<u64> {
        self.watched.get(&key).map(|watched| now.saturating_sub(watched.heard))
    }

    /// Credits everyone with a pause of the observer.
    fn awake(&mut self, now: u64) {
        let pause = now.saturating_sub(self.asked.unwrap_or(now));
        self.asked = Some(self.asked.map_or(now, |asked| asked.max(now)));
        if pause > self.options.timeout_ms / 2 && !planted!("own-pause-counts") {
            self.watched.values_mut().for_each(|watched| watched.heard += pause);
        }
    }
}

fn timeout(options: &Options, gaps: &VecDeque<u64>) -> u64 {
    let count = gaps.len().max(1) as f64;
    let mean = gaps.iter().map(|&gap| gap as f64).sum::<f64>() / count;
    let variance = gaps.iter().map(|&gap| (gap as f64 - mean).powi(2)).sum::<f64>() / count;
    let expected = mean + options.deviations * variance.sqrt();
    (expected.ceil() as u64)
        .clamp(options.timeout_ms, options.timeout_ms_max.max(options.timeout_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ticks every 50 ms; member 0 beats at the given times. Returns when it was found silent.
    fn run(beats: &[u64], until: u64) -> Option<u64> {
        let mut detector = Detector::new(Options::default());
        detector.watch(0, 0u32);
        for now in (0..=until).step_by(50) {
            beats
                .iter()
                .filter(|&&at| at <= now && at + 50 > now)
                .for_each(|_| detector.beat(now, 0));
            if !detector.silent(now).is_empty() {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn steady_beats_then_silence_are_found_just_after_the_timeout() {
        let beats: Vec<u64> = (0..=5_000).step_by(100).collect();
        assert_eq!(run(&beats, 20_000), Some(6_050));
    }

    #[test]
    fn a_member_that_never_beats_is_found_too() {
        assert_eq!(run(&[], 20_000), Some(1_050));
    }

    #[test]
    fn uneven_beats_are_given_more_time_but_not_for_ever() {
        let beats: Vec<u64> = (0..20).flat_map(|i| [i * 1_000, i * 1_000 + 100]).collect();
        let found = run(&beats, 60_000).unwrap() - beats[beats.len() - 1];
        // Gaps of 100 and 900: mean 500 and deviation 400, about 500 + 8 · 400 ms.
        assert!((3_500..4_000).contains(&found), "{found}");
        let wild: Vec<u64> = (0..10).flat_map(|i| [i * 3_000, i * 3_000 + 2_050]).collect();
        assert!(run(&wild, 3_000).is_some(), "gaps above the timeout are not learned from silence");
    }

    #[test]
    fn a_pause_of_the_observer_is_held_against_no_one() {
        let mut detector = Detector::new(Options::default());
        (0..4u32).for_each(|key| detector.watch(0, key));
        for now in (0..=1_000).step_by(100) {
            (0..4).for_each(|key| detector.beat(now, key));
        }
        assert!(detector.silent(60_000).is_empty(), "asleep for a minute");
        (0..3).for_each(|key| detector.beat(60_010, key));
        for now in (60_100..61_000).step_by(100) {
            (0..3).for_each(|key| detector.beat(now, key));
            assert!(detector.silent(now).is_empty());
        }
        assert_eq!(detector.silent(61_100), [3], "silence after waking up counts");
    }

    #[test]
    fn the_forgotten_are_not_watched() {
        let mut detector = Detector::new(Options::default());
        detector.watch(0, 'a');
        detector.forget('a');
        detector.beat(10, 'a');
        assert!((0..5_000).step_by(100).all(|now| detector.silent(now).is_empty()));
        assert_eq!(detector.timeout_ms('a'), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_pause_up_to_the_timeout_is_ever_death(gaps in proptest::collection::vec(1u64..=1_000, 1..80)) {
            let mut detector = Detector::new(Options::default());
            detector.watch(0, ());
            let mut now = 0;
            for gap in gaps {
                for at in (now..now + gap).step_by(40) {
                    prop_assert!(detector.silent(at).is_empty());
                }
                now += gap;
                prop_assert!(detector.silent(now).is_empty());
                detector.beat(now, ());
            }
            // And death is always found.
            let limit = now + Options::default().timeout_ms_max;
            let found = (now..=limit + 100).step_by(40).any(|at| !detector.silent(at).is_empty());
            prop_assert!(found);
        }
    }
}
