//! Minimal cost-complexity pruning (Breiman et al., 1984, chapter 3): as long as some inner node's subtree saves less
//! impurity for each leaf it adds than `alpha`, the one that saves least becomes a leaf.

use super::grower::Grown;
use super::impurity::Criterion;

/// Prunes a tree. Impurities count by their share of the root's weight `total`.
pub(crate) fn prune(nodes: &mut [Grown], criterion: Criterion, (alpha, total): (f64, f64)) {
    if alpha <= 0.0 || total <= 0.0 {
        return;
    }
    loop {
        let (risks, leaves) = subtrees(nodes, criterion, total);
        let mut weakest: Option<(f64, usize)> = None;
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            let Some((_, left)) = nodes[at].split else { continue };
            open.extend([left + 1, left]);
            let own = criterion.impurity(&nodes[at].sums) / total;
            let saved = (own - risks[at]) / (leaves[at] as f64 - 1.0);
            if weakest.is_none_or(|(least, _)| saved < least) {
                weakest = Some((saved, at));
            }
        }
        match weakest {
            Some((saved, at)) if saved <= alpha => nodes[at].split = None,
            _ => return,
        }
    }
}

/// For each node the impurity of the leaves below it and how many there are.
fn subtrees(nodes: &[Grown], criterion: Criterion, total: f64) -> (Vec<f64>, Vec<usize>) {
    let mut risks = vec![0.0; nodes.len()];
    let mut leaves = vec![1; nodes.len()];
    // Children come after their parents.
    for at in (0..nodes.len()).rev() {
        match nodes[at].split {
            Some((_, left)) => {
                risks[at] = risks[left] + risks[left + 1];
                leaves[at] = leaves[left] + leaves[left + 1];
            }
            None => risks[at] = criterion.impurity(&nodes[at].sums) / total,
        }
    }
    (risks, leaves)
}
