//! Linear models: scores Σ wᵢxᵢ + b of each class or target, and what is made of them.

use super::super::file::Node;
use super::super::value::{Array, Kind, Value};
use super::matrices::product;
use super::{Budget, Known, Operator, Transform};
use starlings_core::{Fault, Result};

pub(super) const KNOWN: &[Known] =
    &[("LinearRegressor", regressor), ("LinearClassifier", classifier)];

/// The names of a classifier's classes.
pub(super) enum Labels {
    Texts(Vec<String>),
    Ints(Vec<i64>),
}

impl Labels {
    /// As the node was told.
    pub(super) fn of(node: &Node, ints: &str) -> Result<Labels> {
        let texts = node.texts("classlabels_strings")?.filter(|texts| !texts.is_empty());
        match (texts, node.ints(ints)?) {
            (Some(texts), _) => Ok(Labels::Texts(texts)),
            (None, Some(ints)) if !ints.is_empty() => Ok(Labels::Ints(ints)),
            _ => Err(Fault::caller("its classes have no names")),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Labels::Texts(texts) => texts.len(),
            Labels::Ints(ints) => ints.len(),
        }
    }

    /// The likeliest of each row, and beside it the scores themselves.
    pub(super) fn answer(&self, scores: Vec<f64>, budget: &mut Budget) -> Result<Vec<Value>> {
        let width = self.len();
        let best = |row: &[f64]| {
            (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
        };
        let best: Vec<usize> = scores.chunks_exact(width).map(best).collect();
        budget.hold(2 * best.len())?;
        let rows = best.len();
        let label = match self {
            Labels::Texts(texts) => {
                let named = best.iter().map(|at| texts[*at].clone()).collect();
                Value::Texts(Array::new(vec![rows], named)?)
            }
            Labels::Ints(ints) => {
                let named = best.iter().map(|at| ints[*at] as f64).collect();
                Value::of(Kind::Int, vec![rows], named)?
            }
        };
        Ok(vec![label, Value::of(Kind::Float, vec![rows, width], scores)?])
    }
}

/// Σ wᵢxᵢ + b for each row and each line of coefficients.
struct Scores {
    coefficients: Vec<f64>,
    intercepts: Vec<f64>,
    targets: usize,
}

impl Scores {
    fn of(node: &Node, targets: usize) -> Result<Scores> {
        let coefficients = node.floats("coefficients")?;
        let intercepts = node.floats("intercepts")?;
        let even = targets > 0 && coefficients.len().is_multiple_of(targets);
        if !even || coefficients.is_empty() || ![0, targets].contains(&intercepts.len()) {
            return Err(Fault::caller(format!(
                "{} coefficients and {} intercepts do not fit {targets} targets",
                coefficients.len(),
                intercepts.len()
            )));
        }
        Ok(Scores { coefficients, intercepts, targets })
    }

    fn features(&self) -> usize {
        self.coefficients.len() / self.targets
    }

    fn run(&self, x: &Value, budget: &mut Budget) -> Result<(usize, Vec<f64>)> {
        let array = &x.numbers()?.array;
        let (rows, width) = array.matrix()?;
        let features = self.features();
        if width != features {
            return Err(Fault::caller(format!("it reads {features} features and gets {width}")));
        }
        budget.hold(self.coefficients.len())?;
        let turned: Vec<f64> = (0..features)
            .flat_map(|at| (0..self.targets).map(move |target| (target, at)))
            .map(|(target, at)| self.coefficients[target * features + at])
            .collect();
        let mut scores = product(&array.values, &turned, [rows, features, self.targets], budget)?;
        for row in scores.chunks_exact_mut(self.targets) {
            row.iter_mut().zip(&self.intercepts).for_each(|(score, b)| *score += b);
        }
        Ok((rows, scores))
    }
}

fn regressor(node: &Node) -> Result<Operator> {
    let targets = usize::try_from(node.int("targets", 1)?).unwrap_or(0);
    let scores = Scores::of(node, targets)?;
    let transform = Transform::named(&node.text("post_transform", "NONE")?)?;
    Ok(Box::new(move |inputs, budget| {
        let (rows, mut said) = scores.run(inputs.value(0)?, budget)?;
        said.chunks_exact_mut(targets).for_each(|row| transform.change(row));
        Ok(vec![Value::of(Kind::Float, vec![rows, targets], said)?])
    }))
}

fn classifier(node: &Node) -> Result<Operator> {
    let labels = Labels::of(node, "classlabels_ints")?;
    let transform = Transform::named(&node.text("post_transform", "NONE")?)?;
    let lines = match node.floats("intercepts")?.len() {
        0 => labels.len(),
        lines => lines,
    };
    let one_line = lines == 1 && labels.len() == 2;
    if lines != labels.len() && !one_line {
        return Err(Fault::caller(format!("{lines} scores for {} classes", labels.len())));
    }
    if one_line && transform != Transform::Logistic {
        return Err(Fault::caller("one score for two classes is only known with LOGISTIC"));
    }
    let scores = Scores::of(node, lines)?;
    Ok(Box::new(move |inputs, budget| {
        let (rows, mut said) = scores.run(inputs.value(0)?, budget)?;
        said.chunks_exact_mut(lines).for_each(|row| transform.change(row));
        if one_line {
            budget.hold(2 * rows)?;
            said = said.iter().flat_map(|second| [1.0 - second, *second]).collect();
        }
        labels.answer(said, budget)
    }))
}
