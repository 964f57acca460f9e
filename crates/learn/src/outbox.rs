//! Where a learner emits its blocks. The engine may take each as soon as it is emitted, so that it travels while
//! the next is computed; the others it reads at the end, in the order of emission.

use starlings_core::{Block, Update};

/// Who takes blocks while the learner still computes.
pub trait Sink: Send {
    /// Takes a block that was just emitted, or gives it back to wait for the end.
    fn take(&mut self, block: Block) -> Option<Block>;

    /// Hears that the next block takes a while to compute: what is gathered may leave.
    fn pause(&mut self) {}
}

/// The blocks of one step so far.
#[derive(Default)]
pub struct Outbox {
    update: Update,
    names: Vec<String>,
    sink: Option<Box<dyn Sink>>,
    factors: bool,
    weighs: bool,
}

impl Outbox {
    /// Empty.
    #[must_use]
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// From now on blocks go to this sink first.
    pub fn attach(&mut self, sink: Option<Box<dyn Sink>>) {
        self.sink = sink;
    }

    /// Whether matrices are wanted as the factors they are made of, where the learner has them.
    pub fn want_factors(&mut self, wanted: bool) {
        self.factors = wanted;
    }

    /// Whether matrices are wanted as the factors they are made of.
    #[must_use]
    pub fn wants_factors(&self) -> bool {
        self.factors
    }

    /// Whether factors are wanted only where they are fewer numbers than a sum of matrices sends.
    pub fn weigh_factors(&mut self, weighs: bool) {
        self.weighs = weighs;
    }

    /// Whether a matrix of a shape is wanted as factors, of which all workers together have so many terms in this step. Of
    /// an M × N matrix and K terms on P workers, each sends K(M + N)(P − 1)/P numbers to the others, or 2MN(P − 1)/P in a
    /// sum that everyone adds a share of (Zhang et al., 2017: Poseidon).
    #[must_use]
    pub fn takes_factors(&self, (rows, width): (usize, usize), terms: u64) -> bool {
        let (rows, width) = (rows as u128, width as u128);
        self.factors && (!self.weighs || u128::from(terms) * (rows + width) < 2 * rows * width)
    }

    /// Emits a block. Its name must be new in this step.
    ///
    /// # Panics
    /// If a block of this name was emitted before: a bug in the learner.
    pub fn emit(&mut self, block: Block) {
        assert!(!self.names.contains(&block.name), "'{}' was emitted twice", block.name);
        self.names.push(block.name.clone());
        let kept = match &mut self.sink {
            Some(sink) => sink.take(block),
            None => Some(block),
        };
        self.update.blocks.extend(kept);
    }

    /// Whether blocks may leave while others are computed: then it is worth while to emit each as soon as it is known.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.sink.is_some()
    }

    /// Says that the next block takes a while to compute. Under one step every worker says so after the same blocks.
    pub fn pause(&mut self) {
        if let Some(sink) = &mut self.sink {
            sink.pause();
        }
    }

    /// Everything emitted that no sink has taken. The sink is dropped.
    #[must_use]
    pub fn take(&mut self) -> Update {
        self.names.clear();
        self.sink = None;
        std::mem::take(&mut self.update)
    }
}
