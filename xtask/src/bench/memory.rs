//! The most memory that a contender held: it and its children, as Linux counts resident pages. Looked at a few times a
//! second, so that the looking does not disturb what is measured.

use crate::stage::family;
use std::time::{Duration, Instant};

const GAP: Duration = Duration::from_millis(200);

/// The most memory seen so far.
#[derive(Default)]
pub(super) struct Peak {
    looked: Option<Instant>,
    bytes: u64,
}

impl Peak {
    /// Looks at a process and its descendants, unless it has just done so.
    pub(super) fn look(&mut self, process: u32) {
        if self.looked.is_some_and(|looked| looked.elapsed() < GAP) {
            return;
        }
        self.looked = Some(Instant::now());
        let status = |id: u32| std::fs::read_to_string(format!("/proc/{id}/status")).ok();
        let sum = family(process).into_iter().filter_map(|id| most_resident(&status(id)?)).sum();
        self.bytes = self.bytes.max(sum);
    }

    /// In megabytes, where the system tells.
    pub(super) fn megabytes(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.bytes as f64 / f64::from(1 << 20))
    }
}

/// The line `VmHWM:   1234 kB`, in bytes.
fn most_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read() {
        assert_eq!(most_resident("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS: 1 kB\n"), Some(2 << 20));
        assert_eq!(most_resident("Name:\tx\n"), None);
        let mut peak = Peak::default();
        peak.look(std::process::id());
        assert!(peak.megabytes().is_none_or(|most| most > 1.0));
    }
}
