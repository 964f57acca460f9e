//! Simulates one barrier sum with the real machine ([`Scheduled`]). The oracle: seat i contributes 2^i in an
//! integer lane, so a sum names its contributors; other lanes are integers that are exact in f32.

use super::network::{Happening, Network, Weather};
use starlings_core::{Block, Body, Kind, Rng, Rows, Seat, Update, Values};
use starlings_engine::choices::{raw, summing};
use starlings_engine::exchange::scheduled::{Around, Command, Event, Scheduled};
use starlings_topology::{Pattern, TOPOLOGIES, moves};

/// What crosses the virtual network.
#[derive(Clone, Debug)]
pub struct Message {
    chunk: usize,
    total: bool,
    payload: Vec<u8>,
}

/// One seed's scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The topology's name.
    pub topology: &'static str,
    /// Seats.
    pub world: u32,
    /// Numbers in the dense block.
    pub numbers: usize,
    /// Who crashes, and when.
    pub crashes: Vec<(Seat, u64)>,
}

/// How a seat's sum ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Ending {
    /// With this sum.
    Done(Update),
    /// With this seat named as lost.
    Failed(Seat),
    /// The seat itself crashed.
    Crashed,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::named(seed, "merge scenario", &[]);
        let topologies = played();
        let topology = topologies[rng.below(topologies.len() as u64) as usize];
        let world = 1 + rng.below(7) as u32;
        let numbers = [1, 3, 100, 70_000][rng.below(4) as usize];
        let crashes = match rng.below(3) {
            0 => Vec::new(),
            _ => {
                let victims = rng.below(u64::from(world)) as u32;
                (0..victims).map(|victim| (Seat(victim), rng.below(300))).collect()
            }
        };
        Scenario { seed, topology, world, numbers, crashes }
    }

    /// Runs it to the end of all events and gives every seat's ending.
    ///
    /// # Panics
    /// When a seat is still waiting after the last event: a hang.
    #[must_use]
    pub fn run(&self) -> Vec<Ending> {
        let weather = Weather { delay_ms_max: 50, notice_ms_max: 1_000 };
        let mut network: Network<Message> = Network::new(self.seed, self.world, weather);
        let seats: Vec<Seat> = (0..self.world).map(Seat).collect();
        let mut machines: Vec<Scheduled> = seats.iter().map(|&seat| self.machine(seat)).collect();
        let mut early: Vec<Vec<Event>> = vec![Vec::new(); seats.len()];
        let mut awake = vec![false; seats.len()];
        let mut endings: Vec<Option<Ending>> = vec![None; seats.len()];
        for &seat in &seats {
            let time = network.draw(200);
            network.at(time, seat, Happening::Wake);
        }
        for &(seat, time) in &self.crashes {
            network.at(time, seat, Happening::Crash);
        }
        while let Some((seat, happening)) = network.happens() {
            let at = seat.index();
            let event = match happening {
                Happening::Wake => {
                    awake[at] = true;
                    Event::Begin
                }
                Happening::Message { from, message: Message { chunk, total, payload } } => {
                    Event::Frame { from, chunk, total, payload }
                }
                Happening::Lost { seat } => Event::Lost { seat, why: "connection lost".into() },
                Happening::Crash => {
                    endings[at] = Some(Ending::Crashed);
                    continue;
                }
            };
            // A seat that still computes finds what has arrived when it comes to its sum.
            if !awake[at] {
                early[at].push(event);
                continue;
            }
            let events: Vec<Event> = std::iter::once(event).chain(early[at].drain(..)).collect();
            for event in events {
                if endings[at].is_none() {
                    endings[at] = step(seat, &mut machines[at], event, &mut network);
                }
            }
        }
        for (&seat, machine) in seats.iter().zip(machines) {
            let kept = machine.take_both().1;
            assert_eq!(kept, self.keeps(seat).then(|| self.contribution(seat)), "{seat} {self:?}");
        }
        let waiting = |seat: usize| panic!("seed {}: seat {seat} hangs in {self:?}", self.seed);
        endings
            .into_iter()
            .enumerate()
            .map(|(at, ending)| ending.unwrap_or_else(|| waiting(at)))
            .collect()
    }

    /// The sum that all contributions make.
    #[must_use]
    pub fn truth(&self) -> Update {
        let mut sum = self.contribution(Seat(0));
        for seat in 1..self.world {
            sum.fold(&self.contribution(Seat(seat))).expect("contributions have one shape");
        }
        sum
    }

    fn machine(&self, seat: Seat) -> Scheduled {
        let topology = summing(self.topology, "").expect("chosen among those that sum");
        let codec = raw();
        let world = self.world;
        let grain = topology.grain(world);
        let machine = Scheduled::new(self.contribution(seat), codec, grain, |chunks| {
            moves(&topology.pattern(seat, world, chunks), seat, world)
        });
        if !self.keeps(seat) {
            return machine;
        }
        // Sums of any length may be written around the caches, as those of megabytes are.
        let from = |is_around: bool| if is_around { 0 } else { usize::MAX };
        let sums_from = from(!self.seed.is_multiple_of(3));
        let totals_from = from(!self.seed.is_multiple_of(5));
        machine.keeping(self.room(seat)).around(Around { sums_from, totals_from })
    }

    /// Whether a seat's contribution must be as it was when its sum has ended, in whatever way.
    fn keeps(&self, seat: Seat) -> bool {
        (self.seed + u64::from(seat.0)).is_multiple_of(2)
    }

    /// Room for a sum, with numbers of an earlier one in it.
    fn room(&self, seat: Seat) -> Update {
        let mut room = self.contribution(seat);
        for block in &mut room.blocks {
            match &mut block.body {
                Body::Dense(Values::F32(old)) => old.fill(777.0),
                Body::Dense(Values::I64(old)) => old.fill(-1),
                _ => {}
            }
        }
        room
    }

    fn contribution(&self, seat: Seat) -> Update {
        let mut rng = Rng::named(self.seed, "contribution", &[u64::from(seat.0)]);
        let mut index: Vec<u32> = (0..50).filter(|_| rng.below(3) == 0).collect();
        index.dedup();
        let mut small =
            |count: usize| -> Vec<f32> { (0..count).map(|_| rng.below(1000) as f32).collect() };
        let rows = Rows { total: 50, width: 2, values: Values::F32(small(index.len() * 2)), index };
        let dense = Values::F32(small(self.numbers));
        assert_eq!(dense.kind(), Kind::F32);
        Update {
            blocks: vec![
                Block::counts("who", vec![1 << seat.0]),
                Block { name: "dense".into(), body: Body::Dense(dense) },
                Block::rows("rows", rows),
            ],
        }
    }
}

fn step(
    seat: Seat,
    machine: &mut Scheduled,
    event: Event,
    network: &mut Network<Message>,
) -> Option<Ending> {
    let (mut commands, mut scratch) = (Vec::new(), Vec::new());
    machine.on(event, &mut commands);
    for command in commands {
        match command {
            Command::Send { to, chunk, total } => {
                let payload = machine.payload(chunk, &mut scratch).to_vec();
                network.send(seat, to, Message { chunk, total, payload });
            }
            Command::Done => return Some(Ending::Done(machine.sum().clone())),
            Command::Fail { seat, .. } => return Some(Ending::Failed(seat)),
        }
    }
    None
}

/// The topologies whose moves can be played.
fn played() -> Vec<&'static str> {
    let sums = |name: &&str| {
        summing(name, "").is_ok_and(|topology| topology.pattern(Seat(0), 2, 2) != Pattern::Everyone)
    };
    TOPOLOGIES.iter().map(|entry| entry.name).filter(sums).collect()
}

/// Runs one seed and checks every invariant.
///
/// # Panics
/// With the seed, when one does not hold.
pub fn check(seed: u64) {
    let scenario = Scenario::of(seed);
    let endings = scenario.run();
    let truth = scenario.truth();
    let crashed: Vec<Seat> = scenario.crashes.iter().map(|(seat, _)| *seat).collect();
    for (seat, ending) in endings.iter().enumerate() {
        match ending {
            Ending::Done(sum) => assert_eq!(sum, &truth, "seed {seed}: wrong sum at seat {seat}"),
            Ending::Failed(lost) => {
                assert!(
                    crashed.contains(lost),
                    "seed {seed}: seat {seat} blames living seat {lost}"
                );
            }
            Ending::Crashed => assert!(crashed.contains(&Seat(seat as u32))),
        }
    }
    if crashed.is_empty() {
        assert!(endings.iter().all(|ending| matches!(ending, Ending::Done(_))), "seed {seed}");
    }
}
