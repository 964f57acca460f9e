//! The wire format of protocol buffers, in which ONNX files are written: a message is a list of numbered fields, each a
//! number, four or eight bytes, or a length and so many bytes. Nothing is copied, and no length is believed.

use starlings_core::{Fault, Result};

/// What stands in a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Field<'a> {
    /// A whole number of variable length.
    Number(u64),
    /// Four bytes.
    Four([u8; 4]),
    /// Eight bytes.
    Eight([u8; 8]),
    /// A text, a list of numbers, or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message, one after the other; ends at the first that is broken.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// The fields of a message.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_none() {
            self.rest = &[];
        }
        Some(read.ok_or_else(broken))
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Option<(u64, Field<'a>)> {
        let key = number(&mut self.rest)?;
        let field = match key & 7 {
            0 => Field::Number(number(&mut self.rest)?),
            1 => Field::Eight(self.rest.split_off(..8)?.try_into().ok()?),
            2 => {
                let length = usize::try_from(number(&mut self.rest)?).ok()?;
                Field::Bytes(self.rest.split_off(..length)?)
            }
            5 => Field::Four(self.rest.split_off(..4)?.try_into().ok()?),
            _ => return None,
        };
        Some((key >> 3, field))
    }
}

/// A whole number of variable length: seven bits a byte, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

impl<'a> Field<'a> {
    /// The bytes of a message or text.
    pub(super) fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(broken()),
        }
    }

    /// A whole number.
    pub(super) fn int(self) -> Result<i64> {
        match self {
            Field::Number(number) => Ok(number as i64),
            _ => Err(broken()),
        }
    }

    /// A text.
    pub(super) fn text(self) -> Result<String> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(str::to_string).map_err(|error| broken().caused_by(error))
    }

    /// A number of four bytes.
    pub(super) fn float(self) -> Result<f32> {
        match self {
            Field::Four(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(broken()),
        }
    }

    /// Adds the whole numbers of a list, which may be packed.
    pub(super) fn ints(self, into: &mut Vec<i64>) -> Result<()> {
        match self {
            Field::Number(number) => into.push(number as i64),
            Field::Bytes(mut packed) => {
                let count = packed.iter().filter(|byte| **byte & 0x80 == 0).count();
                into.reserve_exact(count);
                while !packed.is_empty() {
                    into.push(number(&mut packed).ok_or_else(broken)? as i64);
                }
            }
            _ => return Err(broken()),
        }
        Ok(())
    }

    /// Adds the numbers of four bytes of a list, which may be packed.
    pub(super) fn floats(self, into: &mut Vec<f32>) -> Result<()> {
        match self {
            Field::Four(bytes) => into.push(f32::from_le_bytes(bytes)),
            Field::Bytes(packed) => {
                let (numbers, []) = packed.as_chunks() else { return Err(broken()) };
                into.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            _ => return Err(broken()),
        }
        Ok(())
    }

    /// Adds the numbers of eight bytes of a list, which may be packed.
    pub(super) fn doubles(self, into: &mut Vec<f64>) -> Result<()> {
        match self {
            Field::Eight(bytes) => into.push(f64::from_le_bytes(bytes)),
            Field::Bytes(packed) => {
                let (numbers, []) = packed.as_chunks() else { return Err(broken()) };
                into.extend(numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            }
            _ => return Err(broken()),
        }
        Ok(())
    }
}

/// The file is not what it should be.
pub(super) fn broken() -> Fault {
    Fault::caller("not an ONNX file, or one that is damaged or cut short")
        .hint("write it again with the library that trained the model")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_are_read_in_order() {
        let message = [
            0x08, 0xac, 0x02, 0x15, 0, 0, 0x80, 0x3f, 0x1a, 2, b'h', b'i', 0x21, 1, 0, 0, 0, 0, 0,
            0, 0,
        ];
        let read: Vec<_> = fields(&message).collect::<Result<_>>().unwrap();
        assert_eq!(read[0], (1, Field::Number(300)));
        assert_eq!(read[1].1.float().unwrap(), 1.0);
        assert_eq!(read[2].1.text().unwrap(), "hi");
        assert_eq!(read[3], (4, Field::Eight([1, 0, 0, 0, 0, 0, 0, 0])));
    }

    #[test]
    fn lengths_beyond_the_end_and_endless_numbers_are_broken() {
        for message in [
            &[0x1a, 200, 1][..],
            &[0x80; 11],
            &[0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            let read: Vec<_> = fields(message).collect();
            assert!(read.len() == 1 && read[0].is_err(), "{message:?}");
        }
        let mut into = Vec::new();
        assert!(Field::Bytes(&[1, 0x80]).ints(&mut into).is_err());
        assert!(Field::Bytes(&[0; 7]).doubles(&mut Vec::new()).is_err());
    }
}
