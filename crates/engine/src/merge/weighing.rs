//! What blocks that travel by the cheapest way must know: bytes a second between two seats. Measured before the first sum that
//! is large enough, and agreed on by the group, so that all weigh with the same number.

use super::Merger;
use crate::exchange::packet::Packer;
use crate::pace::{PROBE_BYTES, bytes_per_second, probe};
use starlings_core::{Block, Body, Deadline, Result, Update};

impl Merger {
    /// Tells the packer what links carry, once. Where all that is summed is no longer than a probe, it is not worth one.
    pub(super) fn weigh(&mut self, update: &Update, packer: &mut Packer) -> Result<()> {
        // The shapes are alike on all seats, and so is this.
        if !packer.weighs() || packer.bandwidth().is_some() || dense_bytes(update) <= PROBE_BYTES {
            return Ok(());
        }
        self.meet()?;
        let by = Deadline::after(self.patience);
        let mine = probe(&self.net, &self.group, u32::from(self.kind), by)?;
        let slowest = self.largest(Update { blocks: vec![Block::counts("pace", vec![mine])] })?;
        packer.carried(bytes_per_second(slowest.i64("pace")[0]));
        Ok(())
    }
}

/// Bytes of what could travel in several ways, if all of it were dense.
fn dense_bytes(update: &Update) -> usize {
    let dense = |block: &Block| match &block.body {
        Body::Dense(values) => values.len() * values.kind().bytes(),
        Body::Factors(factors) => factors.rows as usize * factors.width as usize * 8,
        Body::Rows(_) => 0,
    };
    update.blocks.iter().map(dense).sum()
}
