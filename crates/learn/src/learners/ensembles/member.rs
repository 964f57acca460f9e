//! The members of an ensemble: learners that a job nests as tables, built and checked once.

use super::NEEDS;
use super::foreign::{self, Foreign};
use crate::learners::LEARNERS;
use crate::{Learner, Task};
use starlings_core::{Entry, Fault, Result};
use starlings_data::{Encoding, LabelNeed, Prepared, Schema};

/// A learner within a learner.
pub(super) struct Member {
    /// Its name in the catalogue.
    pub(super) name: String,
    /// It.
    pub(super) learner: Box<dyn Learner>,
    /// How much its answer counts, where answers are weighed.
    pub(super) weight: f64,
    /// Where it comes from, if it was trained before and elsewhere.
    pub(super) trained: Option<Trained>,
}

/// A model that was trained before: it is asked and not trained.
pub(super) struct Trained {
    /// The model file.
    pub(super) path: String,
    /// What the rows meant that it was trained on.
    pub(super) schema: Schema,
    /// How columns were prepared before they were its rows.
    pub(super) prepared: Option<Prepared>,
}

impl Trained {
    /// What the rows mean that go in: those of the model, or those that are prepared for it.
    pub(super) fn raw(&self) -> Schema {
        match &self.prepared {
            None => self.schema.clone(),
            Some(prepared) => Schema {
                columns: prepared.raw.clone(),
                features: prepared.raw.len(),
                encoding: Encoding::Codes,
                ..self.schema.clone()
            },
        }
    }
}

/// Keys of a member's table that are not its learner's.
const NAME: &str = "name";
const WEIGHT: &str = "weight";
const MODEL: &str = "model";
const SCHEMA: &str = "schema";
const PREPARED: &str = "prepared";

impl Member {
    /// Builds one from its table; `at` names the place: `bagging: base`.
    pub(super) fn build(at: &str, table: &toml::Table) -> Result<Member> {
        if table.contains_key(MODEL) {
            return Err(Fault::caller(format!(
                "{at}: a model that is trained already cannot be trained"
            ))
            .hint("voting, stacking and bucket take model files as members"));
        }
        must_not_weigh(at, table)?;
        Member::any(at, table)
    }

    /// The same where it may be a model file: `model = "site-a.safetensors"`. Who reads files has put the learner's
    /// name, its parameters and the schema beside the path.
    fn any(at: &str, table: &toml::Table) -> Result<Member> {
        let mut given = table.clone();
        let trained = trained(at, &mut given)?;
        let name = match given.remove(NAME) {
            Some(toml::Value::String(name)) => name,
            _ => {
                return Err(Fault::caller(format!("{at} has no name"))
                    .hint("name the learner: name = \"decision-tree\""));
            }
        };
        let weight = match given.remove(WEIGHT) {
            None => 1.0,
            Some(toml::Value::Float(weight)) if weight.is_finite() && weight > 0.0 => weight,
            Some(toml::Value::Integer(weight)) if weight > 0 => weight as f64,
            Some(other) => {
                return Err(Fault::caller(format!("{at}: weight = {other} is not allowed"))
                    .hint("expected a number above 0: how much the member's answer counts"));
            }
        };
        let within = |fault: Fault| fault.during(at.to_string());
        let learner = match &trained {
            Some(trained) if name == foreign::NAME => {
                Box::new(Foreign::new(&mut given, &trained.schema).map_err(within)?)
            }
            _ => found(&name, &given).map_err(within)?,
        };
        if learner.requires().iter().any(|need| !NEEDS.contains(need)) {
            return Err(Fault::caller(format!("{at}: '{name}' cannot be a member of an ensemble"))
                .hint("its model is cut into stages, and members keep theirs whole"));
        }
        Ok(Member { name, learner, weight, trained })
    }

    /// Builds all of a list, of which none may have a weight.
    pub(super) fn all_alike(at: &str, tables: &[&toml::Table]) -> Result<Vec<Member>> {
        tables.iter().try_for_each(|table| must_not_weigh(at, table))?;
        Member::all(at, tables)
    }

    /// Builds all of a list, model files among them.
    pub(super) fn all(at: &str, tables: &[&toml::Table]) -> Result<Vec<Member>> {
        if tables.is_empty() {
            return Err(Fault::caller(format!("{at} has no members"))
                .hint("give each member as [[learner.members]] with its name and parameters"));
        }
        let member = |(number, table): (usize, &&toml::Table)| {
            Member::any(&format!("{at}: member {number}"), table)
        };
        let members = tables.iter().enumerate().map(member).collect::<Result<Vec<_>>>()?;
        agree(at, &members)?;
        Ok(members)
    }

    /// Refuses a member that takes no notice of weights.
    pub(super) fn must_weigh(&self, at: &str, why: &str) -> Result<()> {
        if self.learner.weighs() || self.trained.is_some() {
            return Ok(());
        }
        Err(Fault::caller(format!("{at}: {why}, and '{}' counts every row alike", self.name)).hint(
            format!("learners that weigh rows: {}", weighers(self.learner.task()).join(", ")),
        ))
    }

    /// Refuses a member for rows of which some have no label, where all must have one.
    pub(super) fn must_be_told(&self, at: &str) -> Result<()> {
        match self.learner.label() {
            LabelNeed::SomeClasses => Err(Fault::caller(format!(
                "{at}: '{}' is for rows of which some have no label, and here all must have one",
                self.name
            ))
            .hint("put the ensemble into self-training instead: its base may be any classifier")),
            _ => Ok(()),
        }
    }

    /// Refuses a member of another task than these.
    pub(super) fn must_answer(&self, at: &str, tasks: &[Task]) -> Result<()> {
        let task = self.learner.task();
        if tasks.contains(&task) {
            return Ok(());
        }
        let words: Vec<&str> = tasks.iter().map(|&task| word(task)).collect();
        Err(Fault::caller(format!("{at}: '{}' predicts {}", self.name, word(task)))
            .hint(format!("members must predict {}", words.join(" or "))))
    }
}

/// A learner of the catalogue.
fn found(name: &str, given: &toml::Table) -> Result<Box<dyn Learner>> {
    let entry = Entry::find("learner", LEARNERS, name)?;
    (entry.build)(&entry.check("learner", given)?)
}

/// Refuses a weight where answers are not weighed.
fn must_not_weigh(at: &str, table: &toml::Table) -> Result<()> {
    match table.contains_key(WEIGHT) {
        false => Ok(()),
        true => Err(Fault::caller(format!("{at}: unknown key 'weight'"))
            .hint("how much a member's answer counts is for voting")),
    }
}

fn trained(at: &str, given: &mut toml::Table) -> Result<Option<Trained>> {
    let Some(path) = given.remove(MODEL) else { return Ok(None) };
    let path = path.as_str().map(str::to_string).ok_or_else(|| {
        Fault::caller(format!("{at}: model = {path} is not allowed")).hint(
            "expected the path of a file written by starlings train --out, or of an ONNX file",
        )
    })?;
    let schema = given.remove(SCHEMA).and_then(|schema| schema.try_into().ok());
    let prepared = given.remove(PREPARED);
    let prepared = prepared.as_ref().and_then(toml::Value::as_str).map(Prepared::from_text);
    let prepared = prepared.transpose().map_err(|fault| fault.during(at.to_string()))?;
    match schema {
        Some(schema) => Ok(Some(Trained { path, schema, prepared })),
        None => Err(Fault::caller(format!("{at}: the model '{path}' was not read"))
            .hint("model files are read when a job is trained")),
    }
}

/// Members must answer the same question, and read rows that can be shown to all of them.
pub(super) fn agree(at: &str, members: &[Member]) -> Result<()> {
    let first = &members[0];
    for member in members {
        member.must_answer(at, &[Task::Classification, Task::Regression])?;
        let (here, there) = (member.learner.task(), first.learner.task());
        if here != there {
            return Err(Fault::caller(format!(
                "{at}: '{}' predicts {}, and '{}' {}",
                first.name,
                word(there),
                member.name,
                word(here)
            ))
            .hint("the members of one ensemble must all predict classes, or all numbers"));
        }
        if first.learner.label() != member.learner.label() {
            return Err(Fault::caller(format!(
                "{at}: of '{}' and '{}' one takes rows without a label, the other does not",
                first.name, member.name
            ))
            .hint("put the ensemble into self-training instead: its base may be any classifier"));
        }
        let identities = |member: &Member| member.learner.encoding() == Encoding::Identity;
        if identities(first) != identities(member) {
            return Err(Fault::caller(format!(
                "{at}: '{}' and '{}' do not read the same rows",
                first.name, member.name
            ))
            .hint("one takes every column as an identity, the other as a feature"));
        }
    }
    Ok(())
}

/// How an ensemble wants its features: as its members do, or as codes where they differ.
pub(super) fn encoding<'a>(members: impl IntoIterator<Item = &'a Member>) -> Encoding {
    let mut wanted = members.into_iter().map(|member| match &member.trained {
        // Its codes are its own: they are looked up by the texts that codes stand for.
        Some(trained) if !trained.raw().columns.is_empty() => Encoding::Codes,
        _ => member.learner.encoding(),
    });
    let first = wanted.next().unwrap_or(Encoding::OneHot);
    if wanted.all(|other| other == first) { first } else { Encoding::Codes }
}

/// What a task predicts.
pub(super) fn word(task: Task) -> &'static str {
    match task {
        Task::Classification => "classes",
        Task::Regression => "numbers",
        Task::Clustering => "clusters",
        Task::Recommendation => "ratings",
        Task::Topics => "topics",
        Task::Projection => "components",
        Task::Density => "densities",
        Task::Anomaly => "anomalies",
        Task::Ranking => "an order",
    }
}

/// The plain learners of a task that weigh rows with their defaults.
fn weighers(task: Task) -> Vec<&'static str> {
    let tables = |param: &starlings_core::Param| {
        matches!(param.kind, starlings_core::ParamKind::Table | starlings_core::ParamKind::Tables)
    };
    let plain = LEARNERS.iter().filter(|entry| !entry.params.iter().any(tables));
    let weighs = plain.filter(|entry| {
        let params = starlings_core::Params::defaults(entry.params);
        let learner = params.and_then(|params| (entry.build)(&params));
        learner.is_ok_and(|learner| learner.weighs() && learner.task() == task)
    });
    weighs.map(|entry| entry.name).collect()
}
