//! The first words on a connection, inside TLS when TLS is on: the client says who it is and what for, the
//! server answers yes or why not, and the client says that it has heard a yes. Without that last word a server would take
//! for a link what a client has given up that was not answered in time, and then for lost who is about to call again.
//! Fixed sizes, little-endian; nothing is allocated on a stranger's word.
//!
//! ```text
//! hello   0  magic    "STARLING"        answer  0  code      u8
//!         8  protocol u16                       1  protocol  u16
//!        10  version  u8 length, 32 ×           3  version   u8 length, 32 ×
//!        43  purpose  u8
//!        44  job      u64
//!        52  epoch    u32
//!        56  seat     u32
//!        60  token    32 ×              heard   0  "!"
//! ```
//! Magic and protocol stay where they are in every later protocol, so that old and new can tell each other.

use crate::transports::tcp::Stream;
use crate::{LinkError, Token};
use starlings_core::{Deadline, Epoch, Fault, JobId, Seat};

/// The protocol that this build speaks.
pub const PROTOCOL_VERSION: u16 = 8;

const MAGIC: &[u8; 8] = b"STARLING";
const PREFIX_BYTES: usize = 10;
/// Bytes of a hello.
pub const HELLO_BYTES: usize = 92;
const ANSWER_BYTES: usize = 36;
/// What a client says when it has heard that it may come in.
const HEARD: u8 = b'!';
const VERSION_BYTES_MAX: usize = 32;
const CRATE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A worker, a submission or a question to a coordinator.
    Control,
    /// A worker to a worker.
    Peer,
}

/// What a client says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What the connection is for.
    pub purpose: Purpose,
    /// The job it belongs to.
    pub job: JobId,
    /// The epoch it belongs to; 0 where none is known yet.
    pub epoch: Epoch,
    /// The client's seat; 0 where none is known yet.
    pub seat: Seat,
    /// The job's secret.
    pub token: Token,
    /// The protocol spoken: [`PROTOCOL_VERSION`], except in tests.
    pub version: u16,
}

/// What a server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Come in.
    Accept,
    /// The token is not this job's.
    WrongToken,
    /// Another protocol. The listener finds out by itself.
    OtherVersion,
    /// Another job runs here.
    OtherJob,
    /// The epoch has ended.
    StaleEpoch,
    /// No place at the moment.
    Busy,
    /// A worker without a certificate of the job. The listener finds out by itself.
    Uncertified,
}

const VERDICTS: [Verdict; 7] = [
    Verdict::Accept,
    Verdict::WrongToken,
    Verdict::OtherVersion,
    Verdict::OtherJob,
    Verdict::StaleEpoch,
    Verdict::Busy,
    Verdict::Uncertified,
];

/// A server's answer as the client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    verdict: Verdict,
    protocol: u16,
    version: String,
}

/// How a client's first words were understood.
pub(crate) enum Greeting {
    Hello(Hello),
    /// Another protocol: the rest of what it says is not for us to understand.
    OtherVersion(u16),
}

impl Purpose {
    /// Who listens for such connections.
    pub(crate) fn server(self) -> &'static str {
        match self {
            Purpose::Control => "coordinator",
            Purpose::Peer => "worker",
        }
    }
}

/// Client: says hello, hears the answer, and says so if it is yes.
pub(crate) fn greet(stream: &Stream, hello: &Hello, by: Deadline) -> Result<Answer, LinkError> {
    stream.write(&encode_hello(hello), &[], by)?;
    let mut bytes = Vec::with_capacity(ANSWER_BYTES);
    read_to(stream, &mut bytes, ANSWER_BYTES, by)?;
    let (verdict, protocol, version) = decode_answer(&bytes)?;
    if verdict == Verdict::Accept {
        stream.write(&[HEARD], &[], by)?;
    }
    Ok(Answer { verdict, protocol, version })
}

/// Server: hears the hello.
pub(crate) fn hear(stream: &Stream, by: Deadline) -> Result<Greeting, LinkError> {
    let mut bytes = Vec::with_capacity(HELLO_BYTES);
    while bytes.len() < PREFIX_BYTES {
        let at = bytes.len() + 1;
        read_to(stream, &mut bytes, at, by)?;
        // A stranger is recognised by its first byte, and need not be waited for.
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(LinkError::Broken("it does not speak the Starlings protocol".to_string()));
        }
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != PROTOCOL_VERSION {
        return Ok(Greeting::OtherVersion(version));
    }
    read_to(stream, &mut bytes, HELLO_BYTES, by)?;
    decode_hello(&bytes).map(Greeting::Hello)
}

/// Server: answers.
pub(crate) fn answer(stream: &Stream, verdict: Verdict, by: Deadline) -> Result<(), LinkError> {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[0] = VERDICTS.iter().position(|&known| known == verdict).expect("all are listed") as u8;
    bytes[1..3].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    put_version(&mut bytes[3..]);
    stream.write(&bytes, &[], by)
}

/// Server: waits until the client has heard that it may come in.
pub(crate) fn heard(stream: &Stream, by: Deadline) -> Result<(), LinkError> {
    // No more than this word: what follows it are frames.
    let mut bytes = Vec::with_capacity(1);
    read_to(stream, &mut bytes, 1, by)?;
    match bytes[0] {
        HEARD => Ok(()),
        _ => Err(LinkError::Broken("it went on before it was answered".to_string())),
    }
}

impl Answer {
    /// The answer in words, unless it is yes.
    pub(crate) fn refusal(&self, hello: &Hello) -> Option<Fault> {
        let server = hello.purpose.server();
        let (what, hint) = match self.verdict {
            Verdict::Accept => return None,
            Verdict::WrongToken => (
                format!("the {server} refused the token"),
                "use the ticket file that the coordinator of this very job wrote",
            ),
            Verdict::OtherVersion => (
                format!(
                    "the {server} speaks protocol {} (version {}), this is protocol {} (version {CRATE_VERSION})",
                    self.protocol, self.version, hello.version
                ),
                "install the same version on all hosts",
            ),
            Verdict::OtherJob => (
                format!("the {server} belongs to another job"),
                "check the address, and use the ticket file of the job that runs there",
            ),
            Verdict::StaleEpoch => (
                format!("{} has ended for the {server}", hello.epoch),
                "join again to learn the current members",
            ),
            Verdict::Busy => (format!("the {server} has no place"), "try again later"),
            Verdict::Uncertified => (
                format!("the {server} wants a certificate of the job"),
                "join through the coordinator, which issues one",
            ),
        };
        Some(Fault::caller(what).hint(hint))
    }
}

/// A hello's bytes.
#[must_use]
pub fn encode_hello(hello: &Hello) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[0..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&hello.version.to_le_bytes());
    put_version(&mut bytes[10..43]);
    bytes[43] = match hello.purpose {
        Purpose::Control => 1,
        Purpose::Peer => 2,
    };
    bytes[44..52].copy_from_slice(&hello.job.0.to_le_bytes());
    bytes[52..56].copy_from_slice(&hello.epoch.0.to_le_bytes());
    bytes[56..60].copy_from_slice(&hello.seat.0.to_le_bytes());
    bytes[60..92].copy_from_slice(hello.token.bytes());
    bytes
}

/// Reads a hello whose magic and protocol were looked at. Listeners read byte by byte before; this is for them and
/// for fuzzers.
///
/// # Errors
/// [`LinkError::Broken`] with what no peer of ours would say.
pub fn decode_hello(bytes: &[u8]) -> Result<Hello, LinkError> {
    let bytes: &[u8; HELLO_BYTES] = bytes
        .try_into()
        .map_err(|_| LinkError::Broken("it went on before it was answered".to_string()))?;
    take_version(&bytes[10..43])?;
    let purpose = match bytes[43] {
        1 => Purpose::Control,
        2 => Purpose::Peer,
        other => return Err(LinkError::Broken(format!("purpose {other} does not exist"))),
    };
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Ok(Hello {
        purpose,
        job: JobId(u64::from_le_bytes(bytes[44..52].try_into().expect("eight bytes"))),
        epoch: Epoch(number(52)),
        seat: Seat(number(56)),
        token: Token::from_bytes(bytes[60..92].try_into().expect("32 bytes")),
        version: u16::from_le_bytes([bytes[8], bytes[9]]),
    })
}

/// Reads an answer: the verdict, the protocol and the version of whoever answers.
///
/// # Errors
/// [`LinkError::Broken`] with what no peer of ours would answer.
pub fn decode_answer(bytes: &[u8]) -> Result<(Verdict, u16, String), LinkError> {
    let stranger = || LinkError::Broken("it does not speak the Starlings protocol".to_string());
    let bytes: &[u8; ANSWER_BYTES] = bytes.try_into().map_err(|_| stranger())?;
    let verdict = *VERDICTS.get(usize::from(bytes[0])).ok_or_else(stranger)?;
    let protocol = u16::from_le_bytes([bytes[1], bytes[2]]);
    Ok((verdict, protocol, take_version(&bytes[3..ANSWER_BYTES])?))
}

fn put_version(field: &mut [u8]) {
    let version = CRATE_VERSION.as_bytes();
    let length = version.len().min(VERSION_BYTES_MAX);
    field[0] = length as u8;
    field[1..=length].copy_from_slice(&version[..length]);
}

/// A version goes into messages: only printable characters are taken.
fn take_version(field: &[u8]) -> Result<String, LinkError> {
    let (length, text) = (usize::from(field[0]), &field[1..=VERSION_BYTES_MAX]);
    match text.get(..length) {
        Some(text) if text.iter().all(u8::is_ascii_graphic) => {
            Ok(text.iter().copied().map(char::from).collect())
        }
        _ => Err(LinkError::Broken("a version that is no text".to_string())),
    }
}

/// Reads until there are so many bytes.
fn read_to(
    stream: &Stream,
    bytes: &mut Vec<u8>,
    count: usize,
    by: Deadline,
) -> Result<(), LinkError> {
    while bytes.len() < count {
        if by.passed() {
            return Err(LinkError::Deadline);
        }
        stream.read(bytes, by)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            purpose: Purpose::Peer,
            job: JobId(1 << 50),
            epoch: Epoch(7),
            seat: Seat(3),
            token: Token::random().unwrap(),
            version: PROTOCOL_VERSION,
        }
    }

    #[test]
    fn a_hello_survives_the_round_trip() {
        let hello = hello();
        assert_eq!(decode_hello(&encode_hello(&hello)).unwrap(), hello);
    }

    #[test]
    fn a_hello_with_an_unknown_purpose_or_a_strange_version_is_refused() {
        let good = encode_hello(&hello());
        for (at, value) in [(43, 0), (43, 3), (10, 33), (11, b'\n')] {
            let mut bad = good;
            bad[at] = value;
            assert!(decode_hello(&bad).is_err(), "byte {at} = {value}");
        }
    }

    #[test]
    fn a_refusal_names_both_versions() {
        let answer =
            Answer { verdict: Verdict::OtherVersion, protocol: 9, version: "9.9".to_string() };
        let fault = answer.refusal(&hello()).unwrap().to_string();
        let both =
            format!("protocol 9 (version 9.9), this is protocol {PROTOCOL_VERSION} (version");
        assert!(fault.contains(&both), "{fault}");
        assert!(fault.contains("same version on all hosts"), "{fault}");
    }
}
