//! Stop 1 of the walk: rows → shards → batches. Sources read files into tables; the schema says what the
//! columns mean; the dealer says which rows a step uses.

mod batch;
mod schema;
mod table;

pub use batch::{Batch, Dealer, Holding, Picked, Slice, shard_rows, shard_start};
pub use schema::{Column, ColumnKind, Encoding, LabelNeed, Schema, Target};
pub use table::{Features, Row, Table};
