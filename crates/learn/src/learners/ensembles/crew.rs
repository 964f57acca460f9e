//! Training several learners side by side in one exchange. A *fit* is one training of one member: bagging has as many
//! as bags, stacking one for each member and fold. A step of the ensemble is one step of every fit that is under way,
//! and at most `together` are under way; what they emit travels under their prefix.
//!
//! A fit is trained as if it were alone: it counts its own steps from zero, has its own corner of the model and of the
//! memory, and deals its own mini-batches where it wants them.

use super::conversion::{Conversion, whole};
use super::member::{Member, Trained};
use super::parts;
use super::views::View;
use crate::trees::fixed;
use crate::{Appetite, Cells, Facts, Moment, NoWires, Outbox, Outcome, Place, Rebuilds, Work};
use starlings_core::{Block, Fault, Model, Result, Rng, Role, Step, Update};
use starlings_data::{Batch, Encoding, Picked, Schema, Slice, Target};
use std::ops::Range;

/// Passes of a member that takes mini-batches, when the job does not say: as if it were alone.
const PASSES: u64 = 10;

/// One training of one member.
pub(super) struct Fit {
    /// Whose.
    pub(super) member: usize,
    /// What its chance is drawn from: the job's seed, or that and this number.
    pub(super) seed: Option<u64>,
}

impl Fit {
    fn seed(&self, job: u64) -> u64 {
        self.seed.map_or(job, |number| fixed::key(job, "member", &[number]))
    }
}

/// The members and their fits.
pub(super) struct Crew {
    /// The members.
    pub(super) members: Vec<Member>,
    /// Their fits.
    pub(super) fits: Vec<Fit>,
    /// How many are under way at most.
    pub(super) together: usize,
}

/// Shows a fit its rows.
pub(super) trait Lens {
    /// The rows of this batch as the fit sees them; none where it sees them as they are.
    fn look(&mut self, fit: usize) -> Option<&View>;
}

/// Counters of a fit in the model: steps taken, whether it is done, and steps at most (0: it says itself).
const COUNTERS: usize = 3;

impl Crew {
    /// Every member once, on the job's seed.
    pub(super) fn once(members: Vec<Member>, together: usize) -> Crew {
        let fits = (0..members.len()).map(|member| Fit { member, seed: None }).collect();
        Crew { members, fits, together }
    }

    /// The member of a fit.
    pub(super) fn member(&self, fit: usize) -> &Member {
        &self.members[self.fits[fit].member]
    }

    /// How each member wants to see rows of this encoding: the conversions are saved as `view0`, `view1` …
    ///
    /// # Errors
    /// When the rows are not those that a member was trained on before.
    pub(super) fn show(&self, schema: &Schema, model: &mut Model) -> Result<Vec<Schema>> {
        let mut all = Vec::with_capacity(self.members.len());
        for (number, member) in self.members.iter().enumerate() {
            let (conversion, seen) = match &member.trained {
                None => Conversion::to(member.learner.encoding(), schema),
                Some(trained) => {
                    let places = places(schema, trained).map_err(|fault| within(member, fault))?;
                    if let Some(places) = places {
                        model.set(format!("classes{number}"), whole(places, Role::Weight));
                    }
                    let conversion = Conversion::between(schema, &trained.raw());
                    let conversion = conversion.map_err(|fault| {
                        within(member, fault.during(format!("the model '{}'", trained.path)))
                    })?;
                    (conversion, trained.schema.clone())
                }
            };
            if let Some(conversion) = conversion {
                conversion.save(&format!("view{number}"), model);
            }
            all.push(seen);
        }
        Ok(all)
    }

    /// Which tensors of the first model come from files: a path, and the prefix of the file's tensors. `first` is the
    /// first fit of which there is one a member.
    pub(super) fn furnishings(&self, first: usize) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (fit, plan) in self.fits.iter().enumerate() {
            let (member, prefix) = (&self.members[plan.member], parts::prefix(fit));
            match &member.trained {
                Some(trained) if fit >= first => all.push((trained.path.clone(), prefix)),
                Some(_) => {}
                None => all.extend(
                    member
                        .learner
                        .furnishings()
                        .into_iter()
                        .map(|(path, inner)| (path, format!("{prefix}{inner}"))),
                ),
            }
        }
        all
    }

    /// Where a member that was trained before has the classes of these rows; none where it has the same.
    pub(super) fn classes<'a>(&self, model: &'a Model, fit: usize) -> Option<&'a [i64]> {
        model.get(&format!("classes{}", self.fits[fit].member))?.values.as_i64()
    }

    /// The models of all fits before their first step. `schemas` has the rows as each fit sees them.
    pub(super) fn init(
        &self,
        (facts, place): (&Facts, Place),
        schemas: &dyn Fn(usize) -> Schema,
        model: &mut Model,
    ) -> Result<()> {
        let mut counters = Vec::with_capacity(self.fits.len() * COUNTERS);
        for (number, fit) in self.fits.iter().enumerate() {
            let member = &self.members[fit.member];
            if member.trained.is_some() {
                counters.extend([0, 1, 0]);
                continue;
            }
            let own =
                Facts { schema: schemas(number), seed: fit.seed(facts.seed), ..facts.clone() };
            let made =
                member.learner.init(&own, place.clone()).map_err(|fault| within(member, fault))?;
            parts::put(model, &parts::prefix(number), made);
            let steps_max = match member.learner.appetite() {
                Appetite::Passes => 0,
                Appetite::Batches => facts.epochs.unwrap_or(PASSES) * steps_a_pass(facts),
            };
            counters.extend([0, 0, steps_max as i64]);
        }
        // Saved with the model: of a training that was cut short only those that are done have a say.
        model.set("fits", whole(counters, Role::Weight));
        let deal = vec![facts.rows as i64, i64::from(facts.shards), facts.batch as i64];
        model.set("deal", whole(deal, Role::State));
        Ok(())
    }

    /// Whether a fit is done.
    pub(super) fn is_done(&self, model: &Model, fit: usize) -> bool {
        model.i64("fits")[fit * COUNTERS + 1] != 0
    }

    /// Those of a range that are under way.
    pub(super) fn active(&self, model: &Model, range: Range<usize>) -> Vec<usize> {
        range.filter(|&fit| !self.is_done(model, fit)).take(self.together).collect()
    }

    /// How many are done.
    pub(super) fn finished(&self, model: &Model) -> u64 {
        (0..self.fits.len()).filter(|&fit| self.is_done(model, fit)).count() as u64
    }

    /// One step of those of a range that are under way.
    pub(super) fn contribute(
        &self,
        work: &mut Work<'_>,
        range: Range<usize>,
        lens: &mut dyn Lens,
    ) -> Result<()> {
        for fit in 0..range.start {
            work.memory.forget(&parts::prefix(fit));
        }
        for fit in range.clone().filter(|&fit| self.is_done(work.model, fit)) {
            work.memory.forget(&parts::prefix(fit));
        }
        let active = self.active(work.model, range);
        // Where all members were trained before there is nothing to train, and one step to say so.
        if active.is_empty() {
            work.outbox.emit(Block::counts("nothing", vec![0]));
        }
        for fit in active {
            let rows = lens.look(fit).map(View::batch);
            self.step(work, fit, rows.as_ref()).map_err(|fault| within(self.member(fit), fault))?;
        }
        Ok(())
    }

    fn step(&self, work: &mut Work<'_>, fit: usize, seen: Option<&Batch<'_>>) -> Result<()> {
        let (learner, prefix) = (&self.member(fit).learner, parts::prefix(fit));
        let all = seen.unwrap_or(work.batch);
        let moment = self.moment(work.model, fit, &work.moment);
        let model = parts::copy(work.model, &prefix);
        let mut memory = work.memory.part(&prefix);
        if moment.step.0 == 0 {
            for slice in &all.slices {
                let mut cells = Cells::new();
                learner.adopt(&model, all, slice, &mut cells);
                memory.insert(slice.shard, cells);
            }
        }
        let dealt;
        let batch = match learner.appetite() {
            Appetite::Passes => all,
            Appetite::Batches => {
                dealt = dealt_to(work.model, all, &moment);
                &dealt
            }
        };
        let mut outbox = Outbox::new();
        learner.contribute(&mut Work {
            moment,
            place: work.place.clone(),
            model: &model,
            batch,
            memory: &mut memory,
            wires: &mut NoWires,
            outbox: &mut outbox,
        })?;
        work.memory.join(&prefix, memory);
        parts::emit(work.outbox, &prefix, outbox.take());
        Ok(())
    }

    /// The moment of a fit's own step.
    fn moment(&self, model: &Model, fit: usize, job: &Moment) -> Moment {
        let steps = model.i64("fits")[fit * COUNTERS] as u64;
        let seed = self.fits[fit].seed(job.seed);
        let [rows, _, batch] = deal(model);
        match self.member(fit).learner.appetite() {
            Appetite::Passes => Moment { step: Step(steps), pass: 0, seed, rows: job.rows },
            Appetite::Batches => {
                let a_pass = rows.div_ceil(batch.max(1)).max(1);
                let (pass, step) = (steps / a_pass, steps % a_pass);
                let rows = ((step + 1) * batch).min(rows) - (step * batch).min(rows);
                Moment { step: Step(steps), pass, seed, rows }
            }
        }
    }

    /// Applies the step of those of a range that are under way. Says whether all of the range are done.
    pub(super) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        (job, range): (&Moment, Range<usize>),
    ) -> Result<bool> {
        for fit in self.active(model, range.clone()) {
            let (member, prefix) = (self.member(fit), parts::prefix(fit));
            let moment = self.moment(model, fit, job);
            let mut part = parts::take(model, &prefix);
            let sum = parts::update(update, &prefix);
            let outcome = member.learner.apply(&mut part, &sum, &moment);
            let outcome = outcome.map_err(|fault| within(member, fault))?;
            parts::put(model, &prefix, part);
            let counters = &mut model.i64_mut("fits")[fit * COUNTERS..(fit + 1) * COUNTERS];
            counters[0] += 1;
            if outcome.done || (counters[2] > 0 && counters[0] >= counters[2]) {
                counters[1] = 1;
                parts::settle(model, &prefix);
            }
        }
        Ok(range.into_iter().all(|fit| self.is_done(model, fit)))
    }

    /// Begins a fit anew: from the tensors of `from`, with no step taken.
    pub(super) fn restart(&self, model: &mut Model, fit: usize, from: Model) {
        parts::put(model, &parts::prefix(fit), from);
        model.i64_mut("fits")[fit * COUNTERS..fit * COUNTERS + 2].fill(0);
    }

    /// What the fits that are under way remember of a shard that this worker has not held before.
    pub(super) fn adopt(
        &self,
        model: &Model,
        (batch, slice): (&Batch<'_>, &Slice),
        (range, lens): (Range<usize>, &mut dyn Lens),
        cells: &mut Cells,
    ) {
        for fit in self.active(model, range) {
            if model.i64("fits")[fit * COUNTERS] == 0 {
                continue;
            }
            let prefix = parts::prefix(fit);
            let own = parts::copy(model, &prefix);
            let mut found = Cells::new();
            let learner = &self.member(fit).learner;
            match lens.look(fit).map(View::batch) {
                Some(seen) => learner.adopt(&own, &seen, &seen.slices[0], &mut found),
                None => learner.adopt(&own, batch, slice, &mut found),
            }
            cells.extend(found.into_iter().map(|(name, cell)| (format!("{prefix}{name}"), cell)));
        }
    }

    /// What the worst of the members can rebuild of what it remembers.
    pub(super) fn rebuilds(&self) -> Rebuilds {
        let members = self.members.iter().map(|member| member.learner.rebuilds());
        members.max().unwrap_or(Rebuilds::Exactly)
    }

    /// What a fit says of a batch of the ensemble's rows.
    pub(super) fn said(&self, model: &Model, fit: usize, batch: &Batch<'_>) -> Result<Vec<f64>> {
        let view = format!("view{}", self.fits[fit].member);
        let Some(conversion) = Conversion::load(&view, model) else {
            return self.said_seen(model, fit, batch);
        };
        let mut seen = View::of(batch, Some(&conversion));
        if let Some(Trained { schema, prepared: Some(prepared), .. }) = &self.member(fit).trained {
            let made = prepared.features(&seen.dense(), schema.encoding);
            seen = View::with(batch, made.map_err(|fault| within(self.member(fit), fault))?);
        }
        self.said_seen(model, fit, &seen.batch())
    }

    /// What a fit says of rows that are as it wants them.
    pub(super) fn said_seen(
        &self,
        model: &Model,
        fit: usize,
        batch: &Batch<'_>,
    ) -> Result<Vec<f64>> {
        let mut said = Vec::new();
        let own = parts::copy(model, &parts::prefix(fit));
        let member = self.member(fit);
        member.learner.predict(&own, batch, &mut said).map_err(|fault| within(member, fault))?;
        let Some(classes) = self.classes(model, fit) else { return Ok(said) };
        let known = member.trained.as_ref().map_or(1, |trained| trained.schema.classes());
        Ok(said.chunks_exact(known.max(1)).flat_map(|said| moved(said, classes)).collect())
    }

    /// How the ensemble wants its features.
    pub(super) fn encoding(&self) -> Encoding {
        super::member::encoding(&self.members)
    }

    /// The outcome of a step, when `done` says whether it was the last.
    pub(super) fn outcome(&self, model: &Model, done: bool) -> Outcome {
        Outcome { objective: None, done, iterations: Some(self.finished(model)) }
    }

    /// The members in words, those that have any.
    pub(super) fn describe(
        &self,
        model: &Model,
        (fits, schema): (Range<usize>, &Schema),
    ) -> Option<String> {
        let mut text = String::new();
        for fit in fits {
            let member = self.member(fit);
            text.push_str(&format!("member {fit}: {}\n", member.name));
            let seen = match &member.trained {
                Some(trained) => trained.schema.clone(),
                None => Conversion::to(member.learner.encoding(), schema).1,
            };
            let own = parts::copy(model, &parts::prefix(fit));
            for line in member.learner.describe(&own, &seen).unwrap_or_default().lines() {
                text.push_str(&format!("  {line}\n"));
            }
        }
        Some(text)
    }
}

/// All fits see the same.
pub(super) struct Same<'a>(pub(super) &'a View);

impl Lens for Same<'_> {
    fn look(&mut self, _: usize) -> Option<&View> {
        Some(self.0)
    }
}

/// No fit sees rows otherwise than they are, but for the encoding.
pub(super) struct Plain<'a> {
    /// The crew.
    pub(super) crew: &'a Crew,
    /// The ensemble's model.
    pub(super) model: &'a Model,
    /// Its rows.
    pub(super) batch: &'a Batch<'a>,
    /// Copies where they are needed.
    pub(super) views: super::views::Views,
}

impl Lens for Plain<'_> {
    fn look(&mut self, fit: usize) -> Option<&View> {
        let name = format!("view{}", self.crew.fits[fit].member);
        Conversion::load(&name, self.model)?;
        Some(self.views.converted(&name, self.model, self.batch))
    }
}

/// Where a model has the classes of these rows (−1: it does not know them); none where it has the same.
fn places(schema: &Schema, trained: &Trained) -> Result<Option<Vec<i64>>> {
    match (&schema.target, &trained.schema.target) {
        (Target::Classes(own), Target::Classes(known)) if own == known => Ok(None),
        (Target::Classes(own), Target::Classes(known)) => {
            let place = |text: &String| known.iter().position(|known| known == text);
            let places: Vec<i64> =
                own.iter().map(|text| place(text).map_or(-1, |at| at as i64)).collect();
            match places.iter().all(|place| *place < 0) {
                false => Ok(Some(places)),
                true => {
                    let fault = Fault::caller(format!(
                        "the model '{}' knows none of the classes of these rows",
                        trained.path
                    ));
                    let named = match trained.path.ends_with(".onnx") {
                        true => "; name them in this order: classes = [\"…\", \"…\"] beside model",
                        false => "",
                    };
                    Err(fault.hint(format!("it knows {}{named}", known.join(", "))))
                }
            }
        }
        _ => Ok(None),
    }
}

/// The chances of the classes of these rows; what the model gives to others is shared out.
fn moved(said: &[f64], classes: &[i64]) -> Vec<f64> {
    let of = |class: &i64| usize::try_from(*class).map_or(0.0, |class| said[class]);
    let mut moved: Vec<f64> = classes.iter().map(of).collect();
    let total: f64 = moved.iter().sum();
    match total > 0.0 {
        true => moved.iter_mut().for_each(|chance| *chance /= total),
        false => moved.fill(1.0 / classes.len() as f64),
    }
    moved
}

fn within(member: &Member, fault: Fault) -> Fault {
    fault.during(format!("member '{}'", member.name))
}

fn steps_a_pass(facts: &Facts) -> u64 {
    facts.rows.div_ceil(facts.batch.max(1)).max(1)
}

/// Rows of the data set, shards, rows of a mini-batch.
fn deal(model: &Model) -> [u64; 3] {
    let deal = model.i64("deal");
    [deal[0] as u64, deal[1] as u64, deal[2] as u64]
}

/// The rows of a mini-batch step: those that the engine would deal to the member if it were alone.
fn dealt_to<'a>(model: &Model, all: &Batch<'a>, moment: &Moment) -> Batch<'a> {
    let [rows, shards, batch] = deal(model);
    let step = moment.step.0 % rows.div_ceil(batch.max(1)).max(1);
    let (from, to) = ((step * batch).min(rows), ((step + 1) * batch).min(rows));
    let slice = |slice: &Slice| {
        let mut order: Vec<u32> = (0..slice.len() as u32).collect();
        let shard = u64::from(slice.shard.0);
        Rng::named(moment.seed, "row order", &[moment.pass, shard]).shuffle(&mut order);
        // Place j of this shard is global position j·V + v.
        let place = |at: u64| (((at + shards - 1 - shard) / shards) as usize).min(order.len());
        let picked = Picked::Some(order[place(from)..place(to)].to_vec());
        Slice { picked, ..slice.clone() }
    };
    Batch { table: all.table, slices: all.slices.iter().map(slice).collect(), rows_step: to - from }
}
