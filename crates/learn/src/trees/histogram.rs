//! Histograms of gradients: for every bin of every feature the sums of gradients and second derivatives and the
//! number of rows, all whole numbers.
//!
//! Where there are many rows, a row's gradient is rounded to 13 bits and its second derivative to 11, by chance, so
//! that sums stay unbiased (Shi et al., Quantized training of gradient boosting decision trees, 2022). Both and the
//! count then fit one word, and adding a row to a bin is one addition. After `CHUNK` rows the fields are full and are
//! emptied into wider sums. Small data keep all bits of their gradients, in two words a bin: the gradient, and above
//! the count the second derivative.

use super::columns::Columns;
use super::fixed;
use super::store::Store;
use crate::kernels::prefetch::prefetch;

/// Bits of the count in a packed word, and above it the bits of the second derivatives.
const COUNT_BITS: u32 = 14;
const HESSIAN_BITS: u32 = 24;
/// Rows whose sums fit one packed word.
pub(crate) const CHUNK: usize = 8192;
/// The largest gradient and second derivative of one row in a packed word.
pub(crate) const GRADIENT_MAX: f64 = 4095.0;
pub(crate) const HESSIAN_MAX: f64 = 2047.0;
/// Bits of the count in the second word of a pair of packed sums, and the most rows of one.
const PAIR_COUNT_BITS: u32 = 26;
const PAIR_ROWS_MAX: i64 = 1 << 25;
/// Up to so many rows sums of all bits fit a pair: the second derivatives of so many have 21 bits each.
const WIDE_PAIR_ROWS_MAX: u64 = 1 << 20;
/// How many rows ahead memory is asked for.
const AHEAD: usize = 16;

/// Sums over rows: gradient, second derivative (both on their grids) and how many rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) gradient: i64,
    pub(crate) hessian: i64,
    pub(crate) rows: i64,
}

impl std::ops::Add for Sums {
    type Output = Sums;
    fn add(self, other: Sums) -> Sums {
        Sums {
            gradient: self.gradient + other.gradient,
            hessian: self.hessian + other.hessian,
            rows: self.rows + other.rows,
        }
    }
}

impl std::ops::Sub for Sums {
    type Output = Sums;
    fn sub(self, other: Sums) -> Sums {
        Sums {
            gradient: self.gradient - other.gradient,
            hessian: self.hessian - other.hessian,
            rows: self.rows - other.rows,
        }
    }
}

/// The gradients of all rows, on their grids.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Gradients {
    /// Packed words.
    Narrow(Vec<u64>),
    /// Gradient and second derivative.
    Wide(Vec<[i64; 2]>),
}

impl Gradients {
    /// Makes room for so many rows; what was there may stay, for it is written anew.
    pub(crate) fn reset(&mut self, narrow: bool, rows: usize) {
        match (narrow, &mut *self) {
            (true, Gradients::Narrow(words)) => words.resize(rows, 0),
            (true, _) => *self = Gradients::Narrow(vec![0; rows]),
            (false, Gradients::Wide(pairs)) => pairs.resize(rows, [0; 2]),
            (false, _) => *self = Gradients::Wide(vec![[0; 2]; rows]),
        }
    }

    /// The sums of one row.
    pub(crate) fn row(&self, row: usize) -> Sums {
        match self {
            Gradients::Narrow(words) => unpack(words[row]),
            Gradients::Wide(pairs) => {
                Sums { gradient: pairs[row][0], hessian: pairs[row][1], rows: 1 }
            }
        }
    }
}

/// One row as a packed word.
pub(crate) fn pack(gradient: i64, hessian: i64) -> u64 {
    ((gradient << (COUNT_BITS + HESSIAN_BITS)) + (hessian << COUNT_BITS) + 1) as u64
}

fn unpack(word: u64) -> Sums {
    Sums {
        gradient: (word as i64) >> (COUNT_BITS + HESSIAN_BITS),
        hessian: ((word >> COUNT_BITS) & ((1 << HESSIAN_BITS) - 1)) as i64,
        rows: (word & ((1 << COUNT_BITS) - 1)) as i64,
    }
}

/// How the sums of a node travel: how many words a bin takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// A packed word.
    One,
    /// The gradient, and the hessian above so many bits of the count.
    Two(u32),
    /// A word for each.
    Three,
}

impl Form {
    /// The shortest of packed sums over so many rows, all workers together.
    pub(crate) fn narrow(rows: i64) -> Form {
        match rows {
            rows if rows <= CHUNK as i64 => Form::One,
            rows if rows <= PAIR_ROWS_MAX => Form::Two(PAIR_COUNT_BITS),
            _ => Form::Three,
        }
    }

    /// That of sums of all bits, where so many rows are trained on.
    pub(crate) fn wide(rows: u64) -> Form {
        if rows <= WIDE_PAIR_ROWS_MAX { Form::Two(digits(rows)) } else { Form::Three }
    }

    /// Words of a bin.
    pub(crate) fn words(self) -> usize {
        match self {
            Form::One => 1,
            Form::Two(_) => 2,
            Form::Three => 3,
        }
    }

    /// The sums that words say.
    pub(crate) fn read(self, words: &[i64]) -> Sums {
        match self {
            Form::One => unpack(words[0] as u64),
            Form::Two(bits) => Sums {
                gradient: words[0],
                hessian: (words[1] as u64 >> bits) as i64,
                rows: words[1] & ((1 << bits) - 1),
            },
            Form::Three => Sums { gradient: words[0], hessian: words[1], rows: words[2] },
        }
    }

    fn add(self, sums: Sums, words: &mut [i64]) {
        match self {
            Form::One => unreachable!("packed words are copied"),
            Form::Two(bits) => {
                words[0] += sums.gradient;
                words[1] = words[1].wrapping_add(above(sums.hessian, bits) + sums.rows);
            }
            Form::Three => {
                words[0] += sums.gradient;
                words[1] += sums.hessian;
                words[2] += sums.rows;
            }
        }
    }
}

/// A hessian above so many bits of a count.
fn above(hessian: i64, bits: u32) -> i64 {
    ((hessian as u64) << bits) as i64
}

/// Binary digits of a number.
fn digits(number: u64) -> u32 {
    64 - number.max(1).leading_zeros()
}

/// The scales of gradients and second derivatives of all bits, so that the sums of so many rows below these bounds
/// fit their form.
pub(crate) fn wide_scales(bounds: [f64; 2], rows: u64) -> [f64; 2] {
    let [gradient, hessian] = bounds.map(|bound| fixed::scale(bound, rows));
    match Form::wide(rows) {
        // The count takes as many bits as the sum of so many has more than one.
        Form::Two(bits) => [gradient, 2f64.powi((63 - 2 * bits as i32).min(52)) / bounds[1]],
        _ => [gradient, hessian],
    }
}

/// Which features a tree looks at, and where their bins stand in its histograms.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Layout {
    /// The features, increasing.
    pub(crate) features: Vec<usize>,
    /// Where the bins of each begin; one longer.
    pub(crate) starts: Vec<usize>,
    all: bool,
}

impl Layout {
    /// The layout of some features.
    pub(crate) fn new(columns: &Columns, features: Vec<usize>) -> Layout {
        let mut starts = vec![0];
        for &feature in &features {
            starts.push(starts[starts.len() - 1] + columns.bins(feature));
        }
        let all = features.len() == columns.len();
        Layout { features, starts, all }
    }

    /// Bins of all features together.
    pub(crate) fn bins(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }
}

/// Working space of the kernel: 256 words for each feature.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Bench {
    narrow: Vec<[u64; 256]>,
}

/// Adds the sums of some rows to `out`, which has `form.words()` words for each bin of the layout.
pub(crate) fn build(
    (rows, store): (&[u32], &Store),
    gradients: &Gradients,
    (layout, form): (&Layout, Form),
    bench: &mut Bench,
    out: &mut [i64],
) {
    match gradients {
        Gradients::Narrow(words) => {
            bench.narrow.resize(layout.features.len(), [0; 256]);
            for rows in rows.chunks(CHUNK) {
                bench.narrow.iter_mut().for_each(|bins| bins.fill(0));
                match layout.all {
                    true => add_all(rows, store, words, &mut bench.narrow),
                    false => add_some(rows, (store, &layout.features), words, &mut bench.narrow),
                }
                empty(&bench.narrow, layout, form, out);
            }
        }
        Gradients::Wide(pairs) => match form {
            Form::Two(bits) => add_pairs((rows, store), (pairs, bits), layout, out),
            _ => add_triples((rows, store), pairs, layout, out),
        },
    }
}

fn add_all(rows: &[u32], store: &Store, words: &[u64], bins: &mut [[u64; 256]]) {
    for (at, &row) in rows.iter().enumerate() {
        if let Some(&later) = rows.get(at + AHEAD) {
            store.prefetch(later as usize);
            prefetch(words, later as usize);
        }
        let word = words[row as usize];
        for (bins, &bin) in bins.iter_mut().zip(store.row(row as usize)) {
            let sum = &mut bins[usize::from(bin)];
            *sum = sum.wrapping_add(word);
        }
    }
}

fn add_some(
    rows: &[u32],
    (store, features): (&Store, &[usize]),
    words: &[u64],
    bins: &mut [[u64; 256]],
) {
    for &row in rows {
        let (word, row) = (words[row as usize], store.row(row as usize));
        for (bins, &feature) in bins.iter_mut().zip(features) {
            let sum = &mut bins[usize::from(row[feature])];
            *sum = sum.wrapping_add(word);
        }
    }
}

fn add_pairs(
    (rows, store): (&[u32], &Store),
    (pairs, bits): (&[[i64; 2]], u32),
    layout: &Layout,
    out: &mut [i64],
) {
    let (out, _) = out.as_chunks_mut::<2>();
    for &row in rows {
        let ([gradient, hessian], row) = (pairs[row as usize], store.row(row as usize));
        let both = above(hessian, bits) + 1;
        for (&start, &feature) in layout.starts.iter().zip(&layout.features) {
            let sums = &mut out[start + usize::from(row[feature])];
            sums[0] += gradient;
            sums[1] = sums[1].wrapping_add(both);
        }
    }
}

fn add_triples(
    (rows, store): (&[u32], &Store),
    pairs: &[[i64; 2]],
    layout: &Layout,
    out: &mut [i64],
) {
    let (out, _) = out.as_chunks_mut::<3>();
    for &row in rows {
        let ([gradient, hessian], row) = (pairs[row as usize], store.row(row as usize));
        for (&start, &feature) in layout.starts.iter().zip(&layout.features) {
            let sums = &mut out[start + usize::from(row[feature])];
            sums[0] += gradient;
            sums[1] += hessian;
            sums[2] += 1;
        }
    }
}

/// Moves packed sums into the words of their form.
fn empty(bench: &[[u64; 256]], layout: &Layout, form: Form, out: &mut [i64]) {
    let width = form.words();
    for (bins, starts) in bench.iter().zip(layout.starts.windows(2)) {
        let out = &mut out[starts[0] * width..starts[1] * width];
        if form == Form::One {
            out.iter_mut().zip(bins).for_each(|(out, &word)| *out = out.wrapping_add(word as i64));
        } else {
            for (words, &word) in out.chunks_exact_mut(width).zip(bins) {
                form.add(unpack(word), words);
            }
        }
    }
}

/// The sums of every bin from the words of a form.
pub(crate) fn read(form: Form, words: &[i64]) -> Vec<Sums> {
    words.chunks_exact(form.words()).map(|words| form.read(words)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_data::{Dealer, Features, Holding, Table};
    use std::sync::Arc;

    #[test]
    fn packed_sums_are_the_sums_whatever_their_form() {
        let (rows, width) = (20_000, 3);
        let number = |at: usize| ((at as u64 * 7919) % 113) as f32;
        let values: Vec<f32> = (0..rows * width).map(number).collect();
        let table = Arc::new(Table::new(Features::Dense { width, values }, vec![]));
        let dealer = Dealer::new(Holding::whole(table.clone(), 3), 0, 1);
        let mut columns = Columns::new();
        let sorted: Vec<f32> = (0..113).map(|x| x as f32).collect();
        (0..width).for_each(|_| columns.push(&sorted, false, 255));
        let store =
            Store::new(&columns, &table, &super::super::store::segments(&dealer.everything()));
        let pairs: Vec<[i64; 2]> =
            (0..rows as i64).map(|row| [(row * 31 % 8191) - 4095, row % 2048]).collect();
        let narrow = Gradients::Narrow(pairs.iter().map(|&[g, h]| pack(g, h)).collect());
        let wide = Gradients::Wide(pairs);
        for features in [vec![0, 1, 2], vec![0, 2]] {
            let layout = Layout::new(&columns, features);
            let sums = |gradients: &Gradients, form: Form, rows: &[u32]| {
                let mut words = vec![0; layout.bins() * form.words()];
                build(
                    (rows, &store),
                    gradients,
                    (&layout, form),
                    &mut Bench::default(),
                    &mut words,
                );
                read(form, &words)
            };
            let all: Vec<u32> = (0..rows as u32).collect();
            let wanted = sums(&wide, Form::Three, &all);
            assert_eq!(wanted[..layout.starts[1]].iter().map(|s| s.rows).sum::<i64>(), 20_000);
            assert_eq!(sums(&narrow, Form::Three, &all), wanted);
            assert_eq!(sums(&narrow, Form::Two(26), &all), wanted);
            assert_eq!(sums(&wide, Form::wide(20_000), &all), wanted);
            assert_eq!(
                sums(&narrow, Form::One, &all[..8192]),
                sums(&wide, Form::Three, &all[..8192])
            );
        }
    }

    #[test]
    fn the_largest_sums_of_all_bits_fit_a_pair() {
        for rows in [1u64, 2, 7_000, 65_535, 1 << 20] {
            let bounds = [2.0, 0.5];
            let Form::Two(bits) = Form::wide(rows) else { panic!("{rows} rows have no pair") };
            let [_, hessian] = wide_scales(bounds, rows);
            let most = fixed::grid(bounds[1], hessian);
            let sums = Sums { gradient: -1, hessian: most * rows as i64, rows: rows as i64 };
            assert!(most >= 1 << 21, "{rows}: second derivatives of {most} steps are too coarse");
            let mut words = [0; 2];
            Form::Two(bits).add(sums, &mut words);
            assert_eq!(Form::Two(bits).read(&words), sums);
        }
        assert_eq!(Form::wide((1 << 20) + 1), Form::Three);
    }
}
