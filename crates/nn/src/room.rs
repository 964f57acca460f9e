//! What a network takes of memory on a worker: numbers of four bytes for weights (in the model and as tensors), their
//! gradients and the optimiser's state, and for what every layer gives for the rows of a step and the gradient of that.
//! Layers inside a layer are left out, so it is less than is needed, and what is refused for it could not have run.

use crate::solver::Solver;
use crate::stack::Stack;
use starlings_learn::Footprint;

const BYTES: u64 = 4;

/// The bytes of a network for so many rows of a step.
pub(crate) fn footprint(stack: &Stack, solver: &Solver, rows: u64) -> Footprint {
    let (mut model, mut step, mut most) = (0u64, 0u64, (0u64, String::new()));
    for (number, (line, parameters, outputs)) in (1..).zip(stack.sizes()) {
        let mut weights = 0u64;
        for parameter in &parameters {
            let sizes = parameter.shape.iter().map(|&size| size as u64);
            let len = sizes.fold(1u64, u64::saturating_mul);
            weights = weights.saturating_add(len);
            let copies = 3 + solver.states(parameter) as u64;
            model = model.saturating_add(len.saturating_mul(BYTES * copies));
        }
        let passing = rows.saturating_mul(outputs as u64).saturating_mul(2 * BYTES);
        step = step.saturating_add(passing);
        let size = weights.saturating_mul(BYTES).saturating_add(passing);
        if size > most.0 {
            let told =
                format!("layer {number} '{line}' with {weights} weights and {outputs} outputs");
            most = (size, told);
        }
    }
    Footprint { model, step, largest: most.1 }
}
