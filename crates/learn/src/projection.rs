//! Rows in fewer numbers: z = (x − mean)·componentsᵀ, each divided by its deviation where that is wanted. What the
//! linear projections (principal components, truncated singular values) share once they are trained.

use crate::Grade;
use crate::kernels::products::dots;
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{FEATURES, Fault, Graph, Op, Result};
use starlings_data::{Batch, Row};
use std::collections::BTreeMap;

/// A linear projection.
pub(crate) struct Projection<'a> {
    /// What is taken off a row first: one number a feature.
    pub(crate) mean: &'a [f64],
    /// The components, one after the other.
    pub(crate) components: &'a [f64],
    /// What each coordinate is multiplied with; empty: nothing.
    pub(crate) scale: Vec<f64>,
}

impl Projection<'_> {
    /// How many numbers come out.
    pub(crate) fn outputs(&self) -> usize {
        self.components.len() / self.mean.len().max(1)
    }

    /// Projects all rows of a batch.
    pub(crate) fn project(&self, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        check_width(batch, self.mean.len())?;
        let offsets = self.offsets();
        for row in batch.rows() {
            let from = out.len();
            self.coordinates(batch.table.row(row), &offsets, out);
            out[from..].iter_mut().zip(&self.scale).for_each(|(z, scale)| *z *= scale);
        }
        Ok(())
    }

    /// Over all rows: the squared lengths of rows less the mean, and of their coordinates; both weighted.
    pub(crate) fn score(&self, batch: &Batch<'_>) -> Result<Vec<f64>> {
        check_width(batch, self.mean.len())?;
        let offsets = self.offsets();
        let still: f64 = self.mean.iter().map(|m| m * m).sum();
        let (mut sums, mut room) = (vec![0.0; 2], Vec::new());
        for row in batch.rows() {
            let weight = batch.table.weight(row);
            room.clear();
            self.coordinates(batch.table.row(row), &offsets, &mut room);
            sums[0] += weight
                * match batch.table.row(row) {
                    Row::Dense(values) => {
                        let pairs = values.iter().zip(self.mean);
                        pairs.map(|(x, m)| (f64::from(*x) - m).powi(2)).sum::<f64>()
                    }
                    Row::Sparse(columns, values) => {
                        let entries = columns.iter().zip(values).map(|(&c, &x)| {
                            let (x, m) = (f64::from(x), self.mean[c as usize]);
                            x * (x - 2.0 * m)
                        });
                        still + entries.sum::<f64>()
                    }
                };
            sums[1] += weight * room.iter().map(|z| z * z).sum::<f64>();
        }
        Ok(sums)
    }

    /// The projection as operators.
    pub(crate) fn graph(&self) -> Graph {
        let (width, outputs) = (self.mean.len(), self.outputs());
        let mut graph = Graph::new();
        let mean = graph.constant("mean", &[width], self.mean.to_vec());
        let scale = |component: usize| self.scale.get(component).copied().unwrap_or(1.0);
        let transposed = (0..width * outputs).map(|at| {
            let (feature, component) = (at / outputs, at % outputs);
            self.components[component * width + feature] * scale(component)
        });
        let components = graph.constant("components", &[width, outputs], transposed.collect());
        let centred = graph.node(Op::Sub, &[FEATURES, &mean]);
        graph.node(Op::MatMul, &[&centred, &components]);
        graph
    }

    fn offsets(&self) -> Vec<f64> {
        let components = self.components.chunks_exact(self.mean.len().max(1));
        components.map(|c| c.iter().zip(self.mean).map(|(c, m)| c * m).sum()).collect()
    }

    fn coordinates(&self, row: Row<'_>, offsets: &[f64], out: &mut Vec<f64>) {
        let components = self.components.chunks_exact(self.mean.len().max(1)).zip(offsets);
        match row {
            Row::Dense(values) => {
                out.extend(components.map(|(c, offset)| {
                    Arch::new().dispatch(Dot { row: values, vector: c }) - offset
                }));
            }
            Row::Sparse(columns, values) => out.extend(components.map(|(component, offset)| {
                let entries = columns.iter().zip(values);
                entries.map(|(&c, &x)| f64::from(x) * component[c as usize]).sum::<f64>() - offset
            })),
        }
    }
}

struct Dot<'a> {
    row: &'a [f32],
    vector: &'a [f64],
}

impl WithSimd for Dot<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        dots([self.row], self.vector)[0]
    }
}

/// The objective is minus the share of the squared lengths that the coordinates keep: −1 when nothing is lost.
pub(crate) fn grade(sums: &[f64]) -> Grade {
    let share = if sums[0] > 0.0 { sums[1] / sums[0] } else { 0.0 };
    let metrics = BTreeMap::from([("explained_variance".to_string(), share)]);
    Grade { objective: -share, metrics }
}

/// Refuses rows of another width than the model's.
pub(crate) fn check_width(batch: &Batch<'_>, width: usize) -> Result<()> {
    let found = batch.table.width();
    if found == width {
        return Ok(());
    }
    Err(Fault::caller(format!("rows have {found} features, the model {width}"))
        .hint("use the same columns as in training"))
}
