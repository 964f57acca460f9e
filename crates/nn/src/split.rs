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
//! | channels | scale and shift of some channels (norms by batch or groups) | split | split | split | split |
//! | units | some units of a recurrent layer, in all gates | broadcast | broadcast | broadcast | partial |
//!
//! What is partial is summed; what is split is put together, and a gradient of which a part has use only for its own columns
//! is narrowed to them. So a layer in columns and the next one in rows cost one sum forward, after the second, and one back,
//! before the first; attention costs as much by itself. An embedding is cut by width and not by tokens, for then what
//! travels is a P-th of each vector instead of a sum of whole vectors of which all but one are zeros, and every part has the
//! same work whatever tokens come. Units of a recurrent layer meet at every step, where the state is put together
//! (`recurrence.rs`).
//!
//! Where the way forks and joins again, beside a shortcut, rows are whole: so a residual block costs one sum forward, after its
//! second convolution, and where its shortcut has a convolution of its own, in columns, the putting together of these.

use crate::flow::Form;
use crate::layers::gates;
use crate::parts::mark;
use crate::stack::Stack;
use crate::stage::Parameter;
use crate::unfold::{Fork, Piece, Unfolded, unfolded};
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
    /// Everyone normalises some channels.
    Channels,
    /// Everyone has some units of a recurrent layer.
    Units,
}

impl Cut {
    /// Rows in and out, gradients in and out.
    fn spreads(self) -> [Spread; 4] {
        use Spread::{Broadcast, Partial, Split};
        match self {
            Cut::Whole => [Broadcast, Broadcast, Broadcast, Broadcast],
            Cut::Columns => [Broadcast, Split, Split, Partial],
            Cut::Through | Cut::Channels => [Split, Split, Split, Split],
            Cut::Rows => [Split, Partial, Broadcast, Split],
            Cut::Heads => [Broadcast, Partial, Broadcast, Partial],
            // Tokens have no gradient.
            Cut::Width => [Broadcast, Split, Split, Broadcast],
            // States are put together at every step.
            Cut::Units => [Broadcast, Broadcast, Broadcast, Partial],
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

/// Layers between two conversions, or where the way forks or joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) stages: Range<usize>,
    /// What becomes of what comes out.
    pub(crate) outputs: Meeting,
    /// Whether the gradient by what comes in is summed, and whether a part keeps but its own columns of it.
    pub(crate) sums_gradients: bool,
    pub(crate) narrows_gradients: bool,
    /// Whether the way forks before it; whether after it, the one way done, what came in goes the other; and whether after it
    /// the ways join.
    pub(crate) opens: bool,
    pub(crate) turns: bool,
    pub(crate) closes: bool,
}

/// One worker's part of a network.
pub(crate) struct Split {
    cuts: Vec<Cut>,
    forks: Vec<Fork>,
    pub(crate) ends: Ends,
    /// Which part, from 0, and of how many.
    pub(crate) part: usize,
    pub(crate) parts: usize,
}

/// Layers with parameters for each channel, which they normalise by itself or with its neighbours.
const NORMS: &[&str] = &["batch-norm", "group-norm"];

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
        let (cuts, forks) = (vec![Cut::Whole; layers], Vec::new());
        Split { cuts, forks, ends: Ends::Whole, part: 0, parts: 1 }
    }

    /// Annotates a network for so many parts: attention by heads; pairs of linear layers or convolutions with nothing else
    /// but functions, pools and norms of channels between them, the first in columns and the second in rows; convolutions in
    /// shortcuts by columns; recurrent layers by units; vectors of tokens by width; and scores of tokens by columns. Layers
    /// inside a block are annotated by themselves.
    ///
    /// # Errors
    /// When nothing can be split, or the parts do not divide what is to be.
    pub(crate) fn of(stack: &Stack, (part, parts): (usize, usize), ends: Ends) -> Result<Split> {
        let Unfolded { pieces, forks } = unfolded(stack);
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
            let partner = partner(&pieces, &forks, at).filter(|&it| cuts[it] == Cut::Whole);
            match (kind(piece.line), partner) {
                ("attention", _) => {
                    divisible(piece, (number(piece.line, 1), "heads"), parts)?;
                    cuts[at] = Cut::Heads;
                }
                ("embedding", _) => {
                    divisible(piece, (number(piece.line, 2), "numbers for each token"), parts)?;
                    cuts[at] = Cut::Width;
                }
                ("rnn" | "lstm" | "gru", _) => {
                    divisible(piece, (number(piece.line, 1), "units"), parts)?;
                    cuts[at] = Cut::Units;
                }
                (_, Some(next)) => {
                    in_columns(&pieces, at..next, &mut cuts, parts)?;
                    cuts[next] = Cut::Rows;
                    at = next;
                }
                ("conv", None) => {
                    if let Some(end) = rest_of_shortcut(&pieces, &forks, at) {
                        in_columns(&pieces, at..end, &mut cuts, parts)?;
                        at = end - 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        if cuts.iter().all(|&cut| cut == Cut::Whole) {
            return Err(Fault::caller("no layer of this network can be split")
                .hint("attention, vectors of tokens, recurrent layers, residual blocks, and two linear layers or convolutions with only functions, pools and norms of channels between them can; else choose plan 'pipeline' or 'data-parallel'"));
        }
        Ok(Split { cuts, forks, ends, part, parts })
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
            Cut::Channels if kind(line) == "group-norm" => narrowed(1),
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

    /// Whether the workers of a layer meet at each of its steps.
    pub(crate) fn meets_at_steps(&self, index: usize) -> bool {
        self.cuts[index] == Cut::Units
    }

    /// Which share of its heads or units this part's own layer has.
    pub(crate) fn share(&self, index: usize) -> (usize, usize) {
        match self.cuts[index] {
            Cut::Heads | Cut::Units => (self.part, self.parts),
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
        let any = |is: &dyn Fn(&Fork) -> bool| self.forks.iter().any(is);
        let opens = |at: usize| any(&|fork| fork.body.start == at);
        let turns = |at: usize| any(&|fork| fork.body.end == at && !fork.shortcut.is_empty());
        let closes = |at: usize| any(&|fork| fork.shortcut.end == at);
        let by_units = |at: usize| self.cuts.get(at) == Some(&Cut::Units);
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
            // Where ways meet rows are whole, whatever stands in the list on the other side.
            let (wanted, wanted_back) = match (turns(end) || closes(end), opens(end)) {
                (true, _) => (Spread::Broadcast, Spread::Broadcast),
                (_, true) => (Spread::Broadcast, wanted_back),
                _ => (wanted, wanted_back),
            };
            let (outputs, below) = (meeting(out, wanted), returning(back, wanted_back));
            let is_fork = opens(end) || turns(end) || closes(end);
            let is_seam = outputs != Meeting::Pass || below != (false, false);
            let is_alone = by_units(end - 1) || by_units(end);
            if is_seam || is_fork || is_alone || end == count || is_edge(end) {
                let (sums_gradients, narrows_gradients) = gradients;
                let (opens, turns, closes) = (opens(start), turns(end), closes(end));
                let stages = start..end;
                spans.push(Span {
                    stages,
                    outputs,
                    sums_gradients,
                    narrows_gradients,
                    opens,
                    turns,
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
            // Of each gate, all units.
            (Cut::Units, cell, _) => Some(last / gates(cell)?),
            (Cut::Columns | Cut::Channels, ..) | (Cut::Rows, "linear", "weight") => Some(len),
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
    const BY_THEMSELVES: &[&str] =
        &["embedding", "attention", "transformer", "residual", "rnn", "lstm", "gru"];
    let by_itself = |line: &String| BY_THEMSELVES.contains(&kind(line));
    let kinds: Vec<&str> = lines.iter().map(|line| kind(line)).collect();
    lines.iter().any(by_itself) || (0..lines.len()).any(|at| paired(&kinds, at).is_some())
}

/// The layers that keep the nearest two that multiply from being split together; `None` where no two multiply.
pub(crate) fn between_pair(lines: &[String]) -> Option<Vec<usize>> {
    let multiplies = |at: &usize| ["linear", "conv"].contains(&kind(&lines[*at]));
    let multiplying: Vec<usize> = (0..lines.len()).filter(multiplies).collect();
    let between = multiplying.windows(2).map(|pair| -> Vec<usize> {
        (pair[0] + 1..pair[1]).filter(|&at| !goes_through(kind(&lines[at]))).collect()
    });
    between.min_by_key(Vec::len)
}

/// Puts a layer in columns, and with it those that go through after it.
fn in_columns(
    pieces: &[Piece<'_>],
    of: Range<usize>,
    cuts: &mut [Cut],
    parts: usize,
) -> Result<()> {
    let first = &pieces[of.start];
    divisible(first, (channels(first.stage.output()), "outputs"), parts)?;
    for at in of.clone().skip(1) {
        let is_norm = NORMS.contains(&kind(pieces[at].line));
        cuts[at] = if is_norm { Cut::Channels } else { Cut::Through };
        if kind(pieces[at].line) == "group-norm" {
            divisible(&pieces[at], (number(pieces[at].line, 1), "groups of channels"), parts)?;
        }
    }
    cuts[of.start] = Cut::Columns;
    Ok(())
}

/// Where the shortcut ends of which this is the only layer that multiplies.
fn rest_of_shortcut(pieces: &[Piece<'_>], forks: &[Fork], at: usize) -> Option<usize> {
    let fork = forks.iter().find(|fork| fork.shortcut.start == at && !fork.shortcut.is_empty())?;
    let mut rest = fork.shortcut.clone().skip(1);
    rest.all(|at| goes_through(kind(pieces[at].line))).then_some(fork.shortcut.end)
}

/// Whether a layer works on channels by themselves.
fn goes_through(kind: &str) -> bool {
    THROUGH.contains(&kind) || NORMS.contains(&kind)
}

/// The layer that makes a pair with this one, on the same way.
fn partner(pieces: &[Piece<'_>], forks: &[Fork], at: usize) -> Option<usize> {
    let kinds: Vec<&str> = pieces.iter().map(|piece| kind(piece.line)).collect();
    let next = paired(&kinds, at)?;
    let meets = |fork: &Fork| {
        let ends = [fork.body.start, fork.body.end, fork.shortcut.end];
        ends.iter().any(|end| (at + 1..=next).contains(end))
    };
    if forks.iter().any(meets) {
        return None;
    }
    // Of a sequence, all numbers of a step come before those of the next: no part has neighbouring ones.
    let mixes =
        |it: &Piece<'_>| kind(it.line) == "flatten" && matches!(it.input, Form::Sequence { .. });
    (!pieces[at..next].iter().any(mixes)).then_some(next)
}

/// The same by kinds: both multiply, and what is between them goes number by number or channel by channel.
fn paired(kinds: &[&str], at: usize) -> Option<usize> {
    let multiplies = |at: usize| ["linear", "conv"].contains(&kinds[at]);
    let next = (at + 1..kinds.len()).find(|&next| !goes_through(kinds[next]));
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
    use Cut::{Channels, Columns, Heads, Rows, Through, Units, Whole, Width};

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
    fn a_residual_block_is_split_by_channels_and_whole_where_its_ways_meet() {
        use Meeting::{Gather, Pass, Sum};
        let image = Form::Image { channels: 2, height: 4, width: 4 };
        let found = split(image, &["conv 2", "residual 4", "linear 3"], 2).unwrap();
        let body = [Columns, Channels, Through, Rows, Whole];
        let shortcut = [Columns, Channels];
        assert_eq!(found.cuts, [&[Whole][..], &body, &shortcut, &[Whole, Whole]].concat());
        let (opens, closes) = ([true, false, true, false], [true, false, false, true]);
        assert_eq!(
            told(&found),
            [
                (0..1, Pass, [false; 4]),
                (1..5, Sum, opens),
                (5..6, Pass, [false; 4]),
                (6..8, Gather, closes),
                (8..10, Pass, [false; 4]),
            ]
        );
        let turns: Vec<bool> = found.spans(&(0..10)).iter().map(|it| it.turns).collect();
        assert_eq!(turns, [false, false, true, false, false]);
        assert_eq!(found.line(2, "group-norm 4"), "group-norm 2");
        // A convolution before the block makes no pair with the one inside.
        let found = split(image, &["conv 4", "relu", "residual 4"], 2).unwrap();
        assert_eq!(found.cuts, [&[Whole, Whole][..], &body, &[Whole]].concat());
    }

    #[test]
    fn a_recurrent_layer_is_split_by_units_and_stands_alone() {
        use Meeting::{Gather, Pass};
        let lines = ["embedding 6 4", "lstm 4", "layer-norm", "linear 6"];
        let found = split_to(Ends::Vocabulary, Form::Flat(3), &lines, 2).unwrap();
        assert_eq!(found.cuts, [Width, Units, Whole, Columns]);
        assert_eq!(
            told(&found),
            [
                (0..1, Gather, [false; 4]),
                (1..2, Pass, [true, true, false, false]),
                (2..3, Pass, [false; 4]),
                (3..4, Pass, [true, false, false, false]),
            ]
        );
        assert_eq!((found.share(1), found.mark(1)), ((1, 2), "@2of2".to_string()));
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
    fn without_what_stands_between_a_pair_it_can_be_split() {
        let lines = |text: &str| text.split(", ").map(str::to_string).collect::<Vec<String>>();
        for (text, wanted) in [
            ("linear 8, relu, dropout 0.1, linear 4, layer-norm, dropout 0.1, linear 2", &[2][..]),
            ("linear 8, layer-norm, relu, noise 0.1, linear 2", &[1, 3]),
        ] {
            let mut lines = lines(text);
            assert!(!can_split(&lines), "{text}");
            let found = between_pair(&lines).unwrap();
            assert_eq!(found, wanted, "{text}");
            found.into_iter().rev().for_each(|at| drop(lines.remove(at)));
            assert!(can_split(&lines), "{lines:?}");
        }
        assert_eq!(between_pair(&lines("linear 2")), None);
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
