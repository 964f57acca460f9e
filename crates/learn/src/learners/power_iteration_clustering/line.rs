//! k-means of numbers on a line, to the optimum: in sorted order clusters are intervals, and the best k intervals come
//! from the best k − 1 of every beginning (Wang and Song, "Ckmeans.1d.dp", 2011). Where the last interval begins never
//! moves back when the end moves on, so each row of the table is found by halving: O(k·n·log n).

/// The cluster of every number, counted from the lowest, and the mean of each cluster. There are at least k numbers;
/// clusters are fewer than k when fewer numbers differ, and then means repeat.
pub(super) fn cluster(numbers: &[f64], k: usize) -> (Vec<i64>, Vec<f64>) {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let sorted: Vec<f64> = order.iter().map(|&place| numbers[place]).collect();
    let begins = intervals(&sorted, k);
    let mut clusters = vec![0; numbers.len()];
    let mut means = Vec::with_capacity(k);
    for (cluster, &begin) in begins.iter().enumerate() {
        let end = begins.get(cluster + 1).copied().unwrap_or(sorted.len());
        order[begin..end].iter().for_each(|&place| clusters[place] = cluster as i64);
        means.push(sorted[begin..end].iter().sum::<f64>() / (end - begin) as f64);
    }
    let last = *means.last().expect("at least one interval");
    means.resize(k, last);
    (clusters, means)
}

/// Where each interval begins.
fn intervals(sorted: &[f64], k: usize) -> Vec<usize> {
    let different = 1 + sorted.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let (n, k) = (sorted.len(), k.min(different));
    let costs = Costs::new(sorted);
    let mut best: Vec<f64> = (0..n).map(|end| costs.of(0, end)).collect();
    let mut tables: Vec<Vec<usize>> = Vec::new();
    for part in 1..k {
        let (mut next, mut begins) = (vec![f64::INFINITY; n], vec![part; n]);
        halve(&costs, &best, (part, n), (part, n), (&mut next, &mut begins));
        best = next;
        tables.push(begins);
    }
    let (mut begins, mut end) = (Vec::new(), n - 1);
    for table in tables.iter().rev() {
        begins.push(table[end]);
        end = table[end] - 1;
    }
    begins.push(0);
    begins.reverse();
    begins
}

/// Fills the ends `low..high`, whose last interval begins within `from..to`, from the middle outwards.
fn halve(
    costs: &Costs,
    best: &[f64],
    (low, high): (usize, usize),
    (from, to): (usize, usize),
    (next, begins): (&mut [f64], &mut [usize]),
) {
    if low >= high {
        return;
    }
    let end = usize::midpoint(low, high);
    for begin in from..to.min(end + 1) {
        let cost = best[begin - 1] + costs.of(begin, end);
        if cost < next[end] {
            (next[end], begins[end]) = (cost, begin);
        }
    }
    let cut = begins[end];
    halve(costs, best, (low, end), (from, cut + 1), (&mut *next, &mut *begins));
    halve(costs, best, (end + 1, high), (cut, to), (next, begins));
}

/// The sum of squared deviations within any interval, from sums of all beginnings. Numbers are first brought to mean 0
/// and deviation 1, since those of a power iteration all but agree.
struct Costs {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Costs {
    fn new(sorted: &[f64]) -> Costs {
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let spread = (sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        let unit = if spread > 0.0 { 1.0 / spread } else { 1.0 };
        let (mut first, mut second) = (vec![0.0], vec![0.0]);
        let (mut sum, mut squares) = (0.0, 0.0);
        for x in sorted {
            let x = (x - mean) * unit;
            sum += x;
            squares += x * x;
            first.push(sum);
            second.push(squares);
        }
        Costs { first, second }
    }

    /// Of the interval from `begin` to `end`, both within.
    fn of(&self, begin: usize, end: usize) -> f64 {
        let sum = self.first[end + 1] - self.first[begin];
        let squares = self.second[end + 1] - self.second[begin];
        (squares - sum * sum / (end + 1 - begin) as f64).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn cost(numbers: &[f64], clusters: &[i64], means: &[f64]) -> f64 {
        numbers.iter().zip(clusters).map(|(x, &c)| (x - means[c as usize]).powi(2)).sum()
    }

    /// All ways to cut a sorted line into k intervals.
    fn exhaustive(sorted: &[f64], k: usize) -> f64 {
        let of = |part: &[f64]| {
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            part.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
        };
        if k == 1 {
            return of(sorted);
        }
        let tails = (1..=sorted.len() + 1 - k)
            .map(|cut| of(&sorted[..cut]) + exhaustive(&sorted[cut..], k - 1));
        tails.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_other_intervals_are_better() {
        let mut rng = Rng::named(1, "line", &[]);
        for (n, k) in [(1, 1), (2, 2), (7, 3), (12, 4), (15, 2), (10, 10)] {
            let numbers: Vec<f64> = (0..n).map(|_| 1e-3 + 1e-9 * rng.normal()).collect();
            let (clusters, means) = cluster(&numbers, k);
            let mut sorted = numbers.clone();
            sorted.sort_by(f64::total_cmp);
            let (found, least) = (cost(&numbers, &clusters, &means), exhaustive(&sorted, k));
            assert!((found - least).abs() <= 1e-6 * least + 1e-30, "{n} {k}: {found} {least}");
        }
    }

    #[test]
    fn equal_numbers_share_a_cluster_and_means_repeat() {
        let (clusters, means) = cluster(&[5.0, 1.0, 5.0, 5.0], 3);
        assert_eq!(clusters, [1, 0, 1, 1]);
        assert_eq!(means, [1.0, 5.0, 5.0]);
    }
}
