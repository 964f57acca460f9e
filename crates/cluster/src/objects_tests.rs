//! Checkpoints in a store that is busy, loses answers, and has two writers.

use super::*;
use crate::checkpoint::Store;
use crate::manifest::{Fingerprint, Manifest};
use starlings_core::{Blame, Epoch, Model, Result, Rng, Role, Step, Tensor};

type Between = Box<dyn FnOnce() + Send>;

/// A store in memory: strongly consistent, with entity tags, and with faults where `trouble` says so.
#[derive(Default)]
struct Fake {
    objects: Mutex<BTreeMap<String, (Vec<u8>, u64)>>,
    next: Mutex<u64>,
    trouble: Mutex<Option<Trouble>>,
    /// Happens just before the next put on a condition.
    between: Mutex<Option<Between>>,
}

struct Trouble {
    rng: Rng,
    /// Of a hundred requests so many are refused, and so many obeyed without an answer.
    refused: u64,
    unanswered: u64,
}

enum Fate {
    Good,
    Refused,
    Unanswered,
}

impl Fake {
    fn fate(&self) -> Fate {
        let mut trouble = self.trouble.lock().unwrap();
        let Some(trouble) = trouble.as_mut() else { return Fate::Good };
        match trouble.rng.below(100) {
            drawn if drawn < trouble.refused => Fate::Refused,
            drawn if drawn < trouble.refused + trouble.unanswered => Fate::Unanswered,
            _ => Fate::Good,
        }
    }

    /// A request with its fate.
    fn request<T>(&self, obey: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.fate() {
            Fate::Good => obey(),
            Fate::Refused => Err(io::Error::other("503 slow down")),
            Fate::Unanswered => {
                drop(obey());
                Err(ErrorKind::TimedOut.into())
            }
        }
    }
}

impl Objects for Fake {
    fn put(&self, name: &str, bytes: &[u8], condition: &Condition) -> io::Result<Version> {
        if *condition != Condition::Always {
            let between = self.between.lock().unwrap().take();
            between.into_iter().for_each(|happen| happen());
        }
        self.request(|| {
            let mut objects = self.objects.lock().unwrap();
            let there = objects.get(name).map(|(_, version)| Version(version.to_string()));
            let holds = match condition {
                Condition::Always => true,
                Condition::Absent => there.is_none(),
                Condition::Is(version) => there.as_ref() == Some(version),
            };
            if !holds {
                return Err(ErrorKind::AlreadyExists.into());
            }
            let mut next = self.next.lock().unwrap();
            *next += 1;
            objects.insert(name.to_owned(), (bytes.to_vec(), *next));
            Ok(Version(next.to_string()))
        })
    }

    fn get(&self, name: &str) -> io::Result<(Vec<u8>, Version)> {
        self.request(|| {
            let objects = self.objects.lock().unwrap();
            let (bytes, version) = objects.get(name).ok_or(ErrorKind::NotFound)?;
            Ok((bytes.clone(), Version(version.to_string())))
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.request(|| {
            let objects = self.objects.lock().unwrap();
            Ok(objects.keys().filter(|name| name.starts_with(prefix)).cloned().collect())
        })
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.request(|| {
            self.objects.lock().unwrap().remove(name);
            Ok(())
        })
    }
}

fn store(fake: &Arc<Fake>) -> Store {
    let objects: Arc<dyn Objects> = fake.clone();
    Store::on(Arc::new(ObjectDisk::new(objects)), "bucket/run", 2).unwrap()
}

fn fingerprint() -> Fingerprint {
    Fingerprint([("train.seed".to_owned(), "1".to_owned())].into())
}

fn model(value: f64) -> Model {
    let mut model = Model::new();
    model.set("centres", Tensor::of(&[2], vec![value, 0.5], Role::Weight));
    model
}

/// Writes the parts and gives the manifest that would complete them.
fn prepare(store: &Store, step: u64, value: f64) -> Result<Manifest> {
    let part = store.write_model(Step(step), &model(value))?;
    Ok(Manifest {
        step: Step(step),
        epoch: Epoch(0),
        workers: 1,
        shards: 1,
        fingerprint: fingerprint(),
        written_by: "0.1.0".into(),
        progress: serde_json::json!({ "value": value }),
        parts: vec![part],
    })
}

fn save(store: &Store, step: u64) -> Result<()> {
    let manifest = prepare(store, step, step as f64)?;
    store.commit(&manifest).map(|_| ())
}

#[test]
fn the_layout_is_that_of_a_folder_and_old_ones_go() {
    let fake = Arc::new(Fake::default());
    assert!(store(&fake).latest(&fingerprint()).unwrap().is_none());
    for step in [10, 20, 30] {
        save(&store(&fake), step).unwrap();
    }
    let names: Vec<String> = fake.objects.lock().unwrap().keys().cloned().collect();
    let expected =
        ["20/manifest.json", "20/model.safetensors", "30/manifest.json", "30/model.safetensors"];
    assert_eq!(names, expected.map(|name| format!("bucket/run/step-000000{name}")));
    let found = store(&fake).latest(&fingerprint()).unwrap().unwrap();
    assert_eq!((found.manifest.step, found.model().unwrap()), (Step(30), model(30.0)));
}

#[test]
fn ten_thousand_troubled_runs_lose_and_mix_nothing() {
    let (mut told, mut failed) = (0, 0);
    for seed in 0..10_000 {
        let fake = Arc::new(Fake::default());
        let mut rng = Rng::named(seed, "store", &[]);
        let (refused, unanswered) = (rng.below(40), rng.below(40));
        *fake.trouble.lock().unwrap() = Some(Trouble { rng, refused, unanswered });
        let mut acknowledged = 0;
        for step in [10, 20, 30] {
            match save(&store(&fake), step) {
                Ok(()) => (acknowledged, told) = (step, told + 1),
                Err(fault) => {
                    assert_eq!(fault.blame(), Blame::Machine, "seed {seed}: {fault}");
                    failed += 1;
                }
            }
        }
        *fake.trouble.lock().unwrap() = None;
        let store = store(&fake);
        let found = store.latest(&fingerprint()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        let step = found.as_ref().map_or(0, |found| found.manifest.step.0);
        assert!(step >= acknowledged, "seed {seed}: {acknowledged} was told, {step} is found");
        if let Some(found) = found {
            assert!(found.warnings.is_empty(), "seed {seed}: {:?}", found.warnings);
            assert_eq!(found.model().unwrap(), model(step as f64), "seed {seed}");
        }
        if seed % 16 == 0 {
            save(&store, 40).unwrap();
            assert_eq!(store.latest(&fingerprint()).unwrap().unwrap().manifest.step, Step(40));
        }
    }
    assert!(told > 5_000 && failed > 1_000, "{told} told, {failed} failed: trouble must be felt");
}

#[test]
fn of_two_writers_exactly_one_wins_and_the_other_is_told() {
    for committed_before in [false, true] {
        let fake = Arc::new(Fake::default());
        if committed_before {
            // Both go back and write the step anew: then the manifest that was seen decides.
            save(&store(&fake), 10).unwrap();
        }
        let (first, second) = (store(&fake), store(&fake));
        let theirs = prepare(&first, 10, 1.0).unwrap();
        let ours = prepare(&second, 10, 2.0).unwrap();
        let other = fake.clone();
        *fake.between.lock().unwrap() = Some(Box::new(move || {
            let name = "bucket/run/step-00000010/manifest.json";
            let bytes = theirs.to_bytes().unwrap();
            other.put(name, &bytes, &Condition::Always).unwrap();
        }));
        let fault = second.commit(&ours).unwrap_err();
        assert!(fault.message().contains("another writer"), "{fault}");
        // The winner's manifest stands. Its parts were overwritten: that is found, and never used.
        let manifest = fake.get("bucket/run/step-00000010/manifest.json").unwrap().0;
        assert_eq!(Manifest::from_bytes(&manifest).unwrap().progress["value"], 1.0);
        assert!(first.load(Step(10)).is_err(), "parts of two writers are never mixed");
    }
}

#[test]
fn an_answer_that_was_lost_is_not_a_failure() {
    let fake = Arc::new(Fake::default());
    let trouble = Trouble { rng: Rng::named(1, "lost", &[]), refused: 0, unanswered: 45 };
    *fake.trouble.lock().unwrap() = Some(trouble);
    let acknowledged = (1..=50).filter(|step| save(&store(&fake), *step).is_ok()).count();
    assert!(acknowledged > 30, "read back, most are found to be there: {acknowledged}");
}

#[test]
fn a_commit_is_refused_while_its_parts_are_not_listed() {
    let fake = Arc::new(Fake::default());
    let manifest = prepare(&store(&fake), 10, 1.0).unwrap();
    fake.delete("bucket/run/step-00000010/model.safetensors").unwrap();
    let fault = store(&fake).commit(&manifest).unwrap_err();
    assert!(fault.message().contains("missing"), "{fault}");
}
