//! The courier over real memory nets: sums of buckets, their order on the wire, and what happens when a seat leaves.

use super::*;
use crate::bridge::adder::{PATIENCE, Perch, perches, perches_that, run_all};
use crate::choices::{Carriage, codec, raw, summing};
use starlings_core::{Rng, Values};
use starlings_data::{Dealer, Holding};
use starlings_learn::{Facts, Memory, Moment, NoWires, Outbox, Place, Work};
use std::sync::{Condvar, Mutex};

/// Numbers of f64 that fill a bucket.
const FULL: usize = BUCKET_BYTES / 8;

fn courier(perch: &Perch, topology: &str, tracer: Tracer) -> Courier {
    courier_by(perch, topology, raw(), &[], tracer)
}

/// A courier whose codec carries the blocks of these names.
fn courier_by(
    perch: &Perch,
    topology: &str,
    codec: Arc<dyn Codec>,
    named: &[&str],
    tracer: Tracer,
) -> Courier {
    let (net, world) = (perch.net.clone(), perch.net.world());
    let group = (0..world).map(Seat).collect();
    let shapes = named.iter().map(|name| (name.to_string(), (FULL, 1))).collect();
    let (topology, shapes) = (summing(topology, "").unwrap(), Arc::new(shapes));
    let patience = PATIENCE;
    Courier::start(Route { net, group, topology, codec, shapes, patience, tracer }).unwrap()
}

/// Blocks of a step, of many sizes: some are alone in a bucket, others share one.
fn blocks(seat: usize, step: u64) -> Vec<Block> {
    let mut rng = Rng::named(2, "blocks", &[seat as u64, step]);
    let lens = [10, FULL, 3 * FULL, 1, FULL / 2, FULL / 2, 7, FULL / 4];
    let block = |(at, len): (usize, usize)| {
        let numbers = (0..len).map(|_| rng.below(1000) as f64).collect();
        Block::dense(format!("block {at}"), numbers)
    };
    lens.into_iter().enumerate().map(block).collect()
}

/// One step through the courier: the sums of its buckets, and what stayed with the worker.
fn sum_step(courier: &mut Courier, blocks: Vec<Block>, step: u64) -> Result<(Vec<Update>, Update)> {
    let mut sink = courier.sink(Step(step));
    let sent = sink.sent();
    for block in blocks {
        assert_eq!(sink.take(block), None, "dense blocks are taken");
    }
    drop(sink);
    let (buckets, held) = {
        let mut sent = sent.lock().unwrap();
        (sent.buckets, std::mem::take(&mut sent.held))
    };
    Ok((courier.collect(buckets, Deadline::after(PATIENCE))?, held))
}

#[test]
fn sums_of_many_buckets_over_many_steps_are_plain_sums() {
    for (topology, world) in [("ring", 2), ("tree", 3), ("star", 4), ("halving-doubling", 3)] {
        let seats = perches(world);
        let all = run_all(&seats, |perch| {
            let mut courier = courier(&perch, topology, Tracer::default());
            let step = |step| sum_step(&mut courier, blocks(perch.seat(), step), step).unwrap();
            (0..4).map(step).collect::<Vec<_>>()
        });
        for step in 0..4 {
            let mut truth = Update { blocks: blocks(0, step) };
            for seat in 1..world as usize {
                truth.fold(&Update { blocks: blocks(seat, step) }).unwrap();
            }
            let names = |updates: &[Update]| -> Vec<Vec<String>> {
                let of = |update: &Update| update.blocks.iter().map(|b| b.name.clone()).collect();
                updates.iter().map(of).collect()
            };
            let (first, held) = &all[0][step as usize];
            assert!(first.len() > 2, "{} buckets", first.len());
            for each in &all {
                let (sums, _) = &each[step as usize];
                assert_eq!(names(sums), names(first), "{topology}: all make the same buckets");
                let blocks = sums.iter().flat_map(|sum| &sum.blocks);
                for (block, wanted) in blocks.zip(&truth.blocks) {
                    assert!(block == wanted, "{topology}: {} of step {step}", block.name);
                }
            }
            let summed: usize = first.iter().map(|sum| sum.blocks.len()).sum();
            assert_eq!(summed + held.blocks.len(), truth.blocks.len(), "nothing is left out");
            assert!(!held.blocks.is_empty(), "the last bucket stays with the worker");
        }
    }
}

#[test]
fn buckets_hold_gradients_of_few_digits_and_statistics_as_they_are() {
    let blocks = |seat: usize| -> Vec<Block> {
        let mut rng = Rng::named(3, "statistics", &[seat as u64]);
        let mut block = |name: &str| Block::dense(name, (0..FULL).map(|_| rng.normal()).collect());
        ["weight", "tracked.mean", "bias"].map(&mut block).into()
    };
    let half = || match codec("half", "").unwrap() {
        Carriage::Numbers(codec) => codec,
        _ => panic!("half encodes numbers"),
    };
    for topology in ["ring", "tree"] {
        let sums = |codec: fn() -> Arc<dyn Codec>| {
            let mut all = run_all(&perches(3), |perch| {
                let named = ["weight", "bias"];
                let codec = codec();
                let mut courier = courier_by(&perch, topology, codec, &named, Tracer::default());
                sum_step(&mut courier, blocks(perch.seat()), 0).unwrap().0
            });
            all.swap_remove(0)
        };
        let (exact, rounded) = (sums(raw), sums(half));
        assert_eq!(exact.len(), 2, "the last bucket stays");
        assert!(exact[0] != rounded[0], "{topology}: the gradient is rounded");
        assert!(exact[1] == rounded[1], "{topology}: the statistic is not");
    }
}

#[test]
fn buckets_that_are_summed_without_a_courier_are_its_own() {
    let names = |update: &Update| -> Vec<String> {
        update.blocks.iter().map(|block| block.name.clone()).collect()
    };
    for last in [1, 5, 6, 8] {
        let emitted: Vec<Block> = blocks(0, 0).into_iter().take(last).collect();
        let seats = perches(1);
        let mut courier = courier(&seats[0], "ring", Tracer::default());
        let (posted, held) = sum_step(&mut courier, emitted.clone(), 0).unwrap();
        let rows = Block::rows("rows", starlings_core::Rows::none(starlings_core::Kind::F64, 9, 2));
        let mut rest = Update { blocks: [&[rows][..], &emitted].concat() };
        let found = buckets(&mut rest);
        let (found, posted): (Vec<_>, Vec<_>) =
            (found.iter().map(names).collect(), posted.iter().map(names).collect());
        assert_eq!(found, posted, "of {last} blocks");
        assert_eq!(names(&rest), [names(&held), vec!["rows".to_string()]].concat());
    }
}

#[test]
fn blocks_that_differ_in_size_from_seat_to_seat_are_not_taken() {
    let seats = perches(2);
    let courier = courier(&seats[0], "ring", Tracer::default());
    let rows = starlings_core::Rows::none(Values::F64(vec![]).kind(), 5, 1);
    let block = Block::rows("rows", rows);
    assert_eq!(courier.sink(Step(0)).take(block.clone()), Some(block));
}

#[test]
fn a_seat_that_leaves_or_dies_is_a_fault_and_not_a_wait() {
    for (polite, world) in [(false, 2), (false, 3), (true, 2)] {
        let seats = perches(world);
        let faults = run_all(&seats, |perch| {
            let mut courier = courier(&perch, "ring", Tracer::default());
            // Seat 1 goes as soon as it has its first sum, whether or not the others have theirs.
            let first = sum_step(&mut courier, blocks(perch.seat(), 0), 0);
            if perch.seat() == 1 {
                first.unwrap();
                drop(courier);
                match polite {
                    true => perch.net.leave(),
                    false => perch.net.close(),
                }
                return None;
            }
            if let Err(fault) = first {
                return Some(fault);
            }
            let mut sink = courier.sink(Step(1));
            blocks(perch.seat(), 1).into_iter().for_each(|block| drop(sink.take(block)));
            // Who says goodbye is not lost: then the deadline of the worker ends the wait.
            let by = if polite { Deadline::after_ms(200) } else { Deadline::after(PATIENCE) };
            courier.collect(3, by).err()
        });
        assert!(faults[0].is_some() && faults[1].is_none(), "{faults:?}");
        let fault = faults[0].as_ref().unwrap();
        assert!(polite || fault.message().contains("rank 1"), "{fault}");
    }
}

/// A door that is shut until it is opened.
#[derive(Default)]
struct Door(Mutex<bool>, Condvar);

impl Door {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let shut = self.0.lock().unwrap();
        drop(self.1.wait_while(shut, |open| !*open).unwrap());
    }
}

#[test]
fn on_a_slow_link_the_younger_bucket_of_a_step_leaves_first() {
    let (knocked, door) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let (knocks, opens) = (knocked.clone(), door.clone());
    // Whatever seat 0 sends waits at the door.
    let seats = perches_that(2, move |seat, header| {
        if seat == 0 && header.kind == BUCKETS {
            knocks.open();
            opens.pass();
        }
    });
    let sums = run_all(&seats, |perch| {
        let mut courier = courier(&perch, "star", Tracer::default());
        let mut sink = courier.sink(Step(0));
        let numbers = |count: usize| vec![1.0; count * 2 * FULL];
        // Bucket 0 is of many chunks; bucket 1 leaves when it is full and another block comes.
        assert_eq!(sink.take(Block::dense("old", numbers(8))), None);
        assert_eq!(sink.take(Block::dense("young", numbers(4))), None);
        if perch.seat() == 0 {
            // The first chunk of the old bucket is at the door before there is a young one.
            knocked.pass();
        }
        assert_eq!(sink.take(Block::dense("last", numbers(1))), None);
        drop(sink);
        if perch.seat() == 0 {
            door.open();
        }
        courier.collect(2, Deadline::after(PATIENCE)).unwrap()
    });
    let mut truth = sums[0].clone();
    for block in truth.iter_mut().flat_map(|update| &mut update.blocks) {
        let Body::Dense(values) = &mut block.body else { panic!("dense blocks") };
        *values = Values::F64(vec![2.0; values.len()]);
    }
    assert!(sums[0] == truth && sums[1] == truth);
    let log = seats[0].log.lock().unwrap();
    let buckets: Vec<u64> =
        log.iter().filter(|(_, h)| h.kind == BUCKETS).map(|(_, h)| h.step.0).collect();
    let young = buckets.iter().position(|bucket| *bucket == 1).unwrap();
    assert_eq!(buckets[0], 0, "the old one was on its way");
    assert_eq!(young, 1, "and made way: {buckets:?}");
    let contributions = |bucket: u64| {
        let mine = move |(_, header): &&(Seat, Header)| {
            header.kind == BUCKETS && header.step.0 == bucket && header.tag & TOTAL == 0
        };
        log.iter().rposition(|entry| mine(&entry)).unwrap()
    };
    assert!(
        contributions(1) < contributions(0),
        "all of the young one left before the rest of the old"
    );
}

#[test]
fn of_two_steps_the_older_leaves_first() {
    let order = |urgencies: &[(u64, u64)]| {
        let outgoing = |(at, &(step, bucket)): (usize, &(u64, u64))| Outgoing {
            urgency: (std::cmp::Reverse(step), bucket),
            order: std::cmp::Reverse(at as u64),
            bucket,
            to: Seat(1),
            chunk: 0,
            total: false,
        };
        let mut heap: BinaryHeap<Outgoing> = urgencies.iter().enumerate().map(outgoing).collect();
        std::iter::from_fn(|| heap.pop().map(|outgoing| outgoing.bucket)).collect::<Vec<_>>()
    };
    assert_eq!(order(&[(1, 7), (0, 4), (0, 5), (1, 8)]), [5, 4, 8, 7]);
}

/// What a seat has come to, for others to wait for.
#[derive(Default)]
struct Mark {
    reached: Mutex<bool>,
    changed: Condvar,
}

impl Mark {
    fn reach(&self) {
        *self.reached.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let reached = self.reached.lock().unwrap();
        let waited = self.changed.wait_timeout_while(reached, PATIENCE, |reached| !*reached);
        assert!(*waited.unwrap().0, "it was never reached");
    }
}

/// A satchel beside which nothing more is computed before its first bucket is on its way.
struct Gated {
    inner: Satchel,
    begun: Arc<Mark>,
}

impl Sink for Gated {
    fn take(&mut self, block: Block) -> Option<Block> {
        self.inner.take(block)
    }

    fn pause(&mut self) {
        self.inner.pause();
        self.begun.wait();
    }
}

/// One step of a network on the rows of a seat, through a courier; and the spans that it left.
fn network_step(perch: &Perch, begun: &Arc<Mark>, computed: &Mark) -> Vec<starlings_core::Span> {
    let text = "hidden = [300, 300]".parse().unwrap();
    let choice = crate::job::Choice { name: "mlp".to_string(), given: text };
    let (_, learner, _) = crate::choices::learner(&choice).unwrap();
    let mut rng = Rng::named(3, "rows", &[perch.seat() as u64]);
    let values = (0..16 * 120).map(|_| rng.normal() as f32).collect();
    let labels = (0..16).map(|row| (row % 3) as f32).collect();
    let features = starlings_data::Features::Dense { width: 120, values };
    let table = Arc::new(starlings_data::Table::new(features, labels));
    let target = starlings_data::Target::Classes((0..3).map(|it| it.to_string()).collect());
    let encoding = starlings_data::Encoding::OneHot;
    let schema =
        starlings_data::Schema { columns: vec![], encoding, features: 120, target, label: None };
    let facts =
        Facts { rows: 32, schema, shards: 1, seed: 1, epochs: None, steps: None, batch: 32 };
    let model = learner.init(&facts, Place::WHOLE).unwrap();
    let tracer = Tracer::new(true);
    let mut courier = courier(perch, "ring", tracer.clone());
    let satchel = courier.sink(Step(0));
    let sent = satchel.sent();
    let mut outbox = Outbox::new();
    outbox.attach(Some(Box::new(Gated { inner: satchel, begun: begun.clone() })));
    let dealer = Dealer::new(Holding::whole(table, 1), 1, 32);
    let began = microseconds();
    learner
        .contribute(&mut Work {
            moment: Moment { step: Step(0), pass: 0, seed: 1, rows: 32 },
            place: Place::WHOLE,
            model: &model,
            batch: &dealer.everything(),
            memory: &mut Memory::new(),
            wires: &mut NoWires,
            outbox: &mut outbox,
        })
        .unwrap();
    tracer.ends("work", "computation", Step(0), began);
    computed.reach();
    drop(outbox.take());
    let buckets = sent.lock().unwrap().buckets;
    courier.collect(buckets, Deadline::after(PATIENCE)).unwrap();
    tracer.take()
}

#[test]
fn the_trace_of_a_network_shows_gradients_travelling_while_others_are_computed() {
    let marks: Arc<Vec<[Arc<Mark>; 2]>> = Arc::new((0..2).map(|_| Default::default()).collect());
    let asked = marks.clone();
    // The link is so slow that the first frame of a seat is not through before its computation is.
    let seats = perches_that(2, move |seat, header| {
        if (header.lane, header.kind) == (Lane::Exchange, BUCKETS) {
            let [begun, computed] = &asked[seat as usize];
            begun.reach();
            computed.wait();
        }
    });
    let traces = run_all(&seats, |perch| {
        let [begun, computed] = &marks[perch.seat()];
        network_step(&perch, begun, computed)
    });
    for spans in &traces {
        let of = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
        let (computed, summed) = (of("computation"), of("sum of a bucket"));
        let both = computed.to.min(summed.to).saturating_sub(computed.from.max(summed.from));
        assert!(both > 0 && computed.to <= summed.to, "{spans:?}");
    }
}
