//! The rows of this process, within the memory it may take: `[data] memory`. Tables that are too large lie in a file
//! (`data/src/spill.rs`), whose pages the system brings in as learners read them, ahead of a pass. Here is who sends them
//! out again: a thread looks at what this process has in memory, and before that is more than it may be, the pages of
//! the file go.

use crate::choices::Choices;
use crate::desk::place_of;
use crate::job::{Deal, Job};
use crate::net::Net;
use crate::redeal::{Arriving, Loader};
use crate::shuffle::gather;
use crate::train::Task;
use starlings_core::{Ability, Blame, Fault, Result, Seat, Shard};
use starlings_data::{DataSpec, Holding, Room, Survey, load_all_within, load_within};
use starlings_learn::{Facts, Footprint, Learner, Place};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How often memory is looked at: at 5 GB/s a pass brings in 50 MB meanwhile.
const EVERY: Duration = Duration::from_millis(10);

/// `[data] memory` and `spill`: how much of a process's memory is for its rows, and where the others go.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MemorySpec {
    /// Bytes for each process; a share of the host's memory where the job does not say.
    pub bytes: Option<u64>,
    /// The folder of the file.
    pub folder: Option<PathBuf>,
}

impl MemorySpec {
    /// From `[data]`.
    ///
    /// # Errors
    /// What is no size or no folder.
    pub fn parse(data: &toml::Table) -> Result<MemorySpec> {
        let bytes = data.get("memory").map(|it| size(it, "[data]")).transpose()?;
        let folder = match data.get("spill") {
            None => None,
            Some(toml::Value::String(folder)) => Some(PathBuf::from(folder)),
            Some(other) => {
                return Err(Fault::caller(format!("[data] spill = {other} is not a folder")));
            }
        };
        Ok(MemorySpec { bytes, folder })
    }

    /// The room of one of `processes` on this host.
    fn room(&self, processes: u32) -> Room {
        let share = || host_memory() / 2 / u64::from(processes.max(1));
        let folder = self.folder.clone().unwrap_or_else(scratch_folder);
        Room::new(self.bytes.unwrap_or_else(share), folder)
    }
}

/// `"4GB"`, `"512 MiB"` or a number of bytes.
pub(crate) fn size(value: &toml::Value, section: &str) -> Result<u64> {
    let wrong = || {
        Fault::caller(format!("{section} memory = {value} is not a size"))
            .hint("write it as memory = \"4GB\", \"512MB\" or \"2GiB\"")
    };
    if let Some(bytes) = value.as_integer() {
        return u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or_else(wrong);
    }
    let text = value.as_str().ok_or_else(wrong)?.trim();
    let units = [
        ("KiB", 1u64 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let parsed = units.iter().find_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number.is_finite() && number > 0.0).then_some((number * *bytes as f64) as u64)
    });
    parsed.ok_or_else(wrong)
}

/// What travels with a model besides it: how far the walk is, and which rows are owed.
const COUNTS_BYTES: u64 = 64 << 20;

/// Refuses a job whose workers need more memory than this host has.
///
/// # Errors
/// What they need, what there is, and the largest part of it.
pub(crate) fn check_room(job: &Job, choices: &Choices, facts: &Facts, place: &Place) -> Result<()> {
    let (learner, stages) = (&choices.learner, choices.plan.stages().max(1));
    let replicas = (job.workers / stages).max(1);
    // Whoever measures layers to cut a model has all of it for a while, and goes through it layer by layer.
    let measures = place.stages != stages;
    let rows = if measures { 0 } else { job.batch.min(facts.rows).div_ceil(u64::from(replicas)) };
    let Some(needed) = learner.footprint(facts, place, rows) else { return Ok(()) };
    let here = ["threads", "processes"].contains(&job.launcher.as_str());
    let each = needed.model.saturating_add(needed.step);
    let one: u64 = match here {
        false => each,
        true if place.stages == 1 => each,
        // All stages are on this host: one of each, and as many of these as there are replicas.
        true => (0..stages).try_fold(0, |sum: u64, stage| -> Result<u64> {
            let place = place_of(&choices.plan.assign(Seat(stage), job.workers, job.shards)?);
            let its = learner.footprint(facts, &place, rows);
            let its = its.map_or(0, |it| it.model.saturating_add(it.step));
            Ok(sum.saturating_add(its))
        })?,
    };
    let together = match (here, place.stages) {
        _ if measures || !here => 1,
        (_, 1) => job.workers,
        _ => replicas,
    };
    let (all, room) = (one.saturating_mul(u64::from(together)), host_memory());
    if all <= room {
        return Ok(());
    }
    let told = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let workers = if here && !measures { job.workers } else { 1 };
    let whose = match place.stages {
        1 => "each".to_string(),
        stages => format!("the one with part {} of {stages} of the model", place.stage + 1),
    };
    Err(Fault::caller(format!(
        "{workers} workers on this host need {} of memory and there are {}: {whose} {} for weights, gradients and the \
         optimiser's state, {} for the rows of a step; the largest part is {}",
        told(all),
        told(room),
        told(needed.model),
        told(needed.step),
        needed.largest
    ))
    .hint(remedies(&**learner, place, &needed, (one, u64::from(together)))))
}

/// What would help: only what this learner can do, and what changes what is too large.
fn remedies(
    learner: &dyn Learner,
    place: &Place,
    needed: &Footprint,
    (one, together): (u64, u64),
) -> String {
    let room = host_memory();
    let mut ways = vec!["make that part smaller"];
    if needed.model.saturating_mul(together) < room {
        ways.push("lower [train] batch");
        ways.extend((place.depths() == 1).then_some("raise accumulate"));
    }
    ways.extend((together > 1 && one <= room).then_some("use fewer workers on this host"));
    match (place.stages, learner.gives().contains(&Ability::StagedModel)) {
        (1, true) => ways.push("cut the model among several hosts with plan = \"pipeline\""),
        (1, false) => {}
        _ => ways.push("spread its stages over more hosts"),
    }
    ways.join(", or ")
}

/// Bytes of a model that a worker takes over from another, at most: what its own would need, where that can be foreseen,
/// and never more than half of what there is.
pub(crate) fn room_for_model(learner: &dyn Learner, facts: &Facts) -> u64 {
    let half = host_memory() / 2;
    let needed =
        learner.footprint(facts, &Place::WHOLE, 0).map(|it| it.model.saturating_add(it.model));
    needed.map_or(half, |needed| needed.saturating_add(COUNTS_BYTES).min(half))
}

/// What a process may have in memory on this host: all of it, or what its control group allows.
pub(crate) fn host_memory() -> u64 {
    let all = proc_bytes(Path::new("/proc/meminfo"), "MemTotal:");
    let allowed = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let allowed = allowed.and_then(|text| text.trim().parse::<u64>().ok());
    all.into_iter().chain(allowed).min().unwrap_or(u64::MAX)
}

/// A line such as `VmRSS:   1234 kB` of a file under `/proc`, in bytes.
fn proc_bytes(path: &Path, line: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let found = text.lines().find_map(|it| it.strip_prefix(line))?;
    found.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// A folder on a disk: `/tmp` is in memory on some hosts, and `/var/tmp` is not.
fn scratch_folder() -> PathBuf {
    let (usual, on_disk) = (std::env::temp_dir(), Path::new("/var/tmp"));
    match usual == Path::new("/tmp") && on_disk.is_dir() {
        true => on_disk.to_path_buf(),
        false => usual,
    }
}

/// The rows of this process.
pub(crate) struct Stock {
    room: Arc<Room>,
    over: Arc<AtomicBool>,
    watched: OnceLock<()>,
}

impl Stock {
    /// For one of `processes` on this host.
    pub(crate) fn new(spec: &MemorySpec, processes: u32) -> Arc<Stock> {
        Stock::of(spec.room(processes))
    }

    /// For a process that shares its host with some of the others.
    pub(crate) fn beside(job: &Job, net: &Net) -> Arc<Stock> {
        let mine = net.host(net.seat());
        let here = (0..net.world()).filter(|seat| net.host(Seat(*seat)) == mine).count();
        let room = job.memory.room(here as u32);
        Stock::of(if job.deal == Deal::Speed { room.growing() } else { room })
    }

    fn of(room: Room) -> Arc<Stock> {
        Arc::new(Stock { room: Arc::new(room), over: Arc::default(), watched: OnceLock::new() })
    }

    /// Reads everything, for one process that holds all shards.
    pub(crate) fn load_all(&self, task: &Task) -> Result<(Survey, Holding)> {
        let (job, learner) = (&task.job, &task.choices.learner);
        let needs = (learner.encoding(), learner.label());
        let loaded = load_all_within(&job.train, needs, job.shards, Some(&self.room))?;
        self.watch()?;
        Ok(loaded)
    }

    /// Reads the rows of these shards.
    pub(crate) fn load(
        &self,
        spec: &DataSpec,
        survey: &Survey,
        (keep, shards): (&[Shard], u32),
    ) -> Result<Holding> {
        let loaded = load_within(spec, survey, (keep, shards), Some(&self.room))?;
        self.watch()?;
        Ok(loaded)
    }

    /// Reads rows of other shards when that is needed, or takes them from other workers.
    pub(crate) fn loader(self: &Arc<Stock>, spec: DataSpec, survey: Survey, shards: u32) -> Loader {
        let (reads, assembles) = (self.clone(), self.clone());
        let read = move |keep: &[Shard]| reads.load(&spec, &survey, (keep, shards));
        let assemble = move |holding: &Holding, keep: &[Shard], parcels: &mut Arriving<'_>| {
            let assembled = holding.reassembled(keep, parcels, Some(&assembles.room))?;
            assembles.watch()?;
            Ok(assembled)
        };
        Loader::new(Arc::new(read), Arc::new(assemble))
    }

    /// Reads this worker's share of the files, and gets the rows of its shards from the others. Should one of them be lost
    /// meanwhile, it looks for them in all files itself.
    pub(crate) fn gather(
        &self,
        task: &Task,
        survey: &Survey,
        net: &Net,
        holders: &[Seat],
    ) -> Result<Holding> {
        let (spec, patience) = (&task.job.train, task.job.patience);
        let gathered = gather(net, (spec, survey), holders, &self.room, patience);
        let holding = match gathered {
            Err(fault) if matches!(fault.blame(), Blame::Peer(_)) => {
                let mine = |shard: &u32| holders[*shard as usize] == net.seat();
                let keep: Vec<Shard> = (0..holders.len() as u32).filter(mine).map(Shard).collect();
                let whole = (&keep[..], holders.len() as u32);
                load_within(spec, survey, whole, Some(&self.room))?
            }
            gathered => gathered?,
        };
        self.watch()?;
        Ok(holding)
    }

    /// Watches over the memory of this process, from the first rows in a file on.
    fn watch(&self) -> Result<()> {
        if self.room.mapped_bytes() == 0 || self.watched.set(()).is_err() {
            return Ok(());
        }
        let (room, over) = (self.room.clone(), self.over.clone());
        let watch = move || {
            while !over.load(Ordering::Relaxed) {
                if crowded(room.bytes()) {
                    room.release();
                }
                std::thread::sleep(EVERY);
            }
        };
        std::thread::Builder::new().name("memory".to_string()).spawn(watch)?;
        Ok(())
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Whether this process has more than three quarters of its memory, and pages of files among it.
fn crowded(bytes: u64) -> bool {
    let status = |line| proc_bytes(Path::new("/proc/self/status"), line).unwrap_or(0);
    status("VmRSS:") > bytes / 4 * 3 && status("RssFile:") > bytes / 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MemorySpec> {
        MemorySpec::parse(&text.parse().unwrap())
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("'4GB'", 4_000_000_000),
            ("'1.5 GiB'", 3 << 29),
            ("'200 MB'", 200_000_000),
            ("4096", 4096),
        ] {
            assert_eq!(parse(&format!("memory = {text}")).unwrap().bytes, Some(bytes), "{text}");
        }
        for text in ["'much'", "'4'", "0", "-5", "'-1GB'", "true", "'nanGB'"] {
            let fault = parse(&format!("memory = {text}")).unwrap_err().to_string();
            assert!(fault.contains("[data] memory") && fault.contains("4GB"), "{fault}");
        }
        assert!(parse("spill = 3").unwrap_err().to_string().contains("spill"));
    }

    #[test]
    fn a_process_without_a_word_gets_its_share_of_the_host() {
        let spec = MemorySpec::default();
        let (alone, shared) = (spec.room(1).bytes(), spec.room(4).bytes());
        assert!(alone > 1 << 20 && alone.abs_diff(4 * shared) < 8, "{alone} and {shared}");
    }
}
