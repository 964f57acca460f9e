//! Matrices as products of two thin ones: PowerSGD (Vogels et al., 2019). With M the sum over seats of what each has, and Q
//! columns that all seats know, the seats sum P = M Q, make its columns orthonormal (P̂), sum Q = Mᵀ P̂, and are
//! told P̂ Qᵀ = P̂ P̂ᵀ M: the part of M that lies in P̂. The new Q warms the next step's start, so that steps together
//! make a power iteration. What a seat's own matrix has outside P̂ is added to its next contribution.
//!
//! The total is the sum over seats, not the mean, and it is exact (to rounding) where that sum has at most `rank`: on the
//! first step, for Q is random then and meets every direction; and after a warm start whenever the rows of the
//! sum are not orthogonal to a direction of Q. A column of P with nothing new in it, as of a sum of less
//! rank, is replaced by a random one, so that no direction is lost for good.
//!
//! Two dependent rounds, each a plain sum. Blocks that are no matrices (vectors, statistics, rows, factors, integers), or
//! of which the two thin ones would not be smaller, travel whole in the first round.
//! Cost: rank · (rows + columns) numbers instead of rows · columns, and 4 · rank multiplications a number.

use super::BuildCodec;
use crate::float::{self, Float, floats};
use crate::kernels::matrix::{
    add_products, orthonormalise, subtract_products, times, transposed_times,
};
use crate::residuals::residual_key;
use crate::{Next, Rounds, Scheme, Shapes};
use starlings_core::{Ability, Body, Entry, Kind, Param, ParamKind, Rng, Update, Values};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "low-rank",
    summary: "Dense matrices travel as products of two thin ones, found by a power iteration over the steps; rows of tables as they are",
    reference: "Vogels et al.: PowerSGD: practical low-rank gradient compression for distributed optimization, NeurIPS 2019",
    params: &[
        Param {
            name: "rank",
            kind: ParamKind::Integer { min: 1, max: 64 },
            default: Some("2"),
            help: "columns of the thin matrices: more are more precise, and more bytes",
        },
        Param {
            name: "seed",
            kind: ParamKind::Integer { min: 0, max: i64::MAX },
            default: Some("0"),
            help: "what the first columns are drawn from",
        },
    ],
    gives: &[Ability::Summable],
    needs: &[],
    build: |params| {
        Ok(Scheme::Rounds(Box::new(LowRank {
            rank: params.size("rank"),
            seed: params.i64("seed") as u64,
            ..LowRank::default()
        })))
    },
};

#[derive(Default)]
struct LowRank {
    rank: usize,
    seed: u64,
    shapes: Shapes,
    /// What each matrix lost, by block.
    residuals: BTreeMap<String, Values>,
    /// The columns of Q that the next step starts from, one after another, by block.
    warm: BTreeMap<String, Vec<f64>>,
    step: u64,
    round: Round,
}

/// Which sum comes next.
#[derive(Default)]
enum Round {
    #[default]
    None,
    /// P and all that travels whole.
    Left(Vec<Matrix>),
    /// Q. The update has the sums of all that travelled whole.
    Right(Vec<Matrix>, Update),
}

/// A matrix on its way.
struct Matrix {
    /// Which block it is.
    at: usize,
    name: String,
    rows: usize,
    columns: usize,
    rank: usize,
    /// This seat's contribution and what it held.
    own: Values,
    /// P̂, column after column, of the same kind as `own`.
    left: Values,
    /// This seat's Mᵀ P̂, column after column.
    right: Values,
}

impl Rounds for LowRank {
    fn begin_seat(&self, shapes: &Shapes) -> Box<dyn Rounds> {
        let (rank, seed, shapes) = (self.rank, self.seed, shapes.clone());
        Box::new(LowRank { rank, seed, shapes, ..LowRank::default() })
    }

    fn first(&mut self, mut update: Update, step: u64, _world: u32) -> Update {
        self.step = step;
        let mut matrices = Vec::new();
        for (at, block) in update.blocks.iter_mut().enumerate() {
            let Body::Dense(values) = &mut block.body else { continue };
            let Some(mut matrix) = self.matrix(at, &block.name, values) else { continue };
            let right = narrow(values.kind(), &self.start(&matrix));
            // What is given becomes this seat's own matrix; P travels in its place.
            std::mem::swap(values, &mut matrix.own);
            if let Some(lost) = self.residuals.get(&block.name) {
                float::add(&mut matrix.own, 0, lost);
            }
            *values = floats!(&matrix.own, own => {
                Float::values(times(own, matrix.columns, Float::slice(&right)))
            });
            matrices.push(matrix);
        }
        self.round = Round::Left(matrices);
        update
    }

    fn next(&mut self, sum: Update) -> Next {
        match std::mem::take(&mut self.round) {
            Round::Left(matrices) if matrices.is_empty() => Next::Done(sum),
            Round::Left(matrices) => self.project(matrices, sum),
            Round::Right(matrices, whole) => Next::Done(self.finish(matrices, whole, &sum)),
            Round::None => panic!("a sum that nobody asked for"),
        }
    }

    fn save(&self) -> BTreeMap<String, Values> {
        let residuals =
            self.residuals.iter().map(|(block, lost)| (residual_key(block, 0), lost.clone()));
        let warm =
            self.warm.iter().map(|(block, right)| (warm_key(block), Values::F64(right.clone())));
        residuals.chain(warm).collect()
    }

    fn restore(&mut self, mut state: BTreeMap<String, Values>) {
        self.round = Round::None;
        self.residuals.clear();
        self.warm.clear();
        for block in self.shapes.keys() {
            if let Some(lost) = state.remove(&residual_key(block, 0)) {
                self.residuals.insert(block.clone(), lost);
            }
            if let Some(Values::F64(right)) = state.remove(&warm_key(block)) {
                self.warm.insert(block.clone(), right);
            }
        }
    }
}

impl LowRank {
    /// The block as a matrix, if it pays to send it as two thin ones.
    fn matrix(&self, at: usize, name: &str, values: &Values) -> Option<Matrix> {
        let &(rows, columns) = self.shapes.get(name)?;
        let rank = self.rank.min(rows).min(columns);
        if values.kind() == Kind::I64 || rank * (rows + columns) >= rows * columns {
            return None;
        }
        assert_eq!(values.len(), rows * columns, "'{name}' is not {rows} by {columns}");
        let none = || Values::zeros(values.kind(), 0);
        let (own, left, right) = (none(), none(), none());
        Some(Matrix { at, name: name.to_string(), rows, columns, rank, own, left, right })
    }

    /// Q: where the last step ended, or at random. The same on all seats.
    fn start(&self, matrix: &Matrix) -> Vec<f64> {
        let len = matrix.columns * matrix.rank;
        match self.warm.get(&matrix.name) {
            Some(right) if right.len() == len => right.clone(),
            _ => {
                let mut rng = Rng::named(self.seed, &matrix.name, &[self.step]);
                (0..len).map(|_| rng.normal()).collect()
            }
        }
    }

    /// From the sum of P to this seat's part of Q.
    fn project(&mut self, mut matrices: Vec<Matrix>, sum: Update) -> Next {
        let mut blocks = Vec::with_capacity(matrices.len());
        for matrix in &mut matrices {
            let mut block = sum.blocks[matrix.at].clone();
            let Body::Dense(values) = &mut block.body else { panic!("a sum of another body") };
            let mut left = wide(values);
            // What is left of a column by rounding alone, in the precision of the sum.
            let least = if values.kind() == Kind::F32 { 1e-6 } else { 1e-13 };
            let rows = matrix.rows;
            orthonormalise(&mut left, rows, least, |column| {
                let key = [self.step, 1 + column as u64];
                let mut rng = Rng::named(self.seed, &matrix.name, &key);
                (0..rows).map(|_| rng.normal()).collect()
            });
            matrix.left = narrow(values.kind(), &left);
            matrix.right = floats!(&matrix.own, own => {
                Float::values(transposed_times(own, matrix.columns, Float::slice(&matrix.left)))
            });
            values.clone_from(&matrix.right);
            blocks.push(block);
        }
        self.round = Round::Right(matrices, sum);
        Next::Sum(Update { blocks })
    }

    /// From the sum of Q to the total, and to what is lost.
    fn finish(&mut self, matrices: Vec<Matrix>, mut whole: Update, sum: &Update) -> Update {
        for (mut matrix, block) in matrices.into_iter().zip(&sum.blocks) {
            let Body::Dense(values) = &block.body else { panic!("a sum of another body") };
            let (left, columns) = (&matrix.left, matrix.columns);
            let mut total = Values::zeros(matrix.own.kind(), matrix.own.len());
            floats!(&mut total, total => {
                add_products(total, columns, Float::slice(left), Float::slice(values));
            });
            floats!(&mut matrix.own, own => {
                subtract_products(own, columns, Float::slice(left), Float::slice(&matrix.right));
                forget_what_is_not_finite(own);
            });
            self.residuals.insert(matrix.name.clone(), matrix.own);
            // After numbers that are not finite, which end the run or undo the step, it starts anew.
            match values.all_finite() {
                true => self.warm.insert(matrix.name, wide(values)),
                false => self.warm.remove(&matrix.name),
            };
            whole.blocks[matrix.at].body = Body::Dense(total);
        }
        whole
    }
}

fn forget_what_is_not_finite<T: Float>(values: &mut [T]) {
    for value in values {
        *value = if value.is_finite() { *value } else { T::default() };
    }
}

fn wide(values: &Values) -> Vec<f64> {
    floats!(values, inner => inner.iter().map(|value| value.wide()).collect())
}

fn narrow(kind: Kind, values: &[f64]) -> Values {
    match kind {
        Kind::F32 => Values::F32(values.iter().map(|&value| value as f32).collect()),
        _ => Values::F64(values.to_vec()),
    }
}

fn warm_key(block: &str) -> String {
    format!("warm/{block}")
}
