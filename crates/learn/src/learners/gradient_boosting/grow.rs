//! A step of growth: children's histograms are summed over the flock, the larger sibling's is the parent's less the
//! smaller one's, and all replicas find the same best splits.

use super::growing::Growing;
use super::resident::Resident;
use super::state::{Clock, Setup};
use super::voting;
use crate::trees::columns::{Columns, whole};
use crate::trees::histogram::{self, Form, Gradients, Layout, Sums};
use crate::trees::split::{self, Rules, Subject};
use crate::trees::tree;
use crate::{Moment, Work};
use starlings_core::{Block, Model, Rng, Role, Update};

/// Numbers of kept histograms above which none are kept and both children are summed.
const KEPT_MAX: usize = 32 << 20;

/// What the growing tree looks at.
pub(super) struct View {
    pub(super) columns: Columns,
    pub(super) layout: Layout,
    pub(super) growing: Growing,
    pub(super) clock: Clock,
    tree: usize,
    seed: u64,
}

impl View {
    pub(super) fn new(setup: &Setup<'_>, model: &Model, seed: u64) -> View {
        let (columns, clock, tree) = (Columns::load(model), Clock::load(model), tree::count(model));
        let layout = Layout::new(&columns, features(setup, columns.len(), (seed, tree)));
        View { columns, layout, growing: Growing::load(model), clock, tree, seed }
    }

    /// Takes the sums of all rows, where the tree is only a root yet.
    pub(super) fn take_total(&mut self, update: &Update) {
        if self.growing.pending.is_empty() {
            let total = update.i64("total");
            self.growing.twigs[0].sums =
                Sums { gradient: total[0], hessian: total[1], rows: total[2] };
        }
    }

    /// The features of a node's histogram.
    pub(super) fn node_layout(&self, model: &Model, place: usize) -> Layout {
        match voting::elected(model, place) {
            Some(features) => Layout::new(&self.columns, features),
            None => self.layout.clone(),
        }
    }

    /// Whether a node may use the feature at a place of its layout.
    pub(super) fn allows(&self, setup: &Setup<'_>, node: usize) -> Vec<bool> {
        let (features, share) = (self.layout.features.len(), setup.options.column_share_node);
        if share >= 1.0 {
            return vec![true; features];
        }
        let mut allowed = vec![false; features];
        let key = [self.tree as u64, node as u64];
        for place in drawn(features, share, &mut Rng::named(self.seed, "node columns", &key)) {
            allowed[place] = true;
        }
        allowed
    }
}

/// The features a tree sees, increasing.
fn features(setup: &Setup<'_>, count: usize, (seed, tree): (u64, usize)) -> Vec<usize> {
    match setup.options.column_share {
        share if share >= 1.0 => (0..count).collect(),
        share => drawn(count, share, &mut Rng::named(seed, "tree columns", &[tree as u64])),
    }
}

/// A share of `count` things, at least one, increasing.
fn drawn(count: usize, share: f64, rng: &mut Rng) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut all);
    all.truncate(((share * count as f64).round() as usize).clamp(1, count.max(1)));
    all.sort_unstable();
    all
}

/// Which words of a node's histogram travel, and as what.
struct Parcel {
    node: usize,
    layout: Layout,
    form: Form,
    /// Bins that may have rows: what is empty in the parent is empty in its children. All, where that is not known.
    bins: Option<Vec<u32>>,
}

impl Parcel {
    fn words(&self) -> usize {
        self.bins.as_ref().map_or(self.layout.bins(), Vec::len) * self.form.words()
    }
}

/// What this step's exchange of histograms is made of. All replicas say the same.
fn parcels(setup: &Setup<'_>, view: &View, model: &Model, rows: u64) -> Vec<Parcel> {
    let slots = model.i64("slots");
    let parcel = |(place, node): (usize, usize)| {
        let layout = view.node_layout(model, place);
        let known = view.growing.twigs[node].sums.rows;
        let form = setup.form(if node == 0 { rows as i64 } else { known }, view.clock.rows);
        let slot = view.growing.parent(node).and_then(|parent| view.growing.twigs[parent].slot);
        let bins = slot.map(|slot| {
            let kept = slots[slot * layout.bins() * 3..].chunks_exact(3).take(layout.bins());
            kept.zip(0..).filter(|(sums, _)| sums[2] > 0).map(|(_, bin)| bin).collect()
        });
        Parcel { node, layout, form, bins }
    };
    let built = view.growing.built(setup.options);
    built.into_iter().enumerate().map(parcel).collect()
}

/// Emits the histograms of the nodes being looked at, and of a root the sums of all rows.
pub(super) fn contribute(setup: &Setup<'_>, resident: Option<&mut Resident>, work: &mut Work<'_>) {
    let view = View::new(setup, work.model, work.moment.seed);
    let parcels = parcels(setup, &view, work.model, work.moment.rows);
    let mut block = vec![0; parcels.iter().map(Parcel::words).sum()];
    let mut total = [0; 3];
    if let Some(resident) = resident {
        let Resident { partition, store, grid, bench, .. } = resident;
        let (mut rest, mut whole) = (&mut block[..], Vec::new());
        for parcel in &parcels {
            let (out, others) = rest.split_at_mut(parcel.words());
            let (rows, shape) = (partition.rows(parcel.node), (&parcel.layout, parcel.form));
            match &parcel.bins {
                None => histogram::build((rows, store), grid, shape, bench, out),
                Some(bins) => {
                    whole.clear();
                    whole.resize(parcel.layout.bins() * parcel.form.words(), 0);
                    histogram::build((rows, store), grid, shape, bench, &mut whole);
                    pick(&whole, bins, parcel.form.words(), out);
                }
            }
            rest = others;
        }
        if view.growing.pending.is_empty() {
            total = sum_all(grid, partition.rows(0).iter().copied());
        }
    }
    work.outbox.emit(Block::counts("histograms", block));
    if view.growing.pending.is_empty() {
        work.outbox.emit(Block::counts("total", total.to_vec()));
    }
}

/// Copies the words of some bins.
fn pick(whole: &[i64], bins: &[u32], width: usize, out: &mut [i64]) {
    for (out, &bin) in out.chunks_exact_mut(width).zip(bins) {
        out.copy_from_slice(&whole[bin as usize * width..][..width]);
    }
}

/// The sums of some rows.
pub(super) fn sum_all(grid: &Gradients, rows: impl Iterator<Item = u32>) -> [i64; 3] {
    let sums = rows.fold(Sums::default(), |sums, row| sums + grid.row(row as usize));
    [sums.gradient, sums.hessian, sums.rows]
}

/// A node with its histogram.
struct Seen {
    node: usize,
    layout: Layout,
    sums: Vec<Sums>,
}

/// Finds the best splits of the nodes whose histograms came and says whether there is more to look at.
pub(super) fn apply(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    moment: &Moment,
) -> bool {
    let mut view = View::new(setup, model, moment.seed);
    let rules = setup.rules(model, view.clock.rows);
    view.take_total(update);
    let all = unpacked(&parcels(setup, &view, model, moment.rows), update.i64("histograms"));
    let mut slots = std::mem::take(model.i64_mut("slots"));
    let keeps = view.layout.bins() * 3 * setup.options.leaves <= KEPT_MAX && !voting::votes(setup);
    for seen in all {
        let siblings = with_sibling(&mut view, seen, &slots);
        for seen in siblings {
            look(setup, (&mut view, &rules), &seen);
            if keeps && view.growing.twigs[seen.node].split.is_some() {
                keep(&mut view, &seen, &mut slots);
            }
        }
    }
    let more = view.growing.advance(setup.options, &rules);
    view.growing.save(model);
    model.set("slots", whole(slots, Role::State));
    more
}

fn unpacked(parcels: &[Parcel], mut words: &[i64]) -> Vec<Seen> {
    let mut all = Vec::new();
    for parcel in parcels {
        let (own, rest) = words.split_at(parcel.words());
        let mut sums = histogram::read(parcel.form, own);
        if let Some(bins) = &parcel.bins {
            let some = std::mem::take(&mut sums);
            sums.resize(parcel.layout.bins(), Sums::default());
            bins.iter().zip(some).for_each(|(&bin, some)| sums[bin as usize] = some);
        }
        all.push(Seen { node: parcel.node, layout: parcel.layout.clone(), sums });
        words = rest;
    }
    all
}

/// The node and, where the parent's histogram was kept, its sibling: the parent less the node.
fn with_sibling(view: &mut View, seen: Seen, slots: &[i64]) -> Vec<Seen> {
    let parent = view.growing.parent(seen.node);
    let twigs = &mut view.growing.twigs;
    let kept = parent.and_then(|parent| twigs[parent].slot.take().map(|slot| (parent, slot)));
    let Some((parent, slot)) = kept else { return vec![seen] };
    let left = twigs[parent].child.expect("it has this child");
    let node = if seen.node == left { left + 1 } else { left };
    let from = slot * view.layout.bins() * 3;
    let whole = slots[from..].chunks_exact(3);
    let less = |(whole, part): (&[i64], &Sums)| Sums {
        gradient: whole[0] - part.gradient,
        hessian: whole[1] - part.hessian,
        rows: whole[2] - part.rows,
    };
    let sums = whole.zip(&seen.sums).map(less).collect();
    let layout = seen.layout.clone();
    vec![seen, Seen { node, layout, sums }]
}

/// Finds a node's best split, if it may be split at all.
fn look(setup: &Setup<'_>, (view, rules): (&mut View, &Rules), seen: &Seen) {
    if !view.growing.may_split(seen.node, setup.options) {
        return;
    }
    let twig = view.growing.twigs[seen.node];
    let subject = Subject { sums: twig.sums, bounds: twig.bounds };
    let allowed = view.allows(setup, seen.node);
    let is_allowed = |place: usize| {
        let feature = seen.layout.features[place];
        let place = view.layout.features.binary_search(&feature);
        place.is_ok_and(|place| allowed[place])
    };
    let split = split::best(rules, (&view.columns, &seen.layout), subject, &seen.sums, is_allowed);
    view.growing.twigs[seen.node].split = split;
}

fn keep(view: &mut View, seen: &Seen, slots: &mut Vec<i64>) {
    let slot = view.growing.free_slot();
    view.growing.twigs[seen.node].slot = Some(slot);
    let len = seen.sums.len() * 3;
    if slots.len() < (slot + 1) * len {
        slots.resize((slot + 1) * len, 0);
    }
    let words = slots[slot * len..(slot + 1) * len].chunks_exact_mut(3);
    for (words, sums) in words.zip(&seen.sums) {
        words.copy_from_slice(&[sums.gradient, sums.hessian, sums.rows]);
    }
}
