//! A member before a coordinator that says what the test wants, and is gone when the test wants.

use super::*;
use starlings_cluster::protocol::Peer;
use starlings_cluster::protocol::Token as PeerToken;
use starlings_transport::{Gatekeeper, Link, Verdict};
use std::net::SocketAddr;
use std::time::Instant;

/// A coordinator's door, which the test answers.
struct Scripted {
    door: Listener,
    ticket: Ticket,
    folder: tempfile::TempDir,
}

impl Scripted {
    fn new() -> Scripted {
        let gatekeeper: Gatekeeper = Arc::new(|_| Verdict::Accept);
        let home: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let door = Listener::bind(home, &Security::Plain, gatekeeper).unwrap();
        let mut ticket = Ticket::random().unwrap();
        ticket.address = Some(door.local_addr());
        let folder = tempfile::tempdir().unwrap();
        ticket.save(&folder.path().join("ticket")).unwrap();
        Scripted { door, ticket, folder }
    }

    fn options(&self) -> JoinOptions {
        JoinOptions {
            coordinator: self.door.local_addr(),
            ticket: self.ticket.clone(),
            host: "here".to_string(),
            stop: Stop::new(),
            patience: Duration::from_secs(30),
            ticket_path: Some(self.folder.path().join("ticket")),
        }
    }

    /// Lets somebody in, and welcomes it.
    fn welcome(&self) -> (Control, Arc<dyn Link>) {
        let let_in = self.door.accept(Deadline::after_ms(20_000)).unwrap();
        let link: Arc<dyn Link> = Arc::new(let_in.expect("somebody calls").0);
        let control = Control::new(link.clone());
        say(&control, ToWorker::Welcome(None));
        (control, link)
    }
}

fn say(control: &Control, said: ToWorker) {
    control.send(&Message::ToWorker(said), Deadline::after_ms(5_000)).unwrap();
}

/// The next word that is wanted.
fn heard(control: &Control, is_wanted: impl Fn(&FromWorker) -> bool) -> FromWorker {
    loop {
        match control.receive(Deadline::after_ms(20_000)).unwrap() {
            Some(Message::FromWorker(said)) if is_wanted(&said) => return said,
            Some(_) => {}
            None => panic!("the member said nothing of the kind"),
        }
    }
}

fn is_ready(said: &FromWorker) -> bool {
    matches!(said, FromWorker::Ready { .. })
}

fn alone(ticket: &Ticket) -> Assignment {
    let peer = Peer { seat: Seat(0), host: "here".into(), pid: 1, address: "127.0.0.1:1".into() };
    Assignment {
        job: String::new(),
        job_id: ticket.job,
        seat: Seat(0),
        epoch: Epoch(0),
        roster: vec![peer],
        peer_token: PeerToken([7; 32]),
        survey: None,
        deal: Vec::new(),
        member: 1,
        durable: true,
        survives: true,
    }
}

/// A seated member, and the other end of its line.
fn seated(scripted: &Scripted, options: &JoinOptions) -> (Member, Control, Arc<dyn Link>) {
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| Member::join(options).unwrap());
        let (control, link) = scripted.welcome();
        heard(&control, is_ready);
        say(&control, ToWorker::Assign(Box::new(alone(&scripted.ticket))));
        (joining.join().unwrap(), control, link)
    })
}

#[expect(clippy::disallowed_methods, reason = "the test times how long a member takes to leave")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn whoever_is_stopped_while_it_calls_or_waits_is_interrupted() {
    let scripted = Scripted::new();
    let options = scripted.options();
    options.stop.ask();
    // Nobody answers.
    let gone: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let calling = JoinOptions { coordinator: gone, ticket_path: None, ..options.clone() };
    let begun = now();
    let fault = Member::join(&calling).err().unwrap();
    assert_eq!(fault.blame(), Blame::Interrupted, "{fault}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // The coordinator lets it go by closing its line.
    let options = JoinOptions { stop: Stop::new(), ..options };
    std::thread::scope(|scope| {
        let joining = scope.spawn(|| Member::join(&options).err().unwrap());
        let (control, link) = scripted.welcome();
        heard(&control, is_ready);
        options.stop.ask();
        heard(&control, |said| *said == FromWorker::Leave);
        link.close();
        let fault = joining.join().unwrap();
        assert_eq!(fault.blame(), Blame::Interrupted, "{fault}");
    });
}

#[test]
fn a_seated_member_that_is_asked_to_leave_while_nobody_coordinates_does_not_wait_for_another() {
    let scripted = Scripted::new();
    let options = scripted.options();
    let (member, _control, link) = seated(&scripted, &options);
    link.close();
    drop(scripted);
    options.stop.ask();
    let begun = now();
    // It has done its work and has nobody to tell.
    let fault = member.leave(Ok(None)).unwrap_err();
    assert_eq!(fault.blame(), Blame::Interrupted, "{fault}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn whoever_fails_by_itself_says_first_where_it_is() {
    let scripted = Scripted::new();
    let options = scripted.options();
    let (member, control, _link) = seated(&scripted, &options);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            member.whereabouts.set("the merge", Step(60));
            member.leave(Err(Fault::machine("the disk is full"))).unwrap_err()
        });
        let mut last = None;
        let failed = |said: &FromWorker| matches!(said, FromWorker::Failed { .. });
        let either = |said: &FromWorker| failed(said) || matches!(said, FromWorker::Beat { .. });
        loop {
            let said = heard(&control, either);
            if failed(&said) {
                break;
            }
            last = Some(said);
        }
        match last {
            Some(FromWorker::Beat { step, phase, .. }) => {
                assert_eq!((step, phase.as_str()), (Step(60), "the merge"));
            }
            other => panic!("{other:?}"),
        }
        say(&control, ToWorker::Done);
    });
}

#[test]
fn a_newcomer_knows_its_seat_and_the_hosts_of_its_newest_lineup() {
    let scripted = Scripted::new();
    let options = scripted.options();
    let member = std::thread::scope(|scope| {
        let joining = scope.spawn(|| Member::join(&options).unwrap());
        let (control, _) = scripted.welcome();
        heard(&control, is_ready);
        let assignment = Assignment { roster: Vec::new(), ..alone(&scripted.ticket) };
        say(&control, ToWorker::Prepare(Box::new(assignment)));
        let member = joining.join().unwrap();
        assert_eq!(member.seats(), None, "it has none yet");
        let peer = |seat, host: &str| Peer {
            seat: Seat(seat),
            host: host.to_string(),
            pid: 1,
            address: "127.0.0.1:1".into(),
        };
        let roster = vec![peer(0, "anne"), peer(1, "here")];
        let lineup = Lineup { seat: Seat(1), epoch: Epoch(3), roster, deal: Vec::new() };
        say(&control, ToWorker::Regroup(Box::new(lineup)));
        let mut regroup = member.regrouping();
        // Nobody answers it there, so it would call until the job is over.
        scope.spawn(move || drop(regroup.regroup()));
        let by = Deadline::after_ms(20_000);
        while member.seats().is_none() && !by.passed() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let blame = Blame::Peer(None);
        say(&control, ToWorker::Abort { blame, message: "over".to_string(), fault: None });
        member
    });
    assert_eq!(member.seats(), Some((Seat(1), vec!["anne".to_string(), "here".to_string()])));
}

#[test]
fn whoever_comes_too_late_is_told_from_whoever_was_stopped() {
    let scripted = Scripted::new();
    for (word, is_late) in [(ToWorker::Done, true), (ToWorker::Released, false)] {
        std::thread::scope(|scope| {
            let joining = scope.spawn(|| Member::join(&scripted.options()).err().unwrap());
            let (control, _) = scripted.welcome();
            heard(&control, is_ready);
            say(&control, word);
            assert_eq!(is_too_late(&joining.join().unwrap()), is_late);
        });
    }
}

#[test]
fn a_newcomer_asks_every_coordinator_for_a_seat_until_it_has_one() {
    let scripted = Scripted::new();
    let options = scripted.options();
    let newcomer = |member| {
        let assignment = Assignment { roster: Vec::new(), member, ..alone(&scripted.ticket) };
        ToWorker::Prepare(Box::new(assignment))
    };
    let is_prepared = |said: &FromWorker| *said == FromWorker::Prepared;
    let (member, control) = std::thread::scope(|scope| {
        let joining = scope.spawn(|| Member::join(&options).unwrap());
        let (control, link) = scripted.welcome();
        heard(&control, is_ready);
        say(&control, newcomer(7));
        let member = joining.join().unwrap();
        member.tell(FromWorker::Prepared).unwrap();
        heard(&control, is_prepared);
        // It dies before it gives it a seat, and so does the next one.
        link.close();
        let (control, link) = scripted.welcome();
        heard(&control, is_ready);
        say(&control, newcomer(8));
        heard(&control, is_prepared);
        link.close();
        let (control, link) = scripted.welcome();
        heard(&control, is_ready);
        say(&control, newcomer(9));
        heard(&control, is_prepared);
        let lineup = Lineup { epoch: Epoch(4), ..alone(&scripted.ticket).lineup() };
        say(&control, ToWorker::Regroup(Box::new(lineup)));
        let flocked = member.regrouping().regroup().unwrap();
        assert_eq!(flocked.epoch, Epoch(4));
        link.close();
        (member, scripted.welcome().0)
    });
    let back = heard(&control, |said| matches!(said, FromWorker::Return { .. }));
    assert_eq!(
        back,
        FromWorker::Return { member: 9, epoch: Epoch(4) },
        "it has a seat to return to"
    );
    say(&control, ToWorker::Done);
    drop(member);
}
