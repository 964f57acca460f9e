//! A network whose blocks are unfolded: layers inside a block stand one after another with those outside, and forks say what
//! is added to what. So a rule for layers holds for the layers of a block as well.

use crate::flow::Form;
use crate::stack::Stack;
use crate::stage::{Limb, Stage};
use std::ops::Range;

/// A network, its blocks unfolded.
pub(crate) struct Unfolded<'a> {
    pub(crate) pieces: Vec<Piece<'a>>,
    pub(crate) forks: Vec<Fork>,
}

/// Where the way parts in two: what comes out of both is added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fork {
    /// The pieces of the one way.
    pub(crate) body: Range<usize>,
    /// The pieces of the other, right behind them; none where what goes in is added as it is.
    pub(crate) shortcut: Range<usize>,
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
    let (mut pieces, mut forks, mut input) = (Vec::new(), Vec::new(), stack.input());
    for (number, (name, listed, stage)) in (1..).zip(stack.each()) {
        let limbs = stage.limbs();
        if limbs.is_empty() {
            pieces.push(Piece { name, line: listed, number, listed, input, stage });
        }
        for limb in limbs {
            match limb {
                Limb::Alone(inner) => drop(lay((number, listed), inner, &mut pieces)),
                Limb::Beside { body, shortcut } => {
                    let body = lay((number, listed), body, &mut pieces);
                    let shortcut = match shortcut {
                        None => body.end..body.end,
                        Some(inner) => lay((number, listed), inner, &mut pieces),
                    };
                    forks.push(Fork { body, shortcut });
                }
            }
        }
        input = stage.output();
    }
    Unfolded { pieces, forks }
}

/// Adds the layers of a network inside a layer of the job file, and says where they are.
fn lay<'a>(
    (number, listed): (usize, &'a str),
    inner: &'a Stack,
    pieces: &mut Vec<Piece<'a>>,
) -> Range<usize> {
    let (start, mut input) = (pieces.len(), inner.input());
    for (name, line, stage) in inner.each() {
        pieces.push(Piece { name, line, number, listed, input, stage });
        input = stage.output();
    }
    start..pieces.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_of_a_block_stand_by_themselves_beside_their_shortcuts() {
        let lines = ["embedding 9 4", "transformer 2", "linear 9"].map(str::to_string);
        let stack = Stack::build(Form::Flat(3), &lines).unwrap();
        let Unfolded { pieces, forks } = unfolded(&stack);
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
        let fork = |body: Range<usize>, shortcut| Fork { body, shortcut };
        assert_eq!(forks, [fork(1..3, 3..3), fork(3..7, 7..7)]);
        let cut = |layers: Range<usize>| unfolded(&stack).of_layers(&layers);
        assert_eq!([cut(0..1), cut(1..2), cut(1..3), cut(3..3)], [0..1, 1..7, 1..8, 8..8]);
        // No parameter is lost, and their order is that of the network.
        let names = pieces.iter().flat_map(|it| it.stage.parameters()).map(|it| it.name);
        assert!(names.eq(stack.parameters().iter().map(|it| it.name.clone())));
    }

    #[test]
    fn a_shortcut_with_layers_of_its_own_stands_behind_the_body() {
        let lines = ["conv 4", "residual 8 stride 2", "residual 8"].map(str::to_string);
        let image = Form::Image { channels: 1, height: 4, width: 4 };
        let stack = Stack::build(image, &lines).unwrap();
        let Unfolded { pieces, forks } = unfolded(&stack);
        let fork = |body: Range<usize>, shortcut| Fork { body, shortcut };
        assert_eq!(forks, [fork(1..6, 6..8), fork(9..14, 14..14)]);
        assert_eq!(
            (pieces[6].line, pieces[6].input),
            ("conv 8 1 stride 2 bias off", pieces[1].input)
        );
        assert_eq!((pieces[8].line, pieces[14].line), ("relu", "relu"));
        let names = pieces.iter().flat_map(|it| it.stage.parameters()).map(|it| it.name);
        assert!(names.eq(stack.parameters().iter().map(|it| it.name.clone())));
    }
}
