//! Looks at a Parquet page between the library's unpacking and its decoding. The decoder takes memory for as many values as
//! a dictionary or a list of lengths says it has, before it looks for them: 746 bytes made it take four gigabytes. So
//! what is said is held against the bytes that are there.

use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

/// Texts that a page may list whatever its bytes: empty ones, each as long as the last, take hardly any.
const LENGTHS_FREE: u64 = 1 << 20;

/// Pages of a column, each looked at before it is decoded.
pub(crate) struct Sound {
    pages: Box<dyn PageReader>,
    kind: Physical,
    may_miss: bool,
}

impl Sound {
    /// `column` is flat: nothing in it repeats.
    pub(crate) fn new(pages: Box<dyn PageReader>, column: &ColumnDescriptor) -> Sound {
        Sound { pages, kind: column.physical_type(), may_miss: column.max_def_level() > 0 }
    }

    fn is_sound(&self, page: &Page) -> bool {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                u64::from(*num_values) * bytes_min(self.kind) <= buf.len() as u64
            }
            Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => {
                let lists = match encoding {
                    Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
                    Encoding::DELTA_BYTE_ARRAY => 2,
                    _ => return true,
                };
                self.values(page).is_some_and(|values| are_lengths(values, lists))
            }
        }
    }

    /// What follows the levels, which say where a value is missing.
    fn values<'a>(&self, page: &'a Page) -> Option<&'a [u8]> {
        let start = match page {
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                *def_levels_byte_len as usize + *rep_levels_byte_len as usize
            }
            _ if !self.may_miss => 0,
            Page::DataPage { buf, def_level_encoding: Encoding::RLE, .. } => {
                4 + u32::from_le_bytes(*buf.first_chunk()?) as usize
            }
            // A bit for each value.
            _ => page.num_values().div_ceil(8) as usize,
        };
        page.buffer().get(start..)
    }
}

impl Iterator for Sound {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Sound {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.pages.get_next_page()?;
        match page.as_ref().is_none_or(|page| self.is_sound(page)) {
            true => Ok(page),
            false => Err(ParquetError::General("a page contradicts itself".to_string())),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.skip_next_page()
    }
}

/// The fewest bytes of a value in a dictionary: a text has its length before it.
fn bytes_min(kind: Physical) -> u64 {
    match kind {
        Physical::INT64 | Physical::DOUBLE => 8,
        _ => 4,
    }
}

/// Whether bytes begin with so many lists of lengths, none of them of more than there can be.
fn are_lengths(bytes: &[u8], lists: usize) -> bool {
    let mut rest = Some(bytes);
    for _ in 0..lists {
        rest = rest.and_then(after_lengths);
    }
    rest.is_some()
}

/// What follows a list of lengths (DELTA_BINARY_PACKED). The lengths themselves are the decoder's to read.
fn after_lengths(bytes: &[u8]) -> Option<&[u8]> {
    let (block, rest) = varint(bytes)?;
    let (minis, rest) = varint(rest)?;
    let (count, rest) = varint(rest)?;
    let (_first, mut rest) = varint(rest)?;
    let per_mini = block.checked_div(minis).filter(|values| *values > 0)?;
    if count > LENGTHS_FREE.max(bytes.len() as u64) {
        return None;
    }
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let (_least, after) = varint(rest)?;
        let (widths, after) = after.split_at_checked(usize::try_from(minis).ok()?)?;
        let mut length = 0u64;
        for &width in widths {
            // Of what is not needed the width means nothing.
            let bits = if left > 0 { u64::from(width).checked_mul(per_mini)? } else { 0 };
            length = length.checked_add(bits / 8)?;
            left = left.saturating_sub(per_mini);
        }
        // The last of it may be cut off where no value needs it.
        let length = usize::try_from(length).ok()?;
        rest = if left == 0 { &after[length.min(after.len())..] } else { after.get(length..)? };
    }
    Some(rest)
}

/// A number, seven bits in a byte, the lowest first.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0u64;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * place);
        if *byte < 0x80 {
            return Some((number, &bytes[place + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths that are all alike: blocks of 128 in four parts, none of which takes a byte.
    fn alike(count: u64) -> Vec<u8> {
        let mut bytes = vec![0x80, 0x01, 4];
        put(&mut bytes, count);
        bytes.push(0);
        for _ in 0..count.saturating_sub(1).div_ceil(128).min(10_000) {
            bytes.extend([0; 5]);
        }
        bytes
    }

    fn put(bytes: &mut Vec<u8>, mut number: u64) {
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }

    #[test]
    fn lists_of_lengths_end_where_their_blocks_do() {
        for count in [0, 1, 2, 128, 129, 130, 1000] {
            let list = alike(count);
            let both = [&list[..], b"texts"].concat();
            assert_eq!(after_lengths(&both), Some(&b"texts"[..]), "{count}");
            for cut in 0..list.len() {
                assert_eq!(after_lengths(&list[..cut]), None, "{count} cut at {cut}");
            }
        }
        // 33 lengths of 3 bits: the second part has one of them, the third and fourth none, whatever their widths.
        let wide = [0x80, 0x01, 4, 34, 0, 0, 3, 3, 99, 99];
        let packed = [&wide[..], &[0; 24], b"texts"].concat();
        assert_eq!(after_lengths(&packed), Some(&b"texts"[..]));
    }

    #[test]
    fn more_lengths_than_there_can_be_are_refused() {
        assert!(are_lengths(&alike(LENGTHS_FREE), 1));
        assert!(!are_lengths(&alike(LENGTHS_FREE + 1), 1));
        let long = [alike(5), alike(LENGTHS_FREE + 1)].concat();
        assert!(are_lengths(&long, 1) && !are_lengths(&long, 2), "the second list is looked at");
        assert!(!are_lengths(&[0, 4, 5, 0], 1), "blocks of nothing");
        assert!(!are_lengths(&[0x80, 0x01, 0, 5, 0], 1), "blocks of no parts");
        let many = [0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 5, 0];
        assert!(!are_lengths(&many, 1), "more parts than bytes");
        assert_eq!(varint(&[0xff; 11]), None);
    }
}
