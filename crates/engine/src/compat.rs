//! Which combinations make sense: one pure function over what the chosen entries give and need. A refusal
//! says who needs what, and which choices would give it.

use starlings_core::{Ability, Card, Fault, Result};

/// Whether these choices can work together: every need must be met by something chosen.
///
/// # Errors
/// The first unmet need, in the order of the cards, as a sentence that says why and what would work.
/// `offers` lists all entries of all families, to name those that would help.
pub fn check(chosen: &[Card], offers: &[Card]) -> Result<()> {
    for card in chosen {
        for &need in &card.needs {
            if !chosen.iter().any(|other| other.gives.contains(&need)) {
                return Err(refusal(card, need, chosen, offers));
            }
        }
    }
    Ok(())
}

fn refusal(card: &Card, need: Ability, chosen: &[Card], offers: &[Card]) -> Fault {
    let lacking = Fault::caller(format!("{} '{}' needs {need}", card.family, card.name));
    // Some family could have given it: name what was chosen there and what would do.
    let family = offers.iter().find(|offer| offer.gives.contains(&need)).map(|offer| offer.family);
    let Some(family) = family else {
        return lacking.hint(format!("nothing gives that yet: choose another {}", card.family));
    };
    let would: Vec<String> = offers
        .iter()
        .filter(|offer| offer.family == family && offer.gives.contains(&need))
        .map(|offer| format!("'{}'", offer.name))
        .collect();
    let instead = chosen.iter().find(|other| other.family == family);
    let lacking = match instead {
        Some(other) => lacking.caused_by(format!("{family} '{}' does not give that", other.name)),
        None => lacking,
    };
    let alternatives: Vec<String> = offers
        .iter()
        .filter(|offer| offer.family == card.family && !offer.needs.contains(&need))
        .map(|offer| format!("'{}'", offer.name))
        .collect();
    let mut hint = format!("choose {family} {}", would.join(" or "));
    if !alternatives.is_empty() {
        hint += &format!(", or {} {}", card.family, alternatives.join(" or "));
    }
    lacking.hint(hint)
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
        let fault = check(&[ring.clone(), ssp.clone()], &offers).unwrap_err().to_string();
        assert!(fault.contains("topology 'ring' needs all workers to finish"), "{fault}");
        assert!(fault.contains("choose consistency 'bsp', or topology 'star'"), "{fault}");
        let fault = check(&[ssp.clone(), ring.clone()], &offers).unwrap_err().to_string();
        assert!(fault.contains("consistency 'ssp' needs owners that answer"), "{fault}");
        assert!(fault.contains("choose topology 'star', or consistency 'bsp'"), "{fault}");
        assert!(check(&[star, ssp], &offers).is_ok());
        assert!(check(&[ring, bsp], &offers).is_ok());
    }
}
