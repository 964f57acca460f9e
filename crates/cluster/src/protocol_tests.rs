//! Messages there and back, in parts, and under hostile bytes.

use super::*;
use proptest::prelude::*;
use starlings_core::Report;

fn assignment(survey: usize, peers: usize) -> Message {
    let peer = |seat| Peer {
        seat: Seat(seat),
        host: "alpha".into(),
        pid: 7,
        address: "127.0.0.1:1".into(),
    };
    Message::ToWorker(ToWorker::Assign(Box::new(Assignment {
        job: "[learner]\nname = 'k-means'".into(),
        job_id: JobId(u64::MAX),
        seat: Seat(1),
        epoch: Epoch(0),
        roster: (0..peers as u32).map(peer).collect(),
        peer_token: Token([9; 32]),
        survey: Some(Bytes((0..survey).map(|i| i as u8).collect())),
        deal: vec![vec![0, 2], vec![1]],
        member: 12,
        durable: true,
        survives: true,
    })))
}

fn samples() -> Vec<Message> {
    let fault = FaultReport {
        rank: Some(Seat(2)),
        host: None,
        phase: "merge".into(),
        step: Some(Step(7)),
        seen_by: Some(Seat(0)),
        message: "lost".into(),
    };
    let failed = Fault::peer(Some(Seat(3)), "gone").hint("look at its log");
    let mut samples = vec![
        Message::FromWorker(FromWorker::Ready { host: "a".into(), pid: 1, address: "b".into() }),
        Message::FromWorker(FromWorker::Beat {
            step: Step(u64::MAX),
            phase: "é".into(),
            waits: false,
            bytes: 7,
        }),
        Message::FromWorker(FromWorker::Accuse {
            epoch: Epoch(1),
            seat: Seat(1),
            phase: String::new(),
            step: Step(0),
        }),
        Message::FromWorker(FromWorker::failed(Epoch(2), &failed)),
        Message::FromWorker(FromWorker::Finished { epoch: Epoch(2), holds: true }),
        Message::FromWorker(FromWorker::Model(Bytes(vec![0, 255]))),
        Message::FromWorker(FromWorker::Part {
            step: Step(3),
            part: PartInfo { name: "memory-1.safetensors".into(), length: 5, blake3: "00".into() },
        }),
        assignment(3, 4),
        Message::ToWorker(ToWorker::Abort {
            blame: Blame::Interrupted,
            message: "no".into(),
            fault: Some(fault.clone()),
        }),
        Message::ToWorker(ToWorker::Stop),
        Message::ToWorker(ToWorker::Done),
        Message::FromClient(FromClient::Submit {
            job: "x".into(),
            wish: Wish::fixed(4),
            survey: None,
        }),
        Message::FromClient(FromClient::Status),
        Message::ToClient(ToClient::Accepted { job_id: JobId(1) }),
        Message::ToClient(ToClient::failed(&failed)),
        Message::ToClient(ToClient::Failed {
            blame: Blame::Peer(None),
            message: "no".into(),
            hint: None,
            fault: Some(fault),
        }),
        Message::ToClient(ToClient::Status(status())),
    ];
    samples.extend(samples_of_change());
    samples
}

/// A flock of one member that waits for a second.
fn status() -> Status {
    Status {
        job_id: None,
        workers: 2,
        epoch: Epoch(3),
        patience_seconds: Some(600),
        waiting: Some(Shortage { have: 1, want: 2, seconds_left: 59.5 }),
        members: vec![MemberStatus {
            seat: None,
            host: "a".into(),
            pid: 1,
            standing: "waiting".into(),
            step: None,
            phase: String::new(),
            lag: Some(3),
            bytes: 9,
            busy_seconds: 11,
            patience_left_seconds: Some(589),
            heard_ms_ago: Some(40),
        }],
    }
}

/// What is said when members change.
fn samples_of_change() -> Vec<Message> {
    vec![
        Message::FromWorker(FromWorker::Return { member: 3, epoch: Epoch(1) }),
        Message::FromClient(FromClient::Return { job_id: JobId(5) }),
        Message::FromWorker(FromWorker::Prepared),
        Message::FromWorker(FromWorker::Leave),
        Message::ToWorker(ToWorker::Released),
        Message::ToWorker(ToWorker::Regroup(Box::new(Lineup {
            seat: Seat(1),
            epoch: Epoch(2),
            roster: vec![],
            deal: vec![vec![], vec![7]],
        }))),
    ]
}

#[test]
fn every_message_comes_back() {
    for message in samples() {
        let mut bytes = encode(&message);
        assert_eq!(decode(&bytes).unwrap(), message);
        bytes.push(0);
        assert!(decode(&bytes).is_err(), "a byte too many after {message:?}");
    }
}

#[test]
fn events_travel_inside_messages() {
    let events = [
        Event::Step {
            step: Step(1),
            epoch: 0,
            objective: Some(0.1 + 0.2),
            samples: 2,
            seconds: 0.5,
        },
        Event::Report(Box::new(Report { objective: 1.0 / 3.0, ..Report::default() })),
    ];
    for event in events {
        let message = decode(&encode(&Message::FromWorker(FromWorker::event(&event)))).unwrap();
        let Message::FromWorker(FromWorker::Event(text)) = message else { panic!("{message:?}") };
        assert_eq!(read_event(&text).unwrap(), event);
    }
    assert!(read_event("{\"event\":\"nonsense\"}").is_err());
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", assignment(1_000, 1));
    assert!(shown.contains("Token(secret)") && shown.contains("Bytes(1000 of them)"), "{shown}");
}

#[test]
fn a_long_message_is_cut_and_short_ones_pass_between_its_parts() {
    let long = assignment(3 * PART_BYTES + 17, 2);
    let parts = to_parts(&long).unwrap();
    assert_eq!(parts.len(), 4);
    assert!(parts.iter().all(|part| part.len() <= PART_HEADER_BYTES + PART_BYTES));
    let beat = Message::FromWorker(FromWorker::Finished { epoch: Epoch(2), holds: true });
    let short = to_parts(&beat).unwrap();
    let mut assembler = Assembler::new(MESSAGE_BYTES_MAX);
    for _ in 0..2 {
        for part in &parts[..3] {
            assert_eq!(assembler.push(part).unwrap(), None);
            assert_eq!(assembler.push(&short[0]).unwrap(), Some(beat.clone()));
        }
        assert_eq!(assembler.push(&parts[3]).unwrap(), Some(long.clone()));
    }
}

#[test]
fn parts_out_of_order_or_of_wrong_length_are_refused() {
    let parts = to_parts(&assignment(2 * PART_BYTES, 1)).unwrap();
    let fresh = || Assembler::new(MESSAGE_BYTES_MAX);
    assert!(fresh().push(&parts[1]).is_err(), "begins in the middle");
    let mut twice = fresh();
    twice.push(&parts[0]).unwrap();
    assert!(twice.push(&parts[0]).is_err(), "the same part twice");
    let mut count = fresh();
    count.push(&parts[0]).unwrap();
    let mut other = parts[1].clone();
    other[4] += 1;
    assert!(count.push(&other).is_err(), "another count");
    assert!(fresh().push(&parts[0][..100]).is_err(), "a part that is not full");
    let mut none = parts[0].clone();
    none[4..8].fill(0);
    for bytes in [&none[..], &[], &[0; 4], &[0; 8], &[0; 9], &[0, 0, 0, 0, 1, 0, 0, 0]] {
        assert!(fresh().push(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn messages_above_the_limit_are_refused_at_their_first_part() {
    let parts = to_parts(&assignment(2 * PART_BYTES, 1)).unwrap();
    assert!(Assembler::new(2 * PART_BYTES).push(&parts[0]).is_err());
    let mut announced = parts[0].clone();
    announced[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Assembler::new(MESSAGE_BYTES_MAX).push(&announced).is_err());
    let small = to_parts(&assignment(5_000, 1)).unwrap();
    assert!(Assembler::new(4_096).push(&small[0]).is_err());
    assert!(Assembler::new(8_192).push(&small[0]).unwrap().is_some());
    let mut exact = Assembler::new(parts.iter().map(|part| part.len() - PART_HEADER_BYTES).sum());
    let mut last = None;
    parts.iter().for_each(|part| last = exact.push(part).unwrap());
    assert!(last.is_some());
}

#[test]
fn another_version_is_named() {
    let mut bytes = encode(&Message::ToWorker(ToWorker::Done));
    bytes[0] = 9;
    let fault = decode(&bytes).unwrap_err();
    assert!(fault.message().contains("version 9"), "{fault}");
    assert_eq!(fault.blame(), Blame::Peer(None));
}

#[test]
fn a_huge_announced_length_takes_no_memory() {
    // "Ready" with a host of 2^60 bytes, and a roster and a survey of the same length.
    let mut long = vec![VERSION, 0, 0];
    long.extend([0x80; 8]);
    long.push(0x10);
    assert!(decode(&long).is_err());
    let mut longer = encode(&assignment(0, 0));
    let at = longer.len() - 1;
    longer.truncate(at);
    longer.extend([0x80; 8]);
    longer.push(0x10);
    assert!(decode(&longer).is_err());
    assert!(decode(&encode(&assignment(0, ROSTER_MAX + 1))).is_err());
    assert!(decode(&encode(&assignment(0, ROSTER_MAX))).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn hostile_bytes_never_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..64),
        which in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>())
    {
        let _ = decode(&noise);
        let mut versioned = vec![VERSION];
        versioned.extend(&noise);
        let _ = decode(&versioned);
        let _ = Assembler::new(1_000).push(&noise);
        let samples = samples();
        let mut bytes = encode(&samples[which.index(samples.len())]);
        let at = at.index(bytes.len());
        prop_assert!(decode(&bytes[..at]).is_err());
        bytes[at] = byte;
        // Whatever is accepted is a message that reads back as itself.
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&message)).unwrap(), message);
        }
    }
}
