//! Clustering of a few weighted points in one place: weighted k-means++ (Arthur and Vassilvitskii, 2007) in
//! its greedy form, which tries a few points for each centre and keeps the best, then Lloyd's iterations.

use super::assign::Assigner;
use starlings_core::{Rng, Shard};
use starlings_data::{Features, Picked, Slice, Table};

/// Iterations on the candidates at most; they only start the iterations on the rows.
const ITERATIONS_MAX: usize = 30;

/// k centres of weighted points of `width` features. There are at least k points.
pub(super) fn cluster_candidates(
    points: &[f64],
    weights: &[f64],
    (k, width): (usize, usize),
    rng: &mut Rng,
) -> Vec<f64> {
    let mut centres = plus_plus(points, weights, (k, width), rng);
    // Candidates are rows of the data, which are f32: nothing is lost.
    let values: Vec<f32> = points.iter().map(|&x| x as f32).collect();
    let table = Table::new(Features::Dense { width, values }, Vec::new());
    let all = Slice { shard: Shard(0), start: 0, origin: 0, picked: Picked::All(weights.len()) };
    for _ in 0..ITERATIONS_MAX {
        let mut sums = vec![0.0; k * width];
        let mut mass = vec![0.0; k];
        Assigner::new(&centres, width, &table).visit(&table, &all, |tile| {
            for (&row, &label) in tile.rows.iter().zip(tile.labels) {
                let (weight, label) = (weights[row], label as usize);
                let point = &points[row * width..(row + 1) * width];
                let sum = &mut sums[label * width..(label + 1) * width];
                sum.iter_mut().zip(point).for_each(|(sum, x)| *sum += weight * x);
                mass[label] += weight;
            }
        });
        let mut moved = false;
        for ((centre, sum), mass) in
            centres.chunks_exact_mut(width).zip(sums.chunks_exact(width)).zip(&mass)
        {
            if *mass > 0.0 {
                for (c, sum) in centre.iter_mut().zip(sum) {
                    moved |= *c != sum / mass;
                    *c = sum / mass;
                }
            }
        }
        if !moved {
            break;
        }
    }
    centres
}

/// Greedy weighted k-means++.
fn plus_plus(
    points: &[f64],
    weights: &[f64],
    (k, width): (usize, usize),
    rng: &mut Rng,
) -> Vec<f64> {
    let trials = 2 + (k as f64).ln() as usize;
    let point = |place: usize| &points[place * width..(place + 1) * width];
    let mut chosen = vec![draw(weights.iter().copied(), rng)];
    let mut squared: Vec<f64> = distances(points, point(chosen[0]), width);
    while chosen.len() < k {
        let potentials = || squared.iter().zip(weights).map(|(d, &weight)| d * weight);
        let mut best: Option<(f64, usize, Vec<f64>)> = None;
        for _ in 0..trials {
            let place = draw(potentials(), rng);
            let mut nearer = distances(points, point(place), width);
            nearer.iter_mut().zip(&squared).for_each(|(new, old)| *new = new.min(*old));
            let cost = nearer.iter().zip(weights).map(|(d, &weight)| d * weight).sum();
            if best.as_ref().is_none_or(|(lowest, ..)| cost < *lowest) {
                best = Some((cost, place, nearer));
            }
        }
        let (_, place, nearer) = best.expect("at least two trials");
        chosen.push(place);
        squared = nearer;
    }
    chosen.iter().flat_map(|&place| point(place)).copied().collect()
}

/// A place drawn in proportion to its mass; uniformly when there is none.
fn draw(masses: impl Iterator<Item = f64> + Clone, rng: &mut Rng) -> usize {
    let total: f64 = masses.clone().sum();
    if total <= 0.0 {
        return rng.below(masses.count() as u64) as usize;
    }
    let target = rng.uniform() * total;
    let (mut sum, mut last) = (0.0, 0);
    for (place, mass) in masses.enumerate() {
        sum += mass;
        if mass > 0.0 {
            last = place;
            if sum > target {
                break;
            }
        }
    }
    last
}

fn distances(points: &[f64], from: &[f64], width: usize) -> Vec<f64> {
    let distance = |point: &[f64]| point.iter().zip(from).map(|(x, y)| (x - y) * (x - y)).sum();
    points.chunks_exact(width).map(distance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_pull_the_centres() {
        let points = [0.0, 1.0, 10.0, 12.0];
        let mut rng = Rng::named(1, "test", &[]);
        let mut centres = cluster_candidates(&points, &[3.0, 1.0, 1.0, 9.0], (2, 1), &mut rng);
        centres.sort_by(f64::total_cmp);
        assert_eq!(centres, [0.25, 11.8]);
    }

    #[test]
    fn fewer_different_points_than_centres_still_give_all_centres() {
        let mut rng = Rng::named(1, "test", &[]);
        let centres = cluster_candidates(&[2.0, 2.0, 5.0], &[1.0, 0.0, 4.0], (3, 1), &mut rng);
        assert_eq!(centres.len(), 3);
        assert!(centres.contains(&2.0) && centres.contains(&5.0), "{centres:?}");
    }
}
