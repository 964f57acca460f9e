//! The kinds of messages on the exchange lane. Whoever waits on it takes what has its kind, so that what may be under way in one
//! epoch at the same time must differ: all of them do, and are written here and nowhere else.

/// Constants, and a list of them for the test.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: u8 = $kind;)*
        #[cfg(test)]
        const ALL: &[(&str, u8)] = &[$((stringify!($name), $kind)),*];
    };
}

kinds! {
    /// Sums of contributions.
    SUMS = 1;
    /// Sums of all groups' words, where groups sum by themselves; exact sums of a flock with a loop of its own.
    WORLD = 2;
    /// Exact sums of all; also barriers.
    EXACT = 3;
    /// Buckets of blocks that leave early.
    BUCKETS = 4;
    /// Sums of contributions inside a group of owners.
    GROUP = 5;
    /// Exact sums inside a group of owners.
    WITHIN = 6;
    /// Exponents of the reproducible fold.
    PEAKS = 7;
    /// Models that neighbours mix.
    MIXED = 8;
    /// Models that walk.
    WALKING = 9;
    /// Parts of gradients in turn.
    PARTIAL = 10;
    /// A courier's message to itself: there is something new to do.
    WAKE = 11;
    /// Rows and messages from all to all.
    SHUFFLED = 13;
    /// Sums of an evaluation.
    EXAM_SUMS = 15;
    /// Shuffles of an evaluation.
    EXAM_PARTS = 16;
    /// Sums of circles. No seat is in two circles at once.
    CIRCLES = 18;
    /// What a link carries is measured.
    PROBE = 19;
    /// Members say how far they are.
    STANDINGS = 20;
    /// The checkpoint that all go back to.
    CHECKPOINT = 21;
    /// Members tell what became of their shards of the model.
    OWNERS = 22;
    /// A model that lived at owners is put together.
    REBUILT = 23;
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn no_two_kinds_are_the_same() {
        for (at, (name, kind)) in ALL.iter().enumerate() {
            let same = ALL[..at].iter().find(|(_, other)| other == kind);
            assert_eq!(same, None, "{name}");
        }
    }
}
