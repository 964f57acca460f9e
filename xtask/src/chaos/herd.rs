//! Processes of a run: started, listened to line by line with the time of each, signalled, and gone when it is over.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines with the time at which each was read.
type Lines = Arc<Mutex<Vec<(Instant, String)>>>;

/// A process of a run.
pub(super) struct Process {
    pub(super) name: String,
    child: Child,
    out: Lines,
    err: Lines,
    status: Option<ExitStatus>,
}

impl Process {
    pub(super) fn start(name: &str, command: &mut Command) -> Result<Process, String> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("{name} did not start: {why}"))?;
        let out = listen(child.stdout.take().expect("piped"));
        let err = listen(child.stderr.take().expect("piped"));
        Ok(Process { name: name.to_string(), child, out, err, status: None })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far, from a line on.
    pub(super) fn lines(&self, from: usize) -> Vec<(Instant, String)> {
        let lines = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        lines.get(from..).unwrap_or_default().to_vec()
    }

    /// What it has complained of.
    pub(super) fn complaints(&self) -> String {
        let lines = self.err.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }

    /// Waits for a line of its standard output that begins so.
    pub(super) fn line(&mut self, start: &str, by: Instant) -> Result<String, String> {
        loop {
            if let Some((_, line)) = self.lines(0).into_iter().find(|(_, it)| it.starts_with(start))
            {
                return Ok(line);
            }
            if Instant::now() > by || self.ended().is_some() {
                return Err(format!("{} never said '{start}'\n{}", self.name, self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Whether it stands still.
    pub(super) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let state = stat.ok().and_then(|stat| Some(stat.rsplit_once(") ")?.1.starts_with('T')));
        self.status.is_none() && state.unwrap_or(false)
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self, by: Instant) -> Option<ExitStatus> {
        while self.ended().is_none() && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.status.is_some() {
            // What it said last may still be on its way through the pipe.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.status
    }

    /// Whether it was killed.
    pub(super) fn was_killed(&mut self) -> bool {
        self.ended().is_some_and(|status| status.signal() == Some(9))
    }

    /// The end of what it said, for people.
    pub(super) fn last_words(&self) -> String {
        let said = self.lines(0);
        let tail = said.iter().skip(said.len().saturating_sub(4)).map(|(_, line)| {
            let short: String = line.chars().take(300).collect();
            format!("  {}> {short}\n", self.name)
        });
        let complaints = self.complaints();
        let complaints = complaints.lines().map(|line| format!("  {}! {line}\n", self.name));
        format!("  {} ended {:?}\n", self.name, self.status)
            + &tail.collect::<String>()
            + &complaints.collect::<String>()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process; one that is gone is no trouble.
pub(super) fn signal(process: u32, name: &str) {
    let command = format!("kill -{name} {process} 2>/dev/null");
    let _ = Command::new("sh").args(["-c", &command]).status();
}

fn listen(from: impl Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let to = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            to.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), line));
        }
    });
    lines
}
