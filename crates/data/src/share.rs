//! A share of a data set whose size nobody knows yet: blocks of a few rows go round among those who read it together.
//! Everyone reads the files and keeps its own rows, so that rows, predictions and what is made of them are dealt out.

/// Rows of a block.
const BLOCK: u64 = 64;

/// Which rows of a data set one of several readers has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Which reader, from 0.
    pub reader: u32,
    /// How many there are.
    pub of: u32,
}

impl Share {
    /// All rows.
    pub const WHOLE: Share = Share { reader: 0, of: 1 };

    /// No rows.
    pub const NONE: Share = Share { reader: 1, of: 1 };

    /// Whether a row of the data set belongs to it.
    #[must_use]
    pub fn has(&self, row: u64) -> bool {
        row / BLOCK % u64::from(self.of) == u64::from(self.reader)
    }

    /// Which row of the data set its row `row` is.
    ///
    /// ```
    /// use starlings_data::Share;
    /// let second = Share { reader: 1, of: 3 };
    /// assert!(second.has(second.number(70)) && !second.has(0));
    /// ```
    #[must_use]
    pub fn number(&self, row: usize) -> u64 {
        let (row, of) = (row as u64, u64::from(self.of));
        (row / BLOCK * of + u64::from(self.reader)) * BLOCK + row % BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_a_partition_and_number_their_rows() {
        for of in [1, 2, 3, 7] {
            let mut seen = vec![0; 1000];
            for reader in 0..of {
                let share = Share { reader, of };
                let rows = (0..1000).filter(|&row| share.has(row));
                for (at, row) in rows.enumerate() {
                    assert_eq!(share.number(at), row);
                    seen[row as usize] += 1;
                }
            }
            assert!(seen.iter().all(|&times| times == 1));
        }
    }
}
