//! A network: stages one after another, made from the lines of a job file. Building checks that each stage can take what
//! the one before it gives, and names the layer and the sizes where it cannot.

use crate::flow::{Flow, Form};
use crate::kernels::Finish;
use crate::layers::{self, Site};
use crate::own::{NO_LAYERS, OwnLayers};
use crate::pass::Pass;
use crate::precision::Precision;
use crate::split::Split;
use crate::stage::{Care, Finishing, Parameter, Stage};
use crate::unfold::unfolded;
use starlings_core::{Graph, Model, Result};
use std::ops::Range;
use std::sync::OnceLock;

/// Stages one after another.
pub(crate) struct Stack {
    input: Form,
    names: Vec<String>,
    lines: Vec<String>,
    own: OwnLayers,
    stages: Vec<Box<dyn Stage>>,
    precision: Precision,
    /// Whether the last layer with weights gives the outputs.
    closed: bool,
    /// Asked for in every step, and the same in all of them.
    parameters: OnceLock<Vec<Parameter>>,
}

impl Stack {
    /// The network that these lines describe, for rows of a form; some may be layers that the job defines.
    ///
    /// # Errors
    /// A line that is not understood or does not fit what comes before it.
    pub(crate) fn with(own: &OwnLayers, input: Form, lines: &[String]) -> Result<Stack> {
        Stack::assembled(input, lines, own, |index, kind| format!("{index:02}-{kind}"))
    }

    /// The same without layers of a job's own.
    ///
    /// # Errors
    /// As for [`with`](Stack::with).
    #[cfg(test)]
    pub(crate) fn build(input: Form, lines: &[String]) -> Result<Stack> {
        Stack::with(&NO_LAYERS, input, lines)
    }

    /// A network that is one stage.
    #[cfg(feature = "modules")]
    pub(crate) fn whole(input: Form, stage: Box<dyn Stage>) -> Stack {
        Stack {
            input,
            names: vec!["module".to_string()],
            lines: vec!["module".to_string()],
            own: NO_LAYERS.clone(),
            stages: vec![stage],
            precision: Precision::Single,
            closed: false,
            parameters: OnceLock::new(),
        }
    }

    /// A network inside another: its parameters' names begin with `prefix`.
    ///
    /// # Errors
    /// As for [`with`](Stack::with).
    pub(crate) fn named(prefix: &str, input: Form, lines: &[String]) -> Result<Stack> {
        Stack::assembled(input, lines, &NO_LAYERS, |index, kind| match prefix {
            "" => format!("{index:02}-{kind}"),
            prefix => format!("{prefix}.{index}-{kind}"),
        })
    }

    /// The same network, with products in other numbers.
    pub(crate) fn computing(mut self, precision: Precision) -> Stack {
        self.precision = precision;
        self
    }

    /// The same network, whose last layer with weights gives the outputs.
    pub(crate) fn closed(mut self) -> Stack {
        self.closed = true;
        self
    }

    /// One worker's part of a network whose layers are split, blocks unfolded. Each layer takes what comes out of the one
    /// before it, or what conversions make of it.
    ///
    /// # Errors
    /// As for [`with`](Stack::with).
    pub(crate) fn part(&self, split: &Split) -> Result<Stack> {
        let mut part = Stack::empty(self.input, &self.own).computing(self.precision);
        for (index, piece) in unfolded(self).pieces.iter().enumerate() {
            let whole = split.takes_whole(index);
            let input = if whole { piece.input } else { part.output() };
            let line = split.line(index, piece.line);
            let name = format!("{}{}", piece.name, split.mark(index));
            let (number, line, share) = (piece.number, line.as_str(), split.share(index));
            part.push(&Site { name, number, line, input, own: &self.own, share })?;
        }
        Ok(part)
    }

    fn empty(input: Form, own: &OwnLayers) -> Stack {
        let (names, lines, stages) = (Vec::new(), Vec::new(), Vec::new());
        let (precision, parameters) = (Precision::Single, OnceLock::new());
        let (own, closed) = (own.clone(), false);
        Stack { input, names, lines, own, stages, precision, closed, parameters }
    }

    fn push(&mut self, site: &Site<'_>) -> Result<()> {
        self.stages.push(layers::build(site)?);
        self.names.push(site.name.clone());
        self.lines.push(site.line.to_string());
        Ok(())
    }

    fn assembled(
        input: Form,
        lines: &[String],
        own: &OwnLayers,
        name: impl Fn(usize, &str) -> String,
    ) -> Result<Stack> {
        let mut stack = Stack::empty(input, own);
        for (index, line) in lines.iter().enumerate() {
            let name = name(index, line.split_whitespace().next().unwrap_or_default());
            let (number, input, share) = (index + 1, stack.output(), layers::ALL);
            stack.push(&Site { name, number, line, input, own, share })?;
        }
        Ok(stack)
    }

    /// The form of its output rows.
    pub(crate) fn output(&self) -> Form {
        self.stages.last().map_or(self.input, |stage| stage.output())
    }

    /// The parameters of all stages, from the first to the last.
    pub(crate) fn parameters(&self) -> &[Parameter] {
        self.parameters.get_or_init(|| {
            let mut all = self.parameters_by_stage();
            let is_matrix = |it: &Parameter| it.care == Care::Matrix;
            let last = all.iter_mut().rfind(|some| self.closed && some.iter().any(is_matrix));
            let outputs = last.into_iter().flatten().filter(|it| is_matrix(it));
            outputs.for_each(|it| it.care = Care::Output);
            all.into_iter().flatten().collect()
        })
    }

    /// The first numbers of all parameters whose stages draw them themselves.
    pub(crate) fn begun(&self, seed: u64) -> Vec<Option<Vec<f32>>> {
        let of = |stage: &dyn Stage| match stage.begun(seed) {
            Some(values) => values.into_iter().map(Some).collect(),
            None => vec![None; stage.parameters().len()],
        };
        self.stages.iter().flat_map(|stage| of(&**stage)).collect()
    }

    /// The parameters of each stage.
    pub(crate) fn parameters_by_stage(&self) -> Vec<Vec<Parameter>> {
        self.stages.iter().map(|stage| stage.parameters()).collect()
    }

    /// The name, the line and the stage of each layer.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, &str, &dyn Stage)> {
        let named = self.names.iter().zip(&self.lines).zip(&self.stages);
        named.map(|((name, line), stage)| (name.as_str(), line.as_str(), &**stage))
    }

    /// One of its stages.
    pub(crate) fn stage(&self, index: usize) -> &dyn Stage {
        &*self.stages[index]
    }

    /// Runs rows through all stages.
    pub(crate) fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        self.forward_through(input, pass, self.stages.len())
    }

    /// Runs rows through the first so many stages.
    pub(crate) fn forward_through(&self, input: Flow, pass: &mut Pass<'_>, count: usize) -> Flow {
        self.forward_between(input, pass, 0..count)
    }

    /// Runs rows through some stages.
    pub(crate) fn forward_between(
        &self,
        input: Flow,
        pass: &mut Pass<'_>,
        stages: Range<usize>,
    ) -> Flow {
        // Networks inside this one follow it.
        pass.precision = pass.precision.max(self.precision);
        let (mut flow, mut rest) = (input, &self.stages[stages]);
        while let [stage, after @ ..] = rest {
            (flow, rest) = match stage.finishing() {
                None => (stage.forward(flow, pass), after),
                Some(stage) => {
                    let (finish, count) = finish_of(stage, after);
                    (stage.forward_finished(flow, finish, pass), &after[count..])
                }
            };
        }
        flow
    }

    /// How many numbers the parameters of each stage have.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        let of = |stage: &dyn Stage| stage.parameters().iter().map(Parameter::len).sum();
        self.stages.iter().map(|stage| of(&**stage)).collect()
    }

    /// What each stage costs for a row.
    pub(crate) fn costs(&self) -> Vec<u64> {
        self.stages.iter().map(|stage| stage.cost()).collect()
    }

    /// The lines that it was made from.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// Which of all parameters are those of some stages.
    pub(crate) fn parameters_of(&self, stages: Range<usize>) -> Range<usize> {
        let before =
            |end: usize| self.stages[..end].iter().map(|stage| stage.parameters().len()).sum();
        before(stages.start)..before(stages.end)
    }

    /// The form of rows after so many stages.
    pub(crate) fn output_after(&self, count: usize) -> Form {
        self.stages[..count].last().map_or(self.input, |stage| stage.output())
    }

    /// How many stages.
    pub(crate) fn len(&self) -> usize {
        self.stages.len()
    }

    /// The form of its input rows.
    pub(crate) fn input(&self) -> Form {
        self.input
    }
}

impl Stack {
    /// Draws the first so many stages into a graph, after the value `input`; `None` if one cannot be drawn.
    pub(crate) fn draw(
        &self,
        graph: &mut Graph,
        input: &str,
        model: &Model,
        count: usize,
    ) -> Option<String> {
        let start = input.to_string();
        self.stages
            .iter()
            .take(count)
            .try_fold(start, |value, stage| stage.draw(graph, &value, model))
    }

    /// How many numbers a row leaves in all stages for the way back.
    pub(crate) fn inside(&self) -> u64 {
        let of = |stage: &dyn Stage| stage.inside().saturating_add(stage.output().len() as u64);
        self.stages.iter().map(|stage| of(&**stage)).fold(0, u64::saturating_add)
    }

    /// Tells each stage in a line: its name, its output and how many parameters it has.
    pub(crate) fn describe(&self, text: &mut String) {
        for (stage, line) in self.stages.iter().zip(&self.lines) {
            let numbers: usize = stage.parameters().iter().map(Parameter::len).sum();
            text.push_str(&format!("{line:24} {:>32} {numbers:>10}\n", stage.output().to_string()));
        }
    }
}

/// What a stage can do of what those after it would, and how many those are.
fn finish_of(stage: &dyn Finishing, after: &[Box<dyn Stage>]) -> (Finish, usize) {
    let (mut finish, mut count) = (Finish::NONE, 0);
    for next in after {
        match next.finish().and_then(|next| stage.with(finish, next)) {
            None => break,
            Some(both) => (finish, count) = (both, count + 1),
        }
    }
    (finish, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_named_after_the_place_of_their_layer() {
        let lines = ["linear 4", "relu", "linear 2 bias off"].map(str::to_string);
        let stack = Stack::build(Form::Flat(3), &lines).unwrap();
        let names: Vec<String> = stack.parameters().iter().map(|it| it.name.clone()).collect();
        assert_eq!(names, ["00-linear.weight", "00-linear.bias", "02-linear.weight"]);
        assert_eq!((stack.len(), stack.output()), (3, Form::Flat(2)));
    }
}
