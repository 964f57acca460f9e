//! Which exchange a worker needs, built: from the layout of the topology, the blend and the codec of its job.

use super::gossip::WalkOptions;
use super::mixed::MixOptions;
use super::partial::PartialOptions;
use super::replicated::Mergers;
use super::rhythm::Habits;
use super::{
    Blended, Circles, Exchange, Gossip, Grouped, Mixed, Owned, PartialExchange, Replicated,
};
use crate::choices::{Carriage, Choices, Layout, raw, summing};
use crate::courier::{Courier, Route};
use crate::exchange::ownership::{COMPRESSED_FROM, Ownership};
use crate::exchange::served::{Office, Shard};
use crate::job::{Deal, Fold, Job};
use crate::merge::{MergeOptions, Merger, near};
use crate::net::Net;
use crate::net::kinds;
use crate::rules::Learned;
use crate::serve::{self, Client, Ledger, Service};
use crate::shared_sum::SharedSum;
use crate::trace::Tracer;
use starlings_codec::{Codec, Law, Shapes};
use starlings_consistency::Blending;
use starlings_core::{Fault, Kind, Model, Result, Role, Seat, Step};
use starlings_plan::Assignment;
use starlings_topology::Pattern;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What an exchange is built from.
pub struct Plans<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its words, built.
    pub choices: &'a Choices,
    /// What this worker does.
    pub assignment: &'a Assignment,
    /// Links to all other seats.
    pub net: &'a Arc<Net>,
    /// The model before the first step.
    pub model: &'a Model,
    /// The first step.
    pub start: Step,
    /// That of each seat, where they differ.
    pub clocks: &'a [u64],
    /// Where spans are recorded.
    pub tracer: Tracer,
    /// Whether members may change.
    pub survives: bool,
}

/// An exchange, and the thread of this seat's shard where it has one.
pub struct Built {
    /// The exchange.
    pub exchange: Box<dyn Exchange>,
    /// The shard's thread.
    pub server: Option<JoinHandle<Shard>>,
    /// What the shard tells.
    pub ledger: Arc<Ledger>,
}

/// How the blocks of an update are summed before the last of them is there.
enum Streams {
    /// They are not.
    Nothing,
    /// They would be, but shared memory is faster: the same sums are made one after another.
    Memory,
    /// By a courier.
    Route(Box<Route>),
}

impl Plans<'_> {
    /// Builds the exchange.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn build(&self) -> Result<Built> {
        let wanted = self.job.transport.as_deref() == Some("shared");
        if wanted && self.net.world() > 1 && self.shared(1, &self.everyone()).is_none() {
            return Err(Fault::machine("the workers do not share the memory of one host")
                .hint("leave out [cluster] transport, and what can go through memory does"));
        }
        let (choices, net) = (self.choices, self.net);
        let learner = choices.learner.clone();
        let patience = self.job.patience;
        let alone =
            |exchange: Box<dyn Exchange>| Built { exchange, server: None, ledger: Arc::default() };
        let codec = self.elementwise();
        Ok(match &choices.layout {
            Layout::Groups(size) if choices.served => return self.grouped(*size),
            _ if choices.served => return self.owned(),
            Layout::Graph(graph) => {
                let (graph, blending) = (graph.clone(), choices.blend.clone());
                let waits = choices.gate.lead_max() == Some(0);
                let options = MixOptions { graph, blending, codec, waits, patience };
                alone(Box::new(Mixed::new(learner, options, net.clone(), self.exact())))
            }
            Layout::Walk(walk) => {
                let (walk, seed) = (walk.clone(), self.job.seed);
                let options = WalkOptions { walk, codec, seed, patience };
                alone(Box::new(Gossip::new(learner, options, net.clone(), self.exact())))
            }
            Layout::Partial(partial) => {
                let options = PartialOptions { partial: partial.clone(), codec, patience };
                let exact = self.exact();
                alone(Box::new(PartialExchange::new(learner, options, net.clone(), exact)))
            }
            Layout::Sum | Layout::Groups(_) if matches!(&*choices.blend, Blending::Local(_)) => {
                let mergers =
                    [self.merger(kinds::SUMS, self.assignment.group.clone()), self.exact()];
                let by_rows = self.job.deal == Deal::Speed;
                let blended = Blended::new(learner, choices.blend.clone(), mergers);
                alone(Box::new(blended.by_rows(by_rows).in_circles(self.circles())))
            }
            Layout::Sum | Layout::Groups(_) => alone(Box::new(self.replicated()?)),
        })
    }

    fn elementwise(&self) -> Arc<dyn Codec> {
        match &self.choices.carriage {
            Carriage::Numbers(codec) => codec.clone(),
            _ => raw(),
        }
    }

    fn everyone(&self) -> Vec<Seat> {
        (0..self.net.world()).map(Seat).collect()
    }

    /// The matrices of the model: blocks that carry their names may be compressed.
    fn shapes(&self) -> Shapes {
        // Whoever multiplies factors out must know the shape of the smallest matrix.
        let exact = matches!(self.choices.carriage, Carriage::Factors | Carriage::Auto(_));
        let least = if exact { 1 } else { COMPRESSED_FROM };
        let floats = self.model.iter().filter(|(_, tensor)| {
            tensor.role == Role::Weight
                && tensor.values.kind() != Kind::I64
                && tensor.values.len() >= least
        });
        floats.map(|(name, tensor)| (name.to_string(), (tensor.rows(), tensor.width()))).collect()
    }

    /// The tensors whose numbers are f32.
    fn single(&self) -> BTreeSet<String> {
        let single = self.model.iter().filter(|(_, tensor)| tensor.values.kind() == Kind::F32);
        single.map(|(name, _)| name.to_string()).collect()
    }

    fn merge_options(&self, kind: u8, group: Vec<Seat>) -> MergeOptions {
        MergeOptions {
            kind,
            group,
            topology: self.choices.sums.clone(),
            carriage: self.choices.carriage.clone(),
            shapes: Arc::new(self.shapes()),
            single: Arc::new(self.single()),
            seed: self.job.seed,
            patience: self.job.patience,
        }
    }

    fn merger(&self, kind: u8, group: Vec<Seat>) -> Merger {
        self.through_memory(self.merge_options(kind, group))
    }

    /// Circles of seats, where the codec has no part in them beyond each sum. What a compressor holds back belongs to the next
    /// sum of the whole flock; and a circle that were summed without it would send more than all of them do with it.
    fn circles(&self) -> Option<Circles> {
        match &self.choices.carriage {
            Carriage::Numbers(_) | Carriage::Factors => {
                let options = self.merge_options(kinds::CIRCLES, self.everyone());
                Some(Circles::new(self.net.clone(), options))
            }
            // What is cheapest would have to be measured anew in every circle.
            Carriage::Auto(_) | Carriage::Contributions(_) | Carriage::Rounds(_) => None,
        }
    }

    /// A merger that sums through shared memory what it can: all, or inside the groups of its topology.
    fn through_memory(&self, options: MergeOptions) -> Merger {
        let (kind, group) = (options.kind, options.group.clone());
        let seats = near(&*options.topology, &group, self.net.seat());
        let merger = Merger::new(self.net.clone(), options);
        match seats {
            Some(seats) => merger.nearby(self.shared(kind, &seats)),
            None => merger.through(self.shared(kind, &group)),
        }
    }

    /// Shared memory, where all of a group share this host and the job does not forbid it.
    fn shared(&self, kind: u8, group: &[Seat]) -> Option<SharedSum> {
        let allowed = !matches!(self.job.transport.as_deref(), Some("tcp" | "mpi"));
        allowed.then(|| self.net.shared_sum(kind, group)).flatten()
    }

    fn exact_among(&self, kind: u8, group: Vec<Seat>) -> Merger {
        let sums = self.choices.sums.clone();
        let options = MergeOptions::exact(kind, self.net, sums, self.job.patience);
        self.through_memory(MergeOptions { group, ..options })
    }

    fn exact(&self) -> Merger {
        self.exact_among(kinds::EXACT, self.everyone())
    }

    fn replicated(&self) -> Result<Replicated> {
        let group = self.assignment.group.clone();
        let everyone = group.len() as u32 == self.net.world();
        let world = (!everyone).then(|| self.exact_among(kinds::WORLD, self.everyone()));
        let reproducible = self.job.fold == Fold::Reproducible;
        let peaks = reproducible.then(|| self.peaks()).transpose()?;
        let mergers =
            Mergers { group: self.merger(kinds::SUMS, group), world, exact: self.exact(), peaks };
        let streams = if reproducible { Streams::Nothing } else { self.streams() };
        let in_buckets = matches!(streams, Streams::Memory);
        let courier = match streams {
            Streams::Route(route) => Some(Courier::start(*route)?),
            Streams::Nothing | Streams::Memory => None,
        };
        let learner = self.choices.learner.clone();
        let replicated = Replicated::new(learner, mergers, courier, self.job.patience);
        Ok(replicated.surviving(self.survives).in_buckets(in_buckets))
    }

    /// Exponents spread by themselves, whatever sums the numbers: they are few.
    fn peaks(&self) -> Result<(Merger, u32)> {
        let (net, patience) = (self.net, self.job.patience);
        let options = MergeOptions::exact(kinds::PEAKS, net, summing("tree", "")?, patience);
        // A worker without a shard contributes zeros of its own.
        let shards = self.job.shards.max(self.net.world());
        Ok((Merger::new(net.clone(), options), shards))
    }

    /// How blocks leave early: where there are several, numbers are encoded by themselves, and somebody waits for them.
    fn streams(&self) -> Streams {
        let group = self.assignment.group.clone();
        let world = group.len() as u32;
        let weights = self.model.iter().filter(|(_, tensor)| tensor.role == Role::Weight);
        let several = weights.filter(|(_, tensor)| tensor.values.len() > 1).count() > 1;
        let topology = self.choices.sums.clone();
        let Carriage::Numbers(codec) = self.choices.carriage.clone() else {
            return Streams::Nothing;
        };
        let played = topology.pattern(Seat(0), world, 1) != Pattern::Everyone;
        if world < 2 || !several || !played {
            return Streams::Nothing;
        }
        // Through shared memory a sum is over before anything could be hidden behind it. Of two, either may be the first.
        let is_ordered = world == 2 || topology.order(world, 0).is_some();
        let is_exact = codec.law() == Law::Exact;
        match self.shared(kinds::BUCKETS, &group).is_some() && is_exact && is_ordered {
            true if world == 2 => Streams::Nothing,
            true => Streams::Memory,
            false => {
                let (net, patience) = (self.net.clone(), self.job.patience);
                let (tracer, shapes) = (self.tracer.clone(), Arc::new(self.shapes()));
                let route = Route { net, group, topology, codec, shapes, patience, tracer };
                Streams::Route(Box::new(route))
            }
        }
    }

    fn service(&self) -> Service {
        let owners = Arc::new(Ownership::of(self.model, self.net.world()));
        let (gate, patience) = (self.choices.gate.clone(), self.job.patience);
        Service { push: self.choices.carriage.clone(), pull: raw(), owners, gate, patience }
    }

    fn serve(
        &self,
        service: &Service,
        pushers: Vec<Seat>,
    ) -> Result<(JoinHandle<Shard>, Arc<Ledger>)> {
        let office = Office {
            rule: Arc::new(Learned(self.choices.learner.clone())),
            gate: self.choices.gate.clone(),
            blending: self.choices.blend.clone(),
            owners: service.owners.clone(),
            seat: self.net.seat(),
            pushers,
        };
        let mut shard = Shard::new(office, self.model.clone(), self.start);
        if !self.clocks.is_empty() {
            shard = shard.with_clocks(self.clocks);
        }
        if self.survives && self.choices.backs_up() {
            shard = shard.backed_up(self.net.world());
        }
        let ledger = Arc::new(Ledger::default());
        let thread = serve::start(self.net.clone(), shard, service.clone(), ledger.clone())?;
        Ok((thread, ledger))
    }

    fn owned(&self) -> Result<Built> {
        let service = self.service();
        let (thread, ledger) = self.serve(&service, self.everyone())?;
        let habits = self.habits(self.net.seat(), self.net.world());
        let slowest = self.clocks.iter().copied().min().unwrap_or(self.start.0);
        let client = self.client(service).begun(slowest);
        let owned = Owned::new(client, self.exact(), habits, self.net.clone());
        Ok(Built { exchange: Box::new(owned), server: Some(thread), ledger })
    }

    fn client(&self, service: Service) -> Client {
        let client = Client::new(self.net.clone(), service, self.job.seed);
        client.seeing_its_own(Arc::new(Learned(self.choices.learner.clone())))
    }

    /// How one of some that push uses the owners.
    fn habits(&self, seat: Seat, pushers: u32) -> Habits {
        let gate = &self.choices.gate;
        let cadence = match &*self.choices.blend {
            Blending::Cadence(cadence) => Some(*cadence),
            _ => None,
        };
        let echo = cadence.map(|_| self.choices.learner.clone());
        let skips = gate.quorum(pushers) < pushers;
        let repeats = self.survives && gate.lead_max() == Some(0);
        Habits { echo, cadence, seat, skips, repeats }
    }

    fn grouped(&self, size: u32) -> Result<Built> {
        let (seat, world) = (self.net.seat().0, self.net.world());
        let first = seat / size * size;
        let group: Vec<Seat> = (first..(first + size).min(world)).map(Seat).collect();
        let service = self.service();
        let firsts: Vec<Seat> = (0..world).step_by(size as usize).map(Seat).collect();
        let habits = self.habits(Seat(first), firsts.len() as u32);
        let (thread, ledger) = self.serve(&service, firsts)?;
        let client = (seat == first).then(|| self.client(service));
        // What leaves the group is encoded by the codec; inside, contributions are summed as they are.
        let mergers = [
            self.exact_among(kinds::GROUP, group.clone()),
            self.exact_among(kinds::WITHIN, group),
            self.exact(),
        ];
        let grouped = Grouped::new(client, mergers, habits, self.net.clone());
        Ok(Built { exchange: Box::new(grouped), server: Some(thread), ledger })
    }
}
