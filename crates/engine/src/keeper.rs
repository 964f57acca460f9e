//! Keeps checkpoints: decides when one is due, has every seat write its part of the same cut, and lets seat
//! 0 make them one checkpoint. Nothing counts before the manifest is there.

use crate::bridge::{Agreed, Exchange};
use crate::exchange::packet::Losses;
use crate::job::{CheckpointSpec, Every};
use crate::net::Net;
use starlings_cluster::checkpoint::{Complete, Store};
use starlings_cluster::manifest::{Fingerprint, Manifest, PartInfo};
use starlings_cluster::tensors::{read_model, write_model};
use starlings_core::{
    Deadline, Epoch, Event, Fault, Model, Result, Role, Seat, Shard, Step, Tensor,
};
use starlings_learn::{Memory, Place};
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
        Ok(Resumed { step, path, model, memory, losses, workers })
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
    pub fn model_like(&self, fresh: &Model, place: Place) -> Result<Model> {
        let lacking = fresh.iter().find(|(name, _)| self.model.get(name).is_none());
        if let Some((name, _)) = lacking {
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
}

struct Inner {
    store: Store,
    every: Every,
    post: Post,
    next: Deadline,
    kept: Option<Step>,
    newest: Option<String>,
}

impl Keeper {
    /// Keeps nothing.
    #[must_use]
    pub fn none() -> Keeper {
        Keeper { inner: None }
    }

    /// Keeps what a job wants kept.
    ///
    /// # Errors
    /// A folder that cannot serve.
    pub fn new(spec: &CheckpointSpec, post: Post, resumed: Option<&Resumed>) -> Result<Keeper> {
        let store = Store::new(&spec.path, spec.keep)?;
        let every = spec.every;
        let newest = resumed.map(|resumed| resumed.path.clone());
        let kept = resumed.map(|resumed| resumed.step);
        Ok(Keeper {
            inner: Some(Inner { store, every, post, next: due_next(every), kept, newest }),
        })
    }

    /// From now on this seat's part belongs there.
    pub fn reseat(&mut self, net: &Arc<Net>, writes_stage: Option<u32>) {
        if let Some(inner) = &mut self.inner {
            inner.post.net = net.clone();
            inner.post.writes_stage = writes_stage;
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

    /// Makes a checkpoint of all seats before this step. Seat 0 gets the event to tell.
    ///
    /// # Errors
    /// A lost peer or a failing disk.
    pub fn keep(
        &mut self,
        step: Step,
        exchange: &mut dyn Exchange,
        model: &mut Model,
        memory: &Memory,
    ) -> Result<Option<Event>> {
        let Some(inner) = &mut self.inner else { return Ok(None) };
        let step = exchange.cut(step, model)?;
        let mut parts = inner.write(step, model, memory)?;
        parts.extend(inner.write_losses(step, exchange.losses())?);
        let event = inner.gather(step, parts)?;
        // Nobody goes on before the checkpoint is complete: a crash later than this loses nothing of it.
        exchange.sum(vec![])?;
        (inner.kept, inner.next) = (Some(step), due_next(inner.every));
        inner.newest = Some(inner.store.folder(step).display().to_string());
        Ok(event)
    }

    /// The newest complete checkpoint, for messages.
    #[must_use]
    pub fn newest(&self) -> Option<String> {
        self.inner.as_ref().and_then(|inner| inner.newest.clone())
    }
}

impl Inner {
    fn write(&self, step: Step, model: &Model, memory: &Memory) -> Result<Vec<PartInfo>> {
        let mut parts = Vec::new();
        match self.post.writes_stage {
            Some(0) => parts.push(self.store.write_model(step, model)?),
            Some(stage) => {
                let name = format!("model-{stage}.safetensors");
                parts.push(self.store.write_part(step, &name, |out| write_model(out, model))?);
            }
            None => {}
        }
        let cells: starlings_cluster::tensors::Cells = memory
            .iter()
            .filter(|(_, cells)| !cells.is_empty())
            .map(|(shard, cells)| (shard.0, cells.clone()))
            .collect();
        if !cells.is_empty() {
            parts.push(self.store.write_memory(step, self.post.net.seat(), &cells)?);
        }
        Ok(parts)
    }

    /// What this seat's codec has lost: without it a resumed run would go on with less than it was given.
    fn write_losses(&self, step: Step, losses: Losses) -> Result<Option<PartInfo>> {
        if losses.is_empty() {
            return Ok(None);
        }
        let mut tensors = Model::new();
        for (name, values) in losses {
            let shape = vec![values.len()];
            tensors.set(name, Tensor { shape, values, role: Role::State });
        }
        let name = format!("{LOSSES}{}.safetensors", self.post.net.seat().0);
        self.store.write_part(step, &name, |out| write_model(out, &tensors)).map(Some)
    }

    /// Seat 0 learns of all parts and completes the checkpoint.
    fn gather(&self, step: Step, mut parts: Vec<PartInfo>) -> Result<Option<Event>> {
        let (net, by) = (&self.post.net, Deadline::after(Duration::from_secs(60)));
        if net.seat() != Seat(0) {
            let bytes = postcard::to_stdvec(&parts).expect("plain data serialises");
            let header = Header { lane: Lane::Control, kind: PARTS, step, tag: 0 };
            net.send(Seat(0), header, &bytes, by)?;
            return Ok(None);
        }
        for _ in 1..net.world() {
            let wanted = |arrival: &crate::net::Arrival| {
                arrival.header.kind == PARTS && arrival.header.step == step
            };
            let arrival = net.next(Lane::Control, wanted, by)?;
            let theirs: Vec<PartInfo> = postcard::from_bytes(&arrival.payload).map_err(|_| {
                Fault::peer(
                    Some(arrival.from),
                    format!("{} sent a broken list of parts", arrival.from),
                )
            })?;
            parts.extend(theirs);
        }
        let manifest = Manifest {
            step,
            epoch: Epoch(0),
            workers: net.world(),
            shards: self.post.shards,
            fingerprint: self.post.fingerprint.clone(),
            written_by: env!("CARGO_PKG_VERSION").to_string(),
            progress: serde_json::Value::Null,
            parts,
        };
        let committed = self.store.commit(&manifest)?;
        let path = committed.path.display().to_string();
        Ok(Some(Event::Checkpoint { step, path, bytes: committed.bytes }))
    }
}

fn due_next(every: Every) -> Deadline {
    match every {
        Every::Time(gap) => Deadline::after(gap),
        Every::Steps(_) => Deadline::after(Duration::from_secs(0)),
    }
}
