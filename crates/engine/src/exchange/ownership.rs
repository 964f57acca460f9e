//! Who owns which rows of which tensor: keys spread over the seats by consistent hashing (Karger et al., 1997),
//! so that a seat more or less moves few of them. All seats make the same map from the same shapes.

use starlings_core::{Block, Body, Model, Rows, Seat, Values};
use starlings_topology::{KeyRing, KeyTable};
use std::collections::BTreeMap;
use std::ops::Range;

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
            let key = name.split('.').next().unwrap_or(name);
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
        let rows = match &block.body {
            Body::Rows(rows) => some_rows(rows, &owned),
            Body::Dense(values) => {
                let width = values.len() / total.max(1) as usize;
                let mut part = Values::zeros(values.kind(), 0);
                for range in &owned {
                    let (from, to) = (range.start as usize * width, range.end as usize * width);
                    append(&mut part, values, from..to);
                }
                let index = owned.into_iter().flatten().collect();
                Rows { total, width: width as u32, index, values: part }
            }
            Body::Factors(_) => panic!("factors are multiplied out before they are pushed"),
        };
        Some(Block { name: block.name.clone(), body: Body::Rows(rows) })
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
