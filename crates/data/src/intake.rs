//! How raw files become a model's rows, besides what its schema says: what stands beside the features, and what is
//! prepared. It travels with the survey and is stored in the model file.

use crate::columns::Beside;
use crate::prepare::Prepared;
use serde::{Deserialize, Serialize};

/// How raw files become rows. The default adds nothing to the schema.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Intake {
    /// The names of the columns of weights and of groups.
    #[serde(default)]
    pub beside: Beside,
    /// The steps of the preparation, fitted.
    #[serde(default)]
    pub prepared: Prepared,
}
