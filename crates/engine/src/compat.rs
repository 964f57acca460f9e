//! Which combinations make sense: one pure function over what the chosen entries give and need. A refusal
//! says who needs what, and which choices would give it.

use starlings_core::{Ability, Card, Fault, Result};

/// Whether these choices can work together: every need must be met by something chosen.
///
/// # Errors
/// The first unmet need, in the order of the cards, as a sentence that says why and what would work.
/// `offers` lists all entries of all families, to name those that would help: only those with which the other choices
/// would be accepted. `lack` says why the learner does not give what it might, where its parameters are the reason.
pub fn check(
    chosen: &[Card],
    offers: &[Card],
    lack: &dyn Fn(Ability) -> Option<Lack>,
) -> Result<()> {
    match unmet(chosen) {
        Some((card, need)) => Err(refusal(card, need, (chosen, offers), lack)),
        None => Ok(()),
    }
}

/// Why a learner does not give something that it would give with other parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lack {
    /// The reason.
    pub why: String,
    /// What to change of its parameters.
    pub remedy: Option<String>,
}

/// The first need that nothing meets, and whose it is.
fn unmet(chosen: &[Card]) -> Option<(&Card, Ability)> {
    let gives = |need| chosen.iter().any(|other| other.gives.contains(&need));
    let mut needs = chosen.iter().flat_map(|card| card.needs.iter().map(move |&need| (card, need)));
    needs.find(|(_, need)| !gives(*need))
}

/// What of a family could stand in the place of what was chosen there. Where it is only another solver, nothing else is named.
fn instead(family: &str, chosen: &[Card], offers: &[Card]) -> Vec<String> {
    let Some(at) = chosen.iter().position(|card| card.family == family) else { return Vec::new() };
    let fits = |offer: &&Card| {
        let mut others = chosen.to_vec();
        others[at] = (*offer).clone();
        offer.family == family && unmet(&others).is_none()
    };
    let found: Vec<&Card> = offers.iter().filter(fits).collect();
    let entry = |card: &Card| card.name.split(" (").next().unwrap_or_default().to_string();
    let own: Vec<&Card> =
        found.iter().copied().filter(|card| entry(card) == entry(&chosen[at])).collect();
    let found = if own.is_empty() { found } else { own };
    found.into_iter().map(|card| format!("'{}'", card.name)).collect()
}

/// Whether these are all the chosen learner with another solver.
fn is_own(names: &[String], chosen: &[Card]) -> bool {
    let entry = |name: &str| name.trim_matches('\'').split(" (").next().unwrap_or("").to_string();
    let mine = chosen.iter().find(|card| card.family == "learner").map(|card| entry(&card.name));
    names.iter().all(|name| Some(entry(name)) == mine)
}

/// As [`check`], without naming what would work: that takes a try of every offer.
///
/// # Errors
/// The first unmet need.
pub(crate) fn verdict(chosen: &[Card], offers: &[Card]) -> Result<()> {
    match unmet(chosen) {
        Some((card, need)) => Err(lacking(card, need, (chosen, giver(need, offers)), &|_| None)),
        None => Ok(()),
    }
}

/// The family that could have given something.
fn giver(need: Ability, offers: &[Card]) -> Option<&'static str> {
    offers.iter().find(|offer| offer.gives.contains(&need)).map(|offer| offer.family)
}

/// Who needs what, and what was chosen where it could have been given.
fn lacking(
    card: &Card,
    need: Ability,
    (chosen, family): (&[Card], Option<&str>),
    lack: &dyn Fn(Ability) -> Option<Lack>,
) -> Fault {
    let lacking = Fault::caller(format!("{} '{}' needs {need}", card.family, card.name));
    let Some(family) = family else { return lacking };
    let other = chosen.iter().find(|other| other.family == family);
    let reason = lack(need).filter(|_| family == "learner");
    match (other, reason) {
        (Some(other), Some(Lack { why, .. })) => {
            lacking.caused_by(format!("{family} '{}' does not give that: {why}", other.name))
        }
        (Some(other), None) => {
            lacking.caused_by(format!("{family} '{}' does not give that", other.name))
        }
        (None, _) => lacking,
    }
}

fn refusal(
    card: &Card,
    need: Ability,
    (chosen, offers): (&[Card], &[Card]),
    lack: &dyn Fn(Ability) -> Option<Lack>,
) -> Fault {
    let family = giver(need, offers);
    let told = lacking(card, need, (chosen, family), lack);
    let Some(family) = family else {
        return told.hint(format!("nothing gives that yet: choose another {}", card.family));
    };
    let remedy = lack(need).filter(|_| family == "learner").and_then(|lack| lack.remedy);
    let mut ways = Vec::new();
    // Whoever can be helped by a parameter does not want another learner.
    let families = if remedy.is_some() { vec![card.family] } else { vec![family, card.family] };
    for family in families {
        let names = instead(family, chosen, offers);
        let told = format!("{family} {}", names.join(" or "));
        if !names.is_empty() && !ways.iter().any(|(it, _)| *it == told) {
            ways.push((told, family == "learner" && !is_own(&names, chosen)));
        }
    }
    // Another learner would solve another problem: it is named where nothing else helps.
    if ways.iter().any(|(_, is_other)| !is_other) {
        ways.retain(|(_, is_other)| !is_other);
    }
    let ways: Vec<String> = ways.into_iter().map(|(told, _)| told).collect();
    let choose = format!("choose {}", ways.join(", or "));
    told.hint(match (remedy, ways.is_empty()) {
        (Some(remedy), true) => remedy,
        (Some(remedy), false) => format!("{remedy}, or {choose}"),
        (None, false) => choose,
        (None, true) => format!("no other {family} or {} alone would do: change both", card.family),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(family: &'static str, name: &str, gives: &[Ability], needs: &[Ability]) -> Card {
        Card { family, name: name.into(), gives: gives.to_vec(), needs: needs.to_vec() }
    }

    #[test]
    fn a_refusal_names_the_need_and_what_would_work() {
        let ring = card("topology", "ring", &[Ability::Sum], &[Ability::Barrier]);
        let star = card("topology", "star", &[Ability::Sum, Ability::Served], &[]);
        let bsp = card("consistency", "bsp", &[Ability::Barrier], &[]);
        let ssp = card("consistency", "ssp", &[], &[Ability::Served]);
        let offers = [ring.clone(), star.clone(), bsp.clone(), ssp.clone()];
        let fault =
            check(&[ring.clone(), ssp.clone()], &offers, &|_| None).unwrap_err().to_string();
        assert!(fault.contains("topology 'ring' needs all workers to finish"), "{fault}");
        assert!(fault.contains("choose consistency 'bsp', or topology 'star'"), "{fault}");
        let fault =
            check(&[ssp.clone(), ring.clone()], &offers, &|_| None).unwrap_err().to_string();
        assert!(fault.contains("consistency 'ssp' needs owners that answer"), "{fault}");
        assert!(fault.contains("choose topology 'star', or consistency 'bsp'"), "{fault}");
        assert!(check(&[star.clone(), ssp.clone()], &offers, &|_| None).is_ok());
        assert!(check(&[ring.clone(), bsp], &offers, &|_| None).is_ok());
    }
    /// What would meet the one need and break another is not offered, and a learner that cannot says why.
    #[test]
    fn only_what_would_be_accepted_is_offered() {
        let ring = card("topology", "ring", &[Ability::Sum], &[Ability::Barrier]);
        let gossip = card("topology", "gossip", &[Ability::Mixing], &[Ability::LocalSteps]);
        let star = card("topology", "star", &[Ability::Sum, Ability::Served], &[]);
        let ssp = card("consistency", "ssp", &[], &[Ability::Served]);
        let bsp = card("consistency", "bsp", &[Ability::Barrier], &[]);
        let tree = card("learner", "trees", &[], &[Ability::Sum]);
        let offers =
            [ring.clone(), gossip.clone(), star.clone(), ssp.clone(), bsp.clone(), tree.clone()];
        let fault = check(&[tree.clone(), ring, ssp], &offers, &|_| None).unwrap_err().to_string();
        assert!(fault.contains("'star'") && !fault.contains("gossip"), "{fault}");
        let able = card("learner", "mlp (sgd)", &[Ability::LocalSteps], &[]);
        let offers = [offers.as_slice(), std::slice::from_ref(&able)].concat();
        let mlp = card("learner", "mlp (adam)", &[], &[]);
        let lack = |remedy: Option<&str>| {
            let (why, remedy) = ("dropout".to_string(), remedy.map(str::to_string));
            move |_| Some(Lack { why: why.clone(), remedy: remedy.clone() })
        };
        let chosen = [mlp, gossip, bsp];
        let fault = check(&chosen, &offers, &lack(None)).unwrap_err().to_string();
        assert!(fault.contains("'mlp (adam)' does not give that: dropout"), "{fault}");
        assert!(
            fault.contains("choose learner 'mlp (sgd)', or topology 'ring' or 'star'"),
            "{fault}"
        );
        // What its own parameters would cure needs no other learner.
        let cured = lack(Some("leave it out"));
        let fault = check(&chosen, &offers, &cured).unwrap_err().to_string();
        assert!(fault.contains("leave it out, or choose topology 'ring' or 'star'"), "{fault}");
    }
}
