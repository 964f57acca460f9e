//! The order that scores give to the rows of each group: the normalised discounted cumulative gain of its first ten
//! (Järvelin and Kekäläinen 2002, gains 2^relevance − 1, as LightGBM has it).

use super::company::Company;
use super::{Named, Rated};
use starlings_core::{Panel, Result};

/// How many of a group's first rows count.
const FIRST: usize = 10;

pub(super) fn measure(
    company: &mut dyn Company,
    rated: &Rated<'_>,
    panel: &mut Panel,
) -> Result<()> {
    let rows: Vec<(u32, f64, f64)> = rated
        .groups
        .iter()
        .zip(rated.outputs)
        .zip(rated.labels)
        .map(|((&group, &score), &label)| (group, score, f64::from(label)))
        .collect();
    let mut sums = vec![0.0; 2];
    for group in rows.chunk_by(|a, b| a.0 == b.0) {
        sums[0] += 1.0;
        sums[1] += gain_share(group.iter().map(|&(_, score, label)| (score, label)).collect());
    }
    let sums = company.sum(sums)?;
    if sums[0] > 0.0 {
        panel.put(&[("ndcg", sums[1] / sums[0])]);
    }
    Ok(())
}

/// What the order by scores gains of what the best order would; 1 where there is nothing to gain.
fn gain_share(mut rows: Vec<(f64, f64)>) -> f64 {
    let gains = |rows: &[(f64, f64)]| -> f64 {
        let gain =
            |(place, row): (usize, &(f64, f64))| (row.1.exp2() - 1.0) / (place as f64 + 2.0).log2();
        rows.iter().take(FIRST).enumerate().map(gain).sum()
    };
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let found = gains(&rows);
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let best = gains(&rows);
    if best > 0.0 { found / best } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_order_gains_all_and_another_by_the_closed_form() {
        let best = gain_share(vec![(3.0, 2.0), (2.0, 1.0), (1.0, 0.0)]);
        assert!((best - 1.0).abs() < 1e-15);
        let swapped = gain_share(vec![(2.0, 2.0), (3.0, 1.0), (1.0, 0.0)]);
        let third = 3f64.log2();
        let expected = (1.0 + 3.0 / third) / (3.0 + 1.0 / third);
        assert!((swapped - expected).abs() < 1e-15, "{swapped} {expected}");
        assert_eq!(gain_share(vec![(1.0, 0.0)]), 1.0, "nothing to gain");
    }

    #[test]
    fn only_the_first_ten_count() {
        let rows = |relevant: usize| {
            let label = move |row: usize| f64::from(u8::from(row == relevant));
            (0..12).map(|row| (-(row as f64), label(row))).collect()
        };
        assert_eq!(gain_share(rows(11)), 0.0);
        assert!(gain_share(rows(9)) > 0.0);
    }
}
