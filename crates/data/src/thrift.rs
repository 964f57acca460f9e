//! Walks over a Parquet file's descriptions of itself (Thrift's compact protocol) before the Parquet library reads them.
//! The library believes what a list says of its length, and booleans that it skips take no bytes there: seven bytes keep
//! it busy for ten seconds, a thousand for half an hour. It also takes memory for a text of a page's header before the
//! text is there. So every length is held against the bytes that follow it. Known fields must have their types, since the
//! library reads those without looking at the type, and the two would no longer speak of the same bytes.

/// Fields of a structure, by number.
pub(crate) type Fields = &'static [(i16, Kind)];

/// What a field holds.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Byte,
    I16,
    I32,
    /// As [`I32`], and the walk says what it was.
    Noted(Note),
    I64,
    Double,
    Binary,
    List(&'static Kind),
    Struct(Fields),
}

use Kind::{Binary, Bool, Byte, Double, I16, I32, I64, List, Noted, Struct};

/// What the library believes of a page's header: it takes the memory before it looks for what fills it.
#[derive(Clone, Copy)]
pub(crate) enum Note {
    /// Bytes before they were packed.
    Unpacked,
    /// Bytes after.
    Packed,
}

/// Why bytes are no such structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// They end too early.
    Short,
    /// They contradict the format, whatever follows.
    Wrong,
}

const NOTHING: Fields = &[];
const STATISTICS: Fields =
    &[(1, Binary), (2, Binary), (3, I64), (4, I64), (5, Binary), (6, Binary), (7, Bool), (8, Bool)];
const TIME_UNIT: Fields = &[(1, Struct(NOTHING)), (2, Struct(NOTHING)), (3, Struct(NOTHING))];
const TIME: Fields = &[(1, Bool), (2, Struct(TIME_UNIT))];
const LOGICAL_TYPE: Fields = &[
    (1, Struct(NOTHING)),
    (2, Struct(NOTHING)),
    (3, Struct(NOTHING)),
    (4, Struct(NOTHING)),
    (5, Struct(&[(1, I32), (2, I32)])),
    (6, Struct(NOTHING)),
    (7, Struct(TIME)),
    (8, Struct(TIME)),
    (10, Struct(&[(1, Byte), (2, Bool)])),
    (11, Struct(NOTHING)),
    (12, Struct(NOTHING)),
    (13, Struct(NOTHING)),
    (14, Struct(NOTHING)),
    (15, Struct(NOTHING)),
    (16, Struct(&[(1, Byte)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, I32)])),
];
const SCHEMA_ELEMENT: Fields = &[
    (1, I32),
    (2, I32),
    (3, I32),
    (4, Binary),
    (5, I32),
    (6, I32),
    (7, I32),
    (8, I32),
    (9, I32),
    (10, Struct(LOGICAL_TYPE)),
];
const KEY_VALUE: Fields = &[(1, Binary), (2, Binary)];
const SORTING: Fields = &[(1, I32), (2, Bool), (3, Bool)];
const ENCODING_STATISTICS: Fields = &[(1, I32), (2, I32), (3, I32)];
const SIZE_STATISTICS: Fields = &[(1, I64), (2, List(&I64)), (3, List(&I64))];
const BOX: Fields = &[
    (1, Double),
    (2, Double),
    (3, Double),
    (4, Double),
    (5, Double),
    (6, Double),
    (7, Double),
    (8, Double),
];
const GEOSPATIAL: Fields = &[(1, Struct(BOX)), (2, List(&I32))];
const COLUMN_METADATA: Fields = &[
    (1, I32),
    (2, List(&I32)),
    (3, List(&Binary)),
    (4, I32),
    (5, I64),
    (6, I64),
    (7, I64),
    (8, List(&Struct(KEY_VALUE))),
    (9, I64),
    (10, I64),
    (11, I64),
    (12, Struct(STATISTICS)),
    (13, List(&Struct(ENCODING_STATISTICS))),
    (14, I64),
    (15, I32),
    (16, Struct(SIZE_STATISTICS)),
    (17, Struct(GEOSPATIAL)),
];
const COLUMN_CRYPTO: Fields =
    &[(1, Struct(NOTHING)), (2, Struct(&[(1, List(&Binary)), (2, Binary)]))];
const COLUMN_CHUNK: Fields = &[
    (1, Binary),
    (2, I64),
    (3, Struct(COLUMN_METADATA)),
    (4, I64),
    (5, I32),
    (6, I64),
    (7, I32),
    (8, Struct(COLUMN_CRYPTO)),
    (9, Binary),
];
const ROW_GROUP: Fields = &[
    (1, List(&Struct(COLUMN_CHUNK))),
    (2, I64),
    (3, I64),
    (4, List(&Struct(SORTING))),
    (5, I64),
    (6, I64),
    (7, I16),
];
const COLUMN_ORDER: Fields = &[(1, Struct(NOTHING))];
const CIPHER: Fields = &[(1, Binary), (2, Binary), (3, Bool)];

/// What stands at the end of a file.
pub(crate) const FILE_METADATA: Fields = &[
    (1, I32),
    (2, List(&Struct(SCHEMA_ELEMENT))),
    (3, I64),
    (4, List(&Struct(ROW_GROUP))),
    (5, List(&Struct(KEY_VALUE))),
    (6, Binary),
    (7, List(&Struct(COLUMN_ORDER))),
    (8, Struct(&[(1, Struct(CIPHER)), (2, Struct(CIPHER))])),
    (9, Binary),
];

/// What stands before each page.
pub(crate) const PAGE_HEADER: Fields = &[
    (1, I32),
    (2, Noted(Note::Unpacked)),
    (3, Noted(Note::Packed)),
    (4, I32),
    (5, Struct(&[(1, I32), (2, I32), (3, I32), (4, I32), (5, Struct(STATISTICS))])),
    (6, Struct(NOTHING)),
    (7, Struct(&[(1, I32), (2, I32), (3, Bool)])),
    (8, Struct(PAGE_V2)),
];
const PAGE_V2: Fields = &[
    (1, I32),
    (2, I32),
    (3, I32),
    (4, I32),
    (5, I32),
    (6, I32),
    (7, Bool),
    (8, Struct(STATISTICS)),
];

/// Structures and lists within each other.
const DEPTH_MAX: u8 = 64;
/// Bytes of the longest number: 64 bits, seven in a byte.
const VARINT_BYTES_MAX: u32 = 10;

/// A page that says it holds more than this may hold at most so many times its packed bytes. The library takes the memory before
/// it unpacks anything. Deflate can do no more; zstd can, of pages this large that are one number throughout.
const UNPACKED_FREE: i64 = 8 << 20;
const PACKED_TIMES_MAX: i64 = 1032;

/// How many bytes the structure takes that these begin with.
pub(crate) fn length(bytes: &[u8], fields: Fields) -> Result<usize, Flaw> {
    let mut walk = Walk { bytes, at: 0, notes: [0; 2] };
    walk.structure(fields, DEPTH_MAX)?;
    Ok(walk.at)
}

/// Whether these begin with the header of a page, and one that holds no more than its packed bytes can.
pub(crate) fn page(bytes: &[u8]) -> Result<(), Flaw> {
    let mut walk = Walk { bytes, at: 0, notes: [0; 2] };
    walk.structure(PAGE_HEADER, DEPTH_MAX)?;
    let is_size = |note: &i64| (0..=i64::from(i32::MAX)).contains(note);
    let [unpacked, packed] = walk.notes;
    let is_possible = walk.notes.iter().all(is_size)
        && (unpacked <= UNPACKED_FREE || unpacked <= packed * PACKED_TIMES_MAX);
    if is_possible { Ok(()) } else { Err(Flaw::Wrong) }
}

impl Kind {
    fn has_code(self, code: u8) -> bool {
        match self {
            Bool => code == 1 || code == 2,
            Byte => code == 3,
            I16 => code == 4,
            I32 | Noted(_) => code == 5,
            I64 => code == 6,
            Double => code == 7,
            Binary => code == 8,
            List(_) => code == 9,
            Struct(_) => code == 12,
        }
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What the noted fields held, the last of each.
    notes: [i64; 2],
}

impl Walk<'_> {
    fn structure(&mut self, fields: Fields, depth: u8) -> Result<(), Flaw> {
        let depth = depth.checked_sub(1).ok_or(Flaw::Wrong)?;
        let mut id = 0i16;
        loop {
            let head = self.byte()?;
            let (step, code) = (head >> 4, head & 0xf);
            if code == 0 {
                return Ok(());
            }
            id = match step {
                0 => self.id()?,
                _ => id.checked_add(i16::from(step)).ok_or(Flaw::Wrong)?,
            };
            let known = fields.iter().find(|(known, _)| *known == id);
            self.value(code, known.map(|(_, kind)| *kind), depth)?;
        }
    }

    fn value(&mut self, code: u8, known: Option<Kind>, depth: u8) -> Result<(), Flaw> {
        if known.is_some_and(|kind| !kind.has_code(code)) {
            return Err(Flaw::Wrong);
        }
        match code {
            1 | 2 => Ok(()),
            3 => self.byte().map(|_| ()),
            4..=6 => {
                let number = self.number()?;
                if let Some(Noted(note)) = known {
                    self.notes[note as usize] = number;
                }
                Ok(())
            }
            7 => self.forward(8),
            8 => {
                let bytes = self.varint()?;
                self.forward(bytes)
            }
            9 | 10 => match known {
                Some(List(element)) => self.list(Some(*element), depth),
                _ => self.list(None, depth),
            },
            11 => self.map(depth),
            12 => match known {
                Some(Struct(fields)) => self.structure(fields, depth),
                _ => self.structure(NOTHING, depth),
            },
            13 => self.forward(16),
            _ => Err(Flaw::Wrong),
        }
    }

    fn list(&mut self, known: Option<Kind>, depth: u8) -> Result<(), Flaw> {
        let depth = depth.checked_sub(1).ok_or(Flaw::Wrong)?;
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            few => u64::from(few),
        };
        self.elements(count, &[(head & 0xf, known)], depth)
    }

    fn map(&mut self, depth: u8) -> Result<(), Flaw> {
        let depth = depth.checked_sub(1).ok_or(Flaw::Wrong)?;
        let count = self.varint()?;
        if count == 0 {
            return Ok(());
        }
        let head = self.byte()?;
        self.elements(count, &[(head >> 4, None), (head & 0xf, None)], depth)
    }

    fn elements(
        &mut self,
        count: u64,
        kinds: &[(u8, Option<Kind>)],
        depth: u8,
    ) -> Result<(), Flaw> {
        // No description of Parquet's has a list of booleans, and readers differ in whether those take bytes.
        if count > 0 && kinds.iter().any(|(code, _)| matches!(code, 1 | 2)) {
            return Err(Flaw::Wrong);
        }
        // All others take a byte at least, so that the bytes end before a count that is too large.
        for _ in 0..count {
            for (code, known) in kinds {
                self.value(*code, *known, depth)?;
            }
        }
        Ok(())
    }

    /// A field's number, where it does not follow the one before it.
    fn id(&mut self) -> Result<i16, Flaw> {
        i16::try_from(self.number()?).map_err(|_| Flaw::Wrong)
    }

    /// A number with a sign, which is folded to its lowest bit.
    fn number(&mut self) -> Result<i64, Flaw> {
        let folded = self.varint()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    fn varint(&mut self) -> Result<u64, Flaw> {
        let mut number = 0;
        for place in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Flaw::Wrong)
    }

    fn byte(&mut self) -> Result<u8, Flaw> {
        let byte = self.bytes.get(self.at).ok_or(Flaw::Short)?;
        self.at += 1;
        Ok(*byte)
    }

    fn forward(&mut self, bytes: u64) -> Result<(), Flaw> {
        let left = self.bytes.len() - self.at;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= left);
        self.at += bytes.ok_or(Flaw::Short)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field 1 as i32, then field 3 (a page's compressed size), then the end.
    const PAGE: &[u8] = &[0x15, 0x00, 0x25, 0x54, 0x00];

    #[test]
    fn a_structure_ends_where_it_says() {
        assert_eq!(length(PAGE, PAGE_HEADER), Ok(5));
        assert_eq!(length(&[PAGE, b"what follows"].concat(), PAGE_HEADER), Ok(5));
        for cut in 0..PAGE.len() {
            assert_eq!(length(&PAGE[..cut], PAGE_HEADER), Err(Flaw::Short), "{cut}");
        }
    }

    /// The header of a page of these sizes, before and after packing.
    fn sized(unpacked: i64, packed: i64) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x00];
        for size in [unpacked, packed] {
            bytes.push(0x15);
            let mut folded = ((size << 1) ^ (size >> 63)) as u64;
            while folded >= 0x80 {
                bytes.push(folded as u8 | 0x80);
                folded >>= 7;
            }
            bytes.push(folded as u8);
        }
        bytes.push(0x00);
        bytes
    }

    #[test]
    fn pages_that_hold_more_than_their_bytes_can_are_refused() {
        assert_eq!(page(&sized(1000, 30)), Ok(()));
        assert_eq!(page(&sized(UNPACKED_FREE, 30)), Ok(()), "repeated numbers pack well");
        assert_eq!(page(&sized(UNPACKED_FREE + 1, 30)), Err(Flaw::Wrong));
        assert_eq!(page(&sized(100 << 20, 1 << 20)), Ok(()));
        assert_eq!(page(&sized(100 << 20, 1 << 10)), Err(Flaw::Wrong));
        // The library takes the lower half of such a number.
        assert_eq!(page(&sized(0x1_07ff_ffff, 30)), Err(Flaw::Wrong));
        assert_eq!(page(&sized(1000, -30)), Err(Flaw::Wrong));
        assert_eq!(page(&sized(-1000, 30)), Err(Flaw::Wrong));
        assert_eq!(page(&sized(1000, 30)[..5]), Err(Flaw::Short));
    }

    #[test]
    fn unknown_fields_are_walked_by_their_own_types() {
        // Field 20: a list of two texts; 21: a map of bytes to doubles; 22: a structure; 23: empty lists and maps.
        let list = [0x09, 40, 0x28, 1, b'a', 2, b'b', b'c'];
        let map = [0x1b, 1, 0x37, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        let others = [0x1c, 0x11, 0x12, 0x00, 0x19, 0x00, 0x1b, 0x00, 0x1d];
        let bytes = [&list[..], &map, &others, &[7; 16], &[0]].concat();
        assert_eq!(length(&bytes, PAGE_HEADER), Ok(bytes.len()));
    }

    #[test]
    fn lists_of_booleans_are_refused() {
        for element in [1, 2] {
            let list = [0x09, 40, 0xf0 | element, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00];
            assert_eq!(length(&list, PAGE_HEADER), Err(Flaw::Wrong));
            let map = [0x0b, 40, 0xff, 0xff, 0xff, 0xff, 0x07, 0x10 | element, 0x00];
            assert_eq!(length(&map, PAGE_HEADER), Err(Flaw::Wrong));
        }
    }

    #[test]
    fn lengths_beyond_the_bytes_are_refused() {
        let numbers = [0x09, 40, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00];
        assert_eq!(length(&numbers, PAGE_HEADER), Err(Flaw::Short));
        let text = [0x08, 40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00];
        assert_eq!(length(&text, PAGE_HEADER), Err(Flaw::Short));
        let endless = [0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(length(&endless, NOTHING), Err(Flaw::Wrong));
        assert_eq!(length(&[0x1c; 100], NOTHING), Err(Flaw::Wrong));
    }

    #[test]
    fn a_known_field_of_another_type_is_refused() {
        // Field 1 of a page's header is a number, and this is a text.
        assert_eq!(length(&[0x18, 1, b'a', 0x00], PAGE_HEADER), Err(Flaw::Wrong));
        // Field 2 of a file is a list of structures, and this one of texts.
        assert_eq!(length(&[0x29, 0x18, 1, b'a', 0x00], FILE_METADATA), Err(Flaw::Wrong));
    }
}
