//! Simulates sums with the real machine of collected contributions ([`Collected`]) and the real packers, one sum after
//! another. The oracle: with a codec that loses nothing the sum is the fold of all contributions in the order of
//! seats, to the bit; with any other all seats hold the same bits, and blocks that are no gradients are exact.

use super::merging::Ending;
use super::network::{Happening, Network, Weather};
use starlings_codec::Shapes;
use starlings_core::{Block, Body, Factors, Rng, Rows, Seat, Update, Values};
use starlings_engine::choices::{Carriage, codec};
use starlings_engine::exchange::collected::{Collected, Sitting};
use starlings_engine::exchange::packet::{Address, Packer};
use starlings_engine::exchange::scheduled::{Command, Event};
use std::sync::Arc;

/// Codecs, and whether they lose nothing.
const CODECS: [(&str, &str, bool); 10] = [
    ("raw", "", true),
    ("auto", "", true),
    ("factors", "", true),
    ("half", "", false),
    ("half", "format = \"bf16\"", false),
    ("int8", "bucket = 64", false),
    ("ternary", "", false),
    ("one-bit", "bucket = 64", false),
    ("top-k", "ratio = 0.1", false),
    ("threshold", "threshold = 2.0", false),
];

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
    /// The codec's name, its parameters, and whether it loses nothing.
    pub codec: (&'static str, &'static str, bool),
    /// Whether contributions go to everyone (or else to owners).
    pub everyone: bool,
    /// Seats.
    pub world: u32,
    /// Numbers in the large dense blocks.
    pub numbers: usize,
    /// Which sum it is: packers have lost something before.
    pub count: u64,
    /// Who crashes, and when.
    pub crashes: Vec<(Seat, u64)>,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::named(seed, "collecting scenario", &[]);
        let codec = CODECS[rng.below(CODECS.len() as u64) as usize];
        let world = 1 + rng.below(7) as u32;
        let numbers = [1, 5, 300, 3_000][rng.below(4) as usize];
        let crashes = match rng.below(3) {
            0 => Vec::new(),
            _ => {
                let victims = rng.below(u64::from(world)) as u32;
                (0..victims).map(|victim| (Seat(victim), rng.below(300))).collect()
            }
        };
        let (everyone, count) = (rng.below(2) == 0, rng.below(3));
        Scenario { seed, codec, everyone, world, numbers, count, crashes }
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
        let mut sitters: Vec<Sitter> = seats.iter().map(|&seat| self.sitter(seat)).collect();
        for &seat in &seats {
            let time = network.draw(200);
            network.at(time, seat, Happening::Wake);
        }
        for &(seat, time) in &self.crashes {
            network.at(time, seat, Happening::Crash);
        }
        while let Some((seat, happening)) = network.happens() {
            let sitter = &mut sitters[seat.index()];
            let event = match happening {
                Happening::Wake => {
                    sitter.awake = true;
                    Event::Begin
                }
                Happening::Message { from, message: Message { chunk, total, payload } } => {
                    Event::Frame { from, chunk, total, payload }
                }
                Happening::Lost { seat } => Event::Lost { seat, why: "connection lost".into() },
                Happening::Crash => {
                    sitter.ending = Some(Ending::Crashed);
                    continue;
                }
            };
            // A seat that still computes finds what has arrived when it comes to its sum.
            if !sitter.awake {
                sitter.early.push(event);
                continue;
            }
            for event in std::iter::once(event).chain(std::mem::take(&mut sitter.early)) {
                sitter.step(seat, event, &mut network);
            }
        }
        let hangs = |seat: usize| panic!("seed {}: seat {seat} hangs in {self:?}", self.seed);
        let ending = |(seat, sitter): (usize, Sitter)| sitter.ending.unwrap_or_else(|| hangs(seat));
        sitters.into_iter().enumerate().map(ending).collect()
    }

    /// The fold of all contributions in the order of seats; factors multiplied out.
    ///
    /// # Panics
    /// Never: contributions have one shape.
    #[must_use]
    pub fn truth(&self) -> Update {
        let mut sum = multiplied_out(self.contribution(Seat(0), self.count));
        for seat in (1..self.world).map(Seat) {
            let next = multiplied_out(self.contribution(seat, self.count));
            sum.fold(&next).expect("contributions have one shape");
        }
        sum
    }

    fn carriage(&self) -> Carriage {
        codec(self.codec.0, self.codec.1).expect("the catalogue has it")
    }

    /// Compressors are given no factors: their matrices are multiplied out before.
    fn has_factors(&self) -> bool {
        !matches!(self.carriage(), Carriage::Contributions(_))
    }

    fn sitter(&self, seat: Seat) -> Sitter {
        let (world, everyone) = (self.world, self.everyone);
        let address = Address { seed: self.seed, seat: seat.0, world, everyone };
        let mut packer = Packer::new(self.carriage(), Arc::new(self.shapes()), &address);
        // What earlier sums have lost is there before this one begins.
        for count in 0..self.count {
            let mut machine = self.machine(seat, count);
            machine.on(Event::Begin, &mut packer, &mut Vec::new());
        }
        let machine = self.machine(seat, self.count);
        Sitter { machine: Some(machine), packer, early: Vec::new(), awake: false, ending: None }
    }

    fn machine(&self, seat: Seat, count: u64) -> Collected {
        let (world, everyone) = (self.world, self.everyone);
        let sitting = Sitting { count, me: seat, world };
        let own = self.contribution(seat, count);
        Collected::new(own, sitting, world as usize, |chunks| {
            let owner = |chunk| Seat(chunk as u32 % world);
            (!everyone).then(|| (0..chunks).map(owner).collect())
        })
    }

    fn shapes(&self) -> Shapes {
        let shapes = [
            ("single", (self.numbers, 1)),
            ("double", (self.numbers, 1)),
            ("rows", (50, 2)),
            ("product", (6, 5)),
        ];
        shapes.into_iter().map(|(name, shape)| (name.to_string(), shape)).collect()
    }

    fn contribution(&self, seat: Seat, count: u64) -> Update {
        let key = [u64::from(seat.0), count];
        let mut rng = Rng::named(self.seed, "contribution", &key);
        let index: Vec<u32> = (0..50).filter(|_| rng.below(3) == 0).collect();
        let numbers = |rng: &mut Rng, len: usize| -> Vec<f64> {
            (0..len).map(|_| 10.0 * rng.normal()).collect()
        };
        let values = Values::F64(numbers(&mut rng, index.len() * 2));
        let rows = Rows { total: 50, width: 2, values, index };
        let single = numbers(&mut rng, self.numbers).into_iter().map(|number| number as f32);
        let mut blocks = vec![
            Block::counts("who", vec![1 << seat.0]),
            Block { name: "single".into(), body: Body::Dense(Values::F32(single.collect())) },
            Block::dense("double", numbers(&mut rng, self.numbers)),
            Block::rows("rows", rows),
            Block::dense("loss", numbers(&mut rng, 2)),
        ];
        if self.has_factors() {
            let terms = rng.below(4) as usize;
            let (left, right) = (numbers(&mut rng, terms * 6), numbers(&mut rng, terms * 5));
            let factors = Factors { rows: 6, width: 5, left, right };
            blocks.push(Block { name: "product".into(), body: Body::Factors(factors) });
        }
        Update { blocks }
    }
}

/// One seat of a sum.
struct Sitter {
    machine: Option<Collected>,
    packer: Packer,
    early: Vec<Event>,
    awake: bool,
    ending: Option<Ending>,
}

impl Sitter {
    fn step(&mut self, seat: Seat, event: Event, network: &mut Network<Message>) {
        let Some(machine) = &mut self.machine else { return };
        let mut commands = Vec::new();
        machine.on(event, &mut self.packer, &mut commands);
        for command in commands {
            match command {
                Command::Send { to, chunk, total } => {
                    let payload = machine.payload(chunk, total).to_vec();
                    network.send(seat, to, Message { chunk, total, payload });
                }
                Command::Fail { seat, .. } => self.ending = Some(Ending::Failed(seat)),
                Command::Done => {
                    let sum = self.machine.take().map(Collected::take);
                    self.ending = sum.map(Ending::Done);
                    return;
                }
            }
        }
        if self.ending.is_some() {
            self.machine = None;
        }
    }
}

fn multiplied_out(mut update: Update) -> Update {
    for block in &mut update.blocks {
        if let Body::Factors(factors) = &block.body {
            let mut matrix = vec![0.0; factors.rows as usize * factors.width as usize];
            factors.add_to(&mut matrix);
            block.body = Body::Dense(Values::F64(matrix));
        }
    }
    update
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
    let mut first: Option<&Update> = None;
    for (seat, ending) in endings.iter().enumerate() {
        match ending {
            Ending::Done(sum) => {
                check_sum(&scenario, sum, &truth);
                let first = first.get_or_insert(sum);
                assert!(*first == sum, "seed {seed}: seat {seat} holds other bits in {scenario:?}");
            }
            Ending::Failed(lost) => {
                assert!(crashed.contains(lost), "seed {seed}: seat {seat} blames living {lost}");
            }
            Ending::Crashed => assert!(crashed.contains(&Seat(seat as u32))),
        }
    }
    if crashed.is_empty() {
        assert!(endings.iter().all(|ending| matches!(ending, Ending::Done(_))), "seed {seed}");
    }
}

fn check_sum(scenario: &Scenario, sum: &Update, truth: &Update) {
    let (seed, exact) = (scenario.seed, scenario.codec.2 || scenario.world == 1);
    let names = |update: &Update| -> Vec<String> {
        update.blocks.iter().map(|block| block.name.clone()).collect()
    };
    assert_eq!(names(sum), names(truth), "seed {seed}");
    for (block, wanted) in sum.blocks.iter().zip(&truth.blocks) {
        if block.name == "product" {
            // Terms are added one by one: another order of additions than that of whole matrices.
            let pairs = block.f64s().iter().zip(wanted.f64s());
            let near = |(found, wanted): (&f64, &f64)| (found - wanted).abs() < 1e-8;
            assert!(!exact || pairs.into_iter().all(near), "seed {seed}: {block:?} for {wanted:?}");
        } else if exact || matches!(block.name.as_str(), "who" | "loss") {
            assert_eq!(block, wanted, "seed {seed}: in {scenario:?}");
        }
    }
}
