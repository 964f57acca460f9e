//! Makes replicas that have gone their own ways one again: every tensor becomes the mean over the flock.

use crate::merge::Merger;
use starlings_core::{Block, Body, Model, Result, Update, Values};

/// Every tensor of the model becomes its mean over all seats; counters become the mean, rounded down. All
/// seats get the same bits.
pub(super) fn to_mean(model: &mut Model, exact: &mut Merger, world: u32) -> Result<()> {
    let blocks = model.iter().map(|(name, tensor)| Block {
        name: name.to_string(),
        body: Body::Dense(tensor.values.clone()),
    });
    let sum = exact.merge(Update { blocks: blocks.collect() })?;
    for block in sum.blocks {
        let (Some(tensor), Body::Dense(mut values)) = (model.get_mut(&block.name), block.body)
        else {
            continue;
        };
        match &mut values {
            Values::F32(sums) => sums.iter_mut().for_each(|sum| *sum /= world as f32),
            Values::F64(sums) => sums.iter_mut().for_each(|sum| *sum /= f64::from(world)),
            Values::I64(sums) => sums.iter_mut().for_each(|sum| *sum /= i64::from(world)),
        }
        tensor.values = values;
    }
    Ok(())
}
