//! Checkpoints in an object store: the layout of [`checkpoint`](crate::checkpoint) with objects for files. An object appears whole or
//! not at all by itself, so that temporary files, fsync and rename become one `put`; what a store has instead is doubt: a
//! request that timed out may have been obeyed. So each `put` whose end is unknown is read back before it is tried again, and
//! the manifest is put on a condition (it is absent, or still the one that was seen), which lets exactly one of two
//! writers win (AWS and others call it a conditional write; "Building a database on S3", Brantner et al., 2008, shows why
//! one is needed).
//!
//! What is asked of a store is [`Objects`], blocking and small; whoever speaks to a real one implements it. Lists must show what was
//! put before, as those of S3, GCS and Azure do.

use crate::disk::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A store of named objects. Names have `/` between their parts and none in front.
pub trait Objects: Send + Sync {
    /// Puts an object whole, and gives its version.
    ///
    /// # Errors
    /// `AlreadyExists` when the condition does not hold: then nothing was changed. Anything else leaves open whether the
    /// object was put.
    fn put(&self, name: &str, bytes: &[u8], condition: &Condition) -> io::Result<Version>;

    /// An object and its version.
    ///
    /// # Errors
    /// `NotFound`; whatever the store reports.
    fn get(&self, name: &str) -> io::Result<(Vec<u8>, Version)>;

    /// Names that begin so, in any order.
    ///
    /// # Errors
    /// Whatever the store reports.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;

    /// Removes an object; one that is not there is removed already.
    ///
    /// # Errors
    /// Whatever the store reports.
    fn delete(&self, name: &str) -> io::Result<()>;
}

/// What must be true for a `put` to be obeyed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is no such object.
    Absent,
    /// It still has this version.
    Is(Version),
}

/// What a store calls the state of an object: an entity tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version(pub String);

/// How often a request is made before its error is told. Stores answer 503 when they are busy.
const ATTEMPTS_MAX: u32 = 5;

/// The one file whose replacing decides who wins.
const DECISIVE: &str = "manifest.json";

/// A store as a disk, for [`Store::on`](crate::checkpoint::Store::on).
pub struct ObjectDisk {
    objects: Arc<dyn Objects>,
    /// Files being written: they become objects when they get their name.
    written: Arc<Mutex<Pending>>,
}

type Pending = BTreeMap<PathBuf, Vec<u8>>;

impl ObjectDisk {
    /// The store as a disk.
    #[must_use]
    pub fn new(objects: Arc<dyn Objects>) -> ObjectDisk {
        ObjectDisk { objects, written: Arc::default() }
    }

    /// Puts an object so that afterwards it is there, or nobody of ours has changed it.
    fn place(&self, name: &str, bytes: &[u8], decisive: bool) -> io::Result<()> {
        let mut condition = Condition::Always;
        if decisive {
            condition = match again(|| self.objects.get(name)) {
                Ok((_, version)) => Condition::Is(version),
                Err(error) if error.kind() == ErrorKind::NotFound => Condition::Absent,
                Err(error) => return Err(error),
            };
        }
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            let error = match self.objects.put(name, bytes, &condition) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            // An earlier attempt of ours may have been obeyed although its answer was lost.
            let ours = again(|| self.objects.get(name)).is_ok_and(|(there, _)| there == bytes);
            if ours {
                return Ok(());
            }
            if error.kind() == ErrorKind::AlreadyExists {
                return Err(io::Error::other("another writer has written it meanwhile"));
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| ErrorKind::TimedOut.into()))
    }
}

/// Asks again while the store is busy. Only for requests that may be made twice.
fn again<T>(request: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut answer = request();
    for _ in 1..ATTEMPTS_MAX {
        match &answer {
            Err(error) if error.kind() != ErrorKind::NotFound => answer = request(),
            _ => break,
        }
    }
    answer
}

fn name_of(path: &Path) -> io::Result<String> {
    let name = path.to_str().ok_or(ErrorKind::InvalidInput)?;
    Ok(name.trim_start_matches('/').to_owned())
}

fn lock(pending: &Mutex<Pending>) -> std::sync::MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for ObjectDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut written = lock(&self.written);
        if written.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        written.insert(path.to_owned(), Vec::new());
        Ok(Box::new(ObjectFile { path: path.to_owned(), written: Arc::clone(&self.written) }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        let name = name_of(path)?;
        Ok(Box::new(io::Cursor::new(again(|| self.objects.get(&name))?.0)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let written = lock(&self.written).remove(from);
        let decisive = to.file_name().is_some_and(|name| name == DECISIVE);
        if let Some(bytes) = written {
            return self.place(&name_of(to)?, &bytes, decisive);
        }
        // A store gives no object another name: it is put a second time, and then removed.
        let name = name_of(from)?;
        let (bytes, _) = again(|| self.objects.get(&name))?;
        self.place(&name_of(to)?, &bytes, decisive)?;
        again(|| self.objects.delete(&name))
    }

    /// What has its name is durable.
    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Folders are beginnings of names, and need not be made.
    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        if lock(&self.written).remove(path).is_some() {
            return Ok(());
        }
        let name = name_of(path)?;
        again(|| self.objects.delete(&name))
    }

    fn remove_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut prefix = name_of(folder)?;
        if !prefix.is_empty() && !prefix.ends_with('/') {
            prefix.push('/');
        }
        let found = again(|| self.objects.list(&prefix))?;
        let below = found.iter().filter_map(|name| name.strip_prefix(prefix.as_str()));
        let mut names: Vec<String> =
            below.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }
}

/// A file on its way to become an object.
struct ObjectFile {
    path: PathBuf,
    written: Arc<Mutex<Pending>>,
}

impl Write for ObjectFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = lock(&self.written);
        written.get_mut(&self.path).ok_or(ErrorKind::NotFound)?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for ObjectFile {
    /// Nothing is durable before it has its name, and nobody relies on it before.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
