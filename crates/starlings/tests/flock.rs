//! A flock for a caller's own loop: sums, broadcasts, the shared table, and what a death looks like.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{Blame, Block, Flock, FlockHost, FlockOptions, Result, Rows, Values, gate, rule};
use std::sync::Arc;

/// Runs the same loop on `members` threads of this process, joined over TCP as real members are.
fn fly<T: Send>(members: u32, work: impl Fn(Flock) -> Result<T> + Sync) -> Vec<Result<T>> {
    fly_with(FlockHost::start(members).unwrap(), members, work)
}

fn fly_with<T: Send>(
    host: FlockHost,
    members: u32,
    work: impl Fn(Flock) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let options = FlockOptions::new(&host.address().to_string(), host.ticket().clone()).unwrap();
    let results = std::thread::scope(|scope| {
        let member = || scope.spawn(|| work(Flock::join(&options)?));
        let threads: Vec<_> = (0..members).map(|_| member()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(host);
    results
}

#[test]
fn members_sum_and_hear_rank_zero() {
    let results = fly(3, |mut flock| {
        let rank = f64::from(flock.seat().0);
        let mut sums = Vec::new();
        flock.merge(&mut vec![Block::dense("sum", vec![rank, 1.0])], &mut sums)?;
        let mut word = vec![Block::dense("word", vec![rank + 7.0])];
        flock.broadcast(&mut word)?;
        let rows = flock.lease_rows(10);
        flock.leave()?;
        Ok((sums[0].f64s().to_vec(), word[0].f64s()[0], rows))
    });
    let mut leased = Vec::new();
    for result in results {
        let (sum, word, rows) = result.unwrap();
        assert_eq!((sum, word), (vec![3.0, 3.0], 7.0));
        leased.extend(rows);
    }
    leased.sort_unstable();
    assert_eq!(leased, (0..10).collect::<Vec<u64>>());
}

#[test]
fn pushes_add_up_at_the_owners_of_the_table() {
    let results = fly(3, |mut flock| {
        flock.open_table((5, 2), gate("bsp", "")?, rule("sum", "")?)?;
        for _ in 0..4 {
            let values = Values::F64(vec![1.0, 10.0, 1.0, 10.0]);
            flock.push(Rows { total: 5, width: 2, index: vec![1, 4], values })?;
        }
        let rows = flock.pull(&[0, 1, 4])?;
        flock.leave()?;
        Ok(rows.values.as_f64().unwrap().to_vec())
    });
    for result in results {
        assert_eq!(result.unwrap(), [0.0, 0.0, 12.0, 120.0, 12.0, 120.0]);
    }
}

#[test]
fn owners_apply_the_rule_that_was_chosen() {
    let results = fly(2, |mut flock| {
        flock.open_table((4, 1), gate("bsp", "")?, rule("adagrad", "learning_rate = 0.5")?)?;
        for _ in 0..2 {
            let values = Values::F64(vec![1.5]);
            flock.push(Rows { total: 4, width: 1, index: vec![3], values })?;
        }
        let rows = flock.pull(&[2, 3])?;
        flock.leave()?;
        Ok(rows.values.as_f64().unwrap().to_vec())
    });
    for result in results {
        // Twice a gradient of 3 from both members together: steps of 0.5 and of 0.5/√2.
        let found = result.unwrap();
        assert_eq!(found[0], 0.0);
        assert!((found[1] + 0.5 + 0.5 / 2f64.sqrt()).abs() < 1e-9, "{found:?}");
    }
}

#[test]
fn a_shuffle_brings_everyone_what_the_others_had_for_it() {
    let results = fly(3, |mut flock| {
        let me = flock.seat().0;
        let parts = (0..3u32).map(|to| vec![me as u8, to as u8, 7][..to as usize + 1].to_vec());
        let received = flock.shuffle(parts.collect())?;
        let refused = flock.shuffle(vec![Vec::new()]).is_err();
        flock.leave()?;
        Ok((me, received, refused))
    });
    for result in results {
        let (me, received, refused) = result.unwrap();
        let expected: Vec<Vec<u8>> = (0..3u32)
            .map(|from| vec![from as u8, me as u8, 7][..me as usize + 1].to_vec())
            .collect();
        assert_eq!((received, refused), (expected, true));
    }
}

#[test]
fn a_member_that_vanishes_is_named_to_the_others() {
    let results = fly_with(FlockHost::mortal(3).unwrap(), 3, |mut flock| {
        let (mut blocks, mut sums) = (vec![Block::dense("sum", vec![1.0])], Vec::new());
        flock.merge(&mut blocks, &mut sums)?;
        if flock.seat().0 == 1 {
            // Dropped without leaving: to the others it is a death.
            return Ok(());
        }
        flock.merge(&mut blocks, &mut sums).and(flock.leave())
    });
    let faults: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert_eq!(faults.len(), 2);
    for fault in faults {
        assert!(matches!(fault.blame(), Blame::Peer(_)), "{fault}");
        assert!(fault.to_string().contains("rank 1"), "{fault}");
    }
}

#[test]
fn misuse_is_refused() {
    let results = fly(1, |mut flock| {
        let early = flock.pull(&[0]).unwrap_err();
        assert!(early.to_string().contains("open_table"), "{early}");
        let free: Arc<_> = gate("async", "")?;
        flock.open_table((2, 1), free.clone(), rule("sum", "")?)?;
        assert!(flock.open_table((2, 1), free, rule("sum", "")?).is_err());
        assert!(flock.pull(&[2]).is_err() && flock.pull(&[1, 0]).is_err());
        flock.leave()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// The ways to sum in a loop of one's own.
#[derive(Clone, Copy)]
enum Way {
    Into,
    Made,
}

#[test]
fn sums_go_into_the_memory_that_is_given_and_contributions_stay() {
    for members in [1, 2] {
        let results = fly(members, |mut flock| {
            let mut blocks =
                vec![Block::dense("sum", vec![1.5; 200_000]), Block::dense("b", vec![2.0])];
            let (before, mut sums) = (blocks.clone(), Vec::new());
            flock.merge(&mut blocks, &mut sums)?;
            let place = sums[0].f64s().as_ptr();
            // Whoever gives the sums back gets the next ones in the same memory, over and over.
            for _ in 0..3 {
                flock.merge(&mut blocks, &mut sums)?;
                assert!(blocks == before, "contributions changed");
                assert_eq!(sums[0].f64s().as_ptr(), place);
                assert!(sums[0].f64s().iter().all(|sum| *sum == 1.5 * f64::from(members)));
                assert_eq!(sums[1].f64s(), [2.0 * f64::from(members)]);
            }
            flock.leave()
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

/// Members vanish one after another, before, between and inside sums: the others finish the same sum, hold the same bits,
/// and know whose contributions are in it. Rank i contributes 2^i, so that a sum names its contributors.
#[test]
fn sums_are_finished_by_those_who_are_left_and_name_their_contributors() {
    let ways = [Way::Into, Way::Made];
    for (size, way) in ways.into_iter().flat_map(|way| [(3, way), (100_000, way)]) {
        let results = fly(4, |mut flock| {
            let first = flock.seat().0;
            let (mut sums, mut room) = (Vec::new(), Vec::new());
            for round in 0..12u32 {
                // Rank 1 goes after three rounds, rank 3 after six, rank 0 after nine.
                if [9, 3, 99, 6][first as usize] == round {
                    return Ok((first, sums));
                }
                let make = || {
                    let mut numbers = vec![f64::from(round); size];
                    numbers[0] = f64::from(1 << first);
                    vec![Block::dense("sum", numbers)]
                };
                match way {
                    Way::Into => {
                        let mut blocks = make();
                        flock.merge(&mut blocks, &mut room)?;
                        assert_eq!(blocks, make(), "what was contributed stays as it is");
                    }
                    Way::Made => room = flock.merge_made(make)?,
                }
                let sum = room[0].f64s();
                let members = flock.participants().iter().map(|seat| 1 << seat.0).sum::<u32>();
                assert_eq!(sum[0], f64::from(members), "{:?}", flock.participants());
                let count = flock.participants().len() as f64;
                assert!(sum[1..].iter().all(|x| *x == f64::from(round) * count), "round {round}");
                sums.push(members);
            }
            flock.leave()?;
            Ok((first, sums))
        });
        let mut histories: Vec<(u32, Vec<u32>)> =
            results.into_iter().map(|result| result.unwrap()).collect();
        histories.sort();
        let last = histories[2].1.clone();
        assert_eq!(last.len(), 12);
        for (rank, history) in &histories {
            assert_eq!(*history, last[..history.len()], "rank {rank} saw other sums");
        }
        assert_eq!((last[0], last[11]), (0b1111, 0b0100));
        assert!(last.windows(2).all(|pair| pair[1] & !pair[0] == 0), "{last:?}");
    }
}

#[test]
fn what_rank_zero_says_is_heard_though_it_vanishes_and_another_takes_its_place() {
    let results = fly(3, |mut flock| {
        let first = flock.seat().0;
        let mut word = vec![Block::dense("word", vec![f64::from(first) + 7.0])];
        // Whoever vanishes before all are linked ends the flock before it begins.
        flock.merge(&mut vec![Block::dense("here", vec![1.0])], &mut Vec::new())?;
        if first == 0 {
            return Ok(7.0);
        }
        flock.broadcast(&mut word)?;
        flock.leave()?;
        Ok(word[0].f64s()[0])
    });
    let mut heard: Vec<f64> = results.into_iter().map(|result| result.unwrap()).collect();
    heard.sort_by(f64::total_cmp);
    assert_eq!(heard, [7.0, 8.0, 8.0]);
}
