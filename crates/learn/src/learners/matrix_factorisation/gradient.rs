//! The gradient of a batch of ratings with respect to the rows of users and items it touches. Rows are
//! grouped by sorting, not hashing, so that sums have one order.
//!
//! For each rating r of user u and item i with error e = r − r̂ the loss is
//! ½e² + ½λ(‖p_u‖² + b_u² + ‖q_i‖² + b_i²); the gradient of p_u is −e·q_i + λp_u, that of b_u is −e + λb_u.

use starlings_core::{Rows, Values};

/// The code of a user or item that the model has not seen.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// One rating.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rating {
    /// The row of the user, or [`UNKNOWN`].
    pub(super) user: u32,
    /// The row of the item, or [`UNKNOWN`].
    pub(super) item: u32,
    /// The rating.
    pub(super) value: f64,
}

/// The factors as a worker sees them: rows of `rank` factors and a bias.
#[derive(Clone, Copy)]
pub(super) struct Factors<'a> {
    pub(super) users: &'a [f64],
    pub(super) items: &'a [f64],
    pub(super) mean: f64,
    pub(super) rank: usize,
}

impl Factors<'_> {
    /// The factors and the bias of a user; none if unknown.
    #[inline]
    fn user(&self, user: u32) -> Option<&[f64]> {
        let width = self.rank + 1;
        (user != UNKNOWN).then(|| &self.users[user as usize * width..][..width])
    }

    /// The factors and the bias of an item; none if unknown.
    #[inline]
    fn item(&self, item: u32) -> Option<&[f64]> {
        let width = self.rank + 1;
        (item != UNKNOWN).then(|| &self.items[item as usize * width..][..width])
    }

    /// The rating that the model expects. What is unknown of the pair is left out.
    #[inline]
    pub(super) fn predict(&self, user: u32, item: u32) -> f64 {
        match (self.user(user), self.item(item)) {
            (Some(p), Some(q)) => {
                let (p, user_bias) = p.split_at(self.rank);
                let (q, item_bias) = q.split_at(self.rank);
                self.mean + user_bias[0] + item_bias[0] + dot(p, q)
            }
            (Some(known), None) | (None, Some(known)) => self.mean + known[self.rank],
            (None, None) => self.mean,
        }
    }

    /// ‖p_u‖² + b_u² + ‖q_i‖² + b_i² of a rating.
    pub(super) fn penalty(&self, rating: &Rating) -> f64 {
        let norm = |row: Option<&[f64]>| row.map_or(0.0, |row| dot(row, row));
        norm(self.user(rating.user)) + norm(self.item(rating.item))
    }
}

/// The gradients of a batch.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Gradients {
    /// For each touched user: the gradient of factors and bias, and how many ratings it is the sum of.
    pub(super) users: Touched,
    /// The same of items.
    pub(super) items: Touched,
    /// The sum of errors.
    pub(super) errors: f64,
    /// The sum of squared errors.
    pub(super) squared: f64,
}

/// Sums of touched rows.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Touched {
    /// Which rows, increasing.
    pub(super) index: Vec<u32>,
    /// Rank + 2 numbers for each.
    pub(super) sums: Vec<f64>,
    /// For each rating the place of its row in `index`.
    slots: Vec<u32>,
}

impl Touched {
    fn new(codes: impl Iterator<Item = u32>, rank: usize) -> Touched {
        let (index, slots) = group(codes);
        let sums = vec![0.0; index.len() * (rank + 2)];
        Touched { index, sums, slots }
    }

    /// Adds one rating's gradient: `error` times the other side's factors, and the penalty.
    #[inline]
    fn add(&mut self, rating: usize, own: &[f64], other: Option<&[f64]>, (error, l2): (f64, f64)) {
        let width = own.len() + 1;
        let rank = own.len() - 1;
        let sums = &mut self.sums[self.slots[rating] as usize * width..][..width];
        let (factors, tail) = sums.split_at_mut(rank);
        match other {
            Some(other) => {
                for ((sum, own), other) in factors.iter_mut().zip(own).zip(other) {
                    *sum += l2 * own - error * other;
                }
            }
            None => factors.iter_mut().zip(own).for_each(|(sum, own)| *sum += l2 * own),
        }
        tail[0] += l2 * own[rank] - error;
        tail[1] += 1.0;
    }

    /// As rows of a table of `total` rows.
    pub(super) fn into_rows(self, total: usize, rank: usize) -> Rows {
        Rows {
            total: total as u32,
            width: rank as u32 + 2,
            index: self.index,
            values: Values::F64(self.sums),
        }
    }
}

/// The gradients of the ratings of a batch.
pub(super) fn gradients(ratings: &[Rating], factors: Factors<'_>, l2: f64) -> Gradients {
    let mut users = Touched::new(ratings.iter().map(|rating| rating.user), factors.rank);
    let mut items = Touched::new(ratings.iter().map(|rating| rating.item), factors.rank);
    let (mut errors, mut squared) = (0.0, 0.0);
    for (place, rating) in ratings.iter().enumerate() {
        let error = rating.value - factors.predict(rating.user, rating.item);
        let (p, q) = (factors.user(rating.user), factors.item(rating.item));
        if let Some(p) = p {
            users.add(place, p, q, (error, l2));
        }
        if let Some(q) = q {
            items.add(place, q, p, (error, l2));
        }
        errors += error;
        squared += error * error;
    }
    Gradients { users, items, errors, squared }
}

/// The different codes, increasing, and for each position the place of its code among them.
fn group(codes: impl Iterator<Item = u32>) -> (Vec<u32>, Vec<u32>) {
    let mut keys: Vec<u64> =
        codes.enumerate().map(|(place, code)| u64::from(code) << 32 | place as u64).collect();
    let mut slots = vec![UNKNOWN; keys.len()];
    keys.sort_unstable();
    let mut index = Vec::new();
    for key in keys {
        let (code, place) = ((key >> 32) as u32, key as u32);
        if code == UNKNOWN {
            break;
        }
        if index.last() != Some(&code) {
            index.push(code);
        }
        slots[place as usize] = index.len() as u32 - 1;
    }
    (index, slots)
}

/// A dot product with four partial sums, which processors can keep in flight together.
#[inline]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_chunks, a_rest) = a.as_chunks::<4>();
    let (b_chunks, b_rest) = b.as_chunks::<4>();
    let mut lanes = [0.0; 4];
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..4 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    #[test]
    fn codes_are_grouped_in_order_and_the_unknown_left_out() {
        let (index, slots) = group([7, 2, UNKNOWN, 7, 0].into_iter());
        assert_eq!(index, [0, 2, 7]);
        assert_eq!(slots, [2, 1, UNKNOWN, 2, 0]);
    }

    fn loss(ratings: &[Rating], factors: Factors<'_>, l2: f64) -> f64 {
        let one = |rating: &Rating| {
            let error = rating.value - factors.predict(rating.user, rating.item);
            0.5 * error * error + 0.5 * l2 * factors.penalty(rating)
        };
        ratings.iter().map(one).sum()
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let (rank, l2, mut rng) = (5, 0.3, Rng::named(2, "test", &[]));
        let mut normals = |count: usize| -> Vec<f64> { (0..count).map(|_| rng.normal()).collect() };
        let (mut users, mut items) = (normals(4 * (rank + 1)), normals(3 * (rank + 1)));
        let rating = |user, item, value| Rating { user, item, value };
        let ratings = [
            rating(0, 1, 2.0),
            rating(3, 1, 4.0),
            rating(0, 2, -1.0),
            rating(0, 1, 3.0),
            rating(2, UNKNOWN, 1.0),
            rating(UNKNOWN, 2, 5.0),
        ];
        let mean = 0.4;
        let found = gradients(&ratings, Factors { users: &users, items: &items, mean, rank }, l2);
        assert_eq!((&found.users.index[..], &found.items.index[..]), (&[0, 2, 3][..], &[1, 2][..]));
        let step = 1e-5;
        for of_users in [true, false] {
            let touched = if of_users { &found.users } else { &found.items };
            for (slot, &row) in touched.index.iter().enumerate() {
                for column in 0..=rank {
                    let at = row as usize * (rank + 1) + column;
                    let mut moved = |by: f64| {
                        let side = if of_users { &mut users } else { &mut items };
                        side[at] += by;
                        loss(&ratings, Factors { users: &users, items: &items, mean, rank }, l2)
                    };
                    let (above, below) = (moved(step), moved(-2.0 * step));
                    moved(step);
                    let numeric = (above - below) / (2.0 * step);
                    let exact = touched.sums[slot * (rank + 2) + column];
                    assert!((numeric - exact).abs() < 1e-7, "{numeric} {exact}");
                }
            }
        }
        let counts: Vec<f64> = found.users.sums.chunks(rank + 2).map(|row| row[rank + 1]).collect();
        assert_eq!(counts, [3.0, 1.0, 1.0]);
    }
}
