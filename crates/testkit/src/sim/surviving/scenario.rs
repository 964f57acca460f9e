//! What happens in one seed: who takes part, and what befalls whom and when.

use starlings_core::{Rng, Seat};

/// One seed's scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// How members sum.
    pub topology: &'static str,
    /// Members at the start.
    pub world: u32,
    /// Members without whom the job waits.
    pub least: u32,
    /// Members that come later, and when.
    pub newcomers: Vec<u64>,
    /// Whether a step is finished without the rows of the lost.
    pub reweighs: bool,
    /// Steps of the job.
    pub steps: u64,
    /// Virtual shards.
    pub shards: u32,
    /// Who fails, how and when.
    pub failures: Vec<(Seat, Failure, u64)>,
    /// Who is killed when the work is done, and how long after the first has said so.
    pub last: Option<(Seat, u64)>,
    /// When the coordinator stands still, and for how long.
    pub pauses: Vec<(u64, u64)>,
    /// When the coordinator is killed and another one takes over.
    pub crashes: Vec<Crash>,
    /// How many milliseconds of true time each member takes for a hundred of its own.
    pub paces: Vec<u64>,
}

/// A coordinator is killed, and another one takes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crash {
    /// When it is about to die.
    pub when: When,
    /// How much it still does: it may write or say only half of what it has decided.
    pub acts: u64,
    /// How long nobody coordinates.
    pub pause_ms: u64,
    /// How long whoever submitted the job takes to find the next one.
    pub submitter_ms: u64,
}

/// When a coordinator is about to die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// At a time.
    At(u64),
    /// When it first hears of the end of the work.
    End,
    /// So long after it has taken over from another.
    Fresh(u64),
}

/// What some seeds are about.
#[derive(Clone, Copy)]
enum Situation {
    /// One dies while some have finished and others have not, and the job needs all others.
    Endgame,
    /// Two stand still together: whoever hears neither of them has more silent links than they.
    Standstill,
}

/// What happens to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Its process dies.
    Killed,
    /// It stands still for so long.
    Frozen(u64),
    /// Its link to another breaks.
    Cut(Seat),
    /// Its link to another falls silent, both ways: nothing closes, and the coordinator hears both.
    Silent(Seat),
    /// It is not heard by another any more, though it hears that one, and the coordinator hears both.
    Unheard(Seat),
    /// Its link to another carries nothing for so long, and then everything.
    Blinks(Seat, u64),
    /// Its link to the coordinator falls silent, both ways; those to its peers do not.
    Exiled,
    /// It fails by its own word.
    Fails,
    /// It leaves politely.
    Leaves,
}

impl Failure {
    /// The other end of the link that it is about.
    fn other(self) -> Option<Seat> {
        match self {
            Failure::Cut(other) | Failure::Silent(other) | Failure::Unheard(other) => Some(other),
            _ => None,
        }
    }
}

/// Nothing fails any more after this time.
pub(super) const CALM_AFTER_MS: u64 = 20_000;
/// Nobody may be taken for dead who stood still for less than this.
const PAUSE_MS_ALLOWED: u64 = 500;

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::named(seed, "surviving scenario", &[]);
        let topology = ["ring", "tree", "halving-doubling", "star"][rng.below(4) as usize];
        let world = 1 + rng.below(6) as u32;
        let newcomers = (0..rng.below(3)).map(|_| rng.below(CALM_AFTER_MS)).collect::<Vec<_>>();
        let everyone = u64::from(world) + newcomers.len() as u64;
        let failures = (0..everyone as u32).filter_map(|seat| fate(Seat(seat), everyone, &mut rng));
        let mut failures: Vec<_> = failures.collect();
        failures.extend(silence(seed, everyone));
        let (reweighs, steps) = (rng.below(2) == 0, 5 + rng.below(60));
        let shards = 1 + rng.below(12) as u32;
        let least = if rng.below(3) == 0 { 1 + rng.below(u64::from(world)) as u32 } else { 1 };
        let pauses = match rng.below(4) {
            0 => vec![(300 + rng.below(CALM_AFTER_MS), 100 + rng.below(4_000))],
            _ => Vec::new(),
        };
        let paces = (0..everyone).map(|_| 50 + rng.below(150)).collect();
        let whole = Scenario {
            seed,
            topology,
            world,
            least,
            newcomers,
            reweighs,
            steps,
            shards,
            failures,
            last: last_moment(seed, everyone),
            pauses,
            crashes: crashes(seed),
            paces,
        };
        match seed % 32 {
            9 => whole.narrowed_to(Situation::Endgame),
            21 => whole.narrowed_to(Situation::Standstill),
            _ => whole,
        }
    }

    /// The same members in one situation and nothing besides: where everything may happen, some situations hardly ever do. The
    /// seeds that once showed a bug are not among those that are narrowed.
    fn narrowed_to(mut self, situation: Situation) -> Scenario {
        let mut rng = Rng::named(self.seed, "narrow situation", &[]);
        self.world = 3 + rng.below(4) as u32;
        let world = u64::from(self.world);
        self.paces = (0..world).map(|_| 50 + rng.below(150)).collect();
        (self.newcomers, self.failures, self.crashes) = Default::default();
        (self.last, self.pauses) = Default::default();
        match situation {
            Situation::Endgame => {
                self.least = self.world - 1;
                self.last = Some((Seat(rng.below(world) as u32), rng.below(40)));
            }
            Situation::Standstill => {
                self.least = 1;
                let (first, at) = (rng.below(world), 300 + rng.below(CALM_AFTER_MS / 4));
                for still in [first, (first + 1 + rng.below(world - 1)) % world] {
                    let pause = Failure::Frozen(800 + rng.below(3_000));
                    self.failures.push((Seat(still as u32), pause, at + rng.below(200)));
                }
                if rng.below(2) == 0 {
                    self.pauses = vec![(at + rng.below(1_500), 100 + rng.below(2_000))];
                }
                self.steps = self.steps.max(30);
            }
        }
        self
    }

    /// Everything that befalls a member.
    pub(super) fn fates(&self, seat: Seat) -> impl Iterator<Item = Failure> {
        let concerns = move |(who, how, _): &&(Seat, Failure, u64)| {
            // A moment of silence is nobody's fate.
            !matches!(how, Failure::Blinks(..)) && (*who == seat || how.other() == Some(seat))
        };
        let last = self.last.filter(|(who, _)| *who == seat).map(|_| Failure::Killed);
        self.failures.iter().filter(concerns).map(|(_, how, _)| *how).chain(last)
    }

    /// Whether fewer than the job needs may be left, one way or another, of those who are there from the start.
    pub(super) fn can_fall_short(&self) -> bool {
        self.unharmed() < self.least
    }

    /// Whether everyone who is there from the start may be gone, one way or another.
    pub(super) fn can_lose_all(&self) -> bool {
        self.unharmed() == 0
    }

    /// Whether nothing befalls anyone who is there from the start.
    pub(super) fn is_unharmed(&self) -> bool {
        self.unharmed() == self.world
    }

    fn unharmed(&self) -> u32 {
        (0..self.world).filter(|&seat| self.fates(Seat(seat)).next().is_none()).count() as u32
    }

    /// Whether a member may be reported as failed. Who is merely slow, or leaves politely, may not.
    pub(super) fn may_be_blamed(&self, seat: Seat) -> bool {
        self.fates(seat).any(|how| match how {
            Failure::Killed | Failure::Exiled | Failure::Fails => true,
            Failure::Cut(_) | Failure::Silent(_) | Failure::Unheard(_) => true,
            // A pause of the coordinator and one of a member may add up.
            Failure::Frozen(pause) => pause >= PAUSE_MS_ALLOWED || !self.pauses.is_empty(),
            Failure::Leaves | Failure::Blinks(..) => false,
        })
    }
}

/// What befalls one of so many members, if anything does.
fn fate(seat: Seat, everyone: u64, rng: &mut Rng) -> Option<(Seat, Failure, u64)> {
    let time = 300 + rng.below(CALM_AFTER_MS);
    let other = Seat(rng.below(everyone) as u32);
    let how = match rng.below(10) {
        0..3 => Failure::Killed,
        3 => Failure::Frozen(100 + rng.below(8_000)),
        4 if other != seat => Failure::Cut(other),
        5 => Failure::Leaves,
        6 => Failure::Fails,
        7 => Failure::Exiled,
        _ => return None,
    };
    Some((seat, how, time))
}

/// A link that falls silent or blinks, in every second seed. Drawn apart, so that older seeds are what they were.
fn silence(seed: u64, everyone: u64) -> Option<(Seat, Failure, u64)> {
    let mut rng = Rng::named(seed, "silent link", &[]);
    let time = 300 + rng.below(CALM_AFTER_MS);
    let (seat, other) = (Seat(rng.below(everyone) as u32), Seat(rng.below(everyone) as u32));
    let how = match rng.below(6) {
        0 => Failure::Silent(other),
        1 => Failure::Unheard(other),
        2 => Failure::Blinks(other, 50 + rng.below(PAUSE_MS_ALLOWED - 50)),
        _ => return None,
    };
    (seat != other).then_some((seat, how, time))
}

/// Somebody dies while some have finished and others have not, in every eighth seed: a moment so short that no time
/// that is drawn beforehand hits it. Drawn apart, so that older seeds are what they were.
fn last_moment(seed: u64, everyone: u64) -> Option<(Seat, u64)> {
    let mut rng = Rng::named(seed, "last moment", &[]);
    (rng.below(8) == 0).then(|| (Seat(rng.below(everyone) as u32), rng.below(40)))
}

/// Coordinators that are killed, in every fourth seed. Drawn apart, so that older seeds are what they were.
fn crashes(seed: u64) -> Vec<Crash> {
    let mut rng = Rng::named(seed, "coordinator crash", &[]);
    let count = match rng.below(12) {
        0 => 2,
        1 | 2 => 1,
        _ => 0,
    };
    let crash = |at: u64| {
        let when = match rng.below(6) {
            0 => When::At(1 + rng.below(600)),
            1 => When::End,
            2 | 3 if at > 0 => When::Fresh(rng.below(2_500)),
            _ => When::At(300 + rng.below(CALM_AFTER_MS / 2)),
        };
        let acts = if rng.below(2) == 0 { 0 } else { 1 + rng.below(6) };
        let pause_ms = rng.below(3_000);
        let submitter_ms = if rng.below(4) == 0 { rng.below(4_000) } else { rng.below(400) };
        Crash { when, acts, pause_ms, submitter_ms }
    };
    (0..count).map(crash).collect()
}
