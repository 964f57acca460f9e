//! The catalogue: each family is one `static` slice of entries, and every surface (command line, job file,
//! documentation, conformance, benchmarks) reads the slice. Adding a choice is a new file and two lines.

use crate::{Fault, Param, Params, Result, suggestion};
use std::fmt;

/// What an entry gives to, or needs from, the other choices of a job. A combination makes sense when every
/// need is met by what the chosen entries together give.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// All workers finish a step together.
    Barrier,
    /// Contributions are folded into one sum that all workers see.
    Sum,
    /// The model lives at owners that answer pushes and pulls at any time.
    Served,
    /// Encoded blocks can be folded on the way.
    Summable,
    /// Numbers arrive exactly as they were sent.
    Lossless,
    /// The learner's `apply` works row by row, so that it can run where the row lives.
    RowWise,
    /// The plan cuts the model into stages, and gives wires between them.
    Stages,
    /// The learner's model can be cut into stages.
    StagedModel,
    /// The learner's layers can be split among workers that compute the same rows.
    SplitModel,
    /// The plan gives every worker the whole model.
    WholeModel,
    /// Every contribution reaches, as it is, whoever folds it.
    Contributions,
    /// The learner can take a step on its own rows alone, so that models may differ between exchanges.
    LocalSteps,
    /// Workers mix their models with those of neighbours.
    Mixing,
    /// Nobody need wait for anybody.
    Anytime,
    /// The codec encodes each number by itself.
    Elementwise,
    /// One message of the codec tells its receiver all it needs.
    OneWay,
    /// The learner can emit a matrix as the factors it is made of.
    Factors,
    /// Rows are moved to other workers by what is in them.
    Shuffle,
    /// The consistency model lets everyone go on at any time.
    Unbounded,
}

impl Ability {
    /// Why someone needs it, as the middle of the sentence "X needs …".
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Ability::Barrier => "all workers to finish a step together",
            Ability::Sum => "one agreed sum of all contributions",
            Ability::Served => "owners that answer pushes and pulls at any time",
            Ability::Summable => "a codec whose blocks can be folded on the way",
            Ability::Lossless => "numbers that arrive exactly as they were sent",
            Ability::RowWise => "a learner whose updates can be applied row by row at their owner",
            Ability::Stages => "a plan that cuts the model into stages",
            Ability::StagedModel => "a learner whose model can be cut into stages",
            Ability::SplitModel => "a learner whose layers can be split among workers",
            Ability::WholeModel => "a plan that gives every worker the whole model",
            Ability::Contributions => {
                "a topology that carries contributions whole to who folds them"
            }
            Ability::LocalSteps => "a learner that can take steps on its own rows alone",
            Ability::Mixing => "neighbours that mix their models",
            Ability::Anytime => "a topology in which nobody has to wait",
            Ability::Elementwise => "a codec that encodes each number by itself",
            Ability::OneWay => "a codec that is done in one message",
            Ability::Unbounded => "a consistency model under which nobody waits for anybody",
            Ability::Shuffle => "rows that are to move to other workers (Flock::shuffle)",
            Ability::Factors => "a learner that emits matrices as the factors they are made of",
        }
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// One choice of a family. `B` is how it is built, usually `fn(&Params) -> Result<Box<dyn Family>>`.
pub struct Entry<B: 'static> {
    /// The literature's name, in kebab-case.
    pub name: &'static str,
    /// One sentence for people.
    pub summary: &'static str,
    /// The paper or text that defines it.
    pub reference: &'static str,
    /// Its parameters.
    pub params: &'static [Param],
    /// What it gives to the other choices.
    pub gives: &'static [Ability],
    /// What it needs from the other choices.
    pub needs: &'static [Ability],
    /// Builds it from checked parameters.
    pub build: B,
}

/// What a choice gives and needs, once its parameters are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The family, singular: "learner", "topology" …
    pub family: &'static str,
    /// The name, with the deciding parameter where there is one: "logistic-regression (lbfgs)".
    pub name: String,
    /// What it gives.
    pub gives: Vec<Ability>,
    /// What it needs.
    pub needs: Vec<Ability>,
}

impl<B> Entry<B> {
    /// Finds an entry by name.
    ///
    /// # Errors
    /// An unknown name, with the nearest known one.
    pub fn find<'a>(family: &str, entries: &'a [Entry<B>], name: &str) -> Result<&'a Entry<B>> {
        entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            let known: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
            Fault::caller(format!("unknown {family} '{name}'")).hint(suggestion(name, &known))
        })
    }

    /// Checks a job's table against this entry's parameters.
    ///
    /// # Errors
    /// See [`Params::check`].
    pub fn check(&self, family: &str, given: &toml::Table) -> Result<Params> {
        Params::check(&format!("{family} '{}'", self.name), given, self.params)
    }

    /// The entry's card.
    #[must_use]
    pub fn card(&self, family: &'static str) -> Card {
        Card {
            family,
            name: self.name.to_string(),
            gives: self.gives.to_vec(),
            needs: self.needs.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: &[Entry<fn() -> u8>] = &[Entry {
        name: "ring",
        summary: "",
        reference: "",
        params: &[],
        gives: &[Ability::Sum],
        needs: &[],
        build: || 1,
    }];

    #[test]
    fn a_misspelt_name_gets_the_nearest_right_one() {
        let fault = Entry::find("topology", ENTRIES, "rign").err().unwrap().to_string();
        assert!(fault.contains("unknown topology 'rign'") && fault.contains("'ring'"), "{fault}");
        assert_eq!((Entry::find("topology", ENTRIES, "ring").unwrap().build)(), 1);
    }
}
