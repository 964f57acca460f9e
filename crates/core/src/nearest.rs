//! The nearest right word for a misspelt one, for every message that refuses a name.

/// The candidate closest to `word`, if any is close enough to be what was meant.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 3)
        .map(|(_, candidate)| candidate)
}

/// A hint for a misspelt word: the nearest candidate, or all of them.
#[must_use]
pub fn suggestion(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("known: {}", candidates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised() {
        assert_eq!(nearest("kmeans", ["k-means", "ring"]), Some("k-means"));
        assert_eq!(nearest("rnig", ["ring", "tree", "star"]), Some("ring"));
        assert_eq!(nearest("elephant", ["ring", "tree"]), None);
        assert_eq!(suggestion("x", &["ring", "tree"]), "known: ring, tree");
    }
}
