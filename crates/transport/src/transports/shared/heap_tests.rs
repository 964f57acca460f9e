//! What the heap and sums of what lies in it promise. Seats are threads here; `tests/shared_processes.rs` has processes.

use super::super::layout::{Port, SLOT_BYTES, SLOTS, WITHDRAWN};
use super::super::{Circle, Identity, Numbers, NumbersMut, Patience, Segment, Tuning, View};
use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Rng, Seat};

/// Of all tests of this crate.
#[global_allocator]
static ALLOCATOR: NearbyAllocator<std::alloc::System> = NearbyAllocator(std::alloc::System);

const BYTES: usize = 256 << 20;

fn segment(seat: u32) -> Arc<Segment> {
    let identity = Identity { job: JobId(1), epoch: Epoch(0), seat: Seat(seat), nonce: 5 };
    let segment = Segment::new(identity).unwrap().with_heap(BYTES);
    assert!(segment.view().has_heap());
    Arc::new(segment)
}

fn is_here<T>(values: &[T]) -> bool {
    offset_of(values.as_ptr().cast()).is_some()
}

#[test]
fn every_size_has_a_block_that_is_just_large_enough() {
    for bytes in (LARGE..4 << 20).step_by(4001).chain([LARGE, LARGEST, LARGEST - 1]) {
        let at = size_of(bytes).unwrap();
        assert!(bytes_of(at) >= bytes && bytes_of(at).is_multiple_of(PAGE), "{bytes}");
        assert!(at == 0 || bytes_of(at - 1) < bytes, "{bytes} would have fitted a smaller one");
        assert!(at < SIZES);
    }
    assert_eq!((size_of(LARGE - 1), size_of(LARGEST + 1)), (None, None));
}

#[test]
fn only_large_vectors_that_are_made_to_be_contributed_lie_here() {
    segment(0);
    assert!(is_here(&contributing(|| vec![1_u8; LARGE])));
    assert!(!is_here(&contributing(|| vec![1_u8; LARGE - 1])));
    assert!(!is_here(&vec![1_u8; LARGE]));
    assert!(!is_here(&contributing(|| Vec::<u8>::with_capacity(LARGEST + 1))));
}

#[test]
fn what_was_used_before_is_zero_where_zeros_are_asked_for() {
    segment(0);
    // Of a size that no other test has.
    let len = LARGE * 5 + 11;
    let old = contributing(|| vec![7_u8; len]);
    let place = old.as_ptr();
    drop(old);
    let new = contributing(|| vec![0_u8; len]);
    assert_eq!(new.as_ptr(), place, "a block that was given back serves again");
    assert!(new.iter().all(|&byte| byte == 0));
}

#[test]
fn vectors_that_grow_keep_what_they_hold_and_find_their_way_back() {
    segment(0);
    let mut grown: Vec<u64> = contributing(|| (0..LARGE as u64).collect());
    assert!(is_here(&grown));
    // Not contributing any more: it moves to the other allocator, and from there nowhere else.
    grown.extend(LARGE as u64..4 * LARGE as u64);
    assert!(!is_here(&grown) && grown.iter().copied().eq(0..4 * LARGE as u64));
    contributing(|| grown.reserve_exact(8 * LARGE));
    assert!(grown.iter().copied().eq(0..4 * LARGE as u64));
    grown.truncate(LARGE);
    grown.shrink_to_fit();
    assert!(grown.into_iter().eq(0..LARGE as u64));
}

#[test]
fn threads_never_get_the_same_block() {
    segment(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut rng = Rng::named(thread, "blocks", &[]);
                let mut held: Vec<Vec<u64>> = Vec::new();
                for round in 0..400 {
                    let len = LARGE / 8 + rng.below(40_000) as usize;
                    held.push(contributing(|| vec![thread << 32 | round; len]));
                    assert!(is_here(held.last().unwrap()));
                    if held.len() > 6 {
                        let given = held.swap_remove(rng.below(7) as usize);
                        assert!(given.iter().all(|&mark| mark == given[0]), "written by others");
                    }
                }
            });
        }
    });
}

#[test]
fn a_full_heap_leaves_all_else_to_the_other_allocator() {
    segment(0);
    let (fits, too_large) =
        contributing(|| (vec![1_u8; LARGE], Vec::<u8>::with_capacity(2 * BYTES)));
    assert!(is_here(&fits) && offset_of(too_large.as_ptr()).is_none());
}

/// Numbers whose sum depends on the order in which they are added.
fn awkward(seat: u32, at: usize) -> f32 {
    let sign = if (at + seat as usize).is_multiple_of(2) { 1.0 } else { -1.0 };
    sign * (1.0 + at as f32 * 1e-3) * 10f32.powi((seat as i32 * 5 + at as i32 * 3) % 9)
}

/// A large part, a small one and a large one of another kind.
fn contribution(seat: u32, len: usize) -> (Vec<f32>, Vec<f32>, Vec<f64>) {
    let large: Vec<f32> = (0..len).map(|at| awkward(seat, at)).collect();
    let doubles = large.iter().map(|&number| f64::from(number) * 1.1).collect();
    (large.clone(), large[..7].to_vec(), doubles)
}

/// The documented order.
fn reference(world: u32, len: usize) -> (Vec<f32>, Vec<f32>, Vec<f64>) {
    let mut sum = contribution(0, len);
    for seat in 1..world {
        let (a, b, c) = contribution(seat, len);
        sum.0.iter_mut().zip(a).for_each(|(sum, x)| *sum += x);
        sum.1.iter_mut().zip(b).for_each(|(sum, x)| *sum += x);
        sum.2.iter_mut().zip(c).for_each(|(sum, x)| *sum += x);
    }
    sum
}

fn patience(interrupted: &dyn Fn() -> Option<Fault>) -> Patience<'_> {
    Patience { by: Deadline::after_ms(20_000), interrupted }
}

/// Which seats lend contributions, and which totals.
type Lends = fn(u32) -> (bool, bool);

fn some<T>(is_lent: bool, make: impl FnOnce() -> T) -> T {
    if is_lent { contributing(make) } else { make() }
}

/// One seat's sum, which must be as documented.
fn sum(circle: &mut Circle, (seat, world): (u32, u32), len: usize, (mine, total): (bool, bool)) {
    let (a, b, c) = some(mine, || contribution(seat, len));
    assert_eq!(is_here(&a) && is_here(&c), mine);
    let (mut x, mut y, mut z) = some(total, || (vec![7.0; len], vec![7.0; 7], vec![7.0; len]));
    circle
        .sum(
            &[Numbers::F32(&a), Numbers::F32(&b), Numbers::F64(&c)],
            &mut [NumbersMut::F32(&mut x), NumbersMut::F32(&mut y), NumbersMut::F64(&mut z)],
            &patience(&|| None),
        )
        .unwrap();
    assert!((x, y, z) == reference(world, len), "{world} seats, seat {seat}, {len}");
    assert!((a, b, c) == contribution(seat, len), "a contribution changed");
}

#[test]
fn sums_are_the_same_whoever_lends_what() {
    let lends: [Lends; 4] = [
        |_| (true, true),
        |seat| (seat == 0, seat != 0),
        |seat| (seat.is_multiple_of(2), false),
        |seat| (seat == 1, true),
    ];
    for (world, streamed_from, chunk_bytes) in
        [(2, usize::MAX, SLOT_BYTES), (3, 0, 4096), (4, usize::MAX, 64 << 10)]
    {
        let tuning = Tuning { chunk_bytes, flat_bytes_max: 0, streamed_from };
        let segments: Vec<Arc<Segment>> = (0..world).map(segment).collect();
        let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
        std::thread::scope(|scope| {
            for (seat, mine) in (0..world).zip(&segments) {
                let views = views.clone();
                scope.spawn(move || {
                    let circle = Circle::new(mine.clone(), views, 0, 2).tuned(tuning);
                    let mut circle = circle.lending(true);
                    for (lends, len) in lends.into_iter().zip([16_384, 30_001, 100_000, 17_000]) {
                        sum(&mut circle, (seat, world), len, lends(seat));
                        sum(&mut circle, (seat, world), 9, (false, false));
                    }
                });
            }
        });
    }
}

#[test]
fn what_is_lent_is_not_copied() {
    let segments: Vec<Arc<Segment>> = (0..2).map(segment).collect();
    let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
    std::thread::scope(|scope| {
        for (seat, mine) in (0..2).zip(&segments) {
            let views = views.clone();
            scope.spawn(move || {
                let mut circle = Circle::new(mine.clone(), views, 0, 2).lending(true);
                let ones = contributing(|| vec![1f32; 500_000]);
                let mut total = contributing(|| vec![0f32; 500_000]);
                let into = &mut [NumbersMut::F32(&mut total)];
                circle.sum(&[Numbers::F32(&ones)], into, &patience(&|| None)).unwrap();
                assert!(total.iter().all(|&number| number == 2.0), "seat {seat}");
            });
        }
    });
    for (segment, at) in segments.iter().flat_map(|segment| (0..SLOTS).map(move |at| (segment, at)))
    {
        let slot = Port::new(0).numbers(at as u64);
        let words = (slot..slot + SLOT_BYTES).step_by(8);
        let mut words = words.map(|at| segment.mapping().long(at).load(Ordering::Relaxed));
        assert!(words.all(|word| word == 0), "something lies in a slot");
    }
}

/// Seat 1 is played by hand: it lends a part of 100,000 numbers at a place, and says so with a sequence.
fn against(place: u64, sequence: u64) -> Fault {
    let segments: Vec<Arc<Segment>> = (0..2).map(segment).collect();
    let views: Vec<View> = segments.iter().map(|segment| segment.view()).collect();
    let mut circle = Circle::new(segments[0].clone(), views, 0, 2).lending(true);
    let (port, memory) = (Port::new(0), segments[1].mapping());
    let interrupted = || {
        let shape = segments[0].mapping().long(port.shape(0)).load(Ordering::SeqCst);
        memory.long(port.shape(0)).store(shape, Ordering::SeqCst);
        memory.long(port.is_lent(0)).store(1, Ordering::SeqCst);
        memory.long(port.lent(0).0).store(place, Ordering::SeqCst);
        memory.long(port.sequence(0)).store(sequence, Ordering::SeqCst);
        memory.word(port.posted()).store(1, Ordering::SeqCst);
        None
    };
    let ones = contributing(|| vec![1f32; 100_000]);
    let mut total = contributing(|| vec![0f32; 100_000]);
    let into = &mut [NumbersMut::F32(&mut total)];
    let fault = circle.sum(&[Numbers::F32(&ones)], into, &patience(&interrupted)).unwrap_err();
    // Whoever still reads what this seat has lent must find that out.
    for slot in 0..SLOTS as u64 {
        for place in [port.sequence(slot), port.total_sequence(slot)] {
            let sequence = segments[0].mapping().long(place).load(Ordering::SeqCst);
            assert_eq!(sequence, WITHDRAWN, "a sum that failed was not given up");
        }
    }
    fault
}

#[test]
fn a_peer_that_lends_what_is_not_in_its_heap_is_named() {
    for place in [64, FIRST as u64 + 1, BYTES as u64 - 64, BYTES as u64, u64::MAX - 63] {
        let fault = against(place, 2);
        assert!(fault.message().contains("not in its heap"), "{place}: {fault}");
        assert_eq!(fault.blame(), Blame::Peer(Some(Seat(1))));
    }
}

#[test]
fn a_peer_that_gives_a_sum_up_is_not_blamed_for_it() {
    let fault = against(FIRST as u64, WITHDRAWN);
    assert!(fault.message().contains("gave up"), "{fault}");
    assert_eq!(fault.blame(), Blame::Peer(None));
}

#[test]
fn a_heap_that_could_shrink_or_is_not_what_was_offered_is_refused() {
    let offer = segment(0).offer();
    let heap = offer.heap.unwrap();
    let read = view(offer.pid, &heap).unwrap();
    let numbers = contributing(|| vec![3_u64; LARGE]);
    let at = offset_of(numbers.as_ptr().cast()).unwrap();
    assert_eq!(read.long(at + 8).load(Ordering::Relaxed), 3, "another mapping of the same numbers");
    for wrong in [
        HeapOffer { bytes: heap.bytes + 4096, ..heap },
        HeapOffer { nonce: heap.nonce ^ 1, ..heap },
        HeapOffer { descriptor: -1, ..heap },
        HeapOffer { descriptor: 0, ..heap },
    ] {
        assert!(view(offer.pid, &wrong).is_none(), "{wrong:?}");
    }
    let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, heap.bytes).unwrap();
    assert!(view_of_file(&file, &heap).is_none(), "it is not sealed");
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).unwrap();
    assert!(view_of_file(&file, &heap).is_none(), "it says nothing of itself");
}
