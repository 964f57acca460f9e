//! How contributions become one model: by playing a topology's moves (`scheduled`), by whoever folds them all
//! (`collected`), or by owners that serve rows (`served`). All are pure machines; `cut` says how an
//! update becomes chunks, `packet` how a part of a contribution becomes bytes.

pub mod collected;
pub(crate) mod columns;
pub mod cut;
mod late;
mod mirror;
pub mod model_wire;
pub mod ownership;
pub mod packet;
mod pick;
pub mod reproducible;
pub(crate) mod rows_wire;
pub mod scheduled;
pub mod served;
