//! A disk in memory, for tests only, that knows what is durable: it fails or loses power at a chosen
//! operation. After a cut it shows the three outcomes file systems are known for: nothing unsynced
//! survived, everything did, or names survived and their bytes did not.

use crate::disk::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What happens at the armed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// This one operation reports a full disk (a write keeps half its bytes), later ones work.
    NoSpaceOnce,
    /// The machine stops there; only what was made durable is found again.
    CutLosesUnsynced,
    /// The machine stops there; the disk happened to have everything.
    CutKeepsAll,
    /// The machine stops there; names were written before the bytes they name.
    CutKeepsNamesLosesBytes,
}

impl Mode {
    pub(crate) const CUTS: [Mode; 3] =
        [Mode::CutLosesUnsynced, Mode::CutKeepsAll, Mode::CutKeepsNamesLosesBytes];
}

#[derive(Clone, Default)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
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
                state.files.push(Content { now: bytes.to_vec(), durable: bytes.to_vec() });
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
        for file in &mut state.files {
            if mode != Mode::CutKeepsAll {
                file.now = file.durable.clone();
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

/// Counts an operation; fails if it is the armed one or, after a cut, any later one.
fn step(state: &mut State) -> io::Result<()> {
    let number = state.operations;
    state.operations += 1;
    match state.armed {
        Some((at, Mode::NoSpaceOnce)) if number == at => Err(ErrorKind::StorageFull.into()),
        Some((at, mode)) if mode != Mode::NoSpaceOnce && number >= at => {
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
        step(&mut state)?;
        let file = &mut state.files[self.1];
        file.durable = file.now.clone();
        Ok(())
    }
}
