//! A network whose blocks are unfolded: layers inside a block stand one after another with those outside, and shortcuts say
//! what is added to what. So a rule for layers holds for the layers of a block as well.

use crate::flow::Form;
use crate::stack::Stack;
use crate::stage::Stage;
use std::ops::Range;

/// A network, its blocks unfolded.
pub(crate) struct Unfolded<'a> {
    pub(crate) pieces: Vec<Piece<'a>>,
    /// Pieces of a branch: what goes into the first is added to what comes out of the last.
    pub(crate) shortcuts: Vec<Range<usize>>,
}

/// A layer, or one inside a block.
pub(crate) struct Piece<'a> {
    /// What the names of its parameters begin with.
    pub(crate) name: &'a str,
    /// Its own line.
    pub(crate) line: &'a str,
    /// The number and the line of the layer that the job file has.
    pub(crate) number: usize,
    pub(crate) listed: &'a str,
    /// The form of the rows that reach it.
    pub(crate) input: Form,
    pub(crate) stage: &'a dyn Stage,
}

impl Unfolded<'_> {
    /// Which pieces some layers of the job file are.
    pub(crate) fn of_layers(&self, layers: &Range<usize>) -> Range<usize> {
        let before = |layer: usize| self.pieces.iter().filter(|it| it.number <= layer).count();
        before(layers.start)..before(layers.end)
    }
}

/// Unfolds a network.
pub(crate) fn unfolded(stack: &Stack) -> Unfolded<'_> {
    let (mut pieces, mut shortcuts, mut input) = (Vec::new(), Vec::new(), stack.input());
    for (number, (name, listed, stage)) in (1..).zip(stack.each()) {
        let branches = stage.branches();
        if branches.is_empty() {
            pieces.push(Piece { name, line: listed, number, listed, input, stage });
        }
        for branch in branches {
            let (start, mut form) = (pieces.len(), input);
            for (name, line, stage) in branch.each() {
                pieces.push(Piece { name, line, number, listed, input: form, stage });
                form = stage.output();
            }
            shortcuts.push(start..pieces.len());
        }
        input = stage.output();
    }
    Unfolded { pieces, shortcuts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_a_block_stand_by_themselves_beside_their_shortcuts() {
        let lines = ["embedding 9 4", "transformer 2", "linear 9"].map(str::to_string);
        let stack = Stack::build(Form::Flat(3), &lines).unwrap();
        let Unfolded { pieces, shortcuts } = unfolded(&stack);
        let told: Vec<(usize, &str)> = pieces.iter().map(|it| (it.number, it.line)).collect();
        let wanted = [
            (1, "embedding 9 4"),
            (2, "layer-norm"),
            (2, "attention 2"),
            (2, "layer-norm"),
            (2, "linear 16"),
            (2, "gelu"),
            (2, "linear 4"),
            (3, "linear 9"),
        ];
        assert_eq!(told, wanted);
        assert_eq!(shortcuts, [1..3, 3..7]);
        let cut = |layers: Range<usize>| unfolded(&stack).of_layers(&layers);
        assert_eq!([cut(0..1), cut(1..2), cut(1..3), cut(3..3)], [0..1, 1..7, 1..8, 8..8]);
        // No parameter is lost, and their order is that of the network.
        let names = pieces.iter().flat_map(|it| it.stage.parameters()).map(|it| it.name);
        assert!(names.eq(stack.parameters().iter().map(|it| it.name.clone())));
    }
}
