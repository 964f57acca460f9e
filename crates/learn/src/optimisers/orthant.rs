//! The orthant-wise half of OWL-QN (Andrew and Gao, "Scalable training of L1-regularized log-linear models", 2007).
//! Within an orthant l1·|x| is linear: the quasi-Newton direction of the smooth part is followed there, and what would
//! cross to another orthant stops at zero.

/// The steepest slope of f(x) + Σ l1ᵢ·|xᵢ| (the paper's ⋄F): zero where both signs would climb.
pub(crate) fn pseudo_gradient(point: &[f64], gradient: &[f64], l1: &[f64], into: &mut [f64]) {
    for (at, into) in into.iter_mut().enumerate() {
        let (x, slope, l1) = (point[at], gradient[at], l1[at]);
        *into = if x > 0.0 {
            slope + l1
        } else if x < 0.0 {
            slope - l1
        } else if slope + l1 < 0.0 {
            slope + l1
        } else if slope - l1 > 0.0 {
            slope - l1
        } else {
            0.0
        };
    }
}

/// Drops the parts of a direction that do not descend (the paper's π(d; −⋄F)), where there is a penalty.
pub(crate) fn align(direction: &mut [f64], pseudo_gradient: &[f64], l1: &[f64]) {
    for ((direction, slope), l1) in direction.iter_mut().zip(pseudo_gradient).zip(l1) {
        if *l1 > 0.0 && *direction * slope >= 0.0 {
            *direction = 0.0;
        }
    }
}

/// Stops at zero what has left the orthant of the point; from zero the pseudo-gradient says which orthant it is.
/// Coordinates with l1 = 0 go where they like.
pub(crate) fn project(trial: &mut [f64], point: &[f64], pseudo_gradient: &[f64], l1: &[f64]) {
    for (at, trial) in trial.iter_mut().enumerate() {
        let orthant = if point[at] != 0.0 { point[at] } else { -pseudo_gradient[at] };
        if l1[at] > 0.0 && *trial * orthant <= 0.0 {
            *trial = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_at_zero_are_those_that_descend() {
        let mut found = [0.0; 5];
        let (point, gradient) = ([1.0, -1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, -3.0, 3.0]);
        pseudo_gradient(&point, &gradient, &[1.0; 5], &mut found);
        assert_eq!(found, [1.5, -0.5, 0.0, -2.0, 2.0]);
    }

    #[test]
    fn nothing_crosses_zero_but_what_is_not_penalised() {
        let mut trial = [-0.1, 0.2, -0.3, -0.4];
        project(&mut trial, &[0.5, 0.1, 0.0, 0.5], &[1.0, 1.0, 2.0, 1.0], &[1.0, 1.0, 1.0, 0.0]);
        assert_eq!(trial, [0.0, 0.2, -0.3, -0.4]);
    }

    #[test]
    fn directions_keep_only_what_descends() {
        let mut direction = [1.0, -1.0, 1.0, 1.0];
        align(&mut direction, &[2.0, 2.0, 0.0, 2.0], &[1.0, 1.0, 1.0, 0.0]);
        assert_eq!(direction, [0.0, -1.0, 0.0, 1.0]);
    }
}
