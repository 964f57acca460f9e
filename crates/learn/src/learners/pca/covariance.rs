//! Principal components from the covariance: one pass sums (x − mean)(x − mean)ᵀ, and every replica finds the
//! eigenvectors of the sum. Rows are centred before they are multiplied, so that nothing cancels however far the
//! data lie from the origin. The exchange costs width·(width + 1)/2 numbers.

use super::{Wanted, finish};
use crate::Work;
use crate::algebra::symmetric::eigen;
use crate::kernels::scatter::{TILE_ROWS, add_products, fill, padded, scale_rows, whole};
use starlings_core::{Block, Model, Update};

/// The scatter of this worker's rows about the mean: its upper triangle, row after row.
pub(super) fn contribute(work: &mut Work<'_>) {
    let mean = work.model.f64("mean");
    let (width, stride) = (mean.len(), padded(mean.len()));
    let table = work.batch.table;
    let mut sum = vec![0.0; stride * stride];
    let (mut tile, mut scaled, mut factors) = (Vec::new(), Vec::new(), Vec::new());
    for slice in &work.batch.slices {
        let rows: Vec<usize> = slice.rows().collect();
        for rows in rows.chunks(TILE_ROWS) {
            fill(table, rows, mean, &mut tile);
            if table.weights.is_empty() {
                add_products(&tile, &tile, stride, &mut sum);
                continue;
            }
            factors.clear();
            factors.extend(rows.iter().map(|&row| table.weight(row)));
            scale_rows(&tile, stride, &factors, &mut scaled);
            add_products(&scaled, &tile, stride, &mut sum);
        }
    }
    let upper = (0..width).flat_map(|i| &sum[i * stride + i..i * stride + width]);
    work.outbox.emit(Block::dense("scatter", upper.copied().collect()));
}

/// Decomposes the scatter of all rows.
pub(super) fn apply(model: &mut Model, update: &Update, wanted: Wanted) {
    let width = model.f64("mean").len();
    let weight = model.f64("weight")[0];
    let stride = padded(width);
    let (mut upper, mut rest) = (vec![0.0; stride * stride], update.f64("scatter"));
    for i in 0..width {
        let (row, after) = rest.split_at(width - i);
        upper[i * stride + i..i * stride + width].copy_from_slice(row);
        rest = after;
    }
    let scatter = whole(&upper, width);
    let found = eigen(&scatter, width);
    let total: f64 = (0..width).map(|i| scatter[i * width + i]).sum::<f64>() / (weight - 1.0);
    let rows = model.i64("progress")[1] as usize;
    let count = match wanted {
        Wanted::Count(count) => count,
        Wanted::All => width.min(rows),
        Wanted::Share(share) => {
            let (mut sum, goal) = (0.0, share * total * (weight - 1.0));
            let reached = found.values.iter().position(|value| {
                sum += value.max(0.0);
                sum > goal
            });
            reached.map_or(width, |place| place + 1).min(rows)
        }
    };
    finish(model, found, count, (weight, total));
}
