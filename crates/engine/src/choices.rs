//! The choices of a job, built from the catalogues and checked against each other.

use crate::compat::{self, Lack};
use crate::job::{Choice, Deal, Every, Fold, Job};
use crate::recovery::Completion;
use crate::rules::{RULES, Rule};
use starlings_codec::{CODECS, Cheapest, Codec, Compressor, Rounds, Scheme};
use starlings_consistency::{Blending, CONSISTENCIES, Consistency, Gate};
use starlings_core::{
    Ability, Card, Entry, Fault, Param, ParamKind, Params, Result, Seat, suggestion,
};
use starlings_learn::{Appetite, BuildLearner, LEARNERS, Learner, Rebuilds};
use starlings_plan::{PLANS, Plan};
use starlings_topology::{Form, Graph, Partial, Shuffle, TOPOLOGIES, Topology, Walk};
use std::sync::{Arc, PoisonError, RwLock};

/// Everything a worker needs to know of the job's words.
#[derive(Clone)]
pub struct Choices {
    /// The learner.
    pub learner: Arc<dyn Learner>,
    /// Its checked parameters.
    pub params: Params,
    /// Parallelism.
    pub plan: Arc<dyn Plan>,
    /// Who talks to whom.
    pub layout: Layout,
    /// How the engine's own numbers are summed: by the chosen topology, or by a tree where it sums nothing.
    pub sums: Arc<dyn Topology>,
    /// When a worker may go on.
    pub gate: Arc<dyn Gate>,
    /// What travels, and how it enters the model.
    pub blend: Arc<Blending>,
    /// How contributions travel.
    pub carriage: Carriage,
    /// Whether the model lives at owners: the topology serves and the learner applies row by row.
    pub served: bool,
}

/// A codec by the executor it needs; the catalogue's [`Scheme`], shared by the parts of a worker.
#[derive(Clone)]
pub enum Carriage {
    /// Each number by itself.
    Numbers(Arc<dyn Codec>),
    /// Parts of contributions.
    Contributions(Arc<dyn Compressor>),
    /// A few sums instead of one.
    Rounds(Arc<dyn Rounds>),
    /// Matrices as their factors.
    Factors,
    /// Whichever way is cheapest for each block.
    Auto(Arc<dyn Cheapest>),
}

impl Carriage {
    /// Whether each seat keeps what was lost on the way, and adds it to its next contribution.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        match self {
            Carriage::Contributions(compressor) => compressor.feedback().is_some(),
            Carriage::Rounds(_) => true,
            Carriage::Numbers(_) | Carriage::Factors | Carriage::Auto(_) => false,
        }
    }
}

impl From<Scheme> for Carriage {
    fn from(scheme: Scheme) -> Carriage {
        match scheme {
            Scheme::Numbers(codec) => Carriage::Numbers(codec.into()),
            Scheme::Contributions(compressor) => Carriage::Contributions(compressor.into()),
            Scheme::Rounds(rounds) => Carriage::Rounds(rounds.into()),
            Scheme::Factors => Carriage::Factors,
            Scheme::Auto(cheapest) => Carriage::Auto(cheapest.into()),
        }
    }
}

/// A topology by the executor it needs.
#[derive(Clone)]
pub enum Layout {
    /// Contributions are summed.
    Sum,
    /// Neighbours mix their models.
    Graph(Arc<dyn Graph>),
    /// Models walk.
    Walk(Arc<dyn Walk>),
    /// Gradients travel part by part.
    Partial(Arc<dyn Partial>),
    /// Groups of so many seats sum inside, around owners.
    Groups(u32),
}

impl Choices {
    /// Finds and builds what a job names, and checks that it fits together.
    ///
    /// # Errors
    /// Unknown names, bad parameters or a combination that makes no sense, each with what would work.
    pub fn of(job: &Job) -> Result<Choices> {
        let (entry, learner, params) = learner(&job.learner)?;
        let (mut plan_card, plan) = built("plan", PLANS, &job.plan)?;
        // A product may split layers or not.
        if plan.parts() > 1 && !plan_card.needs.contains(&Ability::SplitModel) {
            plan_card.needs.push(Ability::SplitModel);
        }
        let (topology_card, form) = built("topology", TOPOLOGIES, &job.topology)?;
        let (gate_card, Consistency { gate, blend }) =
            built("consistency", CONSISTENCIES, &job.consistency)?;
        let (codec_card, scheme) = built("codec", CODECS, &job.codec)?;
        let learner_card = learner_card(entry, &*learner, &params);
        let gives = |card: &Card, ability| card.gives.contains(&ability);
        let served = gives(&topology_card, Ability::Served)
            && gives(&plan_card, Ability::WholeModel)
            && gives(&learner_card, Ability::RowWise)
            && gives(&codec_card, Ability::OneWay)
            && !matches!(scheme, Scheme::Factors | Scheme::Auto(_))
            && !matches!(blend, Blending::Local(_))
            && job.fold == Fold::Plain;
        let chosen = [learner_card, plan_card, topology_card, gate_card, codec_card];
        fit_together(job, &chosen, (entry, &*learner))?;
        let (layout, sums) = laid_out(form)?;
        check_merge(&chosen[2], &layout, served)?;
        let whole = chosen[1].gives.contains(&Ability::WholeModel);
        let together = gate.lead_max() == Some(0) || served;
        let by_time =
            job.checkpoint.as_ref().is_some_and(|spec| matches!(spec.every, Every::Time(_)));
        if by_time && !together {
            return Err(Fault::caller(
                "workers that never meet cannot agree on a time for a checkpoint",
            )
            .hint("set [checkpoint] every to a number of steps"));
        }
        check_warm_up(job, &blend)?;
        if job.launcher == "threads" && job.transport.is_some() {
            return Err(Fault::caller("workers that are threads talk through their own memory")
                .hint("leave out [cluster] transport, or choose launcher = \"processes\""));
        }
        // Where replicas are neither summed nor averaged by their rows, unequal shares would weigh rows unequally.
        let by_rows = match &blend {
            Blending::Plain => true,
            Blending::Local(blend) => blend.averages(),
            _ => false,
        };
        let alike = whole && gate.lead_max() == Some(0) && by_rows;
        if job.deal == Deal::Speed && !alike {
            return Err(Fault::caller("deal = \"speed\" needs workers that sum or average together, each with the whole model")
                .hint("choose consistency 'bsp' or 'local' and plan 'data-parallel'; without a barrier fast workers run ahead anyway"));
        }
        if job.fold == Fold::Reproducible {
            let plain = matches!(blend, Blending::Plain) && gate.lead_max() == Some(0);
            let exact = chosen[4].gives.contains(&Ability::Lossless);
            if !(plain && exact && whole && matches!(layout, Layout::Sum)) {
                return Err(Fault::caller("the reproducible fold needs one exact sum of all shards")
                    .hint("choose consistency 'bsp', codec 'raw', plan 'data-parallel' and a topology that sums, or fold = \"plain\""));
            }
        }
        Ok(Choices {
            learner: learner.into(),
            params,
            plan: plan.into(),
            layout,
            sums,
            gate: gate.into(),
            blend: blend.into(),
            carriage: scheme.into(),
            served,
        })
    }
}

impl Choices {
    /// How a step ends when a member is lost.
    #[must_use]
    pub fn completion(&self) -> Completion {
        let whole = self.plan.stages() == 1 && self.served == self.owned();
        match (&self.layout, &*self.blend) {
            _ if !whole || self.learner.rebuilds() == Rebuilds::Never => Completion::Restore,
            _ if self.owned() && self.gate.lead_max() != Some(0) => Completion::Continue,
            (Layout::Graph(_) | Layout::Walk(_) | Layout::Partial(_), _) => Completion::Continue,
            (_, Blending::Local(_)) => Completion::Continue,
            _ => match self.learner.appetite() {
                Appetite::Batches => Completion::Reweigh,
                Appetite::Passes => Completion::Recompute,
            },
        }
    }

    /// Whether each seat owns rows of the model and pushes to all others.
    #[must_use]
    pub fn owned(&self) -> bool {
        self.served && !matches!(self.layout, Layout::Groups(_))
    }

    /// Whether owners have backups, where members may be lost: not where a loss takes all back to a checkpoint anyway.
    #[must_use]
    pub fn backs_up(&self) -> bool {
        self.owned() && self.completion() != Completion::Restore
    }

    /// Whether all replicas hold the same bits after every step.
    #[must_use]
    pub fn always_alike(&self) -> bool {
        let plain = matches!(&*self.blend, Blending::Plain);
        plain && !self.served && matches!(self.layout, Layout::Sum | Layout::Groups(_))
    }

    /// Whether models of workers differ by design, also at the moments when they meet.
    #[must_use]
    pub fn keeps_own_models(&self) -> bool {
        matches!(self.layout, Layout::Graph(_) | Layout::Walk(_) | Layout::Partial(_))
    }
}

/// A topology that sums has groups only on the way to owners.
fn check_merge(topology: &Card, layout: &Layout, served: bool) -> Result<()> {
    let sums = topology.gives.contains(&Ability::Sum);
    if served || !sums || !matches!(layout, Layout::Groups(_)) {
        return Ok(());
    }
    Err(Fault::caller(format!(
        "topology '{}' has nothing to merge: in this job contributions do not go to owners, all are summed at once",
        topology.name
    ))
    .hint("leave out merge: without it the topology sums"))
}

/// While one replica warms the model up, the others are not there for a checkpoint.
fn check_warm_up(job: &Job, blend: &Blending) -> Result<()> {
    let (Blending::Cadence(cadence), Some(spec)) = (blend, &job.checkpoint) else { return Ok(()) };
    match spec.every {
        Every::Steps(steps) if steps < cadence.warm => Err(Fault::caller(format!(
            "a checkpoint every {steps} steps falls into the warm-up of {}",
            cadence.warm
        ))
        .hint("set [checkpoint] every to at least the warm-up, or to a time")),
        _ => Ok(()),
    }
}

/// The executor that a topology needs, and a topology for sums.
fn laid_out(form: Form) -> Result<(Layout, Arc<dyn Topology>)> {
    Ok(match form {
        Form::Sum(topology) => (Layout::Sum, topology.into()),
        Form::Groups(groups) => (Layout::Groups(groups.size), groups.inner.into()),
        Form::Graph(graph) => (Layout::Graph(graph.into()), summing("tree", "")?),
        Form::Walk(walk) => (Layout::Walk(walk.into()), summing("tree", "")?),
        Form::Partial(partial) => (Layout::Partial(partial.into()), summing("tree", "")?),
        Form::Shuffle(_) => {
            return Err(Fault::caller("an all-to-all moves rows and sums nothing")
                .hint("it serves Flock::shuffle; choose a topology that sums, such as 'ring'"));
        }
    })
}

/// A topology that sums, by name, with its parameters as in a job file: `summing("tree", "arity = 4")`.
///
/// # Errors
/// An unknown name, bad parameters, or a topology that does not sum.
pub fn summing(name: &str, parameters: &str) -> Result<Arc<dyn Topology>> {
    let choice = Choice { name: name.to_string(), given: table(parameters)? };
    match built("topology", TOPOLOGIES, &choice)?.1 {
        Form::Sum(topology) => Ok(topology.into()),
        _ => Err(Fault::caller(format!("topology '{name}' does not sum"))
            .hint("choose one that does, such as 'ring'")),
    }
}

/// How everyone sends something else to everyone.
///
/// # Errors
/// Never, as long as the catalogue has it.
pub fn shuffle() -> Result<Box<dyn Shuffle>> {
    let choice = Choice { name: "all-to-all".to_string(), given: toml::Table::new() };
    match built("topology", TOPOLOGIES, &choice)?.1 {
        Form::Shuffle(shuffle) => Ok(shuffle),
        _ => Err(Fault::machine("the catalogue's all-to-all is none")),
    }
}

fn table(parameters: &str) -> Result<toml::Table> {
    let wrong =
        |error: toml::de::Error| Fault::caller(format!("'{parameters}': {}", error.message()));
    parameters.parse().map_err(wrong)
}

/// All learners: those of tables, then networks, then those that this program brought along.
pub fn learners() -> impl Iterator<Item = &'static Entry<BuildLearner>> {
    let brought = BROUGHT.read().unwrap_or_else(PoisonError::into_inner).clone();
    LEARNERS.iter().chain(NETWORKS).chain(brought)
}

#[cfg(feature = "networks")]
use starlings_nn::NETWORKS;
#[cfg(not(feature = "networks"))]
const NETWORKS: &[Entry<BuildLearner>] = &[];

/// Learners that are in no catalogue of ours. They are the program's, as the catalogues are: a job names them.
static BROUGHT: RwLock<Vec<&'static Entry<BuildLearner>>> = RwLock::new(Vec::new());

/// Adds a learner to those that jobs of this program can name. Each process that takes part in such a job adds it.
///
/// # Errors
/// A name that is taken.
pub fn register(entry: Entry<BuildLearner>) -> Result<()> {
    if learners().any(|other| other.name == entry.name) {
        return Err(Fault::caller(format!("there is a learner '{}' already", entry.name))
            .hint("register it once, under a name of its own"));
    }
    BROUGHT.write().unwrap_or_else(PoisonError::into_inner).push(Box::leak(Box::new(entry)));
    Ok(())
}

/// A learner by name, built.
///
/// # Errors
/// An unknown name or bad parameters.
pub fn learner(
    choice: &Choice,
) -> Result<(&'static Entry<BuildLearner>, Box<dyn Learner>, Params)> {
    let name = choice.name.as_str();
    let entry = learners().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<&str> = learners().map(|entry| entry.name).collect();
        let hint = kind_of(name).unwrap_or_else(|| suggestion(name, &known));
        Fault::caller(format!("unknown learner '{name}'")).hint(hint)
    })?;
    let params = entry.check("learner", &crate::trained_members::resolve(&choice.given)?)?;
    let learner = (entry.build)(&params)?;
    Ok((entry, learner, params))
}

/// What is no learner may be a kind of one: a word that a parameter of one learner alone takes.
fn kind_of(word: &str) -> Option<String> {
    let takes =
        |param: &Param| matches!(param.kind, ParamKind::Choice(words) if words.contains(&word));
    let mut found = learners()
        .filter_map(|entry| entry.params.iter().find(|param| takes(param)).map(|it| (entry, it)));
    let (entry, param) = found.next()?;
    let is_only = found.next().is_none();
    is_only.then(|| format!("set name = \"{}\" and {} = \"{word}\"", entry.name, param.name))
}

/// A consistency gate by name, with its parameters as in a job file: `gate("ssp", "bound = 3")`.
///
/// # Errors
/// An unknown name or bad parameters.
pub fn gate(name: &str, parameters: &str) -> Result<Arc<dyn Gate>> {
    let choice = Choice { name: name.to_string(), given: table(parameters)? };
    built("consistency", CONSISTENCIES, &choice).map(|(_, consistency)| consistency.gate.into())
}

/// An update rule of a table's owners by name, with its parameters as in a job file:
/// `rule("adagrad", "learning_rate = 0.1")`.
///
/// # Errors
/// An unknown name or bad parameters.
pub fn rule(name: &str, parameters: &str) -> Result<Arc<dyn Rule>> {
    let choice = Choice { name: name.to_string(), given: table(parameters)? };
    built("rule", RULES, &choice).map(|(_, rule)| rule)
}

/// A codec by name, with its parameters as in a job file: `codec("top-k", "ratio = 0.01")`.
///
/// # Errors
/// An unknown name or bad parameters.
pub fn codec(name: &str, parameters: &str) -> Result<Carriage> {
    let choice = Choice { name: name.to_string(), given: table(parameters)? };
    built("codec", CODECS, &choice).map(|(_, scheme)| scheme.into())
}

/// The exact codec, for sums that the engine itself needs.
///
/// # Panics
/// Never: the catalogue has it, as its tests show.
#[must_use]
pub fn raw() -> Arc<dyn Codec> {
    let entry = Entry::find("codec", CODECS, "raw").expect("the catalogue has the raw codec");
    let params = Params::defaults(entry.params).expect("raw has no required parameters");
    match (entry.build)(&params) {
        Ok(Scheme::Numbers(codec)) => codec.into(),
        _ => unreachable!("raw encodes each number by itself"),
    }
}

/// How an entry of a family is built from checked parameters.
type Build<T> = fn(&Params) -> Result<T>;

fn built<T>(
    family: &'static str,
    entries: &'static [Entry<Build<T>>],
    choice: &Choice,
) -> Result<(Card, T)> {
    let entry = Entry::find(family, entries, &choice.name)?;
    let params = entry.check(family, &choice.given)?;
    Ok((entry.card(family), (entry.build)(&params)?))
}

/// What a learner gives and needs with these parameters. Where a solver decides, its name is shown.
fn learner_card(entry: &Entry<BuildLearner>, learner: &dyn Learner, params: &Params) -> Card {
    let solver = entry.params.iter().any(|param| param.name == "solver");
    let name = match solver {
        true => format!("{} ({})", entry.name, params.text("solver")),
        false => entry.name.to_string(),
    };
    Card {
        family: "learner",
        name,
        gives: learner.gives().to_vec(),
        needs: learner.requires().to_vec(),
    }
}

/// The cards of all learners, one for each kind of solver where there are several: the first of those that give and need
/// the same stands for the others.
#[must_use]
pub fn learner_cards() -> Vec<Card> {
    learners().flat_map(variants).collect()
}

fn variants(entry: &'static Entry<BuildLearner>) -> Vec<Card> {
    variants_with(entry, &toml::Table::new())
}

fn variants_with(entry: &'static Entry<BuildLearner>, given: &toml::Table) -> Vec<Card> {
    let solvers = entry.params.iter().find(|param| param.name == "solver").map(|param| param.kind);
    let tables: Vec<toml::Table> = match solvers {
        Some(ParamKind::Choice(words)) => words
            .iter()
            .map(|word| {
                let mut table = given.clone();
                table.insert("solver".to_string(), (*word).into());
                table
            })
            .collect(),
        _ => vec![given.clone()],
    };
    let mut cards: Vec<Card> = Vec::new();
    for card in tables.into_iter().filter_map(|table| card_of(entry, table)) {
        let alike = |other: &Card| (&other.gives, &other.needs) == (&card.gives, &card.needs);
        if !cards.iter().any(alike) {
            cards.push(card);
        }
    }
    cards
}

/// Required parameters get the smallest value allowed: they do not decide what an entry needs.
fn card_of(entry: &'static Entry<BuildLearner>, mut table: toml::Table) -> Option<Card> {
    for param in entry.params.iter().filter(|param| param.default.is_none()) {
        let value: toml::Value = match param.kind {
            ParamKind::Float { min, .. } => min.into(),
            ParamKind::Integer { min, .. } => min.into(),
            ParamKind::Flag => false.into(),
            ParamKind::Choice(words) => words.first().copied()?.into(),
            ParamKind::Text => "".into(),
            ParamKind::Sizes { .. } | ParamKind::Texts => toml::Value::Array(Vec::new()),
            ParamKind::Table => toml::Table::new().into(),
            ParamKind::Tables => toml::value::Array::new().into(),
        };
        table.entry(param.name).or_insert(value);
    }
    let params = entry.check("learner", &table).ok()?;
    let learner = (entry.build)(&params).ok()?;
    Some(learner_card(entry, &*learner, &params))
}

/// Every card of every family.
#[must_use]
pub fn offers() -> Vec<Card> {
    let mut cards = learner_cards();
    cards.extend(PLANS.iter().map(|entry| entry.card("plan")));
    cards.extend(TOPOLOGIES.iter().map(|entry| entry.card("topology")));
    cards.extend(CONSISTENCIES.iter().map(|entry| entry.card("consistency")));
    cards.extend(CODECS.iter().map(|entry| entry.card("codec")));
    cards
}

/// Checks that choices can work together; a refusal offers what a job's workers could do, too.
fn fit_together(
    job: &Job,
    chosen: &[Card],
    (entry, learner): (&'static Entry<BuildLearner>, &dyn Learner),
) -> Result<()> {
    let mut offers = offers_with(&chosen[1], (entry, &job.learner.given));
    offers.retain(|card| card.family != "plan" || seats(card, job));
    let lack = |need| Some(Lack { why: learner.why_not(need)?, remedy: learner.remedy(need) });
    compat::check(chosen, &offers, &lack).map_err(|fault| without_place(fault, job))
}

/// Where stages were put on workers by hand, and another plan is advised: it would be refused together with them.
fn without_place(fault: Fault, job: &Job) -> Fault {
    let is_placed = job.plan.given.contains_key("workers");
    match fault.advice().filter(|advice| is_placed && advice.contains("plan '")) {
        Some(advice) => {
            let both = format!("{advice}; with another plan leave out [place]");
            fault.hint(both)
        }
        None => fault,
    }
}

/// Whether a plan has a place for each of a job's workers: the one that was chosen, and others as they are without parameters.
fn seats(card: &Card, job: &Job) -> bool {
    let choice = match card.name == job.plan.name {
        true => job.plan.clone(),
        false => Choice { name: card.name.clone(), given: toml::Table::new() },
    };
    built("plan", PLANS, &choice)
        .is_ok_and(|(_, plan)| plan.assign(Seat(0), job.workers, job.shards).is_ok())
}

/// The same as [`offers`], where a plan needs what it does with these parameters, and the learner that was chosen keeps its own but for
/// the solver.
fn offers_with(
    plan: &Card,
    (learner, given): (&'static Entry<BuildLearner>, &toml::Table),
) -> Vec<Card> {
    let mut cards = offers();
    let is_own = |card: &Card| {
        card.family == "learner" && card.name.split(" (").next() == Some(learner.name)
    };
    cards.retain(|card| !is_own(card));
    cards.splice(0..0, variants_with(learner, given));
    let is_it = |card: &&mut Card| (card.family, &card.name) == (plan.family, &plan.name);
    cards.iter_mut().filter(is_it).for_each(|card| card.needs.clone_from(&plan.needs));
    cards
}
