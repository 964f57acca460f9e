//! Update rules of owners: what becomes of a contribution where the row lives. A learner brings its own; tables
//! of a caller's loop choose one from this catalogue (Li et al., 2014: user-defined functions on the server).

mod adagrad;
mod adam;
mod sgd;
mod sum;

use starlings_core::{Entry, Model, Param, ParamKind, Params, Result, Rows, Update};
use starlings_learn::{Learner, Moment};
use std::sync::Arc;

/// How a rule is built from checked parameters.
pub type BuildRule = fn(&Params) -> Result<Arc<dyn Rule>>;

/// All rules of the catalogue.
pub static RULES: &[Entry<BuildRule>] = &[adagrad::ENTRY, adam::ENTRY, sgd::ENTRY, sum::ENTRY];

/// What an owner does with a contribution. Works row by row: rows that are not in the update do not change.
pub trait Rule: Send + Sync {
    /// Adds what the rule must remember to a model before the first contribution.
    fn prepare(&self, model: &mut Model);

    /// Applies a contribution.
    ///
    /// # Errors
    /// When it does not fit the table, or the numbers are no longer finite.
    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<()>;
}

/// A learner's own rule.
pub struct Learned(pub Arc<dyn Learner>);

impl Rule for Learned {
    fn prepare(&self, _: &mut Model) {}

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<()> {
        self.0.apply(model, update, moment).map(|_| ())
    }
}

const RATE: Param = Param {
    name: "learning_rate",
    kind: ParamKind::Float { min: 1e-12, max: 1e6 },
    default: Some("0.01"),
    help: "step size: what is pushed is taken for a gradient",
};

/// The numbers of a table's rows that an update changes, with some state beside them.
struct Row<'a> {
    values: &'a mut [f64],
    state: Vec<&'a mut [f64]>,
    pushed: &'a [f64],
}

/// Runs `step` on every row of the update, with the named state tensors beside the table's.
fn each_row(
    model: &mut Model,
    update: &Update,
    state: &[&str],
    mut step: impl FnMut(Row<'_>),
) -> Result<()> {
    use starlings_core::{Body, Fault, Kind, Values};
    for block in &update.blocks {
        let wrong = || Fault::caller(format!("a push of rows that table '{}' has not", block.name));
        let Body::Rows(rows @ Rows { values: Values::F64(pushed), .. }) = &block.body else {
            return Err(wrong());
        };
        let tensor = model.get(&block.name).ok_or_else(wrong)?;
        let width = tensor.width();
        let shaped = rows.width as usize == width && rows.total as usize == tensor.rows();
        if !shaped || !rows.is_sound() || tensor.values.kind() != Kind::F64 {
            return Err(wrong());
        }
        let mut values = std::mem::take(model.f64_mut(&block.name));
        let names: Vec<String> =
            state.iter().map(|word| format!("{}.{word}", block.name)).collect();
        let mut beside: Vec<Vec<f64>> =
            names.iter().map(|name| std::mem::take(model.f64_mut(name))).collect();
        let mut finite = true;
        for (&row, pushed) in rows.index.iter().zip(pushed.chunks_exact(width.max(1))) {
            let range = row as usize * width..(row as usize + 1) * width;
            let state = beside.iter_mut().map(|state| &mut state[range.clone()]).collect();
            step(Row { values: &mut values[range.clone()], state, pushed });
            finite &= values[range].iter().all(|value| value.is_finite());
        }
        *model.f64_mut(&block.name) = values;
        for (name, state) in names.iter().zip(beside) {
            *model.f64_mut(name) = state;
        }
        if !finite {
            let what = format!("the numbers of table '{}' are no longer finite", block.name);
            return Err(
                Fault::caller(what).hint("push finite numbers, or choose a smaller learning_rate")
            );
        }
    }
    Ok(())
}

/// Adds zero tensors of the same shape beside every weight.
fn beside_each(model: &mut Model, words: &[&str]) {
    use starlings_core::{Kind, Role, Tensor};
    let weights = model.iter().filter(|(_, tensor)| tensor.role == Role::Weight);
    let tables: Vec<(String, Vec<usize>)> =
        weights.map(|(name, tensor)| (name.to_string(), tensor.shape.clone())).collect();
    for (name, shape) in tables {
        for word in words {
            let zeros = Tensor::zeros(Kind::F64, &shape, Role::State);
            model.set(format!("{name}.{word}"), zeros);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::rule;
    use starlings_core::{Block, Kind, Role, Step, Tensor, Values};

    const MOMENT: Moment = Moment { step: Step(0), pass: 0, seed: 0, rows: 1 };

    /// A table of three rows of two numbers, and what the rule remembers.
    fn table(rule: &dyn Rule) -> Model {
        let mut model = Model::new();
        model.set("t", Tensor::of(&[3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Role::Weight));
        rule.prepare(&mut model);
        model
    }

    fn push(row: u32, numbers: [f64; 2]) -> Update {
        let values = Values::F64(numbers.to_vec());
        Update {
            blocks: vec![Block::rows("t", Rows { total: 3, width: 2, index: vec![row], values })],
        }
    }

    /// The second row after pushes to it.
    fn after(name: &str, parameters: &str, pushes: &[[f64; 2]]) -> Vec<f64> {
        let rule = rule(name, parameters).unwrap();
        let mut model = table(&*rule);
        for numbers in pushes {
            rule.apply(&mut model, &push(1, *numbers), &MOMENT).unwrap();
        }
        model.f64("t")[2..4].to_vec()
    }

    fn close(found: &[f64], wanted: &[f64]) {
        // Adam's epsilon is the largest of what is left out by hand.
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-8;
        assert!(found.iter().zip(wanted).all(near), "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn each_rule_takes_the_steps_of_its_paper() {
        let pushes = [[0.5, -2.0], [1.0, 2.0]];
        close(&after("sum", "", &pushes), &[4.5, 4.0]);
        close(&after("sgd", "learning_rate = 0.1", &pushes), &[2.85, 4.0]);
        // AdaGrad: 3 − 0.1 · 0.5/√0.25 − 0.1 · 1/√1.25, and 4 + 0.1 · 2/√4 − 0.1 · 2/√8.
        let wanted = [2.9 - 0.1 / 1.25f64.sqrt(), 4.1 - 0.2 / 8f64.sqrt()];
        close(&after("adagrad", "learning_rate = 0.1", &pushes), &wanted);
        // Adam: the first step is the learning rate, whatever the gradient; the second divides the corrected means
        // (0.9 · 0.1 · 0.5 + 0.1 · 1) / 0.19 and √((0.999 · 0.001 · 0.25 + 0.001 · 1) / 0.001999).
        close(&after("adam", "learning_rate = 0.1", &pushes[..1]), &[2.9, 4.1]);
        let first = (0.145 / 0.19) / ((0.999 * 0.00025 + 0.001) / 0.001_999f64).sqrt();
        let second = (0.02 / 0.19) / 4f64.sqrt();
        let wanted = [2.9 - 0.1 * first, 4.1 - 0.1 * second];
        close(&after("adam", "learning_rate = 0.1", &pushes), &wanted);
    }

    #[test]
    fn rows_that_are_not_pushed_do_not_change() {
        for entry in RULES {
            let rule = rule(entry.name, "").unwrap();
            let fresh = table(&*rule);
            let mut model = fresh.clone();
            rule.apply(&mut model, &push(1, [1.0, -1.0]), &MOMENT).unwrap();
            for (name, tensor) in model.iter() {
                let (now, before) = (tensor.values.as_f64().unwrap(), fresh.f64(name));
                assert_ne!(now[2..4], before[2..4], "{} leaves '{name}'", entry.name);
                assert_eq!(now[..2], before[..2], "{} changes '{name}'", entry.name);
                assert_eq!(now[4..], before[4..], "{} changes '{name}'", entry.name);
            }
        }
    }

    #[test]
    fn a_seldom_pushed_row_takes_a_whole_first_step_of_adam() {
        let rule = rule("adam", "learning_rate = 0.1").unwrap();
        let mut model = table(&*rule);
        for _ in 0..100 {
            rule.apply(&mut model, &push(0, [1.0, 1.0]), &MOMENT).unwrap();
        }
        rule.apply(&mut model, &push(2, [7.0, -7.0]), &MOMENT).unwrap();
        close(&model.f64("t")[4..], &[4.9, 6.1]);
    }

    #[test]
    fn a_push_of_another_shape_is_refused_and_changes_nothing() {
        let rows = |total, width, index: Vec<u32>, values| Update {
            blocks: vec![Block::rows("t", Rows { total, width, index, values })],
        };
        let numbers = |len| Values::F64(vec![1.0; len]);
        let mut other = push(0, [1.0, 1.0]);
        other.blocks[0].name = "u".to_string();
        let wrong = [
            rows(3, 1, vec![0], numbers(1)),
            rows(4, 2, vec![0], numbers(2)),
            rows(3, 2, vec![3], numbers(2)),
            rows(3, 2, vec![1, 1], numbers(4)),
            rows(3, 2, vec![0, 1], numbers(2)),
            rows(3, 2, vec![0], Values::F32(vec![1.0; 2])),
            Update { blocks: vec![Block::dense("t", vec![1.0; 6])] },
            other,
        ];
        for entry in RULES {
            let rule = rule(entry.name, "").unwrap();
            let mut model = table(&*rule);
            for push in &wrong {
                assert!(rule.apply(&mut model, push, &MOMENT).is_err(), "{}: {push:?}", entry.name);
            }
            assert_eq!(model, table(&*rule), "{}", entry.name);
            let mut counts = Model::new();
            counts.set("t", Tensor::zeros(Kind::I64, &[3, 2], Role::Weight));
            assert!(rule.apply(&mut counts, &push(0, [1.0; 2]), &MOMENT).is_err());
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_told() {
        for entry in RULES {
            let rule = rule(entry.name, "").unwrap();
            let fault = rule.apply(&mut table(&*rule), &push(0, [f64::NAN, 1.0]), &MOMENT);
            assert!(fault.is_err(), "{}", entry.name);
        }
    }
}
