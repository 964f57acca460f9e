//! What shared sums promise, with seats as threads of this process; `tests/shared_processes.rs` has real processes.

use super::layout::{Port, SEGMENT_BYTES, identity};
use super::{Circle, Identity, Numbers, NumbersMut, Offer, Patience, Segment, Tuning, View};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Result, Seat};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn identity_of(seat: u32) -> Identity {
    Identity { job: JobId(3), epoch: Epoch(2), seat: Seat(seat), nonce: 99 + u64::from(seat) }
}

fn segments(world: u32) -> Vec<Arc<Segment>> {
    (0..world).map(|seat| Arc::new(Segment::new(identity_of(seat)).unwrap())).collect()
}

fn circles(world: u32, tuning: Tuning) -> Vec<Circle> {
    let segments = segments(world);
    let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
    let circle = |mine: Arc<Segment>| Circle::new(mine, views.clone(), 0, 2).tuned(tuning);
    segments.into_iter().map(circle).collect()
}

fn patience(interrupted: &dyn Fn() -> Option<Fault>) -> Patience<'_> {
    Patience { by: Deadline::after_ms(20_000), interrupted }
}

/// Numbers whose sum depends on the order in which they are added.
fn awkward(seat: u32, at: usize) -> f32 {
    let sign = if (at + seat as usize).is_multiple_of(2) { 1.0 } else { -1.0 };
    sign * (1.0 + at as f32 * 1e-3) * 10f32.powi((seat as i32 * 5 + at as i32 * 3) % 9)
}

/// One seat's three blocks.
fn blocks(seat: u32, len: usize) -> (Vec<f32>, Vec<f64>, Vec<i64>) {
    let floats: Vec<f32> = (0..len).map(|at| awkward(seat, at)).collect();
    let doubles = floats.iter().rev().map(|&x| f64::from(x) * 1.1).collect();
    let whole = (0..len / 2).map(|at| i64::MAX / 2 + (at as i64) * i64::from(seat)).collect();
    (floats, doubles, whole)
}

type Blocks = (Vec<f32>, Vec<f64>, Vec<i64>);

fn run(circle: &mut Circle, (a, b, c): &Blocks) -> Result<Blocks> {
    let (mut x, mut y, mut z) = (vec![7.0; a.len()], vec![7.0; b.len()], vec![7; c.len()]);
    circle.sum(
        &[Numbers::F32(a), Numbers::F64(b), Numbers::I64(c)],
        &mut [NumbersMut::F32(&mut x), NumbersMut::F64(&mut y), NumbersMut::I64(&mut z)],
        &patience(&|| None),
    )?;
    Ok((x, y, z))
}

/// The documented order: the first seat's number, then the others' in the order of seats.
fn reference(world: u32, len: usize) -> Blocks {
    let (mut floats, mut doubles, mut whole) = blocks(0, len);
    for seat in 1..world {
        let (a, b, c) = blocks(seat, len);
        floats.iter_mut().zip(a).for_each(|(sum, x)| *sum += x);
        doubles.iter_mut().zip(b).for_each(|(sum, x)| *sum += x);
        whole.iter_mut().zip(c).for_each(|(sum, x)| *sum = sum.wrapping_add(x));
    }
    (floats, doubles, whole)
}

fn check_all(world: u32, tuning: Tuning, lens: &[usize]) {
    let mut circles = circles(world, tuning);
    std::thread::scope(|scope| {
        for (seat, circle) in circles.iter_mut().enumerate() {
            scope.spawn(move || {
                for &len in lens {
                    let mine = blocks(seat as u32, len);
                    let kept = mine.clone();
                    let sum = run(circle, &mine).unwrap();
                    assert!(sum == reference(world, len), "{world} seats, {len} numbers");
                    assert!(mine == kept, "a contribution changed");
                }
            });
        }
    });
}

#[test]
fn sums_have_the_documented_order_for_every_number_of_seats_and_length() {
    // Tiny chunks reach every boundary; the way of short and of long sums, and both kinds of stores.
    let lens = [0, 1, 2, 15, 16, 17, 63, 64, 65, 1000, 1023, 0, 5];
    for world in 1..=5 {
        for (flat_bytes_max, streamed_from) in
            [(0, 0), (0, usize::MAX), (usize::MAX, 0), (900, 900)]
        {
            check_all(world, Tuning { chunk_bytes: 256, flat_bytes_max, streamed_from }, &lens);
        }
    }
}

#[test]
fn sums_beyond_a_slot_are_right_as_found_best() {
    for world in [2, 3] {
        check_all(world, Tuning::default(), &[1000, 200_001, 3]);
    }
}

#[test]
fn both_ways_give_the_same_bits() {
    let sums: Vec<Blocks> = [0, usize::MAX]
        .into_iter()
        .map(|flat_bytes_max| {
            let tuning = Tuning { flat_bytes_max, ..Tuning::default() };
            let mut circles = circles(3, tuning);
            std::thread::scope(|scope| {
                let seats: Vec<_> = circles
                    .iter_mut()
                    .enumerate()
                    .map(|(seat, circle)| {
                        scope.spawn(move || run(circle, &blocks(seat as u32, 777)).unwrap())
                    })
                    .collect();
                seats.into_iter().map(|seat| seat.join().unwrap()).next_back().unwrap()
            })
        })
        .collect();
    assert!(sums[0] == sums[1]);
}

#[test]
fn an_absent_peer_is_named_at_the_deadline_and_an_abort_ends_the_wait_before() {
    let mut circle = circles(2, Tuning::default()).remove(0);
    let mut total = [0f32];
    let late = Patience { by: Deadline::after_ms(30), interrupted: &|| None };
    let fault =
        circle.sum(&[Numbers::F32(&[1.0])], &mut [NumbersMut::F32(&mut total)], &late).unwrap_err();
    assert_eq!(fault.blame(), Blame::Peer(Some(Seat(1))));
    assert!(fault.message().contains("waiting for the contribution of rank 1"), "{fault}");
    let again = circle.sum(&[], &mut [], &late).unwrap_err();
    assert!(again.message().contains("an earlier sum"), "{again}");

    let mut circle = circles(2, Tuning::default()).remove(0);
    let abort = || Some(Fault::peer(Some(Seat(5)), "rank 5 fell"));
    let fault = circle.sum(&[], &mut [], &patience(&abort)).unwrap_err();
    assert_eq!(fault.blame(), Blame::Peer(Some(Seat(5))));
}

#[test]
fn seats_that_sum_different_shapes_find_out() {
    let mut circles = circles(2, Tuning::default());
    let faults: Vec<Fault> = std::thread::scope(|scope| {
        let seats: Vec<_> = circles
            .iter_mut()
            .enumerate()
            .map(|(seat, circle)| {
                scope.spawn(move || run(circle, &blocks(0, 10 + seat)).unwrap_err())
            })
            .collect();
        seats.into_iter().map(|seat| seat.join().unwrap()).collect()
    });
    assert!(faults.iter().all(|fault| fault.message().contains("other blocks")), "{faults:?}");
}

/// Seats 1 and 2 are played by hand. While seat 0 waits for the slice of seat 2, seat 1, whose slice it has copied
/// already, comes back from the dead and writes.
#[test]
fn a_writer_that_changes_its_slot_during_the_fold_is_found() {
    for zombie_writes in [false, true] {
        let segments = segments(3);
        let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
        let tuning = Tuning { flat_bytes_max: 0, ..Tuning::default() };
        let mut circle = Circle::new(segments[0].clone(), views, 0, 2).tuned(tuning);
        let port = Port::new(0);
        let parts_shape =
            |segment: &Segment| segment.mapping().long(port.shape(0)).load(Ordering::SeqCst);
        let calls = AtomicUsize::new(0);
        let interrupted = || {
            let shape = parts_shape(&segments[0]);
            for segment in &segments[1..] {
                let memory = segment.mapping();
                memory.long(port.shape(0)).store(shape, Ordering::SeqCst);
                memory.long(port.sequence(0)).store(2, Ordering::SeqCst);
                memory.word(port.posted()).store(1, Ordering::SeqCst);
            }
            let totals = |segment: &Segment| {
                segment.mapping().long(port.total_sequence(0)).store(2, Ordering::SeqCst);
                segment.mapping().word(port.reduced()).store(1, Ordering::SeqCst);
            };
            totals(&segments[1]);
            if segments[0].mapping().word(port.reduced()).load(Ordering::SeqCst) == 1
                && calls.fetch_add(1, Ordering::SeqCst) > 1
            {
                if zombie_writes {
                    segments[1].mapping().long(port.total_sequence(0)).store(7, Ordering::SeqCst);
                }
                totals(&segments[2]);
            }
            None
        };
        let numbers = vec![1f32; 300];
        let mut total = vec![0f32; 300];
        let outcome = circle.sum(
            &[Numbers::F32(&numbers)],
            &mut [NumbersMut::F32(&mut total)],
            &patience(&interrupted),
        );
        match zombie_writes {
            false => outcome.unwrap(),
            true => {
                let fault = outcome.unwrap_err();
                assert_eq!(fault.blame(), Blame::Peer(Some(Seat(1))), "{fault}");
                assert!(fault.message().contains("rewrote"), "{fault}");
            }
        }
    }
}

#[test]
fn a_contribution_that_is_being_written_is_not_folded() {
    let segments = segments(2);
    let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
    let mut circle = Circle::new(segments[0].clone(), views, 0, 2);
    let (port, memory) = (Port::new(0), segments[1].mapping());
    memory.long(port.sequence(0)).store(1, Ordering::SeqCst);
    memory.word(port.posted()).store(1, Ordering::SeqCst);
    let fault = circle.sum(&[], &mut [], &patience(&|| None)).unwrap_err();
    assert!(fault.message().contains("rewrote"), "{fault}");
}

#[test]
fn a_segment_of_another_job_epoch_seat_or_nonce_is_refused() {
    let segment = Segment::new(identity_of(0)).unwrap();
    let offer = segment.offer();
    View::open(&offer).unwrap();
    let own = offer.identity;
    for identity in [
        Identity { job: JobId(4), ..own },
        Identity { epoch: Epoch(3), ..own },
        Identity { seat: Seat(1), ..own },
        Identity { nonce: 1, ..own },
    ] {
        let fault = View::open(&Offer { identity, ..offer }).unwrap_err();
        assert!(fault.message().contains("another"), "{fault}");
    }
    for wrong in [
        Offer { bytes: offer.bytes + 4096, ..offer },
        Offer { bytes: 1 << 60, ..offer },
        Offer { descriptor: 0, ..offer },
        Offer { descriptor: -1, ..offer },
        Offer { pid: 0, ..offer },
    ] {
        assert!(View::open(&wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_file_that_could_shrink_or_is_too_short_or_says_nonsense_is_refused() {
    let offer =
        |bytes| Offer { pid: 0, descriptor: 0, bytes, identity: identity_of(0), heap: None };
    let file = |bytes: u64, seals: SealFlags| {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        View::of_file(&file, &offer(bytes)).unwrap_err()
    };
    let still = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
    assert!(file(SEGMENT_BYTES as u64, SealFlags::empty()).contains("sealed"));
    assert!(file(SEGMENT_BYTES as u64, SealFlags::FUTURE_WRITE).contains("sealed"));
    assert!(file(SEGMENT_BYTES as u64, SealFlags::SHRINK).contains("sealed"));
    assert!(file(0, still).contains("bytes"));
    assert!(file(SEGMENT_BYTES as u64 - 1, still).contains("bytes"));
    assert!(file(SEGMENT_BYTES as u64, still).contains("another layout"));
    let plain = tempfile::tempfile().unwrap();
    assert!(View::of_file(&plain, &offer(0)).unwrap_err().contains("no memory file"));
}

#[test]
fn damage_to_any_word_of_the_identity_is_noticed() {
    for word in [identity::MAGIC, identity::LAYOUT, identity::JOB, identity::NONCE, identity::BYTES]
    {
        let segment = Segment::new(identity_of(0)).unwrap();
        segment.mapping().long(word).fetch_xor(1 << 9, Ordering::SeqCst);
        assert!(View::open(&segment.offer()).is_err(), "{word}");
    }
}

#[test]
fn nobody_but_the_owner_can_map_a_segment_for_writing() {
    let segment = Segment::new(identity_of(0)).unwrap();
    let Offer { pid, descriptor, bytes, .. } = segment.offer();
    let path = format!("/proc/{pid}/fd/{descriptor}");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    assert!(
        super::mapping::Mapping::of(&file, bytes as usize, super::mapping::Access::Write).is_err()
    );
    assert!(file.set_len(0).is_err() && file.set_len(bytes * 2).is_err());
}
