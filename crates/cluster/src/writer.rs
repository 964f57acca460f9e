//! Checkpoints beside the training: a thread of its own makes parts durable while the next steps are computed (CheckFreq,
//! Mohan et al., 2021, calls the two halves snapshot and persist). The caller hands over owned tensors, which is the
//! snapshot, and asks at each step what has become of earlier ones. One save is under way at a time: a second waits for the
//! first, so that at most one copy of the model lies beside the model, whatever the disk does.
//!
//! Laws: every save and every commit that was taken has exactly one outcome; a failure is an outcome, and what was written
//! by then is no checkpoint; a commit is begun only after everything taken before it has ended; nothing waits without a
//! deadline, the end of the writer included.
//!
//! # How a keeper uses it
//!
//! A checkpoint has two halves on every seat and one more on the seat that commits:
//!
//! 1. *At the cut*, where parts were written before: make owned [`Content`] of what is to be kept, and [`Writer::save`] it.
//!    That is a copy of the model and a hand-over; the step goes on.
//! 2. *At each later step, and at the end*, [`Writer::collect`]. An outcome [`Done::Parts`] is told to the seat that commits
//!    (its list of parts, as before); an `Err` is told as a checkpoint that failed: the job goes on from the one before.
//! 3. *The committing seat*, once it has the parts of all seats for a step, gives the [`Manifest`] to [`Writer::commit`], and tells
//!    of the checkpoint when its outcome [`Done::Committed`] is collected: not before it is durable.
//!
//! At the end of a run [`Writer::finish`] waits for what is under way. A polite stop makes its last checkpoint in the same
//! way and finishes then; so that all seats agree on which step is kept last, the committing seat's outcome decides.

use crate::checkpoint::{Committed, Store};
use crate::manifest::{Manifest, PartInfo};
use crate::tensors::{Cells, write_cells, write_model};
use starlings_core::{Deadline, Fault, Model, Result, Step};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};

/// What a part is made of. Owned: training goes on meanwhile.
#[derive(Clone, Debug)]
pub enum Content {
    /// Tensors, state included.
    Model(Model),
    /// What shards remember.
    Memory(Cells),
    /// Anything else.
    Bytes(Vec<u8>),
}

/// One part that is to be written: its file name and what it is made of.
pub type Part = (String, Content);

/// What has become of a save or a commit.
#[derive(Debug)]
pub struct Outcome {
    /// The step of the checkpoint.
    pub step: Step,
    /// What was done, or why not.
    pub result: Result<Done>,
}

/// What was done.
#[derive(Clone, PartialEq, Debug)]
pub enum Done {
    /// The parts are durable; they are no checkpoint yet.
    Parts(Vec<PartInfo>),
    /// The checkpoint is complete.
    Committed(Committed),
}

/// Tasks that are taken and not collected: a save and a commit under way, and one waiting.
const TASKS_MAX: usize = 3;

enum Task {
    Save(Step, Vec<Part>),
    Commit(Box<Manifest>),
}

/// Writes in a thread of its own.
pub struct Writer {
    /// `None` when no more will come.
    tasks: Option<SyncSender<Task>>,
    outcomes: Receiver<Outcome>,
    /// Taken and not yet ended.
    open: usize,
    /// Ended, and not yet collected.
    ended: Vec<Outcome>,
}

impl Writer {
    /// Starts a writer for the checkpoints of a store.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(store: Store) -> Result<Writer> {
        let (tasks, inbox) = sync_channel(TASKS_MAX);
        let (outbox, outcomes) = sync_channel(TASKS_MAX);
        let work = move || {
            for task in inbox {
                // Nobody listens any more: what is not committed is no checkpoint, and need not be written.
                if outbox.send(perform(&store, task)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_string());
        thread.spawn(work).map_err(|error| {
            Fault::machine("cannot start a thread for checkpoints").caused_by(error)
        })?;
        Ok(Writer { tasks: Some(tasks), outcomes, open: 0, ended: Vec::new() })
    }

    /// Whether nothing is under way: a save would be taken at once.
    pub fn is_idle(&mut self) -> bool {
        self.listen();
        self.open == 0
    }

    /// Hands over the parts of this seat. Returns as soon as they are taken: at once, unless an earlier save or commit is
    /// still under way.
    ///
    /// # Errors
    /// An earlier one does not end before the deadline (the disk is slower than the checkpoints are frequent, or hangs);
    /// the writer has died. The parts are not taken then.
    pub fn save(&mut self, step: Step, parts: Vec<Part>, by: Deadline) -> Result<()> {
        self.await_idle(by).map_err(|fault| fault.during(format!("checkpoint of {step}")))?;
        self.give(Task::Save(step, parts))
    }

    /// Completes a checkpoint whose parts are all durable, on all seats.
    ///
    /// # Errors
    /// As [`Writer::save`].
    pub fn commit(&mut self, manifest: Manifest, by: Deadline) -> Result<()> {
        let step = manifest.step;
        self.await_idle(by).map_err(|fault| fault.during(format!("checkpoint of {step}")))?;
        self.give(Task::Commit(Box::new(manifest)))
    }

    /// What has ended since the last question, in the order in which it was taken. Never waits.
    pub fn collect(&mut self) -> Vec<Outcome> {
        self.listen();
        std::mem::take(&mut self.ended)
    }

    /// Waits until nothing is under way, and gives what has ended.
    ///
    /// # Errors
    /// The deadline passes first; the writer has died. What has ended by then can still be collected.
    pub fn settle(&mut self, by: Deadline) -> Result<Vec<Outcome>> {
        self.await_idle(by)?;
        Ok(std::mem::take(&mut self.ended))
    }

    /// Ends the writer once nothing is under way. (A writer that is dropped instead ends by itself after what it does
    /// at that moment; nobody learns what became of it.)
    ///
    /// # Errors
    /// As [`Writer::settle`].
    pub fn finish(mut self, by: Deadline) -> Result<Vec<Outcome>> {
        let ended = self.settle(by);
        self.tasks = None;
        ended
    }

    fn give(&mut self, task: Task) -> Result<()> {
        let tasks = self.tasks.as_ref().expect("only taken when it is finished");
        tasks.try_send(task).map_err(|_| died())?;
        self.open += 1;
        Ok(())
    }

    fn listen(&mut self) {
        while self.open > 0 {
            match self.outcomes.try_recv() {
                Ok(outcome) => self.take(outcome),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.bury(),
            }
        }
    }

    fn await_idle(&mut self, by: Deadline) -> Result<()> {
        while self.open > 0 {
            match self.outcomes.recv_timeout(by.left().unwrap_or_default()) {
                Ok(outcome) => self.take(outcome),
                Err(RecvTimeoutError::Disconnected) => self.bury(),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Fault::machine("an earlier checkpoint is still being written")
                        .hint("keep checkpoints less often, or on a faster disk"));
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, outcome: Outcome) {
        self.open -= 1;
        self.ended.push(outcome);
    }

    /// The thread has panicked, which only a bug can cause. Each task still has its outcome.
    fn bury(&mut self) {
        for _ in 0..std::mem::take(&mut self.open) {
            self.ended.push(Outcome { step: Step(0), result: Err(died()) });
        }
    }
}

fn died() -> Fault {
    Fault::machine("the thread that writes checkpoints has died")
        .hint("this is a bug: its last words are above")
}

fn perform(store: &Store, task: Task) -> Outcome {
    match task {
        Task::Save(step, parts) => {
            let write = |(name, content): &Part| {
                store.write_part(step, name, |out| match content {
                    Content::Model(model) => write_model(out, model),
                    Content::Memory(cells) => write_cells(out, cells),
                    Content::Bytes(bytes) => Ok(out.write_all(bytes)?),
                })
            };
            let result = parts.iter().map(write).collect::<Result<Vec<PartInfo>>>();
            Outcome { step, result: result.map(Done::Parts) }
        }
        Task::Commit(manifest) => {
            Outcome { step: manifest.step, result: store.commit(&manifest).map(Done::Committed) }
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
