//! What the features of a tree learner are, and into which bins their values fall.
//!
//! Bin 0 is for what is missing. A numeric feature with m edges has the bins 1 to m + 1: a value belongs to the first
//! bin whose upper edge is not below it. A categorical feature has a bin for each of its most frequent codes; all
//! others, and codes never seen, share bin 0 with the missing. A bin fits a byte, so 255 bins is the most.

use starlings_core::{Model, Role, Tensor, Values};
use starlings_data::{ColumnKind, Encoding, Schema};

/// The most bins of a feature, the one for the missing included.
pub(crate) const BINS_MAX: usize = 256;

/// The features and their bins.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Columns {
    /// Where the values of each feature begin; one longer than the number of features.
    starts: Vec<usize>,
    /// Upper edges of numeric features, codes of categorical ones; increasing within a feature.
    values: Vec<f32>,
    categorical: Vec<bool>,
}

/// Which features of a schema are categorical.
pub(crate) fn categorical(schema: &Schema) -> Vec<bool> {
    let coded = schema.encoding == Encoding::Codes && schema.columns.len() == schema.features;
    let is = |at: usize| matches!(schema.columns[at].kind, ColumnKind::Categorical { .. });
    (0..schema.features).map(|at| coded && is(at)).collect()
}

impl Columns {
    /// No features yet.
    pub(crate) fn new() -> Columns {
        Columns { starts: vec![0], ..Columns::default() }
    }

    /// Adds a feature made of the sorted values of a sample (what is missing left out).
    pub(crate) fn push(&mut self, sorted: &[f32], categorical: bool, bins: usize) {
        let bins = bins.clamp(2, BINS_MAX - 1);
        match categorical {
            true => self.values.extend(frequent(sorted, bins)),
            false => self.values.extend(edges(sorted, bins)),
        }
        self.starts.push(self.values.len());
        self.categorical.push(categorical);
    }

    /// How many features.
    pub(crate) fn len(&self) -> usize {
        self.categorical.len()
    }

    /// Bins of a feature, the one for the missing included.
    pub(crate) fn bins(&self, feature: usize) -> usize {
        let values = self.starts[feature + 1] - self.starts[feature];
        values + if self.categorical[feature] { 1 } else { 2 }
    }

    /// Whether a feature is a category.
    pub(crate) fn is_categorical(&self, feature: usize) -> bool {
        self.categorical[feature]
    }

    /// Edges or codes of a feature.
    pub(crate) fn values(&self, feature: usize) -> &[f32] {
        &self.values[self.starts[feature]..self.starts[feature + 1]]
    }

    /// The bin of a value.
    pub(crate) fn bin(&self, feature: usize, value: f32) -> u8 {
        let values = self.values(feature);
        if value.is_nan() {
            return 0;
        }
        if self.categorical[feature] {
            return values
                .binary_search_by(|code| code.total_cmp(&value))
                .map_or(0, |at| at as u8 + 1);
        }
        values.partition_point(|&edge| edge < value) as u8 + 1
    }

    /// Writes them into a model.
    pub(crate) fn save(&self, model: &mut Model) {
        let values: Vec<f64> = self.values.iter().map(|&x| f64::from(x)).collect();
        model.set("bins", Tensor::of(&[values.len()], values, Role::Weight));
        let starts: Vec<i64> = self.starts.iter().map(|&at| at as i64).collect();
        model.set("bin_starts", whole(starts, Role::Weight));
        let categorical = self.categorical.iter().map(|&is| i64::from(is)).collect();
        model.set("categorical", whole(categorical, Role::Weight));
    }

    /// Reads them from a model; of a model before its first step they are empty.
    pub(crate) fn load(model: &Model) -> Columns {
        Columns {
            starts: model.i64("bin_starts").iter().map(|&at| at as usize).collect(),
            values: model.f64("bins").iter().map(|&x| x as f32).collect(),
            categorical: model.i64("categorical").iter().map(|&is| is != 0).collect(),
        }
    }
}

/// A vector of whole numbers as a tensor.
pub(crate) fn whole(values: Vec<i64>, role: Role) -> Tensor {
    Tensor { shape: vec![values.len()], values: Values::I64(values), role }
}

/// Upper edges of all bins but the last: between neighbours where there are few values, else so that bins hold
/// about as many rows each. A value that alone fills a bin gets one.
fn edges(sorted: &[f32], bins: usize) -> Vec<f32> {
    let runs: Vec<&[f32]> = sorted.chunk_by(|a, b| a == b).collect();
    let mut found = Vec::new();
    let (mut held, mut left) = (0, sorted.len());
    for pair in runs.windows(2) {
        held += pair[0].len();
        let bins_left = bins - found.len();
        if bins_left < 2 {
            break;
        }
        let next_is_heavy = pair[1].len() * bins_left >= left && held > 0;
        if runs.len() <= bins || held * bins_left >= left || next_is_heavy {
            found.push(between(pair[0][0], pair[1][0]));
            (held, left) = (0, left - held);
        }
    }
    found
}

/// A number that is not below the first and below the second.
fn between(low: f32, high: f32) -> f32 {
    let middle = (f64::from(low) * 0.5 + f64::from(high) * 0.5) as f32;
    if middle >= low && middle < high { middle } else { low }
}

/// The most frequent codes, in order; among equals the smaller code.
fn frequent(sorted: &[f32], bins: usize) -> Vec<f32> {
    let mut runs: Vec<(usize, f32)> =
        sorted.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).collect();
    runs.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)));
    runs.truncate(bins);
    let mut codes: Vec<f32> = runs.into_iter().map(|(_, code)| code).collect();
    codes.sort_by(f32::total_cmp);
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_get_a_bin_each_and_many_share() {
        let mut columns = Columns::new();
        columns.push(&[1.0, 1.0, 2.0, 5.0], false, 255);
        assert_eq!(columns.values(0), [1.5, 3.5]);
        assert_eq!(
            [0.0, 1.0, 1.5, 1.6, 9.0, f32::NAN].map(|x| columns.bin(0, x)),
            [1, 1, 1, 2, 3, 0]
        );
        let many: Vec<f32> = (0..1000).map(|x| x as f32).collect();
        columns.push(&many, false, 10);
        assert_eq!(columns.bins(1), 11);
        let mut counts = [0; 11];
        many.iter().for_each(|&x| counts[usize::from(columns.bin(1, x))] += 1);
        assert!(counts[1..].iter().all(|&count| (95..=105).contains(&count)), "{counts:?}");
    }

    #[test]
    fn a_heavy_value_has_a_bin_of_its_own() {
        let mut sorted: Vec<f32> = (0..100).map(|x| x as f32 / 100.0).collect();
        sorted.extend(vec![7.0; 900]);
        sorted.extend([8.0, 9.0]);
        let mut columns = Columns::new();
        columns.push(&sorted, false, 8);
        assert_ne!(columns.bin(0, 0.99), columns.bin(0, 7.0));
        assert_ne!(columns.bin(0, 8.0), columns.bin(0, 7.0));
    }

    #[test]
    fn extremes_are_kept_apart_and_rare_codes_share_a_bin() {
        let mut columns = Columns::new();
        columns.push(&[f32::NEG_INFINITY, f32::MIN, 0.0, f32::MAX, f32::INFINITY], false, 255);
        let bins =
            [f32::NEG_INFINITY, f32::MIN, 0.0, f32::MAX, f32::INFINITY].map(|x| columns.bin(0, x));
        assert_eq!(bins, [1, 2, 3, 4, 5]);
        columns.push(&[3.0, 3.0, 4.0, 8.0, 8.0, 8.0], true, 2);
        assert_eq!([3.0, 8.0, 4.0, 5.0].map(|x| columns.bin(1, x)), [1, 2, 0, 0]);
        let mut model = Model::new();
        columns.save(&mut model);
        assert_eq!(Columns::load(&model), columns);
    }
}
