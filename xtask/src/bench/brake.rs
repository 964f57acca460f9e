//! Ways to make one worker slow: its process is stopped and let go on, again and again; or a rival of higher priority takes its
//! core, again and again. Signals cost others time, too: those of a stop of 0.6 ms after every 0.3 ms slowed a worker on another
//! core by 4 % here. A rival stays on the core it was given, so that nobody else notices, but needs a core on which the slow
//! worker is alone.

use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A slow worker runs so long between two stops: short beside a step, or each message to it would wait longer than one to a
/// slow machine does.
pub(super) const RUN: f64 = 0.000_3;

/// Slows a worker until it is dropped.
pub(super) struct Brake {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Brake {
    /// Stops and continues a process. At so few instructions a turn that others hardly lose any of their cores.
    pub(super) fn stops(id: u64, stop: f64) -> Result<Brake, String> {
        let process = i32::try_from(id).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| format!("{id} is no process"))?;
        Ok(Brake::on(move || {
            if kill_process(process, Signal::STOP).is_err() {
                return false;
            }
            std::thread::sleep(Duration::from_secs_f64(stop));
            let _ = kill_process(process, Signal::CONT);
            std::thread::sleep(Duration::from_secs_f64(RUN));
            true
        }))
    }

    /// Takes a core for so many seconds, again and again.
    pub(super) fn rival(core: u64, busy: f64) -> Brake {
        let mut is_there = false;
        Brake::on(move || {
            if !is_there {
                is_there = true;
                taskset(&["--pid", "--cpu-list", &core.to_string()], &this_thread());
            }
            let start = Instant::now();
            while start.elapsed().as_secs_f64() < busy {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_secs_f64(RUN));
            true
        })
    }

    /// A thread of its own takes turns while they say that there are more.
    fn on(mut turn: impl FnMut() -> bool + Send + 'static) -> Brake {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let turns = move || {
            run_first();
            while !over.load(Ordering::Relaxed) && turn() {}
        };
        Brake { is_over, thread: Some(std::thread::spawn(turns)) }
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// All threads of a process run on this core from now on, and those that they start.
pub(super) fn pin(id: u64, core: u64) -> Result<(), String> {
    let arguments = ["--all-tasks", "--pid", "--cpu-list", &core.to_string()];
    match taskset(&arguments, &id.to_string()) {
        true => Ok(()),
        false => Err(format!("process {id} cannot be put on core {core} (taskset)")),
    }
}

fn taskset(arguments: &[&str], number: &str) -> bool {
    let mut command = Command::new("taskset");
    let status = command.args(arguments).arg(number).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// This thread runs before all others where that is allowed: stops would else last as long as the others compute, and the
/// worker would not only be slow but erratic.
fn run_first() {
    let _ = Command::new("chrt").args(["--fifo", "--pid", "1", &this_thread()]).output();
}

/// The number of this thread.
fn this_thread() -> String {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    thread.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
