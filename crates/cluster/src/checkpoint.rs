//! Checkpoints: a cut at one step on all seats (a coordinated checkpoint in the sense of Elnozahy et al.,
//! "A survey of rollback-recovery protocols", 2002). Each seat writes its part; when all parts are
//! durable, one manifest makes them a checkpoint.
//!
//! ```text
//! <dir>/step-00000042/model.safetensors      all tensors, state included (seat 0)
//!                     memory-3.safetensors   what shards remember (one per seat)
//!                     manifest.json          last: lengths and digests of all of them
//! ```
//!
//! History is linear: committing step s drops what the same job had beyond s, which a run that went back
//! has made untrue. Another job's checkpoints are never touched. Writing a step again replaces its parts
//! one by one, so that in between that step is found damaged and the one before it serves.

use crate::atomic::{TEMPORARY_SUFFIX, check_name, write_whole_on};
use crate::disk::{Disk, LocalDisk, disk_fault, make_folder};
use crate::manifest::{Fingerprint, MANIFEST_BYTES_MAX, Manifest, PartInfo};
use crate::tensors::{Cells, read_cells, read_model, write_cells, write_model};
use starlings_core::{Fault, Model, Result, Seat, Step, failpoint};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many complete checkpoints are kept unless the job says otherwise.
pub const KEEP_DEFAULT: usize = 3;

/// Fewest that may be kept: while one is written the one before it must be there.
pub const KEEP_MIN: usize = 2;

/// How the names of folders begin that hold checkpoints of weights which had gone astray.
pub const ASIDE: &str = "diverged-";

const MANIFEST: &str = "manifest.json";
const MODEL: &str = "model.safetensors";
const READ_BYTES: usize = 256 << 10;

/// The checkpoints of one job in one folder. Every seat has one; they agree because the folder is shared.
#[derive(Clone)]
pub struct Store {
    dir: PathBuf,
    keep: usize,
    disk: Arc<dyn Disk>,
}

/// A checkpoint all of whose parts were verified.
pub struct Complete {
    /// Its folder.
    pub path: PathBuf,
    /// What it consists of.
    pub manifest: Manifest,
    /// Newer checkpoints that could not be used, and why.
    pub warnings: Vec<String>,
    disk: Arc<dyn Disk>,
}

/// What a commit did.
#[derive(Clone, PartialEq, Debug)]
pub struct Committed {
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// Bytes of all its parts.
    pub bytes: u64,
    /// Old checkpoints that could not be removed, and why. The new one is safe regardless.
    pub warnings: Vec<String>,
}

impl Store {
    /// Checkpoints in a folder of this machine. The folder is made when first needed.
    ///
    /// # Errors
    /// `keep` below [`KEEP_MIN`].
    pub fn new(dir: impl Into<PathBuf>, keep: usize) -> Result<Store> {
        Store::on(Arc::new(LocalDisk), dir, keep)
    }

    /// Checkpoints on a given disk.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub fn on(disk: Arc<dyn Disk>, dir: impl Into<PathBuf>, keep: usize) -> Result<Store> {
        if keep < KEEP_MIN {
            return Err(Fault::caller(format!("[checkpoint] keep = {keep} is below {KEEP_MIN}"))
                .hint("while a checkpoint is written, the one before it must exist"));
        }
        Ok(Store { dir: dir.into(), keep, disk })
    }

    /// Before the first step: refuses a folder that holds another job's checkpoints, and gives the newest
    /// step this job has there, if any.
    ///
    /// # Errors
    /// A fault naming the key in which the jobs differ; the disk's.
    pub fn claim(&self, fingerprint: &Fingerprint) -> Result<Option<Step>> {
        let mut newest = None;
        for step in self.steps()? {
            let Ok(manifest) = self.manifest(step) else { continue };
            self.check_job(&manifest, fingerprint)?;
            newest = Some(step);
        }
        Ok(newest)
    }

    /// Writes one part of the checkpoint at a step. Returns once it is durable.
    ///
    /// # Errors
    /// A name that is not one, `write`'s own error, the disk's.
    pub fn write_part(
        &self,
        step: Step,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> Result<()>,
    ) -> Result<PartInfo> {
        check_name(name)?;
        if name == MANIFEST {
            return Err(Fault::caller(format!("no part may be called '{MANIFEST}'")));
        }
        let folder = self.folder(step);
        let during = |fault: Fault| fault.during(format!("checkpoint of {step}"));
        make_folder(self.disk.as_ref(), &folder).map_err(during)?;
        let (mut length, mut hasher) = (0, blake3::Hasher::new());
        write_whole_on(self.disk.as_ref(), &folder.join(name), |out| {
            write(&mut Hashed { out, hasher: &mut hasher, length: &mut length })
        })
        .map_err(during)?;
        Ok(PartInfo {
            name: name.to_owned(),
            length,
            blake3: hasher.finalize().to_hex().to_string(),
        })
    }

    /// Writes the model part: all tensors, state included.
    ///
    /// # Errors
    /// As [`Store::write_part`].
    pub fn write_model(&self, step: Step, model: &Model) -> Result<PartInfo> {
        self.write_part(step, MODEL, |out| write_model(out, model))
    }

    /// Writes what the shards of one seat remember.
    ///
    /// # Errors
    /// As [`Store::write_part`].
    pub fn write_memory(&self, step: Step, seat: Seat, cells: &Cells) -> Result<PartInfo> {
        let name = format!("memory-{}.safetensors", seat.0);
        self.write_part(step, &name, |out| write_cells(out, cells))
    }

    /// Makes the parts a checkpoint: from here on it survives. Then removes what is no longer needed.
    ///
    /// # Errors
    /// Parts that are not there, another job's checkpoint in the same place, the disk's faults.
    pub fn commit(&self, manifest: &Manifest) -> Result<Committed> {
        let (step, path) = (manifest.step, self.folder(manifest.step));
        let during = |fault: Fault| fault.during(format!("checkpoint of {step}"));
        if let Ok(existing) = self.manifest(step) {
            self.check_job(&existing, &manifest.fingerprint)?;
        }
        let bytes = manifest.to_bytes().map_err(during)?;
        let failed = |error: io::Error| during(disk_fault("cannot complete", &path, &error));
        let present = self.disk.list(&path).map_err(failed)?;
        if let Some(part) = manifest.parts.iter().find(|part| !present.contains(&part.name)) {
            return Err(during(
                Fault::machine(format!("the part '{}' is missing", part.name))
                    .hint("all workers must see the same checkpoint folder"),
            ));
        }
        // Another seat may have made the folder and not yet its name durable.
        self.disk.sync_folder(&self.dir).map_err(failed)?;
        failpoint!("manifest-before");
        write_whole_on(self.disk.as_ref(), &path.join(MANIFEST), |out| Ok(out.write_all(&bytes)?))
            .map_err(during)?;
        failpoint!("manifest-after");
        let warnings = self.prune(manifest, &present);
        Ok(Committed { path, bytes: manifest.bytes(), warnings })
    }

    /// The newest checkpoint that is whole, passing over damaged ones (see [`Complete::warnings`]); `None`
    /// if there never was one.
    ///
    /// # Errors
    /// The folder holds another job's checkpoints, or none that can be used.
    pub fn latest(&self, fingerprint: &Fingerprint) -> Result<Option<Complete>> {
        let mut warnings = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            let usable = match self.manifest(step) {
                Ok(manifest) => {
                    // Damage is passed over; another job is not, or going on would begin from nothing.
                    self.check_job(&manifest, fingerprint)?;
                    let complete = self.complete(manifest);
                    complete.verify().map(|()| complete)
                }
                Err(fault) => Err(fault),
            };
            match usable {
                Ok(complete) => return Ok(Some(Complete { warnings, ..complete })),
                Err(fault) => warnings.push(format!("checkpoint of {step}: {}", fault.message())),
            }
        }
        if warnings.is_empty() {
            return Ok(None);
        }
        Err(Fault::machine(format!(
            "no checkpoint in '{}' can be used: {}",
            self.dir.display(),
            warnings.join("; ")
        ))
        .hint("restore the folder from a copy, or start afresh in another folder"))
    }

    /// The checkpoint of one step, verified.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub fn load(&self, step: Step) -> Result<Complete> {
        let during = |fault: Fault| fault.during(format!("checkpoint of {step}"));
        let complete = self.complete(self.manifest(step).map_err(during)?);
        complete.verify().map_err(during)?;
        Ok(complete)
    }

    /// Steps with a manifest, oldest first.
    ///
    /// # Errors
    /// The disk's.
    pub fn steps(&self) -> Result<Vec<Step>> {
        let mut steps = self.folders()?;
        steps.retain(|&step| self.may_be_complete(step));
        Ok(steps)
    }

    /// Whether a step has a manifest. A folder that cannot be read may have one: it is neither passed over in silence
    /// nor removed as unfinished.
    fn may_be_complete(&self, step: Step) -> bool {
        match self.disk.list(&self.folder(step)) {
            Ok(names) => names.iter().any(|name| name == MANIFEST),
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }

    /// Where the checkpoint at a step is, or would be.
    #[must_use]
    pub fn folder(&self, step: Step) -> PathBuf {
        self.dir.join(format!("step-{:08}", step.0))
    }

    /// All step folders, complete or not, oldest first.
    fn folders(&self) -> Result<Vec<Step>> {
        let names = match self.disk.list(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(disk_fault("cannot read", &self.dir, &error)),
        };
        let numbers = names.iter().filter_map(|name| name.strip_prefix("step-")?.parse().ok());
        let mut steps: Vec<Step> = numbers.map(Step).collect();
        // Only the one spelling of a number is ours.
        steps.retain(|step| names.contains(&format!("step-{:08}", step.0)));
        steps.sort_unstable();
        steps.dedup();
        Ok(steps)
    }

    fn manifest(&self, step: Step) -> Result<Manifest> {
        let path = self.folder(step).join(MANIFEST);
        let bytes = read_at_most(self.disk.as_ref(), &path, MANIFEST_BYTES_MAX as u64)?;
        let manifest = Manifest::from_bytes(&bytes)?;
        if manifest.step != step {
            return Err(Fault::machine(format!("its manifest is that of {}", manifest.step)));
        }
        Ok(manifest)
    }

    fn complete(&self, manifest: Manifest) -> Complete {
        let path = self.folder(manifest.step);
        Complete { path, manifest, warnings: Vec::new(), disk: self.disk.clone() }
    }

    fn check_job(&self, manifest: &Manifest, fingerprint: &Fingerprint) -> Result<()> {
        let Some(difference) = fingerprint.difference(&manifest.fingerprint) else { return Ok(()) };
        let show =
            |value: Option<&str>| value.map_or("nothing".to_owned(), |value| format!("'{value}'"));
        Err(Fault::caller(format!(
            "'{}' holds the checkpoints of another job: {} was {} there and is {} here",
            self.dir.display(),
            difference.key,
            show(difference.theirs),
            show(difference.ours)
        ))
        .hint("choose another [checkpoint] folder, or set the key back to go on with that job"))
    }

    /// Removes what the commit of a step made needless. Failing is no more than untidy.
    fn prune(&self, committed: &Manifest, present: &[String]) -> Vec<String> {
        let mut warnings = Vec::new();
        let temporary = |name: &&String| name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX);
        for name in present.iter().filter(temporary) {
            // All parts are there: this one was left by a process that died.
            let _ = self.disk.remove_file(&self.folder(committed.step).join(name));
        }
        // The one that the job would go back to, should its training leave all bounds.
        let good = committed.progress.get("good").and_then(serde_json::Value::as_u64).map(Step);
        let mut older = 0;
        for step in self.folders().unwrap_or_default().into_iter().rev() {
            let complete = self.may_be_complete(step);
            let ours = self.manifest(step).is_ok_and(|it| it.fingerprint == committed.fingerprint);
            let needless = match step.cmp(&committed.step) {
                std::cmp::Ordering::Greater => ours,
                std::cmp::Ordering::Equal => false,
                std::cmp::Ordering::Less => {
                    older += usize::from(ours);
                    !complete || (ours && older >= self.keep && good != Some(step))
                }
            };
            if needless && let Err(error) = self.remove(step) {
                warnings
                    .push(format!("the old checkpoint of {step} could not be removed: {error}"));
            }
        }
        warnings
    }

    /// Sets aside what this job has kept after a step, under names that nobody goes on from: weights that have gone astray
    /// are of no use to a job, and may be to whoever wants to know why.
    ///
    /// # Errors
    /// The disk's: the checkpoint that it names, and those before it, are where they were.
    pub fn set_aside_after(&self, step: Step, fingerprint: &Fingerprint) -> Result<()> {
        for later in self.folders()?.into_iter().rev().take_while(|it| *it > step) {
            let ours = self.manifest(later).is_ok_and(|it| it.fingerprint == *fingerprint);
            if ours {
                self.set_aside(later)?;
            }
        }
        Ok(())
    }

    fn set_aside(&self, step: Step) -> Result<()> {
        let (disk, from) = (self.disk.as_ref(), self.folder(step));
        let failed = |error: io::Error| disk_fault("cannot set aside", &from, &error);
        let taken = disk.list(&self.dir).map_err(failed)?;
        // The same job may have gone astray before.
        let names = (1..).map(|time| match time {
            1 => format!("{ASIDE}{:08}", step.0),
            _ => format!("{ASIDE}{:08}-{time}", step.0),
        });
        let name = names.into_iter().find(|name| !taken.contains(name));
        let to = self.dir.join(name.expect("one of them all is free"));
        make_folder(disk, &to)?;
        let mut parts = disk.list(&from).map_err(failed)?;
        // Without its manifest it is no checkpoint, and must not become one again after a power cut.
        parts.sort_by_key(|name| name != MANIFEST);
        for part in &parts {
            disk.rename(&from.join(part), &to.join(part)).map_err(failed)?;
            if part == MANIFEST {
                [&to, &from].into_iter().try_for_each(|it| disk.sync_folder(it)).map_err(failed)?;
            }
        }
        disk.sync_folder(&to).map_err(failed)?;
        disk.remove_folder(&from).map_err(failed)
    }

    fn remove(&self, step: Step) -> io::Result<()> {
        let (disk, folder) = (self.disk.as_ref(), self.folder(step));
        let mut names = disk.list(&folder)?;
        // Without its manifest it is no checkpoint, and must not become one again after a power cut.
        if let Some(at) = names.iter().position(|name| name == MANIFEST) {
            disk.remove_file(&folder.join(names.remove(at)))?;
            disk.sync_folder(&folder)?;
        }
        names.iter().try_for_each(|name| disk.remove_file(&folder.join(name)))?;
        disk.remove_folder(&folder)
    }
}

impl Complete {
    /// The bytes of a part, verified again: the disk may have changed since.
    ///
    /// # Errors
    /// No such part, or damage.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let part = self.manifest.part(name);
        let part =
            part.ok_or_else(|| Fault::machine(format!("the checkpoint has no part '{name}'")))?;
        let bytes = read_at_most(self.disk.as_ref(), &self.path.join(name), part.length)?;
        let digest = blake3::hash(&bytes).to_hex();
        check_part(part, bytes.len() as u64, digest.as_str())?;
        Ok(bytes)
    }

    /// The model, state included.
    ///
    /// # Errors
    /// As [`Complete::read`].
    pub fn model(&self) -> Result<Model> {
        read_model(&self.read(MODEL)?).map_err(|fault| fault.during(format!("part '{MODEL}'")))
    }

    /// What the wanted shards remember, whichever seat had them. A shard may be missing: then nothing was
    /// remembered of it.
    ///
    /// # Errors
    /// As [`Complete::read`], and a shard that two parts claim.
    pub fn memory(&self, wanted: impl Fn(u32) -> bool) -> Result<Cells> {
        let mut all = Cells::new();
        for part in self.manifest.parts.iter().filter(|part| part.name.starts_with("memory-")) {
            let during = |fault: Fault| fault.during(format!("part '{}'", part.name));
            let cells = read_cells(&self.read(&part.name)?).map_err(during)?;
            for (shard, cell) in cells.into_iter().filter(|(shard, _)| wanted(*shard)) {
                if all.insert(shard, cell).is_some() {
                    return Err(during(Fault::machine(format!("shard {shard} is in two parts"))));
                }
            }
        }
        Ok(all)
    }

    fn verify(&self) -> Result<()> {
        for part in &self.manifest.parts {
            let path = self.path.join(&part.name);
            let failed = |error: io::Error| disk_fault("cannot read", &path, &error);
            // One byte more than promised is enough to know that it is too long.
            let file = self.disk.open(&path).map_err(failed)?;
            let mut file = file.take(part.length.saturating_add(1));
            let (mut length, mut hasher) = (0, blake3::Hasher::new());
            let mut buffer = vec![0; READ_BYTES.min(part.length.saturating_add(1) as usize)];
            loop {
                let count = match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(failed(error)),
                };
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
            check_part(part, length, hasher.finalize().to_hex().as_str())?;
        }
        Ok(())
    }
}

fn check_part(part: &PartInfo, length: u64, digest: &str) -> Result<()> {
    let why = match length.cmp(&part.length) {
        std::cmp::Ordering::Less => format!("has {length} of {} bytes", part.length),
        std::cmp::Ordering::Greater => format!("has more than {} bytes", part.length),
        std::cmp::Ordering::Equal if digest == part.blake3 => return Ok(()),
        std::cmp::Ordering::Equal => "does not match its digest".to_owned(),
    };
    Err(Fault::machine(format!("the part '{}' {why}", part.name))
        .hint("the disk may be failing: look at the kernel's log"))
}

fn read_at_most(disk: &dyn Disk, path: &Path, most: u64) -> Result<Vec<u8>> {
    let failed = |error: io::Error| disk_fault("cannot read", path, &error);
    let mut bytes = Vec::new();
    let file = disk.open(path).map_err(failed)?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(Fault::machine(format!("'{}' has more than {most} bytes", path.display())));
    }
    Ok(bytes)
}

/// Counts and hashes what passes.
struct Hashed<'a> {
    out: &'a mut dyn Write,
    hasher: &'a mut blake3::Hasher,
    length: &'a mut u64,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        *self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
