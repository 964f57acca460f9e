//! Keeps checkpoints: decides when one is due, has every seat write its part of the same cut, and lets seat
//! 0 make them one checkpoint. Nothing counts before the manifest is there. Writing happens beside the training: a cut
//! costs a copy of the model, and what became of it is asked for at each step.

use crate::bridge::{Agreed, Exchange};
use crate::checkpoints;
use crate::descent::{Descent, Goodness};
use crate::exchange::packet::Losses;
use crate::job::{CheckpointSpec, Every};
use crate::net::{Arrival, Net};
use starlings_cluster::checkpoint::{ASIDE, Complete, Store};
use starlings_cluster::manifest::{Fingerprint, Manifest, PartInfo};
use starlings_cluster::tensors::read_model;
use starlings_cluster::writer::{Content, Done, Part, Writer};
use starlings_core::{
    Deadline, Epoch, Event, Fault, Model, Result, Role, Seat, Shard, Step, Tensor, failpoint,
};
use starlings_learn::{Appetite, DIVERGED, Memory, Place};
use starlings_transport::{Header, Lane};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The kind of a message that tells seat 0 which parts were written.
const PARTS: u8 = 1;

/// What a part with a seat's losses is called, before the seat's number.
const LOSSES: &str = "losses-";

/// What a worker continues from.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// This many steps are done.
    pub step: Step,
    /// Where from.
    pub path: String,
    /// All tensors of all stages.
    pub model: Model,
    /// What the wanted shards remember.
    pub memory: Memory,
    /// What each seat's codec had lost.
    pub losses: BTreeMap<u32, Losses>,
    /// Seats of the flock that was checkpointed.
    pub workers: u32,
    /// What its manifest says of the training so far.
    pub progress: serde_json::Value,
}

impl Resumed {
    /// Reads a checkpoint: the whole model, and the memory of the wanted shards.
    ///
    /// # Errors
    /// Damage that was not there when it was verified.
    pub fn read(complete: &Complete, wanted: impl Fn(Shard) -> bool) -> Result<Resumed> {
        let mut model = Model::new();
        for part in complete.manifest.parts.iter().filter(|part| part.name.starts_with("model")) {
            for (name, tensor) in read_model(&complete.read(&part.name)?)?.iter() {
                model.set(name, tensor.clone());
            }
        }
        let mut memory = Memory::new();
        for (shard, cells) in complete.memory(|shard| wanted(Shard(shard)))? {
            memory.insert(Shard(shard), cells);
        }
        let mut losses = BTreeMap::new();
        for part in &complete.manifest.parts {
            let seat = part.name.strip_prefix(LOSSES).and_then(|rest| rest.split('.').next());
            if let Some(Ok(seat)) = seat.map(str::parse::<u32>) {
                let tensors = read_model(&complete.read(&part.name)?)?;
                let named =
                    tensors.iter().map(|(name, tensor)| (name.to_string(), tensor.values.clone()));
                losses.insert(seat, named.collect());
            }
        }
        let path = complete.path.display().to_string();
        let (step, workers) = (complete.manifest.step, complete.manifest.workers);
        let progress = complete.manifest.progress.clone();
        Ok(Resumed { step, path, model, memory, losses, workers, progress })
    }

    /// What a seat takes over of the losses: its own on as many seats as before, else those dealt to it in turn.
    /// Says whether they are its own.
    #[must_use]
    pub fn losses_of(&self, seat: Seat, world: u32) -> Vec<(Losses, bool)> {
        let own = world == self.workers;
        let mine = |(from, _): &(&u32, &Losses)| *from % world == seat.0;
        self.losses.iter().filter(mine).map(|(_, losses)| (losses.clone(), own)).collect()
    }

    /// The model of a worker that would start with `fresh`: all of it, or its stage's part.
    ///
    /// # Errors
    /// When the checkpoint lacks one of its tensors.
    pub fn model_like(&self, fresh: &Model, place: &Place) -> Result<Model> {
        if let Some(name) = lacking(fresh, &self.model) {
            let what = format!("the checkpoint {} has no tensor '{name}'", self.path);
            return Err(Fault::machine(what));
        }
        if place.stages == 1 {
            return Ok(self.model.clone());
        }
        let mut model = Model::new();
        for (name, tensor) in self.model.iter().filter(|(name, _)| fresh.get(name).is_some()) {
            model.set(name, tensor.clone());
        }
        Ok(model)
    }
}

/// Where this seat's part of a checkpoint belongs.
pub struct Post {
    /// The job.
    pub fingerprint: Fingerprint,
    /// The settings of steps, which may be others when it goes on.
    pub pace: String,
    /// Virtual shards.
    pub shards: u32,
    /// This seat writes a part of the model: its stage.
    pub writes_stage: Option<u32>,
    /// Links to all other seats.
    pub net: Arc<Net>,
}

/// Keeps the checkpoints of one seat.
pub struct Keeper {
    inner: Option<Inner>,
    descent: Descent,
}

struct Inner {
    store: Store,
    writer: Writer,
    every: Every,
    post: Post,
    next: Deadline,
    kept: Option<Step>,
    newest: Option<String>,
    goodness: Goodness,
    /// The checkpoint that is under way.
    pending: Option<Pending>,
}

/// A checkpoint that is under way.
struct Pending {
    step: Step,
    /// Seat 0: the parts that are durable, and of how many seats.
    parts: Vec<PartInfo>,
    seats: u32,
}

/// How long a checkpoint may take, once somebody waits for it.
const WRITING: Duration = Duration::from_secs(600);

impl Keeper {
    /// Keeps nothing.
    #[must_use]
    pub fn none() -> Keeper {
        Keeper { inner: None, descent: Descent::default() }
    }

    /// Keeps what a job wants kept.
    ///
    /// # Errors
    /// A folder that cannot serve.
    pub fn new(spec: &CheckpointSpec, post: Post, resumed: Option<&Resumed>) -> Result<Keeper> {
        let store = checkpoints::store(spec)?;
        let every = spec.every;
        let newest = resumed.map(|resumed| resumed.path.clone());
        let kept = resumed.map(|resumed| resumed.step);
        let writer = Writer::start(checkpoints::store(spec)?)?;
        let (next, pending) = (due_next(every), None);
        let goodness = resumed.map_or_else(Goodness::default, |resumed| {
            Goodness::resumed(resumed.step, &resumed.progress)
        });
        let inner = Inner { store, writer, every, post, next, kept, newest, goodness, pending };
        Ok(Keeper { inner: Some(inner), descent: Descent::default() })
    }

    /// From now on this seat's part belongs there. `kept` is the step of the checkpoint that all went back to, if they
    /// did. What this seat alone knows does not count: a newcomer, or one that was cut off in the middle of a checkpoint,
    /// would make one before a step before which the others make none, and all would wait for each other.
    pub fn reseat(&mut self, net: &Arc<Net>, writes_stage: Option<u32>, kept: Option<Step>) {
        if let Some(inner) = &mut self.inner {
            inner.post.net = net.clone();
            inner.post.writes_stage = writes_stage;
            inner.kept = kept;
            // Its parts were of another deal and other seats: nobody will complete it.
            inner.pending = None;
        }
    }

    /// The job whose checkpoints these are.
    ///
    /// # Panics
    /// If it keeps none.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.inner.as_ref().expect("only asked where checkpoints are kept").post.fingerprint
    }

    /// Whether the clock says that a checkpoint is due. Seat 0 alone asks for one by time.
    #[must_use]
    pub fn due_by_time(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| {
            matches!(inner.every, Every::Time(_))
                && inner.post.net.seat() == Seat(0)
                && inner.next.passed()
        })
    }

    /// Whether all workers make a checkpoint before this step.
    #[must_use]
    pub fn due(&self, step: Step, agreed: Agreed) -> bool {
        let Some(inner) = &self.inner else { return false };
        let by_steps = match inner.every {
            Every::Steps(steps) => step.0 > 0 && step.0.is_multiple_of(steps),
            Every::Time(_) => false,
        };
        inner.kept != Some(step) && (by_steps || agreed.cut || agreed.stop)
    }

    /// Makes a checkpoint of all seats before this step: it is written while the next steps are computed, or, if all
    /// are about to stop, before anyone goes. Gives what is to be told of it and of earlier ones.
    ///
    /// # Errors
    /// A lost peer or a failing disk.
    pub fn keep(
        &mut self,
        (step, stop): (Step, bool),
        exchange: &mut dyn Exchange,
        model: &mut Model,
        memory: &Memory,
    ) -> Result<Vec<Event>> {
        let Some(inner) = &mut self.inner else { return Ok(Vec::new()) };
        let step = exchange.cut(step, model)?;
        failpoint!("checkpoint-cut");
        let mut events = inner.settle()?;
        // What was under way when members changed is nobody's any more, though it may be of the same step.
        inner.writer.settle(Deadline::after(WRITING))?;
        let mut parts = inner.parts(model, memory);
        parts.extend(inner.losses(exchange.losses()));
        inner.writer.save(step, parts, Deadline::after(WRITING))?;
        inner.pending = Some(Pending { step, parts: Vec::new(), seats: 0 });
        (inner.kept, inner.next) = (Some(step), due_next(inner.every));
        inner.goodness.kept(step);
        if stop {
            events.extend(inner.settle()?);
            // Seat 0 has completed it when it comes here.
            exchange.sum(vec![])?;
            inner.newest = Some(inner.store.folder(step).display().to_string());
        }
        Ok(events)
    }

    /// What has become of the checkpoint under way. Never waits.
    ///
    /// # Errors
    /// A lost peer or a failing disk.
    pub fn poll(&mut self) -> Result<Vec<Event>> {
        match &mut self.inner {
            Some(inner) if inner.pending.is_some() => inner.poll(),
            _ => Ok(Vec::new()),
        }
    }

    /// The objective of a step tells whether the checkpoint before it is good to go back to, and where learners go down by
    /// steps on batches, whether they still do.
    ///
    /// # Errors
    /// They do not: training has left all bounds.
    pub fn see(&mut self, step: Step, by: Appetite, objective: Option<f64>) -> Result<()> {
        if let Some(inner) = &mut self.inner {
            inner.goodness.judge(step, objective);
        }
        match by {
            Appetite::Batches => self.descent.see(step, objective),
            Appetite::Passes => Ok(()),
        }
    }

    /// Where training has left all bounds: sets aside what was kept after the last good checkpoint, so that `--resume`
    /// goes on from that one, and says so. Other faults stay as they are.
    #[must_use]
    pub fn gone_astray(&mut self, fault: Fault) -> Fault {
        let Some(inner) = &mut self.inner else { return fault };
        if !fault.message().contains(DIVERGED) {
            return fault;
        }
        let advice = fault.advice().map(|it| format!("{it}; ")).unwrap_or_default();
        let Some(good) = inner.goodness.good() else {
            return fault.hint(format!("{advice}no checkpoint is good: start without --resume"));
        };
        let mut aside = format!("are kept beside it as '{ASIDE}…'");
        if inner.post.net.seat() == Seat(0) {
            // What is under way is of no use any more, and must not become a checkpoint after this.
            let _ = inner.writer.settle(Deadline::after(Duration::from_secs(60)));
            if let Err(left) = inner.store.set_aside_after(good, &inner.post.fingerprint) {
                aside = format!("must be moved away first, for {}", left.message());
            }
        }
        fault.hint(format!(
            "{advice}{} is the last good checkpoint: --resume goes on from it, also with another learning rate, schedule or clip_norm; later ones, of weights that had gone astray, {aside}",
            inner.store.folder(good).display()
        ))
    }

    /// Waits for the checkpoint under way.
    ///
    /// # Errors
    /// A lost peer or a failing disk.
    pub fn settle(&mut self) -> Result<Vec<Event>> {
        self.inner.as_mut().map_or(Ok(Vec::new()), Inner::settle)
    }

    /// The newest complete checkpoint, for messages.
    #[must_use]
    pub fn newest(&self) -> Option<String> {
        self.inner.as_ref().and_then(|inner| inner.newest.clone())
    }
}

impl Inner {
    /// This seat's part of the cut, copied.
    fn parts(&self, model: &Model, memory: &Memory) -> Vec<Part> {
        let mut parts = Vec::new();
        match self.post.writes_stage {
            Some(0) => parts.push(("model.safetensors".to_string(), Content::Model(model.clone()))),
            Some(stage) => {
                let name = format!("model-{stage}.safetensors");
                parts.push((name, Content::Model(model.clone())));
            }
            None => {}
        }
        let cells: starlings_cluster::tensors::Cells = memory
            .iter()
            .filter(|(_, cells)| !cells.is_empty())
            .map(|(shard, cells)| (shard.0, cells.clone()))
            .collect();
        if !cells.is_empty() {
            let name = format!("memory-{}.safetensors", self.post.net.seat().0);
            parts.push((name, Content::Memory(cells)));
        }
        parts
    }

    /// What this seat's codec has lost: without it a resumed run would go on with less than it was given.
    fn losses(&self, losses: Losses) -> Option<Part> {
        if losses.is_empty() {
            return None;
        }
        let mut tensors = Model::new();
        for (name, values) in losses {
            let shape = vec![values.len()];
            tensors.set(name, Tensor { shape, values, role: Role::State });
        }
        let name = format!("{LOSSES}{}.safetensors", self.post.net.seat().0);
        Some((name, Content::Model(tensors)))
    }

    /// Tells seat 0 of parts that are durable; seat 0 completes the checkpoint when it knows of all of them.
    fn poll(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        for outcome in self.writer.collect() {
            // What belonged to an older epoch is of no use any more.
            let current = self.pending.as_ref().is_some_and(|it| it.step == outcome.step);
            match outcome.result? {
                _ if !current => {}
                Done::Parts(parts) => self.durable(outcome.step, parts)?,
                Done::Committed(committed) => {
                    let (step, bytes) = (outcome.step, committed.bytes);
                    let path = committed.path.display().to_string();
                    self.newest = Some(path.clone());
                    self.pending = None;
                    events.push(Event::Checkpoint { step, path, bytes });
                }
            }
        }
        let net = self.post.net.clone();
        while let Some(step) = self.pending.as_ref().map(|pending| pending.step)
            && net.seat() == Seat(0)
            && let Some(arrival) = net.try_next(Lane::Control, parts_of(step))?
        {
            self.hear(arrival)?;
        }
        Ok(events)
    }

    fn durable(&mut self, step: Step, parts: Vec<PartInfo>) -> Result<()> {
        let net = &self.post.net;
        if net.seat() == Seat(0) {
            return self.add(parts);
        }
        let bytes = postcard::to_stdvec(&parts).expect("plain data serialises");
        let header = Header { lane: Lane::Control, kind: PARTS, step, tag: 0 };
        failpoint!("checkpoint-telling");
        net.send(Seat(0), header, &bytes, Deadline::after(Duration::from_secs(60)))?;
        self.pending = None;
        Ok(())
    }

    fn hear(&mut self, arrival: Arrival) -> Result<()> {
        let from = arrival.from;
        let parts: Vec<PartInfo> = postcard::from_bytes(&arrival.payload)
            .map_err(|_| Fault::peer(Some(from), format!("{from} sent a broken list of parts")))?;
        self.add(parts)
    }

    /// Seat 0 knows of the parts of one more seat.
    fn add(&mut self, parts: Vec<PartInfo>) -> Result<()> {
        let world = self.post.net.world();
        let Some(pending) = &mut self.pending else { return Ok(()) };
        pending.parts.extend(parts);
        pending.seats += 1;
        if pending.seats < world {
            return Ok(());
        }
        let manifest = Manifest {
            step: pending.step,
            epoch: Epoch(0),
            workers: world,
            shards: self.post.shards,
            fingerprint: self.post.fingerprint.clone(),
            written_by: env!("CARGO_PKG_VERSION").to_string(),
            progress: self.goodness.told(&self.post.pace),
            parts: std::mem::take(&mut pending.parts),
        };
        self.writer.commit(manifest, Deadline::after(WRITING))
    }

    /// Waits for the checkpoint under way.
    fn settle(&mut self) -> Result<Vec<Event>> {
        let by = Deadline::after(WRITING);
        let mut events = Vec::new();
        while let Some(step) = self.pending.as_ref().map(|pending| pending.step) {
            events.extend(self.poll()?);
            if by.passed() {
                return Err(Fault::machine(format!("the checkpoint of {step} is not written")));
            }
            if self.pending.is_some() {
                self.post.net.check()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(events)
    }
}

/// A tensor that a model of this job must have and `model` has not. State may come and go while a learner learns; what it
/// is to give back may not.
pub(crate) fn lacking<'a>(fresh: &'a Model, model: &Model) -> Option<&'a str> {
    let mut weights = fresh.iter().filter(|(_, tensor)| tensor.role == Role::Weight);
    weights.find(|(name, _)| model.get(name).is_none()).map(|(name, _)| name)
}

fn parts_of(step: Step) -> impl Fn(&Arrival) -> bool {
    move |arrival| arrival.header.kind == PARTS && arrival.header.step == step
}

fn due_next(every: Every) -> Deadline {
    match every {
        Every::Time(gap) => Deadline::after(gap),
        Every::Steps(_) => Deadline::after(Duration::from_secs(0)),
    }
}
