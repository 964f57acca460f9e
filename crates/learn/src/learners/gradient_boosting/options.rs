//! The parameters of gradient boosting, declared and checked.

use super::losses::Loss;
use crate::trees::split::Rules;
use starlings_core::{Fault, Param, ParamKind, Params, Result};
use starlings_data::Schema;

/// In which order leaves are split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// The leaf that gains most, wherever it is (Shi, 2007; LightGBM).
    LeafWise,
    /// All leaves of a level.
    LevelWise,
}

/// What workers exchange in order to find splits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parallelism {
    /// Histograms of all features.
    Data,
    /// Votes, then histograms of the elected features.
    Voting,
    /// All rows once, then the best splits of each group of features.
    Feature,
}

/// All parameters, checked.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Options {
    pub(super) trees: usize,
    pub(super) leaves: usize,
    pub(super) max_depth: usize,
    pub(super) growth: Growth,
    pub(super) learning_rate: f64,
    pub(super) bins: usize,
    pub(super) subsample: f64,
    pub(super) column_share: f64,
    pub(super) column_share_node: f64,
    /// The shares of large and of other gradients that are kept, if not all rows are.
    pub(super) goss: Option<[f64; 2]>,
    /// The word of the job file; `auto` is settled by the number of classes.
    pub(super) loss: String,
    pub(super) alpha: f64,
    pub(super) monotone: String,
    pub(super) early_stopping: usize,
    pub(super) validation: f64,
    pub(super) truncation: usize,
    pub(super) gradient_bits: GradientBits,
    pub(super) parallelism: Parallelism,
    pub(super) votes: usize,
    pub(super) splits_per_exchange: usize,
    pub(super) rules: Rules,
}

/// How finely gradients are rounded before they are summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GradientBits {
    /// 13 where there are many rows, else all.
    Auto,
    /// 13 bits, rounded by chance.
    Few,
    /// All of an f32.
    All,
}

const SHARE: ParamKind = ParamKind::Float { min: 1e-6, max: 1.0 };
const WEIGHT: ParamKind = ParamKind::Float { min: 0.0, max: 1e12 };

const fn param(
    name: &'static str,
    kind: ParamKind,
    default: &'static str,
    help: &'static str,
) -> Param {
    Param { name, kind, default: Some(default), help }
}

const fn whole(min: i64, max: i64) -> ParamKind {
    ParamKind::Integer { min, max }
}

/// The declared parameters.
pub(super) const PARAMS: &[Param] = &[
    param(
        "trees",
        whole(1, 1_000_000),
        "100",
        "trees to grow (for each class, where there are more than two); [train] epochs, if given, counts instead",
    ),
    param("leaves", whole(2, 65_536), "31", "most leaves of a tree"),
    param("max_depth", whole(0, 64), "0", "most splits from the root to a leaf; 0 for no limit"),
    param(
        "growth",
        ParamKind::Choice(&["leaf-wise", "level-wise"]),
        "leaf-wise",
        "split the leaf that gains most, or all leaves of a level",
    ),
    param(
        "learning_rate",
        ParamKind::Float { min: 1e-6, max: 1.0 },
        "0.1",
        "how much of each tree's step is taken",
    ),
    param("bins", whole(2, 255), "255", "most bins of a feature"),
    param("l2", WEIGHT, "0.0", "ridge on the values of leaves"),
    param("l1", WEIGHT, "0.0", "lasso on the values of leaves"),
    param("min_rows_leaf", whole(1, 1_000_000_000), "20", "fewest rows of a leaf"),
    param("min_hessian_leaf", WEIGHT, "0.001", "least sum of second derivatives of a leaf"),
    param("min_gain", WEIGHT, "0.0", "least gain of a split"),
    param("subsample", SHARE, "1.0", "share of the rows each tree sees"),
    param("column_share", SHARE, "1.0", "share of the features each tree sees"),
    param("column_share_node", SHARE, "1.0", "share of those that each split may use"),
    param(
        "goss",
        ParamKind::Flag,
        "false",
        "keep rows with large gradients and a sample of the others",
    ),
    param("goss_top", SHARE, "0.2", "share of rows with the largest gradients, with goss"),
    param("goss_other", SHARE, "0.1", "share of all rows sampled among the others, with goss"),
    param(
        "loss",
        ParamKind::Choice(&[
            "auto",
            "squared",
            "absolute",
            "huber",
            "quantile",
            "poisson",
            "logistic",
            "softmax",
            "lambdarank",
        ]),
        "auto",
        "what is minimised; auto: logistic or softmax, by the number of classes",
    ),
    param(
        "alpha",
        ParamKind::Float { min: 1e-6, max: 1e12 },
        "0.9",
        "the quantile, or where Huber's loss becomes linear",
    ),
    param(
        "monotone",
        ParamKind::Text,
        "",
        "features the prediction must rise or fall with: 'age:+1,rooms:-1'",
    ),
    param(
        "early_stopping",
        whole(0, 1_000_000),
        "0",
        "stop after so many trees that do not help on held-out rows; 0: never",
    ),
    param(
        "validation",
        ParamKind::Float { min: 0.001, max: 0.9 },
        "0.1",
        "share of the rows held out, with early_stopping",
    ),
    param("truncation", whole(1, 10_000), "30", "positions of a group that lambdarank looks at"),
    param(
        "category_smoothing",
        WEIGHT,
        "10.0",
        "added to a category's second derivatives; rarer ones are not split off",
    ),
    param("category_l2", WEIGHT, "10.0", "added to l2 in splits of categories"),
    param("category_limit", whole(1, 255), "32", "most categories on the smaller side of a split"),
    param(
        "category_group",
        whole(1, 1_000_000_000),
        "100",
        "fewest rows between two cuts of a category",
    ),
    param(
        "gradient_bits",
        ParamKind::Choice(&["auto", "13", "32"]),
        "auto",
        "bits of a row's gradient in histograms; auto: 13 from 50,000 rows on",
    ),
    param(
        "parallelism",
        ParamKind::Choice(&["data", "feature", "voting"]),
        "data",
        "what is exchanged: histograms of all features; all rows once and then best splits; histograms of elected features",
    ),
    param(
        "votes",
        whole(1, 65_536),
        "8",
        "features each shard votes for, with voting; twice as many are elected",
    ),
    param(
        "splits_per_exchange",
        whole(0, 1024),
        "0",
        "most leaves looked at in one exchange, leaf-wise; 0: all that are foreseen to be split",
    ),
];

impl Options {
    /// Reads checked parameters.
    pub(super) fn new(params: &Params) -> Result<Options> {
        let at_most = |size: usize, none: usize| if size == 0 { none } else { size };
        let options = Options {
            trees: params.size("trees"),
            leaves: params.size("leaves"),
            max_depth: at_most(params.size("max_depth"), 1_000),
            growth: match params.text("growth") {
                "level-wise" => Growth::LevelWise,
                _ => Growth::LeafWise,
            },
            learning_rate: params.f64("learning_rate"),
            bins: params.size("bins"),
            subsample: params.f64("subsample"),
            column_share: params.f64("column_share"),
            column_share_node: params.f64("column_share_node"),
            goss: params.flag("goss").then(|| [params.f64("goss_top"), params.f64("goss_other")]),
            loss: params.text("loss").to_string(),
            alpha: params.f64("alpha"),
            monotone: params.text("monotone").to_string(),
            early_stopping: params.size("early_stopping"),
            validation: params.f64("validation"),
            truncation: params.size("truncation"),
            gradient_bits: match params.text("gradient_bits") {
                "13" => GradientBits::Few,
                "32" => GradientBits::All,
                _ => GradientBits::Auto,
            },
            parallelism: match params.text("parallelism") {
                "voting" => Parallelism::Voting,
                "feature" => Parallelism::Feature,
                _ => Parallelism::Data,
            },
            votes: params.size("votes"),
            splits_per_exchange: params.size("splits_per_exchange"),
            rules: rules(params),
        };
        options.checked()
    }

    fn checked(self) -> Result<Options> {
        if self.loss == "quantile" && self.alpha >= 1.0 {
            return Err(Fault::caller(format!(
                "gradient-boosting: alpha = {} is no quantile",
                self.alpha
            ))
            .hint("give alpha between 0 and 1"));
        }
        if let Some([top, other]) = self.goss
            && (top + other > 1.0 || self.subsample < 1.0)
        {
            return Err(Fault::caller("gradient-boosting: goss chooses the rows itself").hint(
                "leave subsample at 1, and let goss_top and goss_other be 1 or less together",
            ));
        }
        Ok(self)
    }

    /// Whether training rows or columns are drawn by chance, so that a tree without a split says nothing of the next.
    pub(super) fn draws(&self) -> bool {
        let shares = self.subsample.min(self.column_share).min(self.column_share_node);
        shares < 1.0 || self.goss.is_some()
    }

    /// The loss for so many classes.
    pub(super) fn loss(&self, classes: usize) -> Loss {
        let alpha = self.alpha;
        match self.loss.as_str() {
            "squared" => Loss::Squared,
            "absolute" => Loss::Absolute,
            "huber" => Loss::Huber { alpha },
            "quantile" => Loss::Quantile { alpha },
            "poisson" => Loss::Poisson,
            "lambdarank" => Loss::LambdaRank,
            "softmax" => Loss::Softmax,
            "logistic" => Loss::Logistic,
            _ if classes > 2 => Loss::Softmax,
            _ => Loss::Logistic,
        }
    }

    /// The directions of all features; empty when none is constrained.
    pub(super) fn monotone(&self, schema: &Schema, categorical: &[bool]) -> Result<Vec<i8>> {
        if self.monotone.trim().is_empty() {
            return Ok(Vec::new());
        }
        let mut directions = vec![0; categorical.len()];
        for part in self.monotone.split(',') {
            let (name, direction) = direction(part)?;
            let place = schema.columns.iter().position(|column| column.name == name);
            let place = place.or_else(|| name.parse().ok().filter(|&at| at < categorical.len()));
            let Some(place) = place else {
                return Err(Fault::caller(format!("gradient-boosting: monotone names '{name}'"))
                    .hint(
                        "name a feature column, or its number from 0 where columns have no names",
                    ));
            };
            if categorical[place] {
                return Err(Fault::caller(format!(
                    "gradient-boosting: monotone names '{name}', a category"
                ))
                .hint("only numbers can rise or fall"));
            }
            directions[place] = direction;
        }
        Ok(directions)
    }
}

fn direction(part: &str) -> Result<(&str, i8)> {
    let (name, sign) = part.rsplit_once(':').unwrap_or((part, ""));
    let direction = match sign.trim() {
        "1" | "+1" | "+" => 1,
        "-1" | "-" => -1,
        "0" => 0,
        _ => {
            return Err(Fault::caller(format!(
                "gradient-boosting: monotone has '{}'",
                part.trim()
            ))
            .hint("write name:+1 or name:-1, with commas between"));
        }
    };
    Ok((name.trim(), direction))
}

fn rules(params: &Params) -> Rules {
    Rules {
        l1: params.f64("l1"),
        l2: params.f64("l2"),
        min_rows_leaf: params.i64("min_rows_leaf"),
        min_hessian: params.f64("min_hessian_leaf"),
        min_gain: params.f64("min_gain"),
        category_smoothing: params.f64("category_smoothing"),
        category_l2: params.f64("category_l2"),
        category_limit: params.size("category_limit"),
        category_group: params.i64("category_group"),
        monotone: Vec::new(),
        units: [1.0, 1.0],
    }
}
