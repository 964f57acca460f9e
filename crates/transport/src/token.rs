//! The secret that lets a worker or a user into a job: 256 random bits. It is compared in constant time and
//! never printed by accident.

use starlings_core::{Fault, Result};
use std::fmt;
use std::io::Read;
use subtle::ConstantTimeEq;

/// A job's secret.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// A token from the operating system's generator.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Token> {
        Ok(Token(random_bytes()?))
    }

    /// A token from its bytes, as they come out of a handshake.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Token {
        Token(bytes)
    }

    /// A token from 64 hexadecimal digits.
    ///
    /// # Errors
    /// Anything else. The message does not repeat the text.
    pub fn parse(text: &str) -> Result<Token> {
        from_hex(text)
            .and_then(|bytes| bytes.try_into().ok())
            .map(Token)
            .ok_or_else(|| Fault::caller("a token is 64 hexadecimal digits, and this is not"))
    }

    /// The secret as 64 hexadecimal digits. For the ticket file and for a user who asks; never for logs.
    #[must_use]
    pub fn reveal(&self) -> String {
        to_hex(&self.0)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// In constant time: how long it takes says nothing about where the tokens differ.
impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Bytes that nobody can guess. (All other chance in Starlings is seeded and repeatable: not this.)
pub(crate) fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Fault::machine("cannot read /dev/urandom").caused_by(error))?;
    Ok(bytes)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_survive_their_text() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(Token::parse(&one.reveal()).unwrap(), one);
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(63), &"0".repeat(66)] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_not_printed_by_accident() {
        assert_eq!(format!("{:?}", Some(Token([0xab; 32]))), "Some(Token(…))");
    }
}
