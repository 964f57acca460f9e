//! The choice of a way to travel, block by block.

/// Chooses a representation for each block (HybComm, Zhang et al., 2017).
pub trait Cheapest: Send + Sync {
    /// The cheapest way for one contribution of a block.
    fn choose(&self, block: &Facts) -> Way;
}

/// What decides how a block should travel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Facts {
    /// Numbers in the block when it is dense.
    pub len: usize,
    /// How many of them are not zero.
    pub nonzero: usize,
    /// Rows and columns, and outer products it is the sum of, where the learner knows them.
    pub factors: Option<(usize, usize, usize)>,
    /// Bytes of one number.
    pub width: usize,
    /// Seats that sum.
    pub world: u32,
    /// Bytes a second between two seats, where it is known.
    pub bytes_per_second: Option<f64>,
    /// Whether every contribution goes to everyone (or else to one owner, who answers).
    pub everyone: bool,
}

/// How a block travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// All its numbers.
    Dense,
    /// Those that are not zero, and where they are.
    Sparse,
    /// Its factors.
    Factors,
}
