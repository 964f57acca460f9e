//! What strangers and peers send: frames, first words, control messages and their parts, and the ticket.

use super::Decoder;
use starlings_cluster::protocol::{
    Assembler, FromClient, FromWorker, Message, PART_BYTES, Status, ToClient, ToWorker, decode,
    encode, read_event, to_parts,
};
use starlings_core::{Epoch, Event, JobId, Seat, Step};
use starlings_transport::{
    Expected, Header, Hello, Lane, PROTOCOL_VERSION, Purpose, Ticket, Token, decode_answer,
    decode_hello, encode_header, encode_hello,
};

pub(super) const FRAME: Decoder = Decoder { name: "frame", run: frame, seeds: frames };
pub(super) const HELLO: Decoder = Decoder { name: "hello", run: hello, seeds: hellos };
pub(super) const ANSWER: Decoder = Decoder { name: "answer", run: answer, seeds: answers };
pub(super) const MESSAGE: Decoder = Decoder { name: "message", run: message, seeds: messages };
pub(super) const PARTS: Decoder = Decoder { name: "parts", run: parts, seeds: part_lists };
pub(super) const EVENT: Decoder = Decoder { name: "event", run: event, seeds: events };
pub(super) const TICKET: Decoder = Decoder { name: "ticket", run: ticket, seeds: tickets };

const EXPECTED: Expected = Expected { job: JobId(7), epoch: Epoch(3), sequence: 11 };

fn frame(bytes: &[u8]) {
    if let Ok(frame) = starlings_transport::decode(bytes, &EXPECTED) {
        assert_eq!(framed(frame.header, &frame.payload), bytes, "a frame has one spelling");
    }
    // A fuzzer does not guess a checksum: with the right one, what lies behind it is reached too.
    if let Some((head, payload)) = bytes.split_first_chunk::<14>() {
        let header = Header {
            lane: Lane::ALL[usize::from(head[0]) % Lane::ALL.len()],
            kind: head[1],
            step: Step(u64::from_le_bytes(head[2..10].try_into().expect("eight"))),
            tag: u32::from_le_bytes(head[10..14].try_into().expect("four")),
        };
        let whole = framed(header, payload);
        let decoded = starlings_transport::decode(&whole, &EXPECTED).expect("a sound frame");
        assert_eq!((decoded.header, decoded.payload.as_slice()), (header, payload));
    }
}

fn framed(header: Header, payload: &[u8]) -> Vec<u8> {
    let head = encode_header(header, EXPECTED.job, EXPECTED.epoch, EXPECTED.sequence, payload);
    [&head[..], payload].concat()
}

fn frames() -> Vec<Vec<u8>> {
    let header = |lane, kind| Header { lane, kind, step: Step(5), tag: 2 };
    let each = Lane::ALL.into_iter().zip(0..);
    each.map(|(lane, kind)| framed(header(lane, kind), &vec![kind; usize::from(kind) * 9]))
        .collect()
}

fn hello(bytes: &[u8]) {
    let Ok(hello) = decode_hello(bytes) else { return };
    let again = decode_hello(&encode_hello(&hello)).expect("its own");
    assert_eq!(again, hello);
}

fn hellos() -> Vec<Vec<u8>> {
    let purposes = [Purpose::Control, Purpose::Peer];
    let hello = |purpose| Hello {
        purpose,
        job: JobId(1 << 50),
        epoch: Epoch(7),
        seat: Seat(3),
        token: Token::from_bytes([9; 32]),
        version: PROTOCOL_VERSION,
    };
    purposes.map(|purpose| encode_hello(&hello(purpose)).to_vec()).to_vec()
}

fn answer(bytes: &[u8]) {
    // What a stranger's version says goes into messages: it must be fit to print.
    if let Ok((_, _, version)) = decode_answer(bytes) {
        assert!(version.len() <= 32 && version.bytes().all(|byte| byte.is_ascii_graphic()));
    }
}

fn answers() -> Vec<Vec<u8>> {
    let mut bytes = vec![0; 36];
    bytes[1] = 2;
    bytes[3] = 5;
    bytes[4..9].copy_from_slice(b"0.1.0");
    let mut refusal = bytes.clone();
    refusal[0] = 2;
    vec![bytes, refusal]
}

fn message(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else { return };
    // Numbers may have longer spellings than ours; what they mean is kept.
    let written = encode(&message);
    assert_eq!(encode(&decode(&written).expect("its own")), written);
}

fn messages() -> Vec<Vec<u8>> {
    spoken().iter().map(encode).collect()
}

/// One message of each kind that is easily made. Kinds that are added to the protocol are found by mutation of these.
fn spoken() -> Vec<Message> {
    let ready =
        FromWorker::Ready { host: "anne".into(), pid: 17, address: "127.0.0.1:4000".into() };
    vec![
        Message::FromWorker(ready),
        Message::FromWorker(FromWorker::event(&Event::Waiting {
            have: 1,
            want: 2,
            seconds_left: Some(60.0),
            then: String::new(),
        })),
        Message::FromWorker(FromWorker::Finished { epoch: Epoch(1), holds: true }),
        Message::FromWorker(FromWorker::Model(vec![1, 2, 3].into())),
        Message::ToWorker(ToWorker::Welcome(Some(vec![4, 5].into()))),
        Message::ToWorker(ToWorker::Stop),
        Message::FromClient(FromClient::Status),
        Message::ToClient(ToClient::Event("{}".into())),
        Message::ToClient(ToClient::Status(Status::default())),
    ]
}

/// Payloads with their lengths before them, as a link would deliver them.
fn parts(mut bytes: &[u8]) {
    let limit = 3 * PART_BYTES;
    let mut assembler = Assembler::new(limit);
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        bytes = rest;
        match assembler.push(payload) {
            Ok(Some(message)) => {
                drop(to_parts(&message).expect("it arrived, so it is not too long"))
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn part_lists() -> Vec<Vec<u8>> {
    let one = |message: &Message| {
        let parts = to_parts(message).expect("short");
        let framed = |part: &Vec<u8>| [&(part.len() as u16).to_le_bytes()[..], part].concat();
        parts.iter().flat_map(framed).collect::<Vec<u8>>()
    };
    let mut lists: Vec<Vec<u8>> = spoken().iter().map(one).collect();
    lists.push(lists.concat());
    lists
}

fn event(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(event) = read_event(text) {
        drop(FromWorker::event(&event));
    }
}

fn events() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"event":"waiting","have":1,"want":2}"#,
        r#"{"event":"checkpoint","step":5,"path":"a","bytes":7}"#,
        r#"{"event":"fault","rank":1,"host":"a","pid":7,"phase":"exchange","step":3}"#,
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn ticket(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(ticket) = Ticket::parse(text) {
        assert_eq!(Ticket::parse(&ticket.text()), Some(ticket));
    }
}

fn tickets() -> Vec<Vec<u8>> {
    let ticket =
        |ca| Ticket { token: Token::from_bytes([7; 32]), job: JobId(99), ca, address: None };
    [None, Some(vec![1, 2, 255])].map(|ca| ticket(ca).text().into_bytes()).to_vec()
}
