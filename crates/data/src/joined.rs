//! Two holdings as one: a worker that takes over shards keeps the rows it has and reads only the others.

use crate::encode::append;
use crate::{Holding, Table};
use std::sync::Arc;

impl Holding {
    /// This holding with the shards of another one added. Of shards in both, this one's rows stay.
    #[must_use]
    pub fn joined(&self, other: &Holding) -> Holding {
        let shift = self.table.rows();
        let fresh = other.starts.iter().filter(|(shard, _)| !self.starts.contains_key(shard));
        let mut starts = self.starts.clone();
        starts.extend(fresh.map(|(&shard, &start)| (shard, start + shift)));
        let mut table = Table::clone(&self.table);
        append(&mut table.features, &other.table.features);
        table.labels.extend_from_slice(&other.table.labels);
        table.weights.extend_from_slice(&other.table.weights);
        table.groups.extend_from_slice(&other.table.groups);
        Holding { table: Arc::new(table), starts, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dealer, Features, Holding, Table};
    use starlings_core::Shard;
    use std::sync::Arc;

    #[test]
    fn rows_read_later_are_dealt_like_rows_read_at_once() {
        let values: Vec<f32> = (0..23).map(|row| row as f32).collect();
        let part = |rows: &[f32]| {
            let features = Features::Dense { width: 1, values: rows.to_vec() };
            Arc::new(Table::new(features, rows.to_vec()))
        };
        let whole = Holding::whole(part(&values), 4);
        let cut = |shard: u32| {
            let from = whole.starts[&Shard(shard)];
            let to = whole.starts.get(&Shard(shard + 1)).copied().unwrap_or(23);
            let starts = [(Shard(shard), 0)].into();
            Holding { table: part(&values[from..to]), starts, ..whole.clone() }
        };
        let joined = cut(2).joined(&cut(0)).joined(&cut(3));
        let seen = |holding: Holding| {
            let mut dealer = Dealer::new(holding, 7, 5);
            let batch = dealer.deal(1, 2);
            batch.rows().map(|row| batch.table.labels[row]).collect::<Vec<f32>>()
        };
        assert_eq!(seen(joined), seen(whole.only(&[Shard(0), Shard(2), Shard(3)])));
    }
}
