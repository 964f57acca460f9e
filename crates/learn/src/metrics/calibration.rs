//! Whether chances mean what they say: the reliability table (DeGroot and Fienberg, 1983) and the expected calibration
//! error, the mean distance between what was given and what was right over its bins (Naeini et al., 2015). Of two
//! classes it is the second's chance that is looked at, of more the likeliest class's (Guo et al., 2017).

use starlings_core::{Calibration, ReliabilityBin};

/// Bins of equal width.
const BINS: usize = 10;
/// Numbers that are summed.
pub(super) const SUMS: usize = 3 * BINS;

/// Adds a row that was given a chance and was right, or not.
pub(super) fn add(sums: &mut [f64], chance: f64, right: bool, weight: f64) {
    // An edge belongs to the bin below it, as in scikit-learn's calibration_curve.
    let bin = (1..BINS).filter(|edge| edge_of(*edge) < chance).count();
    let bin = &mut sums[3 * bin..3 * bin + 3];
    bin[0] += weight;
    bin[1] += weight * chance;
    bin[2] += if right { weight } else { 0.0 };
}

/// The table of the sums over all rows, and the expected calibration error.
pub(super) fn table(sums: &[f64], of: String) -> (Calibration, f64) {
    let bins = sums.chunks_exact(3).enumerate().filter(|(_, bin)| bin[0] > 0.0);
    let bins = bins.map(|(at, bin)| ReliabilityBin {
        from: at as f64 / BINS as f64,
        to: (at + 1) as f64 / BINS as f64,
        weight: bin[0],
        predicted: bin[1] / bin[0],
        observed: bin[2] / bin[0],
    });
    let bins: Vec<ReliabilityBin> = bins.collect();
    let weight: f64 = bins.iter().map(|bin| bin.weight).sum();
    let off = |bin: &ReliabilityBin| bin.weight * (bin.predicted - bin.observed).abs();
    let error = bins.iter().map(off).sum::<f64>() / weight;
    (Calibration { of, bins }, error)
}

/// As NumPy spaces them: a chance on an edge must fall where it falls there.
fn edge_of(edge: usize) -> f64 {
    edge as f64 * (1.0 / BINS as f64)
}
