//! A save of a real process on a real disk, killed at every single one of its system calls, and with every call on files
//! refused (EIO, ENOSPC), by strace's injection. After each the newest acknowledged checkpoint comes back bit for bit, the one
//! before it is there, nothing unfinished is mistaken for a checkpoint, and the next save works. (Power cuts, which no
//! signal can show, are simulated in `checkpoint_tests.rs`.)
//!
//! The program has a main function of its own because it is also the one that saves: the harness of tests has threads
//! and calls of its own. It lists and runs its one test as that harness would.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is test code")]

use starlings_cluster::checkpoint::{Complete, Store};
use starlings_cluster::manifest::{Fingerprint, Manifest};
use starlings_cluster::tensors::Cells;
use starlings_core::{Epoch, Model, Result, Role, Seat, Step, Tensor, Values};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

/// Paths that do not exist: asking for them marks where the save begins and ends among the calls.
const BEGINS: &str = "/the-save-begins";
const ENDS: &str = "/the-save-ends";

/// Calls on files that are refused, too. (Not `close`: what it says of a folder the standard library takes for a bug.)
const REFUSED: &[&str] = &[
    "openat",
    "write",
    "read",
    "fsync",
    "rename",
    "mkdir",
    "unlink",
    "rmdir",
    "getdents64",
    "statx",
    "fstat",
    "lseek",
];

/// How the saving process says that the save was not acknowledged.
const REFUSED_CODE: u8 = 3;
const SIGKILL: i32 = 9;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["save", folder] => return child(Path::new(folder)),
        list if list.contains(&"--list") => {
            if !list.contains(&"--ignored") {
                println!("a_save_survives_its_death_at_every_system_call: test");
            }
        }
        _ => survives_every_call(),
    }
    ExitCode::SUCCESS
}

/// The process that is killed: saves step 30 over 10 and 20.
fn child(folder: &Path) -> ExitCode {
    let store = Store::new(folder, 2).unwrap();
    drop(std::fs::metadata(BEGINS));
    let saved = save(&store, 30);
    drop(std::fs::metadata(ENDS));
    match saved {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            assert!(!fault.message().is_empty(), "a refusal has words");
            ExitCode::from(REFUSED_CODE)
        }
    }
}

fn survives_every_call() {
    // In memory where the system has such a folder: what a signal leaves behind does not depend on the disk.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let place = place.unwrap();
    let original = place.path().join("original");
    let store = Store::new(&original, 2).unwrap();
    save(&store, 10).unwrap();
    save(&store, 20).unwrap();
    let trial = |name: &str| {
        let place = place.path().join(name);
        std::fs::create_dir(&place).unwrap();
        Trial { place, original: original.clone() }
    };
    let calls = match trial("undisturbed").calls() {
        Ok(calls) => calls,
        Err(why) => {
            println!("skipped: saves killed at every system call ({why})");
            println!("         on Debian install strace, and allow ptrace");
            return;
        }
    };
    assert!(calls.contains_key("rename") && calls.contains_key("fsync"), "{calls:?}");
    let each =
        calls.iter().flat_map(|(name, range)| range.clone().map(move |number| (name, number)));
    let each: Vec<(&String, usize)> = each.collect();
    assert!(each.len() > 60, "a save makes many calls: {calls:?}");
    let (halves, each) = ([0, 1].map(|half| (half, trial(&half.to_string()))), &each);
    let refused: usize = std::thread::scope(|scope| {
        let started = halves.map(|(half, trial)| {
            scope.spawn(move || {
                let mine = each.iter().skip(half).step_by(2);
                mine.map(|(name, number)| trial.fates(name, *number)).sum::<usize>()
            })
        });
        started.map(|half| half.join().unwrap()).iter().sum()
    });
    assert!(refused > 100, "many calls are on files: {refused}");
    println!("a save of {} system calls: killed at each, refused {refused} times", each.len());
}

/// What must be true after whatever happened to the save of step 30.
fn check(store: &Store, acknowledged: bool, fate: &str) {
    let found = store.latest(&fingerprint()).unwrap().expect(fate);
    assert!(found.warnings.is_empty(), "{fate}: {:?}", found.warnings);
    let step = found.manifest.step.0;
    assert!(step == 30 || (step == 20 && !acknowledged), "{fate}: {step} is found");
    assert_is(&found, step, fate);
    assert_is(&store.load(Step(20)).expect(fate), 20, fate);
    for step in store.steps().unwrap() {
        assert_is(&store.load(step).expect(fate), step.0, fate);
    }
    // Life goes on, and what was left behind is tidied away.
    save(store, 40).expect(fate);
    assert_is(&store.latest(&fingerprint()).unwrap().expect(fate), 40, fate);
    let left = files(store.folder(Step(0)).parent().unwrap());
    let names = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    assert!(!left.iter().map(names).any(|name| name.ends_with(".part")), "{fate}: {left:?}");
}

/// Where trials happen: each in a fresh copy of a folder with two checkpoints.
struct Trial {
    place: PathBuf,
    original: PathBuf,
}

impl Trial {
    /// The calls of an undisturbed save: for each name the numbers of those between the marks.
    fn calls(&self) -> Result<BTreeMap<String, std::ops::RangeInclusive<usize>>, String> {
        let (status, store) = self.run_traced("all", &[]).map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("strace ended with {status}"));
        }
        check(&store, true, "an undisturbed save");
        let trace = std::fs::read_to_string(self.log()).unwrap();
        let (mut seen, mut calls) = (BTreeMap::new(), BTreeMap::new());
        let mut inside = false;
        for line in trace.lines() {
            let Some(name) = call_of(line) else { continue };
            let number = seen.entry(name.to_owned()).or_insert(0);
            *number += 1;
            if line.contains(ENDS) {
                return Ok(calls);
            }
            if inside {
                let range = calls.entry(name.to_owned()).or_insert(*number..=*number);
                *range = *range.start()..=*number;
            }
            inside |= line.contains(BEGINS);
        }
        Err("the marks are not in strace's log".to_owned())
    }

    /// All that can happen to one call; says how often it was refused.
    fn fates(&self, name: &str, number: usize) -> usize {
        let fate = format!("inject={name}:signal=SIGKILL:when={number}");
        let (status, store) = self.run(name, &fate);
        assert_eq!(status.signal(), Some(SIGKILL), "{fate} did not happen");
        check(&store, false, &fate);
        if !REFUSED.contains(&name) {
            return 0;
        }
        for error in ["EIO", "ENOSPC"] {
            let fate = format!("inject={name}:error={error}:when={number}");
            let (status, store) = self.run(&format!("{name},openat,close,fsync"), &fate);
            let acknowledged = status.code() == Some(0);
            let told = status.code() == Some(i32::from(REFUSED_CODE));
            assert!(acknowledged || told, "{fate}: {status}");
            check(&store, acknowledged, &fate);
            self.no_sync_was_tried_again(&fate);
        }
        2
    }

    fn run(&self, trace: &str, fate: &str) -> (ExitStatus, Store) {
        self.run_traced(trace, &["-e", fate]).unwrap()
    }

    fn run_traced(&self, trace: &str, more: &[&str]) -> std::io::Result<(ExitStatus, Store)> {
        let folder = self.place.join("trial");
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        copy(&self.original, &folder);
        let mut command = Command::new("strace");
        command.arg("-f").arg("-o").arg(self.log()).args(["-e", &format!("trace={trace}")]);
        command.args(more).arg(std::env::current_exe().unwrap()).arg("save").arg(&folder);
        let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status()?;
        Ok((status, Store::new(folder, 2).unwrap()))
    }

    fn log(&self) -> PathBuf {
        self.place.join("log")
    }

    /// After a failed fsync the descriptor is closed and never synced again: the kernel would say yes and mean nothing.
    fn no_sync_was_tried_again(&self, fate: &str) {
        let trace = std::fs::read_to_string(self.log()).unwrap();
        let mut failed: Option<String> = None;
        for line in trace.lines() {
            let Some(name) = call_of(line) else { continue };
            let descriptor = line.split(['(', ')']).nth(1).unwrap_or_default().to_owned();
            match (name, &failed) {
                ("fsync", Some(bad)) => assert_ne!(bad, &descriptor, "{fate}: tried again"),
                ("fsync", None) if line.contains("(INJECTED)") => failed = Some(descriptor),
                ("close", Some(bad)) if *bad == descriptor => failed = None,
                _ => {}
            }
        }
    }
}

/// The name of the call in a line of strace's log, after the number of the process.
fn call_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some(name)
}

fn fingerprint() -> Fingerprint {
    Fingerprint([("train.seed".to_owned(), "1".to_owned())].into())
}

fn model(step: u64) -> Model {
    let mut model = Model::new();
    model.set("centres", Tensor::of(&[2], vec![step as f64, 0.5], Role::Weight));
    model.set("momentum", Tensor::of(&[1], vec![-(step as f64)], Role::State));
    model
}

fn cells(seat: u32, step: u64) -> Cells {
    [(seat, [("dual".to_owned(), Values::I64(vec![step as i64]))].into())].into()
}

fn save(store: &Store, step: u64) -> Result<()> {
    let at = Step(step);
    let mut parts = vec![store.write_model(at, &model(step))?];
    for seat in 0..2 {
        parts.push(store.write_memory(at, Seat(seat), &cells(seat, step))?);
    }
    let manifest = Manifest {
        step: at,
        epoch: Epoch(0),
        workers: 2,
        shards: 2,
        fingerprint: fingerprint(),
        written_by: "0.1.0".into(),
        progress: serde_json::Value::Null,
        parts,
    };
    store.commit(&manifest).map(|_| ())
}

fn assert_is(found: &Complete, step: u64, fate: &str) {
    assert_eq!(found.manifest.step, Step(step), "{fate}");
    assert_eq!(found.model().expect(fate), model(step), "{fate}");
    let mut all = cells(0, step);
    all.extend(cells(1, step));
    assert_eq!(found.memory(|_| true).expect(fate), all, "{fate}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &target),
            false => _ = std::fs::copy(&path, &target).unwrap(),
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}
