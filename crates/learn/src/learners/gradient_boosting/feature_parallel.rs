//! Feature-parallel growth, as LightGBM has it (Ke et al., 2017): all rows travel once, as bins, so that every worker
//! can follow any split by itself. Then each worker looks for the best splits of its own features over all rows, and
//! only these travel: no histogram does. The trees are those of data-parallel growth, to the bit.
//!
//! Features are dealt in groups to shards, and a group belongs to whoever holds its shard. What is summed over rows and
//! not over bins (losses, values of leaves) is summed over the rows of the worker's own shards.
//!
//! Bytes of a worker: 8 (1 + ⌈features / 8⌉) a row, once; then 104 for each node looked at and each group of features.
//! There are as many groups as shards, or features if those are fewer.

use super::grow::{View, sum_all};
use super::growing::{SPLIT_WORDS, read_split, split_words};
use super::options::Parallelism;
use super::resident::Resident;
use super::state::Setup;
use crate::trees::histogram::{self, Form, Layout, Sums};
use crate::trees::split::{self, Rules, Split, Subject};
use crate::{Moment, Work};
use starlings_core::{Block, Model, Shard, Update};

/// Whether features are dealt, and not rows.
pub(super) fn deals(setup: &Setup<'_>) -> bool {
    setup.options.parallelism == Parallelism::Feature
}

/// How the features of a tree are dealt to shards.
struct Deal {
    features: usize,
    groups: usize,
    shards: usize,
}

impl Deal {
    fn new(view: &View, model: &Model) -> Deal {
        let (features, shards) = (view.layout.features.len(), model.i64("voters")[0] as usize);
        Deal { features, groups: features.min(shards), shards }
    }

    /// The group of the feature at a place of the tree's layout: neighbours share one.
    fn group(&self, place: usize) -> usize {
        place * self.groups / self.features.max(1)
    }

    /// The shard of a group. They are spread so that holders of every second shard have their share, and holders of the
    /// first half too.
    fn shard(&self, group: usize) -> Shard {
        let groups = self.groups.max(1);
        let first = group * self.shards / groups;
        // Where there is room, every second group has an odd shard.
        let odd = if self.shards >= 2 * groups { (first ^ group) & 1 } else { 0 };
        Shard((first + odd) as u32)
    }
}

/// Emits the best splits of the worker's features, for each node being looked at, and of a root the sums of its rows.
pub(super) fn contribute(setup: &Setup<'_>, resident: Option<&mut Resident>, work: &mut Work<'_>) {
    let mut view = View::new(setup, work.model, work.moment.seed);
    let deal = Deal::new(&view, work.model);
    let looked = view.growing.looked(setup.options);
    let mut block = vec![0; looked.len() * deal.groups * SPLIT_WORDS];
    let mut total = [0; 3];
    let is_root = view.growing.pending.is_empty();
    if let Some(resident) = resident {
        let held = |shard: Shard| work.batch.slices.iter().any(|slice| slice.shard == shard);
        let own: Vec<usize> =
            (0..deal.features).filter(|&place| held(deal.shard(deal.group(place)))).collect();
        if is_root {
            let rows = resident.partition.rows(0);
            let mine = rows.iter().copied().filter(|&row| resident.counts(row as usize));
            total = sum_all(&resident.grid, mine);
            let [gradient, hessian, rows] = sum_all(&resident.grid, rows.iter().copied());
            view.growing.twigs[0].sums = Sums { gradient, hessian, rows };
        }
        let rules = setup.rules(work.model, view.clock.rows);
        let features = own.iter().map(|&place| view.layout.features[place]).collect();
        let layout = Layout::new(&view.columns, features);
        let mut found = Finder { setup, view: &view, rules: &rules, layout, resident };
        found.keep_histograms();
        for (&node, block) in looked.iter().zip(block.chunks_mut(deal.groups.max(1) * SPLIT_WORDS))
        {
            let allowed = view.allows(setup, node);
            for group in 0..deal.groups {
                let is_of = |at: usize| deal.group(own[at]) == group && allowed[own[at]];
                let words = split_words(found.best(node, is_of).as_ref());
                block[group * SPLIT_WORDS..][..SPLIT_WORDS].copy_from_slice(&words);
            }
        }
    }
    work.outbox.emit(Block::counts("splits", block));
    if is_root {
        work.outbox.emit(Block::counts("total", total.to_vec()));
    }
}

/// Looks for splits among the worker's features.
struct Finder<'a> {
    setup: &'a Setup<'a>,
    view: &'a View,
    rules: &'a Rules,
    layout: Layout,
    resident: &'a mut Resident,
}

impl Finder<'_> {
    /// Makes the histograms of the nodes being looked at: of two siblings that of the smaller one, and the other by
    /// subtraction from the parent's, which was kept.
    fn keep_histograms(&mut self) {
        let growing = &self.view.growing;
        if growing.pending.is_empty() {
            let root = self.build(0);
            self.resident.kept.insert(0, root);
        }
        for &parent in &growing.pending {
            let smaller = growing.smaller(parent);
            let left = growing.twigs[parent].child.expect("pending nodes are expanded");
            let larger = if smaller == left { left + 1 } else { left };
            let sums = self.build(smaller);
            let whole = self.resident.kept.remove(&parent);
            let fits = whole.filter(|whole| whole.len() == sums.len());
            let rest = match fits {
                Some(whole) => whole.iter().zip(&sums).map(|(&all, &part)| all - part).collect(),
                None => self.build(larger),
            };
            self.resident.kept.insert(smaller, sums);
            self.resident.kept.insert(larger, rest);
        }
    }

    fn build(&mut self, node: usize) -> Vec<Sums> {
        let mut words = vec![0; self.layout.bins() * Form::Three.words()];
        let Resident { partition, store, grid, bench, .. } = &mut *self.resident;
        let shape = (&self.layout, Form::Three);
        histogram::build((partition.rows(node), store), grid, shape, bench, &mut words);
        histogram::read(Form::Three, &words)
    }

    /// The best split of a node among some of the features.
    fn best(&self, node: usize, is_of: impl Fn(usize) -> bool) -> Option<Split> {
        let growing = &self.view.growing;
        if !growing.may_split(node, self.setup.options) {
            return None;
        }
        let twig = growing.twigs[node];
        let subject = Subject { sums: twig.sums, bounds: twig.bounds };
        let sums = &self.resident.kept[&node];
        split::best(self.rules, (&self.view.columns, &self.layout), subject, sums, is_of)
    }
}

/// Takes the best of all groups' splits and says whether there is more to look at.
pub(super) fn apply(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    moment: &Moment,
) -> bool {
    let mut view = View::new(setup, model, moment.seed);
    let rules = setup.rules(model, view.clock.rows);
    let deal = Deal::new(&view, model);
    view.take_total(update);
    let looked = view.growing.looked(setup.options);
    let words = update.i64("splits").chunks(deal.groups.max(1) * SPLIT_WORDS);
    for (node, words) in looked.into_iter().zip(words) {
        let splits = words.chunks_exact(SPLIT_WORDS).filter_map(read_split);
        // The first of equals, as if all features had been looked at in turn.
        let better = |best: Split, other: Split| if other.gain > best.gain { other } else { best };
        view.growing.twigs[node].split = splits.reduce(better);
    }
    let more = view.growing.advance(setup.options, &rules);
    view.growing.save(model);
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_one_shard_and_workers_have_even_shares() {
        for (features, shards) in [(1, 16), (3, 16), (8, 16), (28, 16), (100, 7), (5, 1)] {
            let deal = Deal { features, groups: features.min(shards), shards };
            let places: Vec<u32> =
                (0..features).map(|place| deal.shard(deal.group(place)).0).collect();
            assert!(places.iter().all(|&shard| (shard as usize) < shards), "{places:?}");
            // Workers may hold every second shard or the first half.
            let odd = places.iter().filter(|&&shard| shard % 2 == 1).count();
            let late = places.iter().filter(|&&shard| shard as usize >= shards.div_ceil(2)).count();
            if shards == 16 && features > 1 {
                for share in [odd, late] {
                    let even = features as f64 / 2.0;
                    assert!((share as f64 - even).abs() <= 0.25 * features as f64, "{places:?}");
                }
            }
        }
    }
}
