//! An error says who must act: the caller, a peer or this machine. Each layer adds a sentence and keeps
//! the cause. The blame decides the exit code of the command line.

use crate::Seat;
use std::fmt;

/// What every fallible call of Starlings returns.
pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// Who must act.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Blame {
    /// The caller: a bad job, bad data or a bad flag (exit code 2).
    Caller,
    /// The flock: a peer died, froze or broke the protocol (exit code 3). The seat is named where known.
    Peer(Option<Seat>),
    /// This machine: disk, memory, descriptors (exit code 4).
    Machine,
    /// Someone asked us to stop; a checkpoint was written if one was wanted (exit code 130).
    Interrupted,
}

/// An error with blame, a chain of sentences (outermost first) and a hint of what to do.
#[derive(Clone, Debug)]
pub struct Fault {
    blame: Blame,
    sentences: Vec<String>,
    hint: Option<String>,
    feature: Option<usize>,
}

impl Fault {
    /// The caller must act.
    pub fn caller(what: impl Into<String>) -> Fault {
        Fault::new(Blame::Caller, what)
    }

    /// A peer failed.
    pub fn peer(seat: Option<Seat>, what: impl Into<String>) -> Fault {
        Fault::new(Blame::Peer(seat), what)
    }

    /// This machine failed.
    pub fn machine(what: impl Into<String>) -> Fault {
        Fault::new(Blame::Machine, what)
    }

    /// Someone asked us to stop.
    pub fn interrupted(what: impl Into<String>) -> Fault {
        Fault::new(Blame::Interrupted, what)
    }

    /// A fault with explicit blame.
    pub fn new(blame: Blame, what: impl Into<String>) -> Fault {
        Fault { blame, sentences: vec![what.into()], hint: None, feature: None }
    }

    /// Adds an outer sentence: what was being done when this happened.
    #[must_use]
    pub fn during(mut self, doing: impl Into<String>) -> Fault {
        self.sentences.insert(0, doing.into());
        self
    }

    /// Adds the cause below the existing sentences.
    #[must_use]
    pub fn caused_by(mut self, cause: impl fmt::Display) -> Fault {
        self.sentences.push(cause.to_string());
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    /// It is about this feature. Whoever knows the columns names it, see [`name_feature`](Fault::name_feature).
    #[must_use]
    pub fn at_feature(mut self, feature: usize) -> Fault {
        self.feature = Some(feature);
        self
    }

    /// Names the feature that it is about in the user's own words, once.
    #[must_use]
    pub fn name_feature(mut self, name: impl FnOnce(usize) -> Option<String>) -> Fault {
        if let Some(feature) = self.feature.take()
            && let Some(name) = name(feature)
        {
            self.sentences.push(format!("feature {feature} is {name}"));
        }
        self
    }

    /// Who must act.
    #[must_use]
    pub fn blame(&self) -> Blame {
        self.blame
    }

    /// What to do, if anyone knows.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The chain of sentences without the hint, outermost first, joined by ": ".
    #[must_use]
    pub fn message(&self) -> String {
        self.sentences.join(": ")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentences.join(": "))?;
        match &self.hint {
            Some(hint) => write!(f, "\n  help: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::machine(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_read_from_the_outside_in() {
        let fault = Fault::peer(Some(Seat(2)), "connection reset")
            .during("waiting for chunk 3")
            .during("merge of step 7")
            .hint("look at rank 2's log");
        assert_eq!(
            fault.to_string(),
            "merge of step 7: waiting for chunk 3: connection reset\n  help: look at rank 2's log"
        );
        assert_eq!(fault.blame(), Blame::Peer(Some(Seat(2))));
    }

    #[test]
    fn a_feature_is_named_once_and_only_where_there_is_one() {
        let name = |feature: usize| (feature == 3).then(|| "column 'age'".to_string());
        let of = |feature| Fault::caller("a number is not finite").at_feature(feature);
        let named = of(3).name_feature(name).name_feature(name);
        assert_eq!(named.message(), "a number is not finite: feature 3 is column 'age'");
        assert_eq!(of(4).name_feature(name).message(), "a number is not finite");
        assert_eq!(Fault::caller("no rows").name_feature(name).message(), "no rows");
    }
}
