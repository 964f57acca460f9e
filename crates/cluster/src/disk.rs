//! The few things we ask of a disk, as a trait, so that tests can stand between us and it: fail the n-th
//! operation, or cut the power after it and lose whatever was not made durable. After a failed fsync the
//! kernel may have dropped the dirty pages and a second fsync reports success (Rebello et al., "Can
//! applications recover from fsync failures?", 2020): nobody here retries one.

use starlings_core::Fault;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// The operations of a disk. Laws: `rename` replaces its target at once or not at all; what `sync` and
/// `sync_folder` have confirmed survives a power cut.
pub trait Disk: Send + Sync {
    /// Creates a file that did not exist.
    ///
    /// # Errors
    /// Whatever the system reports; `AlreadyExists` when there is one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>>;

    /// Gives a file another name in place of whatever had it.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Creates one folder.
    ///
    /// # Errors
    /// Whatever the system reports; `AlreadyExists` when there is one, `NotFound` without a parent.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;

    /// The names in a folder, sorted. Names that are not Unicode are not ours and are left out.
    ///
    /// # Errors
    /// Whatever the system reports.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
}

/// A file being written.
pub trait DiskFile: Write {
    /// Makes the bytes written so far durable.
    ///
    /// # Errors
    /// Whatever the system reports. The file must then be thrown away.
    fn sync(&mut self) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir(folder)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        std::fs::remove_dir(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Creates a folder and the parents it lacks, each name durable before the next is relied upon.
///
/// # Errors
/// A fault naming the folder that could not be created.
pub fn make_folder(disk: &dyn Disk, folder: &Path) -> Result<(), Fault> {
    let failed = |error: io::Error| disk_fault("cannot create the folder", folder, &error);
    match disk.create_folder(folder) {
        Ok(()) => disk.sync_folder(&parent_of(folder)).map_err(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound && folder.parent().is_some() => {
            make_folder(disk, &parent_of(folder))?;
            match disk.create_folder(folder) {
                Ok(()) => disk.sync_folder(&parent_of(folder)).map_err(failed),
                // Another seat was faster.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(failed(error)),
            }
        }
        Err(error) => Err(failed(error)),
    }
}

/// The folder a path lies in; `.` for a bare name.
#[must_use]
pub fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// What a disk's error means to the person who must act.
#[must_use]
pub fn disk_fault(doing: &str, path: &Path, error: &io::Error) -> Fault {
    const INPUT_OUTPUT_ERROR: i32 = 5;
    let what = format!("{doing} '{}': {error}", path.display());
    match error.kind() {
        ErrorKind::StorageFull => Fault::machine(what)
            .hint("the disk is full: free some space, or choose a folder on another disk"),
        ErrorKind::QuotaExceeded => Fault::machine(what)
            .hint("the disk quota is used up: free some space, or choose another folder"),
        ErrorKind::FileTooLarge => Fault::machine(what)
            .hint("the file-size limit was reached: raise it (ulimit -f), or choose another disk"),
        ErrorKind::NotFound => {
            Fault::caller(what).hint("check the path: something in it is missing")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Fault::caller(what).hint("choose a folder that this user may write to")
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            Fault::caller(what).hint("check the path: a file and a folder are confused")
        }
        _ if error.raw_os_error() == Some(INPUT_OUTPUT_ERROR) => Fault::machine(what)
            .hint("the disk reports errors: look at the kernel's log, and use another disk"),
        _ => Fault::machine(what).hint("see the system's message; nothing was left half-written"),
    }
}
