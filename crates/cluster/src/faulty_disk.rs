//! A disk in memory, for tests only, that knows what is durable: it fails or loses power at a chosen
//! operation. After a cut it shows the outcomes file systems are known for: nothing unsynced survived,
//! everything did, names survived and their bytes did not, or each change for itself survived or not, a
//! file's bytes perhaps in part. A failed sync drops what was not durable and a second one on the same file
//! would report success (Rebello et al., 2020): whoever tries that is stopped here.

use crate::disk::{Disk, DiskFile};
use starlings_core::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const INPUT_OUTPUT_ERROR: i32 = 5;

/// What happens at the armed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// This one operation reports a full disk (a write keeps half its bytes), later ones work.
    NoSpaceOnce,
    /// This one operation reports an error of the device, later ones work.
    BrokenOnce,
    /// The machine stops there; only what was made durable is found again.
    CutLosesUnsynced,
    /// The machine stops there; the disk happened to have everything.
    CutKeepsAll,
    /// The machine stops there; names were written before the bytes they name.
    CutKeepsNamesLosesBytes,
    /// The machine stops there; of what was not durable each name and each file for itself was written or not,
    /// or in part, as this number decides.
    CutKeepsSome(u64),
}

impl Mode {
    pub(crate) const CUTS: [Mode; 3] =
        [Mode::CutLosesUnsynced, Mode::CutKeepsAll, Mode::CutKeepsNamesLosesBytes];

    fn passes(self) -> bool {
        matches!(self, Mode::NoSpaceOnce | Mode::BrokenOnce)
    }
}

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// A sync has failed: the kernel may call the rest clean now.
    given_up: bool,
}

/// Names of one folder: to a file's number, or to a folder.
type Names = BTreeMap<PathBuf, Option<usize>>;

#[derive(Clone, Default)]
struct State {
    files: Vec<Content>,
    now: Names,
    durable: Names,
    operations: u64,
    armed: Option<(u64, Mode)>,
    /// A folder that cannot be listed.
    unreadable: Option<PathBuf>,
}

/// The disk.
#[derive(Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<State>>);

struct SimulatedFile(Arc<Mutex<State>>, usize);

impl SimulatedDisk {
    /// A disk with these folders.
    pub(crate) fn new(folders: &[&str]) -> SimulatedDisk {
        let names: Names = folders.iter().map(|folder| (PathBuf::from(folder), None)).collect();
        let state = State { now: names.clone(), durable: names, ..State::default() };
        SimulatedDisk(Arc::new(Mutex::new(state)))
    }

    /// Lets `after` more changing operations pass, then does what `mode` says.
    pub(crate) fn arm(&self, after: u64, mode: Mode) {
        let mut state = self.0.lock().unwrap();
        state.armed = Some((state.operations + after, mode));
    }

    /// From now on this folder cannot be listed; `None` heals it.
    pub(crate) fn break_folder(&self, folder: Option<&Path>) {
        self.0.lock().unwrap().unreadable = folder.map(Path::to_path_buf);
    }

    /// Whether the armed operation has been reached.
    pub(crate) fn reached(&self) -> bool {
        let state = self.0.lock().unwrap();
        state.armed.is_some_and(|(at, _)| state.operations > at)
    }

    /// The bytes of a file.
    pub(crate) fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.0.lock().unwrap();
        state.now.get(path).copied().flatten().map(|file| state.files[file].now.clone())
    }

    /// Changes the bytes of a file behind everyone's back; `None` removes it.
    pub(crate) fn tamper(&self, path: &Path, bytes: Option<&[u8]>) {
        let mut state = self.0.lock().unwrap();
        match bytes {
            Some(bytes) => {
                state.files.push(Content {
                    now: bytes.to_vec(),
                    durable: bytes.to_vec(),
                    given_up: false,
                });
                let number = state.files.len() - 1;
                state.now.insert(path.to_path_buf(), Some(number));
            }
            None => drop(state.now.remove(path)),
        }
    }

    /// What is found when the machine is on again.
    pub(crate) fn after_power_cut(&self, mode: Mode) -> SimulatedDisk {
        let mut state = self.0.lock().unwrap().clone();
        if mode == Mode::CutLosesUnsynced {
            let durable = state.durable.clone();
            // A name whose folder was never made durable is lost with it.
            state.now = durable
                .iter()
                .filter(|(path, _)| {
                    path.ancestors()
                        .skip(1)
                        .all(|above| above == Path::new("/") || durable.contains_key(above))
                })
                .map(|(path, file)| (path.clone(), *file))
                .collect();
        }
        let mut chance = match mode {
            Mode::CutKeepsSome(seed) => Some(Rng::named(seed, "power cut", &[])),
            _ => None,
        };
        if let Some(rng) = &mut chance {
            state.keep_some_names(rng);
        }
        for file in &mut state.files {
            match &mut chance {
                Some(rng) => file.keep_some(rng),
                None if mode != Mode::CutKeepsAll => file.now = file.durable.clone(),
                None => {}
            }
            file.durable = file.now.clone();
        }
        state.durable = state.now.clone();
        state.armed = None;
        SimulatedDisk(Arc::new(Mutex::new(state)))
    }

    fn change<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.0.lock().unwrap();
        step(&mut state)?;
        act(&mut state)
    }
}

impl Content {
    /// The durable bytes and what follows them, whole, in part, or in part with nothing where bytes should be.
    fn keep_some(&mut self, rng: &mut Rng) {
        if self.now == self.durable {
            return;
        }
        let end = rng.below(self.now.len() as u64 + 1) as usize;
        match rng.below(4) {
            0 => self.now = self.durable.clone(),
            1 => {}
            2 => self.now.truncate(end),
            _ => self.now[end..].fill(0),
        }
    }
}

impl State {
    /// Each name for itself as it is now or as it was last made durable; what lies in a lost folder is lost.
    fn keep_some_names(&mut self, rng: &mut Rng) {
        let paths: BTreeSet<PathBuf> =
            self.now.keys().chain(self.durable.keys()).cloned().collect();
        let mut kept = Names::new();
        for path in paths {
            let of = if rng.below(2) == 0 { &self.now } else { &self.durable };
            let above = path.parent().is_none_or(|above| {
                above == Path::new("/") || kept.contains_key(above) || above == Path::new("")
            });
            if let Some(file) = of.get(&path).filter(|_| above) {
                kept.insert(path, *file);
            }
        }
        self.now = kept;
    }
}

/// Counts an operation; fails if it is the armed one or, after a cut, any later one.
fn step(state: &mut State) -> io::Result<()> {
    let number = state.operations;
    state.operations += 1;
    match state.armed {
        Some((at, Mode::NoSpaceOnce)) if number == at => Err(ErrorKind::StorageFull.into()),
        Some((at, Mode::BrokenOnce)) if number == at => {
            Err(io::Error::from_raw_os_error(INPUT_OUTPUT_ERROR))
        }
        Some((at, mode)) if !mode.passes() && number >= at => {
            Err(io::Error::other("the power is off"))
        }
        _ => Ok(()),
    }
}

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let number = self.change(|state| {
            if state.now.contains_key(path) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if !path.parent().is_some_and(|parent| state.now.contains_key(parent)) {
                return Err(missing());
            }
            state.files.push(Content::default());
            let number = state.files.len() - 1;
            state.now.insert(path.to_path_buf(), Some(number));
            Ok(number)
        })?;
        Ok(Box::new(SimulatedFile(self.0.clone(), number)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        let bytes = self.content(path).ok_or_else(missing)?;
        Ok(Box::new(io::Cursor::new(bytes)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|state| {
            let file = state.now.remove(from).ok_or_else(missing)?;
            state.now.insert(to.to_path_buf(), file);
            Ok(())
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.change(|state| {
            let inside = |path: &Path| path.parent() == Some(folder);
            state.durable.retain(|path, _| !inside(path));
            let names = state.now.iter().filter(|(path, _)| inside(path));
            state.durable.extend(names.map(|(path, file)| (path.clone(), *file)));
            Ok(())
        })
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.change(|state| {
            if state.now.contains_key(folder) {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if !folder.parent().is_some_and(|parent| state.now.contains_key(parent)) {
                return Err(missing());
            }
            state.now.insert(folder.to_path_buf(), None);
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(|state| state.now.remove(path).map(|_| ()).ok_or_else(missing))
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.change(|state| {
            if state.now.keys().any(|path| path.parent() == Some(folder)) {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            state.now.remove(folder).map(|_| ()).ok_or_else(missing)
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.0.lock().unwrap();
        if state.unreadable.as_deref() == Some(folder) {
            return Err(io::Error::from_raw_os_error(INPUT_OUTPUT_ERROR));
        }
        if !state.now.contains_key(folder) {
            return Err(missing());
        }
        let inside = state.now.keys().filter(|path| path.parent() == Some(folder));
        Ok(inside.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }
}

impl Write for SimulatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        let result = step(&mut state);
        // A write that fails may have written some of its bytes.
        let taken = if result.is_ok() { bytes.len() } else { bytes.len() / 2 };
        state.files[self.1].now.extend_from_slice(&bytes[..taken]);
        result.map(|()| taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for SimulatedFile {
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        assert!(!state.files[self.1].given_up, "a failed sync was tried again on the same file");
        if let Err(error) = step(&mut state) {
            state.files[self.1].given_up = true;
            return Err(error);
        }
        let file = &mut state.files[self.1];
        file.durable = file.now.clone();
        Ok(())
    }
}
