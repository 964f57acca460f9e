//! Links between the seats of an epoch: whom a member lets in, and whom it calls.

use super::enter;
use super::orders::Orders;
use crate::neighbours::{Household, Neighbours};
use crate::net::{Net, Pulse};
use crate::recovery::fence::{Passage, passage};
use starlings_cluster::protocol::Lineup;
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Result, Seat};
use starlings_transport::{
    Gatekeeper, Hello, Link, Listener, PROTOCOL_VERSION, Purpose, Security, Token, Verdict, connect,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long links to the other seats may take, from the moment all have their seats.
const MESH_MS: u64 = 20_000;
/// How long one call to a peer may take.
const CALL_MS: u64 = 500;
/// Calls in a row that nobody answers before the peer counts as silent.
const CALLS_MAX: u32 = 6;

/// Whom this member's listener lets in, once it knows.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) job: JobId,
    pub(super) epoch: Epoch,
    pub(super) token: Token,
}

pub(super) fn gatekeeper(door: Arc<Mutex<Option<Door>>>) -> Gatekeeper {
    Arc::new(move |hello| match &*enter(&door) {
        None => Verdict::Busy,
        Some(door) if hello.token != door.token => Verdict::WrongToken,
        Some(door) if hello.job != door.job || hello.purpose != Purpose::Peer => Verdict::OtherJob,
        Some(door) if passage(hello.epoch, door.epoch) != Passage::Passes => Verdict::StaleEpoch,
        Some(_) => Verdict::Accept,
    })
}

/// What a member links up with.
pub(super) struct Yard {
    pub(super) listener: Listener,
    pub(super) security: Security,
    pub(super) door: Arc<Mutex<Option<Door>>>,
    pub(super) orders: Arc<Orders>,
}

impl Yard {
    /// Links up with everyone in a lineup.
    pub(super) fn link_up(
        &self,
        lineup: &Lineup,
        (job, token): (JobId, &Token),
    ) -> Result<(Arc<Net>, Arc<Neighbours>)> {
        let door = Door { job, epoch: lineup.epoch, token: token.clone() };
        *enter(&self.door) = Some(door.clone());
        let links = self.mesh(lineup, &door)?;
        self.orders.listen(Pulse::start(&links)?);
        let hosts: Vec<String> = lineup.roster.iter().map(|peer| peer.host.clone()).collect();
        let household = Household { job, epoch: door.epoch, seat: lineup.seat, hosts: &hosts };
        let by = Deadline::after_ms(MESH_MS);
        let met = Neighbours::meet(&household, &links, &|| self.orders.check(), by);
        if met.is_err() {
            // Whoever listens to them still has them: the others are to hear of it at once.
            links.values().for_each(|link| link.close());
        }
        let neighbours = met?;
        let net = Arc::new(Net::new(lineup.seat, hosts, links)?);
        let neighbours = Arc::new(neighbours);
        net.settle(neighbours.clone());
        self.orders.watch(net.clone());
        Ok((net, neighbours))
    }

    /// Links to every other seat: this one calls those below it and is called by those above.
    fn mesh(&self, lineup: &Lineup, door: &Door) -> Result<BTreeMap<Seat, Arc<dyn Link>>> {
        let (security, orders) = (&self.security, &*self.orders);
        let by = Deadline::after_ms(MESH_MS);
        let mut links: BTreeMap<Seat, Arc<dyn Link>> = BTreeMap::new();
        let hello = Hello {
            purpose: Purpose::Peer,
            job: door.job,
            epoch: door.epoch,
            seat: lineup.seat,
            token: door.token.clone(),
            version: PROTOCOL_VERSION,
        };
        for peer in lineup.roster.iter().filter(|peer| peer.seat < lineup.seat) {
            let during =
                |fault: Fault| fault.during(format!("linking to {} on {}", peer.seat, peer.host));
            let address: SocketAddr = peer.address.parse().map_err(|_| {
                during(Fault::peer(Some(peer.seat), format!("'{}' is no address", peer.address)))
            })?;
            let to = (peer.seat, address);
            let link = reach(to, &hello, security, orders, by).map_err(during)?;
            links.insert(peer.seat, Arc::new(link));
        }
        while links.len() + 1 < lineup.roster.len() {
            orders.check()?;
            if by.passed() {
                let missing = lineup.roster.iter().map(|peer| peer.seat);
                let missing =
                    missing.filter(|seat| *seat > lineup.seat && !links.contains_key(seat));
                let seat = missing.min();
                return Err(Fault::peer(seat, "not all workers linked up in time"));
            }
            if let Some((link, hello, _)) = self.listener.accept(Deadline::after_ms(50))?
                && belongs(&hello, lineup)
            {
                links.insert(hello.seat, Arc::new(link));
            }
        }
        Ok(links)
    }
}

/// Whether a caller is one that this lineup waits for. It may have been let in for the one before, and waited here since: whoever
/// has its seat now would be taken for lost when that link ends.
fn belongs(hello: &Hello, lineup: &Lineup) -> bool {
    hello.epoch == lineup.epoch
        && hello.seat > lineup.seat
        && hello.seat.index() < lineup.roster.len()
}

/// Calls a peer until it lets this member in: it may not have heard of its own seat yet. Whoever refuses is there; who
/// does not answer at all is reported to be silent.
fn reach(
    (seat, address): (Seat, SocketAddr),
    hello: &Hello,
    security: &Security,
    orders: &Orders,
    by: Deadline,
) -> Result<starlings_transport::TcpLink> {
    let mut unanswered = 0;
    loop {
        orders.check()?;
        match connect(address, hello, security, Deadline::after_ms(CALL_MS)) {
            Ok(link) => {
                orders.unanswered(Vec::new());
                return Ok(link);
            }
            Err(fault) if by.passed() => {
                let answered = fault.blame() == Blame::Caller;
                let silent = || Fault::peer(Some(seat), fault.message());
                return Err(if answered { fault } else { silent() });
            }
            Err(fault) if fault.blame() == Blame::Caller => unanswered = 0,
            Err(_) => unanswered += 1,
        }
        let silent = (unanswered >= CALLS_MAX).then_some(seat);
        orders.unanswered(silent.into_iter().collect());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_cluster::protocol::Peer;

    #[test]
    fn who_was_let_in_for_an_older_lineup_does_not_take_the_seat_of_another() {
        let peer = |seat: u32| Peer {
            seat: Seat(seat),
            host: format!("host-{seat}"),
            pid: seat,
            address: "127.0.0.1:1".to_string(),
        };
        let roster: Vec<Peer> = (0..3).map(peer).collect();
        let lineup = Lineup { seat: Seat(1), epoch: Epoch(5), roster, deal: Vec::new() };
        let hello = |epoch: u32, seat: u32| Hello {
            purpose: Purpose::Peer,
            job: JobId(1),
            epoch: Epoch(epoch),
            seat: Seat(seat),
            token: Token::from_bytes([0; 32]),
            version: PROTOCOL_VERSION,
        };
        assert!(belongs(&hello(5, 2), &lineup));
        assert!(!belongs(&hello(4, 2), &lineup), "of the lineup before");
        assert!(!belongs(&hello(5, 0), &lineup), "whom this member calls itself");
        assert!(!belongs(&hello(5, 3), &lineup), "nobody");
    }
}
