//! Tensor parallelism by annotations (Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using
//! model parallelism", 2019; Yuan et al., "OneFlow: redesign the distributed deep learning framework from scratch", 2021):
//! every layer says how its rows come in and go out on several workers, and where neighbours differ a conversion is put
//! between them.
//!
//! | cut | parameters of a worker | rows in | rows out | gradients in | gradients out |
//! |---|---|---|---|---|---|
//! | whole | all | broadcast | broadcast | broadcast | broadcast |
//! | columns | some outputs (channels, tokens of a vocabulary) | broadcast | split | split | partial |
//! | through | none | split | split | split | split |
//! | rows | those for some inputs | split | partial | broadcast | split |
//! | heads | queries, keys, values and output rows of some heads | broadcast | partial | broadcast | partial |
//! | width | some numbers of each token's vector | broadcast | split | split | broadcast |
//!
//! What is partial is summed; what is split is put together, and a gradient of which a part has use only for its own columns
//! is narrowed to them. So a layer in columns and the next one in rows cost one sum forward, after the second, and one back,
//! before the first; attention costs as much by itself. An embedding is cut by width and not by tokens, for then what
//! travels is a P-th of each vector instead of a sum of whole vectors of which all but one are zeros, and every part has the
//! same work whatever tokens come.

use crate::flow::Form;
use crate::parts::mark;
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::unfold::{Piece, Unfolded, unfolded};
use starlings_core::{Fault, Result};
use std::ops::Range;

/// What a flow is on the workers that share a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    /// Each has all of it.
    Broadcast,
    /// Each has some of its numbers.
    Split,
    /// It is the sum of what they have.
    Partial,
}

/// How a layer is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Everyone has all of it and computes the same.
    Whole,
    /// Everyone has some of its outputs.
    Columns,
    /// It works number by number or channel by channel on what is split.
    Through,
    /// Everyone has what some of its inputs are multiplied with.
    Rows,
    /// Everyone has some heads of attention, from queries to outputs.
    Heads,
    /// Everyone has some numbers of the vector of each token.
    Width,
}

impl Cut {
    /// Rows in and out, gradients in and out.
    fn spreads(self) -> [Spread; 4] {
        use Spread::{Broadcast, Partial, Split};
        match self {
            Cut::Whole => [Broadcast, Broadcast, Broadcast, Broadcast],
            Cut::Columns => [Broadcast, Split, Split, Partial],
            Cut::Through => [Split, Split, Split, Split],
            Cut::Rows => [Split, Partial, Broadcast, Split],
            Cut::Heads => [Broadcast, Partial, Broadcast, Partial],
            // Tokens have no gradient.
            Cut::Width => [Broadcast, Split, Split, Broadcast],
        }
    }
}

/// What the goal wants of the outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// Everyone has all of them.
    Whole,
    /// Everyone has the scores of some tokens of the vocabulary.
    Vocabulary,
}

/// What happens to rows between two spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Meeting {
    /// Nothing.
    Pass,
    /// They are summed over the workers.
    Sum,
    /// They are put together of everyone's columns.
    Gather,
}

/// Layers between two conversions, or two ends of shortcuts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) stages: Range<usize>,
    /// What becomes of what comes out.
    pub(crate) outputs: Meeting,
    /// Whether the gradient by what comes in is summed, and whether a part keeps but its own columns of it.
    pub(crate) sums_gradients: bool,
    pub(crate) narrows_gradients: bool,
    /// Whether a shortcut begins before it, and whether one ends after it.
    pub(crate) opens: bool,
    pub(crate) closes: bool,
}

/// One worker's part of a network.
pub(crate) struct Split {
    cuts: Vec<Cut>,
    shortcuts: Vec<Range<usize>>,
    pub(crate) ends: Ends,
    /// Which part, from 0, and of how many.
    pub(crate) part: usize,
    pub(crate) parts: usize,
}

/// Layers that work number by number, or channel by channel.
const THROUGH: &[&str] = &[
    "relu",
    "leaky-relu",
    "gelu",
    "silu",
    "tanh",
    "sigmoid",
    "max-pool",
    "average-pool",
    "flatten",
];

impl Split {
    /// A network of so many layers of which nothing is split.
    pub(crate) fn none(layers: usize) -> Split {
        let (cuts, shortcuts) = (vec![Cut::Whole; layers], Vec::new());
        Split { cuts, shortcuts, ends: Ends::Whole, part: 0, parts: 1 }
    }

    /// Annotates a network for so many parts: attention by heads; pairs of linear layers or convolutions with nothing else
    /// but functions and pools between them, the first in columns and the second in rows; vectors of tokens by width; and
    /// scores of tokens by columns. Layers inside a block are annotated by themselves.
    ///
    /// # Errors
    /// When nothing can be split, or the parts do not divide what is to be.
    pub(crate) fn of(stack: &Stack, (part, parts): (usize, usize), ends: Ends) -> Result<Split> {
        let Unfolded { pieces, shortcuts } = unfolded(stack);
        let mut cuts = vec![Cut::Whole; pieces.len()];
        let ends = match pieces.last() {
            Some(last) if ends == Ends::Vocabulary && kind(last.line) == "linear" => {
                divisible(last, (channels(last.stage.output()), "scores of tokens"), parts)?;
                cuts[pieces.len() - 1] = Cut::Columns;
                Ends::Vocabulary
            }
            _ => Ends::Whole,
        };
        let mut at = 0;
        while at < cuts.len() {
            let piece = &pieces[at];
            let partner = partner(&pieces, at).filter(|&it| cuts[it] == Cut::Whole);
            match (kind(piece.line), partner) {
                ("attention", _) => {
                    divisible(piece, (number(piece.line, 1), "heads"), parts)?;
                    cuts[at] = Cut::Heads;
                }
                ("embedding", _) => {
                    divisible(piece, (number(piece.line, 2), "numbers for each token"), parts)?;
                    cuts[at] = Cut::Width;
                }
                (_, Some(next)) => {
                    divisible(piece, (channels(piece.stage.output()), "outputs"), parts)?;
                    cuts[at] = Cut::Columns;
                    cuts[at + 1..next].fill(Cut::Through);
                    cuts[next] = Cut::Rows;
                    at = next;
                }
                _ => {}
            }
            at += 1;
        }
        if cuts.iter().all(|&cut| cut == Cut::Whole) {
            return Err(Fault::caller("no layer of this network can be split")
                .hint("attention, vectors of tokens, and two linear layers or convolutions with only a function or a pool between them can; else choose plan 'pipeline' or 'data-parallel'"));
        }
        Ok(Split { cuts, shortcuts, ends, part, parts })
    }

    /// The line of this part's own layer.
    pub(crate) fn line(&self, index: usize, line: &str) -> String {
        let narrowed = |word: usize| {
            let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            words[word] = (number(line, word) / self.parts).to_string();
            words.join(" ")
        };
        match self.cuts[index] {
            Cut::Columns => narrowed(1),
            Cut::Width => narrowed(2),
            // A bias is added once.
            Cut::Rows if self.part > 0 && !line.contains("bias") => format!("{line} bias off"),
            _ => line.to_string(),
        }
    }

    /// Which layers of the job file are split, at least in part.
    pub(crate) fn split_layers(&self, stack: &Stack) -> Vec<usize> {
        let pieces = unfolded(stack).pieces;
        let split = pieces.iter().enumerate().filter(|(index, _)| !self.mark(*index).is_empty());
        let mut layers: Vec<usize> = split.map(|(_, piece)| piece.number - 1).collect();
        layers.dedup();
        layers
    }

    /// Which share of its heads this part's own layer has.
    pub(crate) fn share(&self, index: usize) -> (usize, usize) {
        match self.cuts[index] {
            Cut::Heads => (self.part, self.parts),
            _ => crate::layers::ALL,
        }
    }

    /// Whether a layer takes all numbers of a row.
    pub(crate) fn takes_whole(&self, index: usize) -> bool {
        self.cuts[index].spreads()[0] == Spread::Broadcast
    }

    /// What the names of a layer's parameters have behind the layer's: parts of one tensor have different names.
    pub(crate) fn mark(&self, index: usize) -> String {
        match self.cuts[index] {
            Cut::Whole | Cut::Through => String::new(),
            _ => mark(self.part, self.parts),
        }
    }

    /// Those of some layers that stand between conversions, the lowest first: one stands wherever neighbours' annotations
    /// differ. What comes out of the last of them is as the layer above wants it, and the gradient by what goes into the first
    /// is as the layer below does, wherever those are.
    pub(crate) fn spans(&self, of: &Range<usize>) -> Vec<Span> {
        let count = self.cuts.len();
        let is_edge = |at: usize| at == of.start || at == of.end;
        let opens = |at: usize| self.shortcuts.iter().any(|shortcut| shortcut.start == at);
        let closes = |at: usize| self.shortcuts.iter().any(|shortcut| shortcut.end == at);
        // What the goal wants, and the gradients that it gives.
        let goal = match self.ends {
            Ends::Whole => Cut::Whole,
            Ends::Vocabulary => Cut::Through,
        };
        let (mut spans, mut start, mut gradients) = (Vec::new(), 0, (false, false));
        for end in 1..=count {
            let above = self.cuts.get(end).copied().unwrap_or(goal).spreads();
            let [_, out, wanted_back, _] = self.cuts[end - 1].spreads();
            let [wanted, _, _, back] = above;
            let (outputs, below) = (meeting(out, wanted), returning(back, wanted_back));
            let is_seam = outputs != Meeting::Pass || below != (false, false);
            if is_seam || opens(end) || closes(end) || end == count || is_edge(end) {
                let (sums_gradients, narrows_gradients) = gradients;
                let (opens, closes) = (opens(start), closes(end));
                assert!(
                    !closes || wanted_back == Spread::Broadcast,
                    "shortcuts end with whole rows"
                );
                let stages = start..end;
                spans.push(Span {
                    stages,
                    outputs,
                    sums_gradients,
                    narrows_gradients,
                    opens,
                    closes,
                });
                (start, gradients) = (end, below);
            }
        }
        spans.retain(|span| of.contains(&span.stages.start));
        spans
    }

    /// A parameter of a layer is cut into runs of so many numbers, of each of which a part has its share; `None` where a
    /// part has all of it.
    pub(crate) fn run(&self, index: usize, line: &str, parameter: &Parameter) -> Option<usize> {
        let (len, last) = (parameter.len(), *parameter.shape.last()?);
        let name = parameter.name.rsplit('.').next().unwrap_or_default();
        match (self.cuts[index], kind(line), name) {
            (Cut::Whole | Cut::Through, ..) => None,
            // Outputs come last in the matrix of a linear layer, and first in that of a convolution.
            (Cut::Columns, "linear", "weight") | (Cut::Width, ..) => Some(last),
            (Cut::Columns, ..) | (Cut::Rows, "linear", "weight") => Some(len),
            (Cut::Rows, _, "weight") => Some(len / parameter.shape[0]),
            // Queries, keys and values, and in each of them the heads.
            (Cut::Heads, _, "weight" | "bias") => Some(last / 3),
            (Cut::Heads, _, "output") => Some(len),
            (Cut::Rows | Cut::Heads, ..) => None,
        }
    }
}

/// Whether any layers of a network can be split.
pub(crate) fn can_split(lines: &[String]) -> bool {
    let by_itself = |line: &String| ["embedding", "attention", "transformer"].contains(&kind(line));
    let kinds: Vec<&str> = lines.iter().map(|line| kind(line)).collect();
    lines.iter().any(by_itself) || (0..lines.len()).any(|at| paired(&kinds, at).is_some())
}

/// The layer that makes a pair with this one.
fn partner(pieces: &[Piece<'_>], at: usize) -> Option<usize> {
    let kinds: Vec<&str> = pieces.iter().map(|piece| kind(piece.line)).collect();
    let next = paired(&kinds, at)?;
    // Of a sequence, all numbers of a step come before those of the next: no part has neighbouring ones.
    let mixes =
        |it: &Piece<'_>| kind(it.line) == "flatten" && matches!(it.input, Form::Sequence { .. });
    (!pieces[at..next].iter().any(mixes)).then_some(next)
}

/// The same by kinds: both multiply, and what is between them goes number by number.
fn paired(kinds: &[&str], at: usize) -> Option<usize> {
    let multiplies = |at: usize| ["linear", "conv"].contains(&kinds[at]);
    let next = (at + 1..kinds.len()).find(|&next| !THROUGH.contains(&kinds[next]));
    next.filter(|&next| multiplies(at) && multiplies(next))
}

/// Refuses a layer whose numbers the parts cannot share evenly.
fn divisible(piece: &Piece<'_>, (count, what): (usize, &str), parts: usize) -> Result<()> {
    if count.is_multiple_of(parts) {
        return Ok(());
    }
    let Piece { number, listed, .. } = piece;
    let told = format!(
        "layer {number} '{listed}' has {count} {what}, which {parts} workers cannot share evenly"
    );
    let hint = match what {
        "outputs" => format!("choose a width that is a multiple of {parts}"),
        "scores of tokens" => {
            format!("set tokens = {}, of which some never come", count.next_multiple_of(parts))
        }
        _ => format!("choose a multiple of {parts}"),
    };
    Err(Fault::caller(told).hint(format!("{hint}, or another number of parts")))
}

/// What makes rows of one kind those of another.
///
/// # Panics
/// If nothing does: annotations are chosen so that something does.
fn meeting(found: Spread, wanted: Spread) -> Meeting {
    match (found, wanted) {
        (Spread::Partial, Spread::Broadcast) => Meeting::Sum,
        (Spread::Split, Spread::Broadcast) => Meeting::Gather,
        _ => {
            assert_eq!(found, wanted, "nothing makes the one of the other");
            Meeting::Pass
        }
    }
}

/// The same for gradients: whether they are summed, and whether they are narrowed.
fn returning(found: Spread, wanted: Spread) -> (bool, bool) {
    match (found, wanted) {
        (Spread::Partial, Spread::Broadcast) => (true, false),
        (Spread::Partial, Spread::Split) => (true, true),
        (Spread::Broadcast, Spread::Split) => (false, true),
        _ => {
            assert_eq!(found, wanted, "nothing makes the one of the other");
            (false, false)
        }
    }
}

fn kind(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

fn number(line: &str, word: usize) -> usize {
    let word = line.split_whitespace().nth(word);
    word.and_then(|word| word.parse().ok()).expect("the whole network was built of it")
}

/// What columns are: numbers of a row, numbers of a step, or channels.
fn channels(form: Form) -> usize {
    match form {
        Form::Flat(width) | Form::Sequence { width, .. } => width,
        Form::Image { channels, .. } => channels,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Cut::{Columns, Heads, Rows, Through, Whole, Width};

    fn split(input: Form, lines: &[&str], parts: usize) -> Result<Split> {
        split_to(Ends::Whole, input, lines, parts)
    }

    fn split_to(ends: Ends, input: Form, lines: &[&str], parts: usize) -> Result<Split> {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_string()).collect();
        Split::of(&Stack::build(input, &lines).unwrap(), (1, parts), ends)
    }

    /// Stages, what becomes of outputs, whether gradients are summed and narrowed, shortcuts that begin and end.
    fn told(split: &Split) -> Vec<(Range<usize>, Meeting, [bool; 4])> {
        let flags = |it: &Span| [it.sums_gradients, it.narrows_gradients, it.opens, it.closes];
        let all = 0..split.cuts.len();
        split.spans(&all).iter().map(|it| (it.stages.clone(), it.outputs, flags(it))).collect()
    }

    #[test]
    fn sums_stand_where_annotations_differ() {
        use Meeting::{Pass, Sum};
        let lines = ["linear 8", "relu", "linear 6", "relu", "linear 4"];
        let found = split(Form::Flat(5), &lines, 2).unwrap();
        assert_eq!(found.cuts, [Columns, Through, Rows, Whole, Whole]);
        assert_eq!(told(&found), [(0..3, Sum, [false; 4]), (3..5, Pass, [false; 4])]);
        let lines = ["layer-norm", "linear 8", "linear 6", "tanh", "linear 4", "relu", "linear 4"];
        let found = split(Form::Flat(5), &lines, 2).unwrap();
        assert_eq!(found.cuts, [Whole, Columns, Rows, Whole, Columns, Through, Rows]);
        let sums = [true, false, false, false];
        assert_eq!(
            told(&found),
            [
                (0..1, Pass, [false; 4]),
                (1..3, Sum, sums),
                (3..4, Pass, [false; 4]),
                (4..7, Sum, sums)
            ]
        );
    }

    #[test]
    fn a_language_model_is_split_by_width_heads_columns_and_vocabulary() {
        use Meeting::{Gather, Pass, Sum};
        let lines =
            ["embedding 10 8", "position", "transformer 4 causal", "layer-norm", "linear 10"];
        let found = split_to(Ends::Vocabulary, Form::Flat(3), &lines, 2).unwrap();
        let block = [Whole, Heads, Whole, Columns, Through, Rows];
        assert_eq!(found.cuts, [&[Width, Whole][..], &block, &[Whole, Columns]].concat());
        let (opens, closes) = ([false, false, true, false], [true, false, false, true]);
        assert_eq!(
            told(&found),
            [
                (0..1, Gather, [false; 4]),
                (1..2, Pass, [false, true, false, false]),
                (2..3, Pass, opens),
                (3..4, Sum, closes),
                (4..5, Pass, opens),
                (5..8, Sum, closes),
                (8..9, Pass, [false; 4]),
                (9..10, Pass, [true, false, false, false]),
            ]
        );
        // Vectors right below scores: their gradients are summed, and each part keeps its own columns.
        let found = split_to(Ends::Vocabulary, Form::Flat(3), &["embedding 6 4", "linear 6"], 2);
        let found = told(&found.unwrap());
        assert_eq!(found[1], (1..2, Pass, [true, true, false, false]));
    }

    #[test]
    fn a_part_has_its_share_of_the_columns_and_rows() {
        let image = Form::Image { channels: 1, height: 4, width: 4 };
        let lines = ["conv 6", "relu", "max-pool 2", "linear 5"];
        let found = split(image, &lines, 3).unwrap();
        let lines: Vec<String> =
            lines.iter().enumerate().map(|(at, line)| found.line(at, line)).collect();
        assert_eq!(lines, ["conv 2", "relu", "max-pool 2", "linear 5 bias off"]);
        assert_eq!((found.mark(0), found.mark(1)), ("@2of3".to_string(), String::new()));
    }

    #[test]
    fn steps_that_are_flattened_are_no_neighbours() {
        let sequence = Form::Sequence { steps: 3, width: 4 };
        let fault = split(sequence, &["linear 8", "flatten", "linear 2"], 2).err().unwrap();
        assert!(fault.to_string().contains("no layer of this network can be split"), "{fault}");
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        let fault = split(Form::Flat(5), &["linear 9", "relu", "linear 2"], 2).err().unwrap();
        assert!(fault.to_string().contains("layer 1 'linear 9' has 9 outputs"), "{fault}");
        let fault =
            split(Form::Flat(5), &["linear 8", "dropout 0.5", "linear 2"], 2).err().unwrap();
        assert!(fault.to_string().contains("no layer of this network can be split"), "{fault}");
        let language = |line: &str, tokens: usize, parts: usize| {
            let last = format!("linear {tokens}");
            let lines = ["embedding 9 12", line, &last];
            let found = split_to(Ends::Vocabulary, Form::Flat(3), &lines, parts);
            found.err().unwrap().to_string()
        };
        for (found, wanted) in [
            (language("transformer 3", 10, 2), "layer 2 'transformer 3' has 3 heads, which 2"),
            (language("attention 4", 9, 3), "layer 2 'attention 4' has 4 heads, which 3"),
            (language("transformer 4", 9, 2), "layer 3 'linear 9' has 9 scores of tokens, which 2"),
            (language("layer-norm", 10, 5), "layer 1 'embedding 9 12' has 12 numbers for each"),
        ] {
            assert!(found.contains(wanted), "{found}");
        }
        let hint = language("transformer 4", 9, 2);
        assert!(hint.contains("tokens = 10"), "{hint}");
    }
}
