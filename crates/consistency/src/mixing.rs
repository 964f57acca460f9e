//! Mixing: how often neighbours average their models after a step.

/// How often neighbours mix after a step.
///
/// Laws: at least once, at most `rounds_max` times; a smaller distance never asks for more rounds; a larger
/// step never lowers the critical distance.
pub trait MixControl: Send + Sync {
    /// Whether to mix once more, when `rounds` were made after step `steps` and the root mean square distance of
    /// the models to their mean is at most `distance`: infinite where nothing is known of it. Nobody knows the mean, so this is
    /// a bound, made of how far mixing has moved the models and of the graph. `critical` is what
    /// [`MixControl::critical`] last returned.
    fn again(&self, steps: u64, rounds: u32, distance: f64, critical: f64) -> bool;

    /// The critical distance after a step whose models moved by `moved` (root mean square over workers), given
    /// the one before (0 at the start).
    fn critical(&self, moved: f64, before: f64) -> f64;
}
