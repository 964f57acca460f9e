//! Two networks against each other (Goodfellow et al., "Generative adversarial nets", 2014): a generator makes rows of
//! noise, a discriminator tells them from rows of the data. They take turns: `rounds` steps of the discriminator, then
//! one of the generator, whose loss is the non-saturating one of section 3. In each step all workers compute the same
//! turn on their rows, and the noise of a row is drawn by shard, so that the number of workers does not matter.

use crate::applying::{Slopes, each_run};
use crate::flow::{Flow, Form};
use crate::learner::{append, squared};
use crate::pass::{Lesson, Pass, Share, Weights, numbers, tensor};
use crate::recipe::{Recipe, pieces};
use crate::room::{self, answered};
use crate::solver::{Stride, all_finite};
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::sums::{LOSS, share_of_a_row};
use burn_tensor::activation;
use starlings_core::{
    Ability, Block, Body, FEATURES, Fault, Graph, Model, Op, Result, Rng, Role, Tensor, Update,
    Values,
};
use starlings_data::{Batch, LabelNeed, Schema, Slice};
use starlings_learn::{
    Appetite, DIVERGED, Facts, Footprint, Grade, Learner, Moment, Outcome, Place, Samples, Task,
    Work, refusals,
};

/// Features, steps of the job.
const SIZES: &str = "network";
/// Sums over rows: weight, loss, chances given to the row and to a made one.
const SUMS: usize = 4;

/// Both networks, and how they are trained.
pub(crate) struct Gan {
    /// The generator's layers from the code on, but for the linear one that gives as many numbers as a row has.
    pub(crate) generator: Vec<String>,
    /// What keeps made numbers within the range of the data's, if anything.
    pub(crate) squash: Option<String>,
    /// The discriminator's layers, but for the linear one that gives its score.
    pub(crate) discriminator: Vec<String>,
    /// Numbers of a code.
    pub(crate) code: usize,
    /// Steps of the discriminator for one of the generator.
    pub(crate) rounds: u64,
    /// Share of the truth of real rows that is withheld (Salimans et al., "Improved techniques for training GANs", 2016).
    pub(crate) smoothing: f64,
    pub(crate) recipe: Recipe,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Discriminator,
    Generator,
}

/// Both networks, built.
struct Pair {
    generator: Stack,
    discriminator: Stack,
}

/// A worker's rows of a step.
struct Rows {
    inputs: Vec<f32>,
    weights: Vec<f32>,
    shares: Vec<Share>,
}

impl Gan {
    fn pair(&self, features: usize) -> Result<Pair> {
        let mut makes = self.generator.clone();
        makes.push(format!("linear {features}"));
        makes.extend(self.squash.clone());
        let mut tells = self.discriminator.clone();
        tells.push("linear 1".to_string());
        Ok(Pair {
            generator: Stack::named("generator", Form::Flat(self.code), &makes)?
                .computing(self.recipe.precision)
                .closed(),
            discriminator: Stack::named("discriminator", Form::Flat(features), &tells)?
                .computing(self.recipe.precision)
                .closed(),
        })
    }

    fn pair_of(&self, model: &Model) -> Result<(usize, Pair)> {
        let features = usize::try_from(model.i64(SIZES)[0]).unwrap_or_default();
        Ok((features, self.pair(features)?))
    }

    fn turn(&self, moment: &Moment) -> Turn {
        match moment.step.0 % (self.rounds + 1) < self.rounds {
            true => Turn::Discriminator,
            false => Turn::Generator,
        }
    }

    fn rows(&self, batch: &Batch<'_>, slices: &[Slice]) -> Result<Rows> {
        let mut rows = Rows { inputs: Vec::new(), weights: Vec::new(), shares: Vec::new() };
        for slice in slices {
            let before = rows.weights.len();
            for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
                append(batch.table.row(row), batch.table.width(), &mut rows.inputs);
                rows.weights.push(batch.table.weight(row) as f32);
            }
            let count = rows.weights.len() - before;
            if count > 0 {
                rows.shares.push(Share { shard: slice.shard, rows: count });
            }
        }
        if !all_finite(&rows.inputs) {
            let bad = refusals::find_number(batch, "which is not finite", f32::is_finite);
            let fault = bad.unwrap_or_else(|| Fault::caller("a feature is not finite"));
            return Err(fault.hint("leave such rows out, or fill the number in"));
        }
        Ok(rows)
    }

    /// The codes of a step, shard by shard.
    fn codes(&self, moment: &Moment, shares: &[Share]) -> Vec<f32> {
        let mut codes = Vec::new();
        for share in shares {
            let mut rng = moment.shard_rng("codes", share.shard);
            codes.extend((0..share.rows * self.code).map(|_| rng.normal() as f32));
        }
        codes
    }

    /// Runs some slices forth and back for whose turn it is, and adds loss and gradients to the sums.
    fn learn(&self, work: &Work<'_>, slices: &[Slice], pair: &Pair, sums: &mut Sums) -> Result<()> {
        let rows = self.rows(work.batch, slices)?;
        let count = rows.weights.len();
        if count == 0 {
            return Ok(());
        }
        let turn = self.turn(&work.moment);
        let taught = pair.taught(turn).parameters();
        let learns = |is: Turn| is == turn;
        let (makes, tells) = (
            Weights::of(work.model, pair.generator.parameters(), learns(Turn::Generator)),
            Weights::of(work.model, pair.discriminator.parameters(), learns(Turn::Discriminator)),
        );
        let lesson = || Lesson {
            moment: work.moment,
            shares: rows.shares.clone(),
            weights: rows.weights.clone(),
        };
        let pass = |weights, is: Turn| match learns(is) {
            true => Pass::learning(weights, lesson()),
            false => Pass::answering(weights),
        };
        let codes = tensor(self.codes(&work.moment, &rows.shares), [count, self.code]);
        let made = pair.generator.forward(Flow::Flat(codes), &mut pass(&makes, Turn::Generator));
        let told = pair.discriminator.forward(made, &mut pass(&tells, Turn::Discriminator)).flat();
        let each = tensor::<2>(rows.weights.clone(), [count, 1]);
        // −log σ(s) is the loss of a score s that ought to be high, −log σ(−s) that of one that ought to be low.
        let loss = match turn {
            Turn::Generator => (activation::log_sigmoid(told) * each).sum().neg(),
            Turn::Discriminator => {
                let width = pair.discriminator.input().len();
                let real = Flow::Flat(tensor(rows.inputs, [count, width]));
                let mut pass = pass(&tells, Turn::Discriminator);
                let real = pair.discriminator.forward(real, &mut pass).flat();
                let high = activation::log_sigmoid(real.clone()) * (1.0 - self.smoothing)
                    + activation::log_sigmoid(real.neg()) * self.smoothing;
                ((high + activation::log_sigmoid(told.neg())) * each).sum().neg()
            }
        };
        sums.loss += f64::from(loss.clone().into_scalar::<f32>());
        sums.weight += rows.weights.iter().map(|&weight| f64::from(weight)).sum::<f64>();
        let mut gradients = loss.backward();
        let learned = if turn == Turn::Generator { &makes } else { &tells };
        for (parameter, sum) in taught.iter().zip(&mut sums.blocks) {
            let part = learned.gradient(parameter, &mut gradients);
            match sum.is_empty() {
                true => *sum = part,
                false => sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part),
            }
        }
        Ok(())
    }

    /// Rows made of codes.
    fn made(&self, model: &Model, pair: &Pair, codes: Vec<f32>) -> Vec<f32> {
        let weights = Weights::of(model, pair.generator.parameters(), false);
        let rows = codes.len() / self.code;
        let codes = Flow::Flat(tensor(codes, [rows, self.code]));
        numbers(pair.generator.forward(codes, &mut Pass::answering(&weights)).flat())
    }

    /// The scores of rows.
    fn scores(&self, model: &Model, pair: &Pair, inputs: Vec<f32>) -> Vec<f32> {
        let weights = Weights::of(model, pair.discriminator.parameters(), false);
        let width = pair.discriminator.input().len();
        let rows = inputs.len() / width;
        let inputs = Flow::Flat(tensor(inputs, [rows, width]));
        numbers(pair.discriminator.forward(inputs, &mut Pass::answering(&weights)).flat())
    }
}

impl Pair {
    fn taught(&self, turn: Turn) -> &Stack {
        match turn {
            Turn::Discriminator => &self.discriminator,
            Turn::Generator => &self.generator,
        }
    }
}

struct Sums {
    loss: f64,
    weight: f64,
    blocks: Vec<Vec<f32>>,
}

/// −log σ(score).
fn surprise(score: f64) -> f64 {
    if score > 0.0 { (-score).exp().ln_1p() } else { score.exp().ln_1p() - score }
}

fn chance(score: f64) -> f64 {
    (-surprise(score)).exp()
}

impl Learner for Gan {
    fn task(&self) -> Task {
        Task::Projection
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn weighs(&self) -> bool {
        true
    }

    /// Whose turn it is depends on the step, so all workers must be in the same.
    fn requires(&self) -> &'static [Ability] {
        &[Ability::WholeModel, Ability::Sum, Ability::Barrier]
    }

    fn footprint(&self, facts: &Facts, _: &Place, rows: u64) -> Option<Footprint> {
        let pair = self.pair(facts.schema.features).ok()?;
        let both =
            [("the generator's", &pair.generator), ("the discriminator's", &pair.discriminator)];
        let rows = rows.div_ceil(self.recipe.parts.max(1) as u64);
        Some(room::footprint(&both, &self.recipe.solver, rows))
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let features = facts.schema.features;
        if facts.rows == 0 || features == 0 {
            return Err(Fault::caller("there are no rows, or no features, to learn from"));
        }
        let steps = self.recipe.falls_over(facts);
        let pair = self.pair(features)?;
        let mut model = Model::new();
        let sizes = vec![features as i64, i64::try_from(steps).unwrap_or(i64::MAX)];
        model.set(SIZES, Tensor { shape: vec![2], values: Values::I64(sizes), role: Role::Weight });
        let both = [pair.generator.parameters(), pair.discriminator.parameters()].concat();
        for (index, parameter) in both.iter().enumerate() {
            let mut rng = Rng::named(facts.seed, "gan", &[index as u64]);
            let values = Values::F32(parameter.start.draw(parameter.len(), &mut rng));
            let shape = parameter.shape.clone();
            model.set(&parameter.name, Tensor { shape, values, role: Role::Weight });
            if !parameter.care.learns() {
                model.mark_tracked(&parameter.name);
            }
            self.recipe.solver.init(&mut model, parameter);
        }
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let (features, pair) = self.pair_of(work.model)?;
        refusals::check_width(features, work.batch)?;
        let taught = pair.taught(self.turn(&work.moment)).parameters();
        let mut sums = Sums { loss: 0.0, weight: 0.0, blocks: vec![Vec::new(); taught.len()] };
        for slices in pieces(&work.batch.slices, self.recipe.parts) {
            self.learn(work, slices, &pair, &mut sums)?;
        }
        for (parameter, mut sum) in taught.iter().zip(sums.blocks).rev() {
            sum.resize(parameter.len(), 0.0);
            let body = Body::Dense(Values::F32(sum));
            work.outbox.emit(Block { name: parameter.name.clone(), body });
        }
        let rows = work.batch.len() as f64;
        work.outbox.emit(Block::dense(LOSS, vec![sums.loss, sums.weight, rows]));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let (_, pair) = self.pair_of(model)?;
        let turn = self.turn(moment);
        let told = update.get(LOSS).map(Block::f64s);
        let loss = told.map(|told| told[0] / told[1].max(f64::MIN_POSITIVE));
        let taught = pair.taught(turn).parameters();
        let stride = self.stride(model.i64(SIZES)[1], taught, update, moment);
        let mut finite = loss.is_none_or(f64::is_finite);
        for parameter in taught {
            let Some(block) = update.get(&parameter.name) else { continue };
            each_run(&block.body, |from, sums| {
                let run = (from..from + sums.len(), Slopes::There(sums));
                finite &= self.recipe.solver.step(model, parameter, run, stride);
            });
        }
        if !finite {
            let rate = self.recipe.solver.rate;
            return Err(Fault::caller(format!(
                "{DIVERGED}: loss or weights are not finite at {}",
                moment.step
            ))
            .hint(format!("lower learning_rate (it is {rate}) or scale the features")));
        }
        // The generator's loss is another quantity: reported in turn, the two would look like one that jumps.
        let objective = loss.filter(|_| turn == Turn::Discriminator);
        Ok(Outcome { objective, done: false, iterations: None })
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (features, pair) = self.pair_of(work.model)?;
        refusals::check_width(features, work.batch)?;
        let table = work.batch.table;
        let mut sums = vec![0.0; SUMS];
        let at_once = answered(&pair.discriminator).min(answered(&pair.generator));
        for slice in &work.batch.slices {
            let rows: Vec<usize> = slice.rows().filter(|&row| table.weight(row) > 0.0).collect();
            for rows in rows.chunks(at_once) {
                let (mut inputs, mut codes) = (Vec::new(), Vec::new());
                for &row in rows {
                    append(table.row(row), features, &mut inputs);
                    // By the row's number in the data: whoever scores it draws the same code.
                    let number = slice.origin + (row - slice.start) as u64;
                    let mut rng = Rng::named(work.moment.seed, "judged", &[number]);
                    codes.extend((0..self.code).map(|_| rng.normal() as f32));
                }
                let made = self.made(work.model, &pair, codes);
                let real = self.scores(work.model, &pair, inputs);
                let made = self.scores(work.model, &pair, made);
                for ((&row, real), made) in rows.iter().zip(real).zip(made) {
                    let (real, made) = (f64::from(real), f64::from(made));
                    let loss = (1.0 - self.smoothing) * surprise(real)
                        + self.smoothing * surprise(-real)
                        + surprise(-made);
                    let own = [1.0, loss, chance(real), chance(made)];
                    let weight = table.weight(row);
                    sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
                }
            }
        }
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let mean = |at: usize| sums[at] / sums[0].max(f64::MIN_POSITIVE);
        let metrics = [("loss", mean(1)), ("chance_real", mean(2)), ("chance_made", mean(3))];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective: mean(1), metrics: metrics.into_iter().collect() }
    }

    fn grades_unseen(&self) -> bool {
        true
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let (features, pair) = self.pair_of(model)?;
        refusals::check_width(features, batch)?;
        let rows: Vec<usize> = batch.rows().collect();
        for rows in rows.chunks(answered(&pair.discriminator)) {
            let mut inputs = Vec::with_capacity(rows.len() * features);
            rows.iter().for_each(|&row| append(batch.table.row(row), features, &mut inputs));
            let scores = self.scores(model, &pair, inputs);
            out.extend(scores.into_iter().map(|score| chance(f64::from(score))));
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let (_, pair) = self.pair_of(model).ok()?;
        let mut graph = Graph::new();
        let stack = pair.discriminator;
        let score = stack.draw(&mut graph, FEATURES, model, stack.len())?;
        graph.node(Op::Sigmoid, &[&score]);
        Some(graph)
    }

    fn describe(&self, model: &Model, _: &Schema) -> Option<String> {
        let (_, pair) = self.pair_of(model).ok()?;
        let mut text = String::from("generator\n");
        pair.generator.describe(&mut text);
        text.push_str("discriminator\n");
        pair.discriminator.describe(&mut text);
        Some(text)
    }

    fn samples(&self, model: &Model, count: usize, seed: u64) -> Option<Samples> {
        let (features, pair) = self.pair_of(model).ok()?;
        let mut rng = Rng::named(seed, "samples", &[]);
        let codes = (0..count * self.code).map(|_| rng.normal() as f32).collect();
        Some(Samples { width: features, values: self.made(model, &pair, codes) })
    }
}

impl Gan {
    fn stride(&self, steps: i64, taught: &[Parameter], update: &Update, moment: &Moment) -> Stride {
        let mut scale = share_of_a_row(update, moment);
        if self.recipe.clip_norm > 0.0 {
            let blocks = taught.iter().filter_map(|parameter| update.get(&parameter.name));
            let length = blocks.map(squared).sum::<f64>().sqrt() * scale;
            scale *= (self.recipe.clip_norm / (length + 1e-6)).min(1.0);
        }
        let steps = u64::try_from(steps).unwrap_or_default();
        let factor = self.recipe.schedule.factor(moment.step.0, steps);
        // Each network counts its own steps: means of gradients begin at zero for both.
        let (round, within) =
            (moment.step.0 / (self.rounds + 1), moment.step.0 % (self.rounds + 1));
        let taken = match self.turn(moment) {
            Turn::Discriminator => round * self.rounds + within,
            Turn::Generator => round,
        };
        let count = i64::try_from(taken).unwrap_or(i64::MAX - 1) + 1;
        Stride { rate: self.recipe.solver.rate * factor, scale: scale as f32, count }
    }
}
