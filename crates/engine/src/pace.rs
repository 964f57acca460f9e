//! What a link carries, measured: a message travels around a circle of seats that have met before, so that nobody's time holds
//! a wait for somebody who was still computing. Whoever asks agrees on the slowest of all seats' times.

use crate::net::kinds::PROBE;
use crate::net::{Arrival, Net};
use starlings_core::{Deadline, Fault, Result, Seat, Step};
use starlings_transport::{Header, Lane};
use std::time::Instant;

/// Bytes of a probe: enough that a link's delay does not hide its bandwidth, and on a slow one no more than a second.
pub(crate) const PROBE_BYTES: usize = 64 << 10;

/// Nanoseconds until a probe of the seat before has come, when one was sent to the seat after at the same time. All of a
/// group must call it, right after they have met. `tag` tells probes of different groups apart.
///
/// # Errors
/// A lost peer, an abort or the deadline.
pub(crate) fn probe(net: &Net, group: &[Seat], tag: u32, by: Deadline) -> Result<i64> {
    let me = group.iter().position(|&seat| seat == net.seat());
    let (Some(me), true) = (me, group.len() > 1) else { return Ok(1) };
    let [to, from] = [1, group.len() - 1].map(|ahead| group[(me + ahead) % group.len()]);
    let header = Header { lane: Lane::Exchange, kind: PROBE, step: Step(0), tag };
    let begun = now();
    net.send(to, header, &vec![0; PROBE_BYTES], by)?;
    let is_here = |arrival: &Arrival| arrival.from == from && arrival.header == header;
    let host = net.host(from);
    let told = net
        .next(Lane::Exchange, is_here, by)
        .map_err(|fault| fault.during(format!("waiting for a probe of {from} on {host}")))?;
    let nanoseconds = begun.elapsed().as_nanos();
    if told.payload.len() != PROBE_BYTES {
        return Err(Fault::peer(Some(from), format!("{from} on {host} sent another probe")));
    }
    Ok(i64::try_from(nanoseconds).unwrap_or(i64::MAX).max(1))
}

/// Bytes a second of a link that carries a probe in so many nanoseconds, to a power of two: measured again, it is most often the
/// same.
pub(crate) fn bytes_per_second(nanoseconds: i64) -> f64 {
    let exact = PROBE_BYTES as f64 * 1e9 / nanoseconds.max(1) as f64;
    exact.log2().round().exp2()
}

#[expect(clippy::disallowed_methods, reason = "what links carry is measured")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, flock, perches_that, run_all};
    use std::time::Duration;

    #[test]
    fn a_probe_goes_around_each_group_by_itself() {
        let times = flock(5, |perch| {
            let group =
                if perch.seat() < 2 { vec![Seat(0), Seat(1)] } else { (2..5).map(Seat).collect() };
            probe(&perch.net, &group, 1, Deadline::after(PATIENCE)).unwrap()
        });
        assert!(times.iter().all(|&nanoseconds| nanoseconds > 0));
        let alone = flock(1, |perch| probe(&perch.net, &[Seat(0)], 1, Deadline::after(PATIENCE)));
        assert!(alone.into_iter().all(|time| time.is_ok_and(|time| time == 1)));
    }

    #[test]
    fn a_slow_link_shows() {
        // Seat 1 takes 20 ms to send a probe, from when seat 2, which is to hear of it, has begun.
        let begun = std::sync::Barrier::new(2);
        let seats = perches_that(3, move |from, header| {
            if from > 0 && header.kind == PROBE {
                begun.wait();
            }
            if from == 1 && header.kind == PROBE {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let times = run_all(&seats, |perch| {
            let group: Vec<Seat> = (0..3).map(Seat).collect();
            probe(&perch.net, &group, 1, Deadline::after(PATIENCE)).unwrap()
        });
        assert!(times[2] >= 20_000_000, "{times:?}: seat 2 hears of seat 1");
    }

    #[test]
    fn bandwidths_are_powers_of_two() {
        let second = 1_000_000_000;
        assert_eq!(bytes_per_second(second), PROBE_BYTES as f64);
        assert_eq!(bytes_per_second(second / 2 + 1000), 2.0 * PROBE_BYTES as f64);
        assert_eq!(bytes_per_second(second / 3), 4.0 * PROBE_BYTES as f64);
        assert!(bytes_per_second(0).is_finite());
    }
}
