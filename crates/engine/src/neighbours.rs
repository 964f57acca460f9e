//! Who shares this host: after the links are up every seat offers its segment of shared memory to all others, maps what
//! it can, and says whom it sees. A group whose members all see each other sums through shared memory; for all others
//! the links are there. That memory cannot be had is never an error.

use crate::shared_sum::SharedSum;
use serde::{Deserialize, Serialize};
use starlings_core::{Deadline, Epoch, Fault, JobId, Result, Seat, Step};
use starlings_transport::shared::{Circle, Identity, Offer, PORTS, Segment, View};
use starlings_transport::{Header, Lane, Link, LinkError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The kinds of the two messages, on the control lane. They come before all others.
const OFFER: u8 = 0x7d;
const SIGHT: u8 = 0x7e;

/// The seats that one seat can reach through shared memory, and whom those reach.
#[derive(Debug, Default)]
pub struct Neighbours {
    mine: Option<Arc<Segment>>,
    views: BTreeMap<Seat, View>,
    /// Whom each seat sees, itself included.
    sights: BTreeMap<Seat, BTreeSet<Seat>>,
}

/// Who is asking, and of whom.
pub(crate) struct Household<'a> {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    pub(crate) seat: Seat,
    /// The host of each seat, in order.
    pub(crate) hosts: &'a [String],
}

#[derive(Serialize, Deserialize)]
struct Sight(BTreeSet<Seat>);

impl Neighbours {
    /// The neighbours of all seats of one process: everybody sees everybody.
    #[must_use]
    pub fn of_threads(world: u32) -> Vec<Arc<Neighbours>> {
        let identity = |seat| Identity { job: JobId(0), epoch: Epoch(0), seat, nonce: 0 };
        let segments: Vec<Option<Arc<Segment>>> = (0..world)
            .map(|seat| Segment::new(identity(Seat(seat)), 0).ok().map(Arc::new))
            .collect();
        let all: Vec<Seat> = (0..world).map(Seat).filter(|s| segments[s.index()].is_some()).collect();
        let views: BTreeMap<Seat, View> =
            segments.iter().flatten().map(|mine| (mine.identity().seat, mine.view())).collect();
        let seen: BTreeSet<Seat> = all.into_iter().collect();
        let sights: BTreeMap<Seat, BTreeSet<Seat>> =
            seen.iter().map(|&seat| (seat, seen.clone())).collect();
        let each = |mine| Arc::new(Neighbours { mine, views: views.clone(), sights: sights.clone() });
        segments.into_iter().map(each).collect()
    }

    /// Offers, maps and tells over fresh links, before anything else is said on them. `check` gives the reason to
    /// stop, if there is one.
    pub(crate) fn meet(
        household: &Household<'_>,
        links: &BTreeMap<Seat, Arc<dyn Link>>,
        check: &dyn Fn() -> Result<()>,
        by: Deadline,
    ) -> Result<Neighbours> {
        let mine = segment(household).ok().map(Arc::new);
        let offer = mine.as_ref().map(|mine| mine.offer());
        tell(links, OFFER, &offer, by)?;
        let mut views: BTreeMap<Seat, View> = BTreeMap::new();
        views.extend(mine.as_ref().map(|mine| (household.seat, mine.view())));
        for (&seat, link) in links {
            let offer: Option<Offer> = hear(seat, &**link, OFFER, check, by)?;
            // Names of hosts only save vain attempts; what is mapped is known by its nonce.
            let home = household.hosts[household.seat.index()] == household.hosts[seat.index()];
            let offer = offer.filter(|offer| home && household.expects(seat, offer));
            views.extend(offer.and_then(|offer| View::open(&offer).ok()).map(|view| (seat, view)));
        }
        let sight = Sight(views.keys().copied().collect());
        tell(links, SIGHT, &sight, by)?;
        let mut sights = BTreeMap::from([(household.seat, sight.0)]);
        for (&seat, link) in links {
            let Sight(seen) = hear(seat, &**link, SIGHT, check, by)?;
            sights.insert(seat, seen);
        }
        Ok(Neighbours { mine, views, sights })
    }

    /// Sums of a group through shared memory, where all its members see each other. Every member comes to the same
    /// answer. `kind` distinguishes sums that may be under way at the same time.
    #[must_use]
    pub fn sum(&self, kind: u8, group: &[Seat]) -> Option<SharedSum> {
        let sees = |from: &Seat, to: &Seat| {
            self.sights.get(from).is_some_and(|sight| sight.contains(to))
        };
        let mutual = group.iter().all(|from| group.iter().all(|to| sees(from, to)));
        if !mutual || group.len() < 2 || usize::from(kind) >= PORTS {
            return None;
        }
        let views: Option<Vec<View>> =
            group.iter().map(|seat| self.views.get(seat).cloned()).collect();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let circle = Circle::new(self.mine.clone()?, views?, usize::from(kind), cores);
        Some(SharedSum::new(circle))
    }
}

impl Household<'_> {
    fn expects(&self, seat: Seat, offer: &Offer) -> bool {
        let Identity { job, epoch, seat: owner, .. } = offer.identity;
        (job, epoch, owner) == (self.job, self.epoch, seat)
    }
}

fn segment(household: &Household<'_>) -> Result<Segment> {
    let Household { job, epoch, seat, .. } = *household;
    Segment::new(Identity::fresh(job, epoch, seat)?, 0)
}

fn tell<T: Serialize>(
    links: &BTreeMap<Seat, Arc<dyn Link>>,
    kind: u8,
    what: &T,
    by: Deadline,
) -> Result<()> {
    let bytes = postcard::to_stdvec(what).map_err(|error| Fault::machine(error.to_string()))?;
    let header = Header { lane: Lane::Control, kind, step: Step(0), tag: 0 };
    for (&seat, link) in links {
        link.send(header, &bytes, by).map_err(|error| lost(seat, &error))?;
    }
    Ok(())
}

fn hear<T: for<'a> Deserialize<'a>>(
    seat: Seat,
    link: &dyn Link,
    kind: u8,
    check: &dyn Fn() -> Result<()>,
    by: Deadline,
) -> Result<T> {
    loop {
        check()?;
        match link.receive(Deadline::after_ms(100)) {
            Ok(frame) if frame.header.lane == Lane::Control && frame.header.kind == kind => {
                let broken = |_| Fault::peer(Some(seat), format!("{seat} offers nonsense"));
                return postcard::from_bytes(&frame.payload).map_err(broken);
            }
            Ok(_) => return Err(Fault::peer(Some(seat), format!("{seat} speaks out of turn"))),
            Err(LinkError::Deadline) if !by.passed() => {}
            Err(error) => return Err(lost(seat, &error)),
        }
    }
}

fn lost(seat: Seat, error: &LinkError) -> Fault {
    Fault::peer(Some(seat), error.to_string()).during(format!("offering shared memory to {seat}"))
}
