//! The laws of [`Link`] as checks that any transport must pass. Give [`check`] a maker of connected pairs; it
//! panics with the law that was broken.

use crate::{Frame, Header, Lane, Link, LinkError, PAYLOAD_BYTES_MAX, Polled, Watch};
use starlings_core::{Deadline, Rng, Step};
use std::time::Duration;

/// Two connected ends.
pub type Pair = (Box<dyn Link>, Box<dyn Link>);

/// Checks all laws.
pub fn check(make: &dyn Fn() -> Pair) {
    frames_arrive_whole_and_in_order(make());
    empty_payloads_arrive(make());
    a_late_receive_keeps_its_deadline_and_loses_nothing(make());
    a_passed_deadline_still_takes_what_is_there(make());
    frames_sent_before_a_close_are_delivered_or_the_loss_is_reported(make());
    a_dropped_peer_is_reported_to_all_who_wait(make());
    closing_ends_waiting_calls_of_the_same_end(make());
    largest_frames_cross_in_both_directions_at_once(make());
    one_thread_at_each_end_may_send_and_receive_at_once(make());
    a_descriptor_tells_of_what_arrives_and_of_the_end(make());
    several_threads_may_send(make());
    sent_bytes_are_counted(make());
}

/// Far beyond what any check needs: a law that is broken fails, and does not hang.
const PATIENCE_MS: u64 = 20_000;

/// What a busy machine's scheduler may add to a wait.
const SCHEDULING_MS: u64 = 150;

fn patience() -> Deadline {
    Deadline::after_ms(PATIENCE_MS)
}

fn header(tag: u32) -> Header {
    let lane = Lane::ALL[tag as usize % Lane::ALL.len()];
    Header { lane, kind: (tag % 251) as u8, step: Step(u64::from(tag) << 32), tag }
}

fn payload(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::named(seed, "conformance", &[]);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.flatten().take(length).collect()
}

fn send(link: &dyn Link, tag: u32, payload: &[u8]) {
    link.send(header(tag), payload, patience()).expect("a send to a peer that reads succeeds");
}

fn receive(link: &dyn Link) -> Frame {
    link.receive(patience()).expect("a frame that was sent arrives")
}

fn is_lost<T>(result: &Result<T, LinkError>) -> bool {
    matches!(result, Err(LinkError::Lost(_)))
}

fn frames_arrive_whole_and_in_order((left, right): Pair) {
    let lengths = [1, 47, 48, 49, 4096, 65_536, 32_767, 100_003, 3, 1_500_000, 7];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (tag, &length) in lengths.iter().enumerate() {
                send(&*left, tag as u32, &payload(length, tag as u64));
            }
        });
        for (tag, &length) in lengths.iter().enumerate() {
            let frame = receive(&*right);
            assert_eq!(frame.header, header(tag as u32), "headers arrive in order");
            assert!(frame.payload == payload(length, tag as u64), "frame {tag} arrives whole");
        }
    });
}

fn empty_payloads_arrive((left, right): Pair) {
    for tag in 0..3 {
        send(&*right, tag, b"");
    }
    for tag in 0..3 {
        assert_eq!(receive(&*left), Frame { header: header(tag), payload: Vec::new() });
    }
}

fn a_late_receive_keeps_its_deadline_and_loses_nothing((left, right): Pair) {
    let by = Deadline::after_ms(100);
    let latest = Deadline::after_ms(110 + SCHEDULING_MS);
    assert_eq!(right.receive(by), Err(LinkError::Deadline), "nothing was sent");
    assert!(by.passed(), "a receive waits until its deadline");
    assert!(!latest.passed(), "a receive ends at most 10 % after its deadline");
    send(&*left, 5, b"later");
    assert_eq!(receive(&*right).payload, b"later", "after a deadline the link still works");
}

fn a_passed_deadline_still_takes_what_is_there((left, right): Pair) {
    send(&*left, 0, b"one");
    send(&*left, 1, b"two");
    assert_eq!(receive(&*right).payload, b"one");
    // The second frame may still be on its way: asking again must find it.
    let end = patience();
    loop {
        match right.receive(Deadline::after_ms(0)) {
            Ok(frame) => return assert_eq!(frame.payload, b"two"),
            Err(error) => assert_eq!(error, LinkError::Deadline),
        }
        assert!(!end.passed(), "a frame that has arrived is taken although the deadline passed");
    }
}

fn frames_sent_before_a_close_are_delivered_or_the_loss_is_reported((left, right): Pair) {
    for tag in 0..3 {
        send(&*left, tag, b"last words");
    }
    left.close();
    let mut delivered = 0;
    let ended = loop {
        match right.receive(patience()) {
            Ok(frame) => assert_eq!(frame.header.tag, delivered, "in order, none twice"),
            Err(error) => break error,
        }
        delivered += 1;
    };
    assert!(delivered <= 3, "no frame is invented");
    assert!(matches!(ended, LinkError::Lost(_)), "a closed link is lost, not {ended:?}");
    assert!(is_lost(&right.receive(patience())), "lost is final for receives");
    assert!(is_lost(&right.send(header(0), b"x", patience())), "lost is final for sends");
    assert!(is_lost(&left.receive(patience())), "the end that closed is lost, too");
    assert!(is_lost(&left.send(header(0), b"x", patience())), "the end that closed cannot send");
}

fn a_dropped_peer_is_reported_to_all_who_wait((left, right): Pair) {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| right.receive(patience()));
        drop(left);
        assert!(is_lost(&waiting.join().expect("a receive does not panic")), "the peer is gone");
    });
    // A kernel may take some frames before it learns of the loss, but not for ever.
    let end = patience();
    while !is_lost(&right.send(header(0), &[0; 1000], patience())) {
        assert!(!end.passed(), "sends to a peer that is gone fail in the end");
    }
}

fn closing_ends_waiting_calls_of_the_same_end((left, right): Pair) {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| right.receive(patience()));
        right.close();
        let ended = waiting.join().expect("a receive does not panic");
        assert!(is_lost(&ended), "closing ends a waiting receive");
    });
    drop(left);
}

fn largest_frames_cross_in_both_directions_at_once((left, right): Pair) {
    const FRAMES: u32 = 4;
    let body = payload(PAYLOAD_BYTES_MAX, 1);
    std::thread::scope(|scope| {
        for (link, other) in [(&left, &right), (&right, &left)] {
            let body = &body;
            scope.spawn(move || (0..FRAMES).for_each(|tag| send(&**link, tag, body)));
            scope.spawn(move || {
                for tag in 0..FRAMES {
                    let frame = receive(&**other);
                    assert_eq!(frame.header.tag, tag);
                    assert!(frame.payload == *body, "a largest frame arrives whole");
                }
            });
        }
    });
}

/// For links that are polled: whoever reads while it has no room to send is never held up by a peer that sends.
fn one_thread_at_each_end_may_send_and_receive_at_once((left, right): Pair) {
    const FRAMES: u32 = 6;
    let (Some(left), Some(right)) = (left.polled(), right.polled()) else { return };
    let body = payload(PAYLOAD_BYTES_MAX, 2);
    let exchange = |link: &dyn Polled| {
        let mut tags = Vec::new();
        let mut take = || match link.receive_now().expect("the peer is there") {
            Some(frame) => {
                assert!(frame.payload == body, "a largest frame arrives whole");
                tags.push(frame.header.tag);
                link.recycle(frame.payload);
            }
            None => link.await_room(Duration::from_millis(1)),
        };
        for tag in 0..FRAMES {
            let sent = link.send_meanwhile(header(tag), &body, patience(), &mut take);
            sent.expect("there is room once both ends read");
        }
        while tags.len() < FRAMES as usize {
            tags.push(receive(link).header.tag);
        }
        assert_eq!(tags, (0..FRAMES).collect::<Vec<u32>>(), "in order, each once");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| exchange(left));
        scope.spawn(|| exchange(right));
    });
}

/// For links that are polled.
fn a_descriptor_tells_of_what_arrives_and_of_the_end((left, right): Pair) {
    let Some(polled) = right.polled() else { return };
    let watch = Watch::new().expect("a descriptor is left");
    let mut ready = Vec::new();
    let mut wait = |time_ms| {
        let time = Duration::from_millis(time_ms);
        watch.wait([polled].into_iter(), None, &mut ready, time).expect("the system can wait");
        !ready.is_empty()
    };
    assert_eq!(polled.receive_now(), Ok(None), "nothing was sent");
    assert!(!wait(0), "nothing was sent");
    watch.wake();
    assert!(!wait(PATIENCE_MS), "a call ends the wait");
    send(&*left, 0, &[7; 100]);
    assert!(wait(PATIENCE_MS), "a frame has arrived");
    // A part of it may arrive before the rest.
    let frame = std::iter::repeat_with(|| polled.receive_now()).find_map(|now| now.transpose());
    assert_eq!(frame.map(|frame| frame.map(|frame| frame.payload)), Some(Ok(vec![7; 100])));
    assert_eq!(polled.receive_now(), Ok(None), "once");
    left.close();
    assert!(wait(PATIENCE_MS), "the end is something to read, too");
    assert!(is_lost(&polled.receive_now()), "the peer is gone");
}

fn several_threads_may_send((left, right): Pair) {
    const SENDERS: u32 = 4;
    const FRAMES: u32 = 100;
    let length = |number: u32| number as usize * 97 % 5000;
    std::thread::scope(|scope| {
        for sender in 0..SENDERS {
            let left = &*left;
            scope.spawn(move || {
                for number in 0..FRAMES {
                    let body = payload(length(number), u64::from(sender));
                    send(left, sender * FRAMES + number, &body);
                }
            });
        }
        let mut next = [0; SENDERS as usize];
        for _ in 0..SENDERS * FRAMES {
            let frame = receive(&*right);
            let (sender, number) = (frame.header.tag / FRAMES, frame.header.tag % FRAMES);
            let due = &mut next[sender as usize];
            assert_eq!(number, *due, "each thread's frames stay in its order");
            *due += 1;
            assert!(frame.payload == payload(length(number), u64::from(sender)), "none mix");
        }
    });
}

fn sent_bytes_are_counted((left, right): Pair) {
    assert_eq!(left.bytes_sent(), 0);
    send(&*left, 0, &[0; 100]);
    send(&*left, 1, b"");
    assert_eq!(left.bytes_sent(), 2 * crate::HEADER_BYTES as u64 + 100, "headers count");
    assert_eq!(right.bytes_sent(), 0, "what arrives does not count");
}
