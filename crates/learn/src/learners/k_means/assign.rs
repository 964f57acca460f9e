//! Assignment: for every row of a slice the nearest centre and the squared distance to it. Rows are taken
//! in tiles small enough to stay in the nearest caches until their consumer has used them.

use crate::kernels::distances::squared_distances;
use crate::kernels::nearest::PackedCentres;
use crate::kernels::sparse_nearest::TransposedCentres;
use starlings_data::{Features, Row, Slice, Table};

/// Numbers in a tile: 32 KiB of f32.
const TILE_NUMBERS: usize = 8192;
/// Rows in a tile at most. Divisible by the kernel's rows at a time.
const TILE_ROWS_MAX: usize = 96;
/// Rows in a tile at least, however wide they are.
const TILE_ROWS_MIN: usize = 6;

/// Finds nearest centres.
pub(super) struct Assigner<'a> {
    centres: &'a [f64],
    width: usize,
    form: Form,
}

/// Centres in the layout that suits the rows.
enum Form {
    Dense(PackedCentres),
    Sparse(TransposedCentres),
}

/// Some rows of a slice, assigned.
pub(super) struct Tile<'a> {
    /// Which of the slice's rows the first one is.
    pub(super) first: usize,
    /// The rows as numbers in the table.
    pub(super) rows: &'a [usize],
    /// The nearest centre of each.
    pub(super) labels: &'a [u32],
    /// The squared distance of each to its centre.
    pub(super) squared: &'a [f64],
}

/// Buffers of one tile, made once for a slice.
#[derive(Default)]
struct Room {
    shifted: Vec<f32>,
    scores: Vec<f32>,
    labels: Vec<u32>,
    squared: Vec<f64>,
    seconds: Vec<u32>,
    seconds_squared: Vec<f64>,
}

/// A row's nearest centre, the squared distance to it and to the next nearest.
pub(super) struct Pair {
    /// The nearest centre.
    pub(super) label: u32,
    /// The squared distance to it.
    pub(super) squared: f64,
    /// The squared distance to the next nearest.
    pub(super) next: f64,
}

impl<'a> Assigner<'a> {
    /// For centres of `width` features and the rows of a table.
    pub(super) fn new(centres: &'a [f64], width: usize, table: &Table) -> Assigner<'a> {
        let form = match table.features {
            Features::Dense { .. } => Form::Dense(PackedCentres::new(centres, width)),
            Features::Sparse { .. } => Form::Sparse(TransposedCentres::new(centres, width)),
        };
        Assigner { centres, width, form }
    }

    /// Assigns all rows of a slice, tile by tile in their order.
    pub(super) fn visit(&self, table: &Table, slice: &Slice, mut each: impl FnMut(&Tile<'_>)) {
        let rows: Vec<usize> = slice.rows().collect();
        let tile_rows = (TILE_NUMBERS / self.width).clamp(TILE_ROWS_MIN, TILE_ROWS_MAX);
        let mut room = Room::default();
        for (tile, rows) in rows.chunks(tile_rows).enumerate() {
            room.labels.resize(rows.len(), 0);
            room.squared.resize(rows.len(), 0.0);
            match &self.form {
                Form::Dense(centres) => self.assign_dense(centres, table, rows, &mut room),
                Form::Sparse(centres) => self.assign_sparse(centres, table, rows, &mut room),
            }
            let (labels, squared) = (&room.labels, &room.squared);
            each(&Tile { first: tile * tile_rows, rows, labels, squared });
        }
    }

    /// For rows of a table, tile by tile: the nearest centre and the next nearest, with the squared distances to
    /// both. There are at least two centres.
    pub(super) fn visit_pairs(
        &self,
        table: &Table,
        rows: &[usize],
        mut each: impl FnMut(usize, Pair),
    ) {
        let tile_rows = (TILE_NUMBERS / self.width).clamp(TILE_ROWS_MIN, TILE_ROWS_MAX);
        let mut room = Room::default();
        for (tile, rows) in rows.chunks(tile_rows).enumerate() {
            room.labels.resize(rows.len(), 0);
            room.seconds.resize(rows.len(), 0);
            room.squared.resize(rows.len(), 0.0);
            room.seconds_squared.resize(rows.len(), 0.0);
            match &self.form {
                Form::Dense(centres) => self.pair_dense(centres, table, rows, &mut room),
                Form::Sparse(centres) => self.pair_sparse(centres, table, rows, &mut room),
            }
            for place in 0..rows.len() {
                let label = room.labels[place];
                let (squared, next) = (room.squared[place], room.seconds_squared[place]);
                each(tile * tile_rows + place, Pair { label, squared, next });
            }
        }
    }

    /// The squared distance of a row to a centre.
    pub(super) fn squared_distance(&self, table: &Table, row: usize, label: u32) -> f64 {
        let from = label as usize * self.width;
        let centre = &self.centres[from..from + self.width];
        match (&self.form, table.row(row)) {
            (_, Row::Dense(values)) => {
                let mut out = [0.0];
                squared_distances(values, &[0], centre, &mut out);
                out[0]
            }
            (Form::Sparse(transposed), Row::Sparse(columns, values)) => {
                transposed.squared_distance((columns, values), label, centre)
            }
            (Form::Dense(_), Row::Sparse(..)) => unreachable!("the form is the table's"),
        }
    }

    fn pair_dense(&self, packed: &PackedCentres, table: &Table, rows: &[usize], room: &mut Room) {
        room.shifted.clear();
        for_each_stretch(table, rows, |_, stretch| room.shifted.extend_from_slice(stretch));
        packed.nearest_two(&mut room.shifted, &mut room.labels, &mut room.seconds);
        for_each_stretch(table, rows, |from, stretch| {
            let to = from + stretch.len() / self.width;
            let (labels, squared) = (&room.labels[from..to], &mut room.squared[from..to]);
            squared_distances(stretch, labels, self.centres, squared);
            let (seconds, squared) = (&room.seconds[from..to], &mut room.seconds_squared[from..to]);
            squared_distances(stretch, seconds, self.centres, squared);
        });
    }

    fn pair_sparse(
        &self,
        transposed: &TransposedCentres,
        table: &Table,
        rows: &[usize],
        room: &mut Room,
    ) {
        for (place, &row) in rows.iter().enumerate() {
            let Row::Sparse(columns, values) = table.row(row) else { unreachable!("sparse table") };
            let label = transposed.nearest(columns, values, &mut room.scores);
            let scores =
                room.scores.iter().enumerate().filter(|(other, _)| *other != label as usize);
            let second =
                scores.max_by(|a, b| a.1.total_cmp(b.1)).map_or(label, |(at, _)| at as u32);
            room.labels[place] = label;
            room.squared[place] = self.squared_distance(table, row, label);
            room.seconds_squared[place] = self.squared_distance(table, row, second);
        }
    }

    fn assign_dense(&self, packed: &PackedCentres, table: &Table, rows: &[usize], room: &mut Room) {
        room.shifted.clear();
        for_each_stretch(table, rows, |_, stretch| room.shifted.extend_from_slice(stretch));
        packed.nearest(&mut room.shifted, &mut room.labels);
        for_each_stretch(table, rows, |from, stretch| {
            let to = from + stretch.len() / self.width;
            let (labels, squared) = (&room.labels[from..to], &mut room.squared[from..to]);
            squared_distances(stretch, labels, self.centres, squared);
        });
    }

    fn assign_sparse(
        &self,
        transposed: &TransposedCentres,
        table: &Table,
        rows: &[usize],
        room: &mut Room,
    ) {
        for (place, &row) in rows.iter().enumerate() {
            let Row::Sparse(columns, values) = table.row(row) else { unreachable!("sparse table") };
            let label = transposed.nearest(columns, values, &mut room.scores);
            let from = label as usize * self.width;
            let centre = &self.centres[from..from + self.width];
            room.labels[place] = label;
            room.squared[place] = transposed.squared_distance((columns, values), label, centre);
        }
    }
}

/// Hands out runs of consecutive rows of a dense table, each with the place of its first row in `rows`.
pub(super) fn for_each_stretch(table: &Table, rows: &[usize], mut each: impl FnMut(usize, &[f32])) {
    let mut from = 0;
    for run in rows.chunk_by(|a, b| a + 1 == *b) {
        let stretch = table.dense_rows(run[0], run[0] + run.len()).expect("a dense table");
        each(from, stretch);
        from += run.len();
    }
}
