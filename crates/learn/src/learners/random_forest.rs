//! A random forest (Breiman, 2001): many trees, each on its own sample of the rows and each node on its own draw of the
//! features; their mean is the answer. Rows that a tree did not see judge it (out-of-bag estimate).

use super::BuildLearner;
use super::decision_tree::{BINS, CRITERION, MIN_GAIN, MIN_ROWS_LEAF, MIN_ROWS_SPLIT, common};
use crate::trees::dealt::{Choice, Dealt, GIVES, NEEDS};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "random-forest",
    summary: "Many decision trees on samples of rows and features, with out-of-bag estimate",
    reference: "Breiman, Random forests, Machine Learning 45(1), 2001",
    params: &[
        Param {
            name: "trees",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Some("100"),
            help: "trees to grow; [train] epochs, if given and fewer, counts instead",
        },
        CRITERION,
        Param {
            name: "max_depth",
            kind: ParamKind::Integer { min: 0, max: 1000 },
            default: Some("0"),
            help: "most splits from the root to a leaf; 0 for no limit",
        },
        MIN_ROWS_LEAF,
        MIN_ROWS_SPLIT,
        MIN_GAIN,
        BINS,
        Param {
            name: "max_features",
            kind: ParamKind::Text,
            default: Some("auto"),
            help: "features a node looks at: sqrt, log2, all, a number, a share such as 0.3, or auto (sqrt for classes, all for numbers)",
        },
        Param {
            name: "bootstrap",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "whether each tree sees its own sample of the rows",
        },
        Param {
            name: "out_of_bag",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "whether rows are judged by the trees that did not see them",
        },
    ],
    gives: GIVES,
    needs: NEEDS,
    build: |params| {
        let forest = common(params, "random-forest");
        let classes = forest.is_classification();
        let bootstrap = params.flag("bootstrap");
        Ok(Box::new(Dealt {
            trees: params.size("trees"),
            features: choice(params.text("max_features"), classes)?,
            bootstrap,
            out_of_bag: bootstrap && params.flag("out_of_bag"),
            ..forest
        }))
    },
};

fn choice(word: &str, classes: bool) -> Result<Choice> {
    let number = || word.parse::<f64>().ok().filter(|&number| number > 0.0);
    match word {
        "auto" if classes => Ok(Choice::SquareRoot),
        "auto" | "all" => Ok(Choice::All),
        "sqrt" => Ok(Choice::SquareRoot),
        "log2" => Ok(Choice::Logarithm),
        _ => {
            match number() {
                Some(number) if word.contains('.') && number <= 1.0 => Ok(Choice::Share(number)),
                Some(number) if number.fract() == 0.0 => Ok(Choice::Count(number as usize)),
                _ => Err(Fault::caller(format!(
                    "random-forest: max_features = '{word}' is not allowed"
                ))
                .hint("write sqrt, log2, all, auto, a number such as 5, or a share such as 0.3")),
            }
        }
    }
}
