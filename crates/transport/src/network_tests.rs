//! Listeners and callers over real sockets of this machine: the laws of links, who is let in, and what
//! strangers can do to a listener.

use crate::{
    Header, Hello, JobAuthority, Lane, Limits, Link, LinkError, Listener, PAYLOAD_BYTES_MAX,
    PROTOCOL_VERSION, Purpose, Security, TcpLink, TlsIdentity, Token, Verdict, conformance,
    connect, encode_header, encode_hello,
};
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Seat, Step};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const JOB: JobId = JobId(77);
const EPOCH: Epoch = Epoch(5);
const HEADER: Header = Header { lane: Lane::Control, kind: 1, step: Step(2), tag: 3 };

fn soon() -> Deadline {
    Deadline::after_ms(10_000)
}

fn token() -> Token {
    Token::from_bytes([9; 32])
}

fn hello() -> Hello {
    Hello {
        purpose: Purpose::Peer,
        job: JOB,
        epoch: EPOCH,
        seat: Seat(1),
        token: token(),
        version: PROTOCOL_VERSION,
    }
}

fn judge(hello: &Hello) -> Verdict {
    if hello.token != token() {
        Verdict::WrongToken
    } else if hello.job != JOB {
        Verdict::OtherJob
    } else if hello.epoch < EPOCH {
        Verdict::StaleEpoch
    } else {
        Verdict::Accept
    }
}

fn listener(security: &Security) -> Listener {
    let limits = Limits { handshake_ms: 150, pending_max: 8, pending_per_address_max: 4 };
    listener_within(limits, security)
}

fn listener_within(limits: Limits, security: &Security) -> Listener {
    let address = "127.0.0.1:0".parse().unwrap();
    Listener::bind_within(limits, address, security, Arc::new(judge)).unwrap()
}

fn member(authority: &JobAuthority) -> Security {
    Security::Tls(authority.issue("worker", &["127.0.0.1".parse().unwrap()]).unwrap())
}

fn linked(listener: &Listener, security: &Security) -> (TcpLink, TcpLink) {
    let caller = connect(listener.local_addr(), &hello(), security, soon()).unwrap();
    let (link, heard, from) = listener.accept(soon()).unwrap().expect("the caller was admitted");
    assert_eq!(heard, hello());
    assert!(from.ip().is_loopback());
    (caller, link)
}

fn assert_still_works(listener: &Listener, security: &Security) {
    let (caller, link) = linked(listener, security);
    caller.send(HEADER, b"still here", soon()).unwrap();
    assert_eq!(link.receive(soon()).unwrap().payload, b"still here");
}

fn refusal(listener: &Listener) -> LinkError {
    // A caller may know that it was refused a moment before the listener has noted it.
    let by = soon();
    let mut refusals = listener.take_refusals();
    while refusals.is_empty() && !by.passed() {
        std::thread::yield_now();
        refusals = listener.take_refusals();
    }
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    refusals.remove(0).why
}

#[test]
fn a_caller_that_gave_up_before_it_was_answered_is_no_link() {
    let listener = listener(&Security::Plain);
    let mut caller = TcpStream::connect(listener.local_addr()).unwrap();
    caller.write_all(&encode_hello(&hello())).unwrap();
    let mut answer = [0; 36];
    caller.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], 0, "it is let in");
    // A caller that is waited for too long closes, and calls again: only the second is one to talk to.
    drop(caller);
    assert!(matches!(refusal(&listener), LinkError::Lost(_)));
    assert!(listener.accept(Deadline::after_ms(0)).unwrap().is_none());
    assert_still_works(&listener, &Security::Plain);
}

#[test]
fn what_follows_the_first_words_at_once_arrives() {
    let listener = listener(&Security::Plain);
    let caller = connect(listener.local_addr(), &hello(), &Security::Plain, soon()).unwrap();
    caller.send(HEADER, &[7; 100_000], soon()).unwrap();
    let (link, ..) = listener.accept(soon()).unwrap().expect("the caller was admitted");
    assert_eq!(link.receive(soon()).unwrap().payload, [7; 100_000]);
}

#[test]
fn plain_links_keep_the_laws_of_links() {
    let listener = listener(&Security::Plain);
    conformance::check(&|| {
        let (caller, link) = linked(&listener, &Security::Plain);
        (Box::new(caller), Box::new(link))
    });
}

#[test]
fn tls_links_keep_the_laws_of_links() {
    let authority = JobAuthority::new(JOB).unwrap();
    let listener = listener_within(Limits::default(), &member(&authority));
    let caller = member(&authority);
    conformance::check(&|| {
        let (caller, link) = linked(&listener, &caller);
        (Box::new(link), Box::new(caller))
    });
}

#[test]
fn a_peer_that_does_not_read_breaks_the_link_at_the_deadline() {
    let authority = JobAuthority::new(JOB).unwrap();
    for security in [Security::Plain, member(&authority)] {
        let listener = listener_within(Limits::default(), &security);
        let (caller, link) = linked(&listener, &security);
        caller.send(HEADER, b"before", soon()).unwrap();
        let body = vec![0; PAYLOAD_BYTES_MAX];
        let ended = loop {
            let (by, latest) = (Deadline::after_ms(100), Deadline::after_ms(400));
            if let Err(error) = link.send(HEADER, &body, by) {
                assert!(!latest.passed(), "a send ends near its deadline");
                break error;
            }
        };
        assert_eq!(ended, LinkError::Deadline);
        assert!(matches!(link.send(HEADER, b"", soon()), Err(LinkError::Lost(_))));
        assert_eq!(link.receive(soon()).unwrap().payload, b"before", "it came before the break");
        assert!(matches!(link.receive(soon()), Err(LinkError::Lost(_))));
    }
}

#[test]
fn callers_are_refused_with_the_reason() {
    let listener = listener(&Security::Plain);
    let newer = format!("this is protocol {}", PROTOCOL_VERSION + 1);
    let cases = [
        (Hello { token: Token::from_bytes([8; 32]), ..hello() }, "refused the token"),
        (Hello { job: JobId(78), ..hello() }, "another job"),
        (Hello { epoch: Epoch(4), ..hello() }, "epoch 4 has ended"),
        (Hello { version: PROTOCOL_VERSION + 1, ..hello() }, &*newer),
        (Hello { version: 0, ..hello() }, "this is protocol 0"),
    ];
    for (bad, reason) in cases {
        let fault = refused(&listener, &bad, &Security::Plain);
        assert_eq!(fault.blame(), Blame::Caller);
        assert!(fault.message().contains(reason), "{fault}");
        assert!(matches!(refusal(&listener), LinkError::Broken(_)));
        assert_still_works(&listener, &Security::Plain);
    }
}

fn refused(listener: &Listener, hello: &Hello, security: &Security) -> Fault {
    let fault = connect(listener.local_addr(), hello, security, soon()).unwrap_err();
    assert!(listener.accept(Deadline::after_ms(0)).unwrap().is_none(), "nobody was admitted");
    fault
}

#[test]
fn only_members_of_the_job_speak_to_its_workers() {
    let now = crate::security::wall_clock();
    let authority = JobAuthority::new(JOB).unwrap();
    let stranger = member(&JobAuthority::new(JOB).unwrap());
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let expired = Security::Tls(authority.issue_at("late", &[], now - month).unwrap());
    let ticket_only = Security::Tls(TlsIdentity::joining(authority.certificate()));
    let listener = listener(&member(&authority));
    for (who, security, reason) in [
        ("of another authority", &stranger, "certificate"),
        ("expired", &expired, "xpired"),
        ("without certificate", &ticket_only, "wants a certificate"),
    ] {
        let fault = refused(&listener, &hello(), security);
        assert_eq!(fault.blame(), Blame::Caller, "{who}: {fault}");
        assert!(fault.message().contains(reason), "{who}: {fault}");
        assert!(!matches!(refusal(&listener), LinkError::Deadline), "{who}");
        assert_still_works(&listener, &member(&authority));
    }
    let joining = Hello { purpose: Purpose::Control, epoch: EPOCH, ..hello() };
    let _link = connect(listener.local_addr(), &joining, &ticket_only, soon()).unwrap();
    assert_eq!(listener.accept(soon()).unwrap().unwrap().1, joining);
}

/// What a stranger sends first; it then reads until the listener closes.
fn strange_call(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    // The listener may have closed already: then there is nothing to write to.
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn strangers_are_turned_away_and_the_listener_goes_on() {
    let authority = JobAuthority::new(JOB).unwrap();
    let tls_hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 600]].concat();
    let mut flood = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    flood.resize(100_000, 7);
    // What is sent, and why a plain and a TLS listener turn it away.
    let late = "deadline passed";
    let cases: [(&[u8], [&str; 2]); 7] = [
        (&[0xff; 500], ["does not speak", "protocol broken"]),
        (&[0; 500], ["does not speak", "protocol broken"]),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ["does not speak", "protocol broken"]),
        (b"", [late, late]),
        (b"STARLING", [late, "protocol broken"]),
        (&tls_hello, ["does not speak", "protocol broken"]),
        (&flood, ["does not speak", "more than 4096 bytes"]),
    ];
    for (kind, security) in [Security::Plain, member(&authority)].iter().enumerate() {
        let listener = listener(security);
        for (bytes, reasons) in &cases {
            strange_call(listener.local_addr(), bytes);
            let why = refusal(&listener).to_string();
            assert!(
                why.contains(reasons[kind]),
                "{why:?} for {:02x?}",
                &bytes[..bytes.len().min(8)]
            );
            assert_still_works(&listener, security);
        }
    }
}

#[test]
fn a_slow_caller_is_dropped_at_the_deadline_and_holds_up_nobody() {
    let listener = listener(&Security::Plain);
    let mut slow = TcpStream::connect(listener.local_addr()).unwrap();
    slow.set_nodelay(true).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let latest = Deadline::after_ms(150 + 300);
    assert_still_works(&listener, &Security::Plain);
    // One byte whenever 5 ms have passed without an answer: always alive, never done.
    let begun = [&b"STARLING"[..], &PROTOCOL_VERSION.to_le_bytes()].concat();
    for byte in begun.into_iter().chain(std::iter::repeat(0)) {
        if slow.write_all(&[byte]).is_err() {
            break;
        }
        match slow.read(&mut [0; 1]) {
            Ok(count) => {
                assert_eq!(count, 0, "no answer, just the end");
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        assert!(!latest.passed(), "the handshake's deadline holds for a slow caller");
    }
    assert_eq!(refusal(&listener), LinkError::Deadline);
}

#[test]
fn callers_beyond_the_limit_are_closed_at_once_and_may_call_again() {
    let limits = Limits { handshake_ms: 2000, pending_max: 8, pending_per_address_max: 2 };
    let listener = listener_within(limits, &Security::Plain);
    let address = listener.local_addr();
    let silent: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    strange_call(address, b"");
    assert!(refusal(&listener).to_string().contains("too many"));
    let fault = connect(address, &hello(), &Security::Plain, Deadline::after_ms(60)).unwrap_err();
    assert!(matches!(fault.blame(), Blame::Peer(_)), "{fault}");
    drop(silent);
    assert_still_works(&listener, &Security::Plain);
}

/// Says a correct hello by hand and hears yes.
fn raw_caller(listener: &Listener) -> (TcpStream, TcpLink) {
    let mut bytes = b"STARLING".to_vec();
    bytes.extend(PROTOCOL_VERSION.to_le_bytes());
    bytes.extend([0; 33]);
    bytes.push(2);
    bytes.extend(JOB.0.to_le_bytes());
    bytes.extend(EPOCH.0.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([9; 32]);
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut answer = [0; 36];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], 0);
    stream.write_all(b"!").unwrap();
    (stream, listener.accept(soon()).unwrap().unwrap().0)
}

#[test]
fn broken_frames_end_the_link_with_the_reason() {
    let listener = listener(&Security::Plain);
    let good = encode_header(HEADER, JOB, EPOCH, 0, b"x");
    let mut long = good;
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let replayed = encode_header(HEADER, JOB, EPOCH, 7, b"x");
    let cases = [
        (long.to_vec(), "4294967295 bytes"),
        ([&good[..], b"y"].concat(), "checksum"),
        ([&replayed[..], b"x"].concat(), "frame 7 where 0 is due"),
        ([&encode_header(HEADER, JobId(1), EPOCH, 0, b"")[..]].concat(), "another job"),
        ([&encode_header(HEADER, JOB, Epoch(4), 0, b"")[..]].concat(), "epoch 4"),
        (b"GET / HTTP/1.1\r\nHost: a-long-enough-name.example\r\n\r\n".to_vec(), "not a frame"),
    ];
    for (bytes, reason) in cases {
        let (mut stream, link) = raw_caller(&listener);
        stream.write_all(&bytes).unwrap();
        let error = link.receive(soon()).unwrap_err();
        assert!(matches!(&error, LinkError::Broken(why) if why.contains(reason)), "{error}");
        assert_eq!(link.receive(soon()).unwrap_err(), error, "final");
        assert_eq!(link.send(HEADER, b"", soon()).unwrap_err(), error, "final");
    }
    assert_still_works(&listener, &Security::Plain);
}

#[test]
fn a_frame_in_pieces_survives_deadlines_between_them() {
    let listener = listener(&Security::Plain);
    let (mut stream, link) = raw_caller(&listener);
    let body = vec![3; 200_000];
    let bytes = [&encode_header(HEADER, JOB, EPOCH, 0, &body)[..], &body].concat();
    for piece in bytes.chunks(60_000) {
        assert_eq!(link.receive(Deadline::after_ms(5)), Err(LinkError::Deadline));
        stream.write_all(piece).unwrap();
    }
    assert!(link.receive(soon()).unwrap().payload == body);
}

#[test]
fn a_taken_port_is_the_callers_fault() {
    let listener = listener(&Security::Plain);
    let address = listener.local_addr();
    let second = Listener::bind(address, &Security::Plain, Arc::new(judge));
    let fault = second.err().expect("the port is taken");
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.message().contains(&address.to_string()), "{fault}");
    assert!(fault.advice().unwrap().contains("port 0"), "{fault}");
    let open = Listener::bind("0.0.0.0:0".parse().unwrap(), &Security::Plain, Arc::new(judge));
    assert!(open.err().unwrap().advice().unwrap().contains("--tls"));
}

#[test]
fn a_dropped_listener_frees_its_port_and_turns_callers_away() {
    let listener = listener_within(Limits::default(), &Security::Plain);
    let address = listener.local_addr();
    let mut silent = TcpStream::connect(address).unwrap();
    let waiting = connect(address, &hello(), &Security::Plain, soon()).unwrap();
    let latest = Deadline::after_ms(2000);
    drop(listener);
    assert!(!latest.passed(), "a silent caller does not hold up the end");
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0, "the silent caller is cut off");
    assert!(matches!(waiting.receive(soon()), Err(LinkError::Lost(_))));
    let fault = connect(address, &hello(), &Security::Plain, Deadline::after_ms(50)).unwrap_err();
    assert!(fault.message().contains("no worker answered"), "{fault}");
}

#[test]
fn a_caller_waits_for_a_listener_that_starts_later() {
    let address = listener(&Security::Plain).local_addr();
    std::thread::scope(|scope| {
        let caller = scope.spawn(|| connect(address, &hello(), &Security::Plain, soon()));
        let listener = Listener::bind(address, &Security::Plain, Arc::new(judge)).unwrap();
        assert!(listener.accept(soon()).unwrap().is_some());
        caller.join().unwrap().unwrap();
    });
}
