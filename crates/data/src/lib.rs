//! Stop 1 of the walk: rows → shards → batches. Sources read files into tables; the schema says what the
//! columns mean; the dealer says which rows a step uses.

mod batch;
mod beside;
mod blocks;
mod cells;
mod chunk;
mod columns;
mod encode;
mod folds;
mod groups;
mod growing;
mod input;
mod intake;
mod joined;
mod learning;
mod load;
mod locate;
mod number;
mod numbers;
mod pages;
mod parcels;
mod partition;
mod prepare;
mod quietly;
#[cfg(feature = "remote")]
pub mod remote;
mod schema;
mod share;
mod sources;
mod spec;
mod spill;
mod table;
mod thrift;

pub use batch::{Batch, Dealer, Holding, Picked, Slice, shard_rows, shard_start};
pub use chunk::Mark;
pub use columns::Beside;
pub use folds::{FoldSpec, Side, fold_of_rows};
pub use intake::Intake;
pub use load::{
    FilePlan, Survey, load, load_all, load_all_within, load_with, load_with_share, load_within,
    piece_rows, read_with, survey,
};
pub use locate::{glance, weighted};
pub use numbers::{Numbers, Plain};
pub use parcels::Parcel;
pub use partition::{Arrangement, Loose, Partition, Spot, arrange, load_share};
pub use prepare::{
    BuildPreparation, Cells, Fitted, Kind, Labels, PREPARATIONS, Preparation, Prepared, Series,
    Statistics, Step, StepSpec, check as check_preparation,
};
pub use schema::{Column, ColumnKind, Encoding, LabelNeed, Schema, Target};
pub use share::Share;
pub use sources::{Format, SOURCES};
pub use spec::{ColumnRef, DataSpec, LabelColumn, Source};
pub use spill::Room;
pub use table::{Features, Row, Stored, Table};
