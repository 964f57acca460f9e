//! One line of `compute` as a tree: sums and products of values, numbers and calls. A call of a layer has a value first
//! and then the words of the layer's own line; a call of a function has values alone.

use super::word::{Word, words};
use starlings_core::suggestion;

/// What is computed.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Expression {
    /// A number.
    Number(f64),
    /// A value by name.
    Value(String),
    /// Two values and the sign between them.
    Pair(Pair, Box<Expression>, Box<Expression>),
    /// A function of values.
    Call(Function, Vec<Expression>),
    /// A layer on a value, with the words after it, argument by argument.
    Layer(String, Box<Expression>, Vec<Vec<Word>>),
    /// Weights of the layer's own: how they start, and their sizes.
    Weight(Kind, Vec<Vec<Word>>),
}

/// What joins two values number by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pair {
    Add,
    Subtract,
    Multiply,
    Divide,
    Larger,
    Smaller,
}

/// A function of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Exp,
    Log,
    Sqrt,
    Square,
    Abs,
    Cos,
    /// Powers of e over their sum, along the numbers of a row or step.
    Softmax,
    /// The sum of the numbers of a row or step.
    Sum,
    /// Their mean.
    Mean,
    /// Numbers side by side.
    Concat,
    /// The product of matrices.
    Product,
    /// Rows and columns exchanged.
    Transpose,
}

/// How weights start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Uniform within 1/√rows.
    Drawn,
    Zeros,
    Ones,
}

/// Functions by name.
pub(super) const FUNCTIONS: &[(&str, Function)] = &[
    ("exp", Function::Exp),
    ("log", Function::Log),
    ("sqrt", Function::Sqrt),
    ("square", Function::Square),
    ("abs", Function::Abs),
    ("cos", Function::Cos),
    ("softmax", Function::Softmax),
    ("sum", Function::Sum),
    ("mean", Function::Mean),
    ("concat", Function::Concat),
    ("matmul", Function::Product),
    ("transpose", Function::Transpose),
];

const PAIRS: &[(&str, Pair)] = &[("max", Pair::Larger), ("min", Pair::Smaller)];

const WEIGHTS: &[(&str, Kind)] =
    &[("weight", Kind::Drawn), ("zeros", Kind::Zeros), ("ones", Kind::Ones)];

fn by_name<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, found)| *found)
}

impl Expression {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it is not understood.
    pub(super) fn parse(text: &str) -> Result<Expression, String> {
        let words = words(text)?;
        if words.len() > WORDS_MAX {
            let count = words.len();
            return Err(format!(
                "a line has at most {WORDS_MAX} words and signs, this one {count}"
            ));
        }
        let mut reader = Reader { words, at: 0, depth: 0 };
        let found = reader.sum()?;
        match reader.words.get(reader.at) {
            None => Ok(found),
            Some(word) => Err(format!("'{word}' was not expected")),
        }
    }

    /// The lines of all layers that it calls.
    pub(super) fn calls(&self, found: &mut Vec<String>) {
        match self {
            Expression::Pair(_, left, right) => {
                left.calls(found);
                right.calls(found);
            }
            Expression::Call(_, values) => values.iter().for_each(|value| value.calls(found)),
            Expression::Layer(name, value, words) => {
                let words = words.iter().flatten().map(ToString::to_string);
                found
                    .push(std::iter::once(name.clone()).chain(words).collect::<Vec<_>>().join(" "));
                value.calls(found);
            }
            Expression::Number(_) | Expression::Value(_) | Expression::Weight(..) => {}
        }
    }
}

/// Words and signs of a line: each may be one call deeper.
const WORDS_MAX: usize = 1_000;
/// Brackets within each other.
const DEPTH_MAX: usize = 64;

struct Reader {
    words: Vec<Word>,
    at: usize,
    /// How deep in brackets.
    depth: usize,
}

impl Reader {
    fn takes(&mut self, sign: char) -> bool {
        let there = self.words.get(self.at) == Some(&Word::Sign(sign));
        self.at += usize::from(there);
        there
    }

    fn must(&mut self, sign: char) -> Result<(), String> {
        match self.takes(sign) {
            true => Ok(()),
            false => Err(format!("'{sign}' is missing")),
        }
    }

    fn sum(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("brackets are more than {DEPTH_MAX} deep: use a name for a part"));
        }
        let found = self.terms();
        self.depth -= 1;
        found
    }

    fn terms(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        loop {
            let pair = match (self.takes('+'), self.takes('-')) {
                (true, _) => Pair::Add,
                (_, true) => Pair::Subtract,
                _ => return Ok(left),
            };
            left = Expression::Pair(pair, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.atom()?;
        loop {
            let pair = match (self.takes('*'), self.takes('/')) {
                (true, _) => Pair::Multiply,
                (_, true) => Pair::Divide,
                _ => return Ok(left),
            };
            left = Expression::Pair(pair, Box::new(left), Box::new(self.atom()?));
        }
    }

    fn atom(&mut self) -> Result<Expression, String> {
        if self.takes('-') {
            let value = self.atom()?;
            let zero = Box::new(Expression::Number(0.0));
            return Ok(Expression::Pair(Pair::Subtract, zero, Box::new(value)));
        }
        if self.takes('(') {
            let inside = self.sum()?;
            self.must(')')?;
            return Ok(inside);
        }
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        match word {
            Some(Word::Number(number)) => Ok(Expression::Number(number)),
            Some(Word::Name(name)) if self.takes('(') => self.call(name),
            Some(Word::Name(name)) => Ok(Expression::Value(name)),
            Some(other) => Err(format!("'{other}' is no value")),
            None => Err("a value is missing at the end".to_string()),
        }
    }

    /// What follows a name and a bracket.
    fn call(&mut self, name: String) -> Result<Expression, String> {
        if let Some(kind) = by_name(WEIGHTS, &name) {
            return Ok(Expression::Weight(kind, self.rest()?));
        }
        if let Some(function) = by_name(FUNCTIONS, &name) {
            let mut values = vec![self.sum()?];
            while self.takes(',') {
                values.push(self.sum()?);
            }
            self.must(')')?;
            let wanted = match function {
                Function::Concat => values.len().max(2),
                Function::Product => 2,
                _ => 1,
            };
            return match values.len() == wanted {
                true => Ok(Expression::Call(function, values)),
                false => Err(format!("{name} takes {wanted} values")),
            };
        }
        let first = self.sum()?;
        if let Some(pair) = by_name(PAIRS, &name) {
            self.must(',')?;
            let second = self.sum()?;
            self.must(')')?;
            return Ok(Expression::Pair(pair, Box::new(first), Box::new(second)));
        }
        let words = if self.takes(',') { self.rest()? } else { self.must(')').map(|()| vec![])? };
        Ok(Expression::Layer(name, Box::new(first), words))
    }

    /// Words up to the bracket, argument by argument.
    fn rest(&mut self) -> Result<Vec<Vec<Word>>, String> {
        let mut all = vec![Vec::new()];
        loop {
            let word = self.words.get(self.at).ok_or("')' is missing")?;
            self.at += 1;
            match word {
                Word::Sign(')') => return Ok(all),
                Word::Sign(',') => all.push(Vec::new()),
                Word::Sign('(') => return Err("sizes have no brackets".to_string()),
                word => all.last_mut().into_iter().for_each(|last| last.push(word.clone())),
            }
        }
    }
}

/// A hint for a name that nothing has.
pub(super) fn nearest(name: &str, layers: &[&str]) -> String {
    let functions = FUNCTIONS.iter().map(|(name, _)| *name);
    let others = PAIRS.iter().map(|(name, _)| *name).chain(WEIGHTS.iter().map(|(name, _)| *name));
    let known: Vec<&str> = layers.iter().copied().chain(functions).chain(others).collect();
    suggestion(name, &known)
}
