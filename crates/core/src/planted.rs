//! Planted bugs: small, deliberate mistakes in the protocol that show what the simulator can see. A simulator that finds
//! nothing proves something only if it would have found something.
//!
//! They are in no program: in every ordinary build [`planted!`](crate::planted!) is the word `false`. Only
//! `cargo xtask planted` compiles with `--cfg planted`; then one of them, named at the start, is at work.

/// Whether the planted bug of this name is at work: never, but in builds with `--cfg planted`.
#[cfg(not(planted))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Whether the planted bug of this name is at work.
#[cfg(planted)]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::at_work($name)
    };
}

#[cfg(planted)]
static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Lets one bug be at work from now on. Only the first choice counts.
#[cfg(planted)]
pub fn plant(name: &str) {
    let _ = CHOSEN.set(name.to_string());
}

/// Whether this bug is the one.
#[cfg(planted)]
#[must_use]
pub fn at_work(name: &str) -> bool {
    CHOSEN.get().is_some_and(|chosen| chosen == name)
}
