//! Events become progress, lines, records and a summary. Consumes nothing but
//! [`Event`](starlings_core::Event): no engine, no clock (events carry their seconds), no terminal, so that a
//! recorded run replays exactly as it was seen. Beside it are pictures of what was learned, for reports.

mod chrome;
pub mod figures;
mod overlap;
mod panel;
pub mod picture;
mod plain;
mod progress;
mod record;
mod summary;

pub use chrome::chrome_trace;
pub use overlap::{Overlap, overlap};
pub use panel::{panel, validation};
pub use plain::{Plain, remark};
pub use progress::Progress;
pub use record::{Recorder, from_line, replay, to_line};
pub use summary::summary;
