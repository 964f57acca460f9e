//! One machine's own figures: how long a sum over the flock takes.

use crate::choices::summing;
use crate::exchange::reproducible::{exponents, quantised};
use crate::flock::surviving::is_kept;
use crate::launch::flock::call;
use crate::launch::processes::{Watch, with_children};
use crate::launch::threads::nets;
use crate::merge::{MergeOptions, Merger};
use crate::neighbours::Neighbours;
use crate::net::Net;
use crate::net::kinds;
use crate::node::Order;
use serde::{Deserialize, Serialize};
use starlings_cluster::membership::Wish;
use starlings_cluster::protocol::{FromClient, Message, ToClient};
use starlings_core::{
    Block, Body, Deadline, Fault, Result, Update, Values, contributing, suggestion,
};
use starlings_transport::Ticket;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to measure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AllReduce {
    /// Workers.
    pub workers: u32,
    /// Bytes of f32 to sum.
    pub bytes: u64,
    /// Timed sums, after two that are not.
    pub repeats: u32,
    /// The topology's name, with its defaults.
    pub topology: String,
    /// `shared`, or another transport's name to do without shared memory; chosen by itself where it is not said.
    #[serde(default)]
    pub transport: Option<String>,
    /// Whether numbers are copied into shared memory although they could be read where they are.
    #[serde(default)]
    pub is_copied: bool,
    /// Whether sums are made in other memory, so that contributions stay as they are.
    #[serde(default)]
    pub is_beside: bool,
    /// Whether f64 are summed, by the reproducible fold: the same bits for any number of workers.
    #[serde(default)]
    pub fold: Width,
    /// Whether links are inside TLS, as between hosts. Processes only.
    #[serde(default)]
    pub tls: bool,
    /// Whether sums survive a loss, as those of a flock do, because contributions stay as they are or can be made again: then all
    /// confirm a large result.
    #[serde(default)]
    pub survives: bool,
}

/// What is summed, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Width {
    /// f32.
    #[default]
    Single,
    /// f64.
    Double,
    /// f64 by the reproducible fold.
    Reproducible,
}

/// How long it took.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// Workers.
    pub workers: u32,
    /// Bytes summed.
    pub bytes: u64,
    /// Where the workers ran.
    pub launcher: String,
    /// The topology.
    pub topology: String,
    /// What carried the sums.
    pub transport: String,
    /// Timed sums.
    pub repeats: u32,
    /// Median seconds of a sum.
    pub median_seconds: f64,
    /// Least seconds of a sum.
    pub min_seconds: f64,
    /// Bytes divided by the median.
    pub gigabytes_per_second: f64,
}

const WARM_UP: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(120);

/// What one worker has measured.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    seconds: Vec<f64>,
    /// Empty where links carried the sums.
    transport: String,
}

/// What links between workers of a launcher are made of.
fn links_of(launcher: &str) -> &'static str {
    if launcher == "threads" { "memory" } else { "tcp" }
}

impl AllReduce {
    /// Measures with workers of a launcher (`threads` or `processes`).
    ///
    /// # Errors
    /// An unknown launcher or topology, or a lost worker.
    pub fn measure(&self, launcher: &str, program: Option<&Path>) -> Result<Timing> {
        summing(&self.topology, "")?;
        self.check_transport(launcher)?;
        let measured = match launcher {
            "threads" => self.on_threads()?,
            "processes" => self.on_processes(program)?,
            other => {
                return Err(Fault::caller(format!("cannot measure the launcher '{other}'"))
                    .hint(suggestion(other, &["threads", "processes", "flock"])));
            }
        };
        Ok(self.timing(measured, launcher))
    }

    /// Measures with workers that wait at a coordinator, on whatever hosts they are: over the network that training would use.
    ///
    /// # Errors
    /// Nobody there, an unknown topology, too few workers, or a lost one.
    pub fn measure_at(&self, coordinator: SocketAddr, ticket: &Ticket) -> Result<Timing> {
        summing(&self.topology, "")?;
        self.check_transport("flock")?;
        // Each sum has its own deadline; whoever has not answered after all of them will not.
        let by = Deadline::after(PATIENCE.saturating_mul(self.repeats.saturating_add(WARM_UP + 1)));
        let silent = || Fault::peer(None, "the flock has not answered in time");
        let measured = self.order(coordinator, ticket, &mut || by.passed().then(silent))?;
        Ok(self.timing(measured, "flock"))
    }

    fn timing(&self, Measured { mut seconds, transport }: Measured, launcher: &str) -> Timing {
        seconds.sort_by(f64::total_cmp);
        let median_seconds = seconds[seconds.len() / 2];
        Timing {
            workers: self.workers,
            bytes: self.bytes,
            launcher: launcher.to_string(),
            topology: self.topology.clone(),
            transport: if transport.is_empty() {
                links_of(launcher).to_string()
            } else {
                transport
            },
            repeats: self.repeats,
            median_seconds,
            min_seconds: seconds[0],
            gigabytes_per_second: self.bytes as f64 / median_seconds / 1e9,
        }
    }

    /// Shared memory, or what links of this launcher are made of; TLS only around the latter.
    fn check_transport(&self, launcher: &str) -> Result<()> {
        let known = ["shared", links_of(launcher)];
        match self.transport.as_deref() {
            Some(word) if !known.contains(&word) => {
                let what = format!("the launcher '{launcher}' has no transport '{word}'");
                Err(Fault::caller(what).hint(suggestion(word, &known)))
            }
            _ if (self.is_beside || self.survives) && self.fold != Width::Single => {
                Err(Fault::caller(
                    "sums that survive or leave contributions as they are are measured of f32",
                )
                .hint("leave out --numbers, or --survive and --beside"))
            }
            _ if self.tls
                && (launcher != "processes" || self.transport.as_deref() != Some("tcp")) =>
            {
                Err(Fault::caller("only links between processes are inside TLS")
                    .hint("add --launcher processes --transport tcp"))
            }
            _ => Ok(()),
        }
    }

    /// One worker's part: sums, checks the sum, and gives the seconds of each timed one.
    pub(crate) fn run(&self, net: &Arc<Net>, neighbours: &Neighbours) -> Result<Measured> {
        let topology = summing(&self.topology, "")?;
        let options = MergeOptions::exact(kinds::SUMS, net, topology, PATIENCE);
        let shared = match self.transport.as_deref() {
            None | Some("shared") => neighbours.sum(options.kind, &options.group),
            Some(_) => None,
        };
        let transport = shared.as_ref().map(|_| "shared".to_string());
        let wanted = self.is_copied || self.transport.as_deref() == Some("shared");
        if shared.is_none() && wanted && net.world() > 1 {
            return Err(Fault::machine("these workers have no memory in common"));
        }
        let shared = shared.map(|shared| if self.is_copied { shared.copying() } else { shared });
        let mut merger = Merger::new(net.clone(), options).through(shared);
        if self.fold != Width::Single {
            let seconds = self.run_double(net, &mut merger)?;
            return Ok(Measured { seconds, transport: transport.unwrap_or_default() });
        }
        let (count, mine, expected) = self.numbers(net);
        let (mut seconds, mut room) = (Vec::new(), Update::default());
        let mut update = update(contributing(|| vec![mine; count]));
        let words = MergeOptions::exact(kinds::WORLD, net, summing(&self.topology, "")?, PATIENCE);
        let near = transport.as_ref().and_then(|_| neighbours.sum(words.kind, &words.group));
        let mut words = Merger::new(net.clone(), words).through(near);
        for round in 0..self.repeats + WARM_UP {
            merger.merge(self::update(vec![0.0]))?;
            let begun = now();
            let mut sum = match self.is_beside {
                true => merger.merge_beside(update, room)?,
                false => merger.merge(update)?,
            };
            if self.survives {
                sum = confirmed(sum, &mut words)?;
            }
            if round >= WARM_UP {
                seconds.push(begun.elapsed().as_secs_f64());
            }
            check(values_mut(&mut sum), expected)?;
            (update, room) = match self.is_beside {
                true => (merger.contribution().unwrap_or_default(), sum),
                false => (sum, Update::default()),
            };
            values_mut(&mut update).fill(mine);
        }
        Ok(Measured { seconds, transport: transport.unwrap_or_default() })
    }

    /// Sums of f64, plain or by the reproducible fold, which agrees on exponents first.
    fn run_double(&self, net: &Arc<Net>, merger: &mut Merger) -> Result<Vec<f64>> {
        let options =
            MergeOptions::exact(kinds::PEAKS, net, summing(&self.topology, "")?, PATIENCE);
        let mut peaks = Merger::new(net.clone(), options);
        let (world, mine) = (net.world(), f64::from(net.seat().0 + 1));
        let expected = f64::from(world) * (f64::from(world) + 1.0) / 2.0;
        let count = (self.bytes / 8).max(1) as usize;
        let mut seconds = Vec::new();
        for round in 0..self.repeats + WARM_UP {
            let update = Update { blocks: vec![Block::dense("sum", vec![mine; count])] };
            merger.merge(self::update(vec![0.0]))?;
            let begun = now();
            let sum = if self.fold == Width::Double {
                merger.merge(update)?
            } else {
                let updates = vec![update];
                let agreed = peaks.largest(exponents(&updates))?;
                let (whole, grid) = quantised(updates, agreed, world)
                    .map_err(|error| Fault::machine(error.to_string()))?;
                let grid = Arc::new(grid);
                grid.restored(merger.merge_working(whole, grid.clone())?)
            };
            if round >= WARM_UP {
                seconds.push(begun.elapsed().as_secs_f64());
            }
            if sum.f64("sum")[count - 1] != expected {
                return Err(Fault::peer(None, "a wrong sum"));
            }
        }
        Ok(seconds)
    }

    /// How many numbers, what this seat contributes of each, and their sum.
    fn numbers(&self, net: &Net) -> (usize, f32, f32) {
        let world = net.world() as f32;
        let count = (self.bytes / 4).max(1) as usize;
        (count, (net.seat().0 + 1) as f32, world * (world + 1.0) / 2.0)
    }

    fn on_threads(&self) -> Result<Measured> {
        let nets: Vec<Arc<Net>> = nets(self.workers)?.into_iter().map(Arc::new).collect();
        let neighbours = Neighbours::of_threads(self.workers);
        let results: Vec<Result<Measured>> = std::thread::scope(|scope| {
            let pairs = nets.iter().zip(&neighbours);
            let workers: Vec<_> =
                pairs.map(|(net, near)| scope.spawn(move || self.run(net, near))).collect();
            let lost = |_| Err(Fault::machine("a worker panicked"));
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(lost)).collect()
        });
        results
            .into_iter()
            .reduce(|first, next| next.and(first))
            .unwrap_or_else(|| Ok(Measured::default()))
    }

    fn on_processes(&self, program: Option<&Path>) -> Result<Measured> {
        with_children(program, (self.workers, self.tls), |address, ticket, watch| {
            self.order(address, ticket, watch)
        })
    }

    /// Has the workers of a flock measure, and waits for rank 0's figures. `watch` is asked in silence.
    fn order(&self, address: SocketAddr, ticket: &Ticket, watch: Watch<'_>) -> Result<Measured> {
        let control = call(address, ticket)?;
        let job = serde_json::to_string(&Order::AllReduce(self.clone()))
            .map_err(|error| Fault::machine(error.to_string()))?;
        let submit = FromClient::Submit { job, wish: Wish::fixed(self.workers), survey: None };
        control.send(&Message::FromClient(submit), Deadline::after_ms(10_000))?;
        let mut measured = None;
        loop {
            match control.receive(Deadline::after_ms(100))? {
                Some(Message::ToClient(ToClient::Model(bytes))) => {
                    measured = serde_json::from_slice(&bytes.0).ok();
                }
                Some(Message::ToClient(ToClient::Done)) => {
                    let missing = || Fault::peer(None, "rank 0 sent no figures");
                    return measured.ok_or_else(missing);
                }
                Some(Message::ToClient(ToClient::Failed { blame, message, .. })) => {
                    return Err(Fault::new(blame, message));
                }
                Some(_) => {}
                // Only in silence: what workers said before they ended goes first.
                None => watch().map_or(Ok(()), Err)?,
            }
        }
    }
}

/// What a [`Flock`](crate::flock::Flock) does with a result.
fn confirmed(sum: Update, words: &mut Merger) -> Result<Update> {
    if is_kept(&sum) {
        std::hint::black_box(sum.clone());
    } else {
        words.meet()?;
    }
    Ok(sum)
}

fn update(values: Vec<f32>) -> Update {
    Update {
        blocks: vec![Block { name: "sum".to_string(), body: Body::Dense(Values::F32(values)) }],
    }
}

fn check(values: &[f32], expected: f32) -> Result<()> {
    match (values.first(), values.last()) {
        (Some(&first), Some(&last)) if first == expected && last == expected => Ok(()),
        other => Err(Fault::peer(None, format!("a wrong sum: {other:?} for {expected}"))),
    }
}

fn values_mut(update: &mut Update) -> &mut [f32] {
    match &mut update.blocks[0].body {
        Body::Dense(Values::F32(values)) => values,
        _ => unreachable!("made above as dense f32"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
}
