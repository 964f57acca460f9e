//! From the lines of a layer to steps that run: names become steps, sizes become numbers, and every step's shape is
//! known, so that what does not fit is refused with the line and both sizes before any row is seen.

use super::expression::{Expression, Kind};
use super::shape::{self, Shape};
use super::stage::{Composed, Operation, Step};
use super::word::Word;
use super::{Line, OwnLayer};
use crate::layers::{self, Site};
use crate::stage::{Care, Parameter, Stage, Start};
use starlings_core::{Fault, Result};

/// Builds a layer for the rows that reach it, with the sizes of its line.
pub(super) fn stage(
    layer: &OwnLayer,
    site: &Site<'_>,
    mut sizes: Vec<(&str, usize)>,
) -> Result<Box<dyn Stage>> {
    sizes.extend(shape::sizes(site.input));
    let input = Step { operation: Operation::Input, shape: Shape::Rows(site.input) };
    let mut bench = Bench {
        site,
        sizes,
        values: vec![("input", 0)],
        steps: vec![input],
        line: &layer.lines[0],
    };
    let mut last = 0;
    for line in &layer.lines {
        bench.line = line;
        last = bench.compile(&line.value)?;
        bench.values.extend(line.name.as_deref().map(|name| (name, last)));
    }
    match bench.steps[last].shape {
        Shape::Rows(output) => Ok(Box::new(Composed::new(bench.steps, last, output))),
        other => Err(bench.refuse(format!("the layer gives {other} instead of rows"))),
    }
}

struct Bench<'a> {
    site: &'a Site<'a>,
    sizes: Vec<(&'a str, usize)>,
    values: Vec<(&'a str, usize)>,
    steps: Vec<Step>,
    line: &'a Line,
}

impl<'a> Bench<'a> {
    fn refuse(&self, what: impl std::fmt::Display) -> Fault {
        self.site.refuse(format!("cannot compute '{}': {what}", self.line.text))
    }

    fn push(&mut self, operation: Operation, shape: Shape) -> usize {
        self.steps.push(Step { operation, shape });
        self.steps.len() - 1
    }

    fn shape(&self, step: usize) -> Shape {
        self.steps[step].shape
    }

    /// Adds the steps of an expression and gives the last.
    fn compile(&mut self, expression: &Expression) -> Result<usize> {
        match expression {
            Expression::Number(number) => Ok(self.push(Operation::Number(*number), Shape::Number)),
            Expression::Value(name) => self.value(name),
            Expression::Pair(pair, left, right) => {
                let (left, right) = (self.compile(left)?, self.compile(right)?);
                let shapes = (self.shape(left), self.shape(right));
                let shape = shape::joined(shapes.0, shapes.1).ok_or_else(|| {
                    let verb = shape::verb(*pair);
                    self.refuse(format!("{} and {} cannot be {verb}", shapes.0, shapes.1))
                })?;
                Ok(self.push(Operation::Pair(*pair, left, right), shape))
            }
            Expression::Call(function, values) => {
                let values: Vec<usize> =
                    values.iter().map(|value| self.compile(value)).collect::<Result<_>>()?;
                let shapes: Vec<Shape> = values.iter().map(|&step| self.shape(step)).collect();
                let shape = shape::called(*function, &shapes).ok_or_else(|| {
                    let told: Vec<String> = shapes.iter().map(ToString::to_string).collect();
                    let name = format!("{function:?}").to_lowercase();
                    self.refuse(format!("no {name} of {}", told.join(" and ")))
                })?;
                Ok(self.push(Operation::Call(*function, values), shape))
            }
            Expression::Layer(name, value, words) => {
                let value = self.compile(value)?;
                self.layer(name, value, words)
            }
            Expression::Weight(kind, words) => self.weight(*kind, words),
        }
    }

    fn value(&mut self, name: &str) -> Result<usize> {
        if let Some((_, step)) = self.values.iter().rev().find(|(known, _)| *known == name) {
            return Ok(*step);
        }
        if let Some(size) = self.size(name) {
            return Ok(self.push(Operation::Number(size as f64), Shape::Number));
        }
        let known: Vec<&str> =
            self.values.iter().chain(&self.sizes).map(|(known, _)| *known).collect();
        Err(self
            .refuse(format!("'{name}' is no value"))
            .hint(starlings_core::suggestion(name, &known)))
    }

    fn size(&self, name: &str) -> Option<usize> {
        self.sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size)
    }

    fn layer(&mut self, name: &str, value: usize, words: &[Vec<Word>]) -> Result<usize> {
        let Shape::Rows(input) = self.shape(value) else {
            let told = self.shape(value);
            return Err(self.refuse(format!("{name} is for rows, not for {told}")));
        };
        let mut line = name.to_string();
        for argument in words {
            line.push(' ');
            line.push_str(&self.argument(argument)?);
        }
        let own = self.site.own;
        let index = self.steps.len();
        let within = Site {
            name: format!("{}.{index}-{name}", self.site.name),
            number: self.site.number,
            line: &line,
            input,
            own,
            share: layers::ALL,
        };
        let stage = layers::build(&within).map_err(|fault| {
            let at = format!("layer {} '{}'", self.site.number, self.site.line);
            fault.during(format!("{at}, compute '{}'", self.line.text))
        })?;
        let output = Shape::Rows(stage.output());
        Ok(self.push(Operation::Layer(stage, value), output))
    }

    fn weight(&mut self, kind: Kind, words: &[Vec<Word>]) -> Result<usize> {
        let mut sizes = Vec::new();
        for argument in words {
            let told = self.argument(argument)?;
            let size = told.parse().ok().filter(|size| (1..=1usize << 24).contains(size));
            sizes.push(size.ok_or_else(|| self.refuse(format!("'{told}' is no size")))?);
        }
        let (shape, care) = match sizes[..] {
            [len] => (Shape::Line(len), Care::Vector),
            [rows, columns] => (Shape::Matrix(rows, columns), Care::Matrix),
            _ => return Err(self.refuse("weights have one size or two")),
        };
        let start = match kind {
            Kind::Drawn => Start::fan_in(sizes[0]),
            Kind::Zeros => Start::Constant(0.0),
            Kind::Ones => Start::Constant(1.0),
        };
        let name = format!("{}.{}-weight", self.site.name, self.steps.len());
        Ok(self.push(Operation::Weight(Parameter { name, shape: sizes, start, care }), shape))
    }

    /// The words of an argument, with sizes as numbers and products of them computed.
    fn argument(&self, words: &[Word]) -> Result<String> {
        let mut pieces: Vec<Piece> = words
            .iter()
            .map(|word| match word {
                Word::Name(name) => {
                    self.size(name).map_or_else(|| Piece::Text(name.clone()), Piece::Size)
                }
                Word::Number(number) if number.fract() == 0.0 && *number >= 0.0 => {
                    Piece::Size(*number as usize)
                }
                Word::Sign(sign) => Piece::Sign(*sign),
                other => Piece::Text(other.to_string()),
            })
            .collect();
        for signs in [['*', '/'], ['+', '-']] {
            while let Some(at) =
                pieces.iter().position(|piece| matches!(piece, Piece::Sign(s) if signs.contains(s)))
            {
                let folded = match pieces.get(at.wrapping_sub(1)..=at + 1) {
                    Some([Piece::Size(a), Piece::Sign(sign), Piece::Size(b)]) => {
                        fold(*a, *sign, *b)
                    }
                    _ => None,
                };
                let told = || words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                let size = folded.ok_or_else(|| self.refuse(format!("'{}' is no size", told())))?;
                pieces.splice(at - 1..=at + 1, [Piece::Size(size)]);
            }
        }
        let told = pieces.into_iter().map(|piece| match piece {
            Piece::Size(size) => size.to_string(),
            Piece::Text(text) => text,
            Piece::Sign(sign) => sign.to_string(),
        });
        Ok(told.collect::<Vec<_>>().join(" "))
    }
}

enum Piece {
    Size(usize),
    Text(String),
    Sign(char),
}

/// Sizes are whole: a quotient that is none is refused.
fn fold(a: usize, sign: char, b: usize) -> Option<usize> {
    match sign {
        '*' => a.checked_mul(b),
        '/' => (b > 0 && a.is_multiple_of(b)).then(|| a / b),
        '+' => a.checked_add(b),
        _ => a.checked_sub(b),
    }
}
