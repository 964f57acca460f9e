//! What the coordinator has ordered: to stop, to regroup, to go. Every waiting call of a member wakes when it must.

use super::enter;
use crate::net::{Net, Pulse};
use starlings_cluster::protocol::Lineup;
use starlings_core::{Blame, Deadline, Fault, Result, Seat};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// What the coordinator has ordered.
#[derive(Default)]
pub(super) struct Orders {
    state: Mutex<Ordered>,
    changed: Condvar,
}

#[derive(Default)]
struct Ordered {
    aborted: Option<Fault>,
    done: bool,
    /// Whether the result is wanted of this member.
    asked: bool,
    over: bool,
    released: bool,
    /// Whether the others go on without this member, since they took it for lost.
    left_behind: bool,
    /// The newest lineup that nobody has taken up yet.
    lineup: Option<Lineup>,
    net: Option<Arc<Net>>,
    ears: Ears,
}

/// How this member knows whom it does not hear.
#[derive(Default)]
enum Ears {
    /// It has no peers.
    #[default]
    Alone,
    /// It calls its peers, of whom these do not answer.
    Linking(Vec<Seat>),
    Linked(Pulse),
}

impl Ordered {
    /// Why whoever waits for the peers of the last lineup that was taken up need not. Who was released may be linking up with a
    /// lineup that the others have given up, and nobody would call.
    fn broken_off(&self) -> Option<Fault> {
        let has_changed = self.lineup.is_some() || self.released;
        self.aborted.clone().or_else(|| has_changed.then(changed))
    }
}

impl Orders {
    pub(super) fn check(&self) -> Result<()> {
        let state = enter(&self.state);
        state.broken_off().map_or(Ok(()), Err)
    }

    /// From now on an abort wakes whoever waits on this net.
    pub(super) fn watch(&self, net: Arc<Net>) {
        let mut state = enter(&self.state);
        if let Some(why) = state.broken_off() {
            net.abort(why);
        }
        state.net = Some(net);
    }

    /// These do not answer, though they should.
    pub(super) fn unanswered(&self, seats: Vec<Seat>) {
        enter(&self.state).ears = Ears::Linking(seats);
    }

    /// From now on this is how peers are heard.
    pub(super) fn listen(&self, pulse: Pulse) {
        enter(&self.state).ears = Ears::Linked(pulse);
    }

    /// Peers of the last lineup that was taken up whom this member does not hear.
    pub(super) fn unheard(&self) -> Vec<Seat> {
        match &enter(&self.state).ears {
            Ears::Alone => Vec::new(),
            Ears::Linking(seats) => seats.clone(),
            Ears::Linked(pulse) => pulse.unheard(),
        }
    }

    /// Members have changed: whoever waits for the old ones need not.
    pub(super) fn regroup(&self, lineup: Lineup) {
        let mut state = enter(&self.state);
        if let Some(net) = &state.net {
            net.abort(changed());
        }
        // Of several only the newest counts.
        state.lineup = Some(lineup);
        drop(state);
        self.changed.notify_all();
    }

    /// The others go on without this member.
    pub(super) fn release(&self) {
        let mut state = enter(&self.state);
        state.released = true;
        if let Some(net) = &state.net {
            net.abort(changed());
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn is_done(&self) -> bool {
        let state = enter(&self.state);
        state.done || state.over || state.released || state.left_behind
    }

    /// Whether the whole job is over.
    pub(super) fn has_ended(&self) -> bool {
        enter(&self.state).done
    }

    /// Waits for the next lineup, and takes it.
    pub(super) fn next_lineup(&self, by: Deadline) -> Result<Lineup> {
        let mut state = enter(&self.state);
        loop {
            if let Some(fault) = &state.aborted {
                return Err(fault.clone());
            }
            if state.released {
                return Err(Fault::interrupted(
                    "this worker left as asked, and the others go on without it",
                ));
            }
            if state.done {
                return Err(too_late());
            }
            if let Some(lineup) = state.lineup.take() {
                state.net = None;
                let ears = std::mem::take(&mut state.ears);
                drop(state);
                drop(ears);
                return Ok(lineup);
            }
            let Some(left) = by.left() else {
                let what = "the coordinator did not say in time who is left";
                return Err(Fault::machine(what).hint("is the coordinator still there?"));
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.expect("nobody panics with this lock held").0;
        }
    }

    pub(super) fn abort(&self, fault: Fault) {
        let mut state = enter(&self.state);
        if !state.done {
            if let Some(net) = &state.net {
                net.abort(fault.clone());
            }
            state.aborted.get_or_insert(fault);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Whether this is the coordinator's own word.
    pub(super) fn is_told(&self, fault: &Fault) -> bool {
        let state = enter(&self.state);
        state.aborted.as_ref().is_some_and(|told| told.message() == fault.message())
    }

    /// The others took this member for lost, and go on.
    pub(super) fn leave_behind(&self, fault: Fault) {
        enter(&self.state).left_behind = true;
        self.abort(fault);
    }

    pub(super) fn is_left_behind(&self) -> bool {
        enter(&self.state).left_behind
    }

    pub(super) fn done(&self) {
        enter(&self.state).done = true;
        self.changed.notify_all();
    }

    /// The result is wanted of this member.
    pub(super) fn ask(&self) {
        enter(&self.state).asked = true;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        let mut state = enter(&self.state);
        (state.over, state.net) = (true, None);
        let ears = std::mem::take(&mut state.ears);
        drop(state);
        drop(ears);
        self.changed.notify_all();
    }

    /// Waits a while; true as soon as it is all over.
    pub(super) fn over_after(&self, wait: Duration) -> bool {
        let state = enter(&self.state);
        if state.over || wait.is_zero() {
            return state.over;
        }
        let waited = self.changed.wait_timeout_while(state, wait, |state| !state.over);
        waited.map_or(true, |(state, _)| state.over)
    }

    /// Waits for the last word; true as soon as the result is wanted of this member instead.
    pub(super) fn is_asked(&self, by: Deadline) -> Result<bool> {
        let mut state = enter(&self.state);
        loop {
            if let Some(fault) = &state.aborted {
                return Err(fault.clone());
            }
            if state.done {
                return Ok(false);
            }
            if std::mem::take(&mut state.asked) {
                return Ok(true);
            }
            let Some(left) = by.left() else { return Ok(false) };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.expect("nobody panics with this lock held").0;
        }
    }

    /// Waits for `done` or an abort, or until the time is up.
    pub(super) fn last_word(&self, within_ms: u64) -> Result<()> {
        let state = enter(&self.state);
        let wait = Duration::from_millis(within_ms);
        let heard = |state: &mut Ordered| !state.done && state.aborted.is_none();
        let waited = self.changed.wait_timeout_while(state, wait, heard);
        match waited.map(|(state, _)| state.aborted.clone()) {
            Ok(Some(fault)) => Err(fault),
            _ => Ok(()),
        }
    }
}

const TOO_LATE: &str = "the job ended before this worker had a seat";

/// What a newcomer says that was still waiting for its seat at the end.
pub(super) fn too_late() -> Fault {
    Fault::interrupted(TOO_LATE)
}

/// Whether that is why a member ended: it was of no use, and nothing is wrong.
pub(crate) fn is_too_late(fault: &Fault) -> bool {
    fault.blame() == Blame::Interrupted && fault.message().ends_with(TOO_LATE)
}

fn changed() -> Fault {
    Fault::peer(None, "members have changed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_released_waits_for_no_link_of_a_lineup_that_was_given_up() {
        let orders = Orders::default();
        assert!(orders.check().is_ok());
        orders.release();
        let fault = orders.check().unwrap_err();
        assert!(matches!(fault.blame(), Blame::Peer(_)), "{fault}: the next word is asked for");
        let last = orders.next_lineup(Deadline::after_ms(60_000)).unwrap_err();
        assert_eq!(last.blame(), Blame::Interrupted, "{last}");
    }

    #[test]
    fn what_the_coordinator_said_is_known_from_what_a_member_found_out() {
        let orders = Orders::default();
        let told = Fault::peer(None, "too few came");
        assert!(!orders.is_told(&told));
        orders.abort(told.clone());
        assert!(orders.is_told(&told) && !orders.is_told(&Fault::machine("the disk is full")));
    }

    #[test]
    fn whoever_waits_for_a_seat_is_woken_by_the_end_of_the_job() {
        let orders = Orders::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| orders.next_lineup(Deadline::after_ms(60_000)));
            orders.done();
            let late = waiting.join().unwrap().unwrap_err();
            assert_eq!(late.blame(), Blame::Interrupted, "{late}");
        });
    }
}
