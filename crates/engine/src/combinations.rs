//! All combinations of the five words of a job, and tables of them that people can read: for each two families which
//! entries can be in one job, and why the others cannot.

use crate::choices::offers;
use crate::compat;
use starlings_core::{Card, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The families of a job's words, in the order of a combination.
pub const FAMILIES: [&str; 5] = ["learner", "plan", "topology", "consistency", "codec"];

/// One entry of each family, by its place in the catalogue.
type Places = [usize; 5];

/// All entries, and which combinations of them make sense.
pub struct Combinations {
    cards: [Vec<Card>; 5],
    all: Vec<Card>,
    valid: Vec<Places>,
}

/// Two entries of different families.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// The first entry's name.
    pub first: String,
    /// The second entry's name.
    pub second: String,
    /// A combination with both that makes sense, or one without sense.
    pub example: Vec<String>,
    /// Why no combination with both makes sense.
    pub why_not: Option<String>,
}

impl Default for Combinations {
    fn default() -> Combinations {
        let all = offers();
        let cards = FAMILIES.map(|family| {
            all.iter().filter(|card| card.family == family).cloned().collect::<Vec<Card>>()
        });
        let mut combinations = Combinations { cards, all, valid: Vec::new() };
        let lens = combinations.cards.each_ref().map(Vec::len);
        let mut at = [0; 5];
        loop {
            if combinations.verdict(at).is_ok() {
                combinations.valid.push(at);
            }
            // The last family turns fastest, as on a counter.
            let Some(turn) = (0..5).rev().find(|&family| at[family] + 1 < lens[family]) else {
                return combinations;
            };
            at[turn] += 1;
            at[turn + 1..].fill(0);
        }
    }
}

impl Combinations {
    fn verdict(&self, at: Places) -> Result<()> {
        let chosen: Vec<Card> =
            (0..5).map(|family| self.cards[family][at[family]].clone()).collect();
        compat::verdict(&chosen, &self.all)
    }

    fn names(&self, at: Places) -> Vec<String> {
        (0..5).map(|family| self.cards[family][at[family]].name.clone()).collect()
    }

    /// How many combinations make sense.
    #[must_use]
    pub fn count(&self) -> usize {
        self.valid.len()
    }

    /// Names of a combination that makes sense, by number.
    #[must_use]
    pub fn valid(&self, number: usize) -> Vec<String> {
        self.names(self.valid[number])
    }

    /// All pairs of entries of two families (places in [`FAMILIES`]).
    #[must_use]
    pub fn pairs(&self, first: usize, second: usize) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for a in 0..self.cards[first].len() {
            for b in 0..self.cards[second].len() {
                let with_both =
                    self.valid.iter().find(|at| at[first] == a && at[second] == b).copied();
                let (example, why_not) = match with_both {
                    Some(at) => (at, None),
                    None => self.refusal((first, a), (second, b)),
                };
                pairs.push(Pair {
                    first: self.cards[first][a].name.clone(),
                    second: self.cards[second][b].name.clone(),
                    example: self.names(example),
                    why_not,
                });
            }
        }
        pairs
    }

    /// Why two entries cannot be together: the shortest of the reasons given for combinations in which the first
    /// entry would work but for the second.
    fn refusal(
        &self,
        (first, a): (usize, usize),
        (second, b): (usize, usize),
    ) -> (Places, Option<String>) {
        let fallback = [0; 5];
        let with_first = self.valid.iter().filter(|at| at[first] == a).copied();
        let tried = with_first.chain([fallback]).map(|mut at| {
            (at[first], at[second]) = (a, b);
            (at, self.verdict(at).err().map(|fault| fault.message()))
        });
        // Combinations in which only these two disagree say best what is wrong.
        let names = [&self.cards[first][a].name, &self.cards[second][b].name];
        let about = |why: &Option<String>| {
            let says = |name: &&String| why.as_ref().is_some_and(|why| why.contains(name.as_str()));
            2 - names.iter().filter(|name| says(name)).count()
        };
        tried
            .take(2_000)
            .min_by_key(|(_, why)| (about(why), why.as_ref().map_or(usize::MAX, String::len)))
            .unwrap_or((fallback, None))
    }

    /// A list of combinations that make sense in which every pair of entries that can be together is, once at least.
    #[must_use]
    pub fn covering(&self) -> Vec<Vec<String>> {
        let mut missing: BTreeSet<((usize, usize), (usize, usize))> = BTreeSet::new();
        let pairs_of = |at: &Places| {
            let at = *at;
            (0..5).flat_map(move |a| (a + 1..5).map(move |b| ((a, at[a]), (b, at[b]))))
        };
        missing.extend(self.valid.iter().flat_map(pairs_of));
        let mut list = Vec::new();
        while !missing.is_empty() {
            let gain = |at: &&Places| pairs_of(at).filter(|pair| missing.contains(pair)).count();
            let Some(best) = self.valid.iter().max_by_key(gain).copied() else { break };
            for pair in pairs_of(&best) {
                missing.remove(&pair);
            }
            list.push(self.names(best));
        }
        list
    }

    /// The tables as Markdown.
    #[must_use]
    pub fn tables(&self) -> String {
        let mut text = String::new();
        for (first, second) in
            [(2, 3), (2, 4), (3, 4), (0, 2), (0, 3), (0, 4), (1, 0), (1, 2), (1, 3), (1, 4)]
        {
            text += &self.table(first, second);
        }
        text
    }

    fn table(&self, first: usize, second: usize) -> String {
        let columns: Vec<&str> = self.cards[second].iter().map(|card| card.name.as_str()).collect();
        let mut text = format!(
            "## {} × {}\n\n| | {} |\n|---|{}\n",
            FAMILIES[first],
            FAMILIES[second],
            columns.join(" | "),
            "---|".repeat(columns.len())
        );
        let pairs = self.pairs(first, second);
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in pairs.chunks(columns.len()) {
            text += &format!("| {} |", row[0].first);
            for pair in row {
                text += if pair.why_not.is_none() { " yes |" } else { " – |" };
                if let Some(why) = &pair.why_not {
                    let names = format!("{} with {}", pair.first, pair.second);
                    reasons.entry(why.clone()).or_default().push(names);
                }
            }
            text.push('\n');
        }
        text.push('\n');
        for (why, names) in reasons {
            text += &format!("- {}: {why}\n", names.join(", "));
        }
        if !text.ends_with("\n\n") {
            text.push('\n');
        }
        text
    }
}
