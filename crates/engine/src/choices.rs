//! The choices of a job, built from the catalogues and checked against each other.

use crate::compat;
use crate::job::{Choice, Job};
use starlings_codec::{CODECS, Codec};
use starlings_consistency::{GATES, Gate};
use starlings_core::{Card, Entry, Fault, ParamKind, Params, Result};
use starlings_learn::{BuildLearner, LEARNERS, Learner};
use starlings_plan::{PLANS, Plan};
use starlings_topology::{TOPOLOGIES, Topology};
use std::sync::Arc;

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
    pub topology: Arc<dyn Topology>,
    /// When a worker may go on.
    pub gate: Arc<dyn Gate>,
    /// How contributions travel.
    pub codec: Arc<dyn Codec>,
    /// Whether the model lives at owners: the topology serves and the learner applies row by row.
    pub served: bool,
}

impl Choices {
    /// Finds and builds what a job names, and checks that it fits together.
    ///
    /// # Errors
    /// Unknown names, bad parameters or a combination that makes no sense, each with what would work.
    pub fn of(job: &Job) -> Result<Choices> {
        let (entry, learner, params) = learner(&job.learner)?;
        let (plan_card, plan) = built("plan", PLANS, &job.plan)?;
        let (topology_card, topology) = built("topology", TOPOLOGIES, &job.topology)?;
        let (gate_card, gate) = built("consistency", GATES, &job.consistency)?;
        let (codec_card, codec) = built("codec", CODECS, &job.codec)?;
        let learner_card = learner_card(entry, &*learner, &params);
        let served = topology_card.gives.contains(&starlings_core::Ability::Served)
            && learner_card.gives.contains(&starlings_core::Ability::RowWise);
        let chosen = [learner_card, plan_card, topology_card, gate_card, codec_card];
        compat::check(&chosen, &offers())?;
        Ok(Choices {
            learner: learner.into(),
            params,
            plan: plan.into(),
            topology: topology.into(),
            gate: gate.into(),
            codec: codec.into(),
            served,
        })
    }
}

/// A learner by name, built.
///
/// # Errors
/// An unknown name or bad parameters.
pub fn learner(
    choice: &Choice,
) -> Result<(&'static Entry<BuildLearner>, Box<dyn Learner>, Params)> {
    let entry = Entry::find("learner", LEARNERS, &choice.name)?;
    let params = entry.check("learner", &choice.given)?;
    let learner = (entry.build)(&params)?;
    Ok((entry, learner, params))
}

/// A consistency gate by name, with its parameters as in a job file: `gate("ssp", "bound = 3")`.
///
/// # Errors
/// An unknown name or bad parameters.
pub fn gate(name: &str, parameters: &str) -> Result<Arc<dyn Gate>> {
    let wrong =
        |error: toml::de::Error| Fault::caller(format!("'{parameters}': {}", error.message()));
    let choice = Choice { name: name.to_string(), given: parameters.parse().map_err(wrong)? };
    built("consistency", GATES, &choice).map(|(_, gate)| gate.into())
}

/// The exact codec, for sums that the engine itself needs.
///
/// # Panics
/// Never: the catalogue has it, as its tests show.
#[must_use]
pub fn raw() -> Arc<dyn Codec> {
    let entry = Entry::find("codec", CODECS, "raw").expect("the catalogue has the raw codec");
    let params = Params::defaults(entry.params).expect("raw has no required parameters");
    (entry.build)(&params).expect("raw always builds").into()
}

/// How an entry of a family is built from checked parameters.
type Build<T> = fn(&Params) -> Result<Box<T>>;

fn built<T: ?Sized>(
    family: &'static str,
    entries: &'static [Entry<Build<T>>],
    choice: &Choice,
) -> Result<(Card, Box<T>)> {
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

/// The cards of all learners, one for each solver where there are several.
#[must_use]
pub fn learner_cards() -> Vec<Card> {
    LEARNERS.iter().flat_map(variants).collect()
}

fn variants(entry: &'static Entry<BuildLearner>) -> Vec<Card> {
    let solvers = entry.params.iter().find(|param| param.name == "solver").map(|param| param.kind);
    let tables: Vec<toml::Table> = match solvers {
        Some(ParamKind::Choice(words)) => words
            .iter()
            .map(|word| toml::Table::from_iter([("solver".to_string(), (*word).into())]))
            .collect(),
        _ => vec![toml::Table::new()],
    };
    tables.into_iter().filter_map(|table| card_of(entry, table)).collect()
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
        };
        table.insert(param.name.to_string(), value);
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
    cards.extend(GATES.iter().map(|entry| entry.card("consistency")));
    cards.extend(CODECS.iter().map(|entry| entry.card("codec")));
    cards
}

/// The table of all combinations: one line each, `yes` or the reason why not.
#[must_use]
pub fn combinations() -> Vec<(Vec<String>, Result<()>)> {
    let cards = offers();
    let family = |name: &str| -> Vec<Card> {
        cards.iter().filter(|card| card.family == name).cloned().collect()
    };
    let mut rows = vec![Vec::new()];
    for name in ["learner", "plan", "topology", "consistency", "codec"] {
        let choices = family(name);
        rows = rows
            .into_iter()
            .flat_map(|row: Vec<Card>| {
                choices.iter().map(move |card| [row.clone(), vec![card.clone()]].concat())
            })
            .collect();
    }
    rows.into_iter()
        .map(|row| {
            let verdict = compat::check(&row, &cards);
            (row.into_iter().map(|card| card.name).collect(), verdict)
        })
        .collect()
}
