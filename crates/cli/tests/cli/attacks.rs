//! What strangers say: the kit of attacks on a listening port. Probes of port scanners are the first bytes of well-known
//! protocols; near misses of our own handshake are made from a ticket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// What the attacker does after it has spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Waits to be closed.
    Listen,
    /// Says no more, and waits.
    HangUp,
    /// Speaks one byte a second (slowloris).
    Drip,
}

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
    /// Whether it shows the job's own token, and may be told more than an answer.
    pub(crate) knows_the_token: bool,
}

/// The job that is attacked, as its ticket and its own answer tell.
pub(crate) struct Target {
    job: u64,
    token: [u8; 32],
    protocol: u16,
}

impl Target {
    /// Reads the ticket, and asks the coordinator which protocol it speaks by speaking another.
    pub(crate) fn read(ticket: &Path, coordinator: SocketAddr) -> Target {
        let text = std::fs::read_to_string(ticket).unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name}in the ticket")).to_string()
        };
        let job = u64::from_str_radix(&field("job "), 16).unwrap();
        let digits = field("token ");
        let token =
            std::array::from_fn(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap());
        let mut target = Target { job, token, protocol: u16::MAX };
        let mut stream = TcpStream::connect(coordinator).unwrap();
        stream.write_all(&target.hello(1)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        target.protocol = u16::from_le_bytes([answer[1], answer[2]]);
        target
    }

    /// A hello as the coordinator would take it.
    fn hello(&self, purpose: u8) -> Vec<u8> {
        let mut bytes = b"STARLING".to_vec();
        bytes.extend(self.protocol.to_le_bytes());
        bytes.push(5);
        bytes.extend(b"0.1.0");
        bytes.extend([0; 27]);
        bytes.push(purpose);
        bytes.extend(self.job.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.token);
        bytes
    }

    /// The same with one byte changed.
    fn hello_but(&self, at: usize, value: u8) -> Vec<u8> {
        let mut bytes = self.hello(1);
        assert_ne!(bytes[at], value, "byte {at} has that value already");
        bytes[at] = value;
        bytes
    }
}

const PROBES: &[(&str, &[u8])] = &[
    ("nothing at all", b""),
    ("two empty lines", b"\r\n\r\n"),
    ("HTTP GET", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("HTTP POST", b"POST /jobs HTTP/1.0\r\nContent-Length: 4294967295\r\n\r\n{"),
    ("HTTP OPTIONS", b"OPTIONS * RTSP/1.0\r\n\r\n"),
    ("HTTP 2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ("web socket", b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
    ("TLS 1.0 hello", b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x01"),
    ("TLS 1.3 hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ("TLS alert", b"\x15\x03\x03\x00\x02\x02\x28"),
    ("SSL 2 hello", b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"),
    ("SSH", b"SSH-2.0-probe\r\n"),
    ("SMTP", b"EHLO probe\r\n"),
    ("FTP", b"USER anonymous\r\n"),
    ("telnet", b"\xff\xfd\x01\xff\xfb\x1f"),
    ("DNS over TCP", b"\0\x1e\0\x06\x01\0\0\x01\0\0\0\0\0\0\x07version\x04bind\0\0\x10\0\x03"),
    ("Redis", b"*1\r\n$4\r\nINFO\r\n"),
    ("memcached", b"stats\r\n"),
    ("Postgres", b"\0\0\0\x08\x04\xd2\x16\x2f"),
    ("LDAP", b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x02\x04\0\x80\0"),
    ("SMB", b"\0\0\0\xa4\xff\x53\x4d\x42\x72\0\0\0\0\x08\x01\x40"),
    ("RDP", b"\x03\0\0\x0b\x06\xe0\0\0\0\0\0"),
    ("Java RMI", b"\x4a\x52\x4d\x49\0\x02\x4b"),
    ("X11", b"\x6c\0\x0b\0\0\0\0\0\0\0\0\0"),
    ("TCPStore", b"\x3c\x85\xf7\xce\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f"),
    ("zeros", &[0; 4096]),
    ("ones", &[0xff; 4096]),
    ("length 0", &[0; 4]),
    ("length 2^32 - 1", &[0xff; 4]),
    ("length 2^63", &[0, 0, 0, 0, 0, 0, 0, 0x80]),
    ("a frame before a hello", b"SLNG\0\0\0\0"),
    ("a frame of 2^32 - 1 bytes", b"SLNG\xff\xff\xff\xff"),
    ("half the magic", b"STAR"),
    ("the magic in lower case", b"starling"),
];

/// All attacks.
pub(crate) fn kit(target: &Target) -> Vec<Attack> {
    let stranger = |(name, bytes, then)| Attack { name, bytes, then, knows_the_token: false };
    let mut kit: Vec<Attack> = PROBES
        .iter()
        .map(|(name, bytes)| stranger((*name, bytes.to_vec(), Then::HangUp)))
        .collect();
    kit.extend(near_misses(target).map(stranger));
    // A recorded hello, and then what no member says. At a worker's door the token is the wrong one.
    let replayed = [
        ("a replayed hello and noise", [target.hello(1), noise(300)].concat(), Then::Listen),
        ("a replayed hello and a frame too long", [target.hello(1), huge()].concat(), Then::Listen),
        ("a hello twice", target.hello(1).repeat(2), Then::Listen),
        ("a replayed hello, and gone", target.hello(1), Then::HangUp),
    ];
    kit.extend(replayed.map(|it| Attack { knows_the_token: true, ..stranger(it) }));
    kit
}

/// Hellos that are nearly right, and what is not even that.
fn near_misses(target: &Target) -> [(&'static str, Vec<u8>, Then); 20] {
    let wrong = target.hello_but(60, !target.token[0]);
    let hello = target.hello(1);
    let worker = [&target.hello(2)[..60], &[7; 32]].concat();
    let (next, flipped) = (target.protocol as u8 + 1, target.token[31] ^ 1);
    [
        ("half the magic, and silence", b"STAR".to_vec(), Then::Listen),
        ("the magic alone, and silence", b"STARLING".to_vec(), Then::Listen),
        ("a hello without its last byte", hello[..91].to_vec(), Then::Listen),
        ("a hello cut in its token", hello[..70].to_vec(), Then::HangUp),
        ("a hello, one byte a second", wrong.clone(), Then::Drip),
        ("version 0", target.hello_but(8, 0), Then::Listen),
        ("the version after this one", target.hello_but(8, next), Then::Listen),
        ("a version text of 255 bytes", target.hello_but(10, 255), Then::Listen),
        ("a version text that is none", target.hello_but(11, 7), Then::Listen),
        ("purpose 0", target.hello_but(43, 0), Then::Listen),
        ("purpose 255", target.hello_but(43, 255), Then::Listen),
        ("the wrong token", wrong.clone(), Then::Listen),
        ("a token wrong in its last bit", target.hello_but(91, flipped), Then::Listen),
        ("another job", target.hello_but(44, !(target.job as u8)), Then::Listen),
        ("a worker's call with the wrong token", worker, Then::Listen),
        ("a hello that goes on at once", [&wrong[..], &[0x41; 1 << 16]].concat(), Then::Listen),
        ("the wrong token, again and again", wrong.repeat(50), Then::Listen),
        ("a megabyte of noise", noise(1 << 20), Then::HangUp),
        ("a little noise", noise(37), Then::HangUp),
        ("the magic and noise", [&b"STARLING"[..], &noise(500)].concat(), Then::Listen),
    ]
}

/// Numbers that look like nothing, the same in every run.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..count).map(|_| next()).collect()
}

/// A header with an impossible length, long enough to be read as one.
fn huge() -> Vec<u8> {
    let mut bytes = b"SLNG\xff\xff\xff\xff".to_vec();
    bytes.resize(48, 0);
    bytes
}
