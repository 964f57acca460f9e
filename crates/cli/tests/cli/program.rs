//! Runs the binary with deadlines: to its end, or beside the test while its lines are read.

use serde_json::Value;
use starlings::Deadline;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);
/// Lines that may wait to be read; far more than any test makes.
const LINES_MAX: usize = 1 << 20;

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// All events.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// The report: the last line.
    pub(crate) fn report(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        let last = self.events().pop().expect("there are events");
        assert_eq!(last["event"], "report");
        last
    }

    /// Checks that it failed with this code and that standard error has all these parts.
    pub(crate) fn failed(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        // To have stopped as asked is no error.
        assert_eq!(self.err.contains("error: "), code != 130, "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "'{part}' is missing in: {}", self.err);
        }
    }
}

/// Runs the binary to its end in a folder.
pub(crate) fn starlings(folder: &Path, arguments: &[&str]) -> Ended {
    Running::start(folder, arguments).end()
}

/// The binary while it runs.
pub(crate) struct Running {
    child: Child,
    out: Lines,
    err: Lines,
}

impl Running {
    /// Starts the binary in a folder.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Running {
        Running::spawn(Command::new(program()).args(arguments).current_dir(folder))
    }

    /// Starts a command of the test's own making.
    pub(crate) fn spawn(command: &mut Command) -> Running {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let out = Lines::of(child.stdout.take().expect("piped"));
        let err = Lines::of(child.stderr.take().expect("piped"));
        Running { child, out, err }
    }

    /// Waits for a line of standard output.
    pub(crate) fn line(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let by = Deadline::after(WAIT);
        loop {
            match self.out.next(by) {
                Some(line) if wanted(&line) => return line,
                Some(_) => {}
                None => panic!(
                    "ended without the line; it said {:?} {:?}",
                    self.out.seen,
                    self.err.rest(by)
                ),
            }
        }
    }

    /// Waits for an event of a kind.
    pub(crate) fn event(&mut self, kind: &str) -> Value {
        let start = format!("{{\"event\":\"{kind}\"");
        serde_json::from_str(&self.line(|line| line.starts_with(&start))).expect("events are JSON")
    }

    /// Waits for an event of a kind that happens after this call.
    pub(crate) fn fresh_event(&mut self, kind: &str) -> Value {
        self.out.skip();
        self.event(kind)
    }

    /// Its number among the processes.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(u64::from(self.child.id()), name);
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let by = Deadline::after(WAIT);
        let (out, err) = (self.out.rest(by), self.err.rest(by));
        // Both ends of its pipes are closed, so it is over or about to be.
        let status = self.child.wait().expect("our own child");
        Ended { code: status.code(), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(process: u64, name: &str) {
    let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {process}")).status();
    assert!(sent.expect("there is a shell").success(), "cannot send {name} to {process}");
}

/// A folder's files with their whole paths, at every depth.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

/// Checks that no file of a folder is a half-written one.
pub(crate) fn nothing_is_half_written(folder: &Path) {
    let half: Vec<PathBuf> =
        files(folder).into_iter().filter(|path| path.to_string_lossy().contains(".part")).collect();
    assert!(half.is_empty(), "{half:?}");
}

/// The project's examples.
pub(crate) fn example(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    format!("{folder}/{name}.toml")
}

/// The binary under test.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_starlings")
}

/// Lines of a pipe, read by a thread of its own so that waiting can have a deadline.
struct Lines {
    inbox: Receiver<String>,
    seen: String,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Lines {
        let (sender, inbox) = sync_channel(LINES_MAX);
        let read = move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(read).expect("a thread");
        Lines { inbox, seen: String::new() }
    }

    /// The next line; `None` at the end.
    fn next(&mut self, by: Deadline) -> Option<String> {
        match self.inbox.recv_timeout(by.left().unwrap_or_default()) {
            Ok(line) => {
                self.seen += &line;
                self.seen.push('\n');
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing came in time after: {}", self.seen),
        }
    }

    /// Passes over the lines that are there already.
    fn skip(&mut self) {
        while let Ok(line) = self.inbox.try_recv() {
            self.seen += &line;
            self.seen.push('\n');
        }
    }

    /// Everything up to the end, with what was seen before.
    fn rest(&mut self, by: Deadline) -> String {
        while self.next(by).is_some() {}
        self.seen.clone()
    }
}
