//! Conjugate gradients (Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952),
//! turned inside out: it is told the matrix's product with the vector it asked for, so that each product can be one
//! exchange of the flock. On its own it solves least squares; inside Newton's method it finds the step.

use super::lbfgs::dot;

/// A system A·x = b between two products. The vectors are moved in and out of the model's tensors.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ConjugateGradient {
    /// x so far.
    pub(crate) solution: Vec<f64>,
    /// b − A·x.
    pub(crate) residual: Vec<f64>,
    /// Whose product with A is wanted.
    pub(crate) along: Vec<f64>,
}

/// What came of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Solved {
    /// The length of the residual now.
    Residual(f64),
    /// The matrix does not bend along the vector: nothing further can be done.
    Flat,
}

impl ConjugateGradient {
    /// Starts at x = 0 in vectors of the right length.
    pub(crate) fn start(&mut self, b: impl Iterator<Item = f64>) {
        self.solution.fill(0.0);
        self.residual.iter_mut().zip(b).for_each(|(residual, b)| *residual = b);
        self.along.copy_from_slice(&self.residual);
    }

    /// Takes A·along and moves on.
    pub(crate) fn tell(&mut self, product: &[f64]) -> Solved {
        let before = dot(&self.residual, &self.residual);
        let bend = dot(&self.along, product);
        if bend.is_nan() || bend <= f64::EPSILON * f64::EPSILON * before {
            return Solved::Flat;
        }
        let length = before / bend;
        for (solution, along) in self.solution.iter_mut().zip(&self.along) {
            *solution += length * along;
        }
        for (residual, product) in self.residual.iter_mut().zip(product) {
            *residual -= length * product;
        }
        let after = dot(&self.residual, &self.residual);
        let keep = after / before;
        for (along, residual) in self.along.iter_mut().zip(&self.residual) {
            *along = residual + keep * *along;
        }
        Solved::Residual(after.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(matrix: &[[f64; 3]; 3], b: [f64; 3], products: usize) -> (Vec<f64>, Solved) {
        let zeros = vec![0.0; 3];
        let mut state =
            ConjugateGradient { solution: zeros.clone(), residual: zeros.clone(), along: zeros };
        state.start(b.into_iter());
        let mut solved = Solved::Flat;
        for _ in 0..products {
            let product: Vec<f64> = matrix.iter().map(|row| dot(row, &state.along)).collect();
            solved = state.tell(&product);
        }
        (state.solution, solved)
    }

    /// In exact arithmetic n products solve n equations.
    #[test]
    fn three_products_solve_three_equations() {
        let matrix = [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 5.0]];
        let wanted = [1.0, -2.0, 3.0];
        let b = matrix.map(|row| dot(&row, &wanted));
        let (solution, solved) = solve(&matrix, b, 3);
        assert!(matches!(solved, Solved::Residual(length) if length < 1e-12), "{solved:?}");
        solution.iter().zip(wanted).for_each(|(x, w)| assert!((x - w).abs() < 1e-12));
    }

    /// From zero it never leaves the range of the matrix: of all solutions it finds the shortest.
    #[test]
    fn singular_systems_get_their_shortest_solution() {
        let matrix = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]];
        let (solution, _) = solve(&matrix, [2.0, 2.0, 4.0], 2);
        solution.iter().zip([1.0, 1.0, 2.0]).for_each(|(x, w)| assert!((x - w).abs() < 1e-12));
    }
}
