//! Who takes over which shards when members change. Law: the deal is a partition of all shards, even to within one;
//! nobody loses a shard that it could have kept; and it follows from who had what alone, so that everyone who
//! computes it finds the same.

use starlings_core::planted;

/// The shards of each seat, by number.
pub type Deal = Vec<Vec<u32>>;

/// A new deal: `kept[s]` is what the member now at seat s had before (nothing, if it is new), `orphans` are the
/// shards of those who are gone.
///
/// ```
/// use starlings_cluster::deal::deal_again;
/// // The third of three members is gone: its shards go to the others.
/// assert_eq!(deal_again(vec![vec![0, 3], vec![1, 4]], vec![2, 5]), [vec![0, 2, 3], vec![1, 4, 5]]);
/// ```
#[must_use]
pub fn deal_again(mut kept: Deal, mut orphans: Vec<u32>) -> Deal {
    if kept.is_empty() {
        return kept;
    }
    orphans.sort_unstable();
    for shard in orphans {
        let poorest = place(&kept, |len, least| len < least);
        kept[poorest].push(shard);
        if planted!("shard-dealt-twice") {
            let next = (poorest + 1) % kept.len();
            kept[next].push(shard);
        }
    }
    loop {
        let (richest, poorest) = (place(&kept, |a, b| a > b), place(&kept, |a, b| a < b));
        if kept[richest].len() <= kept[poorest].len() + 1 {
            break;
        }
        kept[richest].sort_unstable();
        let moved = kept[richest].pop();
        if !planted!("shard-lost") {
            kept[poorest].extend(moved);
        }
    }
    kept.iter_mut().for_each(|shards| shards.sort_unstable());
    kept
}

/// The first seat whose number of shards is the best.
fn place(deal: &[Vec<u32>], better: fn(usize, usize) -> bool) -> usize {
    let mut best = 0;
    for (seat, shards) in deal.iter().enumerate() {
        if better(shards.len(), deal[best].len()) {
            best = seat;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_deal_is_an_even_partition_that_moves_as_little_as_it_can(
            owners in prop::collection::vec(0usize..7, 0..60),
            world in 1usize..6,
        ) {
            // Shards of owners beyond the world are orphans; the last seat may be a newcomer.
            let mut kept: Deal = vec![Vec::new(); world];
            let mut orphans = Vec::new();
            for (shard, &owner) in owners.iter().enumerate() {
                match kept.get_mut(owner) {
                    Some(shards) => shards.push(shard as u32),
                    None => orphans.push(shard as u32),
                }
            }
            let dealt = deal_again(kept.clone(), orphans.clone());
            let mut all: Vec<u32> = dealt.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..owners.len() as u32).collect::<Vec<_>>());
            let lengths = dealt.iter().map(Vec::len);
            let (most, least) = (lengths.clone().max().unwrap(), lengths.min().unwrap());
            prop_assert!(most <= least + 1);
            for (before, after) in kept.iter().zip(&dealt) {
                let lost = before.iter().filter(|shard| !after.contains(shard)).count();
                prop_assert!(lost <= before.len().saturating_sub(least), "{} lost for nothing", lost);
            }
        }
    }
}
