//! What a coordinator tells at the end of a job, to whoever returns, and when it is asked to stop.

use super::*;

fn loss(rank: u32) -> FaultReport {
    let message = format!("rank {rank} was lost");
    let (host, phase) = (Some("h".to_string()), "the merge".to_string());
    let (rank, step, seen_by) = (Some(Seat(rank)), None, None);
    FaultReport { rank, host, phase, step, seen_by, message }
}

/// What members hear whose job ends like this, after two losses.
fn heard(reason: &str) -> Option<FaultReport> {
    let mut desk = Desk::new(Ticket::random().unwrap(), None, Options::default());
    [1, 2].into_iter().for_each(|rank| desk.obey(Command::Fault(loss(rank))));
    desk.obey(Command::Abort { blame: Blame::Peer(None), reason: reason.to_string() });
    match desk.last_word {
        Some(ToWorker::Abort { message, fault, .. }) if message == reason => fault,
        other => panic!("{other:?}"),
    }
}

/// A coordinator whose job needs so many workers, and has them.
fn at_work(workers: u32) -> Desk {
    let mut desk = Desk::new(Ticket::random().unwrap(), None, Options::default());
    let wish = Wish { least: Some(workers), ..Wish::fixed(workers) };
    desk.job = Some((String::new(), wish.clone(), None));
    desk.feed(Happening::Submit(wish));
    for at in 1..=workers {
        let (host, address) = ("h".to_string(), format!("127.0.0.1:{at}"));
        desk.feed(Happening::Joined { member: MemberId(at.into()), host, pid: at, address });
    }
    desk
}

#[test]
fn a_job_that_waits_for_workers_is_not_waited_for_when_it_is_to_end() {
    for is_asked_first in [true, false] {
        let mut desk = at_work(2);
        if is_asked_first {
            desk.stop_as_asked();
        }
        desk.stop_waiting();
        assert!(!desk.membership.ended(), "its workers may finish their step");
        desk.feed(Happening::Leave { member: MemberId(2) });
        assert!(desk.membership.shortage(desk.now()).is_some());
        desk.stop_waiting();
        assert_eq!(desk.membership.ended(), is_asked_first, "others may come");
        desk.stop_as_asked();
        desk.stop_waiting();
        assert!(desk.membership.ended());
        let is_interruption =
            |word: &ToWorker| matches!(word, ToWorker::Abort { blame: Blame::Interrupted, .. });
        assert!(desk.last_word.as_ref().is_some_and(is_interruption), "{:?}", desk.last_word);
    }
}

#[test]
fn a_job_that_a_loss_ends_names_that_loss_and_none_that_was_survived() {
    assert_eq!(heard("rank 2 was lost"), Some(loss(2)));
    let too_few = "1 worker is left, 2 are needed, and too few came within 60 s";
    assert_eq!(heard(too_few), None, "one left politely");
    assert_eq!(heard(&format!("rank 2 was lost; {too_few}")), Some(loss(2)));
    assert_eq!(heard("stopped, as asked: not all workers ended within 30 s"), None);
}

#[test]
fn whoever_returns_to_the_next_coordinator_is_told_of_every_loss_that_was_written_down() {
    let member = |at: u64| MemberInfo {
        member: MemberId(at),
        seat: Seat(at as u32 - 1),
        host: "h".to_string(),
        pid: at as u32,
        address: String::new(),
    };
    let epoch = |epoch, members: &[u64]| {
        let roster = members.iter().map(|&at| member(at)).collect();
        Record::Epoch { epoch: Epoch(epoch), roster, deal: Deal::new() }
    };
    let wish = Wish { least: Some(1), ..Wish::fixed(3) };
    let journal = vec![
        Record::Submitted { job: String::new(), wish, survey: None },
        epoch(0, &[1, 2, 3]),
        Record::Lost(loss(2)),
        epoch(1, &[1, 2]),
        Record::TakenOver,
        Record::Lost(loss(1)),
        epoch(2, &[1]),
        // It was killed before anything followed from this: the next one will miss that member, and say so.
        Record::Lost(loss(0)),
    ];
    let mut desk = Desk::new(Ticket::random().unwrap(), None, Options::default());
    desk.take_over(Unfinished::read(journal).1, Options::default());
    let told: Vec<String> = [2, 1]
        .map(|rank| serde_json::to_string(&Event::Fault(loss(rank))).unwrap())
        .into_iter()
        .collect();
    let kept: Vec<String> = desk
        .kept
        .iter()
        .filter_map(|it| match it {
            ToClient::Event(text) => Some(text.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(kept, told);
}

#[test]
fn two_who_ask_a_job_to_stop_are_one_request() {
    let mut desk = at_work(1);
    desk.client_said(9, FromClient::Stop);
    desk.stop_as_asked();
    assert!(!desk.membership.ended(), "its worker may finish its step");
}

/// A newcomer that was welcomed while the last step was taken and had not said yet that it is ready (seed 130241 of chaos).
#[test]
fn whoever_was_just_welcomed_when_the_job_ends_is_told_so() {
    let mut desk = at_work(1);
    let home = IpAddr::from([127, 0, 0, 1]);
    let mut come = |id: u64| {
        let (here, there) = starlings_transport::pair();
        desk.take(Input::Connected(id, Control::new(Arc::new(here)), home));
        Control::new(Arc::new(there))
    };
    let (late, known) = (come(7), come(8));
    let ready = FromWorker::Beat {
        step: starlings_core::Step(0),
        phase: String::new(),
        waits: true,
        bytes: 0,
    };
    desk.take(Input::Said(8, Message::FromWorker(ready)));
    desk.complete(None);
    desk.send_away_the_silent();
    let heard = |control: &Control| {
        let heard = || control.receive(Deadline::after_ms(100)).unwrap();
        std::iter::from_fn(heard).map(|message| format!("{message:?}")).collect::<Vec<_>>()
    };
    let (late, known) = (heard(&late), heard(&known));
    assert!(late.last().unwrap().contains("Done"), "{late:?}");
    assert_eq!(known.len(), 1, "it has a conversation of its own: {known:?}");
}

/// A newcomer that was let in after the coordinator's last look at who had come (seeds 150221 and 150391 of chaos).
#[test]
fn whoever_is_let_in_while_the_door_closes_is_told_so() {
    let mut desk = at_work(1);
    desk.complete(None);
    let (sender, inbox) = sync_channel(4);
    let (here, there) = starlings_transport::pair();
    let here = Arc::new(here);
    let home = IpAddr::from([127, 0, 0, 1]);
    let looks = std::cell::Cell::new(0);
    // It comes between the first look and the last one.
    let is_closed = || {
        if looks.replace(looks.get() + 1) == 1 {
            let link = Control::new(here.clone());
            sender.send(Input::Connected(7, link, home)).unwrap();
        }
        looks.get() > 1
    };
    desk.send_away_the_last(&inbox, &is_closed);
    let late = Control::new(Arc::new(there));
    let heard = || late.receive(Deadline::after_ms(100)).unwrap();
    let heard: Vec<String> =
        std::iter::from_fn(heard).map(|message| format!("{message:?}")).collect();
    assert!(heard.len() == 2 && heard[1].contains("Done"), "{heard:?}");
}
