//! What happens in a run, all of it from its seed: which job on how many workers, who dies, freezes, joins or leaves and when,
//! and which failpoint is set for whom.

use super::chance::Chance;
use super::jobs::Job;
use super::points::{After, At, POINTS, Point};

/// What kind of run a seed is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Family {
    /// A failpoint in a worker, a newcomer or a coordinator.
    Points,
    /// Workers are killed at random moments.
    Kills,
    /// A worker or the coordinator stands still for a while.
    Freezes,
    /// The coordinator is killed, and another takes over.
    Coordinators,
    /// Loops of one's own whose sums name their contributors.
    Sums,
}

impl Family {
    pub(super) const ALL: [Family; 5] =
        [Family::Points, Family::Kills, Family::Freezes, Family::Coordinators, Family::Sums];

    pub(super) fn name(self) -> &'static str {
        match self {
            Family::Points => "points",
            Family::Kills => "kills",
            Family::Freezes => "freezes",
            Family::Coordinators => "coordinators",
            Family::Sums => "sums",
        }
    }

    fn of(seed: u64) -> Family {
        match seed % 10 {
            0..=3 => Family::Points,
            4 | 5 => Family::Kills,
            6 => Family::Freezes,
            7 => Family::Coordinators,
            _ => Family::Sums,
        }
    }
}

/// A moment: after so many steps were seen, and then so many milliseconds later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) steps: usize,
    pub(super) ms: u64,
}

/// Something that is done to a process from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Deed {
    Kill(usize),
    Freeze(usize, u64),
    Join,
    KillCoordinator,
    FreezeCoordinator(u64),
}

/// What a process does when it reaches its failpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Kill,
    Stop,
    Delay(u64),
}

/// A failpoint that is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Armed {
    pub(super) point: Point,
    pub(super) victim: usize,
    pub(super) action: Action,
    pub(super) nth: u64,
}

impl Armed {
    /// As `STARLINGS_FAIL` has it.
    pub(super) fn word(&self) -> String {
        let action = match self.action {
            Action::Kill => "kill".to_string(),
            Action::Stop => "stop".to_string(),
            Action::Delay(ms) => format!("delay={ms}"),
        };
        format!("{}:{action}:{}", self.point.name, self.nth)
    }
}

/// A member that is killed in the middle of a sum. Who then has the result and must hand it over nobody can know before, so
/// that the run's failpoint is set for all others but one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Half {
    pub(super) victim: usize,
    /// After it has sent so many chunks.
    pub(super) nth: u64,
    pub(super) spared: usize,
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) family: Family,
    pub(super) job: Job,
    pub(super) workers: usize,
    pub(super) topology: &'static str,
    /// Workers on one host sum through its memory; of different names they do not.
    pub(super) one_host: bool,
    /// Workers are children of `train` and not members of a standing flock.
    pub(super) children: bool,
    pub(super) armed: Option<Armed>,
    /// Who is lost in the middle of a sum, where the failpoint is reached only then.
    pub(super) half: Option<Half>,
    pub(super) deeds: Vec<(Moment, Deed)>,
    /// How long a frozen process stands still when a failpoint has stopped it.
    pub(super) thaw_ms: u64,
    /// How long after its end a coordinator is followed by another, and whether that one has the same address.
    pub(super) heir: (u64, bool),
    /// A caller's own loop with sums that are too large to be kept.
    pub(super) large: bool,
}

const WORKERS: [usize; 4] = [2, 3, 4, 8];
/// Whoever stands still no longer than this must not be taken for dead.
pub(super) const PAUSE_MS: u64 = 400;

/// How long one that is lost in the middle of a sum still holds its links: less than silence takes.
const LINGERS_MS: u64 = 30;

impl Scenario {
    /// The run of a seed.
    pub(super) fn of(seed: u64) -> Scenario {
        let mut chance = Chance::new(seed);
        let family = Family::of(seed);
        let mut scenario = Scenario {
            seed,
            family,
            job: chance.of(&[Job::Batches, Job::Network, Job::Passes, Job::Local, Job::Topics]),
            workers: WORKERS[(seed / 10 % 4) as usize],
            topology: chance.of(&["ring", "tree", "halving-doubling"]),
            one_host: chance.percent(50),
            children: false,
            armed: None,
            half: None,
            deeds: Vec::new(),
            thaw_ms: chance.within(50, 3_000),
            heir: (chance.within(0, 800), chance.percent(50)),
            large: chance.percent(40),
        };
        match family {
            Family::Points => scenario.points(&mut chance),
            Family::Kills => scenario.kills(&mut chance),
            Family::Freezes => scenario.freezes(&mut chance),
            Family::Coordinators => scenario.coordinators(&mut chance),
            Family::Sums => scenario.sums(&mut chance),
        }
        scenario
    }

    /// A run in which nothing happens.
    pub(super) fn calm(job: Job) -> Scenario {
        let (seed, workers, children) = (u64::MAX, 2, true);
        let (armed, half, deeds) = (None, None, Vec::new());
        Scenario { seed, job, workers, children, armed, half, deeds, ..Scenario::of(0) }
    }

    /// Points in turn, so that all are tried with each number of workers before any is tried again.
    fn points(&mut self, chance: &mut Chance) {
        let mine: Vec<Point> =
            POINTS.iter().copied().filter(|point| point.at != At::Member).collect();
        let turn = self.seed / 10 * 4 + self.seed % 10;
        let point = mine[(turn % mine.len() as u64) as usize];
        self.workers = WORKERS[(turn / mine.len() as u64 % 4) as usize];
        self.arm(point, chance);
        match point.after {
            After::Nothing => {}
            After::Folds => self.job = Job::Passes,
            After::Late => {
                (self.job, self.workers, self.one_host) = (Job::Network, 2, true);
            }
            After::Checkpoints | After::Restore => self.job = Job::Topics,
            After::Owed => self.job = Job::Batches,
            After::Change | After::Join | After::Half => {}
        }
        if point.at == At::Heir {
            self.deeds.push((moment(chance, 12), Deed::KillCoordinator));
        }
        let coordinator = matches!(point.at, At::Coordinator | At::Heir);
        let armed = self.armed.expect("set above");
        match point.after {
            After::Join => self.deeds.push((moment(chance, 3), Deed::Join)),
            After::Change if self.workers == 2 && !coordinator => {
                // Of two only one may be lost: members change by one who comes.
                self.deeds.push((moment(chance, 3), Deed::Join));
            }
            After::Change | After::Restore | After::Owed => {
                let other = (armed.victim + 1) % self.workers;
                // Of two one is lost already by the failpoint, unless that only delays it.
                if self.workers > 2 || coordinator {
                    self.deeds.push((moment(chance, 10), Deed::Kill(other)));
                } else {
                    self.armed = Some(Armed { action: Action::Delay(300), ..armed });
                    self.deeds.push((moment(chance, 10), Deed::Kill(other)));
                }
            }
            _ => {}
        }
    }

    fn arm(&mut self, point: Point, chance: &mut Chance) {
        let victim = match point.at {
            At::First | At::Coordinator | At::Heir | At::Newcomer => 0,
            At::Later => chance.within(1, self.workers as u64 - 1) as usize,
            At::Worker | At::Member => chance.within(0, self.workers as u64 - 1) as usize,
        };
        let action = match chance.within(0, 9) {
            0 | 1 if !matches!(point.at, At::Coordinator | At::Heir) => Action::Stop,
            2 => Action::Delay(chance.within(50, PAUSE_MS)),
            _ => Action::Kill,
        };
        let least = match (point.name, point.after) {
            // The first record is made before anybody is told where to call, the second is the job, the third the first epoch.
            ("journal-before" | "journal-written", _) => 3,
            ("journal-synced", After::Change) => 4,
            ("journal-synced", _) => 2,
            _ => 1,
        };
        // Chunks travel between hosts only, and memory is shared on one only.
        match point.name {
            "chunk-sent" | "chunk-arrived" => self.one_host = false,
            "before-shared-sum" => self.one_host = true,
            _ => {}
        }
        let nth = chance.within(least, point.visits.max(least));
        self.armed = Some(Armed { point, victim, action, nth });
    }

    fn kills(&mut self, chance: &mut Chance) {
        self.children = chance.percent(50);
        let mut alive: Vec<usize> = (0..self.workers).collect();
        for _ in 0..chance.within(1, self.workers as u64 - 1) {
            let victim = alive.remove(chance.within(0, alive.len() as u64 - 1) as usize);
            self.deeds.push((moment(chance, 15), Deed::Kill(victim)));
        }
        if !self.children && chance.percent(25) {
            self.deeds.push((moment(chance, 10), Deed::Join));
        }
    }

    fn freezes(&mut self, chance: &mut Chance) {
        self.children = chance.percent(50);
        let (victim, when) =
            (chance.within(0, self.workers as u64 - 1) as usize, moment(chance, 15));
        let deed = match chance.within(0, 3) {
            0 => Deed::Freeze(victim, chance.within(50, PAUSE_MS)),
            1 if !self.children => Deed::FreezeCoordinator(chance.within(100, 2_500)),
            _ => Deed::Freeze(victim, chance.within(1_800, 3_000)),
        };
        self.deeds.push((when, deed));
    }

    fn coordinators(&mut self, chance: &mut Chance) {
        let when = moment(chance, 15);
        self.deeds.push((when, Deed::KillCoordinator));
        if chance.percent(50) {
            let victim = chance.within(0, self.workers as u64 - 1) as usize;
            // About the same time, before or after.
            let ms = chance.within(0, 200);
            self.deeds.push((Moment { ms, ..when }, Deed::Kill(victim)));
        }
    }

    fn sums(&mut self, chance: &mut Chance) {
        let mine: Vec<Point> =
            POINTS.iter().copied().filter(|point| point.at == At::Member).collect();
        if chance.percent(50) {
            self.arm(chance.of(&mine), chance);
            let armed = self.armed.expect("set above");
            if armed.point.name == "flock-in-hand" {
                self.large = true;
            }
            if armed.point.after == After::Half {
                self.halve(chance);
            }
            if armed.point.after == After::Change && self.workers > 2 {
                let other = (armed.victim + 1) % self.workers;
                self.deeds.push((sum_moment(chance), Deed::Kill(other)));
            }
            return;
        }
        let mut alive: Vec<usize> = (0..self.workers).collect();
        for _ in 0..chance.within(1, self.workers as u64 - 1) {
            let victim = alive.remove(chance.within(0, alive.len() as u64 - 1) as usize);
            let freeze = chance.percent(15);
            let deed = if freeze { Deed::Freeze(victim, 2_000) } else { Deed::Kill(victim) };
            self.deeds.push((sum_moment(chance), deed));
        }
    }

    /// Somebody is lost between two chunks of a sum, among at least three, or nobody would be left to hand anything to.
    /// Around a ring of P everyone sends 2(P − 1) times a sum. Who dies after the P-th time and before the last has passed on all that the
    /// member before it lacks, and not all that the one after it does.
    fn halve(&mut self, chance: &mut Chance) {
        (self.workers, self.one_host) = (self.workers.max(3), false);
        let victim = chance.within(0, self.workers as u64 - 1) as usize;
        let other = chance.within(1, self.workers as u64 - 1) as usize;
        let spared = (victim + other) % self.workers;
        let (world, sends) = (self.workers as u64, 2 * (self.workers as u64 - 1));
        let nth = chance.within(0, 40) * sends + chance.within(world, sends - 1);
        self.half = Some(Half { victim, nth, spared });
    }

    /// What is set for a member with a loop of its own, and what it does where the run's failpoint is.
    pub(super) fn set_for_member(&self, index: usize) -> Option<(String, Option<Action>)> {
        let armed = self.armed.filter(|it| it.point.at == At::Member)?;
        let mine = || Some((armed.word(), Some(armed.action)));
        match self.half {
            // What it has sent arrives everywhere before it is missed: a link that closes at once would be seen first.
            Some(Half { victim, nth, .. }) if victim == index => {
                Some((format!("chunk-sent:delay={LINGERS_MS}:{nth},chunk-sent:kill:{nth}"), None))
            }
            Some(half) if half.spared == index => None,
            Some(_) => mine(),
            None if armed.victim == index => mine(),
            None => None,
        }
    }

    /// Whether a worker may be lost: killed, or frozen for too long.
    pub(super) fn may_lose(&self, worker: usize) -> bool {
        let by_deed = self.deeds.iter().any(|(_, deed)| match *deed {
            Deed::Kill(victim) => victim == worker,
            Deed::Freeze(victim, ms) => victim == worker && ms > PAUSE_MS,
            _ => false,
        });
        let by_point = self.armed.is_some_and(|armed| {
            let worker_s =
                matches!(armed.point.at, At::Worker | At::First | At::Later | At::Member);
            let harmless = match armed.action {
                Action::Delay(_) => true,
                Action::Stop => self.thaw_ms <= PAUSE_MS,
                Action::Kill => false,
            };
            let is_set = self.half.map_or(armed.victim == worker, |half| half.spared != worker);
            worker_s && is_set && !harmless
        });
        by_deed || by_point || self.half.is_some_and(|half| half.victim == worker)
    }

    pub(super) fn joins(&self) -> bool {
        self.deeds.iter().any(|(_, deed)| *deed == Deed::Join)
    }

    /// For people.
    pub(super) fn sentence(&self) -> String {
        let Scenario { seed, job, workers, topology, .. } = self;
        let what = match (self.family, self.large) {
            (Family::Sums, true) => "large sums",
            (Family::Sums, false) => "sums",
            _ => job.name(),
        };
        let armed = self.armed.map_or(String::new(), |armed| {
            let whom = self.half.map_or(armed.victim.to_string(), |half| format!("{half:?}"));
            format!(", {} at {:?} {whom}", armed.word(), armed.point.at)
        });
        let place = match (self.children, self.one_host) {
            (true, _) => "children",
            (false, true) => "flock on one host",
            (false, false) => "flock",
        };
        format!("seed {seed}: {what} on {workers} ({place}, {topology}){armed}, {:?}", self.deeds)
    }
}

fn moment(chance: &mut Chance, steps_max: u64) -> Moment {
    Moment { steps: chance.within(1, steps_max) as usize, ms: chance.within(0, 60) }
}

fn sum_moment(chance: &mut Chance) -> Moment {
    Moment { steps: chance.within(1, 120) as usize, ms: chance.within(0, 10) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn somebody_is_always_left() {
        for seed in 0..20_000 {
            let scenario = Scenario::of(seed);
            let left = (0..scenario.workers).filter(|&it| !scenario.may_lose(it)).count();
            assert!(left >= 1, "{}", scenario.sentence());
            assert_eq!(scenario, Scenario::of(seed));
        }
    }

    #[test]
    fn chunks_are_sent_between_hosts_and_memory_is_shared_on_one() {
        for scenario in (0..20_000).map(Scenario::of) {
            match scenario.armed.map(|armed| armed.point.name) {
                Some("chunk-sent" | "chunk-arrived") => assert!(!scenario.one_host),
                Some("before-shared-sum") => assert!(scenario.one_host),
                _ => {}
            }
        }
    }

    #[test]
    fn who_is_lost_in_the_middle_of_a_sum_leaves_others_to_hand_it_over() {
        let halves = (0..20_000).map(Scenario::of).filter_map(|it| Some((it.half?, it)));
        let mut tried = 0;
        for (half, scenario) in halves {
            let set = |index| scenario.set_for_member(index).map(|(word, _)| word);
            assert!(set(half.victim).is_some_and(|word| word.contains("chunk-sent:kill:")));
            let (world, sends) = (scenario.workers as u64, 2 * (scenario.workers as u64 - 1));
            let sent = (half.nth - 1) % sends + 1;
            assert!(sent >= world && sent < sends, "{sent} of {sends} times in a sum");
            assert_eq!(set(half.spared), None);
            let others = (0..scenario.workers).filter(|&it| it != half.victim && it != half.spared);
            let handing = |index| set(index).is_some_and(|word| word.starts_with("flock-hand"));
            assert!(scenario.workers > 2 && others.into_iter().all(handing));
            tried += 1;
        }
        assert!(tried > 100);
    }

    #[test]
    fn every_point_is_tried_with_every_number_of_workers() {
        let tried: BTreeSet<(&str, String, usize)> = (0..3_000)
            .map(Scenario::of)
            .filter_map(|it| it.armed.map(|armed| (armed, it.workers)))
            .map(|(armed, workers)| (armed.point.name, format!("{:?}", armed.point.at), workers))
            .collect();
        for point in POINTS.iter().filter(|point| point.at != At::Member) {
            // Late sums are of two.
            let is_late = point.after == After::Late;
            for workers in WORKERS.into_iter().filter(|&workers| !is_late || workers == 2) {
                let wanted = (point.name, format!("{:?}", point.at), workers);
                assert!(tried.contains(&wanted), "{wanted:?}");
            }
        }
    }
}
