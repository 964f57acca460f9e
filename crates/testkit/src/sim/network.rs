//! A virtual network: links keep order (as the transport's law says) but delay as they please; seats crash,
//! and others learn of it in their own time.

use starlings_core::{Rng, Seat};
use std::collections::BTreeMap;

/// Something that will happen to a seat.
#[derive(Clone, Debug)]
pub enum Happening<M> {
    /// The seat wakes up.
    Wake,
    /// A message arrives.
    Message {
        /// From whom.
        from: Seat,
        /// What.
        message: M,
    },
    /// The seat learns that another is gone.
    Lost {
        /// Which.
        seat: Seat,
    },
    /// The seat dies.
    Crash,
}

/// How rough the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Longest delay of a message.
    pub delay_ms_max: u64,
    /// Longest time until a crash is noticed.
    pub notice_ms_max: u64,
}

/// A network of `world` seats.
pub struct Network<M> {
    now: u64,
    count: u64,
    queue: BTreeMap<(u64, u64), (Seat, Happening<M>)>,
    busy_until: BTreeMap<(Seat, Seat), u64>,
    dead: Vec<bool>,
    weather: Weather,
    rng: Rng,
}

impl<M> Network<M> {
    /// A network whose every choice follows from the seed.
    #[must_use]
    pub fn new(seed: u64, world: u32, weather: Weather) -> Network<M> {
        Network {
            now: 0,
            count: 0,
            queue: BTreeMap::new(),
            busy_until: BTreeMap::new(),
            dead: vec![false; world as usize],
            weather,
            rng: Rng::named(seed, "network", &[u64::from(world)]),
        }
    }

    /// The virtual time in milliseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether a seat has crashed.
    #[must_use]
    pub fn is_dead(&self, seat: Seat) -> bool {
        self.dead[seat.index()]
    }

    /// Lets something happen at a time.
    pub fn at(&mut self, time: u64, seat: Seat, happening: Happening<M>) {
        self.count += 1;
        self.queue.insert((time, self.count), (seat, happening));
    }

    /// A number below `bound`, from the network's own generator.
    pub fn draw(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// Sends a message: it arrives later, and after all earlier ones on the same link.
    pub fn send(&mut self, from: Seat, to: Seat, message: M) {
        let delay = self.rng.below(self.weather.delay_ms_max + 1);
        let free = self.busy_until.get(&(from, to)).copied().unwrap_or(0);
        let time = (self.now + delay).max(free);
        self.busy_until.insert((from, to), time);
        self.at(time, to, Happening::Message { from, message });
    }

    /// The next thing that happens to a living seat. Messages of a dead sender still in flight arrive; what
    /// comes after the loss was noticed does not exist any more.
    pub fn happens(&mut self) -> Option<(Seat, Happening<M>)> {
        while let Some(((time, _), (seat, happening))) = self.queue.pop_first() {
            self.now = time;
            if self.dead[seat.index()] {
                continue;
            }
            if let Happening::Crash = happening {
                self.crash(seat);
            }
            return Some((seat, happening));
        }
        None
    }

    /// The process of a seat is gone, and another one may take its place: what was under way to it is lost, and all others
    /// find this note behind what was under way from it, each in its own time.
    pub fn replace(&mut self, seat: Seat, note: &M)
    where
        M: Clone,
    {
        self.queue.retain(|_, (to, happening)| match happening {
            Happening::Message { from, .. } => *to != seat || *from == seat,
            Happening::Lost { .. } => *to != seat,
            Happening::Wake | Happening::Crash => true,
        });
        for other in (0..self.dead.len() as u32).map(Seat).filter(|&other| other != seat) {
            let drained = self.busy_until.get(&(seat, other)).copied().unwrap_or(0);
            let notice = self.now + self.rng.below(self.weather.notice_ms_max + 1);
            let note = Happening::Message { from: seat, message: note.clone() };
            self.at(notice.max(drained), other, note);
        }
    }

    fn crash(&mut self, victim: Seat) {
        self.dead[victim.index()] = true;
        for other in (0..self.dead.len() as u32).map(Seat).filter(|&seat| seat != victim) {
            // What was already under way still arrives: the loss is noticed after the last message.
            let drained = self.busy_until.get(&(victim, other)).copied().unwrap_or(0);
            let notice = self.now + self.rng.below(self.weather.notice_ms_max + 1);
            self.at(notice.max(drained), other, Happening::Lost { seat: victim });
        }
    }
}
