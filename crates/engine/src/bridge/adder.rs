//! What the tests of bridges stand on: a learner that adds what it is given, flocks of threads over memory links whose
//! every frame is noted, and entries of the catalogues by name.

use super::HandedIn;
use crate::choices::summing;
use crate::merge::{MergeOptions, Merger};
use crate::net::Net;
use starlings_consistency::{Blending, CONSISTENCIES};
use starlings_core::{
    Ability, Block, Body, Deadline, Entry, Model, Result, Role, Seat, Step, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed};
use starlings_learn::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use starlings_topology::{Form, TOPOLOGIES};
use starlings_transport::{Frame, Header, Lane, Link, LinkError, MemoryLink, pair};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Adds an update to the weights of the same names. Its model is its history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adder;

impl Adder {
    pub(crate) fn shared() -> Arc<dyn Learner> {
        Arc::new(Adder)
    }
}

impl Learner for Adder {
    fn task(&self) -> Task {
        Task::Regression
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn gives(&self) -> &'static [Ability] {
        &[Ability::RowWise, Ability::LocalSteps]
    }

    fn requires(&self) -> &'static [Ability] {
        &[]
    }

    fn init(&self, _: &Facts, _: Place) -> Result<Model> {
        Ok(Model::new())
    }

    fn contribute(&self, _: &mut Work<'_>) -> Result<()> {
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        for block in &update.blocks {
            if model.get(&block.name).is_none() {
                continue;
            }
            let values = model.f64_mut(&block.name);
            match &block.body {
                Body::Dense(Values::F64(added)) => {
                    values.iter_mut().zip(added).for_each(|(value, added)| *value += added);
                }
                Body::Rows(rows) => {
                    let (width, added) = (rows.width as usize, rows.values.as_f64().unwrap());
                    for (&row, added) in rows.index.iter().zip(added.chunks(width)) {
                        let row = &mut values[row as usize * width..][..width];
                        row.iter_mut().zip(added).for_each(|(value, added)| *value += added);
                    }
                }
                other => panic!("the test adds {other:?}"),
            }
        }
        Ok(Outcome::default())
    }

    fn score(&self, _: &mut Work<'_>) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    fn grade(&self, _: &Model, _: &[f64], _: u64) -> Grade {
        Grade::default()
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, _: &Model, _: &Batch<'_>, _: &mut Vec<f64>) -> Result<()> {
        Ok(())
    }
}

/// A model of one weight.
pub(crate) fn model(values: Vec<f64>) -> Model {
    let mut model = Model::new();
    model.set("x", Tensor::of(&[values.len(), 1], values, Role::Weight));
    model
}

/// A step that adds these numbers.
pub(crate) fn step(number: u64, adds: Vec<f64>) -> HandedIn {
    let moment = Moment { step: Step(number), pass: 0, seed: 0, rows: 4 };
    HandedIn::new(moment, 2, vec![Update { blocks: vec![Block::dense("x", adds)] }])
}

/// What has left a seat, in order.
pub(crate) type Log = Arc<Mutex<Vec<(Seat, Header)>>>;

/// A memory link that notes what is sent, after it has asked whether it may.
struct Tapped {
    inner: MemoryLink,
    to: Seat,
    log: Log,
    may_send: Arc<dyn Fn(&Header) + Send + Sync>,
}

impl Link for Tapped {
    fn send(&self, header: Header, payload: &[u8], by: Deadline) -> Result<(), LinkError> {
        (self.may_send)(&header);
        self.log.lock().unwrap().push((self.to, header));
        self.inner.send(header, payload, by)
    }

    fn receive(&self, by: Deadline) -> Result<Frame, LinkError> {
        self.inner.receive(by)
    }

    fn close(&self) {
        self.inner.close();
    }

    fn bytes_sent(&self) -> u64 {
        self.inner.bytes_sent()
    }
}

/// A seat of a flock of threads.
#[derive(Clone)]
pub(crate) struct Perch {
    pub(crate) net: Arc<Net>,
    pub(crate) log: Log,
}

impl Perch {
    pub(crate) fn seat(&self) -> usize {
        self.net.seat().index()
    }

    /// Exact sums of all seats.
    pub(crate) fn exact(&self, kind: u8) -> Merger {
        self.exact_among(kind, (0..self.net.world()).map(Seat).collect())
    }

    pub(crate) fn exact_among(&self, kind: u8, group: Vec<Seat>) -> Merger {
        let tree = summing("tree", "").unwrap();
        let options = MergeOptions::exact(kind, &self.net, tree, PATIENCE);
        Merger::new(self.net.clone(), MergeOptions { group, ..options })
    }

    /// Waits until everything that `from` has sent is here. Links keep their order.
    pub(crate) fn hear(&self, from: &Perch) {
        let header = Header { lane: Lane::Wire, kind: 1, step: Step(0), tag: 0 };
        let by = || Deadline::after(PATIENCE);
        from.net.send(self.net.seat(), header, &[], by()).unwrap();
        self.net.next(Lane::Wire, |arrival| arrival.from == from.net.seat(), by()).unwrap();
    }

    /// Frames of a lane and kind that have left for other seats.
    pub(crate) fn sent(&self, lane: Lane, kind: u8) -> usize {
        let mine = |(_, header): &&(Seat, Header)| header.lane == lane && header.kind == kind;
        self.log.lock().unwrap().iter().filter(mine).count()
    }
}

/// The seats of a flock. Before a seat sends a frame it calls `may_send` with its number.
pub(crate) fn perches_that(
    world: u32,
    may_send: impl Fn(u32, &Header) + Send + Sync + 'static,
) -> Vec<Perch> {
    let may_send = Arc::new(may_send);
    let logs: Vec<Log> = (0..world).map(|_| Log::default()).collect();
    let mut links: Vec<BTreeMap<Seat, Arc<dyn Link>>> = vec![BTreeMap::new(); world as usize];
    for a in 0..world {
        for b in a + 1..world {
            let (here, there) = pair();
            for (from, to, inner) in [(a, b, here), (b, a, there)] {
                let (log, asked) = (logs[from as usize].clone(), may_send.clone());
                let may_send: Arc<dyn Fn(&Header) + Send + Sync> =
                    Arc::new(move |header| asked(from, header));
                let link = Tapped { inner, to: Seat(to), log, may_send };
                links[from as usize].insert(Seat(to), Arc::new(link));
            }
        }
    }
    let hosts = vec!["here".to_string(); world as usize];
    let perch = |(seat, (links, log))| {
        let net = Net::new(Seat(seat), hosts.clone(), links).unwrap();
        Perch { net: Arc::new(net), log }
    };
    (0..).zip(links.into_iter().zip(logs)).map(perch).collect()
}

pub(crate) fn perches(world: u32) -> Vec<Perch> {
    perches_that(world, |_, _| {})
}

/// Runs every seat of a flock in a thread of its own.
pub(crate) fn flock<T: Send>(world: u32, run: impl Fn(Perch) -> T + Sync) -> Vec<T> {
    run_all(&perches(world), run)
}

pub(crate) fn run_all<T: Send>(perches: &[Perch], run: impl Fn(Perch) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = &run;
        let seats: Vec<_> =
            perches.iter().cloned().map(|perch| scope.spawn(move || run(perch))).collect();
        seats.into_iter().map(|seat| seat.join().unwrap()).collect()
    })
}

/// A topology of the catalogue.
pub(crate) fn form(name: &str, parameters: &str) -> Form {
    let entry = Entry::find("topology", TOPOLOGIES, name).unwrap();
    let params = entry.check("topology", &parameters.parse().unwrap()).unwrap();
    (entry.build)(&params).unwrap()
}

/// What a consistency of the catalogue does between exchanges.
pub(crate) fn blending(name: &str, parameters: &str) -> Arc<Blending> {
    let entry = Entry::find("consistency", CONSISTENCIES, name).unwrap();
    let params = entry.check("consistency", &parameters.parse().unwrap()).unwrap();
    Arc::new((entry.build)(&params).unwrap().blend)
}

/// Whether numbers are equal to rounding.
pub(crate) fn assert_near(found: &[f64], wanted: &[f64], allowed: f64) {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= allowed;
    let all = found.len() == wanted.len() && found.iter().zip(wanted).all(near);
    assert!(all, "{found:?} instead of {wanted:?}");
}
