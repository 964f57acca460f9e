//! Products of columns up to a degree, so that a linear learner fits curves and interactions: 1, a, b, a², ab, b² …, in
//! the order of degrees and then of columns. `interaction_only` leaves out powers. A product with a missing factor is
//! missing.

use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "polynomial",
    summary: "Products of columns up to a degree",
    reference: "Gergonne (1815), The application of the method of least squares to the interpolation of sequences",
    params: &[
        Param {
            name: "degree",
            kind: ParamKind::Integer { min: 2, max: 6 },
            default: Some("2"),
            help: "most factors of a product",
        },
        Param {
            name: "interaction_only",
            kind: ParamKind::Flag,
            default: Some("false"),
            help: "whether a column comes at most once in a product",
        },
        Param {
            name: "bias",
            kind: ParamKind::Flag,
            default: Some("false"),
            help: "whether a column of ones comes first",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        Ok(Box::new(Plan {
            degree: params.size("degree"),
            interaction_only: params.flag("interaction_only"),
            bias: params.flag("bias"),
            inputs: 0,
        }))
    },
};

/// Most products.
const PRODUCTS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Plan {
    degree: usize,
    interaction_only: bool,
    bias: bool,
    inputs: usize,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Numbers
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Plan { inputs, ..*self })
    }
}

impl Statistics for Plan {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        match inputs.iter().find(|input| input.cells.kind() != Kind::Numbers) {
            Some(other) => Err(wrong_kind(other, "numbers")),
            None => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let mut products: Vec<Vec<u16>> = if self.bias { vec![vec![]] } else { vec![] };
        let mut last: Vec<Vec<u16>> = vec![vec![]];
        for _ in 0..self.degree {
            let mut longer = Vec::new();
            for product in &last {
                let from = product
                    .last()
                    .map_or(0, |it| usize::from(*it) + usize::from(self.interaction_only));
                for column in from..self.inputs {
                    longer.push([&product[..], &[column as u16]].concat());
                }
                if products.len() + longer.len() > PRODUCTS_MAX {
                    return Err(Fault::caller(format!(
                        "{} columns have more than {PRODUCTS_MAX} products of degree {}",
                        self.inputs, self.degree
                    ))
                    .hint("name fewer columns, lower the degree, or say interaction_only = true"));
                }
            }
            products.extend(longer.iter().cloned());
            last = longer;
        }
        Ok(Fitted::Polynomial(Polynomial { products }))
    }
}

/// The factors of each product, as numbers of columns.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Polynomial {
    products: Vec<Vec<u16>>,
}

impl Apply for Polynomial {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut columns: Vec<&[f32]> = Vec::with_capacity(inputs.len());
        for input in &inputs {
            match &input.cells {
                Cells::Numbers(values) => columns.push(values),
                _ => return Err(wrong_kind(input, "numbers")),
            }
        }
        let rows = columns.first().map_or(0, |column| column.len());
        let made = self.products.iter().map(|product| {
            let factors = product.iter().map(|&column| columns[usize::from(column)]);
            let mut values = vec![1.0f64; rows];
            for factor in factors {
                values.iter_mut().zip(factor).for_each(|(value, by)| *value *= f64::from(*by));
            }
            let values = values.into_iter().map(|value| value as f32).collect();
            Series::new(name(product, &inputs), Cells::Numbers(values))
        });
        let made: Vec<Series> = made.collect();
        let mut outputs: Vec<Vec<Series>> = inputs.iter().map(|_| Vec::new()).collect();
        if let Some(first) = outputs.first_mut() {
            *first = made;
        }
        Ok(outputs)
    }
}

/// `a^2 b` of the factors a, a and b.
fn name(product: &[u16], inputs: &[Series]) -> String {
    if product.is_empty() {
        return "1".to_string();
    }
    let powers = product.chunk_by(|a, b| a == b).map(|run| {
        let name = &inputs[usize::from(run[0])].name;
        if run.len() == 1 { name.clone() } else { format!("{name}^{}", run.len()) }
    });
    powers.collect::<Vec<_>>().join(" ")
}
