//! Who shares this host: after the links are up every seat offers its segment of shared memory to all others, maps what
//! it can, and says whom it sees. A group whose members all see each other sums through shared memory; for all others
//! the links are there. That memory cannot be had is never an error.

use crate::net::is_beat;
use crate::shared_sum::SharedSum;
use crate::stock::host_memory;
use serde::{Deserialize, Serialize};
use starlings_core::{Deadline, Epoch, Fault, JobId, Result, Seat, Step};
use starlings_transport::shared::{Circle, Identity, Offer, PORTS, Segment, View};
use starlings_transport::{Header, Lane, Link, LinkError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The kinds of the two messages, on the control lane. They come before all others.
const OFFER: u8 = 0x7d;
const SIGHT: u8 = 0x7e;

/// Room for contributions in the heap of a process, and at most half of its memory. Only what is touched takes any.
const HEAP_BYTES_MAX: usize = 1 << 38;

/// The seats that one seat can reach through shared memory, and whom those reach.
#[derive(Debug, Default)]
pub struct Neighbours {
    mine: Option<Arc<Segment>>,
    views: BTreeMap<Seat, View>,
    /// Whom each seat sees, itself included.
    sights: BTreeMap<Seat, BTreeSet<Seat>>,
    /// Who can read the heap of this seat's process.
    readers: BTreeSet<Seat>,
}

/// Who is asking, and of whom.
pub(crate) struct Household<'a> {
    pub(crate) job: JobId,
    pub(crate) epoch: Epoch,
    pub(crate) seat: Seat,
    /// The host of each seat, in order.
    pub(crate) hosts: &'a [String],
}

/// Whose segments a seat sees, and whose heaps.
#[derive(Serialize, Deserialize)]
struct Sight(BTreeSet<Seat>, BTreeSet<Seat>);

impl Neighbours {
    /// The neighbours of all seats of one process: everybody sees everybody.
    #[must_use]
    pub fn of_threads(world: u32) -> Vec<Arc<Neighbours>> {
        let identity = |seat| Identity { job: JobId(0), epoch: Epoch(0), seat, nonce: 0 };
        let segments: Vec<Option<Arc<Segment>>> =
            (0..world).map(|seat| Segment::new(identity(Seat(seat))).ok().map(Arc::new)).collect();
        let all: Vec<Seat> =
            (0..world).map(Seat).filter(|s| segments[s.index()].is_some()).collect();
        let views: BTreeMap<Seat, View> =
            segments.iter().flatten().map(|mine| (mine.identity().seat, mine.view())).collect();
        let seen: BTreeSet<Seat> = all.into_iter().collect();
        let sights: BTreeMap<Seat, BTreeSet<Seat>> =
            seen.iter().map(|&seat| (seat, seen.clone())).collect();
        let each = |mine| {
            let (views, sights) = (views.clone(), sights.clone());
            Arc::new(Neighbours { mine, views, sights, readers: BTreeSet::new() })
        };
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
        let heaps = views.iter().filter(|(_, view)| view.has_heap()).map(|(&seat, _)| seat);
        let sight = Sight(views.keys().copied().collect(), heaps.collect());
        tell(links, SIGHT, &sight, by)?;
        let mut sights = BTreeMap::from([(household.seat, sight.0)]);
        let mut readers = BTreeSet::new();
        for (&seat, link) in links {
            let Sight(seen, heaps) = hear(seat, &**link, SIGHT, check, by)?;
            readers.extend(heaps.contains(&household.seat).then_some(seat));
            sights.insert(seat, seen);
        }
        Ok(Neighbours { mine, views, sights, readers })
    }

    /// Sums of a group through shared memory, where all its members see each other. Every member comes to the same
    /// answer. `kind` distinguishes sums that may be under way at the same time.
    #[must_use]
    pub fn sum(&self, kind: u8, group: &[Seat]) -> Option<SharedSum> {
        let sees =
            |from: &Seat, to: &Seat| self.sights.get(from).is_some_and(|sight| sight.contains(to));
        let mutual = group.iter().all(|from| group.iter().all(|to| sees(from, to)));
        if !mutual || group.len() < 2 || usize::from(kind) >= PORTS {
            return None;
        }
        let views: Option<Vec<View>> =
            group.iter().map(|seat| self.views.get(seat).cloned()).collect();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mine = self.mine.clone()?;
        let me = mine.identity().seat;
        let circle = Circle::new(mine, views?, usize::from(kind), cores);
        // A seat lends if all others can read what it lends; the others find out as it does.
        let is_read = group.iter().all(|seat| *seat == me || self.readers.contains(seat));
        Some(SharedSum::new(circle.lending(is_read)))
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
    let heap =
        usize::try_from(host_memory() / 2).map_or(HEAP_BYTES_MAX, |half| half.min(HEAP_BYTES_MAX));
    Ok(Segment::new(Identity::fresh(job, epoch, seat)?)?.with_heap(heap))
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
            // Whoever has met all others before this one did is there, and says so.
            Ok(frame) if is_beat(&frame.header) => {}
            Ok(_) => return Err(Fault::peer(Some(seat), format!("{seat} speaks out of turn"))),
            Err(LinkError::Deadline) if !by.passed() => {}
            Err(error) => return Err(lost(seat, &error)),
        }
    }
}

fn lost(seat: Seat, error: &LinkError) -> Fault {
    Fault::peer(Some(seat), error.to_string()).during(format!("offering shared memory to {seat}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Block, Rows, Update, Values};
    use starlings_transport::pair;

    /// Seats on the given hosts meet over memory links, each in a thread of its own, and do something.
    fn meet<T: Send>(hosts: &[&str], then: impl Fn(Seat, Neighbours) -> T + Sync) -> Vec<T> {
        let hosts: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
        let mut links: Vec<BTreeMap<Seat, Arc<dyn Link>>> = vec![BTreeMap::new(); hosts.len()];
        for a in 0..hosts.len() {
            for b in a + 1..hosts.len() {
                let (here, there) = pair();
                links[a].insert(Seat(b as u32), Arc::new(here));
                links[b].insert(Seat(a as u32), Arc::new(there));
            }
        }
        std::thread::scope(|scope| {
            let (hosts, then) = (&hosts, &then);
            let seats: Vec<_> = links
                .iter()
                .enumerate()
                .map(|(seat, links)| {
                    scope.spawn(move || {
                        let (job, epoch, seat) = (JobId(5), Epoch(1), Seat(seat as u32));
                        let household = Household { job, epoch, seat, hosts };
                        let by = Deadline::after_ms(10_000);
                        then(seat, Neighbours::meet(&household, links, &|| Ok(()), by).unwrap())
                    })
                })
                .collect();
            seats.into_iter().map(|seat| seat.join().unwrap()).collect()
        })
    }

    #[test]
    fn only_groups_whose_members_all_share_a_host_sum_in_memory() {
        let all = |count: u32| (0..count).map(Seat).collect::<Vec<_>>();
        meet(&["a", "b", "a", "a"], |seat, near| {
            assert!(near.sum(1, &all(4)).is_none());
            let group = [Seat(0), Seat(2), Seat(3)];
            assert_eq!(near.sum(1, &group).is_some(), seat != Seat(1));
            assert!(near.sum(PORTS as u8, &group).is_none(), "there is no such port");
            assert!(near.sum(1, &[seat]).is_none(), "nobody to sum with");
        });
    }

    #[test]
    fn updates_are_summed_again_and_again_and_contributions_kept() {
        let sums = meet(&["a"; 3], |seat, near| {
            let mut shared = near.sum(2, &[Seat(0), Seat(1), Seat(2)]).unwrap();
            let number = f64::from(seat.0) + 0.5;
            let mut all = Vec::new();
            for len in [1, 1000, 3, 1000] {
                let blocks = vec![
                    Block::dense("a", vec![number; len]),
                    Block::counts("b", vec![i64::from(seat.0); 2]),
                ];
                let update = Update { blocks };
                let kept = update.clone();
                let sum = shared.sum(update, &[], Deadline::after_ms(10_000), &|| None).unwrap();
                assert_eq!((sum.f64("a"), sum.i64("b")), (&vec![4.5; len][..], &[3, 3][..]));
                assert_eq!(shared.contribution(), Some(kept));
                all.push(sum);
            }
            all
        });
        assert!(sums[0] == sums[1] && sums[1] == sums[2]);
    }

    #[test]
    fn a_fault_gives_the_contribution_back() {
        let near = Neighbours::of_threads(2).remove(0);
        let mut shared = near.sum(0, &[Seat(0), Seat(1)]).unwrap();
        let update = Update { blocks: vec![Block::dense("a", vec![1.0])] };
        let lost = || Some(Fault::peer(Some(Seat(1)), "lost rank 1"));
        let fault = shared.sum(update.clone(), &[], Deadline::after_ms(10_000), &lost).unwrap_err();
        assert!(fault.message().ends_with("lost rank 1"), "{fault}");
        assert_eq!(shared.contribution(), Some(update));
    }

    #[test]
    fn rows_are_left_to_the_links() {
        let dense = Block::dense("a", vec![1.0]);
        let rows = Block::rows("b", Rows::none(Values::F32(vec![]).kind(), 3, 2));
        assert!(SharedSum::takes(&Update { blocks: vec![dense.clone()] }));
        assert!(!SharedSum::takes(&Update { blocks: vec![dense, rows] }));
    }
}
