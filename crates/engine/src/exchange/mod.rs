//! How contributions become one model: by playing a topology's moves (`scheduled`) or by owners that serve
//! rows (`served`). Both are pure machines; `cut` says how an update becomes chunks.

pub mod cut;
pub(crate) mod rows_wire;
pub mod scheduled;
pub mod served;
