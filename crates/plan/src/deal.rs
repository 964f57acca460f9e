//! Dealing shards: neighbouring shards go to one hand, because their rows are neighbours in the file and are
//! read in one sweep. Hands differ by one shard at most.

use starlings_core::{Fault, Result, Shard};

/// The shards of hand `hand` of `hands`.
pub(crate) fn deal(hand: u32, hands: u32, shards: u32) -> Result<Vec<Shard>> {
    if hands > shards {
        let what = format!("{shards} shards are too few: {hands} workers need one each");
        return Err(Fault::caller(what)
            .hint(format!("raise `train.shards` to at least {hands}, or use fewer workers")));
    }
    let start = |hand: u32| (u64::from(hand) * u64::from(shards) / u64::from(hands)) as u32;
    Ok((start(hand)..start(hand + 1)).map(Shard).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_shards_are_the_callers_to_raise() {
        let fault = deal(0, 17, 16).unwrap_err();
        assert_eq!(fault.blame(), starlings_core::Blame::Caller);
        assert!(fault.advice().unwrap().contains("`train.shards` to at least 17"), "{fault}");
        assert_eq!(deal(15, 16, 16).unwrap(), [Shard(15)]);
    }
}
