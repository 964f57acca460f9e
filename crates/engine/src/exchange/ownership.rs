//! Who owns which rows of which tensor: keys spread over the seats by consistent hashing (Karger et al., 1997),
//! so that a seat more or less moves few of them. All seats make the same map from the same shapes.

use starlings_core::{Block, Body, Model, Rows, Seat, Values};
use starlings_topology::{KeyRing, KeyTable};
use std::collections::BTreeMap;
use std::ops::Range;

/// Tensors of fewer numbers are never compressed: there is nothing to gain, and a single number (a mean rating) is
/// not one of many that errors cancel among.
pub const COMPRESSED_FROM: usize = 16;

/// The owners of a model's rows.
#[derive(Clone, Debug)]
pub struct Ownership {
    tables: BTreeMap<String, Owned>,
}

#[derive(Clone, Debug)]
struct Owned {
    table: KeyTable,
    rows: u32,
    width: u32,
}

impl Ownership {
    /// The owners of all tensors of a model in a flock of `world`.
    #[must_use]
    pub fn of(model: &Model, world: u32) -> Ownership {
        let members: Vec<u64> = (0..u64::from(world)).collect();
        let ring = KeyRing::new(&members);
        let tables = model.iter().map(|(name, tensor)| {
            let rows = tensor.rows() as u32;
            // A tensor and the optimiser's state beside it live together: both are keyed by the first word.
            let key = first_word(name);
            let width = tensor.width() as u32;
            (name.to_string(), Owned { table: ring.table(key, rows), rows, width })
        });
        Ownership { tables: tables.collect() }
    }

    /// The rows of a tensor that a seat owns: sorted ranges.
    #[must_use]
    pub fn owned(&self, name: &str, seat: Seat) -> Vec<Range<u32>> {
        self.tables.get(name).map(|owned| owned.table.owned(seat)).unwrap_or_default()
    }

    /// The row numbers of a tensor that a seat owns, in order.
    #[must_use]
    pub fn rows(&self, name: &str, seat: Seat) -> Vec<u32> {
        self.owned(name, seat).into_iter().flatten().collect()
    }

    /// Whether a seat owns a row.
    #[must_use]
    pub fn owns(&self, name: &str, seat: Seat, row: u32) -> bool {
        self.tables
            .get(name)
            .is_some_and(|owned| row < owned.rows && owned.table.owner(row) == seat)
    }

    /// Whether contributions to a tensor may be compressed.
    #[must_use]
    pub fn compresses(&self, name: &str) -> bool {
        let numbers = |owned: &Owned| owned.rows as usize * owned.width as usize;
        self.tables.get(name).is_some_and(|owned| numbers(owned) >= COMPRESSED_FROM)
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn knows(&self, name: &str) -> bool {
        self.tables.contains_key(name)
    }

    /// Columns of a tensor; none where there is no such tensor.
    #[must_use]
    pub fn width(&self, name: &str) -> u32 {
        self.tables.get(name).map_or(0, |owned| owned.width)
    }

    /// The part of a block that an owner is concerned with, as rows; `None` where it names no tensor.
    ///
    /// # Panics
    /// On factors: they are multiplied out before they are pushed.
    #[must_use]
    pub fn restrict(&self, block: &Block, owner: Seat) -> Option<Block> {
        let total = self.tables.get(&block.name)?.rows;
        let owned = self.owned(&block.name, owner);
        Some(Block::rows(block.name.clone(), part_of(block, total, &owned)))
    }

    /// Those of some sorted row numbers that a seat owns.
    #[must_use]
    pub fn among(&self, name: &str, seat: Seat, rows: &[u32]) -> Vec<u32> {
        let mut some = Vec::new();
        for range in self.owned(name, seat) {
            let from = rows.partition_point(|&row| row < range.start);
            let to = rows.partition_point(|&row| row < range.end);
            some.extend_from_slice(&rows[from..to]);
        }
        some
    }
}

/// The tensor that a name belongs to: its own, or the one that it is the optimiser's state of.
pub(crate) fn first_word(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The rows of a block that lie in sorted ranges, of a tensor of `total` rows.
///
/// # Panics
/// On factors: they are multiplied out before they are pushed.
pub(crate) fn part_of(block: &Block, total: u32, ranges: &[Range<u32>]) -> Rows {
    match &block.body {
        Body::Rows(rows) => some_rows(rows, ranges),
        Body::Dense(values) => {
            let width = values.len() / total.max(1) as usize;
            let mut part = Values::zeros(values.kind(), 0);
            for range in ranges {
                let (from, to) = (range.start as usize * width, range.end as usize * width);
                append(&mut part, values, from..to);
            }
            let index = ranges.iter().cloned().flatten().collect();
            Rows { total, width: width as u32, index, values: part }
        }
        Body::Factors(_) => panic!("factors are multiplied out before they are pushed"),
    }
}

fn some_rows(rows: &Rows, ranges: &[Range<u32>]) -> Rows {
    let width = rows.width as usize;
    let mut some = Rows::none(rows.values.kind(), rows.total, rows.width);
    for range in ranges {
        let from = rows.index.partition_point(|&row| row < range.start);
        let to = rows.index.partition_point(|&row| row < range.end);
        some.index.extend_from_slice(&rows.index[from..to]);
        append(&mut some.values, &rows.values, from * width..to * width);
    }
    some
}

fn append(into: &mut Values, from: &Values, range: Range<usize>) {
    match (into, from) {
        (Values::F32(a), Values::F32(b)) => a.extend_from_slice(&b[range]),
        (Values::F64(a), Values::F64(b)) => a.extend_from_slice(&b[range]),
        (Values::I64(a), Values::I64(b)) => a.extend_from_slice(&b[range]),
        _ => unreachable!("made of the same kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Kind, Rng, Role, Tensor, Update};

    fn model() -> Model {
        let mut model = Model::new();
        for (name, shape) in [("one", vec![1]), ("tall", vec![5_003, 3]), ("wide", vec![40, 7])] {
            model.set(name, Tensor::zeros(Kind::F64, &shape, Role::Weight));
        }
        model.set("tall.squares", Tensor::zeros(Kind::F64, &[5_003, 3], Role::State));
        model.set("flags", Tensor::zeros(Kind::I64, &[17, 1], Role::Weight));
        model
    }

    #[test]
    fn every_row_has_one_owner_and_all_questions_agree_on_it() {
        let model = model();
        for world in [1, 2, 3, 7] {
            let owners = Ownership::of(&model, world);
            for (name, tensor) in model.iter() {
                let total = tensor.rows() as u32;
                let all: Vec<u32> = (0..total).collect();
                let mut seen = vec![0; total as usize];
                for seat in (0..world).map(Seat) {
                    let mine = owners.rows(name, seat);
                    assert_eq!(mine, owners.among(name, seat, &all));
                    assert_eq!(
                        mine,
                        owners.owned(name, seat).into_iter().flatten().collect::<Vec<_>>()
                    );
                    let owns: Vec<u32> =
                        all.iter().copied().filter(|&row| owners.owns(name, seat, row)).collect();
                    assert_eq!(mine, owns);
                    mine.iter().for_each(|&row| seen[row as usize] += 1);
                    assert!(!owners.owns(name, seat, total), "there is no such row");
                }
                assert!(seen.iter().all(|&count| count == 1), "{name} in a world of {world}");
            }
        }
    }

    #[test]
    fn the_state_of_a_row_lives_where_the_row_lives() {
        let owners = Ownership::of(&model(), 5);
        for seat in (0..5).map(Seat) {
            assert_eq!(owners.owned("tall", seat), owners.owned("tall.squares", seat));
        }
    }

    #[test]
    fn among_gives_the_owned_of_some_rows() {
        let owners = Ownership::of(&model(), 4);
        for seed in 0..50 {
            let mut rng = Rng::named(seed, "some rows", &[]);
            let some: Vec<u32> = (0..5_003).filter(|_| rng.below(20) == 0).collect();
            let parts: Vec<Vec<u32>> =
                (0..4).map(|seat| owners.among("tall", Seat(seat), &some)).collect();
            for (seat, part) in parts.iter().enumerate() {
                let owns = |row: &&u32| owners.owns("tall", Seat(seat as u32), **row);
                assert_eq!(
                    part,
                    &some.iter().filter(owns).copied().collect::<Vec<_>>(),
                    "seed {seed}"
                );
            }
            let mut joined = parts.concat();
            joined.sort_unstable();
            assert_eq!(joined, some, "seed {seed}");
        }
    }

    #[test]
    fn what_owners_get_folds_back_to_the_whole() {
        let (model, world) = (model(), 3);
        let owners = Ownership::of(&model, world);
        let mut rng = Rng::named(1, "blocks", &[]);
        let values: Vec<f64> = (0..5_003 * 3).map(|_| rng.normal()).collect();
        let index: Vec<u32> = (0..5_003).filter(|_| rng.below(3) == 0).collect();
        let some = index.iter().flat_map(|&row| values[row as usize * 3..][..3].to_vec()).collect();
        let rows = Rows { total: 5_003, width: 3, index, values: Values::F64(some) };
        let all = Rows { index: (0..5_003).collect(), values: Values::F64(values.clone()), ..rows };
        let dense = Block::dense("tall", values);
        let counts = Block::counts("flags", (0..17).collect());
        let whole_counts = Rows {
            total: 17,
            width: 1,
            index: (0..17).collect(),
            values: Values::I64((0..17).collect()),
        };
        let sparse = Block::rows("tall", rows.clone());
        for (block, whole) in [(dense, all), (sparse, rows), (counts, whole_counts)] {
            let mut folded = Update {
                blocks: vec![Block::rows(
                    block.name.clone(),
                    Rows::none(whole.values.kind(), whole.total, whole.width),
                )],
            };
            for owner in (0..world).map(Seat) {
                let part = owners.restrict(&block, owner).expect("a tensor of the model");
                let Body::Rows(rows) = &part.body else { panic!("parts are rows") };
                assert!(rows.is_sound());
                assert!(rows.index.iter().all(|&row| owners.owns(&block.name, owner, row)));
                folded.fold(&Update { blocks: vec![part] }).unwrap();
            }
            assert_eq!(folded.rows(&block.name), Some(&whole));
        }
        let statistic = Block::dense("loss", vec![1.0]);
        assert_eq!(owners.restrict(&statistic, Seat(0)), None);
    }
}
