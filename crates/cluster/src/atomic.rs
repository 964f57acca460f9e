//! A file appears whole or not at all, also when the process is killed or the power fails: bytes go to a
//! temporary file in the same folder, are made durable, take the name by `rename`, and the name is made
//! durable (Pillai et al., "All file systems are not created equal", 2014, on why each step is needed).

use crate::disk::{Disk, DiskFile, LocalDisk, disk_fault, parent_of};
use starlings_core::{Fault, Result, failpoint};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How the names of temporary files end. They begin with a dot.
pub const TEMPORARY_SUFFIX: &str = ".part";

const ATTEMPTS_MAX: u32 = 100;
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a file whole or not at all, in place of what had the name before. After any error the old file
/// is untouched and the temporary one is gone. (A process that is killed leaves a hidden temporary file
/// that nobody reads.)
///
/// # Errors
/// Whatever `write` returns; a fault with advice when the disk is full or broken; a path that is not a
/// regular file.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    // Renaming over a device, a pipe or a folder would destroy it or fail late.
    if let Ok(existing) = std::fs::symlink_metadata(path)
        && !existing.is_file()
        && !existing.is_symlink()
    {
        return Err(Fault::caller(format!("'{}' is not a regular file", path.display()))
            .hint("give the name of a file to create or replace"));
    }
    write_whole_on(&LocalDisk, path, write)
}

/// [`write_whole`] on a given disk.
///
/// # Errors
/// As [`write_whole`].
pub fn write_whole_on(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let failed = |error: io::Error| disk_fault("cannot write", path, &error);
    let (temporary, file) = create_temporary(disk, path).map_err(failed)?;
    let written = fill(file, path, write).and_then(|()| {
        failpoint!("rename-before");
        disk.rename(&temporary, path).map_err(failed)
    });
    if let Err(fault) = written {
        // The first error is the one worth telling; a temporary file that stays is only litter.
        let _ = disk.remove_file(&temporary);
        return Err(fault);
    }
    failpoint!("rename-after");
    disk.sync_folder(&parent_of(path)).map_err(failed)
}

/// Whether a name may be given to an artifact: `[a-z0-9][a-z0-9._-]{0,127}` without `..`. Names are
/// identifiers, never paths, so no name can leave its folder.
///
/// # Errors
/// A fault saying what a name may be.
pub fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let sound = name.len() <= 128
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|byte| plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
        && !name.contains("..");
    if sound {
        return Ok(());
    }
    Err(Fault::caller(format!("{name:?} is not a name for an artifact")).hint(
        "use a-z, 0-9, '.', '_' and '-', at most 128 of them, beginning with a letter or digit",
    ))
}

fn create_temporary(disk: &dyn Disk, path: &Path) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::from(ErrorKind::IsADirectory))?;
    for _ in 0..ATTEMPTS_MAX {
        // Unique in this process by the counter, among processes by the id; what an earlier process of
        // the same id left behind is stepped over.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{process}-{number}{TEMPORARY_SUFFIX}"));
        let temporary = parent_of(path).join(hidden);
        match disk.create(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn fill(
    file: Box<dyn DiskFile>,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let failed = |error: io::Error| disk_fault("cannot write", path, &error);
    let mut watched = Watched { inner: BufWriter::with_capacity(BUFFER_BYTES, file), seen: None };
    if let Err(fault) = write(&mut watched) {
        // An error of the disk that passed through `write` has lost its kind on the way.
        return Err(watched.seen.take().map_or(fault, failed));
    }
    watched.flush().map_err(failed)?;
    watched.inner.get_mut().sync().map_err(failed)
}

/// Remembers the first error of the disk.
struct Watched {
    inner: BufWriter<Box<dyn DiskFile>>,
    seen: Option<io::Error>,
}

impl Watched {
    fn watch<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            let copy = match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            };
            if error.kind() != ErrorKind::Interrupted {
                self.seen.get_or_insert(copy);
            }
        })
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(bytes);
        self.watch(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.watch(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty_disk::{Mode, SimulatedDisk};
    use starlings_core::Blame;

    fn save(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
        write_whole_on(disk, path, |out| Ok(out.write_all(bytes)?))
    }

    #[test]
    fn a_file_is_replaced_whole_on_a_real_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_whole(&path, |out| Ok(out.write_all(b"one")?)).unwrap();
        write_whole(&path, |out| Ok(out.write_all(b"two")?)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        let refused = write_whole(&path, |out| {
            out.write_all(b"half")?;
            Err(Fault::caller("changed my mind"))
        });
        assert_eq!(refused.unwrap_err().message(), "changed my mind");
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(LocalDisk.list(folder.path()).unwrap(), ["model"]);
    }

    #[test]
    fn devices_and_folders_are_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path(), Path::new("/dev/full")] {
            let fault = write_whole(path, |_| Ok(())).unwrap_err();
            assert_eq!(fault.blame(), Blame::Caller);
            assert!(fault.message().contains("not a regular file"), "{fault}");
        }
    }

    #[test]
    fn a_missing_folder_is_the_callers_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let fault = write_whole(&folder.path().join("no/model"), |_| Ok(())).unwrap_err();
        assert_eq!(fault.blame(), Blame::Caller);
        assert!(fault.message().contains("no/model"), "{fault}");
    }

    #[test]
    fn a_full_disk_leaves_the_old_file_and_no_litter_whichever_operation_fails() {
        let path = Path::new("/d/model");
        let large = vec![7u8; BUFFER_BYTES * 3];
        let mut failures = 0;
        for at in 0.. {
            let disk = SimulatedDisk::new(&["/d"]);
            save(&disk, path, b"old").unwrap();
            disk.arm(at, Mode::NoSpaceOnce);
            match save(&disk, path, &large) {
                Ok(()) => break,
                Err(fault) => {
                    failures += 1;
                    assert_eq!(fault.blame(), Blame::Machine, "{fault}");
                    assert!(fault.message().contains("/d/model"), "{fault}");
                    assert!(fault.advice().unwrap().contains("disk is full"), "{fault}");
                    let content = disk.content(path).unwrap();
                    // Only the last operation, the sync of the folder, fails with the new file in place.
                    assert!(content == b"old" || content == large, "operation {at}");
                    assert_eq!(disk.list(Path::new("/d")).unwrap(), ["model"], "operation {at}");
                }
            }
        }
        assert!(failures >= 5, "create, write, sync, rename, sync of the folder: {failures}");
    }

    #[test]
    fn a_power_cut_after_any_operation_leaves_the_old_file_or_the_new_one() {
        let path = Path::new("/d/model");
        for mode in Mode::CUTS {
            let mut seen_new = false;
            for at in 0..20 {
                let disk = SimulatedDisk::new(&["/d"]);
                save(&disk, path, b"old").unwrap();
                disk.arm(at, mode);
                let acknowledged = save(&disk, path, b"new").is_ok();
                let after = disk.after_power_cut(mode).content(path).unwrap();
                assert!(after == b"old" || after == b"new", "{mode:?} at {at}: {after:?}");
                assert!(
                    !acknowledged || after == b"new",
                    "acknowledged but lost: {mode:?} at {at}"
                );
                seen_new |= acknowledged;
            }
            assert!(seen_new, "the loop must reach past the last operation");
        }
    }

    #[test]
    fn names_are_identifiers_and_never_paths() {
        for good in ["a", "0", "model.safetensors", "memory-12.safetensors", &"x".repeat(128)] {
            check_name(good).unwrap();
        }
        for bad in [
            "",
            ".",
            "..",
            "a..b",
            "/etc",
            "a/b",
            "a\\b",
            "A",
            "-a",
            ".a",
            "ä",
            "a\0",
            "a b",
            &"x".repeat(129),
        ] {
            check_name(bad).unwrap_err();
        }
    }
}
