//! A member that dies while local steps end (at a checkpoint, or with the job): one of the others has had the whole ending and
//! the other has not. They hold the same bits afterwards, and every contribution is in them that was in the ending.

use super::{Flocked, Regroup};
use crate::bridge::adder::{PATIENCE, perches, perches_that};
use crate::choices::Choices;
use crate::clock::Whereabouts;
use crate::desk::Finished;
use crate::job::{Job, Surroundings};
use crate::launch::place::{Place, lay};
use crate::net::Net;
use crate::net::kinds::{EXACT, SUMS};
use crate::redeal::Loader;
use crate::stock::Stock;
use crate::stop::Stop;
use crate::train::{Options, Task};
use crate::worker;
use starlings_core::{Deadline, Epoch, Event, Fault, JobId, Result, Seat};
use starlings_transport::Lane;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Steps of a job.
const STEPS: u64 = 8;

/// Blends whose only exchanges are endings.
const BLENDS: [&str; 5] = [
    "{ name = 'local', steps = 1000 }",
    "{ name = 'elastic-averaging', steps = 1000 }",
    "{ name = 'block-momentum', steps = 1000, nesterov = true }",
    "{ name = 'diloco', steps = 1000 }",
    "{ name = 'dynamic-averaging', check = 1000 }",
];

/// The next flock of a survivor.
struct Again(Option<Flocked>);

impl Regroup for Again {
    fn accuse(&mut self, _: &Fault) {}

    fn regroup(&mut self) -> Result<Flocked> {
        self.0.take().ok_or_else(|| Fault::machine("nobody else was to be lost"))
    }
}

fn task(consistency: &str, [topology, codec]: [&str; 2], kept: Option<(&Path, u64)>) -> Task {
    let checkpoint = kept.map_or_else(String::new, |(path, every)| {
        format!("[checkpoint]\npath = '{}'\nevery = {every}\n", path.display())
    });
    let text = format!(
        "[data]\ntrain = 'synthetic://regression?rows=90&features=7&seed=1'\n\
         [learner]\nname = 'linear-regression'\nsolver = 'sgd'\nlearning_rate = 0.01\n\
         [train]\nbatch = 30\nsteps = {STEPS}\nshards = 6\n\
         [cluster]\nworkers = 3\ntopology = '{topology}'\nconsistency = {consistency}\ncodec = '{codec}'\n\
         {checkpoint}"
    );
    let job = Job::parse(&text, &[], &Surroundings { folder: "/".into(), cores: 2 }).unwrap();
    let choices = Choices::of(&job).unwrap();
    let observer = Arc::new(|_: Event| {});
    let options = Options { observer, stop: Stop::new(), resume: false, program: None };
    Task { job, choices, options, id: JobId(1) }
}

/// The nets of three seats. The first, which gives totals to the others, dies when it has sent so many frames of a blend's
/// sums, and whoever has got one is done with the ending.
fn nets(frames: u32) -> Vec<Arc<Net>> {
    let (sent, had) = (AtomicU32::new(0), AtomicU32::new(0));
    let seats = perches_that(3, move |from, header| {
        let is_of = |kind| (header.lane, header.kind) == (Lane::Exchange, kind);
        if from != 0 && is_of(EXACT) && sent.load(Ordering::SeqCst) > 0 {
            had.fetch_add(1, Ordering::SeqCst);
        }
        if from == 0 && is_of(SUMS) && sent.fetch_add(1, Ordering::SeqCst) == frames {
            let by = Deadline::after(PATIENCE);
            while had.load(Ordering::SeqCst) < frames && !by.passed() {
                std::thread::yield_now();
            }
            std::panic::resume_unwind(Box::new("killed"));
        }
    });
    seats.into_iter().map(|perch| perch.net).collect()
}

/// Runs a job on three seats; where the first is lost the others go on as two. Gives what came of each.
fn run(task: &Task, frames: u32) -> Vec<Option<Result<Finished>>> {
    let stock = Stock::new(&task.job.memory, 1);
    let (survey, holding) = stock.load_all(task).unwrap();
    let deal = vec![vec![0, 1, 2], vec![3, 4, 5]];
    let mut desks = Vec::new();
    let next = perches(2).into_iter().map(|perch| perch.net);
    let mut next =
        next.map(|net| Again(Some(Flocked { net, epoch: Epoch(1), deal: deal.clone() })));
    for (seat, net) in (0..).map(Seat).zip(nets(frames)) {
        let assignment = task.choices.plan.assign(seat, 3, task.job.shards).unwrap();
        let again = if seat == Seat(0) { Again(None) } else { next.next().unwrap() };
        let place = Place {
            task,
            survey: &survey,
            holding: holding.only(&assignment.shards),
            loader: Loader::at_hand(holding.clone()),
            assignment,
            net,
            complete: None,
            whereabouts: Whereabouts::default(),
            speaks_for_process: false,
            regroup: Some(Box::new(again)),
            newcomer: false,
            deliver: Some(Box::new(|_, _| Ok(()))),
        };
        desks.push(lay(place).unwrap());
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            desks.into_iter().map(|desk| scope.spawn(move || worker::run(desk))).collect();
        workers.into_iter().map(|worker| worker.join().ok()).collect()
    })
}

/// The model of each who was there at the end.
fn models(ended: Vec<Option<Result<Finished>>>) -> Vec<[u8; 32]> {
    let finished = ended.into_iter().flatten().map(|it| it.expect("a survivor finishes"));
    finished.map(|it| it.model.expect("all have the whole").digest()).collect()
}

#[test]
fn survivors_of_an_ending_that_broke_off_at_the_end_hold_what_all_three_made() {
    for consistency in BLENDS {
        let task = task(consistency, ["tree", "raw"], None);
        let whole = models(run(&task, u32::MAX));
        assert_eq!(whole.len(), 3);
        let survivors = models(run(&task, 1));
        assert_eq!(survivors, [whole[0]; 2], "{consistency}");
        // Nobody had the ending: it is made of what the survivors have.
        let survivors = models(run(&task, 0));
        assert_eq!(survivors, [survivors[0]; 2], "{consistency}");
        assert_ne!(survivors[0], whole[0], "{consistency}");
    }
}

#[test]
fn survivors_of_an_ending_that_broke_off_at_a_checkpoint_go_on_alike() {
    for consistency in BLENDS {
        let folder = tempfile::tempdir().unwrap();
        let task = task(consistency, ["tree", "raw"], Some((folder.path(), STEPS / 2)));
        let survivors = models(run(&task, 1));
        assert_eq!(survivors, [survivors[0]; 2], "{consistency}");
    }
}

#[test]
fn survivors_whose_codec_holds_back_hold_the_same_bits_too() {
    for consistency in BLENDS.into_iter().filter(|it| !it.contains("elastic")) {
        let folder = tempfile::tempdir().unwrap();
        for kept in [None, Some((folder.path(), STEPS / 2))] {
            let task = task(consistency, ["tree", "random-k"], kept);
            let survivors = models(run(&task, 1));
            assert_eq!(survivors, [survivors[0]; 2], "{consistency}");
        }
    }
}
