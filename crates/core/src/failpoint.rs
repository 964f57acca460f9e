//! Named failpoints: places of the protocol at which a real process can be made to die, to stand still or to be late, so
//! that a crash in every place that matters is tried on the real binary and not only hoped to be hit (the method of etcd's
//! robustness tests). `cargo xtask chaos` compiles with `--cfg failpoints`, and names in the variable `STARLINGS_FAIL` of one
//! process what is to happen to it: `POINT:ACTION:NTH`, as in `before-apply:kill:3`. Actions are `kill` (SIGKILL to itself),
//! `stop` (SIGSTOP to itself) and `delay=MILLISECONDS`; several are parted by commas.
//!
//! They are in no program: in every ordinary build [`failpoint!`](crate::failpoint!) is nothing at all.

/// A place at which a process may be made to fail: nothing, but in builds with `--cfg failpoints`.
#[cfg(not(failpoints))]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {};
}

/// A place at which a process may be made to fail.
#[cfg(failpoints)]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::reach($name)
    };
}

#[cfg(failpoints)]
pub use armed::reach;

#[cfg(failpoints)]
mod armed {
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// What is to happen where.
    struct Plan {
        point: String,
        action: Action,
        /// At the how-manieth visit, from 1.
        nth: u64,
        visits: AtomicU64,
    }

    enum Action {
        Kill,
        Stop,
        Delay(Duration),
    }

    static PLANS: OnceLock<Vec<Plan>> = OnceLock::new();

    /// The process is at this place.
    pub fn reach(point: &str) {
        for plan in PLANS.get_or_init(read).iter().filter(|plan| plan.point == point) {
            if plan.visits.fetch_add(1, Ordering::Relaxed) + 1 != plan.nth {
                continue;
            }
            match plan.action {
                Action::Kill => signal(Signal::KILL),
                Action::Stop => signal(Signal::STOP),
                Action::Delay(time) => std::thread::sleep(time),
            }
        }
    }

    fn signal(signal: Signal) {
        kill_process(getpid(), signal).expect("a process may signal itself");
    }

    #[allow(clippy::disallowed_methods, reason = "read once, and only in builds of the chaos runs")]
    fn read() -> Vec<Plan> {
        let text = std::env::var("STARLINGS_FAIL").unwrap_or_default();
        let plans = text.split(',').filter(|plan| !plan.is_empty());
        plans
            .map(|plan| parse(plan).unwrap_or_else(|| panic!("'{plan}' is no failpoint")))
            .collect()
    }

    fn parse(text: &str) -> Option<Plan> {
        let mut words = text.split(':');
        let (point, action) = (words.next()?.to_string(), words.next()?);
        let action = match action.split_once('=') {
            None if action == "kill" => Action::Kill,
            None if action == "stop" => Action::Stop,
            Some(("delay", time)) => Action::Delay(Duration::from_millis(time.parse().ok()?)),
            _ => return None,
        };
        let nth = words.next().map_or(Some(1), |word| word.parse().ok())?;
        Some(Plan { point, action, nth, visits: AtomicU64::new(0) })
    }
}
