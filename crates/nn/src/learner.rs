//! The learner that every network is: a design (which layers), a goal (which loss) and a recipe (how it is trained).
//! `contribute` runs the worker's rows of a step through the network and back, and emits the *sum* of their gradients,
//! one block a parameter, the last layer's first; `apply` divides the sums and takes the optimiser's step. Under a barrier
//! with exact sums the model is, to rounding, the one that one worker would have made of the same global batch.

use crate::applying::{Total, each_run};
use crate::biases;
use crate::chain::{self, Link, Source};
use crate::factors::{Terms, apart, factored};
use crate::flow::{Flow, Form};
use crate::goal::{Goal, SUMS, Told, check_tokens};
use crate::own::{NO_LAYERS, OwnLayers};
use crate::parts;
use crate::pass::{Lesson, Pass, Share, Weights, numbers, tensor};
use crate::recipe::{Recipe, pieces};
use crate::room::answered;
use crate::solver::{Stride, all_finite};
use crate::split::{self, Ends, Split};
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::sums::{Emission, LOSS, Sums, share_of_a_row};
use starlings_core::{
    Ability, Block, FEATURES, Fault, Graph, Model, Op, Result, Rng, Role, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed, Row, Schema, Slice};
use starlings_learn::{
    ACROSS, Appetite, DIVERGED, Facts, Footprint, Grade, Late, Learner, Moment, Outcome, Place,
    Samples, Task, Work, refusals,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Features, outputs, steps of the job, steps of a pass.
const SIZES: &str = "network";
/// Pass, sum and weight of its losses, the best mean so far, passes since.
const STOPPING: &str = "stopping";
/// How many rows tracked means are of.
pub(crate) const COUNT: &str = "rows";
/// What networks give unless their parameters take it away.
pub(crate) const GIVES: &[Ability] = &[
    Ability::RowWise,
    Ability::LocalSteps,
    Ability::StagedModel,
    Ability::Factors,
    Ability::SplitModel,
];

/// Which layers a network has.
pub(crate) trait Design: Send + Sync {
    /// The form in which it takes rows of so many features.
    ///
    /// # Errors
    /// When they do not fit.
    fn input(&self, features: usize) -> Result<Form>;

    /// The lines of its layers for rows of so many features, but for the last, linear one that gives the outputs.
    fn lines(&self, features: usize) -> Vec<String>;

    /// Whether a linear layer that gives the outputs follows; if not, the lines give as many numbers themselves.
    fn closes(&self) -> bool {
        true
    }

    /// Whether stages track means besides their gradients.
    fn tracks(&self) -> bool {
        self.lines(1).iter().any(|line| self.own().tracks(line))
    }

    /// The one stage that it is, where no lines describe it.
    #[cfg(feature = "modules")]
    fn whole(
        &self,
        features: usize,
        outputs: usize,
    ) -> Option<Result<Box<dyn crate::stage::Stage>>> {
        let _ = (features, outputs);
        None
    }

    /// The layers that the job defines.
    fn own(&self) -> &OwnLayers {
        &NO_LAYERS
    }

    /// What `predict` gives.
    fn answer(&self) -> Answer {
        Answer::Output
    }

    /// After how many layers rows are codes that standard normal numbers may stand for, so that new rows can be drawn.
    fn codes(&self) -> Option<usize> {
        None
    }
}

/// What `predict` gives for a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The network's output.
    Output,
    /// What comes out of the first so many layers.
    Code(usize),
    /// The mean over steps of what comes out of the first so many layers.
    Mean(usize),
    /// How far the output is from the row itself.
    Error,
}

/// A network as a learner.
pub(crate) struct Network {
    design: Box<dyn Design>,
    pub(crate) goal: Goal,
    pub(crate) recipe: Recipe,
    /// Whether stages track means besides their gradients.
    pub(crate) tracks: bool,
    /// Whether it has layers that can be split among workers.
    splits: bool,
    /// How many tokens its first layer has vectors for, where it takes tokens.
    tokens: Option<usize>,
    /// The stack of the model that was last asked about.
    known: Mutex<Option<(StackKey, Arc<Stack>)>>,
}

/// What a stack follows from: sizes, which part it is of how many, and whether it has biases of no effect.
type StackKey = (Sizes, Option<(usize, usize)>, bool);

impl Network {
    /// A network of a design. Lines that cannot be understood are refused here, forms that do not fit at the start.
    pub(crate) fn new(design: Box<dyn Design>, goal: Goal, recipe: Recipe) -> Network {
        let (mut lines, tracks) = (design.lines(1), design.tracks());
        lines.push("linear 1".to_string());
        let mut first = lines[0].split_whitespace();
        let is_embedding = first.next() == Some("embedding");
        let tokens = first.next().filter(|_| is_embedding).and_then(|count| count.parse().ok());
        let splits = recipe.solver.is_row_wise() && split::can_split(&lines);
        Network { design, goal, recipe, tracks, splits, tokens, known: Mutex::new(None) }
    }

    /// The lines of its layers, as a row of one feature has them.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.design.lines(1)
    }

    /// The stack of a new model.
    pub(crate) fn stack(&self, sizes: Sizes) -> Result<Stack> {
        self.stack_for(sizes, false)
    }

    /// The stack of a model that has biases of no effect, or of one that has not.
    fn stack_for(&self, sizes: Sizes, biased: bool) -> Result<Stack> {
        #[cfg(feature = "modules")]
        if let Some(stage) = self.design.whole(sizes.features, sizes.outputs) {
            return Ok(Stack::whole(self.design.input(sizes.features)?, stage?));
        }
        let mut lines = self.design.lines(sizes.features);
        lines = if biased { lines } else { biases::without_idle(lines) };
        if self.design.closes() {
            lines.push(format!("linear {}", sizes.outputs));
        }
        let input = self.design.input(sizes.features)?;
        let stack = Stack::with(self.design.own(), input, &lines)?;
        let stack = stack.computing(self.recipe.precision);
        match stack.output().len() {
            // Of a sequence, each step gives them.
            _ if self.design.closes() => Ok(stack.closed()),
            len if len == sizes.outputs => Ok(stack),
            _ => Err(Fault::caller(format!(
                "the last of {} layers gives {} where {} numbers are wanted",
                stack.len(),
                stack.output(),
                sizes.outputs
            ))),
        }
    }

    /// The stack that a model is of, made once for all steps.
    pub(crate) fn stack_of(&self, model: &Model) -> Result<(Sizes, Arc<Stack>)> {
        let (sizes, part) = (Sizes::of(model), parts::part_of(model));
        let key = (sizes, part, self.is_biased(model));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, stack)) = known.as_ref().filter(|(of, _)| *of == key) {
            return Ok((sizes, stack.clone()));
        }
        let stack = self.stack_for(sizes, key.2)?;
        let stack = match part {
            None => stack,
            Some(part) => stack.part(&self.split(&stack, part)?)?,
        };
        let stack = Arc::new(stack);
        *known = Some((key, stack.clone()));
        Ok((sizes, stack))
    }

    fn is_biased(&self, model: &Model) -> bool {
        biases::has_idle(&self.design.lines(Sizes::of(model).features), model)
    }

    /// How a network is split, as one part sees it.
    pub(crate) fn split(&self, stack: &Stack, part: (usize, usize)) -> Result<Split> {
        let ends = self.goal.vocabulary().map_or(Ends::Whole, |_| Ends::Vocabulary);
        Split::of(stack, part, ends)
    }

    fn check(&self, sizes: Sizes, batch: &Batch<'_>) -> Result<()> {
        self.check_rows(sizes, batch)?;
        self.goal.check(sizes.outputs, batch)
    }

    /// Refuses rows of another width, and what is no token where tokens are wanted.
    fn check_rows(&self, sizes: Sizes, batch: &Batch<'_>) -> Result<()> {
        refusals::check_width(sizes.features, batch)?;
        self.tokens.map_or(Ok(()), |tokens| check_tokens(tokens, batch))
    }

    /// The rows of some slices that count, and whose they are.
    fn told(&self, batch: &Batch<'_>, slices: &[Slice], inputs: bool) -> (Told, Vec<Share>) {
        let rows = slices.iter().map(|slice| slice.rows().count()).sum();
        let mut told = Told::with_room(rows, if inputs { batch.table.width() } else { 0 });
        let mut shares = Vec::with_capacity(slices.len());
        for slice in slices {
            let before = told.weights.len();
            for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
                told.push(batch.table, row, inputs);
            }
            let rows = told.weights.len() - before;
            if rows > 0 {
                shares.push(Share { shard: slice.shard, rows });
            }
        }
        (told, shares)
    }

    /// Rows in, outputs out.
    fn outputs_of(
        &self,
        stack: &Stack,
        inputs: Vec<f32>,
        pass: &mut Pass<'_>,
    ) -> burn_tensor::Tensor<2> {
        stack.forward(shaped(stack, inputs), pass).flat()
    }

    /// What `predict` gives for rows.
    fn answers(&self, stack: &Stack, inputs: Vec<f32>, weights: &Weights<'_>) -> Vec<f32> {
        let mut pass = Pass::answering(weights);
        match self.design.answer() {
            Answer::Output => self.goal.answer(self.outputs_of(stack, inputs, &mut pass)),
            Answer::Code(layers) => {
                numbers(stack.forward_through(shaped(stack, inputs), &mut pass, layers).flat())
            }
            Answer::Mean(layers) => {
                let flow = stack.forward_through(shaped(stack, inputs), &mut pass, layers);
                numbers(flow.sequence().mean_dim(1))
            }
            Answer::Error => {
                let width = stack.input().len();
                let outputs = numbers(self.outputs_of(stack, inputs.clone(), &mut pass));
                let rows = outputs.chunks_exact(width).zip(inputs.chunks_exact(width));
                rows.map(|(a, b)| squared_error(a, b)).collect()
            }
        }
    }

    /// The rows of some slices that count, as they go in. `None`: there are none.
    pub(crate) fn read(
        &self,
        batch: &Batch<'_>,
        slices: &[Slice],
        place: &Place,
    ) -> Result<Option<Lecture>> {
        let is_last = place.depth() + 1 == place.depths();
        let wanted = place.depth() == 0 || (is_last && self.goal.reads_inputs());
        let (mut told, shares) = self.told(batch, slices, wanted);
        if shares.is_empty() {
            return Ok(None);
        }
        // Looked for here: a function such as relu may hide it from the loss.
        if !all_finite(&told.inputs) {
            let bad = refusals::find_number(batch, "which is not finite", f32::is_finite);
            let fault = bad.unwrap_or_else(|| Fault::caller("a feature is not finite"));
            return Err(fault.hint("leave such rows out, or fill the number in"));
        }
        let inputs = match self.goal.reads_inputs() {
            true => told.inputs.clone(),
            false => std::mem::take(&mut told.inputs),
        };
        Ok(Some(Lecture { inputs, told, shares }))
    }

    /// Runs some rows forth and back, link by link, and adds to the sums. Each link that is complete is told.
    fn learn(
        &self,
        lecture: Lecture,
        (moment, known): (Moment, &Known<'_>),
        sums: &mut Sums,
        mut complete: impl FnMut(&mut Sums),
    ) {
        let Lecture { inputs, told, shares } = lecture;
        let mut pass = Pass::learning(known.weights, Lesson::of(moment, shares, &told.weights));
        let mut flow = shaped(known.stack, inputs);
        let mut links = Vec::with_capacity(known.links.len());
        for (index, stages) in known.links.iter().enumerate() {
            // A layer that leaves as factors is a link by itself.
            let factored = known.factored.contains(&stages.start);
            let left = factored.then(|| numbers(flow.clone().flat()));
            let link = Link::forward((known.stack, stages.clone()), flow, index > 0, &mut pass);
            flow = link.output();
            sums.loss += link.penalty();
            links.push((stages.clone(), link, left));
        }
        let is_told = links.last().is_some_and(|(_, _, left)| left.is_some());
        let outputs = if is_told { flow.leaf() } else { flow };
        let loss = self.goal.loss(outputs.clone().flat(), &told);
        sums.count(&told, f64::from(loss.clone().into_scalar::<f32>()));
        let mut source = match is_told {
            true => outputs.gradient(&mut loss.backward()).map(Source::Above),
            false => Some(Source::Loss(loss)),
        };
        while let Some((stages, link, left)) = links.pop() {
            if let (Some(left), Some(Source::Above(gradient))) = (left, &source) {
                let matrix = known.stack.parameters_of(stages.clone()).start;
                let right = numbers(gradient.clone().flat());
                sums.factors.entry(matrix).or_default().add(&left, &right);
            }
            let back = source.take().and_then(|source| link.backward(source));
            let (gradients, below) = back.map_or((None, None), |(own, below)| (Some(own), below));
            let mine = (known.parameters, known.stack.parameters_of(stages));
            sums.add(mine, (known.weights, &mut pass), gradients);
            complete(sums);
            source = below.map(Source::Above);
        }
    }

    /// The rate of a step and what sums of gradients are multiplied by.
    pub(crate) fn stride(
        &self,
        (sizes, parameters): (Sizes, &[Parameter]),
        update: &Update,
        moment: &Moment,
    ) -> Stride {
        let trained = parameters.iter().filter(|parameter| parameter.care.learns());
        let trained = trained.map(|parameter| parameter.name.as_str());
        let rate = self.recipe.solver.rate;
        let factor = self.recipe.schedule.factor(moment.step.0, sizes.steps);
        let mut scale = share_of_a_row(update, moment);
        if self.recipe.clip_norm > 0.0 {
            let own = || trained.filter_map(|name| update.get(name)).map(squared).sum();
            // Where the model is cut, the length is that of all stages' gradients.
            let squares = update.get(ACROSS).map_or_else(own, |block| block.f64s()[0]);
            let length = squares.sqrt() * scale;
            scale *= (self.recipe.clip_norm / (length + 1e-6)).min(1.0);
        }
        let count = i64::try_from(moment.step.0).unwrap_or(i64::MAX - 1) + 1;
        Stride { rate: rate * factor, scale: scale as f32, count }
    }

    /// Whether training is to end: the mean loss of a pass has not fallen for too long.
    pub(crate) fn is_stale(
        &self,
        model: &mut Model,
        loss: f64,
        weight: f64,
        moment: &Moment,
    ) -> bool {
        let [pass, sum, total, best, bad] = model.f64_mut(STOPPING).as_mut_slice() else {
            unreachable!("five numbers")
        };
        let now = moment.pass as f64;
        if now > *pass {
            let mean = *sum / total.max(f64::MIN_POSITIVE);
            (*best, *bad) = if mean < *best { (mean, 0.0) } else { (*best, *bad + 1.0) };
            (*pass, *sum, *total) = (now, 0.0, 0.0);
        }
        (*sum, *total) = (*sum + loss, *total + weight);
        *bad >= self.recipe.patience as f64
    }
}

/// What a step works with.
struct Known<'a> {
    stack: &'a Stack,
    parameters: &'a [Parameter],
    weights: &'a Weights<'a>,
    /// Stages whose gradients are computed together, the lowest first.
    links: &'a [Range<usize>],
    /// Stages whose matrices leave as factors, each a link by itself.
    factored: &'a [usize],
}

/// Rows on their way into a network that learns.
pub(crate) struct Lecture {
    /// What goes in; empty on a stage that has others before it.
    pub(crate) inputs: Vec<f32>,
    /// What is known of the rows.
    pub(crate) told: Told,
    /// Whose they are.
    pub(crate) shares: Vec<Share>,
}

/// What a model says about its network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    features: usize,
    outputs: usize,
    steps: u64,
}

impl Sizes {
    pub(crate) fn of(model: &Model) -> Sizes {
        let [features, outputs, steps] = model.i64(SIZES) else { panic!("three sizes") };
        let size = |value: i64| usize::try_from(value).unwrap_or_default();
        Sizes { features: size(*features), outputs: size(*outputs), steps: size(*steps) as u64 }
    }
}

impl Learner for Network {
    fn task(&self) -> Task {
        match self.design.answer() {
            Answer::Error => Task::Anomaly,
            _ => self.goal.task(),
        }
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        self.goal.label()
    }

    fn weighs(&self) -> bool {
        true
    }

    fn gives(&self) -> &'static [Ability] {
        let by_row = self.recipe.solver.is_row_wise() && self.recipe.clip_norm == 0.0;
        match (self.recipe.patience == 0, by_row && !self.tracks, self.splits) {
            (true, true, true) => GIVES,
            (true, true, false) => &GIVES[..4],
            (true, false, true) => &GIVES[1..],
            (true, false, false) => &GIVES[1..4],
            (false, _, true) => &GIVES[2..],
            (false, _, false) => &GIVES[2..4],
        }
    }

    fn why_not(&self, ability: Ability) -> Option<String> {
        self.lacks(ability)
    }

    fn remedy(&self, ability: Ability) -> Option<String> {
        self.cure(ability)
    }

    fn requires(&self) -> &'static [Ability] {
        match self.recipe.patience {
            0 => &[],
            _ => &[Ability::Sum, Ability::Barrier],
        }
    }

    fn footprint(&self, facts: &Facts, place: &Place, rows: u64) -> Option<Footprint> {
        let (features, outputs) = (facts.schema.features, self.goal.outputs(&facts.schema).ok()?);
        // What cannot be built is refused by `init`, with the reason.
        let stack = self.stack(Sizes { features, outputs, steps: 0 }).ok()?;
        self.footprint_at(&stack, place, rows)
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        if facts.schema.features == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let steps = self.recipe.falls_over(facts);
        let (features, outputs) = (facts.schema.features, self.goal.outputs(&facts.schema)?);
        let stack = self.stack(Sizes { features, outputs, steps })?;
        self.check_place(facts, &place)?;
        let mut model = Model::new();
        let sizes = [features as i64, outputs as i64, i64::try_from(steps).unwrap_or(i64::MAX)];
        model.set(
            SIZES,
            Tensor { shape: vec![3], values: Values::I64(sizes.to_vec()), role: Role::Weight },
        );
        for (parameter, values) in self.started(facts.seed, &stack, &place)? {
            let (shape, values) = (parameter.shape.clone(), Values::F32(values));
            model.set(&parameter.name, Tensor { shape, values, role: Role::Weight });
            if !parameter.care.learns() {
                model.mark_tracked(&parameter.name);
            }
            self.recipe.solver.init(&mut model, &parameter);
        }
        if place.splits() {
            parts::note(&mut model, (place.part() as usize, place.parts as usize));
        }
        if self.recipe.patience > 0 {
            let fresh = vec![0.0, 0.0, 0.0, f64::INFINITY, 0.0];
            model.set(STOPPING, Tensor::of(&[5], fresh, Role::State));
        }
        Ok(model)
    }

    fn tell_place(&self, facts: &Facts, place: &Place) -> Option<String> {
        let (features, outputs) = (facts.schema.features, self.goal.outputs(&facts.schema).ok()?);
        let stack = self.stack(Sizes { features, outputs, steps: 0 }).ok()?;
        self.told_place(&stack, place)
    }

    fn measured_cut(
        &self,
        facts: &Facts,
        stages: u32,
        clock: &dyn Fn() -> f64,
    ) -> Result<Option<Vec<u32>>> {
        let (features, outputs) = (facts.schema.features, self.goal.outputs(&facts.schema)?);
        let stack = self.stack(Sizes { features, outputs, steps: 0 })?;
        self.cut_by_time((facts, &stack), stages, clock).map(Some)
    }

    fn across(&self, model: &Model, update: &Update) -> Vec<f64> {
        match (self.recipe.clip_norm > 0.0, self.stack_of(model)) {
            (true, Ok((_, stack))) => vec![own_squares(&stack, model, update)],
            _ => Vec::new(),
        }
    }

    fn assemble(&self, model: Model) -> Model {
        let Some((_, parts)) = parts::part_of(&model) else { return model };
        let known = "the parts were made by the same network";
        let stack = self.stack_for(Sizes::of(&model), self.is_biased(&model)).expect(known);
        let split = self.split(&stack, (0, parts)).expect(known);
        parts::assembled(&stack, &split, &model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let (sizes, stack) = self.stack_of(work.model)?;
        self.check(sizes, work.batch)?;
        let parameters = stack.parameters();
        let mut sums = Sums::new(parameters.len());
        if work.place.stages > 1 {
            self.contribute_place(work, (&stack, parameters), &mut sums)?;
            self.emit_counts(work, &sums);
            return Ok(());
        }
        // Links cost a little, and only help what leaves early.
        let links = if work.outbox.streams() {
            chain::links(&stack)
        } else {
            std::iter::once(0..stack.len()).collect()
        };
        let factored = factored(&stack, work.moment.rows, work.outbox);
        let links = apart(links, &factored);
        let matrices = factored.iter().map(|&stage| stack.parameters_of(stage..stage + 1).start);
        sums.factors = matrices.map(|matrix| (matrix, Terms::default())).collect();
        let mut emission = Emission {
            parameters,
            links: links.iter().map(|stages| stack.parameters_of(stages.clone())).collect(),
            outbox: work.outbox,
        };
        let weights = match work.batch.is_empty() {
            true => Weights::none(),
            false => {
                let learns = |index: usize| !sums.factors.contains_key(&index);
                Weights::learning(work.model, parameters, learns)
            }
        };
        let weights = &weights;
        let (links, factored) = (&links[..], &factored[..]);
        let known = Known { stack: &stack, parameters, weights, links, factored };
        // Parts are whole shards: masks and ghost batches do not depend on how many there are.
        let mut parts = pieces(&work.batch.slices, self.recipe.parts).peekable();
        while let Some(slices) = parts.next() {
            let Some(lecture) = self.read(work.batch, slices, &work.place)? else { continue };
            let is_last = parts.peek().is_none();
            self.learn(lecture, (work.moment, &known), &mut sums, |sums| {
                if is_last {
                    emission.emit(sums);
                }
            });
        }
        while !emission.links.is_empty() {
            emission.emit(&mut sums);
        }
        self.emit_counts(work, &sums);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        self.apply_total(model, Total::There(update), moment)
    }

    fn sums_late(&self) -> bool {
        self.recipe.solver.is_row_wise() && self.recipe.clip_norm == 0.0 && !self.tracks
    }

    fn apply_late(&self, model: &mut Model, late: &dyn Late, moment: &Moment) -> Result<Outcome> {
        self.apply_total(model, Total::Late(late), moment)
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (sizes, stack) = self.stack_of(work.model)?;
        self.check(sizes, work.batch)?;
        if work.place.stages > 1 {
            return self.score_place(work, (sizes, &stack));
        }
        let weights = Weights::of(work.model, stack.parameters(), false);
        let mut sums = vec![0.0; SUMS];
        let rows: Vec<usize> =
            work.batch.rows().filter(|&row| work.batch.table.weight(row) > 0.0).collect();
        for rows in rows.chunks(answered(&stack)) {
            let told = Told::of(work.batch.table, rows);
            let mut pass = Pass::grading(&weights, &told.weights);
            let outputs = self.outputs_of(&stack, told.inputs.clone(), &mut pass);
            self.goal.tally(outputs, &told, &mut sums);
            // What is small besides the loss while it learns is part of the objective.
            sums[1] += pass.penalties();
        }
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let metrics = self.goal.metrics(sums).into_iter();
        Grade {
            objective: self.goal.objective(sums),
            metrics: metrics.map(|(name, value)| (name.to_string(), value)).collect(),
        }
    }

    fn grades_unseen(&self) -> bool {
        matches!(self.task(), Task::Projection | Task::Anomaly)
    }

    fn outputs(&self, model: &Model) -> usize {
        match (self.design.answer(), self.stack_of(model)) {
            (Answer::Output, _) | (_, Err(_)) => Sizes::of(model).outputs,
            (Answer::Code(layers), Ok((_, stack))) => stack.output_after(layers).len(),
            (Answer::Mean(layers), Ok((_, stack))) => match stack.output_after(layers) {
                Form::Sequence { width, .. } => width,
                other => other.len(),
            },
            (Answer::Error, _) => 1,
        }
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let (sizes, stack) = self.stack_of(model)?;
        self.check_rows(sizes, batch)?;
        let weights = Weights::of(model, stack.parameters(), false);
        let rows: Vec<usize> = batch.rows().collect();
        for rows in rows.chunks(answered(&stack)) {
            let mut inputs = Vec::with_capacity(rows.len() * sizes.features);
            rows.iter().for_each(|&row| append(batch.table.row(row), sizes.features, &mut inputs));
            out.extend(self.answers(&stack, inputs, &weights).into_iter().map(f64::from));
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let (_, stack) = self.stack_of(model).ok()?;
        let mut graph = Graph::new();
        let layers = match self.design.answer() {
            Answer::Output => stack.len(),
            Answer::Code(layers) => layers,
            Answer::Error | Answer::Mean(_) => return None,
        };
        let outputs = stack.draw(&mut graph, FEATURES, model, layers)?;
        match self.goal {
            Goal::Class { .. } | Goal::Focal => drop(graph.node(Op::Softmax, &[&outputs])),
            Goal::Number(_) | Goal::Itself => {}
            Goal::Next { .. } | Goal::Near { .. } => return None,
        }
        Some(graph)
    }

    fn samples(&self, model: &Model, count: usize, seed: u64) -> Option<Samples> {
        let layers = self.design.codes()?;
        let (sizes, stack) = self.stack_of(model).ok()?;
        let form = stack.output_after(layers);
        let mut rng = Rng::named(seed, "samples", &[]);
        let codes: Vec<f32> = (0..count * form.len()).map(|_| rng.normal() as f32).collect();
        let weights = Weights::of(model, stack.parameters(), false);
        let codes = Flow::shaped(tensor(codes, [count, form.len()]), form);
        let rest = layers..stack.len();
        let rows = stack.forward_between(codes, &mut Pass::answering(&weights), rest);
        Some(Samples { width: sizes.outputs, values: numbers(rows.flat()) })
    }

    fn describe(&self, model: &Model, _: &Schema) -> Option<String> {
        let (sizes, stack) = self.stack_of(model).ok()?;
        let numbers: usize = stack.parameters().iter().map(Parameter::len).sum();
        let mut text =
            format!("{} → {} numbers, {numbers} parameters\n", stack.input(), sizes.outputs);
        stack.describe(&mut text);
        Some(text)
    }
}

impl Network {
    fn emit_counts(&self, work: &mut Work<'_>, sums: &Sums) {
        if self.tracks {
            work.outbox.emit(Block::dense(COUNT, vec![sums.rows]));
        }
        let told = vec![sums.loss, sums.weight, work.batch.len() as f64];
        work.outbox.emit(Block::dense(LOSS, told));
    }

    pub(crate) fn diverged(&self, what: &str, moment: &Moment) -> Fault {
        let rate = self.recipe.solver.rate;
        Fault::caller(format!("{DIVERGED}: {what} at {}", moment.step)).hint(format!(
            "lower learning_rate (it is {rate}), set clip_norm = 1.0, or scale the features"
        ))
    }
}

/// Rows of numbers in the form that a network takes.
pub(crate) fn shaped(stack: &Stack, inputs: Vec<f32>) -> Flow {
    let width = stack.input().len();
    let rows = inputs.len() / width;
    Flow::shaped(tensor(inputs, [rows, width]), stack.input())
}

/// Adds a row's numbers, zeros of a sparse one too.
pub(crate) fn append(row: Row<'_>, width: usize, into: &mut Vec<f32>) {
    match row {
        Row::Dense(values) => into.extend_from_slice(values),
        Row::Sparse(columns, values) => {
            let from = into.len();
            into.resize(from + width, 0.0);
            columns.iter().zip(values).for_each(|(&c, &x)| into[from + c as usize] = x);
        }
    }
}

/// The mean squared difference of two rows.
fn squared_error(a: &[f32], b: &[f32]) -> f32 {
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / a.len() as f64) as f32
}

/// The squared length of a stage's gradient, or of a part's: what all parts have is told by the first.
fn own_squares(stack: &Stack, model: &Model, update: &Update) -> f64 {
    let part = parts::part_of(model).map_or(0, |(part, _)| part);
    let trained = stack.parameters().iter().filter(|it| it.care.learns());
    let mine = trained.filter(|it| part == 0 || it.name.contains('@'));
    mine.filter_map(|it| update.get(&it.name).map(squared)).sum()
}

/// The sum of squares of a block.
pub(crate) fn squared(block: &Block) -> f64 {
    let mut sum = 0.0;
    each_run(&block.body, |_, values| {
        sum += values.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
    });
    sum
}
