//! Those who measure a model together: each rates its own rows, and sums and small tables are exchanged. The
//! mathematics of a metric is written once for any number of them.

use starlings_core::Result;

/// Those who measure together. All call the same methods in the same order.
///
/// Law: `sum` gives all the same numbers; what `shuffle` gives at place s is what s had for this one.
pub trait Company {
    /// Which of them this is, and how many there are.
    fn place(&self) -> (usize, usize);

    /// Sums numbers over all; as many on each.
    ///
    /// # Errors
    /// A lost peer.
    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>>;

    /// Everyone has something else for everyone: `parts[s]` goes to s.
    ///
    /// # Errors
    /// A lost peer.
    fn shuffle(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;

    /// What everyone has, for all to see.
    ///
    /// # Errors
    /// A lost peer.
    fn gather(&mut self, part: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let (_, world) = self.place();
        self.shuffle(vec![part; world])
    }
}

/// One who has all rows.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Company for Alone {
    fn place(&self) -> (usize, usize) {
        (0, 1)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        Ok(numbers)
    }

    fn shuffle(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        Ok(parts)
    }
}

/// Appends numbers to bytes.
pub(super) fn write(numbers: &[f64], bytes: &mut Vec<u8>) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// The numbers that bytes hold.
pub(super) fn read(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    let word = |word: &[u8]| <[u8; 8]>::try_from(word).map(f64::from_le_bytes).unwrap_or(f64::NAN);
    bytes.chunks_exact(8).map(word)
}
