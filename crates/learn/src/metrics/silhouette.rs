//! How much nearer rows are to their own cluster than to the next one (Rousseeuw, 1987), in three ways, each by its own
//! name, for they are different numbers:
//!
//! - `silhouette_squared`: by squared Euclidean distances, of all rows. The sum of the squared distances from a row to a
//!   cluster needs only the cluster's count, sum and sum of squares, so it is exact and costs one pass (Spark's measure).
//! - `silhouette`: by Euclidean distances between all pairs, exact; up to [`ROWS_MAX`] rows.
//! - `silhouette_sampled`: the same of a seeded sample of [`ROWS_MAX`] rows, where there are more.

use super::company::{Company, read, write};
use super::{Named, Points, Rated};
use starlings_core::{Panel, Result, Rng};
use starlings_data::{Row, Table};
use std::collections::BTreeSet;

/// Most rows between which all distances are taken.
pub(super) const ROWS_MAX: u64 = 4096;
/// Most numbers that are summed for the clusters' sums.
const SUMS_MAX: usize = 1 << 22;

pub(super) fn measure(
    company: &mut dyn Company,
    rated: &Rated<'_>,
    points: &Points<'_>,
    panel: &mut Panel,
) -> Result<()> {
    let clusters: Vec<usize> =
        rated.outputs.chunks_exact(rated.width).map(|row| row[0].max(0.0) as usize).collect();
    let own = clusters.iter().max().map_or(0, |&most| most + 1);
    let gathered = company.gather((own as u64).to_le_bytes().to_vec())?;
    let word = |bytes: &Vec<u8>| <[u8; 8]>::try_from(&bytes[..]).map_or(0, u64::from_le_bytes);
    let count = gathered.iter().map(word).max().unwrap_or(0) as usize;
    let width = points.table.width();
    if count * (width + 2) <= SUMS_MAX
        && let Some(value) = squared(company, points.table, &clusters, count)?
    {
        panel.put(&[("silhouette_squared", value)]);
    }
    let name = if panel.rows <= ROWS_MAX { "silhouette" } else { "silhouette_sampled" };
    if let Some(value) = of_pairs(company, points, &clusters, panel.rows)? {
        panel.put(&[(name, value)]);
    }
    Ok(())
}

/// One row's share: (b − a) / max(a, b), 0 for a row that is alone in its cluster. `distances` are the sums of distances
/// to the rows of each cluster, `counts` their rows, the row itself included in its own.
fn share(own: usize, distances: &[f64], counts: &[f64]) -> f64 {
    if counts[own] <= 1.0 {
        return 0.0;
    }
    let within = distances[own] / (counts[own] - 1.0);
    let others = (0..counts.len()).filter(|&other| other != own && counts[other] > 0.0);
    let beyond = others.map(|other| distances[other] / counts[other]).fold(f64::INFINITY, f64::min);
    match within.max(beyond) {
        most if most > 0.0 => (beyond - within) / most,
        _ => 0.0,
    }
}

/// Defined for at least two clusters and fewer clusters than rows.
fn defined(counts: &[f64]) -> bool {
    let clusters = counts.iter().filter(|&&count| count > 0.0).count() as f64;
    clusters >= 2.0 && clusters < counts.iter().sum()
}

/// By squared distances, of all rows. Rows are taken from the common mean first: far from the origin the differences of
/// large squares would lose digits.
fn squared(
    company: &mut dyn Company,
    table: &Table,
    clusters: &[usize],
    count: usize,
) -> Result<Option<f64>> {
    let width = table.width();
    let mut sums = vec![0.0; width + 1];
    for row in 0..clusters.len() {
        sums[width] += 1.0;
        entries(table.row(row)).for_each(|(at, value)| sums[at] += value);
    }
    let mut mean = company.sum(sums)?;
    let rows = mean.pop().unwrap_or(0.0);
    mean.iter_mut().for_each(|sum| *sum /= rows.max(1.0));
    let mut scratch = vec![0.0; width];
    let mut sums = vec![0.0; count * (width + 2)];
    for (row, &cluster) in clusters.iter().enumerate() {
        centre(table.row(row), &mean, &mut scratch);
        let sums = &mut sums[cluster * (width + 2)..][..width + 2];
        sums[0] += 1.0;
        sums[1] += norm(&scratch);
        sums[2..].iter_mut().zip(&scratch).for_each(|(sum, value)| *sum += value);
    }
    let sums = company.sum(sums)?;
    let sums: Vec<&[f64]> = sums.chunks_exact(width + 2).collect();
    let counts: Vec<f64> = sums.iter().map(|sums| sums[0]).collect();
    if !defined(&counts) {
        return Ok(None);
    }
    let mut total = 0.0;
    let mut distances = vec![0.0; count];
    for (row, &cluster) in clusters.iter().enumerate() {
        centre(table.row(row), &mean, &mut scratch);
        let own = norm(&scratch);
        for (distance, sums) in distances.iter_mut().zip(&sums) {
            let dot: f64 = scratch.iter().zip(&sums[2..]).map(|(a, b)| a * b).sum();
            *distance = (sums[0] * own - 2.0 * dot + sums[1]).max(0.0);
        }
        total += share(cluster, &distances, &counts);
    }
    let total = company.sum(vec![total])?;
    Ok(Some(total[0] / rows))
}

/// By the distances between all pairs of at most [`ROWS_MAX`] rows, which everyone is given.
fn of_pairs(
    company: &mut dyn Company,
    points: &Points<'_>,
    clusters: &[usize],
    rows: u64,
) -> Result<Option<f64>> {
    let chosen = chosen(rows);
    let mine: Vec<usize> = (0..clusters.len())
        .filter(|&row| chosen.as_ref().is_none_or(|it| it.contains(&points.share.number(row))))
        .collect();
    let mut bytes = Vec::new();
    for &row in &mine {
        let entries: Vec<(usize, f64)> = entries(points.table.row(row)).collect();
        write(&[clusters[row] as f64, entries.len() as f64], &mut bytes);
        entries.iter().for_each(|&(at, value)| write(&[at as f64, value], &mut bytes));
    }
    let all: Vec<Point> = company.gather(bytes)?.iter().flat_map(|bytes| unpacked(bytes)).collect();
    let most = all.iter().map(|point| point.cluster).max().unwrap_or(0);
    let mut counts = vec![0.0; most + 1];
    all.iter().for_each(|point| counts[point.cluster] += 1.0);
    let mut total = 0.0;
    let mut scratch = vec![0.0; points.table.width()];
    for row in mine {
        entries(points.table.row(row)).for_each(|(at, value)| scratch[at] = value);
        let own: f64 = scratch.iter().map(|value| value * value).sum();
        let mut distances = vec![0.0; counts.len()];
        for point in &all {
            distances[point.cluster] += distance(&scratch, own, point);
        }
        total += share(clusters[row], &distances, &counts);
        scratch.fill(0.0);
    }
    let total = company.sum(vec![total])?;
    Ok(defined(&counts).then(|| total[0] / all.len() as f64))
}

/// A row that everyone has.
struct Point {
    cluster: usize,
    entries: Vec<(usize, f64)>,
}

fn unpacked(bytes: &[u8]) -> Vec<Point> {
    let mut numbers = read(bytes);
    let mut points = Vec::new();
    while let (Some(cluster), Some(len)) = (numbers.next(), numbers.next()) {
        let entry = |_| (numbers.next().unwrap_or(0.0) as usize, numbers.next().unwrap_or(0.0));
        let entries = (0..len as usize).map(entry).collect();
        points.push(Point { cluster: cluster as usize, entries });
    }
    points
}

/// The distance of a row to another, of which only what is not zero is known. Where the other one has every column the
/// squares of differences are summed as they are.
fn distance(row: &[f64], own: f64, other: &Point) -> f64 {
    let full = other.entries.len() == row.len();
    let mut sum = if full { 0.0 } else { own };
    for &(at, value) in &other.entries {
        let here = row[at];
        sum += (here - value) * (here - value) - if full { 0.0 } else { here * here };
    }
    sum.max(0.0).sqrt()
}

/// The numbers of the rows in the sample; all where `None`.
fn chosen(rows: u64) -> Option<BTreeSet<u64>> {
    if rows <= ROWS_MAX {
        return None;
    }
    let mut rng = Rng::named(0, "silhouette", &[rows]);
    let mut chosen = BTreeSet::new();
    while (chosen.len() as u64) < ROWS_MAX {
        chosen.insert(rng.below(rows));
    }
    Some(chosen)
}

fn entries(row: Row<'_>) -> Box<dyn Iterator<Item = (usize, f64)> + '_> {
    match row {
        Row::Dense(values) => {
            Box::new(values.iter().enumerate().map(|(at, &value)| (at, f64::from(value))))
        }
        Row::Sparse(columns, values) => {
            let pairs = columns.iter().zip(values);
            Box::new(pairs.map(|(&at, &value)| (at as usize, f64::from(value))))
        }
    }
}

fn centre(row: Row<'_>, mean: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(mean).for_each(|(to, mean)| *to = -mean);
    entries(row).for_each(|(at, value)| into[at] += value);
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}
