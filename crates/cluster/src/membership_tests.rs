//! The membership machine: whole lives of jobs, and its law under any sequence of events.

use super::*;
use crate::deal::Deal;
use crate::succession::LastEpoch;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(super) fn id(member: u64) -> MemberId {
    MemberId(member)
}

pub(super) fn joined(member: u64) -> Event {
    let (host, address) = (format!("host-{member}"), format!("127.0.0.1:{member}"));
    Event::Joined { member: id(member), host, pid: 100 + member as u32, address }
}

/// Nobody waits for witnesses: what follows from a closed connection follows at once.
pub(super) fn prompt() -> Options {
    Options { witness_ms: 0, ..Options::default() }
}

/// A machine whose commands are collected.
pub(super) struct Bench {
    pub(super) machine: Membership,
    pub(super) out: Vec<Command>,
    pub(super) now: u64,
}

/// What a coordinator has left in this epoch, with members that had their seats from the start.
pub(super) fn left(epoch: Epoch, roster: Vec<MemberInfo>) -> LastEpoch {
    let since = roster.iter().map(|_| Epoch(0)).collect();
    let (deal, finished, done_in, stopping, short_after) = Default::default();
    LastEpoch { epoch, roster, since, deal, finished, done_in, stopping, short_after }
}

impl Bench {
    /// Members 10, 11, … have joined a job of that many workers.
    pub(super) fn started(workers: u32) -> Bench {
        let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
        bench.on(Event::Submit(Wish::fixed(workers)));
        (0..u64::from(workers)).for_each(|member| bench.on(joined(10 + member)));
        assert!(matches!(bench.out.last(), Some(Command::Start { .. })));
        bench.out.clear();
        bench
    }

    pub(super) fn on(&mut self, event: Event) {
        self.machine.on(self.now, event, &mut self.out);
    }

    /// Time passes in ticks of 100 ms while these members beat.
    pub(super) fn pass(&mut self, ms: u64, beating: &[u64]) {
        for _ in 0..ms / 100 {
            self.now += 100;
            beating.iter().for_each(|&member| self.on(Event::Beat { member: id(member) }));
            self.on(Event::Tick);
        }
    }

    pub(super) fn phase(&mut self, member: u64, step: u64, phase: &str) {
        self.on(Event::Phase {
            member: id(member),
            step: Step(step),
            phase: phase.into(),
            waits: true,
            bytes: 0,
        });
    }

    pub(super) fn accuse(&mut self, by: u64, seat: u32, step: u64, phase: &str) {
        self.on(Event::Accuse {
            by: id(by),
            epoch: self.machine.roster().map_or(Epoch(0), |roster| roster.epoch),
            seat: Seat(seat),
            phase: phase.into(),
            step: Step(step),
        });
    }

    pub(super) fn fault(&self) -> &FaultReport {
        let faults: Vec<_> = self
            .out
            .iter()
            .filter_map(|command| match command {
                Command::Fault(report) => Some(report),
                _ => None,
            })
            .collect();
        let [fault] = faults.as_slice() else { panic!("one fault was due: {:?}", self.out) };
        fault
    }

    pub(super) fn told(&self, wanted: fn(&Verdict) -> bool) -> Vec<u64> {
        let told = self.out.iter().filter_map(|command| match command {
            Command::Tell { member, verdict } if wanted(verdict) => Some(member.0),
            _ => None,
        });
        told.collect()
    }

    pub(super) fn aborted(&self) -> Option<(Blame, &str)> {
        self.out.iter().find_map(|command| match command {
            Command::Abort { blame, reason } => Some((*blame, reason.as_str())),
            _ => None,
        })
    }
}

fn is_abort(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Abort { .. })
}

#[test]
fn a_job_gathers_starts_in_order_of_arrival_and_completes() {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    bench.on(joined(9));
    bench.on(Event::Submit(Wish::fixed(2)));
    let shortage = Shortage { have: 1, want: 2, seconds_left: 60.0 };
    assert_eq!(bench.out, [Command::Waiting(shortage)]);
    bench.on(joined(3));
    bench.on(joined(4));
    let seats: Vec<_> = bench
        .out
        .iter()
        .filter_map(|command| match command {
            Command::Seat { member, seat } => Some((member.0, seat.0)),
            _ => None,
        })
        .collect();
    assert_eq!(seats, [(9, 0), (3, 1)]);
    let Some(Command::Start { epoch, roster }) = bench.out.last() else {
        panic!("{:?}", bench.out)
    };
    assert_eq!((*epoch, roster.len()), (Epoch(0), 2));
    assert_eq!((roster[1].host.as_str(), roster[1].seat), ("host-3", Seat(1)));
    assert_eq!(bench.machine.lobby().len(), 1, "one too many waits");
    bench.out.clear();
    bench.on(Event::Finished { member: id(3), epoch: Epoch(0), holds: false });
    assert!(bench.out.is_empty());
    bench.on(Event::Finished { member: id(9), epoch: Epoch(0), holds: false });
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Done), [9, 3, 4]);
    assert_eq!(bench.out.last(), Some(&Command::Complete { stopped: None }));
    bench.out.clear();
    bench.on(Event::Left { member: id(3) });
    bench.pass(5_000, &[]);
    assert!(bench.out.is_empty(), "leaving after the end is no fault");
}

#[test]
fn a_killed_worker_is_named_with_rank_host_phase_and_step() {
    let mut bench = Bench::started(3);
    bench.phase(11, 7, "merge");
    bench.on(Event::Left { member: id(11) });
    let fault = bench.fault();
    assert_eq!((fault.rank, fault.host.as_deref()), (Some(Seat(1)), Some("host-11")));
    assert_eq!((fault.step, fault.phase.as_str()), (Some(Step(7)), "merge"));
    assert_eq!(
        fault.message,
        "rank 1 on host-11 (process 111) was lost in step 7, merge: its connection closed"
    );
    assert_eq!(bench.told(is_abort), [10, 12]);
    assert_eq!(bench.aborted().unwrap().0, Blame::Peer(Some(Seat(1))));
    bench.out.clear();
    bench.on(Event::Left { member: id(12) });
    assert!(bench.out.is_empty(), "the end is the end");
}

#[test]
fn silence_is_death_and_slowness_is_not() {
    let mut bench = Bench::started(2);
    bench.pass(3_000, &[10, 11]);
    bench.pass(900, &[10]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    bench.on(Event::Beat { member: id(11) });
    // After one gap of a second it is given a little more than another.
    bench.pass(3_000, &[10]);
    assert_eq!(bench.fault().rank, Some(Seat(1)));
    assert!(bench.fault().message.contains("nothing was heard"), "{}", bench.fault().message);
    assert_eq!(bench.fault().phase, "starting");
    assert!(
        bench.out.contains(&Command::Forget { member: id(11) }),
        "a zombie must not be heard again"
    );
}

#[test]
fn a_stopped_coordinator_evicts_no_one_when_it_wakes() {
    let mut bench = Bench::started(2);
    bench.pass(2_000, &[10, 11]);
    bench.now += 60_000;
    bench.on(Event::Tick);
    bench.pass(2_000, &[10, 11]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
}

#[test]
fn the_more_precise_of_own_word_and_accusation_is_reported() {
    let mut later = Bench::started(3);
    later.phase(11, 6, "contribute");
    later.accuse(10, 1, 7, "merge, waiting for chunk 3");
    later.on(Event::Left { member: id(11) });
    assert_eq!(later.fault().step, Some(Step(7)));
    assert_eq!(later.fault().phase, "merge, waiting for chunk 3");
    assert_eq!(later.fault().seen_by, Some(Seat(0)));
    let mut same = Bench::started(3);
    same.phase(11, 7, "contribute");
    same.accuse(10, 1, 7, "merge, waiting for chunk 3");
    same.on(Event::Left { member: id(11) });
    assert_eq!(same.fault().phase, "contribute");
}

#[test]
fn a_chain_of_accusations_leads_to_its_beginning() {
    // Rank 0 froze; rank 1 gave up on it and closed its links; so rank 2 lost rank 1.
    let mut bench = Bench::started(3);
    bench.accuse(12, 1, 4, "merge");
    bench.accuse(11, 0, 4, "merge");
    bench.on(Event::Left { member: id(11) });
    assert_eq!(bench.fault().rank, Some(Seat(0)));
    assert_eq!(bench.told(is_abort), [12], "rank 0 is dead and rank 1 has left");
}

#[test]
fn an_accused_that_still_beats_is_given_time_and_then_blamed() {
    let mut bench = Bench::started(2);
    bench.pass(500, &[10, 11]);
    bench.accuse(10, 1, 3, "merge");
    bench.pass(900, &[10, 11]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    bench.pass(200, &[10, 11]);
    assert_eq!(bench.fault().rank, Some(Seat(1)));
    assert!(bench.fault().message.contains("rank 0 lost its connection to it"));
}

#[test]
fn an_accusation_withdrawn_by_finishing_is_forgotten() {
    let mut bench = Bench::started(2);
    bench.on(Event::Finished { member: id(11), epoch: Epoch(0), holds: false });
    bench.accuse(10, 1, 3, "last barrier");
    bench.on(Event::Left { member: id(11) });
    bench.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: false });
    assert_eq!(bench.out.last(), Some(&Command::Complete { stopped: None }));
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Done), [10]);
}

#[test]
fn a_workers_own_report_keeps_its_blame() {
    let mut bench = Bench::started(2);
    bench.phase(10, 0, "loading");
    bench.on(Event::Failed {
        member: id(10),
        epoch: Epoch(0),
        blame: Blame::Caller,
        message: "row 7: no label".into(),
    });
    let (blame, reason) = bench.aborted().unwrap();
    assert_eq!(blame, Blame::Caller);
    assert_eq!(
        reason,
        "rank 0 on host-10 (process 110) failed in step 0, loading: row 7: no label"
    );
    assert_eq!(bench.told(is_abort), [11]);
}

#[test]
fn a_report_that_blames_a_peer_is_an_accusation() {
    let mut bench = Bench::started(2);
    let blame = Blame::Peer(Some(Seat(1)));
    bench.on(Event::Failed {
        member: id(10),
        epoch: Epoch(0),
        blame,
        message: "waiting for chunk 3".into(),
    });
    bench.on(Event::Left { member: id(10) });
    assert_eq!((bench.fault().rank, bench.fault().seen_by), (Some(Seat(1)), Some(Seat(0))));
}

#[test]
fn too_few_workers_are_counted_when_time_is_up() {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    bench.on(Event::Submit(Wish::fixed(4)));
    [1, 2, 3].into_iter().for_each(|member| bench.on(joined(member)));
    bench.pass(59_900, &[1, 2, 3]);
    assert!(!bench.machine.ended());
    bench.pass(100, &[1, 2, 3]);
    let (blame, reason) = bench.aborted().unwrap();
    assert_eq!((blame, reason), (Blame::Peer(None), "only 3 of 4 workers joined within 60 s"));
    assert_eq!(bench.told(is_abort), [1, 2, 3]);
}

#[test]
fn one_who_leaves_before_the_start_is_replaced() {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    bench.on(Event::Submit(Wish::fixed(2)));
    bench.on(joined(1));
    bench.on(Event::Left { member: id(1) });
    let shortage = Shortage { have: 0, want: 2, seconds_left: 60.0 };
    assert_eq!(bench.out.last(), Some(&Command::Waiting(shortage)));
    bench.on(joined(2));
    bench.on(joined(3));
    let roster = bench.machine.roster().unwrap().infos();
    assert_eq!(roster.iter().map(|info| info.member.0).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_failure_before_the_start_ends_the_job_at_once() {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    bench.on(Event::Submit(Wish::fixed(2)));
    bench.on(joined(1));
    bench.on(Event::Failed {
        member: id(1),
        epoch: Epoch(0),
        blame: Blame::Machine,
        message: "no memory".into(),
    });
    assert_eq!(bench.fault().host.as_deref(), Some("host-1"));
    assert_eq!(bench.aborted().unwrap().0, Blame::Machine);
    assert!(bench.told(is_abort).is_empty());
}

#[test]
fn a_polite_stop_waits_and_a_second_one_does_not() {
    let stop = || Event::Stop { blame: Blame::Interrupted, reason: "asked to stop".into() };
    let mut polite = Bench::started(2);
    polite.on(stop());
    assert_eq!(polite.told(|verdict| *verdict == Verdict::Stop), [10, 11]);
    polite.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: false });
    polite.on(Event::Finished { member: id(11), epoch: Epoch(0), holds: false });
    assert_eq!(
        polite.out.last(),
        Some(&Command::Complete { stopped: Some("asked to stop".into()) })
    );
    let mut late = Bench::started(2);
    late.on(stop());
    late.pass(30_000, &[10, 11]);
    assert_eq!(late.aborted().unwrap().0, Blame::Interrupted);
    let mut twice = Bench::started(2);
    twice.on(stop());
    twice.on(stop());
    assert_eq!(twice.aborted(), Some((Blame::Interrupted, "asked to stop")));
    assert_eq!(twice.told(is_abort), [10, 11]);
}

#[test]
fn a_job_without_workers_is_the_callers_mistake() {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    bench.on(Event::Submit(Wish::fixed(0)));
    assert_eq!(bench.aborted().unwrap().0, Blame::Caller);
}

fn event() -> impl Strategy<Value = Event> {
    let member = || (0u64..6).prop_map(MemberId);
    let step = || (0u64..4).prop_map(Step);
    let blame = prop_oneof![
        Just(Blame::Caller),
        Just(Blame::Machine),
        (0u32..6).prop_map(|seat| Blame::Peer(Some(Seat(seat)))),
        Just(Blame::Peer(None)),
    ];
    prop_oneof![
        1 => (0u32..5).prop_map(|workers| Event::Submit(Wish::fixed(workers))),
        2 => (1u32..5, 0u32..3, 0u32..3).prop_map(|(workers, less, more)| Event::Submit(Wish {
            workers,
            most: workers + more,
            least: Some(workers.saturating_sub(less).max(1)),
            deal: (0..workers).map(|w| (0..9).filter(|s| s % workers == w).collect()).collect(),
            stall_ms: 5_000,
        })),
        3 => member().prop_map(|member| Event::Prepared { member }),
        1 => member().prop_map(|member| Event::Leave { member }),
        8 => (0u64..6).prop_map(joined),
        8 => member().prop_map(|member| Event::Beat { member }),
        4 => (member(), step()).prop_map(|(member, step)| Event::Phase { member, step, phase: "p".into(), waits: true, bytes: 0 }),
        1 => member().prop_map(|member| Event::Left { member }),
        6 => (member(), 0u32..4, any::<bool>()).prop_map(|(member, epoch, holds)| Event::Finished { member, epoch: Epoch(epoch), holds }),
        1 => member().prop_map(|member| Event::Delivered { member }),
        1 => (member(), blame).prop_map(|(member, blame)| Event::Failed { member, epoch: Epoch(0), blame, message: "m".into() }),
        1 => (member(), 0u32..4, 0u32..6, step()).prop_map(|(by, epoch, seat, step)| Event::Accuse {
            by, epoch: Epoch(epoch), seat: Seat(seat), phase: "q".into(), step,
        }),
        2 => (member(), 0u32..4, proptest::collection::vec(0u32..7, 0..3)).prop_map(|(by, epoch, seats)| {
            Event::Unheard { by, epoch: Epoch(epoch), seats: seats.into_iter().map(Seat).collect() }
        }),
        8 => Just(Event::Tick),
        1 => Just(Event::Stop { blame: Blame::Interrupted, reason: "r".into() }),
    ]
}

/// Checks the law on everything a machine ever said.
fn check_law(machine: &Membership, out: &[Command]) -> Result<(), TestCaseError> {
    let ends =
        out.iter().filter(|it| matches!(it, Command::Complete { .. } | Command::Abort { .. }));
    prop_assert_eq!(ends.count(), usize::from(machine.ended()));
    let starts = out.iter().filter(|it| matches!(it, Command::Start { .. })).count();
    prop_assert!(starts <= 1);
    let mut told: BTreeMap<MemberId, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for command in out {
        match command {
            // Members of this test come back under names that they had; who was let go is told again at the end.
            Command::Tell {
                verdict:
                    Verdict::Stop | Verdict::Deliver | Verdict::Released | Verdict::GivenUp { .. },
                ..
            } => {}
            Command::Tell { member, .. } => {
                *told.entry(*member).or_default() += 1;
            }
            Command::Fault(report) => faults.push(report.clone()),
            _ => {}
        }
    }
    let Some(roster) = machine.roster() else { return Ok(()) };
    let seats = roster.placed.iter().map(|placed| placed.info.seat.index());
    prop_assert_eq!(seats.collect::<Vec<_>>(), (0..roster.placed.len()).collect::<Vec<_>>());
    let everyone = || roster.placed.iter().chain(&roster.past);
    for placed in everyone() {
        let listens = matches!(placed.standing, Standing::Running | Standing::Finished);
        let found = told.get(&placed.info.member).copied().unwrap_or(0);
        match placed.standing {
            // Released, or told of the end before it went.
            Standing::Departed => prop_assert!(found <= 1),
            _ => prop_assert_eq!(found, usize::from(machine.ended() && listens)),
        }
    }
    let dead = everyone().filter(|placed| placed.standing == Standing::Dead).count();
    prop_assert_eq!(dead, faults.iter().filter(|fault| fault.rank.is_some()).count());
    let waiting = |told: &MemberId| machine.lobby().iter().any(|info| info.member == *told);
    prop_assert!(
        told.keys().all(|told| waiting(told) || everyone().any(|it| it.info.member == *told))
    );
    check_epochs(out)
}

/// Epochs grow one by one, their members are different ones, and their deals are partitions.
fn check_epochs(out: &[Command]) -> Result<(), TestCaseError> {
    let mut last = 0;
    for command in out {
        let Command::Regroup { epoch, roster, deal } = command else { continue };
        prop_assert!(epoch.0 > last, "epoch {} after {last}", epoch.0);
        last = epoch.0;
        let mut members: Vec<MemberId> = roster.iter().map(|info| info.member).collect();
        members.sort_unstable();
        members.dedup();
        prop_assert_eq!((members.len(), deal.len()), (roster.len(), roster.len()));
        let mut shards: Vec<u32> = deal.iter().flatten().copied().collect();
        shards.sort_unstable();
        prop_assert_eq!(shards, (0..9).collect::<Vec<_>>());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_law_holds_after_any_events_and_every_job_ends(
        events in proptest::collection::vec((0u64..300, event()), 0..80))
    {
        let mut machine = Membership::new(Options::default());
        let mut out = vec![];
        let mut now = 0;
        let mut submitted = false;
        for (wait, event) in events {
            now += wait;
            submitted |= matches!(event, Event::Submit(_));
            let before = (machine.ended(), out.len());
            machine.on(now, event, &mut out);
            prop_assert!(!before.0 || out.len() == before.1, "a command after the end");
            check_law(&machine, &out)?;
        }
        // Everyone falls silent: whatever was under way ends, by one rule or another.
        for _ in 0..700 {
            now += 100;
            machine.on(now, Event::Tick, &mut out);
        }
        check_law(&machine, &out)?;
        prop_assert!(machine.ended() || !submitted);
    }
}

/// A flock that survives: shard s of twelve is with worker s mod n.
pub(super) fn survivors(workers: u32, least: u32, most: u32) -> Bench {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    let deal = (0..workers).map(|w| (0..12).filter(|s| s % workers == w).collect()).collect();
    bench.on(Event::Submit(Wish { workers, most, least: Some(least), deal, stall_ms: 600_000 }));
    (0..u64::from(workers)).for_each(|member| bench.on(joined(10 + member)));
    bench.out.clear();
    bench
}

impl Bench {
    /// The one new epoch: its number, its members in the order of seats, and their shards.
    pub(super) fn regrouped(&self) -> (u64, Vec<u64>, Deal) {
        let found: Vec<_> = self
            .out
            .iter()
            .filter_map(|command| match command {
                Command::Regroup { epoch, roster, deal } => {
                    let seats: Vec<u32> = roster.iter().map(|info| info.seat.0).collect();
                    assert_eq!(seats, (0..roster.len() as u32).collect::<Vec<_>>());
                    let members = roster.iter().map(|info| info.member.0).collect();
                    Some((u64::from(epoch.0), members, deal.clone()))
                }
                _ => None,
            })
            .collect();
        let [one] = found.as_slice() else { panic!("one new epoch was due: {:?}", self.out) };
        one.clone()
    }
}

#[test]
fn survivors_of_a_death_get_new_seats_and_the_shards_of_the_dead() {
    let mut bench = survivors(3, 1, 3);
    bench.phase(11, 7, "the merge");
    bench.on(Event::Left { member: id(11) });
    assert_eq!(bench.fault().rank, Some(Seat(1)));
    assert!(bench.fault().message.contains("step 7"), "{}", bench.fault().message);
    let (epoch, members, deal) = bench.regrouped();
    assert_eq!((epoch, members), (1, vec![10, 12]));
    assert_eq!(deal, [vec![0, 1, 3, 6, 7, 9], vec![2, 4, 5, 8, 10, 11]]);
    bench.out.clear();
    bench.on(Event::Left { member: id(10) });
    let (epoch, members, deal) = bench.regrouped();
    assert_eq!((epoch, members, deal), (2, vec![12], vec![(0..12).collect()]));
    bench.out.clear();
    bench.on(Event::Left { member: id(12) });
    assert!(matches!(bench.out.last(), Some(Command::Abort { blame: Blame::Peer(Some(_)), .. })));
}

#[test]
fn bad_data_ends_the_job_for_all_and_a_full_disk_only_for_one() {
    let fail = |blame| {
        let mut bench = survivors(2, 1, 2);
        bench.on(Event::Failed { member: id(10), epoch: Epoch(0), blame, message: "no".into() });
        bench.out.iter().any(|command| matches!(command, Command::Abort { .. }))
    };
    assert!(fail(Blame::Caller));
    assert!(!fail(Blame::Machine));
}

#[test]
fn a_newcomer_reads_its_shards_before_it_has_a_seat() {
    let mut bench = survivors(2, 1, 3);
    bench.on(joined(20));
    let prepare = Command::Prepare { member: id(20), shards: vec![8, 9, 10, 11] };
    assert_eq!(bench.out, [prepare]);
    bench.out.clear();
    bench.on(Event::Prepared { member: id(20) });
    let (epoch, members, deal) = bench.regrouped();
    assert_eq!((epoch, members), (1, vec![10, 11, 20]));
    assert_eq!(deal[2], [8, 9, 10, 11]);
    // The flock is full: the next one waits for a vacancy.
    bench.out.clear();
    bench.on(joined(21));
    assert!(bench.out.is_empty());
    bench.on(Event::Left { member: id(10) });
    assert!(matches!(bench.out.last(), Some(Command::Prepare { member: MemberId(21), .. })));
}

#[test]
fn who_asks_to_leave_is_released_and_the_last_one_ends_the_job_politely() {
    let mut bench = survivors(2, 1, 2);
    bench.on(Event::Leave { member: id(10) });
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Released), [10]);
    assert_eq!(bench.regrouped().1, [11]);
    assert!(!bench.out.iter().any(|command| matches!(command, Command::Fault(_))));
    bench.on(Event::Left { member: id(10) });
    bench.on(Event::Leave { member: id(11) });
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Stop), [11]);
    bench.on(Event::Finished { member: id(11), epoch: Epoch(0), holds: false });
    assert!(matches!(bench.out.last(), Some(Command::Complete { stopped: Some(_) })));
}

#[test]
fn a_death_after_the_work_is_done_does_not_undo_it() {
    let mut bench = survivors(2, 1, 2);
    bench.on(Event::Finished { member: id(10), epoch: Epoch(0), holds: false });
    bench.on(Event::Left { member: id(11) });
    assert!(matches!(bench.out.last(), Some(Command::Complete { stopped: None })));
    assert_eq!(bench.told(|verdict| *verdict == Verdict::Done), [10]);
}

#[test]
fn an_accused_that_still_beats_is_left_out_of_the_next_epoch() {
    let mut bench = survivors(3, 1, 3);
    bench.accuse(10, 2, 5, "the merge");
    bench.pass(2_000, &[10, 11, 12]);
    assert_eq!(bench.fault().rank, Some(Seat(2)));
    assert_eq!(bench.regrouped().1, [10, 11]);
    assert!(bench.out.contains(&Command::Forget { member: id(12) }));
    // What it says from now on is nobody's business.
    bench.out.clear();
    bench.on(Event::Finished { member: id(12), epoch: Epoch(0), holds: false });
    bench.accuse(12, 0, 5, "the merge");
    bench.pass(2_000, &[10, 11]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
}

#[test]
fn who_beats_and_does_nothing_is_given_up_after_a_long_time_and_who_waits_is_not() {
    let mut bench = survivors(2, 1, 2);
    for _ in 0..60 {
        for (member, phase, waits) in [(10, "the merge", true), (11, "computation", false)] {
            let (member, phase) = (id(member), phase.to_string());
            bench.on(Event::Phase { member, step: Step(3), phase, waits, bytes: 0 });
        }
        bench.pass(9_900, &[10, 11]);
    }
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    bench.pass(9_900, &[10, 11]);
    assert_eq!(bench.fault().rank, Some(Seat(1)));
    assert!(bench.fault().message.ends_with("it made no progress for 600 s"));
    assert_eq!(bench.regrouped().1, [10]);
}

#[test]
fn who_died_beside_the_coordinator_is_not_waited_for_once_a_returned_member_saw_it() {
    let wish = Wish { least: Some(1), stall_ms: 600_000, ..Wish::fixed(2) };
    let member = |seat: u32| {
        let (host, address) = (format!("host-{seat}"), format!("10.0.0.{seat}:1"));
        MemberInfo { member: id(10 + u64::from(seat)), seat: Seat(seat), host, pid: seat, address }
    };
    let last = left(Epoch(3), vec![member(0), member(1)]);
    let machine = Membership::resumed(prompt(), 0, wish, last);
    let mut bench = Bench { machine, out: vec![], now: 0 };
    bench.on(Event::Returned { member: id(10) });
    bench.pass(500, &[10]);
    bench.accuse(10, 1, 7, "the merge");
    bench.pass(900, &[10]);
    assert!(bench.out.is_empty(), "its own return may still come: {:?}", bench.out);
    bench.pass(200, &[10]);
    assert_eq!((bench.fault().rank, bench.fault().step), (Some(Seat(1)), Some(Step(7))));
    assert!(bench.now < Options::default().return_ms);
    assert!(bench.out.iter().any(|command| matches!(command, Command::Regroup { .. })));
}

/// Members 10, 11, … have joined a job that survives, of that many workers; up to four may take part.
pub(super) fn surviving(workers: u32) -> Bench {
    let mut bench = Bench { machine: Membership::new(prompt()), out: vec![], now: 0 };
    let deal = (0..workers).map(|w| (0..9).filter(|s| s % workers == w).collect()).collect();
    let (most, least, stall_ms) = (4, Some(1), u64::MAX);
    bench.on(Event::Submit(Wish { workers, most, least, deal, stall_ms }));
    (0..u64::from(workers)).for_each(|member| bench.on(joined(10 + member)));
    bench.out.clear();
    bench
}

/// Members of the last lineup.
pub(super) fn lineup(bench: &Bench) -> Vec<u64> {
    let last = bench.out.iter().rev().find_map(|command| match command {
        Command::Regroup { roster, .. } => Some(roster),
        _ => None,
    });
    last.map_or(Vec::new(), |roster| roster.iter().map(|info| info.member.0).collect())
}

fn unheard(bench: &mut Bench, by: u64, seats: &[u32]) {
    let epoch = bench.machine.roster().unwrap().epoch;
    let seats = seats.iter().copied().map(Seat).collect();
    bench.on(Event::Unheard { by: id(by), epoch, seats });
}

#[test]
fn of_two_who_do_not_hear_each_other_the_later_goes_and_is_told_why() {
    let mut bench = surviving(3);
    // Who notices first does not matter.
    unheard(&mut bench, 12, &[0]);
    bench.pass(100, &[10, 11, 12]);
    unheard(&mut bench, 10, &[2]);
    bench.pass(300, &[10, 11, 12]);
    assert!(bench.out.is_empty(), "it may be heard again: {:?}", bench.out);
    bench.pass(200, &[10, 11, 12]);
    assert_eq!(lineup(&bench), [10, 11]);
    let (rank, seen_by) = (bench.fault().rank, bench.fault().seen_by);
    assert_eq!((rank, seen_by), (Some(Seat(2)), Some(Seat(0))));
    let told = bench
        .told(|it| matches!(it, Verdict::GivenUp { reason, .. } if reason.contains("host-10")));
    assert_eq!(told, [12]);
    // What they said of each other counts for nothing in the new epoch.
    bench.out.clear();
    bench.pass(5_000, &[10, 11]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
}

#[test]
fn one_whom_nobody_hears_goes_though_it_came_first_and_a_moment_of_silence_costs_nobody_a_seat() {
    let mut bench = surviving(3);
    unheard(&mut bench, 11, &[0]);
    bench.pass(400, &[10, 11, 12]);
    unheard(&mut bench, 11, &[]);
    bench.pass(2_000, &[10, 11, 12]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
    unheard(&mut bench, 11, &[0]);
    unheard(&mut bench, 12, &[0]);
    unheard(&mut bench, 10, &[1, 2]);
    bench.pass(500, &[10, 11, 12]);
    assert_eq!(lineup(&bench), [11, 12]);
}

#[test]
fn a_silent_link_ends_a_job_that_cannot_do_without_either() {
    let mut bench = Bench::started(2);
    unheard(&mut bench, 10, &[1]);
    bench.pass(600, &[10, 11]);
    let (blame, reason) = bench.aborted().unwrap();
    assert_eq!(blame, Blame::Peer(Some(Seat(1))));
    assert!(reason.contains("the link between it and host-10 is silent"), "{reason}");
}

#[test]
fn silence_of_an_older_epoch_and_of_those_who_are_gone_is_ignored() {
    let mut bench = surviving(3);
    let old = bench.machine.roster().unwrap().epoch;
    bench.on(Event::Left { member: id(10) });
    bench.out.clear();
    let stale = Event::Unheard { by: id(11), epoch: old, seats: vec![Seat(0)] };
    bench.on(stale);
    let stranger = Event::Unheard { by: id(10), epoch: Epoch(1), seats: vec![Seat(1)] };
    bench.on(stranger);
    unheard(&mut bench, 11, &[7]);
    bench.pass(2_000, &[11, 12]);
    assert!(bench.out.is_empty(), "{:?}", bench.out);
}

#[test]
fn the_last_worker_gives_the_model_to_a_newcomer_before_it_goes() {
    let mut bench = surviving(1);
    bench.phase(10, 7, "the merge");
    bench.on(joined(20));
    bench.out.clear();
    bench.on(Event::Leave { member: id(10) });
    bench.pass(1_000, &[10, 20]);
    assert!(bench.out.is_empty() && bench.machine.awaits_heir(id(10)), "{:?}", bench.out);
    bench.on(Event::Prepared { member: id(20) });
    assert_eq!(lineup(&bench), [10, 20]);
    bench.phase(20, 0, "regrouping");
    bench.pass(1_000, &[10, 20]);
    assert!(bench.told(|it| *it == Verdict::Released).is_empty(), "it has no model yet");
    bench.phase(20, 7, "computation");
    assert_eq!(bench.told(|it| *it == Verdict::Released), [10]);
    assert_eq!(lineup(&bench), [20]);
    bench.on(Event::Finished { member: id(20), epoch: Epoch(2), holds: false });
    assert_eq!(bench.out.last(), Some(&Command::Complete { stopped: None }));
}

#[test]
fn the_last_worker_ends_the_job_where_nobody_comes() {
    let stopped = |bench: &Bench| bench.told(|it| *it == Verdict::Stop);
    let mut alone = surviving(1);
    alone.on(Event::Leave { member: id(10) });
    assert_eq!(stopped(&alone), [10]);
    // The newcomer goes before it is ready.
    let mut left = surviving(1);
    left.on(joined(20));
    left.on(Event::Leave { member: id(10) });
    assert!(stopped(&left).is_empty());
    left.on(Event::Left { member: id(20) });
    assert_eq!(stopped(&left), [10]);
    // Or it is never ready.
    let mut late = surviving(1);
    late.on(joined(20));
    late.on(Event::Leave { member: id(10) });
    late.pass(59_900, &[10, 20]);
    assert!(stopped(&late).is_empty());
    late.pass(200, &[10, 20]);
    assert_eq!(stopped(&late), [10]);
}
