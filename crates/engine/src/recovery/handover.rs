//! How a worker gets the model of the step that the flock is at: from a peer who has it, or from the checkpoint that
//! all go back to.

use super::Leases;
use crate::checkpoints;
use crate::choices::summing;
use crate::desk::{Desk, extent, first_model, place_of};
use crate::keeper::{Resumed, lacking};
use crate::merge::{MergeOptions, Merger};
use crate::net::PART_BYTES;
use crate::net::kinds::CHECKPOINT;
use crate::stock::room_for_model;
use crate::walk::{Walk, Walked};
use starlings_cluster::checkpoint::Store;
use starlings_cluster::tensors::{read_model, write_model};
use starlings_core::{Block, Deadline, Fault, Model, Result, Seat, Step, Update, failpoint};
use starlings_learn::Memory;
use starlings_transport::{Header, Lane};

/// The kind of a message with a model on the control lane.
const HANDOVER: u8 = 14;

impl Desk {
    /// Brings the model before `step` from `source` to those who are behind.
    pub(super) fn hand_over(&mut self, step: Step, source: Seat, behind: &[Seat]) -> Result<()> {
        let (seat, by) = (self.net.seat(), Deadline::after(self.job.patience));
        let header = Header { lane: Lane::Control, kind: HANDOVER, step, tag: 0 };
        if seat == source && !behind.is_empty() {
            let bytes = pack(&(self.walk.so_far(), self.leases.clone()), &self.model)?;
            for &to in behind {
                failpoint!("handover-sending");
                self.net.send_parts(to, header, (&bytes, PART_BYTES), by)?;
                failpoint!("handover-sent");
            }
        }
        if !behind.contains(&seat) {
            return Ok(());
        }
        failpoint!("handover-awaited");
        let most = room_for_model(&*self.learner, &self.facts);
        let bytes = self.net.next_parts(source, (header, most), by)?;
        failpoint!("handover-arrived");
        // Whoever cannot read it goes; the one who has the model stays.
        let broken = || Fault::machine(format!("what {source} handed over cannot be read"));
        let ((walked, leases), model) = unpack(&bytes).ok_or_else(broken)?;
        if lacking(&self.model, &model).is_some() {
            return Err(broken());
        }
        self.walk.take_over(walked);
        (self.leases, self.model) = (leases, model);
        Ok(())
    }

    /// Goes back to the newest complete checkpoint, or to the beginning where there is none. Gives its step.
    pub(super) fn restore(&mut self) -> Result<Option<Step>> {
        self.place = place_of(&self.assignment);
        let fresh = first_model(&self.job, &self.choices, &self.facts, self.place.clone())?;
        let (steps_a_pass, steps_max) = extent(&*self.learner, &self.job, &self.facts)?;
        let step = self.agreed_checkpoint()?;
        failpoint!("restore-agreed");
        self.leases = Leases::default();
        let (model, memory) = match (step, self.store()?) {
            (Some(step), Some(store)) => {
                let complete = store.load(step)?;
                let mine = &self.assignment.shards;
                let resumed = Resumed::read(&complete, |shard| mine.contains(&shard))?;
                (resumed.model_like(&fresh, &self.place)?, resumed.memory)
            }
            _ => (fresh, Memory::new()),
        };
        (self.model, self.memory) = (model, memory);
        // What this worker had done since then was never told as done, and is not.
        self.clock.forget();
        self.walk = Walk::new(step.unwrap_or(Step(0)), steps_max, steps_a_pass);
        Ok(step)
    }

    /// The step of the checkpoint that seat 0 finds: all go back to the same.
    fn agreed_checkpoint(&self) -> Result<Option<Step>> {
        let mut newest = 0;
        if self.net.seat() == Seat(0)
            && let Some(store) = self.store()?
            && let Some(complete) = store.latest(self.keeper.fingerprint())?
        {
            newest = complete.manifest.step.0 as i64 + 1;
        }
        let options =
            MergeOptions::exact(CHECKPOINT, &self.net, summing("tree", "")?, self.job.patience);
        let told = Merger::new(self.net.clone(), options)
            .merge(Update { blocks: vec![Block::counts("checkpoint", vec![newest])] })?;
        Ok(u64::try_from(told.i64("checkpoint")[0] - 1).ok().map(Step))
    }

    fn store(&self) -> Result<Option<Store>> {
        let spec = self.job.checkpoint.as_ref();
        spec.map(checkpoints::store).transpose()
    }
}

fn pack(counts: &(Walked, Leases), model: &Model) -> Result<Vec<u8>> {
    let counts = postcard::to_stdvec(counts).expect("plain data serialises");
    let mut bytes = (counts.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&counts);
    write_model(&mut bytes, model)?;
    Ok(bytes)
}

fn unpack(bytes: &[u8]) -> Option<((Walked, Leases), Model)> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (counts, model) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    Some((postcard::from_bytes(counts).ok()?, read_model(model).ok()?))
}
