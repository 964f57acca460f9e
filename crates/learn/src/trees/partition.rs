//! Which rows are in which node: one list of row numbers, of which every node has a range. Splitting a node
//! rearranges its range, left rows first, each side in its old order.

/// Where a node's rows stand in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Range {
    /// Its first.
    pub(crate) from: usize,
    /// Past its last.
    pub(crate) to: usize,
}

/// Rows by node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Partition {
    rows: Vec<u32>,
    spare: Vec<u32>,
    ranges: Vec<Range>,
}

impl Partition {
    /// All these rows in node 0.
    pub(crate) fn reset(&mut self, rows: impl Iterator<Item = u32>) {
        self.rows.clear();
        self.rows.extend(rows);
        self.spare.resize(self.rows.len(), 0);
        self.ranges.clear();
        self.ranges.push(Range { from: 0, to: self.rows.len() });
    }

    /// The rows of a node.
    pub(crate) fn rows(&self, node: usize) -> &[u32] {
        let range = self.ranges[node];
        &self.rows[range.from..range.to]
    }

    /// How many nodes have ranges.
    pub(crate) fn nodes(&self) -> usize {
        self.ranges.len()
    }

    /// Splits a node by its rows' bins of a feature; the children are the next two nodes. `left` says for each bin
    /// whether it goes left.
    pub(crate) fn split(&mut self, node: usize, column: &[u8], left: &[bool; 256]) {
        let range = self.ranges[node];
        let rows = &mut self.rows[range.from..range.to];
        let spare = &mut self.spare[..rows.len()];
        let middle = range.from + divide(rows, spare, column, left);
        self.ranges.push(Range { from: range.from, to: middle });
        self.ranges.push(Range { from: middle, to: range.to });
    }
}

/// Moves rows that go left to the front; both sides keep their order. Gives how many went left.
fn divide(rows: &mut [u32], spare: &mut [u32], column: &[u8], left: &[bool; 256]) -> usize {
    let (mut lefts, mut rights) = (0, 0);
    for at in 0..rows.len() {
        let row = rows[at];
        let goes = usize::from(left[usize::from(column[row as usize])]);
        // Both are written and only one place advances: no branch to mispredict.
        rows[lefts] = row;
        spare[rights] = row;
        lefts += goes;
        rights += 1 - goes;
    }
    rows[lefts..].copy_from_slice(&spare[..rights]);
    lefts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_keep_their_order() {
        let column = [3, 0, 3, 1, 2, 0];
        let mut left = [false; 256];
        (left[0], left[3]) = (true, true);
        let mut partition = Partition::default();
        partition.reset([0, 1, 3, 4, 5].into_iter());
        partition.split(0, &column, &left);
        assert_eq!((partition.rows(1), partition.rows(2)), (&[0, 1, 5][..], &[3, 4][..]));
        partition.split(1, &column, &std::array::from_fn(|bin| bin == 0));
        assert_eq!((partition.rows(3), partition.rows(4)), (&[1, 5][..], &[0][..]));
        assert_eq!(partition.rows(0), [1, 5, 0, 3, 4]);
    }
}
