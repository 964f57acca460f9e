//! Stages: a named command or check with a limit of time, and the table that sums a run up. Output is passed on line
//! by line, so that a person sees it live, and read on the way, so that tests can be counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Tests seen so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

/// One line of the summary.
struct Line {
    name: &'static str,
    seconds: f64,
    result: Result<(), String>,
}

/// A run of stages.
pub(crate) struct Run<'a> {
    root: &'a Path,
    lines: Vec<Line>,
    tally: Tally,
}

impl<'a> Run<'a> {
    pub(crate) fn new(root: &'a Path) -> Run<'a> {
        Run { root, lines: Vec::new(), tally: Tally::default() }
    }

    /// Runs a check inside this program. Returns whether it passed.
    pub(crate) fn check(
        &mut self,
        name: &'static str,
        check: impl FnOnce(&Path) -> Result<(), String>,
    ) -> bool {
        println!("== {name}");
        let start = Instant::now();
        let result = check(self.root);
        self.close(name, start, result)
    }

    /// Runs cargo with a limit of minutes. Returns whether it passed.
    pub(crate) fn cargo(
        &mut self,
        name: &'static str,
        arguments: &[&str],
        minutes_max: u64,
    ) -> bool {
        println!("== {name}: cargo {}", arguments.join(" "));
        let start = Instant::now();
        let result = self.command(arguments, Duration::from_secs(minutes_max * 60));
        self.close(name, start, result)
    }

    /// Prints the table and the count of tests; fails if any stage failed.
    pub(crate) fn finish(self) -> Result<(), String> {
        println!("\n{:<14} {:>9}  result", "stage", "seconds");
        for line in &self.lines {
            let result = line
                .result
                .as_ref()
                .map_or_else(|why| format!("FAILED: {why}"), |()| "ok".to_string());
            println!("{:<14} {:>9.1}  {result}", line.name, line.seconds);
        }
        if self.tally != Tally::default() {
            println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        }
        let failed: Vec<&str> =
            self.lines.iter().filter(|line| line.result.is_err()).map(|line| line.name).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }

    fn close(&mut self, name: &'static str, start: Instant, result: Result<(), String>) -> bool {
        let passed = result.is_ok();
        self.lines.push(Line { name, seconds: start.elapsed().as_secs_f64(), result });
        passed
    }

    fn command(&mut self, arguments: &[&str], limit: Duration) -> Result<(), String> {
        let mut child = Command::new("cargo")
            .args(arguments)
            .current_dir(self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("cargo did not start: {why}"))?;
        let readers = [
            listen(child.stdout.take().expect("piped above"), std::io::stdout()),
            listen(child.stderr.take().expect("piped above"), std::io::stderr()),
        ];
        let status = wait(&mut child, limit);
        self.collect(readers);
        match status? {
            status if status.success() => Ok(()),
            status => Err(status.to_string()),
        }
    }

    /// Adds up what the readers counted. A process left behind by a test may hold the output open for ever, so
    /// that they get a moment and no more.
    fn collect(&mut self, readers: [JoinHandle<Tally>; 2]) {
        let start = Instant::now();
        while !readers.iter().all(JoinHandle::is_finished)
            && start.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        for reader in readers {
            match reader.is_finished() {
                true => {
                    let tally = reader.join().expect("a reader does not panic");
                    self.tally.passed += tally.passed;
                    self.tally.failed += tally.failed;
                }
                false => println!(
                    "note: a process left behind still holds the output; its tests are not counted"
                ),
            }
        }
    }
}

/// Reads a child's output on a thread of its own.
fn listen(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
) -> JoinHandle<Tally> {
    std::thread::spawn(move || pass_on(from, &mut to))
}

/// Copies lines from a child to our own output, counting tests on the way.
fn pass_on(from: impl Read, to: &mut impl Write) -> Tally {
    let mut tally = Tally::default();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        if let Some(more) = count(&text) {
            tally.passed += more.passed;
            tally.failed += more.failed;
        }
        // A closed output must not stop the checks.
        let _ = writeln!(to, "{text}");
    }
    tally
}

/// The tests that a runner's summary line reports, if this is one: `test result: ok. 3 passed; 0 failed; …` (cargo
/// test) or `Summary [ 1.2s] 9 tests run: 8 passed, 1 failed, 2 skipped` (nextest).
fn count(line: &str) -> Option<Tally> {
    let figures = line.trim_start().strip_prefix("test result:").or_else(|| {
        line.trim_start()
            .strip_prefix("Summary [")
            .and_then(|rest| rest.split_once("run:"))
            .map(|(_, rest)| rest)
    })?;
    let number = |word: &str| {
        let words: Vec<&str> =
            figures.split([' ', ',', ';', '(', ')']).filter(|part| !part.is_empty()).collect();
        let at = words.iter().position(|part| *part == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    let failed = ["failed", "timed", "exec"].iter().filter_map(|word| number(word)).sum();
    Some(Tally { passed: number("passed").unwrap_or(0), failed })
}

/// Waits for a child. Past the limit it ends the child and everything that the child started.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus, String> {
    wait_and(child, limit, &mut |_| {})
}

/// The same, looking at the process now and then.
pub(crate) fn wait_and(
    child: &mut Child,
    limit: Duration,
    look: &mut dyn FnMut(u32),
) -> Result<ExitStatus, String> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if start.elapsed() < limit => {
                look(child.id());
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(None) => {
                let members: Vec<String> = family(child.id()).iter().map(u32::to_string).collect();
                // The shell's own `kill` is on every machine. Whoever has gone in the meantime is no trouble.
                let command = format!("kill -KILL {} 2>/dev/null", members.join(" "));
                let _ = Command::new("sh").args(["-c", &command]).status();
                let _ = child.wait();
                return Err(format!("ended after {} s without a result", limit.as_secs()));
            }
            Err(why) => return Err(why.to_string()),
        }
    }
}

/// A process and all its descendants, parents first.
pub(crate) fn family(root: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pairs: Vec<(u32, u32)> = processes
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
            Some((id, parent.trim().parse().ok()?))
        })
        .collect();
    let mut members = vec![root];
    let mut next = 0;
    while let Some(&parent) = members.get(next) {
        members.extend(pairs.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_both_runners_are_counted() {
        let cargo =
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(count(cargo), Some(Tally { passed: 12, failed: 3 }));
        let nextest = "     Summary [   2.301s] 10 tests run: 7 passed (1 slow), 2 failed, 1 timed out, 4 skipped";
        assert_eq!(count(nextest), Some(Tally { passed: 7, failed: 3 }));
        assert_eq!(
            count("     Summary [   0.012s] 3 tests run: 3 passed, 0 skipped"),
            Some(Tally { passed: 3, failed: 0 })
        );
        assert_eq!(count("12 passed of 13"), None);
    }

    #[test]
    fn a_command_past_its_limit_is_ended_with_its_children() {
        let mut command = Command::new("sh");
        let mut child =
            command.args(["-c", "sleep 600 & sleep 600"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = child.stdout.take().unwrap();
        let why = wait(&mut child, Duration::from_millis(300)).unwrap_err();
        assert!(why.contains("without a result"), "{why}");
        // The output ends only when the last process that holds it has ended.
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
