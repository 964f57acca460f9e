//! Checkpoints under power cuts, full disks, changed bytes and other people's folders.

use super::*;
use crate::faulty_disk::{Mode, SimulatedDisk};
use serde_json::json;
use starlings_core::{Blame, Epoch, Rng, Role, Tensor, Values};

fn fingerprint() -> Fingerprint {
    Fingerprint(
        [("learner.name", "k-means"), ("train.seed", "1")]
            .map(|(k, v)| (k.into(), v.into()))
            .into(),
    )
}

fn model(step: u64) -> Model {
    let mut model = Model::new();
    model.set("centres", Tensor::of(&[2], vec![step as f64, 0.5], Role::Weight));
    model.set("momentum", Tensor::of(&[1], vec![-(step as f64)], Role::State));
    model
}

fn cells(seat: u32, step: u64) -> Cells {
    [(seat, [("dual".to_owned(), Values::I64(vec![step as i64, i64::from(seat)]))].into())].into()
}

fn save(store: &Store, step: u64) -> Result<Committed> {
    save_as(store, step, fingerprint())
}

fn save_as(store: &Store, step: u64, fingerprint: Fingerprint) -> Result<Committed> {
    let at = Step(step);
    let mut parts = vec![store.write_model(at, &model(step))?];
    for seat in 0..2 {
        parts.push(store.write_memory(at, Seat(seat), &cells(seat, step))?);
    }
    store.commit(&Manifest {
        step: at,
        epoch: Epoch(0),
        workers: 2,
        shards: 2,
        fingerprint,
        written_by: "0.1.0".into(),
        progress: json!({"samples": 7, "objective": 0.1 + 0.2}),
        parts,
    })
}

fn assert_is(complete: &Complete, step: u64) {
    assert_eq!(complete.manifest.step, Step(step));
    assert_eq!(complete.model().unwrap(), model(step));
    let mut all = cells(0, step);
    all.extend(cells(1, step));
    assert_eq!(complete.memory(|_| true).unwrap(), all);
    assert_eq!(complete.memory(|shard| shard == 1).unwrap(), cells(1, step));
}

fn simulated() -> (SimulatedDisk, Store) {
    let disk = SimulatedDisk::new(&["/d"]);
    let store = Store::on(Arc::new(disk.clone()), "/d/run/checkpoints", 2).unwrap();
    (disk, store)
}

fn latest(store: &Store) -> Complete {
    store.latest(&fingerprint()).unwrap().expect("there is a checkpoint")
}

#[test]
fn a_checkpoint_comes_back_from_a_real_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("a/b"), KEEP_DEFAULT).unwrap();
    assert!(store.latest(&fingerprint()).unwrap().is_none());
    let committed = save(&store, 42).unwrap();
    assert_eq!(committed.path, folder.path().join("a/b/step-00000042"));
    assert!(committed.warnings.is_empty() && committed.bytes > 0);
    assert_is(&latest(&store), 42);
    assert_eq!(latest(&store).manifest.progress["objective"], json!(0.1 + 0.2));
    assert_is(&store.load(Step(42)).unwrap(), 42);
    assert!(store.load(Step(41)).is_err());
    let mut names = LocalDisk.list(&committed.path).unwrap();
    names.retain(|name| name != "manifest.json");
    assert_eq!(names, ["memory-0.safetensors", "memory-1.safetensors", "model.safetensors"]);
}

#[test]
fn only_the_newest_are_kept_and_history_is_linear() {
    let (disk, store) = simulated();
    for step in [10, 20, 30] {
        save(&store, step).unwrap();
    }
    assert_eq!(store.steps().unwrap(), [Step(20), Step(30)]);
    assert_eq!(
        disk.list(Path::new("/d/run/checkpoints")).unwrap().len(),
        2,
        "no empty folders stay"
    );
    // A run that went back to 20 and now is at 25: 30 never happened.
    save(&store, 25).unwrap();
    assert_eq!(store.steps().unwrap(), [Step(20), Step(25)]);
}

/// The one that a manifest calls good stays beside the newest, until another is; what came after it can be taken back.
#[test]
fn the_last_good_one_stays_whatever_came_after_it() {
    let (_, store) = simulated();
    let keep = |step: u64, good: u64| {
        let parts = vec![store.write_model(Step(step), &model(step)).unwrap()];
        let progress = serde_json::json!({ "good": good });
        let manifest = Manifest {
            step: Step(step),
            epoch: Epoch(0),
            workers: 1,
            shards: 1,
            fingerprint: fingerprint(),
            written_by: "test".to_owned(),
            progress,
            parts,
        };
        store.commit(&manifest).unwrap();
        store.steps().unwrap().iter().map(|step| step.0).collect::<Vec<_>>()
    };
    assert_eq!(keep(10, 0), [10]);
    assert_eq!(keep(20, 10), [10, 20]);
    assert_eq!(keep(30, 10), [10, 20, 30]);
    assert_eq!(keep(40, 10), [10, 30, 40]);
    store.set_aside_after(Step(10), &Fingerprint::default()).unwrap();
    assert_eq!(store.steps().unwrap().len(), 3, "another job's are left alone");
    store.set_aside_after(Step(10), &fingerprint()).unwrap();
    assert_eq!(store.steps().unwrap(), [Step(10)]);
    assert_eq!(keep(20, 20), [10, 20]);
    assert_eq!(keep(30, 20), [20, 30]);
}

/// The names in the folder of checkpoints.
fn names(disk: &dyn Disk) -> Vec<String> {
    disk.list(Path::new("/d/run/checkpoints")).unwrap()
}

#[test]
fn what_had_gone_astray_is_set_aside_whole_and_never_gone_on_from() {
    let (disk, store) = simulated();
    for step in [10, 20, 30] {
        save(&store, step).unwrap();
    }
    let newest = latest(&store).read("model.safetensors").unwrap();
    store.set_aside_after(Step(20), &fingerprint()).unwrap();
    assert_eq!(names(&disk), ["diverged-00000030", "step-00000020"]);
    assert_is(&latest(&store), 20);
    // The job goes on, keeps the same step anew, and goes astray once more.
    save(&store, 30).unwrap();
    store.set_aside_after(Step(20), &fingerprint()).unwrap();
    let aside = ["diverged-00000030", "diverged-00000030-2"];
    assert_eq!(names(&disk)[..2], aside);
    save(&store, 40).unwrap();
    assert_eq!(names(&disk)[..2], aside, "later checkpoints leave it alone");
    // Given its name back it is what it was.
    for part in disk.list(Path::new("/d/run/checkpoints/diverged-00000030")).unwrap() {
        let at = |folder: &str| Path::new("/d/run/checkpoints").join(folder).join(&part);
        let folder = Path::new("/d/run/checkpoints/step-00000030");
        crate::disk::make_folder(&disk, folder).unwrap();
        disk.rename(&at("diverged-00000030"), &at("step-00000030")).unwrap();
    }
    assert_eq!(store.load(Step(30)).unwrap().read("model.safetensors").unwrap(), newest);
}

#[test]
fn a_power_cut_while_checkpoints_are_set_aside_costs_no_earlier_one() {
    for mode in Mode::CUTS {
        for at in 0.. {
            let (disk, store) = simulated();
            save(&store, 10).unwrap();
            save(&store, 20).unwrap();
            disk.arm(at, mode);
            let done = store.set_aside_after(Step(10), &fingerprint()).is_ok();
            let after = Arc::new(disk.after_power_cut(mode));
            let store = Store::on(after, "/d/run/checkpoints", 2).unwrap();
            let found = latest(&store);
            let step = found.manifest.step.0;
            assert!(step == 10 || !done, "{mode:?} at {at}: {step}");
            assert!(found.warnings.is_empty(), "{mode:?} at {at}: {:?}", found.warnings);
            assert_is(&found, step);
            if !disk.reached() {
                break;
            }
        }
    }
}

#[test]
fn a_folder_without_a_manifest_is_no_checkpoint() {
    let (disk, store) = simulated();
    store.write_model(Step(9), &model(9)).unwrap();
    assert!(store.latest(&fingerprint()).unwrap().is_none());
    save(&store, 10).unwrap();
    assert_is(&latest(&store), 10);
    let left = disk.list(Path::new("/d/run/checkpoints")).unwrap();
    assert_eq!(left, ["step-00000010"], "the unfinished older one is tidied away");
}

#[test]
fn a_power_cut_after_any_operation_never_loses_an_acknowledged_checkpoint() {
    for mode in Mode::CUTS {
        for at in 0.. {
            let (disk, store) = simulated();
            save(&store, 10).unwrap();
            save(&store, 20).unwrap();
            disk.arm(at, mode);
            let acknowledged = save(&store, 30).is_ok();
            let after = Arc::new(disk.after_power_cut(mode));
            let store = Store::on(after, "/d/run/checkpoints", 2).unwrap();
            let found = latest(&store);
            let step = found.manifest.step.0;
            assert!(step == 30 || (step == 20 && !acknowledged), "{mode:?} at {at}: {step}");
            assert!(found.warnings.is_empty(), "{mode:?} at {at}: {:?}", found.warnings);
            assert_is(&found, step);
            // What is being removed is either still a checkpoint or no longer one.
            store.steps().unwrap().into_iter().for_each(|step| drop(store.load(step).unwrap()));
            // And life goes on from there.
            save(&store, 40).unwrap();
            assert_is(&latest(&store), 40);
            if !disk.reached() {
                assert!(at > 20, "a save has many operations: {at}");
                break;
            }
        }
    }
}

#[test]
fn a_full_disk_at_any_operation_leaves_the_previous_checkpoint() {
    for at in 0.. {
        let (disk, store) = simulated();
        save(&store, 10).unwrap();
        disk.arm(at, Mode::NoSpaceOnce);
        let saved = save(&store, 20);
        let found = latest(&store);
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        assert_is(&found, found.manifest.step.0);
        match saved {
            Ok(_) if !disk.reached() => break,
            // The disk was full only while tidying up.
            Ok(_) => assert_is(&found, 20),
            Err(fault) => {
                assert_eq!(fault.blame(), Blame::Machine);
                assert!(fault.message().contains("step 20"), "{fault}");
                assert!(fault.advice().unwrap().contains("disk is full"), "{fault}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_is_found_and_the_older_one_serves() {
    let (disk, store) = simulated();
    save(&store, 10).unwrap();
    let newest = save(&store, 20).unwrap().path;
    for name in disk.list(&newest).unwrap() {
        let path = newest.join(&name);
        let whole = disk.content(&path).unwrap();
        let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|at| whole[..at].to_vec()).collect();
        damaged.extend((0..whole.len() * 8).map(|bit| {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        }));
        damaged.push([whole.as_slice(), b" "].concat());
        for bytes in damaged {
            disk.tamper(&path, Some(&bytes));
            let found = latest(&store);
            assert_eq!(found.manifest.step, Step(10), "{name}");
            assert_eq!(found.warnings.len(), 1, "{name}");
            assert!(
                found.warnings[0].starts_with("checkpoint of step 20: "),
                "{:?}",
                found.warnings
            );
        }
        disk.tamper(&path, None);
        assert_eq!(latest(&store).manifest.step, Step(10), "{name} is missing");
        disk.tamper(&path, Some(&whole));
        assert_is(&latest(&store), 20);
    }
}

/// Parts are named alike and as long as each other in every step: only digests tell them apart.
#[test]
fn parts_of_two_steps_two_seats_or_two_jobs_are_never_mixed() {
    let (disk, store) = simulated();
    let older = save(&store, 10).unwrap().path;
    let newest = save(&store, 20).unwrap().path;
    let (other_disk, other_store) = simulated();
    let mut other = fingerprint();
    other.0.insert("train.seed".into(), "2".into());
    let others = save_as(&other_store, 20, other).unwrap().path;
    other_store.write_memory(Step(20), Seat(0), &cells(0, 21)).unwrap();

    let names = disk.list(&newest).unwrap();
    let mut strange: Vec<(String, Vec<u8>)> = Vec::new();
    for name in &names {
        strange.push((name.clone(), disk.content(&older.join(name)).unwrap()));
    }
    let swapped = disk.content(&newest.join("memory-1.safetensors")).unwrap();
    strange.push(("memory-0.safetensors".into(), swapped));
    let theirs = other_disk.content(&others.join("memory-0.safetensors")).unwrap();
    strange.push(("memory-0.safetensors".into(), theirs));
    for (name, bytes) in strange {
        let path = newest.join(&name);
        let whole = disk.content(&path).unwrap();
        assert_ne!(whole, bytes, "{name} must differ, or nothing is mixed");
        disk.tamper(&path, Some(&bytes));
        let found = latest(&store);
        assert_is(&found, 10);
        assert_eq!(found.warnings.len(), 1, "{name}: {:?}", found.warnings);
        disk.tamper(&path, Some(&whole));
    }
    // Another job's manifest is no damage: going on must not begin from an older step without a word.
    let manifest = other_disk.content(&others.join("manifest.json")).unwrap();
    disk.tamper(&newest.join("manifest.json"), Some(&manifest));
    let fault = store.latest(&fingerprint()).err().unwrap();
    assert!(fault.message().contains("another job"), "{fault}");
}

/// The simulated disk panics if a sync that failed is tried again on the same file.
#[test]
fn an_error_of_the_device_at_any_operation_is_told_and_the_file_is_written_anew() {
    for at in 0.. {
        let (disk, store) = simulated();
        save(&store, 10).unwrap();
        disk.arm(at, Mode::BrokenOnce);
        let saved = save(&store, 20);
        if !disk.reached() {
            break;
        }
        if let Err(fault) = &saved {
            assert_eq!(fault.blame(), Blame::Machine);
            assert!(fault.advice().unwrap().contains("the disk reports errors"), "{fault}");
            // Tried anew it is written whole, and durable.
            save(&store, 20).unwrap();
        }
        let after = disk.after_power_cut(Mode::CutLosesUnsynced);
        let store = Store::on(Arc::new(after), "/d/run/checkpoints", 2).unwrap();
        assert_is(&latest(&store), 20);
    }
}

#[test]
fn a_folder_that_cannot_be_listed_is_neither_removed_nor_passed_over_in_silence() {
    let (disk, store) = simulated();
    save(&store, 10).unwrap();
    let folder = save(&store, 20).unwrap().path;
    disk.break_folder(Some(&folder));
    save(&store, 30).unwrap();
    disk.break_folder(None);
    assert_is(&store.load(Step(20)).unwrap(), 20);
    // A newest one whose folder fails is told of, not forgotten.
    let newest = store.folder(Step(30));
    disk.break_folder(Some(&newest));
    disk.tamper(&newest.join("manifest.json"), None);
    let found = latest(&store);
    assert_is(&found, 20);
    assert!(found.warnings[0].contains("step 30"), "{:?}", found.warnings);
}

#[test]
fn ten_thousand_power_cuts_never_lose_an_acknowledged_checkpoint() {
    let (mut cut, mut kept_old, mut kept_new) = (0, 0, 0);
    for seed in 0..10_000 {
        let mut rng = Rng::named(seed, "cuts", &[]);
        let mode = Mode::CutKeepsSome(seed);
        let (disk, store) = simulated();
        disk.arm(rng.below(90), mode);
        let mut acknowledged = 0;
        for step in [10, 20, 30] {
            match save(&store, step) {
                Ok(_) => acknowledged = step,
                Err(_) => break,
            }
        }
        cut += u64::from(disk.reached());
        let after = Arc::new(disk.after_power_cut(mode));
        let store = Store::on(after, "/d/run/checkpoints", 2).unwrap();
        let found = store.latest(&fingerprint()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let step = found.as_ref().map_or(0, |found| found.manifest.step.0);
        assert!(step >= acknowledged, "seed {seed}: {acknowledged} was acknowledged, {step} found");
        if let Some(found) = found {
            assert!(found.warnings.is_empty(), "seed {seed}: {:?}", found.warnings);
            assert_is(&found, step);
        }
        kept_old += u64::from(step == acknowledged);
        kept_new += u64::from(step > acknowledged);
        if seed % 8 == 0 {
            save(&store, 40).unwrap();
            assert_is(&latest(&store), 40);
        }
    }
    // The cuts fall everywhere: before, inside and after.
    assert!(cut > 8_000 && kept_old > 1_000 && kept_new > 50, "{cut} {kept_old} {kept_new}");
}

#[test]
fn when_all_are_damaged_nobody_starts_from_nothing_by_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path(), 2).unwrap();
    for step in [10, 20] {
        let path = save(&store, step).unwrap().path;
        std::fs::write(path.join("model.safetensors"), b"").unwrap();
    }
    let fault = store.latest(&fingerprint()).err().unwrap();
    assert_eq!(fault.blame(), Blame::Machine);
    assert!(fault.message().contains("step 10") && fault.message().contains("step 20"), "{fault}");
}

#[test]
fn another_jobs_folder_is_refused_and_left_alone() {
    let (_, store) = simulated();
    save(&store, 10).unwrap();
    let mut other = fingerprint();
    other.0.insert("train.seed".into(), "2".into());
    for fault in [store.latest(&other).err().unwrap(), store.claim(&other).unwrap_err()] {
        assert_eq!(fault.blame(), Blame::Caller);
        assert!(fault.message().contains("train.seed was '1' there and is '2' here"), "{fault}");
    }
    assert_eq!(store.claim(&fingerprint()).unwrap(), Some(Step(10)));
    // Even a job that did not ask first removes nothing of the other's.
    save_as(&store, 5, other.clone()).unwrap();
    for step in [6, 7, 11] {
        save_as(&store, step, other.clone()).unwrap();
    }
    assert_eq!(store.steps().unwrap(), [Step(7), Step(10), Step(11)]);
    assert!(save_as(&store, 10, other).is_err());
}

#[test]
fn names_that_would_leave_the_folder_are_refused() {
    let (_, store) = simulated();
    for name in ["../evil", "/etc/passwd", "manifest.json", ".hidden"] {
        assert!(store.write_part(Step(1), name, |_| Ok(())).is_err(), "{name}");
    }
    assert!(Store::new("x", 1).is_err());
}

#[test]
fn a_commit_without_its_parts_is_refused() {
    let (_, store) = simulated();
    let part = store.write_model(Step(1), &model(1)).unwrap();
    let missing = PartInfo { name: "memory-1.safetensors".into(), ..part.clone() };
    let manifest = |parts| Manifest {
        step: Step(1),
        epoch: Epoch(0),
        workers: 2,
        shards: 2,
        fingerprint: fingerprint(),
        written_by: "0.1.0".into(),
        progress: json!(null),
        parts,
    };
    let fault = store.commit(&manifest(vec![part.clone(), missing])).unwrap_err();
    assert!(fault.message().contains("'memory-1.safetensors' is missing"), "{fault}");
    assert!(store.commit(&manifest(vec![part.clone(), part])).is_err(), "a part listed twice");
    assert!(store.latest(&fingerprint()).unwrap().is_none());
}

#[test]
fn a_newer_manifest_asks_for_an_upgrade() {
    let fault = Manifest::from_bytes(br#"{"format": 7, "surprise": []}"#).unwrap_err();
    assert!(fault.message().contains("format 7"), "{fault}");
    assert_eq!(fault.advice(), Some("upgrade starlings"));
}
