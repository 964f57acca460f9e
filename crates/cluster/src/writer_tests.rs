//! The writer on disks that fail, hang and lose power: every task has its outcome, and nothing is silent.

use super::*;
use crate::disk::{Disk, DiskFile};
use crate::faulty_disk::{Mode, SimulatedDisk};
use crate::manifest::Fingerprint;
use starlings_core::{Blame, Epoch, Role, Tensor, Values};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

fn soon() -> Deadline {
    Deadline::after_ms(20_000)
}

fn fingerprint() -> Fingerprint {
    Fingerprint([("learner.name".to_owned(), "k-means".to_owned())].into())
}

fn model(step: u64) -> Model {
    let mut model = Model::new();
    model.set("centres", Tensor::of(&[2], vec![step as f64, 0.5], Role::Weight));
    model
}

fn cells(step: u64) -> Cells {
    [(7, [("dual".to_owned(), Values::I64(vec![step as i64]))].into())].into()
}

fn parts(step: u64) -> Vec<Part> {
    vec![
        ("model.safetensors".to_owned(), Content::Model(model(step))),
        ("memory-0.safetensors".to_owned(), Content::Memory(cells(step))),
        ("notes.txt".to_owned(), Content::Bytes(b"anything".to_vec())),
    ]
}

fn manifest(step: u64, parts: Vec<PartInfo>) -> Manifest {
    Manifest {
        step: Step(step),
        epoch: Epoch(0),
        workers: 1,
        shards: 8,
        fingerprint: fingerprint(),
        written_by: "0.1.0".into(),
        progress: serde_json::Value::Null,
        parts,
    }
}

fn store(disk: impl Disk + 'static) -> Store {
    Store::on(Arc::new(disk), "/d/checkpoints", 2).unwrap()
}

/// One whole checkpoint; what the disk said, if it failed.
fn keep(writer: &mut Writer, step: u64) -> Result<()> {
    writer.save(Step(step), parts(step), soon())?;
    let mut ended = writer.settle(soon())?;
    assert_eq!(ended.len(), 1, "one save, one outcome");
    let saved = ended.remove(0);
    assert_eq!(saved.step, Step(step));
    let Done::Parts(parts) = saved.result? else { panic!("a save ends with parts") };
    writer.commit(manifest(step, parts), soon())?;
    let mut ended = writer.settle(soon())?;
    assert_eq!(ended.len(), 1, "one commit, one outcome");
    let Done::Committed(_) = ended.remove(0).result? else { panic!("a commit ends committed") };
    Ok(())
}

fn assert_newest(store: &Store, step: u64) {
    let found = store.latest(&fingerprint()).unwrap().expect("there is one");
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert_eq!(found.manifest.step, Step(step));
    assert_eq!(found.model().unwrap(), model(step));
    assert_eq!(found.memory(|_| true).unwrap(), cells(step));
    assert_eq!(found.read("notes.txt").unwrap(), b"anything");
}

/// A disk whose first sync waits until it is let go.
#[derive(Clone)]
struct Hanging {
    inner: SimulatedDisk,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

struct HangingFile(Box<dyn DiskFile>, Arc<(Mutex<bool>, Condvar)>);

impl Hanging {
    fn new(inner: &SimulatedDisk) -> Hanging {
        Hanging { inner: inner.clone(), gate: Arc::default() }
    }

    fn let_go(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

impl io::Write for HangingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DiskFile for HangingFile {
    fn sync(&mut self) -> io::Result<()> {
        let open = self.1.0.lock().unwrap();
        drop(self.1.1.wait_while(open, |open| !*open).unwrap());
        self.0.sync()
    }
}

impl Disk for Hanging {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(HangingFile(self.inner.create(path)?, self.gate.clone())))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read>> {
        self.inner.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.inner.sync_folder(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.inner.create_folder(folder)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.inner.remove_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }
}

#[test]
fn what_was_handed_over_is_what_is_found() {
    let disk = SimulatedDisk::new(&["/d"]);
    let mut writer = Writer::start(store(disk.clone())).unwrap();
    for step in [10, 20, 30] {
        keep(&mut writer, step).unwrap();
        assert_newest(&store(disk.clone()), step);
    }
    assert!(writer.finish(soon()).unwrap().is_empty());
}

#[test]
fn the_caller_goes_on_while_the_disk_hangs_and_a_second_save_waits() {
    let disk = SimulatedDisk::new(&["/d"]);
    let hanging = Hanging::new(&disk);
    let mut writer = Writer::start(store(hanging.clone())).unwrap();
    assert!(writer.is_idle());
    writer.save(Step(10), parts(10), soon()).unwrap();
    // The step goes on: nothing has ended, and asking does not wait.
    assert!(!writer.is_idle());
    assert!(writer.collect().is_empty());
    assert!(store(disk.clone()).latest(&fingerprint()).unwrap().is_none());
    let fault = writer.save(Step(20), parts(20), Deadline::after_ms(0)).unwrap_err();
    assert_eq!(fault.blame(), Blame::Machine);
    assert!(fault.message().contains("step 20") && fault.message().contains("earlier"), "{fault}");
    assert!(writer.settle(Deadline::after_ms(0)).is_err(), "its end has a deadline too");
    hanging.let_go();
    let ended = writer.settle(soon()).unwrap();
    assert_eq!(ended.len(), 1, "what was not taken has no outcome");
    assert_eq!(ended[0].step, Step(10));
    keep(&mut writer, 20).unwrap();
    assert_newest(&store(disk), 20);
}

#[test]
fn a_writer_that_is_dropped_while_the_disk_hangs_waits_for_nobody() {
    let disk = SimulatedDisk::new(&["/d"]);
    let hanging = Hanging::new(&disk);
    let mut writer = Writer::start(store(hanging.clone())).unwrap();
    writer.save(Step(10), parts(10), soon()).unwrap();
    drop(writer);
    assert!(store(disk).latest(&fingerprint()).unwrap().is_none());
    hanging.let_go();
}

#[test]
fn a_full_or_broken_disk_at_any_operation_is_an_outcome_and_the_older_one_stays() {
    for mode in [Mode::NoSpaceOnce, Mode::BrokenOnce] {
        let mut failures = 0;
        for at in 0.. {
            let disk = SimulatedDisk::new(&["/d"]);
            let mut writer = Writer::start(store(disk.clone())).unwrap();
            keep(&mut writer, 10).unwrap();
            disk.arm(at, mode);
            match keep(&mut writer, 20) {
                Ok(()) => assert_newest(&store(disk.clone()), 20),
                Err(fault) => {
                    failures += 1;
                    assert_eq!(fault.blame(), Blame::Machine);
                    assert!(fault.message().contains("step 20"), "{fault}");
                    let found = store(disk.clone()).latest(&fingerprint()).unwrap().unwrap();
                    assert_newest(&store(disk.clone()), found.manifest.step.0);
                }
            }
            if !disk.reached() {
                break;
            }
            // A failure is of that save alone.
            keep(&mut writer, 30).unwrap();
            assert_newest(&store(disk), 30);
        }
        assert!(failures >= 15, "a save has many operations: {failures}");
    }
}

#[test]
fn a_power_cut_at_any_operation_never_loses_what_was_told_as_committed() {
    for mode in Mode::CUTS {
        for at in 0.. {
            let disk = SimulatedDisk::new(&["/d"]);
            let mut writer = Writer::start(store(disk.clone())).unwrap();
            keep(&mut writer, 10).unwrap();
            disk.arm(at, mode);
            let told = if keep(&mut writer, 20).is_ok() { 20 } else { 10 };
            let after = store(disk.after_power_cut(mode));
            let found = after.latest(&fingerprint()).unwrap().unwrap().manifest.step.0;
            assert!(found >= told, "{mode:?} at {at}: {told} was told, {found} is found");
            assert_newest(&after, found);
            if !disk.reached() {
                break;
            }
        }
    }
}

#[test]
fn names_that_would_leave_the_folder_are_an_outcome() {
    let mut writer = Writer::start(store(SimulatedDisk::new(&["/d"]))).unwrap();
    writer.save(Step(1), vec![("../evil".into(), Content::Bytes(vec![]))], soon()).unwrap();
    let ended = writer.settle(soon()).unwrap();
    assert_eq!(ended[0].result.as_ref().unwrap_err().blame(), Blame::Caller);
}
