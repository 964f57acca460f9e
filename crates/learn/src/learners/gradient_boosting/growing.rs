//! A tree while it grows, as the model holds it between steps: its nodes with their sums and best splits, and which
//! of them are being looked at.
//!
//! Leaf-wise growth splits the leaf that gains most, one at a time. To look at several in one exchange, children are
//! made ahead of their turn: a node may be *expanded* before it is *committed*, and nodes are committed in exactly
//! the order that one at a time would give. Expanded nodes whose turn never comes are leaves of the grown tree. Which
//! nodes to expand is foreseen by playing the growth to its end: on 200,000 rows of 28 features that takes 13 exchanges
//! for an early tree of 63 leaves and 17 for a late one, instead of 62, and looks at one node in forty or in six in vain.

use super::options::{Growth, Options};
use crate::trees::histogram::Sums;
use crate::trees::split::{self, Rules, Split};
use starlings_core::{Model, Role};

/// A node of a growing tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Twig {
    pub(super) sums: Sums,
    pub(super) depth: usize,
    /// The smallest and largest value allowed here.
    pub(super) bounds: [f64; 2],
    /// The left child; the right one is the next node.
    pub(super) child: Option<usize>,
    /// Whether its split is part of the tree.
    pub(super) committed: bool,
    /// Where its histogram is kept.
    pub(super) slot: Option<usize>,
    /// Its best split.
    pub(super) split: Option<Split>,
}

/// A growing tree.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Growing {
    pub(super) twigs: Vec<Twig>,
    /// Expanded nodes whose children's histograms are summed in this step; empty at the root.
    pub(super) pending: Vec<usize>,
}

/// The least and the largest part of its parent's gain that a child is guessed to have. Guessing much means to look at
/// few nodes ahead.
const INHERITED: [f64; 2] = [0.8, 0.9];

/// Words of a node in the model.
const WORDS: usize = 9 + SPLIT_WORDS;

/// Words of a split, or of none.
pub(super) const SPLIT_WORDS: usize = 13;

impl Growing {
    /// A tree of one node, whose sums are not known yet.
    pub(super) fn root() -> Growing {
        let bounds = [f64::NEG_INFINITY, f64::INFINITY];
        let root = Twig {
            sums: Sums::default(),
            depth: 0,
            bounds,
            child: None,
            committed: false,
            slot: None,
            split: None,
        };
        Growing { twigs: vec![root], pending: Vec::new() }
    }

    /// Reads it from a model.
    pub(super) fn load(model: &Model) -> Growing {
        let words = model.i64("growing");
        let pending = words[0] as usize;
        let twigs = words[1 + pending..].chunks_exact(WORDS).map(read).collect();
        Growing { twigs, pending: words[1..=pending].iter().map(|&node| node as usize).collect() }
    }

    /// Writes it into a model.
    pub(super) fn save(&self, model: &mut Model) {
        let mut words = vec![self.pending.len() as i64];
        words.extend(self.pending.iter().map(|&node| node as i64));
        words.extend(self.twigs.iter().flat_map(write));
        model.set("growing", crate::trees::columns::whole(words, Role::State));
    }

    /// The nodes whose histograms are summed in this step: of each pair of children the one with fewer rows, or where
    /// the parent's histogram was not kept those that may be split.
    pub(super) fn built(&self, options: &Options) -> Vec<usize> {
        let built_of = |parent: usize| match self.twigs[parent].slot {
            None => self.alive(parent, options),
            Some(_) => vec![self.smaller(parent)],
        };
        self.each_pending(built_of)
    }

    /// The nodes whose best splits are looked for in this step.
    pub(super) fn looked(&self, options: &Options) -> Vec<usize> {
        self.each_pending(|parent| self.alive(parent, options))
    }

    fn each_pending(&self, of: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
        if self.pending.is_empty() {
            return vec![0];
        }
        self.pending.iter().flat_map(|&parent| of(parent)).collect()
    }

    /// The child with fewer rows.
    pub(super) fn smaller(&self, parent: usize) -> usize {
        let left = self.twigs[parent].child.expect("pending nodes are expanded");
        let is_left = self.twigs[left].sums.rows <= self.twigs[left + 1].sums.rows;
        if is_left { left } else { left + 1 }
    }

    /// The children that depth and rows allow to be split.
    fn alive(&self, parent: usize, options: &Options) -> Vec<usize> {
        let left = self.twigs[parent].child.expect("only expanded nodes are asked for");
        [left, left + 1].into_iter().filter(|&child| self.may_split(child, options)).collect()
    }

    /// Whether depth and rows allow a node to be split.
    pub(super) fn may_split(&self, node: usize, options: &Options) -> bool {
        let twig = &self.twigs[node];
        twig.depth < options.max_depth && twig.sums.rows >= 2 * options.rules.min_rows_leaf
    }

    /// The node whose child this is.
    pub(super) fn parent(&self, node: usize) -> Option<usize> {
        let is_of = |left: usize| left == node || left + 1 == node;
        self.twigs.iter().position(|twig| twig.child.is_some_and(is_of))
    }

    /// The leaves of the tree as it is committed, in the order of nodes.
    pub(super) fn leaves(&self) -> Vec<usize> {
        let mut leaves = Vec::new();
        let mut open = vec![0];
        while let Some(node) = open.pop() {
            match self.twigs[node].child.filter(|_| self.twigs[node].committed) {
                Some(left) => open.extend([left, left + 1]),
                None => leaves.push(node),
            }
        }
        leaves.sort_unstable();
        leaves
    }

    /// Commits what may be committed and expands what is to be looked at next. Says whether anything is.
    pub(super) fn advance(&mut self, options: &Options, rules: &Rules) -> bool {
        self.pending.clear();
        while self.pending.is_empty() {
            let wanted = match options.growth {
                Growth::LeafWise => self.leaf_wise(options, rules),
                Growth::LevelWise => self.level_wise(options, rules),
            };
            if wanted.is_empty() {
                return false;
            }
            for node in wanted {
                self.expand(node, rules);
                if !self.alive(node, options).is_empty() {
                    self.pending.push(node);
                }
            }
        }
        true
    }

    fn leaf_wise(&mut self, options: &Options, rules: &Rules) -> Vec<usize> {
        let mut leaves = self.leaves();
        loop {
            if leaves.len() >= options.leaves {
                return Vec::new();
            }
            let Some(best) = self.most_gain(&leaves) else { return Vec::new() };
            if self.twigs[best].child.is_none() {
                if leaves.len() + 1 < options.leaves {
                    break;
                }
                // The last split of a tree: nobody will ask what its children gain.
                self.expand(best, rules);
            }
            let left = self.twigs[best].child.expect("it is expanded");
            self.twigs[best].committed = true;
            leaves.retain(|&leaf| leaf != best);
            leaves.extend([left, left + 1]);
        }
        let most = match options.splits_per_exchange {
            0 => usize::MAX,
            most => most,
        };
        let mut wanted = self.foreseen(leaves, options);
        wanted.truncate(most);
        wanted
    }

    /// Nodes that will be split, as far as can be foreseen: growth is played to its end with a guess of what children
    /// not looked at yet would gain. The first is certain; what is foreseen wrongly is looked at in vain.
    fn foreseen(&self, leaves: Vec<usize>, options: &Options) -> Vec<usize> {
        let inherited = self.inherited();
        let mut room = options.leaves - leaves.len();
        let mut known: Vec<usize> = leaves.into_iter().filter(|&n| self.splits(n)).collect();
        // Gains of children that are only guessed.
        let mut guessed: Vec<f64> = Vec::new();
        let mut wanted = Vec::new();
        while room > 0 {
            let best = self.most_gain(&known);
            let guess = guessed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match best {
                Some(best) if self.gain(best) >= guess => {
                    known.retain(|&node| node != best);
                    match self.twigs[best].child {
                        Some(left) => known.extend([left, left + 1]),
                        None => {
                            wanted.push(best);
                            guessed.extend([self.gain(best) * inherited; 2]);
                        }
                    }
                }
                _ if guess > 0.0 => {
                    let at = guessed.iter().position(|&gain| gain == guess);
                    guessed.swap_remove(at.expect("it was found there"));
                    guessed.extend([guess * inherited; 2]);
                }
                _ => break,
            }
            room -= 1;
        }
        wanted
    }

    /// Which part of its parent's gain a child has, in this tree so far.
    fn inherited(&self) -> f64 {
        let (mut parents, mut children) = (0.0, 0.0);
        for twig in &self.twigs {
            if let (Some(split), Some(left)) = (&twig.split, twig.child) {
                let gains = [left, left + 1].map(|child| self.gain(child).max(0.0));
                parents += 2.0 * split.gain;
                children += gains[0] + gains[1];
            }
        }
        match parents > 0.0 {
            true => (children / parents).clamp(INHERITED[0], INHERITED[1]),
            false => INHERITED[1],
        }
    }

    fn level_wise(&mut self, options: &Options, rules: &Rules) -> Vec<usize> {
        let room = options.leaves.saturating_sub(self.leaves().len());
        let mut open = self.open();
        open.truncate(room);
        open.sort_unstable();
        open.iter().for_each(|&node| self.twigs[node].committed = true);
        if open.len() < room {
            return open;
        }
        // The tree is full: nobody will ask what these children gain.
        open.into_iter().for_each(|node| self.expand(node, rules));
        Vec::new()
    }

    /// Nodes that have a split and are not expanded, those of most gain first.
    fn open(&self) -> Vec<usize> {
        let mut open: Vec<usize> =
            (0..self.twigs.len()).filter(|&node| self.is_open(node)).collect();
        open.sort_by(|&a, &b| self.gain(b).total_cmp(&self.gain(a)).then(a.cmp(&b)));
        open
    }

    fn is_open(&self, node: usize) -> bool {
        self.twigs[node].child.is_none() && self.splits(node)
    }

    fn splits(&self, node: usize) -> bool {
        self.twigs[node].split.is_some()
    }

    fn gain(&self, node: usize) -> f64 {
        self.twigs[node].split.map_or(f64::NEG_INFINITY, |split| split.gain)
    }

    fn most_gain(&self, leaves: &[usize]) -> Option<usize> {
        let splittable = leaves.iter().copied().filter(|&node| self.twigs[node].split.is_some());
        splittable.min_by(|&a, &b| self.gain(b).total_cmp(&self.gain(a)).then(a.cmp(&b)))
    }

    fn expand(&mut self, node: usize, rules: &Rules) {
        let parent = self.twigs[node];
        let split = parent.split.expect("only nodes with a split are expanded");
        let right = parent.sums - split.left;
        let bounds = child_bounds(rules, &parent, &split);
        let child = |sums, bounds| Twig {
            sums,
            depth: parent.depth + 1,
            bounds,
            child: None,
            committed: false,
            slot: None,
            split: None,
        };
        self.twigs[node].child = Some(self.twigs.len());
        self.twigs.extend([child(split.left, bounds[0]), child(right, bounds[1])]);
    }

    /// The smallest slot that no node uses.
    pub(super) fn free_slot(&self) -> usize {
        let mut used: Vec<usize> = self.twigs.iter().filter_map(|twig| twig.slot).collect();
        used.sort_unstable();
        used.iter().enumerate().find(|(at, slot)| at != *slot).map_or(used.len(), |(at, _)| at)
    }
}

/// What the children of a split may say: on a constrained feature both keep to their side of the middle.
fn child_bounds(rules: &Rules, parent: &Twig, split: &Split) -> [[f64; 2]; 2] {
    let [low, high] = parent.bounds;
    let Some(&direction) = rules.monotone.get(split.feature).filter(|&&direction| direction != 0)
    else {
        return [parent.bounds; 2];
    };
    let say = |sums: Sums| {
        let (gradient, hessian) =
            (sums.gradient as f64 * rules.units[0], sums.hessian as f64 * rules.units[1]);
        split::value(gradient, hessian, [rules.l1, rules.l2], parent.bounds)
    };
    let middle = 0.5 * (say(split.left) + say(parent.sums - split.left));
    match direction > 0 {
        true => [[low, middle], [middle, high]],
        false => [[middle, high], [low, middle]],
    }
}

fn index(word: i64) -> Option<usize> {
    usize::try_from(word).ok()
}

fn word(index: Option<usize>) -> i64 {
    index.map_or(-1, |index| index as i64)
}

fn sums_words(sums: Sums) -> [i64; 3] {
    [sums.gradient, sums.hessian, sums.rows]
}

fn read_sums(words: &[i64]) -> Sums {
    Sums { gradient: words[0], hessian: words[1], rows: words[2] }
}

fn write(twig: &Twig) -> [i64; WORDS] {
    let mut words = [0; WORDS];
    words[..3].copy_from_slice(&sums_words(twig.sums));
    words[3] = twig.depth as i64;
    words[4..6].copy_from_slice(&twig.bounds.map(|bound| bound.to_bits() as i64));
    words[6..9].copy_from_slice(&[word(twig.child), i64::from(twig.committed), word(twig.slot)]);
    words[9..].copy_from_slice(&split_words(twig.split.as_ref()));
    words
}

fn read(words: &[i64]) -> Twig {
    Twig {
        sums: read_sums(words),
        depth: words[3] as usize,
        bounds: [words[4], words[5]].map(|bits| f64::from_bits(bits as u64)),
        child: index(words[6]),
        committed: words[7] != 0,
        slot: index(words[8]),
        split: read_split(&words[9..]),
    }
}

/// A split as words; zeros when there is none.
pub(super) fn split_words(split: Option<&Split>) -> [i64; SPLIT_WORDS] {
    let mut words = [0; SPLIT_WORDS];
    if let Some(split) = split {
        words[0] = 1;
        words[1] = split.gain.to_bits() as i64;
        words[2] = split.feature as i64;
        words[3] = i64::from(split.bin);
        words[4] = i64::from(split.missing_left);
        words[5] = i64::from(split.set.is_some());
        words[6..10].copy_from_slice(&split.set.unwrap_or_default().map(|word| word as i64));
        words[10..].copy_from_slice(&sums_words(split.left));
    }
    words
}

/// The split that words say.
pub(super) fn read_split(words: &[i64]) -> Option<Split> {
    (words[0] != 0).then(|| Split {
        gain: f64::from_bits(words[1] as u64),
        feature: words[2] as usize,
        bin: words[3] as u8,
        missing_left: words[4] != 0,
        set: (words[5] != 0).then(|| std::array::from_fn(|at| words[6 + at] as u64)),
        left: read_sums(&words[10..13]),
    })
}
